"""``countersample simulate``: users who click on the rankings of logging policies."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 (cyclopts reads it)
from typing import TYPE_CHECKING, Any, Literal

from countersample.cli import _show
from countersample.cli._first_use import compile_ahead
from countersample.cli._options import (  # noqa: TC001 (cyclopts reads them)
    Cache,
    Fold,
    Json,
    Names,
    Out,
    Seed,
)
from countersample.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from countersample import PositionBias
    from countersample.data import RankingDataset


def simulate(
    data: Path,
    /,
    *,
    out: Out,
    clicks: int = 1_000_000,
    sessions: int = 0,
    gamma: float = 1.0,
    offset: Literal[0, 1] = 0,
    click_model: str = "position-based",
    relevant: float | None = None,
    noise: float = 0.1,
    policy: tuple[Path, ...] = (),
    policy_fraction: tuple[float, ...] = (),
    shares: Names = (),
    top: int | None = None,
    shuffle: int | None = None,
    swap: str | None = None,
    swap_rate: float = 0.5,
    interleave: bool = False,
    contexts: str | None = None,
    fold: Fold = None,
    cache: Cache = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Simulate users who click on the rankings of logging policies.

    Parameters
    ----------
    data
        Labelled data: LETOR text, Parquet, a saved dataset, a folder of splits.
    out
        The click log to write (.parquet).
    clicks
        The number of clicks.
    sessions
        Write the impressions of this many sessions instead of a click log.
    gamma
        The position bias: rank k is examined with probability (1/k)^gamma.
    offset
        0: (1/rank)^gamma, the paper's equation; 1: its authors' code.
    click_model
        The click model.
    relevant
        The lowest relevant grade; 3 by default, or 1 if no grade reaches 3.
    noise
        The probability of a click on an examined item that is not relevant.
    policy
        A saved ranker that shows the items; may be repeated.
    policy_fraction
        A ranker trained on this share of the queries; may be repeated. 0.001 without any policy.
    shares
        The shares of the policies in the sessions: 0.9,0.1.
    top
        The number of items shown, 0 for all. 10 with --sessions, else all.
    shuffle
        Show this many first items in random order; 0 for all that are shown.
    swap
        Swap two items: adjacent, or first with another.
    swap_rate
        The share of the sessions with such a swap.
    interleave
        Team-draft interleaving of two policies.
    contexts
        Contexts with share and gamma: phone=0.6:1.5,desktop=0.4:0.5.
    """
    compile_ahead()
    from countersample import PositionBias, simulate_clicks
    from countersample.clicks import diagnose, simulate_impressions
    from countersample.clicks.relevance import relevance_of, smallest_relevant, told_already
    from countersample.data.load import load_train

    note_files(data, fold)
    dataset = load_train(data, fold=fold, cache=cache, progress=True)
    items = relevance_of(dataset, smallest_relevant(dataset, relevant))
    texts = items.warnings("--relevant ")
    for text in texts:
        _show.note(f"countersample: {text}")
    world: dict[str, Any] = {
        "bias": PositionBias(gamma, offset),
        "relevant": items.relevant,
        "noise": noise,
        "click_model": click_model,
        "contexts": None if contexts is None else _contexts(contexts, offset),
        "shares": _shares(shares),
    }
    if top is not None:
        world["top"] = top or None
    rankers = _rankers(dataset, policy, policy_fraction, seed)
    shown = _policy(rankers, shuffle, swap, swap_rate, interleave=interleave)
    if sessions:
        from pyarrow import parquet

        from countersample._files import atomic_path

        with told_already():
            table = simulate_impressions(dataset, shown, sessions, **world, rng=seed)
        with atomic_path(out) as temporary:
            parquet.write_table(table, temporary)
        facts: dict[str, Any] = {"rows": table.num_rows, "sessions": sessions}
        sentence = f"{table.num_rows:,} impressions of {sessions:,} sessions are in {out}"
    else:
        with told_already():
            log = simulate_clicks(dataset, shown, clicks, **world, rng=seed)
        log.save(out)
        facts = diagnose(log).to_dict()
        sentence = f"{log!r} is in {out}; describe it with: countersample log check {out}"
    if json:
        _show.as_json({"out": str(out), **facts, "relevance": items.to_dict(), "warnings": texts})
        return
    _show.line(items.sentence())
    _show.line(sentence)


def note_files(data: Path | str, fold: int | None) -> None:
    """Print which fold of a folder is read, and which of its files are not."""
    from countersample.data.load import layout_of

    layout = layout_of(data)
    for text in [] if layout is None else layout.notes(fold):
        _show.note(f"countersample: {text}")


def _rankers(
    dataset: RankingDataset, saved: Sequence[Path], fractions: Sequence[float], seed: int
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


def _shares(texts: tuple[str, ...]) -> list[float] | None:
    try:
        return [float(text) for text in texts] or None
    except ValueError:
        raise ParameterError(
            f"--shares is {','.join(texts)!r}, expected numbers, as in 0.9,0.1"
        ) from None
