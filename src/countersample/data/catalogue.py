"""Known public sets, labelled data and click logs: how to get one, and whether a copy is right.

Nothing is downloaded. The sets are described in ``catalogue.toml``.
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

from countersample import _text
from countersample._environment import data_folder
from countersample._files import is_file, is_folder
from countersample.data.sources import COMPRESSED_SUFFIXES, join_words
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
    """A file of a set by its relative path; unknown numbers are None."""

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

    def describe(self, folder: Path | None) -> str:
        """Return what it is, how to get it, and how to check a copy, for a terminal."""
        facts, check = self._facts(folder)
        rows = [
            ("kind", self.kind),
            *facts,
            ("get it", f"{self.homepage}: {self.how_to_get}"),
            ("licence", self.licence),
            ("cite", self.citation),
            ("here", str(folder) if folder else f"no folder {self.name} was found"),
        ]
        lines = [f"{self.title}: {self.summary}", _text.pairs(rows)]
        return "\n".join([*lines, f"Check it: {check}"] if folder else lines)

    def _facts(self, folder: Path | None) -> tuple[list[tuple[str, str]], str]:
        """Return facts of this kind of set, and the command that checks a copy."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class KnownDataset(KnownSet):
    """Labelled data, and what a right copy holds."""

    kind = "labelled data"

    own_layout: bool
    statistics: Statistics
    files: tuple[KnownFile, ...]

    def _facts(self, folder: Path | None) -> tuple[list[tuple[str, str]], str]:
        numbers = self.statistics
        rows = [
            ("queries", f"{numbers.queries:,}"),
            ("items", f"{numbers.items:,}"),
            ("features", f"{numbers.features:,}"),
            ("grades", f"0 … {numbers.highest_grade}"),
        ]
        return rows, f"countersample data info {folder} --verify --name {self.name}"


@dataclass(frozen=True, kw_only=True)
class KnownLog(KnownSet):
    """A click log, and the reader of `read_impressions` for it; ``size`` says how large it is."""

    kind = "click log"

    reader: str
    size: str

    def _facts(self, folder: Path | None) -> tuple[list[tuple[str, str]], str]:
        rows = [("size", self.size), ("read it", f"--reader {self.reader}")]
        return rows, f"countersample log check {folder} --reader {self.reader}"


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

    def summary(self) -> str:
        """Return the findings for a terminal."""
        verdict = "is as it should be" if self.ok else "is not as it should be"
        rows = [[check.subject, check.status, check.message] for check in self.checks]
        return (
            f"{_text.table(['file', 'status', 'finding'], rows, text_columns=3)}\n\n"
            f"{self.folder} {verdict} for {self.name}."
        )


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


def find_all(data_dir: str | PathLike[str] | None = None) -> dict[str, Path | None]:
    """Return the folder of each known set on this machine, None if it is not there."""
    folders: dict[str, Path | None] = {}
    for name in (*known(), *known_logs()):
        try:
            folders[name] = find(name, data_dir)
        except DataError:
            folders[name] = None
    return folders


def summarize(folders: Mapping[str, Path | None]) -> str:
    """Return tables of the known sets for a terminal; `folders` are those of `find_all`."""
    here = {name: "yes" if folder else "no" for name, folder in folders.items()}
    labelled, logs = known().values(), known_logs().values()
    datasets = _text.table(
        ["labelled data", "title", "queries", "items", "features", "here"],
        [
            [each.name, each.title, f"{each.statistics.queries:,}", f"{each.statistics.items:,}",
             f"{each.statistics.features:,}", here[each.name]]
            for each in labelled
        ],
        text_columns=2,
    )  # fmt: skip
    rows = [[each.name, each.title, each.reader, here[each.name]] for each in logs]
    click_logs = _text.table(["click log", "title", "--reader", "here"], rows, text_columns=3)
    sources = [
        f"{each.name}\n{_text.pairs([('get it', each.homepage), ('licence', each.licence)])}"
        for each in logs
    ]
    hint = "How to get one: countersample data info NAME"
    return "\n\n".join([datasets, click_logs, *sources, hint])


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
    return _lookup(name, known())


def _lookup(name: str, sets: Mapping[str, _Set]) -> _Set:
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
    dataset = _lookup(name, {**known(), **known_logs()})
    folders = [] if data_dir is None else [Path(data_dir)]
    variable = os.environ.get(ENVIRONMENT_VARIABLE, "").split(os.pathsep)
    folders += [_in_home(Path(folder)) for folder in variable if folder]
    home = data_folder()
    folders += [] if home is None else [home / "datasets"]
    for parent in folders:
        for folder in (dataset.name, *dataset.aliases):
            if is_folder(parent / folder):
                return parent / folder
    # Without a home there may be none.
    places = [*map(str, folders)] or [f"a folder that {ENVIRONMENT_VARIABLE} names"]
    raise DataError(
        f"{dataset.title} is not there as a folder {name!r} in {join_words(places, 'or')}; "
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
    matches = by_name or [dataset for dataset in by_files if dataset.own_layout]
    return matches[0] if len(matches) == 1 else None


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

    matches = [
        dataset
        for dataset in known().values()
        if dataset.statistics.features == n_features
        and any(fits(tuple(group)) for _, group in groupby(dataset.files, attrgetter("fold")))
    ]
    return matches[0] if len(matches) == 1 else None


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
        The known set it should be; by default the result of `identify`.
    load : callable, optional
        Reads one file as a RankingDataset; `load_letor` by default.

    Raises
    ------
    DataError
        If ``path`` is not a folder, or without a name, if it cannot be identified.
    """
    folder = Path(path)
    if not is_folder(folder):
        raise DataError(f"{folder} is not a folder, expected the folder of an unpacked dataset")
    dataset = get(name) if name is not None else identify(folder)
    if dataset is None:
        raise DataError(
            f"{folder} cannot be identified by its files and its name: "
            f"give the name, one of {', '.join(known())}"
        )
    if load is None:
        from countersample.data.letor import load_letor  # noqa: PLC0415 (only to read a file)

        load = partial(load_letor, clip=True)
    checks: list[Check] = []
    for fold, group in groupby(dataset.files, key=attrgetter("fold")):
        results = [_check_file(folder, file, dataset.statistics, load) for file in group]
        checks += [check for check, _ in results]
        counts = [count for _, count in results if count is not None]
        if len(counts) == len(results):
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
        message = f"Is not there, nor compressed as {join_words(COMPRESSED_SUFFIXES, 'or')}."
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
        return Check(subject, "wrong", f"Has {join_words(wrong, 'and')}.")
    numbers = (
        f"{counts.queries:,} queries",
        f"{counts.items:,} items",
        f"{counts.features} features",
    )
    return Check(subject, "ok", f"Has {join_words(numbers, 'and')}, as it should.")
