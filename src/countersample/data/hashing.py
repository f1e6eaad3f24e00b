"""A hash of the content of a dataset, equal on any machine."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.data.compact import CompactFeatures

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from countersample.data.dataset import RankingDataset

_HASHED_AT_ONCE = 1 << 22  # bytes


def kept_arrays(features: NDArray[Any] | CompactFeatures) -> tuple[NDArray[Any], ...]:
    """Return the arrays that features are kept in: the matrix, or codes, scale, offset, roots."""
    return tuple(features.arrays) if isinstance(features, CompactFeatures) else (features,)


def content_hash(dataset: RankingDataset) -> str:
    """Return a hash of what is kept: of codes, the codes."""
    digest = hashlib.blake2b(digest_size=16)
    arrays: list[NDArray[Any]] = [dataset.offsets, dataset.labels, *kept_arrays(dataset.features)]
    for array in arrays:
        digest.update(f"{array.dtype.name}{array.shape}".encode())
        rows = max(1, _HASHED_AT_ONCE // max(1, array[:1].nbytes))
        for start in range(0, len(array), rows):
            with np.errstate(invalid="ignore"):  # of a folder that was damaged
                block = array[start : start + rows] + array.dtype.type(0)  # −0 becomes 0
            if block.dtype.kind == "f":
                block[np.isnan(block)] = np.nan  # of the many that there are, one
            digest.update(block.astype(block.dtype.newbyteorder("<"), copy=False).data)
    ids = [str(i) for i in dataset.query_ids.tolist()]
    names = list(dataset.feature_names or ())
    digest.update(json.dumps([dataset.query_ids.dtype.kind, ids, names]).encode())
    return digest.hexdigest()
