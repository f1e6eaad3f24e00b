"""Slow and obvious versions: of the kernels, and of each metric by its textbook definition."""

from itertools import chain, groupby, pairwise, permutations, product
from math import log2, prod

import numpy as np


def rows_of(offsets):
    return [slice(start, end) for start, end in pairwise(offsets)]


# -- the kernels, for one query ------------------------------------------------------------------


def rank(values, scores, favour):
    return sorted(range(len(scores)), key=lambda i: (-scores[i], -favour * values[i], i))


def additive(ranked, weights):
    return sum(weight * value for weight, value in zip(weights, ranked, strict=False))


def cascade(ranked, weights):
    return sum(
        weight * ranked[i] * prod(1 - value for value in ranked[:i])
        for i, weight in enumerate(weights[: len(ranked)])
    )


def precision_sum(ranked, weights):
    return sum(
        weight * ranked[i] * sum(ranked[: i + 1]) for i, weight in enumerate(weights[: len(ranked)])
    )


def tied_orders(scores):
    """All orders in which items may stand, given that the order of tied ones is open."""
    by_rank = rank(scores, scores, 0)
    blocks = [list(block) for _, block in groupby(by_rank, key=lambda i: scores[i])]
    return [list(chain(*order)) for order in product(*map(permutations, blocks))]


# -- the metrics, from the labels of one query in ranked order -----------------------------------


def gain_of(label, gain):
    return {"exponential": 2**label - 1, "linear": label}[gain]


def discount_of(rank, discount):
    return 1 / log2(1 + rank) if discount == "log2" else 1 / max(1, log2(rank))


def dcg(ranked, k=None, gain="exponential", discount="log2"):
    return sum(
        gain_of(label, gain) * discount_of(r, discount) for r, label in enumerate(ranked[:k], 1)
    )


def ndcg(ranked, k=None, **options):
    return dcg(ranked, k, **options) / dcg(sorted(ranked, reverse=True), k, **options)


def arp(ranked, k=None):
    assert k is None
    return sum(r * label for r, label in enumerate(ranked, 1)) / sum(ranked)


def precision(ranked, k=None, relevant=1):
    return sum(label >= relevant for label in ranked[:k]) / (k or len(ranked))


def average_precision(ranked, k=None, relevant=1):
    ranks = [r for r, label in enumerate(ranked[:k], 1) if label >= relevant]
    everything = sum(label >= relevant for label in ranked)
    return sum(precision(ranked, r, relevant) for r in ranks) / everything


def mrr(ranked, k=None, relevant=1):
    return next((1 / r for r, label in enumerate(ranked[:k], 1) if label >= relevant), 0.0)


def err(ranked, k=None, max_label=None):
    stops = [(2**label - 1) / 2**max_label for label in ranked]
    return sum(
        (1 / (i + 1)) * stop * prod(1 - other for other in stops[:i])
        for i, stop in enumerate(stops[:k])
    )


METRICS = {each.__name__: each for each in (arp, average_precision, dcg, err, mrr, ndcg, precision)}


def measure(name, labels, scores, ties, **options):
    """One query's value under a tie rule: over all orders, or over the one that it picks."""
    favour = {"best": 1, "worst": -1}.get(ties, 0)
    orders = tied_orders(scores) if ties == "expected" else [rank(labels, scores, favour)]
    return np.mean([METRICS[name]([labels[i] for i in order], **options) for order in orders])
