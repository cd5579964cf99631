#!/usr/bin/env python3
"""Checks that the source keeps its layers (docs/ARCHITECTURE.md). Under one second; run by ./test.

usage: tools/check_layers.py [--root DIR] | --self-test

Fails on
  layer     an include of a module that the table below does not allow
  mutual    two folders under src/ that include each other
  feature   an LS_WITH_ feature macro outside src/device/dispatch.h and the generated configuration
  length    a file over 400 lines that LONG_FILES does not list with a reason, or over 800 in any case
  closure   a header that pulls in more than 20 project headers, itself not counted
  getenv    getenv anywhere but in src/base/env.cc
  foreign   a large library's header included from a header of ours
  clobber   a tile instruction that reads or writes memory in an asm statement without a memory clobber: the compiler would
            move stores behind it, as it does with GCC 12's own intrinsics
"""
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import planted_faults  # noqa: E402

# Module -> what it may include besides itself. One direction only. This is the table of docs/ARCHITECTURE.md.
ALLOWED = {
    "base": "",
    "device": "base",
    "trace": "base device",
    "topology": "base device",
    "comm": "base device trace topology",
    "kernels": "base device trace",
    "tokenizer": "base",
    "kv": "base device",
    "model": "base device trace kernels comm kv",
    "step": "base device trace kernels comm kv model",
    "spec": "base device trace kernels kv model step",
    "engine": "base device trace topology comm kernels tokenizer kv model step spec",
    "serve": "base trace tokenizer engine",
    "plan": "base topology",
    "cli": "*",
}
# Single headers that a module may include besides: cost models that have a second user.
ALLOWED_FILES = {
    "plan": {"comm/cost.h", "comm/algorithm.h", "comm/request.h", "model/config.h", "spec/governor.h"},
}
# Files over 400 lines: path -> why it is one thing. Over 800 no reason helps.
LONG_FILES = {
}
SOFT_LINES = 400
HARD_LINES = 800
MAX_CLOSURE = 20
FEATURE_FILES = {"src/device/dispatch.h", "src/base/config.h.in", "src/device/config.h.in"}
GETENV_FILE = "src/base/env.cc"
# Large or throwing libraries stay behind a .cc file, so that one file's use does not become everyone's.
FOREIGN = ("nlohmann/", "CLI/", "hwloc", "spdlog/", "boost/")

# Headers that one file fills with generated data are data, not code; they do not count as long.
GENERATED = re.compile(r"(_tables|_data|_generated)\.(h|cc|inc)$")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.M)
SOURCE = (".h", ".hpp", ".cc", ".cu", ".cuh", ".inc")
HEADER = (".h", ".hpp", ".cuh")


def strip_comments(text):
    """Removes comments, keeps line breaks; strings stay (an include is one)."""
    pattern = r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/'
    return re.sub(pattern, lambda m: m.group(1) or re.sub(r"[^\n]", "", m.group(0)), text, flags=re.S)


def is_test(path):
    return path.endswith(("_test.cc", "_test.cu", "_bench.cc", "_fuzz.cc"))


class Tree:
    """All C++ files below a root: path -> text, and the project includes of each."""

    def __init__(self, root):
        self.root = root
        self.text = {}
        for top in ("src", "include", "tests", "bench", "examples"):
            for folder, folders, names in os.walk(os.path.join(root, top)):
                folders.sort()
                for name in sorted(names):
                    if name.endswith(SOURCE):
                        full = os.path.join(folder, name)
                        with open(full, encoding="utf-8", errors="replace") as f:
                            self.text[os.path.relpath(full, root)] = f.read()
        self.code = {path: strip_comments(text) for path, text in self.text.items()}
        self.includes = {path: INCLUDE.findall(code) for path, code in self.code.items()}
        self.project = {path: [p for p in (self.resolve(path, inc) for inc in incs) if p]
                        for path, incs in self.includes.items()}

    def resolve(self, path, include):
        """The project file that an include means, or None."""
        name = include[1]
        candidates = ["src/" + name, "include/" + name]
        if include[0] == '"':
            candidates.append(os.path.normpath(os.path.join(os.path.dirname(path), name)))
        return next((c for c in candidates if c in self.text), None)

    def closure(self, path):
        seen, todo = set(), [path]
        while todo:
            for target in self.project[todo.pop()]:
                if target not in seen and target != path:
                    seen.add(target)
                    todo.append(target)
        return seen


def module_of(path):
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "src" else None


def check(root, long_files=None):
    long_files = LONG_FILES if long_files is None else long_files
    tree = Tree(root)
    problems = []

    def report(kind, path, message):
        problems.append("%-8s %s: %s" % (kind, path, message))

    edges = {}
    for path, code in tree.code.items():
        module = module_of(path)
        if path.startswith("src/") and module is None:
            report("layer", path, "stands in no module")
        elif module is not None and module not in ALLOWED:
            report("layer", path, "module '%s' is not in the table of tools/check_layers.py" % module)
        for bracket, name in tree.includes[path]:
            head = name.split("/")[0]
            if path.startswith("include/") and head in ALLOWED and "/" in name:
                report("layer", path, "an installed header includes %s" % name)
            if module in ALLOWED:
                target = head if "/" in name and head in ALLOWED else None
                resolved = tree.resolve(path, (bracket, name))
                if resolved and module_of(resolved):
                    target = module_of(resolved)
                if target and target != module:
                    edges.setdefault((module, target), "%s includes %s" % (path, name))
                    allowed = ALLOWED[module]
                    if allowed != "*" and target not in allowed.split() and \
                            name not in ALLOWED_FILES.get(module, ()):
                        report("layer", path, "'%s' may not include '%s' (%s)" % (module, target, name))
            if path.endswith(HEADER) and path.startswith(("src/", "include/")) and \
                    name.startswith(FOREIGN):
                report("foreign", path, "includes %s; only a .cc file may" % name)
        if "LS_WITH_" in code and path not in FEATURE_FILES:
            report("feature", path, "tests a feature macro (LS_WITH_); only src/device/dispatch.h may")
        if path.startswith(("src/", "include/")) and path != GETENV_FILE and \
                re.search(r"\b(secure_)?getenv\s*\(", code):
            report("getenv", path, "reads the environment; add a member to src/base/env.h")
        for statement in re.findall(r"\basm\b[^;]*;", code):
            if re.search(r"tileload|tilestore|ldtilecfg", statement) and '"memory"' not in statement:
                report("clobber", path, "no memory clobber: " + " ".join(statement.split()))
        num_lines = tree.text[path].count("\n")
        if not GENERATED.search(path):
            if num_lines > HARD_LINES:
                report("length", path, "%d lines; over %d whatever the reason" % (num_lines, HARD_LINES))
            elif num_lines > SOFT_LINES and path not in long_files:
                report("length", path, "%d lines; split it, or list it with a reason" % num_lines)
        if path.endswith(HEADER) and path.startswith(("src/", "include/")):
            closure = tree.closure(path)
            if len(closure) > MAX_CLOSURE:
                report("closure", path, "pulls in %d project headers, more than %d: %s" % (
                    len(closure), MAX_CLOSURE, " ".join(sorted(closure))))
    for (a, b), example in sorted(edges.items()):
        if a < b and (b, a) in edges:
            report("mutual", "src/%s and src/%s" % (a, b),
                   "include each other: %s; %s" % (example, edges[(b, a)]))
    for path, reason in long_files.items():
        if path not in tree.text:
            report("length", path, "is listed in LONG_FILES but does not exist")
        elif not reason.strip():
            report("length", path, "is listed in LONG_FILES without a reason")
    return problems, len(tree.text)


def self_test():
    """Plants one fault of each kind and expects exactly that kind to be found."""
    ok = {
        "src/base/a.h": "// A.\n#pragma once\n",
        "src/device/dispatch.h": "// D.\n#if LS_WITH_CUDA\n#endif\n#include \"base/a.h\"\n",
        "src/base/env.cc": "const char* e = getenv(\"X\");\n",
        "src/plan/p.cc": "#include \"spec/governor.h\"\n#include \"topology/graph.h\"\n",
        "src/spec/governor.h": "// G.\n#pragma once\n#include \"step/accept_walk.h\"\n",
        "src/step/accept_walk.h": "// W. Says getenv(\"x\") and LS_WITH_CUDA in a comment only.\n#pragma once\n",
        "src/topology/graph.h": "// T.\n",
        "src/base/x.cc": "#include <nlohmann/json.hpp>\n#include <spdlog/spdlog.h>\n",
        "src/tokenizer/unicode_tables.h": "\n" * 5000,
    }
    chain = {"src/base/c%d.h" % i: "#include \"base/c%d.h\"\n" % (i + 1) for i in range(21)}
    chain["src/base/c21.h"] = "\n"
    faults = [
        ("layer", {"src/base/bad.h": "#include \"model/shape.h\"\n"}),
        ("layer", {"src/kernels/bad.cc": "#include \"spec/governor.h\"\n"}),
        ("layer", {"src/plan/bad.cc": "#include \"comm/group.h\"\n"}),
        ("layer", {"src/invented/bad.h": "\n"}),
        ("layer", {"include/lockstep/bad.h": "#include \"base/a.h\"\n"}),
        ("layer", {"src/kernels/cpu/bad.h": "#include \"../../model/m.h\"\n", "src/model/m.h": "\n"}),
        ("mutual", {"src/cli/bad.h": "#include \"engine/b.h\"\n", "src/engine/b.h": "#include \"cli/bad.h\"\n"}),
        ("feature", {"src/kernels/bad.cc": "#ifdef LS_WITH_CUDA\n#endif\n"}),
        ("length", {"src/base/long.cc": "\n" * 401}),
        ("length", {"src/base/listed.cc": "\n" * 801}),
        ("closure", chain),
        ("getenv", {"src/comm/bad.cc": "auto* p = std::getenv(\"HOME\");\n"}),
        ("clobber", {"src/kernels/bad.h": "void f(void* p) { asm volatile(\"tileloadd (%0), %%tmm1\" : : \"r\"(p)); }\n"}),
        ("foreign", {"src/cli/bad.h": "#include <CLI/CLI.hpp>\n"}),
        ("foreign", {"src/model/bad.h": "#include <nlohmann/json.hpp>\n"}),
        ("foreign", {"src/comm/bad.h": "#include <hwloc.h>\n"}),
        ("foreign", {"src/base/bad.h": "#include <spdlog/spdlog.h>\n"}),
        ("foreign", {"src/serve/bad.h": "#include <boost/asio.hpp>\n"}),
    ]

    def problems(root):
        listed = os.path.exists(os.path.join(root, "src/base/listed.cc"))
        return check(root, {"src/base/listed.cc": "a test"} if listed else {})[0]

    return planted_faults.expect_found("check_layers", problems, ok, faults, tolerated=("layer",))


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    if len(sys.argv) == 3 and sys.argv[1] == "--root":
        root = sys.argv[2]
    elif len(sys.argv) != 1:
        print(__doc__)
        return 2
    start = time.monotonic()
    problems, num_files = check(root)
    for problem in problems:
        print(problem)
    print("check_layers: %d files, %d problems, %.2f s" % (num_files, len(problems), time.monotonic() - start))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
