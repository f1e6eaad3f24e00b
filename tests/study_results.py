"""Results of studies made by hand, for tests that need no training."""

import numpy as np

from countersample.study.grids import Grid, Method
from countersample.study.results import Cell, StudyResult

BEST = 0.8
METHODS = (
    Method("Biased-SGD", "naive", "click"),
    Method("IPS-SGD", "ips", "click"),
    Method("CounterSample", "countersample", "click"),
)


def make_runs(n_seeds=3, folds=("",)):
    return tuple((fold, seed) for fold in folds for seed in range(n_seeds))


def make_cell(regrets, final=None, *, folds=("",), n_diverged=0, rates=None):
    """A cell with these regrets ×100 by run (folds outermost); and nDCG@10 at the end, if given."""
    regrets = np.asarray(regrets, float) / 100
    end = BEST - regrets if final is None else np.asarray(final, float)
    ndcg = np.column_stack([2 * (BEST - regrets) - end, end])  # two points with the wanted mean
    return Cell(
        learning_rates=rates or (1e-5,) * len(folds),
        drawn=np.array([10, 20]),
        ndcg=ndcg,
        best=np.full(len(regrets), BEST),
        runs=make_runs(len(regrets) // len(folds), folds),
        n_diverged=n_diverged,
        seconds=np.ones(len(regrets)),
    )


def make_result(
    cells, *, claims=(), name="optimizers", axis_title="Optimizer", reference="IPS-SGD"
):
    """A result from cells by (dataset, method, value)."""
    datasets, methods, values = (tuple(dict.fromkeys(key[i] for key in cells)) for i in range(3))
    grid = Grid(
        name=name,
        title="Effect of the optimizer",
        about="",
        kind="regret",
        datasets=datasets,
        methods=tuple(method for method in METHODS if method.name in methods),
        reference="IPS-SGD" if reference is None else reference,
        axis="optimizer",
        axis_title=axis_title,
        values=values,
        claims=tuple(claims),
    )
    return StudyResult(
        grid, datasets, cells, dict.fromkeys(datasets, BEST), dict.fromkeys(datasets, 0.6)
    )
