"""The two engines of bench/peers/llama_cpp.py, each as processes that are started, waited for and understood here.

A method that measures takes the model, the config and its own words, and returns (figures, notes) as llama_report.py
describes them; it raises Failed with one line that names the engine and what it said.
"""
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import llama_report as report

HERE = Path(__file__).resolve().parent
LIMIT_S = 300  # of any process; the longest needs a tenth of it on an idle machine
# 39 tokens of SmolLM2's vocabulary; the run says how many the file at hand makes of it.
START_PROMPT = ("A canal lock is a chamber with a gate at each end. The boat rises or falls with the water, which "
                "flows in from above and out below by its own weight, so that no pump")
MEMORY_CONTEXT = 2048
PREFILL = 512


class Failed(Exception):
    pass


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
            while True:  # wait4 tells the peak of this very process, or ours at its start: some 20 MB, far below
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
            last = (said.splitlines() or [""])[-1].removeprefix(f"{who}: ").removeprefix("error: ")
            died = f"died of {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            raise Failed(f"{who}: {last} ({died})" if last else f"{who}: {died}")
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
            raise Failed(f"no llama.cpp environment at {args.venv}")
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
        words = [*words, "-m", model, "--tp", tp, "--threads", threads, *more]
        return call([self.args.lockstep, *words], "lockstep", good)

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
        every = {k: sum(n[k] for n in notes.values()) for k in ("same", "texts", "rounds")}
        tokens = sum(n["rounds"] * n["accept_length"] for n in notes.values())
        notes["all"] = {**every, "accept_length": tokens / every["rounds"] if every["rounds"] else 1.0}
        return figures, {"spec": notes}

    def start(self, model, config):
        """Lockstep writes text as soon as it has it, so the first byte is the first token. No Python to take off."""
        done = self.binary(["run"], config, model, "--ctx-size", 2048, "--raw", "-p", START_PROMPT, "-n", 2)
        if not done["out"]:
            raise Failed("lockstep: wrote no text")
        ms = 1e3 * (done["first_byte"] - done["began"])
        return {report.START: ms, report.START_ENGINE: ms}, {}

    def memory(self, model, config):
        """The most part of the context as a prompt, the rest decoded, so that every page of the cache is written."""
        text = Path(self.args.text).read_text()[:8000]  # 1,770 of SmolLM2's tokens
        done = self.binary(["run"], config, model, "--ctx-size", MEMORY_CONTEXT, "--raw", "-p", text,
                           "--ignore-eos", "--json")
        r = parsed(done, "lockstep")
        return ({report.MEMORY: done["max_rss_kib"] / 1024},
                {k: r[k] for k in ("prompt_tokens", "completion_tokens", "finish_reason")})

    def describe(self, model):
        """Bytes of the weights and of the cache; raises what the engine says about a file that it refuses."""
        r = parsed(call([self.args.lockstep, "inspect", model, "--json"], "lockstep"), "lockstep")
        return {"tensors": sum(t["bytes"] for t in r["tensors"]), "kv_per_token": r["kv_bytes_per_token"]}
