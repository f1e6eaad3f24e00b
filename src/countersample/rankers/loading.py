"""Read rankers of any kind from their files, to train further or only to score."""

from __future__ import annotations

import reprlib
from importlib import import_module
from typing import TYPE_CHECKING, Any

from countersample import scorers
from countersample.errors import DataError
from countersample.rankers._files import read_ranker, readable
from countersample.rankers._saved import SavedScorer

if TYPE_CHECKING:
    from os import PathLike

    from countersample.rankers.base import ClickRanker

# The class of each kind. None of them needs the library of its training to score.
KINDS = {
    "linear": ("countersample.rankers.linear", "CounterSampleRanker"),
    "neural": ("countersample.torch.ranker", "NeuralRanker"),
    "boosted": ("countersample.gbdt.ranker", "GBDTRanker"),
}
_SCORERS: dict[str, type[scorers.Scorer]] = {
    "linear": scorers.LinearScorer,
    "neural": scorers.NetworkScorer,
    "boosted": scorers.TreesScorer,
}


def load_ranker(path: str | PathLike[str]) -> ClickRanker:
    """Read a ranker of any kind that ``save`` wrote; it scores as it did then, to the bit.

    Raises
    ------
    DataError
        For a file that is missing, not a ranker, of another version, or damaged.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from countersample import CounterSampleRanker
    >>> from countersample.rankers import load_ranker
    >>> ranker = CounterSampleRanker(random_state=0).fit([[0.2], [0.9]], [0, 3], qid=[1, 1])
    >>> with TemporaryDirectory() as folder:
    ...     ranker.save(f"{folder}/ranker.json")
    ...     loaded = load_ranker(f"{folder}/ranker.json")
    >>> loaded.rank([[0.5], [0.7]])
    array([2, 1])
    """
    kind, content = _read(path)
    module, name = KINDS[kind]
    ranker: ClickRanker = getattr(import_module(module), name)._of(content, path)  # noqa: SLF001
    return ranker


def load_scorer(path: str | PathLike[str]) -> SavedScorer:
    """Read the scorer of a ranker file; errors are the same as in `load_ranker`."""
    kind, content = _read(path)
    with readable(path):
        return SavedScorer.of(content, _SCORERS[kind])


def _read(path: str | PathLike[str]) -> tuple[str, dict[str, Any]]:
    """Return the kind of the ranker in a file, and the content."""
    content = read_ranker(path)
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise DataError(
            f"{path}: a ranker of the kind {reprlib.repr(kind)}, expected one of {', '.join(KINDS)}"
        )
    return kind, content
