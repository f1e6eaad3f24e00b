"""Fuzz the LETOR reader against its slow twin, guided by coverage (atheris), for a bounded time.

    python tests/fuzz_letor.py SECONDS [atheris options]

Compilation is off, so that the fuzzer sees the branches of the kernel itself. Any disagreement
with the twin, any error that is not a sentence, and any hang ends it with the input shown.
"""

import io
import os
import sys
import tempfile
from pathlib import Path

os.environ["NUMBA_DISABLE_JIT"] = "1"

import atheris

with atheris.instrument_imports(include=["countersample"]):
    import countersample._kernels.letor  # noqa: F401 (else it is imported later, unobserved)
    from countersample import load_letor
    from countersample.data import letor_reader
    from countersample.errors import DataError

import warnings

import numpy as np
import twins_letor

letor_reader.BLOCK = 48  # so that short inputs are cut into blocks, too
warnings.simplefilter("ignore", RuntimeWarning)  # the kernel means its unsigned wrap-around

SEEDS = [
    b"2 qid:1 1:0.5 3:1e-3 # doc\n0 qid:1 2:-.25\n1 qid:2 1:7\n",
    b"\xef\xbb\xbf1 qid:a 0:1\r\n\r\n# only a comment\r\n0 qid:b 5:2.5E+3\r\n1 qid:a 1:0",
    b"0 qid:1 1:nan\n",
    b"0 qid:1 2:1 1:1\n",
    b"0 qid:1 1:1 1:1\n",
    b"0 1:1\n",
    b"x qid:1 1:1\n",
    b"0 qid:7 1:12345678901234567890.5 2:1e39\n",
    b"0 qid:7 1:16777217.0000000000000001 2:1e-400\n",
    b"0 qid:7 1:;\n\x00",
]


def check(data):
    """Read `data` both ways and compare."""
    try:
        expected = twins_letor.read(data)
    except twins_letor.Refused as error:
        expected = error
    if isinstance(expected, tuple) and expected[0].size > 10_000_000:
        return  # a wide row is right, but slow without compilation
    try:
        found = load_letor(io.BytesIO(data), threads=1)
    except DataError as error:
        not_for_the_twin = ("not UTF-8", "archive", "compressed")
        if isinstance(expected, tuple) and not any(why in str(error) for why in not_for_the_twin):
            raise
        return
    assert isinstance(expected, tuple), f"read what the twin refuses in line {expected}"
    features, labels, offsets, ids = expected
    np.testing.assert_array_equal(found.features, features)
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_array_equal(found.offsets, offsets)
    assert [str(i) for i in found.query_ids.tolist()] == ids


def main():
    seconds = sys.argv[1] if len(sys.argv) > 1 else "20"
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(SEEDS):
            Path(corpus, str(number)).write_bytes(seed)
            check(seed)
        options = [f"-max_total_time={seconds}", "-max_len=256", "-timeout=10", "-seed=1",
                   "-print_final_stats=1", f"-artifact_prefix={corpus}/"]  # fmt: skip
        atheris.Setup([sys.argv[0], *options, *sys.argv[2:], corpus], check)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
