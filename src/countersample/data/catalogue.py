"""Known public sets, labelled data and click logs: how a person gets one, where a copy lies.

A copy of labelled data can be checked against what was published.

Nothing is ever downloaded. The sets themselves are described in ``catalogue.toml``.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import cache, partial
from importlib.resources import files
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar

from countersample._files import is_file, is_folder
from countersample._home import data_folder
from countersample.data.sources import COMPRESSED_SUFFIXES, listed
from countersample.errors import CounterSampleError, DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

    from countersample.data.dataset import RankingDataset

    Load = Callable[[Path], RankingDataset]

ENVIRONMENT_VARIABLE = "COUNTERSAMPLE_DATA"
_Set = TypeVar("_Set", bound="KnownSet")


@dataclass(frozen=True)
class Statistics:
    """What a set (each fold of it, where it has folds) holds in all its files together.

    ``features`` is the highest feature number; grades run from 0 to ``highest_grade``.
    """

    queries: int
    items: int
    features: int
    highest_grade: int


@dataclass(frozen=True)
class KnownFile:
    """A file of a set by its relative path; what is not known for sure is None."""

    path: str
    split: Literal["train", "vali", "test"]
    fold: int | None = None
    queries: int | None = None
    items: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class KnownSet:
    """A public set: what it is, and how a person gets it."""

    kind: ClassVar[str]

    name: str
    title: str
    aliases: tuple[str, ...]
    summary: str
    homepage: str
    how_to_get: str
    licence: str
    citation: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, ready for JSON."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class KnownDataset(KnownSet):
    """Labelled data, and what a right copy holds."""

    kind = "labelled data"

    own_layout: bool
    statistics: Statistics
    files: tuple[KnownFile, ...]


@dataclass(frozen=True, kw_only=True)
class KnownLog(KnownSet):
    """A click log, and the reader of `read_impressions` for it; ``size`` says how large it is."""

    kind = "click log"

    reader: str
    size: str


@dataclass(frozen=True)
class Check:
    """One finding about a copy: a file, or the files of a fold together."""

    subject: str
    status: Literal["ok", "missing", "wrong"]
    message: str


@dataclass(frozen=True)
class Verification:
    """Whether a local copy is what it should be, finding by finding."""

    name: str
    folder: Path
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is missing or wrong."""
        return all(check.status == "ok" for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as plain values, ready for JSON."""
        return {
            "name": self.name,
            "folder": str(self.folder),
            "ok": self.ok,
            "checks": [asdict(check) for check in self.checks],
        }


class _Counts(NamedTuple):
    queries: int
    items: int
    features: int


def known() -> Mapping[str, KnownDataset]:
    """Return the known sets of labelled data by name."""
    return _known()[0]


def known_logs() -> Mapping[str, KnownLog]:
    """Return the known click logs by name."""
    return _known()[1]


@cache
def _known() -> tuple[Mapping[str, KnownDataset], Mapping[str, KnownLog]]:
    text = files("countersample.data").joinpath("catalogue.toml").read_text(encoding="utf-8")
    rows = tomllib.loads(text)
    for row in (*rows["dataset"], *rows["log"]):
        row["aliases"] = tuple(row["aliases"])
    for row in rows["dataset"]:
        row["statistics"] = Statistics(**row["statistics"])
        row["files"] = tuple(KnownFile(**file) for file in row["files"])
    return (
        MappingProxyType({row["name"]: KnownDataset(**row) for row in rows["dataset"]}),
        MappingProxyType({row["name"]: KnownLog(**row) for row in rows["log"]}),
    )


def get(name: str) -> KnownDataset:
    """Return the known set of labelled data of this name.

    Examples
    --------
    >>> from countersample.data import catalogue
    >>> catalogue.get("mq2008").statistics
    Statistics(queries=784, items=15211, features=46, highest_grade=2)
    """
    if name in known_logs():
        raise ParameterError(
            f"{name} is a click log, expected labelled data: check it with countersample log check "
            f"PATH --reader {known_logs()[name].reader}"
        )
    return _named(name, known())


def _named(name: str, sets: Mapping[str, _Set]) -> _Set:
    if name in sets:
        return sets[name]
    near = get_close_matches(name.lower(), sets, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise ParameterError(f"no known dataset {name!r}{hint}, expected one of {', '.join(sets)}")


def find(name: str, data_dir: str | PathLike[str] | None = None) -> Path:
    """Return the folder of a known set, labelled data or a click log, on this machine.

    It is looked for under ``data_dir``, then under each folder of the environment variable
    COUNTERSAMPLE_DATA, then under the platform's data folder for this package; in each as a folder
    with the set's name or one of its aliases.

    Raises
    ------
    DataError
        Where there is no such folder, with the folders and how to get the set.
    """
    dataset = _named(name, {**known(), **known_logs()})
    folders = [] if data_dir is None else [Path(data_dir)]
    named = os.environ.get(ENVIRONMENT_VARIABLE, "").split(os.pathsep)
    folders += [_in_home(Path(folder)) for folder in named if folder]
    own = data_folder()
    folders += [] if own is None else [own / "datasets"]
    for parent in folders:
        for folder in (dataset.name, *dataset.aliases):
            if is_folder(parent / folder):
                return parent / folder
    # Without a home there may be none.
    places = [*map(str, folders)] or [f"a folder that {ENVIRONMENT_VARIABLE} names"]
    raise DataError(
        f"{dataset.title} is not there as a folder {name!r} in {listed(places, 'or')}; "
        f"to get it, go to {dataset.homepage}, {dataset.how_to_get}, and put it in such a folder"
    )


def _in_home(folder: Path) -> Path:
    try:
        return folder.expanduser()
    except RuntimeError:  # of a user that there is not
        return folder


def identify(path: str | PathLike[str]) -> KnownDataset | None:
    """Return the known set a folder is a copy of, whole or in part, or None.

    The expected files that are there tell it. Where other sets have files of the same names (the
    folds of LETOR and MSLR), the name of the folder has to tell it, too.
    """
    folder = Path(path).absolute()
    by_files = [
        dataset
        for dataset in known().values()
        if any(_present(folder, file.path) for file in dataset.files)
    ]
    by_name = [
        dataset
        for dataset in by_files
        if folder.name.lower() in {name.lower() for name in (dataset.name, *dataset.aliases)}
    ]
    found = by_name or [dataset for dataset in by_files if dataset.own_layout]
    return found[0] if len(found) == 1 else None


def recognise(parts: Mapping[str, RankingDataset]) -> KnownDataset | None:
    """Return the known set that data is, by what it holds; None for any other.

    Queries and items of each split, and the number of features, tell it, as not every set has
    public checksums.

    Parameters
    ----------
    parts : mapping of ``"train"``, ``"vali"`` and ``"test"`` to RankingDataset
        All the splits of a set, or of one fold.

    Examples
    --------
    >>> from countersample import synthetic
    >>> from countersample.data.catalogue import recognise
    >>> recognise({"train": synthetic("tiny", rng=0)}) is None
    True
    """
    n_features = max((part.n_features for part in parts.values()), default=0)

    def fits(group: tuple[KnownFile, ...]) -> bool:
        return {file.split for file in group} == set(parts) and all(
            file.queries == parts[file.split].n_queries
            and file.items in {None, parts[file.split].n_items}
            for file in group
        )

    found = [
        dataset
        for dataset in known().values()
        if dataset.statistics.features == n_features
        and any(fits(tuple(group)) for _, group in groupby(dataset.files, attrgetter("fold")))
    ]
    return found[0] if len(found) == 1 else None


def verify(
    path: str | PathLike[str], name: str | None = None, *, load: Load | None = None
) -> Verification:
    """Check a local copy of a known set against what was published.

    Each expected file has to be there, as it is or compressed. A file whose checksum is known and
    equal is right and is not read any further; any other is read, and its queries, items, features
    and grades are compared with the known ones. The files of a fold (or of a set without folds)
    are also compared together.

    Parameters
    ----------
    path : path of a folder
    name : str, optional
        Which known set it should be; by default what `identify` says.
    load : callable, optional
        Reads one file as a RankingDataset; `load_letor` by default.

    Raises
    ------
    DataError
        Where ``path`` is no folder, or no name is given and none can be told.
    """
    folder = Path(path)
    if not is_folder(folder):
        raise DataError(f"{folder} is not a folder, expected the folder of an unpacked dataset")
    dataset = get(name) if name is not None else identify(folder)
    if dataset is None:
        raise DataError(
            f"{folder} cannot be told to be one known dataset by its files and its name: "
            f"say which it should be, one of {', '.join(known())}"
        )
    if load is None:
        from countersample.data.letor import load_letor  # noqa: PLC0415 (only to read a file)

        load = partial(load_letor, clip=True)
    checks: list[Check] = []
    for fold, group in groupby(dataset.files, key=attrgetter("fold")):
        found = [_check_file(folder, file, dataset.statistics, load) for file in group]
        checks += [check for check, _ in found]
        counts = [count for _, count in found if count is not None]
        if len(counts) == len(found):
            subject = "all files" if fold is None else f"all files of fold {fold}"
            checks.append(_check_together(subject, counts, dataset.statistics))
    return Verification(dataset.name, folder, tuple(checks))


def _present(folder: Path, path: str) -> Path | None:
    candidates = (folder / (path + suffix) for suffix in ("", *COMPRESSED_SUFFIXES))
    return next((candidate for candidate in candidates if is_file(candidate)), None)


def _check_file(
    folder: Path, expected: KnownFile, statistics: Statistics, load: Load
) -> tuple[Check, _Counts | None]:
    path = _present(folder, expected.path)
    if path is None:
        message = f"Is not there, nor compressed as {listed(COMPRESSED_SUFFIXES, 'or')}."
        return Check(expected.path, "missing", message), None
    subject = path.relative_to(folder).as_posix()
    try:
        wrong = []
        if expected.sha256 is not None and subject == expected.path:
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            if digest == expected.sha256:
                return Check(subject, "ok", "Is the published file, by its checksum."), None
            wrong.append("a checksum that is not the published file's")
        data = load(path)
    except (CounterSampleError, OSError) as error:
        return Check(subject, "wrong", f"Cannot be read: {error}."), None
    counts = _Counts(data.n_queries, data.n_items, data.n_features)
    wrong += _differences(counts, expected.queries, expected.items)
    # Sparse text leaves zeros out, so that one file may stop short of the last feature.
    if counts.features > statistics.features:
        wrong.append(f"{counts.features} features instead of {statistics.features}")
    lowest, highest = data.labels.min(initial=0), data.labels.max(initial=0)
    if lowest < 0 or highest > statistics.highest_grade:
        wrong.append(f"grades {lowest:g} to {highest:g} instead of 0 to {statistics.highest_grade}")
    return _as_check(subject, counts, wrong), counts


def _check_together(subject: str, counts: list[_Counts], expected: Statistics) -> Check:
    queries, items, features = zip(*counts, strict=True)
    together = _Counts(sum(queries), sum(items), max(features))
    wrong = _differences(together, expected.queries, expected.items)
    if together.features < expected.features:
        wrong.append(f"{together.features} features instead of {expected.features}")
    return _as_check(subject, together, wrong)


def _differences(counts: _Counts, queries: int | None, items: int | None) -> list[str]:
    pairs = (("queries", counts.queries, queries), ("items", counts.items, items))
    return [
        f"{count:,} {what} instead of {expected:,}"
        for what, count, expected in pairs
        if expected not in {None, count}
    ]


def _as_check(subject: str, counts: _Counts, wrong: list[str]) -> Check:
    if wrong:
        return Check(subject, "wrong", f"Has {listed(wrong, 'and')}.")
    numbers = (
        f"{counts.queries:,} queries",
        f"{counts.items:,} items",
        f"{counts.features} features",
    )
    return Check(subject, "ok", f"Has {listed(numbers, 'and')}, as it should.")
