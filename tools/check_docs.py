#!/usr/bin/env python3
"""Checks that the documents and the code still speak of the same things. Run by ./test.

usage: tools/check_docs.py [--root DIR] | --self-test

Fails on
  header     a header under src/ without a sentence of purpose, or without the fields that its folder asks for (FIELDS)
  tour       a stop of docs/TOUR.md whose file or symbol does not exist
  env        an environment variable read in src/base/env.cc that README.md and docs/ do not mention
  readme     a README whose first command does not stand by line 20
  changelog  a CHANGELOG without an Unreleased or version section
  path       a file that names an absolute path of somebody's home or work directory
  link       a relative link in a document that leads nowhere
  table      an include table in docs/ARCHITECTURE.md that differs from tools/check_layers.py
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_layers  # noqa: E402
import planted_faults  # noqa: E402

# Folder (the longest that fits wins) -> fields of the opening comment that may not be missing.
FIELDS = {
    "src/kernels": ("Shapes", "Source", "Capture"),
    "src/kernels/cpu": (),   # private to the kernels; the op's own header speaks for them
    "src/kernels/cuda": (),
    "src/model/formats": ("Errors",),
    "src/comm": ("Errors", "Threads"),
    "src/comm/algo": ("Errors", "Threads", "Order", "Cost"),
    "src/kv": (),
    "src/step": (),
}
# Headers that hold no operation.
EXEMPT = {
    "src/kernels/ref/half.h": "conversions of one value",
}
FIRST_RUN_LINE = 20


def read(path):
    with open(path, "rb") as f:
        data = f.read()
    return None if b"\0" in data else data.decode("utf-8", errors="replace")


def list_files(root):
    """The tracked files; in a tree without git, everything that is not a build or a download."""
    try:
        out = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, check=True).stdout
        top = subprocess.run(["git", "-C", root, "rev-parse", "--show-toplevel"], capture_output=True, check=True,
                             text=True).stdout.strip()
        if os.path.realpath(top) == os.path.realpath(root):
            return [f for f in out.decode().split("\0") if f and os.path.isfile(os.path.join(root, f))]
    except (OSError, subprocess.CalledProcessError):
        pass
    files = []
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f not in ("models", ".git", ".cache", "__pycache__") and
                      not f.startswith("build")]
        files += [os.path.relpath(os.path.join(folder, n), root) for n in names if not n.endswith(".pyc")]
    return files


def opening_comment(text):
    lines = []
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line[2:].strip())
    return lines


def check_header(path, text, report):
    comment = opening_comment(text)
    if not comment or len(comment[0]) < 20 or re.match(
            r"(Copyright|SPDX|(Shapes|Units|Requires|Errors|Threads|Capture|Order|Cost|Source): )", comment[0]):
        report("header", path, "does not open with a comment that says what it is for")
        return
    folders = [f for f in FIELDS if path.startswith(f + "/")]
    if not folders or path in EXEMPT or os.path.basename(path).startswith("test_"):
        return
    present = {m.group(1) for m in (re.match(r"([A-Z][A-Za-z]+):(\s|$)", line) for line in comment) if m}
    missing = [f for f in FIELDS[max(folders, key=len)] if f not in present]
    if missing:
        report("header", path, "its opening comment lacks: " + ", ".join(missing))


def check_tour(root, report):
    text = read(os.path.join(root, "docs/TOUR.md"))
    stops = 0
    for line in text.splitlines():
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if not line.startswith("|") or len(cells) < 4 or not cells[0].isdigit():
            continue
        stops += 1
        path = cells[-2].strip("`")
        symbols = re.findall(r"`([^`]+)`", cells[-1])
        full = os.path.join(root, path)
        if not os.path.isfile(full):
            report("tour", "docs/TOUR.md", "stop %s: there is no file %s" % (cells[0], path))
            continue
        if not symbols:
            report("tour", "docs/TOUR.md", "stop %s names no symbol" % cells[0])
        code = read(full) or ""
        for symbol in symbols:
            for part in symbol.split("::"):
                if not re.search(r"\b%s\b" % re.escape(part), code):
                    report("tour", "docs/TOUR.md", "stop %s: %s has no '%s'" % (cells[0], path, symbol))
                    break
    if stops == 0:
        report("tour", "docs/TOUR.md", "has no stops (rows: | number | what | `file` | `symbol` |)")


def check_table(root, report):
    text = read(os.path.join(root, "docs/ARCHITECTURE.md"))
    seen = {}
    for line in text.splitlines():
        m = re.match(r"\|\s*`(\w+)`\s*\|.*\|([^|]*)\|\s*$", line)
        if m and m.group(1) in check_layers.ALLOWED:
            words = set(re.findall(r"\b[a-z]+\b", m.group(2)))
            seen[m.group(1)] = words & set(check_layers.ALLOWED) if "any" not in words else {"*"}
    for module, allowed in check_layers.ALLOWED.items():
        if module not in seen:
            report("table", "docs/ARCHITECTURE.md", "has no row for module `%s`" % module)
        else:
            extra = {f.split("/")[0] for f in check_layers.ALLOWED_FILES.get(module, ())}
            if seen[module] - extra != set(allowed.split()) - extra:
                report("table", "docs/ARCHITECTURE.md", "module `%s` may include '%s', but the page says '%s'" % (
                    module, allowed, " ".join(sorted(seen[module]))))


def check(root):
    problems = []

    def report(kind, path, message):
        problems.append("%-9s %s: %s" % (kind, path, message))

    # Assembled, so that this file does not name such a path itself. /work and friends are the habits of machines that
    # run other people's jobs.
    private = re.compile(r"(?<![\w.$}~/-])/(?:%s)/[\w.-]" % "|".join(["home", "Users", "root", "work"]))
    files = list_files(root)
    documents = {}
    for path in files:
        text = read(os.path.join(root, path))
        if text is None:
            continue
        if path.startswith("src/") and path.endswith((".h", ".cuh")):
            check_header(path, text, report)
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) < 20000 and private.search(line):
                report("path", "%s:%d" % (path, number), "names an absolute path: " + line.strip()[:100])
        if path.endswith(".md"):
            documents[path] = text
            for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
                if "://" in target or target.startswith("mailto:"):
                    continue
                if not os.path.exists(os.path.join(root, os.path.dirname(path), target)):
                    report("link", path, "leads to %s, which does not exist" % target)

    for needed in ("README.md", "CHANGELOG.md", "docs/TOUR.md", "docs/ARCHITECTURE.md", "src/base/env.cc"):
        if not os.path.isfile(os.path.join(root, needed)):
            report("readme" if needed == "README.md" else "link", needed, "is missing")
            return problems, len(files)
    lines = documents["README.md"].splitlines()[:FIRST_RUN_LINE]
    if not any(re.match(r"\s*(\$ )?\./demo\b", line) for line in lines):
        report("readme", "README.md", "the first command, ./demo, does not stand by line %d" % FIRST_RUN_LINE)
    if not re.search(r"^## \[?(Unreleased|\d+\.\d+)", documents["CHANGELOG.md"], re.M):
        report("changelog", "CHANGELOG.md", "has no '## Unreleased' and no '## 1.2.3' section")
    public = documents["README.md"] + "".join(t for p, t in documents.items() if p.startswith("docs/"))
    for name in sorted(set(re.findall(r'"([A-Z][A-Z0-9_]{2,})"', read(os.path.join(root, "src/base/env.cc"))))):
        if not re.search(r"\b%s\b" % name, public):
            report("env", "src/base/env.cc", "%s is read but stands in no document" % name)
    check_tour(root, report)
    check_table(root, report)
    return problems, len(files)


def self_test():
    """Plants one fault of each kind in a sound tree and expects exactly that kind to be found."""
    rows = "".join("| `%s` | what | %s |\n" % (m, "any" if a == "*" else a or "-")
                   for m, a in check_layers.ALLOWED.items())
    ok = {
        "README.md": "# X\n\n    ./demo\n\n[tour](docs/TOUR.md) and LOCKSTEP_FAULT\n",
        "CHANGELOG.md": "# Changes\n\n## Unreleased\n",
        "docs/TOUR.md": "| 1 | text | `src/base/a.h` | `ns::Symbol` |\n",
        "docs/ARCHITECTURE.md": "| module | what | may include |\n| --- | --- | --- |\n" + rows,
        "src/base/env.cc": 'Read("LOCKSTEP_FAULT");\n',
        "src/base/a.h": "// A header that holds one symbol.\n\nnamespace ns { int Symbol; }\n",
        "src/kernels/op.h": "// An operation on rows of floats.\n//\n// Shapes:  x [T, D]\n// Capture: pure\n// Source: own\n",
        "src/comm/c.h": "// Moves bytes between the ranks.\n//\n// Errors:  none\n// Threads: any\n",
        "src/model/formats/f.h": "// Reads one format of model files.\n//\n// Errors: kCorruptFile\n",
    }
    faults = [
        ("header", {"src/step/s.h": "#pragma once\n"}),
        ("header", {"src/kernels/op.h": "// An operation on rows of floats.\n//\n// Shapes:  x\n// Source: own\n"}),
        ("header", {"src/comm/c.h": "// Moves bytes between the ranks.\n//\n// Errors:  none\n"}),
        ("header", {"src/model/formats/f.h": "// Reads one format of model files.\n"}),
        ("tour", {"docs/TOUR.md": "| 1 | text | `src/base/a.h` | `Nowhere` |\n"}),
        ("tour", {"docs/TOUR.md": "| 1 | text | `src/base/gone.h` | `Symbol` |\n"}),
        ("tour", {"docs/TOUR.md": "nothing\n"}),
        ("env", {"src/base/env.cc": 'Read("LOCKSTEP_NEW");\n'}),
        ("readme", {"README.md": "\n" * 20 + "    ./demo\nLOCKSTEP_FAULT\n"}),
        ("changelog", {"CHANGELOG.md": "# Changes\n"}),
        ("path", {"docs/x.md": "see " + "/".join(["", "home", "anna", "x"]) + "\n"}),
        ("path", {"src/base/b.cc": "// " + "/".join(["", "work", "tree"]) + "\n"}),
        ("link", {"docs/x.md": "[gone](gone.md)\n"}),
        ("table", {"docs/ARCHITECTURE.md": rows.replace("| `kv` | what | base", "| `kv` | what | model base")}),
        ("table", {"docs/ARCHITECTURE.md": rows.replace("| `step`", "| `stride`")}),
    ]

    return planted_faults.expect_found("check_docs", lambda root: check(root)[0], ok, faults)


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    if len(sys.argv) == 3 and sys.argv[1] == "--root":
        root = sys.argv[2]
    elif len(sys.argv) != 1:
        print(__doc__)
        return 2
    problems, num_files = check(root)
    for problem in problems:
        print(problem)
    print("check_docs: %d files, %d problems" % (num_files, len(problems)))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
