"""Read and write LETOR text: bytes to rows of a matrix, and back.

``label qid:ID index:value index:value … # comment``, one row per line. A number is
``[+-] digits [. digits] [e [+-] digits]`` with a digit on at least one side of the point.

Most numbers are short. `_short_number` reads them eight digits at a time: the bytes of the text are
one uint64, in which arithmetic on all bytes at once finds the first byte that is not a digit, and
three multiplications join the digits. It is exact if mantissa and power of ten are exact in
float64. `_any_number` reads all others. `float32_of` bounds the error of their float64 product; if
float32 does not follow from the bound, the row is listed as uncertain, and Python parses it again.

A number is written with the fewest digits that read back as the same float32: one digit is tried,
then two, and so on, each with the arithmetic of the reader.
"""

import numpy as np
from numpy.typing import NDArray

from countersample._kernels.compiling import kernel, part

Text = NDArray[np.uint8]
Matrix = NDArray[np.float32]
Table = NDArray[np.int64]

# The reasons why a parse ended. `letor_error` in countersample.data.letor_reader words each.
OK, BAD_LABEL, BAD_QID, BAD_FEATURE = range(4)
BAD_VALUE, NOT_FINITE, WRONG_ORDER, REPEATED, TOO_MANY_FEATURES = range(5, 10)

LONGEST_NUMBER = 24  # bytes to write: sign, 17 digits, point, e, sign, 2 digits, and one spare
MAX_INDEX = 1_000_000  # a dense row of this width takes 4 MB; wider data is not meant to be dense

_TAB, _LF, _CR, _SPACE, _HASH, _COLON = 9, 10, 13, 32, 35, 58
_QID = np.frombuffer(b" qid:", np.uint8)
_PLUS, _MINUS, _POINT, _ZERO, _LOWER_E, _UPPER_E = 43, 45, 46, 48, 101, 69

_POWERS = np.array([float(f"1e{k}") for k in range(23)])  # each exact in float64
_SMALLEST_POWER = -400
_WIDE_POWERS = np.array([float(f"1e{k}") for k in range(_SMALLEST_POWER, 309)])
_EXACT = np.uint64(2**53)
_LARGEST = np.finfo(np.float32).max
_SLACK = 2.0**-50  # relative error allowed for a product of two rounded numbers

# Eight bytes of text as one uint64, the first in the lowest byte.
_ZEROS = np.uint64(0x3030303030303030)
_BEYOND_NINE = np.uint64(0x7676767676767676)  # 0x80 − 10 in each byte
_HIGH_BITS = np.uint64(0x8080808080808080)
_LOW_BITS = np.uint64(0x0101010101010101)
_PAIRS = np.uint64(0x00FF00FF00FF00FF)
_FOURS = np.uint64(0x0000FFFF0000FFFF)
_BY_PAIRS = np.uint64(1 + (10 << 8))
_BY_FOURS = np.uint64(1 + (100 << 16))
_BY_EIGHTS = np.uint64(1 + (10_000 << 32))
_EIGHT_DIGITS = np.uint64(100_000_000)
_LINE_FEEDS = np.uint64(0x0A0A0A0A0A0A0A0A)


@part()
def _byte(text: Text, at: int) -> np.uint8:
    """Return ``text[at]``; an unsigned index saves the check whether it counts from the end."""
    return text[np.uintp(at)]


@part()
def _is_end(byte: np.uint8) -> bool:
    """Return whether a byte ends a token: white space, line end, or the start of a comment."""
    return byte == _SPACE or byte == _LF or byte == _TAB or byte == _CR or byte == _HASH


@part()
def float32_of(mantissa: np.uint64, power: int, more_digits: bool) -> tuple[np.float32, bool]:
    """Return float32(mantissa · 10^power) and whether that is certain.

    Exact if both parts are exact in float64 (Clinger's fast path). Otherwise the true value lies
    within a relative 2⁻⁵⁰ of a float64 product, and the result is certain when the whole interval
    rounds to one float32.
    """
    if mantissa == 0:
        return np.float32(0.0), not more_digits
    if mantissa <= _EXACT and not more_digits:
        if -22 <= power < 0:
            return np.float32(np.float64(mantissa) / _POWERS[-power]), True
        if 0 <= power <= 22:
            return np.float32(np.float64(mantissa) * _POWERS[power]), True
    if power > 308:
        return np.float32(np.inf), True
    if power < _SMALLEST_POWER:
        return np.float32(0.0), True
    if power >= -300:
        value = np.float64(mantissa) * _WIDE_POWERS[power - _SMALLEST_POWER]
    else:  # the power alone would be subnormal
        value = np.float64(mantissa) * 1e-100 * _WIDE_POWERS[power + 100 - _SMALLEST_POWER]
    low = np.float32(value * (1.0 - _SLACK))
    return low, low == np.float32(value * (1.0 + _SLACK))


@part()
def _long_number(text: Text, at: int) -> tuple[np.uint64, int, bool, int]:
    """Read a number of any length at `at`: mantissa, power of ten, digits cut off, and its end.

    The end is −1 if there is no number.
    """
    mantissa = np.uint64(0)
    significant = digits = power = 0
    cut = after_point = False
    while True:
        byte = _byte(text, at)
        digit = np.uint64(byte) - np.uint64(_ZERO)
        if digit <= np.uint64(9):
            digits += 1
            if significant < 19:
                mantissa = mantissa * np.uint64(10) + digit
                if mantissa > 0:
                    significant += 1
                if after_point:
                    power -= 1
            else:
                cut = cut or digit > 0
                if not after_point:
                    power += 1
        elif byte == _POINT and not after_point:
            after_point = True
        else:
            break
        at += 1
    if digits == 0:
        return mantissa, power, cut, -1
    if _byte(text, at) == _LOWER_E or _byte(text, at) == _UPPER_E:
        at += 1
        negative = _byte(text, at) == _MINUS
        if negative or _byte(text, at) == _PLUS:
            at += 1
        first = at
        exponent = 0
        while True:
            digit = np.int64(_byte(text, at)) - _ZERO
            if digit < 0 or digit > 9:
                break
            exponent = min(exponent * 10 + digit, 1_000_000_000)
            at += 1
        if at == first:
            return mantissa, power, cut, -1
        power += -exponent if negative else exponent
    return mantissa, power, cut, at


@part()
def _eight_bytes(text: Text, at: int) -> np.uint64:
    """Return ``text[at : at + 8]`` as one number; the compiler makes one load of it."""
    return (
        np.uint64(_byte(text, at))
        | np.uint64(_byte(text, at + 1)) << np.uint64(8)
        | np.uint64(_byte(text, at + 2)) << np.uint64(16)
        | np.uint64(_byte(text, at + 3)) << np.uint64(24)
        | np.uint64(_byte(text, at + 4)) << np.uint64(32)
        | np.uint64(_byte(text, at + 5)) << np.uint64(40)
        | np.uint64(_byte(text, at + 6)) << np.uint64(48)
        | np.uint64(_byte(text, at + 7)) << np.uint64(56)
    )


@part()
def _eight_digits(word: np.uint64) -> np.uint64:
    """Return the number whose eight digits, 0 to 9, are the bytes of a word."""
    word = ((word * _BY_PAIRS) >> np.uint64(8)) & _PAIRS
    word = ((word * _BY_FOURS) >> np.uint64(16)) & _FOURS
    return (word * _BY_EIGHTS) >> np.uint64(32)


@part()
def _decimals(text: Text, at: int) -> tuple[np.uint64, int]:
    """Read up to eight digits at `at`, after a point: their value in 10⁻⁸, and their number."""
    word = _eight_bytes(text, at) ^ _ZEROS
    # The high bit of each byte that is no digit; later bytes may be wrong.
    others = ((word + _BEYOND_NINE) | word) & _HIGH_BITS
    if others == np.uint64(0):
        return _eight_digits(word), 8
    upto = others ^ (others - np.uint64(1))  # all bits of the digits and of the byte after them
    count = ((upto & _LOW_BITS) * _LOW_BITS) >> np.uint64(56)
    return _eight_digits(word & (upto >> np.uint64(8))), np.int64(count) - 1


@part()
def _any_number(text: Text, at: int) -> tuple[np.float32, bool, int]:
    """Read a number at `at`: its float32, whether that is certain, and its end (−1: no number)."""
    negative = _byte(text, at) == _MINUS
    if negative or _byte(text, at) == _PLUS:
        at += 1
    mantissa, power, more_digits, at = _long_number(text, at)
    if at < 0:
        return np.float32(0.0), True, at
    value, certain = float32_of(mantissa, power, more_digits)
    if negative and value != 0.0:  # no −0: equal data must have equal bytes
        value = -value
    return value, certain, at


@part(forceinline=True)
def _short_number(text: Text, at: int) -> tuple[np.float32, bool, int]:
    """Read a number at `at` with few digits and no exponent: its float32 and its end.

    Also return whether it is exact: if not, `_any_number` has to read it. It is inlined, since a
    call would count the references to the text, which takes longer than to read a number.
    """
    negative = False
    digit = np.uint64(_byte(text, at)) - np.uint64(_ZERO)
    if digit > np.uint64(9):
        negative = _byte(text, at) == _MINUS
        if negative or _byte(text, at) == _PLUS:
            at += 1
            digit = np.uint64(_byte(text, at)) - np.uint64(_ZERO)
    start = at
    mantissa = np.uint64(0)
    while digit <= np.uint64(9):
        mantissa = mantissa * np.uint64(10) + digit
        at += 1
        digit = np.uint64(_byte(text, at)) - np.uint64(_ZERO)
    whole = at - start
    count = places = 0
    if _byte(text, at) == _POINT:
        decimals, count = _decimals(text, at + 1)
        mantissa = mantissa * _EIGHT_DIGITS + decimals
        places = 8
        at += 1 + count
        if count == 8:
            digit = np.uint64(_byte(text, at)) - np.uint64(_ZERO)
            while digit <= np.uint64(9):
                mantissa = mantissa * np.uint64(10) + digit
                places += 1
                at += 1
                digit = np.uint64(_byte(text, at)) - np.uint64(_ZERO)
    exact = whole + count > 0 and whole + places <= 18 and mantissa <= _EXACT
    signed = -np.int64(mantissa) if negative else np.int64(mantissa)  # no −0 from this
    return np.float32(np.float64(signed) / _POWERS[np.uintp(min(places, 18))]), exact, at


@part()
def _long_index(text: Text, start: int, stop: int) -> int:
    """Return the number of the digits ``text[start:stop]``, or one beyond MAX_INDEX for more."""
    index = 0
    for at in range(start, stop):
        index = min(index * 10 + np.int64(_byte(text, at)) - _ZERO, MAX_INDEX + 1)
    return index


@part()
def _same_bytes(text: Text, one: int, other: int, length: int) -> bool:
    for k in range(length):
        if _byte(text, one + k) != _byte(text, other + k):
            return False
    return True


@kernel()
def count_rows(text: Text, start: int, stop: int) -> tuple[int, int]:
    """Return how many lines ``text[start:stop]`` has, and how many of them `parse_rows` takes.

    It takes the lines that are neither blank nor a comment. As there, ``text[stop - 1]`` must be a
    line feed, and the text must continue for eight bytes.
    """
    n_lines = n_rows = 0
    at = start
    while at < stop:
        n_lines += 1
        while _byte(text, at) == _SPACE or _byte(text, at) == _TAB:
            at += 1
        byte = _byte(text, at)
        if byte == _LF:
            at += 1
            continue
        if byte != _HASH and not (byte == _CR and _byte(text, at + 1) == _LF):
            n_rows += 1
        while True:
            word = _eight_bytes(text, at) ^ _LINE_FEEDS
            # The high bit of each line feed; later bytes may be wrong.
            feeds = (word - _LOW_BITS) & ~word & _HIGH_BITS
            if feeds != np.uint64(0):
                break
            at += 8
        upto = feeds ^ (feeds - np.uint64(1))  # all bits up to the first line feed's
        at += np.int64(((upto & _LOW_BITS) * _LOW_BITS) >> np.uint64(56))
    return n_lines, n_rows


@kernel()
def parse_rows(
    text: Text, start: int, stop: int, base: int, clip: bool, features: Matrix,
    labels: Matrix, runs: Table, uncertain: Table,
) -> tuple[int, int, int, int, int, int]:  # fmt: skip
    """Parse the lines ``text[start:stop]`` into rows; ``text[stop - 1]`` must be a line feed.

    The text must continue for eight bytes of any content after `stop`.

    Parameters
    ----------
    text : uint8 (n_bytes,)
    start, stop : int
    base : int
        The feature number of the first column: 0 or 1.
    clip : bool
        Whether a number beyond float32 becomes the largest float32; else it is NOT_FINITE.
    features : float32 (n_rows, width), out
        With the number of rows that `count_rows` returns, like the other outputs.
        Columns at or beyond the width are not written; `max_index` shows that there were such.
    labels : float32 (n_rows,), out
    runs : int64 (n_rows, 3), out
        For each row whose id differs from the row before: row, start and length of the id.
    uncertain : int64 (n_rows, 2), out
        For each row with a number that needs exact arithmetic: row, start of its line.

    Returns
    -------
    n_runs, n_uncertain, min_index, max_index, status, at : int
        `status` is OK or the code of the error at byte `at`.
    """
    width = features.shape[1]
    row = n_runs = n_uncertain = id_at = 0
    min_index, max_index, id_length = MAX_INDEX, -1, -1
    at = start
    while at < stop:
        while _byte(text, at) == _SPACE or _byte(text, at) == _TAB:
            at += 1
        if _byte(text, at) == _CR and _byte(text, at + 1) == _LF:
            at += 1
        if _byte(text, at) == _LF:
            at += 1
            continue
        if _byte(text, at) == _HASH:
            while _byte(text, at) != _LF:
                at += 1
            at += 1
            continue
        line = at

        value, row_certain, end = _any_number(text, at)
        if end < 0 or not _is_end(_byte(text, end)):
            return n_runs, n_uncertain, min_index, max_index, BAD_LABEL, at
        if np.isinf(value):
            if not clip:
                return n_runs, n_uncertain, min_index, max_index, NOT_FINITE, at
            value = np.copysign(_LARGEST, value)
        labels[row] = value
        at = end
        while _byte(text, at) == _SPACE or _byte(text, at) == _TAB:
            at += 1

        # 113 105 100 is "qid"; the line feed at the end keeps these reads inside the text.
        has_qid = (
            _byte(text, at) == 113
            and _byte(text, at + 1) == 105
            and _byte(text, at + 2) == 100
            and _byte(text, at + 3) == _COLON
        )
        if not has_qid:
            return n_runs, n_uncertain, min_index, max_index, BAD_QID, at
        first = at + 4
        end = first
        while _byte(text, end) > _SPACE and _byte(text, end) != _HASH:
            end += 1
        if end == first or not _is_end(_byte(text, end)):  # an id has no control characters
            return n_runs, n_uncertain, min_index, max_index, BAD_QID, at
        if end - first != id_length or not _same_bytes(text, first, id_at, id_length):
            id_at, id_length = first, end - first
            runs[n_runs, 0], runs[n_runs, 1], runs[n_runs, 2] = row, id_at, id_length
            n_runs += 1
        at = end

        for column in range(width):
            features[row, column] = 0.0
        last = -1
        while True:
            while _byte(text, at) == _SPACE or _byte(text, at) == _TAB:
                at += 1
            byte = _byte(text, at)
            if byte == _LF:
                break
            if byte == _HASH:
                while _byte(text, at) != _LF:
                    at += 1
                break
            if byte == _CR and _byte(text, at + 1) == _LF:
                at += 1
                break
            token = at
            digits = np.uint64(0)
            digit = np.uint64(byte) - np.uint64(_ZERO)
            while digit <= np.uint64(9):
                digits = digits * np.uint64(10) + digit
                at += 1
                digit = np.uint64(_byte(text, at)) - np.uint64(_ZERO)
            index = np.int64(digits) if at - token <= 7 else _long_index(text, token, at)
            if index > MAX_INDEX:
                return n_runs, n_uncertain, min_index, max_index, TOO_MANY_FEATURES, token
            if at == token or _byte(text, at) != _COLON:
                return n_runs, n_uncertain, min_index, max_index, BAD_FEATURE, token
            at += 1
            value, exact, end = _short_number(text, at)
            if not exact or not _is_end(_byte(text, end)):
                value, certain, end = _any_number(text, at)
                if end < 0 or not _is_end(_byte(text, end)):
                    return n_runs, n_uncertain, min_index, max_index, BAD_VALUE, at
                if np.isinf(value):
                    if not clip:
                        return n_runs, n_uncertain, min_index, max_index, NOT_FINITE, at
                    value = np.copysign(_LARGEST, value)
                row_certain = row_certain and certain
            if index <= last:
                status = REPEATED if index == last else WRONG_ORDER
                return n_runs, n_uncertain, min_index, max_index, status, token
            if last < 0:
                min_index = min(min_index, index)
            last = index
            at = end
            column = np.uintp(index - base)  # beyond any width if it is below 0
            if column < np.uintp(width):
                features[np.uintp(row), column] = value
        max_index = max(max_index, last)
        if not row_certain:
            uncertain[n_uncertain, 0], uncertain[n_uncertain, 1] = row, line
            n_uncertain += 1
        row += 1
        at += 1
    return n_runs, n_uncertain, min_index, max_index, OK, at


@kernel()
def widen_rows(flat: Matrix, n_rows: int, width: int, new_width: int, shift: int) -> None:
    """Widen `n_rows` rows of `width` in place to `new_width`, moved right by `shift`.

    Rows move to the back, so the last goes first; new columns are 0.
    """
    n_moved = min(width, new_width - shift)
    for k in range(n_rows):
        row = n_rows - 1 - k
        old = row * width
        new = row * new_width
        for column in range(n_moved - 1, -1, -1):
            flat[new + shift + column] = flat[old + column]
        for column in range(shift):
            flat[new + column] = 0.0
        for column in range(shift + n_moved, new_width):
            flat[new + column] = 0.0


@kernel()
def permute_rows(matrix: Matrix, order: Table) -> None:
    """Put row ``order[i]`` at index i, in place; `order` is overwritten (with −1)."""
    width = matrix.shape[1]
    first_row = np.empty(width, np.float32)
    for first in range(len(order)):
        if order[first] < 0 or order[first] == first:
            continue
        for column in range(width):
            first_row[column] = matrix[first, column]
        row = first
        while order[row] != first:
            source = order[row]
            for column in range(width):
                matrix[row, column] = matrix[source, column]
            order[row] = -1
            row = source
        for column in range(width):
            matrix[row, column] = first_row[column]
        order[row] = -1


# -- writing


@part()
def _shortest(value: np.float32) -> tuple[np.uint64, int]:
    """Return (mantissa, power) with the fewest digits such that float32(mantissa·10^power) = value.

    `value` is positive.
    """
    wide = np.float64(value)
    leading = np.int64(np.floor(np.log10(wide)))  # −45 … 38
    for digits in range(1, 18):
        power = leading - digits + 1
        factor = _WIDE_POWERS[abs(power) - _SMALLEST_POWER]
        scaled = wide / factor if power > 0 else wide * factor
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
    out: Text, features: Matrix, labels: Matrix, ids: Text, id_starts: Table, query_of_row: Table,
    keep_last: bool,
) -> int:  # fmt: skip
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
