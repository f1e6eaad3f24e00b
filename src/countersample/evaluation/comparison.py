"""Compare rankers by the same clicks, with intervals that hold for all of them at once.

The difference Δ_j = V_j − V_reference of each candidate j is estimated from the same sessions in
every draw b of the bootstrap, so that the noise that both share cancels. If 20 candidates are all
equal to the reference, one of their 95 % intervals misses 0. So intervals are widened until they
hold together (max-t): with R_j = V_j / V_reference, and m_j the median and σ_j the standard
deviation of the draws of log R_j,

    c = the 95 % quantile over b of max_j |log R_j(b) − m_j| / σ_j

    R_j · exp(∓ f·c·σ_j)

is the interval of R_j, and R_j · exp(−σ_j²/2) the estimate. The factor f, hardly above 1, is
Student's quantile for the number of resampled queries (or sessions) divided by the normal quantile,
at c. A single candidate has c = 1.96. Δ_j and its interval are V_reference · (R_j − 1). Δ_j is a
little less than the difference of the two single estimates: log R_j is about normal, so that the
mean of R_j is too large by exp(σ_j²/2).

For unrelated candidates this is about as wide as Bonferroni's correction. For candidates that are
nearly alike it is hardly wider than for one, because it takes their correlation into account. The
probability that some candidate is called better or worse although all are equal to the reference is
about 5 %, whatever their number.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample import _text
from countersample._frames import Tabular
from countersample.errors import DataError, ParameterError
from countersample.evaluation.bootstrap import ratio_intervals
from countersample.evaluation.estimators import (
    Estimate,
    EstimateOptions,
    estimate_pairwise,
    logged_rewards,
    make_case,
    ranker_rewards,
)
from countersample.evaluation.verdict import LOGGED, NEW, Difference, Verdict, decide

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike

    from countersample._arrays import Floats
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.data.dataset import Ranker
    from countersample.evaluation.estimators import Case, RankRewards

_NUMBERS = ("value", "low", "high", "relative", "relative_low", "relative_high")


@dataclass(frozen=True)
class Gain(Difference, Tabular):
    """How much better a ranker is than the logging policy, by the same clicks: see `Difference`.

    Both values are estimated from the same sessions in every draw, so that the noise that they
    share cancels; `new` and `logged` are the single estimates.
    """

    new: Estimate
    logged: Estimate

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of both estimates."""
        return tuple(dict.fromkeys((*self.new.warnings, *self.logged.warnings)))

    def __str__(self) -> str:
        return (
            f"{self.metric} changes by {self.relative:+.1%} ({self.confidence:.0%} interval "
            f"{self.relative_low:+.1%} to {self.relative_high:+.1%}), from {self.logged.value:.4g} "
            f"to {self.new.value:.4g} per {self.new.per}"
        )

    def summary(self) -> str:
        """Return a table of both values with their intervals, for a terminal."""
        return _text.table(
            [f"{self.metric} per {self.new.per}", "estimate", f"{self.confidence:.0%} interval"],
            [
                [name, f"{each.value:.4g}", f"{each.low:.4g} to {each.high:.4g}"]
                for name, each in ((LOGGED, self.logged), ("new ranker", self.new))
            ],
        )

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the columns of `to_frame`: rows for logged, new, gain and relative gain."""
        rows = {
            "logged": (self.logged.value, self.logged.low, self.logged.high),
            "new": (self.new.value, self.new.low, self.new.high),
            "gain": (self.value, self.low, self.high),
            "relative gain": (self.relative, self.relative_low, self.relative_high),
        }
        names = ("value", "low", "high")
        return {"of": list(rows), **dict(zip(names, zip(*rows.values(), strict=True), strict=True))}


@dataclass(frozen=True)
class Comparison(Tabular):
    """Candidates compared by the same clicks: the result of `compare`."""

    reference: str  # the candidate that all others are compared with
    estimates: dict[str, Estimate]  # of each candidate and the reference, each with its interval
    differences: tuple[Difference, ...]  # from the reference; their intervals hold all at once
    confidence: float
    warnings: tuple[str, ...] = ()  # reasons to trust the intervals less
    withheld: dict[str, str] = field(default_factory=dict)  # why clicks cannot evaluate a candidate
    defect: str = ""  # of the log, because of which it evaluates no candidate
    unidentified: str = ""  # the method whose propensities the log does not identify, if any

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdict on each candidate, by name."""
        verdicts = {}
        for each in self.differences:
            names = (each.candidate, each.reference)
            reasons = [f"{name} {self.withheld[name]}" for name in names if name in self.withheld]
            withheld = self.defect or (reasons[0] if reasons else "")
            verdicts[each.candidate] = decide(
                each, withheld=withheld, unidentified=self.unidentified
            )
        return verdicts

    @property
    def better(self) -> tuple[str, ...]:
        """The candidates that are shown to be better than the reference, the best first."""
        verdicts = self.verdicts
        order = sorted(self.differences, key=lambda each: -abs(each.value))
        return tuple(each.candidate for each in order if verdicts[each.candidate].is_better)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The verdicts in words."""
        return tuple(verdict.sentence for verdict in self.verdicts.values())

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the columns of `to_frame`: one row per difference."""
        rows = self.differences
        return {
            "candidate": [each.candidate for each in rows],
            "reference": [each.reference for each in rows],
            **{name: [getattr(each, name) for each in rows] for name in _NUMBERS},
            "verdict": [verdict.outcome for verdict in self.verdicts.values()],
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        outcomes = {name: verdict.outcome for name, verdict in self.verdicts.items()}
        return asdict(self) | {
            "verdicts": outcomes,
            "sentences": list(self.sentences),
            "warnings": list(self.warnings),
        }


def estimate_gain(
    ranker_or_scores: ArrayLike | Ranker,
    log: ClickLog,
    dataset: RankingDataset,
    *,
    logging: ArrayLike | Ranker | None = None,
    draws: Floats | None = None,
    rng: np.random.Generator | int | None = None,
    options: EstimateOptions | None = None,
    **settings: Any,  # noqa: ANN401 (the fields of EstimateOptions)
) -> Gain:
    """Estimate V(new) − V(logged), and that as a share of V(logged), from the same clicks.

    Parameters
    ----------
    logging : Ranker or array-like (n_items,), optional
        The logging policy, or its scores. By default it is read from the positions in the log, item
        by item, which is also right if it ranked at random.
    draws : float array (n, 2), optional
        The values of the new and the logged ranking in n resampled logs, for intervals from your
        own bootstrap. By default n_bootstrap resamples of sessions or queries are drawn.
    ranker_or_scores, log, dataset, rng, options, **settings
        As for `estimate`.

    Examples
    --------
    >>> from countersample import ClickLog, RankingDataset
    >>> from countersample.evaluation import estimate_gain
    >>> data = RankingDataset.from_arrays(X=[[0.1], [0.9]], y=[0, 0], qid=["a", "a"])
    >>> log = ClickLog(
    ...     query=[0, 0], item=[1, 0], propensity=[0.5, 1.0], position=[2, 1], session=[0, 1],
    ...     n_sessions=10,
    ... )
    >>> gain = estimate_gain(data.features[:, 0], log, data, metric="precision@1", rng=0)
    >>> gain.new.value, gain.logged.value, gain.relative  # 2/10, 1/10
    (0.2, 0.1, 1.0)
    """
    rng = np.random.default_rng(rng)
    case = make_case(log, dataset, EstimateOptions.of(options, **settings), rng)
    rewards = {
        NEW: ranker_rewards(ranker_or_scores, case),
        LOGGED: logged_rewards(case) if logging is None else ranker_rewards(logging, case),
    }
    estimates, (difference,) = _compare(case, rewards, LOGGED, rng, draws)
    return Gain(**vars(difference), new=estimates[NEW], logged=estimates[LOGGED])


def compare(
    candidates: Mapping[str, ArrayLike | Ranker | None],
    log: ClickLog,
    dataset: RankingDataset,
    *,
    reference: str = LOGGED,
    draws: Floats | None = None,
    rng: np.random.Generator | int | None = None,
    options: EstimateOptions | None = None,
    **settings: Any,  # noqa: ANN401 (the fields of EstimateOptions)
) -> Comparison:
    """Estimate V(candidate) − V(reference) of several candidates, from the same clicks.

    The method is at the top of `countersample.evaluation.comparison`. No candidate may have been
    trained on these clicks, or chosen by them: it would look better than it is.

    Parameters
    ----------
    candidates : mapping of Ranker or array-like (n_items,), by name
        Rankers with ``predict``, or scores of the items. ``"logged": None`` makes the logging
        policy a candidate, if it is not the reference.
    reference : str
        The candidate that all others are compared with; by default the logging policy, whose
        ranking is read from the positions in the log.
    draws : float array (n, number of candidates), optional
        The values of the candidates in n resampled logs, for intervals from your own bootstrap; in
        the order of `candidates`, then the logging policy if it is the reference and not a
        candidate.
    log, dataset, rng, options, **settings
        As for `estimate`.

    Examples
    --------
    Two items; a session clicked the first, at the top, and another the second, below, where half of
    the users look.

    >>> from countersample import ClickLog, RankingDataset
    >>> from countersample.evaluation import compare
    >>> data = RankingDataset.from_arrays(X=[[0.1], [0.9]], y=[0, 0], qid=["a", "a"])
    >>> log = ClickLog(
    ...     query=[0, 0], item=[1, 0], propensity=[0.5, 1.0], position=[2, 1], session=[0, 1],
    ...     n_sessions=10,
    ... )
    >>> candidates = {"swapped": [0, 1], "same": [1, 0]}
    >>> comparison = compare(candidates, log, data, metric="precision@1", rng=0)
    >>> [(each.candidate, each.value, each.relative) for each in comparison.differences]
    [('swapped', 0.1, 1.0), ('same', 0.0, 0.0)]
    >>> comparison.verdicts["same"].outcome
    'not shown'
    """
    names = check_candidates(candidates, reference)
    rng = np.random.default_rng(rng)
    case = make_case(log, dataset, EstimateOptions.of(options, **settings), rng)
    rewards = {
        name: logged_rewards(case)
        if candidates.get(name) is None
        else ranker_rewards(candidates[name], case)  # type: ignore[arg-type]
        for name in names
    }
    estimates, differences = _compare(case, rewards, reference, rng, draws)
    return Comparison(
        reference=reference,
        estimates=estimates,
        differences=differences,
        confidence=case.options.confidence,
        warnings=tuple(_merge_warnings(estimates)),
    )


def check_candidates(candidates: Mapping[str, object], reference: str) -> list[str]:
    """Return the names of all candidates, including the reference, or raise an error."""
    for name, candidate in candidates.items():
        if (candidate is None) != (name == LOGGED):
            raise ParameterError(
                f"candidate {name!r} is {candidate!r}, expected a ranker or scores; only "
                f"{LOGGED!r}, the logging policy, is None"
            )
    names = list(candidates)
    if reference == LOGGED and LOGGED not in names:
        names.append(LOGGED)
    if reference not in names:
        raise ParameterError(f"reference is {reference!r}, expected one of {', '.join(names)}")
    if len(names) < 2:
        raise ParameterError(f"there is nothing to compare {reference!r} with")
    return names


def _compare(
    case: Case,
    rewards: dict[str, RankRewards],
    reference: str,
    rng: np.random.Generator,
    draws: Floats | None,
) -> tuple[dict[str, Estimate], tuple[Difference, ...]]:
    """Return the estimate of each ranking, and its difference from the reference."""
    names = list(rewards)
    if draws is not None and draws.shape[1] != len(names):
        raise DataError(
            f"draws has {draws.shape[1]} columns, expected {len(names)}: {', '.join(names)}"
        )
    values, draws = estimate_pairwise(case, list(rewards.values()), rng, draws)
    estimates = dict(zip(names, values, strict=True))
    base = estimates[reference].value
    metric, confidence = case.options.metric, case.options.confidence
    if not base > 0:
        raise DataError(
            f"{reference} has a {metric} of 0, expected clicks within its cut-off: there is "
            "nothing to compare with"
        )
    others = [k for k, name in enumerate(names) if name != reference]
    ratios = np.array([values[k].value / base for k in others])
    relative, low, high = ratio_intervals(
        ratios, draws[:, others], draws[:, names.index(reference)], confidence, len(case.clusters)
    )
    return estimates, tuple(
        Difference(
            candidate=names[k],
            reference=reference,
            metric=metric,
            value=float(base * relative[j]),
            low=float(base * low[j]),
            high=float(base * high[j]),
            relative=float(relative[j]),
            relative_low=float(low[j]),
            relative_high=float(high[j]),
            confidence=confidence,
        )
        for j, k in enumerate(others)
    )


def _merge_warnings(estimates: dict[str, Estimate]) -> list[str]:
    """Return each warning once, with the names of the candidates if it is not about all."""
    names_by_warning: dict[str, list[str]] = {}
    for name, estimate in estimates.items():
        for warning in estimate.warnings:
            names_by_warning.setdefault(warning, []).append(name)
    return [
        warning if len(names) == len(estimates) else f"{warning} (of {', '.join(names)})"
        for warning, names in names_by_warning.items()
    ]


def holm(p_values: ArrayLike) -> Floats:
    """p̃_(i) = max_{j ≤ i} min(1, (n − j + 1)·p_(j)), with p_(1) ≤ … ≤ p_(n): Holm's correction.

    Below α, the chance of even one false finding among all n is below α, whatever the tests share.
    A p-value that is NaN belongs to no test: it does not count, and stays NaN.

    >>> holm([0.01, 0.04, 0.03, 0.005])  # 3·0.01, 0.06 by the one before it, 2·0.03, 4·0.005
    array([0.03, 0.06, 0.06, 0.02])
    """
    adjusted = np.array(p_values, dtype=np.float64)
    is_number = np.flatnonzero(~np.isnan(adjusted))
    order = is_number[np.argsort(adjusted[is_number], kind="stable")]
    multiplied = np.arange(len(order), 0, -1) * adjusted[order]
    adjusted[order] = np.minimum(1, np.maximum.accumulate(multiplied))
    return adjusted
