"""What bench/peers/llama_cpp.py makes of its samples: the peer's better mode, ratios, verdicts, and Markdown. No
process is started here and no clock is read.

A sample is {"model", "group", "side", "config", "turn", "figures": {name: number}} or has "error" in place of figures.
side is "llama" (config: its mode, such as "on" for flash attention) or "lockstep" (config: "2x1" = tp 2, 1 thread a
rank). Figures are speeds, where larger is better, unless smaller_is_better() says otherwise. Counts that are no
contest, such as accepted drafts, are samples' "notes".
"""
import statistics

PRUNE_TURNS = 2  # turns after which a mode of the peer may be left out
PRUNE_MARGIN = 1.10  # if another was better by this factor each time, in each figure
START, START_ENGINE, MEMORY = "start to first token, ms", "start to first token without Python, ms", "VmHWM, MiB"
KINDS = (("code_edit", 2.5), ("copying", 1.5), ("chat", 1.0))
VERIFY = ((2, 1.10, 1.05), (4, 1.30, 1.2), (8, 1.6, 1.3), (16, 2.4, 1.7))


def smaller_is_better(name):
    return name.startswith(("start ", "VmHWM"))


def better(name, a, b):
    """By what factor a is better than b."""
    return b / a if smaller_is_better(name) else a / b


def step_name(width, context):
    return f"step of {width}, context {context}"


def values(samples, model, side, config, name):
    """{turn: value} of one figure."""
    return {s["turn"]: s["figures"][name] for s in samples
            if (s["model"], s["side"], s["config"]) == (model, side, config) and name in s.get("figures", {})}


def configs(samples, model, side):
    seen = []
    for s in samples:
        if (s["model"], s["side"]) == (model, side) and s["config"] not in seen:
            seen.append(s["config"])
    return seen


def names(samples, model):
    seen = []
    for s in samples:
        if s["model"] == model:
            seen += [n for n in s.get("figures", {}) if n not in seen]
    return seen


def hopeless(samples, model, group, modes, judged=None):
    """Modes of the peer that need no further turn: another one was better by PRUNE_MARGIN in each figure of each of the
    first turns. `judged`, where given, names the figures that count."""
    mine = [s for s in samples if (s["model"], s["group"], s["side"]) == (model, group, "llama")]
    def wins(a, b):
        count = 0
        for s in mine:
            if s["config"] != b or "figures" not in s:
                continue
            other = [o for o in mine if (o["config"], o["turn"]) == (a, s["turn"]) and "figures" in o]
            shared = [n for n in s["figures"] if other and n in other[0]["figures"] and n in (judged or s["figures"])]
            if not shared or any(better(n, other[0]["figures"][n], s["figures"][n]) < PRUNE_MARGIN for n in shared):
                return False
            count += 1
        return count >= PRUNE_TURNS
    return [b for b in modes if any(wins(a, b) for a in modes if a != b)]


def summary(name, by_turn):
    v = list(by_turn.values())
    best, worst = (min(v), max(v)) if smaller_is_better(name) else (max(v), min(v))
    return {"median": statistics.median(v), "best": best, "worst": worst, "samples": len(v)}


def best_mode(samples, model, name):
    """(mode, {turn: value}) of the peer's better mode by the median over its turns, or (None, {})."""
    found = {m: values(samples, model, "llama", m, name) for m in configs(samples, model, "llama")}
    found = {m: v for m, v in found.items() if v}
    if not found:
        return None, {}
    pick = min if smaller_is_better(name) else max
    mode = pick(found, key=lambda m: statistics.median(found[m].values()))
    return mode, found[mode]


def rows(samples, models):
    """One row for each model and figure: both sides, and Lockstep over llama.cpp turn by turn."""
    out = []
    for model in models:
        for name in names(samples, model):
            mode, peer = best_mode(samples, model, name)
            row = {"model": model, "what": name, "lockstep": {}, "ratio": {}}
            if peer:
                row["mode"], row["llama"] = mode, summary(name, peer)
            for config in configs(samples, model, "lockstep"):
                own = values(samples, model, "lockstep", config, name)
                if not own:
                    continue
                row["lockstep"][config] = summary(name, own)
                pairs = [own[t] / peer[t] for t in own if t in peer]
                if pairs:
                    worst = max(pairs) if smaller_is_better(name) else min(pairs)
                    row["ratio"][config] = {"median": statistics.median(pairs), "worst": worst,
                                            "of_best": row["lockstep"][config]["best"] / row["llama"]["best"]}
            out.append(row)
    return out


def times_base(samples, model, side, name, base, factor=1):
    """{config: {median, best, samples}} of factor x base / name, turn by turn. The peer takes its better mode for each
    of the two figures, so that its cost of a width is that of its best settings; its config is called "llama"."""
    if side == "llama":
        pairs = {"llama": (best_mode(samples, model, base)[1], best_mode(samples, model, name)[1])}
    else:
        pairs = {c: (values(samples, model, side, c, base), values(samples, model, side, c, name))
                 for c in configs(samples, model, side)}
    out = {}
    for config, (a, b) in pairs.items():
        found = [factor * a[t] / b[t] for t in a if t in b]
        if found:
            out[config] = {"median": statistics.median(found), "best": min(found), "samples": len(found)}
    return out


def verdicts(samples, models, file_bytes, plain="plain, {}", drafted="prompt lookup, {}"):
    """The table of what the engine must show: one entry a line, each with the peer's figure, ours, the judged number
    and whether it is met, by ranks and threads. file_bytes: {"tensors", "kv_per_token"} of the first model."""
    main, lines = models[0], []
    by_name = {(r["model"], r["what"]): r for r in rows(samples, models)}

    def line(what, target, sense, limit, judged, peer=None, own=None, stretch=None):
        judged = {c: v["median"] for c, v in judged.items()}
        met = {c: (v >= limit if sense == ">=" else v <= limit) for c, v in judged.items()}
        entry = {"what": what, "llama": peer, "lockstep": own or {}, "judged": judged, "target": target, "met": met}
        if stretch is not None:
            entry["stretch_met"] = {c: v <= stretch for c, v in judged.items()}
        lines.append(entry)

    def against(what, name, sense, limit, model=main):
        row = by_name.get((model, name), {})
        line(what, f"{sense} {limit:g} x llama.cpp", sense, limit, row.get("ratio", {}),
             row.get("llama", {}).get("median"), {c: v["median"] for c, v in row.get("lockstep", {}).items()})

    against("decode at context 32, tokens/s", step_name(1, 32), ">=", 2.0)
    against("decode at context 512, tokens/s", step_name(1, 512), ">=", 2.5)
    for width, limit, stretch in VERIFY:
        name, base = step_name(width, 32), step_name(1, 32)
        peer = times_base(samples, main, "llama", name, base, width).get("llama", {}).get("median")
        own = times_base(samples, main, "lockstep", name, base, width)
        line(f"verify of {width} rows over plain, all logits", f"<= {limit:.2f} (stretch {stretch:g})", "<=", limit,
             own, peer, {c: v["median"] for c, v in own.items()}, stretch)
    against("prefill 512, tokens/s", "prefill 512", ">=", 1.8)
    for kind, limit in KINDS:
        a, b = plain.format(kind), drafted.format(kind)
        peer = times_base(samples, main, "llama", a, b).get("llama", {}).get("median")
        own = times_base(samples, main, "lockstep", a, b)
        line(f"n-gram, {kind.replace('_', ' ')}, over own plain", f">= {limit:g}", ">=", limit, own, peer,
             {c: v["median"] for c, v in own.items()})
    against("process start to first token, 39-token prompt, ms", START, "<=", 0.5)
    against("the same, Python's own start taken off", START_ENGINE, "<=", 0.5)
    against("VmHWM, context 2048 filled, MiB", MEMORY, "<=", 0.7)
    name, base = step_name(1, 4096), step_name(1, 32)
    if file_bytes:
        kv, weights = file_bytes["kv_per_token"], file_bytes["tensors"]
        limit = 1.3 * (weights + 4096 * kv) / (weights + 32 * kv)
        peer = times_base(samples, main, "llama", name, base).get("llama", {}).get("median")
        own = times_base(samples, main, "lockstep", name, base)
        line("step at context 4096 over context 32", f"<= {limit:.2f} (bytes read x 1.3)", "<=", limit, own, peer,
             {c: v["median"] for c, v in own.items()})
    for model in models[1:]:
        against(f"decode at context 32, {model}", step_name(1, 32), ">=", 1.6, model)
    return lines


def number(value):
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def cells(found):
    return "-" if not found else f"{number(found['median'])} ({number(found['best'])})"


def table(head, body):
    return "\n".join("| " + " | ".join(r) + " |" for r in [head, ["---"] * len(head), *body]) + "\n"


def own_configs(samples):
    return list(dict.fromkeys(s["config"] for s in samples if s["side"] == "lockstep" and "figures" in s))


def title(config):
    ranks, threads = config.split("x")
    return f"tp {ranks} x {threads}"


def verdict_table(lines, samples):
    ours = own_configs(samples)

    def verdict(entry, config):
        if config not in entry["met"]:
            return "not measured"
        text = f"{number(entry['judged'][config])}: " + ("met" if entry["met"][config] else "**missed**")
        return text + (", stretch too" if entry.get("stretch_met", {}).get(config) else "")
    head = ["what", "llama.cpp"] + [f"Lockstep {title(c)}" for c in ours] + ["target"] + [f"{title(c)}" for c in ours]
    return table(head, [[e["what"], number(e["llama"])] + [number(e["lockstep"].get(c)) for c in ours] + [e["target"]] +
                        [verdict(e, c) for c in ours] for e in lines])


def figure_table(found, samples):
    ours = own_configs(samples)
    head = ["what", "llama.cpp", "mode"]
    for c in ours:
        head += [f"Lockstep {title(c)}", "ratio"]
    body = []
    for r in found:
        line = [r["what"], cells(r.get("llama")), r.get("mode", "-")]
        for c in ours:
            ratio = r["ratio"].get(c)
            line += [cells(r["lockstep"].get(c)),
                     f"{number(ratio['median'])} ({number(ratio['worst'])})" if ratio else "-"]
        body.append(line)
    return table(head, body)


def spec_table(samples, model):
    """Drafts by kind of prompt: speed over own plain, tokens a round with a draft, and whether the text stayed."""
    body = []
    for side, who in (("llama", "llama.cpp"), ("lockstep", "Lockstep")):
        for config in configs(samples, model, side):
            mine = [s for s in samples if (s["model"], s["side"], s["config"]) == (model, side, config)
                    and s.get("notes", {}).get("spec")]
            for kind in dict.fromkeys(k for s in mine for k in s["notes"]["spec"]):
                plain, drafted = (values(samples, model, side, config, f"{n}, {kind}")
                                  for n in ("plain", "prompt lookup"))
                gain = [drafted[t] / plain[t] for t in plain]
                notes = [s["notes"]["spec"][kind] for s in mine if kind in s["notes"]["spec"]]
                same, texts = sum(n["same"] for n in notes), sum(n["texts"] for n in notes)
                body.append([who, title(config) if side == "lockstep" else config, kind.replace("_", " "),
                             number(statistics.median(plain.values())),
                             number(statistics.median(drafted.values())),
                             f"{statistics.median(gain):.2f} ({min(gain):.2f})",
                             f"{statistics.median(n['accept_length'] for n in notes):.2f}",
                             "yes" if same == texts else f"{same} of {texts}", str(len(plain))])
    return table(["engine", "mode", "prompts", "plain", "with drafts", "over plain, median (min)", "tokens a round",
                  "text as its plain", "turns"], body) if body else ""


def python_note(samples, model):
    """What was taken off the peer's start and memory, which are those of a Python program."""
    notes = [s["notes"] for s in samples if s["model"] == model and s["side"] == "llama" and s.get("notes")]
    starts, peaks = [n for n in notes if "python_ms" in n], [n["before_kib"] / 1024 for n in notes if "before_kib" in n]
    lines = []
    if starts:
        took = {k: statistics.median(n["python_ms"][k] for n in starts) for k in starts[0]["python_ms"]}
        apart = all(n["library_apart"] for n in starts)
        lines.append(f"Python's own start, taken off where the row says so: {took['interpreter']:.0f} ms to the "
                     f"interpreter's first line, {took['packages']:.0f} ms for its packages"
                     f"{'' if apart else ' (with llama.cpp itself: its library was not found apart)'}; the prompt has "
                     f"{starts[0]['prompt_tokens']} tokens.")
    if peaks:
        lines.append(f"Python's own peak, taken off llama.cpp's VmHWM: {statistics.median(peaks):.0f} MiB.")
    return " ".join(lines)


def errors(samples):
    """Each error once, with where it came up."""
    found = {}
    for s in samples:
        if "error" in s:
            key = (s["model"], s["side"], s["group"], s["error"])
            found.setdefault(key, []).append(s["config"])
    return [f"{model}, {group}, {', '.join(side if n == '-' else f'{side} {n}' for n in dict.fromkeys(c))}: {error}"
            for (model, side, group, error), c in found.items()]
