#!/usr/bin/env python3
"""llama.cpp as a peer, the way people get it: the PyPI source package llama-cpp-python, compiled on this machine.

  llama_cpp.py setup                 makes a virtual environment and builds the package there (minutes)
  llama_cpp.py run -m MODEL.gguf     measures Lockstep and llama.cpp in turns, prints ratios
  llama_cpp.py run --only llama ...  llama.cpp alone (no Lockstep binary needed)
  llama_cpp.py perplexity ...        teacher-forced log probabilities of llama.cpp for tools/perplexity_compare.py

Same GGUF file, same cores (the affinity this process has, or --cpus), same prompts. Each alternation starts
fresh processes: llama.cpp, then Lockstep, then the next. llama.cpp is measured with flash attention off and on;
the better of the two, figure by figure, is the peer. Ratios are Lockstep over llama.cpp in speed (above 1 =
Lockstep is faster), one for each alternation; their minimum and median are printed. Where an accelerated build
for AMX is made by GCC 12, setup adds amx_gcc12.h, without which that build crashes.
"""
import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VERSION = "0.3.36"
WIDTHS = [1, 2, 3, 4, 5, 6, 7, 8, 16]


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


def gcc_version():
    try:
        done = subprocess.run(["g++", "-dumpversion"], capture_output=True, text=True, check=True)
        return int(done.stdout.split(".")[0])
    except (OSError, subprocess.CalledProcessError, ValueError):
        return 0


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


def worker(args, *words):
    """Runs llama_worker.py in the prepared environment, returns its JSON."""
    python = args.venv / "bin" / "python"
    if not python.exists():
        fail(f"no llama.cpp environment at {args.venv}; run `{Path(sys.argv[0]).name} setup` first")
    command = [str(python), str(HERE / "llama_worker.py"), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        fail(f"llama.cpp worker: {done.stderr.strip().splitlines()[-1:] or done.returncode}\n  {shlex.join(command)}")
    return json.loads(done.stdout)


def lockstep(args, *words, optional=False):
    """Runs the binary with --json FILE; returns the JSON. Exit code 7 (mismatch) still has figures. An optional
    figure that the binary refuses is left out with a warning."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [str(args.lockstep), *map(str, words), "--json", out.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 7):
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            if optional:
                print(f"warning: left out: {' '.join(last)}\n  {shlex.join(command)}", file=sys.stderr)
                return {"rows": [], "exit_code": done.returncode}
            fail(f"lockstep exited with {done.returncode}: {' '.join(last)}\n  {shlex.join(command)}")
        result = json.loads(Path(out.name).read_text())
    result["exit_code"] = done.returncode
    result["command"] = ["lockstep", *map(str, words)]
    return result


def measure_llama(args, threads):
    words = ["measure", "-m", args.model, "--threads", threads, "--text", args.text, "--reps", args.reps,
             "--contexts", ",".join(map(str, args.contexts)), "--widths", ",".join(map(str, args.widths)),
             "--decode-tokens", args.tokens, "--prompts", args.prompts, "-n", args.tokens]
    return worker(args, *words)


def measure_lockstep(args, threads):
    ranks = ["-m", args.model, "--tp", threads, "--threads", 1]
    widths = ",".join(map(str, args.widths))
    out = {"step": {}, "spec": None, "prefill": None}
    for context in args.contexts:
        out["step"][context] = lockstep(args, "bench", "step", *ranks, "--widths", widths, "--context", context)
    out["prefill"] = lockstep(args, "bench", "step", *ranks, "--widths", 512, "--context", 0, optional=True)
    out["spec"] = lockstep(args, "bench", "spec", *ranks, "--spec", "none,ngram", "-n", args.tokens,
                           "--prompts", args.prompts)
    return out


def llama_figures(result):
    """{flash mode: {what: speed}}; speeds in tokens (rows) a second, so that larger is better."""
    figures = {}
    for mode, data in result["flash"].items():
        f = figures[mode] = {}
        for d in data["decode"]:
            f[f"decode loop, context {d['context']}"] = d["tokens_per_second"]
        for v in data["verify"]:
            for row in v["rows"]:
                f[f"step of {row['width']}, context {v['context']}"] = 1e3 * row["width"] / row["ms_median"]
        for label, p in data["prefill"].items():
            f[f"prefill 512, {label.replace('_', ' ')}"] = p["tokens_per_second_median"]
        prompts = data.get("prompts") or []
        if prompts:
            f["decode of prompts"] = sum(p["tokens"] for p in prompts) / sum(p["seconds"] for p in prompts)
    return figures


def lockstep_figures(result):
    f = {}
    for context, step in result["step"].items():
        for row in step["rows"]:
            f[f"step of {row['width']}, context {context}"] = 1e6 * row["width"] / row["step_us_p50"]
    for row in result["prefill"]["rows"]:
        f["prefill 512, all logits"] = 1e6 * row["width"] / row["step_us_p50"]
    for row in result["spec"]["rows"]:
        name = "decode of prompts" if row["spec"] == "none" else f"decode of prompts, {row['spec']}"
        f.setdefault(name, row["tokens_per_second"])  # `none` runs twice; the first row is the baseline
    return f


def median_min(values):
    return statistics.median(values), min(values)


def tabulate(threads, peer_runs, own_runs):
    """One row for each figure. The peer's better mode is chosen by its median over all alternations."""
    rows, names = [], []
    for run in peer_runs:
        for mode in run.values():
            names += [n for n in mode if n not in names]
    for run in own_runs:
        names += [n for n in run if n not in names]
    for name in names:
        base = name.split(", ngram")[0]
        modes = {m: [run[m][base] for run in peer_runs if base in run.get(m, {})] for m in ("off", "on")}
        modes = {m: v for m, v in modes.items() if v}
        row = {"threads": threads, "what": name}
        if modes:
            best = max(modes, key=lambda m: statistics.median(modes[m]))
            row["flash"] = best
            row["llama_median"], row["llama_min"] = median_min(modes[best])
            row["llama_by_flash"] = {m: statistics.median(v) for m, v in modes.items()}
        own = [run[name] for run in own_runs if name in run]
        if own:
            row["lockstep_median"], row["lockstep_min"] = median_min(own)
        if own and modes and len(own) == len(modes[best]):
            row["ratio_median"], row["ratio_min"] = median_min([a / b for a, b in zip(own, modes[best])])
        rows.append(row)
    return rows


def add_width_ratios(rows):
    """Time of a step of n rows over a step of one row, both engines."""
    for side in ("llama", "lockstep"):
        one = {}
        for row in rows:
            if row["what"].startswith("step of 1,") and f"{side}_median" in row:
                one[row["threads"], row["what"].split(", ")[1]] = row[f"{side}_median"]
        for row in rows:
            base = one.get((row["threads"], row["what"].split(", ")[-1]))
            if base and row["what"].startswith("step of ") and f"{side}_median" in row:
                row[f"{side}_over_width1"] = int(row["what"].split()[2].rstrip(",")) * base / row[f"{side}_median"]


def print_table(rows):
    print(f"{'threads':>7} {'what':32} {'llama.cpp':>16} {'fa':>3} {'x w1':>5}  {'Lockstep':>16} {'x w1':>5}  "
          f"{'ratio median (min)':>18}")
    for r in rows:
        def speed(side):
            return f"{r[side + '_median']:8.1f} ({r[side + '_min']:.0f})" if side + "_median" in r else "-"
        def width(side):
            return f"{r[side + '_over_width1']:.2f}" if side + "_over_width1" in r else ""
        ratio = f"{r['ratio_median']:.2f} ({r['ratio_min']:.2f})" if "ratio_median" in r else "-"
        print(f"{r['threads']:7} {r['what']:32} {speed('llama'):>16} {r.get('flash', ''):>3} {width('llama'):>5}  "
              f"{speed('lockstep'):>16} {width('lockstep'):>5}  {ratio:>18}")


def run(args):
    for path in (args.model, args.text, args.prompts):
        if not Path(path).exists():
            fail(f"{path} does not exist", 2)
    both = args.only is None
    if args.only != "llama" and not (args.lockstep.exists() and os.access(args.lockstep, os.X_OK)):
        fail(f"no Lockstep binary at {args.lockstep}: build it, name it with --lockstep, or use --only llama", 2)
    if args.cpus:
        os.sched_setaffinity(0, args.cpus)
    if max(args.threads) > len(os.sched_getaffinity(0)):
        fail(f"{max(args.threads)} threads asked for, {len(os.sched_getaffinity(0))} cores allowed", 2)
    result = {"command": sys.argv, "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "commit": commit(),
              "machine": machine(), "model": Path(args.model).name, "model_bytes": Path(args.model).stat().st_size,
              "llama": [], "lockstep": [], "rows": []}
    peer, own = {t: [] for t in args.threads}, {t: [] for t in args.threads}
    if result["machine"]["loadavg"][0] > 0.5 * len(result["machine"]["affinity"]):
        print(f"warning: other work is running here (load {result['machine']['loadavg'][0]:.1f}): these figures "
              "are not to be quoted", file=sys.stderr)
    for turn in range(args.alternations):
        for threads in args.threads:
            if both or args.only == "llama":
                say(f"alternation {turn + 1}/{args.alternations}: llama.cpp, {threads} threads")
                result["llama"].append(measure_llama(args, threads))
                peer[threads].append(llama_figures(result["llama"][-1]))
            if both or args.only == "lockstep":
                say(f"alternation {turn + 1}/{args.alternations}: Lockstep, tp {threads}")
                result["lockstep"].append(measure_lockstep(args, threads))
                own[threads].append(lockstep_figures(result["lockstep"][-1]))
        finish(args, result, peer, own)  # after every turn, so that an interrupt keeps what was measured
    m = result["machine"]
    print(f"{result['model']}, {m['cpu']} ({' '.join(m['features'])}), cores {m['affinity']}, kernel {m['kernel']}, "
          f"commit {result['commit']}, {args.alternations} alternations; load before {m['loadavg'][0]:.2f}, "
          f"after {m['loadavg_after'][0]:.2f}")
    print("tokens or rows a second: median (min); x w1 = time over a step of one row; fa = flash attention\n")
    print_table(result["rows"])


def finish(args, result, peer, own):
    """Works out the table from what is there and writes the JSON."""
    result["rows"] = []
    for threads in args.threads:
        if peer[threads] or own[threads]:
            result["rows"] += tabulate(threads, peer[threads], own[threads])
    add_width_ratios(result["rows"])
    result["machine"]["loadavg_after"] = os.getloadavg()
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n")


def perplexity(args):
    if not args.ids:
        words = ["ids", "-m", args.model, "--text", args.text]
        args.ids = args.json + ".ids.json"
        Path(args.ids).write_text(json.dumps(worker(args, *words, "--tokens", args.tokens)) + "\n")
    result = worker(args, "forced", "-m", args.model, "--ids", args.ids, "--tokens", args.tokens, "--threads",
                    args.threads[0], "--flash", args.flash, "--chunk", args.chunk)
    Path(args.json).write_text(json.dumps(result) + "\n")
    mean = -sum(result["logprob"]) / len(result["logprob"])
    print(f"{len(result['ids'])} tokens, perplexity {2.718281828459045 ** mean:.4f}, written to {args.json}")


def numbers(text):
    return [int(x) for x in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    s = commands.add_parser("setup", help="build llama.cpp from PyPI")
    r = commands.add_parser("run", help="measure side by side")
    p = commands.add_parser("perplexity", help="teacher-forced log probabilities")
    for c in (s, r, p):
        c.add_argument("--venv", type=Path, default=ROOT / ".cache" / "peers" / "llama_cpp", metavar="DIR")
    s.add_argument("--version", default=VERSION)
    s.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    s.add_argument("--amx-fix", choices=["auto", "on", "off"], default="auto")
    for c in (r, p):
        c.add_argument("-m", "--model", required=True)
        c.add_argument("--text", default=str(ROOT / "tests" / "data" / "real_text.txt"))
        c.add_argument("--threads", type=numbers, default=[2, 1] if c is r else [2], metavar="LIST")
    r.add_argument("--lockstep", type=Path, default=ROOT / "build" / "lockstep", metavar="BINARY")
    r.add_argument("--only", choices=["llama", "lockstep"])
    r.add_argument("--prompts", default=str(ROOT / "bench" / "prompts" / "demo.jsonl"))
    r.add_argument("--contexts", type=numbers, default=[0, 256, 512], metavar="LIST")
    r.add_argument("--widths", type=numbers, default=WIDTHS, metavar="LIST")
    r.add_argument("-n", "--tokens", type=int, default=128, help="tokens to decode (default 128)")
    r.add_argument("--reps", type=int, default=10, help="samples of each width in each alternation")
    r.add_argument("--alternations", type=int, default=5)
    r.add_argument("--cpus", type=numbers, metavar="LIST", help="pin both engines to these cores")
    r.add_argument("--json", metavar="FILE", help="everything measured, with command, machine and commit")
    p.add_argument("--ids", metavar="JSON", help="ids to use instead of tokenizing --text")
    p.add_argument("--tokens", type=int, default=2000)
    p.add_argument("--flash", choices=["off", "on"], default="off")
    p.add_argument("--chunk", type=int, default=128)
    p.add_argument("--json", metavar="FILE", required=True)
    args = parser.parse_args()
    {"setup": setup, "run": run, "perplexity": perplexity}[args.command](args)


if __name__ == "__main__":
    main()
