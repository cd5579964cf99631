#!/usr/bin/env python3
"""Makes golden values of quantised blocks: tests/golden/quants/<TYPE>.bin holds rows as a GGUF file would, <TYPE>.f32 the
same rows as the `gguf` package reads them (little-endian float32), header.json the shape, seed and versions.

Two rows a type. Row 0 is quantised from normal numbers where the package can do that, row 1 holds random bits with finite
f16 values: negative, subnormal and zero ones, and any small integers. Products of an f16 and a block's integers are exact
in float32, so an engine must give the same bits whether it adds the minimum by a fused multiply-add or not.

Needs: numpy, gguf.  --check writes nothing and compares what is there.
"""
import argparse
import hashlib
import json
import sys
from pathlib import Path

try:
    import gguf
    import numpy as np
except ImportError as error:
    sys.exit(f"error: {error}; install numpy and gguf (pip install numpy gguf)")

SEED, COLS = 5, 1024
# Where a block's f16 values stand, in bytes.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208]}


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    folder = Path(__file__).resolve().parent.parent / "tests" / "golden" / "quants"
    rng = np.random.default_rng(SEED)
    files = {}
    for kind in HALVES:
        files[kind + ".bin"], files[kind + ".f32"] = rows_of(kind, rng)
    if args.check:
        different = [name for name, raw in files.items() if (folder / name).read_bytes() != raw]
        sys.exit(f"error: different: {', '.join(different)}" if different else 0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, raw in files.items():
        (folder / name).write_bytes(raw)
    import importlib.metadata as meta
    header = {"rows": 2, "cols": COLS, "seed": SEED, "types": list(HALVES),
              "sha256": {name: hashlib.sha256(raw).hexdigest() for name, raw in files.items()},
              "versions": {"gguf": meta.version("gguf"), "numpy": np.__version__}}
    (folder / "header.json").write_text(json.dumps(header, indent=1) + "\n")
    print(f"{len(files)} files, {sum(map(len, files.values()))} bytes")


if __name__ == "__main__":
    main()
