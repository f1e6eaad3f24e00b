"""Read propensities of any kind from a file."""

from __future__ import annotations

import reprlib
from pathlib import Path
from typing import TYPE_CHECKING

from countersample._files import read_at_most
from countersample._json import parse_json
from countersample.data.sources import reading
from countersample.errors import DataError
from countersample.propensity.contexts import KIND as BY_CONTEXT
from countersample.propensity.contexts import ContextPropensities
from countersample.propensity.curve import Propensities
from countersample.propensity.saving import MAX_BYTES
from countersample.propensity.trust import KIND as WITH_TRUST
from countersample.propensity.trust import TrustPropensities

if TYPE_CHECKING:
    from os import PathLike

_KINDS: dict[str | None, type[Propensities | ContextPropensities | TrustPropensities]] = {
    None: Propensities,
    BY_CONTEXT: ContextPropensities,
    WITH_TRUST: TrustPropensities,
}


def load_propensities(
    path: str | PathLike[str],
) -> Propensities | ContextPropensities | TrustPropensities:
    """Read propensities of any kind that `save` wrote.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from countersample.propensity import Propensities, load_propensities
    >>> curve = Propensities([1, 0.5], [1, 0.4], [1, 0.6], n_impressions=[9, 9], method="pivot")
    >>> with TemporaryDirectory() as folder:
    ...     curve.save(f"{folder}/curve.json")
    ...     load_propensities(f"{folder}/curve.json").value
    array([1. , 0.5])
    """
    with reading(path, "not propensities in JSON ({})", ValueError):
        values = parse_json(read_at_most(Path(path), MAX_BYTES))
        kind = values.get("kind") if isinstance(values, dict) else None
        if not (kind is None or isinstance(kind, str)) or kind not in _KINDS:
            raise DataError(
                f"propensities of the kind {reprlib.repr(kind)}, which this release does not know: "
                "read them with the release that wrote them"
            )
        return _KINDS[kind].from_dict(values)
