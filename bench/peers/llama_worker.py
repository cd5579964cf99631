#!/usr/bin/env python3
"""Drives llama.cpp through llama_cpp's ctypes interface and prints JSON. Run by llama_cpp.py, or by hand with
the Python of the environment that `llama_cpp.py setup` made.

  steps     time of steps of n rows with all n logits behind a context
  prefill   time of a prompt of 512 tokens, logits of its last row
  spec      greedy decoding of prompts, plain and with prompt-lookup drafts: speed, accepted drafts, same ids or not
  start     answers one prompt; the first token goes to standard output as soon as it is there, JSON follows
  memory    fills a context, says how much memory that took at its peak
  forced    log probability and argmax of every token of a given id list (teacher forced)
  ids       tokenizes a text file into such a list
  quantise  writes a GGUF file in another type

Times are of llama_decode plus llama_synchronize; argmax of a decode is taken by numpy, which is faster than
llama.cpp's own sampler chain. One process measures one number of threads in one flash attention mode.
"""
import time

STAMPS = {"entered": time.monotonic()}  # what comes before is the interpreter's start, not llama.cpp's

import argparse  # noqa: E402
import contextlib  # noqa: E402
import ctypes  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

HERE = Path(__file__).resolve().parent
sys.path = [p for p in sys.path if Path(p or ".").resolve() != HERE]  # our llama_cpp.py must not be imported


def load_library():
    """Loads llama.cpp's own library before the package that wraps it, so that the two can be told apart in time."""
    spec = importlib.util.find_spec("llama_cpp")
    for folder in spec.submodule_search_locations if spec else ():
        path = Path(folder) / "lib" / "libllama.so"
        if path.exists():
            ctypes.CDLL(str(path))
            return True
    return False


try:
    STAMPS["before_library"] = time.monotonic()
    STAMPS["library_apart"] = load_library()
    STAMPS["library"] = time.monotonic()
    import llama_cpp.llama_cpp as lib  # noqa: E402
    import numpy as np  # noqa: E402
except (ImportError, OSError) as error:
    sys.exit(f"error: {error}; use the Python that `llama_cpp.py setup` prepared")
STAMPS["imported"] = time.monotonic()

FLASH = {"off": 0, "on": 1}
FILE_TYPES = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q4_K_M": 15}  # llama.cpp's enum llama_ftype


@lib.llama_log_callback
def silent(level, text, data):
    del level, text, data


def peak_kib():
    """VmHWM of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise RuntimeError("/proc/self/status has no VmHWM")


class Engine:
    """One model and one context with one sequence."""

    def __init__(self, path, threads, flash, context=2048):
        lib.llama_log_set(silent, ctypes.c_void_p(0))
        lib.llama_backend_init()
        self.model = lib.llama_model_load_from_file(os.fsencode(path), lib.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"{path} cannot be loaded")
        self.vocab = lib.llama_model_get_vocab(self.model)
        self.vocab_size = lib.llama_vocab_n_tokens(self.vocab)
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = context, min(context, 1024), 512
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = flash
        self.ctx = lib.llama_init_from_model(self.model, params)
        if not self.ctx:
            raise RuntimeError(f"cannot make a context of {context} tokens")
        self.context = lib.llama_n_ctx(self.ctx)
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
        if rows > self.batch_rows or position + rows > self.context:
            raise RuntimeError(f"{rows} rows at position {position} do not fit a context of {self.context} tokens")
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

    def best(self, row=-1):
        return int(self.logits(row).argmax())

    def ends(self, token):
        return bool(lib.llama_vocab_is_eog(self.vocab, token))

    def tokenize(self, text, special):
        raw = text.encode()
        buffer = (lib.llama_token * (len(raw) + 16))()
        count = lib.llama_tokenize(self.vocab, raw, len(raw), buffer, len(buffer), False, special)
        if count < 0:
            raise RuntimeError("llama_tokenize failed")
        return list(buffer[:count])

    def piece(self, token):
        buffer = ctypes.create_string_buffer(256)
        length = lib.llama_token_to_piece(self.vocab, token, buffer, len(buffer), 0, False)
        return buffer.raw[:max(0, length)]

    def chat_template(self):
        found = lib.llama_model_chat_template(self.model, None)
        return found.decode() if found else None


def spread(seconds):
    s = sorted(seconds)
    return {"ms_min": 1e3 * s[0], "ms_median": 1e3 * s[len(s) // 2], "ms_max": 1e3 * s[-1], "samples": len(s)}


def cycled(ids, length):
    return (ids * (length // len(ids) + 1))[:length]


def text_ids(engine, path, length):
    return cycled(engine.tokenize(Path(path).read_text(), False), length)


def command_steps(args):
    """Repetitions of one width follow each other, because llama.cpp reuses its graph only while the shape stays the
    same; engines alternate one level up (llama_cpp.py). Two unmeasured repetitions go ahead of each width."""
    need = args.context + max(args.widths)
    engine = Engine(args.model, args.threads, FLASH[args.flash], max(2048, need))
    ids = text_ids(engine, args.text, need)
    engine.fill(ids[:args.context])
    rows = []
    for width in args.widths:
        times = []
        for rep in range(args.reps + 2):
            seconds = engine.decode(ids[args.context:args.context + width], args.context, True)
            engine.drop_after(args.context)
            if rep >= 2:
                times.append(seconds)
        rows.append({"width": width, **spread(times)})
    engine.close()
    return {"context": args.context, "rows": rows}


def command_prefill(args):
    engine = Engine(args.model, args.threads, FLASH[args.flash], 2048)
    ids = text_ids(engine, args.text, args.tokens)
    times = []
    for rep in range(args.reps + 1):
        lib.llama_memory_clear(engine.memory, True)
        seconds = engine.decode(ids, 0, False)
        if rep:
            times.append(seconds)
    engine.close()
    return {"tokens": args.tokens, **spread(times)}


def greedy(engine, ids, count):
    """Plain decoding: (token ids to the end of the text or `count`, seconds behind the first)."""
    engine.fill(ids)
    out = [engine.best()]
    start = time.perf_counter()
    while len(out) < count and not engine.ends(out[-1]):
        engine.decode([out[-1]], len(ids) + len(out) - 1, True)
        out.append(engine.best())
    return out, time.perf_counter() - start


def looked_up(engine, ids, count, draft_tokens):
    """The same with the package's prompt lookup. The package's own loop copies every row's logits into an array of
    the whole context and runs a sampler chain; this one takes the argmax in place, to the peer's advantage."""
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding
    drafter = LlamaPromptLookupDecoding(num_pred_tokens=draft_tokens)
    history = np.zeros(len(ids) + count, dtype=np.intc)
    history[:len(ids)] = ids
    engine.fill(ids)
    out, rounds, accepted = [engine.best()], 0, 0
    history[len(ids)] = out[0]
    start = time.perf_counter()
    while len(out) < count and not engine.ends(out[-1]):
        written = len(ids) + len(out)
        draft = [int(t) for t in drafter(history[:written])][:count - len(out) - 1]
        engine.decode([out[-1], *draft], written - 1, True)
        took = 0
        for row in range(len(draft) + 1):
            token = engine.best(row)
            history[len(ids) + len(out)] = token
            out.append(token)
            if engine.ends(token) or row == len(draft) or token != draft[row]:
                break
            took += 1
        rounds, accepted = rounds + bool(draft), accepted + took
        engine.drop_after(written + took)
    return out, time.perf_counter() - start, rounds, accepted


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
        prompts.append({"id": item["id"], "kind": item.get("kind", "other"), "ids": ids})
    return prompts


def command_spec(args):
    """Speeds count the tokens after the first, like `lockstep bench spec`, and both stop at an end of text."""
    engine = Engine(args.model, args.threads, FLASH[args.flash], 2048)
    rows = []
    for prompt in load_prompts(engine, args.prompts):
        plain, plain_seconds = greedy(engine, prompt["ids"], args.n)
        drafted, seconds, rounds, accepted = looked_up(engine, prompt["ids"], args.n, args.draft)
        rows.append({"id": prompt["id"], "kind": prompt["kind"], "prompt_tokens": len(prompt["ids"]),
                     "plain_tokens": len(plain) - 1, "plain_seconds": plain_seconds, "tokens": len(drafted) - 1,
                     "seconds": seconds, "rounds": rounds, "accepted": accepted, "same_text": plain == drafted,
                     "plain_ids": plain, "ids": drafted})
    engine.close()
    return {"draft": args.draft, "prompts": rows}


def command_start(args):
    """The stamps are of the clock that the parent uses too (CLOCK_MONOTONIC)."""
    engine = Engine(args.model, args.threads, FLASH[args.flash], 2048)
    ids = engine.tokenize(args.prompt, False)
    engine.fill(ids)
    token = engine.best()
    sys.stdout.write(engine.piece(token).decode(errors="replace") or "?")
    sys.stdout.flush()
    STAMPS["first_token"] = time.monotonic()
    sys.stdout.write("\n")
    return {"prompt_tokens": len(ids), "token": token, "stamps": STAMPS}


def command_memory(args):
    before = peak_kib()  # with the interpreter, numpy and the libraries: to the peer's advantage
    engine = Engine(args.model, args.threads, FLASH[args.flash], args.context)
    ids = text_ids(engine, args.text, args.context - 1)
    prompt = max(1, len(ids) - 32)
    engine.fill(ids[:prompt])
    for position in range(prompt, len(ids)):
        engine.decode([ids[position]], position, True)
    return {"before_kib": before, "peak_kib": peak_kib(), "context": args.context}


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


def command_quantise(args):
    lib.llama_log_set(silent, ctypes.c_void_p(0))
    lib.llama_backend_init()
    params = lib.llama_model_quantize_default_params()
    params.nthread, params.ftype, params.allow_requantize = args.threads, FILE_TYPES[args.type], True
    status = lib.llama_model_quantize(os.fsencode(args.model), os.fsencode(args.out), ctypes.byref(params))
    if status:
        raise RuntimeError(f"llama_model_quantize of {args.model} to {args.type} failed with {status}")
    return {"out": args.out, "type": args.type, "bytes": Path(args.out).stat().st_size}


def version():
    import importlib.metadata as meta
    return "llama-cpp-python " + meta.version("llama-cpp-python")


def number_list(text):
    return [int(x) for x in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    made = {}
    for name in ("steps", "prefill", "spec", "start", "memory", "forced", "ids", "quantise"):
        made[name] = p = commands.add_parser(name)
        p.add_argument("-m", "--model", required=True)
        p.add_argument("--json", metavar="FILE", help="write here instead of standard output")
        if name != "ids":
            p.add_argument("--threads", type=int, default=2)
        if name not in ("ids", "quantise"):
            p.add_argument("--flash", choices=list(FLASH), default="off")
        if name in ("steps", "prefill", "memory", "ids"):
            p.add_argument("--text", required=True, help="text whose tokens are used")
        if name in ("steps", "prefill"):
            p.add_argument("--reps", type=int, default=7)
    made["steps"].add_argument("--context", type=int, default=32)
    made["steps"].add_argument("--widths", type=number_list, default=[1, 2, 4, 8, 16, 32])
    made["prefill"].add_argument("--tokens", type=int, default=512)
    made["spec"].add_argument("--prompts", required=True, help="JSON lines")
    made["spec"].add_argument("--draft", type=int, default=10, help="tokens a draft (the package's default is 10)")
    made["spec"].add_argument("-n", type=int, default=96, help="tokens a prompt")
    made["start"].add_argument("--prompt", required=True)
    made["memory"].add_argument("--context", type=int, default=2048)
    made["forced"].add_argument("--ids", required=True)
    made["forced"].add_argument("--chunk", type=int, default=128, help="rows a llama_decode")
    made["forced"].add_argument("--tokens", type=int)
    made["ids"].add_argument("--tokens", type=int)
    made["quantise"].add_argument("--type", choices=list(FILE_TYPES), required=True)
    made["quantise"].add_argument("--out", required=True)
    args = parser.parse_args()
    try:
        result = globals()["command_" + args.command](args)
    except (RuntimeError, OSError, ValueError, KeyError) as error:
        sys.exit(f"error: {error}")
    result.update(threads=args.threads if "threads" in args else 1, version=version(),
                  system_info=lib.llama_print_system_info().decode())
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(open(args.json, "w")) if args.json else sys.stdout
        out.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
