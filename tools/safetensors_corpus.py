#!/usr/bin/env python3
"""Writes tests/data/safetensors: small safetensors files, folders and config.json files that are malformed, or odd but
legal, and manifest.json with the verdict that the reader must give. Standard library only; running it twice gives the
same bytes.

An entry of the manifest is {path, kind, code, contains}: kind is file, folder or config; code is the status of opening
it; contains are words of the message.
"""

import corpus_writer
import json
import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "tests", "data", "safetensors")

ENTRIES = []
FILES = {}

CORRUPT, UNSUPPORTED, MISSING = "corrupt_file", "unsupported", "not_found"
SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
         "I32": 4, "U32": 4, "F32": 4, "C64": 8, "F64": 8, "I64": 8, "U64": 8}


def pack(header, data=b"", length=None):
    """A file from the header's text (bytes, str or an object)."""
    if isinstance(header, (dict, list)):
        header = json.dumps(header, separators=(",", ":"))
    if isinstance(header, str):
        header = header.encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def tensor(dtype, shape, begin):
    count = 1
    for dim in shape:
        count *= dim
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + count * SIZES[dtype]]}


def model(tensors, metadata=None):
    """A valid file of (name, dtype, shape, bytes)."""
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, dtype, shape, raw in tensors:
        header[name] = tensor(dtype, shape, len(data))
        assert header[name]["data_offsets"][1] == len(data) + len(raw), name
        data += raw
    text = json.dumps(header, separators=(",", ":"))
    return pack(text + " " * (-len(text) % 8), data)


def add(name, raw, code="ok", contains=""):
    FILES[name + ".safetensors"] = raw
    ENTRIES.append({"path": name + ".safetensors", "kind": "file", "code": code, "contains": contains})


def bad(name, raw, contains, code=CORRUPT):
    add(name, raw, code, contains)


def valid():
    add("all_types_ok", model([(t.lower(), t, [2], bytes(2 * n)) for t, n in sorted(SIZES.items(), key=lambda x: -x[1])]))
    add("no_tensors_ok", pack("{}"))
    add("padded_ok", pack('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}' + " " * 9, b"\0" * 4))
    add("unaligned_ok", pack('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} ', b"\0" * 4))
    add("scalar_ok", model([("a", "F32", [], b"\0" * 4)]))
    add("zero_dims_ok", model([("a", "F32", [0], b""), ("b", "F32", [2], b"\0" * 8), ("c", "I64", [3, 0], b"")]))
    add("zero_before_huge_dim_ok", pack({"a": {"dtype": "F32", "shape": [0, 2**63, 4], "data_offsets": [0, 0]}}))
    add("metadata_ok", model([("a", "BOOL", [1], b"\1")], {"format": "pt", "note": "h\u00e9"}))
    add("metadata_last_ok", pack({"a": tensor("U8", [1], 0), "__metadata__": {}}, b"\0"))
    add("data_in_another_order_ok", pack({"b": tensor("F16", [2], 4), "a": tensor("F32", [1], 0)}, b"\0" * 8))
    add("eight_dims_ok", pack({"a": tensor("U8", [1] * 8, 0)}, b"\0"))
    add("name_with_control_characters_ok", model([("a\n\x1b[31m\u00e9", "U8", [1], b"\0")]))
    add("metadata_long_ok", pack({"__metadata__": {"k": "v" * 5000}}))


def headers():
    bad("header_empty_file", b"", "not a safetensors file: 0 bytes")
    bad("header_seven_bytes", b"\2" + b"\0" * 6, "not a safetensors file: 7 bytes")
    bad("header_length_max", pack("{}", length=2**64 - 1), "header of 18446744073709551615 bytes, at most 2 expected")
    bad("header_length_wraps", pack("{}", length=2**64 - 8), "header of 18446744073709551608 bytes")
    bad("header_length_over_limit", pack("{}", length=100000001), "header of 100000001 bytes")
    bad("header_length_past_end", pack("{}", length=3), "header of 3 bytes, at most 2 expected")
    bad("header_length_0", pack("", b"{}"), "the header of 0 bytes does not begin with {")
    bad("header_array", pack("[1]"), "does not begin with {")
    bad("header_leading_space", pack(" {}"), "does not begin with {")
    bad("header_byte_order_mark", pack("\ufeff{}"), "does not begin with {")
    bad("header_only_brace", pack("{"), "header: not valid JSON at byte 2")
    bad("header_cut", pack('{"a":{"dtype":"F3'), "header: not valid JSON")
    bad("header_text_behind", pack("{}x"), "header: not valid JSON at byte 3")
    bad("header_nul_behind", pack("{}\0"), "header: not valid JSON at byte 3")
    bad("header_nul_then_text", pack("{}\0x", b""), "header: not valid JSON at byte 3")
    bad("header_not_utf8", pack(b'{"\xff":{}}'), "header: not valid JSON at byte 3")
    bad("header_lone_surrogate", pack(b'{"\\ud800":{}}'), "header: not valid JSON")
    bad("header_comma", pack('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},}', b"\0"), "header: not valid JSON")
    bad("header_deep_in_name", pack('{"a":' + "[" * 2000), "tensor a: an array where none belongs")
    bad("header_deep_in_shape", pack('{"a":{"shape":' + "[" * 2000), "header: JSON nested deeper than 3")
    bad("header_deep_objects", pack('{"a":' * 2000), "tensor a: unknown field a")
    bad("header_is_lfs_pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "a Git LFS pointer")
    bad("header_is_gguf", b"GGUF" + b"\3" + b"\0" * 40, "at most 37 expected")


def metadata():
    def case(name, text, contains):
        bad("metadata_" + name, pack(text), contains)

    case("number", '{"__metadata__":{"k":1}}', "__metadata__: k is 1, a string expected")
    case("null", '{"__metadata__":{"k":null}}', "__metadata__: k is null, a string expected")
    case("nested", '{"__metadata__":{"k":{}}}', "tensor __metadata__: an object where none belongs")
    case("nested_array", '{"__metadata__":{"k":[]}}', "tensor __metadata__: an array where none belongs")
    case("string", '{"__metadata__":"x"}', 'tensor __metadata__: is "x", an object expected')
    case("twice", '{"__metadata__":{},"__metadata__":{}}', "tensor __metadata__: twice in the file")
    case("key_twice", '{"__metadata__":{"k":"1","k":"2"}}', "__metadata__: key k twice")


def fields():
    def case(name, text, contains, code=CORRUPT, data=b"\0" * 4):
        bad("tensor_" + name, pack('{"a":%s}' % text, data), "tensor a: " + contains, code)

    def one(dtype='"F32"', shape="[1]", offsets="[0,4]", more=""):
        return '{"dtype":%s,"shape":%s,"data_offsets":%s%s}' % (dtype, shape, offsets, more)

    case("null", "null", "is null, an object expected")
    case("string", '"F32"', 'is "F32", an object expected')
    case("empty", "{}", "dtype is missing")
    case("no_shape", '{"dtype":"F32","data_offsets":[0,4]}', "shape is missing")
    case("no_offsets", '{"dtype":"F32","shape":[1]}', "data_offsets is missing")
    case("unknown_field", one(more=',"x\\u0007":1'), "unknown field x\\x07")
    case("dtype_twice", one(more=',"dtype":"F16"'), "field dtype twice")
    case("shape_twice", one(more=',"shape":[1]'), "field shape twice")
    case("dtype_number", one(dtype="1"), "dtype is 1, a string expected")
    case("dtype_array", one(dtype="[]"), "an array where none belongs")
    case("dtype_f4", one(dtype='"F4"'), "dtype F4 is not known here", UNSUPPORTED)
    case("dtype_lower_case", one(dtype='"f32"'), "dtype f32 is not known here", UNSUPPORTED)
    case("dtype_empty", one(dtype='""'), "dtype  is not known here", UNSUPPORTED)
    case("dtype_control", one(dtype='"F\\n32"'), "dtype F\\x0a32 is not known here", UNSUPPORTED)
    case("shape_number", one(shape="1"), "shape is 1, an array expected")
    case("shape_string", one(shape='["1"]'), 'shape[0] is "1", an integer from 0 expected')
    case("shape_negative", one(shape="[-1,-1]"), "shape[0] is -1, an integer from 0 expected")
    case("shape_minus_zero", one(shape="[-0]"), "shape[0] is 0, an integer from 0 expected")
    case("shape_float", one(shape="[1.0]"), "shape[0] is 1, an integer from 0 expected")
    case("shape_exponent", one(shape="[1,1e0]"), "shape[1] is 1, an integer from 0 expected")
    case("shape_bool", one(shape="[true]"), "shape[0] is true, an integer from 0 expected")
    case("shape_null", one(shape="[null]"), "shape[0] is null, an integer from 0 expected")
    case("shape_2p64", one(shape="[18446744073709551616]"), "shape[0] is 1.8446744073709552e+19, an integer from 0")
    case("shape_nine_dims", one(shape="[1,1,1,1,1,1,1,1,1]"), "more than 8 dimensions")
    case("shape_overflow", one(shape="[4294967296,4294967296]"), "shape [4294967296, 4294967296] is too large")
    case("shape_overflow_by_size", one(shape="[4611686018427387904]"), "shape [4611686018427387904] is too large")
    case("shape_huge_before_zero", one(shape="[9223372036854775808,4,0]", offsets="[0,0]"),
         "shape [9223372036854775808, 4, 0] is too large", data=b"")
    case("shape_wraps_to_4", one(shape="[9223372036854775809,2]"), "shape [9223372036854775809, 2] is too large")
    case("shape_exabyte", one(shape="[1152921504606846976]"),
         "data_offsets [0, 4] hold 4 bytes, but F32 [1152921504606846976] has 4611686")
    case("offsets_number", one(offsets="4"), "data_offsets is 4, an array expected")
    case("offsets_empty", one(offsets="[]"), "data_offsets has 0 elements, 2 expected")
    case("offsets_one", one(offsets="[0]"), "data_offsets has 1 elements, 2 expected")
    case("offsets_three", one(offsets="[0,4,4]"), "data_offsets has 3 elements, 2 expected")
    case("offsets_negative", one(offsets="[-4,0]"), "data_offsets[0] is -4, an integer from 0 expected")
    case("offsets_float", one(offsets="[0,4.5]"), "data_offsets[1] is 4.5, an integer from 0 expected")
    case("offsets_reversed", one(offsets="[4,0]"), "data_offsets [4, 0] end before they begin")
    case("offsets_past_end", one(offsets="[0,8]", shape="[2]"), "data_offsets [0, 8], but the file has 4 bytes of data")
    case("offsets_max", one(offsets="[18446744073709551612,18446744073709551615]"),
         "data_offsets [18446744073709551612, 18446744073709551615], but the file has 4")
    case("offsets_too_short", one(offsets="[0,3]"), "data_offsets [0, 3] hold 3 bytes, but F32 [1] has 4")
    case("offsets_wrong_type", one(dtype='"F16"'), "data_offsets [0, 4] hold 4 bytes, but F16 [1] has 2")
    case("offsets_of_zero_dim", one(shape="[0]"), "data_offsets [0, 4] hold 4 bytes, but F32 [0] has 0")
    case("hole_before", one(offsets="[4,8]"),
         "data_offsets [4, 8] leave a hole after what lies before, which ends at 0", data=b"\0" * 8)
    bad("tensor_shape_object", pack('{"a":%s}' % one(shape="[{}]")), "header: JSON nested deeper than 3")
    long_name = "n" * 1025
    bad("tensor_name_1025_bytes", pack({long_name: tensor("U8", [1], 0)}, b"\0"), "name of 1025 bytes, at most 1024")


def placement():
    def two(a, b):
        return {"a": dict(tensor("F32", [2], 0), data_offsets=a), "b": dict(tensor("F32", [2], 0), data_offsets=b)}

    bad("overlap", pack(two([0, 8], [4, 12]), b"\0" * 12),
        "tensor b: data_offsets [4, 12] overlap what lies before, which ends at 8 (tensor a)")
    bad("overlap_same", pack(two([0, 8], [0, 8]), b"\0" * 8), "tensor b: data_offsets [0, 8] overlap")
    bad("overlap_reversed_order", pack(two([4, 12], [0, 8]), b"\0" * 12), "tensor a: data_offsets [4, 12] overlap")
    bad("hole_between", pack(two([0, 8], [12, 20]), b"\0" * 20), "tensor b: data_offsets [12, 20] leave a hole")
    bad("data_behind", pack(two([0, 8], [8, 16]), b"\0" * 17), "17 bytes of data, but the tensors end at 16")
    bad("data_one_short", pack(two([0, 8], [8, 16]), b"\0" * 15), "tensor b: data_offsets [8, 16], but the file has 15")
    bad("data_without_tensors", pack("{}", b"\0"), "1 bytes of data, but the tensors end at 0")
    bad("zero_tensor_inside", pack({"a": tensor("F32", [2], 0), "z": tensor("F32", [0], 4)}, b"\0" * 8),
        "tensor z: data_offsets [4, 4] overlap")
    bad("name_twice", pack('{"a":%s,"a":%s}' % (json.dumps(tensor("U8", [1], 0)), json.dumps(tensor("U8", [1], 1))),
                           b"\0\0"), "tensor a: twice in the file")


def folder(name, files, code="ok", contains=""):
    for file, raw in files.items():
        FILES[name + "/" + file] = raw
    ENTRIES.append({"path": name, "kind": "folder", "code": code, "contains": contains})


def index(weight_map, **more):
    return json.dumps(dict(more, weight_map=weight_map)).encode()


def folders():
    one = model([("a", "F32", [1], b"\0" * 4)])
    two = model([("b", "F32", [1], b"\0" * 4), ("c", "F32", [1], b"\0" * 4)])
    name = "model.safetensors.index.json"
    s1, s2 = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    right = {"c": s2, "a": s1, "b": s2}

    folder("folder_single_ok", {"model.safetensors": one})
    folder("folder_other_name_ok", {"eagle.safetensors": one, "README": b"x"})
    folder("folder_index_ok", {name: index(right, metadata={"total_size": 12.0, "x": [[{}]]}), s1: one, s2: two})
    folder("folder_index_unlisted_tensor_ok", {name: index({"a": s1, "b": s2}), s1: one, s2: two})
    folder("folder_empty", {"README": b"x"}, MISSING, "folder_empty: no *.safetensors file")
    folder("folder_pickle", {"pytorch_model.bin": b"x"}, MISSING, "pytorch_model.bin is not read")
    folder("folder_two_files", {"x.safetensors": one, "y.safetensors": two}, CORRUPT,
           "2 *.safetensors files (x.safetensors, ...) and no model.safetensors.index.json")
    folder("folder_file_corrupt", {"model.safetensors": one[:-1]}, CORRUPT, "folder_file_corrupt/model.safetensors: tensor a")
    folder("index_missing_shard", {name: index(right), s1: one}, MISSING,
           "model-00002-of-00002.safetensors: No such file or directory (shard with tensor b)")
    folder("index_shard_corrupt", {name: index(right), s1: one, s2: two[:-1]}, CORRUPT, s2 + ": tensor c: data_offsets")
    folder("index_wrong_shard", {name: index(dict(right, b=s1)), s1: one, s2: two}, CORRUPT, "tensor b: not in " + s1)
    folder("index_tensor_nowhere", {name: index(dict(right, d=s1)), s1: one, s2: two}, CORRUPT, "tensor d: not in " + s1)
    both = model([("a", "F32", [1], b"\0" * 4), ("b", "U8", [1], b"\0")])
    folder("index_tensor_in_two_shards", {name: index(right), s1: both, s2: two}, CORRUPT, "tensor b: also in")

    def bad_index(case, text, contains):
        folder("index_" + case, {name: text if isinstance(text, bytes) else text.encode(), s1: one}, CORRUPT, contains)

    def bad_name(case, file):
        bad_index(case, index({"a": file}), "tensor a: ")

    bad_name("leads_up", "../x.safetensors")
    bad_name("absolute", "/tmp/x.safetensors")
    bad_name("subfolder", "x/y.safetensors")
    bad_name("backslash", "..\\x.safetensors")
    bad_name("hidden", ".safetensors")
    bad_name("dots", "..")
    bad_name("empty_name", "")
    bad_name("nul", "x\0.safetensors")
    bad_name("not_safetensors", "model.bin")
    bad_name("long_name", "x" * 300 + ".safetensors")
    bad_name("number", 1)
    bad_name("nested", {"x": s1})
    bad_name("nested_array", [s1])
    bad_index("tensor_twice", '{"weight_map":{"a":"%s","a":"%s"}}' % (s1, s1), "tensor a: twice")
    bad_index("no_map", '{"metadata":{}}', "key weight_map: missing")
    bad_index("map_empty", '{"weight_map":{}}', "key weight_map: names no tensor")
    bad_index("map_twice", '{"weight_map":{"a":"%s"},"weight_map":{}}' % s1, "key weight_map twice")
    bad_index("map_array", '{"weight_map":[]}', "key weight_map: is an array, an object expected")
    bad_index("map_string", '{"weight_map":"x"}', 'key weight_map: is "x", an object expected')
    bad_index("map_inside_only", '{"metadata":{"weight_map":{"a":"%s"}}}' % s1, "key weight_map: missing")
    bad_index("array", "[]", "is an array, an object expected")
    bad_index("number_only", "1", "is 1, an object expected")
    bad_index("empty", "", "not valid JSON")
    bad_index("cut", '{"weight_map":{"a":', "not valid JSON")
    bad_index("deep", '{"metadata":' + "[" * 1000, "JSON nested deeper than 8")


def configs():
    def config(name, text, code="ok", contains=""):
        FILES[name + ".json"] = text if isinstance(text, bytes) else text.encode()
        ENTRIES.append({"path": name + ".json", "kind": "config", "code": code, "contains": contains})

    eagle = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 8,
             "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-5,
             "rope_theta": 10000, "vocab_size": 6, "draft_vocab_size": 4, "max_position_embeddings": 2048,
             "tie_word_embeddings": False, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 14, 26]}}
    config("config_ok", json.dumps(eagle))
    config("config_odd_ok", json.dumps({"null": None, "none": [], "text": "x", "negative": -1, "float": 4.0, "big": 2**64,
                                        "mixed": [1, "a"], "deep": {"a": {"b": {"c": 7}}}, "a/b": 1, "": {"": 2}}))
    config("config_array", "[]", CORRUPT, "is not a JSON object")
    config("config_number", "1", CORRUPT, "is not a JSON object")
    config("config_empty", "", CORRUPT, "not valid JSON at byte 1")
    config("config_cut", '{"a": 1', CORRUPT, "not valid JSON")
    config("config_twice", '{"a": 1, "b": {"a": 2}, "a": 1}', CORRUPT, "key a: twice")
    config("config_twice_inside", '{"x": {"b": 1, "b": 1}}', CORRUPT, "key b: twice")
    config("config_deep", '{"a":' * 500, CORRUPT, "JSON nested deeper than 32")
    config("config_huge_number", '{"a": 1e999}', CORRUPT, "not valid JSON")
    d, f, q, kv, vocab, draft = 8, 16, 8, 4, 6, 4
    head = [("fc.weight", [d, 3 * d]), ("midlayer.input_layernorm.weight", [d]), ("midlayer.hidden_norm.weight", [d]),
            ("midlayer.self_attn.q_proj.weight", [q, 2 * d]), ("midlayer.self_attn.k_proj.weight", [kv, 2 * d]),
            ("midlayer.self_attn.v_proj.weight", [kv, 2 * d]), ("midlayer.self_attn.o_proj.weight", [d, q]),
            ("midlayer.post_attention_layernorm.weight", [d]), ("midlayer.mlp.gate_proj.weight", [f, d]),
            ("midlayer.mlp.up_proj.weight", [f, d]), ("midlayer.mlp.down_proj.weight", [d, f]), ("norm.weight", [d]),
            ("lm_head.weight", [draft, d])]
    tensors = [("d2t", "I64", [draft], struct.pack("<4q", 0, 0, 1, 2))]
    for i, (name, shape) in enumerate(head):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        tensors.append((name, "BF16", shape, bytes((7 * i + 3 * j) % 61 for j in range(2 * count))))
    tensors.append(("t2d", "BOOL", [vocab], bytes([1, 1, 0, 1, 0, 1])))
    folder("eagle3_ok", {"config.json": json.dumps(eagle).encode(), "model.safetensors": model(tensors)})
    values = [("d2t", "I32", [3], struct.pack("<3i", -1, 2**31 - 1, -2**31)),
              ("ids", "I64", [2], struct.pack("<2q", -5, 2**62)),
              ("t2d", "BOOL", [2], b"\1\2"), ("w", "F16", [2, 1], b"\0" * 4), ("none", "BOOL", [0], b"")]
    add("values_ok", model(values))


def main():
    valid()
    headers()
    metadata()
    fields()
    placement()
    folders()
    configs()
    corpus_writer.write(OUT, FILES, ENTRIES)


if __name__ == "__main__":
    main()
