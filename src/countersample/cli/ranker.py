"""``countersample train``, ``evaluate`` and ``rank``: rankers trained, measured and applied."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from countersample._files import check_writable
from countersample.cli import _show
from countersample.cli._first_use import compile_ahead
from countersample.cli._options import (
    FEATURES,
    RANKER_OPTIONS,
    Cache,
    Fold,
    Json,
    Names,
    Out,
    Pairs,
    Seed,
    parse_bits,
)
from countersample.cli.simulate import note_files
from countersample.errors import ParameterError
from countersample.options import RankerOptions  # noqa: TC001 (cyclopts reads it)

if TYPE_CHECKING:
    from countersample.rankers._saved import SavedScorer

METRICS = ("ndcg@10", "ndcg@5", "precision@10", "mrr")


def train(
    data: Path,
    log: Path,
    /,
    *,
    out: Out,
    options: RankerOptions = RANKER_OPTIONS,
    bits: Literal["8", "16", "auto"] | None = None,
    include: Annotated[Names, Parameter(group=FEATURES)] = (),
    exclude: Annotated[Names, Parameter(group=FEATURES)] = (),
    evaluation: Annotated[bool, Parameter(negative="--no-evaluation")] = True,
    fold: Fold = None,
    cache: Cache = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Train a ranker on a click log: linear, neural or boosted trees.

    Parameters
    ----------
    data
        Labelled data: LETOR text, Parquet, a saved dataset, a folder of splits.
    log
        A click log of that data (.parquet).
    out
        The ranker to write.
    bits
        Features in 8 or 16 bits; auto takes the fewest that lose little.
    include
        The features to use: price,sales (for LETOR text, their numbers). All by default.
    exclude
        The features to leave out: title,ctr (for LETOR text, their numbers).
    evaluation
        Estimate the gain over the logging policy: trains once more per held-out fold.
    """
    compile_ahead()
    from countersample import ClickLog
    from countersample._progress import share_progress
    from countersample.data.load import load_train
    from countersample.fitting import judge_training
    from countersample.fitting.models import make_ranker, model_of
    from countersample.rankers._files import check_name
    from countersample.rankers.chosen import chosen_settings

    check_name(out)
    check_writable(out)
    ranker = make_ranker(options, seed=seed)
    model = model_of(ranker)
    note_files(data, fold)
    n_bits = parse_bits(bits)
    roots = ranker.normalize == "root-minmax" or ranker.feature_transform == "root"
    # "auto" looks at the features that are taken; the cache has codes without roots
    takes_all = not include and not exclude and not roots
    whole = load_train(
        data, fold=fold, bits=n_bits if takes_all else None, cache=cache, progress=True
    )
    dataset = whole.select_features(include or None, drop=exclude or None)
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
    gain_estimate = None
    if evaluation:
        with share_progress(f"evaluating {out.name}") as report:
            gain_estimate = judge_training(ranker, dataset, clicks, seed=seed, progress=report)
        if ranker.path_ is not None and ranker.path_.keeps_logged:
            gain_estimate = replace(gain_estimate, verdict=f"As before: {ranker.path_.sentence}")
        ranker.provenance_ |= gain_estimate.provenance
    ranker.save(out)
    chosen = chosen_settings(ranker)
    if json:
        _show.as_json(
            {
                "out": str(out),
                "model": model,
                "n_clicks": clicks.n_clicks,
                "n_features": ranker.n_features_in_,
                **chosen,
                "path": None if ranker.path_ is None else ranker.path_.to_dict(),
                **({} if gain_estimate is None else gain_estimate.to_dict()),
            }
        )
        return
    _show_trained(model, clicks.n_clicks, ranker.get_params(), chosen)
    if ranker.path_ is not None:
        _show.paragraph(ranker.path_.sentence)
    if gain_estimate is not None:
        if gain_estimate.gain is not None:
            _show.line()
            _show.gain(gain_estimate.gain)
            _show.line()
        _show.paragraph(gain_estimate.verdict)
        _show.warnings(gain_estimate.warnings)
    _show.line(f"The ranker is in {out}; measure it with: countersample evaluate {out} DATA")


def _show_trained(
    model: str, n_clicks: float, settings: dict[str, Any], chosen: dict[str, Any]
) -> None:
    drawn = f", by {settings['unit']}" if "unit" in settings else ""
    lines = [
        ("clicks", f"{n_clicks:,.0f}"),
        ("model", model),
        ("method", f"{settings['method']}{drawn}"),
        ("objective", settings["objective"]),
    ]
    lines += [(name, f"{chosen[name]:,}") for name in ("steps", "trees") if name in chosen]
    if "learning_rate" in chosen:
        lines.append(("learning rate", f"{chosen['learning_rate']:.3g}"))
    if settings.get("feature_transform") is not None:
        lines.append(("transform", chosen.get("transform", settings["feature_transform"])))
    if chosen["clip"] is not None:
        lines.append(("clipped at", f"{chosen['clip']:.3g}"))
    _show.pairs(lines, indent=0)


def evaluate(
    ranker: Path,
    data: Path,
    /,
    *,
    metrics: Names = METRICS,
    no_relevant: Literal["skip", "zero", "one"] = "skip",
    fold: Fold = None,
    cache: Cache = None,
    json: Json = False,
) -> None:
    """Measure a ranker on labelled data.

    Parameters
    ----------
    ranker
        A ranker that fit or train wrote.
    data
        Labelled data: LETOR text, a table, a saved dataset, a folder of splits.
    metrics
        Metrics by name.
    no_relevant
        The score of a query without relevant items.
    """
    from countersample import evaluate as evaluate_scores
    from countersample.clicks.impressions.features import is_labelled_data
    from countersample.data.load import load
    from countersample.rankers.labelled_tables import read_labelled
    from countersample.rankers.loading import load_scorer

    loaded = load_scorer(ranker)
    names = list(metrics)
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
    ranker: Path,
    data: str,
    /,
    *,
    out: Out,
    columns: Pairs | None = None,
    top: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    fold: Fold = None,
    cache: Cache = None,
    json: Json = False,
) -> None:
    """Score the items of a file: one row per item, with query, item, score and rank.

    Parameters
    ----------
    ranker
        A ranker that fit or train wrote.
    data
        A table with the ranker's features (Parquet, CSV, TSV, JSON lines: a file, a folder, a
        'glob*'), LETOR text, or a dataset folder.
    out
        The file to write: .parquet, .csv, .jsonl, or text with tabs.
    columns
        Your names of the id columns: query_id=q,item_id=doc. Other columns of a log are ignored.
    top
        Write only this many items per query, the best first.
    """
    from countersample.clicks.impressions.features import is_labelled_data
    from countersample.rankers.loading import load_scorer
    from countersample.rankers.ranking_files import check_form, rank_file

    check_writable(out)
    check_form(out)
    loaded = load_scorer(ranker)
    ids = _id_columns(columns or {})
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


def _id_columns(columns: dict[str, str]) -> dict[str, str]:
    """Return the names of the ids; names of other columns of a log are for other commands."""
    from countersample.clicks.impressions.columns import CANONICAL, IDS

    for name in columns:
        if name not in CANONICAL:
            raise ParameterError(f"--columns has {name!r}, expected query_id=… and item_id=…")
    return {name: columns[name] for name in IDS if name in columns}


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
