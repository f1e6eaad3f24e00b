"""Labelled data in three parts, not loaded yet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countersample.data.load import load
from countersample.data.synthetic import synthetic
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from countersample.data import RankingDataset

PARTS = ("train", "vali", "test")
_SHARES = (0.7, 0.1, 0.2)  # of the queries, where data comes in one piece
SEED = 0  # of made-up data and of the split


@dataclass(frozen=True)
class Fold:
    """Training, validation and test data, not loaded yet."""

    dataset: str  # its name as shown
    name: str  # empty where the set has no folds
    config: Mapping[str, Any]  # what tells this data from other data: plain values

    @property
    def title(self) -> str:
        """The dataset, and the fold where there are several."""
        return f"{self.dataset} {self.name}".rstrip()

    def load(self) -> tuple[RankingDataset, ...]:
        """Return the three parts, with the features as they are."""
        if "shape" in self.config:
            made = synthetic(self.config["shape"], n_queries=self.config["queries"], rng=SEED)
            return made.split(*_SHARES, rng=SEED)
        self._check_files()
        parts = load(self.config["path"], fold=self.config.get("fold"), clip=self.config["clip"])
        if set(parts) >= set(PARTS):
            return tuple(parts[name] for name in PARTS)
        if len(parts) > 1:
            raise DataError(
                f"{self.config['path']}: has {', '.join(parts)}, expected train, vali and test, "
                "or one file to split"
            )
        (whole,) = parts.values()
        return whole.split(*_SHARES, rng=SEED)

    def _check_files(self) -> None:
        """Refuse files that have changed since the study was planned on them."""
        path = Path(self.config["path"])
        found = state_of_files([path] if path.is_file() else path.rglob("*"))
        for file in self.config["files"]:
            if list(file) not in found:
                raise DataError(
                    f"{path}: {file[0]} is not the file that this study was planned on: begin "
                    "anew, in another folder with --out"
                )


def state_of_files(files: Iterable[Path]) -> list[list[Any]]:
    """Return name, size and time of each file: other data under the same path is told by it."""
    found = sorted(file for file in files if file.is_file())
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in found]
