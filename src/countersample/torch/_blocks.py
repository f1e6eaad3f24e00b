"""Draws by weight with little to make before the first, and little memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from countersample.plans import AliasTable, as_weights

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

# Largest weights whose sums and products are neither infinite nor rounded to less than 53 bits
SAFE = (1e-200, 1e300)


class BlockTable:
    """Draws i with probability weights[i] / Σ weights = P(block of i) · P(i in its block).

    An alias table draws one of the blocks of 8 weights side by side, by their sums. In the block a
    half is drawn by its sum, a half of that, and a row: from the weights themselves, so that no
    table of n is made. A draw costs the same for any n; what is kept is a quarter of the weights.

    Parameters
    ----------
    weights : array-like (n,)
        As for `countersample.AliasTable`. Not copied, so they must not change.

    Notes
    -----
    The probabilities compared with are those of the weights to a relative 10⁻¹². What they are
    compared with are uniform numbers of 53 bits, as in any such table.

    Examples
    --------
    >>> import numpy as np
    >>> from countersample.torch._blocks import BlockTable
    >>> table = BlockTable([1.0, 0.0, 3.0])
    >>> np.bincount(table.sample(1000, np.random.default_rng(0)))
    array([247,   0, 753])
    """

    def __init__(self, weights: ArrayLike) -> None:
        from countersample._kernels.blocks import ROWS, add_up  # noqa: PLC0415 (imports numba)

        given = np.ascontiguousarray(as_weights(weights, "weights"))
        largest = given.max()
        if not SAFE[0] < largest < SAFE[1]:
            given = given / largest
        self._weights = given
        n_whole, n_left = divmod(len(given), ROWS)
        self._last = np.zeros(ROWS)
        self._last[:n_left] = given[ROWS * n_whole :]
        totals = np.empty(n_whole + (n_left > 0))
        add_up(given, totals)
        self._blocks = AliasTable(totals)

    def __len__(self) -> int:
        return len(self._weights)

    def sample(self, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw `size` independent values, int64 (size,)."""
        from countersample._kernels.blocks import LEVELS, draw  # noqa: PLC0415 (imports numba)

        drawn = self._blocks.sample(size, rng)
        draw(self._weights, self._last, drawn, rng.random((size, LEVELS)))
        return drawn
