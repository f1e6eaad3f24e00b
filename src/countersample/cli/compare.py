"""``countersample compare``: rankers that exist, evaluated on the clicks of a raw log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from countersample.cli import _show
from countersample.cli._options import (
    EVALUATION_OPTIONS,
    FEATURE_OPTIONS,
    LOG,
    LOG_OPTIONS,
    NOT_BETTER,
    OUTPUT,
    PROPENSITY_OPTIONS,
    WORSE,
    Features,
    Json,
    Seed,
)
from countersample.options import (  # noqa: TC001 (cyclopts reads them)
    EvaluationOptions,
    FeatureOptions,
    LogOptions,
    PropensityOptions,
)

if TYPE_CHECKING:
    from countersample.fitting import JudgedCandidates

LOGGED = "logged"  # the name of the logging policy


def compare(
    *rankers: str,
    log: Annotated[str, Parameter(group=LOG)],
    reference: str = LOGGED,
    fail_unless_better: Annotated[bool, Parameter(group=OUTPUT)] = False,
    json: Json = False,
    features: Features = None,
    log_options: LogOptions = LOG_OPTIONS,
    feature_options: FeatureOptions = FEATURE_OPTIONS,
    propensities: PropensityOptions = PROPENSITY_OPTIONS,
    evaluation: EvaluationOptions = EVALUATION_OPTIONS,
    seed: Seed = 0,
) -> int | None:
    """Estimate the values of one or more rankers, and compare them with your current ranker.

    Parameters
    ----------
    rankers
        Rankers that fit or train wrote; 'logged' is your current ranker.
    log
        A log that none of them was trained on, in any form that fit reads.
    reference
        The ranker that all others are compared with; your current ranker by default.
    fail_unless_better
        Exit with 3 if no ranker is shown to be better, and with 4 if all are worse.
    """
    from countersample._progress import share_progress
    from countersample.clicks.impressions import read_features, read_impressions
    from countersample.fitting import compare_from_impressions
    from countersample.rankers import load_ranker

    candidates = {name: None if name == LOGGED else load_ranker(name) for name in rankers}
    with read_impressions(log, log_options) as opened, share_progress("comparing") as progress:
        table = read_features(
            features, feature_options, log=opened, join_queries=log_options.join_queries,
            rankers=[each for each in candidates.values() if each is not None],
        )  # fmt: skip
        result = compare_from_impressions(
            opened, table, candidates, reference=reference, propensities=propensities,
            evaluation=evaluation, seed=seed, progress=progress,
        )  # fmt: skip
    if json:
        _show.as_json(result.to_dict())
    else:
        _show_comparison(result)
        if reference == LOGGED and len(candidates.keys() - {LOGGED}) > 1:
            _show.line("To compare the rankers with each other, give one of them as --reference")
    verdicts = set(result.verdicts.values())
    if fail_unless_better and "better" not in verdicts:
        return WORSE if verdicts == {"worse"} else NOT_BETTER
    return None


def _show_comparison(result: JudgedCandidates) -> None:
    log, comparison = result.log, result.comparison
    how = "estimated again in each draw" if result.is_joint else "taken as they are"
    _show.pairs(
        [
            ("log", _show.size_of_log(log.check.counts)),
            ("clicks used", f"{log.join.n_joined:,} of {log.join.n_clicks:,}"),
            ("propensities", f"{log.source.source}; in the intervals {how}"),
            ("estimator", f"{result.estimator.name}: {result.estimator.reason}"),
        ],
        indent=0,
    )
    _show.line()
    first = comparison.estimates[comparison.reference]
    differences = {each.candidate: each for each in comparison.differences}
    rows: list[list[str]] = []
    for name, each in comparison.estimates.items():
        row = [name, f"{each.value:.4g}", f"{each.low:.4g} to {each.high:.4g}"]
        if name == comparison.reference:
            rows.insert(0, [*row, "", ""])
            continue
        one = differences[name]
        within = f"{one.relative_low:+z.1%} to {one.relative_high:+z.1%}"
        rows.append([*row, f"{one.relative:+z.1%}", within])
    together = "interval" if len(differences) == 1 else "intervals, all at once"
    _show.table(
        [
            f"{first.metric} a {first.per}",
            "estimate",
            f"{first.confidence:.0%} interval",
            f"over {comparison.reference}",
            f"{comparison.confidence:.0%} {together}",
        ],
        rows,
    )
    _show.line()
    for text in result.sentences:
        _show.paragraph(text)
    _show.paragraph(f"The intervals speak of {result.population}.")
    _show.warnings(result.warnings)
