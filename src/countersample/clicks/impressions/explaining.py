"""Errors of libraries as one sentence that names the source."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import narwhals as nw

from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def unreadable(error: Exception) -> str:
    """Say that something cannot be read or counted, and why."""
    return f"cannot be read or counted: {first_line(error)}"


@contextmanager
def explained(
    source: str,
    errors: tuple[type[Exception], ...] = (),
    sentence: Callable[[Exception], str] = unreadable,
) -> Iterator[None]:
    """Turn these errors, and those of Arrow and narwhals, into one that names the source."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    try:
        yield
    except DataError as error:
        if str(error).startswith(source):
            raise
        raise DataError(f"{source}: {error}") from error
    except (
        pa.ArrowException,
        nw.exceptions.NarwhalsError,
        OSError,
        UnicodeError,  # Arrow's, of names that are not UTF-8
        *errors,
    ) as error:
        raise DataError(f"{source}: {sentence(error)}") from error


def first_line(error: Exception) -> str:
    r"""Return the first line of an error that says something.

    Examples
    --------
    >>> from countersample.clicks.impressions.explaining import first_line
    >>> first_line(ValueError(" \nno such column"))
    'no such column'
    """
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line), type(error).__name__)
