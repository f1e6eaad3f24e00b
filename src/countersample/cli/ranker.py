"""``countersample train``, ``evaluate`` and ``rank``: rankers made, measured and used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from countersample._files import check_writable
from countersample.cli import _show
from countersample.cli._first_use import compile_ahead
from countersample.cli._models import Model, WarmStart
from countersample.cli._options import (
    Bits,
    Cache,
    Exclude,
    Fold,
    Impute,
    Include,
    Json,
    Safety,
    Seed,
    Transform,
    parse_bits,
    parse_ids,
    parse_names,
)
from countersample.cli.clicks import DataPath, note_files
from countersample.errors import ParameterError

if TYPE_CHECKING:
    from countersample.rankers._saved import SavedScorer

RankerPath = Annotated[Path, typer.Argument(help="A ranker written by fit or train.")]
METRICS = "ndcg@10,ndcg@5,precision@10,mrr"


def train(
    data: DataPath,
    log: Annotated[Path, typer.Argument(help="A click log of that data (.parquet).")],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="The ranker to write.")],
    model: Model = None,
    warm_start: WarmStart = None,
    method: Annotated[
        str | None, typer.Option(help="countersample, ips or naive; boosting: ips or naive.")
    ] = None,
    unit: Annotated[str | None, typer.Option(help="query, pair or click.")] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            help="rank, log-rank, dcg, squared-rank, precision@k, log-rank-paper or dcg-paper; not "
            "linear: smooth-rank, softmax, … as well."
        ),
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option(help="Of a linear ranker: dog, sgd, adam, adagrad or amsgrad.")
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(help="A linear ranker needs none.")] = None,
    steps: Annotated[
        int | None, typer.Option(help="Of a linear ranker; decided by the log if left out.")
    ] = None,
    safety: Safety = None,
    clip: Annotated[float | None, typer.Option(help="The smallest propensity.")] = None,
    normalize: Annotated[
        str | None,
        typer.Option(
            help="minmax, root-minmax (roots of features with heavy tails), standard, "
            "query-minmax or none."
        ),
    ] = None,
    impute: Impute = None,
    transform: Transform = None,
    bits: Bits = None,
    include: Include = None,
    exclude: Exclude = None,
    judge: Annotated[
        bool,
        typer.Option(
            help="Estimate the gain over what was logged: five trainings more, each without a "
            "part of the queries."
        ),
    ] = True,
    fold: Fold = None,
    cache: Cache = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Train a ranker on a click log: linear, neural or boosted trees."""
    compile_ahead()
    from countersample import ClickLog
    from countersample._progress import share_progress
    from countersample.data.load import load_train
    from countersample.fitting import judge_training
    from countersample.fitting.models import make_ranker, model_of
    from countersample.options import RankerOptions
    from countersample.rankers._files import check_name
    from countersample.rankers.chosen import chosen_settings

    options = RankerOptions(
        model=model, warm_start=warm_start, method=method, unit=unit, objective=objective,
        optimizer=optimizer, learning_rate=learning_rate, steps=steps, safety=safety, clip=clip,
        normalize=normalize, impute=impute, transform=transform,
    )  # type: ignore[arg-type] # fmt: skip
    check_name(out)
    check_writable(out)
    ranker = make_ranker(options, seed=seed)
    model = model_of(ranker)
    note_files(data, fold)
    n_bits = parse_bits(bits)
    roots = ranker.normalize == "root-minmax" or ranker.feature_transform == "root"
    # "auto" looks at the features that are taken; the cache has codes without roots
    takes_all = include is None and exclude is None and not roots
    whole = load_train(
        data, fold=fold, bits=n_bits if takes_all else None, cache=cache, progress=True
    )
    dataset = whole.select_features(parse_names(include), drop=parse_names(exclude))
    clicks = ClickLog.load(log, whole).replace(fingerprint=dataset.fingerprint)
    if n_bits is not None and not takes_all:
        dataset = dataset.compact(n_bits, roots=roots)
    with share_progress(f"training {out.name}") as report:
        ranker.fit_log(dataset, clicks, progress=report)
    ranker.provenance_ |= {
        "data": data.resolve().name,
        "log": {"file": log.name},
        "propensities": "as in the log",
    }
    judged = None
    if judge:
        with share_progress(f"judging {out.name}") as report:
            judged = judge_training(ranker, dataset, clicks, seed=seed, progress=report)
        if ranker.path_ is not None and ranker.path_.keeps_logged:
            judged = replace(judged, verdict=f"As before: {ranker.path_.sentence}")
        ranker.provenance_ |= judged.provenance
    ranker.save(out)
    found = chosen_settings(ranker)
    if json:
        _show.as_json(
            {
                "out": str(out),
                "model": model,
                "n_clicks": clicks.n_clicks,
                "n_features": ranker.n_features_in_,
                **found,
                "path": None if ranker.path_ is None else ranker.path_.to_dict(),
                **({} if judged is None else judged.to_dict()),
            }
        )
        return
    _show_trained(model, clicks.n_clicks, ranker.get_params(), found)
    if ranker.path_ is not None:
        _show.paragraph(ranker.path_.sentence)
    if judged is not None:
        if judged.gain is not None:
            _show.line()
            _show.gain(judged.gain)
            _show.line()
        _show.paragraph(judged.verdict)
        for warning in judged.warnings:
            _show.paragraph(f"Warning: {warning}")
    _show.line(f"The ranker is in {out}; measure it with: countersample evaluate {out} DATA")


def _show_trained(
    model: str, n_clicks: float, settings: dict[str, Any], found: dict[str, Any]
) -> None:
    drawn = f", by {settings['unit']}" if "unit" in settings else ""
    lines = [
        ("clicks", f"{n_clicks:,.0f}"),
        ("model", model),
        ("method", f"{settings['method']}{drawn}"),
        ("objective", settings["objective"]),
    ]
    lines += [(name, f"{found[name]:,}") for name in ("steps", "trees") if name in found]
    if "learning_rate" in found:
        lines.append(("learning rate", f"{found['learning_rate']:.3g}"))
    if settings.get("feature_transform") is not None:
        lines.append(("transform", found.get("transform", settings["feature_transform"])))
    if found["clip"] is not None:
        lines.append(("clipped at", f"{found['clip']:.3g}"))
    _show.pairs(lines, indent=0)


def evaluate(
    ranker: RankerPath,
    data: DataPath,
    *,
    metrics: Annotated[str, typer.Option(help="Metrics by name, with commas.")] = METRICS,
    no_relevant: Annotated[
        str, typer.Option(help="What a query without relevant items scores: skip, zero or one.")
    ] = "skip",
    fold: Fold = None,
    cache: Cache = None,
    json: Json = False,
) -> None:
    """Measure a ranker on labelled data."""
    from countersample import evaluate as evaluate_scores
    from countersample.clicks.impressions.features import is_labelled_data
    from countersample.data.load import load
    from countersample.rankers.labelled_tables import read_labelled
    from countersample.rankers.loading import load_scorer

    loaded = load_scorer(ranker)
    names = [name.strip() for name in metrics.split(",")]
    note_files(data, fold)
    if is_labelled_data(data) or fold is not None or not data.exists():
        parts = load(data, fold=fold, cache=cache, progress=True)
    else:
        parts = {data.name: read_labelled(loaded, data)}
    results = {
        part: evaluate_scores(loaded.predict(dataset), dataset, names, no_relevant=no_relevant)
        for part, dataset in parts.items()
    }
    if json:
        _show.as_json(results)
        return
    _show.table(
        ["data", *names],
        [[part, *(f"{means[name]:.4f}" for name in names)] for part, means in results.items()],
    )


def rank(
    ranker: RankerPath,
    data: Annotated[
        str,
        typer.Argument(
            help="A table with the ranker's features (Parquet, CSV, TSV, JSON lines: a file, a "
            "folder, a 'glob*'), LETOR text, or a dataset folder."
        ),
    ],
    *,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="Where to write: .parquet, .csv, .jsonl, or text with tabs."
        ),
    ],
    columns: Annotated[
        str | None,
        typer.Option(help="The table's own names of the ids: query_id=q,item_id=doc."),
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="Only so many items of each query, the best first.")
    ] = None,
    fold: Fold = None,
    cache: Cache = None,
    json: Json = False,
) -> None:
    """Score the items of a file: query, item, score and rank, a row an item in its order."""
    from countersample.clicks.impressions.features import is_labelled_data
    from countersample.rankers.loading import load_scorer
    from countersample.rankers.ranking_files import check_form, rank_file

    check_writable(out)
    check_form(out)
    loaded = load_scorer(ranker)
    ids = parse_ids(columns)
    if is_labelled_data(data):
        if ids:
            raise ParameterError(
                "--columns is for tables, and LETOR text has no names: leave it out"
            )
        n_rows = _rank_dataset(loaded, Path(data), out, top, fold, cache)
    elif fold is not None or cache is not None:
        raise ParameterError(f"{data} is a table: leave out --fold and --cache, of LETOR text")
    else:
        n_rows = rank_file(
            loaded, data, out, query=ids.get("query_id"), item=ids.get("item_id"), top=top
        )  # fmt: skip
    if json:
        _show.as_json({"out": str(out), "rows": n_rows})
    else:
        _show.line(f"{n_rows:,} scores are in {out}")


def _rank_dataset(
    loaded: SavedScorer,
    data: Path,
    out: Path,
    top: int | None,
    fold: int | None,
    cache: Path | None,
) -> int:
    """Rank LETOR text or a dataset folder; return how many rows were written."""
    import numpy as np
    import pyarrow as pa

    from countersample.data.load import load_train
    from countersample.evaluation.ranking import ranks_of
    from countersample.rankers.ranking_files import write_table
    from countersample.rankers.serving import column_of

    note_files(data, fold)
    dataset = load_train(data, fold=fold, cache=cache, progress=True)
    sizes = dataset.query_sizes
    scores = loaded.predict(dataset)
    columns = {
        "query": np.repeat(dataset.query_ids, sizes),
        "item": np.arange(dataset.n_items) - np.repeat(dataset.offsets[:-1], sizes),
        "score": scores,
        "rank": ranks_of(scores, dataset.offsets),
    }
    if top is not None:
        rows = np.flatnonzero(columns["rank"] <= top)
        query = np.repeat(np.arange(dataset.n_queries), sizes)
        rows = rows[np.lexsort((columns["rank"][rows], query[rows]))]
        columns = {name: values[rows] for name, values in columns.items()}
    table = pa.table({name: column_of(values) for name, values in columns.items()})
    write_table(table, out)
    return int(table.num_rows)
