"""What the metrics share: lists that are checked once, and the way from labels to one value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._params import choice, number, whole_number
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats, Ints

GAINS: dict[str, Callable[[Floats], Floats]] = {
    "exponential": lambda labels: np.exp2(labels) - 1,
    "linear": lambda labels: labels,
}
DISCOUNTS: dict[str, Callable[[Floats], Floats]] = {
    "log2": lambda ranks: 1 / np.log2(1 + ranks),
    "letor": lambda ranks: 1 / np.maximum(1, np.log2(ranks)),
}
TIES = {  # as _kernels.metrics has it: favour and average
    "file": (0, False),
    "best": (1, False),
    "worst": (-1, False),
    "expected": (0, True),
}
NO_RELEVANT = {"zero": 0.0, "one": 1.0, "skip": np.nan}

HIGHEST_EXPONENT = 1000.0  # 2^y, and sums of it, stay finite up to here
HIGHEST_LABEL = float(np.finfo(np.float32).max)


class RankedLists:
    """Labels and scores of queries, with a cut-off and a tie rule: what a metric measures.

    The arguments are those of `countersample.metrics`, and refused where they are not as said
    there. A metric turns labels into values (`gains`, `relevance`), adds these up over the ranking
    with a weight a rank (`measure`), and lets `settle` say what is left without relevant items.
    Those `ranks` count that are 1..k, as far as the largest query goes, (depth,).
    """

    def __init__(
        self,
        labels: ArrayLike,
        scores: ArrayLike,
        offsets: ArrayLike,
        *,
        k: int | None,
        ties: str,
        no_relevant: str,
    ) -> None:
        self._favour, self._average = TIES[choice("ties", ties, TIES)]
        self._without_relevant = NO_RELEVANT[choice("no_relevant", no_relevant, NO_RELEVANT)]
        self.labels = _vector("labels", labels)
        self.scores = _vector("scores", scores)
        if self.scores.shape != self.labels.shape:
            raise DataError(
                f"scores have shape {self.scores.shape}, expected {self.labels.shape}: one for "
                "each label"
            )
        self.offsets = _checked_offsets(offsets, len(self.labels))
        self._longest = int(np.max(np.diff(self.offsets), initial=0))
        if np.isnan(self.scores).any():
            row = int(np.isnan(self.scores).argmax())
            raise DataError(
                f"scores have NaN at {self._where(row)}, expected numbers to rank by: look at what "
                "made them (features without a value, or a ranker that diverged)"
            )
        if k is not None:
            whole_number("k", k, least=1, or_else="None for all ranks")
        self.ranks = np.arange(1, min(k or self._longest, self._longest) + 1.0)

    def gains(self, gain: str) -> Floats:
        """Return what each label is worth, (n_items,)."""
        gain_of = GAINS[choice("gain", gain, GAINS)]
        self._check_labels(0, HIGHEST_EXPONENT if gain == "exponential" else HIGHEST_LABEL)
        return gain_of(self.labels)

    def discounts(self, discount: str) -> Floats:
        """Return what each rank is worth, (depth,)."""
        return DISCOUNTS[choice("discount", discount, DISCOUNTS)](self.ranks)

    def relevance(self, relevant: float) -> Floats:
        """Return 1 for each label from ``relevant`` up and else 0, (n_items,)."""
        number("relevant", relevant, least=-HIGHEST_LABEL, most=HIGHEST_LABEL)
        self._check_labels(-HIGHEST_LABEL, HIGHEST_LABEL)
        # In float32, as datasets keep labels: the label 0.7 is then at least 0.7.
        return (self.labels.astype(np.float32) >= np.float32(relevant)).astype(np.float64)

    def satisfaction(self, max_label: float | None) -> Floats:
        """Return (2^label − 1) / 2^max_label, the probability to stop at an item, (n_items,)."""
        if max_label is None:
            max_label = float(np.max(self.labels, initial=0))
        else:
            number("max_label", max_label, least=0, most=HIGHEST_EXPONENT)
            self._check_labels(0, max_label)
        satisfaction: Floats = self.gains("exponential") / np.exp2(max_label)
        return satisfaction

    def measure(
        self, kernel: str, values: Floats, weights: Floats, *, ideal: bool = False
    ) -> Floats:
        """Rank by score (ideally: by value) and add up as this kernel does, (n_queries,)."""
        from countersample._kernels import metrics as kernels  # noqa: PLC0415 (numba takes 0.5 s)

        scores = values if ideal else self.scores
        average = self._average and not ideal
        depth = self._longest if average else len(weights)
        order = np.empty(len(scores), np.int64)
        kernels.rank(values, scores, self.offsets, depth, self._favour, order)
        result = np.empty(len(self.offsets) - 1)
        add_up: Callable[..., None] = getattr(kernels, kernel)
        add_up(values, scores, self.offsets, order, weights, average, result)
        return result

    def total(self, values: Floats) -> Floats:
        """Return the sum of the values of each query, (n_queries,)."""
        return np.add.reduceat(values, self.offsets[:-1])

    def settle(self, result: Floats, values: Floats) -> Floats:
        """Return the result, with what ``no_relevant`` says where no value is above zero."""
        relevant = np.maximum.reduceat(values, self.offsets[:-1]) > 0
        return np.where(relevant, result, self._without_relevant)

    def _check_labels(self, lowest: float, highest: float) -> None:
        within = (self.labels >= lowest) & (self.labels <= highest)
        if not within.all():
            row = int(within.argmin())
            raise DataError(
                f"labels have {self.labels[row]:g} at {self._where(row)}, expected grades from "
                f"{lowest:g} to {highest:g}"
            )

    def _where(self, row: int) -> str:
        query = int(np.searchsorted(self.offsets, row, side="right")) - 1
        return f"row {row} (query {query}, both counted from 0)"


def ratio(above: Floats, below: Floats) -> Floats:
    """Return above / below, and 0 where below is 0."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def _vector(name: str, values: ArrayLike) -> Floats:
    array = _as_array(name, values, kinds="fiub", expected="numbers")
    if array.ndim != 1:
        raise DataError(f"{name} have shape {array.shape}, expected a vector (n_items,)")
    return np.ascontiguousarray(array, dtype=np.float64)


def _checked_offsets(values: ArrayLike, n_items: int) -> Ints:
    array = _as_array("offsets", values, kinds="iu", expected="integers")
    if array.ndim != 1 or len(array) == 0:
        raise DataError(f"offsets have shape {array.shape}, expected a vector (n_queries + 1,)")
    offsets = np.ascontiguousarray(array, dtype=np.int64)
    if offsets[0] != 0 or offsets[-1] != n_items:
        raise DataError(
            f"offsets run from {offsets[0]} to {offsets[-1]}, expected 0 to {n_items}, the number "
            "of labels"
        )
    if np.min(np.diff(offsets), initial=1) < 1:
        query = int(np.diff(offsets).argmin())
        raise DataError(
            f"offsets give query {query} the rows {offsets[query]}:{offsets[query + 1]}, expected "
            "at least one row a query"
        )
    return offsets


def _as_array(name: str, values: ArrayLike, *, kinds: str, expected: str) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise DataError(f"{name} must be an array of {expected} ({error})") from error
    if array.dtype.kind not in kinds:
        raise DataError(f"{name} are of type {array.dtype}, expected an array of {expected}")
    return array
