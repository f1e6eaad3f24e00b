"""``countersample data`` and ``simulate``: known sets, labelled data, and clicks on them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from countersample._text import paragraph
from countersample.cli import console
from countersample.cli import parameters as p
from countersample.cli.app import note_files
from countersample.errors import DataError, ParameterError
from countersample.options import SimulationOptions  # noqa: TC001 (cyclopts reads it)

if TYPE_CHECKING:
    from countersample import PositionBias
    from countersample.data import RankingDataset

Clip = Annotated[bool, Parameter(help="Read numbers beyond float32 as 3.4e38 (Istella needs it).")]


def list_known(*, data_dir: p.DataDir = None, json: p.Json = False) -> None:
    """List the known sets, labelled data and click logs, and which are on this machine."""
    from countersample.data import catalogue

    folders = catalogue.find_all(data_dir)
    if json:
        known = {**catalogue.known(), **catalogue.known_logs()}
        rows = [known[name].to_dict() | _folder_entry(each) for name, each in folders.items()]
        console.show_json(rows)
    else:
        console.show(catalogue.summarize(folders))


def _folder_entry(folder: Path | None) -> dict[str, Any]:
    return {"folder": None if folder is None else str(folder)}


def info(
    path: str,
    /,
    *,
    verify: bool = False,
    name: str | None = None,
    data_dir: p.DataDir = None,
    fold: p.Fold = None,
    cache: p.Cache = None,
    clip: Clip = False,
    json: p.Json = False,
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
    from countersample.data import catalogue
    from countersample.data.compact import loss_reports
    from countersample.data.labelled_files import load
    from countersample.logs.features import columns_of

    if verify:
        return _verify(Path(path), name, json=json)
    known = {**catalogue.known(), **catalogue.known_logs()}
    if path in known and not Path(path).exists():
        folder = catalogue.find_all(data_dir)[path]
        if json:
            console.show_json(known[path].to_dict() | _folder_entry(folder))
        else:
            console.show(known[path].describe(folder))
        return None
    columns = () if fold is not None else columns_of(path)
    if {"query_id", "item_id"} <= set(columns):
        if "click" in columns:
            raise DataError(
                f"{path}: has a column 'click', as a log of impressions has: "
                f"countersample log check {path}"
            )
        _describe_features(path, json=json)
        return None
    note_files(path, fold)
    parts = load(path, fold=fold, cache=cache, clip=clip, progress=True)
    if json:
        entries = {}
        for part, dataset in parts.items():
            losses = [
                {"bits": each.bits, **each.columns_of_frame()} for each in loss_reports(dataset)
            ]
            more = {"fingerprint": dataset.fingerprint, "compact": losses}
            entries[part] = dataset.describe().to_dict() | more
        console.show_json(entries)
        return None
    for part, dataset in parts.items():
        sentences = [paragraph(report.sentence) for report in loss_reports(dataset)]
        console.show(part, dataset.describe().summary(), *sentences)
    return None


def _verify(path: Path, name: str | None, *, json: bool) -> int:
    """Check a local copy of a known set."""
    from countersample.data import catalogue
    from countersample.data.letor import load_letor

    result = catalogue.verify(path, name, load=partial(load_letor, clip=True, progress=True))
    console.show_result(result, json=json)
    return 0 if result.ok else 1


def _describe_features(path: str, *, json: bool) -> None:
    """Describe a table of features by query and item, as `fit` reads it by default."""
    from countersample.logs import read_features

    table = read_features(path)
    if json:
        console.show_json({Path(path).name: table.to_dict()})
        return
    console.show(Path(path).name, table.summary())
    for text in table.warnings:
        console.note(f"countersample: {text}")


def convert(
    source: Path,
    target: Path,
    /,
    *,
    clip: Clip = False,
    bits: p.Bits = None,
    json: p.Json = False,
) -> None:
    """Convert labelled data: to a folder that opens in milliseconds, to LETOR text, to Parquet.

    With --bits the folder has features in 8 or 16 bits: training reads less, and is faster.

    Parameters
    ----------
    source
        LETOR text, Parquet, CSV or a saved dataset.
    target
        NAME (a folder that opens at once), NAME.txt[.gz|.bz2|.xz|.zst] or NAME.parquet.
    """
    from countersample.data.labelled_files import convert as convert_data

    dataset = convert_data(source, target, clip=clip, bits=p.parse_bits(bits), progress=True)
    _show_target(dataset, target, json=json)
    if dataset.bits is not None and not json:
        console.show(dataset.compact_report(dataset.bits).sentence)


def make(
    shape: Literal["yahoo-like", "istella-like", "tiny"],
    target: Path,
    /,
    *,
    queries: int | None = None,
    seed: p.Seed = 0,
    json: p.Json = False,
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
    from countersample.data.labelled_files import check_target, save

    check_target(target)  # before the work
    dataset = synthetic(shape, n_queries=queries, rng=seed)
    save(dataset, target)
    _show_target(dataset, target, json=json)


def _show_target(dataset: RankingDataset, target: Path, *, json: bool) -> None:
    if not json:
        console.show(f"{dataset!r} is in {target}")
        return
    sizes = ("n_queries", "n_items", "n_features", "fingerprint")
    console.show_json({"target": str(target)} | {name: getattr(dataset, name) for name in sizes})


# -- simulated clicks ----------------------------------------------------------------------------


def simulate(
    data: p.Data,
    /,
    *,
    out: p.Out,
    options: SimulationOptions = p.SIMULATION_OPTIONS,
    fold: p.Fold = None,
    cache: p.Cache = None,
    seed: p.Seed = 0,
    json: p.Json = False,
) -> None:
    """Simulate users who click on the rankings of logging policies.

    Parameters
    ----------
    out
        The click log to write (.parquet).
    """
    from countersample import PositionBias, simulate_clicks
    from countersample.clicks import diagnose, simulate_impressions
    from countersample.clicks.policies import arrange
    from countersample.clicks.relevance import ignore_few_relevant, relevance_of, smallest_relevant
    from countersample.data.labelled_files import load_train
    from countersample.study.references import score_policies

    note_files(data, fold)
    dataset = load_train(data, fold=fold, cache=cache, progress=True)
    items = relevance_of(dataset, smallest_relevant(dataset, options.relevant))
    warnings = items.warnings("--relevant ")
    for text in warnings:
        console.note(f"countersample: {text}")
    world: dict[str, Any] = {
        "bias": PositionBias(options.gamma, options.offset),
        "relevant": items.relevant,
        "noise": options.noise,
        "click_model": options.click_model,
        "contexts": _parse_contexts(options.contexts, options.offset),
        "shares": options.shares or None,
    }
    if options.top is not None:
        world["top"] = options.top or None
    shown = arrange(score_policies(dataset, options, seed), options)
    if options.sessions:
        from pyarrow import parquet

        from countersample._files import atomic_path

        with ignore_few_relevant():
            table = simulate_impressions(dataset, shown, options.sessions, **world, rng=seed)
        with atomic_path(out) as temporary:
            parquet.write_table(table, temporary)
        facts: dict[str, Any] = {"rows": table.num_rows, "sessions": options.sessions}
        sentence = f"{table.num_rows:,} impressions of {options.sessions:,} sessions are in {out}"
    else:
        with ignore_few_relevant():
            log = simulate_clicks(dataset, shown, options.clicks, **world, rng=seed)
        log.save(out)
        facts = diagnose(log).to_dict()
        sentence = f"{log!r} is in {out}; describe it with: countersample log check {out}"
    if json:
        more = {"relevance": items.to_dict(), "warnings": warnings}
        console.show_json({"out": str(out), **facts, **more})
    else:
        console.show(items.sentence(), sentence)


def _parse_contexts(
    texts: dict[str, str], offset: int
) -> dict[str, tuple[float, PositionBias]] | None:
    """Read the share and γ of each context: ``0.6:1.5``."""
    from countersample import PositionBias

    contexts = {}
    for name, text in texts.items():
        share, _, gamma = text.partition(":")
        try:
            contexts[name] = (float(share), PositionBias(float(gamma), offset))
        except ValueError:
            raise ParameterError(
                f"--contexts has {text!r}, expected name=share:gamma, as in phone=0.6:1.5"
            ) from None
    return contexts or None
