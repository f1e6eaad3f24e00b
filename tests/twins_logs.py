"""The slow, obvious reading of raw logs: Python's own csv and json, a row at a time.

It shares no code with the package. What is not a log is `Refused`.
"""

import csv
import io
import json
import math
import re
from collections import defaultdict

IDS = ("query_id", "item_id")
NEEDED = (*IDS, "position", "click")
CANONICAL = (*NEEDED, "session", "client", "timestamp", "policy", "impressions", "propensity",
             "context", "value", "event")  # fmt: skip
_JSON_BLANKS = " \t\r\n"
_LENIENT = re.compile(r",(?=[ \t\r\n]*[}\]])|-(?=NaN)")  # what DuckDB skips
NUMBERS = ("position", "click", "impressions", "propensity", "value")
_NUMBER = re.compile(r"[+-]?(\d{1,99}(\.\d{0,99})?|\.\d{1,99})(e[+-]?\d{1,2})?", re.ASCII)
_INTEGER = re.compile(r"0|-?[1-9]\d{0,17}", re.ASCII)
_KINDS = {bool: "truth", int: "number", float: "number", str: "text", dict: "object", list: "list"}
csv.field_size_limit(1 << 24)


class Refused(Exception):  # noqa: N818 (what happens, not an accident)
    """It is not a log."""


def read_csv(data, delimiter=","):
    """Return the rows as dicts of text, None where nothing is there."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused from error
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    names, *rows = [line for line in lines if line] or [[]]
    if not names or len(set(names)) < len(names):
        raise Refused
    if any(len(row) != len(names) for row in rows):
        raise Refused
    return [dict(zip(names, [value or None for value in row], strict=True)) for row in rows]


def read_json_lines(data):
    """Return the rows as dicts; and whether a reader may refuse them, as one that is stricter.

    It may refuse what is not an object per line, a byte order mark, half of a surrogate pair, a
    number beyond floats, a type that changes in a column that is not used, a comma after the last
    value of an object or list, and "-NaN".
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Refused from error
    try:
        rows, is_odd = _read_objects(text)
    except (ValueError, RecursionError):
        try:
            (rows, _), is_odd = _read_objects(_LENIENT.sub("", text)), True
        except (ValueError, RecursionError) as error:
            raise Refused from error
    kinds = defaultdict(set)
    for row in rows:
        if not isinstance(row, dict):
            raise Refused
        for name, value in row.items():
            kinds[name] |= {_KINDS[type(value)]} if value is not None else set()
            is_odd |= value in (math.inf, -math.inf) or "\0" in name
            is_odd |= isinstance(value, dict | list)  # within which types may change
        is_odd |= any("\ud800" <= c <= "\udfff" for c in json.dumps(row, ensure_ascii=False))
    mixed = {name for name, found in kinds.items() if len(found) > 1}
    if mixed.intersection(CANONICAL):
        raise Refused
    return rows, is_odd or bool(mixed)


def _read_objects(text):
    """Return the values, without columns for null; and whether a stricter reader may refuse."""
    is_odd = text.startswith("\ufeff")
    rest, rows = text.removeprefix("\ufeff").strip(_JSON_BLANKS), []
    decoder = json.JSONDecoder(object_pairs_hook=_object)
    while rest:
        row, end = decoder.raw_decode(rest)
        is_odd |= "\n" in rest[:end] or not re.match(r"[ \t\r]*(\n|$)", rest[end:])
        rest = rest[end:].lstrip(_JSON_BLANKS)
        is_odd |= row is None  # some readers make a row of nulls
        rows.append({} if row is None else row)
    return rows, is_odd


def _object(pairs):
    if len(dict(pairs)) < len(pairs):
        raise Refused
    return dict(pairs)


def as_number(value):
    """Return a number, None where it is none."""
    if isinstance(value, str):
        text = value.strip(" \t\n\r\f\v").lower()
        text = {"true": "1", "false": "0"}.get(text, text)
        value = float(text) if _NUMBER.fullmatch(text) else None
    return None if value is None or not math.isfinite(value) else value


def count(rows, *, has_text_ids):
    """Return what `check` must find: rows, impossible ones, groups, and clicks to be weighed."""
    columns = {name for row in rows for name in row}
    _check_columns(rows, columns)
    good = [row for row in rows if _is_possible(row, columns)]
    if not good:
        raise Refused
    for name in IDS:
        good = _with_ids(good, name, has_text_ids=has_text_ids)
    groups = defaultdict(lambda: [0, 0, 0.0])
    weights = defaultdict(list)
    for row in good:
        key = row["query_id"], row["item_id"], int(as_number(row["position"]))
        click = int(as_number(row["click"]))
        worth = (as_number(row["value"]) if "value" in columns else click) if click else 0
        shown = int(as_number(row["impressions"])) if "impressions" in columns else 1
        for k, part in enumerate((shown, click, worth)):
            groups[key][k] += part
        if click and "propensity" in columns:
            weights[key].append((worth, as_number(row.get("propensity"))))
    if sum(shown for shown, _, _ in groups.values()) > 2**53:
        raise Refused
    return len(rows), len(rows) - len(good), {k: tuple(groups[k]) for k in sorted(groups)}, weights


def _check_columns(rows, columns):
    if not columns.issuperset(NEEDED):
        raise Refused
    for name in IDS:
        kinds = {type(row[name]) for row in rows if row.get(name) is not None}
        if kinds - {int} and kinds - {str}:
            raise Refused
    for name in columns.intersection(NUMBERS):
        if any(isinstance(row.get(name), dict | list) for row in rows):
            raise Refused


def _with_ids(rows, name, *, has_text_ids):
    ids = [row[name] for row in rows]
    if any(isinstance(i, int) and not -(2**63) <= i < 2**63 for i in ids):
        raise Refused
    if has_text_ids and all(_INTEGER.fullmatch(i) for i in ids):
        return [{**row, name: int(row[name])} for row in rows]
    return rows


def propensities(weights):
    """Return {key: Σ value / Σ value/propensity}; None where one is none."""
    found = {}
    for key, parts in weights.items():
        if any(p is None or not 0 < p <= 1 for _, p in parts):
            return None
        total = sum(worth for worth, _ in parts)
        weight = sum(worth / p for worth, p in parts)
        if not math.isfinite(weight):
            return None
        found[key] = min(total / weight, 1.0) if total else 1.0
    return found


def _can_be_stored(value):
    is_odd = isinstance(value, str) and (len(value) > 1_000 or value.endswith("\0"))
    return value is not None and not is_odd


def _is_possible(row, columns):
    position, click = as_number(row.get("position")), as_number(row.get("click"))
    most = as_number(row.get("impressions")) if "impressions" in columns else 1
    has_value = True
    if "value" in columns and click:
        value = as_number(row.get("value"))
        has_value = value is not None and value >= 0
    return (
        all(_can_be_stored(row.get(name)) for name in IDS)
        and all(number is not None and number == int(number) for number in (position, click, most))
        and 1 <= position <= 100_000
        and 1 <= most <= 2**53
        and 0 <= click <= most
        and has_value
    )
