"""Hugging Face's tokenizers, built from the tokenizer.* keys of a GGUF file: the oracle of the tokenizer's tests.

Needs the PyPI packages gguf and tokenizers. `spec` is a dict with the keys of TokenizerSpec (src/tokenizer/spec.h).
"""

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

CONTROL, USER_DEFINED = 3, 4
LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def load_spec(path):
    fields = GGUFReader(path).fields

    def get(key, default=None):
        field = fields.get("tokenizer.ggml." + key)
        return default if field is None else field.contents()

    return {
        "model": get("model"),
        "pre": get("pre"),
        "tokens": get("tokens"),
        "token_types": get("token_type"),
        "merges": get("merges"),
        "bos_id": get("bos_token_id", -1),
        "eos_id": get("eos_token_id", -1),
        "unk_id": get("unknown_token_id", -1),
        "add_bos": bool(get("add_bos_token", False)),
        "add_eos": bool(get("add_eos_token", False)),
    }


def pre_tokenizer(pre):
    p = pre_tokenizers
    if pre == "gpt-2":
        return p.ByteLevel(add_prefix_space=False, use_regex=True)
    if pre == "smollm":
        return p.Sequence([p.Digits(individual_digits=True), p.ByteLevel(add_prefix_space=False, use_regex=True)])
    pattern = {"llama-bpe": LLAMA, "qwen2": LLAMA.replace(r"\p{N}{1,3}", r"\p{N}")}[pre]
    return p.Sequence(
        [p.Split(Regex(pattern), behavior="isolated"), p.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def build(spec, parse_special=False):
    """A tokenizer that adds nothing; control-looking text is text unless parse_special."""
    vocab = {text: i for i, text in enumerate(spec["tokens"])}
    merges = [tuple(m.split(" ")) for m in spec["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab, merges, ignore_merges=spec["pre"] == "llama-bpe"))
    tokenizer.pre_tokenizer = pre_tokenizer(spec["pre"])
    typed = list(zip(spec["tokens"], spec["token_types"]))
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t, k in typed if k == CONTROL])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t, k in typed if k == USER_DEFINED])
    tokenizer.encode_special_tokens = not parse_special
    return tokenizer
