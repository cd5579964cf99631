#!/usr/bin/env python3
"""The JSON of every command: its keys and types, alone on stdout or in a file; and the plain output beside it."""
import json
import os
import signal
import subprocess

import _harness as h

NUMBER = (int, float)
MAYBE = (type(None), int, float)
RUN = {"text": str, "token_ids": list, "prompt_tokens": int, "completion_tokens": int, "finish_reason": str, "context_full": bool, "tp": int,
       "spec": str, "rounds": int, "accept_length": NUMBER, "decode_tokens_per_second": NUMBER,
       "time_to_first_token_ms": NUMBER, "ledger_seconds": MAYBE, "loss_fraction": MAYBE, "ledger_balance_seconds": MAYBE,
       "machine_seconds": MAYBE, "last_decision": (type(None), str), "plain_steps": int, "draft_tokens": int,
       "accepted_tokens": int, "accepted_by_position": list, "by_drafter": dict}
SPEC_ROW = {"spec": str, "tokens_per_second": NUMBER, "speedup": NUMBER, "accept_length": NUMBER, "verify_ms": NUMBER,
            "draft_ms": NUMBER, "plain_ms": NUMBER, "verify_over_plain": NUMBER, "identical": bool, "prompts": int,
            "tokens": int, "ledger_seconds": MAYBE, "loss_fraction": NUMBER, "measured_seconds": NUMBER}
OWNERS = ["schedule", "draft", "attention", "matmul", "allreduce_wait", "allreduce_move", "sample", "host_gap", "other"]
STEP_ROW = {"width": int, "step_us_min": NUMBER, "step_us_p50": NUMBER, "over_width1": NUMBER,
            "breakdown_us": {owner: NUMBER for owner in OWNERS}, "all_reduces": int, "kernels": int, "host_syncs": int}
INSPECT = {"path": str, "format": str, "arch": str, "config": {"num_layers": int, "vocab": int},
           "tensors": [{"name": str, "type": str, "shape": [int], "bytes": int}],
           "tokenizer": {"model": str, "pre": str, "vocab": int}, "shards": {"1": list, "2": list},
           "kv_bytes_per_token": int}


def test_run():
    model = h.tiny_model()
    json_alone = h.run("run", "-m", model, "-p", "hello", "-n", 5, "--ignore-eos", "--json").json()
    h.keys(json_alone, RUN)
    h.equal(json_alone["completion_tokens"], 5)
    h.equal(len(json_alone["token_ids"]), 5)
    h.equal(json_alone["finish_reason"], "length")
    h.equal((json_alone["tp"], json_alone["spec"]), (1, "auto"))
    target = h.scratch("run.json")
    shown = h.run("run", "-m", model, "-p", "hello", "-n", 5, "--ignore-eos", "--json", target, "-tp", 2)
    with open(target, encoding="utf-8") as f:
        in_file = json.load(f)
    h.keys(in_file, RUN)
    h.equal(in_file["tp"], 2)
    h.equal(in_file["token_ids"], json_alone["token_ids"], "tp 2 against tp 1")
    h.equal(shown.text(), in_file["text"] + "\n", "text on stdout")
    # An existing file of JSON is replaced.
    h.run("run", "-m", model, "-p", "hello", "-n", 1, "--ignore-eos", "--json", target)
    with open(target, encoding="utf-8") as f:
        h.equal(json.load(f)["completion_tokens"], 1)


def test_a_full_context_is_said():
    common = ["run", "-m", h.tiny_model(), "--raw", "-p", "hello", "--ignore-eos", "-c", 24, "--json", "-v"]
    full, limited = h.run(*common), h.run(*common, "-n", 3)
    h.equal((full.json()["finish_reason"], full.json()["context_full"]), ("length", True))
    h.check("the context of 24 tokens is full; --ctx-size" in full.err, full.err)
    h.equal((limited.json()["finish_reason"], limited.json()["context_full"]), ("length", False))
    h.check("is full" not in limited.err, limited.err)


def test_speculation_is_counted():
    model = h.tiny_model("--no-tied", "--seed", "4")
    common = ["run", "-m", model, "-p", "hello hello hello hello", "-n", 60, "--ignore-eos"]
    plain = h.run(*common, "--spec", "none", "--json").json()
    h.equal([plain[k] for k in ("ledger_seconds", "loss_fraction", "last_decision", "rounds")], [None, None, None, 0])
    for spec in ("auto", "ngram"):
        r = h.run(*common, "--spec", spec, "--json").json()
        h.equal(r["token_ids"], plain["token_ids"])
        h.equal(r["spec"], spec)
        h.check(isinstance(r["ledger_seconds"], float) and r["loss_fraction"] >= 0, r)
        h.equal(r["plain_steps"] + r["rounds"] + r["accepted_tokens"], 59, "tokens after the first")
        h.equal(sum(r["accepted_by_position"]), r["accepted_tokens"])
        for count, total in (("rounds", "rounds"), ("draft_tokens", "draft_tokens"), ("accepted_tokens", "accepted_tokens")):
            h.equal(sum(d[count] for d in r["by_drafter"].values()), r[total], "drafters' " + count)
        h.check(r["last_decision"].startswith(("plain: ", "draft: ")), r["last_decision"])
    # A fixed shape drafts every round, with the ledger off.
    fixed = h.run(*common, "--spec", "ngram", "--spec-shape", "chain:3", "--json").json()
    h.equal((fixed["token_ids"], fixed["ledger_seconds"]), (plain["token_ids"], None))
    h.check(fixed["rounds"] > 0 and fixed["draft_tokens"] >= fixed["accepted_tokens"], fixed)
    said = h.run(*common, "--verbose", "--spec-max-slowdown", 10).err
    for word in ("rounds with drafts", "accept length", "accepted by position", "saved", "ledger", "last: "):
        h.check(word in said, word, said)


def test_explain_spec():
    model = h.tiny_model()
    r = h.run("explain", "spec", "-m", model, "--json").json()
    h.keys(r, {"model": str, "tp": int, "plain_ms": NUMBER, "plain_lower_ms": NUMBER, "choice": str, "reason": str,
               "rows": [{"rows": int, "ms": NUMBER, "over_plain": NUMBER, "worst_ms": NUMBER}],
               "candidates": [{"drafter": str, "nodes": int, "tokens_per_second": NUMBER}]})
    widths = [row["rows"] for row in r["rows"]]
    h.equal(widths, list(range(1, len(widths) + 1)))
    h.check(4 <= len(widths) <= 16, widths)
    h.equal([c["drafter"] for c in r["candidates"]], ["none", "ngram"])
    h.check(r["plain_lower_ms"] <= r["plain_ms"], r)
    h.check(r["choice"] in ("none", "ngram"), r["choice"])
    text = h.run("explain", "spec", "-m", model, "--threads", 1).text()
    h.check("choice: " in text and "ledger" in text, text)


def test_run_says_how_the_prompt_is_used():
    model = h.tiny_model()
    h.check("chat template" in h.run("run", "-m", model, "-p", "hello", "-n", 1).err)
    h.check("bare text" in h.run("run", "-m", model, "-p", "hello", "-n", 1, "--raw").err)
    # Nothing on stderr may look like an error.
    h.check("error" not in h.run("run", "-m", model, "-p", "hello", "-n", 1).err)


def test_prompt_from_stdin():
    model = h.tiny_model()
    typed = h.run("run", "-m", model, "--raw", "-p", "hello all\n\n", "-n", 9, "--json").json()
    piped = h.run("run", "-m", model, "--raw", "-n", 9, "--json", stdin=b"hello all\n\n").json()
    h.equal(piped["token_ids"], typed["token_ids"])
    h.equal(piped["prompt_tokens"], typed["prompt_tokens"])


def test_bench_spec():
    model = h.tiny_model("--no-tied", "--seed", "4")
    prompts = h.scratch("prompts.jsonl")
    with open(prompts, "w", encoding="utf-8") as f:
        f.write('{"id": "a", "kind": "story", "prompt": "hello hello hello hello"}\n\n')
        f.write('{"id": "b", "kind": "chat", "messages": [{"role": "user", "content": "hi"}]}\n')
    arguments = ["bench", "spec", "-m", model, "--prompts", prompts, "-n", 40, "--spec",
                 "none,ngram,auto,oracle,wrong,random", "--spec-shape", "tree:5", "--ignore-eos"]
    result = h.run(*arguments, "--json").json()
    h.keys(result, {"model": str, "tp": int, "backend": str, "rows": [SPEC_ROW]})
    h.equal(result["backend"], "cpu")
    rows = {row["spec"]: row for row in result["rows"]}
    h.equal(list(rows), ["none", "ngram", "auto", "oracle", "wrong", "random"])
    for row in result["rows"]:
        h.equal(row["identical"], True, row["spec"])
        h.equal((row["prompts"], row["tokens"]), (2, 78), row["spec"])
    h.equal((rows["none"]["accept_length"], rows["wrong"]["accept_length"]), (1, 1))
    h.check(rows["oracle"]["accept_length"] > 2, rows["oracle"])
    table = h.run(*arguments).text()
    h.check("identical: yes" in table and "accept length" in table, table)
    # Plain decoding is measured although nobody asked for it.
    names = [r["spec"] for r in h.run("bench", "spec", "-m", model, "--spec", "ngram", "-n", 3, "--json").json()["rows"]]
    h.equal(names, ["none", "ngram"])


def test_the_cache_in_q8_0():
    model = h.tiny_model("--seed", "4", "--head-dim", "32")
    result = h.run("bench", "spec", "-m", model, "--kv-cache-dtype", "q8_0", "-tp", 2, "--threads", 1, "-n", 60, "--spec",
                   "none,ngram,oracle", "--spec-shape", "tree:5", "--ignore-eos", "--json").json()
    h.equal([(row["spec"], row["identical"]) for row in result["rows"]],
            [("none", True), ("ngram", True), ("oracle", True)])
    h.check(result["rows"][2]["accept_length"] > 2, result["rows"][2])
    plain = ["run", "-m", model, "-p", "hello", "-n", 8]
    named = h.run(*plain, "--kv-cache-dtype", "q8_0").out
    h.equal(h.run(*plain, "-ctk", "q8_0", "-ctv", "q8_0").out, named)
    h.equal(h.run(*plain, "--cache-type-k=q8_0", "--cache-type-v=q8_0", "--kv-cache-dtype", "q8_0").out, named)
    h.equal(h.run(*plain, "-ctv", "f16").out, h.run(*plain).out)
    small = h.tiny_model("--seed", "4")
    h.check("head_dim is 16" in h.run("run", "-m", small, "-p", "a", "--kv-cache-dtype", "q8_0", code=2).err)


def test_bench_step():
    model = h.tiny_model()
    result = h.run("bench", "step", "-m", model, "--widths", "1,2,4", "--context", 20, "--reps", 5, "-tp", 2, "--threads",
                   1, "--json").json()
    h.keys(result, {"model": str, "tp": int, "backend": str, "context": int, "rows": [STEP_ROW]})
    h.equal([r["width"] for r in result["rows"]], [1, 2, 4])
    h.equal(result["rows"][0]["over_width1"], 1)
    for row in result["rows"]:
        h.equal(set(row["breakdown_us"]), set(OWNERS), "owners")
        h.equal(row["all_reduces"], 2 * 2 + 1)
        # No owner is a remainder, yet together they explain the step.
        h.check(sum(row["breakdown_us"].values()) > 0.3 * row["step_us_min"], row)
        h.check("bytes" not in row and "limit_us" not in row, row)
    text = h.run("bench", "step", "-m", model, "--widths", "1,2", "--reps", 3).text()
    h.check("over width 1" in text and "allreduce_wait" in text, text)


def test_bench_step_roofline():
    model = h.tiny_model()
    for mode in ("thread", "process"):
        arguments = ["bench", "step", "-m", model, "--widths", "1,2,200", "--context", 20, "--reps", 3, "-tp", 2,
                     "--threads", 1, "--rank-mode", mode, "--roofline"]
        result = h.run(*arguments, "--json").json()
        h.keys(result, {"read_bytes": int, "read_gbps": float,
                        "rows": [dict(STEP_ROW, bytes=int, limit_us=float, over_limit=float)]})
        for row in result["rows"]:
            h.check(abs(row["limit_us"] * result["read_gbps"] * 1e3 / row["bytes"] - 1) < 1e-6, row)
            h.check(abs(row["over_limit"] * row["limit_us"] / row["step_us_min"] - 1) < 1e-6, row)
        one, two, many = (r["bytes"] for r in result["rows"])
        # A row more: its keys and values, written and read, and its logits.
        kv = h.run("inspect", model, "--json").json()["kv_bytes_per_token"]
        vocab = h.run("inspect", model, "--json").json()["config"]["vocab"]
        h.equal(two - one, 2 * kv + 4 * vocab)
        h.equal(many - one, 199 * (2 * kv + 4 * vocab))
        h.equal(result["read_bytes"], one - kv - 4 * vocab)
        h.check(result["read_gbps"] > 0, result)
        text = h.run(*arguments).text()
        h.check("limit us" in text and "over limit" in text and "GB/s" in text, text)


def test_inspect():
    model = h.tiny_model()
    for order in ([model, "--json"], ["--json", model]):
        result = h.run("inspect", *order).json()
        h.keys(result, INSPECT)
        h.equal(result["kv_bytes_per_token"], 2 * 2 * 2 * 16 * 2)
    target = h.scratch("inspect.json")
    h.check("llama" in h.run("inspect", "--json", target, model).text())
    with open(target, encoding="utf-8") as f:
        h.keys(json.load(f), INSPECT)


def test_inspect_safetensors():
    head = os.path.join(h.ROOT, "tests", "data", "safetensors", "eagle3_ok")
    for path in (head, os.path.join(head, "model.safetensors")):
        result = h.run("inspect", path, "--json").json()
        h.keys(result, {key: kind for key, kind in INSPECT.items() if key in ("path", "format", "arch", "tensors")})
        h.equal([len(result["tensors"]), result["format"]], [15, "safetensors"])
        h.check("midlayer.mlp.down_proj.weight" in h.run("inspect", path).text())


def test_every_architecture_speculates_with_the_same_tokens():
    for arch in ("qwen2", "qwen3"):
        for dtype in ("F32", "Q8_0"):
            model = h.tiny_model("--arch", arch, "--dtype", dtype, "--seed", "3", "--heads", "6", "--head-dim", "32")
            plain = h.run("run", "-m", model, "-p", "hello the hello the", "-n", 40, "--ignore-eos", "--spec", "none",
                          "--json").json()
            two = h.run("run", "-m", model, "-p", "hello the hello the", "-n", 40, "--ignore-eos", "--spec", "ngram",
                        "--tp", 2, "--threads", 1, "--json").json()
            h.equal(len(plain["token_ids"]), 40)
            h.equal(two["token_ids"], plain["token_ids"], arch + " " + dtype)


def test_doctor():
    result = h.run("doctor", "--json").json()
    h.keys(result, {"fingerprint": str, "cpus": int, "isa": str, "threads": int, "memory_bytes": int, "missing": list})
    h.check(result["isa"] in h.run("doctor").text())


def test_a_file_that_is_no_json_is_left_alone():
    target = h.scratch("letter.txt")
    with open(target, "w", encoding="utf-8") as f:
        f.write("Dear reader\n")
    model = h.tiny_model()
    for command in (["run", "-m", model, "-p", "a", "-n", 2], ["inspect", model], ["doctor"],
                    ["bench", "step", "-m", model, "--widths", "1"], ["bench", "spec", "-m", model, "-n", 2]):
        result = h.run(*command, "--json", target, code=2)
        h.check("letter.txt" in result.err and "left alone" in result.err, result.err)
        h.equal(result.out, b"", command)  # before any work
        with open(target, encoding="utf-8") as f:
            h.equal(f.read(), "Dear reader\n")


def test_real_model_answers():
    result = h.run("run", "-m", h.real_model(), "-p", "What is the capital of France? Answer in one word.", "-n", 12, "-tp",
                   2, "--spec", "ngram", "--json").json()
    h.keys(result, RUN)
    h.check("Paris" in result["text"], result["text"])
    h.equal(result["finish_reason"], "stop")


def test_a_reader_that_leaves():
    program = subprocess.Popen([h.PROGRAM, "inspect", h.real_model()], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=h.environment())
    h.equal(len(program.stdout.read(5)), 5)
    program.stdout.close()
    program.stderr.read()
    h.check(program.wait(timeout=20) in (0, -signal.SIGPIPE), program.returncode)


h.main(globals())
