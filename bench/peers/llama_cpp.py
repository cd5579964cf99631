#!/usr/bin/env python3
"""llama.cpp as a peer, the way people get it: the PyPI source package llama-cpp-python, compiled on this machine.

  llama_cpp.py setup                    makes a virtual environment and builds the package there (minutes)
  llama_cpp.py quantise                 makes files of other types in models/, for `run` to compare on
  llama_cpp.py run -m MODEL.gguf ...    measures Lockstep and llama.cpp in turns; prints Markdown, --json for all
  llama_cpp.py run --only llama ...     llama.cpp alone (no Lockstep binary needed)
  llama_cpp.py perplexity ...           teacher-forced log probabilities of llama.cpp for tools/perplexity_compare.py

Same GGUF files, same cores (--cpus, or one core for each thread out of those this process may use), same prompts. In
each turn every figure is measured by fresh processes of both engines, one right behind the other; which goes first
changes from turn to turn. llama.cpp runs with flash attention off and on, and its prompt lookup with drafts of 2 and 10
tokens; the better mode, figure by figure, is the peer. A mode that lost by a tenth in each figure of two turns rests.
Lockstep runs as tp N x 1 thread and tp 1 x N threads. The first model is measured in full; further ones by steps at
context 32. A ratio is Lockstep over llama.cpp within a turn. What fails is named in the output; the rest goes on.
Where an accelerated build for AMX is made by GCC 12, setup adds amx_gcc12.h, without which that build crashes.
"""
import argparse
import dataclasses
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))
import llama_report as report  # noqa: E402
from llama_engines import LIMIT_S, Failed, Llama, Lockstep, call, parsed  # noqa: E402

VERSION = "0.3.36"
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
# Of a run and of a quick one, where a flag says nothing else.
EXTENT = {"contexts": ([32, 512, 4096], [32, 512]), "widths": ([1, 2, 4, 8, 16, 32], [1, 2, 4, 8, 16]),
          "alternations": (7, 2), "tokens": (192, 32)}
WIDTHS_FAR = [1]  # behind a context above FAR, where a wide step of the peer takes a large part of a second
FAR = 1024
MEMORY_TURNS = 3  # it hardly differs from process to process
WIDTHS_OTHERS = [1, 4, 16]  # of the files after the first


def fail(message, code=1):
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)


def say(message):
    if sys.stderr.isatty():
        print(message, file=sys.stderr)


def cpu_fields():
    fields = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    except OSError:
        pass
    return fields


def machine():
    cpu = cpu_fields()
    flags = set(cpu.get("flags", "").split())
    wanted = ["avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8"]
    return {"cpu": cpu.get("model name", platform.processor() or "unknown"),
            "family_model": f"{cpu.get('cpu family', '?')}/{cpu.get('model', '?')}",
            "features": [f for f in wanted if f in flags], "cores": os.cpu_count(),
            "affinity": sorted(os.sched_getaffinity(0)), "kernel": platform.release(), "loadavg": os.getloadavg()}


def commit():
    try:
        done = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"],
                              capture_output=True, text=True, check=False)
    except OSError:  # no git: a tree from an archive
        return "unknown"
    return done.stdout.strip() or "unknown"


def pick_cpus(allowed, wanted, core_of):
    """`wanted` of the allowed processors: of different cores and one socket as long as there are such. core_of gives
    (socket, core) of a processor."""
    first = core_of(allowed[0])[0]
    order, cores = [], set()
    for cpu in sorted(allowed, key=lambda c: (core_of(c)[0] != first, c)):
        order.append((core_of(cpu) in cores, core_of(cpu)[0] != first, cpu))
        cores.add(core_of(cpu))
    return sorted(cpu for _, _, cpu in sorted(order)[:wanted])


def core_of(cpu):
    folder = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
    try:
        return int((folder / "physical_package_id").read_text()), int((folder / "core_id").read_text())
    except (OSError, ValueError):
        return 0, cpu


def gcc_version():
    try:
        done = subprocess.run(["g++", "-dumpversion"], capture_output=True, text=True, check=True)
        return int(done.stdout.split(".")[0])
    except (OSError, subprocess.CalledProcessError, ValueError):
        return 0


def peer(args, threads):
    try:
        return Llama(args, threads)
    except Failed as error:
        fail(f"{error}; run `{Path(sys.argv[0]).name} setup` first")


def setup(args):
    python = args.venv / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(args.venv)], check=True)
    env = dict(os.environ)
    flags = shlex.split(env.get("CMAKE_ARGS", ""))
    needs_fix = "amx_tile" in machine()["features"] and 0 < gcc_version() <= 12
    if args.amx_fix == "on" or (args.amx_fix == "auto" and needs_fix):
        header = HERE / "amx_gcc12.h"  # joined to -include, so that no list splitting can part them
        flags += [f"-DCMAKE_C_FLAGS=-include{header}", f"-DCMAKE_CXX_FLAGS=-include{header}"]
    env["CMAKE_ARGS"] = shlex.join(flags)
    env["CMAKE_BUILD_PARALLEL_LEVEL"] = str(args.jobs)
    command = [str(python), "-m", "pip", "install", "--no-binary", "llama-cpp-python",
               f"llama-cpp-python=={args.version}"]
    print("CMAKE_ARGS=" + shlex.quote(env["CMAKE_ARGS"]), shlex.join(command))
    try:
        subprocess.run(command, env=env, check=True)
    except subprocess.CalledProcessError as error:
        fail(f"pip failed with exit code {error.returncode}; a C++ compiler is needed")


@dataclasses.dataclass
class Job:
    model: Path
    group: str
    function: str  # of Llama and of Lockstep
    words: tuple = ()  # its arguments after model and config
    modes: tuple = ("off", "on")  # the peer's
    judged: tuple = ()  # the figures that decide whether a mode rests; none: all
    turns: int = 1 << 30  # at most


def jobs_of(args, models, kinds):
    """In the order of a turn."""
    jobs = [Job(models[0], f"steps at context {c}", "steps", (c, args.widths if c <= FAR else WIDTHS_FAR))
            for c in args.contexts]
    jobs.append(Job(models[0], "prefill", "prefill"))
    jobs.append(Job(models[0], "speculation", "spec", (kinds,), tuple(f"{f}, draft {d}" for f in ("off", "on")
                                                                     for d in (2, 10)), ("prompt lookup, all",)))
    jobs.append(Job(models[0], "start", "start", judged=(report.START_ENGINE,)))
    jobs.append(Job(models[0], "memory", "memory", turns=1 if args.quick else MEMORY_TURNS))
    return jobs + [Job(m, "steps at context 32", "steps", (32, [w for w in args.widths if w in WIDTHS_OTHERS] or [1]))
                   for m in models[1:]]


def take(samples, job, turn, side, config, engine, broken):
    """One sample. What failed once is not tried again: it would only cost its time limit anew."""
    if (key := (job.model, job.group, side, config)) in broken:
        return
    sample = {"model": job.model.name, "group": job.group, "side": side, "config": config, "turn": turn}
    began = time.monotonic()
    try:
        sample["figures"], sample["notes"] = getattr(engine, job.function)(job.model, config, *job.words)
    except Failed as error:
        sample["error"] = str(error)
        broken.add(key)
        print(f"warning: {job.model.name}, {job.group}, {config}: {error}", file=sys.stderr)
    except (KeyError, IndexError, TypeError, ZeroDivisionError) as error:
        sample["error"] = f"{side}: its output is not as expected ({type(error).__name__}: {error})"
        broken.add(key)
        print(f"warning: {job.model.name}, {job.group}, {config}: {sample['error']}", file=sys.stderr)
    sample["seconds"] = time.monotonic() - began
    samples.append(sample)


def read_prompts(path):
    """{kind: [lines]} of a file of prompts."""
    kinds = {}
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        if line.strip():
            try:
                kinds.setdefault(json.loads(line).get("kind", "other"), []).append(line + "\n")
            except (ValueError, AttributeError) as error:
                fail(f"{path}:{number}: no JSON object ({error})", 2)
    if not kinds:
        fail(f"{path} has no prompts", 2)
    return kinds


def check(args):
    for path in (*args.model, args.text, args.prompts):
        if not Path(path).exists():
            fail(f"{path} does not exist", 2)
    if len({m.name for m in args.model}) < len(args.model):
        fail("-m: two files of the same name", 2)
    if args.only != "llama" and not (args.lockstep.exists() and os.access(args.lockstep, os.X_OK)):
        fail(f"no Lockstep binary at {args.lockstep}: build it, name it with --lockstep, or use --only llama", 2)
    for name, low in (("contexts", 0), ("widths", 1), ("threads", 1)):
        if min(getattr(args, name)) < low:
            fail(f"--{name} {min(getattr(args, name))}: must be {low} or more", 2)
    if min(args.reps, args.alternations) < 1 or args.tokens < 2:
        fail("--reps and --alternations must be 1 or more, -n 2 or more", 2)
    allowed, most = sorted(os.sched_getaffinity(0)), max(args.threads)
    if args.cpus:
        try:
            os.sched_setaffinity(0, args.cpus)
        except OSError as error:
            fail(f"--cpus {','.join(map(str, args.cpus))}: {error.strerror}; allowed are {allowed}", 2)
    elif len(allowed) > most:
        os.sched_setaffinity(0, pick_cpus(allowed, most, core_of))
    if most > len(os.sched_getaffinity(0)):
        fail(f"{most} threads asked for, {len(os.sched_getaffinity(0))} cores allowed", 2)


def run(args):
    for name, (full, quick) in EXTENT.items():
        if getattr(args, name) is None:
            setattr(args, name, quick if args.quick else full)
    check(args)
    kinds = read_prompts(args.prompts)
    result = {"command": sys.argv, "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "commit": commit(),
              "machine": machine(), "models": {m.name: {"file_bytes": m.stat().st_size} for m in args.model},
              "by_threads": []}
    if result["machine"]["loadavg"][0] > 0.5 * len(result["machine"]["affinity"]):
        print(f"warning: other work is running here (load {result['machine']['loadavg'][0]:.1f}): these figures "
              "are not to be quoted", file=sys.stderr)
    refused = {}
    if args.only != "llama":
        for model in args.model:
            try:
                result["models"][model.name].update(Lockstep(args).describe(model))
            except Failed as error:
                refused[model] = str(error)
                print(f"warning: {model.name}: {error}", file=sys.stderr)
    began = time.monotonic()
    for threads in args.threads:
        engines = {}
        if args.only != "lockstep":
            engines["llama"] = peer(args, threads)
        if args.only != "llama":
            engines["lockstep"] = Lockstep(args)
        part = {"threads": threads, "samples": [], "peer": {}}
        part["samples"] += [{"model": m.name, "group": "loading", "side": "lockstep", "config": "-", "turn": 0,
                             "error": e} for m, e in refused.items()]
        result["by_threads"].append(part)
        measure(args, result, part, engines, jobs_of(args, args.model, kinds), refused)
    result["minutes"] = (time.monotonic() - began) / 60
    finish(args, result)
    print_report(args, result)
    failed = any("error" in s for p in result["by_threads"] for s in p["samples"] if s["model"] == args.model[0].name)
    return 1 if failed else 0


def measure(args, result, part, engines, jobs, refused):
    samples, broken, threads = part["samples"], set(), part["threads"]
    own = list(dict.fromkeys([f"{threads}x1", f"1x{threads}"]))
    for turn in range(args.alternations):
        for job in jobs:
            if turn >= job.turns:
                continue
            rest = report.hopeless(samples, job.model.name, job.group, job.modes, job.judged)
            todo = [("llama", m) for m in job.modes if m not in rest] if "llama" in engines else []
            ours = [("lockstep", c) for c in own] if "lockstep" in engines and job.model not in refused else []
            for side, config in (todo + ours if turn % 2 == 0 else ours[::-1] + todo[::-1]):
                say(f"{threads} threads, turn {turn + 1}/{args.alternations}: {job.model.name}, {job.group}, "
                    f"{side} {config}")
                take(samples, job, turn, side, config, engines[side], broken)
        if "llama" in engines:
            part["peer"] = engines["llama"].seen
        finish(args, result)  # after every turn, so that an interrupt keeps what was measured


def finish(args, result):
    """Works out the tables from what is there and writes the JSON."""
    models = [m.name for m in args.model]
    sizes = result["models"][models[0]] if "tensors" in result["models"][models[0]] else None
    for part in result["by_threads"]:
        part["rows"] = report.rows(part["samples"], models)
        part["verdicts"] = report.verdicts(part["samples"], models, sizes)
    result["machine"]["loadavg_after"] = os.getloadavg()
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n")


def print_report(args, result):
    m, turns = result["machine"], args.alternations
    print(f"{m['cpu']} ({' '.join(m['features'])}), cores {m['affinity']}, kernel {m['kernel']}; commit "
          f"{result['commit']}; {turns} turns in {result['minutes']:.1f} minutes; load before {m['loadavg'][0]:.2f}, "
          f"after {m['loadavg_after'][0]:.2f}\n\n    {shlex.join(result['command'])}\n")
    for part in result["by_threads"]:
        samples = part["samples"]
        if part["peer"]:
            print(f"{part['threads']} threads. Peer: {part['peer']['version']}; {part['peer']['system_info']}\n")
        if args.only is None:
            print("## What it must show\n\nMedians of the turns; what is judged stands in the last columns.\n")
            print(report.verdict_table(part["verdicts"], samples))
        for model in args.model:
            mine = [r for r in part["rows"] if r["model"] == model.name]
            if mine:
                print(f"## {model.name}\n\nTokens or rows a second unless the row says otherwise, median (best) of the "
                      "turns; mode: flash attention; ratio: Lockstep over llama.cpp, median (worst turn).\n")
                print(report.figure_table(mine, samples))
        if note := report.python_note(samples, args.model[0].name):
            print(note + "\n")
        if spec := report.spec_table(samples, args.model[0].name):
            print("## Speculation by kind of prompt\n\nTokens a second, medians.\n\n" + spec)
        if failures := report.errors(samples):
            print("## What could not be measured\n\n" + "\n".join(f"- {f}" for f in failures) + "\n")


def quantise(args):
    """Files for comparisons on other types. What is there already stays."""
    if not args.model.exists():
        fail(f"{args.model} does not exist; tools/get_model.py fetches it", 2)
    threads = len(os.sched_getaffinity(0))
    llama = peer(args, threads)
    stem, folder = args.model.name.split(".")[0], args.model.parent
    plain = folder / "generated-1024.F16.gguf"

    def make(source, name, kind):
        if (folder / name).exists():
            print(f"{folder / name} is there")
            return
        part = folder / (name + ".part")
        try:
            done = call([*llama.base, "quantise", "-m", source, "--type", kind, "--out", part, "--threads", threads],
                        "llama.cpp", limit_s=4 * LIMIT_S)
            os.replace(part, folder / name)
        finally:
            part.unlink(missing_ok=True)
        print(f"{folder / name}: {parsed(done, 'llama.cpp')['bytes'] / 1e6:.1f} MB")

    try:
        for kind in ("Q8_0", "Q4_0", "Q4_K_M"):
            make(args.model, f"{stem}.{kind}.gguf", kind)
        name = "generated-1024.Q4_K_M.gguf"
        if not (folder / name).exists():
            call([sys.executable, ROOT / "tools" / "make_mid_model.py", plain, "--tokenizer", args.model],
                 "make_mid_model", limit_s=4 * LIMIT_S)
        make(plain, name, "Q4_K_M")
    except Failed as error:
        fail(str(error))
    finally:
        plain.unlink(missing_ok=True)


def perplexity(args):
    llama = peer(args, args.threads[0])

    def worker(*words):
        return parsed(call([*llama.base, *words], "llama.cpp", limit_s=12 * LIMIT_S), "llama.cpp")

    try:
        if not args.ids:
            args.ids = args.json + ".ids.json"
            Path(args.ids).write_text(json.dumps(
                worker("ids", "-m", args.model, "--text", args.text, "--tokens", args.tokens)) + "\n")
        result = worker("forced", "-m", args.model, "--ids", args.ids, "--tokens", args.tokens, "--threads",
                        args.threads[0], "--flash", args.flash, "--chunk", args.chunk)
    except Failed as error:
        fail(str(error))
    Path(args.json).write_text(json.dumps(result) + "\n")
    mean = -sum(result["logprob"]) / len(result["logprob"])
    print(f"{len(result['ids'])} tokens, perplexity {2.718281828459045 ** mean:.4f}, written to {args.json}")


def numbers(text):
    return [int(x) for x in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    s = commands.add_parser("setup", help="build llama.cpp from PyPI")
    q = commands.add_parser("quantise", help="make files of other types")
    r = commands.add_parser("run", help="measure side by side")
    p = commands.add_parser("perplexity", help="teacher-forced log probabilities")
    for c in (s, q, r, p):
        c.add_argument("--venv", type=Path, default=ROOT / ".cache" / "peers" / "llama_cpp", metavar="DIR")
    s.add_argument("--version", default=VERSION)
    s.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    s.add_argument("--amx-fix", choices=["auto", "on", "off"], default="auto")
    q.add_argument("-m", "--model", type=Path, default=MODEL, help="the file to start from")
    r.add_argument("-m", "--model", type=Path, required=True, nargs="+",
                   help="the first is measured in full, others by their steps at context 32")
    p.add_argument("-m", "--model", required=True)
    for c in (r, p):
        c.add_argument("--text", default=str(ROOT / "tests" / "data" / "real_text.txt"))
        c.add_argument("--threads", type=numbers, default=[2], metavar="LIST")
    r.add_argument("--lockstep", type=Path, default=ROOT / "build" / "lockstep", metavar="BINARY")
    r.add_argument("--only", choices=["llama", "lockstep"])
    r.add_argument("--prompts", default=str(ROOT / "bench" / "prompts" / "kinds.jsonl"))
    r.add_argument("--contexts", type=numbers, metavar="LIST", help="tokens in the cache (default 32,512,4096)")
    r.add_argument("--widths", type=numbers, metavar="LIST", help="rows of a step (default 1,2,4,8,16,32)")
    r.add_argument("-n", "--tokens", type=int, help="tokens a prompt (default 192)")
    r.add_argument("--reps", type=int, default=7, help="samples of each width in each turn")
    r.add_argument("--alternations", type=int, help="turns (default 7)")
    r.add_argument("--quick", action="store_true", help="two turns, fewer contexts and tokens: about two minutes")
    r.add_argument("--cpus", type=numbers, metavar="LIST", help="pin both engines to these cores")
    r.add_argument("--json", metavar="FILE", help="everything measured, with command, machine and commit")
    p.add_argument("--ids", metavar="JSON", help="ids to use instead of tokenizing --text")
    p.add_argument("--tokens", type=int, default=2000)
    p.add_argument("--flash", choices=["off", "on"], default="off")
    p.add_argument("--chunk", type=int, default=128)
    p.add_argument("--json", metavar="FILE", required=True)
    args = parser.parse_args()
    def stop(number, frame):  # so that the process being measured is ended too
        del number, frame
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, stop)
    try:
        sys.exit({"setup": setup, "quantise": quantise, "run": run, "perplexity": perplexity}[args.command](args))
    except KeyboardInterrupt:
        fail("interrupted; --json has the turns that were complete", 130)


if __name__ == "__main__":
    main()
