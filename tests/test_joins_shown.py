"""Everything that was shown, joined to features and weighted, against plain loops."""

from collections import Counter

import pyarrow as pa
import pytest

from countersample.logs import PositionCounts, read_features
from countersample.logs.joins import Matched


def test_shown_rows_are_those_of_plain_loops(rng):
    """The same (query, item, position) → (impressions, clicks, propensity) as a dictionary."""
    n = 400
    rows = list(zip(rng.integers(0, 6, n).tolist(), rng.integers(0, 7, n).tolist(),
                    rng.integers(1, 5, n).tolist(), (rng.random(n) < 0.3).astype(int).tolist(),
                    strict=True))  # fmt: skip
    known = [(q, i) for q in range(5) for i in range(6)]  # query 5 and item 6 have none
    table = pa.table({
        "query_id": [q for q, _ in known],
        "item_id": [i for _, i in known],
        "x": rng.random(len(known)),
    })  # fmt: skip
    looks = [1.0, 0.5, 0.25]  # position 4 has none
    shown, clicked = Counter(), Counter()
    for q, i, k, c in rows:
        if (q, i) in known:
            shown[q, i, k] += 1
            clicked[q, i, k] += c * (k <= 3)
    features = read_features(table)
    dataset = features.dataset
    counts = PositionCounts.from_columns(*zip(*rows, strict=True))
    log, _, places = Matched.of(counts, dataset, features.item_ids).shown(looks)
    item = features.item_ids[dataset.offsets[log.query] + log.item]
    keys = list(zip(dataset.query_ids[log.query].tolist(), item.tolist(),
                    log.position.tolist(), strict=True))  # fmt: skip
    assert dict(zip(keys, log.impressions.tolist(), strict=True)) == shown
    filled = Counter((q, k) for q, _, k, _ in rows)
    looks.append(0.0)  # where nothing is known, what was shown counts, and no click does
    for (q, i, k), row in zip(keys, range(len(log)), strict=True):
        examined = sum(n * looks[j - 1] for (a, b, j), n in shown.items() if (a, b) == (q, i))
        share = examined / max(filled[q, j] for j in range(1, 5))
        part = 1 / max(1, share)  # of an item that is examined more than once a session
        assert log.clicks[row] == pytest.approx(clicked[q, i, k] * part)
        assert log.examination[row] == pytest.approx(looks[k - 1] * part)
        if k <= 3:
            assert log.propensity[row] == pytest.approx(min(1, share))
    assert (counts.impressions[places] == log.impressions).all()
