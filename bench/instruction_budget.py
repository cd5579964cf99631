#!/usr/bin/env python3
"""A guard of speed that no clock decides: instructions of the kernels against budgets (bench/instruction_budgets.txt).

usage: bench/instruction_budget.py [--build DIR] [--update] | --self-test [--build DIR]

Two counts. callgrind runs fixed calls of the AVX2 kernels (build/kernel_work; valgrind knows no AVX-512). For AVX-512
and AMX the disassembly is read: all instructions, and the products alone, in the innermost loop of a kernel, which is
the work of one block of 32. A count may exceed its budget by 5 %; products must agree exactly, for the shape of a tile
says how many there are. --update writes the counts that were found as the new budgets: it belongs into the change that
moves them. Budgets hold for one compiler; with another one, or without valgrind or objdump, a part is skipped.
Last line: N passed, N failed, N skipped
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUDGETS = os.path.join(ROOT, "bench", "instruction_budgets.txt")
SLACK = 0.05
OBJECTS = "src/kernels/CMakeFiles/lockstep_kernels.dir/cpu/%s.cc.o"

# One line a kernel: name, object file, function, product instruction. {T} is the type's number. Rows of a tile x groups
# of 16 outputs; a call with eight rows is two tiles of four that share the prefetch.
STATIC = [(line % t, source, function.replace("{T}", "{%s}" % t), product) for t in ("Q4_1", "Q8_0")
          for line, source, function, product in (
              ("avx512 %s 1 row x 2", "isa_avx512", "QuantTile<{T}, 1, 2, 1>", "vpdpbusd"),
              ("avx512 %s 4 rows x 2", "isa_avx512", "QuantTile<{T}, 4, 2, 1>", "vpdpbusd"),
              ("avx512 %s 8 rows as 2 x 4 x 2", "isa_avx512", "QuantTile<{T}, 4, 2, 2>", "vpdpbusd"),
              ("avx512 %s 6 rows x 2", "isa_avx512", "QuantTile<{T}, 6, 2, 1>", "vpdpbusd"),
              ("amx %s 16 rows x 1", "isa_amx", "TileRowsOfGroup<{T}, 16>", "tdpbssd"),
          )]


class Skip(Exception):
    """A part that cannot run here; the text says why."""


def run(command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


def type_numbers():
    with open(os.path.join(ROOT, "src", "base", "dtype.h"), encoding="utf-8") as f:
        names = re.search(r"enum class DType[^{]*\{([^}]*)\}", f.read()).group(1)
    return {name.strip()[1:]: i for i, name in enumerate(re.sub(r"//[^\n]*", "", names).split(",")) if name.strip()}


def compiler(build):
    """'GNU 12': a build's compiler; another one makes other loops."""
    folder = os.path.join(build, "CMakeFiles")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        path = os.path.join(folder, name, "CMakeCXXCompiler.cmake")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                text = f.read()
            found = [re.search(r'set\(CMAKE_CXX_COMPILER_%s "([^"]*)"\)' % key, text).group(1) for key in ("ID", "VERSION")]
            return "%s %s" % (found[0], found[1].split(".")[0])
    raise SystemExit("%s is no build folder: cmake --preset release" % build)


# --- the static count

FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\t(\S.*)$")
JUMP = re.compile(r"^j\w+\s+([0-9a-f]+)\b")


def functions(disassembly):
    """Name -> [(address, text)] of `objdump -d -C --no-show-raw-insn`."""
    found, current = {}, None
    for line in disassembly.splitlines():
        start = FUNCTION.match(line)
        if start:
            current = found.setdefault(start.group(1), [])
            continue
        instruction = INSTRUCTION.match(line)
        if instruction and current is not None:
            current.append((int(instruction.group(1), 16), instruction.group(2)))
    return found


def blocks_of(code):
    """Basic blocks by first address: (instructions, successors). Compilers move the rare parts of a loop behind it, so a
    loop is no range of addresses."""
    addresses = [address for address, _ in code]
    inside = set(addresses)
    starts = {addresses[0]}
    for i, (_, text) in enumerate(code):
        jump = JUMP.match(text)
        if jump and int(jump.group(1), 16) in inside:
            starts.add(int(jump.group(1), 16))
        if (jump or text.startswith(("jmp", "ret"))) and i + 1 < len(code):
            starts.add(addresses[i + 1])
    blocks, current = {}, None
    for i, (address, text) in enumerate(code):
        if address in starts:
            current = address
            blocks[current] = ([], set())
        blocks[current][0].append(text)
        if i + 1 == len(code) or addresses[i + 1] in starts:
            jump = JUMP.match(text)
            if jump and int(jump.group(1), 16) in inside:
                blocks[current][1].add(int(jump.group(1), 16))
            if i + 1 < len(code) and not text.startswith(("jmp", "ret")):
                blocks[current][1].add(addresses[i + 1])
    return blocks


def innermost_loops(code):
    """Instructions of each natural loop that holds no other."""
    if not code:
        return []
    blocks, entry = blocks_of(code), code[0][0]
    before = {b: set() for b in blocks}
    reached, todo = set(), [entry]
    while todo:
        b = todo.pop()
        if b not in reached:
            reached.add(b)
            todo += blocks[b][1]
    for b in reached:
        for successor in blocks[b][1]:
            before[successor].add(b)
    dominators = {b: {entry} if b == entry else set(reached) for b in reached}
    changed = True
    while changed:
        changed = False
        for b in sorted(reached - {entry}):
            common = set.intersection(*(dominators[p] for p in before[b])) | {b}
            changed |= common != dominators[b]
            dominators[b] = common
    loops = {}  # header -> blocks
    for b in reached:
        for header in blocks[b][1] & dominators[b]:
            body, todo = loops.setdefault(header, {header}), [b]
            while todo:
                inner = todo.pop()
                if inner not in body:
                    body.add(inner)
                    todo += before[inner]
    inner = [h for h in loops if not any(other != h and other in loops[h] for other in loops)]
    return [[text for b in sorted(loops[h]) for text in blocks[b][0]] for h in sorted(inner)]


def count_loop(code, product):
    """(all instructions, products) of the innermost loop with the most products; None: no loop has one."""
    counts = [(sum(t.split()[0] == product for t in loop), len(loop)) for loop in innermost_loops(code)]
    products, total = max(counts, default=(0, 0))
    return (total, products) if products else None


def static_counts(build):
    if not shutil.which("objdump"):
        raise Skip("objdump is not installed")
    types = {"Q" + name[1:]: "(lockstep::DType)%d" % number for name, number in type_numbers().items()}
    disassembled, counts = {}, {}
    for name, source, function, product in STATIC:
        path = os.path.join(build, OBJECTS % source)
        if path not in disassembled:
            if not os.path.exists(path):
                raise SystemExit("%s is missing: cmake --build %s" % (path, build))
            disassembled[path] = functions(run(["objdump", "-d", "-C", "--no-show-raw-insn", path]))
        wanted = "%s::%s(" % (source, function.format(**types))
        code = [c for f, c in disassembled[path].items() if wanted in f and "[clone .cold" not in f]
        loop = count_loop(code[0], product) if len(code) == 1 else None
        if loop is None:
            raise SystemExit("%s: %d functions %s...), none with a loop of %s; STATIC in %s names the kernels" % (
                name, len(code), wanted, product, os.path.basename(__file__)))
        counts["loop %s: instructions" % name], counts["loop %s: %s" % (name, product)] = loop
    return counts


# --- callgrind

def callgrind_counts(build, *options):
    if not shutil.which("valgrind"):
        raise Skip("valgrind is not installed")
    program = os.path.join(build, "kernel_work")
    if not os.path.exists(program):
        raise SystemExit("%s is missing: cmake --build %s --target kernel_work" % (program, build))
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        done = subprocess.run(["valgrind", "--tool=callgrind", "--toggle-collect=Measured", "--dump-after=Measured",
                               "--callgrind-out-file=" + out, program, *options], capture_output=True, text=True, check=False)
        if done.returncode == 77:
            raise Skip(done.stderr.strip().splitlines()[-1])
        if done.returncode != 0:
            raise SystemExit("kernel_work under callgrind: exit code %d\n%s" % (done.returncode, done.stderr[-2000:]))
        counts = {}
        for i, name in enumerate(done.stdout.split("\n")[:-1], start=1):
            with open("%s.%d" % (out, i), encoding="utf-8") as f:
                counts["avx2 " + name] = int(re.search(r"^summary: (\d+)$", f.read(), re.M).group(1))
    return counts


# --- budgets

def read_budgets(path):
    """(compiler, name -> count)"""
    made_with, budgets = None, {}
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, start=1):
            line = line.split("#")[0].strip()
            if not line:
                continue
            name, _, value = line.rpartition(" = ")
            if name == "compiler":
                made_with = value
            elif name and value.isdigit() and name not in budgets:
                budgets[name] = int(value)
            else:
                raise SystemExit("%s:%d: %r is no 'name = count', or stands twice" % (path, number, line))
    return made_with, budgets


def write_budgets(path, made_with, counts):
    with open(path, "w", encoding="utf-8") as f:
        f.write("# Instructions of the kernels, written by `bench/instruction_budget.py --update`; that file says what they are.\n")
        f.write("compiler = %s\n" % made_with)
        for name, count in counts.items():
            f.write("%s = %d\n" % (name, count))


def is_product(name):
    return name.startswith("loop ") and not name.endswith(": instructions")


def judge(counts, budgets):
    """Complaints, one line each, about counts above their budgets, without one, or of products that changed."""
    wrong = []
    for name, count in counts.items():
        budget = budgets.get(name)
        if budget is None:
            wrong.append("%s: %d, and no budget" % (name, count))
        elif is_product(name) and count != budget:
            wrong.append("%s: %d, the budget says exactly %d" % (name, count, budget))
        elif count > budget * (1 + SLACK):
            wrong.append("%s: %d is %.1f %% above the budget of %d" % (name, count, 100 * (count / budget - 1), budget))
    return wrong


PARTS = (("loop ", static_counts), ("avx2 ", callgrind_counts))


def check(build):
    passed = failed = skipped = 0
    made_with, budgets = read_budgets(BUDGETS)
    for prefix, count in PARTS:
        mine = {n: b for n, b in budgets.items() if n.startswith(prefix)}
        try:
            if compiler(build) != made_with:
                raise Skip("budgets are for %s, this build is by %s" % (made_with, compiler(build)))
            counts = count(build)
        except Skip as why:
            print("skipped  %s: %s" % (count.__name__, why))
            skipped += 1
            continue
        wrong = judge(counts, mine) + ["%s: has a budget and was not counted" % n for n in mine if n not in counts]
        for line in wrong:
            print("FAILED   " + line)
        for name, value in counts.items():
            if value < mine.get(name, 0) * (1 - SLACK):
                print("note     %s: %d is well below its budget of %d; --update" % (name, value, mine[name]))
        failed += len(wrong)
        passed += max(0, len(counts) - len(wrong))
    if failed:
        print("a change that is worth its instructions moves the budgets: bench/instruction_budget.py --update")
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    return 1 if failed else 0


def update(build):
    counts = {}
    for prefix, count in PARTS:
        try:
            counts.update(count(build))
        except Skip as why:
            raise SystemExit("no budgets written: %s" % why) from None
    write_budgets(BUDGETS, compiler(build), counts)
    print("%d budgets written to %s" % (len(counts), os.path.relpath(BUDGETS, ROOT)))
    return 0


# --- self-test: the guard must fail on an excess

# Two nested loops. The inner one has 6 instructions, of which two stand behind the outer one, as compilers place them.
LOOPS = """
.globl planted
planted:
  nop
outer: nop
inner: vpdpbusd %%zmm0, %%zmm1, %%zmm2
  dec %%rax
  jz aside
back: jnz inner
  dec %%rcx
  jnz outer
  ret
aside: %s
  nop
  jmp back
"""


def self_test(build):
    failures = []

    def expect(what, good):
        if not good:
            failures.append(what)

    budgets = {"loop a: instructions": 100, "loop a: vpdpbusd": 16, "avx2 b": 1000}
    expect("equal counts pass", not judge(dict(budgets), budgets))
    expect("5 % more passes", not judge({"loop a: instructions": 105, "avx2 b": 1050}, budgets))
    for name, count in (("loop a: instructions", 106), ("loop a: vpdpbusd", 17), ("loop a: vpdpbusd", 15), ("avx2 b", 1051),
                        ("avx2 unknown", 1)):
        complaints = judge({name: count}, budgets)
        expect("%s %d is named" % (name, count), len(complaints) == 1 and complaints[0].startswith(name))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "budgets.txt")
        write_budgets(path, "GNU 12", budgets)
        expect("budgets are read as written", read_budgets(path) == ("GNU 12", budgets))
        # Loops through the real assembler and objdump; one instruction more is planted.
        if shutil.which("objdump") and shutil.which("as") and os.uname().machine == "x86_64":
            totals = []
            for more in ("", "nop"):
                output = os.path.join(folder, "loop.o")
                run(["as", "-", "-o", output], input=LOOPS % more)
                disassembly = run(["objdump", "-d", "-C", "--no-show-raw-insn", output])
                # Labels of a hand-written file are functions to objdump.
                code = [instruction for part in functions(disassembly).values() for instruction in part]
                totals.append(count_loop(code, "vpdpbusd"))
            expect("loops are counted: %s" % totals, totals == [(6, 1), (7, 1)])
            expect("a planted instruction fails", judge({"avx2 x": totals[1][0]}, {"avx2 x": totals[0][0]}))
            expect("no product, no loop", count_loop(code, "tdpbssd") is None)
    try:
        plain, planted = callgrind_counts(build), callgrind_counts(build, "--plant")
        expect("callgrind counts the same twice", plain == callgrind_counts(build))
        expect("every planted call is found", len(judge(planted, plain)) == len(plain))
    except Skip as why:
        print("skipped  callgrind part of the self-test: %s" % why)
    for what in failures:
        print("FAILED   self-test: " + what)
    print("self-test: %s" % ("%d failed" % len(failures) if failures else "ok"))
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description="Instructions of the kernels against their budgets.")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--update", action="store_true", help="write what is counted as the new budgets")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test(options.build)
    return update(options.build) if options.update else check(options.build)


if __name__ == "__main__":
    sys.exit(main())
