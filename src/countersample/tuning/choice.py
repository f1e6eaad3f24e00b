"""The choice of start, temper and steps by held-out clicks: no labels, no learning rate."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._frames import Tabular
from countersample.data.compact import linear_scores
from countersample.errors import ParameterError
from countersample.tuning.paths import Checkpoint, evaluate_paths
from countersample.tuning.safety import MIN_QUERIES, choose_safely, choose_simplest, gains_over

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike

    from countersample._arrays import Floats
    from countersample._progress import Progress
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.evaluation.holdout import HeldOut
    from countersample.training import TrainingOptions

AS_GOOD = 0.01  # of the share of pairs in order: imitations that differ by less are as good
_REFERENCES = {
    "logged": "your current ranker",
    "previous": "the ranker it continues from",
    "naive": "naive training",
}


@dataclass(frozen=True)
class Candidate:
    """A checkpoint of a path, and its value by clicks that it was not trained on.

    `gain` is the difference from the reference, and `low` its lower end at the confidence of
    `safety`.
    """

    start: str  # "zero", "served" or "previous": the first weights of the path
    temper: float  # α: clicks weigh 1/p^α
    steps: int
    value: float  # the estimate from held-out clicks
    gain: float
    low: float
    share: float  # of the draws of held-out queries that choose it: its weight in the ranker
    transform: str | None = None  # of the features
    rates: float = 0.0  # the share of the regression on click rates; 1 is the regression alone


@dataclass(frozen=True)
class PathChoice(Tabular):
    """How far to follow which paths, chosen by held-out clicks.

    Attributes
    ----------
    candidates : tuple of Candidate
    kept : float
        The share of the draws of held-out queries in which nothing is shown to be better than the
        reference; 1 keeps it as it is.
    reference : {"logged", "previous", "naive"}
        The logging policy or, if the log has no positions, the ranker that training continues from,
        or the best candidate that does not correct for position bias.
    reference_value : float
        Its value, by the same clicks.
    imitation_value : float or None
        The value of what is kept: the imitation of the logging policy, or the ranker that training
        continues from.
    metric : str
    safety : float
        The confidence with which a candidate has to be better, each by itself.
    is_shown : bool
        Whether some candidate is better with this confidence, by lower ends that hold for all of
        them at once.
    n_queries : int
        The held-out queries with clicks.
    seconds : float
    transform : {"log", "root", "quantile"} or None
        The transform of the features; only its candidates have a share.
    keeps : {"served", "previous"}
        Which of the two is kept: the better one by held-out clicks.

    Examples
    --------
    >>> from countersample.tuning import Candidate, PathChoice
    >>> best = Candidate("served", 0.5, 1000, value=0.44, gain=0.04, low=0.01, share=0.9)
    >>> PathChoice((best,), 0.1, "logged", 0.4, 0.4, "dcg@10", 0.95, True, 100, 0.5).sentence[:54]
    'Better than your current ranker with 95% confidence: t'
    """

    candidates: tuple[Candidate, ...]
    kept: float
    reference: str
    reference_value: float
    imitation_value: float | None
    metric: str
    safety: float
    is_shown: bool
    n_queries: int
    seconds: float
    transform: str | None = None
    keeps: str = "served"

    @property
    def keeps_logged(self) -> bool:
        """Whether the logging policy is kept as it is."""
        return self.kept == 1 and self.reference == "logged"

    @property
    def best(self) -> Candidate:
        """The candidate whose gain has the highest lower end."""
        return max(self.candidates, key=lambda each: (each.low, -each.steps))

    @property
    def shares(self) -> list[float]:
        """The share of each candidate in the ranker; a naive reference gets the share kept."""
        shares = [each.share for each in self.candidates]
        if self.reference == "naive":
            rows = [
                k
                for k, each in enumerate(self.candidates)
                if each.transform == self.transform and not each.rates
            ]
            candidates = [self.candidates[k] for k in rows]
            best = best_naive([c.temper for c in candidates], [c.value for c in candidates])
            shares[rows[best]] += self.kept
        return shares

    @property
    def transforms(self) -> tuple[str | None, ...]:
        """The transforms that were tried."""
        return tuple(dict.fromkeys(each.transform for each in self.candidates))

    @property
    def value(self) -> float:
        """The mean value of the choices of the draws."""
        candidates = sum(each.share * each.value for each in self.candidates)
        return candidates + self.kept * self.reference_value

    @property
    def sentence(self) -> str:
        """The choice and its reason, in words."""
        if len(self.transforms) == 1:
            return self._path_sentence
        *others, last = (name or "none" for name in self.transforms)
        return (
            f"{self._path_sentence} Transform: {self.transform or 'none'}, chosen among "
            f"{', '.join(others)} and {last}."
        )

    @property
    def _path_sentence(self) -> str:
        other = _REFERENCES[self.reference]
        confidence = f"with {100 * self.safety:g}% confidence"
        if self.n_queries < MIN_QUERIES and self.safety:
            return (
                f"Nothing can be shown to be better than {other}: {self.n_queries} held-out "
                f"queries have clicks, expected {MIN_QUERIES} or more."
            )
        reference = f"against {self.reference_value:.3g} of {other}"
        if self.kept == 1:
            text = (
                f"Nothing was shown to be better than {other} {confidence}: the {self.metric} of "
                f"the most promising candidate on held-out queries is {self.best.value:.3g} "
                f"{reference}, and its gain may be {self.best.low:+.2g}."
            )
            return text + (" The ranker stays as it was." if self.keeps == "previous" else "")
        mean = sum(each.share * each.value for each in self.candidates) / (1 - self.kept)
        values = f"{self.metric} is {mean:.3g} {reference}"
        if not self.safety:
            return f"The best on held-out queries, whatever the current ranker: {values}."
        draws = f" the choice of {1 - self.kept:.0%} of the draws of held-out queries:"
        choice = "" if any(each.share == 1 for each in self.candidates) else draws
        outcome = "Better" if self.is_shown else "Not shown to be better"
        return f"{outcome} than {other} {confidence}:{choice} {values}."

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the columns of `to_frame`: one row per candidate."""
        names = [field.name for field in fields(Candidate)]
        return {name: [getattr(each, name) for each in self.candidates] for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; only candidates with a share are included."""
        candidates = [asdict(each) for each in self.candidates if each.share]
        return asdict(self) | {"candidates": candidates, "sentence": self.sentence}


@dataclass(frozen=True, eq=False)
class Contender:
    """A transform of the features, and the starts of paths on them."""

    held_out: HeldOut  # the held-out queries, with these features; training may use others
    dataset: RankingDataset  # to train on
    logs: Sequence[ClickLog]  # of the dataset, without the queries of each fold
    starts: Mapping[str, Floats]  # names to weights, (n_features,)
    options: TrainingOptions  # with the maximal number of steps
    served: Floats | None = None  # the weights that are kept if nothing is better
    agreement: float = 0.0  # how well they imitate the logging policy
    transform: str | None = None
    rates: Sequence[Floats] = ()  # the weights of the regression on click rates without each fold

    def start_sums(self, start: str) -> Floats | None:
        """Return the sums over held-out clicks of a start itself; None if there is none."""
        weights = self.starts.get(start, self.served if start == "served" else None)
        if weights is None:
            return None
        scale = 1.0 if self.options.scale is None else np.asarray(self.options.scale)
        product, folds = (weights * scale)[None], self.held_out.folds
        return self.held_out.sums(
            [linear_scores(product, fold.validation.features)[0] for fold in folds]
        )


def choose_contender(
    contenders: Iterable[Contender],
    *,
    n_contenders: int = 1,
    tempers: Sequence[float],
    safety: float,
    has_positions: bool,
    rng: np.random.Generator,
    progress: Progress,
) -> PathChoice:
    """Choose starts, tempers and steps by the clicks of held-out queries, and the transform.

    The method is at the top of `countersample.tuning.safety`. Without positions, candidates are
    compared with the best naive one (α = 0). The start ``"previous"``, which is a ranker, is a
    candidate itself, at 0 steps; it is the reference if there are no positions, and kept if it is
    no worse than the imitation (``"served"``).

    Contenders are evaluated by the same clicks, one after the other, so that one at a time is in
    memory. The mean of rankers with different transforms is not a ranker, so the transform is
    chosen first: by the candidate with the highest lower end, or by a simpler one that is as good
    (`choose_simplest`); if nothing is better than the logging policy, the one that imitates it
    best. `is_shown` holds for all candidates that were tried.
    """
    begin = time.perf_counter()
    seed = int(rng.integers(2**63))
    checkpoints: list[Checkpoint] = []
    imitations: dict[str | None, Floats | None] = {}
    agreements: dict[str | None, float] = {}
    previous = None
    for each in contenders:
        held_out, transform = each.held_out, each.transform
        if held_out.metric == "arp":
            raise ParameterError(
                "metric is 'arp', for which smaller is better, expected dcg or precision"
            )
        part = progress.part(1 / n_contenders, "following paths on held-out queries")
        evaluated = evaluate_paths(
            each.dataset, each.logs, held_out, starts=each.starts, tempers=tempers,
            options=each.options, seed=seed, progress=part, rates=each.rates,
        )  # fmt: skip
        previous = each.start_sums("previous")
        if previous is not None:
            evaluated.append(Checkpoint("previous", tempers[-1], 0, previous))
        checkpoints += [one._replace(transform=transform) for one in evaluated]
        imitations[transform], agreements[transform] = each.start_sums("served"), each.agreement
    logged = held_out.logged_sums() if has_positions else None
    transform = next(iter(agreements))
    if len(agreements) > 1:
        transform = _choose_transform(held_out, checkpoints, agreements, logged, safety)
    eligible = [one for one in checkpoints if one.transform == transform]
    name, reference = "naive", _best_naive(eligible, held_out).sums
    if previous is not None:
        name, reference = "previous", previous
    keeps, imitation = choose_kept(held_out, imitations[transform], previous)
    if logged is not None:
        name, reference = "logged", logged
    choice = choose_safely(
        held_out, [one.sums for one in eligible], reference,
        imitation=imitation if has_positions else None,
        rejected=[one.sums for one in checkpoints if one.transform != transform],
        safety=safety, rng=rng,
    )  # fmt: skip
    return PathChoice(
        candidates=_candidates(held_out, checkpoints, transform, reference, safety, choice.share),
        kept=choice.kept,
        reference=name,
        reference_value=held_out.value(reference),
        imitation_value=None if imitation is None else held_out.value(imitation),
        metric=held_out.metric,
        safety=safety,
        is_shown=choice.is_shown,
        n_queries=held_out.n_queries,
        seconds=time.perf_counter() - begin,
        transform=transform,
        keeps="previous" if name == "previous" else keeps,
    )


def choose_kept(
    held_out: HeldOut, imitation: Floats | None, previous: Floats | None, sign: int = 1
) -> tuple[str, Floats | None]:
    """Return the start of the ranker that is kept if nothing is better, and its held-out sums.

    It is the imitation of the logging policy, or the ranker of a warm start if that is no worse;
    without either there are no sums. `sign` is −1 for a metric for which smaller is better.
    """
    if previous is None:
        return "served", imitation
    if imitation is None or sign * held_out.value(previous) >= sign * held_out.value(imitation):
        return "previous", previous
    return "served", imitation


def _candidates(
    held_out: HeldOut,
    checkpoints: Sequence[Checkpoint],
    transform: str | None,
    reference: Floats,
    safety: float,
    shares: Floats,
) -> tuple[Candidate, ...]:
    """Return all candidates; `shares` belong to the candidates of the chosen transform."""
    numbers = gains_over(held_out, [one.sums for one in checkpoints], reference, safety)
    share = iter(shares.tolist())
    return tuple(
        Candidate(
            one.start, one.temper, one.steps, held_out.value(one.sums), gain, low,
            next(share) if one.transform == transform else 0.0, one.transform, one.rates,
        )
        for one, gain, low in zip(checkpoints, *map(np.ndarray.tolist, numbers), strict=True)
    )  # fmt: skip


def _choose_transform(
    held_out: HeldOut,
    checkpoints: Sequence[Checkpoint],
    agreements: Mapping[str | None, float],
    logged: Floats | None,
    safety: float,
) -> str | None:
    sums = [one.sums for one in checkpoints]
    reference = _best_naive(checkpoints, held_out).sums if logged is None else logged
    _, low = gains_over(held_out, sums, reference, safety)
    is_better = not safety or (low.max() > 0 and held_out.n_queries >= MIN_QUERIES)
    if logged is not None and not is_better:
        return best_imitation(agreements)
    transforms = [one.transform for one in checkpoints]
    return transforms[choose_simplest(held_out, sums, low, transforms)]


def best_imitation(agreements: Mapping[str | None, float]) -> str | None:
    """Return the first transform that imitates the logging policy about as well as the best.

    Examples
    --------
    >>> best_imitation({None: 0.941, "log": 0.943, "root": 0.95})
    >>> best_imitation({None: 0.7, "log": 0.9, "root": 0.9})
    'log'
    """
    least = max(agreements.values()) - AS_GOOD
    return next(name for name, agreement in agreements.items() if agreement >= least)


def best_naive(tempers: Sequence[float], values: Sequence[float]) -> int:
    """Return the index of the best candidate of the lowest temper."""
    least = min(tempers)
    return max((n for n, each in enumerate(tempers) if each == least), key=lambda n: values[n])


def _best_naive(checkpoints: Sequence[Checkpoint], held_out: HeldOut) -> Checkpoint:
    paths = [each for each in checkpoints if not each.rates]
    values = [held_out.value(each.sums) for each in paths]
    return paths[best_naive([each.temper for each in paths], values)]
