"""The base of all rankers: `ClickRanker`, a scikit-learn estimator that learns from clicks.

`fit` (or `fit_log`) checks the parameters, fits the preprocessing, and hands tasks (`task.py`) to
the kind of ranker, which trains a scorer. `predict` and `rank` apply preprocessing and scorer;
`save` and `load` store them (`files.py`); `rank_frame` ranks data frames (`rank_tables.py`).
"""
# ruff: noqa: N803 (X is scikit-learn's name of a table)

from __future__ import annotations

import reprlib
import time
import warnings
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from countersample._progress import Progress, get_logger
from countersample.data import RankingDataset
from countersample.data.dataset import take_rows
from countersample.data.preprocessing import CANDIDATES, REJECT_MISSING, Imputer, Preprocessing
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.evaluation.doubly_robust import default_clip
from countersample.metrics import rank_values, ranks_of
from countersample.rankers import checks
from countersample.rankers.checks import as_generator, check_parameters
from countersample.rankers.files import SavedScorer, read_ranker, readable, versions, write_ranker
from countersample.rankers.task import Robust, Tasks, WarmStart

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from numpy.typing import ArrayLike

    from countersample._arrays import Floats, Ints
    from countersample._progress import Show
    from countersample.clicks import ClickLog
    from countersample.rankers.checks import Check
    from countersample.rankers.logging_policy import PolicyImitation
    from countersample.rankers.task import Task
    from countersample.scorers import Scorer
    from countersample.tuning import PathChoice

    Column = ArrayLike | None
    Table = ArrayLike | RankingDataset

logger = get_logger(__name__)
MAX_ROWS_WITHOUT_QID = 1_000  # more rows of one query have to be declared
# Attributes of every fitted ranker in its file, beside parameters, preprocessing and feature names
STATISTICS = ("n_features_in_", "n_queries_", "fingerprint_", "provenance_")
NOT_OF_TREES = "trees compare values, and a transform that keeps their order changes no answer"
# Attributes that training decides, and their names in reports
SETTINGS = {"learning_rate_": "learning_rate", "n_steps_": "steps", "n_trees_": "trees"}


class OneQueryWarning(UserWarning):
    """A table without query ids: all its rows are taken to be of one query."""


class UnfittedRankerError(CounterSampleError, NotFittedError):  # type: ignore[misc]
    """A ranker that is used before it is trained."""


class ClickRanker(BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """A ranker learned from clicks, with the conventions of scikit-learn: the base of all.

    score = scorer(preprocessing(table)), where any step of the preprocessing may be absent. A kind
    of ranker is a dataclass of its parameters. It trains a scorer (`_train`), and names its checks
    (`_checks`, beside the checks of all rankers) and the attributes that a file stores
    (`_learned`).

    Parameters
    ----------
    holdout : float in (0, 0.5]
        The share of the clicked queries that is held out at a time to compare candidates, as the
        nearest of 1/2, 1/3, ….
    metric : {"dcg@k", "dcg", "precision@k"}
        The metric of held-out clicks that candidates are compared by. Trees and networks also take
        "arp".
    clip : float or None
        The smallest propensity to train with: see `ClickLog.clip`. Held-out clicks are not clipped.
    temper : float in [0, 1]
        α of the training weights 1/p^α, from 0 (naive) to 1 (IPS): see `ClickLog.temper`. Held-out
        clicks are not tempered.
    safety : 0, or float in [0.5, 1)
        The confidence with which held-out clicks have to show a candidate better than the logging
        policy before it takes its place; else the ranker ranks like the policy, as far as features
        allow. 0 takes the best estimate. If nothing is held out, it has no effect.
    normalize : {"minmax", "root-minmax", "standard", "query-minmax"} or None
        How features are scaled, see `countersample.data.preprocessing.Normalizer`. `predict` scales
        them alike; ``query-minmax`` needs qid there.
    warm_start : bool
        Whether `fit` of a fitted ranker continues from it.
    random_state : int, numpy Generator or None
        The same integer gives the same scores to the bit, on the same kind of CPU.

    Attributes
    ----------
    scorer_ : Scorer
    preprocessing_ : Preprocessing
        The steps before the scorer. Trees need no imputer.
    clip_ : float or None
        The smallest propensity in training.
    served_ : PolicyImitation or None
        The imitation of the logging policy, if it is known; None in a loaded ranker.
    path_ : PathChoice or None
        The choice by held-out clicks, and whether the logging policy is kept. None if the policy is
        unknown or nothing was held out, and in a loaded ranker.
    n_queries_, n_features_in_ : int
    feature_names_in_ : array of str (n_features,), if the features have names
    fingerprint_ : str
        The fingerprint of the training data.
    provenance_ : dict
        The training data in plain values, for the model card.
    """

    kind: ClassVar[str]
    takes_datasets: ClassVar[bool] = True  # in predict: see `scores_of`
    _scorer_type: ClassVar[type[Scorer]]
    _checks: ClassVar[Mapping[str, Check]] = {}
    _learned: ClassVar[Mapping[str, Check]]
    _takes_missing: ClassVar[bool] = False  # whether it trains on missing features
    _takes_scale: ClassVar[bool] = False  # whether it trains on features that are not scaled yet
    method: str
    clip: float | None
    doubly_robust: bool = False  # of kinds that have the parameter
    normalize: str | None
    impute: str
    feature_transform: str | None = None  # of kinds that have the parameter
    warm_start: bool = False
    random_state: int | np.random.Generator | None
    scorer_: Scorer
    preprocessing_: Preprocessing = Preprocessing()
    clip_: float | None
    n_features_in_: int
    n_queries_: int
    provenance_: dict[str, Any]
    served_: PolicyImitation | None = None  # these three are not saved
    path_: PathChoice | None = None
    history_: Any = None
    _warm_start: WarmStart | None = None  # the start of the last training, or of the next

    def _train(self, tasks: Tasks, rng: np.random.Generator, progress: Progress) -> Task:
        """Set `scorer_` and the attributes of the kind of ranker; the parameters are checked.

        Held-out clicks choose among the transforms, if there are several. The task of the chosen
        one is returned.
        """
        raise NotImplementedError

    def _libraries(self) -> tuple[str, ...]:
        """Return the libraries of its training, beyond those that all rankers need."""
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
        """Train on a table with one row per query and item.

        Parameters
        ----------
        X : array-like or data frame (n_rows, n_features)
        y : array-like (n_rows,)
            Clicks on each item, at least 0.
        qid : array-like (n_rows,), optional
            The query of each row, integers or strings, in any order. Without it all rows are taken
            to be of one query, with an `OneQueryWarning`; more than 1,000 rows are rejected. If
            they really are of one query, pass ``qid=[0] * len(X)``.
        propensity : array-like (n_rows,), optional
            The probability that the item was examined, in (0, 1] if it has clicks. By default 1, as
            if users examined everything: that repeats the position bias of the log.
        baseline : array-like (n_rows,), optional
            The score of each row by your current ranker: a start of training, and the ranker to
            beat.

        Raises
        ------
        DataError
            For other input, and for a table from which nothing can be learned.
        """
        warm = WarmStart.next_of(self)
        return self._fit_table(X, y, qid, propensity, baseline, warm, is_update=False)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        qid: Column = None,
        propensity: Column = None,
        baseline: Column = None,
    ) -> Self:
        """Continue from the fitted ranker with new rows; earlier rows are not needed.

        The first call is `fit`. A later one starts at the ranker as it is, whatever `warm_start`
        is, keeps its preprocessing, and takes the same features only. Pass clicks that it has not
        learned from: some of them are held out to decide how far it moves. For parameters
        see `fit`.

        """
        warm = WarmStart.of(self) if hasattr(self, "scorer_") else None
        return self._fit_table(X, y, qid, propensity, baseline, warm, is_update=warm is not None)

    def _fit_table(
        self,
        X: ArrayLike,
        y: ArrayLike,
        qid: Column,
        propensity: Column,
        baseline: Column,
        warm: WarmStart | None,
        *,
        is_update: bool,
    ) -> Self:
        # Validation sets feature names. A table that is rejected must not change a fitted ranker.
        checked: Self = self if is_update else clone(self)
        features, counts = checked._validate(X, y, reset=not is_update)
        names = checked._feature_names
        checks.check_missing(features, names, is_allowed=True)
        counts = checks.as_counts(counts)
        if qid is None:
            _check_one_query(len(features))
        propensities = checks.as_propensities(propensity, counts)
        dataset, log, rows = checks.as_log(features, counts, propensities, qid, names=names)
        if baseline is not None:
            baseline = checks.as_baseline(baseline, len(features))[rows]
        return self._fit_log(dataset, log, baseline, None, warm)

    def fit_log(
        self,
        dataset: RankingDataset,
        log: ClickLog,
        *,
        baseline: ArrayLike | None = None,
        progress: Progress | Show | None = None,
    ) -> Self:
        """Train on a click log and its dataset, whose labels are not used.

        If the log has `impressions`, clicks are compared with the items shown, and items that were
        never shown are not trained on. `baseline` is the score of each item by your current ranker,
        (n_items,), if the log has no positions, or not all. `progress` is called with the current
        activity and the share of the work that is done.
        """
        return self._fit_log(dataset, log, baseline, progress, WarmStart.next_of(self))

    def _fit_log(
        self,
        dataset: RankingDataset,
        log: ClickLog,
        baseline: ArrayLike | None,
        progress: Progress | Show | None,
        warm: WarmStart | None,
    ) -> Self:
        start_time = time.perf_counter()
        check_parameters(self.get_params(deep=False), self._checks)
        log.check(dataset)
        rng = as_generator("random_state", self.random_state)
        robust = self._robust(log, rng)
        if warm is not None:
            warm.check(dataset, self)
        imputer = self._fit_imputer(dataset, warm)
        transforms: tuple[str | None, ...] = (self.feature_transform,)
        if self.feature_transform == "auto":
            transforms = CANDIDATES if warm is None else (None,)  # a warm start keeps its own
        tasks = Tasks(
            dataset if imputer is None else imputer(dataset), log, baseline, self.normalize,
            transforms, warm, robust, takes_scale=self._takes_scale,
            keeps_missing=self._takes_missing and dataset.has_missing,
        )  # fmt: skip
        first = tasks.of(transforms[0])
        _check_differences(first.filled, first.clicks)
        task = self._train(tasks, rng, Progress.of(progress))
        self._warm_start = warm
        encoder = None if warm is None else self.preprocessing_.encoder
        self.preprocessing_ = Preprocessing(encoder, imputer, task.normalizer)
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
            **({} if warm is None else {"previous": warm.to_dict()}),
        }
        self._remember_features(dataset.n_features, dataset.feature_names)
        self._log_training(time.perf_counter() - start_time)
        return self

    def _fit_imputer(self, dataset: RankingDataset, warm: WarmStart | None) -> Imputer | None:
        """Learn replacements of missing values; None if none is missing, or trees take them."""
        if self._takes_missing:
            return None
        if dataset.has_missing and self.impute == REJECT_MISSING:
            place = checks.describe_missing(dataset.features, dataset.feature_names)
            raise DataError(
                f"{place}, and impute is {REJECT_MISSING!r}: fill it in, or choose another impute"
            )
        if warm is not None:
            return warm.imputer_for(dataset, self.impute)
        return Imputer.fit(dataset, self.impute) if dataset.has_missing else None

    def _robust(self, log: ClickLog, rng: np.random.Generator) -> Robust | None:
        """Set `clip_`, and return the settings of doubly robust training; None without it."""
        self.clip_ = None if self.clip is None else float(self.clip)
        if not self.doubly_robust:
            return None
        if self.method == "naive":
            raise ParameterError(
                "method is 'naive' with doubly_robust, expected another: without propensities "
                "there is nothing that a model could correct"
            )
        self.clip_ = default_clip(log) if self.clip_ is None else self.clip_
        return Robust(self.clip_, int(rng.integers(2**63)))

    def _log_training(self, seconds: float) -> None:
        """Log the duration, the data and the settings that training chose."""
        fields = {
            "kind": self.kind,
            "seconds": round(seconds, 3),
            "n_clicks": self.provenance_["n_clicks"],
            "n_queries": self.n_queries_,
            "n_features": self.n_features_in_,
        }
        choices = chosen_settings(self) | {"goes_on": "previous" in self.provenance_}
        message = "%s ranker trained in %.1f s on %d clicks of %d queries with %d features"
        logger.info(message, *fields.values(), extra=fields | choices)
        if self.path_ is not None:
            logger.debug("%s", self.path_.sentence)

    # -- ranking

    @property
    def feature_transform_(self) -> str | None:
        """The transform before scaling (log, root or quantile); None if no feature has any."""
        self._check_fitted()
        return self.preprocessing_.transform_name

    def predict(self, X: Table, qid: Column = None) -> Floats:
        """Return the score of each row, float64 (n_rows,); larger ranks higher.

        X is a table (n_rows, n_features), or a `RankingDataset`, from which the features of
        training are taken by name. Only ``query-minmax`` needs qid, the query of each row.
        """
        features = self._check_features(X)
        if not self.preprocessing_.is_by_query:
            return self._scores(features, np.array([0, len(features)]))
        rows, offsets = self._group_rows(X, qid)
        return checks.restore_order(rows, self._scores(take_rows(features, rows), offsets))

    def rank(self, X: Table, qid: Column = None) -> Ints:
        """Return the rank of each row within its query, int64 (n_rows,), from 1; ties in row order.

        `X` and `qid` are as for `predict`; a ranker that was trained on several queries needs qid.
        """
        scores = self.predict(X, qid)
        rows, offsets = self._group_rows(X, qid)
        return checks.restore_order(rows, ranks_of(scores[rows], offsets))

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
            With the columns of the features: categories as text, dates as dates. Spark frames are
            ranked lazily by the workers, which need this package.
        query, item : str, optional
            The id columns; by default query_id, or qid, and item_id. Items without ids are numbered
            from 0 in each query.
        top : int, optional
            The number of items per query, the best first; by default all, in their order.

        Returns
        -------
        data frame of the same kind
            The ids, ``score``, and ``rank`` within the query, from 1; ties keep the order of rows.
        """
        from countersample.rankers.rank_tables import rank_frame  # noqa: PLC0415 (needs Arrow)

        return rank_frame(self._saved_scorer, frame, query=query, item=item, top=top)

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

        For parameters see `fit`; a ranker that was trained on several queries needs qid.
        `sample_weight` are factors of v, at least 0.
        """
        self._check_fitted()
        _, counts = self._validate(X, y)
        counts = checks.as_counts(counts)
        weights = counts / checks.as_propensities(propensity, counts)
        if sample_weight is not None:
            weights = weights * checks.as_sample_weights(sample_weight, counts)
        return float(weights @ rank_values("dcg", self.rank(X, qid)) / weights.sum())

    @property
    def _saved_scorer(self) -> SavedScorer:
        self._check_fitted()
        names = self._feature_names
        return SavedScorer(self.scorer_, self.preprocessing_, self.n_features_in_, names)

    def _scores(self, features: Any, offsets: Ints) -> Floats:  # noqa: ANN401 (array or codes)
        return self._saved_scorer.scores(features, offsets)

    # -- checks

    def _validate(self, X: ArrayLike, *y: ArrayLike, reset: bool = False) -> Any:  # noqa: ANN401 (scikit-learn has no types)
        """Return X, and y if given, as scikit-learn checks them; `reset` remembers the features."""
        if isinstance(X, RankingDataset):
            raise checks.WrongTypeError(
                "X is a RankingDataset, expected a table of features with y beside it: fit_log "
                "takes a dataset with its click log"
            )
        try:
            with np.errstate(over="ignore"):  # a value that overflows is reported as infinite
                return validate_data(self, X, *y, reset=reset, **checks.VALIDATION)
        except (TypeError, ValueError) as error:
            kind = checks.WrongTypeError if isinstance(error, TypeError) else DataError
            raise kind(" ".join(str(error).split())) from error

    def _check_features(self, X: Table) -> Any:  # noqa: ANN401 (array or codes)
        self._check_fitted()
        if isinstance(X, RankingDataset):
            features = checks.select_features(X, self.n_features_in_, self._feature_names)
        else:
            features = self._validate(X)
        self._saved_scorer.check_features(features)
        return features

    def _group_rows(self, X: Table, qid: Column) -> tuple[Ints, Ints]:
        """Return the rows query by query, and the offset of each query among them."""
        if isinstance(X, RankingDataset):
            return np.arange(X.n_items), X.offsets
        if qid is None and self.n_queries_ > 1:
            raise ParameterError(
                f"qid is None, expected the query of each row, as training had {self.n_queries_:,} "
                "queries: pass qid; in cross-validation, call sklearn.set_config("
                "enable_metadata_routing=True) and request it with set_score_request(qid=True)"
            )
        rows, offsets, _ = checks.group_queries(qid, len(X))  # type: ignore[arg-type] # checked
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
        tags.input_tags.allow_nan = getattr(self, "impute", None) != REJECT_MISSING
        return tags

    # -- files

    def save(self, path: str | PathLike[str]) -> None:
        """Write the ranker as one JSON file, atomically; `load` reads it.

        The file has all that scoring needs, to the bit (scorer, preprocessing, feature names), and
        the origin (parameters, versions, `provenance_`, the fingerprint of the data). It does not
        have `history_`, `path_` and `served_`, and a random_state that is a generator becomes None.
        """
        self._check_fitted()
        params = self.get_params()
        if isinstance(self.random_state, np.random.Generator):
            params["random_state"] = None
        content = {
            "kind": self.kind,
            "params": params,
            "statistics": {name: getattr(self, name) for name in STATISTICS},
            "feature_names": self._feature_names,
            "preprocessing": self.preprocessing_.to_dict(),
            "learned": {
                "scorer": self.scorer_.to_dict(),
                **{name.rstrip("_"): getattr(self, name) for name in self._learned},
            },
        }
        write_ranker(path, content)
        logger.debug("%s ranker written to %s", self.kind, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a ranker that `save` wrote; it gives the same scores, to the bit.

        A file that is missing, not a ranker, of another kind or version, or damaged raises
        DataError.
        """
        content = read_ranker(path)
        kind = content.get("kind")
        if kind != cls.kind:
            raise DataError(
                f"{path}: a ranker of the kind {reprlib.repr(kind)}, expected {cls.kind!r}: "
                "countersample.rankers.load_ranker reads any"
            )
        return cls._from_content(content, path)

    @classmethod
    def _from_content(cls, content: Mapping[str, Any], path: str | PathLike[str]) -> Self:
        with readable(path):
            saved = SavedScorer.from_content(content, cls._scorer_type)
            ranker = cls(**content["params"])
            for name in STATISTICS:
                setattr(ranker, name, content["statistics"][name])
            ranker._remember_features(saved.n_features, saved.feature_names)
            ranker.preprocessing_, ranker.scorer_ = saved.preprocessing, saved.scorer
            ranker._restore(content["learned"])
        return ranker

    def _restore(self, values: Mapping[str, Any]) -> None:
        """Set the learned attributes of a file, beside the scorer."""
        for name, check in self._learned.items():
            if name.rstrip("_") not in values:
                raise DataError(f"the ranker has no learned.{name.rstrip('_')}, expected one")
            value = values[name.rstrip("_")]
            check(name, value)
            setattr(self, name, value)


def chosen_settings(ranker: ClickRanker) -> dict[str, Any]:
    """Return the settings that training chose from the log, in plain values.

    ``clip`` is always there, None for no clipping; ``learning_rate``, ``steps`` and ``trees`` if
    the kind of ranker has them, and ``transform`` if it was to be chosen.
    """
    settings: dict[str, Any] = {"clip": getattr(ranker, "clip_", None)}
    for attribute, name in SETTINGS.items():
        value = getattr(ranker, attribute, None)
        if value is not None:
            settings[name] = value
    if ranker.feature_transform == "auto":
        settings["transform"] = ranker.feature_transform_ or "none"
    return settings


def _check_one_query(n_rows: int) -> None:
    """Warn that all rows are taken to be of one query, and reject more than one query has."""
    message = (
        "qid is None, expected the query of each row: pass qid; in cross-validation, call "
        "sklearn.set_config(enable_metadata_routing=True) and request it with "
        "set_fit_request(qid=True), as groups do not reach fit; qid=[0] * len(X) says that all "
        "rows are of one query"
    )
    if n_rows > MAX_ROWS_WITHOUT_QID:
        raise ParameterError(message)
    warnings.warn(f"{message}, which is assumed", OneQueryWarning, stacklevel=4)


def _check_differences(dataset: RankingDataset, log: ClickLog) -> None:
    """Reject clicks on queries whose items are all alike."""
    queries = np.unique(log.query)
    lists = (dataset.features[dataset.offsets[q] : dataset.offsets[q + 1]] for q in queries)
    if not any((items != items[0]).any() for items in lists):
        raise DataError(
            "nothing to learn from: no clicked item differs from the other items of its query "
            f"(n_samples={dataset.n_items}, n_queries={dataset.n_queries}); if rows of one query "
            "have different query ids, correct the ids"
        )
