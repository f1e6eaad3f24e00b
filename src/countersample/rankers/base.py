"""What all rankers share: tables in, scores and ranks out, one file."""
# ruff: noqa: N803 (X is the field's name for it)

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from countersample.data import RankingDataset
from countersample.data.normalize import Normalizer
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.evaluation.ranking import rank_values, ranks_of
from countersample.rankers import _tables as tables
from countersample.rankers._files import read_ranker, versions, write_ranker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

    from numpy.typing import ArrayLike, NDArray

    from countersample.clicks import ClickLog
    from countersample.scorers import Scorer

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Column = ArrayLike | None
    Table = ArrayLike | RankingDataset
    Report = Callable[[str, float], None]

_CHECKS = {"dtype": np.float32, "order": "C", "ensure_all_finite": False}  # finite: by ourselves

# What a file keeps of every fitted ranker, beside its parameters, its normalizer, feature names.
_FIGURES = ("n_features_in_", "n_queries_", "fingerprint_", "origin_")


class UnfittedRankerError(CounterSampleError, NotFittedError):  # type: ignore[misc]
    """A ranker that is asked for scores before it was trained."""


class ClickRanker(BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """A ranker learned from clicks: the base of all, in the habits of scikit-learn.

    One kind of ranker says how it is trained (`_train`), and what of it is kept in a file
    (`_keep`, `_restore`). Its parameters include `normalize` and `random_state`.

    Attributes
    ----------
    scorer_ : Scorer
        What is served: see `countersample.scorers`.
    normalizer_ : Normalizer or None
        Applied before the scorer.
    n_queries_, n_features_in_ : int
    feature_names_in_ : array of str (n_features,)
        Where the features have names.
    fingerprint_ : str
        That of the data it was trained on.
    origin_ : dict
        What it was learned from, in plain values: the clicks, their weights and, where known, the
        data, the propensities and the gain to expect. A model card is written from it.
    """

    kind: ClassVar[str]
    takes_datasets: ClassVar[bool] = True  # predict does: see `countersample.data.scoring`
    normalize: str | None
    random_state: int | np.random.Generator | None
    scorer_: Scorer
    origin_: dict[str, Any]

    def _train(
        self, dataset: RankingDataset, log: ClickLog, rng: np.random.Generator, tell: Report
    ) -> None:
        """Set `scorer_` and the kind's own attributes, from features brought to scale."""
        raise NotImplementedError

    def _libraries(self) -> tuple[str, ...]:
        """Return the libraries it was trained with, beyond those that all need."""
        return ()

    def _keep(self) -> dict[str, Any]:
        """Return the kind's own plain values, the scorer among them."""
        raise NotImplementedError

    def _restore(self, kept: Mapping[str, Any]) -> None:
        """Set what `_keep` gave."""
        raise NotImplementedError

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
        rng = _as_generator(self.random_state)
        normalizer = None if self.normalize is None else Normalizer.fit(dataset, self.normalize)
        trained_on = dataset if normalizer is None else normalizer(dataset)
        detached = log.detached()  # of what is trained on
        if not _can_be_learned(trained_on, detached):
            raise nothing_to_learn(dataset)
        self._train(trained_on, detached, rng, report or (lambda _what, _share: None))
        self.normalizer_ = normalizer
        self.n_queries_ = dataset.n_queries
        self.fingerprint_ = dataset.fingerprint
        self.origin_ = {
            "n_clicks": log.n_clicks,
            "n_items": dataset.n_items,
            "mean_weight": log.mean_weight,
            "max_weight": log.max_weight,
            "versions": versions(*self._libraries()),
        }
        self._remember_features(dataset.n_features, dataset.feature_names)
        return self

    # -- ranking

    def predict(self, X: Table, qid: Column = None) -> Floats:
        """Return the score of each row, float64 (n_rows,); larger ranks higher.

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
        return self.scorer_.predict(features)

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
            features = X.features
        else:
            with tables.own_errors():
                features = validate_data(self, X, reset=False, **_CHECKS)
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
            check_is_fitted(self, "scorer_")
        except NotFittedError as error:
            raise UnfittedRankerError(
                f"this {type(self).__name__} is not fitted yet: call fit or fit_log, or load one"
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

        Kept is all that scoring needs, to the bit (scorer, normalizer, feature names), and where it
        comes from (parameters, versions, `origin_`, the fingerprint of the data). What was seen on
        the way (`history_`, `tuning_`) is not, and a random_state that is a generator becomes None.
        """
        self._check_fitted()
        params = self.get_params()
        if isinstance(self.random_state, np.random.Generator):
            params["random_state"] = None
        content = {
            "kind": self.kind,
            "params": params,
            "figures": {name: getattr(self, name) for name in _FIGURES},
            "feature_names": self._feature_names,
            "normalizer": None if self.normalizer_ is None else self.normalizer_.to_dict(),
            "learned": self._keep(),
        }
        write_ranker(path, content)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a ranker that `save` wrote; it scores as it did then, to the bit.

        A file that is missing, not a ranker, of another kind or version, or damaged is a DataError.
        """
        content = read_ranker(path)
        if content.get("kind") != cls.kind:
            raise DataError(
                f"{path}: a ranker of the kind {content.get('kind')!r}, expected {cls.kind!r}: "
                "countersample.rankers.load_ranker reads any"
            )
        return cls._of(content, path)

    @classmethod
    def _of(cls, content: Mapping[str, Any], path: str | PathLike[str]) -> Self:
        try:
            ranker = cls(**content["params"])
            for name in _FIGURES:
                setattr(ranker, name, content["figures"][name])
            ranker._remember_features(ranker.n_features_in_, content["feature_names"])
            kept = content["normalizer"]
            ranker.normalizer_ = None if kept is None else Normalizer.from_dict(kept)
            ranker._restore(content["learned"])
        except (LookupError, TypeError, ValueError) as error:
            raise DataError(f"{path}: not a ranker that this release can read ({error})") from error
        return ranker


def as_clip(clip: object) -> float | None:
    """Return a smallest propensity that is not to be found first, or None."""
    if clip is None or (isinstance(clip, Real) and 0 < float(clip) <= 1):
        return None if clip is None else float(clip)
    raise ParameterError(f"clip is {clip!r}, expected a number in (0, 1], 'auto' or None")


def _as_generator(random_state: Any) -> np.random.Generator:  # noqa: ANN401 (anything)
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"random_state is {random_state!r}, expected an integer of at least 0, a numpy "
            "Generator or None"
        ) from error


def _can_be_learned(dataset: RankingDataset, log: ClickLog) -> bool:
    """Tell whether a query with clicks has items that differ."""
    queries = np.unique(log.query[log.clicks > 0])
    lists = (dataset.features[dataset.offsets[q] : dataset.offsets[q + 1]] for q in queries)
    return any((items != items[0]).any() for items in lists)


def nothing_to_learn(dataset: RankingDataset) -> DataError:
    """Return the error of clicks that no ranker can be told from."""
    return DataError(
        "nothing to learn from: no clicked item differs from the other items of its query "
        f"(n_samples={dataset.n_items}, n_queries={dataset.n_queries}); if rows of several "
        "queries were meant to be compared, look at their query ids"
    )
