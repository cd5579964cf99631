"""The EAGLE-3 draft head: the published forward pass, attention of the training-time test, and the published file format.

A pair k joins the target's features of position k with the embedding of the token at k + 1; its rope position is k and it
proposes the token at k + 2. A draft step that has no features of the target feeds back the head's own hidden state.

Shapes: N rows, H heads, K key-value heads, D head size, V_d draft vocabulary, dim hidden size
"""
import json
import shutil
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from eagle3_target import rms_norm, rope

SHARD_BYTES = 12 << 20


def linear(x, layer):
    """Master weights are float32; the product runs in x's type."""
    return F.linear(x, layer.weight.to(x.dtype))


class RmsNorm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        return rms_norm(x, self.weight, self.eps)


def matrix(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.q_proj = matrix(2 * c.dim, c.heads * c.head_dim)
        self.k_proj = matrix(2 * c.dim, c.kv_heads * c.head_dim)
        self.v_proj = matrix(2 * c.dim, c.kv_heads * c.head_dim)
        self.o_proj = matrix(c.heads * c.head_dim, c.dim)


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = matrix(c.dim, c.ffn), matrix(c.dim, c.ffn), matrix(c.ffn, c.dim)

    def forward(self, x):
        return linear(F.silu(linear(x, self.gate_proj)) * linear(x, self.up_proj), self.down_proj)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm, self.hidden_norm = RmsNorm(c.dim, c.eps), RmsNorm(c.dim, c.eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RmsNorm(c.dim, c.eps)
        self.mlp = Mlp(c)


class Eagle3Head(nn.Module):
    """Names of the parameters are those of the published files. One step is

        g = fuse(features), or the hidden state of the step before
        q, k, v = before_attention(embedding of the next token, g, cos, sin)
        hidden, normed = after_attention(g, attention over the head's own keys and values)
        logits = normed @ lm_head.weight.T          over the draft vocabulary; d2t maps it to the target's
    """

    def __init__(self, config, draft_vocab):
        super().__init__()
        self.c = config
        self.fc = matrix(3 * config.dim, config.dim)
        self.midlayer = Layer(config)
        self.norm = RmsNorm(config.dim, config.eps)
        self.lm_head = matrix(config.dim, draft_vocab)
        self.register_buffer("draft_ids", torch.zeros(draft_vocab, dtype=torch.int64))  # target id of each draft id

    def fuse(self, features):
        return linear(features, self.fc)

    def before_attention(self, embedding, g, cos, sin):
        c, layer = self.c, self.midlayer
        x = torch.cat([layer.input_layernorm(embedding), layer.hidden_norm(g)], dim=-1)
        q = linear(x, layer.self_attn.q_proj).view(-1, c.heads, c.head_dim)
        k = linear(x, layer.self_attn.k_proj).view(-1, c.kv_heads, c.head_dim)
        v = linear(x, layer.self_attn.v_proj).view(-1, c.kv_heads, c.head_dim)
        return rope(q, cos, sin), rope(k, cos, sin), v

    def after_attention(self, g, mixed):
        layer = self.midlayer
        hidden = g + linear(mixed, layer.self_attn.o_proj)      # the residual is g before its norm
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return hidden, self.norm(hidden)                        # the hidden state fed back is the one before the norm

    @torch.no_grad()
    def start_from(self, weights):
        """The target's last layer and output rows: from there the head has only to learn how to do with less."""
        c, last = self.c, f"blk.{self.c.layers - 1}."
        self.lm_head.weight.copy_(weights["output.weight"][self.draft_ids])
        self.norm.weight.copy_(weights["output_norm.weight"])
        # The layer's own outputs are small beside the residual stream that they were made for. What follows is all behind
        # norms, so a smaller stream changes nothing but how soon the layer can turn it.
        self.fc.weight.mul_(0.02)
        self.fc.weight[:, 2 * c.dim:] += 0.1 * torch.eye(c.dim)
        layer, attn = self.midlayer, self.midlayer.self_attn
        layer.hidden_norm.weight.copy_(weights[last + "attn_norm.weight"])
        layer.post_attention_layernorm.weight.copy_(weights[last + "ffn_norm.weight"])
        for part, target in (("q", attn.q_proj), ("k", attn.k_proj), ("v", attn.v_proj)):
            target.weight.mul_(0.2)
            target.weight[:, c.dim:] += weights[last + f"attn_{part}.weight"]
        attn.o_proj.weight.copy_(weights[last + "attn_output.weight"])
        for part in ("gate", "up", "down"):
            getattr(layer.mlp, f"{part}_proj").weight.copy_(weights[last + f"ffn_{part}.weight"])


# Attention of step i at pair t: the keys of step 0 up to t, and of the steps 1..i only the ones made at t itself.

def _flash(q, k, v):
    """Causal attention, [B, L, H, D] each. Returns it, the log-sum-exp [B, L, H], and what the backward pass wants."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    if q.is_cuda:
        r = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True, False)
        return r[0].transpose(1, 2), r[1].transpose(1, 2), r[2:8]
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)
    return out.transpose(1, 2), lse.transpose(1, 2), None


def _flash_backward(grad, q, k, v, out, lse, extra):
    grad, q, k, v, out = (t.transpose(1, 2) for t in (grad, q, k, v, out))
    lse = lse.transpose(1, 2).contiguous()
    if extra is not None:
        cum_q, cum_k, max_q, max_k, seed, offset = extra
        grads = torch.ops.aten._scaled_dot_product_flash_attention_backward(
            grad, q, k, v, out, lse, cum_q, cum_k, max_q, max_k, 0.0, True, seed, offset)
    else:
        grads = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q, k, v, out, lse, 0.0, True)
    return tuple(g.transpose(1, 2) for g in grads)


def _grouped(x, kv_heads):
    return x.float().unflatten(1, (kv_heads, -1))


def _join(q, out, lse, own_k, own_v):
    """Adds the keys of the pair itself, [steps, N, K, D], to a causal attention that knows its log-sum-exp [N, H]."""
    kv_heads = own_k.shape[2]
    query = _grouped(q, kv_heads)                                                  # [N, K, group, D]
    score = (query * own_k.float()[:, :, :, None]).sum(-1).flatten(2) * q.shape[-1] ** -0.5      # [steps, N, H]
    total = torch.logaddexp(lse, torch.logsumexp(score, dim=0))
    share = torch.exp(score - total)
    own = (_grouped(share.movedim(0, -1), kv_heads)[..., None] * own_v.float().movedim(0, 2)[:, :, None]).sum(3)
    return (out.float() * torch.exp(lse - total)[..., None] + own.flatten(1, 2)).to(q.dtype), total


def _join_backward(grad, q, out, lse, own_k, own_v):
    kv_heads, scale = own_k.shape[2], q.shape[-1] ** -0.5
    query, grad = _grouped(q, kv_heads), _grouped(grad, kv_heads)
    keys, values = own_k.float()[:, :, :, None], own_v.float()[:, :, :, None]      # [steps, N, K, 1, D]
    share = torch.exp((query * keys).sum(-1) * scale - lse.unflatten(1, (kv_heads, -1)))         # [steps, N, K, group]
    mean = (grad * _grouped(out, kv_heads)).sum(-1)
    grad_score = share * ((grad * values).sum(-1) - mean) * scale
    grad_q = (grad_score[..., None] * keys).sum(0).flatten(1, 2)
    grad_k = (grad_score[..., None] * query).sum(3)
    grad_v = (share[..., None] * grad).sum(3)
    return grad_q, grad_k.to(q.dtype), grad_v.to(q.dtype)


class TttAttention(torch.autograd.Function):
    """q [N, H, D], k0, v0 [N, K, D], own_k, own_v [steps >= 1, N, K, D]; the first batch * length rows are in use. The
    backward pass of flash attention needs only the output and the log-sum-exp of a row; given the joined ones it returns
    the gradients of the joined softmax for its own keys, and those of the pair's own keys are element-wise products."""
    join, join_backward = staticmethod(_join), staticmethod(_join_backward)

    @staticmethod
    def _fold(x, heads, batch, length):
        x = x[:batch * length].view(batch, length, -1, x.shape[-1])
        return x if x.shape[2] == heads else x.repeat_interleave(heads // x.shape[2], dim=2)

    @staticmethod
    def _flat(x, rows):
        x = x.reshape(-1, *x.shape[2:])
        return F.pad(x, (0, 0) * (x.dim() - 1) + (0, rows - x.shape[0])) if x.shape[0] < rows else x

    @staticmethod
    def forward(ctx, q, k0, v0, own_k, own_v, batch, length):
        rows, heads = q.shape[:2]
        folded = [TttAttention._fold(t, heads, batch, length) for t in (q, k0, v0)]
        out, lse, ctx.extra = _flash(*folded)
        out, lse = TttAttention._flat(out, rows), TttAttention._flat(lse, rows)
        out, lse = TttAttention.join(q, out, lse, own_k, own_v)
        ctx.save_for_backward(q, k0, v0, own_k, own_v, out, lse)
        ctx.shape = batch, length
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k0, v0, own_k, own_v, out, lse = ctx.saved_tensors
        rows, heads = q.shape[:2]
        grad = grad.contiguous()
        fold = [TttAttention._fold(t, heads, *ctx.shape) for t in (grad, q, k0, v0, out)]
        used = ctx.shape[0] * ctx.shape[1]
        grads = _flash_backward(*fold, lse[:used].view(*ctx.shape, heads), ctx.extra)
        grad_q, grad_k0, grad_v0 = (TttAttention._flat(g, rows) for g in grads)
        grad_k0, grad_v0 = (g.unflatten(1, (k0.shape[1], -1)).sum(2) for g in (grad_k0, grad_v0))
        more, grad_own_k, grad_own_v = TttAttention.join_backward(grad, q, out, lse, own_k, own_v)
        return (grad_q.float() + more).to(q.dtype), grad_k0, grad_v0, grad_own_k, grad_own_v, None, None


def ttt_attention(q, keys, values, batch, length):
    """q [N, H, D] of the last step; keys, values: one [N, K, D] a step, step 0 first. Returns [N, H * D]."""
    rows, heads = q.shape[:2]
    if len(keys) == 1:
        q, k, v = (TttAttention._fold(t, heads, batch, length).transpose(1, 2) for t in (q, keys[0], values[0]))
        out = TttAttention._flat(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2), rows)
    else:
        out = TttAttention.apply(q, keys[0], values[0], torch.stack(keys[1:]), torch.stack(values[1:]), batch, length)
    return out.flatten(1)


# Files.

def write_head(head, folder, config_extra, card):
    """safetensors in shards with an index, config.json and README.md, under the published names. Written beside and then
    moved, so `folder` never holds half a head."""
    from safetensors.torch import save_file
    folder = Path(folder)
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    c, draft_ids = head.c, head.draft_ids.cpu()
    tensors = {name: p.detach().to("cpu", torch.bfloat16).contiguous() for name, p in head.named_parameters()}
    tensors["d2t"] = draft_ids - torch.arange(len(draft_ids))
    tensors["t2d"] = torch.zeros(c.vocab, dtype=torch.bool).index_fill_(0, draft_ids, True)
    shards, size = [[]], 0
    for name in sorted(tensors):
        num_bytes = tensors[name].numel() * tensors[name].element_size()
        if size and size + num_bytes > SHARD_BYTES:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += num_bytes
    index = {"metadata": {"total_size": sum(t.numel() * t.element_size() for t in tensors.values())}, "weight_map": {}}
    for i, names in enumerate(shards):
        file = "model.safetensors" if len(shards) == 1 else f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        save_file({name: tensors[name] for name in names}, fresh / file, metadata={"format": "pt"})
        (fresh / file).chmod(0o644)
        index["weight_map"].update({name: file for name in names})
    if len(shards) > 1:
        (fresh / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    config = {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": c.dim, "intermediate_size": c.ffn, "num_hidden_layers": 1,
        "num_attention_heads": c.heads, "num_key_value_heads": c.kv_heads, "head_dim": c.head_dim,
        "rms_norm_eps": float(f"{c.eps:.6g}"), "rope_theta": c.rope_theta, "max_position_embeddings": c.context,
        "vocab_size": c.vocab, "draft_vocab_size": len(draft_ids), "tie_word_embeddings": False,
        "torch_dtype": "bfloat16", "attention_bias": False, "mlp_bias": False, **config_extra}
    (fresh / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (fresh / "README.md").write_text(card)
    old = folder.with_name(folder.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def read_head(folder, config):
    """A head as write_head left it; ValueError says what does not fit the target."""
    from safetensors.torch import load_file
    folder = Path(folder)
    settings = json.loads((folder / "config.json").read_text())
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors.update(load_file(file))
    for key, have in (("hidden_size", config.dim), ("vocab_size", config.vocab), ("head_dim", config.head_dim),
                      ("num_attention_heads", config.heads), ("num_key_value_heads", config.kv_heads)):
        if settings.get(key) != have:
            raise ValueError(f"{folder}/config.json: {key} is {settings.get(key)}, the target's is {have}")
    head = Eagle3Head(config, settings["draft_vocab_size"])
    draft_ids = tensors.pop("d2t") + torch.arange(settings["draft_vocab_size"])
    tensors.pop("t2d", None)
    head.load_state_dict({**{n: t.float() for n, t in tensors.items()}, "draft_ids": draft_ids})
    return head
