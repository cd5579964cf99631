#!/usr/bin/env python3
"""Makes golden logits of tiny random models (llama, qwen2, qwen3), for tests of the forward pass.

For each model below it writes into the output folder (default tests/golden/logits):
  <name>.gguf  a complete GGUF file, weights random, tokenizer minimal (gpt2, bytes and a few merges)
  <name>.json  tokens, vocabulary, seed, shape, versions, which backend made the logits, differences
  <name>.f32   raw little-endian float32 logits, [tokens][vocabulary]

The logits come from transformers' LlamaForCausalLM (Qwen2.., Qwen3..) in float32 on the CPU (--backend torch). The float64
forward of tools/reference_forward_numpy.py is run on the *written file* every time; the two must agree to
1e-5 of the logits' range, so a wrong permutation of q and k, a wrong key or a wrong rope cannot become a golden.
--backend numpy takes the logits from it alone, for machines without torch.

A test passes if max |logit - golden| < 1e-4 x (max - min of the golden). That holds for an engine whose kv cache
is float32 and whose activations are not quantised: a float16 cache alone costs 3e-4 to 6e-4 of the range (the
header's float16_kv_over_range says how much for each model, and a test with such a cache may add it).

Needs: numpy, gguf; torch and transformers unless --backend numpy.
"""
import argparse
import dataclasses
import hashlib
import json
import math
import platform
import sys
from pathlib import Path

sys.dont_write_bytecode = True
from reference_forward_numpy import GgufModel, ModelError, forward, gguf, np  # noqa: E402

TOKENS = 24
AGREE = 1e-5  # of the logits' range: float32 against float64


@dataclasses.dataclass(frozen=True)
class Shape:
    name: str
    seed: int
    heads: int
    kv_heads: int
    head_dim: int
    dim: int
    ffn: int
    layers: int
    vocab: int
    tied: bool
    theta: float
    weights: str  # F32, F16, BF16
    llama3_rope: bool = False
    arch: str = "llama"


# Grouped, odd grouped (9 over 3, a width that is no multiple of 32), one kv head a query head, and a head
# dimension that is not dim / heads; for the Qwens a tied and an untied one each. Small enough that all files together
# stay under 5 MB.
SHAPES = [
    Shape("gqa_4_2_f32", 11, 4, 2, 16, 64, 96, 2, 320, False, 10000.0, "F32"),
    Shape("gqa_9_3_f16", 12, 9, 3, 16, 144, 192, 2, 300, True, 10000.0, "F16"),
    Shape("mha_8_8_bf16", 13, 8, 8, 32, 256, 128, 1, 288, False, 500000.0, "BF16"),
    Shape("mqa_4_1_wide_head_rope3", 14, 4, 1, 64, 96, 160, 2, 310, True, 500000.0, "F16", True),
    Shape("qwen2_4_2_f32", 15, 4, 2, 16, 64, 96, 2, 320, False, 1000000.0, "F32", arch="qwen2"),
    Shape("qwen2_7_1_f16", 16, 7, 1, 16, 112, 160, 2, 300, True, 1000000.0, "F16", arch="qwen2"),
    Shape("qwen3_4_2_wide_head_f32", 17, 4, 2, 32, 64, 96, 2, 320, False, 1000000.0, "F32", arch="qwen3"),
    Shape("qwen3_6_3_bf16", 18, 6, 3, 48, 96, 128, 2, 300, True, 1000000.0, "BF16", arch="qwen3"),
]

# rope scaling of Llama 3.1 with a short original context, so that 24 positions already meet all three of its cases
LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64}


def llama3_factors(shape):
    """What rope_freqs.weight holds: divisors of the plain frequencies."""
    r = LLAMA3_ROPE
    factors = []
    for pair in range(shape.head_dim // 2):
        wavelength = 2 * math.pi * shape.theta ** (2 * pair / shape.head_dim)
        turns = r["original_max_position_embeddings"] / wavelength
        if turns > r["high_freq_factor"]:
            factors.append(1.0)
        elif turns < r["low_freq_factor"]:
            factors.append(r["factor"])
        else:
            smooth = (turns - r["low_freq_factor"]) / (r["high_freq_factor"] - r["low_freq_factor"])
            factors.append(1.0 / ((1.0 - smooth) / r["factor"] + smooth))
    return np.array(factors, dtype=np.float32)


def round_weights(values, kind):
    """float32 values that the file's type holds exactly."""
    values = values.astype(np.float32)
    if kind == "F16":
        return values.astype(np.float16).astype(np.float32)
    if kind == "BF16":
        quant = gguf.GGMLQuantizationType.BF16
        return gguf.quants.dequantize(gguf.quants.quantize(values, quant), quant).reshape(values.shape)
    return values


def make_weights(shape):
    """Weights under their names in transformers, in its layout (rope turns halves)."""
    rng = np.random.default_rng(shape.seed)

    def matrix(rows, cols, gain=1.0):
        return round_weights(rng.standard_normal((rows, cols)) * (gain / math.sqrt(cols)), shape.weights)

    def norm(count=shape.dim):
        return (1.0 + 0.2 * rng.standard_normal(count)).astype(np.float32)

    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    w = {"model.embed_tokens.weight": matrix(shape.vocab, shape.dim, 2.0)}
    for i in range(shape.layers):
        p = f"model.layers.{i}."
        w[p + "input_layernorm.weight"] = norm()
        w[p + "self_attn.q_proj.weight"] = matrix(q, shape.dim, 1.5)
        w[p + "self_attn.k_proj.weight"] = matrix(kv, shape.dim, 1.5)
        w[p + "self_attn.v_proj.weight"] = matrix(kv, shape.dim)
        if shape.arch == "qwen2":
            for part, count in (("q", q), ("k", kv), ("v", kv)):
                w[p + f"self_attn.{part}_proj.bias"] = (0.5 * rng.standard_normal(count)).astype(np.float32)
        if shape.arch == "qwen3":
            w[p + "self_attn.q_norm.weight"] = norm(shape.head_dim)
            w[p + "self_attn.k_norm.weight"] = norm(shape.head_dim)
        w[p + "self_attn.o_proj.weight"] = matrix(shape.dim, q)
        w[p + "post_attention_layernorm.weight"] = norm()
        w[p + "mlp.gate_proj.weight"] = matrix(shape.ffn, shape.dim, 1.5)
        w[p + "mlp.up_proj.weight"] = matrix(shape.ffn, shape.dim)
        w[p + "mlp.down_proj.weight"] = matrix(shape.dim, shape.ffn)
    w["model.norm.weight"] = norm()
    if not shape.tied:
        w["lm_head.weight"] = matrix(shape.vocab, shape.dim, 2.0)
    return w


def adjacent_pairs(weight, heads):
    """Rows of q or k reordered so that rope, which turns (i, i + half) in transformers, turns (2i, 2i + 1)."""
    rows, cols = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, cols).swapaxes(1, 2).reshape(rows, cols)


def byte_letters():
    """The printable letter that stands for each byte in a gpt2 vocabulary, in the order of gpt2's own list."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    rest = [b for b in range(256) if b not in plain]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(len(rest))]


def add_tokenizer(writer, vocab):
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    merges = ["t h", "i n", "e r", "Ġ t", "Ġt h", "Ġth e"]
    tokens = specials + byte_letters() + [m.replace(" ", "") for m in merges]
    if len(tokens) > vocab:
        raise ValueError(f"vocabulary {vocab} is smaller than the minimal tokenizer ({len(tokens)})")
    types = [gguf.TokenType.CONTROL] * len(specials) + [gguf.TokenType.NORMAL] * (len(tokens) - len(specials))
    for i in range(vocab - len(tokens)):
        tokens.append(f"<|filler_{i}|>")
        types.append(gguf.TokenType.UNUSED)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)


GGUF_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}


def gguf_tensors(shape, weights):
    yield "token_embd.weight", weights["model.embed_tokens.weight"]
    for i in range(shape.layers):
        for theirs, ours in GGUF_NAMES.items():
            for kind in ("weight", "bias"):
                w = weights.get(f"model.layers.{i}.{theirs}.{kind}")
                if w is None:
                    continue
                if shape.arch == "llama" and ours in ("attn_q", "attn_k"):
                    w = adjacent_pairs(w, shape.heads if ours == "attn_q" else shape.kv_heads)
                yield f"blk.{i}.{ours}.{kind}", w
    yield "output_norm.weight", weights["model.norm.weight"]
    if not shape.tied:
        yield "output.weight", weights["lm_head.weight"]
    if shape.llama3_rope:
        yield "rope_freqs.weight", llama3_factors(shape)


def write_gguf(path, shape, weights):
    writer = gguf.GGUFWriter(str(path), shape.arch)
    writer.add_name(shape.name)
    writer.add_file_type({"F32": 0, "F16": 1, "BF16": 32}[shape.weights])
    writer.add_context_length(256)
    writer.add_embedding_length(shape.dim)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.theta)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(shape.vocab)
    add_tokenizer(writer, shape.vocab)
    for name, values in gguf_tensors(shape, weights):
        kind = gguf.GGMLQuantizationType[shape.weights if values.ndim == 2 else "F32"]
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def torch_logits(shape, weights, ids):
    import torch
    import transformers
    torch.set_num_threads(1)
    rope = dict(LLAMA3_ROPE) if shape.llama3_rope else {"rope_type": "default"}
    rope["rope_theta"] = shape.theta
    family = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[shape.arch]
    biases = {"attention_bias": False, "mlp_bias": False} if shape.arch == "llama" else {}
    config = getattr(transformers, family + "Config")(
        vocab_size=shape.vocab, hidden_size=shape.dim, intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim, rms_norm_eps=1e-5, rope_theta=shape.theta, rope_parameters=rope,
        rope_scaling=rope if shape.llama3_rope else None, max_position_embeddings=256,
        tie_word_embeddings=shape.tied, **biases)
    config._attn_implementation = "eager"
    model = getattr(transformers, family + "ForCausalLM")(config).to(torch.float32).eval()
    state = {k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in weights.items()}
    missing = model.load_state_dict(state, strict=False)
    left = [k for k in missing.missing_keys if not (shape.tied and k == "lm_head.weight")]
    if left or missing.unexpected_keys:
        raise RuntimeError(f"{shape.name}: weights do not fit transformers' model: {left} {missing.unexpected_keys}")
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy().astype(np.float32)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def versions(backend):
    found = {"python": platform.python_version(), "numpy": np.__version__}
    import importlib.metadata as meta
    found["gguf"] = meta.version("gguf")
    if backend == "torch":
        found.update(torch=meta.version("torch"), transformers=meta.version("transformers"))
    return found


def make(shape, folder, backend):
    weights = make_weights(shape)
    rng = np.random.default_rng(shape.seed + 1000)
    ids = [int(i) for i in rng.integers(3, shape.vocab, TOKENS)]
    path = folder / f"{shape.name}.gguf"
    write_gguf(path, shape, weights)
    exact = forward(GgufModel(path), ids)
    logits = torch_logits(shape, weights, ids) if backend == "torch" else exact.astype(np.float32)
    spread = float(exact.max() - exact.min())
    half_kv = float(np.abs(forward(GgufModel(path, kv_dtype=np.float16), ids) - exact).max())
    difference = float(np.abs(logits - exact).max())
    if difference > AGREE * spread:
        raise RuntimeError(f"{shape.name}: {backend} and the float64 forward differ by {difference:.3g}, "
                           f"range {spread:.3g}: the golden is not trustworthy, nothing kept")
    raw = folder / f"{shape.name}.f32"
    raw.write_bytes(logits.astype("<f4").tobytes())
    header = {
        "name": shape.name, "backend": backend, "seed": shape.seed, "tokens": ids, "vocab": shape.vocab,
        "shape": dataclasses.asdict(shape), "logits_min": float(exact.min()), "logits_max": float(exact.max()),
        "max_abs_difference_to_float64": difference, "difference_over_range": difference / spread,
        "float16_kv_over_range": half_kv / spread,
        "argmax_equal_to_float64": int((logits.argmax(1) == exact.argmax(1)).sum()),
        "sha256": {"gguf": digest(path), "f32": digest(raw)}, "versions": versions(backend),
    }
    (folder / f"{shape.name}.json").write_text(json.dumps(header, indent=1) + "\n")
    size = path.stat().st_size + raw.stat().st_size
    print(f"{shape.name:26} {shape.weights:5} range {spread:6.2f}  {backend} - float64: {difference:.2e} "
          f"({difference / spread:.1e} of range)  {size / 1024:.0f} KiB")
    return size


def check(shape, folder):
    """Recomputes the float64 logits of a committed file and compares them with the committed golden."""
    header = json.loads((folder / f"{shape.name}.json").read_text())
    for kind in ("gguf", "f32"):
        if digest(folder / f"{shape.name}.{kind}") != header["sha256"][kind]:
            raise RuntimeError(f"{shape.name}.{kind}: sha256 differs from the header")
    golden = np.fromfile(folder / f"{shape.name}.f32", dtype="<f4").reshape(-1, header["vocab"])
    exact = forward(GgufModel(folder / f"{shape.name}.gguf"), header["tokens"])
    difference = float(np.abs(golden - exact).max()) / float(exact.max() - exact.min())
    print(f"{shape.name:26} golden - float64: {difference:.1e} of range")
    if difference > AGREE:
        raise RuntimeError(f"{shape.name}: golden is off by {difference:.1e} of its range")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = Path(__file__).resolve().parent.parent
    parser.add_argument("--out", type=Path, default=root / "tests" / "golden" / "logits", metavar="DIR")
    parser.add_argument("--backend", choices=["torch", "numpy"], default="torch")
    parser.add_argument("--only", metavar="NAME", help="one model: " + ", ".join(s.name for s in SHAPES))
    parser.add_argument("--check", action="store_true", help="write nothing; compare the goldens there with float64")
    args = parser.parse_args()
    shapes = [s for s in SHAPES if args.only in (None, s.name)]
    if not shapes:
        parser.error(f"no model named {args.only}")
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        total = sum(check(s, args.out) if args.check else make(s, args.out, args.backend) for s in shapes)
    except ImportError as error:
        sys.exit(f"error: {error}; install torch and transformers, or use --backend numpy")
    except (ModelError, RuntimeError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    if not args.check:
        print(f"total {total / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
