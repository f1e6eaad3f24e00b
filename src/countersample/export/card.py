"""The model card: what a ranker is, its training data, its expected gain, and how to load it.

The text is in ``templates/card.md``; this module collects its values. A page is the same Markdown
in the frame of all pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from countersample import pages
from countersample.rankers.files import versions
from countersample.scorers import LEAF, LinearScorer, TreesScorer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from countersample.export.specification import ModelSpecification, Translation
    from countersample.rankers import ClickRanker

MARK = "<!-- model card by countersample export: written anew with every export -->"
ENDINGS = {"markdown": ".md", "html": ".html"}
# Tables of two columns have names and texts, which wrap; the table of features may scroll.
_PAGE_STYLE = """
h2 { margin-top: 2.5rem; }
table { display: block; overflow-x: auto; }
th:nth-child(2), td:nth-child(-n + 2) { text-align: left; }
table:not(:has(th:nth-child(3))) { display: table; max-width: 52rem; }
table:not(:has(th:nth-child(3))) thead { display: none; }
table:not(:has(th:nth-child(3))) td:last-child { white-space: normal; }
"""
_SIZES = ("n_queries_", "n_features_in_")  # listed with the data


def render_card(
    ranker: ClickRanker, spec: ModelSpecification, translation: Translation, form: str
) -> str:
    """Return the card as Markdown, or as a page ("html")."""
    origin, columns = ranker.provenance_, _feature_columns(spec)
    body = pages.render_markdown(
        str(__package__), "card.md", spec=spec, ranker=ranker, origin=origin,
        translation=translation, estimator=type(ranker).__name__,
        settings=list(_settings(ranker)), versions=origin.get("versions") or versions(),
        columns=list(columns), rows=list(zip(*columns.values(), strict=True)),
    )  # fmt: skip
    if form == "html":
        content = [MARK, pages.markdown_to_html(body)]
        return pages.render_page(spec.name, content, kind="Model card", css=_PAGE_STYLE)
    return f"{MARK}\n\n# {pages.escape_markdown(spec.name)}\n\n{body}\n"


def _settings(ranker: ClickRanker) -> Iterator[tuple[str, str]]:
    """Return the parameters of a ranker, and the numbers that it chose or learned."""
    params = ranker.get_params()
    for name, value in params.items():
        yield name, repr(value)
    for name, value in vars(ranker).items():
        if name.endswith("_") and name not in _SIZES and isinstance(value, int | float):
            parameter = params.get(name[:-1].removeprefix("n_"), value)
            yield f"{name} (chosen)" if parameter is None else name, repr(value)


def _feature_columns(spec: ModelSpecification) -> dict[str, Sequence[str]]:
    """Return the table of features in the order of training: the cells of each column."""
    n_columns = spec.scorer.n_features
    columns: dict[str, Sequence[str]] = {
        "index": [str(index) for index in range(n_columns)],
        "name": spec.column_names or ["–"] * spec.n_features,
    }
    if spec.preprocessing.imputer is not None:
        indicators = [f"{index} is missing" for index in spec.preprocessing.imputer.indicators]
        columns["name"] = [*columns["name"], *indicators][:n_columns]
        fill = [f"{value:.9g}" for value in spec.preprocessing.imputer.fill]
        columns["if missing"] = [*fill, *["–"] * len(indicators)]
    normalizer = spec.preprocessing.normalizer
    if normalizer is not None and normalizer.shift is not None and normalizer.scale is not None:
        if normalizer.roots is not None:
            columns["square roots"] = [str(times) for times in normalizer.roots]
        if normalizer.logs is not None:
            columns["log of 1 + size over"] = [f"{s:.6g}" if s else "–" for s in normalizer.logs]
        if normalizer.knots is not None:
            columns["quantiles between"] = [
                f"{knots[0][0]:.6g} and {knots[0][-1]:.6g}" if knots else "–"
                for knots in normalizer.knots
            ]
        columns["less"] = [f"{value:.6g}" for value in normalizer.shift]
        columns["divided by"] = [f"{v:.6g}" if v else "0: left out" for v in normalizer.scale]
    scorer = spec.scorer
    if isinstance(scorer, LinearScorer):
        columns["weight"] = [f"{weight:.6g}" for weight in scorer.weights]
    elif isinstance(scorer, TreesScorer):
        splits = np.bincount(scorer.feature[scorer.feature != LEAF], minlength=scorer.n_features)
        columns["splits"] = [f"{count:,}" for count in splits]
        if scorer.base is not None:
            columns["weight"] = [f"{weight:.6g}" for weight in scorer.base]
        if scorer.base_missing is not None:
            columns["if missing"] = [f"{value:.6g}" for value in scorer.base_missing]
    return columns
