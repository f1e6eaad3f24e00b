"""Write LETOR text: rows of a matrix in, bytes out.

A number is written with the fewest digits that read back as the same float32: one digit is tried,
then two, and so on, each with the arithmetic of the reader (`_kernels.letor.float32_of`).
"""

import numpy as np

from countersample._kernels.compiling import kernel, part
from countersample._kernels.letor import Matrix, Table, Text, float32_of

LONGEST_NUMBER = 24  # sign, 17 digits, point, e, sign, 2 digits, and one spare
_POWERS = np.array([float(f"1e{k}") for k in range(64)])
_QID = np.frombuffer(b" qid:", np.uint8)
_SPACE, _COLON, _MINUS, _POINT, _ZERO, _LOWER_E = 32, 58, 45, 46, 48, 101


@part()
def _shortest(value: np.float32) -> tuple[np.uint64, int]:
    """Return (mantissa, power) with the fewest digits such that float32(mantissa·10^power) = value.

    `value` is positive.
    """
    wide = np.float64(value)
    leading = np.int64(np.floor(np.log10(wide)))  # −45 … 38
    for digits in range(1, 18):
        power = leading - digits + 1
        scaled = wide / _POWERS[power] if power > 0 else wide * _POWERS[-power]
        mantissa = np.uint64(np.rint(scaled))
        back, certain = float32_of(mantissa, power, False)
        if certain and back == value:
            break
    while mantissa % np.uint64(10) == 0:
        mantissa //= np.uint64(10)
        power += 1
    return mantissa, power


@part()
def _write_integer(out: Text, at: int, number: np.uint64) -> int:
    """Write a number that is not negative; return its end."""
    length = 1
    rest = number // np.uint64(10)
    while rest > 0:
        length += 1
        rest //= np.uint64(10)
    for k in range(length):
        out[at + length - 1 - k] = _ZERO + number % np.uint64(10)
        number //= np.uint64(10)
    return at + length


@part()
def write_number(out: Text, at: int, value: np.float32) -> int:
    """Write a finite float32 at ``out[at:]``; return its end."""
    if value == 0.0:
        out[at] = _ZERO
        return at + 1
    if value < 0.0:
        out[at] = _MINUS
        at += 1
        value = -value
    mantissa, power = _shortest(value)
    end = _write_integer(out, at, mantissa)
    digits = end - at
    if power == 0:
        return end
    if power > 0 and digits + power <= 9:  # 12000
        for k in range(end, end + power):
            out[k] = _ZERO
        return end + power
    whole = digits + power  # digits before the point
    if power < 0 and whole > 0:  # 12.5
        for k in range(end, at + whole, -1):
            out[k] = out[k - 1]
        out[at + whole] = _POINT
        return end + 1
    if power < 0 and whole > -5:  # 0.00125
        shift = 2 - whole
        for k in range(end - 1, at - 1, -1):
            out[k + shift] = out[k]
        for k in range(at, at + shift):
            out[k] = _ZERO
        out[at + 1] = _POINT
        return end + shift
    out[end] = _LOWER_E  # 125e-9
    end += 1
    if power < 0:
        out[end] = _MINUS
        end += 1
        power = -power
    return _write_integer(out, end, np.uint64(power))


@kernel()
def write_rows(
    out: Text,
    features: Matrix,
    labels: Matrix,
    ids: Text,
    id_starts: Table,
    query_of_row: Table,
    keep_last: bool,
) -> int:
    """Write rows as ``label qid:ID index:value …`` lines; return the number of bytes.

    `out` is long enough for the longest rows. The id of query q is ``ids[id_starts[q] :
    id_starts[q + 1]]``. With `keep_last` the first row contains the last feature even if it is 0,
    so that a reader finds the width.
    """
    at, width = 0, features.shape[1]
    for row in range(len(labels)):
        at = write_number(out, at, labels[row])
        for k in range(len(_QID)):
            out[at + k] = _QID[k]
        at += len(_QID)
        query = query_of_row[row]
        for k in range(id_starts[query], id_starts[query + 1]):
            out[at] = ids[k]
            at += 1
        always = width - 1 if keep_last and row == 0 else -1  # the column to write even if 0
        for column in range(width):
            value = features[row, column]
            if value != 0.0 or column == always:
                out[at] = _SPACE
                at = _write_integer(out, at + 1, np.uint64(column + 1))
                out[at] = _COLON
                at = write_number(out, at + 1, value)
        out[at] = 10
        at += 1
    return at
