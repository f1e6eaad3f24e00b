"""The model card: what a ranker is, its training data, its expected gain, and how to load it.

`card_of` collects the content once; `Card` writes it as Markdown or as a page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

import numpy as np

from countersample import pages
from countersample.export.specification import Code
from countersample.rankers.files import versions
from countersample.scorers import LEAF, LinearScorer, NetworkScorer, TreesScorer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from countersample.export.specification import ModelSpecification, Translation
    from countersample.rankers import ClickRanker

MARK = "<!-- model card by countersample export: written anew with every export -->"
_UNKNOWN = "not recorded"
_SIZES = ("n_queries_", "n_features_in_")  # listed with the data
_BY_COLUMN = ("minmax", "standard", "root-minmax")  # (value − shift) / scale, after roots


class Mono(str):
    """Text that is shown as code."""

    __slots__ = ()


@dataclass(frozen=True)
class Grid:
    """A table of plain texts with a caption; without a header, names and values."""

    rows: Sequence[tuple[str, ...]]
    header: tuple[str, ...] = ()
    caption: str = ""


# A str is a paragraph, with `, ** and [](…) as in Markdown; a tuple is a list of sentences.
# Texts from elsewhere, such as the name of a file, are escaped in it (`escape_markdown`).
Block: TypeAlias = "str | Code | Grid | tuple[str, ...]"


@dataclass(frozen=True)
class Card:
    """The content of a card: a name, a first paragraph, and sections by title."""

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
    """Collect the content of the card."""
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
            "What it needs": [Grid(list(_needs(spec)))],
            "What it was learned from": [Grid(list(_sources(ranker, origin)))],
            "Gain to expect": [_gain(origin.get("gain"), origin.get("verdict")), *_doubts(origin)],
            "Method": [Grid(list(_method(ranker, spec)))],
            "Limits": [translation.limits],
            "Features": [_features(spec)],
            "Versions": [_versions(origin.get("versions"))],
        },
    )


# -- content ---------------------------------------------------------------------------------------


def _needs(spec: ModelSpecification) -> Iterable[tuple[str, str]]:
    n = spec.n_features
    names = "without names" if spec.feature_names is None else "with the names below"
    yield "features", f"{n:,} numbers per item, {names}"
    yield "units", "as in training; they are not recorded"
    for column in () if spec.encoder is None else spec.encoder.columns:
        if column.kind == "date":
            yield f"{column.name}", f"a date, as its age in days before {column.reference}"
        elif column.kind == "category":
            yield (
                f"{column.name}",
                f"a category: a feature of 0 or 1 for {len(column.values):,} values",
            )
    yield "missing values", _missing(spec)
    yield "normalisation", _normalisation(spec)
    yield "score", "higher is better; compare only scores of items of one query"


def _missing(spec: ModelSpecification) -> str:
    if spec.imputer is not None:
        filled = "each is replaced by the number in the column “if missing”"
        n = len(spec.imputer.indicators)
        more = f"{n:,} more features are" if n > 1 else "one more feature is"
        return f"{filled}, and {more} 1 if a value is missing" if n else filled
    if spec.takes_missing:
        return "each split of a tree has a branch for them"
    return (
        "rejected by the ranker, as there were none in training; for what "
        f"{spec.system} does see the limits below"
    )


def _normalisation(spec: ModelSpecification) -> str:
    normalizer = spec.normalizer
    if normalizer is None:
        return "none: features count as they are"
    if spec.is_by_query:
        return f"{normalizer.label}: within each query, so score all its items together"
    text = f"{normalizer.label}, which is a part of the model: send features as they are"
    if normalizer.how in _BY_COLUMN:
        value = "value" if normalizer.transform_name is None else normalizer.transform_name
        text += f"; each is ({value} − less) / divided by"
    n_constant = int(spec.is_constant.sum())
    return f"{text}; {n_constant:,} that did not vary are left out" if n_constant else text


def _sources(ranker: ClickRanker, origin: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    size = (
        f"{ranker.n_queries_:,} queries, {origin['n_items']:,} items, "
        f"{ranker.n_features_in_:,} features"
    )
    yield "data", f"{origin.get('data', _UNKNOWN)}: {size}"
    yield "fingerprint of the data", Mono(ranker.fingerprint_)
    log = origin.get("log", {})
    counts = [f"{log[part]:,} {part}" for part in ("impressions", "clicks", "sessions")
              if log.get(part) is not None]  # fmt: skip
    yield "log", ": ".join([log.get("file", _UNKNOWN), *([", ".join(counts)] if counts else [])])
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
    metric, unit = pages.escape_markdown(gain["metric"]), pages.escape_markdown(gain["per"])
    text = (
        f"{gain['relative']:+.1%} {metric}** over the current ranker "
        f"({gain['confidence']:.0%} interval {gain['relative_low']:+.1%} to "
        f"{gain['relative_high']:+.1%}): {gain['new']:.4g} per {unit} "
        f"instead of {gain['logged']:.4g}. Estimated from held-out clicks of the log."
    )
    if not gain.get("is_identified", True):
        text = text.replace("**", "")
        return (
            "**Not known**: the log does not identify the propensities. If they are right, it is "
            f"{text}"
        )
    return f"**{text}"


def _doubts(origin: Mapping[str, Any]) -> list[str]:
    """Return the verdict and the warnings of `countersample fit`."""
    if "verdict" not in origin:
        return []
    warnings = [f"Warning: {pages.escape_markdown(text)}" for text in origin["warnings"]]
    return [f"Verdict of the training: {pages.escape_markdown(origin['verdict'])}", *warnings]


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
            parameter = params.get(name[:-1].removeprefix("n_"), value)
            yield Mono(f"{name} (chosen)" if parameter is None else name), Mono(repr(value))


def _shape(spec: ModelSpecification) -> str:
    scorer = spec.scorer
    if isinstance(scorer, LinearScorer):
        return f"{scorer.n_features:,} weights"
    if isinstance(scorer, NetworkScorer):
        widths = [scorer.n_features, *(len(bias) for bias in scorer.biases)]
        return "a network of " + " → ".join(f"{width:,}" for width in widths)
    n_leaves = int((scorer.feature == LEAF).sum())
    trees = f"{scorer.n_trees:,} trees with {n_leaves:,} leaves together"
    return trees if scorer.base is None else f"{scorer.n_features:,} weights, and {trees}"


def _features(spec: ModelSpecification) -> Grid:
    """Return the table of features, in the order of training."""
    columns = _columns_of_features(spec)
    rows = list(zip(*columns.values(), strict=True))
    return Grid(rows, tuple(columns), "Features, in the order of training")


def _columns_of_features(spec: ModelSpecification) -> dict[str, Sequence[str]]:
    n_columns = spec.scorer.n_features
    columns: dict[str, Sequence[str]] = {
        "index": [str(index) for index in range(n_columns)],
        "name": spec.column_names or ["–"] * spec.n_features,
    }
    if spec.imputer is not None:
        indicators = [f"{index} is missing" for index in spec.imputer.indicators]
        columns["name"] = [*columns["name"], *indicators][:n_columns]
        fill = [f"{value:.9g}" for value in spec.imputer.fill]
        columns["if missing"] = [*fill, *["–"] * len(indicators)]
    normalizer = spec.normalizer
    if normalizer is not None and normalizer.shift is not None and normalizer.scale is not None:
        if normalizer.roots is not None:
            columns["square roots"] = [str(times) for times in normalizer.roots]
        if normalizer.logs is not None:
            columns["log of 1 + size over"] = [f"{s:.6g}" if s else "–" for s in normalizer.logs]
        if normalizer.knots is not None:
            columns["quantiles between"] = [_ends_of(each) for each in normalizer.knots]
        columns["less"] = [f"{value:.6g}" for value in normalizer.shift]
        columns["divided by"] = [f"{v:.6g}" if v else "0: left out" for v in normalizer.scale]
    scorer = spec.scorer
    if isinstance(scorer, LinearScorer):
        columns["weight"] = [f"{weight:.6g}" for weight in scorer.weights]
    elif isinstance(scorer, TreesScorer):
        columns["splits"] = [f"{count:,}" for count in _splits(scorer)]
        if scorer.base is not None:
            columns["weight"] = [f"{weight:.6g}" for weight in scorer.base]
        if scorer.base_missing is not None:
            columns["if missing"] = [f"{value:.6g}" for value in scorer.base_missing]
    return columns


def _splits(trees: TreesScorer) -> NDArray[np.int64]:
    """Return the number of splits on each feature."""
    return np.bincount(trees.feature[trees.feature != LEAF], minlength=trees.n_features)


def _ends_of(knots: tuple[tuple[float, ...], ...]) -> str:
    return f"{knots[0][0]:.6g} and {knots[0][-1]:.6g}" if knots else "–"


def _versions(trained_with: Mapping[str, str] | None) -> Grid:
    if not trained_with:
        return Grid(list(versions().items()))
    text = ", ".join(f"{name} {version}" for name, version in trained_with.items())
    return Grid([("trained with", text)])


# -- Markdown and HTML -----------------------------------------------------------------------------


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
    for match in _INLINE.finditer(text):
        parts += [escape(text[end : match.start()]), _markup(match)]
        end = match.end()
    return "".join([*parts, escape(text[end:])])


def _markup(match: re.Match[str]) -> str:
    if match["escaped"]:
        return escape(match["escaped"])
    if match["code"]:
        return f"<code>{escape(match['code'])}</code>"
    if match["bold"]:
        return f"<b>{_inline(match['bold'])}</b>"
    return f'<a href="{escape(match["link"])}">{_inline(match["text"])}</a>'
