"""The first use on a machine: kernels compiled while a command reads its data."""

from __future__ import annotations


def compile_ahead() -> None:
    """Compile what training needs beside this process, if that was never done."""
    from countersample._kernels import ahead

    ahead.compile_ahead(MEANWHILE)


def _draw() -> None:
    import numpy as np

    from countersample import AliasTable

    AliasTable([1.0, 2.0]).sample(1, np.random.default_rng(0))


def _rank() -> None:
    import numpy as np

    from countersample.evaluation.ranking import ranks_of

    ranks_of(np.zeros(2), np.array([0, 2]))


def _click() -> None:
    from countersample import RankingDataset, simulate_clicks

    dataset = RankingDataset.from_arrays(X=[[0.0], [1.0]], y=[0, 1], qid=[0, 0])
    simulate_clicks(dataset, dataset.labels, 1, rng=0)


MEANWHILE = (_draw, _rank, _click)
