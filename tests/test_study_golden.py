"""The numbers of studies and `RESULTS_VERSION` change together.

`test_golden.py` computes a tiny study and compares it with its rows in tests/golden/study*.json.
"""

import hashlib

from conftest import ROOT

from countersample.study.store import RESULTS_VERSION

# For each version of the numbers, the digest of the rows of the tiny study.
DIGESTS = {1: "5a005c0120f2aa9d"}


def test_stored_rows_that_change_need_another_results_version():
    paths = sorted((ROOT / "tests" / "golden").glob("study*.json"))
    values = "".join(path.read_text("utf-8").partition('"values"')[2] for path in paths)
    digest = hashlib.sha256(values.encode()).hexdigest()[:16]
    assert DIGESTS.get(RESULTS_VERSION) == digest, (
        "a study gives other numbers than before: raise RESULTS_VERSION in "
        "study/store.py, so that results folders make their results again, and add "
        f"{{version: {digest!r}}} to DIGESTS here"
    )
