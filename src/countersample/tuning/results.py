"""What was tried, and what was chosen."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from countersample._frames import Tabular

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

STANDARD_ERRORS = 1.0  # that a clip has to be better by


@dataclass(frozen=True)
class Trial:
    """One setting that was tried, and how it did on clicks it had not seen.

    Attributes
    ----------
    learning_rate : float
    steps : int
    clip : float or None
        The smallest propensity that was trained with.
    value, low, high : float
        The estimate and its bootstrap interval; −inf where the weights exploded.
    """

    learning_rate: float
    steps: int
    clip: float | None
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ClipChoice(Tabular):
    """How far to clip, as held-out clicks decided it.

    Clipping is a bias that held-out clicks cannot see in full, so that it has to be better than no
    clipping by more than the standard error of the difference.

    Attributes
    ----------
    clip : float or None
        The smallest propensity to train with, for `ClickLog.clip`; None for those of the log.
    trials : tuple of Trial
        The best of each clip that was tried; a single one where there was nothing to choose.
    metric : str
        What the values of the trials are of, as `HeldOut` estimates it.
    without_part : tuple of float or None
        The clip by the clicks of all parts but one, for each; see `TuningResult`.

    Examples
    --------
    >>> from countersample.tuning import ClipChoice, Trial
    >>> plain = Trial(0.01, 1000, None, value=0.40, low=0.38, high=0.42)
    >>> clipped = Trial(0.01, 1000, 0.03, value=0.44, low=0.42, high=0.46)
    >>> print(ClipChoice(0.03, (plain, clipped), "dcg@10").sentence)
    Propensities are clipped at 0.03: on held-out clicks dcg@10 is 0.44, and 0.4 without.
    """

    clip: float | None
    trials: tuple[Trial, ...]
    metric: str
    without_part: tuple[float | None, ...] = ()

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the columns of `to_frame`: a row for each clip that was tried; NaN is none."""
        return _columns(self.trials)

    @property
    def sentence(self) -> str:
        """The choice, in words."""
        clips = [trial.clip for trial in self.trials if trial.clip is not None]
        if self.clip is None and not clips:
            return "Propensities are not clipped."
        if self.clip is None:
            tried = ", ".join(f"{clip:.3g}" for clip in clips)
            return (
                f"Propensities are not clipped: clipping (tried: {tried}) is not better on "
                "held-out clicks by more than the standard error."
            )
        by_clip = {trial.clip: trial.value for trial in self.trials}
        told = f"Propensities are clipped at {self.clip:.3g}"
        if None not in by_clip:
            return f"{told}."
        return (
            f"{told}: on held-out clicks {self.metric} is {by_clip[self.clip]:.4g}, and "
            f"{by_clip[None]:.4g} without."
        )


@dataclass(frozen=True)
class TuningResult(Tabular):
    """What was tried, and what was best.

    Attributes
    ----------
    best : Trial
    trials : tuple of Trial
        By steps, then clip, then learning rate.
    metric : str
        What the values are of, as `HeldOut` estimates it.
    n_queries : int
        How many queries were held out and judged by.
    seconds : float
    without_part : tuple of Trial
        For each part of the queries that was held out, what is best by the clicks of the others: a
        ranker that is trained with that can be judged by the part. Empty where none was.
    """

    best: Trial
    trials: tuple[Trial, ...]
    metric: str
    n_queries: int
    seconds: float = field(compare=False)
    without_part: tuple[Trial, ...] = ()

    @property
    def learning_rate(self) -> float:
        """That of the best trial."""
        return self.best.learning_rate

    @property
    def steps(self) -> int:
        """Those of the best trial."""
        return self.best.steps

    @property
    def clip(self) -> float | None:
        """That of the best trial."""
        return self.best.clip

    @property
    def clip_choice(self) -> ClipChoice:
        """The choice between the clips that were tried."""
        by_clip = {self.best.clip: self.best}
        for trial in sorted(self.trials, key=lambda trial: -trial.value):
            by_clip.setdefault(trial.clip, trial)
        trials = sorted(by_clip.values(), key=lambda trial: trial.clip or 0.0)
        without = tuple(trial.clip for trial in self.without_part)
        return ClipChoice(self.clip, tuple(trials), self.metric, without)

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the columns of `to_frame`: a row for each trial; a clip of NaN is none."""
        return _columns(self.trials)


def _columns(trials: Sequence[Trial]) -> dict[str, ArrayLike]:
    """Return the settings and values of trials; a clip of NaN is none."""
    columns: dict[str, Any] = {
        f.name: [getattr(trial, f.name) for trial in trials] for f in fields(Trial)
    }
    columns["clip"] = [float("nan") if clip is None else clip for clip in columns["clip"]]
    return columns
