"""``countersample log``, ``propensity`` and ``judgements``: what a raw log supports."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from countersample import _text
from countersample._files import check_writable
from countersample.cli import parameters as p
from countersample.cli.console import Output, command_line
from countersample.defaults import CONFIDENCE
from countersample.errors import DataError, ParameterError
from countersample.options import FeatureOptions, LogOptions, PropensityOptions

if TYPE_CHECKING:
    from countersample.clicks import ClickLog

DRIFT = 3  # the exit code of log check --against


def check(
    log: str,
    /,
    *,
    against: str | None = None,
    features: p.Features = None,
    features_before: Annotated[Path | None, Parameter(group=p.FEATURES)] = None,
    randomized: Annotated[str | None, Parameter(group=p.BIAS)] = None,
    plot: p.Plot = None,
    report: p.Report = None,
    log_options: LogOptions = p.LOG_OPTIONS,
) -> Output:
    """Validate and describe a log, or compare it with another.

    :param log: The log, in any form that fit reads, or a click log that simulate wrote.
    :param against: An earlier log: report the changes since then, and exit with 3 if there are any.
    :param features_before: With --against: the features of the earlier log's items, if they differ.
    :param randomized: The policy whose results were shuffled.
    :param report: With --against: the page of the changes to write (.html).
    """
    if against is not None:
        from countersample.fitting import write_drift_page
        from countersample.fitting.drift import find_drift_in_files

        _reject({"--plot": plot, "--randomized": randomized}, "for a log alone, not for --against")
        if report is not None:
            check_writable(report)
        drift = find_drift_in_files(
            log, against, log_options, features=features, features_before=features_before
        )
        if report is not None:
            write_drift_page(report, drift, command=command_line())
        closing = "" if report is None else f"The page is in {report}"
        return Output.of(drift, closing, DRIFT if drift.is_drift else 0)
    _reject(
        {"--features": features, "--features-before": features_before, "--report": report},
        "only for comparing two logs: give the earlier log with --against, or leave it out",
    )
    clicks = _read_clicks(log)
    if clicks is not None:
        from countersample.clicks import diagnose

        return Output.of(diagnose(clicks))
    from countersample.logs import read_impressions
    from countersample.propensity.estimation import summarize_support, support_of_log

    with read_impressions(log, log_options) as impressions:
        result = impressions.check(randomized=randomized)
        supports = support_of_log(impressions, result, declared=randomized is not None).values()
    texts = [
        result.summary(), summarize_support(supports, result.shuffled),
        *_text.warning_paragraphs(result.warnings),
    ]  # fmt: skip
    if plot is not None:
        result.draw(plot)
        texts.append(f"The click rates are drawn in {plot}")
    values = {**result.to_dict(), "propensities": [asdict(each) for each in supports]}
    return Output("\n".join(texts), values)


def _reject(options: dict[str, object], reason: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise ParameterError(f"{name} is {reason}")


def _read_clicks(path: str) -> ClickLog | None:
    """Return the click log in a file, if it is one."""
    from countersample import ClickLog

    if not path.endswith(".parquet") or not Path(path).is_file():
        return None
    try:
        return ClickLog.load(path)
    except DataError:
        return None


def sample(
    log: p.Log,
    /,
    *,
    queries: Annotated[int, p.WHOLE],
    out: p.Out,
    log_options: LogOptions = p.LOG_OPTIONS,
    seed: p.Seed = 0,
) -> Output:
    """Write all rows of some queries, drawn at random.

    :param queries: The number of queries.
    :param out: The log to write (.parquet).
    """
    from countersample.logs import read_impressions

    if out.suffix != ".parquet":
        raise ParameterError(f"--out is {out}, expected a name that ends with .parquet")
    check_writable(out)
    with read_impressions(log, log_options) as impressions:
        n_rows = impressions.sample_queries(queries, seed=seed).write(out)
    text = f"{n_rows:,} rows, all of at most {queries:,} queries, are in {out}"
    return Output(text, {"out": str(out), "rows": n_rows})


def count(
    log: str,
    /,
    *,
    out: p.Out,
    day: str | None = None,
    replace_days: Annotated[bool, Parameter(name="--replace")] = False,
    missing: Literal["error", "skip"] = "error",
    log_options: LogOptions = p.LOG_OPTIONS,
) -> Output:
    """Aggregate a log by day, to Parquet that every command reads.

    :param log: The log of a day, or of several days.
    :param out: The folder of the aggregated log, with one folder per day.
    :param day: The day of a log without timestamps: 2026-03-31.
    :param replace_days: Replace days that the folder already has.
    :param missing: Rows that are impossible: raise an error, or skip them.
    """
    from countersample.logs import count_days, read_impressions
    from countersample.logs.aggregated import summarize_days

    with read_impressions(log, log_options) as impressions:
        days = count_days(
            impressions, out, day=day, replace=replace_days, skip_impossible=missing == "skip"
        )
    rows = [{**asdict(each), "day": str(each.day)} for each in days]
    text = f"{summarize_days(days)}\nThe aggregated log is in {out}"
    return Output(text, {"out": str(out), "days": rows})


def propensity(
    log: p.Log,
    /,
    *,
    out: p.OptionalOut = None,
    plot: p.Plot = None,
    features: p.Features = None,
    propensities: PropensityOptions = p.PROPENSITY_OPTIONS,
    confidence: p.Confidence = CONFIDENCE,
    log_options: LogOptions = p.LOG_OPTIONS,
    seed: p.Seed = 0,
) -> Output:
    """Estimate position bias, with every estimator that the log supports.

    :param out: Save the propensities (.json), which fit --propensities reads.
    """
    import numpy as np

    from countersample.fitting.weighted_log import estimate_propensities
    from countersample.logs import read_features, read_impressions

    if plot is not None and propensities.method == "trust":
        raise ParameterError(
            "--plot draws examination only, and the method trust estimates more: leave it out"
        )
    for path in (out, plot):
        if path is not None:
            check_writable(path)
    join_queries = log_options.join_queries
    names = FeatureOptions().named_as(log_options.columns)
    table = None if features is None else read_features(features, names, join_queries=join_queries)
    with read_impressions(log, log_options) as impressions:
        check, source = estimate_propensities(
            impressions, table, propensities, confidence=confidence, rng=np.random.default_rng(seed)
        )
    estimate = source.trust or source.contexts or source.curve
    if estimate is None or not propensities.is_estimated:
        raise DataError(f"{log}: its propensities are {source.source}, and nothing was estimated")
    warnings = [*check.warnings, *source.warnings]
    texts = [source.summary(), *_text.warning_paragraphs(warnings)]
    if plot is not None:
        source.draw(plot)
    if out is not None:
        estimate.save(out)
        command = f"countersample fit --propensities {out}"
        texts.append(f"The propensities are in {out}; use them with: {command}")
    target = None if out is None else str(out)
    return Output("\n".join(texts), {"out": target, **source.to_dict(), "warnings": warnings})


def judgements(
    log: p.Log,
    /,
    *,
    out: p.Out,
    to: Annotated[
        Literal["table", "quepid", "opensearch", "qrels"], Parameter(group=p.OUTPUT)
    ] = "table",
    grades: p.Numbers = (),
    min_exposure: float = 10.0,
    confidence: p.Confidence = CONFIDENCE,
    features: p.Features = None,
    propensities: PropensityOptions = p.PROPENSITY_OPTIONS,
    log_options: LogOptions = p.LOG_OPTIONS,
    seed: p.Seed = 0,
) -> Output:
    """Estimate how relevant items are to their queries, and grade them.

    :param out: The judgements to write.
    :param to: table has all columns (.parquet or .csv); the others are formats of other tools.
    :param grades: The lowest relevance of grade 1, 2, …: 0.05,0.1,0.3. By default its odds are
        ½, 1 and 2 times the odds of the mean.
    :param min_exposure: Leave out items that were examined fewer times than this, in expectation.
    """
    from countersample.fitting import judgements_from_impressions
    from countersample.fitting.judgements import check_table_name
    from countersample.logs import read_features, read_impressions

    check_writable(out)
    if to == "table":
        check_table_name(out)
    join_queries = log_options.join_queries
    names = FeatureOptions().named_as(log_options.columns)
    table = None if features is None else read_features(features, names, join_queries=join_queries)
    with read_impressions(log, log_options) as impressions:
        result = judgements_from_impressions(
            impressions, features=table, propensities=propensities, confidence=confidence,
            min_exposure=min_exposure, grades=grades or None, seed=seed,
        )  # fmt: skip
    result.write(out, to=to)
    return Output.of(result, f"The judgements are in {out}", out=str(out), to=to)
