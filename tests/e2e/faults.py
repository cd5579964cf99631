#!/usr/bin/env python3
"""Ranks that die, stall or lie, Ctrl-C, and one changed rounding: the exit code, who is named, and nobody left behind."""
import json
import os
import signal
import time

import _harness as h

TIMEOUT = 2
MODES = ("process", "thread")


def run_to_end(*arguments, env, seconds):
    """(exit code, stdout, stderr, seconds); fails if processes are left, or if it takes longer than `seconds`."""
    begin = time.monotonic()
    program = h.start(*arguments, env=env)
    try:
        out, err = program.communicate(timeout=seconds + 30)
    except Exception:
        os.killpg(program.pid, signal.SIGKILL)
        raise
    took = time.monotonic() - begin
    h.nobody_left(program.pid)
    h.check(took < seconds, "took %.1f s" % took, err)
    return program.returncode, out.decode(), err.decode()


def faulty(kind, mode, seconds, *words):
    for rank in (1, 0) if kind == "corrupt" else (1,):
        code, _, err = run_to_end("run", "-m", h.tiny_model(), "-p", "hello", "-n", 60, "--ignore-eos", "--tp", 2,
                                  "--threads", 1, "--rank-mode", mode, seconds=seconds,
                                  env={"LOCKSTEP_FAULT": "%s:rank=%d,step=5" % (kind, rank),
                                       "LOCKSTEP_RANK_TIMEOUT": str(TIMEOUT)})
        h.equal(code, 5, err)
        for word in ("rank %d" % rank,) + words:
            h.check(word in err, repr(word), "is not in", err)


def test_kill():
    for mode in MODES:
        faulty("kill", mode, TIMEOUT + 3, "died")


def test_stall():
    for mode in MODES:
        faulty("stall", mode, TIMEOUT + 3, "waited %d s" % TIMEOUT)


def test_corrupt():
    for mode in MODES:
        faulty("corrupt", mode, TIMEOUT + 3, "disagree", "step 5", "digest")


def test_a_fault_that_never_comes_is_harmless():
    h.run("run", "-m", h.tiny_model(), "-p", "hello", "-n", 5, "--tp", 2, "--threads", 1,
          env={"LOCKSTEP_FAULT": "kill:rank=1,step=100000"})


def long_run(mode, *more, threads=1, timeout=TIMEOUT):
    program = h.start("run", "-m", h.real_model(), "--raw", "-p", "Once upon a time", "-n", 4000, "--ignore-eos", "--tp", 2,
                      "--threads", threads, "--rank-mode", mode, *more, env={"LOCKSTEP_RANK_TIMEOUT": str(timeout)})
    first = b""
    while len(first) < 20:  # it writes
        piece = program.stdout.read(20)
        h.check(piece, "it ended at once")
        first += piece
    return program, first


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="utf-8") as f:
        return [int(word) for word in f.read().split()]


def test_a_rank_killed_from_outside():
    program, _ = long_run("process")
    ranks = children(program.pid)
    h.equal(len(ranks), 1, "rank processes")
    begin = time.monotonic()
    os.kill(ranks[0], signal.SIGKILL)
    _, err = program.communicate(timeout=30)
    h.check(time.monotonic() - begin < TIMEOUT + 3, "too slow")
    h.equal(program.returncode, 5, err)
    h.check(b"rank 1" in err, err)
    h.nobody_left(program.pid)


def test_a_rank_stopped_from_outside():
    program, _ = long_run("process")
    begin = time.monotonic()
    os.kill(children(program.pid)[0], signal.SIGSTOP)
    _, err = program.communicate(timeout=30)
    h.check(time.monotonic() - begin < TIMEOUT + 3, "too slow")
    h.equal(program.returncode, 5, err)
    h.check(b"rank 1" in err, err)
    h.nobody_left(program.pid)


def test_the_first_rank_killed_takes_the_others_along():
    program, _ = long_run("process", timeout=60)  # so that no time limit ends them
    h.equal(len(children(program.pid)), 1)
    os.kill(program.pid, signal.SIGKILL)
    program.communicate(timeout=30)
    h.nobody_left(program.pid)


def test_interrupt():
    for mode in MODES:
        target = h.scratch("interrupted-%s.json" % mode)
        program, first = long_run(mode, "--json", target)
        os.killpg(program.pid, signal.SIGINT)  # as a terminal does: to every process of the job
        rest, err = program.communicate(timeout=30)
        h.equal(program.returncode, 130, err)
        with open(target, encoding="utf-8") as f:
            result = json.load(f)
        h.equal(result["finish_reason"], "interrupted")
        h.equal((first + rest).decode(), result["text"] + "\n", "the text so far")
        h.check(5 <= result["completion_tokens"] < 4000, result["completion_tokens"])
        h.check(b"error" not in err and b"rank" not in err, err)
        h.nobody_left(program.pid)


def test_a_changed_rounding_is_caught():
    prompts = h.scratch("one.jsonl")
    with open(prompts, "w", encoding="utf-8") as f:
        f.write('{"id": "a", "kind": "story", "messages": [{"role": "user", "content": "Tell a story of a fox."}]}\n')
    arguments = ["bench", "spec", "-m", h.real_model(), "--spec", "oracle", "--spec-shape", "chain:4", "-n", 64,
                 "--prompts", prompts, "--tp", 2, "--threads", 1]
    sound = h.run(*arguments)
    h.check("identical: yes" in sound.text() and " NO" not in sound.text(), sound.text())
    for mode in MODES:
        fault = {"LOCKSTEP_FAULT": "round:step=20"}
        table = h.run(*arguments, "--rank-mode", mode, code=7, env=fault)
        h.check(" NO" in table.text() and "identical: no" in table.text(), table.text())
        h.check("identical: false" in table.err, table.err)
    rows = h.run(*arguments, "--json", code=7, env=fault).json()["rows"]
    # The fault lies in verify steps only: plain decoding, prefill included, still equals itself.
    h.equal({row["spec"]: row["identical"] for row in rows}, {"none": True, "oracle": False})


h.main(globals())
