"""Known public sets, labelled data and click logs: how to get one, and whether a copy is complete.

Nothing is downloaded. The sets are described in ``catalogue.toml``, and the dataclasses of this
module are its schema.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from countersample import _text
from countersample._environment import data_folder
from countersample._files import is_file, is_folder
from countersample.data.letor import load_letor
from countersample.data.sources import COMPRESSED_SUFFIXES, join_words
from countersample.errors import CounterSampleError, DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from countersample.data.dataset import RankingDataset

    _Sizes = tuple[int, int, int]  # queries, items, features

ENVIRONMENT_VARIABLE = "COUNTERSAMPLE_DATA"


@dataclass(frozen=True)
class Statistics:
    """The sizes of a set, or of each fold of it, over all files.

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
    """A public set: its description, and how to get it."""

    kind: ClassVar[str]
    check: ClassVar[str]  # the command that checks a copy

    name: str
    title: str
    aliases: tuple[str, ...]
    summary: str
    homepage: str
    how_to_get: str
    licence: str
    citation: str

    @property
    def facts(self) -> dict[str, str]:
        """Facts for a terminal, by name."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"kind": self.kind, **asdict(self)}

    def describe(self, folder: Path | None) -> str:
        """Return its description, how to get it, and how to check a copy, for a terminal."""
        rows = {
            "kind": self.kind,
            **self.facts,
            "get it": f"{self.homepage}: {self.how_to_get}",
            "licence": self.licence,
            "cite": self.citation,
            "here": str(folder) if folder else f"no folder {self.name} was found",
        }
        text = f"{self.title}: {self.summary}\n{_text.pairs(rows.items())}"
        command = self.check.format(folder=folder, **self.to_dict())
        return f"{text}\nCheck it: countersample {command}" if folder else text


@dataclass(frozen=True, kw_only=True)
class KnownDataset(KnownSet):
    """Labelled data, and the contents of a complete copy."""

    kind = "labelled data"
    check = "data info {folder} --verify --name {name}"

    statistics: Statistics
    files: tuple[KnownFile, ...]

    @property
    def facts(self) -> dict[str, str]:  # noqa: D102 (as above)
        sizes = {name: f"{size:,}" for name, size in asdict(self.statistics).items()}
        return sizes | {"grades": f"0 … {sizes.pop('highest_grade')}"}


@dataclass(frozen=True, kw_only=True)
class KnownLog(KnownSet):
    """A click log, and the reader of `read_impressions` for it; ``size`` is a description."""

    kind = "click log"
    check = "log check {folder} --reader {reader}"

    reader: str
    size: str

    @property
    def facts(self) -> dict[str, str]:  # noqa: D102 (as above)
        return {"size": self.size, "read it": f"--reader {self.reader}"}


@dataclass(frozen=True)
class _Catalogue:
    dataset: tuple[KnownDataset, ...]
    log: tuple[KnownLog, ...]


@cache
def _read() -> _Catalogue:
    text = files("countersample.data").joinpath("catalogue.toml").read_text(encoding="utf-8")
    return msgspec.toml.decode(text, type=_Catalogue)


def known() -> Mapping[str, KnownDataset]:
    """Return the known sets of labelled data by name."""
    return {each.name: each for each in _read().dataset}


def known_logs() -> Mapping[str, KnownLog]:
    """Return the known click logs by name."""
    return {each.name: each for each in _read().log}


def get(name: str) -> KnownDataset | KnownLog:
    """Return the known set of this name, labelled data or a click log.

    Examples
    --------
    >>> from countersample.data import catalogue
    >>> catalogue.get("mq2008").statistics
    Statistics(queries=784, items=15211, features=46, highest_grade=2)
    """
    sets: dict[str, KnownDataset | KnownLog] = {**known(), **known_logs()}
    if name in sets:
        return sets[name]
    near = get_close_matches(name.lower(), sets, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise ParameterError(f"no known dataset {name!r}{hint}, expected one of {', '.join(sets)}")


# -- Copies on this machine ------------------------------------------------------------------------


def find(name: str, data_dir: str | PathLike[str] | None = None) -> Path:
    """Return the folder of a known set, labelled data or a click log, on this machine.

    Searched are ``data_dir``, each folder of the environment variable COUNTERSAMPLE_DATA, and the
    platform's data folder for this package, for a folder with the set's name or one of its aliases.

    Raises
    ------
    DataError
        If there is no such folder, with the folders searched and how to get the set.
    """
    dataset = get(name)
    folders = [] if data_dir is None else [Path(data_dir)]
    variable = os.environ.get(ENVIRONMENT_VARIABLE, "").split(os.pathsep)
    folders += [Path(os.path.expanduser(folder)) for folder in variable if folder]  # noqa: PTH111 (no error without a home)
    home = data_folder()
    folders += [] if home is None else [home / "datasets"]
    for parent in folders:
        for folder in (dataset.name, *dataset.aliases):
            if is_folder(parent / folder):
                return parent / folder
    # Without a home there may be none.
    places = [*map(str, folders)] or [f"a folder that {ENVIRONMENT_VARIABLE} names"]
    raise DataError(
        f"there is no folder {name!r} of {dataset.title} in {join_words(places, 'or')}; "
        f"to get it, go to {dataset.homepage}, {dataset.how_to_get}, and put it in such a folder"
    )


def find_all(data_dir: str | PathLike[str] | None = None) -> dict[str, Path | None]:
    """Return the folder of each known set on this machine, None if it is not there."""
    folders: dict[str, Path | None] = dict.fromkeys((*known(), *known_logs()))
    for name in folders:
        try:
            folders[name] = find(name, data_dir)
        except DataError:
            continue
    return folders


def summarize(folders: Mapping[str, Path | None]) -> str:
    """Return tables of the known sets for a terminal; `folders` is the result of `find_all`."""
    here = {name: "yes" if folder else "no" for name, folder in folders.items()}
    sizes = ["queries", "items", "features"]
    datasets = [
        [each.name, each.title, *(each.facts[size] for size in sizes), here[each.name]]
        for each in known().values()
    ]
    logs = [[each.name, each.title, each.reader, here[each.name]] for each in known_logs().values()]
    sources = [
        f"{each.name}\n{_text.pairs([('get it', each.homepage), ('licence', each.licence)])}"
        for each in known_logs().values()
    ]
    blocks = [
        _text.table(["labelled data", "title", *sizes, "here"], datasets, text_columns=2),
        _text.table(["click log", "title", "--reader", "here"], logs, text_columns=3),
        *sources,
        "How to get one: countersample data info NAME",
    ]
    return "\n\n".join(blocks)


def identify(path: str | PathLike[str]) -> KnownDataset | None:
    """Return the known set that a folder is a copy of, by its name and its files, or None."""
    folder = Path(path).absolute()
    matches = [
        dataset
        for dataset in known().values()
        if folder.name.lower() in {name.lower() for name in (dataset.name, *dataset.aliases)}
        and any(_find_file(folder, file.path) for file in dataset.files)
    ]
    return matches[0] if len(matches) == 1 else None


def recognise(parts: Mapping[str, RankingDataset]) -> KnownDataset | None:
    """Return the known set with the sizes of these datasets; None if there is none.

    Compared are the queries and items of each split, and the number of features, because not every
    set has public checksums. `parts` are the datasets of all splits of a set, or of one fold.
    """
    n_features = max((part.n_features for part in parts.values()), default=0)

    def fits(group: Sequence[KnownFile]) -> bool:
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


# -- Verification ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    """One finding about a copy: a file, or the files of a fold together."""

    subject: str
    status: Literal["ok", "missing", "wrong"]
    message: str


@dataclass(frozen=True)
class Verification:
    """Whether a local copy is complete and correct, finding by finding."""

    name: str
    folder: Path
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is missing or wrong."""
        return all(check.status == "ok" for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as plain values for JSON."""
        return {**asdict(self), "folder": str(self.folder), "ok": self.ok}

    def summary(self) -> str:
        """Return the findings for a terminal."""
        verdict = "is a complete copy" if self.ok else "is not a complete copy"
        rows = [[check.subject, check.status, check.message] for check in self.checks]
        table = _text.table(["file", "status", "finding"], rows, text_columns=3)
        return f"{table}\n\n{self.folder} {verdict} of {self.name}."


def verify(
    path: str | PathLike[str], name: str | None = None, *, progress: bool = False
) -> Verification:
    """Check a local copy of a known set against the published sizes and checksums.

    Each file must exist, compressed or not. A file with the published checksum is not read; any
    other is read, and its queries, items, features and grades are compared with the published ones.
    The files of a fold (or of a set without folds) are also compared together.

    Parameters
    ----------
    path : path of a folder
    name : str, optional
        The known set it should be; by default the result of `identify`.
    progress : bool
        Show a progress bar for each file that is read.
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
    if isinstance(dataset, KnownLog):
        raise ParameterError(
            f"{name} is a click log, expected labelled data: check it with countersample log check "
            f"PATH --reader {dataset.reader}"
        )
    published = dataset.statistics
    checks: list[Check] = []
    for fold, group in groupby(dataset.files, key=attrgetter("fold")):
        results = [_check_file(folder, file, published, progress=progress) for file in group]
        checks += [check for check, _ in results]
        sizes = [size for _, size in results if size is not None]
        if len(sizes) == len(results):
            subject = "all files" if fold is None else f"all files of fold {fold}"
            queries, items, features = zip(*sizes, strict=True)
            together = (sum(queries), sum(items), max(features))
            expected = (published.queries, published.items, published.features)
            checks.append(_compare(subject, together, expected))
    return Verification(dataset.name, folder, tuple(checks))


def _find_file(folder: Path, path: str) -> Path | None:
    candidates = (folder / (path + suffix) for suffix in ("", *COMPRESSED_SUFFIXES))
    return next((candidate for candidate in candidates if is_file(candidate)), None)


def _check_file(
    folder: Path, expected: KnownFile, statistics: Statistics, *, progress: bool
) -> tuple[Check, _Sizes | None]:
    """Check one file; also return its sizes, if it was read."""
    path = _find_file(folder, expected.path)
    if path is None:
        message = f"Is missing, also compressed as {join_words(COMPRESSED_SUFFIXES, 'or')}."
        return Check(expected.path, "missing", message), None
    subject, problems = path.relative_to(folder).as_posix(), []
    try:
        if expected.sha256 is not None and subject == expected.path:
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            if digest == expected.sha256:
                return Check(subject, "ok", "Is the published file, by its checksum."), None
            problems.append("a checksum that is not the published file's")
        data = load_letor(path, clip=True, progress=progress)
    except (CounterSampleError, OSError) as error:
        return Check(subject, "wrong", f"Cannot be read: {error}."), None
    lowest, highest = data.labels.min(initial=0), data.labels.max(initial=0)
    if lowest < 0 or highest > statistics.highest_grade:
        problems.append(
            f"grades {lowest:g} to {highest:g} instead of 0 to {statistics.highest_grade}"
        )
    sizes = (data.n_queries, data.n_items, data.n_features)
    # Sparse text leaves zeros out, so that one file may stop short of the last feature.
    features = statistics.features if data.n_features > statistics.features else None
    return _compare(subject, sizes, (expected.queries, expected.items, features), problems), sizes


def _compare(
    subject: str,
    sizes: _Sizes,
    expected: tuple[int | None, int | None, int | None],
    problems: Sequence[str] = (),
) -> Check:
    """Compare queries, items and features; None is unknown."""
    names = ("queries", "items", "features")
    differences = [*problems] + [
        f"{size:,} {name} instead of {right:,}"
        for name, size, right in zip(names, sizes, expected, strict=True)
        if right not in {None, size}
    ]
    if differences:
        return Check(subject, "wrong", f"Has {join_words(differences, 'and')}.")
    numbers = [f"{size:,} {name}" for name, size in zip(names, sizes, strict=True)]
    return Check(subject, "ok", f"Has {join_words(numbers, 'and')}, as published.")
