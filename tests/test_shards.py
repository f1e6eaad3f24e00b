"""Training shards that Spark writes on a real local cluster: the weights of the path in memory."""

import numpy as np
import pyarrow as pa
import pytest
from conftest import SEED
from numpy.testing import assert_allclose

from countersample.clicks.impressions import (
    join_features,
    read_features,
    read_impressions,
    read_training_shards,
    write_training_shards,
)
from countersample.errors import DataError, ParameterError
from countersample.propensity import ContextPropensities

THETA = 1 / np.arange(1.0, 7.0)


def make_log(rng, *, sessions=400, queries=12, contexts=False, values=False, text=False):
    """Rows of sessions that show five of eight items in a random order, and clicks on some."""
    rows = []
    for session in range(sessions):
        query = int(rng.integers(queries))
        for rank, item in enumerate(rng.permutation(8)[:5].tolist(), 1):
            clicked = int(rng.random() < 0.4 / rank)
            row = {"session": session, "query_id": query, "item_id": item, "position": rank,
                   "click": clicked}  # fmt: skip
            row |= {"context": "ab"[session % 2]} if contexts else {}
            row |= {"value": float(rng.integers(1, 4)) if clicked else 0.0} if values else {}
            rows.append(row)
    table = pa.Table.from_pylist(rows)
    return table.set_column(1, "query_id", [f"q{q}" for q in table["query_id"].to_pylist()]) if text else table


def make_features(rng, *, queries=12, items=10, text=False):
    query, item = (part.ravel() for part in np.mgrid[:queries, :items])
    ids = [f"q{q}" for q in query] if text else query
    return pa.table({"query_id": ids, "item_id": item, "price": rng.random(len(item)),
                     "on sale": rng.random(len(item)) < 0.5, "label": item})  # fmt: skip


def weights_of(dataset, log):
    """The weight and the clicks of each query id and features, which tell items apart."""
    rows = dataset.offsets[log.query] + log.item
    key = [(str(dataset.query_ids[q]), *dataset.features[r].tolist())
           for q, r in zip(log.query, rows, strict=True)]  # fmt: skip
    found = {}
    for k, weight, clicks in zip(key, log.weights, log.clicks, strict=True):
        w, c = found.get(k, (0.0, 0.0))
        found[k] = w + weight, c + clicks
    return found


CASES = {
    "sessions": ({}, THETA),
    "text ids": ({"text": True}, THETA),
    "values": ({"values": True}, THETA),
    "beyond the last position": ({}, THETA[:3]),
    "by context": (
        {"contexts": True},
        "contexts",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_weights_are_those_of_the_path_in_memory(case, cluster, tmp_path):
    rng = np.random.default_rng(SEED)
    options, propensities = CASES[case]
    table = make_log(rng, **options)
    features = make_features(rng, text=options.get("text", False))
    log = read_impressions(cluster.createDataFrame(table))
    report = write_training_shards(
        log, cluster.createDataFrame(features), propensities, tmp_path / "shards",
        n_shards=3, missing="skip",
    )  # fmt: skip
    known = read_features(features)
    expected, told = join_features(
        read_impressions(table).counts(), propensities, known.dataset, known.item_ids, missing="skip"
    )
    assert report == told
    dataset, found = read_training_shards(tmp_path / "shards")
    wanted, weights = weights_of(known.dataset, expected), weights_of(dataset, found)
    assert wanted.keys() == weights.keys()
    assert_allclose([weights[k] for k in wanted], list(wanted.values()), rtol=1e-12)
