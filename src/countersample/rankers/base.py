"""What all rankers share: tables in, scores and ranks out, one file."""
# ruff: noqa: N803 (X is the field's name for it)

from __future__ import annotations

import reprlib
import time
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from countersample._logging import get_logger
from countersample._params import whole_number
from countersample._progress import Progress
from countersample.data import RankingDataset
from countersample.data.normalize import Normalizer
from countersample.data.rows import rows_of
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.evaluation.ranking import rank_values, ranks_of
from countersample.evaluation.robust_weights import default_clip
from countersample.rankers import _tables as tables
from countersample.rankers._files import read_ranker, readable, versions, write_ranker
from countersample.rankers._parameters import as_generator, check_parameters
from countersample.rankers._saved import SavedScorer, entry, provenance, scores_by, text
from countersample.rankers._task import Robust, make_task
from countersample.rankers._warm import Beginning, beginning_of, what_it_brings
from countersample.rankers.chosen import tell_training

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats, Ints
    from countersample._progress import Show
    from countersample.clicks import ClickLog
    from countersample.rankers._parameters import Check
    from countersample.rankers._task import Task
    from countersample.rankers.served import Served
    from countersample.scorers import Scorer
    from countersample.tuning import PathChoice

    Column = ArrayLike | None
    Table = ArrayLike | RankingDataset

_CHECKS = {"dtype": np.float32, "order": "C", "ensure_all_finite": False}  # finite: by ourselves

# What a file keeps of every fitted ranker, beside its parameters, its normalizer, feature names.
_STATISTICS: dict[str, Check] = {
    "n_features_in_": partial(whole_number, least=1),
    "n_queries_": partial(whole_number, least=1),
    "fingerprint_": text,
    "provenance_": provenance,
}
logger = get_logger(__name__)
_MOST_ROWS = 1_000  # that can be of one query without anyone having said so


class OneQueryWarning(UserWarning):
    """A table whose queries nobody named: all its rows are taken to be of one query."""


class UnfittedRankerError(CounterSampleError, NotFittedError):  # type: ignore[misc]
    """A ranker that is asked for scores before it was trained."""


class ClickRanker(BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """A ranker learned from clicks: the base of all, in the habits of scikit-learn.

    One kind of ranker is a dataclass of its parameters, with `clip`, `normalize` and `random_state`
    among them; each is checked by `_checks`, or else as in every ranker
    (`countersample.rankers._parameters`). It says how it is trained (`_train`), and what of it is
    kept in a file (`_learned`).

    Attributes
    ----------
    scorer_ : Scorer
        What is served: see `countersample.scorers`.
    normalizer_ : Normalizer or None
        Applied before the scorer.
    clip_ : float or None
        The smallest propensity that it was trained with.
    served_ : Served or None
        The imitation of what was served, where the log or a baseline tells it; None in a ranker
        that was loaded.
    n_queries_, n_features_in_ : int
    feature_names_in_ : array of str (n_features,)
        Where the features have names.
    fingerprint_ : str
        That of the data it was trained on.
    provenance_ : dict
        What it was learned from, in plain values: the clicks, their weights and, where known, the
        data, the propensities and the gain to expect. A model card is written from it.
    """

    kind: ClassVar[str]
    takes_datasets: ClassVar[bool] = True  # predict does: see `countersample.data.scoring`
    _checks: ClassVar[Mapping[str, Check]] = {}
    _scorer_type: ClassVar[type[Scorer]]
    _takes_scale: ClassVar[bool] = False  # whether it trains on features that are not scaled yet
    _learned: ClassVar[Mapping[str, Check]]  # attributes that a file keeps, beside the scorer
    method: str
    clip: float | None
    doubly_robust: bool = False
    normalize: str | None
    warm_start: bool = False
    random_state: int | np.random.Generator | None
    clip_: float | None
    served_: Served | None = None  # not kept in a file
    path_: PathChoice | None = None  # nor is this
    history_: Any = None  # nor is this
    scorer_: Scorer
    normalizer_: Normalizer | None
    n_features_in_: int
    provenance_: dict[str, Any]
    _began_at: Beginning | None = None  # what the last training went on from, or the next will

    def _train(self, task: Task, rng: np.random.Generator, progress: Progress) -> None:
        """Set `scorer_` and the kind's own attributes; the parameters are checked."""
        raise NotImplementedError

    def _libraries(self) -> tuple[str, ...]:
        """Return the libraries it was trained with, beyond those that all need."""
        return ()

    # -- training

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        qid: Column = None,
        propensity: Column = None,
        baseline: Column = None,
    ) -> Self:
        """Train on a table with a row for each query and item.

        Input that is not as below, or from which nothing can be learned, is a DataError.

        Parameters
        ----------
        X : array-like or data frame (n_rows, n_features)
        y : array-like (n_rows,)
            Clicks: how often the item was clicked, at least 0.
        qid : array-like (n_rows,), optional
            The query of each row, integers or strings, in any order. Without it all rows are taken
            to be of one query, with an `OneQueryWarning`; more than 1,000 rows are refused. If they
            really are of one query, say so: ``qid=[0] * len(X)``.
        propensity : array-like (n_rows,), optional
            The probability that the item was examined, in (0, 1] where there are clicks. Without
            it 1, as if users examined everything: that repeats the bias of what they were shown.
        baseline : array-like (n_rows,), optional
            The score of each row by what is served today: where training may start from, and what
            the ranker has to beat.
        """
        return self._fit_table(X, y, qid, propensity, baseline, begin=beginning_of(self))

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        qid: Column = None,
        propensity: Column = None,
        baseline: Column = None,
    ) -> Self:
        """Go on from what was learned, with rows that are new; what was seen before is not needed.

        The first call is `fit`. A later one begins at the ranker as it is, whatever `warm_start`
        says, keeps its scale of features, and takes the same features only; the clicks given
        decide how far it moves, and those of them that are held out judge that, so they should be
        clicks that it has not learned from. Parameters are those of `fit`.

        Examples
        --------
        >>> from countersample import CounterSampleRanker
        >>> ranker = CounterSampleRanker(random_state=0)
        >>> for clicks in ([0, 3, 0, 2], [0, 2, 1, 2]):  # day by day
        ...     ranker = ranker.partial_fit([[1], [5], [2], [4]], clicks, qid=[1, 1, 2, 2])
        >>> ranker.rank([[1], [5], [2], [4]], qid=[1, 1, 2, 2])
        array([2, 1, 2, 1])
        >>> ranker.provenance_["previous"]
        {'n_clicks': 5.0, 'updates': 1}
        """
        begin = what_it_brings(self) if hasattr(self, "scorer_") else None
        return self._fit_table(X, y, qid, propensity, baseline, begin=begin, reset=begin is None)

    def _fit_table(
        self,
        X: ArrayLike,
        y: ArrayLike,
        qid: Column,
        propensity: Column,
        baseline: Column,
        *,
        begin: Beginning | None,
        reset: bool = True,
    ) -> Self:
        features, counts = self._table(X, y, reset=reset)
        if qid is None:
            _check_one_query(len(features))
        propensities = tables.as_propensities(propensity, counts)
        names = self._feature_names
        dataset, log = tables.as_log(features, counts, propensities, qid, names=names)
        if baseline is not None:
            rows, *_ = tables.gather(qid, len(features))
            baseline = tables.as_baseline(baseline, len(features))[rows]
        return self._fit_log(dataset, log, baseline, None, begin)

    def fit_log(
        self,
        dataset: RankingDataset,
        log: ClickLog,
        *,
        baseline: ArrayLike | None = None,
        progress: Progress | Show | None = None,
    ) -> Self:
        """Train on a click log and the dataset it is of, whose labels are not used.

        Parameters
        ----------
        dataset : RankingDataset
        log : ClickLog
            Where it says what was shown (`impressions`), clicks are compared with that, and items
            that were never shown teach nothing.
        baseline : array-like (n_items,), optional
            The score of each item by what is served today, where the positions in the log do not
            tell it, or not all of it.
        progress : function of (what is going on, share of all that is done), optional
            Called now and then.
        """
        return self._fit_log(dataset, log, baseline, progress, beginning_of(self))

    def _fit_log(
        self,
        dataset: RankingDataset,
        log: ClickLog,
        baseline: ArrayLike | None,
        progress: Progress | Show | None,
        begin: Beginning | None,
    ) -> Self:
        since = time.perf_counter()
        check_parameters(self.get_params(deep=False), self._checks)
        log.check(dataset)
        rng = as_generator("random_state", self.random_state)
        normalizer, previous = None, None
        if begin is not None:
            normalizer, previous = begin.taken_over(dataset, self.normalize)
        elif self.normalize is not None:
            normalizer = Normalizer.fit(dataset, self.normalize)
        task = make_task(
            dataset, log, baseline, normalizer, takes_scale=self._takes_scale,
            robust=self._robust(log, rng), previous=previous,
        )  # fmt: skip
        _check_it_can_be_learned(task.dataset, task.clicks)
        self._train(task, rng, Progress.of(progress))
        self._began_at = begin
        self.normalizer_ = normalizer
        self.n_queries_ = dataset.n_queries
        self.fingerprint_ = dataset.fingerprint
        self.provenance_ = {
            "n_clicks": log.n_clicks,
            "n_items": dataset.n_items,
            "mean_weight": log.mean_weight,
            "max_weight": log.max_weight,
            "versions": versions(*self._libraries()),
            **({} if self.served_ is None else {"served": self.served_.to_dict()}),
            **({} if self.path_ is None else {"choice": self.path_.sentence}),
            **({} if begin is None else {"previous": begin.to_dict()}),
        }
        self._remember_features(dataset.n_features, dataset.feature_names)
        tell_training(self, time.perf_counter() - since)
        return self

    def _robust(self, log: ClickLog, rng: np.random.Generator) -> Robust | None:
        """Set `clip_`, and return how clicks are made doubly robust; None for not at all."""
        self.clip_ = None if self.clip is None else float(self.clip)
        if not self.doubly_robust:
            return None
        if self.method == "naive":
            raise ParameterError(
                "method is 'naive' with doubly_robust, expected another: clicks as they are have "
                "no propensities that a model could make up for"
            )
        self.clip_ = default_clip(log) if self.clip_ is None else self.clip_
        return Robust(self.clip_, int(rng.integers(2**63)))

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
        return scores_by(self.scorer_, self.normalizer_, features, offsets)

    # -- checking

    def _table(
        self, X: ArrayLike, y: ArrayLike, *, reset: bool
    ) -> tuple[NDArray[np.float32], Floats]:
        with tables.own_errors():
            features, counts = validate_data(self, X, y, reset=reset, **_CHECKS)
        tables.check_finite(features)
        return features, tables.as_counts(counts)

    def _features(self, X: Table) -> Any:  # noqa: ANN401 (array or codes)
        self._check_fitted()
        if isinstance(X, RankingDataset):
            features = tables.own_features(X, self.n_features_in_, self._feature_names)
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
        comes from (parameters, versions, `provenance_`, the fingerprint of the data). What was seen
        on the way (`history_`, `path_`) is not, and a random_state that is a generator becomes
        None.
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
        """Set what a file keeps as learned, beside the scorer."""
        older = {"start": "zero"}  # what files of before had no word for
        for name, check in self._learned.items():
            value = entry(older | dict(kept), name.rstrip("_"))
            check(name, value)
            setattr(self, name, value)

    @classmethod
    def _of(cls, content: Mapping[str, Any], path: str | PathLike[str]) -> Self:
        with readable(path):
            ranker = cls(**entry(content, "params"))
            saved = SavedScorer.of(content, cls._scorer_type)
            for name, check in _STATISTICS.items():
                value = entry(content["statistics"], name)
                check(name, value)
                setattr(ranker, name, value)
            ranker._remember_features(saved.n_features, saved.feature_names)
            ranker.normalizer_, ranker.scorer_ = saved.normalizer, saved.scorer
            ranker._restore(content["learned"])
        return ranker


def _check_one_query(n_rows: int) -> None:
    """Warn that rows are taken to be of one query, and refuse more than one query has."""
    said = (
        "qid is None, expected the query of each row: pass qid; in cross-validation, call "
        "sklearn.set_config(enable_metadata_routing=True) and request it with "
        "set_fit_request(qid=True), as groups do not reach fit; qid=[0] * len(X) says that all "
        "rows are of one query"
    )
    if n_rows > _MOST_ROWS:
        raise ParameterError(said)
    warnings.warn(f"{said}, which is assumed", OneQueryWarning, stacklevel=3)


def _check_it_can_be_learned(dataset: RankingDataset, log: ClickLog) -> None:
    """Refuse clicks on queries that have no items that differ."""
    queries = np.unique(log.query)
    lists = (dataset.features[dataset.offsets[q] : dataset.offsets[q + 1]] for q in queries)
    if not any((items != items[0]).any() for items in lists):
        raise DataError(
            "nothing to learn from: no clicked item differs from the other items of its query "
            f"(n_samples={dataset.n_items}, n_queries={dataset.n_queries}); if rows of several "
            "queries were meant to be compared, look at their query ids"
        )
