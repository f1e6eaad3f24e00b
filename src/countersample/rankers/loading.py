"""Rankers of any kind from their files."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from countersample.errors import DataError
from countersample.rankers._files import read_ranker

if TYPE_CHECKING:
    from os import PathLike

    from countersample.rankers.base import ClickRanker

# Where the class of each kind is. To score, none of them needs the library it was trained with.
KINDS = {
    "linear": ("countersample.rankers.linear", "CounterSampleRanker"),
    "neural": ("countersample.torch.ranker", "NeuralRanker"),
    "boosted": ("countersample.gbdt.ranker", "GBDTRanker"),
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
    content = read_ranker(path)
    kind = content.get("kind")
    if kind not in KINDS:
        raise DataError(
            f"{path}: a ranker of the kind {kind!r}, expected one of {', '.join(KINDS)}"
        )
    module, name = KINDS[kind]
    ranker: ClickRanker = getattr(import_module(module), name)._of(content, path)  # noqa: SLF001
    return ranker
