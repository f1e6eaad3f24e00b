"""Samples of queries: weights stay as they are, and what a sample costs is measured."""

import hashlib
import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from conftest import SEED
from numpy.testing import assert_allclose
from pyarrow import parquet
from shops import load_example

from countersample import PositionBias
from countersample.clicks.impressions import join_features, read_features, read_impressions
from countersample.errors import DataError, ParameterError
from countersample.fitting import sample_sizes
from countersample.fitting.sample_size import fit_curve


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


def test_a_sample_of_queries_has_the_weights_of_the_whole_log(shop, features):
    log = read_impressions(shop / "impressions.parquet")
    whole, part = weights(log, features), weights(log.sample_queries(100, seed=SEED), features)
    assert 0 < len(part) < len(whole)
    assert_allclose(list(part.values()), [whole[item] for item in part], rtol=1e-12)


def test_a_sample_of_rows_has_not(shop, features):
    """Half of the rows leave most sessions, and items seem to be shown half as often."""
    table = parquet.read_table(shop / "impressions.parquet")
    kept = np.random.default_rng(SEED).random(len(table)) < 0.5
    half = read_impressions(table.filter(pa.array(kept)))
    counts, whole = half.counts(), read_impressions(table).counts()
    assert counts.sessions.sum() > 0.95 * whole.sessions.sum()
    assert counts.n_impressions < 0.55 * whole.n_impressions
    clicks = np.array([c.clicks.sum() for c in (counts, whole)])
    total = np.array([sum(weights(read_impressions(t), features).values())
                      for t in (table.filter(pa.array(kept)), table)])  # fmt: skip
    mean = total / clicks
    assert mean[0] > 1.5 * mean[1]


def test_a_sample_has_all_rows_of_as_many_queries(shop):
    log = read_impressions(shop / "impressions.parquet")
    whole = log.counts()
    part = log.sample_queries(37, seed=SEED).counts()
    assert len(part.query_ids) == 37
    chosen = np.isin(whole.query_ids[whole.query], part.query_ids)
    assert part.n_impressions == whole.impressions[chosen].sum()
    assert len(log.sample_queries(10**6).counts().query_ids) == len(whole.query_ids)


def test_smaller_samples_are_parts_of_larger_ones(shop):
    log = read_impressions(shop / "impressions.parquet")
    few, more = ({*log.sample_queries(n, seed=SEED).counts().query_ids.tolist()} for n in (20, 60))
    assert few < more
    assert few != {*log.sample_queries(20, seed=SEED + 1).counts().query_ids.tolist()}


@pytest.mark.parametrize("has_text", [False, True])
def test_every_engine_draws_the_same_queries(engine, has_text):
    ids = np.random.default_rng(SEED).integers(0, 10**6, 300)
    table = pa.table(
        {"query_id": [f"ü{q}" for q in ids] if has_text else ids, "item_id": np.arange(300),
         "position": np.ones(300, int), "click": np.zeros(300, int)}
    )  # fmt: skip
    log = read_impressions(table, engine=engine).sample_queries(11, seed=SEED)
    queries = table["query_id"].to_pylist()
    digests = {hashlib.md5(f"{SEED}:{q}".encode()).hexdigest(): q for q in queries}  # noqa: S324
    expected = sorted(q for _, q in sorted(digests.items())[:11])
    assert log.counts().query_ids.tolist() == expected


def test_queries_are_drawn_alike():
    """Each of 50 queries, in 200 samples of 10: by a chi-square."""
    n, seeds = 50, range(200)
    table = pa.table({"query_id": np.arange(n), "item_id": np.zeros(n, int),
                      "position": np.ones(n, int), "click": np.zeros(n, int)})  # fmt: skip
    log = read_impressions(table)
    samples = [log.sample_queries(10, seed=1000 * SEED + s) for s in seeds]
    drawn = [log.collect(sample.frame)["query_id"].to_numpy() for sample in samples]
    counts = np.bincount(np.concatenate(drawn), minlength=n)
    expected = len(seeds) * 10 / n
    # Without replacement: the variance of a count is that of a binomial, less a little.
    chi_square = ((counts - expected) ** 2 / (expected * (1 - 10 / n))).sum()
    assert abs(chi_square - n) < 7 * np.sqrt(2 * n)


def test_rows_without_a_query_are_in_no_sample():
    table = pa.table({"query_id": ["a", None], "item_id": [1, 2], "position": [1, 1],
                      "click": [0, 1]})  # fmt: skip
    assert read_impressions(table).sample_queries(5).counts().n_impressions == 1


@pytest.mark.parametrize(("n", "seed"), [(0, 0), (-1, 0), (1.5, 0), (1, -1), (1, "x")])
def test_samples_that_cannot_be(n, seed, shop):
    with pytest.raises(ParameterError, match=r"n is|seed is"):
        read_impressions(shop / "impressions.parquet").sample_queries(n, seed=seed)


# -- sizes ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sizes(shop, features):
    with read_impressions(shop / "impressions.parquet") as log:
        return sample_sizes(
            log, features, of_queries=5000, tolerance=0.05, propensities=PositionBias(1.0),
            seed=SEED,
        )  # fmt: skip


def test_sizes_double(sizes):
    n = [each.n_queries for each in sizes.sizes]
    tried = [each for each in sizes.sizes if each.value is not None]
    assert len(tried) >= 4
    assert all(abs(b / a - 2) < 0.05 for a, b in pairwise(n))
    assert n[-1] < 5000 <= 2 * n[-1]
    assert all(each.low <= each.value <= each.high for each in tried)
    assert tried[-1].n_clicks > 1.5 * tried[-2].n_clicks


def test_a_larger_sample_costs_less(sizes):
    cost = [each.cost for each in sizes.sizes]
    assert cost == sorted(cost, reverse=True)
    assert all(each.cost_low <= each.cost_high for each in sizes.sizes)
    assert sizes.chosen is None or sizes.chosen == next(
        each.n_queries for each in sizes.sizes if each.cost_high <= 0.05
    )
    assert "times the largest sample" in sizes.sentence
    assert json.loads(json.dumps(sizes.to_dict()))["sentence"] == sizes.sentence


def test_a_curve_is_found_again():
    n = np.array([50, 100, 200, 400, 800, 1600])
    for a, b, c in ((0.7, 1.0, 0.5), (0.5, 0.1, 1.0), (0.9, 0.0, 1.0)):
        found = fit_curve(n, a - b * n**-c)
        assert_allclose(found[0] - found[1] * 10.0**6 ** -found[2], a - b * 10.0**6**-c, rtol=1e-6)
    worse = fit_curve(n, np.linspace(0.8, 0.7, 6))  # no curve goes down
    assert worse[1] == 0


def test_the_interval_of_the_cost_holds_the_true_cost():
    """Values on a known curve, with noise: 200 draws of what the bootstrap would have drawn."""
    from countersample.fitting import sample_size

    rng, held = np.random.default_rng(SEED), 0
    n, of_queries = np.array([50, 100, 200, 400, 800, 1600]), 12_800
    a, b, c, noise = 0.6, 0.5, 0.5, 0.004
    true = [(b * x**-c - b * of_queries**-c) / (a - b * of_queries**-c) for x in n.tolist()]
    for _ in range(40):
        values = a - b * n**-c + noise * rng.normal(size=len(n))
        drawn = values + noise * rng.normal(size=(200, len(n)))
        tried = [sample_size._Tried(int(x), float(x), np.zeros(1)) for x in n]
        found = sample_size._judged("dcg@10", tried, values, drawn, of_queries, 0.01)
        held += found.sizes[5].cost_low <= true[5] <= found.sizes[5].cost_high
    assert held >= 30  # of 40; a share of 0.95 has 38


def test_too_few_queries_for_a_curve(shop, features):
    with read_impressions(shop / "impressions.parquet") as log:
        few = log.sample_queries(100)
        with pytest.raises(DataError, match="too few queries for a curve of 4 sizes, expected at"):
            sample_sizes(few, features, propensities=PositionBias(1.0))
        with pytest.raises(ParameterError, match="tolerance is 0"):
            sample_sizes(few, features, tolerance=0)
        with pytest.raises(ParameterError, match="n_sizes is 3"):
            sample_sizes(few, features, n_sizes=3)


# -- commands ------------------------------------------------------------------------------------


def test_commands(shop, run, tmp_path):
    out = tmp_path / "sample.parquet"
    told = run(
        "log", "sample", str(shop / "impressions.parquet"), "--queries", "350", "-o", str(out)
    )
    written = parquet.read_table(out)
    assert written.equals(written.sort_by([(name, "ascending") for name in written.column_names]))
    n_rows = len(written)
    assert told == f"{n_rows:,} rows, all of at most 350 queries, are in {out}\n"
    command = ["log", "sample-size", str(out), "--features", str(shop / "features.parquet"),
               "--gamma", "1", "--of-queries", "1000"]  # fmt: skip
    printed = run(*command)
    assert "cost against 1,000" in printed
    assert "not tried" in printed
    assert "The curve is" in printed


def test_a_sample_is_written_as_parquet(shop, run, tmp_path):
    log = str(shop / "impressions.parquet")
    refused = run("log", "sample", log, "--queries", "5", "-o", str(tmp_path / "x.csv"), fails=True)
    assert "expected a name that ends with .parquet" in refused
