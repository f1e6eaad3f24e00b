"""The results of a study in memory: runs by dataset, method and setting."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countersample._arrays import Floats, Ints
    from countersample.study.design.grids import Grid, Value


_MIN_PLATEAU = 3  # rates that are alike, from which on a plateau is reported


class RateFlag(NamedTuple):
    """Whether the choice of a learning rate is clear."""

    alike: tuple[float, float] = (nan, nan)  # between these, rates are no worse but for noise
    n_alike: int = 0
    edge: str = ""  # "smallest" or "largest" if it is at an end of those tried

    @classmethod
    def of(cls, tuning: Mapping[str, Any]) -> RateFlag:
        """Return the flag of the result of a tuning."""
        rates, (low, high) = tuning["learning_rates"], tuning["alike"]
        ends = {rates[0]: "smallest", rates[-1]: "largest"} if len(rates) > 1 else {}
        n_alike = rates.index(high) - rates.index(low) + 1
        return cls((low, high), n_alike, ends.get(tuning["learning_rate"], ""))

    @property
    def is_plateau(self) -> bool:
        """Whether several rates are alike."""
        return self.n_alike >= _MIN_PLATEAU

    @property
    def words(self) -> str:
        """The flag in words; empty if the choice is clear."""
        parts = [f"the {self.edge} tried"] if self.edge else []
        if self.is_plateau:
            parts.append(f"{self.alike[0]:g} to {self.alike[1]:g} alike")
        return ", ".join(parts)


@dataclass(frozen=True)
class Cell:
    """One method at one setting on one dataset: its runs over folds and click logs."""

    # The learning rate of each fold; None if the optimizer needs none.
    learning_rates: tuple[float | None, ...]
    drawn: Ints  # (n_points,): clicks drawn at each evaluation point, steps times batch size
    # (n_runs, n_points): nDCG@10 on test data of the averaged iterate; 0 from where a run diverged.
    ndcg: Floats
    best: Floats  # (n_runs,): nDCG@10 of w*, trained on all labels, on the same test data
    # Fold and seed of each; cells of a study have the same runs in the same order.
    runs: tuple[tuple[str, int], ...]
    n_diverged: int  # runs whose weights exploded: they count, with nDCG 0 from there on
    seconds: Floats  # (n_runs,): training time of each run, on one core
    rate_flags: tuple[RateFlag, ...] = ()  # of each fold

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
    def divergence(self) -> str:
        """How many runs diverged, in words; empty if none did."""
        return f"{self.n_diverged} of {len(self.runs)} runs diverged" if self.n_diverged else ""

    @property
    def final(self) -> Floats:
        """nDCG@10 at the last evaluation point, by run, (n_runs,)."""
        return self.ndcg[:, -1]


@dataclass(frozen=True)
class StudyResult:
    """A study of regret: every method at every setting on every dataset."""

    grid: Grid
    datasets: tuple[str, ...]  # their names in tables
    # By dataset (and combination, see `Grid.where`), name of a method, and value of the grid.
    cells: Mapping[tuple[str, str, Value], Cell]
    # nDCG@10 on test data of w* and of the logging policy, by dataset, mean over folds.
    best: Mapping[str, float]
    policy: Mapping[str, float]
    metric: str = "nDCG@10"  # in place of nDCG@10, if the study has another
    # The metric of a `CounterSampleRanker` with its defaults on test data, by dataset and value,
    # (n_runs,) in the order of the runs of a cell; empty if the grid has no such ranker.
    nothing_set: Mapping[tuple[str, Value], Floats] = field(default_factory=dict)
