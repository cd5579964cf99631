#!/usr/bin/env python3
"""Tests of bench/identity against a fake binary, and of bench/pairwise.py. Run: python3 bench/identity_test.py"""
import itertools
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "tools"))
import gguf_writer  # noqa: E402
import make_tiny_model  # noqa: E402
import pairwise  # noqa: E402

FAKE = r'''#!{python}
"""Stands for `lockstep bench spec`: the text depends on the prompt, n and the sampling, and on the planted fault."""
import hashlib, json, os, sys
a = sys.argv[1:]
assert a[:2] == ["bench", "spec"], a
get = lambda name, default=None: a[a.index(name) + 1] if name in a else default
with open({log!r}, "a") as log:
    log.write(" ".join(a) + "\n")
fault = {fault!r}
if fault == "crash" and get("--rank-mode") == "process":
    sys.exit("error: rank 1 lost")
if fault == "dead":
    sys.exit("error: no model")
prompts = [json.loads(line) for line in open(get("--prompts"))]
digests = {{}}
for prompt in prompts:
    text = [prompt["id"], get("-n"), get("--temp"), get("--top-p"), get("--seed")]
    if fault == "isa" and os.environ.get("LOCKSTEP_CPU_ISA") == "generic" and prompt["id"] == prompts[1]["id"]:
        text.append("wrong")
    digests[prompt["id"]] = hashlib.sha256(json.dumps(text).encode()).hexdigest()[:16]
rows = [{{"spec": "none", "identical": True, "digests": digests}}]
spec = get("--spec")
assert ("draft" in spec.split(",")) == ("--draft-model" in a), a
if "--draft-model" in a:
    assert open(get("--draft-model"), "rb").read(4) == b"GGUF"
for one in spec.split(","):
    if one == "none":
        continue
    width = str(1 + int(get("--spec-shape", "chain:3").split(":")[1]))
    accepted = 0 if one == "wrong" else 400
    mine = dict(digests)
    if fault == "shape" and get("--spec-shape") == "chain:3" and one == "random":
        mine[prompts[0]["id"]] = "differs"
    rows.append({{"spec": one, "identical": fault != "self", "digests": mine,
                 "widths": {{width: {{"accepted_rows": accepted, "rejected_rows": 400}}}}}})
if fault == "missing":
    rows[-1]["digests"] = {{}}
json.dump({{"model": "fake", "tp": 2, "backend": "cpu", "rows": rows}}, open(get("--json"), "w"))
sys.exit(7 if fault == "self" and spec != "none" else 0)
'''


MODEL = gguf_writer.write(*make_tiny_model.build(make_tiny_model.Tiny()))


class IdentityTest(unittest.TestCase):
    def setUp(self):
        self.holder = tempfile.TemporaryDirectory()
        self.folder = Path(self.holder.name)
        self.addCleanup(self.holder.cleanup)
        (self.folder / "model.gguf").write_bytes(MODEL)

    def run_identity(self, fault, *words):
        binary = self.folder / "lockstep"
        binary.write_text(FAKE.format(python=sys.executable, log=str(self.folder / "log"), fault=fault))
        binary.chmod(0o755)
        done = subprocess.run(
            [sys.executable, str(HERE / "identity"), "--lockstep", str(binary), "-m", str(self.folder / "model.gguf"),
             "--out", str(self.folder / "out"), *words], capture_output=True, text=True, check=False)
        path = self.folder / "out" / "identity.json"
        return done, json.loads(path.read_text()) if path.exists() else None

    def calls(self):
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []

    def test_quick_holds_every_level_passes_and_is_quiet(self):
        done, result = self.run_identity("")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        self.assertEqual(result["verdict"], "All texts equal")
        self.assertEqual(result["texts_compared"], 2 * (result["runs"] - 6))  # six references
        self.assertTrue(all(row["runs"] > 0 for row in result["levels"]), result["levels"])
        self.assertIn("| isa | generic |", (self.folder / "out" / "identity.md").read_text())

    def test_a_differing_text_is_found_and_named(self):
        done, result = self.run_identity("isa", "--factors", "isa,tp")
        self.assertEqual(done.returncode, 7)
        self.assertTrue(all(m["config"]["isa"] == "generic" for m in result["mismatches"]))
        self.assertTrue(all("LOCKSTEP_CPU_ISA=generic" in m["command"] for m in result["mismatches"]))
        self.assertIn("quick-story", result["mismatches"][0]["what"])

    def test_full_finds_one_drafter_with_one_shape(self):
        done, result = self.run_identity("shape", "--full", "--prompts", "2", "-n", "8", "--factors", "spec,shape")
        self.assertEqual(done.returncode, 7)
        self.assertEqual([(m["config"]["spec"], m["config"]["shape"]) for m in result["mismatches"]],
                         [("ngram,auto,oracle,wrong,random,draft,eagle3", "chain:3")])

    def test_the_runs_own_mismatch_counts(self):
        done, _ = self.run_identity("self", "--full", "--prompts", "2", "--factors", "spec")
        self.assertEqual(done.returncode, 7)

    def test_a_failed_run_is_not_a_pass(self):
        done, result = self.run_identity("crash", "--full", "--prompts", "2", "--factors", "rank-mode")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(result["failures"]), 1)
        self.assertIn("rank 1 lost", result["failures"][0]["what"])

    def test_missing_digests_are_a_failure(self):
        done, _ = self.run_identity("missing", "--full", "--prompts", "2", "--factors", "tp")
        self.assertEqual(done.returncode, 1)

    def test_without_reference_nothing_more_is_run(self):
        done, result = self.run_identity("dead", "--full", "--prompts", "2", "--factors", "tp,sampling")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(self.calls()), 6)
        self.assertGreater(result["left_out"], 0)

    def test_finished_runs_are_not_repeated(self):
        self.run_identity("", "--full", "--prompts", "2", "--factors", "spec,tp")
        first = len(self.calls())
        self.run_identity("", "--full", "--prompts", "2", "--factors", "spec,tp")
        self.assertEqual(len(self.calls()), first)
        self.run_identity("", "--full", "--prompts", "2", "--factors", "spec,tp", "--fresh")
        self.assertEqual(len(self.calls()), 2 * first)

    def test_rows_are_counted_by_width(self):
        _, result = self.run_identity("", "--full", "--prompts", "2", "--factors", "spec,shape")
        # width 5: six chain:4 runs and six tree:4 runs accept, all fourteen reject
        self.assertEqual(result["widths"]["5"], {"accepted_rows": 12 * 400, "rejected_rows": 14 * 400})
        self.assertTrue(result["rows_reached"])

    def test_sampling_reaches_the_command_line(self):
        self.run_identity("", "--full", "--prompts", "1", "--factors", "sampling")
        seeds = [c for c in self.calls() if "--temp 0.8 --top-p 0.95 --seed" in c]
        self.assertEqual(len(seeds), 5)
        self.assertEqual(len(self.calls()), 6)

    def test_a_level_names_the_file_that_it_needs(self):
        self.run_identity("", "--full", "--prompts", "1", "--factors", "spec")
        named = [c for c in self.calls() if "--draft-model" in c]
        self.assertEqual([("--spec draft " in c) for c in named], [True] * len(named))
        self.assertGreater(len(named), 0)
        made = self.folder / "out" / "draft.gguf"
        before = made.stat().st_mtime_ns
        self.run_identity("", "--full", "--prompts", "1", "--factors", "spec", "--fresh")
        self.assertEqual(made.stat().st_mtime_ns, before)  # made once
        made.with_name("draft.gguf.json").unlink()
        self.run_identity("", "--full", "--prompts", "1", "--factors", "spec", "--fresh")
        self.assertNotEqual(made.stat().st_mtime_ns, before)

    def test_a_file_that_cannot_be_made_is_named(self):
        (self.folder / "model.gguf").write_bytes(b"GGUF")
        done, _ = self.run_identity("", "--full", "--factors", "spec")
        self.assertEqual(done.returncode, 1)
        self.assertIn("spec draft", done.stderr)
        self.assertIn("no GGUF file", done.stderr)
        done, _ = self.run_identity("", "--full", "--prompts", "1", "--factors", "tp")  # nobody needs it
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_missing_binary_is_a_usage_error(self):
        done = subprocess.run([sys.executable, str(HERE / "identity"), "--lockstep", str(self.folder / "none")],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no Lockstep binary", done.stderr)


class PairwiseTest(unittest.TestCase):
    def test_every_legal_pair_is_covered(self):
        factors = {"a": [1, 2, 3], "b": list("xyz"), "c": [True, False], "d": range(5)}
        def legal(config):
            return not (config.get("a") == 1 and config.get("b") == "z")
        configs, left_out = pairwise.cover({k: list(v) for k, v in factors.items()}, legal)
        self.assertEqual(left_out, [])
        self.assertLess(len(configs), 30)
        for (f, xs), (g, ys) in itertools.combinations(factors.items(), 2):
            for x, y in itertools.product(xs, ys):
                held = any(c[f] == x and c[g] == y for c in configs)
                self.assertEqual(held, legal({f: x, g: y}), (f, x, g, y))
        self.assertTrue(all(legal(c) for c in configs))

    def test_an_impossible_pair_is_reported(self):
        factors = {"a": [1, 2], "b": [1, 2], "c": [1]}
        configs, left_out = pairwise.cover(factors, lambda c: not (c.get("a") == 2 and c.get("b") == 2 and "c" in c))
        self.assertEqual(left_out, [(("a", 2), ("b", 2))])
        self.assertEqual(len(configs), 3)


if __name__ == "__main__":
    os.chdir(HERE)
    unittest.main()
