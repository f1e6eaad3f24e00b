"""What is chosen by held-out clicks, once for everything, and for each part of the queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sklearn.base import clone

from countersample.data.normalize import Normalizer
from countersample.rankers import ClickRanker, CounterSampleRanker
from countersample.tuning import choose_clip, clips_to_try, tune

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from countersample._arrays import Ints
    from countersample._progress import Progress
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.tuning import ClipChoice, Trial, TuningResult


@dataclass(frozen=True, eq=False)
class Settled:
    """Rankers to train, with settings that clicks chose.

    Attributes
    ----------
    ranker : ClickRanker
        By all clicks.
    by_part : tuple of ClickRanker
        By the clicks of all parts of the queries but one, which judges it.
    clip : ClipChoice, optional
        How far propensities are clipped; None where the ranker that was given says it.
    tuning : TuningResult, optional
        The settings of a linear ranker that were tried; None for others.
    """

    ranker: ClickRanker
    by_part: tuple[ClickRanker, ...]
    clip: ClipChoice | None
    tuning: TuningResult | None


def settle(
    ranker: ClickRanker | None,
    dataset: RankingDataset,
    log: ClickLog,
    *,
    metric: str,
    parts: Sequence[Ints] | None,
    seed: int,
    rng: np.random.Generator,
    progress: Progress,
) -> Settled:
    """Choose the settings of a linear ranker, or the clipping of another with ``clip="auto"``.

    Without `parts` nothing is chosen for parts of the queries.
    """
    n_parts = 0 if parts is None else len(parts)
    if ranker is None:
        tuning = tune(
            Normalizer.fit(dataset, "minmax")(dataset), log.detached(), clips=clips_to_try(log),
            metric=metric, parts=parts, rng=rng, progress=progress,
        )  # fmt: skip
        by_part = tuple(_linear(trial, seed) for trial in tuning.without_part[:n_parts])
        return Settled(_linear(tuning.best, seed), by_part, tuning.clip_choice, tuning)
    given: ClickRanker = clone(ranker)
    if given.random_state is None:
        given.set_params(random_state=seed)
    if given.get_params().get("clip") != "auto":
        return Settled(given, (given,) * n_parts, None, None)
    clip = choose_clip(dataset, log, metric=metric, parts=parts, rng=rng, progress=progress)
    clips = clip.without_part[:n_parts] or (clip.clip,) * n_parts
    by_part = tuple(clone(given).set_params(clip=each) for each in clips)
    return Settled(given.set_params(clip=clip.clip), by_part, clip, None)


def _linear(trial: Trial, seed: int) -> CounterSampleRanker:
    return CounterSampleRanker(
        learning_rate=trial.learning_rate, steps=trial.steps, clip=trial.clip, random_state=seed
    )
