"""Pairwise cover: few configurations in which every pair of levels of two factors occurs together at least once."""
import itertools


def _pair(factors, a, x, b, y):
    """A pair of (factor, level) in the order of the factors."""
    order = list(factors)
    return ((a, x), (b, y)) if order.index(a) < order.index(b) else ((b, y), (a, x))


def pairs_of(config, factors):
    return {_pair(factors, a, config[a], b, config[b]) for a, b in itertools.combinations(factors, 2)
            if a in config and b in config}


def legal_pairs(factors, legal):
    """Pairs that legal() accepts by themselves; whether a whole configuration can hold one shows in cover()."""
    return {((a, x), (b, y)) for a, b in itertools.combinations(factors, 2)
            for x in factors[a] for y in factors[b] if legal({a: x, b: y})}


def cover(factors, legal=lambda config: True):
    """factors: {name: [levels]}; legal(partial configuration) -> bool. Returns (configurations, pairs left out).

    Greedy and deterministic: start from the first uncovered pair, then give each other factor the level that
    covers most new pairs. A pair that no legal configuration can hold is returned as left out.
    """
    order = {(a, x): (i, j) for i, a in enumerate(factors) for j, x in enumerate(factors[a])}
    uncovered = legal_pairs(factors, legal)
    configs, left_out = [], []
    while uncovered:
        seed = min(uncovered, key=lambda p: (order[p[0]], order[p[1]]))
        config = dict(seed)
        for name in sorted((f for f in factors if f not in config), key=lambda f: -len(factors[f])):
            best = None
            for level in factors[name]:
                trial = {**config, name: level}
                if not legal(trial):
                    continue
                gain = len(pairs_of(trial, factors) & uncovered)
                if best is None or gain > best[0]:
                    best = (gain, level)
            if best is None:
                config = None
                break
            config[name] = best[1]
        if config is None:
            left_out.append(seed)
            uncovered.discard(seed)
            continue
        configs.append({name: config[name] for name in factors})
        uncovered -= pairs_of(config, factors)
    return configs, left_out
