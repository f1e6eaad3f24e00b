"""Boosted trees as an estimator: `GBDTRanker`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from countersample._params import choice, number, whole_number
from countersample.clicks import ClickLog
from countersample.errors import ParameterError
from countersample.gbdt.backends import BACKENDS, check_backend_params, translate_errors
from countersample.gbdt.objectives import boosting_objective, check_method
from countersample.options import CONFIDENCE, HOLDOUT, METRIC
from countersample.rankers.checks import COUNT, MIN_PROPENSITY, either
from countersample.rankers.rounds import RoundsRanker
from countersample.rankers.task import scale_base, weigh_clicks
from countersample.scorers import LinearScorer, TreesScorer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample._progress import Progress
    from countersample.data import RankingDataset
    from countersample.gbdt.backends import Boosting
    from countersample.objectives import Loss, Objective
    from countersample.rankers.checks import Check
    from countersample.rankers.task import Task, Tasks
    from countersample.scorers import Scorer

# "auto" requires a tenth of the items that a tree is grown on per leaf, up to 50
MAX_AUTO_LEAF, AUTO_LEAVES = 50, 10
MAX_SEED = 2**31 - 1


def _check_mapping(name: str, value: object) -> None:
    if not isinstance(value, Mapping | None):
        raise ParameterError(f"{name} is {value!r}, expected a dict of parameters, or None")


@dataclass(kw_only=True, eq=False, repr=False)
class GBDTRanker(RoundsRanker):
    """score(x) = base·x + Σ_trees value of the leaf of x, minimising (1/N) Σ_clicks f / propensity.

    Boosted trees learned from clicks, by LightGBM or XGBoost, each pair of a click and another item
    of its query weighted by the inverse propensity of that click (`boosting_objective`). They are
    boosted from the imitation of the logging policy or from zero. The start and the number of
    trees, which may be 0, are chosen without labels: trees grow on a part of the clicked queries
    while the clicks of the others measure whether they help, and then on everything.

    Parameters
    ----------
    backend : {"lightgbm", "xgboost"}
        The library that trains. A fitted ranker scores without it.
    method : {"ips", "naive"}
        Whether a click weighs 1/propensity or 1, in training and in the choice of the number of
        trees. Each tree uses all clicks, so nothing is sampled: CounterSample and IPS are the same.
    objective : str, Objective or Loss
        f, one of `countersample.objectives.LOSSES`, ``"precision@k"``, or one of your own
        (`countersample.objectives.additive_objective`).
    start : {"auto", "served", "zero"}
        The base of the trees: the imitation of the logging policy, or nothing. "auto" tries both,
        if the policy is known. See `countersample.rankers.task` for the scale of a base.
    n_trees : int
        The maximum number of trees; with ``patience=None``, their number.
    learning_rate : float
        The factor of the leaves.
    num_leaves : int
        The maximum per tree.
    min_items_in_leaf : "auto" or int
        "auto" is a tenth of the items that a tree is grown on, at least 1 and at most 50. For
        XGBoost, the least second-order term of a leaf, which is 1 per item on average at first.
    l2 : float
        Weight decay of leaves: added to the second-order term of each leaf.
    feature_fraction : "auto" or float in (0, 1]
        The share of features drawn for each tree; "auto" is a fifth, but at least 20 features.
    bagging_fraction : float in (0, 1]
        The share of items drawn for each tree.
    patience : int or None
        The number of trees without a better estimate after which no more are tried. None grows
        `n_trees` on everything at once, from zero if `start` is "auto", and holds out nothing.
    holdout : float in (0, 0.5]
        The share of the clicked queries per fold, as the nearest of 1/2, 1/3, …. Enough folds are
        held out in turn to reach 1,000 queries.
    backend_params : dict, optional
        Other parameters of the library, which replace those set here; not the objective.
    warm_start : bool
        Whether `fit` of a fitted ranker continues from it, whatever `start` is: its trees stay, and
        up to `n_trees` more are boosted from their scores. With none it is a candidate.
    doubly_robust, metric, clip, temper, safety, normalize, random_state
        See `ClickRanker` and `CounterSampleRanker`.

    Attributes
    ----------
    scorer_ : TreesScorer
    n_trees_ : int
        0 if no trees are shown to be better than what they are boosted from.
    start_ : {"served", "zero", "previous"}
    history_ : RoundHistory or None
        The estimate by the number of trees; None without patience, and in a loaded ranker.
    and those of `ClickRanker`

    Examples
    --------
    >>> from countersample import simulate_clicks, synthetic
    >>> from countersample.gbdt import GBDTRanker
    >>> data = synthetic("tiny", n_queries=200, rng=0)
    >>> log = simulate_clicks(data, policy=data.features[:, 0], n_clicks=5000, rng=0)
    >>> GBDTRanker(n_trees=100, random_state=0).fit_log(data, log).start_
    'zero'
    """

    kind: ClassVar[str] = "boosted"
    _round_name: ClassVar[str] = "trees"
    _limit_name: ClassVar[str] = "n_trees"
    _scorer_type: ClassVar[type[Scorer]] = TreesScorer
    _takes_missing: ClassVar[bool] = True
    _learned: ClassVar[Mapping[str, Check]] = {
        "n_trees_": COUNT,
        "start_": partial(choice, options=("served", "zero", "previous")),
        "clip_": MIN_PROPENSITY,
    }
    _checks: ClassVar[Mapping[str, Check]] = {
        "backend": partial(choice, options=BACKENDS),
        "method": lambda _name, value: check_method(value),
        "start": partial(choice, options=("auto", "served", "zero")),
        "n_trees": partial(whole_number, least=1),
        "num_leaves": partial(whole_number, least=2),
        "min_items_in_leaf": either("auto", check=whole_number, least=1),
        "feature_fraction": either("auto", check=number, above=0, most=1),
        "bagging_fraction": partial(number, above=0, most=1),
        "backend_params": _check_mapping,
    }

    backend: str = "lightgbm"
    method: str = "ips"
    objective: str | Objective | Loss = "smooth-log-rank"
    start: str = "auto"
    n_trees: int = 1000
    learning_rate: float = 0.1
    num_leaves: int = 15
    min_items_in_leaf: int | str = "auto"
    l2: float = 0.0
    feature_fraction: float | str = "auto"
    bagging_fraction: float = 0.5
    patience: int | None = 50
    holdout: float = HOLDOUT
    metric: str = METRIC
    clip: float | None = None
    temper: float = 1.0
    doubly_robust: bool = False
    safety: float = CONFIDENCE
    normalize: str | None = None
    backend_params: Mapping[str, Any] | None = None
    warm_start: bool = False
    random_state: int | np.random.Generator | None = None

    def _train(self, tasks: Tasks, rng: np.random.Generator, progress: Progress) -> Task:
        check_backend_params(self.backend, self.backend_params or {})
        self._settings = self.get_params() | {"seed": int(rng.integers(MAX_SEED))}
        if self.method == "naive":
            ones = np.ones(tasks.log.n_rows)
            log = tasks.log.replace(propensity=ones, examination=None)
            tasks = replace(tasks, log=log, _latest=None)
        with translate_errors(self.backend):
            task, n_trees = self._train_rounds(tasks, rng, progress)
        scorer = cast("TreesScorer", self.scorer_)
        previous = task.previous if self.start_ == "previous" else None
        if task.imputer is None and getattr(previous, "missing_left", None) is None:
            # Nothing was missing in training, so trees do not know where to send it.
            self.scorer_ = scorer = replace(scorer, missing_left=None)
        self.n_trees_ = n_trees + (previous.n_trees if isinstance(previous, TreesScorer) else 0)
        if scorer.base is None and not scorer.is_inner.any():
            raise ParameterError(
                f"no tree has a split: min_items_in_leaf is {self._settings['min_items_in_leaf']} "
                f"where a tree is grown on {self._settings['n_items']} items, expected one that "
                "leaves a split which helps: set a smaller one, a larger bagging_fraction, or "
                "bring more clicks"
            )
        return task

    def _prepare(self, task: Task, fold_clicks: Sequence[ClickLog]) -> None:
        """Decide the settings that depend on the number of features and items."""
        settings = self._settings
        if self.feature_fraction == "auto":
            settings["feature_fraction"] = min(1.0, max(0.2, 20 / task.dataset.n_features))
        sizes = task.dataset.query_sizes
        n_items = min(
            int(sizes[np.unique(clicks.query)].sum()) for clicks in (task.clicks, *fold_clicks)
        )
        n_items = settings["n_items"] = int(self.bagging_fraction * n_items)  # drawn for a tree
        largest = max(1, n_items // 2)
        if isinstance(self.min_items_in_leaf, str):  # "auto"
            settings["min_items_in_leaf"] = min(MAX_AUTO_LEAF, max(1, n_items // AUTO_LEAVES))
        elif self.min_items_in_leaf > largest:
            raise ParameterError(
                f"min_items_in_leaf is {self.min_items_in_leaf}, expected at most {largest}, half "
                f"of the {n_items} items that a tree is grown on (the share bagging_fraction of "
                "the items of clicked queries, less those held out): set 'auto' or a smaller number"
            )

    def _begin(
        self,
        task: Task,
        start: str,
        rng: np.random.Generator,  # noqa: ARG002 (the library has a seed of its own)
        held_out: RankingDataset | None = None,
    ) -> Boosting:
        """Begin to boost on the queries that have clicks; others would only fill up leaves."""
        clicks = self._weigh(task)
        queries, index = np.unique(clicks.query, return_inverse=True)
        dataset = task.dataset.subset(queries)
        objective = boosting_objective(
            dataset, ClickLog(index, clicks.item, clicks.propensity, clicks.count),
            objective=self.objective, method=self.method,
        )  # fmt: skip
        base = self._base(task, start)
        return BACKENDS[self.backend](dataset, objective, self._settings, held_out, base)

    def _weigh(self, task: Task) -> ClickLog:
        """Return the training clicks; doubly robust weights are clipped already."""
        clip = None if self.doubly_robust else self.clip
        return weigh_clicks(task.clicks, clip=clip, temper=self.temper)

    def _base(self, task: Task, start: str) -> LinearScorer | TreesScorer | None:
        """Return the scorer that trees are boosted from; None for zero."""
        if start == "previous" and isinstance(task.previous, TreesScorer):
            return task.previous
        if start != "served" or task.served is None:
            return None
        weights, clicks = task.served.weights, self._weigh(task)
        return task.linear_scorer(
            scale_base(weights, task.filled, clicks, objective=self.objective)
        )

    def _libraries(self) -> tuple[str, ...]:
        return (self.backend,)
