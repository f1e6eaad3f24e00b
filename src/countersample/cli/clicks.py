"""``countersample simulate`` and ``inspect``: click logs made and inspected."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from countersample.cli import _show
from countersample.cli._options import Json, Seed  # noqa: TC001 (typer reads them)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from countersample.data import RankingDataset

DataPath = Annotated[
    Path,
    typer.Argument(
        help="Labelled (judged) data: LETOR text, Parquet, a saved dataset, a folder of splits."
    ),
]


def simulate(
    data: DataPath,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="The click log to write (.parquet).")],
    clicks: Annotated[int, typer.Option(help="How many clicks.")] = 1_000_000,
    gamma: Annotated[float, typer.Option(help="Position bias.")] = 1.0,
    offset: Annotated[
        int, typer.Option(help="0: (1/rank)^gamma, the paper's equation; 1: its authors' code.")
    ] = 0,
    click_model: Annotated[str, typer.Option(help="The click model.")] = "position-based",
    relevant: Annotated[float, typer.Option(help="Smallest relevant grade.")] = 3,
    noise: Annotated[float, typer.Option(help="Clicks on other items, once examined.")] = 0.1,
    policy: Annotated[
        Path | None, typer.Option(help="The ranker that showed the items (a saved one).")
    ] = None,
    policy_fraction: Annotated[
        float, typer.Option(help="Without --policy: train one on this share of the queries.")
    ] = 0.001,
    impressions: Annotated[
        int, typer.Option(help="Write this many sessions as impressions instead of a click log.")
    ] = 0,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Simulate users who click on the rankings of a logging policy."""
    from countersample import PositionBias, simulate_clicks
    from countersample.clicks import diagnose, simulate_impressions
    from countersample.data.load import load_train

    dataset = load_train(data, progress=True)
    model: dict[str, Any] = {
        "bias": PositionBias(gamma, offset),
        "relevant": relevant,
        "noise": noise,
        "click_model": click_model,
    }
    scores = _policy_scores(dataset, policy, policy_fraction, seed)
    if impressions:
        from pyarrow import parquet

        from countersample._files import atomic_path

        table = simulate_impressions(dataset, scores, impressions, **model, rng=seed)
        with atomic_path(out) as temporary:
            parquet.write_table(table, temporary)
        if json:
            _show.as_json({"out": str(out), "rows": table.num_rows, "sessions": impressions})
        else:
            _show.line(f"{table.num_rows:,} impressions of {impressions:,} sessions are in {out}")
        return
    log = simulate_clicks(dataset, scores, clicks, **model, rng=seed)
    log.save(out)
    if json:
        _show.as_json({"out": str(out)} | diagnose(log).to_dict())
    else:
        _show.line(f"{log!r} is in {out}; inspect it with: countersample inspect {out}")


def inspect(
    log: Annotated[Path, typer.Argument(help="A click log (.parquet).")], *, json: Json = False
) -> None:
    """Say what the weights of a click log mean for training on it."""
    from countersample import ClickLog
    from countersample.clicks import diagnose

    found = diagnose(ClickLog.load(log))
    if json:
        _show.as_json(found.to_dict())
        return
    _show.line(str(log))
    _show.pairs(
        [
            ("clicks", f"{found.n_clicks:,.0f}"),
            ("queries", f"{found.n_queries:,}"),
            ("query-item pairs", f"{found.n_pairs:,}"),
            ("largest weight M", f"{found.max_weight:,.2f}"),
            ("mean weight M̄", f"{found.mean_weight:,.2f}"),
            ("M / M̄", f"{found.max_weight / found.mean_weight:,.1f}"),
            (
                "effective clicks",
                f"{found.effective_clicks:,.0f} of equal weight would vary as much",
            ),
            (
                "predicted gain",
                f"(M/M̄)² = {found.predicted_gain:,.0f} times fewer steps than ips, by the bounds",
            ),
            ("top 1 % of clicks", f"have {100 * found.top_share:.1f} % of the weight"),
        ]
    )
    _show.line("  clicks by weight")
    _show.bars((f"{low:,.0f} … {high:,.0f}", round(count)) for low, high, count in found.histogram)
    _show.paragraph(found.verdict)


def _policy_scores(
    dataset: RankingDataset, policy: Path | None, fraction: float, seed: int
) -> ArrayLike:
    import numpy as np

    from countersample.study.running.references import logging_policy

    if policy is not None:
        from countersample.rankers import load_ranker

        return load_ranker(policy).predict(dataset)
    normalized = dataset.normalized("query-minmax")
    weights = logging_policy(normalized, fraction=fraction, seed=seed)
    return normalized.features @ weights.astype(np.float32)
