"""Rankers of every kind that nobody trained, and rows to score with them."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np

from countersample import RankingDataset
from countersample.data.preprocessing import Imputer, Normalizer, Preprocessing
from countersample.export.trees import on_raw_features
from countersample.rankers import files
from countersample.rankers.base import ClickRanker
from countersample.scorers import LinearScorer, NetworkScorer, TreesScorer

KINDS = ["linear", "neural", "boosted"]
BY_COLUMN = [None, "minmax", "standard"]
CONSTANT = 3  # the column that does not vary
# Scales from 10^-6 to 10^6, one with a mean far from 0, one constant.
SCALES = np.array([1e-6, 1e-3, 1.0, 0.0, 1e3, 1e6, 10.0])
MEANS = np.array([0.0, 0.0, -1.0, 5.0, 2e3, 0.0, 1e5])
NAMES = tuple(f"feature {index}" for index in range(len(SCALES)))


class Made(ClickRanker):
    """A ranker with a scorer that nobody trained."""

    def __init__(self, normalize=None, random_state=None):
        self.normalize = normalize
        self.random_state = random_state


def some_features(rng, n_rows=400, spread=1):
    noise = spread * rng.standard_normal((n_rows, len(SCALES)))
    return (MEANS + SCALES * noise).astype(np.float32)


def some_scorer(kind, rng, features):
    """Return a scorer for features of the given range."""
    n = features.shape[1]
    if kind == "linear":
        return LinearScorer(rng.standard_normal(n))
    if kind == "neural":
        widths = [n, 6, 4, 1]
        shapes = [(out, into) for into, out in pairwise(widths)]
        return NetworkScorer(
            tuple(rng.standard_normal(shape).astype(np.float32) for shape in shapes),
            tuple(rng.standard_normal(out).astype(np.float32) for out, _ in shapes),
        )
    return some_trees(rng, [rng.choice(column, 30) for column in features.T])


def some_trees(rng, thresholds, n_trees=20, depth=4):
    """Return whole trees, and a stump, with thresholds among those given by feature."""
    feature, threshold, left, right, value = [], [], [], [], []

    def grow(depth):
        node = len(feature)
        chosen = int(rng.integers(len(thresholds))) if depth else -1
        feature.append(chosen)
        threshold.append(rng.choice(thresholds[chosen]) if depth else 0)
        value.append(0 if depth else rng.standard_normal())
        left.append(0)
        right.append(0)
        if depth:
            left[node], right[node] = grow(depth - 1), grow(depth - 1)
        return node

    roots = [grow(depth if tree else 0) for tree in range(n_trees)]
    lists = {"roots": roots, "feature": feature, "threshold": np.array(threshold).tolist(),
             "left": left, "right": right, "value": np.array(value, float).tolist()}  # fmt: skip
    return TreesScorer.from_dict({"n_features": len(thresholds), **lists})


def a_chain(depth):
    """Return a tree that has a leaf beside each split: the first whole number x is at most."""
    inner = range(0, 2 * depth, 2)
    nodes = {"feature": [0, -1] * depth + [-1], "threshold": [0.0] * (2 * depth + 1)}
    nodes |= {name: [0] * (2 * depth + 1) for name in ("left", "right")}
    nodes["value"] = [0.0] * (2 * depth) + [float(depth)]
    for level, node in enumerate(inner):
        nodes["left"][node], nodes["right"][node] = node + 1, node + 2
        nodes["threshold"][node] = nodes["value"][node + 1] = float(level)
    return TreesScorer.from_dict(nodes | {"n_features": 1, "roots": [0]})


def ranker_of(kind, scorer, *, names, normalizer=None, imputer=None):
    """Return a ranker that scores by this."""
    ranker = Made(normalize=None if normalizer is None else normalizer.how)
    ranker.kind, ranker.scorer_ = kind, scorer
    ranker.preprocessing_ = Preprocessing(None, imputer, normalizer)
    ranker.n_queries_, ranker.fingerprint_ = 1, "0123"
    ranker.provenance_ = {"n_clicks": 5, "n_items": 400, "mean_weight": 2.0, "max_weight": 4.0}
    n_features = scorer.n_features if imputer is None else imputer.n_features
    ranker._remember_features(n_features, names)
    return ranker


def made(kind, how, rng, *, names=NAMES, transform=None):
    """Return a ranker of this kind and normalisation, and rows to score with it."""
    features = some_features(rng)
    nothing = np.zeros(len(features), int)
    dataset = RankingDataset.from_arrays(features, nothing, nothing)
    plain = how is None and transform is None
    normalizer = None if plain else Normalizer.fit(dataset, how, transform)
    seen = features if normalizer is None else normalizer(dataset).features
    scorer = some_scorer(kind, rng, seen)
    ranker = ranker_of(kind, scorer, names=names, normalizer=normalizer)
    rows = np.concatenate([features[:100], some_features(rng, 100, spread=3)])
    if kind == "boosted":
        rows = np.concatenate([rows, on_thresholds(ranker, rows)])
    return ranker, rows


def with_holes(features, rng, share=0.2):
    """Return the features with some values missing: none of the first, all of the second row."""
    holes = rng.random(features.shape) < share
    holes[0], holes[1] = False, True
    return np.where(holes, np.float32(np.nan), features)


def made_missing(kind, how, rng, *, fill="median-indicator"):
    """Return a ranker that was trained where features were missing, and rows with such."""
    features = with_holes(some_features(rng), rng)
    nothing = np.zeros(len(features), int)
    dataset = RankingDataset.from_arrays(features, nothing, nothing)
    imputer = None if kind == "boosted" else Imputer.fit(dataset, fill)
    filled = dataset if imputer is None else imputer(dataset)
    normalizer = None if how is None else Normalizer.fit(filled, how)
    seen = filled.features if normalizer is None else normalizer(filled).features
    scorer = some_scorer(kind, rng, np.nan_to_num(seen))
    if kind == "boosted":
        missing_left = (scorer.feature >= 0) & (rng.random(len(scorer.feature)) < 0.5)
        scorer = replace(scorer, missing_left=missing_left)
    ranker = ranker_of(kind, scorer, names=NAMES, normalizer=normalizer, imputer=imputer)
    rows = with_holes(some_features(rng, 200, spread=2), rng)
    return ranker, rows


def predict(ranker, rows):
    """Return the scores of one query's items; features may have names that an array has not."""
    return ranker._scores(rows, np.array([0, len(rows)]))


def on_thresholds(ranker, rows):
    """Return the rows with values at the thresholds of the trees, and right below and above."""
    if ranker.preprocessing_.is_by_query:
        return rows
    trees = on_raw_features(ranker.scorer_, ranker.preprocessing_.normalizer)
    result = []
    for toward in (-np.inf, None, np.inf):
        changed = rows.copy()
        for node in np.flatnonzero(trees.feature >= 0):
            at = trees.threshold[node]
            row = node % len(rows)
            changed[row, trees.feature[node]] = (
                at if toward is None else np.nextafter(at, np.float32(toward))
            )
        result.append(changed)
    return np.concatenate(result)


_LEARNED = {
    "linear": {"learning_rate": 0.1, "clip": None, "n_steps": 10},
    "neural": {"n_steps": 10, "start": "zero", "clip": 0.1},
    "boosted": {"n_trees": 20, "start": "zero", "clip": None},
}
_ORIGIN = {
    "n_clicks": 5.0, "n_items": 400, "mean_weight": 2.0, "max_weight": 4.0,
    "versions": {"numpy": "2"}, "choice": "zero", "data": "d", "propensities": "p",
    "log": {"file": "l", "impressions": 9, "clicks": 3, "sessions": None}, "verdict": "better",
    "gain": {"metric": "dcg", "per": "session", "relative": 0.1, "relative_low": 0.0,
             "relative_high": 0.2, "confidence": 0.95, "new": 2.0, "logged": 1.0},
    "warnings": ["a", "b"],
}  # fmt: skip


def content(kind, how=None, transform=None, *, missing=False):
    """Return what the file of a ranker has, in plain values: to be changed."""
    if missing:
        ranker, _ = made_missing(kind, how, np.random.default_rng(0))
    else:
        ranker, _ = made(kind, how, np.random.default_rng(0), transform=transform)
    scorer = ranker.scorer_.to_dict()
    if kind == "boosted" and how == "minmax":
        scorer["base"] = [0.5] * ranker.n_features_in_
        if missing:
            scorer["base_missing"] = [-0.5] * ranker.n_features_in_
    weights = {n: scorer["weights"] for n in ("coef", "average_coef") if kind == "linear"}
    kept = {
        "kind": kind, "params": {"random_state": 0},
        "statistics": {"n_features_in_": ranker.n_features_in_, "n_queries_": 4,
                       "fingerprint_": "0123", "provenance_": _ORIGIN},
        "feature_names": None if how == "minmax" else list(NAMES),
        "preprocessing": ranker.preprocessing_.to_dict(),
        "learned": {"scorer": scorer, **_LEARNED[kind], **weights},
    }  # fmt: skip
    return json.loads(json.dumps(kept))


def with_encoder(content):
    """Return the content of a ranker's file with an encoder that makes its seven features."""
    columns = [
        *({"name": name, "kind": "number"} for name in NAMES[:3]),
        {"name": "since", "kind": "date", "reference": "2026-03-31"},
        {"name": "color", "kind": "category", "values": ["a", "b, é", "c"]},
    ]
    names = [*NAMES[:3], "since", "color=a", "color=b, é", "color=c"]
    preprocessing = content["preprocessing"] | {"encoder": {"columns": columns}}
    return {**content, "feature_names": names, "preprocessing": preprocessing}


def as_file(content):
    """Return the bytes of the file of a ranker that has this, with the checksum of it."""
    text = files._to_text(content)
    checksum = files._checksum(text)
    header = {"format": files.FORMAT, "version": files.VERSION, "checksum": checksum}
    return (json.dumps(header)[:-1] + ',\n"ranker": ' + text + "}\n").encode()
