"""Several rankers judged by the same clicks, with intervals that hold for all of them at once.

Of each candidate j the difference Δ_j = V_j − V_reference is estimated from the same sessions in
every draw b of the bootstrap, so that what the two have in common falls out. Intervals that are
each right with 95 % would be wrong for one of twenty candidates that are all equal. So they are
widened until they hold together, by the draws themselves (max-t): with R_j = V_j / V_reference, and
m_j the median and σ_j the standard deviation of the draws of log R_j,

    c = the 95 % quantile over b of max_j |log R_j(b) − m_j| / σ_j

    R_j · exp(∓ f·c·σ_j)

is the interval of R_j, where f, hardly above 1, is by how much Student's quantile for the number of
queries (or sessions) drawn is above the normal one at c. One candidate has c = 1.96, as
`estimate_gain` has it; that of Δ_j is V_reference · (R_j − 1).

Of candidates that have nothing in common this is about as wide as Bonferroni's correction; of
candidates that are nearly alike it is hardly wider than for one, where Bonferroni and Holm, who do
not look at what they have in common, would pay for each. And it gives intervals, which Holm's steps
do not. That some candidate is called better or worse though all are equal to the reference has a
chance of about 5 %, whatever their number: 2.5 % that one is called better.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._frames import Tabular
from countersample.errors import DataError, ParameterError
from countersample.evaluation.counterfactual import Estimate, paired_estimates
from countersample.evaluation.estimators import logged_rewards, make_case, rewards_of
from countersample.evaluation.resampling import ratio_intervals
from countersample.options import CONFIDENCE, METRIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike

    from countersample._arrays import Floats
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.data.scoring import Ranker

LOGGED = "logged"  # what the log itself showed, as a candidate or as the reference
_ROUNDING = 1e-9  # of a value: two sums of the same rewards differ by less
_NUMBERS = ("value", "low", "high", "relative", "relative_low", "relative_high")


@dataclass(frozen=True)
class Difference:
    """How much better a candidate is than the reference.

    Attributes
    ----------
    candidate, reference : str
        Their names.
    value, low, high : float
        V(candidate) − V(reference), and an interval that holds for all candidates at once.
    relative, relative_low, relative_high : float
        That as a share of V(reference).
    verdict : {"better", "worse", "not shown", "none"}
        Whether the whole interval is above 0, below 0, or neither (of arp, for which small is good,
        the other way round). `compare_from_impressions` gives none where the clicks tell nothing.
    """

    candidate: str
    reference: str
    value: float
    low: float
    high: float
    relative: float
    relative_low: float
    relative_high: float
    verdict: str


@dataclass(frozen=True)
class Comparison(Tabular):
    """Candidates judged by the same clicks, made by `compare`.

    Attributes
    ----------
    reference : str
        What all others are compared with.
    estimates : dict of Estimate, by name
        The value of each, the reference included, with an interval of its own.
    differences : tuple of Difference
        One for each candidate but the reference; their intervals hold all at once.
    confidence : float
        That they do.
    warnings : tuple of str
        What makes them less sure than they look.
    """

    reference: str
    estimates: dict[str, Estimate]
    differences: tuple[Difference, ...]
    confidence: float
    warnings: tuple[str, ...] = ()

    @property
    def better(self) -> tuple[str, ...]:
        """The candidates that are shown to be better than the reference, the best first."""
        found = [each for each in self.differences if each.verdict == "better"]
        return tuple(each.candidate for each in sorted(found, key=lambda each: -abs(each.value)))

    @property
    def sentences(self) -> tuple[str, ...]:
        """What each difference says, in words."""
        return tuple(map(self._sentence, self.differences))

    def _sentence(self, found: Difference) -> str:
        other = "what was logged" if self.reference == LOGGED else self.reference
        told = (
            f"{found.relative:+z.1%} {self.estimates[self.reference].metric} "
            f"({self.confidence:.0%} interval {found.relative_low:+z.1%} to "
            f"{found.relative_high:+z.1%})"
        )
        who = "What was logged" if found.candidate == LOGGED else found.candidate
        if found.verdict == "none":
            return f"No verdict on {who} over {other}: {told}."
        if found.verdict == "not shown":
            is_at_zero = found.relative_low <= _ROUNDING and found.relative_high >= -_ROUNDING
            why = ", and that includes 0" if is_at_zero else ""
            return f"{who} is not shown to differ from {other}: {told}{why}."
        return f"{who} is {found.verdict} than {other}: {told}."

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the columns of `to_frame`: a row for each difference."""
        rows = self.differences
        return {
            "candidate": [each.candidate for each in rows],
            "reference": [each.reference for each in rows],
            **{name: [getattr(each, name) for each in rows] for name in _NUMBERS},
            "verdict": [each.verdict for each in rows],
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self) | {"sentences": list(self.sentences), "warnings": list(self.warnings)}


def compare(
    candidates: Mapping[str, ArrayLike | Ranker | None],
    log: ClickLog,
    dataset: RankingDataset,
    *,
    reference: str = LOGGED,
    metric: str = METRIC,
    estimator: str = "ips",
    clip: float | None = None,
    baseline: ArrayLike | None = None,
    control: float | ClickLog | None = None,
    confidence: float = CONFIDENCE,
    n_bootstrap: int = 1000,
    drawn: Floats | None = None,
    rng: np.random.Generator | int | None = None,
) -> Comparison:
    """Estimate V(candidate) − V(reference) of several candidates, from the same clicks.

    How intervals are made to hold for all of them at once is at the top of
    `countersample.evaluation.comparing`. No candidate may have been trained on these clicks, nor
    chosen by them: it would look better than it is, and beat what was not.

    Parameters
    ----------
    candidates : mapping of Ranker or array-like (n_items,), by name
        Rankers with ``predict``, or scores of the items. ``"logged": None`` makes what was logged a
        candidate, where it is not the reference.
    log : ClickLog
    dataset : RankingDataset
        The data the log is of. Its labels are not read.
    reference : str
        The name of the candidate that all others are compared with; by default what was logged,
        of which the positions in the log tell.
    drawn : float array (n, number of candidates), optional
        The values of the candidates in n resampled logs, for intervals from a bootstrap of your
        own; in the order of `candidates`, and the last column of what was logged where that is the
        reference and not among them.
    metric, estimator, clip, baseline, control, confidence, n_bootstrap, rng
        As for `estimate`.

    Raises
    ------
    ParameterError, DataError
        For no candidate beside the reference, a reference that is none of them, or what `estimate`
        refuses.

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
    >>> candidates = {"turned": [0, 1], "as it was": [1, 0]}
    >>> found = compare(candidates, log, data, metric="precision@1", rng=0)
    >>> [(each.candidate, each.value, each.relative) for each in found.differences]
    [('turned', 0.1, 1.0), ('as it was', 0.0, 0.0)]
    >>> found.sentences[1]
    'as it was is not shown to differ from what was logged: +0.0% precision@1 (95% interval +0.0% to +0.0%), and that includes 0.'
    """  # noqa: E501 (a sentence as it is printed)
    names = names_to_judge(candidates, reference)
    rng = np.random.default_rng(rng)
    case = make_case(log, dataset, metric, estimator, clip, baseline, rng, control)
    rewards = [
        logged_rewards(case) if candidates.get(name) is None else rewards_of(candidates[name], case)  # type: ignore[arg-type]
        for name in names
    ]
    if drawn is not None and drawn.shape[1] != len(names):
        raise DataError(
            f"drawn has {drawn.shape[1]} columns, expected {len(names)}: of {', '.join(names)}"
        )
    found, drawn = paired_estimates(case, rewards, n_bootstrap, confidence, rng, drawn)
    estimates = dict(zip(names, found, strict=True))
    if not estimates[reference].value > 0:
        raise DataError(
            f"{reference} has a {metric} of 0, expected clicks within its cut-off: there is "
            "nothing to compare with"
        )
    return Comparison(
        reference=reference,
        estimates=estimates,
        differences=_differences(estimates, drawn, reference, confidence, len(case.clusters)),
        confidence=confidence,
        warnings=tuple(_warnings(estimates)),
    )


def names_to_judge(candidates: Mapping[str, object], reference: str) -> list[str]:
    """Return the names of all that is judged, the reference among them; refuse what is not one."""
    for name, given in candidates.items():
        if (given is None) != (name == LOGGED):
            raise ParameterError(
                f"candidate {name!r} is {given!r}, expected a ranker or scores; {LOGGED!r}, and "
                "that alone, is None: what was logged"
            )
    names = list(candidates)
    if reference == LOGGED and LOGGED not in names:
        names.append(LOGGED)
    if reference not in names:
        raise ParameterError(f"reference is {reference!r}, expected one of {', '.join(names)}")
    if len(names) < 2:
        raise ParameterError(f"there is nothing to compare {reference!r} with")
    return names


def _differences(
    estimates: dict[str, Estimate],
    drawn: Floats,
    reference: str,
    confidence: float,
    n_clusters: int,
) -> tuple[Difference, ...]:
    names = list(estimates)
    others = [k for k, name in enumerate(names) if name != reference]
    base, of_base = drawn[:, names.index(reference)], estimates[reference].value
    values = np.array([estimates[names[k]].value for k in others])
    relative_low, relative_high = ratio_intervals(
        values / of_base, drawn[:, others], base, confidence, n_clusters
    )
    low, high = of_base * relative_low, of_base * relative_high
    sign = -1 if estimates[reference].metric == "arp" else 1
    found = []
    for j, k in enumerate(others):
        is_above, is_below = low[j] > _ROUNDING * of_base, high[j] < -_ROUNDING * of_base
        verdict = {1: "better", 0: "not shown", -1: "worse"}[sign * (int(is_above) - is_below)]
        difference = float(values[j] - of_base)
        found.append(
            Difference(
                candidate=names[k],
                reference=reference,
                value=difference,
                low=float(low[j]),
                high=float(high[j]),
                relative=difference / of_base,
                relative_low=float(relative_low[j]),
                relative_high=float(relative_high[j]),
                verdict=verdict,
            )
        )
    return tuple(found)


def _warnings(estimates: dict[str, Estimate]) -> list[str]:
    """Return those of all estimates, each once, with the names of those it is of."""
    of: dict[str, list[str]] = {}
    for name, found in estimates.items():
        for told in found.warnings:
            of.setdefault(told, []).append(name)
    everyone = list(estimates)
    return [told if names == everyone else f"{told} (of {', '.join(names)})"
            for told, names in of.items()]  # fmt: skip
