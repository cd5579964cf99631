#!/usr/bin/env python3
"""What people mistype and which files are bad: the exit code, and one line that says what to do."""
import os
import signal
import threading
import time

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


def test_bad_safetensors():
    folder = os.path.join(h.ROOT, "tests", "data", "safetensors")
    names = sorted(n for n in os.listdir(folder) if not n.endswith((".json", "_ok", "_ok.safetensors")))
    h.check(len(names) > 100, "the corpus is gone")
    for name in names[::9] + ["header_empty_file.safetensors", "index_leads_up", "index_missing_shard"]:
        result = h.run("inspect", os.path.join(folder, name), code=3)
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
    complains(h.run("explain", "spce", code=2), "did you mean spec?")
    complains(h.run("run", code=2), "--model")


def test_values_out_of_range():
    model = h.tiny_model()
    for flag, value, word in [("-n", "-2", "-n"),
                              ("--spec", "eagle9", "none, ngram"), ("--spec", "oracle", "none, ngram"),
                              ("--spec-max-slowdown", "-1", "--spec-max-slowdown"),
                              ("--spec-max-slowdown", "nan", "--spec-max-slowdown"),
                              ("--spec-shape", "bush:3", "chain:K"), ("--spec-shape", "tree:0", "tree:N"),
                              ("--rank-mode", "fibre", "thread or process"), ("--kv-cache-dtype", "q8", "f16, f32 or q8_0"),
                              ("-ctk", "q8_0", "one type"), ("-ctv", "f32", "one type"), ("-ctk", "q4_0", "--cache-type-k q4_0"),
                              ("--ctx-size", "99999", "--ctx-size"), ("--threads", "-1", "--threads"),
                              ("--chunked-prefill-size", "0", "--chunked-prefill-size"), ("--logit-bias", "5", "--logit-bias"),
                              ("--logit-bias", "99999+1", "--logit-bias: token 99999")]:
        result = h.run("run", "-m", model, "-p", "a", "-n", 2, flag, value, code=2)
        h.check(word in result.err, flag, value, result.err)
        h.equal(result.out.strip(), b"", flag)
    for value in ("-1", "900", "2147483647", "4294967297"):
        h.check("--context" in h.run("bench", "step", "-m", model, "--widths", 40, "--context", value, code=2).err, value)
    h.check("context" in h.run("run", "-m", model, "-p", "a" * 400, "-n", 1, code=2).err)
    h.check("round:step" in h.run("run", "-m", model, "-p", "a", code=2, env={"LOCKSTEP_FAULT": "rnd:step=1"}).err)


def test_sampling_flags_are_named_before_the_model_is_loaded():
    for flag, value in [("--temp", "-1"), ("--temp", "nan"), ("--top-p", "0"), ("--top-k", "-3"), ("--min-p", "2"),
                        ("--repeat-penalty", "0"), ("--presence-penalty", "3"), ("--frequency-penalty", "-5"),
                        ("--seed", "-1"), ("--seed", "18446744073709551616"), ("--seed", "1e3"), ("--seed", "0x10"),
                        ("--logit-bias", "5+1e9")]:
        for command in (["run", "-p", "a"], ["bench", "spec"]):
            result = h.run(*command, "-m", "/nowhere/model.gguf", flag, value, code=2)
            complains(result, flag, "1000000000 for token 5" if flag == "--logit-bias" else value)
    complains(h.run("run", "-m", "/nowhere/model.gguf", "-p", "a", "-n", "-2", code=2), "-n -2")
    h.run("run", "-m", h.tiny_model(), "-p", "a", "-n", 1, "--seed", "18446744073709551615")


def test_empty_types_of_the_cache_are_refused():
    for flag in ("--kv-cache-dtype", "--cache-type-k", "--cache-type-v"):
        complains(h.run("run", "-m", "/nowhere/model.gguf", "-p", "a", flag, "", code=2), flag, "f16, f32 or q8_0")


def test_shapes_of_drafts():
    model = h.tiny_model()
    h.run("run", "-m", model, "-p", "a", "-n", 2, "--spec", "NGRAM", "--spec-shape", "Chain:3")
    h.run("bench", "spec", "-m", model, "-n", 2, "--spec", "Ngram", "--spec-shape", "TREE:3", "--json")
    complains(h.run("run", "-m", model, "-p", "a", "--spec", "none", "--spec-shape", "chain:3", code=2), "--spec-shape chain:3", "--spec none")


def test_standard_input_that_cannot_be_read():
    folder = os.open("/", os.O_RDONLY)
    try:
        program = h.start("run", "-m", h.tiny_model(), "-n", 1, stdin=folder)
        _, err = program.communicate(timeout=60)
    finally:
        os.close(folder)
    h.equal(program.returncode, 2, err)
    h.check(b"standard input" in err and b"directory" in err, err)


def test_emulated_all_reduce_delays():
    model = h.tiny_model()
    for value in ("", "x", "-1", "nan", "1e9", "1:5,", "4:5,1:6", "0:5"):
        for bench in ("spec", "step"):
            complains(h.run("bench", bench, "-m", "/nowhere/model.gguf", "--emulate-allreduce-us", value, code=2),
                      "--emulate-allreduce-us %s: must be" % value)
    complains(h.run("run", "-m", model, "-p", "a", "--emulate-allreduce-us", "5", code=2), "unknown flag --emulate-allreduce-us")
    for mode in ("thread", "process"):
        rows = h.run("bench", "step", "-m", model, "--tp", 2, "-t", 1, "--rank-mode", mode, "--widths", "1,4", "--context", 4,
                     "--emulate-allreduce-us", "1:300,4:900", "--json").json()["rows"]
        for row, us in zip(rows, (300, 900)):
            move = row["breakdown_us"]["allreduce_move"]
            sums = row["all_reduces"] - 1  # the exchange of logits is none
            h.check(0.99 * us * sums <= move, mode, row)
        rows = h.run("bench", "spec", "-m", model, "--tp", 2, "-t", 1, "--rank-mode", mode, "-n", 8, "--spec", "wrong,ngram", "--spec-shape", "chain:3",
                     "--ignore-eos", "--emulate-allreduce-us", "1:100,4:300", "--json").json()["rows"]
        plain = h.run("bench", "spec", "-m", model, "-n", 8, "--spec", "none", "--ignore-eos", "--json").json()["rows"][0]
        h.check(all(row["identical"] and row["digests"] == plain["digests"] for row in rows), mode, rows)


def test_pipes_in_place_of_files():
    pipe, model = h.scratch("pipe"), h.tiny_model()
    os.mkfifo(pipe)
    for command in (["run", "-p", "a", "-m"], ["inspect"], ["tokenize", "-m"], ["bench", "step", "-m"], ["bench", "spec", "-m"]):
        complains(h.run(*command, pipe, code=3, timeout=20), pipe, "not a regular file")
    complains(h.run("inspect", h.SCRATCH, code=3), h.SCRATCH, "no *.safetensors file")
    complains(h.run("run", "-p", "a", "-m", h.SCRATCH, code=3), h.SCRATCH, "not a regular file")
    complains(h.run("bench", "spec", "-m", model, "--prompts", pipe, code=2, timeout=20), pipe, "holds no prompt")
    complains(h.run("bench", "spec", "-m", model, "--prompts", h.SCRATCH, code=2), h.SCRATCH, "not a file")
    complains(h.run("bench", "spec", "-m", model, "--prompts", "/dev/zero", code=2, timeout=20), "/dev/zero", "not a file")
    complains(h.run("bench", "spec", "-m", model, "--prompts", "/nowhere", code=3), "--prompts /nowhere")
    for command in (["run", "-m", model, "-p", "a", "-n", 1], ["inspect", model], ["doctor"]):
        complains(h.run(*command, "--json", pipe, code=2, timeout=20), "--json " + pipe)
        complains(h.run(*command, "--json", h.SCRATCH, code=2), "--json " + h.SCRATCH)
    h.run("inspect", model, "--json", "/dev/null")

    # A pipe that somebody writes to is as good as a file.
    def write_late():
        with open(pipe, "w", encoding="utf-8") as f:
            time.sleep(0.3)
            f.write('{"prompt": "hello"}\n')

    keeper = os.open(pipe, os.O_RDWR)  # so that a writer is there before the program looks
    writer = threading.Thread(target=write_late)
    writer.start()
    closer = threading.Timer(3.0, os.close, [keeper])
    closer.start()
    rows = h.run("bench", "spec", "-m", model, "--prompts", pipe, "-n", 2, "--json", timeout=20).json()["rows"]
    h.equal(rows[0]["prompts"], 1)
    writer.join()
    closer.join()


def interrupt(program, limit):
    """Sends Ctrl-C's signal; returns exit code, stdout, stderr, and checks that the end comes within `limit` seconds."""
    begin = time.monotonic()
    program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=60)
    seconds = time.monotonic() - begin
    h.check(seconds < limit, "ended %.2f s after the signal" % seconds)
    return program.returncode, out.decode(), err.decode()


def test_an_interrupted_bench_spec_shows_what_is_finished():
    prompts, target = h.scratch("many.jsonl"), h.scratch("many.json")
    with open(prompts, "w", encoding="utf-8") as f:
        f.write('{"prompt": "hello"}\n' * 20000)
    program = h.start("bench", "spec", "-m", h.tiny_model(), "--prompts", prompts, "-n", 30, "--ignore-eos", "--json", target)
    time.sleep(2)
    code, out, err = interrupt(program, 2)
    h.equal(code, 130, err)
    h.check("accept length" in out and "identical: yes" in out and "of 20000 prompts" in err, out, err)
    with open(target, encoding="utf-8") as f:
        rows = h.json.load(f)["rows"]
    for row in rows:  # nothing of the prompt that was cut short
        h.check(0 < row["prompts"] < 20000, row["prompts"])
        h.equal((row["tokens"], len(row["digests"])), (29 * row["prompts"], row["prompts"]))


def test_ctrl_c_inside_a_long_prompt():
    # Plain C++ kernels on one thread: the whole prompt takes far longer than the limit, and so would chunks of a fixed 512.
    slow = {"LOCKSTEP_CPU_ISA": "generic"}
    for command in (["run", "--raw", "-p", "word " * 3900, "-n", 2], ["bench", "step", "--context", 3900, "--widths", "1"]):
        program = h.start(*command, "-m", h.real_model(), "--threads", 1, "-c", 4096, env=slow)
        time.sleep(3)
        code, _, err = interrupt(program, 1.5)
        h.equal(code, 130, err)


def test_doctor_says_which_variables_cannot_be_read():
    h.equal([m for m in h.run("doctor", "--json").json()["missing"] if "LOCKSTEP_" in m], [])
    for name, value in (("LOCKSTEP_FAULT", "rnd:step=1"), ("LOCKSTEP_RANK_TIMEOUT", "soon"), ("LOCKSTEP_CPU_ISA", "sse9")):
        h.check(name in h.run("doctor", env={name: value}).text(), name)


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
