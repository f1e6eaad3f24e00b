"""A raw log read by an engine, and by the twin, in one form that can be compared."""

import math

import twins_logs
from twins_impressions import as_dict

from countersample.errors import DataError
from countersample.logs import read_impressions

REFUSED = "refused"


def found(path, engine):
    """Return (rows, impossible ones, groups, propensities) as the engine has them, or `REFUSED`."""
    try:
        with read_impressions(path, engine=engine) as log:
            check = log.check()
            counts = as_dict(check.counts)
            values = check.counts.value.tolist()
            rows = zip(counts.items(), values, strict=True)
            groups = {key: (*both, value) for (key, both), value in rows}
            problems = check.problems
            return problems.n_rows, problems.n_invalid, groups, _logged(log, check.counts)
    except DataError as error:
        if "\n" in str(error):
            raise AssertionError("an error of several lines") from error
        return REFUSED


def _logged(log, counts):
    if "propensity" not in log.columns:
        return {}
    try:
        values = log.logged_propensities(counts).value.tolist()
    except DataError:
        return REFUSED
    return {key: p for key, p in zip(as_dict(counts), values, strict=True) if not math.isnan(p)}


def expected(data, ending):
    """Return the same, by the twin; and whether an engine may refuse it."""
    try:
        if ending == ".jsonl":
            rows, may_refuse = twins_logs.read_json_lines(data)
        else:
            rows, may_refuse = twins_logs.read_csv(data, {".csv": ",", ".tsv": "\t"}[ending]), False
    except twins_logs.Refused:
        return REFUSED, True
    return expected_of_rows(rows, has_text_ids=ending != ".jsonl"), may_refuse


def expected_of_rows(rows, *, has_text_ids):
    """Return the same, of rows that are read already."""
    try:
        *rest, weights = twins_logs.count(rows, has_text_ids=has_text_ids)
    except twins_logs.Refused:
        return REFUSED
    logged = twins_logs.propensities(weights)
    return (*rest, REFUSED if logged is None else logged)


def check(path, engines):
    """Compare the counts of a file by engines with those of the twin."""
    right, may_refuse = expected(path.read_bytes(), path.suffix)
    for engine in engines:
        result = found(path, engine)
        if not (alike(result, right) or (may_refuse and result == REFUSED)):
            raise AssertionError(f"{engine} found {result}, expected {right}")


def alike(one, other):
    """Return whether both are the same; sums that are not whole may differ in the last bits."""
    if REFUSED in (one, other):
        return one == other
    if one[:2] != other[:2] or list(one[2]) != list(other[2]) or not _near(one[2], other[2]):
        return False
    if REFUSED in (one[3], other[3]):
        return one[3] == other[3]
    return _near(*({key: (p,) for key, p in each[3].items()} for each in (one, other)))


def _near(one, other):
    return one.keys() == other.keys() and all(
        math.isclose(a, b, rel_tol=1e-12)
        for key in one
        for a, b in zip(one[key], other[key], strict=True)
    )
