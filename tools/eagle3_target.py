"""The target model of tools/train_eagle3.py in PyTorch: whole texts at once, and many streams a token at a time.

Shapes: B texts of L tokens, N = B * L rows, S streams, H heads, K key-value heads, D head size. Rows are kept flat, so all
        but attention has one shape whatever B and L are, and is compiled once.
Numbers: bf16 on a GPU, float32 where asked for; logits are always float32, since bf16 ties would decide an argmax.
"""
import math

import torch
import torch.nn.functional as F

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None


def rms_norm(x, weight, eps):
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps) * weight).to(x.dtype)


def rope(x, cos, sin):
    """x [rows, heads, D]; cos, sin [rows, D / 2]. Turns the pairs (i, i + D / 2)."""
    a, b = x.float().chunk(2, dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


def rope_table(length, head_dim, theta, device):
    angle = torch.arange(length, dtype=torch.float64)[:, None] * theta ** (
        -torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    return angle.cos().float().to(device), angle.sin().float().to(device)


def logits_f32(hidden, weight):
    """[rows, outputs] float32 of bf16 or float32 operands."""
    if hidden.is_cuda and hidden.dtype == torch.bfloat16:
        return torch.mm(hidden, weight.t(), out_dtype=torch.float32)
    return hidden.float() @ weight.float().t()


def before_attention(x, layer, cos, sin, c):
    """Normed, projected and turned: q [rows, H, D], k and v [rows, K, D]."""
    qkv = F.linear(rms_norm(x, layer["attn_norm"], c.eps), layer["qkv"], layer["qkv_bias"])
    q, k, v = qkv.view(x.shape[0], -1, c.head_dim).split([c.heads, c.kv_heads, c.kv_heads], dim=1)
    if layer["q_norm"] is not None:
        q, k = rms_norm(q, layer["q_norm"], c.eps), rms_norm(k, layer["k_norm"], c.eps)
    return rope(q, cos, sin), rope(k, cos, sin), v.contiguous()


def after_attention(x, mixed, layer, c):
    x = x + F.linear(mixed, layer["o"])
    gate, up = F.linear(rms_norm(x, layer["ffn_norm"], c.eps), layer["gate_up"]).chunk(2, dim=-1)
    return x + F.linear(F.silu(gate) * up, layer["down"])


class Target:
    """Frozen weights. `compiled` fuses what lies between the matrix products; it pays only for many rows."""

    def __init__(self, weights, config, device, dtype, max_len, compiled=False):
        self.c, self.device, self.dtype, self.max_len = config, device, dtype, max_len

        def move(name, kind=dtype):
            return weights[name].to(device, kind) if name in weights else None

        self.layers = []
        for i in range(config.layers):
            def w(part, kind=dtype):
                return move(f"blk.{i}.{part}", kind)
            biases = [w(f"attn_{p}.bias") for p in "qkv"]
            self.layers.append({
                "attn_norm": w("attn_norm.weight", torch.float32), "ffn_norm": w("ffn_norm.weight", torch.float32),
                "qkv": torch.cat([w(f"attn_{p}.weight") for p in "qkv"]), "o": w("attn_output.weight"),
                "qkv_bias": torch.cat(biases) if biases[0] is not None else None,
                "q_norm": w("attn_q_norm.weight", torch.float32), "k_norm": w("attn_k_norm.weight", torch.float32),
                "gate_up": torch.cat([w("ffn_gate.weight"), w("ffn_up.weight")]), "down": w("ffn_down.weight")})
        self.embedding = move("token_embd.weight")
        self.output = self.embedding if weights["output.weight"] is weights["token_embd.weight"] else move(
            "output.weight")
        self.output_norm = move("output_norm.weight", torch.float32)
        self.cos, self.sin = rope_table(max_len + 16, config.head_dim, config.rope_theta, device)
        self.taps = (1, config.layers // 2 - 1, config.layers - 4)
        self.before, self.after = before_attention, after_attention
        if compiled:
            self.before = torch.compile(before_attention, dynamic=False)
            self.after = torch.compile(after_attention, dynamic=False)

    @torch.no_grad()
    def features(self, ids, batch, length):
        """ids [rows >= batch * length], the rest padding. Returns the taps side by side [rows, 3 * dim] and the normed
        last hidden state [rows, dim]."""
        c, rows, used = self.c, ids.shape[0], batch * length
        position = torch.arange(rows, device=ids.device) % length
        cos, sin = self.cos[position], self.sin[position]
        x = F.embedding(ids, self.embedding)
        taps = []
        for i, layer in enumerate(self.layers):
            q, k, v = (t[:used].view(batch, length, -1, c.head_dim).transpose(1, 2)
                       for t in self.before(x, layer, cos, sin, c))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=c.heads != c.kv_heads)
            mixed = mixed.transpose(1, 2).reshape(used, -1)
            if used < rows:
                mixed = F.pad(mixed, (0, 0, 0, rows - used))
            x = self.after(x, mixed, layer, c)
            if i in self.taps:
                taps.append(x)
        return torch.cat(taps, dim=-1), rms_norm(x, self.output_norm, c.eps)


if triton:
    @triton.jit
    def _decode_attention(q_ptr, k_ptr, v_ptr, out_ptr, length_ptr, scale, MAX_LEN: tl.constexpr, K: tl.constexpr,
                          GROUP: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
        """One program a stream and key-value head; the query heads that share it are the rows of a small product."""
        stream, head = tl.program_id(0), tl.program_id(1)
        length = tl.load(length_ptr + stream)
        rows, dims = tl.arange(0, 16), tl.arange(0, D)
        at = ((stream * K + head) * GROUP + rows[:, None]) * D + dims[None, :]
        inside = (rows < GROUP)[:, None] & (dims >= 0)[None, :]
        q = tl.load(q_ptr + at, mask=inside, other=0.0)
        base = (stream * K + head).to(tl.int64) * MAX_LEN * D
        most = tl.full([16], -1e30, tl.float32)
        total = tl.zeros([16], tl.float32)
        acc = tl.zeros([16, D], tl.float32)
        for start in range(0, length, BLOCK):
            keys = start + tl.arange(0, BLOCK)
            cell = base + keys[:, None] * D + dims[None, :]
            valid = keys < length
            k = tl.load(k_ptr + cell, mask=valid[:, None], other=0.0)
            v = tl.load(v_ptr + cell, mask=valid[:, None], other=0.0)
            score = tl.where(valid[None, :], tl.dot(q, tl.trans(k)) * scale, -1e30)
            peak = tl.maximum(most, tl.max(score, axis=1))
            shrink = tl.exp(most - peak)
            weight = tl.exp(score - peak[:, None])
            total = total * shrink + tl.sum(weight, axis=1)
            acc = acc * shrink[:, None] + tl.dot(weight.to(v.dtype), v)
            most = peak
        tl.store(out_ptr + at, (acc / total[:, None]).to(out_ptr.dtype.element_ty), mask=inside)


def decode_attention(q, keys, values, length):
    """q [S, H, D] of the newest token, keys and values [S, K, MAX_LEN, D], length [S] tokens each stream holds."""
    streams, heads, d = q.shape
    kv_heads, max_len = keys.shape[1:3]
    group = heads // kv_heads
    if q.is_cuda and triton and group <= 16 and d & (d - 1) == 0 and q.dtype == torch.bfloat16:
        q, out = q.contiguous(), torch.empty_like(q)
        _decode_attention[(streams, kv_heads)](q, keys, values, out, length, 1 / math.sqrt(d), max_len, kv_heads, group,
                                               d, 64, num_warps=2)
        return out
    reach = int(length.max())
    mask = (torch.arange(reach, device=q.device)[None] < length[:, None])[:, None, None]
    out = F.scaled_dot_product_attention(q.view(streams, kv_heads, group, d), keys[:, :, :reach], values[:, :, :reach],
                                         attn_mask=mask)
    return out.reshape(streams, heads, d)


class Decoder:
    """S streams with a kv cache each; every stream is at its own position."""

    def __init__(self, target, streams, max_len):
        c = target.c
        self.target, self.streams = target, streams
        shape = (streams, c.kv_heads, max_len, c.head_dim)
        self.keys = [torch.zeros(shape, device=target.device, dtype=target.dtype) for _ in range(c.layers)]
        self.values = [torch.zeros(shape, device=target.device, dtype=target.dtype) for _ in range(c.layers)]
        self.rows = torch.arange(streams, device=target.device)[:, None]
        self.heads = torch.arange(c.kv_heads, device=target.device)[None]

    @torch.no_grad()
    def step(self, ids, position):
        """Feeds ids [S] at position [S]; returns logits [S, vocabulary] of the tokens that follow, float32."""
        t = self.target
        c = t.c
        cos, sin = t.cos[position], t.sin[position]
        length, cell = (position + 1).to(torch.int32), position[:, None]
        x = F.embedding(ids, t.embedding)
        for layer, keys, values in zip(t.layers, self.keys, self.values):
            q, k, v = t.before(x, layer, cos, sin, c)
            keys[self.rows, self.heads, cell] = k
            values[self.rows, self.heads, cell] = v
            x = t.after(x, decode_attention(q, keys, values, length).view(self.streams, -1), layer, c)
        return logits_f32(rms_norm(x, t.output_norm, c.eps), t.output)
