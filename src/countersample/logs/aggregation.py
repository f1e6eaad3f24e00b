"""Expressions that count a log, which every engine runs through narwhals; nothing is computed here.

Rows are counted in groups of one query, item, position and context. Groups stay in the engine;
results are small, or arrive in batches (`logs.tally`). All functions return lazy frames or
expressions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import narwhals as nw

from countersample.logs.columns import FEATURE, MAX_ID_LENGTH, NONE
from countersample.logs.counts import MAX_IMPRESSIONS, MAX_POSITION

if TYPE_CHECKING:
    import pyarrow as pa

PAIR = ["query_id", "item_id"]
KEYS = (*PAIR, "position")


@dataclass(frozen=True)
class Problems:
    """Rows that cannot be counted; one row may have several problems.

    Attributes
    ----------
    n_rows : int
        All rows of the log.
    n_invalid : int
        Rows with at least one problem.
    no_query_id, no_item_id : int
        Rows without an id.
    bad_position : int
        Rows whose position is missing, below 1, above `MAX_POSITION` or not a whole number.
    bad_click : int
        Rows whose click is not 0 or 1; with an ``impressions`` column, whose numbers are not
        whole, or that have no impression, or more clicks than impressions.
    bad_value : int
        Rows with a click whose value is missing, below 0 or not finite.
    bad_id : int
        Rows with an id or a context that has more than `MAX_ID_LENGTH` characters or ends with NUL.
    example_position : float, optional
        One such position.
    is_from_zero : bool
        Whether positions seem to count from 0: there is no other bad position, and rows at 0 are at
        least half as many as at 1.
    """

    n_rows: int
    n_invalid: int
    no_query_id: int
    no_item_id: int
    bad_position: int
    bad_click: int
    bad_value: int = 0
    bad_id: int = 0
    example_position: float | None = None
    is_from_zero: bool = False

    @classmethod
    def of(cls, table: pa.Table) -> Problems:
        """Read the numbers that `describe_rows` computes."""
        (row,) = table.to_pylist()
        example = row.pop("example_position")
        n = {name: int(value or 0) for name, value in row.items()}
        at_zero, at_one, bad = n.pop("at_zero"), n.pop("at_one"), n["bad_position"]
        is_from_zero = bool(bad and bad == at_zero and 2 * at_zero >= at_one)
        example = None if example is None else float(example)
        return cls(**n, example_position=example, is_from_zero=is_from_zero)

    def sentence(self, *, has_impressions: bool) -> str | None:
        """Describe what is wrong with the rows; None if nothing is."""
        clicks = (
            "more clicks than impressions, no impression, or numbers that are not whole"
            if has_impressions
            else "a click that is not 0 or 1"
        )
        example = "" if self.example_position is None else f" (such as {self.example_position:g})"
        counts = [
            (self.no_query_id, "no query_id"),
            (self.no_item_id, "no item_id"),
            (
                self.bad_position,
                f"a position that is not a whole number from 1 to {MAX_POSITION:,}{example}",
            ),
            (self.bad_click, clicks),
            (self.bad_value, "a click whose value is not a number of at least 0"),
            (
                self.bad_id,
                f"an id or context of over {MAX_ID_LENGTH:,} characters, or NUL at its end",
            ),
        ]
        reasons = [f"{count:,} with {what}" for count, what in counts if count]
        if not reasons:
            return None
        rows = f"{self.n_invalid:,} of {self.n_rows:,} rows are impossible"
        sentence = f"{rows}: {', '.join(reasons)}"
        if self.is_from_zero:
            sentence += (
                "; the positions seem to count from 0: set positions_from=0 (--positions-from 0)"
            )
        return sentence


def group_keys(frame: nw.LazyFrame[Any]) -> list[str]:
    """Return the columns of a group: query, item, position and, if the log has it, context."""
    return [*KEYS, *(["context"] if "context" in frame.collect_schema() else [])]


def sum_columns(*names: str) -> dict[str, nw.Expr]:
    """Return the sums of columns, under their names."""
    return {name: nw.col(name).sum() for name in names}


def choose(condition: nw.Expr, value: nw.Expr, other: float = 0) -> nw.Expr:
    """Return a value if a condition holds, else another one; also if the condition is null."""
    return nw.when(condition).then(value).otherwise(nw.lit(other))


def mark(condition: nw.Expr) -> nw.Expr:
    """Return 1 if a condition holds, else 0."""
    return choose(condition, nw.lit(1))


# -- impressions and clicks


def group(frame: nw.LazyFrame[Any], by: list[str] | None = None, *more: str) -> nw.LazyFrame[Any]:
    """Return impressions, clicks, value and the sums of `more` columns per group.

    By default a group is a query, item, position and context. Only possible rows are counted;
    `describe_rows` counts the others. If rows stand for several impressions, these are added up.
    """
    schema = frame.collect_schema()
    by = by or group_keys(frame)
    click = nw.col("click")
    columns = {"clicks": click.cast(nw.Int64), "impressions": impressions_of(frame).cast(nw.Int64)}
    if "value" in schema:
        columns["value"] = choose(click > 0, nw.col("value")).cast(nw.Float64)
    others = [name for name in (*by, *more) if name != "position"]
    position = nw.col("position").cast(nw.Int32)
    rows = frame.filter(is_possible(frame)).select(*others, position=position, **columns)
    # Some engines return wide sums; the number of rows of a log fits in 32 bits.
    narrow = nw.Int64 if "impressions" in schema else nw.Int32
    whole = (nw.col(name).cast(narrow) for name in ("impressions", "clicks"))
    return rows.group_by(*by).agg(**sum_columns(*columns, *more)).with_columns(*whole)


def impressions_of(frame: nw.LazyFrame[Any]) -> nw.Expr:
    """Return the number of impressions of each row: 1 unless the log is aggregated."""
    schema = frame.collect_schema()
    if "impressions" not in schema:
        return nw.lit(1)
    return choose(has_possible_click(schema), nw.col("impressions")).cast(nw.Int64)


def clicked_pairs(groups: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return the query-item pairs that were clicked at any position."""
    return groups.filter(nw.col("clicks") > 0).select(*PAIR).unique()


def split_unclicked(
    groups: nw.LazyFrame[Any], clicked: nw.LazyFrame[Any]
) -> tuple[nw.LazyFrame[Any], nw.LazyFrame[Any]]:
    """Return the groups of clicked pairs, and the others merged into one item per query.

    Estimates from clicks do not change: a clicked item has all its groups, and sums by query,
    position and context stay the same. The merged groups have no column ``item_id``.
    """
    schema = groups.collect_schema()
    by = [name for name in ("query_id", "position", "context") if name in schema]
    numbers = [name for name in ("impressions", "clicks", "value") if name in schema]
    others = groups.join(clicked, on=PAIR, how="anti")
    rest = others.group_by(*by).agg(**sum_columns(*numbers))
    whole = (nw.col(name).cast(nw.Int64) for name in ("impressions", "clicks"))
    rest = rest.with_columns(*whole)  # some engines return wide sums
    return groups.join(clicked, on=PAIR, how="semi"), rest


def describe_pairs(
    groups: nw.LazyFrame[Any], sessions: nw.LazyFrame[Any] | None
) -> nw.LazyFrame[Any]:
    """Return the numbers of query-item pairs, of moved and of repeated ones: one row.

    Moved pairs were shown at several positions, repeated ones more often than their query has
    sessions.
    """
    position = nw.col("position")
    pairs = groups.group_by(*PAIR).agg(
        first=position.min(), last=position.max(), shown=nw.col("impressions").sum()
    )
    repeated = nw.lit(0)
    if sessions is not None:
        pairs = pairs.join(sessions, on="query_id", how="left")
        repeated = mark(nw.col("shown") > nw.col("sessions"))
    is_moved = mark(nw.col("first") != nw.col("last"))
    marks = pairs.select(n_pairs=nw.lit(1), n_moved=is_moved, n_repeated=repeated)
    return marks.select(**sum_columns("n_pairs", "n_moved", "n_repeated"))


def pairs(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return each query with each of its items, once, in possible rows.

    Each feature of the log has the sum over the impressions that have a value (``sum_0``), their
    number (``n_0``), the least and the largest value (``low_0``, ``high_0``).
    """
    features = [name for name in frame.collect_schema().names() if name.startswith(FEATURE)]
    rows = frame.filter(is_possible(frame))
    if not features:
        return rows.select(*PAIR).unique()
    columns: dict[str, nw.Expr] = {}
    totals: dict[str, nw.Expr] = {}
    for name in features:
        number, value = name.removeprefix(FEATURE), nw.col(name).cast(nw.Float64)
        has_value, shown = ~nw.col(name).is_null(), impressions_of(frame)
        columns[f"n_{number}"] = choose(has_value, shown).cast(nw.Int64)
        columns[f"sum_{number}"] = choose(has_value, value * shown, 0.0)
        columns[f"value_{number}"] = value
        totals |= sum_columns(f"n_{number}", f"sum_{number}")
        totals[f"low_{number}"] = nw.col(f"value_{number}").min()
        totals[f"high_{number}"] = nw.col(f"value_{number}").max()
    return rows.select(*PAIR, **columns).group_by(*PAIR).agg(**totals)


# -- sessions


def group_sessions(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return S_q, the sessions per query in possible rows.

    Rows without a session count as the impressions of position 1 among them, and at least once.
    """
    rows = frame.filter(is_possible(frame))
    has_counts = "sessions" in frame.collect_schema()
    session = "sessions" if has_counts else "session"
    top = choose(nw.col("position") == 1, impressions_of(frame))
    nameless = rows.filter(nw.col(session).is_null()).select("query_id", n=top)
    nameless = nameless.group_by("query_id").agg(**sum_columns("n"))
    at_least_one = choose(nw.col("n") > 0, nw.col("n"), 1)
    if has_counts:
        with_session = group_visits(frame).select("query_id", n=nw.col("sessions").cast(nw.Int64))
    else:
        visits = rows.filter(~nw.col("session").is_null()).select("query_id", "session").unique()
        with_session = visits.select("query_id", n=nw.lit(1).cast(nw.Int64))
    both = [with_session, nameless.select("query_id", n=at_least_one.cast(nw.Int64))]
    return nw.concat(both).group_by("query_id").agg(sessions=nw.col("n").sum())


def group_visits(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return the ``sessions`` of an aggregated log per query, day and set of policies.

    They are equal in all of these rows. ``is_mixed`` is 1 if the sessions saw several policies.
    """
    schema = frame.collect_schema()
    policies = "session_policies" if "session_policies" in schema else "policy"
    by = [name for name in ("query_id", "timestamp", policies) if name in schema]
    kind, stamp = schema.get("timestamp"), nw.col("timestamp")
    if kind == nw.String:  # sessions are counted per day, whatever the time of a row
        frame = frame.with_columns(timestamp=stamp.str.slice(0, 10))
    elif isinstance(kind, nw.Datetime):
        frame = frame.with_columns(timestamp=stamp.cast(nw.Date))
    is_mixed = nw.lit(0)
    if "session_policies" in schema and "policy" in schema:
        is_mixed = mark(nw.col("session_policies") != nw.col("policy").fill_null(NONE))
    rows = frame.filter(is_possible(frame) & ~nw.col("sessions").is_null())
    visits = rows.select(*by, "sessions", is_mixed=is_mixed).group_by(*by)
    return visits.agg(nw.col("sessions").max(), nw.col("is_mixed").max())


def group_first_position(groups: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return S_q of a log without ids of sessions: see `counts.first_position`."""
    filled = groups.group_by("query_id", "position").agg(n=nw.col("impressions").sum())
    return filled.group_by("query_id").agg(sessions=nw.col("n").max())


def count_bad_sessions(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return the number of possible rows whose ``sessions`` are no whole number from 1.

    Missing sessions are rows without a session.
    """
    schema, sessions = frame.collect_schema(), nw.col("sessions")
    is_good = (sessions >= 1) & (sessions <= MAX_IMPRESSIONS) & _is_whole("sessions", schema)
    is_bad = mark(~is_good & ~sessions.is_null())
    return frame.filter(is_possible(frame)).select(bad=is_bad).select(**sum_columns("bad"))


def visits(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return each session with each of its queries, once, in possible rows."""
    return frame.filter(is_possible(frame)).select("query_id", "session").unique()


def clicks_of_sessions(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return the clicks of each session and their value, in possible rows."""
    clicked = frame.filter(is_possible(frame) & (nw.col("click") > 0))
    clicked = clicked.with_columns(
        position=nw.col("position").cast(nw.Int32), value=_value(frame).cast(nw.Float64)
    )
    return clicked.group_by(*group_keys(frame), "session").agg(**sum_columns("value"))


# -- propensities of the log


def with_weights(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return a log with the ``weight`` (value/propensity) of rows with clicks.

    The value of a row is its number of clicks unless the log has values. ``clicked`` marks
    possible rows with clicks, ``good`` those whose propensity is within (0, 1].
    """
    propensity = nw.col("propensity")
    clicked = is_possible(frame) & (nw.col("click") > 0)
    is_good = clicked & (propensity > 0) & (propensity <= 1)
    return frame.with_columns(
        weight=choose(is_good, _value(frame) / choose(is_good, propensity, 1.0), 0.0),
        clicked=mark(clicked),
        good=mark(is_good),
    )


def group_weights(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return Σ value/propensity per group, over its possible rows with clicks."""
    rows = with_weights(frame).filter(nw.col("clicked") > 0)
    return rows.group_by(*group_keys(frame)).agg(**sum_columns("weight", "clicked", "good"))


# -- possible rows


def describe_rows(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return the numbers that `Problems.of` reads, one row."""
    schema = frame.collect_schema()
    position = nw.col("position")
    has_place, has_click = _has_place(schema), has_possible_click(schema)
    marks = {
        "n_rows": nw.lit(1),
        "n_invalid": 1 - mark(is_possible(frame)),
        "no_query_id": mark(nw.col("query_id").is_null()),
        "no_item_id": mark(nw.col("item_id").is_null()),
        "bad_position": 1 - mark(has_place),
        "bad_click": 1 - mark(has_click),
        "bad_value": mark(has_click) - mark(has_click & _has_value(schema)),
        "bad_id": mark(_has_bad_id(schema)),
        "at_zero": mark(position == 0),
        "at_one": mark(position == 1),
    }
    odd = nw.when(~has_place).then(position)
    rows = frame.select(**marks, example_position=odd)
    return rows.select(**sum_columns(*marks), example_position=nw.col("example_position").min())


def is_possible(frame: nw.LazyFrame[Any]) -> nw.Expr:
    """Return whether a row can be counted: it has ids, a position from 1 and a valid click."""
    schema = frame.collect_schema()
    has_ids = ~nw.col("query_id").is_null() & ~nw.col("item_id").is_null() & ~_has_bad_id(schema)
    return has_ids & _has_place(schema) & has_possible_click(schema) & _has_value(schema)


def _has_bad_id(schema: nw.Schema) -> nw.Expr:
    """Return whether an id or the context is too long for an array, or ends with NUL.

    NumPy's arrays of text are as wide as their longest value, and drop NUL at the end.
    """
    is_bad = nw.lit(False)
    for name in (*PAIR, "context"):
        if schema.get(name) == nw.String:
            text = nw.col(name)
            cannot_be_stored = (text.str.len_chars() > MAX_ID_LENGTH) | text.str.ends_with("\0")
            is_bad = is_bad | (~text.is_null() & cannot_be_stored)
    return is_bad


def _has_place(schema: nw.Schema) -> nw.Expr:
    """Return whether the position is possible; false if it is missing."""
    position = nw.col("position")
    is_place = ~position.is_null() & (position >= 1) & (position <= MAX_POSITION)
    return is_place & _is_whole("position", schema)


def has_possible_click(schema: nw.Schema) -> nw.Expr:
    """Return whether the click is 0 or 1, or the clicks are at most the impressions."""
    click, shown = nw.col("click"), nw.col("impressions")
    if "impressions" not in schema:
        return (click == 0) | (click == 1)
    is_good = (shown >= 1) & (shown <= MAX_IMPRESSIONS) & (click >= 0) & (click <= shown)
    return is_good & _is_whole("click", schema) & _is_whole("impressions", schema)


def _has_value(schema: nw.Schema) -> nw.Expr:
    """Return whether a row has no click, or a click with a value of at least 0."""
    if "value" not in schema:
        return nw.lit(True)
    return (nw.col("click") == 0) | (nw.col("value") >= 0)


def _is_whole(name: str, schema: nw.Schema) -> nw.Expr:
    column = nw.col(name)
    return column.round(0) == column if schema[name].is_float() else nw.lit(True)


def _value(frame: nw.LazyFrame[Any]) -> nw.Expr:
    return nw.col("value" if "value" in frame.collect_schema() else "click")
