"""Fuzz dataset folders: bits flipped, bytes changed, for a time.

    python tests/fuzz_folders.py SECONDS [SEED]

What was damaged must give the same values as before or one `CounterSampleError`; another value, and
any other exception, ends it with the damage shown. The header is not protected by a checksum, so
the names of features may differ.
"""

import json
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np

from countersample import RankingDataset
from countersample.data.dataset import stored_arrays
from countersample.data.store import open_folder
from countersample.errors import CounterSampleError

WORDS = [
    b"null", b"true", b"false", b"-1", b"0", b"1e999", b"NaN", b"[]", b"{}", b'""', b"9" * 5000,
    b"'<f4'", b"'>f4'", b"'|O'", b"'<U9'", b"'<M8[s]'", b"True", b"(", b")", b"[" * 3000, b"(1,)",
    b"content", b"version", b"\x00", b"\xff\xfe", b"\n", b"1" * 20, b" " * 70,
]  # fmt: skip


class Wrong(Exception):  # noqa: N818 (what was found)
    """Damage that was not noticed, or noticed in another way than by an error of ours."""


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return bytes with one to three changes."""
    text = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        # the headers of arrays are short, and their numbers long
        reach = len(text) if rng.random() < 0.5 else min(len(text), 140)
        at = rng.randrange(reach) if reach else 0
        kind = rng.randrange(7)
        if kind <= 2 and text:
            text[at] ^= 1 << rng.randrange(8)
        elif kind == 3 and text:
            text[at] = rng.randrange(256)
        elif kind == 4:
            word = rng.choice(WORDS)
            text[at : at + rng.choice([0, len(word)])] = word
        elif kind == 5:
            del text[at : at + rng.choice([1, 2, 8, len(text)])]
        else:
            other = rng.randrange(reach) if reach else 0
            length = rng.randrange(1, 17)
            text[at : at + length] = text[other : other + length]
    return bytes(text)


def with_other_header(content: bytes, rng: random.Random) -> bytes:
    """Return a header with a value of another kind."""
    header = json.loads(content)
    values = [None, True, -1, 0, 1, 2, 1.5, "", "x", [], {}, [[]], 10**30, ["a"], {"a": 1}]
    header[rng.choice(list(header))] = rng.choice(values)
    return json.dumps(header).encode()


def values_of(folder: Path) -> list:
    """Return the arrays of a folder in a form that can be compared."""
    data = open_folder(folder)
    arrays = [data.labels, data.offsets, data.query_ids, *stored_arrays(data.features)]
    arrays = [array + 0 if array.dtype.kind == "f" else array for array in arrays]  # -0.0 is 0.0
    return [(str(array.dtype), array.shape, array.tobytes()) for array in arrays]


class Folders:
    """Dataset folders of numbers and of codes, with names and without."""

    def __init__(self, base: Path) -> None:
        rng = np.random.default_rng(0)
        features = rng.normal(size=(12, 3))
        names = RankingDataset.from_arrays(
            features, rng.integers(0, 5, 12), np.arange(12) // 4, feature_names=["a", "b", "ü"]
        )
        tails = RankingDataset.from_arrays(
            np.exp(9 * features), rng.integers(0, 5, 12), [f"q{k // 3}" for k in range(12)]
        )
        self.folders = [base / "names", base / "tails", base / "codes", base / "roots"]
        names.save(self.folders[0])
        tails.save(self.folders[1])
        names.compact(8).save(self.folders[2])
        tails.compact(16).save(self.folders[3])
        self.expected = {folder: values_of(folder) for folder in self.folders}

    def check(self, rng: random.Random) -> None:
        folder = rng.choice(self.folders)
        path = rng.choice(sorted(folder.iterdir()))
        content = path.read_bytes()
        is_header = path.name == "header.json"
        change = with_other_header if is_header and rng.random() < 0.4 else damaged
        path.write_bytes(change(content, rng))
        try:
            values = values_of(folder)
        except CounterSampleError as error:
            if len(str(error).splitlines()) != 1:
                raise Wrong(f"not one sentence: {error}") from error
        else:
            if values != self.expected[folder]:
                raise Wrong("other values")
        path.write_bytes(content)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    base = Path(tempfile.mkdtemp())
    try:
        folders = Folders(base)
        end = time.monotonic() + seconds
        number = 0
        while time.monotonic() < end:
            rng = random.Random(f"{seed} {number}")  # noqa: S311 (no secrets)
            try:
                folders.check(rng)
            except Exception:  # noqa: BLE001 (any is a finding)
                traceback.print_exc()
                sys.exit(f"input {number} of seed {seed} was not withstood")
            number += 1
        print(f"{number:,} damaged inputs were withstood (seed {seed})")  # noqa: T201
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
