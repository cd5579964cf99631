#!/usr/bin/env python3
"""Compares Lockstep's tokenizer with Hugging Face's tokenizers, id for id, on tens of thousands of texts.

    tokenizer_compare.py MODEL.gguf --program build/tests/golden/tokenizer_ids [--count 40000] [--parse-special]
    tokenizer_compare.py MODEL.gguf --lockstep build/lockstep          (texts with a newline are left out: it splits there)

Also checks that decoding the ids of a text gives the text back where the vocabulary has all its bytes, and the same as
Hugging Face's byte-level decoder where not. Needs the PyPI packages gguf and tokenizers. Exit code 1 on a difference.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import hf_oracle
import tokenizer_strings
from tokenizers import decoders


def run(command, lines):
    done = subprocess.run(command, input="".join(line + "\n" for line in lines).encode(), stdout=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: exit code {done.returncode}")
    return [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--program", help="tokenizer_ids")
    parser.add_argument("--lockstep", help="the lockstep program")
    parser.add_argument("--count", type=int, default=40000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parse-special", action="store_true")
    args = parser.parse_args()

    spec = hf_oracle.load_spec(args.model)
    oracle = hf_oracle.build(spec, args.parse_special)
    oracle.decoder = decoders.ByteLevel()
    texts = tokenizer_strings.texts(args.count, args.seed)
    flags = ["--parse-special"] if args.parse_special else []
    if args.lockstep:
        texts = [t for t in texts if "\n" not in t]
        ours = run([args.lockstep, "tokenize", "-m", args.model, *flags], texts)
    else:
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
            json.dump(spec, file)
        ours = run([args.program, file.name, *flags], [json.dumps(t) for t in texts])
        os.unlink(file.name)
    if len(ours) != len(texts):
        sys.exit(f"{len(ours)} answers for {len(texts)} texts")

    theirs = oracle.encode_batch(texts, add_special_tokens=False)
    bad_ids = bad_text = 0
    for text, a, b in zip(texts, ours, theirs):
        if a["ids"] != b.ids:
            bad_ids += 1
            if bad_ids <= 10:
                print(f"ids differ: {text!r}\n  ours   {a['ids']}\n  theirs {b.ids} {b.tokens}")
        elif a["decoded"] != oracle.decode(b.ids, skip_special_tokens=False):
            bad_text += 1
            if bad_text <= 10:
                print(f"decoded text differs: {text!r}\n  ours   {a['decoded']!r}\n  theirs {oracle.decode(b.ids, skip_special_tokens=False)!r}")
    print(f"{spec['pre']}: {len(texts)} texts, {sum(len(a['ids']) for a in ours)} ids, {bad_ids} differ in ids, {bad_text} in decoded text")
    return 1 if bad_ids or bad_text else 0


sys.exit(main())
