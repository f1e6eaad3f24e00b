"""The paper's numbers, to show beside ours."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from countersample.study.design._toml import TomlFile

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from countersample.study.design.claims import Value

# Which dataset of the paper one of ours is, or has the shape of; `find_source` names them by what
# they hold. Yahoo is set 1, which the released code reads; the 36,251 queries of the paper's table
# are those of sets 1 and 2 together (docs/deviations.md).
PAPER_DATASETS = MappingProxyType(
    {
        "yahoo-set1": "yahoo",
        "yahoo-like": "yahoo",
        "istella-s": "istella-s",
        "istella-like": "istella-s",
    }
)
_MARKS = {"": "", "v": "▽", "^": "△"}
_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)([v^]?)")


class PublishedNumber(NamedTuple):
    """A number of the paper, with the mark it has there."""

    value: float
    mark: str = ""


@dataclass(frozen=True)
class Published:
    """The paper's tables."""

    # By study, dataset (as the paper calls it), row (empty where there is one only) and column.
    numbers: Mapping[tuple[str, str, str, Value], PublishedNumber]

    def number(self, study: str, dataset: str, row: str, column: Value) -> PublishedNumber | None:
        """Return what the paper has there, or None; datasets are called as we call them.

        The column is a setting. Numbers are compared as numbers: 1 is 1.0.
        """
        of_paper = PAPER_DATASETS.get(dataset)
        return None if of_paper is None else self.numbers.get((study, of_paper, row, column))


def load_published(path: str | os.PathLike[str]) -> Published:
    """Read a file of published numbers.

    A table is a study: ``columns`` names its columns, every other key a dataset, which has a list
    of numbers, or several by row. A number may be a text that ends in ``v`` (significantly lower)
    or ``^`` (higher).

    Raises
    ------
    ParameterError
        Where the file cannot be read or is something else, with its line.
    """
    file = TomlFile(Path(path))
    numbers: dict[tuple[str, str, str, Value], PublishedNumber] = {}
    for study, table in file.data.items():
        columns = table.get("columns") if isinstance(table, dict) else None
        if not isinstance(columns, list):
            raise file.error((study,), f"{study} has no columns, expected a list of settings")
        for dataset, rows in table.items():
            if dataset == "columns":
                continue
            for row, values in (rows if isinstance(rows, dict) else {"": rows}).items():
                key = (study, dataset, row)
                if not isinstance(values, list) or len(values) != len(columns):
                    raise file.error(
                        key, f"{values!r}, expected {len(columns)} numbers, one a column"
                    )
                for column, value in zip(columns, values, strict=True):
                    found = None if isinstance(value, bool) else _NUMBER.fullmatch(str(value))
                    if found is None:
                        raise file.error(
                            key, f"{value!r}, expected a number, with v or ^ behind it if marked"
                        )
                    number = PublishedNumber(float(found[1]), _MARKS[found[2]])
                    numbers[study, dataset, row, column] = number
    return Published(numbers)
