"""Successive halving: all rates take a quarter of the steps, the better ones more."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from countersample._cores import available_cores
from countersample.training import train_many
from countersample.tuning.results import STANDARD_ERRORS, Trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample._arrays import Floats
    from countersample._progress import Progress
    from countersample.data import RankingDataset
    from countersample.evaluation.held_out import HeldOut
    from countersample.training import TrainingOptions, TrainingResult
    from countersample.tuning.rates import RateGrid

MOST_PASSES = 3
PARTS_OF_STEPS = (4, 2, 1)


class Attempt(NamedTuple):
    """One setting under way: its sums over held-out clicks, None where weights exploded."""

    grid: RateGrid
    k: int
    steps: int
    by_fold: Floats | None  # (n_folds, n_groups)
    value: float

    @property
    def sums(self) -> Floats | None:
        """The sums over the clicks of all folds, (n_groups,)."""
        return None if self.by_fold is None else self.by_fold.sum(axis=0)

    @property
    def rate(self) -> float:
        """The learning rate."""
        return self.grid.rate(self.k)


@dataclass(frozen=True, eq=False)
class Search:
    """Trains settings on what is not held out, and judges them by what is."""

    dataset: RankingDataset
    held_out: HeldOut
    options: TrainingOptions  # but for the steps and the clip, which are those of each setting
    seed: int  # of what is drawn, in every run

    def halve(self, grids: Sequence[RateGrid], steps: int, progress: Progress) -> list[Attempt]:
        """Try all rates with a quarter of the steps, and the better halves of them with more."""
        rungs = sorted({-(-steps // part) for part in PARTS_OF_STEPS})
        found = latest = self._widen(grids, rungs[0], progress.part(1 / len(rungs)))
        for n_steps in rungs[1:]:
            latest = sorted(latest, key=lambda attempt: (-attempt.value, abs(attempt.k)))
            half = latest[: -(-len(latest) // 2)]
            first_of_each = {each.grid: each for each in reversed(latest)}
            of_others = [each for each in first_of_each.values() if each not in half]
            better = [(each.grid, each.k) for each in half + of_others]
            latest = self.run(better, n_steps, progress.part(1 / len(rungs)))
            found = found + latest
        progress.update(1.0)
        return found

    def _widen(self, grids: Sequence[RateGrid], steps: int, progress: Progress) -> list[Attempt]:
        """Try the first rates of each grid, and more where the best of them is at an end."""
        found: list[Attempt] = []
        chosen = [(grid, k) for grid in grids for k in grid.first]
        for _ in range(MOST_PASSES):
            found += self.run(chosen, steps, progress.part(1 / MOST_PASSES))
            chosen = [
                (grid, k)
                for grid in grids
                for k in grid.more({each.k: each.value for each in found if each.grid is grid})
            ]
            if not chosen:
                break
        return found

    def run(
        self, chosen: Sequence[tuple[RateGrid, int]], steps: int, progress: Progress
    ) -> list[Attempt]:
        """Train the chosen rates of each grid on each fold, side by side, and judge them."""
        by_grid: dict[RateGrid, list[int]] = {}
        for grid, k in chosen:
            by_grid.setdefault(grid, []).append(k)
        folds = self.held_out.folds
        jobs = [(grid, fold) for grid in by_grid for fold in folds]
        parts = progress.side_by_side(len(jobs))

        def work(job: int) -> list[TrainingResult]:
            grid, fold = jobs[job]
            return train_many(
                self.dataset, fold.train, learning_rates=[grid.rate(k) for k in by_grid[grid]],
                seeds=[self.seed], workers=1, progress=parts[job],
                options=replace(self.options, steps=steps, clip=grid.clip),
            )  # fmt: skip

        with ThreadPoolExecutor(available_cores()) as pool:
            results = iter(list(pool.map(work, range(len(jobs)))))
        attempts = []
        for grid, ks in by_grid.items():
            runs = list(zip(*(next(results) for _ in folds), strict=True))
            for k, by_fold in zip(ks, self._sums(runs), strict=True):
                value = -np.inf if by_fold is None else self.held_out.value(by_fold.sum(axis=0))
                attempts.append(Attempt(grid, k, steps, by_fold, value))
        return attempts

    def _sums(self, runs: Sequence[Sequence[TrainingResult]]) -> list[Floats | None]:
        """Return the sums over held-out clicks of each ranker, which is a result for each fold.

        They are by fold, and None where weights exploded. The scores of all are one matrix product
        a fold.
        """
        sound = [n for n, of_run in enumerate(runs) if all(r.diverged_at is None for r in of_run)]
        folds = self.held_out.folds
        sums = np.zeros((len(sound), len(folds), len(self.held_out.weight_sums)))
        for i, fold in enumerate(folds if sound else ()):
            weights = np.array([runs[n][i].weights for n in sound], np.float32)
            scores = (weights @ fold.validation.features.T).astype(np.float64)
            sums[:, i] = [fold.sums(of_ranker) for of_ranker in scores]
        by_run = dict(zip(sound, sums, strict=True))
        return [by_run.get(n) for n in range(len(runs))]


def best_of(attempts: Sequence[Attempt], eligible: Sequence[int], held_out: HeldOut) -> int:
    """Return the index of the highest value; one that clips has to be as `ClipChoice` says."""
    by_value = sorted(eligible, key=lambda n: (-attempts[n].value, attempts[n].rate))
    plain = next((n for n in by_value if attempts[n].grid.clip is None), by_value[0])
    without = attempts[plain].sums
    for n in by_value:
        sums = attempts[n].sums
        if n == plain or without is None or sums is None:
            break
        if held_out.z_score(sums, without) > STANDARD_ERRORS:
            return n
    return plain if without is not None else by_value[0]


def best_without(
    k: int, attempts: Sequence[Attempt], eligible: Sequence[int], held_out: HeldOut
) -> int:
    """Return what is best by the clicks of all folds but one, whose own have no say."""
    others = held_out.without(k)
    judged = []
    for each in attempts:
        left = None if each.by_fold is None else np.delete(each.by_fold, k, axis=0)
        value = -np.inf if left is None else others.value(left.sum(axis=0))
        judged.append(each._replace(by_fold=left, value=value))
    return best_of(judged, eligible, others)


def trials_of(
    attempts: Sequence[Attempt], held_out: HeldOut, rng: np.random.Generator
) -> list[Trial]:
    """Return the attempts with their intervals."""
    sums = [each.sums for each in attempts if each.sums is not None]
    intervals = iter(held_out.intervals(np.array(sums), rng).tolist() if sums else ())
    trials = []
    for grid, k, steps, by_fold, value in attempts:
        low, high = (-np.inf, -np.inf) if by_fold is None else next(intervals)
        trials.append(Trial(grid.rate(k), steps, grid.clip, value, low, high))
    return trials
