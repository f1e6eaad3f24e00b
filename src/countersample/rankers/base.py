"""A ranker learned from clicks, of any kind: how it is trained; `fitted` has what it does then."""
# ruff: noqa: N803 (X is the field's name for it)

from __future__ import annotations

import time
import warnings
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from countersample._logging import get_logger
from countersample._progress import Progress
from countersample.data.imputing import REFUSE, Imputer
from countersample.data.normalize import Normalizer
from countersample.errors import DataError, ParameterError
from countersample.evaluation.robust_weights import default_clip
from countersample.rankers import _tables as tables
from countersample.rankers._files import versions
from countersample.rankers._parameters import as_generator, check_parameters
from countersample.rankers._task import Robust, make_task
from countersample.rankers._warm import Beginning, beginning_of, what_it_brings
from countersample.rankers.chosen import tell_training
from countersample.rankers.fitted import FittedRanker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import ArrayLike

    from countersample._progress import Show
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.rankers._parameters import Check
    from countersample.rankers._task import Task
    from countersample.rankers.served import Served
    from countersample.tuning import PathChoice

    Column = ArrayLike | None
    Table = ArrayLike | RankingDataset

logger = get_logger(__name__)
_MOST_ROWS = 1_000  # that can be of one query without anyone having said so


class OneQueryWarning(UserWarning):
    """A table whose queries nobody named: all its rows are taken to be of one query."""


class ClickRanker(FittedRanker):
    """A ranker learned from clicks: the base of all, in the habits of scikit-learn.

    One kind of ranker is a dataclass of its parameters, with `clip`, `normalize` and `random_state`
    among them; each is checked by `_checks`, or else as in every ranker
    (`countersample.rankers._parameters`). It says how it is trained (`_train`), and what of it is
    kept in a file (`_learned`).

    Attributes
    ----------
    scorer_ : Scorer
        What is served: see `countersample.scorers`.
    encoder_ : FeatureEncoder or None
        How the columns of a table become its features, where one has categories or dates.
    normalizer_ : Normalizer or None
        Applied before the scorer.
    imputer_ : Imputer or None
        Applied before the normalizer; None where no value was missing in training, and in trees,
        which take what is missing as it is.
    feature_transform_ : str or None
        What the normalizer does to features before it scales them: log, root or quantile.
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

    _checks: ClassVar[Mapping[str, Check]] = {}
    _takes_missing: ClassVar[bool] = False  # whether it trains on features that are missing
    _takes_scale: ClassVar[bool] = False  # whether it trains on features that are not scaled yet
    method: str
    clip: float | None
    doubly_robust: bool = False
    normalize: str | None
    impute: str
    feature_transform: str | None = None  # of kinds that have the parameter
    warm_start: bool = False
    clip_: float | None
    served_: Served | None = None  # not kept in a file
    path_: PathChoice | None = None  # nor is this
    history_: Any = None  # nor is this
    provenance_: dict[str, Any]
    _began_at: Beginning | None = None  # what the last training went on from, or the next will

    def _train(self, task: Task, rng: np.random.Generator, progress: Progress) -> None:
        """Set `scorer_` and the kind's own attributes; the parameters are checked."""
        raise NotImplementedError

    def _train_best(
        self, task_of: Callable[[str | None], Task], rng: np.random.Generator, progress: Progress
    ) -> Task:
        """Do so with the transform of `CANDIDATES` that held-out clicks choose; return its task."""
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
        with self._as_it_was():
            features, counts = self._table(X, y, reset=reset, learns=True)
            if qid is None:
                _check_one_query(len(features))
            propensities = tables.as_propensities(propensity, counts)
            names = self._feature_names
            dataset, log = tables.as_log(features, counts, propensities, qid, names=names)
            if baseline is not None:
                rows, *_ = tables.gather(qid, len(features))
                baseline = tables.as_baseline(baseline, len(features))[rows]
            return self._fit_log(dataset, log, baseline, None, begin)

    @contextmanager
    def _as_it_was(self) -> Iterator[None]:
        """Give a fitted ranker the names of its features back, where training is refused."""
        was_fitted = hasattr(self, "scorer_")
        n_features, names = getattr(self, "n_features_in_", 0), self._feature_names
        try:
            yield
        except Exception:
            if was_fitted:
                self._remember_features(n_features, names)
            raise

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
        robust = self._robust(log, rng)
        imputer, normalizer, previous = self._imputer(dataset), None, None
        if begin is not None:
            imputer, normalizer, previous = begin.taken_over(dataset, self, imputer)
        whole = dataset if imputer is None else imputer(dataset)

        @lru_cache(maxsize=1)
        def task_of(transform: str | None) -> Task:
            scale = normalizer
            if begin is None and (self.normalize is not None or transform is not None):
                scale = Normalizer.fit(whole, self.normalize, transform)
            return make_task(
                whole, log, baseline, scale, takes_scale=self._takes_scale,
                keeps_missing=self._takes_missing and dataset.has_missing, robust=robust,
                transform=transform, previous=previous,
            )  # fmt: skip

        is_auto = self.feature_transform == "auto" and begin is None  # else it stays as it was
        task = task_of(None if self.feature_transform == "auto" else self.feature_transform)
        _check_it_can_be_learned(task.filled, task.clicks)
        if is_auto:
            task = self._train_best(task_of, rng, Progress.of(progress))
        else:
            self._train(task, rng, Progress.of(progress))
        self._began_at = begin
        self.imputer_, self.normalizer_ = imputer, task.normalizer
        if begin is None or self.encoder_ is None or (
            self.encoder_.feature_names != dataset.feature_names
        ):  # fmt: skip
            self.encoder_ = None
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

    def _imputer(self, dataset: RankingDataset) -> Imputer | None:
        """Learn what missing values become; None where none is missing, or trees take them."""
        if self._takes_missing or not dataset.has_missing:
            return None
        if self.impute == REFUSE:
            where = tables.missing_in(dataset.features, dataset.feature_names)
            raise DataError(
                f"{where}, and impute is {REFUSE!r}: fill it in, or leave impute as it is"
            )
        return Imputer.fit(dataset, self.impute)

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
