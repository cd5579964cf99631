"""What a draft head is worth: drafts of every position of a text, and the rounds that a speculative decoder would make.

The target's text does not depend on the drafter, so it is made once; then the head proposes after each of its tokens, all
places at once, and the rounds are walked through: a round at the newest token emits the drafts that equal the text, and
one token more. Drafts of a round see the target's features of all earlier positions, and their own hidden states.

Noise at temperature > 0 is the engine's: G(seed, position, token) by Philox 4x32-10, the same for target and drafter.
"""
import json
from pathlib import Path

import torch
import torch.nn.functional as F

from eagle3_target import Decoder, logits_f32

MASK32 = 0xFFFFFFFF
LOOP_PERIOD, LOOP_RUN = 64, 24


def gumbel(seed, positions, vocab):
    """Noise of each position (an int64 vector) and token: [positions, vocab] float32."""
    device = positions.device
    blocks = torch.arange((vocab + 3) // 4, device=device, dtype=torch.int64)

    def high(constant, x):
        return (constant * (x >> 16) + ((constant * (x & 0xFFFF)) >> 16)) >> 16
    c0 = positions[:, None].expand(-1, len(blocks)).clone()
    c1 = blocks[None].expand(len(positions), -1).clone()
    c2, c3 = torch.zeros_like(c0), torch.zeros_like(c0)
    k0, k1 = seed & MASK32, (seed >> 32) & MASK32
    for _ in range(10):
        h0, l0 = high(0xD2511F53, c0), (0xD2511F53 * c0) & MASK32
        h1, l1 = high(0xCD9E8D57, c2), (0xCD9E8D57 * c2) & MASK32
        c0, c1, c2, c3 = h1 ^ c1 ^ k0, l1, h0 ^ c3 ^ k1, l0
        k0, k1 = (k0 + 0x9E3779B9) & MASK32, (k1 + 0xBB67AE85) & MASK32
    words = torch.stack([c0, c1, c2, c3], dim=-1).flatten(1)[:, :vocab]
    u = ((words >> 9).float() + 0.5) * 2.0 ** -23
    return -torch.log(-torch.log(u))


def loop_start(ids):
    """Where a text begins to repeat itself: the first token of the second copy of a period of at most LOOP_PERIOD
    tokens that comes three times and over LOOP_RUN tokens or more; len(ids) if it never does."""
    first = len(ids)
    for period in range(1, min(LOOP_PERIOD, len(ids) - 1) + 1):
        need, run = max(2 * period, LOOP_RUN), 0
        for j in range(period, len(ids)):
            run = run + 1 if ids[j] == ids[j - period] else 0
            if run == need:
                first = min(first, j + 1 - need)
                break
    return first


def distinct_bigrams(texts):
    pairs = [(a, b) for ids in texts for a, b in zip(ids, ids[1:])]
    per_text = [len(set(zip(ids, ids[1:]))) / max(1, len(ids) - 1) for ids in texts]
    return {"of_each_text": sum(per_text) / max(1, len(per_text)), "of_all": len(set(pairs)) / max(1, len(pairs))}


@torch.no_grad()
def write_texts(target, prompts, temperature, seed, max_tokens, progress=lambda done, total, note: None):
    """The target's answers, one list of ids a prompt, the end token included."""
    device, lengths = target.device, [len(p) for p in prompts]
    width = max(lengths) + max_tokens
    ids = torch.zeros((len(prompts), width), dtype=torch.int64, device=device)
    for i, p in enumerate(prompts):
        ids[i, :len(p)] = torch.tensor(p, device=device)
    length = torch.tensor(lengths, device=device)
    decoder = Decoder(target, len(prompts), width)
    ends, over = torch.tensor(target.c.end_ids, device=device), torch.zeros(len(prompts), dtype=bool, device=device)
    stop = length + max_tokens
    for at in range(width - 1):
        position = torch.full_like(length, at)
        logits = decoder.step(ids[:, at], position)
        if temperature:
            logits = logits * (1 / temperature) + gumbel(seed, position + 1, logits.shape[1])
        token = logits.argmax(-1)
        mine = (at + 1 >= length) & ~over & (at + 1 < stop)
        ids[:, at + 1] = torch.where(mine, token, ids[:, at + 1])
        over |= (mine & torch.isin(token, ends)) | (at + 2 >= stop)
        progress(at + 1, width - 1, "tokens of the target's texts")
        if bool(over.all()):
            break
    answers = []
    for row, n in zip(ids.tolist(), lengths):
        answer = row[n:n + max_tokens]
        cut = [i for i, t in enumerate(answer) if t in target.c.end_ids]
        answers.append(answer[:cut[0] + 1] if cut else answer)
    return answers


class Drafts:
    """Proposals of a head at every pair of one text: pair k knows the tokens up to k + 1 and proposes from k + 2 on."""

    def __init__(self, head, target, ids, features):
        self.head, self.target, self.n = head, target, len(ids) - 1
        self.position = torch.arange(self.n, device=features.device)
        self.g = head.fuse(features[:self.n])
        q, self.k0, self.v0 = self._project(ids[1:], self.g, 0)
        self.bias = torch.triu(torch.full((self.n, self.n), float("-inf"), device=features.device), 1)
        mixed = self._attend(q[:, None], None, None)
        self.hidden, normed = head.after_attention(self.g, mixed.flatten(1))
        self.logits = self._logits(normed)

    def _project(self, tokens, g, depth):
        repeat = len(g) // self.n
        at = (self.position + depth).repeat_interleave(repeat)
        embedding = F.embedding(tokens, self.target.embedding).to(g.dtype)
        return self.head.before_attention(embedding, g, self.target.cos[at], self.target.sin[at])

    def _logits(self, normed):
        return logits_f32(normed, self.head.lm_head.weight.to(normed.dtype))

    def _attend(self, q, own_k, own_v):
        """q [n, beam, H, D]; own_k, own_v [n, beam, steps, K, D]: keys along the path, the node's own last."""
        c = self.head.c
        group = c.heads // c.kv_heads
        q = q.view(*q.shape[:2], c.kv_heads, group, c.head_dim).float()
        score = torch.einsum("nbkgd,mkd->nbkgm", q, self.k0.float()) * c.head_dim ** -0.5
        score += self.bias[:, None, None, None, :]
        values = self.v0.float()
        if own_k is None:
            out = torch.einsum("nbkgm,mkd->nbkgd", score.softmax(-1), values)
        else:
            own = torch.einsum("nbkgd,nbskd->nbkgs", q, own_k.float()) * c.head_dim ** -0.5
            share = torch.cat([score, own], dim=-1).softmax(-1)
            out = torch.einsum("nbkgm,mkd->nbkgd", share[..., :self.n], values)
            out += torch.einsum("nbkgs,nbskd->nbkgd", share[..., self.n:], own_v.float())
        return out.flatten(2).to(self.k0.dtype)

    def chain(self, depth, pick):
        """[n, depth] target ids. pick(logits, depth) chooses draft ids."""
        hidden, logits, drafts, keys, values = self.hidden, self.logits, [], [], []
        for d in range(depth):
            drafts.append(self.head.draft_ids[pick(logits, d)])
            if d + 1 == depth:
                break
            q, k, v = self._project(drafts[-1], hidden, d + 1)
            keys.append(k)
            values.append(v)
            mixed = self._attend(q[:, None], torch.stack(keys, 1)[:, None], torch.stack(values, 1)[:, None])
            hidden, normed = self.head.after_attention(hidden, mixed.flatten(1))
            logits = self._logits(normed)
        return torch.stack(drafts, dim=1)

    def tree(self, nodes):
        """The `nodes` likeliest nodes of the tree of all proposals, by cumulative probability: tokens, parents (index of
        a node, -1 the root) and scores, [n, nodes] each, parents before children. A level can hold at most `nodes` of
        them, so a beam of that width loses none."""
        n, beam = self.n, nodes
        score, pick = self.logits.log_softmax(-1).topk(beam, dim=-1)
        tokens = self.head.draft_ids[pick]
        device = tokens.device
        all_tokens, all_scores = [tokens], [score]
        all_parents = [torch.full((n, beam), -1, device=device)]
        hidden = self.hidden[:, None].expand(-1, beam, -1)
        keys = values = None
        for depth in range(1, nodes):
            flat = hidden.reshape(n * beam, -1)
            q, k, v = self._project(tokens.flatten(), flat, depth)
            k, v = (t.view(n, beam, 1, *t.shape[1:]) for t in (k, v))
            keys, values = (k, v) if keys is None else (torch.cat([keys, k], 2), torch.cat([values, v], 2))
            mixed = self._attend(q.view(n, beam, *q.shape[1:]), keys, values)
            flat, normed = self.head.after_attention(flat, mixed.reshape(n * beam, -1))
            child_score, child = self._logits(normed).log_softmax(-1).topk(beam, dim=-1)
            child_score = (child_score.view(n, beam, beam) + score[..., None]).flatten(1)
            score, best = child_score.topk(beam, dim=-1)
            tokens = self.head.draft_ids[child.view(n, -1).gather(1, best)]
            parent = best // beam
            all_tokens.append(tokens)
            all_scores.append(score)
            all_parents.append(parent + (depth - 1) * beam)
            hidden = flat.view(n, beam, -1).gather(1, parent[..., None].expand(-1, -1, flat.shape[-1]))
            keys, values = (t.gather(1, parent[..., None, None, None].expand(-1, -1, *t.shape[2:]))
                            for t in (keys, values))
        tokens, parents, scores = (torch.cat(t, dim=1) for t in (all_tokens, all_parents, all_scores))
        kept = scores.topk(nodes, dim=-1).indices.sort(dim=-1).values
        place = torch.full((n, tokens.shape[1] + 1), -1, device=device)
        place.scatter_(1, kept, torch.arange(nodes, device=device).expand(n, -1))
        parents = place.gather(1, parents.gather(1, kept) % (tokens.shape[1] + 1))     # -1 turns into the last: the root
        return tokens.gather(1, kept), parents, scores.gather(1, kept)


def walk(ids, start, end, accepted):
    """Rounds from the token at `start` to the one before `end`. accepted(k) says how many drafts after pair k equal the
    text. Returns how many each round took; a round emits one token more, if the text has one left."""
    rounds, at = [], start
    while at + 1 < end:
        take = min(accepted(at - 1), end - 1 - at)
        rounds.append(take)
        at += take + 1
    return rounds


def agreement(drafts, ids):
    """[n, depth] drafts of a chain -> [n] how many of them the text goes along with."""
    n, depth = drafts.shape
    padded = F.pad(ids, (0, depth + 1), value=-1)
    want = torch.stack([padded[2 + d:2 + d + n] for d in range(depth)], dim=1)
    return (drafts == want).int().cumprod(dim=1).sum(dim=1)


def tree_agreement(tokens, parents, ids):
    """[n] length of the path of the tree that the text follows."""
    n, nodes = tokens.shape
    padded = F.pad(ids, (0, nodes + 2), value=-1)
    depth = torch.zeros_like(tokens)
    good = torch.zeros_like(tokens, dtype=torch.bool)
    for i in range(nodes):
        parent = parents[:, i]
        root = parent < 0
        up = parent.clamp(min=0)[:, None]
        depth[:, i] = torch.where(root, 1, depth.gather(1, up)[:, 0] + 1)
        on_path = root | good.gather(1, up)[:, 0]
        want = padded[torch.arange(n, device=ids.device) + 1 + depth[:, i]]
        good[:, i] = on_path & (tokens[:, i] == want)
    return (depth * good).amax(dim=1)


def summary(per_text, depth):
    rounds = [r for text in per_text for r in text["rounds"]]
    tokens = sum(text["tokens"] for text in per_text)
    by_depth = [sum(r > d for r in rounds) / max(1, len(rounds)) for d in range(depth)]
    return {"rounds": len(rounds), "tokens": tokens, "tokens_per_round": tokens / max(1, len(rounds)),
            "accepted_by_depth": by_depth}


@torch.no_grad()
def score_texts(head, target, prompts, answers, temperature, seed, chains=(3, 4, 5), tree=8,
                progress=lambda done, total, note: None):
    """The rounds of each way to draft over these answers, whole and with loops cut."""
    device = target.device
    ways = {f"chain:{k}": [] for k in chains}
    if tree and not temperature:
        ways[f"tree:{tree}"] = []
    cut = {way: [] for way in ways}
    every = []
    for i, (prompt, answer) in enumerate(zip(prompts, answers)):
        ids = torch.tensor(prompt + answer, device=device)
        features, _ = target.features(ids, 1, len(ids))
        drafts = Drafts(head, target, ids, features.to(head.fc.weight.dtype))

        def pick(logits, d):
            if not temperature:
                return logits.argmax(-1)
            noise = gumbel(seed, drafts.position + 2 + d, target.c.vocab)[:, head.draft_ids]
            return (logits * (1 / temperature) + noise).argmax(-1)
        chain = drafts.chain(max(chains), pick)
        taken = {f"chain:{k}": agreement(chain[:, :k], ids).tolist() for k in chains}
        if f"tree:{tree}" in ways:
            tokens, parents, _ = drafts.tree(tree)
            taken[f"tree:{tree}"] = tree_agreement(tokens, parents, ids).tolist()
        every.append(agreement(chain, ids)[len(prompt) - 1:len(ids) - 2])
        for kind, end in ((ways, len(prompt) + len(answer)), (cut, len(prompt) + loop_start(answer))):
            for way, table in kind.items():
                rounds = walk(ids, len(prompt), end, lambda k: taken[way][k])
                table.append({"rounds": rounds, "tokens": end - 1 - len(prompt)})
        progress(i + 1, len(prompts), "texts drafted")
    every = torch.cat(every)
    result = {"temperature": temperature, "every_place": [(every > d).float().mean().item() for d in range(max(chains))]}
    for name, kind in (("whole", ways), ("loops_cut", cut)):
        result[name] = {w: summary(t, int(w.split(":")[1])) for w, t in kind.items()}
    result["rounds_by_text"] = {w: [t["rounds"] for t in texts] for w, texts in ways.items()}
    result["distinct_bigrams"] = distinct_bigrams(answers)
    result["texts_that_loop"] = sum(loop_start(a) < len(a) for a in answers)
    return result


def read_prompts(path, text):
    """Ids of the chats of a prompt file, through the model's own template."""
    ids, names = [], []
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        try:
            item = json.loads(line)
            ids.append(text.encode(text.render(item["messages"])))
            names.append(item.get("id", str(number)))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}:{number}: want an object with \"messages\": {error}") from error
    if not ids:
        raise ValueError(f"{path}: holds no prompt")
    return names, ids
