"""Rankers in the habits of scikit-learn: `CounterSampleRanker`."""
# ruff: noqa: N803 (X is the field's name for it)

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from countersample import _click_tables as tables
from countersample._ranker_files import read_ranker, write_ranker
from countersample.clicks import ClickLog
from countersample.data import RankingDataset
from countersample.data.normalize import Normalizer, row_blocks
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.evaluation.ranking import rank_values, ranks_of
from countersample.training import train
from countersample.tuning import number_of_steps, tune

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Column = ArrayLike | None
    Table = ArrayLike | RankingDataset
    Report = Callable[[str, float], None]

__all__ = ["CounterSampleRanker", "UnfittedRankerError", "load_ranker"]

CHECKPOINTS = 10
TUNING_SHARE = 0.8  # of the time, about

_CHECKS = {"dtype": np.float32, "order": "C", "ensure_all_finite": False}  # finite: by ourselves

# What a file keeps of a fitted ranker, beside its parameters, its normalizer and feature names.
_VECTORS = ("coef_", "average_coef_", "weights_")
_FIGURES = ("n_features_in_", "n_queries_", "n_steps_", "learning_rate_", "fingerprint_")


class UnfittedRankerError(CounterSampleError, NotFittedError):  # type: ignore[misc]
    """A ranker that is asked for scores before it was trained."""


class CounterSampleRanker(BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """score(x) = w·x, with w minimising R(w) = (1/N) Σ_clicks λ(bound on the rank) / propensity.

    A linear ranker learned from clicks. The settings it starts with are meant to be good as they
    are: features are brought to [0, 1], and the learning rate is found without labels.

    Parameters
    ----------
    method : {"countersample", "ips", "naive"}
        How clicks are drawn and weighted: see `countersample.plans`.
    unit : {"query", "pair", "click"}
        What is drawn at a time: all clicks of a query, those on an item of it, or one row.
    objective : {"rank", "log-rank", "dcg"}
        λ, see `countersample.objectives`.
    optimizer : {"sgd", "adam", "adagrad"}
    learning_rate : "auto" or float
        "auto" tries rates on 80 % of the clicked queries, judges each by the clicks of the others
        (`countersample.tuning.tune`), and trains on everything with the best.
    batch_size : int
        Examples a step.
    steps : int, optional
        By default three draws an example, but at least 30,000 and at most 1,000,000 draws.
    average : bool
        Whether to rank by the mean of the weights over all steps, or by the last ones.
    l2 : float
        Adds (l2/2)·‖w‖² to R.
    radius : float, optional
        Keeps ‖w‖ ≤ radius.
    clip : float, optional
        The smallest propensity to train with: see `ClickLog.clip`.
    normalize : {"minmax", "standard", "query-minmax"} or None
        How features are brought to a common scale, see `countersample.data.normalize`. What is
        fitted is applied in `predict`; ``query-minmax`` needs qid there.
    random_state : int, numpy Generator or None
        With the same integer, the same weights to the bit.

    Attributes
    ----------
    coef_, average_coef_, weights_ : float64 (n_features,)
        The weights after the last step, their mean over all steps, and the one of both that scores.
    history_ : History
        Both at ten steps, evenly spaced.
    learning_rate_ : float
    tuning_ : TuningResult or None
        The rates that "auto" tried.
    n_steps_, n_queries_, n_features_in_ : int
    feature_names_in_ : array of str (n_features,)
        Where the features have names.
    normalizer_ : Normalizer or None
    fingerprint_ : str
        That of the data it was trained on.

    Examples
    --------
    >>> from countersample.rankers import CounterSampleRanker
    >>> X = [[0.2, 1.0], [0.9, 0.0], [0.4, 0.0], [0.8, 1.0], [0.1, 0.5]]
    >>> clicks, qid = [0, 3, 0, 2, 0], ["a", "a", "a", "b", "b"]
    >>> ranker = CounterSampleRanker(random_state=0)
    >>> ranker.fit(X, clicks, qid=qid, propensity=[1.0, 0.5, 0.3, 1.0, 0.5])
    CounterSampleRanker(random_state=0)
    >>> ranker.rank(X, qid)
    array([3, 1, 2, 1, 2])
    >>> ranker.score(X, clicks, qid=qid)  # every click is on a rank of 1
    1.0
    """

    def __init__(
        self,
        method: str = "countersample",
        unit: str = "query",
        *,
        objective: str = "rank",
        optimizer: str = "sgd",
        learning_rate: float | str = "auto",
        batch_size: int = 1,
        steps: int | None = None,
        average: bool = True,
        l2: float = 0.0,
        radius: float | None = None,
        clip: float | None = None,
        normalize: str | None = "minmax",
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.method = method
        self.unit = unit
        self.objective = objective
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.steps = steps
        self.average = average
        self.l2 = l2
        self.radius = radius
        self.clip = clip
        self.normalize = normalize
        self.random_state = random_state

    # -- training

    def fit(
        self, X: ArrayLike, clicks: ArrayLike, *, qid: Column = None, propensity: Column = None
    ) -> Self:
        """Train on a table with a row for each query and item.

        Input that is not as below, or from which nothing can be learned, is a DataError.

        Parameters
        ----------
        X : array-like or data frame (n_rows, n_features)
        clicks : array-like (n_rows,)
            How often the item was clicked, at least 0.
        qid : array-like (n_rows,), optional
            The query of each row, integers or strings, in any order; without it all rows are of
            one query.
        propensity : array-like (n_rows,), optional
            The probability that the item was looked at, in (0, 1] where there are clicks. Without
            it 1, as if users looked at everything: that repeats the bias of what they were shown.
        """
        features, counts = self._table(X, clicks, reset=True)
        propensities = tables.as_propensities(propensity, counts)
        names = self._feature_names
        return self.fit_log(*tables.as_log(features, counts, propensities, qid, names=names))

    def fit_log(
        self, dataset: RankingDataset, log: ClickLog, *, report: Report | None = None
    ) -> Self:
        """Train on a click log and the dataset it is of, whose labels are not looked at.

        Parameters
        ----------
        dataset : RankingDataset
        log : ClickLog
        report : function of (what is going on, share of all that is done), optional
            Called now and then.
        """
        log.check(dataset)
        rng = np.random.default_rng(self.random_state)
        normalizer = None if self.normalize is None else Normalizer.fit(dataset, self.normalize)
        trained_on = dataset if normalizer is None else normalizer(dataset)
        log = ClickLog(log.query, log.item, log.propensity, log.count)  # of what is trained on
        options = self._training_options(log)
        tell = report or (lambda _what, _share: None)
        tuning, rate, begin = None, self.learning_rate, 0.0
        if rate == "auto":
            begin = TUNING_SHARE
            tuning = tune(
                trained_on, log, clips=[self.clip], fewer_steps=False, rng=rng,
                report=lambda share: tell("trying learning rates", begin * share), **options,
            )  # fmt: skip
            rate = tuning.learning_rate
        result = train(
            trained_on, log, learning_rate=_as_rate(rate), clip=self.clip, rng=rng,
            checkpoints=CHECKPOINTS,
            report=lambda n, of: tell("training", begin + (1 - begin) * n / of), **options,
        )  # fmt: skip
        if not result.coef.any():
            raise DataError(
                "nothing to learn from: no clicked item differs from the other items of its query "
                f"(n_samples={dataset.n_items}, n_queries={dataset.n_queries}); if rows of several "
                "queries were meant to be compared, look at their query ids"
            )
        self.coef_, self.average_coef_ = result.coef, result.average_coef
        self.weights_ = result.weights
        self.history_ = result.history
        self.learning_rate_ = result.settings["learning_rate"]
        self.tuning_ = tuning
        self.n_steps_ = result.n_steps
        self.normalizer_ = normalizer
        self.n_queries_ = dataset.n_queries
        self.fingerprint_ = dataset.fingerprint
        self._remember_features(dataset.n_features, dataset.feature_names)
        return self

    def _training_options(self, log: ClickLog) -> dict[str, Any]:
        """Return the options of `train`, with the number of steps decided."""
        names = ("method", "unit", "objective", "optimizer", "batch_size", "average", "l2")
        steps = self.steps
        if steps is None:
            steps = number_of_steps(log, unit=self.unit, batch_size=self.batch_size)
        return {name: getattr(self, name) for name in names} | {
            "radius": np.inf if self.radius is None else self.radius,
            "steps": steps,
        }

    # -- ranking

    def predict(self, X: Table, qid: Column = None) -> Floats:
        """Return the score of each row, w·x, float64 (n_rows,); larger ranks higher.

        Parameters
        ----------
        X : array-like or data frame (n_rows, n_features), or RankingDataset
        qid : array-like (n_rows,), optional
            The query of each row: only looked at with ``query-minmax``, which needs it.
        """
        features = self._features(X)
        if self.normalizer_ is None or self.normalizer_.how != "query-minmax":
            return self._scores(features, np.array([0, len(features)]))
        rows, offsets = self._rows(X, qid)
        return tables.put_back(rows, self._scores(features[rows], offsets))

    def rank(self, X: Table, qid: Column = None) -> Ints:
        """Return the rank of each row within its query, int64 (n_rows,), from 1; ties in row order.

        Parameters
        ----------
        X, qid
            As for `predict`; a ranker that was trained on several queries needs qid.
        """
        scores = self.predict(X, qid)
        rows, offsets = self._rows(X, qid)
        return tables.put_back(rows, ranks_of(scores[rows], offsets))

    def score(
        self, X: ArrayLike, clicks: ArrayLike, *, qid: Column = None, propensity: Column = None
    ) -> float:
        """Σ v / log2(1 + rank) / Σ v over the clicked rows, with v = clicks / propensity.

        The self-normalised estimate, from clicks, of the DCG of a relevant item: at most 1, larger
        is better. Propensities are not clipped, so that rankers of any `clip` can be compared.

        Parameters
        ----------
        X, clicks, qid, propensity
            As for `fit`; a ranker that was trained on several queries needs qid.
        """
        self._check_fitted()
        _, counts = self._table(X, clicks, reset=False)
        weights = counts / tables.as_propensities(propensity, counts)
        return float(weights @ rank_values("dcg", self.rank(X, qid)) / weights.sum())

    def _scores(self, features: NDArray[np.float32], offsets: Ints) -> Floats:
        if self.normalizer_ is not None:
            features = self.normalizer_.transform(features, offsets)
        scores = np.empty(len(features))
        for rows in row_blocks(features):  # what is multiplied is copied to float64
            scores[rows] = features[rows] @ self.weights_
        return scores

    # -- checking

    def _table(
        self, X: ArrayLike, clicks: ArrayLike, *, reset: bool
    ) -> tuple[NDArray[np.float32], Floats]:
        with tables.own_errors():
            features, counts = validate_data(self, X, clicks, reset=reset, **_CHECKS)
        tables.check_finite(features)
        return features, tables.as_counts(counts)

    def _features(self, X: Table) -> NDArray[np.float32]:
        self._check_fitted()
        if isinstance(X, RankingDataset):
            tables.check_names(X, self.n_features_in_, self._feature_names)
            return X.features
        with tables.own_errors():
            features: NDArray[np.float32] = validate_data(self, X, reset=False, **_CHECKS)
        tables.check_finite(features)
        return features

    def _rows(self, X: Table, qid: Column) -> tuple[Ints, Ints]:
        """Return the rows query by query, and where each query starts among them."""
        if isinstance(X, RankingDataset):
            return np.arange(X.n_items), X.offsets
        if qid is None and self.n_queries_ > 1:
            raise ParameterError(
                f"qid is None, expected the query of each row, as training had {self.n_queries_:,} "
                "queries: pass qid; in cross-validation, call sklearn.set_config("
                "enable_metadata_routing=True) and request it with set_score_request(qid=True)"
            )
        rows, offsets, _ = tables.gather(qid, len(X))  # type: ignore[arg-type] # checked before
        return rows, offsets

    def _check_fitted(self) -> None:
        try:
            check_is_fitted(self, "weights_")
        except NotFittedError as error:
            raise UnfittedRankerError(
                "this CounterSampleRanker is not fitted yet: call fit or fit_log, or load one"
            ) from error

    @property
    def _feature_names(self) -> tuple[str, ...] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else tuple(map(str, names))

    def _remember_features(self, n_features: int, names: tuple[str, ...] | None) -> None:
        self.n_features_in_ = n_features
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 (scikit-learn has no types)
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.positive_only = True
        return tags

    # -- files

    def save(self, path: str | PathLike[str]) -> None:
        """Write the ranker as one JSON file, atomically; `load` is the way back.

        Kept is all that scoring needs, to the bit (weights, normalizer, feature names), and where
        it comes from (parameters, versions, the fingerprint of the data). `history_` and `tuning_`
        are not kept, and a random_state that is a generator becomes None.
        """
        self._check_fitted()
        params = self.get_params()
        if isinstance(self.random_state, np.random.Generator):
            params["random_state"] = None
        content = {
            "params": params,
            "vectors": {name: getattr(self, name) for name in _VECTORS},
            "figures": {name: getattr(self, name) for name in _FIGURES},
            "feature_names": self._feature_names,
            "normalizer": None if self.normalizer_ is None else self.normalizer_.to_dict(),
        }
        write_ranker(path, content)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a ranker that `save` wrote; it scores as it did then, to the bit.

        A file that is missing, not a ranker, of another version, or damaged is a DataError.
        """
        content = read_ranker(path)
        try:
            ranker = cls(**content["params"])
            for name in _VECTORS:
                setattr(ranker, name, np.array(content["vectors"][name], np.float64))
            for name in _FIGURES:
                setattr(ranker, name, content["figures"][name])
            ranker._remember_features(ranker.n_features_in_, content["feature_names"])
            kept = content["normalizer"]
            ranker.normalizer_ = None if kept is None else Normalizer.from_dict(kept)
        except (LookupError, TypeError, ValueError) as error:
            raise DataError(f"{path}: not a ranker that this release can read ({error})") from error
        return ranker


load_ranker = CounterSampleRanker.load


def _as_rate(learning_rate: object) -> float:
    if isinstance(learning_rate, Real):
        return float(learning_rate)
    raise ParameterError(f"learning_rate is {learning_rate!r}, expected 'auto' or a number above 0")
