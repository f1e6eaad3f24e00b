"""What a card is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from countersample.export.specification import Code

if TYPE_CHECKING:
    from collections.abc import Sequence


class Mono(str):
    """Text that is shown as code."""

    __slots__ = ()


@dataclass(frozen=True)
class Grid:
    """A table of plain texts with a caption; without a header, names and values."""

    rows: Sequence[tuple[str, ...]]
    header: tuple[str, ...] = ()
    caption: str = ""


# A str is a paragraph, with `, ** and [](…) as in Markdown; a tuple has sentences, a point each.
# What was not written here, such as the name of a file, is escaped in it (`escape_markdown`).
Block: TypeAlias = "str | Code | Grid | tuple[str, ...]"

__all__ = ["Block", "Code", "Grid", "Mono"]
