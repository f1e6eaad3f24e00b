"""A matrix that grows by rows and now and then by columns, in memory or in a file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

NPY_HEADER = 128  # bytes before the numbers of a .npy file with a short header


def take_room(path: Path, size: int) -> None:
    """Give a file its size and its room: to run out of that while writing to a map kills."""
    with path.open("r+b") as file:
        file.truncate(size)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)


class Tape:
    """A flat run of float32 numbers that can change its length and keeps what it holds.

    Growing it does not copy where the system can move pages (Linux).
    """

    def __init__(self) -> None:
        self.flat = np.empty(0, np.float32)

    def resize(self, length: int) -> None:
        """Change the length; views of `flat` taken before must not be used after."""
        if not len(self.flat):
            self.flat = np.empty(length, np.float32)
        else:
            self.flat.resize(length, refcheck=False)

    def matrix(self, n_rows: int, width: int) -> NDArray[np.float32]:
        """End the work: cut to size and give the matrix."""
        self.resize(n_rows * width)
        return self.flat.reshape(n_rows, width)


class FileTape(Tape):
    """A tape in a ``.npy`` file, by memory map: the system writes it out as memory gets short."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._path.write_bytes(b"\0" * NPY_HEADER)

    def resize(self, length: int) -> None:
        self.flat = np.empty(0, np.float32)  # let go of the old map first
        size = NPY_HEADER + 4 * length
        take_room(self._path, size)
        if length:
            self.flat = np.memmap(self._path, np.float32, "r+", offset=NPY_HEADER, shape=length)

    def matrix(self, n_rows: int, width: int) -> NDArray[np.float32]:
        matrix = super().matrix(n_rows, width)
        header = {"descr": "<f4", "fortran_order": False, "shape": (n_rows, width)}
        with self._path.open("r+b") as file:
            np.lib.format.write_array_header_1_0(file, header)
        return matrix
