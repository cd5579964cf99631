"""What the end-to-end tests share: the program, the models, running it, looking for processes left behind.

A test file defines functions named test_*, and ends with `_harness.main(globals())`, which runs them in order (or those
whose names hold the word given as the first argument) and prints 'N passed, N failed, N skipped' last.
Standard library only. LOCKSTEP is the program (default build/lockstep), LOCKSTEP_TEST_MODEL the real model.
"""
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.environ.get("LOCKSTEP") or os.path.join(ROOT, "build", "lockstep")
_scratch = tempfile.TemporaryDirectory(prefix="lockstep-e2e-")
SCRATCH = _scratch.name
_models = {}


class Failure(Exception):
    pass


def check(condition, *what):
    if not condition:
        raise Failure(" ".join(str(w) for w in what))


def equal(a, b, what=""):
    check(a == b, what, "\n  got      %r\n  expected %r" % (a, b))


def real_model():
    path = os.environ.get("LOCKSTEP_TEST_MODEL") or os.path.join(ROOT, "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
    check(os.path.exists(path), path, "is missing; tools/get_model.py fetches it")
    return path


def tiny_model(*arguments):
    """A model written by tools/make_tiny_model.py with these arguments."""
    if arguments not in _models:
        path = scratch("tiny%d.gguf" % len(_models))
        subprocess.run([sys.executable, os.path.join(ROOT, "tools", "make_tiny_model.py"), path, *arguments], check=True)
        _models[arguments] = path
    return _models[arguments]


def scratch(name):
    return os.path.join(SCRATCH, name)


def environment(extra=None):
    # What the caller's shell has set must not decide a test.
    env = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_") or k == "LOCKSTEP_TEST_MODEL"}
    env.update(extra or {})
    return env


class Result:
    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    def text(self):
        return self.out.decode()

    def json(self):
        """stdout is one JSON value and nothing else."""
        return json.loads(self.out.decode())


def run(*arguments, code=0, stdin=b"", env=None, timeout=120):
    """Runs the program; fails unless it ends with `code` (None: any)."""
    start = time.monotonic()
    done = subprocess.run([PROGRAM, *map(str, arguments)], input=stdin, capture_output=True, env=environment(env),
                          timeout=timeout, check=False)
    result = Result(done.returncode, done.stdout, done.stderr.decode(errors="replace"), time.monotonic() - start)
    if code is not None and result.code != code:
        raise Failure("%s: exit code %d, expected %d\n  stdout %r\n  stderr %s" % (
            " ".join(map(str, arguments)), result.code, code, result.out[:500], result.err[:2000]))
    return result


def start(*arguments, env=None, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL):
    """The running program, in a session of its own."""
    return subprocess.Popen([PROGRAM, *map(str, arguments)], stdin=stdin, stdout=subprocess.PIPE,
                            stderr=stderr, env=environment(env), start_new_session=True, bufsize=0)


def session_members(session):
    """Live processes of a session, zombies not counted."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name, encoding="utf-8", errors="replace") as f:
                fields = f.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(name))
    return found


def nobody_left(session, seconds=2.0):
    deadline = time.monotonic() + seconds
    while session_members(session):
        if time.monotonic() > deadline:
            raise Failure("processes are left: %s" % session_members(session))
        time.sleep(0.05)


def keys(value, shape, where=""):
    """Every key of `shape` is in `value` with its type: a type, a tuple of types, {..} for an object, [one] for a list
    of at least one such."""
    if isinstance(shape, dict):
        check(isinstance(value, dict), where, "is no object")
        for key, inner in shape.items():
            check(key in value, "%s has no key %r; it has %s" % (where or "the result", key, list(value)))
            keys(value[key], inner, "%s.%s" % (where, key))
    elif isinstance(shape, list):
        check(isinstance(value, list) and value, where, "is no list, or empty")
        for i, item in enumerate(value):
            keys(item, shape[0], "%s[%d]" % (where, i))
    else:
        kinds = shape if isinstance(shape, tuple) else (shape,)
        good = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        check(good, "%s is %r, expected %s" % (where, value, "/".join(k.__name__ for k in kinds)))


def main(names):
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    passed = failed = 0
    for name, function in list(names.items()):
        if not name.startswith("test_") or wanted not in name:
            continue
        begin = time.monotonic()
        try:
            function()
            passed += 1
            print("ok    %s (%.1f s)" % (name, time.monotonic() - begin))
        except Exception:  # pylint: disable=broad-except
            failed += 1
            print("FAIL  %s\n%s" % (name, traceback.format_exc()))
        sys.stdout.flush()
    if passed + failed == 0:
        failed = 1
        print("no test named %r" % wanted)
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    sys.exit(1 if failed else 0)
