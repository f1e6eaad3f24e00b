"""Boosted trees as an estimator: `GBDTRanker`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from countersample.clicks import ClickLog
from countersample.errors import ParameterError
from countersample.evaluation.held_out import HeldOut
from countersample.evaluation.ranking import parse_additive
from countersample.gbdt.backends import BACKENDS, check_backend_params, plain_errors
from countersample.gbdt.objectives import check_method
from countersample.objectives import get_loss
from countersample.rankers.base import ClickRanker, as_clip
from countersample.scorers import TreesScorer
from countersample.tuning import choose_clip

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from countersample.data import RankingDataset
    from countersample.gbdt.backends import Boosting
    from countersample.rankers.base import Report

    Floats = NDArray[np.float64]

CLIPPING_SHARE, CHOOSING_SHARE = 0.2, 0.7  # of the time, about, and of what is left
MOST_IN_LEAF, PARTS = 50, 10  # "auto" takes a tenth of what a tree is grown on, up to 50 items
LARGEST_SEED = 2**31 - 1

SETTINGS = (  # that are handed to the library, under the names it has for them
    "objective", "method", "learning_rate", "num_leaves", "min_items_in_leaf", "l2",
    "feature_fraction", "bagging_fraction",
)  # fmt: skip
ABOVE_0, LARGEST = float(np.finfo(float).tiny), float(np.finfo(float).max)
RANGES: dict[str, tuple[type, float, float, str]] = {
    "n_trees": (Integral, 1, np.inf, "a whole number of at least 1"),
    "num_leaves": (Integral, 2, np.inf, "a whole number of at least 2"),
    "min_items_in_leaf": (Integral, 1, np.inf, "'auto' or a whole number of at least 1"),
    "early_stopping": (Integral, 1, np.inf, "None or a whole number of at least 1"),
    "learning_rate": (Real, ABOVE_0, LARGEST, "a number above 0"),
    "l2": (Real, 0, LARGEST, "a number of at least 0"),
    "feature_fraction": (Real, ABOVE_0, 1, "'auto' or a number above 0 and at most 1"),
    "bagging_fraction": (Real, ABOVE_0, 1, "a number above 0 and at most 1"),
}
OPEN = {  # what is not a number
    "early_stopping": None, "feature_fraction": "auto", "min_items_in_leaf": "auto",
}  # fmt: skip


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


class GBDTRanker(ClickRanker):
    """score(x) = Σ_trees value of the leaf of x, minimising (1/N) Σ_clicks f / propensity.

    Boosted trees learned from clicks, by LightGBM or XGBoost, each pair of a click and another item
    of its query weighted by the inverse propensity of that click (`lightgbm_objective`). The number
    of trees is found without labels: trees grow on a part of the clicked queries while the clicks
    of the others say whether they help, and then on everything.

    Parameters
    ----------
    backend : {"lightgbm", "xgboost"}
        The library that trains. A fitted ranker scores without it.
    method : {"ips", "naive"}
        Whether a click weighs 1/propensity or 1, in training and in the choice of the number of
        trees. All clicks are looked at for each tree, so nothing is drawn: CounterSample and IPS
        are the same here.
    objective : str
        f, one of `countersample.objectives.LOSSES`.
    n_trees : int
        The most trees there can be; with ``early_stopping=None``, how many there are.
    learning_rate : float
        What the leaves of a tree are multiplied by.
    num_leaves : int
        The most leaves of a tree.
    min_items_in_leaf : "auto" or int
        The fewest items of a leaf; "auto" takes a tenth of the items that a tree is grown on, at
        least 1 and at most 50. For XGBoost, the least second-order term of a leaf, which is 1 an
        item on average when training begins.
    l2 : float
        Added to the second-order term of each leaf.
    feature_fraction : "auto" or float in (0, 1]
        The share of the features that a tree is grown on, drawn for each; "auto" takes a fifth, but
        at least 20 features.
    bagging_fraction : float in (0, 1]
        The share of the items that a tree is grown on, drawn for each.
    early_stopping : int or None
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
    clip_ : float or None
    history_ : BoostingHistory or None
        The estimate by the number of trees; None without early stopping, and in a ranker that was
        loaded.
    normalizer_, n_queries_, n_features_in_, feature_names_in_, fingerprint_, origin_
        See `ClickRanker`.

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

    def __init__(
        self,
        backend: str = "lightgbm",
        *,
        method: str = "ips",
        objective: str = "smooth-log-rank",
        n_trees: int = 1000,
        learning_rate: float = 0.1,
        num_leaves: int = 15,
        min_items_in_leaf: int | str = "auto",
        l2: float = 0.0,
        feature_fraction: float | str = "auto",
        bagging_fraction: float = 0.5,
        early_stopping: int | None = 50,
        holdout: float = 0.2,
        metric: str = "dcg@10",
        clip: float | str | None = None,
        normalize: str | None = None,
        backend_params: Mapping[str, Any] | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.backend = backend
        self.method = method
        self.objective = objective
        self.n_trees = n_trees
        self.learning_rate = learning_rate
        self.num_leaves = num_leaves
        self.min_items_in_leaf = min_items_in_leaf
        self.l2 = l2
        self.feature_fraction = feature_fraction
        self.bagging_fraction = bagging_fraction
        self.early_stopping = early_stopping
        self.holdout = holdout
        self.metric = metric
        self.clip = clip
        self.normalize = normalize
        self.backend_params = backend_params
        self.random_state = random_state

    def _train(
        self, dataset: RankingDataset, log: ClickLog, rng: np.random.Generator, tell: Report
    ) -> None:
        self._check_params()
        with plain_errors(self.backend):
            self._boost(dataset, log.take(log.clicks > 0), rng, tell)

    def _boost(
        self, dataset: RankingDataset, log: ClickLog, rng: np.random.Generator, tell: Report
    ) -> None:
        if self.method == "naive":
            log = ClickLog(log.query, log.item, np.ones(log.n_rows), log.count)
        begin = 0.0
        if self.clip == "auto":
            begin = CLIPPING_SHARE
            self.clip_ = choose_clip(
                dataset, log, rng=rng,
                progress=lambda _, share: tell("choosing how far to clip", CLIPPING_SHARE * share),
            ).clip  # fmt: skip
        else:
            self.clip_ = as_clip(self.clip)
        settings = self._settings(dataset.n_features, rng)
        held_out, trained_on = None, [log]
        if self.early_stopping is not None:
            held_out = HeldOut(dataset, log, self.metric, holdout=self.holdout, rng=rng)
            trained_on += [fold.train for fold in held_out.folds]
        grown_on = self._grown_on(dataset, trained_on)
        settings["min_items_in_leaf"] = self._min_items_in_leaf(grown_on)
        history, n_trees = None, self.n_trees
        if held_out is not None:
            chosen = begin + CHOOSING_SHARE * (1 - begin)
            history = self._choose(
                dataset, held_out, settings,
                lambda share: tell(
                    "choosing the number of trees", begin + (chosen - begin) * share
                ),
            )  # fmt: skip
            n_trees = int(history.trees[self._best(history.value)])
        else:
            chosen = begin
        boosting = self._boosting(dataset, log, settings)
        for tree in range(1, n_trees + 1):
            boosting.grow()
            tell("training", chosen + (1 - chosen) * tree / n_trees)
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

    def _grown_on(self, dataset: RankingDataset, logs: Sequence[ClickLog]) -> int:
        """Return how many items are drawn for a tree, where they are fewest."""
        items = min(int(dataset.query_sizes[np.unique(log.query)].sum()) for log in logs)
        return int(self.bagging_fraction * items)

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

    def _choose(
        self,
        dataset: RankingDataset,
        held_out: HeldOut,
        settings: Mapping[str, Any],
        tell: Callable[[float], None],
    ) -> BoostingHistory:
        """Grow trees on what each fold learns from, until held-out clicks gain no more."""
        growing = [
            self._boosting(dataset, fold.train, settings, held_out=fold.validation)
            for fold in held_out.folds
        ]
        values: list[float] = []
        patience, share = self.early_stopping or 0, 0.0
        while len(values) < self.n_trees and len(values) - self._best(values) <= patience:
            for boosting in growing:
                boosting.grow()
            sums = held_out.sums([boosting.held_out_scores() for boosting in growing])
            values.append(held_out.value(sums))
            to_grow = min(self.n_trees, self._best(values) + 1 + patience)
            share = max(share, len(values) / to_grow)  # a better value moves the end away
            tell(share)
        return BoostingHistory(np.arange(1, len(values) + 1), np.array(values))

    def _best(self, values: Sequence[float] | Floats) -> int:
        """Return the place of the best value; 0 where there is none yet."""
        if not len(values):
            return 0
        is_loss = parse_additive(self.metric)[0] == "arp"
        return int(np.argmin(values) if is_loss else np.argmax(values))

    def _boosting(
        self,
        dataset: RankingDataset,
        log: ClickLog,
        settings: Mapping[str, Any],
        *,
        held_out: RankingDataset | None = None,
    ) -> Boosting:
        """Begin to boost on the queries that have clicks; others would only fill up leaves."""
        queries, place = np.unique(log.query, return_inverse=True)
        clicked = ClickLog(place, log.item, log.propensity, log.count)
        if self.clip_ is not None:
            clicked = clicked.clip(self.clip_)
        return BACKENDS[self.backend](dataset.subset(queries), clicked, settings, held_out)

    def _settings(self, n_features: int, rng: np.random.Generator) -> dict[str, Any]:
        settings = {name: getattr(self, name) for name in SETTINGS}
        if self.feature_fraction == "auto":
            settings["feature_fraction"] = min(1.0, max(0.2, 20 / n_features))
        settings["seed"] = int(rng.integers(LARGEST_SEED))
        settings["backend_params"] = dict(self.backend_params or {})
        return settings

    def _check_params(self) -> None:
        if self.backend not in BACKENDS:
            raise ParameterError(
                f"backend is {self.backend!r}, expected one of {', '.join(BACKENDS)}"
            )
        check_method(self.method)
        get_loss(self.objective)
        parse_additive(self.metric)
        for name, (kind, least, most, expected) in RANGES.items():
            value = getattr(self, name)
            is_word = value is None or isinstance(value, str)
            if is_word and name in OPEN and value == OPEN[name]:
                continue
            is_number = isinstance(value, kind) and not isinstance(value, bool)
            if not (is_number and least <= value <= most):
                raise ParameterError(f"{name} is {value!r}, expected {expected}")
        if not isinstance(self.backend_params, Mapping | None):
            raise ParameterError(
                f"backend_params is {self.backend_params!r}, expected a dict of parameters of "
                f"{self.backend}, or None"
            )
        check_backend_params(self.backend, self.backend_params or {})

    def _libraries(self) -> tuple[str, ...]:
        return (self.backend,)

    def _keep(self) -> dict[str, Any]:
        return {"scorer": self.scorer_.to_dict(), "n_trees": self.n_trees_, "clip": self.clip_}

    def _restore(self, kept: Mapping[str, Any]) -> None:
        self.scorer_ = TreesScorer.from_dict(kept["scorer"])
        self.n_trees_, self.clip_ = kept["n_trees"], kept["clip"]
        self.history_ = None
