"""Training data that the target writes itself: it continues the chat template with a user's turn, then answers it.

Streams run side by side, each at its own place; one that ends its answer begins the next chat at once. What happened is
logged a step at a time on the device and read back a shard at a time, so no step waits for the host.

A chat is prefix | user's turn | between | answer: prefix and between are the constant parts of the chat template.
"""
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from eagle3_target import Decoder

USER, BETWEEN, ANSWER = 0, 1, 2
GREEDY, WARM, HOT = 0, 1, 2
TEMPERATURES = (0.0, 0.8, 1.0)
SHARES = (0.45, 0.45, 0.10)
USER_MIN_P = 0.01
MIN_USER, SOFT_USER, MAX_USER = 4, 40, 120     # a longer turn ends with its sentence; one without an end is dropped
BEGIN, IS_ANSWER, KEEP, DROP, MODE_SHIFT = 1, 2, 4, 8, 4
LOOP_WINDOW, LOOP_EVERY = 48, 16
SHARD_STEPS = 1024

# First words of a user's turn. Half of the turns start with one of them, because a small model left alone asks for much
# the same things again and again.
OPENERS = """How do I|How can I|How does a|How do you|How would you|How many|How much|How long does it take to|How often should I
What is the|What are the|What is a|What does|What should I|What would happen if|What is the difference between|What are some
What's the best way to|What kind of|What do you think about|What can I do|What makes|What was the|Which of|Which|Who was|Who invented
Why is|Why do|Why does|Why did|Why are|Why can't|When did|When should I|When is|Where can I|Where does|Where is|Is it|Is there
Are there|Are|Can you|Can you explain|Can you help me|Can you give me|Can you write|Can I|Could you|Could you please|Do I|Do you
Does|Did|Should I|Will|Would it|Would you|I am|I'm|I'm trying to|I have|I have a|I want to|I need|I need to|I need help with
I would like to|I'd like|I'm writing a|I'm looking for|I'm planning|I just|I don't understand|I think|I was|I've been|I bought
My|My friend|My son|My daughter|My boss|My dog|My cat|My computer|My car|My neighbour|My grandmother|We are|We have|We want to
Our|The|There is a|There are|A|An|In|If|If I|If a|Suppose|Imagine|Let's|Please|Please write|Please explain|Please help me
Write a|Write an|Write a short|Write a poem about|Write a story about|Write a letter|Write an email to|Write a function|Write code
Write three|Write a paragraph about|Write a dialogue between|Write instructions for|Explain|Explain how|Explain why
Explain the difference between|Explain to a child|Describe|Describe the|Describe how|Tell me|Tell me about|Tell me a story
Give me|Give me a|Give me three|Give me some ideas for|Give an example of|Give a short|List|List five|List the|Name|Name three
Compare|Summarize|Summarize the following|Summarise|Rewrite|Rewrite this|Rewrite the following sentence|Translate|Correct|Fix
Convert|Calculate|Solve|Find|Create a|Create a list of|Make a|Make a plan for|Plan a|Design a|Suggest|Suggest some|Recommend
Help me|Help|Teach me|Show me|Complete|Continue this story|Classify|Identify|Define|Discuss|Outline|Draft a|Come up with
Act as|You are|Pretend|Here is|Here's a|Read the|Given the|Consider|Using|For a|For my|At the|On|One|Two|Some|People|Every
Good morning|Hello|Hi|Hey|Thanks|Sorry|Today|Yesterday|Last week|Once upon a time|To|With|After|Before|During|Python|JavaScript
SQL|Math|Science|History|Recipe|Homework|Question:|Topic:|Task:""".replace("\n", "|").split("|")


def choose(logits, temperature, min_p_log):
    """One token a row. At temperature 0 the first bound keeps the maximum alone."""
    noise = -torch.log(-torch.log(torch.rand_like(logits)))
    most = logits.amax(-1, keepdim=True)
    kept = logits >= most + temperature[:, None] * min_p_log[:, None]
    return torch.where(kept, logits + temperature[:, None] * noise, float("-inf")).argmax(-1)


def find_loops(seen, position):
    """True where the newest LOOP_WINDOW tokens repeat what stood a period of at most LOOP_WINDOW before."""
    w = LOOP_WINDOW
    at = (position[:, None] - 2 * w + 1 + torch.arange(2 * w, device=seen.device)).clamp(min=0)
    windows = seen.gather(1, at).unfold(1, w, 1)
    return (windows[:, :w] == windows[:, w:]).all(-1).any(-1)


class Streams:
    def __init__(self, target, text, streams, max_len, compiled):
        device = target.device
        self.target, self.max_len, self.device, self.streams = target, max_len, device, streams
        self.prefix, self.between = text.prefix, torch.tensor(text.between, device=device)
        ends = torch.zeros(target.c.vocab, dtype=torch.bool)
        ends[target.c.end_ids] = True
        self.is_end = ends.to(device)
        closes = [text.decode([i]).rstrip(" ").endswith((".", "?", "!", "\n")) for i in range(target.c.vocab)]
        self.is_close = torch.tensor(closes, device=device)
        openers = [[]] * len(OPENERS) + [text.encode(o) for o in OPENERS]     # half of the draws force nothing
        width = max(map(len, openers))
        self.openers = torch.tensor([o + [0] * (width - len(o)) for o in openers], device=device)
        self.opener_len = torch.tensor([len(o) for o in openers], device=device)
        self.temperatures = torch.tensor(TEMPERATURES, device=device)
        self.shares = torch.tensor(np.cumsum(SHARES), device=device, dtype=torch.float32)
        self.decoder = Decoder(target, streams, max_len)
        self.seen = torch.zeros((streams, max_len), dtype=torch.int32, device=device)
        self.rows = torch.arange(streams, device=device)
        zeros = torch.zeros(streams, dtype=torch.int64, device=device)
        self.state = (zeros + self.prefix[-1], zeros + len(self.prefix) - 1, zeros.clone(), zeros.clone(),
                      *self.draw())
        self.looping = zeros.bool()
        self.advance = torch.compile(self._advance, dynamic=False) if compiled else self._advance
        self.choose = torch.compile(choose, dynamic=False) if compiled else choose
        for i, token in enumerate(self.prefix[:-1]):     # every chat starts alike, so its kv stays where it is
            self.decoder.step(zeros + token, zeros + i)

    def draw(self):
        """An opener and a way to answer for each stream."""
        opener = torch.randint(0, len(self.opener_len), (self.streams,), device=self.device)
        mode = (torch.rand(self.streams, device=self.device)[:, None] > self.shares[None, :-1]).sum(-1)
        return opener, mode

    def _advance(self, sampled, state, fresh, looping):
        """One token further: the next state, what to log, and the token with its place."""
        token, position, phase, count, opener, mode = state
        opener_len = self.opener_len[opener]
        user, answer = phase == USER, phase == ANSWER
        forced = user & (count < opener_len)
        forced_id = self.openers[opener, count.clamp(max=self.openers.shape[1] - 1)]
        nxt = torch.where(forced, forced_id, sampled)
        ended = self.is_end[nxt] & ~forced
        turn_over = user & ended & (count >= MIN_USER)
        drop = user & ((ended & (count < MIN_USER)) | (count >= MAX_USER))
        nxt = torch.where(turn_over, self.between[0], nxt)
        run_on = user & ~forced & ~ended & ~drop & (count >= SOFT_USER) & self.is_close[nxt]
        joining = phase == BETWEEN
        nxt = torch.where(joining, self.between[count.clamp(max=len(self.between) - 1)], nxt)
        keep = answer & (ended | (position + 2 >= self.max_len) | looping)
        begin = user & (count == 0)
        event = (begin * BEGIN + answer * IS_ANSWER + keep * KEEP + drop * DROP + (mode << MODE_SHIFT)).to(torch.uint8)
        count = torch.where(turn_over, 1, count + 1)
        phase, count = torch.where(turn_over | run_on, BETWEEN, phase), torch.where(run_on, 0, count)
        to_answer = (phase == BETWEEN) & (count >= len(self.between))
        phase, count = torch.where(to_answer, ANSWER, phase), torch.where(to_answer, 0, count)
        over = keep | drop
        state = (torch.where(over, self.prefix[-1], nxt), torch.where(over, len(self.prefix) - 1, position + 1),
                 torch.where(over, USER, phase), torch.where(over, 0, count),
                 torch.where(over, fresh[0], opener), torch.where(over, fresh[1], mode))
        return state, nxt, position + 1, event

    def run(self, steps):
        """Logs of `steps` steps: tokens [steps, S] int32 and events [steps, S] uint8."""
        tokens = torch.empty((steps, self.streams), dtype=torch.int32, device=self.device)
        events = torch.empty((steps, self.streams), dtype=torch.uint8, device=self.device)
        warm = torch.full((self.streams,), 1.0, device=self.device)
        for i in range(steps):
            token, position, phase, _, _, mode = self.state
            logits = self.decoder.step(token, position)
            answer = phase == ANSWER
            temperature = torch.where(answer, self.temperatures[mode], warm)
            min_p_log = torch.where(answer, -1e9, float(np.log(USER_MIN_P)))
            sampled = self.choose(logits, temperature, min_p_log)
            self.state, nxt, place, event = self.advance(sampled, self.state, self.draw(), self.looping)
            self.seen[self.rows, place] = nxt.to(torch.int32)
            tokens[i], events[i] = nxt, event
            self.looping.zero_()
            if i % LOOP_EVERY == 0:
                _, position, phase, count, _, _ = self.state
                self.looping = (phase == ANSWER) & (count > 2 * LOOP_WINDOW) & find_loops(self.seen, position)
        return tokens, events


def collect(tokens, events, done, prefix_len):
    """Whole chats whose last token lies in the rows from `done` on. Returns flat ids (without the prefix), and for each
    chat its length, where the answer starts, both with the prefix counted, and the way it was answered."""
    tokens, events = tokens.t().cpu().numpy(), events.t().cpu().numpy()
    ids, lengths, starts, modes = [], [], [], []
    for row, event in zip(tokens, events):
        ends = np.flatnonzero(event & (KEEP | DROP))
        begins = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
        for begin, end in zip(begins, ends):
            if end < done or not event[end] & KEEP or not event[begin] & BEGIN:
                continue
            ids.append(row[begin:end + 1])
            lengths.append(prefix_len + end + 1 - begin)
            starts.append(prefix_len + int(np.argmax((event[begin:end + 1] & IS_ANSWER) > 0)))
            modes.append(event[end] >> MODE_SHIFT)
    flat = np.concatenate(ids) if ids else np.zeros(0, np.int32)
    return {"ids": flat, "length": np.array(lengths, np.int32), "start": np.array(starts, np.int32),
            "mode": np.array(modes, np.uint8)}


def shard_files(folder):
    return sorted(Path(folder).glob("chats-*.npz"))


def write_npz(path, arrays):
    fresh = path.with_suffix(".tmp")
    with open(fresh, "wb") as f:
        np.savez(f, **arrays)
    os.replace(fresh, path)


def generate(target, text, folder, want_tokens, streams, max_len, seed, max_seconds, progress):
    """Writes shards into `folder` until it holds want_tokens, or time is up. Goes on where an earlier call stopped."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    have = sum(int(np.load(f)["length"].sum()) for f in shard_files(folder))
    if have >= want_tokens:
        return have
    first = len(shard_files(folder))
    torch.manual_seed(seed + 1000 * first)
    started = time.monotonic()
    run = Streams(target, text, streams, max_len, compiled=target.device.type == "cuda")
    steps = max(SHARD_STEPS, max_len)          # so a chat never spans more than two shards

    def store(joined, done, index):
        arrays = collect(*joined, done, len(text.prefix))
        write_npz(folder / f"chats-{index:04}.npz", arrays)
        return int(arrays["length"].sum()), len(arrays["length"])
    before, pending, index = None, None, first
    with ThreadPoolExecutor(max_workers=1) as worker:
        while have < want_tokens and not (max_seconds and time.monotonic() - started > max_seconds):
            log = run.run(steps)
            if pending:
                tokens, chats = pending.result()
                have += tokens
                progress(have, want_tokens, f"{chats} chats in the last shard, "
                         f"{(time.monotonic() - started) / (index - first):.1f} s each")
            joined = log if before is None else tuple(torch.cat([a, b]) for a, b in zip(before, log))
            pending = worker.submit(store, joined, 0 if before is None else steps, index)
            before, index = log, index + 1
        if pending:
            have += pending.result()[0]
    return have
