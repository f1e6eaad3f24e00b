"""``countersample data``: known sets, and labelled data of your own."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from countersample.cli import _show
from countersample.cli._options import Cache, Fold, Json, Seed, parse_bits
from countersample.cli.simulate import note_files

if TYPE_CHECKING:
    from countersample.data.catalogue import KnownSet
    from countersample.data.compact import CompactReport
    from countersample.data.dataset import RankingDataset
    from countersample.data.describe import Description
    from countersample.data.encoding import EncodedColumn

_MOST_SHOWN = 10  # features with heavy tails
DataDir = Annotated[
    Path | None,
    Parameter(help="The folder in which known sets are looked for first."),
]
Clip = Annotated[bool, Parameter(help="Read numbers beyond float32 as 3.4e38 (Istella needs it).")]


def list_known(*, data_dir: DataDir = None, json: Json = False) -> None:
    """List the known sets, labelled data and click logs, and which are on this machine."""
    from countersample.data import catalogue

    labelled, logs = catalogue.known().values(), catalogue.known_logs().values()
    folders = {known.name: _folder(known.name, data_dir) for known in (*labelled, *logs)}
    if json:
        _show.as_json([_known_as_dict(known, folders[known.name]) for known in (*labelled, *logs)])
        return
    here = {name: "yes" if folder else "no" for name, folder in folders.items()}
    _show.table(
        ["labelled data", "title", "queries", "items", "features", "here"],
        [
            [
                known.name,
                known.title,
                f"{known.statistics.queries:,}",
                f"{known.statistics.items:,}",
                f"{known.statistics.features:,}",
                here[known.name],
            ]
            for known in labelled
        ],
        text_columns=2,
    )
    _show.line()
    _show.table(
        ["click log", "title", "--reader", "here"],
        [[known.name, known.title, known.reader, here[known.name]] for known in logs],
        text_columns=3,
    )
    for known in logs:
        _show.line()
        _show.line(known.name)
        _show.pairs([("get it", known.homepage), ("licence", known.licence)])
    _show.line()
    _show.line("How to get one: countersample data info NAME")


def info(
    path: str,
    /,
    *,
    verify: bool = False,
    name: str | None = None,
    data_dir: DataDir = None,
    fold: Fold = None,
    cache: Cache = None,
    clip: Clip = False,
    json: Json = False,
) -> int | None:
    """Describe a file, a folder or a known set: queries, items, features, grades.

    Parameters
    ----------
    path
        LETOR text, a table (Parquet, CSV …) of labelled data or of features by query_id and
        item_id, a folder of those, or the name of a known set.
    verify
        Check instead that a folder is a complete copy of a known set; exit with 1 if not.
    name
        With --verify: the known set that it should be.
    """
    from countersample.clicks.impressions.features import columns_of
    from countersample.data import catalogue
    from countersample.data.load import load
    from countersample.errors import DataError

    if verify:
        return _verify(Path(path), name, json=json)
    known = {**catalogue.known(), **catalogue.known_logs()}
    if path in known and not Path(path).exists():
        _info_of_known(known[path], data_dir, json=json)
        return None
    columns = () if fold is not None else columns_of(path)
    if {"query_id", "item_id"} <= set(columns):
        if "click" in columns:
            raise DataError(
                f"{path}: has a column 'click', as a log of impressions has: "
                f"countersample log check {path}"
            )
        _info_of_features(path, json=json)
        return None
    note_files(path, fold)
    parts = load(path, fold=fold, cache=cache, clip=clip, progress=True)
    descriptions = {each: part.describe() for each, part in parts.items()}
    if json:
        more = {
            each: {"fingerprint": part.fingerprint, "compact": _lost_as_dict(part)}
            for each, part in parts.items()
        }
        _show.as_json({each: descriptions[each].to_dict() | more[each] for each in parts})
        return None
    for each, description in descriptions.items():
        _show_description(each, description)
        _show_lost(parts[each])
    return None


def _verify(path: Path, name: str | None, *, json: bool) -> int:
    """Check a local copy of a known set."""
    from countersample.data import catalogue
    from countersample.data.letor import load_letor

    result = catalogue.verify(path, name, load=partial(load_letor, clip=True, progress=True))
    if json:
        _show.as_json(result.to_dict())
    else:
        _show.table(
            ["file", "status", "finding"],
            [[check.subject, check.status, check.message] for check in result.checks],
            text_columns=3,
        )
        _show.line()
        verdict = "is as it should be" if result.ok else "is not as it should be"
        _show.line(f"{result.folder} {verdict} for {result.name}.")
    return 0 if result.ok else 1


def convert(
    source: Path,
    target: Path,
    /,
    *,
    clip: Clip = False,
    bits: Literal["8", "16", "auto"] | None = None,
    roots: bool = False,
    json: Json = False,
) -> None:
    """Convert labelled data: to a folder that opens in milliseconds, to LETOR text, to Parquet.

    With --bits the folder has features in 8 or 16 bits: training reads less, and is faster.

    Parameters
    ----------
    source
        LETOR text, Parquet, CSV or a saved dataset.
    target
        NAME (a folder that opens at once), NAME.txt[.gz|.bz2|.xz|.zst] or NAME.parquet.
    bits
        Features in 8 or 16 bits; auto takes the fewest that lose little.
    roots
        With --bits: features with heavy tails on a root scale, for train --normalize root-minmax.
    """
    from countersample.data.load import convert as convert_file
    from countersample.errors import ParameterError

    if roots and bits is None:
        raise ParameterError(
            "--roots is given without --bits, expected both: only codes are rounded; of numbers "
            "train --normalize root-minmax takes roots by itself"
        )
    made = convert_file(
        source, target, clip=clip, bits=parse_bits(bits), roots=roots, progress=True
    )
    _show_written(made, target, json=json)
    if made.bits is not None and not json:
        _show.paragraph(made.compact_report(made.bits).sentence)
        if made.features.roots is not None:
            _show.line("Train on it with: countersample train --normalize root-minmax")


def make(
    shape: Literal["yahoo-like", "istella-like", "tiny"],
    target: Path,
    /,
    *,
    queries: int | None = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Make a synthetic set of labelled data.

    Parameters
    ----------
    shape
        The set that it resembles.
    target
        Where to write, as in convert.
    queries
        The number of queries.
    """
    from countersample.data import synthetic
    from countersample.data.load import check_target, save

    check_target(target)  # before the work
    dataset = synthetic(shape, n_queries=queries, rng=seed)
    save(dataset, target)
    _show_written(dataset, target, json=json)


def _folder(name: str, data_dir: Path | None) -> Path | None:
    from countersample.data import catalogue
    from countersample.errors import DataError

    try:
        return catalogue.find(name, data_dir)
    except DataError:
        return None


def _known_as_dict(known: KnownSet, folder: Path | None) -> dict[str, Any]:
    return known.to_dict() | {"folder": None if folder is None else str(folder)}


def _info_of_known(known: KnownSet, data_dir: Path | None, *, json: bool) -> None:
    from countersample.data.catalogue import KnownDataset, KnownLog

    folder = _folder(known.name, data_dir)
    if json:
        _show.as_json(_known_as_dict(known, folder))
        return
    _show.line(f"{known.title}: {known.summary}")
    rows = [("kind", known.kind)]
    check = ""
    if isinstance(known, KnownDataset):
        statistics = known.statistics
        rows += [
            ("queries", f"{statistics.queries:,}"),
            ("items", f"{statistics.items:,}"),
            ("features", f"{statistics.features:,}"),
            ("grades", f"0 … {statistics.highest_grade}"),
        ]
        check = f"countersample data info {folder} --verify --name {known.name}"
    if isinstance(known, KnownLog):
        rows += [("size", known.size), ("read it", f"--reader {known.reader}")]
        check = f"countersample log check {folder} --reader {known.reader}"
    _show.pairs(
        [
            *rows,
            ("get it", f"{known.homepage}: {known.how_to_get}"),
            ("licence", known.licence),
            ("cite", known.citation),
            ("here", str(folder) if folder else f"no folder {known.name} was found"),
        ]
    )
    if folder:
        _show.line(f"Check it: {check}")


def _info_of_features(path: str, *, json: bool) -> None:
    """Describe a table of features by query and item, as `fit` reads it with nothing set."""
    from countersample.clicks.impressions import read_features

    table = read_features(path)
    found, columns = table.dataset.describe(), table.encoder.columns if table.encoder else ()
    if json:
        more = {"has_labels": table.has_labels, "columns": [each.to_dict() for each in columns]}
        mark = {"fingerprint": table.dataset.fingerprint, "warnings": table.warnings}
        _show.as_json({Path(path).name: found.to_dict() | mark | more})
        return
    _show_description(Path(path).name, found, has_labels=table.has_labels)
    _show.line("  columns that become features")
    _show.pairs([(each.name, _in_words(each)) for each in columns], indent=4)
    for text in table.warnings:
        _show.note(f"countersample: {text}")


def _in_words(column: EncodedColumn) -> str:
    if column.kind == "category":
        return f"a category, {len(column.values)} indicators"
    return f"a date, days before {column.reference}" if column.kind == "date" else "a number"


def _lost_as_dict(part: RankingDataset) -> list[dict[str, Any]]:
    return [
        {"bits": report.bits, **report.columns_of_frame()} for report in _reports(part) if report
    ]


def _reports(part: RankingDataset) -> tuple[CompactReport | None, CompactReport | None]:
    """Return what 8 bits would lose of numbers, and with roots; or what codes lost.

    None where codes cannot be: they have no room for what is missing.
    """
    if part.has_missing:
        return None, None
    if part.bits is not None:
        return part.compact_report(part.bits), None
    plain = part.compact_report(8)
    return plain, part.compact_report(8, roots=True) if plain.heavy else None


def _show_lost(part: RankingDataset) -> None:
    plain, on_roots = _reports(part)
    if plain is None:
        return
    _show.line("  what codes lost" if part.bits else "  what codes would lose (--bits)")
    _show.paragraph(plain.sentence)
    if on_roots is None:
        return
    worst = sorted(plain.heavy, key=lambda index: -plain.share[index])[:_MOST_SHOWN]
    _show.table(
        ["heavy tail", "off by, of its deviation", "square roots", "off then"],
        [
            [
                plain.feature[index],
                f"{plain.share[index]:.2g}",
                f"{on_roots.roots[index]}",
                f"{on_roots.share[index]:.2g}",
            ]
            for index in worst
        ],
    )
    if len(plain.heavy) > len(worst):
        _show.line(f"and {len(plain.heavy) - len(worst):,} more: all are in --json")
    if on_roots.roots_taken is not None:
        _show.line("Take the roots with train --normalize root-minmax, or convert --bits 8 --roots")


def _show_written(dataset: RankingDataset, target: Path, *, json: bool) -> None:
    if not json:
        _show.line(f"{dataset!r} is in {target}")
        return
    sizes = ("n_queries", "n_items", "n_features", "fingerprint")
    _show.as_json({"target": str(target)} | {name: getattr(dataset, name) for name in sizes})


def _show_description(name: str, found: Description, *, has_labels: bool = True) -> None:
    labels = f"{found.label_min:g} … {found.label_max:g}, mean {found.label_mean:.3g}"
    _show.line(name)
    _show.pairs(
        [
            ("queries", f"{found.n_queries:,}"),
            ("items", f"{found.n_items:,}"),
            (
                "items a query",
                f"{found.items_min:,} … {found.items_max:,}, "  # noqa: ISC004
                f"mean {found.items_mean:.1f}, median {found.items_median:g}",
            ),
            ("features", f"{found.n_features:,}, of which {found.n_constant_features:,} constant"),
            ("values", f"{found.feature_min:g} … {found.feature_max:g}"),
            ("density", f"{100 * found.density:.1f} % of the values are not zero"),
            ("missing", f"{100 * found.missing:.1f} % of the values"),
            ("labels", labels if has_labels else "none"),
            ("memory", _show.size(found.n_bytes)),
        ]
    )
    _show.line("  queries by number of items")
    bins = zip(pairwise(found.items_histogram.edges), found.items_histogram.counts, strict=True)
    _show.bars(
        (f"{low:,}" if high == low + 1 else f"{low:,}–{high - 1:,}", count)
        for (low, high), count in bins
    )
    if not has_labels:
        return
    if found.grades is not None:
        _show.line("  items by grade")
        _show.bars((f"{grade:g}", count) for grade, count in found.grades.items())
    _show.line("  queries that teach a ranker nothing")
    _show.pairs(
        [
            ("one grade only", f"{found.n_queries_one_grade:,}"),
            ("no relevant item", f"{found.n_queries_none_relevant:,}"),
            ("one item only", f"{found.n_queries_one_item:,}"),
        ],
        indent=4,
    )
