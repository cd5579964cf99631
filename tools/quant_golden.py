#!/usr/bin/env python3
"""Makes golden values of quantised weights, in tests/golden/quants.

Blocks: <TYPE>.bin holds rows as a GGUF file would, <TYPE>.f32 the same rows as the `gguf` package reads them
(little-endian float32), blocks.json the shape, seed and versions. Two rows a type. Row 0 is quantised from normal numbers where the package can do that, row 1 holds random bits with finite
f16 values: negative, subnormal and zero ones, and any small integers. Products of an f16 and a block's integers are exact
in float32, so an engine must give the same bits whether it adds the minimum by a fused multiply-add or not.

Encoded: encode.f32 holds rows of floats, encode.<TYPE>.bin the blocks that the package's quantiser makes of them, which an
engine that quantises at load must equal byte by byte. Row 0 is of normal numbers; row 1 is exact in bfloat16 and row 2 in
float16, from subnormal to large; row 3 has blocks of zeros, of one value, of ties between two largest magnitudes, of values
half way between two steps, of one outlier.

Models: <name>.logits.f32 holds the logits of a tiny model that tools/make_tiny_model.py writes, by the float64 forward of
tools/reference_forward_numpy.py on the written file; <name>.json the model's fields, the tokens, and how far an engine
with int8 activations and an f16 cache may be off: the same forward with just these two errors, over the logits' range.

Needs: numpy, gguf.  --check writes nothing and compares what is there.
"""
import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
import gguf_writer  # noqa: E402
import make_tiny_model  # noqa: E402

try:
    import gguf
    import numpy as np
except ImportError as error:
    sys.exit(f"error: {error}; install numpy and gguf (pip install numpy gguf)")
from reference_forward_numpy import GgufModel, forward  # noqa: E402

SEED, COLS = 5, 1024
# Where a block's f16 values stand, in bytes.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208]}


SHAPE = dict(layers=2, hidden=256, ffn=512, heads=8, kv_heads=2, head_dim=32, vocab=320, tied=False)
MODELS = {kind.lower(): dict(SHAPE, seed=seed, dtype=kind)
          for seed, kind in enumerate(["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q6_K", "Q4_K_M", "Q5_K_M"], 20)}
MODELS |= {f"{arch}_q8_0": dict(SHAPE, seed=seed, dtype="Q8_0", arch=arch) for seed, arch in ((30, "qwen2"), (31, "qwen3"))}
TOKENS = 12


def random_row(kind, rng):
    elems, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    blocks = rng.integers(0, 256, (COLS // elems, size), dtype=np.uint8)
    for offset in HALVES[kind]:
        values = (rng.standard_normal(len(blocks)) * 10.0 ** rng.integers(-7, 3, len(blocks))).astype(np.float16)
        values[rng.integers(0, len(blocks))] = 0
        blocks[:, offset:offset + 2] = values.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(-1)


def rows_of(kind, rng):
    quant = gguf.GGMLQuantizationType[kind]
    normal = rng.standard_normal((1, COLS)).astype(np.float32)
    try:
        first = gguf.quants.quantize(normal, quant).reshape(-1)
    except NotImplementedError:
        first = random_row(kind, rng)
    raw = np.stack([first, random_row(kind, rng)])
    values = gguf.quants.dequantize(raw, quant).astype("<f4")
    if values.shape != (2, COLS) or not np.isfinite(values).all():
        sys.exit(f"error: {kind}: rows of {values.shape} with values that are not finite")
    return raw.tobytes(), values.tobytes()


ENCODED = ["Q8_0", "Q4_0", "Q4_1"]


def rows_to_encode(rng):
    normal = rng.standard_normal(COLS).astype(np.float32)
    bf16 = (rng.standard_normal(COLS) * 10.0 ** rng.integers(-3, 3, COLS)).astype(np.float32)
    bf16 = (bf16.view(np.uint32) & 0xffff0000).view(np.float32)
    f16 = (rng.standard_normal(COLS) * 10.0 ** rng.integers(-7, 3, COLS // 32).repeat(32)).astype(np.float16)
    special = rng.standard_normal((COLS // 32, 32)).astype(np.float32)
    special[0] = 0
    special[1], special[2] = 0.75, -0.75
    special[3, 5], special[3, 9] = 4, -4  # the first of them gives Q4_0 its sign
    special[4, 5], special[4, 9] = -4, 4
    special[5] = np.arange(32) - 0.5
    special[5, 0] = 127
    special[6] = (np.arange(32) - 16) / 2
    special[6, 0], special[6, 1] = -8, 7
    special[7, 3] = 1000
    special[8] = np.abs(special[8])
    special[9] = -np.abs(special[9])
    return np.stack([normal, bf16, f16.astype(np.float32), special.reshape(-1)])


def encoded(rng):
    rows = rows_to_encode(rng)
    files = {"encode.f32": rows.astype("<f4").tobytes()}
    for kind in ENCODED:
        files[f"encode.{kind}.bin"] = gguf.quants.quantize(rows, gguf.GGMLQuantizationType[kind]).tobytes()
    return files


def logits_of(name, fields, rng):
    """{file name: bytes} of one model."""
    ids = [int(i) for i in rng.integers(3, fields["vocab"], TOKENS)]
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        file.write(gguf_writer.write(*make_tiny_model.build(make_tiny_model.Tiny(**fields))))
        file.flush()
        exact = forward(GgufModel(file.name), ids)
        rounded = forward(GgufModel(file.name, np.float16, int8_activations=True), ids)
    spread = float(exact.max() - exact.min())
    off = float(np.abs(rounded - exact).max()) / spread
    print(f"{name}: range {spread:.2f}, int8 activations and an f16 cache are off by {off:.1e} of it")
    header = {"name": name, "fields": ", ".join(f"{k}={v!r}" for k, v in fields.items()), "tokens": ids,
              "vocab": fields["vocab"], "int8_over_range": float(f"{off:.3g}")}
    return {f"{name}.json": (json.dumps(header, indent=1) + "\n").encode(),
            f"{name}.logits.f32": exact.astype("<f4").tobytes()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    folder = Path(__file__).resolve().parent.parent / "tests" / "golden" / "quants"
    rng = np.random.default_rng(SEED)
    files = {}
    for kind in HALVES:
        files[kind + ".bin"], files[kind + ".f32"] = rows_of(kind, rng)
    files.update(encoded(np.random.default_rng(SEED + 1)))
    blocks = list(files)
    for name, fields in MODELS.items():
        files.update(logits_of(name, fields, np.random.default_rng(fields["seed"])))
    if args.check:
        # float64 sums differ in their last bits between machines; the blocks are exact.
        def same(name, raw):
            stored = (folder / name).read_bytes()
            if name.endswith(".logits.f32"):
                return np.allclose(np.frombuffer(stored, "<f4"), np.frombuffer(raw, "<f4"), rtol=0, atol=1e-4)
            return stored == raw
        different = [name for name, raw in files.items() if not same(name, raw)]
        sys.exit(f"error: different: {', '.join(different)}" if different else 0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, raw in files.items():
        (folder / name).write_bytes(raw)
    import importlib.metadata as meta
    header = {"rows": 2, "cols": COLS, "seed": SEED, "types": list(HALVES),
              "sha256": {name: hashlib.sha256(files[name]).hexdigest() for name in blocks},
              "versions": {"gguf": meta.version("gguf"), "numpy": np.__version__}}
    (folder / "blocks.json").write_text(json.dumps(header, indent=1) + "\n")
    print(f"{len(files)} files, {sum(map(len, files.values()))} bytes")


if __name__ == "__main__":
    main()
