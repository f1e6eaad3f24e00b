"""``countersample demo``: the whole way on data made on the spot."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from countersample.cli import _show


def demo(
    *,
    out: Annotated[Path, typer.Option(help="The folder for what the demo writes.")] = Path("demo"),
    queries: Annotated[int, typer.Option(help="Number of queries.")] = 2000,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Make a synthetic set, write and read it as LETOR text, and score rankings of it."""
    import numpy as np

    from countersample import evaluate, load_letor, save_letor, synthetic

    def say(text: str) -> None:
        if not json:
            _show.line(text)

    rng = np.random.default_rng(seed)
    say("Making judged data of the shape of Yahoo's …")
    made = synthetic("yahoo-like", n_queries=queries, rng=rng)
    say(f"  {made!r}")

    path = out / "yahoo-like.txt"
    out.mkdir(parents=True, exist_ok=True)
    say("Writing it as LETOR text and reading it back …")
    save_letor(made, path)
    load_letor(path, threads=1)  # so that the time below is not that of compiling
    begin = time.perf_counter()
    data = load_letor(path)
    seconds = time.perf_counter() - begin
    n_bytes = path.stat().st_size
    same = "the same numbers" if data == made else "NOT the same numbers"
    say(f"  {same}, {_show.size(n_bytes)} in {seconds:.2f} s ({n_bytes / seconds / 1e6:,.0f} MB/s)")

    say("Scoring rankings of it …")
    data = data.normalized("query-minmax")
    train, test = data.split(0.5, 0.5, rng=rng)
    centred = train.features - train.features.mean(axis=0)
    usefulness = centred.T @ (train.labels - train.labels.mean())
    weights = np.linalg.lstsq(centred, train.labels - train.labels.mean(), rcond=1e-4)[0]
    names = ["ndcg@10", "precision@5", "mrr", "arp"]
    rankings = {
        "random order": rng.random(test.n_items),
        "best single feature": test.features[:, int(usefulness.argmax())],
        "least squares on all features": test.features @ weights,
        "by the labels themselves": test.labels,
    }
    results = {
        ranking: evaluate(scores, test, names, no_relevant="skip")
        for ranking, scores in rankings.items()
    }
    if json:
        _show.as_json({"file": str(path), "read_mb_per_s": n_bytes / seconds / 1e6} | results)
        return
    _show.line()
    _show.table(
        ["ranking of held-out queries", *names],
        [
            [ranking, *(f"{means[name]:.3f}" for name in names[:3]), f"{means['arp']:.2f}"]
            for ranking, means in results.items()
        ],
    )
    _show.line()
    _show.line(f"The data is in {path}; look at it with: countersample data info {path}")
