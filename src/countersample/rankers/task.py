"""The task of a ranker: items and clicks to learn from, and how candidates are evaluated.

Items that were never shown are left out of training (unless it is doubly robust), and kept for the
evaluation: a candidate ranks all items. Training starts from zero, from a linear base (mostly the
imitation of the logging policy) or from an earlier ranker (`WarmStart`). The weights of an earlier
ranker mean something only together with its preprocessing, so both are kept, and the features have
to be the same.

Only the order of items is known of the logging policy. How far apart their scores are decides how
much training has to do to change that order, and the training clicks decide it (`scale_base`): if
the base explains them well, its scores are far apart; if it explains nothing, they are nearly
equal, and training starts almost from zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from sklearn.base import clone

from countersample.clicks import ClickLog
from countersample.clicks.log import only_shown
from countersample.data.preprocessing import IMPUTATIONS, Imputer, Normalizer, check_scaling
from countersample.errors import DataError, ParameterError
from countersample.evaluation.bootstrap import Clusters
from countersample.evaluation.doubly_robust import (
    doubly_robust_log,
    relevance_model,
    sessions_of_item,
)
from countersample.evaluation.estimators import logged_values
from countersample.evaluation.holdout import VALIDATION_QUERIES, HeldOut
from countersample.metrics import parse_additive, rank_values, ranks_of
from countersample.objectives import score_space
from countersample.plans import Examples
from countersample.rankers.checks import as_baseline
from countersample.rankers.logging_policy import imitate
from countersample.scorers import LinearScorer, TreesScorer

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats, Ints
    from countersample.data import RankingDataset
    from countersample.data.preprocessing import Preprocessing
    from countersample.evaluation.holdout import Fold
    from countersample.objectives import AnyLoss
    from countersample.rankers.base import ClickRanker
    from countersample.rankers.logging_policy import PolicyImitation
    from countersample.scorers import Scorer

    R = TypeVar("R", bound=ClickRanker)

BASE_SPREADS = np.geomspace(0.03, 10, 18)  # standard deviations of scores within a query
MAX_NAMES = 5  # of features in a message


# -- Warm starts -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WarmStart:
    """The state that training continues from, and the history of that ranker."""

    scorer: Scorer
    preprocessing: Preprocessing
    n_features: int
    feature_names: tuple[str, ...] | None
    n_clicks: float  # of all trainings so far
    updates: int  # the number of earlier updates
    first_day: str | None = None  # of the logs that it learned from, if known
    last_day: str | None = None

    @classmethod
    def of(cls, ranker: ClickRanker) -> WarmStart:
        """Return the state of a fitted ranker."""
        names = getattr(ranker, "feature_names_in_", None)
        provenance = ranker.provenance_
        previous = provenance.get("previous", {"n_clicks": 0, "updates": 0})
        return cls(
            ranker.scorer_,
            ranker.preprocessing_,
            ranker.n_features_in_,
            None if names is None else tuple(map(str, names)),
            n_clicks=previous["n_clicks"] + provenance["n_clicks"],
            updates=int(previous["updates"]),
            first_day=provenance.get("log", {}).get("first_day"),
            last_day=provenance.get("log", {}).get("last_day"),
        )

    @classmethod
    def next_of(cls, ranker: ClickRanker) -> WarmStart | None:
        """Return the start of the ranker's next training; None if it starts from scratch."""
        if not ranker.warm_start:
            return None
        return cls.of(ranker) if hasattr(ranker, "scorer_") else ranker._warm_start  # noqa: SLF001

    def to_dict(self) -> dict[str, float]:
        """Return plain values for the provenance."""
        return {"n_clicks": self.n_clicks, "updates": self.updates + 1}

    def check(self, dataset: RankingDataset, ranker: ClickRanker) -> None:
        """Reject other features, and parameters that would preprocess them in another way."""
        names, new_names = self.feature_names, dataset.feature_names
        if dataset.n_features != self.n_features or (
            names is not None and new_names is not None and names != new_names
        ):
            raise DataError(
                f"the data has {_describe_features(dataset.n_features, new_names)}, expected "
                f"{_describe_features(self.n_features, names)}, as the ranker of the warm start: "
                "give it the same features in the same order, or train from scratch"
            )
        imputer, normalizer = self.preprocessing.imputer, self.preprocessing.normalizer
        old_how = None if normalizer is None or normalizer.how == "none" else normalizer.how
        old_transform = self.preprocessing.transform_name
        how, transform = ranker.normalize, ranker.feature_transform
        if transform == "auto":
            transform = old_transform
        if how is not None:
            how, transform = check_scaling(how, transform)
        has_no_root = transform == "root" and old_how == "root-minmax"  # no feature needed any
        old_impute = IMPUTATIONS[0] if imputer is not None and imputer.indicators else None
        for name, old, is_same in (
            ("feature_transform", old_transform, transform == old_transform or has_no_root),
            ("normalize", old_how, how == old_how),
            ("impute", old_impute, old_impute in {None, getattr(ranker, "impute", None)}),
        ):
            if not is_same:
                raise ParameterError(
                    f"{name} is {getattr(ranker, name)!r}, and the ranker of the warm start has "
                    f"{old!r}, expected the same: its weights are for such features"
                )

    def imputer_for(self, dataset: RankingDataset, how: str) -> Imputer | None:
        """Return the imputer of the ranker, or one without indicators for new missing values."""
        if self.preprocessing.imputer is not None or not dataset.has_missing:
            return self.preprocessing.imputer
        return Imputer.fit(dataset, "median" if how == IMPUTATIONS[0] else how)

    def scorer_for(self, dataset: RankingDataset) -> Scorer:
        """Return the scorer; trees that cannot take missing values score them as the median."""
        scorer = self.scorer
        if isinstance(scorer, TreesScorer) and dataset.has_missing and scorer.missing_left is None:
            normalizer = self.preprocessing.normalizer
            scaled = dataset if normalizer is None else normalizer(dataset)
            return scorer.fill_missing(np.array(Imputer.fit(scaled, "median").fill))
        return scorer


def make_successor(ranker: R) -> R:
    """Return an untrained copy, which continues from the ranker if `warm_start` is set."""
    return _copy(ranker, WarmStart.next_of(ranker))


def make_untrained(ranker: R) -> R:
    """Return the ranker before its last training: a copy that starts where it started."""
    return _copy(ranker, ranker._warm_start)  # noqa: SLF001 (of this package)


def _copy(ranker: R, warm_start: WarmStart | None) -> R:
    copied: R = clone(ranker)
    copied._warm_start = warm_start  # noqa: SLF001 (of this package)
    return copied


def _describe_features(n_features: int, names: tuple[str, ...] | None) -> str:
    if names is None:
        return f"{n_features} features"
    n_others = n_features - MAX_NAMES
    more = f" and {n_others} more" if n_others > 0 else ""
    return f"the features {', '.join(names[:MAX_NAMES])}{more}"


# -- Tasks -----------------------------------------------------------------------------------------


class Robust(NamedTuple):
    """How clicks are made doubly robust."""

    clip: float  # τ
    seed: int  # of the relevance model


@dataclass(eq=False)
class Tasks:
    """The tasks of one training: the same clicks, with each of several feature transforms.

    `dataset`, `log` and `baseline` are as for `ClickRanker.fit_log`, with missing values filled in,
    unless trees take them. Only one task, with its copy of the features, is kept at a time.
    """

    dataset: RankingDataset
    log: ClickLog
    baseline: ArrayLike | None = None
    normalize: str | None = None
    transforms: tuple[str | None, ...] = (None,)  # to try; a warm start keeps its own
    warm: WarmStart | None = None
    robust: Robust | None = None
    takes_scale: bool = False  # training multiplies features by a scale, and needs no scaled copy
    keeps_missing: bool = False  # trees are trained on missing features
    _latest: Task | None = None

    def of(self, transform: str | None) -> Task:
        """Return the task with a transform; items that were never shown are left out."""
        if self._latest is None or self._latest.transform != transform:
            self._latest = None
            self._latest = self._make(transform)
        return self._latest

    def _make(self, transform: str | None) -> Task:
        full, scale, normalizer = self.dataset, None, None
        if self.warm is not None:
            normalizer = self.warm.preprocessing.normalizer
        elif self.normalize is not None or transform is not None:
            normalizer = Normalizer.fit(full, self.normalize, transform)
        if normalizer is not None:
            scale = normalizer.foldable_scale() if self.takes_scale else None
            full = full if scale is not None else normalizer(full)
        items, log = (full, self.log) if self.robust is not None else only_shown(full, self.log)
        baseline = self.baseline
        return Task(
            items, log.replace(fingerprint=None), full, self.log.replace(fingerprint=None),
            baseline=None if baseline is None else as_baseline(baseline, full.n_items),
            scale=scale,
            robust=self.robust,
            imputer=Imputer.fit(full) if self.keeps_missing else None,
            normalizer=normalizer,
            transform=transform,
            previous=None if self.warm is None else self.warm.scorer_for(self.dataset),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Task:
    """Items and clicks that a ranker learns from and is evaluated by."""

    dataset: RankingDataset  # items that were shown, as far as the log contains it
    log: ClickLog  # the clicks on them
    full: RankingDataset  # all items
    full_log: ClickLog
    baseline: Floats | None = None  # scores of all items by the current ranker, (n_items,)
    scale: Floats | None = None  # factors that training has to multiply features by, (n_features,)
    robust: Robust | None = None  # learns from all items, by the weights of `doubly_robust_log`
    imputer: Imputer | None = None  # for the linear scorer that trees are boosted from
    normalizer: Normalizer | None = None
    transform: str | None = None  # of the normalizer
    previous: Scorer | None = None  # of a warm start, for features as trained on and scaled

    @cached_property
    def filled(self) -> RankingDataset:
        """`dataset`, without missing values."""
        return self.dataset if self.imputer is None else self.imputer(self.dataset)

    @cached_property
    def clicks(self) -> ClickLog:
        """The training clicks: the rows of the log that have a weight."""
        return self._training_clicks(slice(None))

    def _training_clicks(self, rows: NDArray[np.bool_] | slice) -> ClickLog:
        if self.robust is None:
            return self.log.take(rows).weighted()
        clip, seed = self.robust
        return doubly_robust_log(self.full, self.full_log.take(rows), clip=clip, rng=seed)

    @cached_property
    def served(self) -> PolicyImitation | None:
        """The imitation of the logging policy; None if neither positions nor scores are known."""
        full = self.full if self.imputer is None else self.imputer(self.full)
        return imitate(full, self.full_log, baseline=self.baseline, scale=self.scale)

    def linear_scorer(self, weights: Floats) -> LinearScorer:
        """Return the scorer of weights for filled-in features, on features that may be missing.

        The weights are for features that are filled in and their indicators; the scorer has one
        sum over the features themselves, missing or not.
        """
        return LinearScorer(*((weights,) if self.imputer is None else self.imputer.unfold(weights)))

    @property
    def has_positions(self) -> bool:
        """Whether the ranks of the logging policy are known."""
        return self.baseline is not None or self.log.position is not None

    # -- evaluation

    def held_out(
        self,
        metric: str,
        holdout: float,
        rng: np.random.Generator,
        least_queries: int = VALIDATION_QUERIES,
    ) -> tuple[HeldOut, list[ClickLog]]:
        """Return the held-out evaluation, and the training clicks without each of its folds.

        A candidate ranks all items. For items that were never shown, a relevance model counts the
        clicks that it expects, as in the estimator ``dr``. The model also learns from which items
        the logging policy left out. The ranks of the policy are known for its page only, so the
        metric ends with the page.
        """
        parts = self._cut_queries(holdout, least_queries, rng)
        if (self.dataset is self.full and self.robust is None) or parts is None:
            held_out = HeldOut(
                self.full, self.full_log, metric, holdout=holdout, parts=parts,
                logged=self._logged_values(metric), rng=rng,
            )  # fmt: skip
        else:
            metric = self._limit_to_page(metric)
            log, logged = self._add_never_shown(metric, rng)
            held_out = HeldOut(self.full, log, metric, parts=parts, logged=logged, rng=rng)
            clicked = np.unique(self.full_log.weighted().query)  # by users, not by the model
            held_out.n_queries = int(np.isin(clicked, np.concatenate(parts)).sum())
        return held_out, self.clicks_without(held_out)

    def clicks_without(self, held_out: HeldOut) -> list[ClickLog]:
        """Return the training clicks without the queries of each fold."""
        if self._n_clicked == 1:
            return [self.clicks]  # the only query cannot be held out
        return [
            self._training_clicks(~np.isin(self.full_log.query, fold.queries))
            for fold in held_out.folds
        ]

    def queries_of(self, held_out: HeldOut) -> list[Ints]:
        """Return the queries of each fold, as indices of `dataset`."""
        return [
            np.unique(self.log.query[np.isin(self.full_log.query, fold.queries)])
            for fold in held_out.folds
        ]

    def without_fold(self, fold: Fold, clicks: ClickLog) -> Task:
        """Return the task without the queries of a fold; `clicks` come from `clicks_without`."""
        if clicks is self.clicks:
            return self
        full_log = self.full_log.of_queries(fold.queries, exclude=True)
        return replace(self, log=clicks, full_log=full_log, robust=None)

    @property
    def _n_clicked(self) -> int:
        """The number of queries with clicks."""
        return len(np.unique(self.full_log.weighted().query))

    def _cut_queries(
        self, holdout: float, least_queries: int, rng: np.random.Generator
    ) -> list[Ints] | None:
        """Cut the queries into parts by their clicks; None if only one query has any."""
        n_clicked = self._n_clicked
        if n_clicked == 1:
            return None
        n_parts = min(round(1 / holdout), n_clicked)
        n_needed = -(-least_queries * n_parts // n_clicked)
        return HeldOut.split(self.full_log, n_parts, rng)[:n_needed]

    def _limit_to_page(self, metric: str) -> str:
        """Return the metric down to the last position of most pages, if it goes deeper."""
        log, (name, k) = self.full_log, parse_additive(metric)
        if self.baseline is not None or log.position is None or name == "arp":
            return metric
        last = np.zeros(self.full.n_queries, np.int64)
        np.maximum.at(last, log.query, log.position)
        depth = int(np.median(last[last > 0]))
        return metric if k is not None and k <= depth else f"{name}@{depth}"

    def _logged_values(self, metric: str) -> Floats | None:
        """Return λ of the logged ranks for each row of the log, (n_rows,); None if unknown."""
        if self.baseline is not None:
            rows = self.full.offsets[self.full_log.query] + self.full_log.item
            return rank_values(metric, ranks_of(self.baseline, self.full.offsets)[rows])
        if self.full_log.position is None:
            return None
        return logged_values(self.full_log, self.full, metric)

    def _add_never_shown(
        self, metric: str, rng: np.random.Generator
    ) -> tuple[ClickLog, Floats | None]:
        """Return the log with a row per item that was never shown, and λ of the logged ranks.

        Without a baseline an item that was never shown has no rank, and λ = 0.
        """
        log, full, logged = self.full_log, self.full, self._logged_values(metric)
        has_row = np.zeros(full.n_items, bool)
        has_row[full.offsets[log.query] + log.item] = True
        sessions = sessions_of_item(Clusters.of(log), full)
        expected = sessions * relevance_model(log, full, rng=rng)
        rows = np.flatnonzero(np.where(has_row, 0.0, expected))
        query = np.searchsorted(full.offsets, rows, side="right") - 1
        values = zeros = np.zeros(len(rows))
        if self.baseline is not None:
            values = rank_values(metric, ranks_of(self.baseline, full.offsets)[rows])
        longer = ClickLog(
            np.append(log.query, query),
            np.append(log.item, rows - full.offsets[query]),
            np.append(log.propensity, zeros + 1),
            np.append(log.clicks, expected[rows]),
            by_chance=None if log.by_chance is None else np.append(log.by_chance, zeros),
        )
        return longer, None if logged is None else np.append(logged, values)


# -- starts and weights


def list_starts(start: str, task: Task, *, has_holdout: bool) -> tuple[str, ...]:
    """Return the starts to try. "auto" is the imitation of the logging policy, if known, and zero.

    If nothing is held out to compare them, "auto" is zero. A warm start is the only one.
    """
    if task.previous is not None:
        return ("previous",)
    if start == "auto":
        return ("served", "zero") if has_holdout and task.served is not None else ("zero",)
    if start == "served" and task.served is None:
        raise DataError(
            "start is 'served', and the logging policy is unknown, expected positions in the log "
            "or a baseline"
        )
    return (start,)


def weigh_clicks(clicks: ClickLog, *, clip: float | None, temper: float) -> ClickLog:
    """Return clicks with their training weights 1/p^temper, p clipped from below."""
    return (clicks if clip is None else clicks.clip(clip)).temper(temper)


def scale_base(
    base: Floats, dataset: RankingDataset, clicks: ClickLog, *, objective: AnyLoss
) -> Floats:
    """c·base, with c = argmin Σ_clicks f(c·base·x) / p over spreads of scores within queries.

    `base` is (n_features,), `clicks` have their training weights, and f is the objective.

    Examples
    --------
    All clicks are on the item with the larger x, or half of them:

    >>> import numpy as np
    >>> from countersample import ClickLog, RankingDataset
    >>> from countersample.rankers.task import scale_base
    >>> data = RankingDataset.from_arrays(X=[[1], [-1]], y=[0, 0], qid=[7, 7])
    >>> for clicked in ([0, 0], [0, 1]):
    ...     log = ClickLog(query=[0, 0], item=clicked, propensity=[1.0, 1.0])
    ...     print(scale_base(np.array([1.0]), data, log, objective="smooth-rank").round(2))
    [10.]
    [0.03]
    """
    queries, index = np.unique(clicks.query, return_inverse=True)
    clicked = dataset.subset(queries)
    scores = LinearScorer(base).predict(clicked.features)
    means = np.add.reduceat(scores, clicked.offsets[:-1]) / clicked.query_sizes
    spread = float(np.std(scores - np.repeat(means, clicked.query_sizes)))
    if spread == 0:
        return base
    examples = Examples.of(clicks.replace(query=index, fingerprint=None), "query")

    def compute_risk(size: float) -> float:
        losses = score_space(
            scores * (size / spread), clicked.offsets, examples.starts, examples.item,
            examples.weight, objective=objective,
        )  # fmt: skip
        return float(losses.values.sum())

    return base * float(min(BASE_SPREADS, key=compute_risk) / spread)
