"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

NOT_BETTER, WORSE = 3, 4  # exit codes of --fail-unless-better
DRIFT = 3  # the exit code of log check --against

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")]
Fold = Annotated[
    int | None,
    typer.Option(min=1, help="The fold of a folder with Fold1 … or S1 …; by default the first."),
]

Cache = Annotated[
    Path | None,
    typer.Option(help="Keep LETOR text in binary form in this folder, and open that next time."),
]
Bits = Annotated[
    str | None,
    typer.Option(help="Features in 8 or 16 bits, or auto: the fewest that lose little."),
]
Safety = Annotated[
    float | None,
    typer.Option(
        help="The confidence with which held-out clicks have to show a ranker better than what was "
        "logged before it takes its place: 0.95 by default, 0 for none."
    ),
]
Impute = Annotated[
    str | None,
    typer.Option(
        help="What missing features become, but for trees, which take them as they are: "
        "median-indicator (the default), median, zero, or error to refuse them."
    ),
]

Transform = Annotated[
    str | None,
    typer.Option(
        help="What is done to features before they are scaled: log, root or quantile, or auto: "
        "held-out clicks choose, at about four times the work. Not of trees."
    ),
]

# of commands that read a raw log
Columns = Annotated[
    str | None,
    typer.Option(help="The log's own names of columns: query_id=q,item_id=doc,position=rank."),
]
Reader = Annotated[
    str | None,
    typer.Option(
        help="Whose log it is: ubi, metarank, baidu-ultr, yandex, open-bandit or expedia."
    ),
]
Context = Annotated[
    str | None,
    typer.Option(help="The log's own columns that say where a row was shown: device,layout."),
]
Values = Annotated[
    str | None,
    typer.Option(help="What events are worth, in a log with a column 'event': click=1,cart=3."),
]
JoinQueries = Annotated[
    bool,
    typer.Option("--join-queries", help="Take queries that differ in case and blanks for one."),
]
PositionsFrom = Annotated[int, typer.Option(help="The number of the first position: 1 or 0.")]
Suspicious = Annotated[
    str,
    typer.Option(
        help="keep or skip sessions that click everything, clients with very many, and repeated "
        "rows."
    ),
]
Engine = Annotated[str | None, typer.Option(help="duckdb (the default), polars, pandas or spark.")]
Randomized = Annotated[
    str | None, typer.Option(help="The policy whose rankings were shuffled at random.")
]
Master = Annotated[str | None, typer.Option(help="The Spark master: spark://host:7077.")]
MemoryLimit = Annotated[
    str | None, typer.Option(help="How much memory DuckDB may take, such as 2GB.")
]
TempDir = Annotated[
    Path | None, typer.Option(help="Where DuckDB puts what does not fit in memory.")
]


# of commands that read features
Include = Annotated[
    str | None,
    typer.Option(help="The features to use, by name: price,sales (of LETOR text by number)."),
]
Exclude = Annotated[
    str | None, typer.Option(help="The features to leave out, by name: title,ctr (or by number).")
]


Categorical = Annotated[
    str | None,
    typer.Option(
        help="Columns of text or integers that become indicators, one for each of up to 200 "
        "values: brand,country. Other text does where it has few values."
    ),
]
OtherColumns = Annotated[
    str,
    typer.Option(
        help="skip or error: what to do with ids, free text and lists among the features."
    ),
]
AgeAt = Annotated[
    str | None,
    typer.Option(
        help="The day that ages of dates are counted from, such as 2026-03-31; by default the "
        "latest of each column."
    ),
]
ItemFeatures = Annotated[
    Path | None, typer.Option(help="Features of items whatever the query, by item_id.")
]
LogFeatures = Annotated[
    str | None,
    typer.Option(
        help="The log's own columns that are features of what was shown, as their mean over the "
        "impressions of a query and item: price,stock."
    ),
]
QueryFeatures = Annotated[
    Path | None, typer.Option(help="Features of queries whatever the item, by query_id.")
]


Features = Annotated[
    Path | None,
    typer.Option(
        help="The features of items, by query_id and item_id: Parquet, CSV, TSV, LETOR text."
    ),
]

# of commands that weigh clicks
PropensityMethod = Annotated[
    str,
    typer.Option(
        help="auto, logged, randomized, swaps, pivot, adjacent-chain, all-pairs, em, "
        "regression-em or trust."
    ),
]
Depth = Annotated[int | None, typer.Option(help="The last position to estimate a propensity of.")]
Gamma = Annotated[
    float | None,
    typer.Option(
        help="Estimate nothing: a position is examined with probability (1/position)^gamma."
    ),
]
SavedPropensities = Annotated[
    Path | None, typer.Option(help="Estimate nothing: propensities that were saved (.json).")
]
Missing = Annotated[
    str,
    typer.Option(
        help="error or skip: refuse, or leave out, what is impossible or has no features or "
        "propensity."
    ),
]
Exposure = Annotated[
    str,
    typer.Option(
        help="policy-aware or position-only: clicks weighted by how likely their item is examined "
        "in a session of its query, or in its position."
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        help="dcg@k or precision@k; by default dcg@10, or down to the log's last position."
    ),
]

HoldoutFrom = Annotated[
    str | None, typer.Option(help="The first day that evaluates, such as 2026-03-31.")
]
HoldoutLast = Annotated[
    str | None, typer.Option(help="The number of last days that evaluate, such as 7d or 2w.")
]
HalfLife = Annotated[
    str | None,
    typer.Option(
        help="After which time a day counts half in what is learned, such as 14d; by default all "
        "days count the same."
    ),
]
AcceptFeatures = Annotated[
    str | None,
    typer.Option(
        help="Features, by name, that seem to know the clicks they are judged by and were computed "
        "before them: NAME,NAME. Without that there is no verdict."
    ),
]


def parse_columns(text: str | None) -> dict[str, str] | None:
    """Read ``query_id=q,item_id=doc``.

    >>> parse_columns("query_id=q, click=clicked")
    {'query_id': 'q', 'click': 'clicked'}
    """
    return None if text is None else _pairs("--columns", text, "query_id=q,item_id=doc")


def parse_ids(text: str | None) -> dict[str, str]:
    """Read ``query_id=q,item_id=doc``, of a table that has no other columns of a log.

    >>> parse_ids("query_id=q")
    {'query_id': 'q'}
    """
    from countersample.errors import ParameterError

    names = parse_columns(text) or {}
    unknown = next((name for name in names if name not in {"query_id", "item_id"}), None)
    if unknown is not None:
        raise ParameterError(f"--columns has {unknown!r}, expected query_id=… and item_id=…")
    return names


def parse_values(text: str | None) -> dict[str, float] | None:
    """Read ``click=1,cart=3``.

    >>> parse_values("click=1, cart=2.5")
    {'click': 1.0, 'cart': 2.5}
    """
    from countersample.errors import ParameterError

    if text is None:
        return None
    values = {}
    for event, value in _pairs("--values", text, "click=1,cart=3").items():
        try:
            values[event] = float(value)
        except ValueError:
            raise ParameterError(
                f"--values has {event}={value}, expected a number, such as {event}=1"
            ) from None
    return values


def parse_names(text: str | None) -> list[str] | None:
    """Read ``device,layout``.

    >>> parse_names("device, layout")
    ['device', 'layout']
    """
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _pairs(option: str, text: str, example: str) -> dict[str, str]:
    from countersample.errors import ParameterError

    pairs: dict[str, str] = {}
    for part in text.split(","):
        name, equals, own = (piece.strip() for piece in part.partition("="))
        if not (name and equals and own) or name in pairs:
            raise ParameterError(
                f"{option} has {part.strip()!r}, expected pairs such as {example}, each name once"
            )
        pairs[name] = own
    return pairs


def parse_bits(text: str | None) -> int | str | None:
    """Return the number of --bits, "auto" or None; refuse anything else."""
    if text is None or text == "auto":
        return text
    from countersample.errors import ParameterError

    if text not in {"8", "16"}:
        raise ParameterError(f"--bits is {text!r}, expected 8, 16 or auto")
    return int(text)
