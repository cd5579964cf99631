#!/usr/bin/env python3
"""Tests of bench/peers/llama_cpp.py with both engines replaced by scripts. Run: python3 bench/peers/llama_cpp_test.py"""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent

WORKER = r'''#!{python}
import json, sys
def step(w, ms): return {{"width": w, "ms_median": ms, "ms_min": ms}}
def mode(k): return {{
    "decode": [{{"context": 0, "tokens_per_second": 100 * k}}],
    "verify": [{{"context": 0, "rows": [step(1, 10 / k), step(4, 20 / k)]}}],
    "prefill": {{"all_logits": {{"tokens_per_second_median": 500 * k}}}},
    "prompts": [{{"id": "a", "tokens": 10, "seconds": 0.1 / k}}]}}
json.dump({{"threads": 2, "flash": {{"off": mode(1), "on": mode(2)}}}}, sys.stdout)
'''

LOCKSTEP = r'''#!{python}
import json, sys
a = sys.argv[1:]
out = a[a.index("--json") + 1]
if a[1] == "step" and a[a.index("--widths") + 1] == "512":
    sys.exit("error: width 512 is above the ladder")
if a[1] == "step":
    rows = [{{"width": w, "step_us_p50": us}} for w, us in ((1, 2500), (4, 3750))]
else:
    assert a[a.index("--spec") + 1] == "none,ngram" and a[a.index("--tp") + 1] == "2", a
    rows = [{{"spec": "none", "tokens_per_second": 300}}, {{"spec": "ngram", "tokens_per_second": 500}}]
json.dump({{"rows": rows}}, open(out, "w"))
'''


class LlamaCppTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        (self.folder / "m.gguf").write_bytes(b"GGUF")
        self.script(self.folder / "venv" / "bin" / "python", WORKER)

    def script(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(python=sys.executable))
        path.chmod(0o755)

    def run_peer(self, *words):
        return subprocess.run(
            [sys.executable, str(HERE / "llama_cpp.py"), "run", "-m", str(self.folder / "m.gguf"), "--venv",
             str(self.folder / "venv"), "--threads", "2", "--contexts", "0", "--widths", "1,4", "--alternations", "2",
             "--lockstep", str(self.folder / "lockstep"), "--json", str(self.folder / "out.json"), *words],
            capture_output=True, text=True, check=False)

    def rows(self):
        return {r["what"]: r for r in json.loads((self.folder / "out.json").read_text())["rows"]}

    def test_ratios_are_to_the_better_flash_mode(self):
        self.script(self.folder / "lockstep", LOCKSTEP)
        done = self.run_peer()
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = self.rows()
        self.assertEqual(rows["step of 1, context 0"]["flash"], "on")
        self.assertAlmostEqual(rows["step of 1, context 0"]["ratio_min"], 2.0)  # 400 a second over 200
        self.assertAlmostEqual(rows["step of 4, context 0"]["lockstep_over_width1"], 1.5)
        self.assertAlmostEqual(rows["step of 4, context 0"]["llama_over_width1"], 2.0)
        self.assertAlmostEqual(rows["decode of prompts"]["ratio_median"], 1.5)
        self.assertAlmostEqual(rows["decode of prompts, ngram"]["ratio_median"], 2.5)
        self.assertIn("warning: left out: error: width 512", done.stderr)
        self.assertNotIn("ratio_min", rows["prefill 512, all logits"])

    def test_without_binary_it_says_what_to_do(self):
        done = self.run_peer()
        self.assertEqual(done.returncode, 2)
        self.assertIn("--only llama", done.stderr)

    def test_only_llama_needs_no_binary(self):
        done = self.run_peer("--only", "llama")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertAlmostEqual(self.rows()["decode loop, context 0"]["llama_median"], 200)

    def test_missing_environment_names_setup(self):
        done = self.run_peer("--only", "llama", "--venv", str(self.folder / "nothing"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("setup", done.stderr)


if __name__ == "__main__":
    unittest.main()
