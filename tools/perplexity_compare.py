#!/usr/bin/env python3
"""Compares two engines on the same teacher-forced text: perplexity and top-1 agreement.

Each file is JSON {"ids": [...], "logprob": [...], "argmax": [...]}; entry i of the last two is about ids[i + 1],
given ids[0..i] (so they are one shorter than ids; an entry after the last id is ignored). llama.cpp's file comes
from `bench/peers/llama_cpp.py perplexity`, a float64 one from tools/reference_forward_numpy.py.

With --reference, both are also compared with that third file. Two engines that quantise activations each
differ from float64 and from each other; the reference says which one is nearer. On 2,000 tokens of
tests/data/real_text.txt (SmolLM2-135M Q4_1) llama.cpp agrees with float64 on 96.5 % of the argmax, and with itself,
flash attention off against on, on 96.2 %: so the default of --min-top1 is stricter than that peer is with itself.

Exit: 0 within bounds, 1 not, 2 the files cannot be compared.
"""
import argparse
import json
import math
import sys
from pathlib import Path


def load(path):
    try:
        data = json.loads(Path(path).read_text())
        ids, logprob, argmax = data["ids"], data["logprob"], data["argmax"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not a teacher-forced result ({type(error).__name__}: {error})") from error
    want = len(ids) - 1
    if want < 1 or len(logprob) not in (want, want + 1) or len(argmax) not in (want, want + 1):
        raise ValueError(f"{path}: {len(ids)} ids need {want} logprob and argmax entries, "
                         f"found {len(logprob)} and {len(argmax)}")
    logprob, argmax = logprob[:want], argmax[:want]
    if not all(isinstance(x, (int, float)) and math.isfinite(x) and x <= 1e-6 for x in logprob):
        raise ValueError(f"{path}: a log probability is missing, not finite or positive")
    return {"ids": ids, "logprob": logprob, "argmax": argmax,
            "perplexity": math.exp(-math.fsum(logprob) / want)}


def agreement(a, b):
    return sum(x == y for x, y in zip(a["argmax"], b["argmax"])) / len(a["argmax"])


def logprob_difference(a, b):
    """Mean and largest absolute difference of the text's log probabilities."""
    gaps = [abs(x - y) for x, y in zip(a["logprob"], b["logprob"])]
    return math.fsum(gaps) / len(gaps), max(gaps)


def line(name, a, b):
    mean, worst = logprob_difference(a, b)
    print(f"{name:28} perplexity ratio {a['perplexity'] / b['perplexity']:.5f}   top-1 {100 * agreement(a, b):6.2f} %   "
          f"|logprob difference| mean {mean:.4f} max {worst:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep", metavar="LOCKSTEP.json")
    parser.add_argument("llama", metavar="LLAMA.json")
    parser.add_argument("--reference", metavar="FLOAT64.json")
    parser.add_argument("--max-ratio", type=float, default=0.01, metavar="X",
                        help="allowed |perplexity ratio - 1| (default 0.01)")
    parser.add_argument("--min-top1", type=float, default=0.97, metavar="X",
                        help="smallest share of equal argmax (default 0.97)")
    args = parser.parse_args()
    try:
        own, peer = load(args.lockstep), load(args.llama)
        reference = load(args.reference) if args.reference else None
        for path, other in ((args.llama, peer), (args.reference, reference)):
            if other and other["ids"] != own["ids"]:
                raise ValueError(f"{path}: its ids differ from those of {args.lockstep}; nothing can be compared")
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"tokens predicted {len(own['logprob'])}; perplexity Lockstep {own['perplexity']:.4f}, "
          f"llama.cpp {peer['perplexity']:.4f}" + (f", float64 {reference['perplexity']:.4f}" if reference else ""))
    line("Lockstep over llama.cpp", own, peer)
    if reference:
        line("Lockstep over float64", own, reference)
        line("llama.cpp over float64", peer, reference)
    bad = []
    if abs(own["perplexity"] / peer["perplexity"] - 1) > args.max_ratio:
        bad.append(f"perplexity ratio is off by more than {100 * args.max_ratio:g} %")
    if agreement(own, peer) < args.min_top1:
        bad.append(f"top-1 agreement is below {100 * args.min_top1:g} %")
    print("FAIL: " + "; ".join(bad) if bad else "ok")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
