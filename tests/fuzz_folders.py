"""Fuzz dataset folders and group files: bits flipped, bytes changed, for a time.

    python tests/fuzz_folders.py SECONDS [SEED]

What was damaged must give the same values as before or one `CounterSampleError`; another value, and
any other exception, ends it with the damage shown. An entry of the cache that is damaged is written
again: its values must be the same in any case. The header is not protected by a checksum, so the
names of features may differ.
"""

import json
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import numpy as np

from countersample import RankingDataset, load_letor
from countersample.data import letor_reader
from countersample.data.dataset import stored_arrays
from countersample.data.letor_reader import read_groups
from countersample.data.store import open_folder
from countersample.errors import CounterSampleError

letor_reader.BLOCK = 1 << 12  # large ones take their time to be made
CACHED = 50  # of so many inputs one is to an entry of the cache, which takes longer
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
    data, _ = open_folder(folder)
    arrays = [data.labels, data.offsets, data.query_ids, *stored_arrays(data.features)]
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


class Entries:
    """An entry of the cache, damaged: what is read is always the text."""

    def __init__(self, base: Path) -> None:
        self.text, self.cache = base / "text.txt", base / "cache"
        self.text.write_text("1 qid:a 1:0.5 3:2\n0 qid:a 2:1\n2 qid:b 0:7\n")
        self.expected = load_letor(self.text)

    def check(self, rng: random.Random) -> None:
        load_letor(self.text, cache=self.cache)
        (entry,) = self.cache.iterdir()
        path = rng.choice(sorted(entry.iterdir()))
        path.write_bytes(damaged(path.read_bytes(), rng))
        if load_letor(self.text, cache=self.cache) != self.expected:
            raise Wrong("other values from the cache")


class Groups:
    """A group file: the sizes that its plain reading has, or an error."""

    def __init__(self, base: Path) -> None:
        self.path = base / "rank.train.query"

    def check(self, rng: random.Random) -> None:
        content = damaged(rng.choice([b"3\n4\n5\n", b"12", b"\n 1\r\n11\t\n\n", b"06\n6\n"]), rng)
        self.path.write_bytes(content)
        sizes = plain_sizes(content)
        try:
            found = read_groups(self.path, 12).tolist()
        except CounterSampleError as error:
            if sizes is not None and sum(sizes) == 12:
                raise Wrong(f"refused: {error}") from error
        else:
            if found != sizes:
                raise Wrong(f"{found}, expected {sizes}")


def plain_sizes(content: bytes) -> list[int] | None:
    """Read a group file in the most obvious way: positive numbers of ASCII digits."""
    try:
        words = content.decode("utf-8-sig").split()
    except UnicodeDecodeError:
        return None
    if any(not re.fullmatch("0*[1-9][0-9]{,17}", word) for word in words):
        return None
    return [int(word) for word in words]


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    base = Path(tempfile.mkdtemp())
    try:
        targets = {kind.__name__: kind(base) for kind in (Folders, Entries, Groups)}
        end = time.monotonic() + seconds
        number, counts = 0, Counter()
        while time.monotonic() < end:
            rng = random.Random(f"{seed} {number}")  # noqa: S311 (no secrets)
            name = "Entries" if number % CACHED == 0 else rng.choice(["Folders", "Groups"])
            try:
                targets[name].check(rng)
            except Exception:  # noqa: BLE001 (any is a finding)
                traceback.print_exc()
                sys.exit(f"{name}: input {number} of seed {seed} was not withstood")
            counts[name] += 1
            number += 1
        kinds = ", ".join(f"{n:,} {name}" for name, n in counts.items())
        print(f"{number:,} damaged inputs were withstood (seed {seed}): {kinds}")  # noqa: T201
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
