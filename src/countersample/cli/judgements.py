"""``countersample judgements``: the relevance of items, from clicks, for other tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from countersample._files import check_writable
from countersample.cli import _show
from countersample.cli._options import (
    LOG_OPTIONS,
    OUTPUT,
    PROPENSITY_OPTIONS,
    Features,
    Json,
    Names,
    Out,
    Seed,
)
from countersample.options import (
    CONFIDENCE,
    LogOptions,
    PropensityOptions,
)

if TYPE_CHECKING:
    from countersample.fitting import Judgements

MIN_EXPOSURE = 10.0


def judgements(
    log: str,
    /,
    *,
    out: Out,
    to: Annotated[
        Literal["table", "quepid", "opensearch", "qrels"], Parameter(group=OUTPUT)
    ] = "table",
    json: Json = False,
    grades: Names = (),
    min_exposure: float = MIN_EXPOSURE,
    confidence: float = CONFIDENCE,
    features: Features = None,
    propensities: PropensityOptions = PROPENSITY_OPTIONS,
    log_options: LogOptions = LOG_OPTIONS,
    seed: Seed = 0,
) -> None:
    """Estimate how relevant each item is to its query, with intervals, and grade it.

    Parameters
    ----------
    log
        The log, in any form that fit reads.
    out
        The judgements to write.
    to
        The format: all columns (.parquet or .csv), or the one of another tool.
    grades
        The lowest relevance of grade 1, 2, …: 0.05,0.1,0.3. By default odds of ½, 1 and 2 times
        those of the mean.
    min_exposure
        Leave out items that were examined less often than this, as is expected.
    confidence
        The confidence level of the intervals.
    """
    from countersample.clicks.impressions import read_features, read_impressions
    from countersample.fitting import judgements_from_impressions
    from countersample.fitting.judgement_files import check_table_name

    check_writable(out)
    if to == "table":
        check_table_name(out)
    join_queries = log_options.join_queries
    table = None if features is None else read_features(features, join_queries=join_queries)
    with read_impressions(log, log_options) as opened:
        result = judgements_from_impressions(
            opened, features=table, propensities=propensities, confidence=confidence,
            min_exposure=min_exposure, grades=grades or None, seed=seed,  # type: ignore[arg-type]
        )  # fmt: skip
    result.write(out, to=to)
    if json:
        _show.as_json({"out": str(out), "to": to, **result.to_dict()})
        return
    _show_judgements(result)
    _show.warnings(result.warnings)
    _show.line(f"The judgements are in {out}")


def _show_judgements(result: Judgements) -> None:
    size = f"{len(result):,} items of {result.n_queries:,} queries"
    if result.n_left_out:
        size += (
            f"; {result.n_left_out:,} were examined less than {result.min_exposure:g} times, and "
            "are left out"
        )
    if result.n_together:
        size += (
            f"; items of {result.n_together:,} queries that were never clicked are counted "
            "together, and are not judged"
        )
    width = (result.high - result.low).mean()
    _show.pairs(
        [
            ("judged", size),
            ("propensities", result.source),
            ("intervals", f"{result.confidence:.0%}, {width:.3g} wide on average"),
        ],
        indent=0,
    )
    _show.line()
    ends = ["0", *(f"{each:.3g}" for each in result.cut_offs)]
    rows = [
        [f"{grade}", f"from {low}", f"{count:,}", f"{count / len(result):.0%}"]
        for grade, (low, count) in enumerate(zip(ends, result.of_grade, strict=True))
    ]
    _show.table(["grade", "relevance", "items", "share"], rows)
    _show.line()
