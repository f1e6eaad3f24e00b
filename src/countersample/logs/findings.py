"""Find defects of a log's pages that can turn its verdict around, and withhold it for them.

A page of results shows each position once, and all of its rows are logged. Five defects break this:

- positions restart: page 2 of the results has positions from 1 again;
- rows repeat: some rows of a page are logged twice;
- pages repeat within a session, which counts as one session of its query;
- clicks are rows of their own, beside the row of the impression;
- rows below the last click are missing.

`PageSums` adds up what shows them, over the views of a log. A view is a session and one of its
queries. It may show its page several times, after a reload, or when the query is repeated: then
all positions repeat alike, or the items are the same in another order. Their clicks are those of
several pages, but the exposure of an item is per session, so each page needs its own session. The
sums of days add up, so that an aggregated log stores them. `find_click_rows` and `find_cut_pages`
need counts alone, for logs without sessions.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import msgspec
import narwhals as nw
import numpy as np
import pyarrow as pa
from pyarrow import parquet

from countersample.errors import DataError
from countersample.logs.aggregation import choose, is_possible, mark, sum_columns
from countersample.logs.counts import row_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from countersample.logs.counts import PositionCounts
    from countersample.logs.impressions import Impressions

PAGE_SUMS = b"countersample:page_sums"  # in the metadata of an aggregated log's files
VIEW = ["query_id", "session"]
#: Shares of the rows, or of the clicks, above which a defect withholds the verdict. A share of the
#: rows changes the estimated gain by about as much.
MAX_RESTARTED = 0.01
MAX_REPEATED = 0.01
MAX_REPEATED_PAGES = 0.01
MAX_CLICK_ROWS = 0.05
#: The share of views that end in a click, between what chance gives (0) and all of them (1).
MAX_ENDINGS = 0.5
#: Rows, clicks, views or pairs of positions that are too few to find a defect.
MIN_EVIDENCE = 20
#: Items that were shown once must be expected to have this many clicks to find that none has one.
MIN_EXPECTED_CLICKS = 100
_ROWS = 2**31  # a view has fewer rows
_PARTS = 1_000_000  # of an expected click

_MERGE_CLICKS = (
    "merge each click into the row of its impression; if the log has a column of sessions, "
    "suspicious='skip' (--suspicious skip) does it"
)
_KEEP_ALL_ROWS = "log all results of a page, also those below the last click"


@dataclass(frozen=True)
class Finding:
    """A problem of a log that a person should check.

    Attributes
    ----------
    problem : str
        What is wrong.
    remedy : str
        What to do.
    withholds : bool
        Whether it can turn the verdict around, so that there is none until it is corrected.
    """

    problem: str
    remedy: str = ""
    withholds: bool = False

    @property
    def reason(self) -> str:
        """The problem and the remedy, without a full stop."""
        return f"{self.problem}: {self.remedy}" if self.remedy else self.problem

    @property
    def sentence(self) -> str:
        """The problem and the remedy, as a sentence."""
        return f"{self.reason[0].upper()}{self.reason[1:]}."


@dataclass(frozen=True)
class PageSums:
    """Sums over the views of a log.

    Attributes
    ----------
    rows, clicks : int
        Rows with a session, and their clicks.
    restarted : int
        Rows with another item at a position that their view has shown already.
    repeated : int
        Rows of a position in excess of the rows of the top position of their view.
    click_rows : int
        Clicks that have a row of their own: in their view, only clicked results repeat.
    pages, pages_again : int
        Pages, and those beyond the first of their view.
    views, endings : int
        Views with a click and several positions, and those whose last row is clicked.
    expected_endings : float
        The number of these if clicks were equally likely in all rows.
    """

    rows: int = 0
    clicks: int = 0
    restarted: int = 0
    repeated: int = 0
    click_rows: int = 0
    pages: int = 0
    pages_again: int = 0
    views: int = 0
    endings: int = 0
    expected_endings: float = 0.0

    def __add__(self, other: PageSums) -> PageSums:
        names = [each.name for each in fields(self)]
        return PageSums(**{name: getattr(self, name) + getattr(other, name) for name in names})

    @property
    def has_click_rows(self) -> bool:
        """Whether clicks are rows of their own."""
        limit = max(MAX_CLICK_ROWS * self.clicks, self.repeated)
        return self.click_rows >= MIN_EVIDENCE and self.click_rows > limit

    @property
    def has_repeated_rows(self) -> bool:
        """Whether single rows of pages repeat."""
        is_frequent = self.repeated > MAX_REPEATED * self.rows
        return not self.has_click_rows and is_frequent and self.repeated >= MIN_EVIDENCE

    @property
    def has_restarts(self) -> bool:
        """Whether positions restart within a view."""
        return self.restarted >= MIN_EVIDENCE and self.restarted > MAX_RESTARTED * self.rows

    def findings(self) -> Iterator[Finding]:
        """Yield the defects whose share is above its limit."""
        if self.has_restarts:
            yield Finding(
                f"positions restart within a session: {self.restarted / self.rows:.1%} of the rows "
                "show another item at a position that the same session and query had already",
                "number positions across pages and shelves and over the cells of a grid, so that "
                "page 2 goes on after page 1, or give searches that are separate their own "
                "sessions",
                withholds=True,
            )
        if self.has_click_rows:
            yield Finding(
                f"clicks are rows of their own: {self.click_rows / self.clicks:.0%} of the clicks "
                "repeat the row of their impression, which so counts twice",
                _MERGE_CLICKS,
                withholds=True,
            )
        if self.has_repeated_rows:
            yield Finding(
                f"rows repeat: {self.repeated / self.rows:.1%} of the rows show a position again, "
                "and not the whole page, so that some results seem to be shown more often than "
                "they were",
                "leave repeated rows out with suspicious='skip' (--suspicious skip), or give each "
                "view of a page its own session",
                withholds=True,
            )
        repeat = self.pages_again > MAX_REPEATED_PAGES * self.pages
        if repeat and self.pages_again >= MIN_EVIDENCE and not self.has_restarts:
            yield Finding(
                f"pages repeat within a session: {self.pages_again / self.pages:.1%} of the pages "
                "were shown again for the same query of the same session, and exposure is counted "
                "per session",
                "give each view of a page its own session, or leave the column of sessions out",
                withholds=True,
            )
        room = self.views - self.expected_endings
        beyond_chance = self.endings - self.expected_endings
        if self.views >= MIN_EVIDENCE and beyond_chance > MAX_ENDINGS * room:
            yield Finding(
                f"rows below the last click are missing: {self.endings / self.views:.0%} of the "
                "sessions with a click end in it, and chance would give "
                f"{self.expected_endings / self.views:.0%}",
                _KEEP_ALL_ROWS,
                withholds=True,
            )

    def to_json(self) -> str:
        """Return the sums for the metadata of a file."""
        return msgspec.json.encode(self).decode()


def find_page_defects(log: Impressions, counts: PositionCounts) -> list[Finding]:
    """Return the defects of a log; its rows are read if they have sessions."""
    sums = log.page_sums
    if sums is None and "session" in log.columns and not log.is_aggregated:
        sums = add_up_pages(log)
    if sums is not None and sums.rows:
        return list(sums.findings())
    return [*find_click_rows(counts), *find_cut_pages(counts)]


# -- sums over views, computed in the engine


def add_up_pages(log: Impressions) -> PageSums:
    """Return the sums over the views of a log with sessions."""
    rows = log.frame.filter(is_possible(log.frame) & ~nw.col("session").is_null())
    views = _group_views(rows)
    is_cut = (nw.col("clicks") > 0) & (nw.col("positions") > 1)
    is_click_rows = (
        (nw.col("extra") > 0)
        & (nw.col("extra") == nw.col("extra_clicked"))
        & (nw.col("positions") > nw.col("clicked"))
    )
    # Whole numbers add up alike in any order, so that equal logs give equal sums.
    chance = _PARTS * nw.col("clicks") / nw.col("rows")
    excess = nw.col("rows") - nw.col("top_rows") * nw.col("positions")
    table = log.collect(
        views.select(
            "rows",
            "clicks",
            several=mark(nw.col("shared") > 0),
            repeated=choose((excess > 0) & ~is_click_rows, excess),
            click_rows=choose(is_click_rows, nw.col("extra_clicked")),
            pages="top_rows",
            pages_again=choose((excess <= 0) & ~is_click_rows, nw.col("top_rows") - 1),
            views=mark(is_cut),
            endings=mark(is_cut & (nw.col("last") == nw.col("last_click"))),
            expected=choose(is_cut, chance.floor().cast(nw.Int64)),
        ).select(
            **sum_columns(
                "rows", "clicks", "several", "repeated", "click_rows", "pages", "pages_again",
                "views", "endings", "expected",
            )
        )
    )  # fmt: skip
    (row,) = table.to_pylist()
    sums = {name: int(value or 0) for name, value in row.items()}
    # Most logs have no view in which two items share a position.
    restarted = _count_restarted(log, rows, views) if sums.pop("several") else 0
    expected = sums.pop("expected") / _PARTS
    return PageSums(**sums, restarted=restarted, expected_endings=expected)


def _group_views(rows: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return the sums of each view: first by position, then over its positions."""
    click, position, n = nw.col("click").cast(nw.Int64), nw.col("position").cast(nw.Int64), nw.len()
    places = rows.select(*VIEW, "item_id", position=position, click=click)
    places = places.group_by(*VIEW, "position").agg(
        rows=n, clicks=nw.col("click").sum(), first=nw.col("item_id").min(),
        last=nw.col("item_id").max(),
    )  # fmt: skip
    n, is_clicked = nw.col("rows").cast(nw.Int64), nw.col("clicks") > 0
    marks = places.select(
        *VIEW,
        "position",
        rows=n,
        clicks=nw.col("clicks").cast(nw.Int64),
        positions=nw.lit(1),
        clicked=mark(is_clicked),
        extra=n - 1,
        extra_clicked=choose(is_clicked, n - 1),
        shared=mark(nw.col("first") != nw.col("last")),
        # The smallest of these numbers has the top position, and the rows of it.
        top=nw.col("position") * _ROWS + n,
        last_click=choose(is_clicked, nw.col("position")),
    )
    sums = sum_columns("rows", "clicks", "positions", "clicked", "extra", "extra_clicked", "shared")
    views = marks.group_by(*VIEW).agg(
        **sums,
        top=nw.col("top").min(),
        last=nw.col("position").max(),
        last_click=nw.col("last_click").max(),
    )
    return views.with_columns(top_rows=nw.col("top") % _ROWS)


def _count_restarted(log: Impressions, rows: nw.LazyFrame[Any], views: nw.LazyFrame[Any]) -> int:
    """Count the items that a view shows beyond its positions, in views that show new items.

    A query that is repeated shows most of its items again, in any order.
    """
    several = views.filter(nw.col("shared") > 0).select(*VIEW, "rows", "positions")
    items = rows.select(*VIEW, "item_id").unique().group_by(*VIEW).agg(items=nw.len())
    restarted = nw.col("items") - nw.col("positions")
    again = nw.col("rows") - nw.col("items")
    sizes = several.join(items, on=VIEW, how="inner")
    sizes = sizes.select(restarted=choose(restarted >= again, restarted))
    (total,) = log.collect(sizes.select(**sum_columns("restarted")))["restarted"].to_pylist()
    return int(total or 0)


def read_page_sums(paths: Iterable[str]) -> PageSums | None:
    """Return the sums that the files of an aggregated log store; None if one has none."""
    total = PageSums()
    for path in paths:
        try:
            text = (parquet.read_schema(path).metadata or {}).get(PAGE_SUMS)
            if text is None:
                return None
            total += msgspec.json.decode(text, type=PageSums)
        except (pa.ArrowException, OSError, msgspec.MsgspecError) as error:
            raise DataError(
                f"{path}: cannot be read as a day of an aggregated log: {error}; count it again"
            ) from error
    return total


# -- counts alone


def find_click_rows(counts: PositionCounts) -> Iterator[Finding]:
    """Yield a finding if clicks have rows of their own, in a log without sessions.

    A page shows each position once: neighbouring positions of a query then have the same number of
    impressions, unless their numbers of clicks are added. (The row of the impression may have the
    click, too: then half of them are.) In such a log an item that was shown once has no click.
    """
    is_same_query, impressions, clicks = _sum_positions(counts)
    differ = is_same_query & (np.diff(clicks) != 0)
    n_pairs = int(differ.sum())
    shares = [
        (np.diff(times * impressions - added * clicks)[differ] == 0).mean() if n_pairs else 0.0
        for times, added in ((1, 0), (1, 1), (2, 1))
    ]
    is_by_page = n_pairs >= MIN_EVIDENCE and max(shares[1:]) > max(0.5, shares[0])

    once = counts.impressions == 1
    positions, shown, clicked = counts.by_position
    rate = (clicked / shown)[np.searchsorted(positions, counts.position[once])]
    n_clicks, expected = counts.clicks[once].sum(), rate.sum()
    is_by_item = expected >= MIN_EXPECTED_CLICKS and n_clicks < 0.01 * expected
    if is_by_page or is_by_item:
        yield Finding(
            "clicks are rows of their own: each click seems to have a row beside the row of its "
            "impression, which so counts twice",
            _MERGE_CLICKS,
            withholds=True,
        )


def find_cut_pages(counts: PositionCounts) -> Iterator[Finding]:
    """Yield a finding if nearly all rows at the last position of each query have a click."""
    is_same_query, impressions, clicks = _sum_positions(counts)
    is_last = ~np.append(is_same_query, False) & np.append(False, is_same_query)
    rate = clicks[is_last].sum() / max(1, impressions[is_last].sum())
    usual = counts.n_clicks / counts.n_impressions
    is_cut = is_last.sum() >= MIN_EVIDENCE and rate - usual > MAX_ENDINGS * (1 - usual)
    if is_cut:
        yield Finding(
            f"rows below the last click are missing: {rate:.0%} of the rows at the last position "
            f"of a query have a click, and {usual:.0%} of all rows",
            _KEEP_ALL_ROWS,
            withholds=True,
        )


def _sum_positions(counts: PositionCounts) -> tuple[Any, Any, Any]:
    """Return impressions and clicks of each query and position, and which neighbours share a query.

    The first array is shorter by one than the others.
    """
    keys = row_keys(counts.query, counts.position)
    _, first, member = np.unique(keys, return_index=True, return_inverse=True)
    sums = []
    for column in (counts.impressions, counts.clicks):
        total = np.zeros(len(first), np.int64)
        np.add.at(total, member, column)
        sums.append(total)
    return np.diff(counts.query[first]) == 0, *sums
