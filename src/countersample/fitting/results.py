"""The results of `fit` and of `train`: the ranker, its gain, the verdict, and reasons for doubt."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from countersample import _text, pages
from countersample.evaluation import Verdict, decide
from countersample.fitting.gain import gain_record
from countersample.fitting.models import model_of
from countersample.logs.counts import list_names
from countersample.rankers.base import chosen_settings

if TYPE_CHECKING:
    from countersample.clicks import ClickLog
    from countersample.clicks.diagnosis import Diagnosis
    from countersample.evaluation import ABPlan, Estimate, Gain
    from countersample.fitting.gain import EstimatorChoice, Holdout
    from countersample.fitting.leakage import Leak
    from countersample.fitting.propensity_source import PropensitySource
    from countersample.logs import JoinReport, LogCheck, PositionCounts
    from countersample.options import EvaluationOptions, PropensityOptions
    from countersample.rankers import ClickRanker
    from countersample.tuning import PathChoice

_SHOWN_CONTEXTS = 3  # in a summary; the page has all


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
class Fit:
    """A trained ranker, and what to know before it is used.

    Attributes
    ----------
    ranker : ClickRanker
        Trained on all clicks.
    gain : Gain
        Over the logging policy, by clicks that the evaluated ranker has not seen.
    holdout : Holdout
        These clicks, and the population that the interval is about.
    leaks : tuple of Leak
        Features that seem to be computed from the evaluation clicks.
    accepted : tuple of str
        Features among them that the user confirmed.
    evaluation_source : PropensitySource
        The propensities that weight the evaluation clicks.
    is_identified : bool
        Whether the log identifies all propensities without a model of relevance.
    is_joint : bool
        Whether the interval of the gain includes the uncertainty of the propensities: they were
        estimated again from each draw of queries.
    gain_at_ends : tuple of float, optional
        The relative gain with all propensities at the lower, or upper, ends of their intervals, if
        the interval of the gain does not include their uncertainty.
    ab_plan : ABPlan
        The A/B test that would confirm the gain.
    estimator : EstimatorChoice
        The estimator of the gain, and the reason for it.
    learning_curve : tuple of (steps, Estimate)
        The value in the course of training; empty if the ranker has no checkpoints.
    check : LogCheck
    propensity_source : PropensitySource
        The propensities of the whole log, and the estimates of other methods.
    join : JoinReport
    shown : ClickLog
        Everything that was shown and has features and a propensity.
    weights : Diagnosis
        Of its clicks.
    heaviest : tuple of HeavyPair
        The ten query-item pairs with the most weight. Only these contain ids.
    propensities : PropensityOptions
    evaluation : EvaluationOptions
        With the metric that was used.
    half_life : float, optional
        The days after which a click counts half in training.
    seed : int
    warnings : tuple of str
        Reasons to trust the result less.
    """

    ranker: ClickRanker
    gain: Gain
    holdout: Holdout
    leaks: tuple[Leak, ...]
    accepted: tuple[str, ...]
    evaluation_source: PropensitySource
    is_identified: bool
    is_joint: bool
    gain_at_ends: tuple[float, float] | None
    ab_plan: ABPlan
    estimator: EstimatorChoice
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
        """The choice by held-out clicks in training; None if nothing was held out."""
        return self.ranker.path_

    @property
    def keeps_logged(self) -> bool:
        """Whether the ranker imitates the logging policy, because nothing better was shown."""
        return self.path is not None and self.path.keeps_logged

    @property
    def decision(self) -> Verdict:
        """Whether the ranker is better than your current one, and why."""
        withheld = kept = unidentified = ""
        leaking = named_leaks(self.leaks, self.accepted)
        if leaking:
            withheld = (
                f"{leaking} was computed from the clicks that evaluate it. Leave it out "
                "(--exclude), compute it from earlier clicks only, or, if it was, confirm that "
                "(--accept-features)"
            )
        if self.keeps_logged and self.path is not None:
            kept = self.path.sentence
            if self.path.keeps != "previous":
                kept += f" {_describe_imitation(self.ranker)}"
        if not self.is_identified:
            unidentified = self.evaluation_source.method
        return decide(self.gain, withheld=withheld, unidentified=unidentified, kept=kept)

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return self.decision.sentence

    @property
    def is_better(self) -> bool:
        """Whether the ranker is shown to be better than your current one."""
        return self.decision.is_better

    @property
    def is_worse(self) -> bool:
        """Whether the ranker is shown to be worse than your current one."""
        return self.decision.is_worse

    @property
    def is_withheld(self) -> bool:
        """Whether there is no verdict, because a feature leaks the evaluation clicks."""
        return self.decision.is_withheld

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
            "gain": asdict(self.gain),
            "is_withheld": self.is_withheld,
            "holdout": self.holdout.to_dict(),
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

    def summary(self) -> str:
        """Return the figures, the verdict and the warnings, for a terminal."""
        counts = self.check.counts
        weights = self.weights
        rows = [
            ("log", counts.summary()),
            ("clicks used", f"{self.join.n_joined:,} of {self.join.n_clicks:,}"),
            ("propensities", f"{self.propensity_source.source}{self._curves_text()}"),
            ("exposure", f"{self.exposure}; {_sessions_text(counts)}"),
            ("weights", f"mean {weights.mean_weight:.3g}, largest {weights.max_weight:.3g}"),
            ("settings", self._settings_text()),
            ("estimator", f"{self.estimator.name}: {self.estimator.reason}"),
            ("evaluated on", f"{self._days_text()}; {self.holdout.n_clicks:,} clicks"),
        ]
        sentences = [self.verdict, self.holdout.sentence]
        if self.is_better:
            sentences.append(f"Confirm it with an A/B test. {self.ab_plan.sentence}")
        blocks = [_text.pairs(rows, indent=0), "", self.gain.summary(), ""]
        blocks += map(_text.paragraph, sentences)
        return "\n".join([*blocks, *_text.warning_paragraphs(self.warnings)])

    def _days_text(self) -> str:
        since = self.holdout.since
        return "queries, held out in turn" if since is None else f"the days from {since} on"

    def _settings_text(self) -> str:
        """Return the chosen settings in words: 500 steps, no clipping."""
        chosen = self.chosen
        rate = chosen.get("learning_rate")
        parts = [] if rate is None else [f"learning rate {rate:.3g}"]
        parts += [f"{chosen[name]:,} {name}" for name in ("steps", "trees") if name in chosen]
        if "transform" in chosen:
            parts.append(f"transform {chosen['transform']}")
        if self.path is not None:
            parts.append(f"{self.path.kept:.0%} of your current ranker")
        previous = self.ranker.provenance_.get("previous")
        if previous is not None:
            parts.append(f"warm start from a ranker of {previous['n_clicks']:,.0f} clicks")
        if self.half_life is not None:
            parts.append(f"half-life {self.half_life:g} days")
        clip = chosen["clip"]
        return ", ".join([*parts, "no clipping" if clip is None else f"clipped at {clip:.3g}"])

    def _curves_text(self) -> str:
        """Return the last value of the first estimated curves, with their intervals."""
        parts = []
        for context, curve in self.propensity_source.curves.items():
            where = f"position {len(curve.value)}{f' in {context}' if context else ''}"
            ends = f"{curve.low[-1]:.3g} to {curve.high[-1]:.3g}"
            parts.append(f"; {curve.value[-1]:.3g} at {where} ({ends})")
        return "".join(parts[:_SHOWN_CONTEXTS])


def _sessions_text(counts: PositionCounts) -> str:
    """Return the number of sessions, and how they were counted."""
    by = {
        "sessions": "counted by their ids",
        "first position": "counted by the first position, as the log has no session ids",
    }
    return f"{counts.sessions.sum():,.0f} sessions of a query, {by[counts.sessions_from]}"


@dataclass(frozen=True)
class TrainingEvaluation:
    """The gain of rankers trained on a click log, by held-out queries, or why there is none.

    Attributes
    ----------
    gain : Gain, optional
        Over the logging policy, each query ranked by a ranker that was trained without it.
    verdict : str
        In words; or why there is none.
    warnings : tuple of str
        Reasons to trust it less.
    """

    gain: Gain | None
    verdict: str
    warnings: tuple[str, ...] = ()

    @property
    def provenance(self) -> dict[str, Any]:
        """What a ranker's file and its card record of it."""
        record: dict[str, Any] = {"verdict": self.verdict, "warnings": list(self.warnings)}
        if self.gain is not None:
            record["gain"] = gain_record(self.gain, is_identified=True)
        return record

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self) | {"warnings": list(self.warnings)}

    def summary(self) -> str:
        """Return the gain, the verdict and the warnings, for a terminal."""
        blocks = [] if self.gain is None else ["", self.gain.summary(), ""]
        blocks.append(_text.paragraph(self.verdict))
        return "\n".join([*blocks, *_text.warning_paragraphs(self.warnings)])


@dataclass(frozen=True, eq=False)
class TrainedRanker:
    """A ranker that was trained on a click log, and its evaluation on held-out clicks.

    Attributes
    ----------
    ranker : ClickRanker
    n_clicks : float
        The clicks that it was trained on.
    evaluation : TrainingEvaluation, optional
    """

    ranker: ClickRanker
    n_clicks: float
    evaluation: TrainingEvaluation | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        path = self.ranker.path_
        return {
            "model": model_of(self.ranker),
            "n_clicks": self.n_clicks,
            "n_features": self.ranker.n_features_in_,
            **chosen_settings(self.ranker),
            "path": None if path is None else path.to_dict(),
            **({} if self.evaluation is None else self.evaluation.to_dict()),
        }

    def summary(self) -> str:
        """Return the settings, the choices, and the evaluation, for a terminal."""
        settings, chosen = self.ranker.get_params(), chosen_settings(self.ranker)
        unit = f", by {settings['unit']}" if "unit" in settings else ""
        rows = [
            ("clicks", f"{self.n_clicks:,.0f}"),
            ("model", model_of(self.ranker)),
            ("method", f"{settings['method']}{unit}"),
            ("objective", settings["objective"]),
        ]
        rows += [(name, f"{chosen[name]:,}") for name in ("steps", "trees") if name in chosen]
        if "learning_rate" in chosen:
            rows.append(("learning rate", f"{chosen['learning_rate']:.3g}"))
        if settings.get("feature_transform") is not None:
            rows.append(("transform", chosen.get("transform", settings["feature_transform"])))
        if chosen["clip"] is not None:
            rows.append(("clipped at", f"{chosen['clip']:.3g}"))
        blocks = [_text.pairs(rows, indent=0)]
        if self.ranker.path_ is not None:
            blocks.append(_text.paragraph(self.ranker.path_.sentence))
        if self.evaluation is not None:
            blocks.append(self.evaluation.summary())
        return "\n".join(blocks)


def named_leaks(leaks: tuple[Leak, ...], accepted: tuple[str, ...] = ()) -> str:
    """Return the names of features that leak and are not accepted, as text."""
    names = dict.fromkeys(leak.name for leak in leaks if leak.name not in accepted)
    return list_names(list(names)) if names else ""


def _describe_imitation(ranker: ClickRanker) -> str:
    """Return in words how well a ranker imitates the logging policy."""
    text = "So the saved ranker ranks like your current one, as far as the features allow"
    served = ranker.served_
    if served is None:
        return f"{text}."
    return f"{text}: {served.agreement:.0%} of the pairs of items are in the order of the log."
