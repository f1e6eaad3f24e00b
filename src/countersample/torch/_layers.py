"""What networks begin with, and how many threads they are trained by."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep PyTorch to one thread: matrices are small, and no sum depends on the cores then."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def first_weights(n_in: int, n_out: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return W ~ N(0, 2/n_in), with which ReLU layers keep the size of what goes through."""
    drawn = rng.standard_normal((n_out, n_in), np.float32)
    return drawn * np.float32(np.sqrt(2 / n_in))
