"""Slow and obvious versions: of the click kernels, and of each click model by its definition."""

from itertools import pairwise, permutations, product
from math import prod

import numpy as np

# -- the kernels ---------------------------------------------------------------------------------


def reach(offsets, click, after_click, after_skip):
    go_on = click * after_click + (1 - click) * after_skip
    return [prod(go_on[start:row]) for start, end in pairwise(offsets) for row in range(start, end)]


def walk(rng, click, after_click, after_skip):
    """The items of one list that are clicked, with the random numbers the kernel takes."""
    clicked = []
    first = 0
    while first < len(click):
        u = rng.random()
        passed = (1 - click[first:]) * after_skip[first:]
        to_pass = np.cumprod(passed)
        if u < np.cumprod(passed[::-1])[-1] or u < to_pass[-1]:
            break
        stopped = int(np.argmax(u >= to_pass))
        item = first + stopped
        reached = to_pass[stopped - 1] if stopped else 1.0
        if u < reached * (1 - click[item]):
            break
        clicked.append(item)
        if after_click[item] < 1 and rng.random() >= after_click[item]:
            break
        first = item + 1
    return clicked


def clicks_until(rng, offsets, click, after_click, after_skip, n_clicks):
    """The kernel cuts the last walk short; here it is walked to its end, and cut afterwards."""
    queries, rows = [], []
    while len(rows) < n_clicks:
        query = int(rng.random() * (len(offsets) - 1))
        part = slice(offsets[query], offsets[query + 1])
        clicked = walk(rng, click[part], after_click[part], after_skip[part])
        queries += [query] * len(clicked)
        rows += [offsets[query] + item for item in clicked]
    return queries[:n_clicks], rows[:n_clicks]


def clicks_shown(rng, offsets, click, after_click, after_skip, queries):
    result = []
    for query in queries:
        part = slice(offsets[query], offsets[query + 1])
        clicked = walk(rng, click[part], after_click[part], after_skip[part])
        result += [int(item in clicked) for item in range(part.stop - part.start)]
    return result


# -- the logging policies: the probability of each order of one list, a tuple of items ----------


def _add(chances, order, chance):
    chances[order] = chances.get(order, 0) + chance


def ranked(items, top):
    return {tuple(items[:top]): 1.0}


def shuffled(items, top, depth):
    chances = {}
    shuffles = list(permutations(items[:depth]))
    for head in shuffles:
        _add(chances, (*head, *items[depth:])[:top], 1 / len(shuffles))
    return chances


def swapped(items, top, rate, pairs):
    last = min(top, len(items))
    couples = {"adjacent": pairwise(range(last)), "first": ((0, k) for k in range(1, last))}
    couples = list(couples[pairs])
    chances = {tuple(items[:top]): 1 - rate if couples else 1.0}
    for i, k in couples:
        order = list(items)
        order[i], order[k] = items[k], items[i]
        _add(chances, tuple(order[:top]), rate / len(couples))
    return chances


def team_draft(items, others, top):
    """By its definition: rounds, in each of which both pick, in an order that a coin decides."""
    chances = {}

    def rounds(shown, chance):
        if len(shown) >= min(top, len(items)):
            _add(chances, shown[:top], chance)
            return
        for teams in ((items, others), (others, items)):
            after = shown
            for team in teams:
                after += tuple([item for item in team if item not in after][:1])
            rounds(after, chance / 2)

    rounds((), 1.0)
    return chances


def mixture(*parts):
    """Parts of (share, orders)."""
    chances = {}
    for share, orders in parts:
        for order, chance in orders.items():
            _add(chances, order, share * chance)
    return chances


# -- the click models, by the formulas of their papers: each has a line in both tables ----------


def propensities(click_model, labels, *, bias, relevant, noise):
    """P(examined) at each rank of one list; ``bias`` is a function of a rank."""
    ranks = range(1, len(labels) + 1)
    by_bias = [bias(r) for r in ranks]
    attract = attraction(click_model, labels, relevant=relevant, noise=noise)
    satisfy = [0.7 if label >= relevant else 0 for label in labels]
    go_on = [1 - a * (1 - b) for a, b in zip(attract, by_bias, strict=True)]
    stay = [0.9 * (1 - a * s) for a, s in zip(attract, satisfy, strict=True)]
    return {
        "position-based": by_bias,
        "perfect": [1 for _ in ranks],
        "near-random": by_bias,
        "cascade": [prod(1 - a for a in attract[: r - 1]) for r in ranks],
        "dependent-click": [prod(go_on[: r - 1]) for r in ranks],
        "dbn": [prod(stay[: r - 1]) for r in ranks],
        "trust-bias": by_bias,
    }[click_model]


def attraction(click_model, labels, *, relevant, noise):
    """P(click | examined) at each rank of one list."""
    return [
        {
            "position-based": (1, noise),
            "perfect": (1, 0),
            "near-random": (0.6, 0.4),
            "cascade": (1, noise),
            "dependent-click": (1, noise),
            "dbn": (1, noise),
            "trust-bias": (1 - (min(r, 20) + 1) / 100, 0.65 / min(r, 10)),
        }[click_model][0 if label >= relevant else 1]
        for r, label in enumerate(labels, 1)
    ]


def patterns(steps):
    """The probability of each pattern of clicks on one list: a sum over where the user leaves."""
    n = len(steps.click)
    chances = {}
    for pattern in product((0, 1), repeat=n):
        chance = 0.0
        so_far = 1.0  # came to the item, and did so far as the pattern says
        for i, clicked in enumerate(pattern):
            so_far *= steps.click[i] if clicked else 1 - steps.click[i]
            go_on = steps.after_click[i] if clicked else steps.after_skip[i]
            if not any(pattern[i + 1 :]):
                chance += so_far * (1 - go_on if i + 1 < n else 1)
            so_far *= go_on
        chances[pattern] = chance
    return chances
