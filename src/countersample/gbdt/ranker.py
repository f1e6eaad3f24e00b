"""Boosted trees as an estimator: `GBDTRanker`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from countersample._params import choice, number, whole_number
from countersample.clicks import ClickLog
from countersample.errors import ParameterError
from countersample.evaluation.held_out import HeldOut
from countersample.gbdt.backends import BACKENDS, check_backend_params, plain_errors
from countersample.gbdt.objectives import boosting_objective, check_method
from countersample.rankers._parameters import either
from countersample.rankers._stopping import CHOOSING_SHARE, best_round, value_by_round
from countersample.rankers.base import ClickRanker
from countersample.scorers import TreesScorer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from countersample._arrays import Floats
    from countersample._progress import Progress
    from countersample.data import RankingDataset
    from countersample.gbdt.backends import LightGBM, XGBoost
    from countersample.rankers._parameters import Check
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
    """score(x) = Σ_trees value of the leaf of x, minimising (1/N) Σ_clicks f / propensity.

    Boosted trees learned from clicks, by LightGBM or XGBoost, each pair of a click and another item
    of its query weighted by the inverse propensity of that click (`boosting_objective`). The number
    of trees is found without labels: trees grow on a part of the clicked queries while the clicks
    of the others say whether they help, and then on everything.

    Parameters
    ----------
    backend : {"lightgbm", "xgboost"}
        The library that trains. A fitted ranker scores without it.
    method : {"ips", "naive"}
        Whether a click weighs 1/propensity or 1, in training and in the choice of the number of
        trees. All clicks are used for each tree, so nothing is drawn: CounterSample and IPS are
        the same here.
    objective : str
        f, one of `countersample.objectives.LOSSES`.
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
        `n_trees` on everything at once.
    holdout : float in (0, 0.5]
        The share of the clicked queries in a part, as the nearest of 1/2, 1/3, …. As many parts are
        held out in turn as are needed to judge by 1,000 queries, and their clicks judge together.
    metric : {"dcg@k", "dcg", "precision@k", "arp"}
        What the number of trees is chosen by, estimated from held-out clicks.
    clip : float, "auto" or None
        The smallest propensity to train with: see `ClickLog.clip`. "auto" asks
        `countersample.tuning.choose_clip`. Held-out clicks are not clipped.
    normalize : {"minmax", "standard", "query-minmax"} or None
        How features are brought to a common scale. Trees need none; ``query-minmax`` helps where
        scales differ between queries.
    backend_params : dict, optional
        Passed on to the library under its names or their aliases, and wins over what is set here;
        the objective is not among them.
    random_state : int, numpy Generator or None
        Chooses the queries that are held out, and is the seed of the library.

    Attributes
    ----------
    scorer_ : TreesScorer
    n_trees_ : int
    history_ : BoostingHistory or None
        The estimate by the number of trees; None without patience, and in a ranker that was loaded.
    normalizer_, clip_, n_queries_, n_features_in_, feature_names_in_, fingerprint_, provenance_
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
    _learned: ClassVar[tuple[str, ...]] = ("n_trees_", "clip_")
    _checks: ClassVar[Mapping[str, Check]] = {
        "backend": partial(choice, options=BACKENDS),
        "method": lambda _name, value: check_method(value),
        "n_trees": partial(whole_number, least=1),
        "num_leaves": partial(whole_number, least=2),
        "min_items_in_leaf": either("auto", check=whole_number, least=1),
        "feature_fraction": either("auto", check=number, above=0, most=1),
        "bagging_fraction": partial(number, above=0, most=1),
        "backend_params": _check_mapping,
    }

    backend: str = "lightgbm"
    method: str = "ips"
    objective: str = "smooth-log-rank"
    n_trees: int = 1000
    learning_rate: float = 0.1
    num_leaves: int = 15
    min_items_in_leaf: int | str = "auto"
    l2: float = 0.0
    feature_fraction: float | str = "auto"
    bagging_fraction: float = 0.5
    patience: int | None = 50
    holdout: float = 0.2
    metric: str = "dcg@10"
    clip: float | str | None = None
    normalize: str | None = None
    backend_params: Mapping[str, Any] | None = None
    random_state: int | np.random.Generator | None = None

    def _train(
        self, dataset: RankingDataset, log: ClickLog, rng: np.random.Generator, progress: Progress
    ) -> None:
        check_backend_params(self.backend, self.backend_params or {})
        if self.method == "naive":
            log = ClickLog(log.query, log.item, np.ones(log.n_rows), log.count)
        with plain_errors(self.backend):
            self._boost(dataset, log, rng, self._decide_clip(dataset, log, rng, progress))

    def _boost(
        self, dataset: RankingDataset, log: ClickLog, rng: np.random.Generator, progress: Progress
    ) -> None:
        settings = self.get_params() | {"seed": int(rng.integers(LARGEST_SEED))}
        if self.feature_fraction == "auto":
            settings["feature_fraction"] = min(1.0, max(0.2, 20 / dataset.n_features))
        held_out, logs = None, [log]
        if self.patience is not None:
            held_out = HeldOut(dataset, log, self.metric, holdout=self.holdout, rng=rng)
            logs += [fold.train for fold in held_out.folds]
        # How many items are drawn for a tree, where they are fewest
        n_items = min(int(dataset.query_sizes[np.unique(each.query)].sum()) for each in logs)
        grown_on = int(self.bagging_fraction * n_items)
        settings["min_items_in_leaf"] = self._min_items_in_leaf(grown_on)
        history, n_trees, to_train = None, self.n_trees, 1.0
        if held_out is not None and self.patience is not None:
            to_train -= CHOOSING_SHARE
            values = value_by_round(
                held_out,
                [self._boosting(dataset, f.train, settings, f.validation) for f in held_out.folds],
                metric=self.metric,
                most=self.n_trees,
                patience=self.patience,
                progress=progress.part(CHOOSING_SHARE, "choosing the number of trees"),
            )
            history = BoostingHistory(np.arange(1, len(values) + 1), values)
            n_trees = best_round(values, self.metric)
        progress = progress.part(to_train, "training")
        boosting = self._boosting(dataset, log, settings)
        for tree in range(1, n_trees + 1):
            boosting.advance()
            progress.update(tree / n_trees)
        scorer = boosting.scorer()
        if len(scorer.feature) == scorer.n_trees:  # leaves alone
            raise ParameterError(
                f"no tree has a split: min_items_in_leaf is {settings['min_items_in_leaf']} where "
                f"a tree is grown on {grown_on} items, expected one that leaves a split which "
                "helps: set a smaller one, a larger bagging_fraction, or bring more clicks"
            )
        self.scorer_ = scorer
        self.n_trees_ = n_trees
        self.history_ = history

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
        dataset: RankingDataset,
        log: ClickLog,
        settings: Mapping[str, Any],
        held_out: RankingDataset | None = None,
    ) -> LightGBM | XGBoost:
        """Begin to boost on the queries that have clicks; others would only fill up leaves."""
        queries, index = np.unique(log.query, return_inverse=True)
        clicked = self._clipped(ClickLog(index, log.item, log.propensity, log.count))
        dataset = dataset.subset(queries)
        objective = boosting_objective(
            dataset, clicked, objective=self.objective, method=self.method
        )
        return BACKENDS[self.backend](dataset, objective, settings, held_out)

    def _libraries(self) -> tuple[str, ...]:
        return (self.backend,)
