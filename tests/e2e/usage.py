#!/usr/bin/env python3
"""What people mistype and which files are bad: the exit code, and one line that says what to do."""
import os

import _harness as h


def complains(result, *words):
    lines = [line for line in result.err.splitlines() if line and "prompt " not in line]
    h.equal(len(lines), 1, "one line on stderr: " + result.err)
    for word in words:
        h.check(word in lines[0], repr(word), "is not in", lines[0])
    h.equal(result.out, b"", "stdout")


def test_missing_file():
    for command in (["run", "-p", "a", "-m"], ["inspect"], ["tokenize", "-m"], ["bench", "step", "-m"], ["bench", "spec", "-m"]):
        complains(h.run(*command, "/nowhere/model.gguf", code=3), "/nowhere/model.gguf")


def test_bad_files():
    folder = os.path.join(h.ROOT, "tests", "data", "gguf")
    names = sorted(n for n in os.listdir(folder) if n.endswith(".gguf") and not n.endswith("_ok.gguf"))
    h.check(len(names) > 50, "the corpus is gone")
    names = [n for n in names if not n.startswith("split_")]  # these name the part that is at fault
    for name in names[::7] + ["header_empty_file.gguf", "config_heads_0.gguf", "config_arch_mamba.gguf"]:
        result = h.run("run", "-m", os.path.join(folder, name), "-p", "a", code=3)
        complains(result, name)
        h.check(result.seconds < 5, name, "took", result.seconds)


def test_unknown_words():
    model = h.tiny_model()
    complains(h.run("run", "-m", model, "--tmp", "0.5", code=2), "--tmp", "did you mean --temp")
    complains(h.run("run", "-m", model, "--thraeds", 2, code=2), "did you mean --threads?")
    complains(h.run("bench", "spec", "-m", model, "--promts", "x", code=2), "did you mean --prompts?")
    complains(h.run("run", "-m", model, "--zzzzzzzz", code=2), "unknown flag --zzzzzzzz", "--help")
    complains(h.run("rnu", code=2), "unknown command rnu", "did you mean run?", "tokenize")
    complains(h.run("bench", "spce", code=2), "did you mean spec?")
    complains(h.run("run", code=2), "--model")


def test_values_out_of_range():
    model = h.tiny_model()
    for flag, value, word in [("--temp", "-1", "temperature"), ("--temp", "nan", "temperature"), ("--top-p", "0", "top_p"),
                              ("--top-k", "-3", "top_k"), ("--min-p", "2", "min_p"),
                              ("--repeat-penalty", "0", "repetition_penalty"), ("-n", "-2", "-n"),
                              ("--spec", "eagle9", "none, ngram"), ("--spec", "oracle", "none, ngram"),
                              ("--spec-shape", "bush:3", "chain:K"), ("--spec-shape", "tree:0", "tree:N"),
                              ("--rank-mode", "fibre", "thread or process"), ("--kv-cache-dtype", "q8", "f16 or f32"),
                              ("--ctx-size", "99999", "--ctx-size"), ("--threads", "-1", "--threads"),
                              ("--chunked-prefill-size", "0", "--chunked-prefill-size"), ("--logit-bias", "5", "--logit-bias"),
                              ("--logit-bias", "99999+1", "logit_bias")]:
        result = h.run("run", "-m", model, "-p", "a", "-n", 2, flag, value, code=2)
        h.check(word in result.err, flag, value, result.err)
        h.equal(result.out.strip(), b"", flag)
    h.check("context" in h.run("run", "-m", model, "-p", "a" * 400, "-n", 1, code=2).err)
    h.check("round:step" in h.run("run", "-m", model, "-p", "a", code=2, env={"LOCKSTEP_FAULT": "rnd:step=1"}).err)


def test_ranks_that_the_model_does_not_have():
    real, tiny = h.real_model(), h.tiny_model("--heads", "2", "--kv-heads", "1", "--ffn", "64", "--head-dim", "32")
    for model, worlds, allowed in ((real, (9, 0, -1), "1, 2, 3, 4, 5, 6, 7, 8"), (tiny, (3, 8), "1, 2")):
        for tp in worlds:
            result = h.run("run", "-m", model, "-p", "a", "--tp", tp, code=2)
            h.check(("--tp %d" % tp) in result.err and allowed in result.err, result.err)
    # An uneven cut runs, and writes the same text: 9 query heads and 3 kv heads over 3, 7 and 8 ranks.
    texts = [h.run("run", "-m", real, "-p", "Count to five.", "-n", 6, "--tp", tp, "--threads", 1, "--json").json()["token_ids"]
             for tp in (1, 3, 7, 8)]
    h.equal(texts[1:], texts[:1] * 3)


def test_help_and_version():
    h.check("run" in h.run("--help").text() and "plan" not in h.run("--help").text().split())
    h.check("--temp" in h.run("run", "--help").text())
    h.check(h.run("--version").text().startswith("lockstep 0."))
    h.run(code=2)


h.main(globals())
