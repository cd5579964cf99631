#!/usr/bin/env python3
"""Draft models on the real model: the text of plain decoding whatever drafts, and drafts that cannot be refused."""
import json
import os
import subprocess
import sys

import _harness as h

CUT = [sys.executable, os.path.join(h.ROOT, "tools", "cut_model.py")]
GREEDY = ()
SAMPLED = ("--temp", "0.8", "--seed", "5")
_cuts = {}


def cut(*arguments, model=None):
    """The real model's first layers as a model of their own."""
    model = model or h.real_model()
    if (model, arguments) not in _cuts:
        path = h.scratch("cut%d.gguf" % len(_cuts))
        subprocess.run([*CUT, model, path, *arguments], check=True, stdout=subprocess.DEVNULL)
        _cuts[model, arguments] = path
    return _cuts[model, arguments]


def draft():
    return cut("--layers", "10")


def prompt_file(name, prompts):
    path = h.scratch(name)
    with open(path, "w", encoding="utf-8") as f:
        for i, prompt in enumerate(prompts):
            f.write(json.dumps({"id": "p%d" % i, "kind": "chat", "prompt": prompt}) + "\n")
    return path


def bench(*arguments, prompts=("Write two sentences about rivers.",), spec="draft", draft_model=None, n=20):
    """bench spec compares every drafter's ids with plain decoding's and ends with 7 if any differ."""
    rows = h.run("bench", "spec", "-m", h.real_model(), "--spec", spec, "--draft-model", draft_model or draft(), "-n", n,
                 "--prompts", prompt_file("prompts.jsonl", prompts), *arguments, "--json", timeout=600).json()["rows"]
    for row in rows:
        h.equal(row["identical"], True, "%s %s identical" % (arguments, row["spec"]))
    return {row["spec"]: row for row in rows}


def run(*arguments, model=None):
    return h.run("run", "-m", model or h.real_model(), *arguments, "--json", timeout=300).json()


def same(*arguments, shape="chain:3", spec="draft", draft_model=None):
    """run with and without a draft: the whole answer is the same. Returns the drafted one."""
    plain = run(*arguments, "--spec", "none")
    drafted = run(*arguments, "--spec", spec, "--spec-shape", shape, "--draft-model", draft_model or draft())
    for key in ("text", "token_ids", "prompt_tokens", "completion_tokens", "finish_reason"):
        h.equal(drafted[key], plain[key], "%s of %s" % (key, arguments))
    return drafted


def test_ranks_threads_shapes_and_sampling_change_no_text():
    """Each value of a factor with most values of the others; every line starts the program anew."""
    cases = [(1, 1, "thread", "chain:3", GREEDY), (2, 1, "thread", "tree:8", SAMPLED),
             (1, 2, "process", "auto", SAMPLED), (2, 2, "process", "chain:3", SAMPLED),
             (2, 2, "thread", "auto", GREEDY), (2, 1, "process", "tree:8", GREEDY),
             (1, 2, "thread", "tree:8", GREEDY), (2, 1, "thread", "auto", SAMPLED),
             (1, 1, "process", "tree:8", SAMPLED), (2, 1, "process", "chain:3", GREEDY)]
    accepted = 0
    for tp, threads, mode, shape, sampling in cases:
        rows = bench("--tp", tp, "--threads", threads, "--rank-mode", mode, "--spec-shape", shape, *sampling,
                     spec="draft,auto", n=16)
        accepted += rows["draft"]["accept_length"] > 1
    h.check(accepted >= 4, "a cut of the model is hardly ever right: %d of %d cases" % (accepted, len(cases)))


def test_the_target_itself_is_always_right():
    """What a draft sees, where and with which noise: any slip of window, cache, position or noise costs acceptance."""
    for tp, sampling in ((1, GREEDY), (2, GREEDY), (1, SAMPLED), (2, SAMPLED)):
        for depth in (1, 3, 5):
            n = 1 + 4 * (depth + 1)  # the prompt gives the first token; then whole rounds
            answer = same("-p", "Write a story about a lighthouse.", "-n", n, "--tp", tp, *sampling,
                          shape="chain:%d" % depth, draft_model=h.real_model())
            h.equal(answer["completion_tokens"], n, "tokens (a longer text is needed)")
            h.equal(answer["rounds"], 4, "rounds at depth %d, tp %d, %s" % (depth, tp, sampling))
            h.equal(answer["accept_length"], depth + 1, "accept length at depth %d, tp %d, %s" % (depth, tp, sampling))


WORDS = ("the river runs past stone walls and quiet mills while a slow barge carries grain toward a harbour where "
         "traders count coins and weigh salt under lamps that burn until morning comes over low hills ").split()


def words(count):
    return " ".join(WORDS[i * 7 % len(WORDS)] for i in range(count))


def test_prompts_across_the_window():
    """A draft sees the last 128 tokens; beyond them it starts in the middle of the text."""
    seen = set()
    for count in (80, 400):
        for sampling in (GREEDY, SAMPLED):
            answer = same("--raw", "-p", words(count), "-n", 12, *sampling, draft_model=h.real_model())
            tokens = answer["prompt_tokens"]
            seen.add(tokens > 128)
            if tokens <= 127:
                # 1 + 11 tokens: the last round is cut by the limit.
                h.equal((answer["rounds"], answer["accept_length"]), (3, 11 / 3), tokens)
            h.check(answer["accept_length"] > 1.5, "beyond the window nothing is accepted:", tokens, answer["accept_length"])
    h.equal(seen, {False, True}, "prompts on both sides of the window")


def test_small_contexts():
    """The text may end where the context does; the draft's own context is cut to the target's."""
    for context in (48, 64, 96):
        for shape in ("chain:3", "tree:8"):
            answer = same("--raw", "-p", words(30), "-c", context, shape=shape)
            h.equal(answer["prompt_tokens"] + answer["completion_tokens"] <= context, True, answer["completion_tokens"])


def test_limits_and_stops():
    arguments = ("-p", "Count from one to ten in words.")
    for n in range(1, 10):
        same(*arguments, "-n", n, shape="chain:3" if n % 2 else "tree:8")
    whole = run(*arguments, "-n", 24, "--spec", "none")["text"]
    for begin in (3, 11, 20):
        stop = whole[begin:begin + 4]
        for shape in ("chain:3", "tree:8"):
            answer = same(*arguments, "-n", 24, "--stop", stop, shape=shape)
            h.equal(answer["text"], whole[:whole.find(stop)])
            h.equal(answer["finish_reason"], "stop")


def refused(draft_model, *arguments, model=None, code=2):
    result = h.run("run", "-m", model or h.real_model(), "-p", "Hi", "-n", 2, "--draft-model", draft_model, *arguments,
                   code=code)
    lines = [line for line in result.err.splitlines() if line.strip() and "warning" not in line]
    h.equal(len(lines), 1, result.err)
    return lines[0]


def test_another_vocabulary_is_refused():
    altered = cut("--layers", "2", "--alter-vocab")
    line = refused(altered)
    for word in (altered, h.real_model(), "16 differ", "token "):
        h.check(word in line, repr(word), "is not in", line)
    line = refused(h.tiny_model())
    for word in ("tokens against 49152", "token 3"):
        h.check(word in line, repr(word), "is not in", line)
    h.run("run", "-m", altered, "-p", "Hi", "-n", 2)  # a valid model by itself
    h.check("draft model" in refused(h.scratch("none.gguf"), code=3))


def test_a_draft_that_fewer_ranks_share():
    """The target can be cut for this tp, the draft cannot: some ranks have no part of it, and the text is the same."""
    target = h.tiny_model("--heads", "8", "--kv-heads", "8")
    small = h.tiny_model("--heads", "2", "--kv-heads", "1")
    run = ("run", "-m", target, "-p", "Hi", "-n", 24, "--ignore-eos", "--json")
    plain = h.run(*run, "--spec", "none").json()["token_ids"]
    for mode in ("thread", "process"):
        drafted = h.run(*run, "--spec", "draft", "--spec-shape", "tree:5", "--draft-model", small, "--tp", 4,
                        "--rank-mode", mode).json()
        h.equal(drafted["token_ids"], plain, mode)
        h.check(drafted["rounds"] > 0, "nothing was drafted")


def test_cut_model():
    def layers(path):
        return h.run("inspect", path, "--json").json()["config"]["num_layers"]
    h.equal(layers(draft()), 10)
    h.equal(layers(cut()), 10)  # a third of 30
    whole = cut("--layers", "30")
    with open(whole, "rb") as a, open(h.real_model(), "rb") as b:
        h.equal(a.read() == b.read(), True, "all layers are the file itself")
    h.equal(run("-p", "Hi", "-n", 4, model=whole)["text"], run("-p", "Hi", "-n", 4)["text"])

    def fails(*arguments):
        done = subprocess.run([*CUT, *arguments], capture_output=True, text=True, check=False)
        h.equal(done.returncode, 1, done.stderr)
        h.equal(len(done.stderr.splitlines()), 1, done.stderr)
        return done.stderr
    out = h.scratch("no.gguf")
    h.check("has 30" in fails(h.real_model(), out, "--layers", "31"))
    h.check("has 30" in fails(h.real_model(), out, "--layers", "0"))
    h.check("No such file" in fails(h.scratch("absent.gguf"), out))
    h.check("no GGUF" in fails(__file__, out))
    short = h.scratch("short.gguf")
    with open(h.real_model(), "rb") as f, open(short, "wb") as g:
        data = f.read(3 << 20)
        g.write(data)
    h.check("leaves the file" in fails(short, out))
    with open(short, "wb") as g:
        g.write(data[:1000])
    h.check("ends at byte 1000" in fails(short, out))
    h.check("over itself" in fails(draft(), draft()))
    h.equal([f for f in os.listdir(h.SCRATCH) if f.startswith("no.gguf")], [], "nothing is left of a failed cut")


h.main(globals())
