#!/usr/bin/env python3
"""Runs the gtest programs of a build and sums them up.

usage: tools/run_tests.py [--build DIR] [--filter GTEST_FILTER] [--programs NAME,...] [--jobs N] [--timeout SECONDS]

The programs are the lines of DIR/test_programs.txt, which CMake writes. Several run at a time, bounded by the cores
that this process may use; the ones in SERIAL run alone afterwards, because they start ranks of their own or look at
the clock. A failure is printed in full. Exit code 1 when a test failed, when a program crashed, timed out or is not
built, and when no test ran at all. Last line: N passed, N failed, N skipped
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time

SERIAL = {"comm_test", "step_test", "engine_test", "logits_golden_test", "step_census_test", "multirank_test", "cli_test"}


class Outcome:
    def __init__(self, name):
        self.name = name
        self.passed = self.failed = self.skipped = 0
        self.seconds = 0.0
        self.trouble = ""   # what to print in full
        self.reasons = []   # of skipped tests


def skip_reasons(text):
    """Test name -> why it was skipped, from the log: gtest 1.12 keeps the words out of its JSON."""
    reasons = {}
    reason = ""
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if line.endswith(": Skipped") and i + 1 < len(lines):
            reason = lines[i + 1].strip()
        elif line.startswith("[  SKIPPED ] ") and line.endswith(" ms)"):
            reasons[line[len("[  SKIPPED ] "):].rsplit(" (", 1)[0]] = reason
            reason = ""
    return reasons


def read_report(path, text, outcome):
    """Counts the tests of one gtest JSON report; returns False when there is none to read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            report = json.load(f)
    except (OSError, ValueError):
        return False
    reasons = skip_reasons(text)
    for suite in report.get("testsuites", []):
        for test in suite.get("testsuite", []):
            if test.get("status") == "NOTRUN":
                continue
            if test.get("failures"):
                outcome.failed += 1
            elif test.get("result") == "SKIPPED":
                outcome.skipped += 1
                name = "%s.%s" % (suite.get("name"), test.get("name"))
                outcome.reasons.append("%s: %s" % (name, reasons.get(name) or "no reason given"))
            else:
                outcome.passed += 1
    return True


def run_program(path, args):
    outcome = Outcome(os.path.basename(path))
    start = time.monotonic()
    if not os.access(path, os.X_OK):
        outcome.failed = 1
        outcome.trouble = "%s is listed but not built" % path
        return outcome
    with tempfile.TemporaryDirectory(prefix="lockstep-test-") as scratch:
        report = os.path.join(scratch, "report.json")
        command = [path, "--gtest_output=json:" + report, "--gtest_brief=0", "--gtest_color=no"]
        if args.filter:
            command.append("--gtest_filter=" + args.filter)
        log_path = os.path.join(scratch, "log")
        ended = None
        with open(log_path, "wb") as log:
            # A session of its own, so that forked ranks end with the program that is stopped.
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                       start_new_session=True)
            try:
                ended = process.wait(timeout=args.timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
        with open(log_path, encoding="utf-8", errors="replace") as log:
            text = log.read()
        has_report = read_report(report, text, outcome)
    outcome.seconds = time.monotonic() - start
    if ended is None:
        outcome.failed += 1
        outcome.trouble = text + "\n%s did not end within %d s" % (outcome.name, args.timeout)
    elif not has_report:
        outcome.failed += 1
        outcome.trouble = text + "\n%s ended with %d and left no report" % (outcome.name, ended)
    elif ended != 0 and outcome.failed == 0:  # a sanitizer or an exit after the last test
        outcome.failed += 1
        outcome.trouble = text + "\n%s ended with %d after its tests" % (outcome.name, ended)
    elif outcome.failed:
        outcome.trouble = text
    return outcome


def print_outcome(outcome):
    mark = "FAIL" if outcome.failed else "ok  "
    print("%s  %-28s %5d passed  %3d failed  %3d skipped  %6.1f s" % (
        mark, outcome.name, outcome.passed, outcome.failed, outcome.skipped, outcome.seconds))
    for reason in outcome.reasons:
        print("      skipped  " + reason)
    if outcome.trouble:
        print("-" * 100)
        print(outcome.trouble.rstrip())
        print("-" * 100)
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--filter", default="", help="passed on as --gtest_filter")
    parser.add_argument("--programs", default="", help="only these, by name, comma separated")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one program")
    args = parser.parse_args()

    list_path = os.path.join(args.build, "test_programs.txt")
    try:
        with open(list_path, encoding="utf-8") as f:
            programs = [line.strip() for line in f if line.strip()]
    except OSError as error:
        print("run_tests.py: %s; configure and build first" % error)
        print("0 passed, 1 failed, 0 skipped")
        return 1
    if args.programs:
        wanted = set(args.programs.split(","))
        absent = wanted - {os.path.basename(p) for p in programs}
        if absent:
            print("run_tests.py: not in %s: %s" % (list_path, ", ".join(sorted(absent))))
            print("0 passed, 1 failed, 0 skipped")
            return 1
        programs = [p for p in programs if os.path.basename(p) in wanted]

    together = [p for p in programs if os.path.basename(p) not in SERIAL]
    alone = [p for p in programs if os.path.basename(p) in SERIAL]
    outcomes = []
    with concurrent.futures.ThreadPoolExecutor(max(1, args.jobs)) as pool:
        for future in concurrent.futures.as_completed([pool.submit(run_program, p, args) for p in together]):
            outcomes.append(future.result())
            print_outcome(outcomes[-1])
    for path in alone:
        outcomes.append(run_program(path, args))
        print_outcome(outcomes[-1])

    passed = sum(o.passed for o in outcomes)
    failed = sum(o.failed for o in outcomes)
    skipped = sum(o.skipped for o in outcomes)
    if passed + failed == 0:
        print("run_tests.py: no test ran" + (" (filter %r)" % args.filter if args.filter else ""))
        failed = 1
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
