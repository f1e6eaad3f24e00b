"""Compile kernels while a command reads its data, at the first use on a machine."""

from __future__ import annotations


def compile_ahead() -> None:
    """Compile the kernels of training in another process, unless they are in the cache."""
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


MEANWHILE = (_draw, _rank, _click)  # each compiles small kernels that training needs, too
