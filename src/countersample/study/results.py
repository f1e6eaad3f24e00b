"""What came out of a study, in memory: runs by dataset, method and setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from countersample.study.design.claims import Value
    from countersample.study.design.grids import Grid

    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """One method at one setting on one dataset: its runs over folds and click logs.

    Attributes
    ----------
    learning_rates : tuple of float
        The chosen learning rate of each fold.
    drawn : int64 (n_points,)
        Clicks drawn at each evaluation point: steps times batch size.
    ndcg : float64 (n_runs, n_points)
        nDCG@10 on test data of the averaged iterate; 0 from where a run diverged.
    best : float64 (n_runs,)
        nDCG@10 of w*, trained on all labels, on the same test data.
    runs : tuple of (fold, seed)
        Which run is which; cells of a study have the same runs in the same order.
    n_diverged : int
        Runs whose weights exploded: they count, with nDCG 0 from there on.
    seconds : float64 (n_runs,)
        Training time of each run, on one core.
    """

    learning_rates: tuple[float, ...]
    drawn: NDArray[np.int64]
    ndcg: Floats
    best: Floats
    runs: tuple[tuple[str, int], ...]
    n_diverged: int
    seconds: Floats

    @property
    def regrets(self) -> Floats:
        """The mean over evaluation points of nDCG@10(w*) − nDCG@10(w̄_t), by run, (n_runs,)."""
        regrets: Floats = self.best - self.ndcg.mean(axis=1)
        return regrets

    @property
    def mean_curve(self) -> Floats:
        """The mean of nDCG@10 over runs, (n_points,)."""
        mean: Floats = self.ndcg.mean(axis=0)
        return mean

    @property
    def final(self) -> Floats:
        """nDCG@10 at the last evaluation point, by run, (n_runs,)."""
        return self.ndcg[:, -1]


@dataclass(frozen=True)
class StudyResult:
    """A study of regret: every method at every setting on every dataset.

    Attributes
    ----------
    grid : Grid
    datasets : tuple of str
        Their names as they are shown.
    cells : mapping of (dataset, method, value) to Cell
        `value` is one of ``grid.values``, `method` the name of one of ``grid.methods``.
    best, policy : mapping of dataset to float
        nDCG@10 on test data of w* and of the logging policy, mean over folds.
    """

    grid: Grid
    datasets: tuple[str, ...]
    cells: Mapping[tuple[str, str, Value], Cell]
    best: Mapping[str, float]
    policy: Mapping[str, float]
