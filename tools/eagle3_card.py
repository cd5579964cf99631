"""The card (README.md) of a head that tools/train_eagle3.py exports: where it comes from and what it does."""
from pathlib import Path


def _figures(values):
    return " ".join(f"{v:.3f}" for v in values)


def write_card(work, state, evaluation):
    c, s, data, held = work.config, state["settings"], state["data"], state["held_out"]
    model = Path(work.args.model).name
    lines = [
        "---", f"license: {work.license}", "---",
        f"# EAGLE-3 head for {work.name}", "",
        f"A draft head for speculative decoding with `{model}` (sha256 `{work.sha256}`), trained from nothing by",
        "`tools/train_eagle3.py` on text that the model wrote itself. Target weights: the file's, dequantised.", "",
        "Format: the published one of EAGLE-3 (safetensors, bf16): `fc`, `midlayer.*`, `norm`, `lm_head`, `d2t` as",
        f"differences, `t2d`. Features: the outputs of layers {', '.join(map(str, (1, c.layers // 2 - 1, c.layers - 4)))};"
        " the embedding is the target's.", "",
        "| | |", "| --- | --- |",
        f"| draft vocabulary | {state['draft_vocab']} of {c.vocab}, by frequency in the answers |",
        f"| data | {data['generated_chats']:,} chats of {data['generated_tokens']:,} tokens by the model itself; "
        f"{data['chats']:,} kept, {data['answer_tokens']:,} answer tokens |",
        "| user turns | chat template up to the user's turn, temperature 1, min-p 0.01, half behind a forced opener |",
        "| answers | 45 % greedy, 45 % temperature 0.8, 10 % temperature 1; one of each user turn, loops cut |",
        f"| training | {state['step']:,} steps of {s['rows']:,} tokens, {state['seconds'] / 60:.1f} minutes, "
        f"{state['rows'] / 1e6:.0f} M token visits, training-time test of {s['ttt']} steps |",
        f"| hardware | one {state['hardware']} |", ""]
    lines += ["Share of places in held-out chats of the model's own from which the first 1, 2, .. greedy drafts are all the",
              "text's:", "", "| answers | " + " | ".join(f"depth {i + 1}" for i in range(len(held["greedy"]))) + " |",
              "| --- |" + " --- |" * len(held["greedy"]),
              "| greedy | " + " | ".join(f"{v:.3f}" for v in held["greedy"]) + " |",
              "| sampled | " + " | ".join(f"{v:.3f}" for v in held["sampled"]) + " |", ""]
    if evaluation:
        lines += [f"`bench/prompts/{evaluation['prompts']}` (none used in training), up to {evaluation['max_tokens']} tokens, "
                  "tokens per round with the bonus, whole", "texts / with loops cut:", "",
                  "| text | " + " | ".join(evaluation["greedy"]["whole"]) + " | distinct bigrams |",
                  "| --- |" + " --- |" * (len(evaluation["greedy"]["whole"]) + 1)]
        for name, title in (("greedy", "greedy"), ("t0.8", "temperature 0.8, the same noise in drafter and target")):
            part = evaluation[name]
            cells = [f"{part['whole'][w]['tokens_per_round']:.2f} / {part['loops_cut'][w]['tokens_per_round']:.2f}"
                     if w in part["whole"] else "-" for w in evaluation["greedy"]["whole"]]
            lines.append(f"| {title} | " + " | ".join(cells) + f" | {part['distinct_bigrams']['of_each_text']:.2f} |")
        lines += ["", "Accepted by depth in the rounds of chain:4: greedy "
                  + _figures(evaluation["greedy"]["whole"]["chain:4"]["accepted_by_depth"]) + "; temperature 0.8 "
                  + _figures(evaluation["t0.8"]["whole"]["chain:4"]["accepted_by_depth"]) + ".", ""]
    lines += [f"Licence: the head's weights begin as copies of the target's and learn its distributions; they derive from",
              f"{work.name} ({work.license}) and are under the same licence.", ""]
    return "\n".join(lines)
