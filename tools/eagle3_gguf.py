"""GGUF files for tools/train_eagle3.py: keys, dequantised tensors, tokenizer and chat template of a target model.

Reads llama, qwen2 and qwen3 files. Weights leave this module as float32 in the layout of the published models: rope turns
(i, i + half), so the q and k rows of llama files, which are stored for adjacent pairs, are put back in that order.
Types F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 are read here; any other (Q4_K, Q6_K) through the `gguf` package.

Needs: numpy, torch; tokenizers and jinja2 for text.
"""
import mmap
import struct
from dataclasses import dataclass, field

import numpy as np
import torch

ARCHITECTURES = ("llama", "qwen2", "qwen3")
# id -> (name, values a block, bytes a block)
TYPES = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
         7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
         12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 30: ("BF16", 1, 2)}
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# What the tokenizers of these families split text by, before merging bytes.
LLAMA3_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
                r"|\s+(?!\S)|\s+")
SPLITS = {"gpt-2": None, "smollm": "digits", "llama-bpe": LLAMA3_SPLIT, "qwen2": LLAMA3_SPLIT.replace("{1,3}", "")}
END_NAMES = ("<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>", "<|eom_id|>", "</s>")


class BadModel(Exception):
    """The file is not one that can be trained for; the message names file, field and value."""


@dataclass
class Config:
    arch: str
    layers: int
    dim: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    eps: float
    rope_theta: float
    context: int
    end_ids: list = field(default_factory=list)


class Gguf:
    """The keys and tensors of a file. Tensors are dequantised when asked for."""

    def __init__(self, path):
        self.path = str(path)
        try:
            with open(path, "rb") as f:
                self.data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise BadModel(f"{path}: cannot be read: {error}") from error
        try:
            self._parse()
        except (struct.error, IndexError, UnicodeDecodeError, KeyError, OverflowError) as error:
            raise BadModel(f"{path}: not a whole GGUF file: {type(error).__name__} {error}") from error

    def _take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values[0]

    def _string(self):
        size = self._take("Q")
        if self.at + size > len(self.data):
            raise IndexError("a string ends behind the file")
        text = self.data[self.at:self.at + size].decode("utf-8")
        self.at += size
        return text

    def _value(self, kind):
        if kind == 8:
            return self._string()
        if kind != 9:
            return self._take(SCALARS[kind])
        item, count = self._take("I"), self._take("Q")
        if count > len(self.data):
            raise IndexError(f"an array of {count} items")
        if item in (8, 9):
            return [self._value(item) for _ in range(count)]
        form = "<" + str(count) + SCALARS[item]
        values = list(struct.unpack_from(form, self.data, self.at))
        self.at += struct.calcsize(form)
        return values

    def _parse(self):
        self.at = 0
        if self.data[:4] != b"GGUF":
            raise BadModel(f"{self.path}: not a GGUF file")
        self.at = 4
        version = self._take("I")
        if version not in (2, 3):
            raise BadModel(f"{self.path}: GGUF version {version} is not supported (2 and 3 are)")
        num_tensors, num_keys = self._take("Q"), self._take("Q")
        self.keys = {}
        for _ in range(num_keys):
            name = self._string()
            self.keys[name] = self._value(self._take("I"))
        self.tensors = {}
        for _ in range(num_tensors):
            name = self._string()
            shape = [self._take("Q") for _ in range(self._take("I"))]
            self.tensors[name] = (list(reversed(shape)), self._take("I"), self._take("Q"))
        align = self.keys.get("general.alignment", 32)
        self.start = (self.at + align - 1) // align * align

    def key(self, name, default=None):
        if name not in self.keys:
            if default is None:
                raise BadModel(f"{self.path}: key {name} is missing")
            return default
        return self.keys[name]

    def tensor(self, name):
        """float32, [outputs][inputs]."""
        if name not in self.tensors:
            raise BadModel(f"{self.path}: tensor {name} is missing")
        shape, kind, offset = self.tensors[name]
        if kind not in TYPES:
            raise BadModel(f"{self.path}: tensor {name} has type {kind}, which is not supported")
        type_name, block, size = TYPES[kind]
        count = int(np.prod(shape))
        num_bytes = count // block * size
        if count % block or self.start + offset + num_bytes > len(self.data):
            raise BadModel(f"{self.path}: tensor {name} of shape {shape} does not fit the file")
        raw = np.frombuffer(self.data, np.uint8, num_bytes, self.start + offset)
        return torch.from_numpy(dequantise(raw, type_name, kind).reshape(shape))


def dequantise(raw, name, kind):
    """The float32 values of `raw`; a block's bytes are as ggml writes them."""
    if name == "F32":
        return raw.view("<f4").astype(np.float32)
    if name == "F16":
        return raw.view("<f2").astype(np.float32)
    if name == "BF16":
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    if name not in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"):
        try:
            import gguf
        except ImportError as error:
            raise BadModel(f"tensors of type {name} are read by the gguf package, which is not installed") from error
        return gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(kind)).astype(np.float32)
    blocks = raw.reshape(-1, TYPES[kind][2])
    scale = blocks[:, 0:2].copy().view("<f2").astype(np.float32)
    if name == "Q8_0":
        return scale * blocks[:, 2:].view(np.int8).astype(np.float32)
    at, low = 2, 0
    if name.endswith("_1"):
        low, at = blocks[:, 2:4].copy().view("<f2").astype(np.float32), 4
    quants = np.concatenate([blocks[:, -16:] & 15, blocks[:, -16:] >> 4], axis=1).astype(np.float32)
    if name.startswith("Q5"):
        high = np.unpackbits(blocks[:, at:at + 4], axis=1, bitorder="little")
        quants += 16.0 * high
    if name.endswith("_0"):
        quants -= 8.0 if name == "Q4_0" else 16.0
    return scale * quants + low


def read_config(file):
    arch = file.key("general.architecture")
    if arch not in ARCHITECTURES:
        raise BadModel(f"{file.path}: general.architecture is {arch!r} (supported: {', '.join(ARCHITECTURES)})")
    scaling = file.key(f"{arch}.rope.scaling.type", "none")
    if scaling not in ("none", "") or "rope_freqs.weight" in file.tensors:
        raise BadModel(f"{file.path}: rope scaling is not supported by the trainer")
    dim, heads = file.key(f"{arch}.embedding_length"), file.key(f"{arch}.attention.head_count")
    config = Config(arch=arch, layers=file.key(f"{arch}.block_count"), dim=dim, heads=heads,
                    ffn=file.key(f"{arch}.feed_forward_length"),
                    kv_heads=file.key(f"{arch}.attention.head_count_kv", heads),
                    head_dim=file.key(f"{arch}.attention.key_length", dim // heads),
                    vocab=file.tensors.get("token_embd.weight", ([0],))[0][0],
                    eps=file.key(f"{arch}.attention.layer_norm_rms_epsilon"),
                    rope_theta=file.key(f"{arch}.rope.freq_base", 10000.0), context=file.key(f"{arch}.context_length"))
    if config.layers < 5:
        raise BadModel(f"{file.path}: {arch}.block_count is {config.layers}; the taps 1, N/2-1, N-4 need 5 layers")
    if file.key(f"{arch}.rope.dimension_count", config.head_dim) != config.head_dim:
        raise BadModel(f"{file.path}: {arch}.rope.dimension_count differs from the head's size")
    config.end_ids = end_ids(file)
    return config


def end_ids(file):
    """The ids that end an answer, by the rule of the engine: the file's, and control tokens of well-known names."""
    ids = {file.key("tokenizer.ggml.eos_token_id"), file.key("tokenizer.ggml.eot_token_id", -1)} - {-1}
    types = file.key("tokenizer.ggml.token_type", [])
    for i, text in enumerate(file.key("tokenizer.ggml.tokens")):
        if text in END_NAMES and i < len(types) and types[i] == 3:
            ids.add(i)
    return sorted(ids)


def rope_halves(weight, heads):
    """Rows of adjacent pairs (2i, 2i + 1) become rows (i, i + half), head by head."""
    rows = weight.shape[0] // heads
    return weight.view(heads, rows // 2, 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def load_weights(file, config):
    """Name -> float32 tensor, with q and k as published models have them."""
    weights = {}
    for name in file.tensors:
        tensor = file.tensor(name)
        if config.arch == "llama" and (".attn_q." in name or ".attn_k." in name):
            tensor = rope_halves(tensor, config.heads if ".attn_q." in name else config.kv_heads)
        weights[name] = tensor
    weights.setdefault("output.weight", weights["token_embd.weight"])
    return weights


class Text:
    """Text to ids and back, and the two constant parts of a chat: up to the user's turn, and from there to the answer."""

    def __init__(self, file):
        try:
            import jinja2
            from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
        except ImportError as error:
            raise BadModel(f"{error.name} is not installed; text needs the packages tokenizers and jinja2") from error
        kind, pre = file.key("tokenizer.ggml.model"), file.key("tokenizer.ggml.pre", "")
        if kind != "gpt2" or pre not in SPLITS:
            raise BadModel(f"{file.path}: tokenizer.ggml.model {kind!r} with tokenizer.ggml.pre {pre!r} is not supported")
        tokens = file.key("tokenizer.ggml.tokens")
        merges = [tuple(m.split(" ", 1)) for m in file.key("tokenizer.ggml.merges")]
        self.coder = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges,
                                          ignore_merges=pre == "llama-bpe"))
        split = SPLITS[pre]
        if split is None:
            steps = []
        elif split == "digits":
            steps = [pre_tokenizers.Digits(individual_digits=True)]
        else:
            steps = [pre_tokenizers.Split(Regex(split), "isolated")]
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split in (None, "digits")))
        self.coder.pre_tokenizer = pre_tokenizers.Sequence(steps)
        self.coder.decoder = decoders.ByteLevel()
        types = file.key("tokenizer.ggml.token_type", [])
        self.coder.add_special_tokens([AddedToken(t, normalized=False) for t, kind in zip(tokens, types) if kind == 3])
        source = file.key("tokenizer.chat_template", "")
        if not source:
            raise BadModel(f"{file.path}: tokenizer.chat_template is missing; the user turns are written through it")
        special = {name: tokens[file.keys[f"tokenizer.ggml.{name}_id"]] for name in ("bos_token", "eos_token")
                   if f"tokenizer.ggml.{name}_id" in file.keys}
        self.template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(source)
        self.special = special
        mark = "USERTURNGOESHERE"
        parts = self.render([{"role": "user", "content": mark}]).split(mark)
        if len(parts) != 2:
            raise BadModel(f"{file.path}: tokenizer.chat_template does not hold the user's turn exactly once")
        self.prefix, self.between = self.encode(parts[0]), self.encode(parts[1])

    def render(self, messages):
        return self.template.render(messages=messages, add_generation_prompt=True, **self.special)

    def encode(self, text):
        return self.coder.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.coder.decode(list(ids), skip_special_tokens=False)
