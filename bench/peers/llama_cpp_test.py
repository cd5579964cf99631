#!/usr/bin/env python3
"""Tests of bench/peers/llama_cpp.py, both engines replaced by scripts. Run: python3 bench/peers/llama_cpp_test.py"""
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "tools")]
import llama_cpp  # noqa: E402
import llama_engines  # noqa: E402
import llama_report as report  # noqa: E402
import make_mid_model  # noqa: E402

# Flash attention makes the peer twice as fast in steps and uses less memory; a file named bad.gguf cannot be loaded.
WORKER = r'''#!{python}
import json, os, sys, time
a = sys.argv[2:]
now = time.monotonic()
value = lambda name: a[a.index(name) + 1]
if a[0] == "quantise":
    open(value("--out"), "w").write(value("--type"))
    print(json.dumps({{"bytes": 4}}))
    sys.exit()
k = 2 if value("--flash") == "on" else 1
if "bad" in value("-m"):
    sys.exit("error: bad.gguf cannot be loaded")
if a[0] == "steps":
    out = {{"rows": [{{"width": int(w), "ms_median": (5 + 5 * int(w)) / k}} for w in value("--widths").split(",")]}}
elif a[0] == "prefill":
    out = {{"ms_median": 1000 / k}}
elif a[0] == "spec":
    seconds = 0.05 if value("--draft") == "2" else 0.2
    out = {{"prompts": [{{"kind": kind, "plain_tokens": 10, "plain_seconds": 0.1, "tokens": 10, "seconds": seconds,
                       "rounds": 4, "accepted": 6, "same_text": kind != "chat"}} for kind in ("chat", "code_edit")]}}
elif a[0] == "start":
    print("x")
    out = {{"prompt_tokens": 39, "stamps": {{"before_library": now, "library": now + 0.01, "imported": now + 0.11,
            "library_apart": True, "first_token": now + 0.31}}}}
elif a[0] == "memory":
    out = {{"before_kib": 20480, "peak_kib": 122880 if k == 2 else 225280}}
with open(os.environ["CALLS"], "a") as calls:
    calls.write("llama " + a[0] + " " + value("--flash") + (" " + value("--draft") if "--draft" in a else "") + "\n")
print(json.dumps(dict(out, version="p", system_info="s")))
'''

LOCKSTEP = r'''#!{python}
import json, os, sys
a = sys.argv[1:]
value = lambda name: a[a.index(name) + 1]
with open(os.environ["CALLS"], "a") as calls:
    calls.write("lockstep " + " ".join(a[:2]) + "\n")
if a[0] == "inspect":
    if "refused" in a[1]:
        sys.exit("lockstep: " + a[1] + ": tensor x has type Q5_0")
    print(json.dumps({{"tensors": [{{"bytes": 900}}, {{"bytes": 100}}], "kv_bytes_per_token": 1}}))
elif a[:2] == ["bench", "step"] and value("--widths") == "512":
    sys.exit("noise\nlockstep: no such width")
elif a[:2] == ["bench", "step"]:
    slow = 2 if value("--threads") == "2" else 1
    print(json.dumps({{"rows": [{{"width": int(w), "step_us_p50": slow * (900 + 100 * int(w))}}
                              for w in value("--widths").split(",")]}}))
elif a[:2] == ["bench", "spec"]:
    with open(value("--prompts")) as f:
        ids = [json.loads(line)["id"] for line in f]
    plain = {{i: "1" for i in ids}}
    drafted = dict(plain, c="2") if "c" in plain else plain
    row = lambda name, speed, d: {{"spec": name, "tokens_per_second": speed, "tokens": 10, "digests": d, "rounds": 2,
                                  "accept_length": 3.0}}
    print(json.dumps({{"rows": [row("none", 300, plain), row("ngram", 600, drafted)]}}))
    sys.exit(7 if "c" in plain else 0)
elif a[0] == "run" and "--json" in a:
    print(json.dumps({{"prompt_tokens": 3, "completion_tokens": 4, "finish_reason": "length"}}))
else:
    print("text")
'''


class RunTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        self.file("m.gguf", "GGUF")
        self.file("prompts.jsonl", '{"id": "c", "kind": "chat", "prompt": "a"}\n\n'
                  '{"id": "e", "kind": "code_edit", "prompt": "b"}\n')
        self.script("venv/bin/python", WORKER)

    def file(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def script(self, name, text):
        self.file(name, text.format(python=sys.executable)).chmod(0o755)

    def run_peer(self, *words, models=("m.gguf",), threads="1", turns="1"):
        return subprocess.run(
            [sys.executable, str(HERE / "llama_cpp.py"), "run", "-m", *[str(self.folder / m) for m in models], "--venv",
             str(self.folder / "venv"), "--threads", threads, "--contexts", "32", "--widths", "1,4", "--alternations",
             turns, "--prompts", str(self.folder / "prompts.jsonl"), "--lockstep", str(self.folder / "lockstep"),
             "--json", str(self.folder / "out.json"), *words],
            capture_output=True, text=True, check=False, env=dict(os.environ, CALLS=str(self.folder / "calls")))

    def part(self):
        return json.loads((self.folder / "out.json").read_text())["by_threads"][0]

    def rows(self):
        return {r["what"]: r for r in self.part()["rows"]}

    def test_figures_of_both_engines(self):
        self.script("lockstep", LOCKSTEP)
        done = self.run_peer()
        rows = self.rows()
        step = rows["step of 1, context 32"]
        self.assertEqual(step["mode"], "on")  # the peer's better mode: 1 row in 5 ms, ours in 1 ms
        self.assertAlmostEqual(step["ratio"]["1x1"]["median"], 5.0)
        self.assertEqual(rows["plain, all"]["lockstep"]["1x1"]["median"], 300)
        self.assertEqual(rows["prompt lookup, chat"]["mode"], "off, draft 2")
        self.assertAlmostEqual(rows["prompt lookup, chat"]["llama"]["median"], 200)
        memory = rows[report.MEMORY]
        self.assertEqual((memory["mode"], memory["llama"]["median"]), ("on", 100))  # the interpreter's 20 MiB taken off
        whole, engine = rows[report.START]["llama"]["median"], rows[report.START_ENGINE]["llama"]["median"]
        self.assertGreaterEqual(whole, 310)
        self.assertAlmostEqual(engine, 210, delta=1)
        self.assertRegex(done.stdout, r"Python's own start, .* 100 ms for its packages; the prompt has 39 tokens")
        self.assertIn("taken off llama.cpp's VmHWM: 20 MiB", done.stdout)
        self.assertIn("lockstep: no such width (exit code 1)", done.stderr)  # its last line, and
        self.assertEqual(done.returncode, 1)                                          # the first model is incomplete
        self.assertNotIn("1x1", rows["prefill 512"]["lockstep"])
        self.assertIn("| Lockstep | tp 1 x 1 | chat | 300 | 600 | 2.00 (2.00) | 3.00 | 0 of 1 | 1 |", done.stdout)
        self.assertIn("| code edit | 100 | 200 | 2.00 (2.00) | 2.50 | yes | 1 |", done.stdout)
        self.assertIn("## What could not be measured", done.stdout)
        verdicts = {v["what"]: v for v in self.part()["verdicts"]}
        self.assertEqual(verdicts["decode at context 32, tokens/s"]["met"], {"1x1": True})
        self.assertEqual(verdicts["decode at context 512, tokens/s"]["met"], {})  # not measured is not met
        self.assertAlmostEqual(verdicts["verify of 4 rows over plain, all logits"]["judged"]["1x1"], 1.3)
        self.assertAlmostEqual(verdicts["verify of 4 rows over plain, all logits"]["llama"], 2.5)
        self.assertEqual(verdicts["n-gram, code edit, over own plain"]["met"], {"1x1": False})
        self.assertEqual(verdicts["n-gram, chat, over own plain"]["met"], {"1x1": True})

    def test_engines_take_turns_in_going_first(self):
        self.script("lockstep", LOCKSTEP)
        self.run_peer(turns="2")
        calls = (self.folder / "calls").read_text().split("\n")
        self.assertEqual(calls[1:4], ["llama steps off", "llama steps on", "lockstep bench step"])
        second = calls.index("llama steps on", 4)
        self.assertEqual(calls[second - 1:second + 2], ["lockstep bench step", "llama steps on", "llama steps off"])

    def test_a_mode_that_lost_twice_rests(self):
        self.run_peer("--only", "llama", turns="3")
        calls = (self.folder / "calls").read_text().split("\n")
        self.assertEqual((calls.count("llama steps off"), calls.count("llama steps on")), (2, 3))
        self.assertEqual((calls.count("llama spec on 10"), calls.count("llama spec on 2")), (2, 3))
        self.assertEqual((calls.count("llama start off"), calls.count("llama start on")), (3, 3))

    def test_a_refused_file_is_named_and_the_rest_goes_on(self):
        self.script("lockstep", LOCKSTEP)
        self.file("refused.gguf", "GGUF")
        self.file("bad.gguf", "GGUF")
        done = self.run_peer(models=("m.gguf", "refused.gguf", "bad.gguf"))
        self.assertIn("refused.gguf: tensor x has type Q5_0", done.stdout)
        self.assertIn("llama.cpp: bad.gguf cannot be loaded (exit code 1)", done.stdout)
        rows = {(r["model"], r["what"]): r for r in self.part()["rows"]}
        self.assertAlmostEqual(rows["refused.gguf", "step of 1, context 32"]["llama"]["median"], 200)
        self.assertAlmostEqual(rows["bad.gguf", "step of 1, context 32"]["lockstep"]["1x1"]["median"], 1000)
        met = {v["what"]: v["met"] for v in self.part()["verdicts"]}
        self.assertEqual(met["decode at context 32, refused.gguf"], {})

    def test_quick_is_short_but_for_what_flags_say(self):
        done = self.run_peer("--only", "llama", "--quick", turns="3")
        self.assertEqual(done.returncode, 0, done.stderr)
        calls = (self.folder / "calls").read_text().split("\n")
        self.assertEqual((calls.count("llama start on"), calls.count("llama memory on")), (3, 1))
        self.assertNotIn("step of 2, context 32", self.rows())  # --widths 1,4 stays

    def test_without_binary_it_says_what_to_do(self):
        done = self.run_peer()
        self.assertEqual(done.returncode, 2)
        self.assertIn("--only llama", done.stderr)

    def test_only_llama_needs_no_binary(self):
        done = self.run_peer("--only", "llama")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertAlmostEqual(self.rows()["step of 4, context 32"]["llama"]["median"], 320)

    def test_only_lockstep_needs_no_environment(self):
        self.script("lockstep", LOCKSTEP)
        self.run_peer("--only", "lockstep", "--venv", str(self.folder / "nothing"), threads="2")
        own = self.rows()["step of 1, context 32"]["lockstep"]
        self.assertEqual({c: own[c]["median"] for c in own}, {"2x1": 1000, "1x2": 500})

    def quantise(self):
        return subprocess.run(
            [sys.executable, str(HERE / "llama_cpp.py"), "quantise", "-m", str(self.folder / "m.gguf"), "--venv",
             str(self.folder / "venv")], capture_output=True, text=True, check=False)

    def test_quantise_makes_what_is_missing(self):
        self.file("m.Q4_0.gguf", "there")
        self.file("generated-1024.Q4_K_M.gguf", "there")
        done = self.quantise()
        self.assertEqual(done.returncode, 0, done.stderr)
        found = {p.name: p.read_text() for p in self.folder.glob("*.gguf*")}
        self.assertEqual(found, {"m.gguf": "GGUF", "m.Q4_0.gguf": "there", "m.Q8_0.gguf": "Q8_0",
                                 "m.Q4_K_M.gguf": "Q4_K_M", "generated-1024.Q4_K_M.gguf": "there"})
        (self.folder / "generated-1024.Q4_K_M.gguf").unlink()  # then a model is to be made, and m.gguf is no model
        done = self.quantise()
        self.assertEqual(done.returncode, 1)
        self.assertIn("m.gguf: ends within its keys", done.stderr)

    def test_missing_environment_names_setup(self):
        done = self.run_peer("--only", "llama", "--venv", str(self.folder / "nothing"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("setup", done.stderr)

    def test_being_ended_ends_the_process_that_is_measured(self):
        marks = self.folder / "began", self.folder / "went_on"
        self.script("venv/bin/python", "#!/bin/sh\ntouch %s; sleep 2; touch %s\n" % marks)
        peer = subprocess.Popen(
            [sys.executable, str(HERE / "llama_cpp.py"), "run", "-m", str(self.folder / "m.gguf"), "--only", "llama",
             "--venv", str(self.folder / "venv"), "--threads", "1", "--prompts", str(self.folder / "prompts.jsonl")],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(1000):
            if marks[0].exists():
                break
            time.sleep(0.01)
        peer.terminate()
        self.assertIn("interrupted", peer.communicate(timeout=30)[1])
        self.assertEqual(peer.returncode, 130)
        time.sleep(2.5)
        self.assertFalse(marks[1].exists())

    def test_bad_input_is_named(self):
        self.file("prompts.jsonl", "{}\nnonsense\n")
        done = self.run_peer("--only", "llama")
        self.assertEqual(done.returncode, 2)
        self.assertIn("prompts.jsonl:2", done.stderr)
        self.assertIn("--widths 0", self.run_peer("--only", "llama", "--widths", "0,1").stderr)
        self.assertIn("gone.gguf does not exist", self.run_peer("--only", "llama", models=("gone.gguf",)).stderr)


class CallTest(unittest.TestCase):
    def test_time_limit_ends_the_whole_group(self):
        with tempfile.TemporaryDirectory() as folder:
            began, mark = time.monotonic(), Path(folder) / "mark"
            script = f"(sleep 1.5; touch {mark}) & echo started; sleep 60"
            with self.assertRaisesRegex(llama_engines.Failed, "peer: no end within 0.5 s"):
                llama_engines.call(["sh", "-c", script], "peer", limit_s=0.5)
            self.assertLess(time.monotonic() - began, 1.5)
            time.sleep(max(0.0, 2.0 - (time.monotonic() - began)))
            self.assertFalse(mark.exists())

    def test_a_process_that_closes_its_output_and_stays_is_ended(self):
        with self.assertRaisesRegex(llama_engines.Failed, "no end within 0.3 s"):
            llama_engines.call(["sh", "-c", "exec >&-; sleep 60"], "peer", limit_s=0.3)

    def test_signals_and_missing_programs_are_named(self):
        with self.assertRaisesRegex(llama_engines.Failed, "peer: died of SIGILL"):
            llama_engines.call(["sh", "-c", "kill -ILL $$"], "peer")
        with self.assertRaisesRegex(llama_engines.Failed, "peer: .*No such file"):
            llama_engines.call(["/nowhere/program"], "peer")

    def test_output_that_is_no_json(self):
        with self.assertRaisesRegex(llama_engines.Failed, "wrote no JSON"):
            llama_engines.parsed({"out": b"hello"}, "peer")
        self.assertEqual(llama_engines.parsed({"out": b"\n\n{}\n"}, "peer", last_line=True), {})

    def test_first_byte_comes_before_the_end(self):
        done = llama_engines.call(["sh", "-c", "echo a; sleep 0.3; echo b"], "peer")
        self.assertEqual(done["out"], b"a\nb\n")
        self.assertLess(done["first_byte"] - done["began"], 0.3)


class LogicTest(unittest.TestCase):
    def sample(self, side, config, turn, **figures):
        return {"model": "m", "group": "g", "side": side, "config": config, "turn": turn, "figures": figures}

    def test_processors_of_different_cores_and_one_socket(self):
        pairs = {c: (0 if c % 4 < 2 else 1, c % 8 // 2 * 2 + c % 2) for c in range(16)}  # c and c + 8 share a core
        self.assertEqual(llama_cpp.pick_cpus(list(range(16)), 2, pairs.get), [0, 1])
        self.assertEqual(llama_cpp.pick_cpus(list(range(16)), 4, pairs.get), [0, 1, 4, 5])  # 2 and 3: the other socket
        self.assertEqual(llama_cpp.pick_cpus([0, 8], 2, pairs.get), [0, 8])  # nothing else is left
        self.assertEqual(llama_cpp.pick_cpus([0, 2, 8], 2, pairs.get), [0, 2])  # a core before a socket

    def test_ratios_pair_the_turns(self):
        samples = [self.sample("llama", "on", 0, a=100), self.sample("llama", "on", 1, a=50),
                   self.sample("lockstep", "2x1", 0, a=300), self.sample("lockstep", "2x1", 1, a=100)]
        ratio = report.rows(samples, ["m"])[0]["ratio"]["2x1"]
        self.assertEqual((ratio["median"], ratio["worst"], ratio["of_best"]), (2.5, 2.0, 3.0))

    def test_smaller_is_better_where_it_is(self):
        samples = [self.sample("llama", m, t, **{report.MEMORY: v})
                   for m, v in (("off", 300), ("on", 200)) for t in (0, 1)]
        self.assertEqual(report.best_mode(samples, "m", report.MEMORY)[0], "on")
        self.assertEqual(report.hopeless(samples, "m", "g", ["off", "on"]), ["off"])

    def test_a_mode_stays_while_any_figure_is_near(self):
        def both(off):
            return [s for t in (0, 1) for s in (self.sample("llama", "off", t, a=10, b=off),
                                                self.sample("llama", "on", t, a=20, b=20))]
        self.assertEqual(report.hopeless(both(10), "m", "g", ["off", "on"]), ["off"])
        self.assertEqual(report.hopeless(both(19), "m", "g", ["off", "on"]), [])
        self.assertEqual(report.hopeless(both(19), "m", "g", ["off", "on"], ["a"]), ["off"])
        self.assertEqual(report.hopeless(both(10)[:2], "m", "g", ["off", "on"]), [])  # one turn is not enough

    def test_context_4096_is_judged_by_the_bytes_read(self):
        samples = [self.sample("lockstep", "2x1", 0, **{report.step_name(1, 32): 500, report.step_name(1, 4096): 200})]
        size = {"tensors": 100 * 4096, "kv_per_token": 100}  # twice the bytes, nearly: 1.3 x 1.98 = 2.58
        for speed, met in ((200, True), (190, False)):
            samples[0]["figures"][report.step_name(1, 4096)] = speed
            line = [v for v in report.verdicts(samples, ["m"], size) if "4096" in v["what"]]
            self.assertEqual(line[0]["met"], {"2x1": met})

    def test_mid_model_keeps_a_closed_part_of_the_vocabulary(self):
        w = make_mid_model.w
        keys = {"tokenizer.ggml.tokens": (w.ARRAY, (w.STRING, [b"a", b"b", b"ab", b"abb"])),
                "tokenizer.ggml.merges": (w.ARRAY, (w.STRING, [b"a b", b"ab b"])),
                "tokenizer.ggml.eos_token_id": (w.U32, 3), "general.name": (w.STRING, b"x")}
        made = make_mid_model.cut_tokenizer(keys, 3)
        self.assertEqual(made, [w.kv("tokenizer.ggml.tokens", w.ARRAY, (w.STRING, [b"a", b"b", b"ab"])),
                                w.kv("tokenizer.ggml.merges", w.ARRAY, (w.STRING, [b"a b"]))])
        with self.assertRaisesRegex(ValueError, "4 tokens, 9 wanted"):
            make_mid_model.cut_tokenizer(keys, 9)


if __name__ == "__main__":
    unittest.main()
