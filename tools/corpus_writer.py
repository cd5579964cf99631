"""Writes a corpus of test files and their verdicts: what gguf_corpus.py and safetensors_corpus.py have in common."""
import json
import os
import shutil


def write(out, files, entries):
    """Replaces the folder `out` by files (name -> bytes) and manifest.json, the list of entries."""
    shutil.rmtree(out, ignore_errors=True)
    for name, raw in files.items():
        path = os.path.join(out, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(raw)
    with open(os.path.join(out, "manifest.json"), "w") as f:
        json.dump(entries, f, indent=1)
        f.write("\n")
    print("%d files, %d verdicts, %d bytes" % (len(files), len(entries), sum(map(len, files.values()))))
