#!/usr/bin/env python3
"""Drives llama.cpp through llama_cpp's ctypes interface and prints JSON. Run by llama_cpp.py, or by hand with
the Python of the environment that `llama_cpp.py setup` made.

  measure  decode, verify and prefill times, both flash attention modes; optionally decode of real prompts
  forced   log probability and argmax of every token of a given id list (teacher forced)
  ids      tokenizes a text file into such a list

Times are of llama_decode plus llama_synchronize, all rows' logits where said; argmax of a decode is taken by
numpy, which is faster than llama.cpp's own sampler chain. One process measures one number of threads.
"""
import argparse
import contextlib
import ctypes
import json
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path = [p for p in sys.path if Path(p or ".").resolve() != HERE]  # our llama_cpp.py must not be imported
try:
    import llama_cpp.llama_cpp as lib
    import numpy as np
except ImportError as error:
    sys.exit(f"error: {error}; use the Python that `llama_cpp.py setup` prepared")

FLASH = {"off": 0, "on": 1}


@lib.llama_log_callback
def silent(level, text, data):
    del level, text, data


class Engine:
    """One model and one context with one sequence."""

    def __init__(self, path, threads, flash, context=2048):
        lib.llama_log_set(silent, ctypes.c_void_p(0))
        lib.llama_backend_init()
        self.model = lib.llama_model_load_from_file(os.fsencode(path), lib.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self.vocab = lib.llama_model_get_vocab(self.model)
        self.vocab_size = lib.llama_vocab_n_tokens(self.vocab)
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = context, min(context, 1024), 512
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = flash
        self.ctx = lib.llama_init_from_model(self.model, params)
        if not self.ctx:
            raise RuntimeError("llama.cpp cannot make a context")
        self.batch_rows = params.n_batch
        self.batch = lib.llama_batch_init(self.batch_rows, 0, 1)
        self.memory = lib.llama_get_memory(self.ctx)

    def close(self):
        lib.llama_batch_free(self.batch)
        lib.llama_free(self.ctx)
        lib.llama_model_free(self.model)

    def decode(self, tokens, position, all_logits):
        """Runs the rows and waits; returns seconds."""
        batch, rows = self.batch, len(tokens)
        batch.n_tokens = rows
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, position + i, 1, 0
            batch.logits[i] = all_logits or i == rows - 1
        start = time.perf_counter()
        status = lib.llama_decode(self.ctx, batch)
        lib.llama_synchronize(self.ctx)
        seconds = time.perf_counter() - start
        if status:
            raise RuntimeError(f"llama_decode of {rows} rows at {position} failed with {status}")
        return seconds

    def fill(self, tokens):
        """Makes the cache hold exactly these tokens; returns the seconds."""
        lib.llama_memory_clear(self.memory, True)
        step = min(512, self.batch_rows)
        return sum(self.decode(tokens[i:i + step], i, False) for i in range(0, len(tokens), step))

    def drop_after(self, length):
        lib.llama_memory_seq_rm(self.memory, 0, length, -1)

    def logits(self, row=-1):
        return np.ctypeslib.as_array(lib.llama_get_logits_ith(self.ctx, row), shape=(self.vocab_size,))

    def greedy(self, first, position, count):
        """Decodes `count` tokens after `first`, end-of-text tokens included; returns ids and seconds."""
        ids, token = [], first
        start = time.perf_counter()
        for i in range(count):
            self.decode([token], position + i, True)
            token = int(self.logits().argmax())
            ids.append(token)
        return ids, time.perf_counter() - start

    def tokenize(self, text, special):
        raw = text.encode()
        buffer = (lib.llama_token * (len(raw) + 16))()
        count = lib.llama_tokenize(self.vocab, raw, len(raw), buffer, len(buffer), False, special)
        if count < 0:
            raise RuntimeError("llama_tokenize failed")
        return list(buffer[:count])

    def chat_template(self):
        found = lib.llama_model_chat_template(self.model, None)
        return found.decode() if found else None


def spread(seconds, rows=1):
    s = sorted(seconds)
    return {"ms_min": 1e3 * s[0], "ms_median": 1e3 * s[len(s) // 2], "ms_max": 1e3 * s[-1], "samples": len(s),
            "rows": rows}


def cycled(ids, length):
    return (ids * (length // len(ids) + 1))[:length]


def measure_verify(engine, ids, context, widths, reps):
    """Time of n rows with n logits behind `context` tokens. Repetitions of one width follow each other, because
    llama.cpp reuses its graph only while the shape stays the same; runs alternate one level up (llama_cpp.py)."""
    engine.fill(ids[:context])
    times = {w: [] for w in widths}
    for w in widths:
        for rep in range(reps + 2):
            seconds = engine.decode(ids[context:context + w], context, True)
            engine.drop_after(context)
            if rep >= 2:
                times[w].append(seconds)
    rows = []
    for w in widths:
        row = {"width": w, **spread(times[w], w)}
        row["over_width1_median"] = row["ms_median"] / spread(times[widths[0]])["ms_median"]
        row["over_width1_min"] = row["ms_min"] / spread(times[widths[0]])["ms_min"]
        rows.append(row)
    return rows


def measure_prompts(engine, prompts, count):
    """Greedy decode of each prompt; speed counts tokens after the first, like `lockstep bench spec`."""
    rows = []
    for prompt in prompts:
        engine.fill(prompt["ids"])
        first = int(engine.logits().argmax())
        ids, seconds = engine.greedy(first, len(prompt["ids"]), count - 1)
        rows.append({"id": prompt["id"], "prompt_tokens": len(prompt["ids"]), "tokens": count - 1, "seconds": seconds,
                     "token_ids": [first] + ids})
    return rows


def load_prompts(engine, path):
    """Prompts as ids: chat messages through the model's own template, plain prompts as they are."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    prompts = []
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        if not line.strip():
            continue
        item = json.loads(line)
        if "messages" in item:
            template = engine.chat_template()
            if not template:
                raise RuntimeError(f"{path}:{number}: the model has no chat template")
            environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
            text = environment.from_string(template).render(
                messages=item["messages"], add_generation_prompt=True, bos_token="", eos_token="")
            ids = engine.tokenize(text, True)
        else:
            ids = engine.tokenize(item["prompt"], False)
        prompts.append({"id": item["id"], "ids": ids})
    return prompts


def command_measure(args):
    widths = args.widths
    result = {"threads": args.threads, "version": version(), "system_info": lib.llama_print_system_info().decode(),
              "loadavg_before": os.getloadavg(), "flash": {}}
    for name in args.flash:
        engine = Engine(args.model, args.threads, FLASH[name])
        ids = cycled(engine.tokenize(Path(args.text).read_text(), False), max(args.contexts) + 1024)
        out = {"decode": [], "verify": [], "prefill": {}}
        engine.fill(ids[:64])
        for context in args.contexts if args.decode_tokens else []:
            engine.fill(ids[:context] if context else ids[:0])
            _, seconds = engine.greedy(ids[context], context, args.decode_tokens)
            out["decode"].append({"context": context, "tokens": args.decode_tokens,
                                  "tokens_per_second": args.decode_tokens / seconds})
        for context in args.contexts if args.reps else []:
            out["verify"].append({"context": context, "rows": measure_verify(engine, ids, context, widths, args.reps)})
        for label, every in (("last_logits", False), ("all_logits", True)) if args.prefill_reps else ():
            times = []
            for _ in range(args.prefill_reps):
                lib.llama_memory_clear(engine.memory, True)
                times.append(engine.decode(ids[:512], 0, every))
            out["prefill"][label] = {**spread(times, 512), "tokens_per_second_median": 512e3 / spread(times)["ms_median"],
                                     "tokens_per_second_best": 512e3 / spread(times)["ms_min"]}
        if args.prompts:
            out["prompts"] = measure_prompts(engine, load_prompts(engine, args.prompts), args.n)
        engine.close()
        result["flash"][name] = out
    result["loadavg_after"] = os.getloadavg()
    return result


def command_forced(args):
    ids = json.loads(Path(args.ids).read_text())
    ids = ids["ids"] if isinstance(ids, dict) else ids
    ids = ids[:args.tokens]
    engine = Engine(args.model, args.threads, FLASH[args.flash], context=max(512, len(ids) + 8))
    logprob, argmax = [], []
    lib.llama_memory_clear(engine.memory, True)
    for first in range(0, len(ids), args.chunk):
        part = ids[first:first + args.chunk]
        engine.decode(part, first, True)
        for row in range(len(part)):
            if first + row + 1 < len(ids):
                logits = engine.logits(row).astype(np.float64)
                peak = logits.max()
                logprob.append(float(logits[ids[first + row + 1]] - peak - np.log(np.exp(logits - peak).sum())))
                argmax.append(int(logits.argmax()))
    return {"ids": ids, "logprob": logprob, "argmax": argmax, "engine": "llama.cpp " + version(),
            "flash": args.flash, "threads": args.threads, "chunk": args.chunk}


def command_ids(args):
    engine = Engine(args.model, 1, 0, context=256)
    ids = engine.tokenize(Path(args.text).read_text(), False)[:args.tokens]
    return {"ids": ids, "source": Path(args.text).name}


def version():
    import importlib.metadata as meta
    return "llama-cpp-python " + meta.version("llama-cpp-python")


def number_list(text):
    return [int(x) for x in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    m, f, i = (commands.add_parser(name) for name in ("measure", "forced", "ids"))
    for p in (m, f, i):
        p.add_argument("-m", "--model", required=True)
        p.add_argument("--json", metavar="FILE", help="write here instead of standard output")
    m.add_argument("--threads", type=int, default=2)
    m.add_argument("--flash", type=lambda s: s.split(","), default=["off", "on"])
    m.add_argument("--contexts", type=number_list, default=[0, 256, 512])
    m.add_argument("--widths", type=number_list, default=[1, 2, 3, 4, 5, 6, 7, 8, 16])
    m.add_argument("--reps", type=int, default=10, help="repetitions of each width; 0 leaves verify out")
    m.add_argument("--decode-tokens", type=int, default=128, help="0 leaves decode out")
    m.add_argument("--prefill-reps", type=int, default=3, help="0 leaves prefill out")
    m.add_argument("--text", required=True, help="text whose tokens are used")
    m.add_argument("--prompts", help="JSON lines; decode these too")
    m.add_argument("-n", type=int, default=128, help="tokens a prompt")
    f.add_argument("--ids", required=True)
    f.add_argument("--threads", type=int, default=2)
    f.add_argument("--flash", choices=list(FLASH), default="off")
    f.add_argument("--chunk", type=int, default=128, help="rows a llama_decode")
    f.add_argument("--tokens", type=int)
    i.add_argument("--text", required=True)
    i.add_argument("--tokens", type=int)
    args = parser.parse_args()
    try:
        result = {"measure": command_measure, "forced": command_forced, "ids": command_ids}[args.command](args)
    except (RuntimeError, OSError, ValueError, KeyError) as error:
        sys.exit(f"error: {error}")
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(open(args.json, "w")) if args.json else sys.stdout
        out.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
