"""Training of an EAGLE-3 head: the chats, the loss of the training-time test, the optimiser and the loop.

Shapes: N rows of a batch (fixed), R rows with a loss, V_d draft vocabulary
Loss:   of step i at pair k, whose target is the target model's distribution after token k + 1 + i:
            (1 - mix) * KL(p || q) - mix * log sum min(p_t, q_t),     t = 0.5 in greedy answers, else 0.8
        The second term is the chance that a draft at temperature t is accepted. A step counts by the chance that the steps
        before it were accepted (at least `floor`), since a round that has failed does not care for what follows.
"""
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from eagle3_evaluate import Drafts, agreement
from eagle3_generate import GREEDY, shard_files
from eagle3_head import Eagle3Head, TttAttention, ttt_attention
from eagle3_target import logits_f32

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

HOLD_OUT = 256           # one chat in so many is never trained on
COUNT_STEP = 2048        # rows with a loss are filled up to a multiple, so that the allocator sees few sizes
MAX_PERIOD, MIN_RUN = 64, 24
EMA_DECAY = 0.999


def repeating_tail(ids, lengths):
    """[chats] how many tokens to keep: a text that ends in a loop (a period of at most MAX_PERIOD, three copies and
    MIN_RUN tokens or more) keeps two copies, so that the head sees how a loop begins and no more of it."""
    keep = lengths.clone()
    place = torch.arange(ids.shape[1], device=ids.device)
    for period in range(1, MAX_PERIOD + 1):
        differs = F.pad(ids[:, period:] != ids[:, :-period], (period, 0), value=True) & (place < lengths[:, None])
        last = torch.where(differs, place, -1).amax(1)
        loops = lengths - 1 - last >= max(2 * period, MIN_RUN)
        keep = torch.where(loops, torch.minimum(keep, last + 1 + period), keep)
    return keep


class Chats:
    """All chats of the shards on the device, cleaned: one of each user's turn, loops cut, prompts of the test left out."""

    def __init__(self, folder, prefix, max_len, device, banned=()):
        parts = [np.load(f) for f in shard_files(folder)]
        if not parts:
            raise ValueError(f"{folder}: no chats-*.npz here; run the stage generate first")
        flat, lengths, starts, modes = (np.concatenate([p[k] for p in parts]) for k in ("ids", "length", "start", "mode"))
        if (lengths > max_len).any():
            raise ValueError(f"{folder}: a chat of {lengths.max()} tokens, but --max-len is {max_len}")
        own = lengths - len(prefix)
        matrix = np.zeros((len(lengths), max_len), np.int32)
        matrix[:, :len(prefix)] = prefix
        matrix[:, len(prefix):][np.arange(max_len - len(prefix))[None] < own[:, None]] = flat
        self.generated, self.generated_tokens = len(lengths), int(lengths.sum())
        seen, kept = {bytes(np.asarray(b, np.int32)) for b in banned}, np.zeros(len(lengths), bool)
        for i, (row, start) in enumerate(zip(matrix, starts)):
            turn = row[len(prefix):start].tobytes()
            kept[i] = turn not in seen
            seen.add(turn)
        self.ids = torch.from_numpy(matrix[kept]).to(device)
        lengths = torch.from_numpy(lengths[kept]).to(device).long()
        lengths = torch.cat([repeating_tail(i, n) for i, n in zip(self.ids.split(1 << 16), lengths.split(1 << 16))])
        self.lengths, self.starts, self.modes = lengths.cpu().numpy(), starts[kept], modes[kept]
        usable = self.lengths - self.starts >= 4
        order = np.flatnonzero(usable)
        self.held_out, self.training = order[::HOLD_OUT], np.setdiff1d(order, order[::HOLD_OUT])
        self.answer_tokens = int((self.lengths - self.starts)[self.training].sum())

    def frequencies(self, vocab):
        """How often each token stands in an answer of the training chats."""
        count = torch.zeros(vocab, dtype=torch.int64, device=self.ids.device)
        place = torch.arange(self.ids.shape[1], device=self.ids.device)
        for rows in np.array_split(self.training, max(1, len(self.training) >> 14)):
            at = torch.from_numpy(rows).to(self.ids.device)
            begin = torch.from_numpy(self.starts[rows]).to(self.ids.device)[:, None]
            end = torch.from_numpy(self.lengths[rows]).to(self.ids.device)[:, None]
            count += torch.bincount(self.ids[at][(place >= begin) & (place < end)], minlength=vocab)
        return count

    def batches(self, rows, rng):
        """An epoch: chats of like length side by side, so that little is padding; in random order."""
        order = rng.permutation(self.training)
        order = order[np.argsort(-((self.lengths[order] + 7) // 8), kind="stable")]
        out, at = [], 0
        while at < len(order):
            length = int((self.lengths[order[at]] + 7) // 8 * 8)
            take = max(1, rows // length)
            if at + take > len(order):
                break                      # the shortest few wait for another epoch
            out.append((order[at:at + take], length))
            at += take
        return [out[i] for i in rng.permutation(len(out))]

    def load(self, chats, length, rows, to_draft):
        """A batch on the device. `at` lists the places m (flat) whose next token is an answer's; drafts for it come from
        pair m - 1."""
        device = self.ids.device
        place = np.arange(length)
        mask = (place >= self.starts[chats][:, None]) & (place < self.lengths[chats][:, None] - 1)
        chat, at = np.nonzero(mask)
        left = self.lengths[chats][chat] - 1 - at                       # tokens after m that the chat still has
        warm = self.modes[chats][chat] != GREEDY
        count = (len(at) + COUNT_STEP - 1) // COUNT_STEP * COUNT_STEP
        packed = np.zeros((3, count), np.int64)
        packed[0] = rows - 1                                            # padding points at a row that no draft comes from
        packed[:, :len(at)] = chat * length + at, left, warm
        packed = torch.from_numpy(packed)
        if device.type == "cuda":
            packed = packed.pin_memory().to(device, non_blocking=True)
            index = torch.from_numpy(chats).pin_memory().to(device, non_blocking=True)
        else:
            index = torch.from_numpy(chats)
        ids = F.pad(self.ids[index, :length].flatten().long(), (0, rows - len(chats) * length))
        at, left, warm = packed
        label = torch.where(left > 0, to_draft[F.pad(ids, (0, 1))[at + 1]], -1)
        return {"ids": ids, "at": at, "left": left, "warm": warm.bool(), "label": label, "batch": len(chats),
                "length": length}


def score_rows(logits, teacher, label, weight, tau, mix):
    """Loss, its gradient with respect to the logits, whether the drafted token is the text's, and how far a draft of the
    text's token would have been accepted. logits [R, V_d] float32; teacher the target's logits less their maximum."""
    teacher = teacher.float()
    log_q = logits - torch.logsumexp(logits, dim=-1, keepdim=True)
    log_p = teacher - torch.logsumexp(teacher, dim=-1, keepdim=True)
    q, p = torch.exp(log_q), torch.exp(log_p)
    sharp = tau.reciprocal()[:, None]
    q_t, p_t = torch.softmax(logits * sharp, dim=-1), torch.softmax(teacher * sharp, dim=-1)
    low = torch.where(q_t < p_t, q_t, 0.0)
    overlap = torch.minimum(q_t, p_t).sum(-1).clamp(min=1e-6)
    kl = (p * (log_p - log_q)).sum(-1)
    # -tau * log(overlap): the factor tau keeps its gradient as large as that of the other term.
    grad = (1 - mix) * (q - p) - mix / overlap[:, None] * (low - q_t * low.sum(-1, keepdim=True))
    loss = (1 - mix) * kl - mix * tau * torch.log(overlap)
    hit = logits.argmax(-1) == label
    of_label = label.clamp(min=0)[:, None]
    match = (q_t.gather(1, of_label) / p_t.gather(1, of_label).clamp(min=1e-9)).squeeze(1).clamp(max=1.0)
    return (loss * weight).sum(), (grad * weight[:, None]).to(torch.bfloat16), hit, match


if triton:
    @triton.jit
    def _score_rows(logits_ptr, teacher_ptr, label_ptr, weight_ptr, tau_ptr, mix_ptr, grad_ptr, loss_ptr, hit_ptr, match_ptr,
                    VOCAB: tl.constexpr, WIDTH: tl.constexpr):
        """score_rows, one program a row, with the whole row in registers: each value is read and written once."""
        row = tl.program_id(0)
        at = tl.arange(0, WIDTH)
        inside = at < VOCAB
        base = row.to(tl.int64) * VOCAB
        z = tl.load(logits_ptr + base + at, mask=inside, other=-float("inf"))
        t = tl.load(teacher_ptr + base + at, mask=inside, other=-float("inf")).to(tl.float32)
        label, weight, tau = tl.load(label_ptr + row), tl.load(weight_ptr + row), tl.load(tau_ptr + row)
        mix = tl.load(mix_ptr)
        best = tl.argmax(z, axis=0)
        z -= tl.max(z, axis=0)
        t -= tl.max(t, axis=0)
        q, p = tl.exp(z), tl.exp(t)
        sum_q, sum_p = tl.sum(q, axis=0), tl.sum(p, axis=0)
        q, p = q / sum_q, p / sum_p
        kl = tl.sum(tl.where(inside, p * (t - z), 0.0), axis=0) + tl.log(sum_q) - tl.log(sum_p)
        q_t, p_t = tl.exp(z / tau), tl.exp(t / tau)
        q_t, p_t = q_t / tl.sum(q_t, axis=0), p_t / tl.sum(p_t, axis=0)
        low = tl.where(q_t < p_t, q_t, 0.0)
        overlap = tl.maximum(tl.sum(tl.minimum(q_t, p_t), axis=0), 1e-6)
        grad = (1 - mix) * (q - p) - mix / overlap * (low - q_t * tl.sum(low, axis=0))
        tl.store(grad_ptr + base + at, (grad * weight).to(grad_ptr.dtype.element_ty), mask=inside)
        tl.store(loss_ptr + row, ((1 - mix) * kl - mix * tau * tl.log(overlap)) * weight)
        tl.store(hit_ptr + row, (best == label).to(tl.int8))
        own = at == tl.maximum(label, 0)
        share = tl.sum(tl.where(own, q_t, 0.0), axis=0) / tl.maximum(tl.sum(tl.where(own, p_t, 0.0), axis=0), 1e-9)
        tl.store(match_ptr + row, tl.minimum(share, 1.0))


def score_rows_fused(logits, teacher, label, weight, tau, mix):
    rows, vocab = logits.shape
    grad = torch.empty((rows, vocab), dtype=torch.bfloat16, device=logits.device)
    loss, match = (torch.empty(rows, device=logits.device) for _ in range(2))
    hit = torch.empty(rows, dtype=torch.int8, device=logits.device)
    _score_rows[(rows,)](logits, teacher, label, weight, tau, mix, grad, loss, hit, match, vocab,
                         triton.next_power_of_2(vocab), num_warps=16)
    return loss.sum(), grad, hit.bool(), match


class HeadLoss(torch.autograd.Function):
    """lm_head and loss of some rows in one go. The gradient of the logits is known as soon as they are, so neither they
    nor anything of their size outlives this call."""
    score = staticmethod(score_rows)

    @staticmethod
    def forward(ctx, normed, weight, pairs, teacher, label, row_weight, tau, mix):
        x = normed[pairs]
        compute = weight.to(x.dtype)
        loss, grad, hit, match = HeadLoss.score(logits_f32(x, compute), teacher, label, row_weight, tau, mix)
        grad = grad.to(x.dtype)
        grad_normed = torch.zeros_like(normed)
        grad_normed[pairs] = grad @ compute
        ctx.save_for_backward(grad_normed, logits_f32(grad.t(), x.t()))
        ctx.mark_non_differentiable(hit, match)
        return loss, hit, match

    @staticmethod
    def backward(ctx, grad, *_):
        grad_normed, grad_weight = ctx.saved_tensors
        return grad_normed * grad.to(grad_normed.dtype), grad_weight * grad, None, None, None, None, None, None


class Muon(torch.optim.Optimizer):
    """Momentum whose matrix is made nearly orthogonal by five Newton-Schulz steps (Jordan 2024)."""

    def __init__(self, params, lr, momentum=0.95):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            by_shape = {}
            for p in group["params"]:
                if p.grad is None:
                    continue
                buffer = self.state[p].setdefault("momentum", torch.zeros_like(p))
                buffer.mul_(group["momentum"]).add_(p.grad)
                by_shape.setdefault(p.shape, []).append((p, p.grad + group["momentum"] * buffer))
            for shape, items in by_shape.items():
                x = torch.stack([g for _, g in items]).to(torch.bfloat16 if items[0][0].is_cuda else torch.float32)
                flip = shape[0] > shape[1]
                x = x.mT if flip else x
                x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
                for _ in range(5):
                    a = x @ x.mT
                    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
                x = x.mT if flip else x
                scale = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
                for (p, _), update in zip(items, x):
                    p.add_(update.to(p.dtype), alpha=-scale)


class Learner:
    def __init__(self, head, target, chats, settings, compiled):
        self.head, self.target, self.chats, self.s = head, target, chats, settings
        device = target.device
        self.to_draft = torch.full((target.c.vocab,), -1, dtype=torch.int64, device=device)
        self.to_draft[head.draft_ids] = torch.arange(len(head.draft_ids), device=device)
        self.output = target.output[head.draft_ids]
        matrices = [p for n, p in head.named_parameters() if p.dim() == 2 and n != "lm_head.weight"]
        others = [p for n, p in head.named_parameters() if p.dim() != 2 or n == "lm_head.weight"]
        self.optimisers = [Muon(matrices, settings["muon_lr"]),
                           torch.optim.AdamW(others, lr=settings["adam_lr"], betas=(0.9, 0.95), weight_decay=0.0)]
        self.average = {n: p.detach().clone() for n, p in head.named_parameters()}
        self.step, self.seconds, self.epoch, self.rows = 0, 0.0, 0, 0
        self.pool, self.before, self.after = None, head.before_attention, head.after_attention
        self.teacher = self._teacher
        if compiled:
            self.before = torch.compile(self.before, dynamic=False)
            self.after = torch.compile(self.after, dynamic=False)
            TttAttention.join = staticmethod(torch.compile(TttAttention.join, dynamic=False))
            TttAttention.join_backward = staticmethod(torch.compile(TttAttention.join_backward, dynamic=False))
            wide = triton is None or len(head.draft_ids) > 16384        # a row would not fit into registers
            HeadLoss.score = staticmethod(torch.compile(score_rows, dynamic=True) if wide else score_rows_fused)
            self.teacher = torch.compile(self._teacher, dynamic=True)

    def progress(self):
        by_steps = self.step / self.s["steps"] if self.s["steps"] else 0.0
        by_time = self.seconds / (60 * self.s["minutes"]) if self.s["minutes"] else 0.0
        return min(1.0, max(by_steps, by_time))

    def _rate(self):
        """Warm-up, level, and a straight line down to nothing over the last `decay` of the run."""
        done = self.progress()
        return min(1.0, (self.step + 1) / self.s["warmup"]) * min(1.0, (1 - done) / self.s["decay"])

    @staticmethod
    def _teacher(logits):
        return (logits - logits.amax(-1, keepdim=True)).to(torch.bfloat16)

    def loss(self, batch, features, hidden):
        """Of all steps, a row; and, a step, how many rows it had, and how many of them drafted the text's token in an
        unbroken chain."""
        s, head, rows = self.s, self.head, batch["ids"].shape[0]
        at, left, label = batch["at"], batch["left"], batch["label"]
        num = len(at)
        teacher = F.pad(self.teacher(logits_f32(hidden[at], self.output)), (0, 0, 0, s["ttt"]))
        label = F.pad(label, (0, s["ttt"]), value=-1)
        tau = torch.where(batch["warm"], 0.8, 0.5)
        mix = s["mix"][0] + (s["mix"][1] - s["mix"][0]) * self.progress()
        mix = torch.tensor(mix, device=at.device)
        pairs = at - 1 + (left == 0) * (rows - at)        # padding: the last row
        position = torch.arange(rows, device=at.device) % batch["length"]
        dtype = features.dtype
        g = head.fuse(features)
        alive = torch.ones(num, device=at.device)
        unbroken = torch.ones(num, dtype=torch.bool, device=at.device)
        total, keys, values, counts = 0.0, [], [], []
        tokens = F.pad(batch["ids"], (0, s["ttt"] + 1))
        for i in range(s["ttt"]):
            embedding = F.embedding(tokens[1 + i:1 + i + rows], self.target.embedding).to(dtype)
            q, k, v = self.before(embedding, g, self.target.cos[position + i], self.target.sin[position + i])
            keys.append(k)
            values.append(v)
            mixed = ttt_attention(q, keys, values, batch["batch"], batch["length"])
            g, normed = self.after(g, mixed)
            wanted = label[i:i + num]
            inside = left > i
            valid = inside & (wanted >= 0)
            weight = alive * valid
            loss, hit, match = HeadLoss.apply(normed, head.lm_head.weight, pairs, teacher[i:i + num], wanted, weight, tau,
                                              mix)
            total = total + loss
            unbroken = unbroken & hit & valid
            counts.append(torch.stack([inside.sum(), unbroken.sum()]))
            if s["survival"]:
                match = torch.where(batch["warm"], match, hit.float())
                alive = alive * valid * (s["floor"] + (1 - s["floor"]) * match)
            else:
                alive = alive * 0.8
        return total / (left > 0).sum(), torch.stack(counts)

    def update(self, batch, features, hidden):
        loss, counts = self.loss(batch, features, hidden)
        loss.backward()
        rate = self._rate()
        for optimiser, name in zip(self.optimisers, ("muon_lr", "adam_lr")):
            for group in optimiser.param_groups:
                group["lr"] = self.s[name] * rate
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        with torch.no_grad():
            decay = min(EMA_DECAY, (1 + self.step) / (10 + self.step))
            torch._foreach_lerp_(list(self.average.values()), [p for _, p in self.head.named_parameters()], 1 - decay)
        self.step += 1
        return loss.detach(), counts

    def batches(self):
        """Batches with the target's features. The target's forward is a third of a step, so a stretch of batches is kept
        on the device and used `reuse` times, each time in another order, before the next stretch is computed."""
        s, c = self.s, self.target.c
        while True:
            rng = np.random.default_rng([s["seed"], self.epoch])
            batches = self.chats.batches(s["rows"], rng)
            if not batches:
                raise ValueError(f"{len(self.chats.training)} chats do not fill one batch of {s['rows']} tokens")
            room = s["pool"] if s["reuse"] > 1 else 1
            room = min(room, len(batches))
            if self.pool is None:
                self.pool = torch.empty((room, s["rows"], 4 * c.dim), dtype=self.target.dtype, device=self.target.device)
            for first in range(0, len(batches), room):
                stretch = batches[first:first + room]
                for turn in range(s["reuse"]):
                    for i in rng.permutation(len(stretch)):
                        batch = self.chats.load(*stretch[i], s["rows"], self.to_draft)
                        if turn == 0:
                            features, hidden = self.target.features(batch["ids"], batch["batch"], batch["length"])
                            self.pool[i, :, :3 * c.dim], self.pool[i, :, 3 * c.dim:] = features, hidden
                        yield batch, self.pool[i, :, :3 * c.dim], self.pool[i, :, 3 * c.dim:]
            self.epoch += 1

    def run(self, until_seconds, save, report):
        """Trains until the schedule ends, or `until_seconds` of training in this call. True if the schedule ended."""
        last, entered, saved = time.monotonic(), self.seconds, time.monotonic()
        shown, shown_step, losses, counts = time.monotonic(), self.step, 0.0, 0
        for batch, features, hidden in self.batches():
            if self.progress() >= 1.0:
                return True
            if until_seconds and self.seconds - entered >= until_seconds:
                return False
            loss, count = self.update(batch, features, hidden)
            losses, counts = losses + loss, counts + count
            self.rows += batch["batch"] * batch["length"]
            if self.step % 20 == 0:
                if self.target.device.type == "cuda":
                    torch.cuda.synchronize()
                now = time.monotonic()
                self.seconds += now - last
                last = now
                if now - shown >= self.s["report_seconds"] or self.progress() >= 1.0:
                    steps = self.step - shown_step
                    table = torch.as_tensor(counts).float()
                    report(f"step {self.step}  {self.seconds:.0f} s  epoch {self.epoch}  "
                           f"{1000 * (now - shown) / max(1, steps):.1f} ms a step  loss {float(losses) / max(1, steps):.3f}  "
                           "chain, by depth " + " ".join(f"{float(a / n):.3f}" for n, a in table) +
                           f"  rate {self._rate():.3f}")
                    shown_step, shown, losses, counts = self.step, now, 0.0, 0
                if now - saved >= self.s["save_seconds"]:
                    save()
                    shown += time.monotonic() - now
                    saved = last = time.monotonic()
        return True

    def averaged(self):
        """A copy of the head with the averaged weights."""
        head = Eagle3Head(self.head.c, len(self.head.draft_ids)).to(self.target.device)
        head.load_state_dict({**self.average, "draft_ids": self.head.draft_ids})
        return head

    def state(self):
        return {"head": self.head.state_dict(), "average": self.average, "step": self.step, "seconds": self.seconds,
                "epoch": self.epoch, "rows": self.rows, "optimisers": [o.state_dict() for o in self.optimisers]}

    def restore(self, state):
        self.head.load_state_dict(state["head"])
        self.average = {n: t.to(self.target.device) for n, t in state["average"].items()}
        self.step, self.seconds, self.rows = state["step"], state["seconds"], state["rows"]
        self.epoch = state["epoch"] + 1                  # the rest of the epoch that was cut short is not repeated
        for optimiser, saved in zip(self.optimisers, state["optimisers"]):
            optimiser.load_state_dict(saved)


@torch.no_grad()
def held_out_acceptance(head, target, chats, count, depth, rows):
    """Share of the places in `count` held-out answers from which the first 1, 2, .. drafts are all the text's, a list for
    greedy answers and one for the others. The target sees batches of `rows` tokens, as in training."""
    sums = np.zeros((2, depth + 1))
    width = chats.ids.shape[1]
    chosen = chats.held_out[:count]
    for first in range(0, len(chosen), rows // width):
        group = chosen[first:first + rows // width]
        ids = chats.ids[torch.from_numpy(group).to(chats.ids.device)].long()
        features, _ = target.features(F.pad(ids.flatten(), (0, rows - ids.numel())), len(group), width)
        for at, i in enumerate(group):
            n, start = int(chats.lengths[i]), int(chats.starts[i])
            drafts = Drafts(head, target, ids[at, :n], features[at * width:at * width + n])
            taken = agreement(drafts.chain(depth, lambda logits, d: logits.argmax(-1)), ids[at, :n])[start - 1:n - 2]
            row = sums[0 if chats.modes[i] == GREEDY else 1]
            row[0] += len(taken)
            row[1:] += torch.stack([(taken > d).sum() for d in range(depth)]).cpu().numpy()
    return [(row[1:] / max(1, row[0])).tolist() for row in sums]


def write_checkpoint(path, state):
    fresh = Path(str(path) + ".new")
    torch.save(state, fresh)
    os.replace(fresh, path)
