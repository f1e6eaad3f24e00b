"""The model card: what a ranker is, where it comes from, what it promises, how to load it.

`card_of` gathers it once; `Card` writes it as Markdown or as a page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from countersample import pages
from countersample.export.blocks import Block, Code, Grid, Mono
from countersample.export.serving import (
    HEAVIEST,
    MOST_LISTED,
    example,
    heaviest,
    linear_weights,
    names_of,
    needs,
    splits,
    time_of_query,
)
from countersample.rankers._files import versions
from countersample.scorers import LinearScorer, NetworkScorer, TreesScorer
from countersample.scorers.trees import LEAF

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from countersample.export.specification import ModelSpecification, Translation
    from countersample.rankers import ClickRanker

MARK = "<!-- model card by countersample export: written anew with every export -->"
_UNKNOWN = "not recorded"
_SIZES = ("n_queries_", "n_features_in_")  # told with the data


@dataclass(frozen=True)
class Card:
    """What a card says: a name, a first paragraph, and sections by title."""

    name: str
    lead: str
    sections: Mapping[str, Sequence[Block]]

    def to_markdown(self) -> str:
        """Return the card as Markdown."""
        parts = [MARK, f"# {pages.escape_markdown(self.name)}", self.lead]
        for title, blocks in self.sections.items():
            parts += [f"## {title}", *map(_markdown, blocks)]
        return "\n\n".join(parts) + "\n"

    def to_html(self) -> str:
        """Return the card as a page that needs no network."""
        content = [MARK]
        for number, (title, blocks) in enumerate(self.sections.items(), 1):
            content.append(pages.section(title, *map(_html, blocks), name=f"part-{number}"))
        lead = f"<p>{_inline(self.lead)}</p>"
        return pages.render_page(self.name, content, kind="Model card", lead=lead)


CARDS: dict[str, tuple[str, Callable[[Card], str]]] = {  # the ending of the file, and its text
    "markdown": (".md", Card.to_markdown),
    "html": (".html", Card.to_html),
}


def card_of(ranker: ClickRanker, spec: ModelSpecification, translation: Translation) -> Card:
    """Gather what the card says."""
    origin = ranker.provenance_
    lead = (
        f"A {spec.kind} ranker learned from clicks, for {spec.system} "
        f"({translation.form}): [{pages.escape_markdown(spec.file)}]({quote(spec.file)}). "
        f"{translation.checked}"
    )
    return Card(
        spec.name,
        lead,
        {
            "How to load it": translation.loading,
            "What it needs": [needs(spec)],
            "An example to check by hand": example(spec),
            "Time": [time_of_query(spec)],
            "What it was learned from": [Grid(list(_sources(ranker, origin)))],
            "Gain to expect": [_gain(origin.get("gain"), origin.get("verdict")), *_doubts(origin)],
            "Method": [Grid(list(_method(ranker, spec)))],
            "Limits": [translation.limits],
            "Features": _features(spec),
            "Versions": [_versions(origin.get("versions"))],
        },
    )


# -- what it says --------------------------------------------------------------------------------


def _sources(ranker: ClickRanker, origin: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    size = (
        f"{ranker.n_queries_:,} queries, {origin['n_items']:,} items, "
        f"{ranker.n_features_in_:,} features"
    )
    yield "data", f"{origin.get('data', _UNKNOWN)}: {size}"
    yield "fingerprint of the data", Mono(ranker.fingerprint_)
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


def _gain(gain: Mapping[str, Any] | None, verdict: str | None) -> str:
    if gain is None and verdict is not None:
        return "**Not known**: there is no verdict."
    if gain is None:
        return (
            "Not estimated. `countersample fit` and `countersample.estimate_gain` estimate it from "
            "a log, without labels."
        )
    told = (
        f"{gain['relative']:+.1%} {pages.escape_markdown(gain['metric'])}** over what was logged "
        f"({gain['confidence']:.0%} interval {gain['relative_low']:+.1%} to "
        f"{gain['relative_high']:+.1%}): {gain['new']:.4g} a {pages.escape_markdown(gain['per'])} "
        "instead of "
        f"{gain['logged']:.4g}. Estimated from the log, by clicks held out of training."
    )
    if not gain.get("is_identified", True):
        told = told.replace("**", "")
        return f"**Not known**: the log does not identify the propensities. Were they right: {told}"
    return f"**{told}"


def _doubts(origin: Mapping[str, Any]) -> list[str]:
    """Return what `countersample fit` concluded, and what it warned of."""
    if "verdict" not in origin:
        return []
    warned = [f"Warning: {pages.escape_markdown(text)}" for text in origin["warnings"]]
    verdict = pages.escape_markdown(origin["verdict"])
    return [f"What was said when it was trained: {verdict}", *warned]


def _method(ranker: ClickRanker, spec: ModelSpecification) -> Iterable[tuple[str, str]]:
    yield "estimator", Mono(type(ranker).__name__)
    yield "scores by", _shape(spec)
    if "choice" in ranker.provenance_:
        yield "chosen", ranker.provenance_["choice"]
    params = ranker.get_params()
    for name, value in params.items():
        yield Mono(name), Mono(repr(value))
    for name, value in vars(ranker).items():
        if name.endswith("_") and name not in _SIZES and isinstance(value, int | float):
            asked = params.get(name[:-1].removeprefix("n_"), value)
            yield Mono(f"{name} (found)" if asked is None else name), Mono(repr(value))


def _shape(spec: ModelSpecification) -> str:
    scorer = spec.scorer
    if isinstance(scorer, LinearScorer):
        return f"{scorer.n_features:,} weights"
    if isinstance(scorer, NetworkScorer):
        widths = [scorer.n_features, *(len(bias) for bias in scorer.biases)]
        return "a network of " + " → ".join(f"{width:,}" for width in widths)
    n_leaves = int((scorer.feature == LEAF).sum())
    told = f"{scorer.n_trees:,} trees with {n_leaves:,} leaves together"
    return told if scorer.base is None else f"{scorer.n_features:,} weights, and {told}"


def _features(spec: ModelSpecification) -> list[Block]:
    """Return the table of features, in their order, with what the ranker makes of each.

    Many that have no names are told of together, and the heaviest alone.
    """
    columns = _columns_of_features(spec)
    rows = list(zip(*columns.values(), strict=True))
    caption = "Features, in the order of training"
    if spec.feature_names is not None or len(rows) <= MOST_LISTED:
        return [Grid(rows, tuple(columns), caption)]
    told = (
        f"{len(rows):,} features without names, in the order of training, counted from 0. Their "
        f"ranges, and the {HEAVIEST} that count most:"
    )
    most = sorted(heaviest(spec)[:HEAVIEST].tolist())
    return [
        told,
        Grid(list(_ranges(spec))),
        Grid([rows[index] for index in most], tuple(columns), f"The {HEAVIEST} heaviest features"),
    ]


def _ranges(spec: ModelSpecification) -> Iterable[tuple[str, str]]:
    """Return the least and the largest of what is known of features."""
    normalizer, scorer = spec.normalizer, spec.scorer
    known: dict[str, Any] = {}
    if normalizer is not None and normalizer.shift is not None and normalizer.scale is not None:
        known |= {"less": normalizer.shift, "divided by": normalizer.scale}
    known["weight"] = linear_weights(spec)
    if isinstance(scorer, TreesScorer):
        known["splits"] = splits(scorer)
    for name, values in known.items():
        if values is not None:
            n_zero = int((np.array(values) == 0).sum())
            zeros = f"; {n_zero:,} are 0" if n_zero else ""
            yield name, f"{np.min(values):.6g} to {np.max(values):.6g}{zeros}"
    if isinstance(scorer, NetworkScorer):
        yield "counted by", "the sizes of the weights of the first layer, added up"


def _columns_of_features(spec: ModelSpecification) -> dict[str, Sequence[str]]:
    columns: dict[str, Sequence[str]] = {
        "index": [str(index) for index in range(spec.n_features)],
        "name": names_of(spec) if spec.feature_names else ["–"] * spec.n_features,
    }
    if (imputer := getattr(spec, "imputer", None)) is not None:
        filled = [f"{value:.6g}" for value in imputer.fill]
        columns["if missing"] = [*filled, *["–"] * len(imputer.indicators)]
    normalizer = spec.normalizer
    if normalizer is not None and normalizer.shift is not None and normalizer.scale is not None:
        if normalizer.roots is not None:
            columns["square roots"] = [str(times) for times in normalizer.roots]
        columns["less"] = [f"{value:.6g}" for value in normalizer.shift]
        columns["divided by"] = [f"{v:.6g}" if v else "0: left out" for v in normalizer.scale]
    scorer = spec.scorer
    if isinstance(scorer, LinearScorer):
        columns["weight"] = [f"{weight:.6g}" for weight in scorer.weights]
    elif isinstance(scorer, TreesScorer):
        columns["splits"] = [f"{count:,}" for count in splits(scorer)]
        if scorer.base is not None:
            columns["weight"] = [f"{weight:.6g}" for weight in scorer.base]
    return columns


def _versions(trained_with: Mapping[str, str] | None) -> Grid:
    if not trained_with:
        return Grid(list(versions().items()))
    told = ", ".join(f"{name} {version}" for name, version in trained_with.items())
    return Grid([("trained with", told)])


# -- how it is written ---------------------------------------------------------------------------


def _markdown(block: Block) -> str:
    if isinstance(block, Code):
        fence = pages.fence_of(block.text)
        return f"{fence}{block.language}\n{block.text}{fence}"
    if isinstance(block, tuple):
        return "\n".join(f"- {text}" for text in block)
    if isinstance(block, str):
        return block
    header = block.header or ("", "")
    rows = [[_cell(text) for text in row] for row in block.rows]
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(text: str) -> str:
    return pages.code_span(text) if isinstance(text, Mono) else pages.escape_markdown(text)


def _html(block: Block) -> str:
    if isinstance(block, Code):
        return pages.code(block.text.rstrip())
    if isinstance(block, tuple):
        return "<ul>" + "".join(f"<li>{_inline(text)}</li>" for text in block) + "</ul>"
    if isinstance(block, str):
        return f"<p>{_inline(block)}</p>"
    if not block.header:
        return pages.facts(block.rows)  # type: ignore[arg-type] # of names and values
    return pages.table(block.header, block.rows, caption=block.caption)


_INLINE = re.compile(
    r"\\(?P<escaped>[!-/:-@\[-`{-~])|`(?P<code>[^`]+)`|\*\*(?P<bold>.+?)\*\*"
    r"|\[(?P<text>(?:\\.|[^\]\\])+)\]\((?P<link>[^)]+)\)"
)


def _inline(text: str) -> str:
    r"""Return a paragraph's Markdown as HTML.

    >>> _inline("**+1%** by `fit`, [a<b](a)")
    '<b>+1%</b> by <code>fit</code>, <a href="a">a&lt;b</a>'
    >>> _inline(r"\*\*not bold\*\*")
    '**not bold**'
    """
    parts, end = [], 0
    for found in _INLINE.finditer(text):
        parts += [escape(text[end : found.start()]), _marked(found)]
        end = found.end()
    return "".join([*parts, escape(text[end:])])


def _marked(found: re.Match[str]) -> str:
    if found["escaped"]:
        return escape(found["escaped"])
    if found["code"]:
        return f"<code>{escape(found['code'])}</code>"
    if found["bold"]:
        return f"<b>{_inline(found['bold'])}</b>"
    return f'<a href="{escape(found["link"])}">{_inline(found["text"])}</a>'
