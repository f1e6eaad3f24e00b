"""Judgements as others read them: a table, Quepid's CSV, OpenSearch's request, TREC's qrels."""

from __future__ import annotations

import csv
import json
import re
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countersample._files import atomic_path
from countersample._frames import make_frame
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from os import PathLike

    from numpy.typing import ArrayLike

    Columns = Mapping[str, ArrayLike]
    Target = str | PathLike[str]

_TABLES = (".parquet", ".csv")
_BREAK = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")


def check_table_name(path: Target) -> Path:
    """Return the path; refuse one whose ending is not that of a table."""
    path = Path(path)
    if path.suffix not in _TABLES:
        raise ParameterError(
            f"{path}: expected a name that ends in {' or '.join(_TABLES)} for a table, or say who "
            "reads the judgements (--to quepid, opensearch or qrels)"
        )
    return path


def _table(path: Target, columns: Columns) -> None:
    """Write all columns."""
    from pyarrow import csv as arrow_csv  # noqa: PLC0415 (heavy, only where used)
    from pyarrow import parquet  # noqa: PLC0415

    path = check_table_name(path)
    table = make_frame(columns, "pyarrow")
    with atomic_path(path) as temporary:
        if path.suffix == ".parquet":
            parquet.write_table(table, temporary)
        else:
            arrow_csv.write_csv(table, temporary)


def _quepid(path: Target, columns: Columns) -> None:
    """Write ``query,docid,rating``, which Quepid imports as ratings of a case."""
    rows = list(_rows(columns, "Quepid", _in_cell))
    with (
        atomic_path(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["query", "docid", "rating"])
        writer.writerows(rows)


def _opensearch(path: Target, columns: Columns) -> None:
    """Write the body of ``PUT _plugins/_search_relevance/judgments``.

    Ratings are text, as in its documentation: releases before 3.3 refuse numbers.
    """
    rows = _rows(columns, "OpenSearch", _in_cell)
    ratings = [
        {
            "query": query,
            "ratings": [{"docId": item, "rating": str(grade)} for _, item, grade in own],
        }
        for query, own in groupby(rows, itemgetter(0))
    ]
    body = {
        "name": Path(path).stem,
        "description": "Relevance estimated from clicks, corrected for position bias",
        "type": "IMPORT_JUDGMENT",
        "judgmentRatings": ratings,
    }
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(body, ensure_ascii=False) + "\n", "utf-8")


def _qrels(path: Target, columns: Columns) -> None:
    """Write ``query 0 item grade``, as trec_eval reads it."""
    rows = list(_rows(columns, "a line of qrels", _in_word))
    with atomic_path(path) as temporary:
        lines = (f"{query} 0 {item} {grade}\n" for query, item, grade in rows)
        temporary.write_text("".join(lines), "utf-8")


JUDGEMENT_FORMATS: dict[str, Callable[[Target, Columns], None]] = {
    "table": _table,
    "quepid": _quepid,
    "opensearch": _opensearch,
    "qrels": _qrels,
}


def _rows(
    columns: Columns, who: str, problem: Callable[[str], str | None]
) -> Iterator[tuple[str, str, int]]:
    """Go through query, item and grade as text; refuse an id that cannot be held."""
    told: dict[Any, str] = {}
    named = (("query_id", "query"), ("item_id", "item"))
    ids = [columns[name].tolist() for name, _ in named]  # type: ignore[union-attr]
    for *pair, grade in zip(*ids, columns["grade"].tolist(), strict=True):  # type: ignore[union-attr]
        for (name, what), each in zip(named, pair, strict=True):
            if each not in told:
                told[each] = str(each)
                if (wrong := problem(told[each])) is not None:
                    raise DataError(
                        f"the {what} id {told[each]!r} {wrong}, which {who} cannot hold: give "
                        f"another column of the log as {name} (--columns {name}=…), or write a "
                        "table (--to table)"
                    )
        query, item = (told[each] for each in pair)
        yield query, item, int(grade)


def _in_cell(text: str) -> str | None:
    if not text.strip():
        return "is empty"
    if text != text.strip():
        return "begins or ends with a blank"
    return "has a line break or another control character" if _BREAK.search(text) else None


def _in_word(text: str) -> str | None:
    if not text:
        return "is empty"
    return "has a blank" if len(text.split()) > 1 or text != text.strip() else _in_cell(text)
