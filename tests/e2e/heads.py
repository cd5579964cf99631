#!/usr/bin/env python3
"""The shipped EAGLE-3 head on the real model: the same text whatever it drafts, as much accepted as its card says, the
same acceptance however the work is cut, and what is said of a head that does not belong to the model.

Accept lengths are functions of bits, not of clocks: with a fixed shape two runs must agree to the last draft row.
"""
import json
import os
import shutil
import struct

import _harness as h

HEAD = os.path.join(h.ROOT, "drafts", "smollm2-135m-eagle3")
QUESTIONS = ["What should I cook for four guests who do not eat meat?",
             "Explain how a bicycle stays upright.",
             "Write a polite e-mail that asks for a day off."]


def prompts(count=len(QUESTIONS)):
    path = h.scratch("prompts-%d.jsonl" % count)
    with open(path, "w", encoding="utf-8") as f:
        for i, text in enumerate(QUESTIONS[:count]):
            f.write(json.dumps({"id": "q%d" % i, "kind": "chat", "messages": [{"role": "user", "content": text}]}) + "\n")
    return path


def bench(*arguments, tokens=64, count=len(QUESTIONS), spec="eagle3", code=0):
    """The row of `spec`, with its digests; bench spec itself compares with plain decoding (exit 7 if a text differs)."""
    result = h.run("bench", "spec", "-m", h.real_model(), "--spec", spec, "-n", tokens, "--prompts", prompts(count),
                   "--json", *arguments, code=code, timeout=300)
    row = next(r for r in result.json()["rows"] if r["spec"] == spec)
    h.check(row["identical"], spec, arguments, "wrote another text than plain decoding")
    return row


def copy_of_head(name, edit_config=None, edit_tensors=None):
    """The shipped head with something changed. edit_tensors: {tensor: function of its bytes}."""
    folder = h.scratch(name)
    if os.path.exists(folder):
        return folder
    shutil.copytree(HEAD, folder)
    if edit_config:
        path = os.path.join(folder, "config.json")
        with open(path, encoding="utf-8") as f:
            config = json.load(f)
        edit_config(config)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(config, f)
    for shard in sorted(s for s in os.listdir(folder) if s.endswith(".safetensors")):
        path = os.path.join(folder, shard)
        with open(path, "rb") as f:
            data = bytearray(f.read())
        length = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + length])
        for tensor, change in (edit_tensors or {}).items():
            if tensor not in header:
                continue
            begin, end = (8 + length + offset for offset in header[tensor]["data_offsets"])
            data[begin:end] = change(bytes(data[begin:end]))
            with open(path, "wb") as f:
                f.write(data)
    return folder


def counts(row):
    return row["rounds"], row["draft_tokens"], row["accepted_tokens"], row["accepted_by_position"], row["digests"]


def test_it_is_found_by_the_models_fingerprint():
    with open(os.path.join(HEAD, "config.json"), encoding="utf-8") as f:
        targets = json.load(f)["lockstep_targets"]
    h.check(h.run("inspect", h.real_model(), "--json").json()["fingerprint"] in targets, targets)


def test_it_accepts_what_its_card_says():
    greedy, sampled = bench("--spec-shape", "chain:4"), bench("--spec-shape", "chain:4", "--temp", "0.8")
    tree = bench("--spec-shape", "tree:8")
    print("      chain:4 %.2f, at temperature 0.8 %.2f; tree:8 %.2f" % (
        greedy["accept_length"], sampled["accept_length"], tree["accept_length"]))
    # Of 40 prompts the card has more; three vary by a tenth.
    h.check(greedy["accept_length"] >= 2.2, greedy["accept_length"])
    h.check(sampled["accept_length"] >= 1.8, sampled["accept_length"])
    h.check(tree["accept_length"] > greedy["accept_length"], tree["accept_length"])


def test_ranks_threads_and_processes_accept_the_same():
    for shape, more in (("chain:4", ()), ("tree:8", ("--temp", "0.8", "--seed", "5"))):
        want = counts(bench("--spec-shape", shape, *more, tokens=32, count=1))
        for cut in (("--tp", 2, "--threads", 1), ("--tp", 1, "--threads", 2), ("--tp", 3, "--threads", 1),
                    ("--tp", 2, "--threads", 1, "--rank-mode", "process"), ("--chunked-prefill-size", 7)):
            h.equal(counts(bench("--spec-shape", shape, *more, *cut, tokens=32, count=1)), want, (shape, cut))


def test_types_of_the_head_change_the_acceptance_only():
    for kind in ("q4_0", "q4_1", "none"):
        row = bench("--spec-shape", "chain:4", "--draft-quantization", kind, tokens=48, count=2)
        print("      %s: %.2f" % (kind, row["accept_length"]))
        h.check(row["accept_length"] >= 1.8, kind, row["accept_length"])


def test_a_head_slides_where_its_positions_end():
    # Positions of prompt and text go far beyond what the copy was trained for.
    short = copy_of_head("short", lambda c: c.update(max_position_embeddings=256))
    whole, slid = (bench("--spec-shape", "chain:3", "--ignore-eos", *more, tokens=480, count=1)
                   for more in ((), ("--draft-model", short)))
    print("      whole %.2f, sliding %.2f" % (whole["accept_length"], slid["accept_length"]))
    h.check(slid["accept_length"] >= 0.9 * whole["accept_length"], slid["accept_length"], whole["accept_length"])


def test_a_head_of_hardly_any_positions():
    run = ["run", "-m", h.real_model(), "-p", QUESTIONS[0], "-n", 24, "--force-draft", "--draft-model"]
    refused = h.run(*run, copy_of_head("of-2", lambda c: c.update(max_position_embeddings=2)), code=3)
    h.check("2 positions" in refused.err, refused.err)
    bench("--spec-shape", "tree:9", "--force-draft", "--draft-model",
          copy_of_head("of-16", lambda c: c.update(max_position_embeddings=16)), tokens=40, count=1)


def test_automatic_drafting_writes_the_same_text():
    for more in ((), ("--temp", "0.8")):
        bench(*more, spec="auto")
        bench(*more, spec="eagle3")


def test_a_stop_inside_a_draft_ends_where_plain_decoding_ends():
    base = ["run", "-m", h.real_model(), "--json", "-p", QUESTIONS[1]]
    for stop in (" balance", ".", "\n"):
        plain, drafted = (h.run(*base, "-n", 60, "--stop", stop, "--spec", *spec).json()
                          for spec in (("none",), ("eagle3", "--spec-shape", "tree:8")))
        for key in ("text", "finish_reason", "token_ids"):
            h.equal(drafted[key], plain[key], (stop, key))
    for most in range(1, 10):
        plain, drafted = (h.run(*base, "-n", most, "--spec", *spec).json()["token_ids"]
                          for spec in (("none",), ("eagle3", "--spec-shape", "chain:6")))
        h.equal(drafted, plain, most)


def swap_columns(raw):
    """fc reads the taps in another order: what a head for another model of the same sizes looks like."""
    third = 2 * 576
    rows = [raw[i:i + 3 * third] for i in range(0, len(raw), 3 * third)]
    return b"".join(r[third:] + r[:third] for r in rows)


def test_a_head_for_another_model_is_refused_with_the_number():
    other = copy_of_head("other", edit_tensors={"fc.weight": swap_columns})
    run = ["run", "-m", h.real_model(), "-p", QUESTIONS[0], "-n", 24, "--spec", "eagle3", "--draft-model", other]
    refused = h.run(*run, code=2)
    h.check("%" in refused.err and "--force-draft" in refused.err and other in refused.err, refused.err)
    forced = h.run(*run, "--force-draft")
    h.equal(forced.out, h.run(*run[:5], *run[5:7], "--spec", "none").out)


def test_taps_of_other_layers_show_in_the_acceptance():
    # The planted fault that the bar above must catch: every tap one layer off.
    off = copy_of_head("off", lambda c: c["eagle_config"].update(eagle_aux_hidden_state_layer_ids=[1, 20, 28]))
    row = bench("--spec-shape", "chain:4", "--draft-model", off, "--force-draft")
    h.check(row["accept_length"] < 2.2, row["accept_length"])


h.main(globals())
