#!/usr/bin/env python3
"""Writes tests/data/gguf: small GGUF files that are malformed, or odd but legal, and manifest.json with the verdict that
the loader must give. Standard library only; running it twice gives the same bytes.

An entry of the manifest is {file, stage, code, contains}: the stage that must refuse the file (open, config, tensors;
empty: none), the status code, and words of the message. Kinds of fault: server.md 5.1's public advisories and issues,
rebuilt here from their descriptions.
"""

import corpus_writer
import dataclasses
import math
import os
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gguf_writer as w  # noqa: E402
import make_tiny_model  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "tests", "data", "gguf")

ENTRIES = []
FILES = {}


def add(name, raw, stage, code="ok", contains=""):
    FILES[name + ".gguf"] = raw
    ENTRIES.append({"file": name + ".gguf", "stage": stage, "code": code, "contains": contains})


ARCH = w.kv("general.architecture", w.STRING, "llama")
CORRUPT, UNSUPPORTED, MISSING = "corrupt_file", "unsupported", "not_found"
U64_MAX = 2**64 - 1


def header():
    add("header_empty_file", b"", "open", CORRUPT, "not a GGUF file")
    add("header_three_bytes", b"GGU", "open", CORRUPT, "not a GGUF file")
    add("header_bad_magic", w.assemble([], [], magic=b"GGML"), "open", CORRUPT, "not a GGUF file")
    add("header_only_magic", b"GGUF", "open", CORRUPT, "the version")
    add("header_cut", w.assemble([], [])[:20], "open", CORRUPT, "the header")
    add("header_version_0", w.assemble([], [], version=0), "open", UNSUPPORTED, "GGUF version 0")
    add("header_version_1", w.assemble([], [], version=1), "open", UNSUPPORTED, "GGUF version 1")
    add("header_version_4", w.assemble([], [], version=4), "open", UNSUPPORTED, "GGUF version 4")
    add("header_version_2_ok", w.assemble([ARCH], [], version=2), "config", MISSING, "key llama.block_count: missing")
    add("header_big_endian", b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "open", UNSUPPORTED, "big-endian")
    add("header_nothing_ok", w.assemble([], []), "config", MISSING, "key general.architecture: missing")
    add("header_n_kv_max", w.assemble([], [], num_kv=U64_MAX), "open", CORRUPT, "18446744073709551615 metadata keys")
    add("header_n_kv_one_too_many", w.assemble([ARCH], [], num_kv=2), "open", CORRUPT, "metadata key")
    add("header_n_tensors_max", w.assemble([], [], num_tensors=U64_MAX), "open", CORRUPT, "18446744073709551615 tensors")
    add("C1_n_tensors_2p60", w.assemble([], [], num_tensors=2**60), "open", CORRUPT, "1152921504606846976 tensors")


def keys():
    def one(name, raw, contains, stage="open", code=CORRUPT, pad=64):
        add(name, w.assemble([raw], [], b"\0" * pad), stage, code, contains)

    add("C1_empty_key", w.assemble([struct.pack("<QIB", 0, w.U8, 0)], []), "open", CORRUPT, "is empty")
    add("C1_key_len_2p48", w.assemble([struct.pack("<Q", 2**48 - 1)], [], num_kv=1), "open", CORRUPT,
        "281474976710655 bytes long")
    add("C1_key_len_max", w.assemble([struct.pack("<Q", U64_MAX) + b"general.architecture"], [], num_kv=1), "open", CORRUPT,
        "18446744073709551615 bytes long")
    one("key_len_past_end", struct.pack("<Q", 5000) + b"general.name", "metadata key 0 of 5000 bytes")
    one("key_len_65536", struct.pack("<Q", 65536) + b"general.name", "65536 bytes long; the format allows 65535")
    one("key_value_type_13", w.text("a.b") + struct.pack("<I", 13), "key a.b: value type 13")
    one("key_value_type_max", w.text("a.b") + struct.pack("<I", 2**32 - 1), "key a.b: value type 4294967295")
    add("key_type_cut", w.assemble([w.text("general.name") + b"\x08\0"], []), "open", CORRUPT, "key general.name: its type")
    add("key_value_cut", w.assemble([w.text("general.size") + struct.pack("<IB", w.F64, 1)], []), "open", CORRUPT,
        "key general.size: its value")
    add("key_string_len_cut", w.assemble([w.text("general.name") + struct.pack("<IH", w.STRING, 7)], []), "open", CORRUPT,
        "key general.name: its text")
    one("key_string_len_1gib", w.text("general.name") + struct.pack("<IQ", w.STRING, 2**30), "its text of 1073741824 bytes")
    one("key_string_len_max", w.text("general.name") + struct.pack("<IQ", w.STRING, U64_MAX),
        "its text of 18446744073709551615 bytes")
    one("key_bool_2", w.text("a.flag") + struct.pack("<IB", w.BOOL, 2), "bool at byte")
    one("key_control_characters", w.text(b"a\n\x1b[31m\xff") + struct.pack("<I", 99), "key a\\x0a\\x1b[31m\\xff: value type 99")
    add("key_duplicate", w.assemble([ARCH, w.kv("a", w.U8, 1), ARCH], []), "open", CORRUPT,
        "key general.architecture: appears twice")
    one("C1_array_len_2p63", w.text("a") + struct.pack("<IIQ", w.ARRAY, w.STRING, 2**63), "9223372036854775808 elements", pad=0)
    one("array_len_u8_past_end", w.text("a") + struct.pack("<IIQ", w.ARRAY, w.U8, 1000), "claims 1000 elements; ")
    one("array_len_f64_wraps", w.text("a") + struct.pack("<IIQ", w.ARRAY, w.F64, 2**61), "elements")
    one("array_type_13", w.text("a") + struct.pack("<IIQ", w.ARRAY, 13, 1), "array element type 13")
    add("array_cut", w.assemble([w.text("a.long.key") + struct.pack("<IIB", w.ARRAY, w.U8, 1)], []), "open", CORRUPT, "its array")
    one("array_string_past_end", w.text("a") + struct.pack("<IIQQ", w.ARRAY, w.STRING, 2, 0) + struct.pack("<Q", 999),
        "key a: string 1")
    inner = (w.U8, [1, 2])
    nested = (w.ARRAY, [inner, (w.STRING, ["x", ""]), (w.ARRAY, [])])
    add("array_nested_ok", w.assemble([w.kv("a", w.ARRAY, nested), w.kv("b", w.ARRAY, (w.U32, []))], []), "config", MISSING,
        "general.architecture")
    deep = (w.U8, [])
    for _ in range(12):
        deep = (w.ARRAY, [deep])
    one("array_nested_12_deep", w.kv("a", w.ARRAY, deep), "nested deeper than 8")
    bomb = struct.pack("<II", w.ARRAY, w.ARRAY) + struct.pack("<Q", 40) + struct.pack("<IQ", w.ARRAY, 30) * 40
    add("array_nested_bomb", w.assemble([w.text("a") + bomb], []), "open", CORRUPT, "nested deeper than 8")
    every = [(w.U8, 255), (w.I8, -1), (w.U16, 65535), (w.I16, -1), (w.U32, 2**32 - 1), (w.I32, -1), (w.F32, 1.5), (w.BOOL, 1),
             (w.STRING, "s"), (w.U64, U64_MAX), (w.I64, -1), (w.F64, -2.5)]
    all_kinds = [w.kv("k%d" % k, k, x) for k, x in every] + [w.kv("a%d" % k, w.ARRAY, (k, [x])) for k, x in every]
    add("all_value_types_ok", w.assemble(all_kinds, []), "config", MISSING, "general.architecture")
    add("key_65535_bytes_escaped_ok", w.assemble([w.kv("k" * 300, w.U8, 1)], []), "config", MISSING, "general.architecture")
    add("architecture_not_string", w.assemble([w.kv("general.architecture", w.U32, 1)], []), "config", CORRUPT,
        "key general.architecture: is u32, a string expected")


def alignment():
    def with_alignment(name, raw, contains, code=CORRUPT, stage="open"):
        add(name, w.assemble([raw], []), stage, code, contains)

    key = "general.alignment"
    with_alignment("C1_alignment_i32", w.kv(key, w.I32, 32), "key general.alignment: value type 5, u32 expected")
    with_alignment("alignment_0", w.kv(key, w.U32, 0), "key general.alignment: 0 is not a power of two")
    with_alignment("alignment_13", w.kv(key, w.U32, 13), "key general.alignment: 13")
    with_alignment("alignment_2p30", w.kv(key, w.U32, 2**30), "key general.alignment: 1073741824")
    with_alignment("alignment_string", w.kv(key, w.STRING, "32"), "u32 expected")
    one = w.encode([1.0] * 4, "F32")
    add("alignment_64_ok", w.write([w.kv(key, w.U32, 64)], [("t", [4], "F32", one), ("u", [4], "F32", one)], 64), "config",
        MISSING, "general.architecture")
    data_odd = w.assemble([w.kv(key, w.U32, 1)], [w.info("t", [4], 0, 0)], one, alignment=1)
    add("alignment_1_odd_address", data_odd, "open", UNSUPPORTED, "not aligned to the 4 bytes")
    # 24 + 8+17+4+4 + 8+n+4+8+4+8 bytes before the data: a name of 3 letters makes it a multiple of 4
    data_even = w.assemble([w.kv(key, w.U32, 1)], [w.info("ttt", [4], 0, 0)], one, alignment=1)
    add("alignment_1_even_address_ok", data_even, "config", MISSING, "general.architecture")


def tensors():
    one = w.encode([1.0] * 8, "F32")

    def bad(name, infos, contains, code=CORRUPT, data=one, stage="open"):
        add(name, w.assemble([ARCH], infos, data), stage, code, contains)

    bad("tensor_name_empty", [w.info("", [8], 0, 0)], "name of 0 bytes")
    bad("tensor_name_65", [w.info("n" * 65, [8], 0, 0)], "name of 65 bytes")
    bad("tensor_name_64_ok", [w.info("n" * 64, [8], 0, 0)], "llama.block_count: missing", MISSING, stage="config")
    bad("tensor_name_len_max", [struct.pack("<Q", U64_MAX) + b"\0" * 33], "name of 18446744073709551615 bytes")
    bad("tensor_duplicate", [w.info("t", [4], 0, 0), w.info("t", [4], 0, 32)], "tensor t: appears twice", data=one * 2)
    bad("tensor_dims_0", [w.info("t", [], 0, 0) + b"\0" * 8], "tensor t: 0 dimensions")
    bad("tensor_dims_5", [w.info("t", [1, 1, 1, 1, 1], 0, 0)], "tensor t: 5 dimensions")
    bad("tensor_dims_2p32", [w.text("t") + struct.pack("<I", 2**32 - 1) + b"\0" * 24], "tensor t: 4294967295 dimensions")
    bad("tensor_dim_negative", [w.info("t", [U64_MAX], 0, 0)], "tensor t: shape [18446744073709551615] overflows")
    bad("tensor_product_wraps", [w.info("t", [2**31, 2**31, 4], 0, 0)], "overflows")
    bad("tensor_product_wraps_to_0", [w.info("t", [2**32, 2**32], 0, 0)], "overflows")
    bad("tensor_bytes_wrap", [w.info("t", [2**62], 0, 0)], "tensor t: size of shape [4611686018427387904] overflows")
    bad("tensor_zero_hides_huge", [w.info("t", [0, 2**40, 2**40], 0, 0)], "overflows")
    bad("tensor_exabyte", [w.info("t", [2**50], 1, 0)], "leave the data section")
    add("C4_zero_dim_ok", w.assemble([], [w.info("t", [0], 0, 0)]), "config", MISSING, "general.architecture")
    add("tensor_zero_dim_rows_ok", w.assemble([ARCH], [w.info("t", [32, 0], 2, 0)]), "config", MISSING, "llama.block_count")
    bad("tensor_type_count", [w.info("t", [8], 43, 0)], "tensor t: type id 43 is not known")
    bad("tensor_type_max", [w.info("t", [8], 2**32 - 1, 0)], "tensor t: type id 4294967295 is not known")
    bad("tensor_type_4_withdrawn", [w.info("t", [32], 4, 0)], "type id 4 was withdrawn", UNSUPPORTED)
    bad("C1_type_id_36", [w.info("blk.0.ffn_down.weight", [27, 1], 36, 0)],
        "tensor blk.0.ffn_down.weight: type id 36 was withdrawn", UNSUPPORTED)
    bad("C1_q4k_row_896", [w.info("token_embd.weight", [896, 2], 12, 0)],
        "tensor token_embd.weight: row of 896 elements is no multiple of Q4_K's block of 256", data=b"\0" * 1008)
    bad("tensor_q4_0_row_33", [w.info("t", [33], 2, 0)], "row of 33 elements is no multiple of Q4_0's block of 32")
    bad("tensor_q5_0_row_48", [w.info("t", [48], 6, 0)], "row of 48 elements is no multiple of Q5_0's block of 32")
    bad("tensor_q5_1_short_by_1", [w.info("t", [32], 7, 0)], "tensor t: 24 bytes at offset 0 leave", data=b"\0" * 23)
    for kind, type_id, size in ("Q4_K", 12, 144), ("Q5_K", 13, 176), ("Q6_K", 14, 210):
        lower = kind.lower()
        bad("tensor_%s_row_288" % lower, [w.info("t", [288], type_id, 0)],
            "row of 288 elements is no multiple of %s's block of 256" % kind, data=b"\0" * 2 * size)
        bad("tensor_%s_short_by_1" % lower, [w.info("t", [256, 3], type_id, 0)],
            "tensor t: %d bytes at offset 0 leave" % (3 * size), data=b"\0" * (3 * size - 1))
    for kind, (type_id, elems, size) in {"q2_k": (10, 256, 84), "q3_k": (11, 256, 110), "iq4_nl": (20, 32, 18), "i8": (24, 1, 1),
                                         "f64": (28, 1, 8)}.items():
        bad("tensor_no_kernel_" + kind, [w.info("t", [elems], type_id, 0)], "tensor t: type %s has no kernel" % kind.upper(),
            UNSUPPORTED, data=b"\0" * size)
    bad("tensor_offset_odd", [w.info("t", [4], 0, 4)], "tensor t: offset 4 is no multiple of the alignment 32")
    bad("tensor_offset_max", [w.info("t", [4], 0, 2**64 - 32)], "tensor t: 16 bytes at offset 18446744073709551584 leave")
    bad("tensor_offset_at_end", [w.info("t", [4], 0, 32)], "tensor t: 16 bytes at offset 32 leave the data section")
    bad("tensor_data_short_by_1", [w.info("t", [8], 0, 0)], "tensor t: 32 bytes at offset 0 leave", data=one[:-1])
    bad("tensor_no_data_section", [w.info("t", [8], 0, 0)], "leave the data section (0 bytes", data=b"")
    bad("tensor_overlap", [w.info("a", [16], 0, 0), w.info("b", [8], 0, 32)], "tensor b: data at byte 192 overlaps that of tensor a",
        data=one * 2)
    bad("tensor_same_bytes_twice", [w.info("a", [8], 0, 0), w.info("b", [8], 0, 0)], "overlaps")
    wrap = 2**63 - 64
    bad("tensor_sum_wraps", [w.info("a", [wrap], 24, 0), w.info("b", [wrap], 24, wrap)], "tensor a: type I8 has no kernel", UNSUPPORTED)
    bad("tensor_sum_wraps_f16", [w.info("a", [2**61], 1, 0), w.info("b", [2**61], 1, 2**62)], "tensor a: 4611686018427387904 bytes")
    bad("tensor_any_order_ok", [w.info("a", [8], 0, 64), w.info("b", [8], 0, 0)], "llama.block_count", MISSING, data=one * 3,
        stage="config")
    bad("tensor_trailing_bytes_ok", [w.info("a", [8], 0, 0)], "llama.block_count", MISSING, data=one + b"trailing", stage="config")
    whole = w.assemble([ARCH], [w.info("blk.0.attn_q.weight", [8], 0, 0)], one)
    add("tensor_table_cut", whole[:len(w.assemble([ARCH], [])) + 2], "open", CORRUPT, "tensor 0: its name")
    long_table = w.assemble([ARCH], [w.info("a" * 60, [1, 1, 1, 1], 0, 0)])
    base = len(w.assemble([ARCH], []))
    add("tensor_cut_in_name", long_table[:base + 50], "open", CORRUPT, "tensor 0: its name")
    add("tensor_cut_in_dims", long_table[:base + 80], "open", CORRUPT, ": its dimensions")
    add("tensor_cut_in_offset", long_table[:base + 8 + 60 + 4 + 32 + 6], "open", CORRUPT, ": its type and offset")


TINY = make_tiny_model.Tiny(layers=1, hidden=8, ffn=8, heads=2, kv_heads=1, head_dim=4, vocab=4, dtype="F16", context=32,
                            tokenizer=False, name="")


def model(changes=(), drop=(), replace_tensors=None, tensors_too=(), **fields):
    """A tiny model with keys replaced (key -> (kind, value)) or dropped, and tensors changed."""
    kvs, ts = make_tiny_model.build(dataclasses.replace(TINY, **fields))
    changes = dict(changes)
    kept = []
    for raw in kvs:
        n, = struct.unpack_from("<Q", raw)
        key = raw[8:8 + n].decode()
        if key in drop:
            continue
        if key in changes:
            kind, x = changes.pop(key)
            raw = w.kv(key, kind, x)
        kept.append(raw)
    kept += [w.kv(key, kind, x) for key, (kind, x) in changes.items()]
    out = []
    for tensor in ts:
        if tensor[0] in drop:
            continue
        out.append((replace_tensors or {}).get(tensor[0], tensor))
    return kept, out + list(tensors_too)


def configs():
    def cfg(name, contains, code=CORRUPT, stage="config", **how):
        add(name, w.write(*model(**how)), stage, code, contains)

    def key(name, suffix, kind, x, contains, code=CORRUPT):
        cfg(name, contains, code, changes={"llama." + suffix: (kind, x)})

    cfg("model_ok", "", "ok", "")
    cfg("model_untied_ok", "", "ok", "", tied=False)
    cfg("model_rope_freqs_ok", "", "ok", "", rope_freqs=True)
    for kind in ("F32", "BF16"):
        cfg("model_%s_ok" % kind.lower(), "", "ok", "", dtype=kind)
    for kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"):
        cfg("model_%s_ok" % kind.lower(), "", "ok", "", dtype=kind, hidden=32, ffn=32, head_dim=16)
    for kind in ("Q4_K_M", "Q5_K_M"):
        cfg("model_%s_ok" % kind.lower(), "", "ok", "", dtype=kind, hidden=256, ffn=32, head_dim=16)
    for arch in ("qwen2", "qwen3"):
        cfg("model_%s_ok" % arch, "", "ok", "", arch=arch)
        cfg("config_%s_context_0" % arch, "key %s.context_length: 0" % arch,
            changes={arch + ".context_length": (w.U32, 0)}, arch=arch)
    cfg("model_wide_heads_ok", "", "ok", "", head_dim=6)
    cfg("model_kv_default_ok", "", "ok", "", kv_heads=2, drop=("llama.attention.head_count_kv",))
    cfg("model_head_array_ok", "", "ok", "", changes={"llama.attention.head_count_kv": (w.ARRAY, (w.I32, [1]))})
    cfg("model_linear_rope_ok", "", "ok", "", changes={"llama.rope.scaling.type": (w.STRING, "linear"),
                                                      "llama.rope.scaling.factor": (w.F32, 2.0)})
    cfg("model_vocab_from_embedding_ok", "", "ok", "", drop=("llama.vocab_size",))
    cfg("model_extra_tensor_ok", "", "ok", "", tensors_too=[("extra.weight", [4], "F32", b"\0" * 16)])
    key("config_layers_0", "block_count", w.U32, 0, "key llama.block_count: 0 is not in 1 to 1024")
    key("config_layers_huge", "block_count", w.U32, 2**32 - 1, "key llama.block_count: 4294967295")
    key("config_layers_negative", "block_count", w.I32, -1, "key llama.block_count: -1 is negative")
    key("config_layers_float", "block_count", w.F32, 1.0, "key llama.block_count: is f32, an integer expected")
    key("config_heads_0", "attention.head_count", w.U32, 0, "key llama.attention.head_count: 0 is not in")
    key("config_heads_3", "attention.head_count", w.U32, 3, "3 does not divide embedding_length 8")
    key("config_heads_8_odd_dim", "attention.head_count", w.U32, 8, "head dimension 1 is not even")
    key("config_kv_heads_0", "attention.head_count_kv", w.U32, 0, "head_count_kv: 0 is not in")
    key("config_kv_heads_over", "attention.head_count_kv", w.U32, 4, "4 does not divide 2 heads")
    key("config_kv_per_layer", "attention.head_count_kv", w.ARRAY, (w.I32, [1, 2]), "differs between layers", UNSUPPORTED)
    key("config_kv_array_negative", "attention.head_count_kv", w.ARRAY, (w.I64, [-2**40]), "exceeds 32 bits")
    key("config_key_length_odd", "attention.key_length", w.U32, 3, "key llama.attention.key_length: head dimension 3")
    key("config_value_length", "attention.value_length", w.U32, 8, "key llama.attention.value_length: 8 differs", UNSUPPORTED)
    key("config_partial_rope", "rope.dimension_count", w.U32, 2, "rope.dimension_count: 2 differs", UNSUPPORTED)
    key("config_eps_0", "attention.layer_norm_rms_epsilon", w.F32, 0.0, "epsilon: 0 is not in")
    key("config_eps_nan", "attention.layer_norm_rms_epsilon", w.F32, math.nan, "epsilon: nan is not in")
    key("config_eps_tiny_f64", "attention.layer_norm_rms_epsilon", w.F64, 1e-300, "is 0 as a float")
    key("config_eps_string", "attention.layer_norm_rms_epsilon", w.STRING, "1e-5", "is string, f32 or f64 expected")
    key("config_theta_inf", "rope.freq_base", w.F32, math.inf, "key llama.rope.freq_base: inf")
    key("config_theta_negative", "rope.freq_base", w.F32, -1.0, "key llama.rope.freq_base: -1")
    key("config_context_0", "context_length", w.U32, 0, "key llama.context_length: 0")
    key("config_hidden_huge", "embedding_length", w.U64, 2**40, "key llama.embedding_length: 1099511627776")
    key("config_yarn", "rope.scaling.type", w.STRING, "yarn", "key llama.rope.scaling.type: yarn", UNSUPPORTED)
    key("config_experts", "expert_count", w.U32, 8, "key llama.expert_count: 8 experts", UNSUPPORTED)
    key("config_vocab_0", "vocab_size", w.U32, 0, "key llama.vocab_size: 0 is not in")
    cfg("config_tokens_over_vocab", "5 tokens, but llama.vocab_size is 4",
        changes={"tokenizer.ggml.tokens": (w.ARRAY, (w.STRING, list("abcde")))})
    cfg("config_eps_missing", "key llama.attention.layer_norm_rms_epsilon: missing", MISSING,
        drop=("llama.attention.layer_norm_rms_epsilon",))
    cfg("config_arch_mamba", "key general.architecture: mamba is not built (built: llama, qwen2, qwen3)", UNSUPPORTED,
        changes={"general.architecture": (w.STRING, "mamba")})
    vocabulary = [w.kv("general.architecture", w.STRING, "gpt2"), w.kv("tokenizer.ggml.model", w.STRING, "gpt2"),
                  w.kv("tokenizer.ggml.pre", w.STRING, "gpt-2"),
                  w.kv("tokenizer.ggml.tokens", w.ARRAY, (w.STRING, ["a", "b", b"\xff", ""]))]
    add("vocabulary_only_ok", w.assemble(vocabulary, []), "config", UNSUPPORTED, "gpt2 is not built (built: llama, qwen2, qwen3)")
    bad_freqs = w.encode([1.0, 0.0], "F32")
    cfg("config_rope_freqs_zero", "tensor rope_freqs.weight: element 1 is 0", tensors_too=[("rope_freqs.weight", [2], "F32", bad_freqs)])
    cfg("config_rope_freqs_shape", "tensor rope_freqs.weight: F32 [1], F32 [2] expected",
        tensors_too=[("rope_freqs.weight", [1], "F32", bad_freqs[:4])])
    cfg("config_rope_freqs_and_linear", "beside linear rope scaling", UNSUPPORTED, rope_freqs=True,
        changes={"llama.rope.scaling.factor": (w.F32, 4.0)})


def model_tensors():
    def bad(name, contains, code=CORRUPT, **how):
        add(name, w.write(*model(**how)), "tensors", code, contains)

    half = [0.0] * 64
    bad("model_q_missing", "tensor blk.0.attn_q.weight: missing", MISSING, drop=("blk.0.attn_q.weight",))
    bad("model_norm_missing", "tensor output_norm.weight: missing", MISSING, drop=("output_norm.weight",))
    bad("model_layer_missing", "tensor blk.1.attn_norm.weight: missing", MISSING, changes={"llama.block_count": (w.U32, 2)})
    bad("model_embedding_short", "tensor token_embd.weight: shape [4, 8], [5, 8] expected", changes={"llama.vocab_size": (w.U32, 5)})
    bad("model_q_transposed", "tensor blk.0.attn_k.weight: shape [8, 4], [4, 8] expected",
        replace_tensors={"blk.0.attn_k.weight": ("blk.0.attn_k.weight", [4, 8], "F16", w.encode(half[:32], "F16"))})
    bad("model_q_three_dims", "tensor blk.0.attn_q.weight: shape [1, 8, 8], [8, 8] expected",
        replace_tensors={"blk.0.attn_q.weight": ("blk.0.attn_q.weight", [8, 8, 1], "F16", w.encode(half, "F16"))})
    bad("model_down_empty", "tensor blk.0.ffn_down.weight: shape [8, 0], [8, 8] expected",
        replace_tensors={"blk.0.ffn_down.weight": ("blk.0.ffn_down.weight", [0, 8], "F16", b"")})
    bad("model_norm_f16", "tensor blk.0.attn_norm.weight: type F16, F32 expected", UNSUPPORTED,
        replace_tensors={"blk.0.attn_norm.weight": ("blk.0.attn_norm.weight", [8], "F16", w.encode(half[:8], "F16"))})
    bad("model_bias", "tensor blk.0.attn_q.bias: no llama layer here has this bias", UNSUPPORTED,
        tensors_too=[("blk.0.attn_q.bias", [8], "F32", w.encode(half[:8], "F32"))])
    bad("model_qwen2_bias_missing", "tensor blk.0.attn_k.bias: missing", MISSING, drop=("blk.0.attn_k.bias",), arch="qwen2")
    bad("model_qwen2_bias_short", "tensor blk.0.attn_v.bias: shape [2], [4] expected", arch="qwen2",
        replace_tensors={"blk.0.attn_v.bias": ("blk.0.attn_v.bias", [2], "F32", w.encode(half[:2], "F32"))})
    bad("model_qwen2_bias_f16", "tensor blk.0.attn_q.bias: type F16, F32 expected", UNSUPPORTED, arch="qwen2",
        replace_tensors={"blk.0.attn_q.bias": ("blk.0.attn_q.bias", [8], "F16", w.encode(half[:8], "F16"))})
    bad("model_qwen2_output_bias", "tensor blk.0.attn_output.bias: no qwen2 layer here has this bias", UNSUPPORTED,
        tensors_too=[("blk.0.attn_output.bias", [8], "F32", w.encode(half[:8], "F32"))], arch="qwen2")
    bad("model_qwen3_norm_missing", "tensor blk.0.attn_q_norm.weight: missing", MISSING,
        drop=("blk.0.attn_q_norm.weight",), arch="qwen3")
    bad("model_qwen3_norm_long", "tensor blk.0.attn_k_norm.weight: shape [8], [4] expected", arch="qwen3",
        replace_tensors={"blk.0.attn_k_norm.weight": ("blk.0.attn_k_norm.weight", [8], "F32", w.encode(half[:8], "F32"))})
    bad("model_head_short", "tensor output.weight: shape [2, 8], [4, 8] expected",
        tensors_too=[("output.weight", [8, 2], "F16", w.encode(half[:16], "F16"))])
    whole = w.write(*model())
    add("model_cut_by_1", whole[:-1], "open", CORRUPT, "tensor output_norm.weight: 32 bytes at offset")


def splits():
    def part(stem, no):
        return "%s-%05d-of-00003" % (stem, no)

    good = w.split(*model(), parts=3)
    FILES["split_unsplit_ok.gguf"] = w.write(*model())
    for i in range(3):
        add(part("split_ok", i + 1), good[i], "")
    # From here a set is several files, of which the manifest opens one.

    def bad_set(stem, raws, opened, code, contains):
        for no, raw in raws.items():
            FILES[part(stem, no) + ".gguf"] = raw
        ENTRIES.append({"file": part(stem, opened) + ".gguf", "stage": "open", "code": code, "contains": contains})

    bad_set("split_missing", {1: good[0], 2: good[1]}, 1, MISSING, "split_missing-00003-of-00003.gguf: No such file")
    ENTRIES.append({"file": part("split_missing", 2) + ".gguf", "stage": "open", "code": MISSING,
                    "contains": "(part 3 of 3, with the tensors after blk.0.ffn_gate.weight)"})
    bad_set("split_cut", {1: good[0], 2: good[1][:-1], 3: good[2]}, 3, CORRUPT,
            "split_cut-00002-of-00003.gguf: tensor blk.0.ffn_gate.weight")
    # A model with one tensor more deals its parts differently.
    other = w.split(*model(tied=False, name="other", seed=5), parts=3)
    bad_set("split_mixed", {1: good[0], 2: other[1], 3: good[2]}, 1, CORRUPT, "split_mixed-00002-of-00003.gguf: key split.tensors.count")
    kvs, ts = model(seed=9)
    same_count = w.split(kvs, ts[::-1], parts=3)
    bad_set("split_duplicate", {1: good[0], 2: good[1], 3: same_count[2]}, 1, CORRUPT, "parts of different models")
    bad_set("split_swapped", {1: good[0], 2: good[2], 3: good[1]}, 1, CORRUPT, "split_swapped-00002-of-00003.gguf: key split.no: is 2")
    kvs, ts = model()
    short = w.split(kvs, ts, parts=3)
    short[2] = w.write([w.kv("split.no", w.U16, 2), w.kv("split.count", w.U16, 3), w.kv("split.tensors.count", w.I32, len(ts))],
                       ts[-1:])
    bad_set("split_sum", {1: short[0], 2: short[1], 3: short[2]}, 2, CORRUPT, "split.tensors.count is %d" % len(ts))
    named = [w.kv("general.name", w.STRING, "other"), w.kv("split.no", w.U16, 1), w.kv("split.count", w.U16, 3),
             w.kv("split.tensors.count", w.I32, len(ts))]
    bad_set("split_other_name", {1: good[0], 2: w.write(named, ts[4:8]), 3: good[2]}, 1, CORRUPT,
            "split_other_name-00002-of-00003.gguf: key general.name: is other")
    # Renamed: no part number in the name. In its own folder, so that its siblings can be told.
    FILES["renamed/second.gguf"] = good[1]
    FILES["renamed/m-00001-of-00003.gguf"] = good[0]
    FILES["renamed/m-00003-of-00003.gguf"] = good[2]
    ENTRIES.append({"file": "renamed/second.gguf", "stage": "open", "code": CORRUPT,
                    "contains": "is part 2 of 3 of a split model, but its name does not end in -00002-of-00003.gguf"})
    ENTRIES.append({"file": "renamed/second.gguf", "stage": "open", "code": CORRUPT, "contains": "m-00001-of-00003.gguf"})

    def keys_only(name, no, count, contains):
        add(name, w.write([w.kv("split.no", w.U16, no), w.kv("split.count", w.U16, count)], []), "open", CORRUPT, contains)

    keys_only("split_no_over_count", 7, 3, "key split.no: part 7 of 3")
    keys_only("split_count_60000", 0, 60000, "part 0 of 60000")
    add("split_no_missing", w.write([w.kv("split.count", w.U16, 2)], []), "open", MISSING, "key split.no: missing")
    add("split_count_string", w.write([w.kv("split.count", w.STRING, "2")], []), "open", CORRUPT, "split.count: is string")
    add("split_count_1_ok", w.write(*model(changes={"split.no": (w.U16, 0), "split.count": (w.U16, 1)})), "")


def main():
    header()
    keys()
    alignment()
    tensors()
    configs()
    model_tensors()
    splits()
    corpus_writer.write(OUT, FILES, ENTRIES)


if __name__ == "__main__":
    main()
