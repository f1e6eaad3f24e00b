"""``countersample train``, ``evaluate`` and ``rank``: rankers made, measured and used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from countersample.cli import _show
from countersample.cli._options import Json  # noqa: TC001 (typer reads it)
from countersample.cli.clicks import DataPath, load_train

RankerPath = Annotated[Path, typer.Argument(help="A ranker written by train.")]
METRICS = "ndcg@10,ndcg@5,precision@10,mrr"


def train(
    data: DataPath,
    log: Annotated[Path, typer.Argument(help="A click log of that data (.parquet).")],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="The ranker to write.")],
    method: Annotated[str, typer.Option(help="countersample, ips or naive.")] = "countersample",
    unit: Annotated[str, typer.Option(help="query, pair or click.")] = "query",
    objective: Annotated[str, typer.Option(help="rank, log-rank or dcg.")] = "rank",
    optimizer: Annotated[str, typer.Option(help="sgd, adam or adagrad.")] = "sgd",
    learning_rate: Annotated[
        float | None, typer.Option(help="Found from the clicks where left out.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Decided by the log where left out.")] = None,
    clip: Annotated[float | None, typer.Option(help="The smallest propensity.")] = None,
    normalize: Annotated[
        str, typer.Option(help="minmax, standard, query-minmax or none.")
    ] = "minmax",
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
    json: Json = False,
) -> None:
    """Train a linear ranker on a click log."""
    from countersample import ClickLog, CounterSampleRanker
    from countersample._progress import share_progress

    dataset = load_train(data)
    clicks = ClickLog.load(log, dataset)
    ranker = CounterSampleRanker(
        method=method,
        unit=unit,
        objective=objective,
        optimizer=optimizer,
        learning_rate="auto" if learning_rate is None else learning_rate,
        steps=steps,
        clip=clip,
        normalize=None if normalize == "none" else normalize,
        random_state=seed,
    )
    with share_progress(f"training {out.name}") as report:
        ranker.fit_log(dataset, clicks, report=report)
    ranker.origin_ |= {"data": data.resolve().name, "log": {"file": log.name}}
    ranker.save(out)
    if json:
        _show.as_json(
            {
                "out": str(out),
                "learning_rate": ranker.learning_rate_,
                "n_steps": ranker.n_steps_,
                "n_clicks": clicks.n_clicks,
                "n_features": ranker.n_features_in_,
            }
        )
        return
    _show.pairs(
        [
            ("clicks", f"{clicks.n_clicks:,.0f}"),
            ("method", f"{method}, by {unit}"),
            ("steps", f"{ranker.n_steps_:,}"),
            (
                "learning rate",
                f"{ranker.learning_rate_:.3g}" + (" (found)" if learning_rate is None else ""),
            ),
        ],
        indent=0,
    )
    _show.line(f"The ranker is in {out}; measure it with: countersample evaluate {out} DATA")


def evaluate(
    ranker: RankerPath,
    data: DataPath,
    *,
    metrics: Annotated[str, typer.Option(help="Metrics by name, with commas.")] = METRICS,
    no_relevant: Annotated[
        str, typer.Option(help="What a query without relevant items scores: skip, zero or one.")
    ] = "skip",
    json: Json = False,
) -> None:
    """Measure a ranker on judged data."""
    from countersample import evaluate as evaluate_scores
    from countersample.data.load import load
    from countersample.rankers import load_ranker

    loaded = load_ranker(ranker)
    names = [name.strip() for name in metrics.split(",")]
    results = {
        part: evaluate_scores(loaded.predict(dataset), dataset, names, no_relevant=no_relevant)
        for part, dataset in load(data, progress=True).items()
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
    data: DataPath,
    *,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Where to write: .parquet, or text with tabs.")
    ],
    json: Json = False,
) -> None:
    """Score the items of a file: query, item, score and rank, a row an item in its order."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import csv, parquet

    from countersample._files import atomic_path
    from countersample.rankers import load_ranker

    loaded = load_ranker(ranker)
    dataset = load_train(data)
    sizes = dataset.query_sizes
    table = pa.table(
        {
            "query": np.repeat(dataset.query_ids, sizes),
            "item": np.arange(dataset.n_items) - np.repeat(dataset.offsets[:-1], sizes),
            "score": loaded.predict(dataset),
            "rank": loaded.rank(dataset),
        }
    )
    with atomic_path(out) as temporary:
        if out.suffix == ".parquet":
            parquet.write_table(table, temporary)
        else:
            csv.write_csv(table, temporary, csv.WriteOptions(delimiter="\t"))
    if json:
        _show.as_json({"out": str(out), "rows": table.num_rows})
    else:
        _show.line(f"{table.num_rows:,} scores are in {out}")
