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
import json
import os
import platform
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))
import llama_report as report  # noqa: E402

VERSION = "0.3.36"
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
LIMIT_S = 300  # of any process; the longest needs a tenth of it on an idle machine
WIDTHS = [1, 2, 4, 8, 16, 32]
WIDTHS_FAR = [1]  # behind a context above FAR, where a wide step of the peer takes a large part of a second
FAR = 1024
# 39 tokens of SmolLM2's vocabulary; the run says how many the file at hand makes of it.
START_PROMPT = ("A canal lock is a chamber with a gate at each end. The boat rises or falls with the water, which flows "
                "in from above and out below by its own weight, so that no pump")
MEMORY_CONTEXT = 2048
PREFILL = 512


class Failed(Exception):
    pass


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


def call(command, who, good=(0,), limit_s=None):
    """Runs a process to its end: {"out", "code", "began", "first_byte", "max_rss_kib"}; times are of the monotonic
    clock. Raises Failed with the last line it said, its signal, or the limit that it ran into."""
    limit_s = limit_s or LIMIT_S
    with tempfile.TemporaryFile() as err:
        began = time.monotonic()
        try:
            process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=err, start_new_session=True)
        except OSError as error:
            raise Failed(f"{who}: {error}") from error
        out, first = b"", None
        try:
            while True:
                left = began + limit_s - time.monotonic()
                if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                    raise Failed(f"{who}: no end within {limit_s} s")
                part = os.read(process.stdout.fileno(), 1 << 16)
                first = first or time.monotonic()
                if not part:
                    break
                out += part
            while True:  # wait4, because it tells the peak of this very process
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    process.returncode = os.waitstatus_to_exitcode(status)
                    break
                if time.monotonic() > began + limit_s:
                    raise Failed(f"{who}: no end within {limit_s} s")
                time.sleep(0.002)
        except BaseException:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            raise
        finally:
            process.stdout.close()
        code = process.returncode
        if code not in good:
            err.seek(0)
            said = err.read().decode(errors="replace").strip() or out.decode(errors="replace").strip()
            last = (said.splitlines() or [""])[-1]
            died = f"died of {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            raise Failed(f"{who}: {died}" + (f": {last}" if last else ""))
    return {"out": out, "code": code, "began": began, "first_byte": first, "max_rss_kib": usage.ru_maxrss}


def parsed(done, who, last_line=False):
    text = done["out"].decode(errors="replace")
    try:
        return json.loads(text.rstrip().rpartition("\n")[2] if last_line else text)
    except ValueError as error:
        raise Failed(f"{who}: wrote no JSON ({error})") from error


class Llama:
    """The peer's side: each function returns figures and notes of one process in one mode."""

    def __init__(self, args, threads):
        self.args, self.threads, self.seen = args, threads, {}
        python = args.venv / "bin" / "python"
        if not python.exists():
            fail(f"no llama.cpp environment at {args.venv}; run `{Path(sys.argv[0]).name} setup` first")
        self.base = [str(python), str(HERE / "llama_worker.py")]

    def worker(self, command, model, mode, *words, start=False):
        words = [command, "-m", model, "--threads", self.threads, "--flash", mode.split(",")[0], *words]
        done = call([*self.base, *words], "llama.cpp")
        result = parsed(done, "llama.cpp", start)
        self.seen = {k: result.get(k) for k in ("version", "system_info")}
        return done, result

    def steps(self, model, mode, context, widths):
        _, r = self.worker("steps", model, mode, "--text", self.args.text, "--context", context, "--widths",
                           ",".join(map(str, widths)), "--reps", self.args.reps)
        return {report.step_name(w["width"], context): 1e3 * w["width"] / w["ms_median"] for w in r["rows"]}, {}

    def prefill(self, model, mode):
        _, r = self.worker("prefill", model, mode, "--text", self.args.text, "--tokens", PREFILL, "--reps", 3)
        return {f"prefill {PREFILL}": 1e3 * PREFILL / r["ms_median"]}, {}

    def spec(self, model, mode, kinds):
        del kinds
        _, r = self.worker("spec", model, mode, "--prompts", self.args.prompts, "-n", self.args.tokens, "--draft",
                           mode.split("draft ")[1])
        figures, notes = {}, {}
        for kind in [*dict.fromkeys(p["kind"] for p in r["prompts"]), "all"]:
            mine = [p for p in r["prompts"] if kind in (p["kind"], "all")]
            rounds = sum(p["rounds"] for p in mine)
            figures[f"plain, {kind}"] = sum(p["plain_tokens"] for p in mine) / sum(p["plain_seconds"] for p in mine)
            figures[f"prompt lookup, {kind}"] = sum(p["tokens"] for p in mine) / sum(p["seconds"] for p in mine)
            notes[kind] = {"same": sum(p["same_text"] for p in mine), "texts": len(mine), "rounds": rounds,
                           "accept_length": 1 + sum(p["accepted"] for p in mine) / rounds if rounds else 1.0}
        return figures, {"spec": notes}

    def start(self, model, mode):
        done, r = self.worker("start", model, mode, "--prompt", START_PROMPT, start=True)
        stamps = r["stamps"]
        whole = stamps["first_token"] - done["began"]
        python = {"interpreter": stamps["before_library"] - done["began"],
                  "packages": stamps["imported"] - stamps["library"]}
        return ({report.START: 1e3 * whole, report.START_ENGINE: 1e3 * (whole - sum(python.values()))},
                {"prompt_tokens": r["prompt_tokens"], "python_ms": {k: 1e3 * v for k, v in python.items()},
                 "library_apart": stamps["library_apart"]})

    def memory(self, model, mode):
        _, r = self.worker("memory", model, mode, "--text", self.args.text, "--context", MEMORY_CONTEXT)
        return {report.MEMORY: (r["peak_kib"] - r["before_kib"]) / 1024}, {k: r[k] for k in ("peak_kib", "before_kib")}


class Lockstep:
    """Our side. A config "AxB" is --tp A --threads B."""

    def __init__(self, args):
        self.args = args

    def binary(self, words, config, model, *more, good=(0,)):
        tp, threads = config.split("x")
        return call([self.args.lockstep, *words, "-m", model, "--tp", tp, "--threads", threads, *more], "lockstep", good)

    def steps(self, model, config, context, widths):
        r = parsed(self.binary(["bench", "step"], config, model, "--widths", ",".join(map(str, widths)), "--context",
                               context, "--ctx-size", max(2048, context + max(widths)), "--reps", self.args.reps,
                               "--json"), "lockstep")
        return {report.step_name(w["width"], context): 1e6 * w["width"] / w["step_us_p50"] for w in r["rows"]}, {}

    def prefill(self, model, config):
        """A step of more than 256 rows is a chunk of a prompt and computes the logits of its last row."""
        r = parsed(self.binary(["bench", "step"], config, model, "--widths", PREFILL, "--context", 0, "--reps", 3,
                               "--json"), "lockstep")
        return {f"prefill {PREFILL}": 1e6 * PREFILL / r["rows"][0]["step_us_p50"]}, {}

    def spec(self, model, config, kinds):
        """One process a kind, because `bench spec` sums over its prompts."""
        figures, notes, sums = {}, {}, {"none": [], "ngram": []}
        for kind, lines in kinds.items():
            with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as prompts:
                prompts.write("".join(lines))
                prompts.flush()
                r = parsed(self.binary(["bench", "spec"], config, model, "--spec", "none,ngram", "-n", self.args.tokens,
                                       "--prompts", prompts.name, "--json", good=(0, 7)), "lockstep")  # 7: texts differ
            by = {row["spec"]: row for row in reversed(r["rows"])}
            figures[f"plain, {kind}"] = by["none"]["tokens_per_second"]
            figures[f"prompt lookup, {kind}"] = by["ngram"]["tokens_per_second"]
            for name, rows in sums.items():
                rows.append(by[name])
            plain, drafted = by["none"]["digests"], by["ngram"]["digests"]
            notes[kind] = {"same": sum(drafted.get(k) == v for k, v in plain.items()), "texts": len(plain),
                           "rounds": by["ngram"]["rounds"], "accept_length": by["ngram"]["accept_length"]}
        for name, label in (("none", "plain"), ("ngram", "prompt lookup")):
            seconds = sum(row["tokens"] / row["tokens_per_second"] for row in sums[name])
            figures[f"{label}, all"] = sum(row["tokens"] for row in sums[name]) / seconds
        rounds = sum(n["rounds"] for n in notes.values())
        notes["all"] = {"same": sum(n["same"] for n in notes.values()), "texts": sum(n["texts"] for n in notes.values()),
                        "rounds": rounds, "accept_length": sum(n["rounds"] * n["accept_length"] for n in notes.values()) /
                        rounds if rounds else 1.0}
        return figures, {"spec": notes}

    def start(self, model, config):
        """Lockstep writes text as soon as it has it, so the first byte is the first token. No Python to take off."""
        done = self.binary(["run"], config, model, "--ctx-size", 2048, "--raw", "-p", START_PROMPT, "-n", 2)
        if not done["out"]:
            raise Failed("lockstep: wrote no text")
        ms = 1e3 * (done["first_byte"] - done["began"])
        return {report.START: ms, report.START_ENGINE: ms}, {}

    def memory(self, model, config):
        """Half of the context as a prompt, the rest decoded, so that every page of the cache is written."""
        text = Path(self.args.text).read_text()[:5000]
        done = self.binary(["run"], config, model, "--ctx-size", MEMORY_CONTEXT, "--raw", "-p", text,
                           "--ignore-eos", "--json")
        r = parsed(done, "lockstep")
        return ({report.MEMORY: done["max_rss_kib"] / 1024},
                {k: r[k] for k in ("prompt_tokens", "completion_tokens", "finish_reason")})

    def describe(self, model):
        """Bytes of the weights and of the cache; raises what the engine says about a file that it refuses."""
        r = parsed(call([self.args.lockstep, "inspect", model, "--json"], "lockstep"), "lockstep")
        return {"tensors": sum(t["bytes"] for t in r["tensors"]), "kv_per_token": r["kv_bytes_per_token"]}


def jobs_of(args, models, kinds):
    """(model, group, peer's modes, figures that prune a mode, function name, its arguments), in the order of a turn."""
    flash = ["off", "on"]
    jobs = []
    for context in args.contexts:
        widths = args.widths if context <= FAR else WIDTHS_FAR
        jobs.append((models[0], f"steps at context {context}", flash, None, "steps", (context, widths)))
    jobs.append((models[0], "prefill", flash, None, "prefill", ()))
    drafts = [f"{f}, draft {d}" for f in flash for d in (2, 10)]
    jobs.append((models[0], "speculation", drafts, ["prompt lookup, all"], "spec", (kinds,)))
    jobs.append((models[0], "start", flash, [report.START_ENGINE], "start", ()))
    jobs.append((models[0], "memory", flash, None, "memory", ()))
    for model in models[1:]:
        jobs.append((model, "steps at context 32", flash, None, "steps", (32, [w for w in args.widths if w <= 16])))
    return jobs


def take(samples, job, turn, side, config, engine, broken):
    """One sample. What failed once is not tried again: it would only cost its time limit anew."""
    model, group, _, _, function, words = job
    if (key := (model, group, side, config)) in broken:
        return
    sample = {"model": model.name, "group": group, "side": side, "config": config, "turn": turn}
    began = time.monotonic()
    try:
        sample["figures"], sample["notes"] = getattr(engine, function)(model, config, *words)
    except Failed as error:
        sample["error"] = str(error)
        broken.add(key)
        print(f"warning: {model.name}, {group}, {config}: {error}", file=sys.stderr)
    except (KeyError, IndexError, TypeError, ZeroDivisionError) as error:
        sample["error"] = f"{side}: its output is not as expected ({type(error).__name__}: {error})"
        broken.add(key)
        print(f"warning: {model.name}, {group}, {config}: {sample['error']}", file=sys.stderr)
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
    if args.quick:
        args.contexts, args.widths, args.alternations, args.tokens = [32, 512], [1, 2, 4, 8, 16], 2, 32
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
            engines["llama"] = Llama(args, threads)
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
            model, group, modes, judged = job[:4]
            rest = report.hopeless(samples, model.name, group, modes, judged)
            todo = [("llama", m) for m in modes if m not in rest] if "llama" in engines else []
            ours = [("lockstep", c) for c in own] if "lockstep" in engines and model not in refused else []
            for side, config in (todo + ours if turn % 2 == 0 else ours[::-1] + todo[::-1]):
                say(f"{threads} threads, turn {turn + 1}/{args.alternations}: {model.name}, {group}, {side} {config}")
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
        if spec := report.spec_table(samples, args.model[0].name):
            print("## Speculation by kind of prompt\n\nTokens a second, medians.\n\n" + spec)
        if failures := report.errors(samples):
            print("## What could not be measured\n\n" + "\n".join(f"- {f}" for f in failures) + "\n")


def quantise(args):
    """Files for comparisons on other types. What is there already stays."""
    if not args.model.exists():
        fail(f"{args.model} does not exist; tools/get_model.py fetches it", 2)
    threads = len(os.sched_getaffinity(0))
    llama = Llama(args, threads)
    stem = args.model.name.split(".")[0]
    folder = args.model.parent

    def make(source, name, kind):
        if (folder / name).exists():
            print(f"{folder / name} is there")
            return
        part = folder / (name + ".part")
        done = call([*llama.base, "quantise", "-m", source, "--type", kind, "--out", part, "--threads", threads],
                    "llama.cpp", limit_s=4 * LIMIT_S)
        os.replace(part, folder / name)
        print(f"{folder / name}: {parsed(done, 'llama.cpp')['bytes'] / 1e6:.1f} MB")

    try:
        for kind in ("Q8_0", "Q4_0", "Q4_K_M"):
            make(args.model, f"{stem}.{kind}.gguf", kind)
        name = "generated-1024.Q4_K_M.gguf"
        plain = folder / "generated-1024.F16.gguf"
        if not (folder / name).exists():
            call([sys.executable, ROOT / "tools" / "make_mid_model.py", plain, "--tokenizer", args.model], "make_mid_model",
                 limit_s=4 * LIMIT_S)
        make(plain, name, "Q4_K_M")
        plain.unlink(missing_ok=True)
    except Failed as error:
        fail(str(error))


def perplexity(args):
    llama = Llama(args, args.threads[0])

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
    r.add_argument("--prompts", default=str(ROOT / "bench" / "prompts" / "demo.jsonl"))
    r.add_argument("--contexts", type=numbers, default=[32, 512, 4096], metavar="LIST")
    r.add_argument("--widths", type=numbers, default=WIDTHS, metavar="LIST")
    r.add_argument("-n", "--tokens", type=int, default=96, help="tokens a prompt (default 96)")
    r.add_argument("--reps", type=int, default=10, help="samples of each width in each turn")
    r.add_argument("--alternations", type=int, default=7, help="turns")
    r.add_argument("--quick", action="store_true", help="two turns, fewer contexts and tokens: about two minutes")
    r.add_argument("--cpus", type=numbers, metavar="LIST", help="pin both engines to these cores")
    r.add_argument("--json", metavar="FILE", help="everything measured, with command, machine and commit")
    p.add_argument("--ids", metavar="JSON", help="ids to use instead of tokenizing --text")
    p.add_argument("--tokens", type=int, default=2000)
    p.add_argument("--flash", choices=["off", "on"], default="off")
    p.add_argument("--chunk", type=int, default=128)
    p.add_argument("--json", metavar="FILE", required=True)
    args = parser.parse_args()
    sys.exit({"setup": setup, "quantise": quantise, "run": run, "perplexity": perplexity}[args.command](args))


if __name__ == "__main__":
    main()
