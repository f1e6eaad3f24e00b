"""``countersample simulate`` and ``inspect``: click logs made and inspected."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from countersample.cli import _show
from countersample.cli._first_use import compile_ahead
from countersample.cli._options import Cache, Fold, Json, Seed  # noqa: TC001 (typer reads them)
from countersample.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from countersample import PositionBias
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
    relevant: Annotated[
        float | None,
        typer.Option(help="Smallest relevant grade [3, or 1 where no grade reaches 3]."),
    ] = None,
    noise: Annotated[float, typer.Option(help="Clicks on other items, once examined.")] = 0.1,
    policy: Annotated[
        list[Path] | None, typer.Option(help="A saved ranker that showed the items; repeatable.")
    ] = None,
    policy_fraction: Annotated[
        list[float] | None,
        typer.Option(
            help="A ranker trained on this share of the queries that did; repeatable. Without any "
            "policy, 0.001."
        ),
    ] = None,
    shares: Annotated[
        str | None, typer.Option(help="Shares of the policies in the sessions: 0.9,0.1.")
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(min=0, help="Items shown; 0: all, the default. Of impressions 10."),
    ] = None,
    shuffle: Annotated[
        int | None,
        typer.Option(min=0, help="Show the first so many in random order; 0: those shown."),
    ] = None,
    swap: Annotated[
        str | None, typer.Option(help="Swap two items: adjacent, or first with another.")
    ] = None,
    swap_rate: Annotated[float, typer.Option(help="Sessions with such a swap.")] = 0.5,
    interleave: Annotated[
        bool, typer.Option("--interleave", help="Team-draft interleaving of two policies.")
    ] = False,
    contexts: Annotated[
        str | None,
        typer.Option(help="Contexts with share and gamma: phone=0.6:1.5,desktop=0.4:0.5."),
    ] = None,
    impressions: Annotated[
        int, typer.Option(help="Write this many sessions as impressions instead of a click log.")
    ] = 0,
    fold: Fold = None,
    cache: Cache = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Simulate users who click on the rankings of logging policies."""
    compile_ahead()
    from countersample import PositionBias, simulate_clicks
    from countersample.clicks import diagnose, simulate_impressions
    from countersample.clicks.relevance import relevance_of, smallest_relevant, told_already
    from countersample.data.load import load_train

    note_files(data, fold)
    dataset = load_train(data, fold=fold, cache=cache, progress=True)
    items = relevance_of(dataset, smallest_relevant(dataset, relevant))
    told = items.warnings("--relevant ")
    for text in told:
        _show.note(f"countersample: {text}")
    world: dict[str, Any] = {
        "bias": PositionBias(gamma, offset),
        "relevant": items.relevant,
        "noise": noise,
        "click_model": click_model,
        "contexts": None if contexts is None else _contexts(contexts, offset),
        "shares": None if shares is None else _numbers("shares", shares),
    }
    if top is not None:
        world["top"] = top or None
    rankers = _rankers(dataset, policy or [], policy_fraction or [], seed)
    shown = _policy(rankers, shuffle, swap, swap_rate, interleave=interleave)
    if impressions:
        from pyarrow import parquet

        from countersample._files import atomic_path

        with told_already():
            table = simulate_impressions(dataset, shown, impressions, **world, rng=seed)
        with atomic_path(out) as temporary:
            parquet.write_table(table, temporary)
        made: dict[str, Any] = {"rows": table.num_rows, "sessions": impressions}
        said = f"{table.num_rows:,} impressions of {impressions:,} sessions are in {out}"
    else:
        with told_already():
            log = simulate_clicks(dataset, shown, clicks, **world, rng=seed)
        log.save(out)
        made = diagnose(log).to_dict()
        said = f"{log!r} is in {out}; inspect it with: countersample inspect {out}"
    if json:
        _show.as_json({"out": str(out), **made, "relevance": items.to_dict(), "warnings": told})
        return
    _show.line(items.sentence())
    _show.line(said)


def note_files(data: Path | str, fold: int | None) -> None:
    """Say which fold of a folder is read, and which of its files are not."""
    from countersample.data.load import layout_of

    layout = layout_of(data)
    for text in [] if layout is None else layout.notes(fold):
        _show.note(f"countersample: {text}")


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


def _rankers(
    dataset: RankingDataset, saved: list[Path], fractions: list[float], seed: int
) -> dict[str, ArrayLike]:
    """Return the scores of each ranker by its name."""
    from countersample.data.imputing import filled
    from countersample.data.scoring import linear_scores
    from countersample.rankers import load_ranker
    from countersample.study.running.references import logging_policy

    scores: dict[str, ArrayLike] = {}
    fractions = fractions or ([] if saved else [0.001])
    names = [*(path.stem for path in saved), *(f"trained-{fraction:g}" for fraction in fractions)]
    for name in names:
        if names.count(name) > 1:
            raise ParameterError(f"two policies are called {name}, expected different names")
    for path in saved:
        scores[path.stem] = load_ranker(path).predict(dataset)
    normalized = filled(dataset).normalized("query-minmax") if fractions else dataset
    for fraction in fractions:
        weights = logging_policy(normalized, fraction=fraction, seed=seed)
        scores[f"trained-{fraction:g}"] = linear_scores(weights[None], normalized.features)[0]
    return scores


def _policy(
    rankers: dict[str, ArrayLike],
    shuffle: int | None,
    swap: str | None,
    swap_rate: float,
    *,
    interleave: bool,
) -> Any:  # noqa: ANN401 (scores, a policy, or several)
    """Return what shows the items: each ranker in its way, or two of them interleaved."""
    from countersample.clicks import Shuffled, Swapped, TeamDraft

    if sum([shuffle is not None, swap is not None, interleave]) > 1:
        raise ParameterError("expected one of --shuffle, --swap and --interleave, not several")
    if interleave:
        if len(rankers) != 2:
            raise ParameterError(
                f"--interleave has {len(rankers)} policies, expected two: give --policy or "
                "--policy-fraction twice"
            )
        return TeamDraft(rankers)
    shown: dict[str, Any] = dict(rankers)
    if shuffle is not None:
        shown = {name: Shuffled(scores, shuffle or None) for name, scores in shown.items()}
    elif swap is not None:
        shown = {name: Swapped(scores, swap_rate, swap) for name, scores in shown.items()}  # type: ignore[arg-type]
    return shown if len(shown) > 1 else next(iter(shown.values()))


def _contexts(text: str, offset: int) -> dict[str, tuple[float, PositionBias]]:
    """Read ``phone=0.6:1.5,desktop=0.4:0.5``: the share and γ of each context."""
    from countersample import PositionBias

    contexts = {}
    for part in text.split(","):
        name, _, numbers = part.partition("=")
        share, _, gamma = numbers.partition(":")
        if name.strip() in contexts:
            raise ParameterError(f"--contexts has {name.strip()!r} twice, expected each name once")
        try:
            contexts[name.strip()] = (float(share), PositionBias(float(gamma), offset))
        except ValueError:
            raise ParameterError(
                f"--contexts has {part!r}, expected name=share:gamma, as in phone=0.6:1.5"
            ) from None
    return contexts


def _numbers(what: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ParameterError(f"--{what} is {text!r}, expected numbers, as in 0.9,0.1") from None
