"""``countersample demo``: why draw by weight, in a minute, on data made on the spot."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from countersample.cli import _show

if TYPE_CHECKING:
    from countersample.data import RankingDataset
    from countersample.study.demo.comparison import Comparison

_HEADER = (
    "method", "nDCG@10", "regret ×100", "steps to 99 %", "seconds", "speed-up", "learning rate"
)  # fmt: skip
_NOTES = (
    (
        "nDCG@10 is that of the averaged weights after the last step, on held-out queries with a "
        "relevant item, mean over the click logs. Regret is the mean distance to full supervision "
        "over the evaluation points, ± the 95 % interval over the logs."
    ),
    (
        "Steps to 99 %: when the mean curve first has 99 % of the highest mean of all methods. "
        "Seconds: those steps at the speed of one run on one core. Speed-up: steps of IPS-SGD over "
        "steps of this method (at least, where IPS-SGD never got there)."
    ),
)


def demo(
    *,
    data: Annotated[
        Path | None,
        typer.Option(help="Your own judged data: LETOR text, Parquet, or a folder of splits."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for what the demo writes.")] = Path("demo"),
    queries: Annotated[int, typer.Option(help="Queries of the synthetic set.")] = 3000,
    clicks: Annotated[int, typer.Option(help="Clicks to simulate.")] = 200_000,
    steps: Annotated[int, typer.Option(help="Steps of each run.")] = 60_000,
    seeds: Annotated[int, typer.Option(help="Click logs, each with its own runs.")] = 5,
    gamma: Annotated[float, typer.Option(help="Position bias.")] = 1.0,
    relevant: Annotated[
        float | None, typer.Option(help="Smallest relevant grade [3, or 1 if grades end below].")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Compare naive, IPS-weighted and CounterSample training on simulated clicks."""
    from countersample._progress import share_progress
    from countersample.study.demo.comparison import RATES, WIDE_RATES, compare
    from countersample.study.demo.curves import draw_curves, write_curves

    out.mkdir(parents=True, exist_ok=True)
    with share_progress("CounterSample demo") as report:
        report("judged data", 0.0)
        train_set, vali, test = _splits(data, queries)
        grade = relevant if relevant is not None else (3 if train_set.labels.max() >= 3 else 1)
        comparison = compare(
            train_set, vali, test,
            n_clicks=clicks, steps=steps, seeds=range(seeds), gamma=gamma, relevant=grade,
            n_points=min(100, steps), rates=RATES if data is None else WIDE_RATES, report=report,
        )  # fmt: skip
    write_curves(comparison, out / "curves.csv")
    draw_curves(comparison, out / "curves.png")
    rows = [_row(comparison, position) for position in range(len(comparison.results))]
    _write_page(comparison, train_set, rows, out, is_own=data is not None)
    if json:
        _show.as_json(_as_dict(comparison, out))
        return
    for text in _story(comparison, train_set, is_own=data is not None):
        _show.paragraph(text)
        _show.line()
    _show.table(_HEADER, rows)
    _show.line()
    for note in _NOTES:
        _show.paragraph(note)
    _show.line()
    _show.line(f"Learning curves: {out / 'curves.png'}, their numbers: {out / 'curves.csv'}")
    _show.line(f"Results are in {out / 'index.html'}")


def _splits(
    path: Path | None, n_queries: int
) -> tuple[RankingDataset, RankingDataset, RankingDataset]:
    from countersample.data import synthetic
    from countersample.data.load import load

    if path is None:
        made = synthetic("yahoo-like", n_queries=n_queries, rng=0).normalized("query-minmax")
        parts = made.split(0.7, 0.1, 0.2, rng=0)
    else:
        loaded = {name: part.normalized("query-minmax") for name, part in load(path).items()}
        if set(loaded) >= {"train", "vali", "test"}:
            parts = (loaded["train"], loaded["vali"], loaded["test"])
        else:
            whole = loaded["train"] if "train" in loaded else next(iter(loaded.values()))
            parts = whole.split(0.7, 0.1, 0.2, rng=0)
    train_set, vali, test = parts
    return train_set, vali, test


def _row(comparison: Comparison, position: int) -> list[str]:
    from countersample.study.findings.statistics import interval

    result = comparison.results[position]
    regrets = 100 * result.regrets(comparison.best)
    steps = comparison.steps_to(result)
    return [
        result.method.name + (f" ({result.n_diverged} diverged)" if result.n_diverged else ""),
        f"{result.mean_curve[-1]:.4f}",
        f"{regrets.mean():.2f} ± {interval(regrets):.2f}",
        "not reached" if steps is None else f"{steps:,}",
        "–" if steps is None else f"{steps / result.steps_per_second:.2f}",
        _speed_up(comparison, steps),
        f"{result.learning_rate:g}",
    ]


def _speed_up(comparison: Comparison, steps: int | None) -> str:
    by_name = {result.method.name: result for result in comparison.results}
    reference = comparison.steps_to(by_name["IPS-SGD"])
    if steps is None:
        return "–"
    if reference is None:
        return f"> {comparison.points[-1] / steps:.1f}×"
    return f"{reference / steps:.1f}×"


def _story(comparison: Comparison, train_set: RankingDataset, *, is_own: bool) -> list[str]:
    settings = comparison.settings
    origin = "your data" if is_own else "synthetic data of the shape of Yahoo's"
    return [
        (
            f"{len(settings['seeds'])} logs of {settings['n_clicks']:,} clicks each were simulated "
            f"on {origin}: {train_set.n_queries:,} queries, {train_set.n_items:,} items, "
            f"{train_set.n_features} features. The rankings shown came from a ranker trained on "
            f"{100 * settings['policy_fraction']:g} % of the queries; users look at rank r with "
            f"probability (1/r)^{settings['gamma']:g} and click one in ten of the items that are "
            "not relevant."
        ),
        (
            f"The logging ranker has nDCG@10 {comparison.policy:.4f}, one trained on all labels "
            f"{comparison.best:.4f}. A click weighs up to M = {settings['max_weight']:.0f}, "
            f"on average M̄ = {settings['mean_weight']:.2f}."
        ),
    ]


def _write_page(
    comparison: Comparison,
    train_set: RankingDataset,
    rows: list[list[str]],
    out: Path,
    *,
    is_own: bool,
) -> None:
    from countersample._version import __version__
    from countersample.study.demo.page import write_page

    write_page(
        out / "index.html",
        title="Learning from biased clicks: weigh them, or draw by weight?",
        paragraphs=_story(comparison, train_set, is_own=is_own),
        picture=out / "curves.png",
        alt="Learning curves: nDCG@10 on held-out queries against steps, a line a method",
        header=_HEADER,
        rows=rows,
        notes=_NOTES,
        command=shlex.join(["countersample", *sys.argv[1:]]),
        footer=f"countersample {__version__}; dataset {comparison.settings['dataset']}. "
        "The curves' numbers are in curves.csv beside this page.",
    )


def _as_dict(comparison: Comparison, out: Path) -> dict[str, Any]:
    return {
        "page": str(out / "index.html"),
        "settings": comparison.settings,
        "full_supervision": comparison.best,
        "logging_policy": comparison.policy,
        "methods": {
            result.method.name: {
                "ndcg@10": float(result.mean_curve[-1]),
                "regret": [float(value) for value in result.regrets(comparison.best)],
                "steps_to_99_percent": comparison.steps_to(result),
                "steps_per_second": result.steps_per_second,
                "learning_rate": result.learning_rate,
                "n_diverged": result.n_diverged,
            }
            for result in comparison.results
        },
    }
