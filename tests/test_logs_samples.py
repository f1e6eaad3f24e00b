"""Samples of queries: the weights of clicks stay as they are."""

import hashlib

import numpy as np
import pyarrow as pa
import pytest
from conftest import SEED
from numpy.testing import assert_allclose
from pyarrow import parquet
from shops import load_example

from countersample import PositionBias
from countersample.errors import ParameterError
from countersample.logs import join_features, read_features, read_impressions


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples")
    load_example("make_shop_log").write_shop(folder, queries=400, sessions=6000, seed=SEED)
    return folder


@pytest.fixture(scope="module")
def features(shop):
    return read_features(shop / "features.parquet")


def weights(log, features):
    """The weight of each query and item that was clicked."""
    joined, _ = join_features(log.counts(), PositionBias(1.0), features.dataset, features.item_ids)
    joined = joined.merge()
    ids = features.item_ids[features.dataset.offsets[joined.query] + joined.item]
    return dict(zip(ids.tolist(), joined.weights.tolist(), strict=True))


# -- sampling ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_sample_of_queries_has_all_their_rows_and_the_weights_of_the_whole_log(shop, features):
    log = read_impressions(shop / "impressions.parquet")
    sample = log.sample_queries(37, seed=SEED)
    whole, part = weights(log, features), weights(sample, features)
    assert 0 < len(part) < len(whole)
    assert_allclose(list(part.values()), [whole[item] for item in part], rtol=1e-12)
    every, counts = log.counts(), sample.counts()
    assert len(counts.query_ids) == 37
    chosen = np.isin(every.query_ids[every.query], counts.query_ids)
    assert counts.n_impressions == every.impressions[chosen].sum()
    assert len(log.sample_queries(10**6).counts().query_ids) == len(every.query_ids)
    few, other = (
        {*log.sample_queries(20, seed=seed).counts().query_ids.tolist()}
        for seed in (SEED, SEED + 1)
    )
    assert few < {*counts.query_ids.tolist()}  # a smaller sample is a part of a larger one
    assert few != other


@pytest.mark.slow
@pytest.mark.parametrize("has_text", [False, True])
def test_every_engine_draws_the_queries_whose_digests_sort_first(engine, has_text):
    ids = np.random.default_rng(SEED).integers(0, 10**6, 300)
    table = pa.table(
        {"query_id": [f"ü{q}" for q in ids] if has_text else ids, "item_id": np.arange(300),
         "position": np.ones(300, int), "click": np.zeros(300, int)}
    )  # fmt: skip
    log = read_impressions(table, engine=engine).sample_queries(11, seed=SEED)
    names = sorted(
        set(table["query_id"].to_pylist()),
        key=lambda name: hashlib.md5(f"{SEED}:{name}".encode()).hexdigest(),  # noqa: S324 (no secret)
    )
    assert sorted(log.counts().query_ids.tolist()) == sorted(names[:11])


@pytest.mark.slow
def test_queries_are_drawn_alike():
    """Each of 50 queries, in 200 samples of 10: by a chi-square."""
    n, seeds = 50, range(200)
    table = pa.table({"query_id": np.arange(n), "item_id": np.zeros(n, int),
                      "position": np.ones(n, int), "click": np.zeros(n, int)})  # fmt: skip
    log = read_impressions(table, engine="duckdb")
    samples = [log.sample_queries(10, seed=1000 * SEED + s) for s in seeds]
    drawn = [log.collect(sample.frame)["query_id"].to_numpy() for sample in samples]
    counts = np.bincount(np.concatenate(drawn), minlength=n)
    expected = len(seeds) * 10 / n
    # Without replacement: the variance of a count is that of a binomial, less a little.
    chi_square = ((counts - expected) ** 2 / (expected * (1 - 10 / n))).sum()
    assert abs(chi_square - n) < 7 * np.sqrt(2 * n)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "seed"), [(0, 0), (-1, 0), (1.5, 0), (1, -1), (1, "x")])
def test_samples_that_cannot_be(n, seed, shop):
    with pytest.raises(ParameterError, match=r"n is|seed is"):
        read_impressions(shop / "impressions.parquet").sample_queries(n, seed=seed)


# -- commands ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_commands(shop, run, tmp_path):
    out = tmp_path / "sample.parquet"
    told = run(
        "log", "sample", str(shop / "impressions.parquet"), "--queries", "350", "-o", str(out)
    )
    written = parquet.read_table(out)
    assert written.equals(written.sort_by([(name, "ascending") for name in written.column_names]))
    n_rows = len(written)
    assert told == f"{n_rows:,} rows, all of at most 350 queries, are in {out}\n"
