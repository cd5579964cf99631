#!/usr/bin/env python3
"""Writes tests/golden/tokenizer_<pre>.json: texts with the ids that Hugging Face's tokenizers give.

    tokenizer_golden.py SmolLM2.gguf ggml-vocab-gpt-2.gguf ggml-vocab-qwen2.gguf llama-bpe

(The second and third are vocabulary-only files that llama.cpp ships in models/. Llama 3's own vocabulary is not under a
permissive licence, so `llama-bpe` is no file: it is trained here, on tests/data/real_text.txt and the texts below.) A
golden file also holds the part of the
vocabulary that these texts need, under the original ids: the bytes, the special tokens that occur, and every token that
is a substring of a text. A merge whose result is no substring of a text can never apply, so nothing else is missing; the
script checks that the part gives the same ids as the whole.
"""

import json
import os
import random
import sys

import hf_oracle
import tokenizer_strings as strings
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
# From public bug reports: runs of newlines and spaces, digits, symbols, case folding, control tokens typed by a user.
CASES = [
    "a\n\n", "\n\n\n\n", "a\r\n\r\nb", "x;\n\n", "){\r\n}", "hi   there", "hi   ", "What is 3333+777?", "1234567", "->", "(x):\n",
    "brutalist", "I'LL WE'VE don't DON'T it’s", "4 ½ months", "A<|im_end|>B", "hello </think> world", "Hi\n\n x Ġ é", "a\x00b",
    "\ufeffhi", "१२३४", "", " Việt", "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\n",
    "hi  <|im_end|>  there", "<|begin_of_text|>hi", "hi", "user", "assistant",
]


def texts():
    pools = [strings.CONTRACTIONS, strings.SPACES, strings.NUMBERS, strings.EMOJI, strings.MARKS, strings.SPECIALS, strings.CODE]
    rng = random.Random(5)
    return CASES + [t for pool in pools for t in pool] + [strings.random_text(rng) for _ in range(120)]


# Words that are tokens although no merges lead to them: where Llama 3's rule (ignore_merges) and plain BPE differ.
WHOLE_WORDS = ["brutalist", " months", "assistant", "1234", "hello", " world", " WE", "'VE", " there", "\n\n\n\n", "é", " Việt"]
LLAMA_SPECIALS = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]


def train_llama_bpe():
    """A vocabulary with Llama 3's pre-tokenizer and rules; the ids are ours."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = hf_oracle.pre_tokenizer("llama-bpe")
    trainer = trainers.BpeTrainer(vocab_size=1400, min_frequency=2, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    with open(os.path.join(HERE, "..", "tests", "data", "real_text.txt"), encoding="utf-8") as file:
        prose = file.read()
    tokenizer.train_from_iterator([prose] + texts() * 3, trainer)
    trained = json.loads(tokenizer.to_str())["model"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in trained["merges"]]
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    whole = ["".join(p for p, _ in letters.pre_tokenize_str(w)) for w in WHOLE_WORDS]
    # A merge towards such a word goes, or plain BPE would find it too.
    merges = [m for m in merges if m.replace(" ", "") not in whole]
    tokens = sorted(trained["vocab"], key=trained["vocab"].get)
    tokens += [w for w in whole if w not in trained["vocab"]]
    first_special = len(tokens)
    tokens += LLAMA_SPECIALS
    return {
        "model": "gpt2", "pre": "llama-bpe", "tokens": tokens, "merges": merges,
        "token_types": [1] * first_special + [hf_oracle.CONTROL] * len(LLAMA_SPECIALS),
        "bos_id": first_special, "eos_id": first_special + 1, "unk_id": -1, "add_bos": False, "add_eos": False,
    }


def part_of(spec, chosen):
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    whole = "\n".join("".join(p for p, _ in letters.pre_tokenize_str(t)) for t in chosen)
    plain = "\n".join(chosen)
    kept = {}
    for i, (text, kind) in enumerate(zip(spec["tokens"], spec["token_types"])):
        special = kind in (hf_oracle.CONTROL, hf_oracle.USER_DEFINED)
        if text in plain if special else len(text) == 1 or text in whole:
            kept[i] = text
    for i in (spec["bos_id"], spec["eos_id"]):
        if i >= 0:
            kept[i] = spec["tokens"][i]
    names = set(kept.values())
    merges = [m for m in spec["merges"] if {*m.split(" "), m.replace(" ", "", 1)} <= names]
    types = {str(i): spec["token_types"][i] for i in kept if spec["token_types"][i] != 1}
    part = {k: spec[k] for k in ("model", "pre", "bos_id", "eos_id", "add_bos", "add_eos")}
    part["tokens"] = {"size": len(spec["tokens"]), "tokens": {str(i): t for i, t in kept.items()}, "types": types}
    part["merges"] = merges
    return part


def whole_of(part):
    n = part["tokens"]["size"]
    tokens = [part["tokens"]["tokens"].get(str(i), f"<unused {i}>") for i in range(n)]
    types = [part["tokens"]["types"].get(str(i), 1) for i in range(n)]
    return {**part, "tokens": tokens, "token_types": types}


def main():
    for path in sys.argv[1:]:
        spec = train_llama_bpe() if path == "llama-bpe" else hf_oracle.load_spec(path)
        chosen = list(dict.fromkeys(texts()))
        part = part_of(spec, chosen)
        cases = []
        for parse_special in (False, True):
            full = hf_oracle.build(spec, parse_special)
            full.decoder = decoders.ByteLevel()
            small = hf_oracle.build(whole_of(part), parse_special)
            for text in chosen:
                ids = full.encode(text, add_special_tokens=False).ids
                assert ids == small.encode(text, add_special_tokens=False).ids, text
                if not parse_special or "<|" in text:
                    cases.append({"text": text, "parse_special": parse_special, "ids": ids})
                    decoded = full.decode(ids, skip_special_tokens=False)
                    if decoded != text:  # a byte without a token is left out
                        cases[-1]["decoded"] = decoded
        out = os.path.join(HERE, "..", "tests", "golden", f"tokenizer_{spec['pre']}.json")
        with open(out, "w") as file:
            # One case a line, so that a change shows as lines.
            file.write('{"spec": ' + json.dumps(part, separators=(",", ":"), ensure_ascii=False) + ',\n"cases": [\n')
            file.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]}\n")
        print(spec["pre"], len(cases), "cases", len(part["merges"]), "merges", os.path.getsize(out), "bytes")


if __name__ == "__main__":
    main()
