"""The slow, obvious reader of LETOR text that the kernel is compared with.

It shares no code with the package: regular expressions, Python's float, lists.
"""

import re

import numpy as np

NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\Z")
LARGEST_INDEX = 1_000_000


class Refused(Exception):  # noqa: N818 (what happens, not an accident)
    """The text is not LETOR text; has the line, counted from 1."""

    def __init__(self, line):
        super().__init__(line)
        self.line = line


def to_float32(token, line):
    if not NUMBER.match(token):
        raise Refused(line)
    with np.errstate(over="ignore"):
        value = np.float32(float(token))
    if not np.isfinite(value):
        raise Refused(line)
    return value + np.float32(0)


def parse_line(text, line, *, with_qid=True):
    """Return (label, id, {index: value}), or None for a line without a row."""
    if "\r" in text.removesuffix("\r").split("#")[0]:
        raise Refused(line)
    content = text.removesuffix("\r").split("#")[0].strip(" \t")
    if not content:
        return None
    tokens = re.split("[ \t]+", content)
    label = to_float32(tokens[0], line)
    query = None
    tokens = tokens[1:]
    if with_qid:
        if not tokens or not re.match(r"qid:[^\x00-\x1f]+\Z", tokens[0]):
            raise Refused(line)
        query = tokens[0][4:]
        tokens = tokens[1:]
    values = {}
    last = -1
    for token in tokens:
        match = re.match(r"([0-9]+):(.*)\Z", token, re.DOTALL)
        if not match or int(match[1]) > LARGEST_INDEX or int(match[1]) <= last:
            raise Refused(line)
        last = int(match[1])
        values[last] = to_float32(match[2], line)
    return label, query, values


def read(data):
    """Read bytes; return (features, labels, offsets, ids as strings)."""
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    queries = {}
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        row = parse_line(line, number)
        if row is not None:
            queries.setdefault(row[1], []).append(row)
    rows = [row for members in queries.values() for row in members]
    if not rows:
        raise Refused(0)
    indices = [index for _, _, values in rows for index in values]
    base = 0 if 0 in indices else 1
    features = np.zeros((len(rows), max(indices, default=base - 1) - base + 1), np.float32)
    for position, (_, _, values) in enumerate(rows):
        for index, value in values.items():
            features[position, index - base] = value
    labels = np.array([label for label, _, _ in rows], np.float32)
    offsets = np.cumsum([0, *(len(members) for members in queries.values())])
    return features, labels, offsets, list(queries)
