"""``countersample data`` and ``simulate``: known sets, labelled data, and clicks on them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from countersample._text import paragraph
from countersample.cli import console
from countersample.cli import parameters as p
from countersample.cli.console import Output, note_files
from countersample.errors import DataError, ParameterError
from countersample.options import SimulationOptions  # noqa: TC001 (cyclopts reads it)

if TYPE_CHECKING:
    from countersample.data import RankingDataset

Clip = Annotated[bool, Parameter(help="Read numbers beyond float32 as 3.4e38 (Istella needs it).")]


def list_(*, data_dir: p.DataDir = None) -> Output:
    """List the known sets, and which are on this machine."""
    from countersample.data import catalogue

    folders = catalogue.find_all(data_dir)
    known = {**catalogue.known(), **catalogue.known_logs()}
    rows = [
        known[name].to_dict() | {"folder": folder and str(folder)}
        for name, folder in folders.items()
    ]
    return Output(catalogue.summarize(folders), rows)


def info(
    path: str,
    /,
    *,
    verify: bool = False,
    name: str | None = None,
    data_dir: p.DataDir = None,
    fold: p.Fold = None,
    clip: Clip = False,
) -> Output:
    """Describe or verify a file, a folder or a known set.

    :param path: LETOR text, a table (Parquet, CSV …) of labelled data or of features by query_id
        and item_id, a folder of those, or the name of a known set.
    :param verify: Check that a folder is a complete copy of a known set; exit with 1 if not.
    :param name: With --verify: the known set to compare with.
    """
    from countersample.data import catalogue
    from countersample.data.labelled_files import load
    from countersample.logs.features import columns_of

    if verify:
        result = catalogue.verify(path, name, progress=True)
        return Output.of(result, code=0 if result.ok else 1)
    known = {**catalogue.known(), **catalogue.known_logs()}
    if path in known and not Path(path).exists():
        folder = catalogue.find_all(data_dir)[path]
        values = known[path].to_dict() | {"folder": folder and str(folder)}
        return Output(known[path].describe(folder), values)
    columns = () if fold is not None else columns_of(path)
    if {"query_id", "item_id"} <= set(columns):
        if "click" in columns:
            raise DataError(
                f"{path}: has a column 'click', as a log of impressions has: "
                f"countersample log check {path}"
            )
        return _describe_features(path)
    note_files(path, fold)
    return _describe_labelled(load(path, fold=fold, clip=clip, progress=True))


def _describe_labelled(parts: dict[str, RankingDataset]) -> Output:
    """Describe labelled data, and what its features lose in 8 and 16 bits."""
    from countersample.data.compact import loss_reports

    texts: list[str] = []
    values = {}
    for part, dataset in parts.items():
        description, losses = dataset.describe(), loss_reports(dataset)
        texts += [part, description.summary(), *(paragraph(each.sentence) for each in losses)]
        values[part] = description.to_dict() | {
            "fingerprint": dataset.fingerprint,
            "compact": [{"bits": each.bits, **each.columns_of_frame()} for each in losses],
        }
    return Output("\n".join(texts), values)


def _describe_features(path: str) -> Output:
    """Describe a table of features by query and item, as `fit` reads it by default."""
    from countersample.logs import read_features

    table, name = read_features(path), Path(path).name
    for text in table.warnings:
        console.note(f"countersample: {text}")
    return Output(f"{name}\n{table.summary()}", {name: table.to_dict()})


def convert(source: Path, target: Path, /, *, clip: Clip = False, bits: p.Bits = None) -> Output:
    """Convert labelled data to a folder that opens at once, to LETOR text or to Parquet.

    With --bits the folder has features in 8 or 16 bits: training reads less, and is faster.

    :param source: LETOR text, Parquet, CSV or a saved dataset.
    :param target: NAME (a folder that opens at once), NAME.txt[.gz|.bz2|.xz|.zst] or NAME.parquet.
    """
    from countersample.data.labelled_files import convert as convert_data

    dataset = convert_data(source, target, clip=clip, bits=bits, progress=True)
    loss = "" if dataset.bits is None else f"\n{dataset.compact_report(dataset.bits).sentence}"
    return _describe_target(dataset, target, loss)


def make(
    shape: Literal["yahoo-like", "istella-like", "tiny"],
    target: Path,
    /,
    *,
    queries: Annotated[int | None, p.WHOLE] = None,
    seed: p.Seed = 0,
) -> Output:
    """Make a synthetic set of labelled data.

    :param shape: The set that it resembles.
    :param target: The file or folder to write, as for convert.
    :param queries: The number of queries.
    """
    from countersample.data import synthetic
    from countersample.data.labelled_files import check_target, save

    check_target(target)  # before the work
    dataset = synthetic(shape, n_queries=queries, rng=seed)
    save(dataset, target)
    return _describe_target(dataset, target)


def _describe_target(dataset: RankingDataset, target: Path, closing: str = "") -> Output:
    names = ("n_queries", "n_items", "n_features", "fingerprint")
    values = {"target": str(target)} | {name: getattr(dataset, name) for name in names}
    return Output(f"{dataset!r} is in {target}{closing}", values)


def simulate(
    data: p.Data,
    /,
    *,
    out: p.Out,
    options: SimulationOptions = p.SIMULATION_OPTIONS,
    fold: p.Fold = None,
    seed: p.Seed = 0,
) -> Output:
    """Simulate users who click on rankings.

    :param out: The click log to write (.parquet).
    """
    from pyarrow import parquet

    from countersample import PositionBias, simulate_clicks
    from countersample._files import atomic_path
    from countersample.clicks import diagnose, simulate_impressions
    from countersample.clicks.policies import arrange
    from countersample.clicks.relevance import ignore_few_relevant, relevance_of, smallest_relevant
    from countersample.data.labelled_files import load_train
    from countersample.study.references import score_policies

    note_files(data, fold)
    dataset = load_train(data, fold=fold, progress=True)
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
    facts: dict[str, Any]
    with ignore_few_relevant():
        if options.sessions:
            table = simulate_impressions(dataset, shown, options.sessions, **world, rng=seed)
            with atomic_path(out) as temporary:
                parquet.write_table(table, temporary)
            facts = {"rows": table.num_rows, "sessions": options.sessions}
            text = f"{table.num_rows:,} impressions of {options.sessions:,} sessions are in {out}"
        else:
            log = simulate_clicks(dataset, shown, options.clicks, **world, rng=seed)
            log.save(out)
            facts = diagnose(log).to_dict()
            text = f"{log!r} is in {out}; describe it with: countersample log check {out}"
    values = {"out": str(out), **facts, "relevance": items.to_dict(), "warnings": warnings}
    return Output(f"{items.sentence()}\n{text}", values)


def _parse_contexts(texts: dict[str, str], offset: int) -> dict[str, Any] | None:
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
