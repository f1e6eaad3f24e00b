"""Boosted trees as an estimator: `GBDTRanker`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from countersample._params import choice, number, whole_number
from countersample.clicks import ClickLog
from countersample.errors import ParameterError
from countersample.gbdt.backends import BACKENDS, check_backend_params, plain_errors
from countersample.gbdt.objectives import boosting_objective, check_method
from countersample.options import CONFIDENCE, HOLDOUT, METRIC
from countersample.rankers._parameters import COUNT, LEAST_PROPENSITY, either
from countersample.rankers._starting import sized, starts_of, trained_on, without_fold
from countersample.rankers._stopping import CHOOSING_SHARE, Chosen, Way, choose_round, judge_rounds
from countersample.rankers.base import ClickRanker
from countersample.rankers.linear import CounterSampleRanker
from countersample.scorers import LinearScorer, TreesScorer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from countersample._arrays import Floats
    from countersample._progress import Progress
    from countersample.data import RankingDataset
    from countersample.evaluation.held_out import HeldOut
    from countersample.gbdt.backends import LightGBM, XGBoost
    from countersample.objectives import Loss, Objective
    from countersample.rankers._parameters import Check
    from countersample.rankers._task import Task
    from countersample.scorers import Scorer

MOST_IN_LEAF, PARTS = 50, 10  # "auto" takes a tenth of what a tree is grown on, up to 50 items
LARGEST_SEED = 2**31 - 1


def _check_mapping(name: str, value: object) -> None:
    if not isinstance(value, Mapping | None):
        raise ParameterError(f"{name} is {value!r}, expected a dict of parameters, or None")


@dataclass(frozen=True, eq=False)
class BoostingHistory:
    """What was seen while the number of trees was chosen.

    Attributes
    ----------
    trees : int64 (n,)
    value : float64 (n,)
        Σ λ(rank)/p / Σ 1/p over the clicks of held-out queries, with so many trees.
    """

    trees: NDArray[np.int64]
    value: Floats


@dataclass(kw_only=True, eq=False, repr=False)
class GBDTRanker(ClickRanker):
    """score(x) = base·x + Σ_trees value of the leaf of x, minimising (1/N) Σ_clicks f / propensity.

    Boosted trees learned from clicks, by LightGBM or XGBoost, each pair of a click and another item
    of its query weighted by the inverse propensity of that click (`boosting_objective`). They are
    boosted from what was served or from zero. Which of both and the number of trees, which may be
    0, is found without labels: trees grow on a part of the clicked queries while the clicks of the
    others say whether they help, and then on everything.

    Parameters
    ----------
    backend : {"lightgbm", "xgboost"}
        The library that trains. A fitted ranker scores without it.
    method : {"ips", "naive"}
        Whether a click weighs 1/propensity or 1, in training and in the choice of the number of
        trees. All clicks are used for each tree, so nothing is drawn: CounterSample and IPS are
        the same here.
    objective : str, Objective or Loss
        f, one of `countersample.objectives.LOSSES`, ``"precision@k"``, or one of your own
        (`countersample.objectives.additive_objective`).
    start : {"auto", "served", "linear", "zero"}
        What trees are boosted from, the base: a linear scorer that ranks as what was logged
        (`countersample.rankers.served.imitate`), the default `CounterSampleRanker` trained on the
        same clicks, or nothing. "auto" tries what was served, where it is known, and nothing, and
        held-out clicks choose. How far apart the scores of a base are is decided by the clicks that
        trees grow on: they are all but equal where it explains none of them.
    n_trees : int
        The most trees there can be; with ``patience=None``, how many there are.
    learning_rate : float
        What the leaves of a tree are multiplied by.
    num_leaves : int
        The most leaves of a tree.
    min_items_in_leaf : "auto" or int
        The fewest items of a leaf; "auto" takes a tenth of the items that a tree is grown on, at
        least 1 and at most 50. For XGBoost, the least second-order term of a leaf, which is 1 an
        item on average when training begins.
    l2 : float
        Weight decay of leaves: added to the second-order term of each leaf.
    feature_fraction : "auto" or float in (0, 1]
        The share of the features that a tree is grown on, drawn for each; "auto" takes a fifth, but
        at least 20 features.
    bagging_fraction : float in (0, 1]
        The share of the items that a tree is grown on, drawn for each.
    patience : int or None
        The number of trees without a better estimate after which no more are tried. None grows
        `n_trees` on everything at once, from zero where `start` is "auto".
    holdout : float in (0, 0.5]
        The share of the clicked queries in a part, as the nearest of 1/2, 1/3, …. As many parts are
        held out in turn as are needed to judge by 1,000 queries, and their clicks judge together.
    metric : {"dcg@k", "dcg", "precision@k", "arp"}
        What the number of trees is chosen by, estimated from held-out clicks.
    clip : float or None
        The smallest propensity to train with: see `ClickLog.clip`. Held-out clicks are not clipped.
    temper : float in [0, 1]
        α of the weights 1/p^α to train with, from 0 (naive) to 1: see `ClickLog.temper`. Held-out
        clicks are not tempered.
    doubly_robust : bool
        Whether a model of relevance makes up for what clipping takes, and speaks for items that
        were never shown: see `countersample.evaluation.doubly_robust_log`. `clip` is its τ then, by
        default 10/√S with S sessions. The log must say what was shown (`impressions`).
    safety : 0, or float in [0.5, 1)
        The confidence with which held-out clicks have to show trees better than what was logged
        before they take its place; else the ranker ranks as what was logged, as far as features
        tell. 0 takes what looks best. Without patience nothing is held out, and it has no say.
    normalize : {"minmax", "root-minmax", "standard", "query-minmax"} or None
        How features are brought to a common scale. Trees need none; ``query-minmax`` helps where
        scales differ between queries.
    backend_params : dict, optional
        Passed on to the library under its names or their aliases, and wins over what is set here;
        the objective is not among them.
    warm_start : bool
        Whether `fit` of a ranker that is fitted goes on from it, whatever `start` says: its trees
        stay, and up to `n_trees` more are boosted from what they give. With none it is a candidate.
    random_state : int, numpy Generator or None
        Chooses the queries that are held out, and is the seed of the library.

    Attributes
    ----------
    scorer_ : TreesScorer
    n_trees_ : int
        0 where trees make what they are boosted from no better, or nothing shows that they do.
    start_ : {"served", "linear", "zero", "previous"}
    path_ : PathChoice or None
        What held-out clicks said of them, and whether what was logged is kept; None where nothing
        tells what was served or nothing was held out, and in a ranker that was loaded.
    history_ : BoostingHistory or None
        The estimate by the number of trees; None without patience, and in a ranker that was loaded.
    normalizer_, served_, clip_, n_queries_, n_features_in_, feature_names_in_
        As of every `ClickRanker`.
    fingerprint_, provenance_
        As of every `ClickRanker`.

    Examples
    --------
    >>> from countersample import evaluate, simulate_clicks, synthetic
    >>> from countersample.gbdt import GBDTRanker
    >>> data = synthetic("tiny", n_queries=200, rng=0)
    >>> log = simulate_clicks(data, policy=data.features[:, 0], n_clicks=5000, rng=0)
    >>> ranker = GBDTRanker(n_trees=100, random_state=0).fit_log(data, log)
    >>> before = evaluate(data.features[:, 0], data, "ndcg@10")["ndcg@10"]
    >>> after = evaluate(ranker, data, "ndcg@10")["ndcg@10"]
    >>> after > before
    True
    """

    kind: ClassVar[str] = "boosted"
    _scorer_type: ClassVar[type[Scorer]] = TreesScorer
    _takes_missing: ClassVar[bool] = True
    _learned: ClassVar[Mapping[str, Check]] = {
        "n_trees_": COUNT,
        "start_": partial(choice, options=("served", "linear", "zero", "previous")),
        "clip_": LEAST_PROPENSITY,
    }
    _checks: ClassVar[Mapping[str, Check]] = {
        "backend": partial(choice, options=BACKENDS),
        "method": lambda _name, value: check_method(value),
        "start": partial(choice, options=("auto", "served", "linear", "zero")),
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

    def _train(self, task: Task, rng: np.random.Generator, progress: Progress) -> None:
        check_backend_params(self.backend, self.backend_params or {})
        if self.method == "naive":
            ones = np.ones(task.log.n_rows)
            log, whole_log = (
                each.replace(propensity=ones, examination=None)
                for each in (task.log, task.whole_log)
            )
            task = replace(task, log=log, whole_log=whole_log)
        with plain_errors(self.backend):
            self._boost(task, rng, progress)

    def _boost(self, task: Task, rng: np.random.Generator, progress: Progress) -> None:
        self.served_ = task.served
        settings = self.get_params() | {"seed": int(rng.integers(LARGEST_SEED))}
        if self.feature_fraction == "auto":
            settings["feature_fraction"] = min(1.0, max(0.2, 20 / task.dataset.n_features))
        starts = starts_of(
            self.start, task.served, is_judged=self.patience is not None, previous=task.previous
        )
        held_out, logs = None, list[ClickLog]()
        if self.patience is not None:
            held_out, logs = task.held_out(self.metric, holdout=self.holdout, rng=rng)
        # How many items are drawn for a tree, where they are fewest
        sizes = task.dataset.query_sizes
        n_items = min(int(sizes[np.unique(each.query)].sum()) for each in (task.clicks, *logs))
        grown_on = int(self.bagging_fraction * n_items)
        settings["min_items_in_leaf"] = self._min_items_in_leaf(grown_on)
        chosen, self.history_, to_train = Chosen(starts[0], self.n_trees), None, 1.0
        if held_out is not None:
            to_train -= CHOOSING_SHARE
            part = progress.part(CHOOSING_SHARE, "choosing the number of trees")
            folds = zip(held_out.folds, logs, strict=True)
            tasks = [without_fold(task, fold, clicks) for fold, clicks in folds]
            chosen = self._choose(tasks, held_out, starts, settings, rng, part)
        progress = progress.part(to_train, "training")
        self.start_, n_trees = chosen.begins
        boosting = self._boosting(task, self.start_, settings)
        for tree in range(1, n_trees + 1):
            boosting.advance()
            progress.update(tree / n_trees)
        progress.update(1.0)
        self.scorer_ = boosting.scorer()
        before = task.previous if self.start_ == "previous" else None
        knows_missing = isinstance(before, TreesScorer) and before.missing_left is not None
        if task.imputer is None and not knows_missing:  # nothing said where what is missing goes
            self.scorer_ = replace(self.scorer_, missing_left=None)
        self.n_trees_ = n_trees + (before.n_trees if isinstance(before, TreesScorer) else 0)
        if self.scorer_.base is None and len(self.scorer_.feature) == self.scorer_.n_trees:
            raise ParameterError(
                f"no tree has a split: min_items_in_leaf is {settings['min_items_in_leaf']} where "
                f"a tree is grown on {grown_on} items, expected one that leaves a split which "
                "helps: set a smaller one, a larger bagging_fraction, or bring more clicks"
            )
        self.path_ = chosen.path

    def _choose(
        self,
        tasks: Sequence[Task],
        held_out: HeldOut,
        starts: Sequence[str],
        settings: Mapping[str, Any],
        rng: np.random.Generator,
        progress: Progress,
    ) -> Chosen:
        """Grow trees on the tasks of each fold, and choose by held-out clicks; set `history_`."""
        held_out_items = [fold.validation for fold in held_out.folds]
        judged = {
            Way(start): judge_rounds(
                held_out,
                [
                    self._boosting(task, start, settings, items)
                    for task, items in zip(tasks, held_out_items, strict=True)
                ],
                first=int(start == "zero"),
                most=self.n_trees,
                patience=settings["patience"],
                progress=progress.part(1 / len(starts)),
            )
            for start in starts
        }
        chosen = choose_round(
            held_out, judged, served=self.served_, safety=self.safety, temper=self.temper,
            imputer=tasks[0].imputer, rng=rng,
        )  # fmt: skip
        of_start = judged[Way(chosen.start)]
        self.history_ = BoostingHistory(of_start.rounds, of_start.values)
        return chosen

    def _min_items_in_leaf(self, grown_on: int) -> int:
        if isinstance(self.min_items_in_leaf, str):  # "auto"
            return min(MOST_IN_LEAF, max(1, grown_on // PARTS))
        most = max(1, grown_on // 2)
        if self.min_items_in_leaf > most:
            raise ParameterError(
                f"min_items_in_leaf is {self.min_items_in_leaf}, expected at most {most}, half of "
                f"the {grown_on} items that a tree is grown on (the share bagging_fraction of the "
                "items of clicked queries, less those held out): set 'auto' or a smaller number"
            )
        return self.min_items_in_leaf

    def _boosting(
        self,
        task: Task,
        start: str,
        settings: Mapping[str, Any],
        held_out: RankingDataset | None = None,
    ) -> LightGBM | XGBoost:
        """Begin to boost on the queries that have clicks; others would only fill up leaves."""
        clicks = self._clicks(task)
        queries, index = np.unique(clicks.query, return_inverse=True)
        dataset = task.dataset.subset(queries)
        objective = boosting_objective(
            dataset, ClickLog(index, clicks.item, clicks.propensity, clicks.count),
            objective=self.objective, method=self.method,
        )  # fmt: skip
        base = self._base(task, start, settings["seed"])
        return BACKENDS[self.backend](dataset, objective, settings, held_out, base)

    def _base(self, task: Task, start: str, seed: int) -> LinearScorer | TreesScorer | None:
        """Return what trees are boosted from; None for nothing.

        What is linear is so in features that are filled in and their indicators. The same in one
        sum over the features themselves, missing or not, needs nothing filled in.
        """
        if start == "previous" and isinstance(task.previous, TreesScorer):
            return task.previous
        if start == "linear":
            weights = self._linear_weights(task, seed)
        elif start == "served" and task.served is not None:
            weights = task.served.weights
        else:
            return None
        weights = sized(weights, task.filled, self._clicks(task), objective=self.objective)
        return LinearScorer(
            *((weights,) if task.imputer is None else task.imputer.unfolded(weights))
        )

    def _clicks(self, task: Task) -> ClickLog:
        """Return what trees grow on: doubly robust weights are clipped already."""
        clip = None if self.doubly_robust else self.clip
        return trained_on(task.clicks, clip=clip, temper=self.temper)

    def _linear_weights(self, task: Task, seed: int) -> Floats:
        linear = CounterSampleRanker(
            method="naive" if self.method == "naive" else "countersample",
            safety=self.safety, metric=self.metric, holdout=self.holdout, clip=self.clip,
            doubly_robust=self.doubly_robust, random_state=seed,
        ).fit_log(task.whole, task.whole_log, baseline=task.baseline)  # fmt: skip
        if linear.normalizer_ is None or linear.normalizer_.scale is None:
            return linear.weights_
        scale = np.array(linear.normalizer_.scale)  # w·(x − shift)/scale ranks as (w/scale)·x
        weights: Floats = np.divide(
            linear.weights_, scale, where=scale > 0, out=np.zeros(len(scale))
        )
        return weights

    def _libraries(self) -> tuple[str, ...]:
        return (self.backend,)
