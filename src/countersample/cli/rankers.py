"""``countersample train``, ``evaluate``, ``rank`` and ``export``.

Tables are ranked, and cut by ``--top``, in `rankers.rank_tables`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from countersample import _text
from countersample._files import check_writable
from countersample.cli import parameters as p
from countersample.cli.console import Output, note_files
from countersample.errors import ParameterError
from countersample.options import ExportOptions, RankerOptions  # noqa: TC001 (cyclopts reads them)

METRICS = ("ndcg@10", "ndcg@5", "precision@10", "mrr")
RankerFile = Annotated[Path, Parameter(help="A ranker that fit or train wrote.")]


def train(
    data: p.Data,
    log: Path,
    /,
    *,
    out: p.Out,
    options: RankerOptions = p.RANKER_OPTIONS,
    bits: p.Bits = None,
    include: Annotated[p.Names, Parameter(group=p.FEATURES)] = (),
    exclude: Annotated[p.Names, Parameter(group=p.FEATURES)] = (),
    evaluation: Annotated[bool, Parameter(negative="--no-evaluation")] = True,
    fold: p.Fold = None,
    seed: p.Seed = 0,
) -> Output:
    """Train a ranker on a click log of labelled data.

    :param log: A click log of that data (.parquet).
    :param out: The ranker to write.
    :param include: The features to use: price,sales (for LETOR text, their numbers).
    :param exclude: The features to leave out: title,ctr (for LETOR text, their numbers).
    :param evaluation: Estimate the gain over the logging policy, which trains once more per fold.
    """
    from countersample import ClickLog
    from countersample._progress import share_progress
    from countersample.data.labelled_files import load_train
    from countersample.fitting import TrainedRanker, evaluate_training
    from countersample.fitting.models import make_ranker
    from countersample.rankers.files import check_name

    check_name(out)
    check_writable(out)
    ranker = make_ranker(options, seed=seed)
    note_files(data, fold)
    dataset = load_train(data, fold=fold, progress=True)
    clicks = ClickLog.load(log, dataset)
    dataset = dataset.select_features(include or None, drop=exclude or None)
    clicks = clicks.replace(fingerprint=dataset.fingerprint)
    if bits is not None:
        dataset = dataset.compact(bits)
    with share_progress(f"training {out.name}") as progress:
        ranker.fit_log(dataset, clicks, progress=progress)
    ranker.provenance_ |= {"data": data.resolve().name, "log": {"file": log.name}}
    ranker.provenance_["propensities"] = "as in the log"
    result = TrainedRanker(ranker, clicks.n_clicks)
    if evaluation:
        with share_progress(f"evaluating {out.name}") as progress:
            result = evaluate_training(ranker, dataset, clicks, seed=seed, progress=progress)
        ranker.provenance_ |= result.provenance
    ranker.save(out)
    closing = f"The ranker is in {out}; measure it with: countersample evaluate {out} DATA"
    return Output.of(result, closing, out=str(out))


def evaluate(
    ranker: RankerFile,
    data: p.Data,
    /,
    *,
    metrics: p.Names = METRICS,
    no_relevant: Literal["skip", "zero", "one"] = "skip",
    fold: p.Fold = None,
) -> Output:
    """Measure a ranker on labelled data.

    :param metrics: Metrics by name.
    :param no_relevant: The score of a query without relevant items.
    """
    from countersample import evaluate as evaluate_scores
    from countersample.data.labelled_files import load
    from countersample.logs.features import is_labelled_data
    from countersample.rankers.files import load_scorer
    from countersample.rankers.rank_tables import read_labelled

    scorer = load_scorer(ranker)
    names = list(metrics)
    note_files(data, fold)
    if is_labelled_data(data) or fold is not None or not data.exists():
        parts = load(data, fold=fold, progress=True)
    else:
        parts = {data.name: read_labelled(scorer, data)}
    results = {
        part: evaluate_scores(scorer.predict(dataset), dataset, names, no_relevant=no_relevant)
        for part, dataset in parts.items()
    }
    rows = [[part, *(f"{means[name]:.4f}" for name in names)] for part, means in results.items()]
    return Output(_text.table(["data", *names], rows), results)


def rank(
    ranker: RankerFile,
    data: str,
    /,
    *,
    out: p.Out,
    columns: p.Pairs | None = None,
    top: Annotated[int | None, p.WHOLE, Parameter(validator=Number(gte=1))] = None,
    fold: p.Fold = None,
) -> Output:
    """Score the items of a file.

    The output has one row per item, with query, item, score and rank.

    :param data: A table with the ranker's features (Parquet, CSV, TSV, JSON lines: a file, a
        folder, a 'glob*'), LETOR text, or a dataset folder.
    :param out: The file to write: .parquet, .csv, .jsonl, or text with tabs.
    :param columns: Your names of the id columns: query_id=q,item_id=doc. Others are ignored.
    :param top: Write only this many items per query, the best first.
    """
    from countersample.data.labelled_files import load_train
    from countersample.logs.columns import CANONICAL, IDS
    from countersample.logs.features import is_labelled_data
    from countersample.rankers.files import load_scorer
    from countersample.rankers.rank_tables import check_form, rank_dataset, rank_file

    check_writable(out)
    check_form(out)
    scorer = load_scorer(ranker)
    for name in columns or {}:
        if name not in CANONICAL:
            raise ParameterError(f"--columns has {name!r}, expected query_id=… and item_id=…")
    # Names of other columns of a log may come from countersample.toml: they are for other commands.
    ids = {name: theirs for name, theirs in (columns or {}).items() if name in IDS}
    if is_labelled_data(data):
        if ids:
            raise ParameterError("--columns is for tables; LETOR text has no names: leave it out")
        note_files(data, fold)
        dataset = load_train(data, fold=fold, progress=True)
        n_rows = rank_dataset(scorer, dataset, out, top=top)
    elif fold is not None:
        raise ParameterError(f"{data} is a table: leave out --fold, which is for LETOR text")
    else:
        query, item = ids.get("query_id"), ids.get("item_id")
        n_rows = rank_file(scorer, data, out, query=query, item=item, top=top)
    return Output(f"{n_rows:,} scores are in {out}", {"out": str(out), "rows": n_rows})


def export(ranker: RankerFile, /, *, out: p.Out, options: ExportOptions) -> Output:
    """Write a ranker for another system, and its model card.

    :param out: The model to write; its card is beside it.
    """
    from countersample.export import export as write_export
    from countersample.rankers import load_ranker

    return Output.of(write_export(load_ranker(ranker), out, options))
