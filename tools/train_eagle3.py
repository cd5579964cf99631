#!/usr/bin/env python3
"""Trains an EAGLE-3 draft head for a GGUF model, from nothing but the model itself.

    tools/train_eagle3.py -m model.gguf -o work/            all stages, one after the other
    tools/train_eagle3.py -m model.gguf -o work/ train      one stage

Stages, each of which goes on where it was stopped:
    generate   the model writes user turns through its chat template and answers them: work/data/
    train      the head, against the model's own distributions: work/checkpoint.pt
    export     the published format, with a card: work/head/ (or --head DIR)
    evaluate   tokens per round on prompts of yours: work/evaluation.json, and the card anew

docs/training-a-head.md says what to expect and what the settings do.
Needs: torch, numpy, safetensors, tokenizers, jinja2. One GPU of 80 GB or more for the defaults; anything for small runs.
Exit codes: 0 done, 1 stopped by an error, 2 usage, 3 bad model or data, 4 out of memory, 130 interrupted.
"""
import argparse
import hashlib
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# Batches differ in their number of rows; segments that grow serve them all, where fixed ones would be made anew.
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
try:
    import numpy as np  # noqa: F401
    import safetensors  # noqa: F401
    import torch
except ImportError as error:
    sys.exit(f"error: {error.name} is not installed; the trainer needs torch, numpy, safetensors, tokenizers and jinja2")

import eagle3_evaluate as evaluation  # noqa: E402
import eagle3_generate as generation  # noqa: E402
import eagle3_learn as learning  # noqa: E402
from eagle3_card import write_card  # noqa: E402
from eagle3_gguf import BadModel, Gguf, Text, load_weights, read_config  # noqa: E402
from eagle3_head import Eagle3Head, read_head, write_head  # noqa: E402
from eagle3_target import Target  # noqa: E402

STAGES = ("generate", "train", "export", "evaluate")
DEFAULT_PROMPTS = Path(__file__).resolve().parent.parent / "bench/prompts/chat.jsonl"


def parse(argv):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("stage", nargs="?", default="all", choices=("all",) + STAGES)
    p.add_argument("-m", "--model", required=True, metavar="GGUF", help="target model; quantised weights are dequantised")
    p.add_argument("-o", "--out", required=True, metavar="DIR", help="data, checkpoint, head and evaluation")
    p.add_argument("--head", metavar="DIR", help="where export writes and evaluate reads (default: OUT/head)")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--max-len", type=int, default=512, metavar="N", help="tokens of a chat at most (512)")
    g = p.add_argument_group("generate")
    g.add_argument("--tokens", type=float, default=60e6, metavar="N", help="tokens to generate (60e6)")
    g.add_argument("--generate-minutes", type=float, default=0, metavar="M", help="stop earlier, after M minutes")
    g.add_argument("--streams", type=int, default=0, metavar="N", help="chats side by side (default: what memory holds)")
    t = p.add_argument_group("train")
    t.add_argument("--draft-vocab", type=int, default=8192, metavar="N", help="tokens the head can propose (8192)")
    t.add_argument("--train-minutes", type=float, default=14, metavar="M", help="length of the schedule (14)")
    t.add_argument("--steps", type=int, default=0, metavar="N", help="or its length in steps, whichever comes first")
    t.add_argument("--from-head", metavar="DIR", help="start from this head of the same model, not from the target's layer")
    t.add_argument("--stop-after", type=float, default=0, metavar="S", help="leave after S seconds; call again to go on")
    t.add_argument("--ttt", type=int, default=5, metavar="N", help="steps of the training-time test (5)")
    t.add_argument("--batch-tokens", type=int, default=32768, metavar="N", help="rows of a step (32768)")
    t.add_argument("--reuse", type=int, default=3, metavar="N", help="uses of the target's features once computed (3)")
    t.add_argument("--pool", type=int, default=0, metavar="N", help="batches whose features are kept (default: by memory)")
    t.add_argument("--muon-lr", type=float, default=1e-2, metavar="R")
    t.add_argument("--adam-lr", type=float, default=3e-3, metavar="R")
    t.add_argument("--warmup", type=int, default=100, metavar="N", help="steps of rising rate (100)")
    t.add_argument("--decay", type=float, default=0.75, metavar="F", help="share of the run in which the rate falls (0.75)")
    t.add_argument("--mix", type=float, nargs=2, default=(0.2, 0.7), metavar=("A", "B"),
                   help="weight of the acceptance term, first and last (0.2 0.7)")
    t.add_argument("--floor", type=float, default=0.2, metavar="F", help="least weight after a refused draft (0.2)")
    t.add_argument("--no-survival", action="store_true", help="weigh step i by 0.8^i instead of by its chance to be reached")
    t.add_argument("--report-seconds", type=float, default=10, metavar="S")
    t.add_argument("--save-seconds", type=float, default=120, metavar="S")
    e = p.add_argument_group("evaluate")
    e.add_argument("--prompts", default=str(DEFAULT_PROMPTS), metavar="JSONL", help="chats that training never sees")
    e.add_argument("--max-tokens", type=int, default=256, metavar="N", help="length of the answers (256)")
    args = p.parse_args(argv)
    for name, low in (("max_len", 64), ("draft_vocab", 16), ("ttt", 1), ("batch_tokens", 64), ("reuse", 1),
                      ("max_tokens", 8), ("warmup", 1)):
        if getattr(args, name) < low:
            p.error(f"--{name.replace('_', '-')} is {getattr(args, name)}, the least is {low}")
    if not 0 < args.decay <= 1 or not 0 <= args.floor <= 1 or not all(0 <= m <= 1 for m in args.mix):
        p.error("--decay, --floor and --mix are shares between 0 and 1")
    if args.batch_tokens < args.max_len:
        p.error(f"--batch-tokens is {args.batch_tokens}, less than one chat of --max-len {args.max_len}")
    if args.train_minutes <= 0 and args.steps <= 0:
        p.error("--train-minutes or --steps must be positive")
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        p.error(f"--device {args.device}: this torch sees no GPU")
    return args


class Progress:
    """A line that is rewritten on a terminal; elsewhere a line at most every ten seconds."""

    def __init__(self, stage):
        self.stage, self.last, self.began, self.open = stage, 0.0, time.monotonic(), False
        self.tty = sys.stderr.isatty()

    def __call__(self, done, total, note=""):
        now = time.monotonic()
        if done < total and now - self.last < (0.2 if self.tty else 10):
            return
        self.last = now
        text = f"{self.stage}: {min(1.0, done / total):.0%}  {now - self.began:.0f} s  {note}"
        self.line(text, done >= total)

    def line(self, text, final=True):
        if self.tty:
            print("\r\033[K" + text, end="\n" if final else "", file=sys.stderr, flush=True)
            self.open = not final
        else:
            print(text, file=sys.stderr, flush=True)


class Work:
    """The model, and the files of the work folder."""

    def __init__(self, args):
        self.args, self.out = args, Path(args.out)
        self.data, self.checkpoint = self.out / "data", self.out / "checkpoint.pt"
        self.head = Path(args.head) if args.head else self.out / "head"
        self.evaluation, self.texts = self.out / "evaluation.json", self.out / "texts.json"
        file = Gguf(args.model)
        self.config = read_config(file)
        self.text = Text(file)
        self.name = Path(args.model).stem
        self.license = file.key("general.license", "") or "as the target's"
        self.weights = load_weights(file, self.config)
        self.sha256 = hashlib.sha256(file.data).hexdigest()
        self.device = torch.device(args.device)
        self.half = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        if len(self.text.prefix) + len(self.text.between) + 40 > args.max_len:
            raise BadModel(f"{args.model}: its chat template alone takes {len(self.text.prefix)} tokens of --max-len")
        if args.draft_vocab > self.config.vocab:
            raise BadModel(f"{args.model}: --draft-vocab {args.draft_vocab} is more than its {self.config.vocab} tokens")
        self.out.mkdir(parents=True, exist_ok=True)

    def target(self, dtype, compiled=False, max_len=0):
        return Target(self.weights, self.config, self.device, dtype, max_len or self.args.max_len, compiled)

    def read_head(self, folder):
        try:
            return read_head(folder, self.config)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise BadModel(f"{folder}: not a head for this model: {error}") from error

    def prompts(self):
        return evaluation.read_prompts(self.args.prompts, self.text)


def free_bytes(device):
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 2 << 30


def stage_generate(work):
    a, c = work.args, work.config
    progress = Progress("generate")
    target = work.target(work.half, compiled=work.device.type == "cuda")
    per_stream = 2 * c.layers * c.kv_heads * c.head_dim * a.max_len * target.embedding.element_size() + 10 * c.vocab
    streams = a.streams or int(max(1, min(8192, 0.85 * free_bytes(work.device) // per_stream)))
    have = generation.generate(target, work.text, work.data, a.tokens, streams, a.max_len, a.seed,
                               60 * a.generate_minutes, progress)
    progress.line(f"generate: {have} tokens in {len(generation.shard_files(work.data))} shards")


def stage_train(work):
    a, c = work.args, work.config
    progress = Progress("train")
    state = torch.load(work.checkpoint, map_location=work.device) if work.checkpoint.exists() else None
    if state and state.get("finished") and not a.stop_after:
        progress.line(f"train: finished at step {state['step']}")
        return
    names, prompts = work.prompts()
    turns = [p[len(work.text.prefix):] for p in prompts]        # with what stands between turn and answer, as in the data
    chats = learning.Chats(work.data, work.text.prefix, a.max_len, work.device, banned=turns)
    target = work.target(work.half, compiled=work.device.type == "cuda")
    head = Eagle3Head(c, a.draft_vocab)
    if state:
        if state["draft_vocab"] != a.draft_vocab or state["model_sha256"] != work.sha256:
            raise BadModel(f"{work.checkpoint}: made for another model or --draft-vocab ({state['draft_vocab']})")
    elif a.from_head:
        head = work.read_head(a.from_head)
        if len(head.draft_ids) != a.draft_vocab:
            raise BadModel(f"{a.from_head}: draft_vocab_size is {len(head.draft_ids)}, not --draft-vocab {a.draft_vocab}")
        progress.line(f"train: {len(chats.training)} chats of {chats.generated} kept, {chats.answer_tokens} answer tokens")
    else:
        torch.manual_seed(a.seed)
        counts = chats.frequencies(c.vocab).cpu()
        counts[c.end_ids] = counts.max() + 1            # the ends are drafted however rare they are
        head.draft_ids = counts.topk(a.draft_vocab).indices.sort().values
        covered = counts[head.draft_ids].sum() / counts.sum()
        progress.line(f"train: {len(chats.training)} chats of {chats.generated} kept, {chats.answer_tokens} answer tokens; "
                      f"the draft vocabulary covers {float(covered):.2%} of them")
        head.start_from(work.weights)
    head = head.to(work.device)
    pool = a.pool
    if not pool:
        row = 4 * c.dim * target.embedding.element_size()
        pool = int(max(1, (free_bytes(work.device) - (24 << 30)) // (row * a.batch_tokens)))
    settings = {"steps": a.steps, "minutes": a.train_minutes, "ttt": a.ttt, "rows": a.batch_tokens, "reuse": a.reuse,
                "pool": pool, "muon_lr": a.muon_lr, "adam_lr": a.adam_lr, "warmup": a.warmup, "decay": a.decay,
                "mix": tuple(a.mix), "floor": a.floor, "survival": not a.no_survival, "seed": a.seed,
                "report_seconds": 0.5 if progress.tty else a.report_seconds, "save_seconds": a.save_seconds}
    learner = learning.Learner(head, target, chats, settings, compiled=work.device.type == "cuda")
    if state:
        learner.restore(state)
        progress.line(f"train: goes on at step {learner.step}, {learner.seconds:.0f} s")

    def save(finished=False):
        greedy, warm = learning.held_out_acceptance(learner.averaged().to(work.half), target, chats, 192, 5,
                                                          a.batch_tokens)
        progress.line(f"train: step {learner.step}  held-out chats, chain by depth: greedy "
                      + " ".join(f"{x:.3f}" for x in greedy) + "  sampled (greedy drafts) "
                      + " ".join(f"{x:.3f}" for x in warm))
        hardware = torch.cuda.get_device_name(work.device) if work.device.type == "cuda" else "CPU"
        learning.write_checkpoint(work.checkpoint, {
            **learner.state(), "finished": finished, "draft_vocab": a.draft_vocab, "model_sha256": work.sha256,
            "held_out": {"greedy": greedy, "sampled": warm}, "settings": settings, "hardware": hardware,
            "data": {"chats": len(chats.training), "generated_tokens": chats.generated_tokens,
                     "answer_tokens": chats.answer_tokens, "generated_chats": chats.generated}})
        export(work, torch.load(work.checkpoint, map_location="cpu"))
    finished = learner.run(a.stop_after, save, lambda line: progress.line("train: " + line, final=False))
    save(finished)
    if not finished:
        progress.line(f"train: left at step {learner.step} of its schedule; the same command goes on")


def export(work, state):
    head = Eagle3Head(work.config, state["draft_vocab"])
    head.load_state_dict({**{n: t.cpu() for n, t in state["average"].items()},
                          "draft_ids": state["head"]["draft_ids"].cpu()})
    taps = [1, work.config.layers // 2 - 1, work.config.layers - 4]
    result = json.loads(work.evaluation.read_text()) if work.evaluation.exists() else None
    if result and result["step"] != state["step"]:
        result = None
    card = write_card(work, state, result)
    write_head(head, work.head, {"eagle_config": {"eagle_aux_hidden_state_layer_ids": taps, "use_aux_hidden_state": True},
                                 "training_step": state["step"]}, card)


def stage_export(work):
    if not work.checkpoint.exists():
        raise BadModel(f"{work.checkpoint}: does not exist; run the stage train first")
    export(work, torch.load(work.checkpoint, map_location="cpu"))
    Progress("export").line(f"export: {work.head}")


def stage_evaluate(work):
    a = work.args
    names, prompts = work.prompts()
    longest = max(map(len, prompts)) + a.max_tokens
    target = work.target(torch.float32, max_len=longest)
    head = work.read_head(work.head).to(work.device)
    key = {"model_sha256": work.sha256, "prompts": prompts, "max_tokens": a.max_tokens, "seed": a.seed}
    texts = json.loads(work.texts.read_text()) if work.texts.exists() else None
    if not texts or texts["key"] != key:
        texts = {"key": key, "ids": names}
        for temperature in (0.0, 0.8):
            progress = Progress(f"evaluate: texts at temperature {temperature}")
            texts[str(temperature)] = evaluation.write_texts(target, prompts, temperature, a.seed, a.max_tokens, progress)
        work.texts.write_text(json.dumps(texts) + "\n")
    step = json.loads((work.head / "config.json").read_text()).get("training_step", 0)
    result = {"model": Path(a.model).name, "model_sha256": work.sha256, "prompts": Path(a.prompts).name, "seed": a.seed,
              "max_tokens": a.max_tokens, "step": step, "draft_vocab": len(head.draft_ids)}
    for temperature, name in ((0.0, "greedy"), (0.8, "t0.8")):
        progress = Progress(f"evaluate: {name}")
        result[name] = evaluation.score_texts(head, target, prompts, texts[str(temperature)], temperature, a.seed,
                                              progress=progress)
    work.evaluation.write_text(json.dumps(result, indent=1) + "\n")
    for name in ("greedy", "t0.8"):
        for part in ("whole", "loops_cut"):
            print(f"{name:7} {part:10} " + "  ".join(f"{way} {r['tokens_per_round']:.3f}"
                                                     for way, r in result[name][part].items()))
        chain = result[name]["whole"]["chain:4"]["accepted_by_depth"]
        print(f"{name:7} chain:4 accepted by depth " + " ".join(f"{x:.3f}" for x in chain)
              + f"; distinct bigrams of a text {result[name]['distinct_bigrams']['of_each_text']:.2f}, "
              f"{result[name]['texts_that_loop']} of {len(prompts)} texts loop")
    if work.checkpoint.exists():
        state = torch.load(work.checkpoint, map_location="cpu")
        if state["step"] == step:
            export(work, state)


def main(argv=None):
    args = parse(argv)
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        work = Work(args)
        for stage in STAGES if args.stage == "all" else (args.stage,):
            {"generate": stage_generate, "train": stage_train, "export": stage_export,
             "evaluate": stage_evaluate}[stage](work)
            if work.device.type == "cuda":
                torch.cuda.empty_cache()
    except (BadModel, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    except torch.OutOfMemoryError as error:
        print(f"error: out of GPU memory: {str(error).splitlines()[0]}; try fewer --streams, a smaller --pool or "
              "--batch-tokens", file=sys.stderr)
        return 4
    except KeyboardInterrupt:
        print("\ninterrupted; the same command goes on from the last shard or checkpoint", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
