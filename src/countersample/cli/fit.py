"""``countersample fit`` and ``compare``: train and compare rankers on a raw log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from countersample._files import check_writable
from countersample.cli import parameters as p
from countersample.cli.console import Output, command_line
from countersample.errors import DataError, ParameterError
from countersample.options import (  # noqa: TC001 (cyclopts reads them)
    EvaluationOptions,
    FeatureOptions,
    LogOptions,
    PropensityOptions,
    RankerOptions,
)

LOGGED = "logged"  # the name of the logging policy
NOT_BETTER, WORSE = 3, 4  # exit codes of --fail-unless-better

_unless = "Exit with 3 if no ranker is shown to be better, with 4 if it is worse."
FailUnlessBetter = Annotated[bool, Parameter(group=p.OUTPUT, help=_unless)]


def fit(
    log: str,
    /,
    *,
    out: p.Out,
    report: p.Report = None,
    show_ids: Annotated[bool, Parameter(group=p.OUTPUT)] = False,
    fail_unless_better: FailUnlessBetter = False,
    features: p.Features = None,
    half_life: Annotated[str | None, Parameter(group=p.RANKER)] = None,
    log_options: LogOptions = p.LOG_OPTIONS,
    feature_options: FeatureOptions = p.FEATURE_OPTIONS,
    propensities: PropensityOptions = p.PROPENSITY_OPTIONS,
    ranker: RankerOptions = p.RANKER_OPTIONS,
    evaluation: EvaluationOptions = p.EVALUATION_OPTIONS,
    seed: p.Seed = 0,
) -> Output:
    """Train a ranker from a raw log, and estimate its gain.

    :param log: The log: a file, folder or 'glob*' of Parquet, CSV, TSV or JSON lines.
    :param out: The ranker to write (.json).
    :param report: The page to write; beside the ranker by default.
    :param show_ids: Show ids of queries and items on the page.
    :param half_life: The age at which a day counts half in training, such as 14d.
    """
    from countersample._progress import share_progress
    from countersample.fitting import fit_from_impressions, write_page
    from countersample.fitting.models import make_ranker
    from countersample.fitting.summaries import SHOWN_WARNINGS
    from countersample.logs import read_features, read_impressions
    from countersample.rankers.files import check_name

    page = out.with_suffix(".html") if report is None else report
    if out == page:
        raise ParameterError(f"the ranker and the report are both {out}, expected two files")
    check_name(out)
    for path in (out, page):
        check_writable(path)
    _check_propensities(propensities)
    start = make_ranker(ranker, seed=seed)  # errors come before the work
    impressions = read_impressions(log, log_options)
    with impressions, share_progress(f"fitting {out.name}") as progress:
        table = read_features(
            features, feature_options.named_as(log_options.columns), log=impressions,
            join_queries=log_options.join_queries,
            warm_start=None if ranker.warm_start is None else start,
        )  # fmt: skip
        result = fit_from_impressions(
            impressions if half_life is None else impressions.with_half_life(half_life), table,
            ranker=ranker, propensities=propensities, evaluation=evaluation, seed=seed,
            progress=progress,
        )  # fmt: skip
    write_page(page, result, command=command_line(), ranker=out, show_ids=show_ids)
    sources = [features, feature_options.items, feature_options.queries]
    names = [Path(path).name for path in sources if path is not None]
    result.ranker.provenance_["data"] = ", ".join(names or [Path(log).name])
    result.ranker.save(out)
    code = 0
    if fail_unless_better and not result.is_better:
        code = WORSE if result.decision.is_worse else NOT_BETTER
    n_warnings = len(result.warnings)
    more = f", with all {n_warnings} warnings" if n_warnings > SHOWN_WARNINGS else ""
    closing = f"\nThe ranker is in {out}; the report is in {page}{more}"
    return Output.of(result, closing, code, out=str(out), report=str(page))


def _check_propensities(options: PropensityOptions) -> None:
    """Reject a missing file before the log is counted."""
    if options.file is not None and not Path(options.file).is_file():
        raise DataError(f"{options.file}: no such file (--propensities)")


def compare(
    *rankers: str,
    log: Annotated[str, Parameter(group=p.LOG)],
    reference: str = LOGGED,
    fail_unless_better: FailUnlessBetter = False,
    features: p.Features = None,
    log_options: LogOptions = p.LOG_OPTIONS,
    feature_options: FeatureOptions = p.FEATURE_OPTIONS,
    propensities: PropensityOptions = p.PROPENSITY_OPTIONS,
    evaluation: EvaluationOptions = p.EVALUATION_OPTIONS,
    seed: p.Seed = 0,
) -> Output:
    """Estimate the values of rankers, and compare them.

    :param rankers: Rankers that fit or train wrote; 'logged' is your current ranker.
    :param log: A log that none of them was trained on, in any form that fit reads.
    :param reference: The ranker that all others are compared with; your current ranker by default.
    """
    from countersample._progress import share_progress
    from countersample.fitting import compare_from_impressions
    from countersample.logs import read_features, read_impressions
    from countersample.rankers import load_ranker

    _check_propensities(propensities)
    candidates = {name: None if name == LOGGED else load_ranker(name) for name in rankers}
    impressions = read_impressions(log, log_options)
    with impressions, share_progress("comparing") as progress:
        table = read_features(
            features, feature_options.named_as(log_options.columns), log=impressions,
            join_queries=log_options.join_queries,
            rankers=[each for each in candidates.values() if each is not None],
        )  # fmt: skip
        result = compare_from_impressions(
            impressions, table, candidates, reference=reference, propensities=propensities,
            evaluation=evaluation, seed=seed, progress=progress,
        )  # fmt: skip
    closing = ""
    if reference == LOGGED and len(candidates.keys() - {LOGGED}) > 1:
        closing = "To compare the rankers with each other, give one of them as --reference"
    verdicts, code = set(result.verdicts.values()), 0
    if fail_unless_better and "better" not in verdicts:
        code = WORSE if verdicts == {"worse"} else NOT_BETTER
    return Output.of(result, closing, code)
