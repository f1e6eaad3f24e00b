"""Queries that differ in case and blanks only, joined: one rule for logs and for features."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_BLANKS = "[ \t\n\r\f\v\u00a0]+"
# What engines write in different ways in lower case: İ as two characters, Σ at the end of a word.
_LIKE = {"i\u0307": "i", "ς": "σ"}


def join_query_ids(ids: ArrayLike) -> NDArray[Any]:
    """Return ids of queries in lower case, with single blanks, and none at the ends.

    Ids that are integers stay as they are. It is the rule of
    ``read_impressions(join_queries=True)``, for the ids of features.

    Examples
    --------
    >>> from countersample.clicks.impressions.queries import join_query_ids
    >>> join_query_ids(["Red  Shoe", " red shoe"]).tolist()
    ['red shoe', 'red shoe']
    """
    array = np.asarray(ids)
    if array.dtype.kind not in "OUT":
        return array
    return np.array([_joined(str(text)) for text in array.tolist()], dtype=np.str_)


def joined_queries(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return a log with such ids of its queries, lazily."""
    if frame.collect_schema()["query_id"] != nw.String:
        return frame
    text = nw.col("query_id").str.to_lowercase()
    for written, like in _LIKE.items():
        text = text.str.replace_all(written, like, literal=True)
    text = text.str.replace_all(_BLANKS, " ").str.strip_chars(" ")
    return frame.with_columns(query_id=text)


def _joined(text: str) -> str:
    text = text.lower()
    for written, like in _LIKE.items():
        text = text.replace(written, like)
    return re.sub(_BLANKS, " ", text).strip(" ")
