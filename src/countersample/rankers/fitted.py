"""What a fitted ranker does, whatever it learned from: scores and ranks of tables, one file."""
# ruff: noqa: N803 (X is the field's name for it)

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from countersample._logging import get_logger
from countersample.data import RankingDataset
from countersample.data.imputing import REFUSE
from countersample.data.rows import rows_of
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.evaluation.ranking import rank_values, ranks_of
from countersample.rankers import _tables as tables
from countersample.rankers._files import read_ranker, readable, write_ranker
from countersample.rankers._saved import SavedScorer, scores_by, takes_missing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats, Ints
    from countersample.data.encoding import FeatureEncoder
    from countersample.data.imputing import Imputer
    from countersample.data.normalize import Normalizer
    from countersample.rankers._parameters import Check
    from countersample.scorers import Scorer

    Column = ArrayLike | None
    Table = ArrayLike | RankingDataset

_CHECKS = {"dtype": np.float32, "order": "C", "ensure_all_finite": False}  # finite: by ourselves

# Attributes of every fitted ranker in its file, beside parameters, normalizer and feature names.
_STATISTICS = ("n_features_in_", "n_queries_", "fingerprint_", "provenance_")
logger = get_logger(__name__)


class UnfittedRankerError(CounterSampleError, NotFittedError):  # type: ignore[misc]
    """A ranker that is asked for scores before it was trained."""


class FittedRanker(BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """What scores and ranks, and what of it a file keeps; how it comes about is its subclass's.

    score = scorer(normalizer(imputer(encoder(table)))), where each but the scorer may be None.
    """

    kind: ClassVar[str]
    takes_datasets: ClassVar[bool] = True  # predict does: see `countersample.data.scoring`
    _scorer_type: ClassVar[type[Scorer]]
    _learned: ClassVar[Mapping[str, Check]]  # attributes that a file keeps, beside the scorer
    random_state: int | np.random.Generator | None
    encoder_: FeatureEncoder | None = None
    imputer_: Imputer | None = None
    normalizer_: Normalizer | None
    scorer_: Scorer
    n_features_in_: int
    n_queries_: int

    @property
    def feature_transform_(self) -> str | None:
        """What is done to features before they are scaled; None where no feature takes any."""
        self._check_fitted()
        return None if self.normalizer_ is None else self.normalizer_.transform_name

    # -- ranking

    def predict(self, X: Table, qid: Column = None) -> Floats:
        """Return the score of each row, float64 (n_rows,); larger ranks higher.

        Parameters
        ----------
        X : array-like or data frame (n_rows, n_features), or RankingDataset
            A dataset with more features than training had gives those of training, by name.
        qid : array-like (n_rows,), optional
            The query of each row: only ``query-minmax`` needs it.
        """
        features = self._features(X)
        if self.normalizer_ is None or self.normalizer_.how != "query-minmax":
            return self._scores(features, np.array([0, len(features)]))
        rows, offsets = self._rows(X, qid)
        return tables.put_back(rows, self._scores(rows_of(features, rows), offsets))

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

    def rank_frame(
        self,
        frame: Any,  # noqa: ANN401 (any frame narwhals knows)
        *,
        query: str | None = None,
        item: str | None = None,
        top: int | None = None,
    ) -> Any:  # noqa: ANN401 (the same kind of frame)
        """Score and rank the rows of a data frame that has the columns of training, by name.

        Parameters
        ----------
        frame : data frame of pandas, polars, pyarrow, DuckDB or Spark, eager or lazy
            With the columns that the features were made of: categories as text, dates as dates. On
            Spark it is ranked by the workers, with this package on them, and lazily.
        query, item : str, optional
            The columns of the ids; by default query_id, or qid, and item_id. Without one of items,
            they are numbered from 0 in each query.
        top : int, optional
            How many items of each query, the best first; by default all, in their order.

        Returns
        -------
        data frame of the same kind
            The ids, ``score``, and ``rank`` within the query, from 1; ties are in the order of the
            rows, on Spark in that of the items' ids.
        """
        from countersample.rankers.ranking_frames import rank_frame  # noqa: PLC0415 (needs Arrow)

        self._check_fitted()
        serving = SavedScorer(
            self.scorer_, self.normalizer_, self.n_features_in_, self._feature_names,
            self.imputer_, self.encoder_,
        )  # fmt: skip
        return rank_frame(serving, frame, query=query, item=item, top=top)

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        qid: Column = None,
        propensity: Column = None,
        sample_weight: Column = None,
    ) -> float:
        """Σ v / log2(1 + rank) / Σ v over the clicked rows, with v = clicks / propensity.

        The self-normalised estimate, from clicks, of the DCG of a relevant item: at most 1, larger
        is better. Propensities are not clipped, so that rankers of any `clip` can be compared.

        Parameters
        ----------
        X, y, qid, propensity
            As for `fit`; a ranker that was trained on several queries needs qid.
        sample_weight : array-like (n_rows,), optional
            Multiplies v, the weight of the clicks on a row; at least 0.
        """
        self._check_fitted()
        _, counts = self._table(X, y, reset=False)
        weights = counts / tables.as_propensities(propensity, counts)
        if sample_weight is not None:
            weights = weights * tables.as_sample_weights(sample_weight, counts)
        return float(weights @ rank_values("dcg", self.rank(X, qid)) / weights.sum())

    def _scores(self, features: Any, offsets: Ints) -> Floats:  # noqa: ANN401 (as above)
        return scores_by(self.scorer_, self.normalizer_, self.imputer_, features, offsets)

    # -- checking

    def _table(
        self, X: ArrayLike, y: ArrayLike, *, reset: bool, learns: bool = False
    ) -> tuple[NDArray[np.float32], Floats]:
        if isinstance(X, RankingDataset):
            raise tables.WrongTypeError(
                "X is a RankingDataset, expected a table of features with y beside it: fit_log "
                "takes a dataset with its click log"
            )
        with tables.own_errors():
            features, counts = validate_data(self, X, y, reset=reset, **_CHECKS)
        is_taken = learns or takes_missing(self.scorer_, self.imputer_)
        tables.check_missing(features, self._feature_names, takes_missing=is_taken)
        return features, tables.as_counts(counts)

    def _features(self, X: Table) -> Any:  # noqa: ANN401 (array or codes)
        self._check_fitted()
        if isinstance(X, RankingDataset):
            features = tables.own_features(X, self.n_features_in_, self._feature_names)
        else:
            with tables.own_errors():
                features = validate_data(self, X, reset=False, **_CHECKS)
        is_taken = takes_missing(self.scorer_, self.imputer_)
        tables.check_missing(features, self._feature_names, takes_missing=is_taken)
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
        tags.input_tags.allow_nan = getattr(self, "impute", None) != REFUSE
        return tags

    # -- files

    def save(self, path: str | PathLike[str]) -> None:
        """Write the ranker as one JSON file, atomically; `load` is the way back.

        Kept is all that scoring needs, to the bit (scorer, normalizer, imputer, feature names), and
        where it comes from (parameters, versions, `provenance_`, the fingerprint of the data). What
        was seen on the way (`history_`, `path_`) is not, and a random_state that is a generator
        becomes None.
        """
        self._check_fitted()
        params = self.get_params()
        if isinstance(self.random_state, np.random.Generator):
            params["random_state"] = None
        content = {
            "kind": self.kind,
            "params": params,
            "statistics": {name: getattr(self, name) for name in _STATISTICS},
            "feature_names": self._feature_names,
            "normalizer": None if self.normalizer_ is None else self.normalizer_.to_dict(),
            **({} if self.imputer_ is None else {"imputer": self.imputer_.to_dict()}),
            **({} if self.encoder_ is None else {"encoder": self.encoder_.to_dict()}),
            "learned": {
                "scorer": self.scorer_.to_dict(),
                **{name.rstrip("_"): getattr(self, name) for name in self._learned},
            },
        }
        write_ranker(path, content)
        logger.debug("%s ranker written to %s", self.kind, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a ranker that `save` wrote; it scores as it did then, to the bit.

        A file that is missing, not a ranker, of another kind or version, or damaged is a DataError.
        """
        content = read_ranker(path)
        kind = content.get("kind")
        if kind != cls.kind:
            raise DataError(
                f"{path}: a ranker of the kind {reprlib.repr(kind)}, expected {cls.kind!r}: "
                "countersample.rankers.load_ranker reads any"
            )
        return cls._of(content, path)

    def _restore(self, kept: Mapping[str, Any]) -> None:
        """Set the learned attributes of a file, beside the scorer."""
        for name, check in self._learned.items():
            if name.rstrip("_") not in kept:
                raise DataError(f"the ranker has no learned.{name.rstrip('_')}, expected one")
            value = kept[name.rstrip("_")]
            check(name, value)
            setattr(self, name, value)

    @classmethod
    def _of(cls, content: Mapping[str, Any], path: str | PathLike[str]) -> Self:
        with readable(path):
            saved = SavedScorer.of(content, cls._scorer_type)
            ranker = cls(**content["params"])
            for name in _STATISTICS:
                setattr(ranker, name, content["statistics"][name])
            ranker._remember_features(saved.n_features, saved.feature_names)
            ranker.normalizer_, ranker.scorer_ = saved.normalizer, saved.scorer
            ranker.imputer_ = saved.imputer
            ranker.encoder_ = saved.encoder
            ranker._restore(content["learned"])
        return ranker
