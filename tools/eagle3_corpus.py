#!/usr/bin/env python3
"""Writes tests/data/eagle3: tiny EAGLE-3 heads with one planted fault each, some odd but legal ones, and manifest.json
with the verdict that opening them must give. Standard library only; running it twice gives the same bytes.

An entry of the manifest is {path, kind, code, contains}: kind is head, a folder or a file beside config.json, or config, a
config alone; code is the status of opening it for a target of 12 layers, hidden size 4 and vocabulary 6; contains are words
of the message.
"""

import copy
import json
import os
import struct

import corpus_writer
from safetensors_corpus import model

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "tests", "data", "eagle3")

ENTRIES = []
FILES = {}

CORRUPT, UNSUPPORTED, MISSING, OTHER = "corrupt_file", "unsupported", "not_found", "invalid_argument"
IDS = "eagle_aux_hidden_state_layer_ids"
H, HT, F, V, VD, Q, KV = 4, 4, 4, 6, 4, 4, 2
CONFIG = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1, "hidden_size": H,
          "intermediate_size": F, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2, "hidden_act": "silu",
          "rms_norm_eps": 1e-5, "rope_theta": 10000, "vocab_size": V, "draft_vocab_size": VD,
          "max_position_embeddings": 2048, "tie_word_embeddings": False, "eagle_config": {IDS: [1, 5, 8]}}
LAYER = "midlayer."


def floats(shape, dtype="BF16", seed=0):
    """A tensor of small values; every 16-bit pattern is finite as BF16 and F16."""
    count = 1
    for dim in shape:
        count *= dim
    size = {"BF16": 2, "F16": 2, "F32": 4}[dtype]
    return [dtype, list(shape), b"".join(bytes([(7 * i + seed) % 61] * (size - 1) + [0x3c]) for i in range(count))]


def integers(values, dtype="I64"):
    return [dtype, [len(values)], struct.pack("<%d%s" % (len(values), {"I64": "q", "I32": "i"}[dtype]), *values)]


def bools(values, dtype="BOOL"):
    return [dtype, [len(values)], bytes(values)]


def tensors(h=H, ht=HT, q=Q, kv=KV):
    """Name -> [dtype, shape, bytes] of a head in the original layout."""
    shapes = {"fc.weight": [h, 3 * ht], LAYER + "input_layernorm.weight": [h], LAYER + "hidden_norm.weight": [h],
              LAYER + "self_attn.q_proj.weight": [q, 2 * h], LAYER + "self_attn.k_proj.weight": [kv, 2 * h],
              LAYER + "self_attn.v_proj.weight": [kv, 2 * h], LAYER + "self_attn.o_proj.weight": [h, q],
              LAYER + "post_attention_layernorm.weight": [h], LAYER + "mlp.gate_proj.weight": [F, h],
              LAYER + "mlp.up_proj.weight": [F, h], LAYER + "mlp.down_proj.weight": [h, F], "norm.weight": [h],
              "lm_head.weight": [VD, h]}
    all_of_them = {name: floats(shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    all_of_them["d2t"] = integers([0, 0, 1, 2])
    all_of_them["t2d"] = bools([1, 1, 0, 1, 0, 1])
    return all_of_them


def enter(path, kind, code, contains):
    ENTRIES.append({"path": path, "kind": kind, "code": code, "contains": contains})


def add(name, config=None, weights=None, code="ok", contains="", files=None):
    """A head. With the config of all others it is one file beside theirs, else a folder."""
    raw = model([(n, *t) for n, t in (tensors() if weights is None else weights).items()])
    if config is None and files is None:
        FILES["config.json"] = json.dumps(CONFIG).encode()
        FILES[name + ".safetensors"] = raw
        return enter(name + ".safetensors", "head", code, contains)
    for file, content in (files or {"config.json": json.dumps(config), "model.safetensors": raw}).items():
        FILES[name + "/" + file] = content.encode() if isinstance(content, str) else content
    enter(name, "head", code, contains)


def changed(**keys):
    """The config with some keys set, or taken out where the value is `...`."""
    config = copy.deepcopy(CONFIG)
    for key, value in keys.items():
        if value is ...:
            del config[key]
        else:
            config[key] = value
    return config


def case(name, contains, code=CORRUPT, **keys):
    """A config that is refused before any tensor is looked at."""
    FILES["configs/" + name + ".json"] = json.dumps(changed(**keys)).encode()
    enter("configs/" + name + ".json", "config", code, name + ".json: key " + contains)


def legal():
    add("ok")
    own = dict(tensors(), **{"embed_tokens.weight": floats([V, H])})
    add("ok_own_embedding", weights=own)
    add("ok_i32_map", weights=dict(tensors(), d2t=integers([0, 0, 1, 2], "I32")))
    add("ok_no_t2d", weights={n: t for n, t in tensors().items() if n != "t2d"})
    add("ok_mixed_types", weights={n: floats(t[1], ["F32", "F16", "BF16"][i % 3]) if t[0] == "BF16" else t
                                   for i, (n, t) in enumerate(tensors().items())})
    renamed = {"model." + n.replace(LAYER, "layers.0."): t for n, t in tensors().items() if n not in ("d2t", "t2d")}
    add("ok_layers_0", weights=dict(renamed, d2t=tensors()["d2t"]))
    add("ok_boundaries_in_any_order", changed(eagle_config=None, **{IDS: [12, 2, 6]}))
    add("ok_as_modelopt_writes_it", changed(eagle_config={
        IDS: [], "use_aux_hidden_state": True, "use_input_layernorm_in_first_layer": True, "use_last_layernorm": True,
        "use_mtp_layernorm": False, "next_layer_regular": True, "parallel_draft_step": 1,
        "parallel_draft_heads_num_layers": 1}))
    add("ok_unknown_keys", changed(torch_dtype="bfloat16", use_cache=True, bias=False, x={"y": [[]]}))


def sizes():
    for key in ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size"):
        case("no_" + key, key + ": missing", MISSING, **{key: ...})
        case("null_" + key, key + ": missing", MISSING, **{key: None})
        case("zero_" + key, key + ": 0 is not in 1 to", **{key: 0})
        case("huge_" + key, key + ": 1099511627776 is not in 1 to", **{key: 2**40})
    case("hidden_size_float", "hidden_size: is 4, an integer expected", hidden_size=4.0)
    case("hidden_size_text", 'hidden_size: is "4", an integer expected', hidden_size="4")
    case("hidden_size_negative", "hidden_size: -4 is not in", hidden_size=-4)
    case("hidden_size_of_another_model", "hidden_size: the head is for a hidden size of 8, the target's is 4", OTHER,
         hidden_size=8)
    case("target_hidden_size_of_another_model", "target_hidden_size: the head is for a hidden size of 8, the target's is 4",
         OTHER, target_hidden_size=8)
    case("target_hidden_size_nested", "eagle_config/target_hidden_size: the head is for a hidden size of 9", OTHER,
         eagle_config={"target_hidden_size": 9, IDS: [1, 5, 8]})
    case("vocab_of_another_model", "vocab_size: the head is for a vocabulary of 7, the target's is 6", OTHER, vocab_size=7)
    case("draft_vocab_larger", "draft_vocab_size: 7 is more than vocab_size 6", draft_vocab_size=7)
    case("draft_vocab_zero", "draft_vocab_size: 0 is not in", draft_vocab_size=0)
    add("config_draft_vocab_differs", changed(draft_vocab_size=5), code=CORRUPT,
        contains="tensor d2t: shape [4], [5] expected")
    add("config_draft_vocab_null", changed(draft_vocab_size=None), code=CORRUPT,
        contains="tensor d2t: shape [4], [6] expected")
    case("kv_heads_do_not_divide", "num_key_value_heads: 3 does not divide 2 heads", num_key_value_heads=3)
    case("heads_do_not_divide", "num_attention_heads: 3 does not divide hidden_size 4", num_attention_heads=3,
         num_key_value_heads=3, head_dim=...)
    case("head_dim_odd", "head_dim: head dimension 3 is not even", head_dim=3)
    case("head_dim_odd_by_division", "num_attention_heads: head dimension 1 is not even", num_attention_heads=4,
         head_dim=...)
    case("head_dim_huge", "head_dim: 2048 is not in 1 to 1024", head_dim=2048)
    case("context_zero", "max_position_embeddings: 0 is not in", max_position_embeddings=0)
    case("eps_zero", "rms_norm_eps: 0 is not in (0, 0.1]", rms_norm_eps=0)
    case("eps_one", "rms_norm_eps: 1 is not in (0, 0.1]", rms_norm_eps=1)
    case("eps_text", 'rms_norm_eps: is "x", a number expected', rms_norm_eps="x")
    case("eps_too_small", "rms_norm_eps: 1e-60 is 0 as a float", rms_norm_eps=1e-60)


def variants():
    def not_built(name, contains, **keys):
        case(name, contains, UNSUPPORTED, **keys)

    not_built("two_layers", "num_hidden_layers: 2; an EAGLE-3 head has 1", num_hidden_layers=2)
    not_built("no_taps", "eagle_config/use_aux_hidden_state: false", eagle_config={"use_aux_hidden_state": False})
    not_built("normed_residual", "norm_before_residual: true: the residual", norm_before_residual=True)
    not_built("normed_residual_nested", "eagle_config/norm_before_residual: true",
              eagle_config={"norm_before_residual": True, IDS: [1, 5, 8]})
    not_built("projection_before_attention", "eagle_config/eh_proj_before_attn: true",
              eagle_config={"eh_proj_before_attn": True, IDS: [1, 5, 8]})
    for key, value in (("use_input_layernorm_in_first_layer", False), ("use_last_layernorm", False), ("use_mtp_layernorm", True)):
        not_built(key, "eagle_config/%s: %s: " % (key, str(value).lower()), eagle_config={key: value, IDS: [1, 5, 8]})
    not_built("parallel_draft", "eagle_config/parallel_draft_step: 4; a head here drafts one token",
              eagle_config={"parallel_draft_step": 4, IDS: [1, 5, 8]})
    not_built("gelu", "hidden_act: gelu\\x0a (silu is built)", hidden_act="gelu\n")
    not_built("partial_rotary", "partial_rotary_factor: 0.5 (1 is built)", partial_rotary_factor=0.5)
    not_built("logit_scale", "logit_scale: 0.25 (1 is built)", logit_scale=0.25)
    not_built("sliding_window", "use_sliding_window: true", use_sliding_window=True)
    not_built("sliding_layer", "layer_types: sliding_attention", layer_types=["sliding_attention"])
    not_built("quantised", "quantization_config: quantised heads are not read", quantization_config={"bits": 4})
    not_built("speculators", "speculators_model_type: a config of the speculators library", speculators_model_type="eagle3")
    not_built("speculators_nested", "transformer_layer_config: a config of the speculators library",
              transformer_layer_config={})
    not_built("four_taps_by_number", "num_aux_hidden_states: 4 (3 taps are built)", num_aux_hidden_states=4)
    not_built("two_taps", "eagle_config/%s: [1, 5] (3 taps are built)" % IDS, eagle_config={IDS: [1, 5]})
    not_built("four_taps", "eagle_config/%s: [1, 5, 8, 9] (3 taps" % IDS, eagle_config={IDS: [1, 5, 8, 9]})
    case("flag_text", 'fc_norm: is "yes", true or false expected', fc_norm="yes")
    case("flags_differ", "eagle_config/fc_norm: is true, but fc_norm is false", fc_norm=False,
         eagle_config={"fc_norm": True, IDS: [1, 5, 8]})
    case("tie_text", 'tie_word_embeddings: is "no", true or false expected', tie_word_embeddings="no")


def taps():
    def ids(name, contains, values, code=CORRUPT):
        case("ids_" + name, "eagle_config/%s%s" % (IDS, contains), code, eagle_config={IDS: values})

    ids("output_too_deep", ": 12 in [1, 5, 12] is not in 0 to 11 (outputs of a target's layers; it has 12)", [1, 5, 12])
    ids("boundary_too_deep", ": 13 in [2, 6, 13] is not in 1 to 12 (boundaries of a target's layers; it has 12)", [2, 6, 13])
    ids("of_another_model", ": 14 in [1, 14, 26] is not in 0 to 11",
        [1, 14, 26])
    ids("embedding", ": 0 in [0, 5, 8] is not in 1 to 12", [0, 5, 8])
    ids("twice", ": 5 twice in [1, 5, 5]", [1, 5, 5])
    ids("negative", "[1]: -5 is not in 0 to 1024", [1, -5, 8])
    ids("text", '[0]: is "1", an integer expected', ["1", 5, 8])
    ids("float", "[2]: is 8, an integer expected", [1, 5, 8.0])
    ids("huge", "[2]: 4294967296 is not in 0 to 1024", [1, 5, 2**32])
    ids("number", ": is 1, an array expected", 1)
    ids("nested", "[0]: is an array, an integer expected", [[1], 5, 8])
    case("ids_differ", "eagle_config/%s: [1, 5, 8], but %s is [1, 5, 9]" % (IDS, IDS), **{IDS: [1, 5, 9]})
    case("ids_number_text", 'num_aux_hidden_states: is "3", an integer expected', num_aux_hidden_states="3")


def rope():
    case("theta_zero", "rope_theta: 0 is not in (0, 1000000000000]", rope_theta=0)
    case("theta_small", "rope_theta: 0.5 is less than 1", rope_theta=0.5)
    case("theta_in_parameters", "rope_parameters/rope_theta: is \"x\", a number", rope_parameters={"rope_theta": "x"})
    case("rope_yarn", "rope_scaling/rope_type: yarn (default, linear and llama3 are built)", UNSUPPORTED,
         rope_scaling={"rope_type": "yarn", "factor": 4.0})
    case("rope_dynamic", "rope_scaling/type: dynamic (default", UNSUPPORTED, rope_scaling={"type": "dynamic", "factor": 2})
    case("rope_parameters_longrope", "rope_parameters/rope_type: longrope (default", UNSUPPORTED,
         rope_parameters={"rope_type": "longrope"})
    case("rope_no_type", "rope_scaling: a factor without rope_type", rope_scaling={"factor": 2.0})
    case("rope_type_number", "rope_scaling/type: is 1, a string expected", rope_scaling={"type": 1})
    case("linear_no_factor", "rope_scaling/factor: missing", MISSING, rope_scaling={"type": "linear"})
    case("linear_zero", "rope_scaling/factor: 0 is not in (0, 1000000]", rope_scaling={"type": "linear", "factor": 0})
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 8192}
    for key in list(llama3)[1:]:
        case("llama3_no_" + key, "rope_scaling/%s: missing" % key, MISSING,
             rope_scaling={k: v for k, v in llama3.items() if k != key})
    case("llama3_reversed", "rope_scaling/high_freq_factor: 1 is not above low_freq_factor 1",
         rope_scaling=dict(llama3, high_freq_factor=1.0))


def tensor_faults():
    def fault(name, contains, weights, code=CORRUPT, config=None):
        add("tensor_" + name, config, weights, code, contains)

    for name, (dtype, shape, _) in tensors().items():
        if dtype != "BF16":
            continue
        short = name.removesuffix(".weight").replace(".", "_")
        without = {n: t for n, t in tensors().items() if n != name}
        fault("missing_" + short, "tensor %s: missing" % name, without, MISSING)
        wide = shape[:-1] + [shape[-1] + 1]
        fault("wide_" + short, "tensor %s: shape [%s], [%s] expected" % (name, str(wide)[1:-1], str(shape)[1:-1]),
              dict(tensors(), **{name: floats(wide)}))
    fault("rank_3", "tensor fc.weight: shape [1, 4, 12], [4, 12] expected", dict(tensors(), **{"fc.weight": floats([1, 4, 12])}))
    fault("norm_as_row", "tensor norm.weight: shape [1, 4], [4] expected", dict(tensors(), **{"norm.weight": floats([1, 4])}))
    fault("of_integers", "tensor norm.weight: type I32, F32 or F16 or BF16 expected",
          dict(tensors(), **{"norm.weight": integers([1] * 4, "I32")}), UNSUPPORTED)
    fault("of_eight_bits", "tensor lm_head.weight: type F8_E4M3, F32", dict(tensors(), **{
        "lm_head.weight": ["F8_E4M3", [VD, H], b"\0" * VD * H]}), UNSUPPORTED)
    fault("eagle_1", "tensor fc.weight: shape [4, 8] is that of an EAGLE-1 or EAGLE-2 head, EAGLE-3 has [4, 12]",
          dict(tensors(), **{"fc.weight": floats([H, 2 * H])}), UNSUPPORTED)
    for name in ("midlayer.self_attn.o_proj.bias", "midlayer.self_attn.q_norm.weight", "midlayer.mlp.up_proj.bias",
                 "layers.1.hidden_norm.weight", "mask_hidden", "norm.bias", "model.model.norm.weight", "fc_norm.3.weight"):
        fault("unknown_" + name.replace(".", "_"), "tensor %s: no EAGLE-3 head here has it" % name,
              dict(tensors(), **{name: floats([H])}), UNSUPPORTED)
    fault("unknown_control", "tensor x\\x1b[2J: no EAGLE-3 head", dict(tensors(), **{"x\x1b[2J": floats([H])}), UNSUPPORTED)
    fault("two_names_of_a_layer", "tensor layers.0.hidden_norm.weight: also there as midlayer.hidden_norm.weight",
          dict(tensors(), **{"layers.0.hidden_norm.weight": floats([H])}))
    fault("two_prefixes", "tensor model.norm.weight: also there as norm.weight",
          dict(tensors(), **{"model.norm.weight": floats([H])}))
    fault("embedding_narrow", "tensor embed_tokens.weight: shape [6, 3], [6, 4] expected",
          dict(tensors(), **{"embed_tokens.weight": floats([V, 3])}))
    fault("embedding_short", "tensor embed_tokens.weight: shape [4, 4], [6, 4] expected",
          dict(tensors(), **{"embed_tokens.weight": floats([VD, H])}))
    fault("no_embedding_for_another_width", "tensor embed_tokens.weight: missing, and the target's rows of 4 do not fit a "
          "head of hidden size 8", tensors(h=8), MISSING, changed(hidden_size=8, target_hidden_size=4))
    fault("whole_vocab_without_output_for_another_width", "tensor lm_head.weight: missing, and the target's [6, 4] does not "
          "fit a head of [6, 8]", dict({n: t for n, t in tensors(h=8).items() if n not in ("d2t", "t2d", "lm_head.weight")},
                                       **{"embed_tokens.weight": floats([V, 8])}), MISSING,
          changed(hidden_size=8, target_hidden_size=4, draft_vocab_size=None))
    fault("turned_vocab_without_output", "does not fit a head of [6, 4] with a map d2t",
          dict({n: t for n, t in tensors().items() if n not in ("t2d", "lm_head.weight")},
               d2t=integers([1, 1, 1, 1, 1, -5])), MISSING, changed(draft_vocab_size=None))
    fault("fc_norm_not_asked_for", "tensor fc_norm.1.weight: is there, but fc_norm of config.json is not true",
          dict(tensors(), **{"fc_norm.1.weight": floats([HT])}))
    fault("fc_norm_one_missing", "tensor fc_norm.2.weight: missing",
          dict(tensors(), **{"fc_norm.%d.weight" % i: floats([HT]) for i in range(2)}), MISSING, changed(fc_norm=True))
    fault("input_norm_not_asked_for", "tensor input_norm.weight: is there, but norm_before_fc of config.json is not true",
          dict(tensors(), **{"input_norm.weight": floats([3 * HT])}))
    fault("input_norm_missing", "tensor input_norm.weight: missing", None, MISSING, changed(norm_before_fc=True))
    fault("input_norm_of_one_tap", "tensor input_norm.weight: shape [4], [12] expected",
          dict(tensors(), **{"input_norm.weight": floats([HT])}), CORRUPT, changed(norm_before_fc=True))
    fault("one_bias_of_three", "tensor midlayer.self_attn.k_proj.bias: missing",
          dict(tensors(), **{LAYER + "self_attn.q_proj.bias": floats([Q])}), MISSING)
    fault("bias_short", "tensor fc.bias: shape [3], [4] expected", dict(tensors(), **{"fc.bias": floats([3])}))
    for label, bits in (("nan", 0x7fc0), ("inf", 0x7f80), ("minus_inf", 0xff80)):
        for name in ("norm.weight", "lm_head.weight"):
            dtype, shape, raw = tensors()[name]
            bad = [dtype, shape, raw[:4] + struct.pack("<H", bits) + raw[6:]]
            fault("%s_in_%s" % (label, name.split(".")[0]), "tensor %s: element 2 is %s" % (name, label.replace("minus_", "-")),
                  dict(tensors(), **{name: bad}))


def vocabulary():
    def fault(name, contains, code=CORRUPT, **weights):
        kept = {n: t for n, t in dict(tensors(), **weights).items() if t is not ...}
        add("map_" + name, None, kept, code, contains)

    fault("missing", "tensor d2t: missing, though draft_vocab_size 4 is less than vocab_size 6", MISSING, d2t=...)
    fault("short", "tensor d2t: shape [3], [4] expected", d2t=integers([0, 0, 1]))
    fault("of_floats", "tensor d2t: type F32, I64 or I32 expected", UNSUPPORTED, d2t=floats([VD], "F32"))
    fault("above", "tensor d2t: element 3 is 3: no token of the target's 0 to 5", d2t=integers([0, 0, 1, 3]), t2d=...)
    fault("below", "tensor d2t: element 1 is -2: no token of", d2t=integers([0, -2, 1, 2]), t2d=...)
    fault("most", "tensor d2t: element 0 is 9223372036854775807: no token", d2t=integers([2**63 - 1, 0, 1, 2]))
    fault("least", "tensor d2t: element 3 is -9223372036854775808: no token", d2t=integers([0, 0, 1, -2**63]))
    fault("ids_for_differences", "tensor d2t: element 3 is 5: no token", d2t=integers([0, 1, 3, 5]), t2d=...)
    fault("token_twice", "tensor d2t: elements 0 and 2 are both token 0", d2t=integers([0, 0, -2, 2]))
    fault("never_made", "tensor t2d: element 0 is 0, but d2t has token 0", d2t=integers([0] * 4), t2d=bools([0] * 6))
    fault("t2d_has_more", "tensor t2d: element 2 is 1, but d2t does not have token 2", t2d=bools([1, 1, 1, 1, 0, 1]))
    fault("t2d_has_less", "tensor t2d: element 5 is 0, but d2t has token 5", t2d=bools([1, 1, 0, 1, 0, 0]))
    fault("t2d_short", "tensor t2d: shape [5], [6] expected", t2d=bools([1, 1, 0, 1, 0]))
    fault("t2d_bytes", "tensor t2d: type U8, BOOL expected", UNSUPPORTED, t2d=bools([1, 1, 0, 1, 0, 1], "U8"))
    fault("t2d_two", "tensor t2d: element 1 is 2, 0 or 1 expected", t2d=bools([1, 2, 0, 1, 0, 1]))


def folders():
    good = {"config.json": json.dumps(CONFIG), "model.safetensors": model([(n, *t) for n, t in tensors().items()])}
    add("folder_no_config", files={"model.safetensors": good["model.safetensors"]}, code=MISSING,
        contains="config.json: No such file or directory")
    add("folder_no_tensors", files={"config.json": good["config.json"]}, code=MISSING, contains="no *.safetensors file")
    add("folder_pickle", files={"config.json": good["config.json"], "pytorch_model.bin": b"x"}, code=MISSING,
        contains="pytorch_model.bin is not read; convert it: ")
    add("folder_cut", files=dict(good, **{"model.safetensors": good["model.safetensors"][:-1]}), code=CORRUPT,
        contains="model.safetensors: ")
    add("folder_empty_tensors", files=dict(good, **{"model.safetensors": model([])}), code=MISSING,
        contains="tensor fc.weight: missing")
    for name, text, contains in (("cut", '{"hidden_size": 4', "not valid JSON"), ("array", "[]", "is not a JSON object"),
                                 ("twice", '{"hidden_size": 4, "hidden_size": 4}', "key hidden_size: twice"),
                                 ("empty", "", "not valid JSON")):
        add("folder_config_" + name, files=dict(good, **{"config.json": text}), code=CORRUPT,
            contains="config.json: " + contains)
    add("folder_shard_missing", files={"config.json": good["config.json"], "model.safetensors.index.json": json.dumps(
        {"weight_map": {"fc.weight": "model-00001-of-00001.safetensors"}})}, code=MISSING,
        contains="(shard with tensor fc.weight)")


def main():
    legal()
    sizes()
    variants()
    taps()
    rope()
    tensor_faults()
    vocabulary()
    folders()
    corpus_writer.write(OUT, FILES, ENTRIES)


if __name__ == "__main__":
    main()
