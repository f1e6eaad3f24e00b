"""The model card: what a ranker is, where it comes from, what it promises, how to load it."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._version import __version__
from countersample.scorers import LinearScorer, NetworkScorer
from countersample.scorers.trees import LEAF

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from countersample.export.served import Served, Translation
    from countersample.rankers import ClickRanker

MARK = "<!-- model card by countersample export: written anew with every export -->"
_UNKNOWN = "not recorded"
_SIZES = ("n_queries_", "n_features_in_")  # told with the data


def card_of(ranker: ClickRanker, served: Served, translation: Translation) -> str:
    """Return the card, in Markdown."""
    parts = [
        MARK,
        f"# {served.name}",
        (
            f"A {served.kind} ranker learned from clicks, for {translation.system} "
            f"({translation.form}): [{served.file}]({served.file}). {translation.checked}"
        ),
        "## How to load it",
        translation.loading.rstrip(),
        "## What it was learned from",
        _pairs(_sources(ranker)),
        "## Gain to expect",
        _gain(ranker.origin_.get("gain")),
        "## Method",
        _pairs(_method(ranker, served)),
        "## Limits",
        "\n".join(f"- {limit}" for limit in translation.limits),
        "## Features",
        _features(served),
        "## Versions",
        _pairs(_versions(ranker, translation.system)),
    ]
    return "\n\n".join(parts) + "\n"


def _sources(ranker: ClickRanker) -> Iterable[tuple[str, str]]:
    origin = ranker.origin_
    size = (
        f"{ranker.n_queries_:,} queries, {origin['n_items']:,} items, "
        f"{ranker.n_features_in_:,} features"
    )
    yield "data", f"{origin.get('data', _UNKNOWN)}: {size}"
    yield "fingerprint of the data", f"`{ranker.fingerprint_}`"
    log = origin.get("log", {})
    counted = [f"{log[part]:,} {part}" for part in ("impressions", "clicks", "sessions")
               if log.get(part) is not None]  # fmt: skip
    yield "log", ": ".join([log.get("file", _UNKNOWN), *([", ".join(counted)] if counted else [])])
    yield "clicks used", f"{origin['n_clicks']:,.0f}"
    yield (
        "weight of a click",
        f"{origin['mean_weight']:.3g} on average, {origin['max_weight']:.3g} at most",
    )
    yield "propensities", origin.get("propensities", _UNKNOWN)


def _gain(gain: Mapping[str, Any] | None) -> str:
    if gain is None:
        return (
            "Not estimated. `countersample fit` and `countersample.estimate_gain` estimate it from "
            "a log, without labels."
        )
    return (
        f"**{gain['relative']:+.1%} {gain['metric']}** over what was logged "
        f"({gain['confidence']:.0%} interval {gain['relative_low']:+.1%} to "
        f"{gain['relative_high']:+.1%}): {gain['new']:.4g} a {gain['per']} instead of "
        f"{gain['logged']:.4g}. Estimated from the log, for queries held out of training."
    )


def _method(ranker: ClickRanker, served: Served) -> Iterable[tuple[str, str]]:
    yield "estimator", f"`{type(ranker).__name__}`"
    yield "scores by", _shape(served)
    params = ranker.get_params()
    for name, value in params.items():
        yield f"`{name}`", f"`{value!r}`"
    for name, value in vars(ranker).items():
        if name.endswith("_") and name not in _SIZES and isinstance(value, int | float):
            is_found = params.get(name[:-1], value) in ("auto", None)
            yield f"`{name}`{' (found)' if is_found else ''}", f"`{value!r}`"


def _shape(served: Served) -> str:
    scorer = served.scorer
    if isinstance(scorer, LinearScorer):
        return f"{scorer.n_features:,} weights"
    if isinstance(scorer, NetworkScorer):
        widths = [scorer.n_features, *(len(bias) for bias in scorer.biases)]
        return "a network of " + " → ".join(f"{width:,}" for width in widths)
    n_leaves = int((scorer.feature == LEAF).sum())
    return f"{scorer.n_trees:,} trees with {n_leaves:,} leaves together"


def _features(served: Served) -> str:
    """Return the table of features, in their order, with what the ranker makes of each."""
    names = served.feature_names or ["–"] * served.n_features
    columns: dict[str, Sequence[str]] = {
        "place": [str(place) for place in range(served.n_features)],
        "name": [_cell(name) for name in names],
    }
    normalizer = served.normalizer
    if normalizer is not None and normalizer.shift is not None and normalizer.scale is not None:
        columns["less"] = [f"{value:.6g}" for value in normalizer.shift]
        columns["divided by"] = [f"{v:.6g}" if v else "0: left out" for v in normalizer.scale]
    scorer = served.scorer
    if isinstance(scorer, LinearScorer):
        columns["weight"] = [f"{weight:.6g}" for weight in scorer.weights]
    elif not isinstance(scorer, NetworkScorer):
        splits = np.bincount(scorer.feature[scorer.feature != LEAF], minlength=served.n_features)
        columns["splits"] = [f"{count:,}" for count in splits]
    return _table(list(columns), zip(*columns.values(), strict=True))


def _versions(ranker: ClickRanker, system: str) -> Iterable[tuple[str, str]]:
    trained_with = ranker.origin_.get("versions")
    if trained_with:
        yield (
            "trained with",
            ", ".join(f"{name} {version}" for name, version in trained_with.items()),
        )
        return
    yield "countersample", __version__
    yield "Python", platform.python_version()
    libraries = ["numpy", *(["onnx"] if system == "ONNX" else [])]
    for library in libraries:
        yield library, metadata.version(library)


def _pairs(rows: Iterable[tuple[str, str]]) -> str:
    return _table(["", ""], ((name, _cell(value)) for name, value in rows))


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(text: str) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")
