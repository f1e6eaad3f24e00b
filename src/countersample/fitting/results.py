"""The results of `fit` and of `train`: the ranker, its gain, the verdict, and reasons for doubt."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from countersample import pages
from countersample.evaluation import Verdict, decide
from countersample.fitting.gain import GainEstimate
from countersample.fitting.models import model_of
from countersample.fitting.summaries import SHOWN_WARNINGS, render_summary
from countersample.logs.counts import list_names
from countersample.rankers.base import chosen_settings

if TYPE_CHECKING:
    from countersample.clicks import ClickLog
    from countersample.clicks.diagnosis import Diagnosis
    from countersample.evaluation import ABPlan, Gain
    from countersample.fitting.gain import Holdout
    from countersample.fitting.leakage import Leak
    from countersample.fitting.propensity_source import PropensitySource
    from countersample.fitting.summaries import Warnings
    from countersample.logs import JoinReport, LogCheck
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
    clicks: float  # or their value
    weight: float  # clicks / propensity
    share: float  # of all weight


@dataclass(frozen=True, eq=False)
class Fit(GainEstimate):
    """A trained ranker, its gain over the logging policy, and warnings."""

    ranker: ClickRanker
    """Trained on all clicks."""
    holdout: Holdout
    """The clicks that evaluate, and the population that the interval is about."""
    leaks: tuple[Leak, ...]
    """Features that seem to be computed from the evaluation clicks."""
    accepted: tuple[str, ...]
    """Features among them that the user confirmed."""
    evaluation_source: PropensitySource
    """The propensities that weight the evaluation clicks."""
    is_identified: bool
    """Whether the log identifies all propensities without a model of relevance."""
    ab_plan: ABPlan
    """The A/B test that would confirm the gain."""
    check: LogCheck
    propensity_source: PropensitySource
    """The propensities of the whole log."""
    join: JoinReport
    shown: ClickLog
    """Everything that was shown and has features and a propensity."""
    weights: Diagnosis
    """The weights of these clicks."""
    heaviest: tuple[HeavyPair, ...]
    """The ten query-item pairs with the most weight. Only these contain ids."""
    propensities: PropensityOptions
    evaluation: EvaluationOptions
    """The options, with the metric that was used."""
    half_life: float | None
    """The days after which a click counts half in training."""
    seed: int
    doubts: Warnings
    """Reasons to trust the result less, by subject, the most important first."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """The same in one list."""
        return tuple(chain(*self.doubts.values()))

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
        """The choice by held-out clicks in training; None if nothing was held out."""
        return self.ranker.path_

    @property
    def keeps_logged(self) -> bool:
        """Whether the ranker imitates the logging policy, because nothing better was shown."""
        return self.path is not None and self.path.keeps_logged

    @property
    def decision(self) -> Verdict:
        """Whether the ranker is better than your current one, and why."""
        return decide(
            self.gain,
            withheld=self.check.withheld or describe_leaks(self.leaks, self.accepted, _ACCEPT),
            unidentified="" if self.is_identified else self.evaluation_source.method,
            kept=describe_kept(self.ranker),
        )

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return self.decision.sentence

    @property
    def is_better(self) -> bool:
        """Whether the ranker is shown to be better than your current one."""
        return self.decision.is_better

    @property
    def has_plan(self) -> bool:
        """Whether the log can plan an A/B test: items that it never showed have no clicks in it."""
        return not self.decision.is_withheld and self.estimator.name != "dr"

    @property
    def next_step(self) -> str:
        """What to do with the ranker."""
        if self.decision.is_withheld:
            return "Remove the cause that the verdict names, and fit again."
        if self.decision.is_worse:
            return "Keep your current ranker."
        if describe_kept(self.ranker):
            return "Keep your current ranker, and fit again when the log has more clicks."
        n = self.ab_plan.sessions if self.has_plan else None
        test = "an A/B test" if n is None else f"an A/B test with {n:,} sessions per arm"
        if self.is_better:
            return f"Export the ranker, and confirm the gain with {test}."
        if not self.is_identified:
            return (
                "Shuffle the results of a small share of the traffic, which identifies the "
                f"propensities, and fit again; or decide with {test}."
            )
        return f"Fit again when the log has more clicks, or decide with {test}."

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings that were chosen from the clicks: clip, steps, trees, …."""
        return chosen_settings(self.ranker)

    def _repr_html_(self) -> str:
        return f"{pages.paragraphs([self.verdict])}{self.gain._repr_html_()}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, without ids."""
        return {
            "verdict": self.verdict,
            "is_better": self.is_better,
            "next_step": self.next_step,
            "gain": asdict(self.gain),
            "is_withheld": self.decision.is_withheld,
            "holdout": self.holdout.to_dict(),
            "leaks": [each.to_dict() for each in self.leaks],
            "is_identified": self.is_identified,
            "is_joint": self.is_joint,
            "gain_at_ends": self.gain_at_ends,
            "ab_plan": self.ab_plan.to_dict() if self.has_plan else None,
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

    def summary(self) -> str:
        """Return the verdict, its reason, the next step and the first warnings, for a terminal."""
        return render_summary("fit.txt", fit=self, warnings=self.warnings[:SHOWN_WARNINGS])


@dataclass(frozen=True, eq=False)
class TrainedRanker:
    """A ranker that was trained on a click log, and its evaluation by held-out queries."""

    ranker: ClickRanker
    n_clicks: float
    """The clicks that it was trained on."""
    gain: Gain | None = None
    """Over the logging policy, each query ranked by a ranker that was trained without it."""
    verdict: str = ""
    """In words, or why there is none; empty without an evaluation."""
    warnings: tuple[str, ...] = ()
    """Reasons to trust it less."""

    @property
    def provenance(self) -> dict[str, Any]:
        """What a ranker's file and its card record of the evaluation."""
        if not self.verdict:
            return {}
        record: dict[str, Any] = {"verdict": self.verdict, "warnings": list(self.warnings)}
        if self.gain is not None:
            record["gain"] = gain_record(self.gain, is_identified=True)
        return record

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        path, gain = self.ranker.path_, self.gain
        return {
            "model": model_of(self.ranker),
            "n_clicks": self.n_clicks,
            "n_features": self.ranker.n_features_in_,
            **chosen_settings(self.ranker),
            "path": None if path is None else path.to_dict(),
            **self.provenance,
            "gain": None if gain is None else asdict(gain),
        }

    def summary(self) -> str:
        """Return the settings, the choices, and the evaluation, for a terminal."""
        return render_summary(
            "train.txt", trained=self, ranker=self.ranker, model=model_of(self.ranker),
            settings=self.ranker.get_params(), chosen=chosen_settings(self.ranker),
            warnings=self.warnings,
        )  # fmt: skip


# For commands with this option.
_ACCEPT = ", or confirm that it does not leak them (--accept-features)"


def describe_leaks(
    leaks: tuple[Leak, ...], accepted: tuple[str, ...] = (), remedy: str = ""
) -> str:
    """Return why there is no verdict, if a feature leaks and is not accepted."""
    names = dict.fromkeys(leak.name for leak in leaks if leak.name not in accepted)
    if not names:
        return ""
    return (
        f"{list_names(list(names))} was computed from the clicks that evaluate it. Leave it out "
        f"(--exclude) or compute it from earlier clicks only{remedy}"
    )


def describe_kept(ranker: ClickRanker) -> str:
    """Return why a ranker ranks like the current one, and how well it does, if it does."""
    path = getattr(ranker, "path_", None)
    if path is None or not path.keeps_logged:
        return ""
    if path.keeps == "previous":
        return str(path.sentence)
    text = f"{path.sentence} So the saved ranker ranks like your current one, as far as the "
    if ranker.served_ is None:
        return f"{text}features allow."
    pairs = f"{ranker.served_.agreement:.0%} of the pairs of items are in the order of the log"
    return f"{text}features allow: {pairs}."


def gain_record(gain: Gain, *, is_identified: bool) -> dict[str, Any]:
    """Return the figures of a gain for a ranker's file and its card."""
    return {
        "metric": gain.metric, "estimator": gain.new.estimator, "per": gain.new.per,
        "relative": gain.relative, "relative_low": gain.relative_low,
        "relative_high": gain.relative_high, "confidence": gain.confidence,
        "is_identified": is_identified, "logged": gain.logged.value, "new": gain.new.value,
    }  # fmt: skip
