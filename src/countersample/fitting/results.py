"""What a fit gives: the ranker, the gain to expect, and what makes it less sure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from countersample import pages
from countersample.clicks.impressions.counts import named
from countersample.fitting.gain import gain_in_figures, gain_in_words
from countersample.rankers.chosen import chosen_settings

if TYPE_CHECKING:
    from countersample.clicks import ClickLog
    from countersample.clicks.diagnosis import Diagnosis
    from countersample.clicks.impressions import JoinReport, LogCheck
    from countersample.evaluation import ABPlan, Estimate, Gain
    from countersample.fitting.gain import ChosenEstimator
    from countersample.fitting.judging import JudgedBy
    from countersample.fitting.leaks import Leak
    from countersample.fitting.propensity_source import PropensitySource
    from countersample.options import EvaluationOptions, PropensityOptions
    from countersample.rankers import ClickRanker
    from countersample.tuning import PathChoice


@dataclass(frozen=True)
class HeavyPair:
    """A query and an item whose clicks have much weight."""

    query_id: Any
    item_id: Any
    positions: str  # at which it was shown: "1–3, 7"
    impressions: int
    clicks: float  # or what they are worth
    weight: float  # clicks / propensity
    share: float  # of all weight


@dataclass(frozen=True, eq=False)
class Fit:
    """A ranker, and all that a person should know before it is used.

    Attributes
    ----------
    ranker : ClickRanker
        Trained on all clicks.
    gain : Gain
        Over what was logged, by clicks that the ranker which is judged has not seen.
    judged_by : JudgedBy
        Whose clicks these are, and of whom the interval speaks.
    leaks : tuple of Leak
        Features that seem to know the clicks they are judged by.
    accepted : tuple of str
        Those of them that were said to be right.
    judging_source : str
        Where the propensities are from that the judging clicks are weighted by.
    is_identified : bool
        Whether the log tells these, and those that are learned with, without belief in features.
    is_joint : bool
        Whether the interval of the gain has in it that the propensities are estimates: they were
        estimated again from each draw of queries.
    gain_at_ends : tuple of float, optional
        The relative gain with all propensities at the lower, or upper, ends of their intervals,
        where the interval of the gain takes them as they are.
    ab_plan : ABPlan
        The A/B test that would confirm it.
    estimator : ChosenEstimator
        How the gain was estimated, and why so.
    learning_curve : tuple of (steps, Estimate)
        The value of such rankers in the course of training; empty where a kind of ranker keeps no
        checkpoints.
    check : LogCheck
    propensity_source : PropensitySource
        The propensities, where they are from, and what other methods say.
    join : JoinReport
    shown : ClickLog
        Everything that was shown and has features and a propensity.
    weights : Diagnosis
        Of the clicks among it.
    heaviest : tuple of HeavyPair
        The ten query-item pairs with the most weight. They have ids; nothing else here has.
    propensities : PropensityOptions
    evaluation : EvaluationOptions
        With the metric that was used.
    half_life : float, optional
        The days after which a click counts half in training.
    seed : int
    warnings : tuple of str
        What makes the result less sure than it looks.
    """

    ranker: ClickRanker
    gain: Gain
    judged_by: JudgedBy
    leaks: tuple[Leak, ...]
    accepted: tuple[str, ...]
    judging_source: str
    is_identified: bool
    is_joint: bool
    gain_at_ends: tuple[float, float] | None
    ab_plan: ABPlan
    estimator: ChosenEstimator
    learning_curve: tuple[tuple[int, Estimate], ...]
    check: LogCheck
    propensity_source: PropensitySource
    join: JoinReport
    shown: ClickLog
    weights: Diagnosis
    heaviest: tuple[HeavyPair, ...]
    propensities: PropensityOptions
    evaluation: EvaluationOptions
    half_life: float | None
    seed: int
    warnings: tuple[str, ...]

    @property
    def exposure(self) -> str:
        """How clicks are weighted: policy-aware, position-only, or as logged."""
        return self.propensity_source.exposure or self.propensities.exposure

    @property
    def settings(self) -> dict[str, Any]:
        """The options as plain values for JSON."""
        return {
            "model": self.ranker.kind,
            "safety": self.ranker.get_params().get("safety"),
            **self.propensities.to_dict(),
            **self.evaluation.to_dict(),
            "half_life": self.half_life,
            "seed": self.seed,
        }

    @property
    def path(self) -> PathChoice | None:
        """What held-out clicks chose; None where nothing was held out."""
        return self.ranker.path_

    @property
    def keeps_logged(self) -> bool:
        """Whether the ranker ranks as what was logged, as nothing was shown to be better."""
        return self.path is not None and self.path.keeps_logged

    @property
    def is_better(self) -> bool:
        """Whether the whole interval of the gain is above 0, and nothing speaks against it.

        That a feature seems to know the clicks that judge does, that the log does not identify
        the propensities, and that the ranker ranks as what was logged.
        """
        is_told = not self.is_withheld and self.is_identified and not self.keeps_logged
        return is_told and self.gain.low > 0

    @property
    def is_worse(self) -> bool:
        """Whether the whole interval of the gain is below 0, and there is a verdict."""
        return not self.is_withheld and self.is_identified and self.gain.high < 0

    @property
    def is_withheld(self) -> bool:
        """Whether there is no verdict, as a feature seems to know the clicks it is judged by."""
        return bool(self._suspects)

    @property
    def _suspects(self) -> list[str]:
        return list(
            dict.fromkeys(each.name for each in self.leaks if each.name not in self.accepted)
        )

    @property
    def verdict(self) -> str:
        """What the gain says, in words."""
        gain = self.gain
        if self.is_withheld:
            names = named(self._suspects)
            return (
                f"No verdict: {names} knows the clicks themselves. Leave it out (--exclude), "
                "compute it from earlier clicks only, or, if it was, confirm that "
                "(--accept-features)."
            )
        if self.keeps_logged and self.path is not None:
            told = "" if self.path.keeps == "previous" else f" {_of_imitation(self.ranker)}"
            return f"As before: {self.path.sentence}{told}"
        if not self.is_identified and not gain.low <= 0 <= gain.high:
            which = "better" if gain.low > 0 else "worse"
            return (
                f"Not shown to be {which}: the log does not identify the propensities. If those of "
                f"{self.judging_source.removeprefix('estimated by ')} are right, "
                f"{gain_in_figures(gain)}."
            )
        return gain_in_words(gain)

    def _repr_html_(self) -> str:
        return f"{pages.paragraphs([self.verdict])}{self.gain._repr_html_()}"

    @property
    def chosen(self) -> dict[str, Any]:
        """What was chosen from the clicks, as `chosen_settings` has it: clip, steps, trees, …."""
        return chosen_settings(self.ranker)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; no id is among them."""
        return {
            "verdict": self.verdict,
            "is_better": self.is_better,
            "gain": asdict(self.gain),
            "is_withheld": self.is_withheld,
            "judged_by": self.judged_by.to_dict(),
            "leaks": [each.to_dict() for each in self.leaks],
            "is_identified": self.is_identified,
            "is_joint": self.is_joint,
            "gain_at_ends": self.gain_at_ends,
            "ab_plan": None if self.is_withheld else self.ab_plan.to_dict(),
            "estimator": asdict(self.estimator),
            "warnings": list(self.warnings),
            "log": self.check.to_dict(),
            "join": self.join.to_dict(),
            "propensities": self.propensity_source.to_dict(),
            "weights": self.weights.to_dict(),
            **self.chosen,
            "path": None if self.path is None else self.path.to_dict(),
            "learning_curve": [
                {"steps": steps, "value": each.value, "low": each.low, "high": each.high}
                for steps, each in self.learning_curve
            ],
            "settings": self.settings,
        }


def _of_imitation(ranker: ClickRanker) -> str:
    """Return what a ranker that keeps what was logged does, in words."""
    served = ranker.served_
    told = "So the ranker that is written ranks as what was logged, as far as features tell it"
    if served is None:
        return f"{told}."
    return f"{told}: {served.agreement:.0%} of the pairs of items in the order they were shown in."
