"""Which features of a table are used: named, or all but some."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countersample.data.frames import check_column
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence


def choose_features(
    known: Sequence[str],
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    *,
    is_numbered: bool = False,
) -> list[str]:
    """Return the features that are used: those named, in their order, or all that are not dropped.

    Parameters
    ----------
    known : sequence of str
        All there are.
    features, drop : sequence of str, optional
        Those to use, or those to leave out: one of the two.
    is_numbered : bool
        Whether they have no names of their own: then ``"3"`` is ``"f3"``.

    Raises
    ------
    DataError
        For a name that is not known, with the nearest that is; or if none is left.

    Examples
    --------
    >>> from countersample.data.choosing import choose_features
    >>> choose_features(["price", "sales", "stock"], drop=["stock"])
    ['price', 'sales']
    >>> choose_features(["f1", "f2", "f3"], ["3", "f1"], is_numbered=True)
    ['f3', 'f1']
    """
    if features is not None and drop is not None:
        raise ParameterError(
            "features to use and features to drop are both given, expected one of them"
        )
    columns = list(known)

    def found(names: Sequence[str]) -> list[str]:
        names = [f"f{name}" if is_numbered and name.isdecimal() else name for name in names]
        for name in names:
            check_column(name, columns, what="feature")
        return list(dict.fromkeys(names))

    chosen = columns
    if features is not None:
        chosen = found(features)
    elif drop is not None:
        left_out = set(found(drop))
        chosen = [name for name in columns if name not in left_out]
    if not chosen:
        raise DataError("no feature is left, expected at least one")
    return chosen
