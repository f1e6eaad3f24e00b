"""From a raw log to a ranker where the log outgrows a machine, at small size.

Spark on a real local cluster weighs the clicks, joins the features and writes shards; two processes
under torchrun train on them. Weights are those of the path in memory, and draws those of one
process that has everything.
"""

import os
import subprocess
import sys

import duckdb
import narwhals as nw
import numpy as np
import pyarrow as pa
import pytest
from conftest import ROOT, SEED
from numpy.testing import assert_allclose
from pyarrow import parquet
from requirements import need
from shops import load_example

from countersample import ClickLog, CounterSampleRanker, evaluate
from countersample.errors import DataError, ParameterError
from countersample.logs import (
    aggregation,
    join_features,
    read_features,
    read_impressions,
    read_training_shards,
    write_training_shards,
)
from countersample.logs.exposure import weigh_pairs
from countersample.propensity import ContextPropensities, Propensities
from countersample.rankers import load_ranker

THETA = 1 / np.arange(1.0, 7.0)
N_QUERIES, N_ITEMS = 60, 8
WANTED = np.array([2.0, -1.0])


def curve(values):
    ends = {"low": values, "high": values, "n_impressions": [9] * len(values), "method": "known"}
    return Propensities(values, **ends)


CURVES = ContextPropensities({"phone": curve([1, 0.4, 0.2]), "desktop": curve([1, 0.8, 0.6, 0.5])})


def make_features(rng, *, n_items=N_ITEMS + 2):
    """Two features of each query and item, by text and number; more items than are ever shown."""
    query, item = (part.ravel() for part in np.mgrid[:N_QUERIES, :n_items])
    matrix = rng.random((len(item), 2)).astype(np.float32)
    wanted = 1 / (1 + np.exp(-3 * (matrix @ WANTED - 0.5)))
    return pa.table(
        {"query_id": [f"q{q}" for q in query], "item_id": item, "match": matrix[:, 0],
         "price €": matrix[:, 1], "label": wanted.astype(np.float32)}
    )  # fmt: skip


def make_log(rng, features, *, n_sessions=600):
    """Sessions that show five of the items of a query in a random order; users see 1/rank."""
    wanted = features["label"].to_numpy().reshape(N_QUERIES, -1)
    query = rng.integers(N_QUERIES, size=n_sessions)
    item = rng.permuted(np.tile(np.arange(N_ITEMS), (n_sessions, 1)), axis=1)[:, :5]
    position = np.tile(np.arange(1, 6), (n_sessions, 1))
    click = rng.random(item.shape) < wanted[query[:, None], item] / position
    return pa.table({
        "query_id": [f"q{q}" for q in np.repeat(query, 5)],
        "item_id": item.ravel(),
        "position": position.ravel(),
        "click": click.ravel().astype(np.int64),
        "session": np.repeat(np.arange(n_sessions), 5),
        "context": np.repeat(np.array(["phone", "desktop"])[query % 2], 5),
        "value": click.ravel() * rng.integers(1, 4, click.size).astype(np.float64),
    })  # fmt: skip


# -- weights -------------------------------------------------------------------------------------


def in_memory(log, features, propensities):
    known = read_features(features)
    joined, report = join_features(
        read_impressions(log).counts(), propensities, known.dataset, known.item_ids, missing="skip"
    )
    return known.dataset, joined.merge(), report


def by_pair(dataset, log):
    """The weight and the clicks of each pair, told apart by query and features."""
    rows = dataset.features[dataset.offsets[log.query] + log.item]
    keys = [
        (str(dataset.query_ids[q]), *row) for q, row in zip(log.query, rows.tolist(), strict=True)
    ]
    return dict(zip(keys, zip(log.weights, log.clicks, strict=True), strict=True))


def assert_same_pairs(found, expected):
    assert found.keys() == expected.keys()
    assert_allclose([found[key] for key in expected], list(expected.values()), rtol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dropped", "propensities"),
    [
        (["context", "value"], THETA),
        (["context"], THETA),
        (["context", "value", "session"], THETA),
        (["context", "value"], THETA[:2]),
        (["value"], CURVES),
        ([], CURVES),
    ],
)
def test_shards_have_the_weights_of_the_path_in_memory(
    dropped, propensities, cluster, rng, tmp_path
):
    features = make_features(rng)
    table = make_log(rng, features).drop_columns(dropped)
    report = write_training_shards(
        read_impressions(cluster.createDataFrame(table)), cluster.createDataFrame(features),
        propensities, tmp_path / "shards", n_shards=2, missing="skip",
    )  # fmt: skip
    dataset, log, told = in_memory(table, features, propensities)
    assert report == told
    found = read_training_shards(tmp_path / "shards")
    assert found[0].feature_names == ("match", "price €")
    assert_same_pairs(by_pair(*found), by_pair(dataset, log))


def test_an_item_shown_twice_per_page_counts_in_part_with_its_clicks_by_chance():
    """Two pages show it at 1 and 2: ρ = (2·1 + 2·0.8)/2 = 1.8, and sums are divided by that."""
    table = pa.table({"query_id": ["a"] * 4, "item_id": [7] * 4, "position": [1, 2, 1, 2],
                      "click": [1, 1, 1, 0]})  # fmt: skip
    connection = duckdb.connect()
    log = read_impressions(connection.from_arrow(table))
    places = {"position": pa.array([1, 2], pa.int32()), "alpha": [1.0, 0.8], "beta": [0.3, 0.1]}
    known = nw.from_native(connection.from_arrow(pa.table(places))).lazy()
    groups = aggregation.group(log.frame)
    sessions = aggregation.group_first_position(groups)
    (pair,) = log.collect(weigh_pairs(groups, sessions, known, worth=2.0)).to_pylist()
    assert pair["propensity"] == 1
    assert pair["clicks"] == pytest.approx(3 / 1.8)
    assert pair["by_chance"] == pytest.approx(2.0 * (2 * 0.3 + 2 * 0.1) / 1.8)


@pytest.fixture(scope="module")
def made():
    rng = np.random.default_rng(SEED)
    features = make_features(rng)
    table = make_log(rng, features, n_sessions=1500)
    return table.drop_columns(["context", "value"]), features


@pytest.fixture(scope="module")
def shards(made, cluster, tmp_path_factory):
    """The folder that Spark wrote of a log."""
    table, features = made
    folder = tmp_path_factory.mktemp("scale") / "shards"
    log = read_impressions(cluster.createDataFrame(table))
    write_training_shards(log, cluster.createDataFrame(features), THETA, folder, n_shards=3)
    return folder


def test_a_query_is_in_one_shard_with_all_items_that_were_shown(made, shards):
    table, _ = made
    parts = [read_training_shards(shards, rank=rank, world_size=3)[0] for rank in range(3)]
    sizes = [(str(q), n) for part in parts
             for q, n in zip(part.query_ids, part.query_sizes, strict=True)]  # fmt: skip
    shown = table.group_by("query_id").aggregate([("item_id", "count_distinct"), ("click", "sum")])
    expected = [
        (row["query_id"], row["item_id_count_distinct"])
        for row in shown.to_pylist()
        if row["click_sum"]
    ]
    assert sorted(sizes) == sorted(expected)


@pytest.mark.slow
def test_what_cannot_be_used_is_told_as_in_memory(cluster, rng, tmp_path):
    """By context, with values, some features gone, some positions and a context not known."""
    features = make_features(rng)
    table = make_log(rng, features)
    features = features.slice(15).take(
        pa.array(np.flatnonzero(rng.random(len(features) - 15) < 0.9))
    )
    phones = ContextPropensities({"phone": CURVES.curves["phone"]})
    log = read_impressions(cluster.createDataFrame(table))
    frame = cluster.createDataFrame(features)
    with pytest.raises(DataError, match=r"clicks cannot be used: .*missing='skip'"):
        write_training_shards(log, frame, phones, tmp_path / "shards")
    assert not (tmp_path / "shards").exists()
    report = write_training_shards(
        log, frame, phones, tmp_path / "shards", n_shards=2, missing="skip"
    )
    dataset, expected, told = in_memory(table, features, phones)
    assert report == told
    assert min(report.no_query, report.no_item, report.no_propensity, report.no_context) > 0
    assert report.contexts == ("desktop",)
    assert_same_pairs(
        by_pair(*read_training_shards(tmp_path / "shards")), by_pair(dataset, expected)
    )
    with pytest.raises(DataError, match="already exists"):
        write_training_shards(log, frame, phones, tmp_path / "shards", missing="skip")


def test_features_that_cannot_be_joined(made, cluster, tmp_path):
    table, features = made
    log = read_impressions(cluster.createDataFrame(table))

    def write(items, log=log):
        write_training_shards(log, cluster.createDataFrame(items), THETA, tmp_path / "x")

    with pytest.raises(DataError, match="no column 'item_id'"):
        write(features.drop_columns("item_id"))
    with pytest.raises(DataError, match="a feature is called 'clicks', which is a column of"):
        write(features.rename_columns(["query_id", "item_id", "clicks", "price", "label"]))
    with pytest.raises(DataError, match="have to be numbers, and 'match' is String"):
        write(features.set_column(2, "match", features["match"].cast(pa.string())))
    with pytest.raises(DataError, match="have to be numbers, and there are none"):
        write(features.select(["query_id", "item_id", "label"]))
    with pytest.raises(DataError, match="item_id is integers in the log and text in the features"):
        write(features.set_column(1, "item_id", features["item_id"].cast(pa.string())))
    with pytest.raises(DataError, match="several rows of a query and item"):
        write(pa.concat_tables([features, features.slice(0, 9)]))
    with pytest.raises(ParameterError, match="not a data frame of Spark"):
        write_training_shards(log, features, THETA, tmp_path / "x")
    with pytest.raises(ParameterError, match="n_shards is 0"):
        write_training_shards(log, features, THETA, tmp_path / "x", n_shards=0)


@pytest.mark.slow
def test_the_example_writes_shards(cluster, tmp_path, capsys):
    """With propensities that a sample of the queries gives."""
    load_example("make_shop_log").write_shop(tmp_path, queries=60, sessions=2000, seed=SEED)
    example = load_example("shards_by_spark")
    example.write_shards(cluster, tmp_path, queries=50, n_shards=2)
    assert "clicks have features and a propensity" in capsys.readouterr().out
    dataset, log = read_training_shards(tmp_path / "shards")
    clicks = parquet.read_table(tmp_path / "impressions.parquet")["click"].to_numpy()
    assert log.n_clicks == clicks.sum()
    assert dataset.n_features == 5


# -- reading -------------------------------------------------------------------------------------


def shard(**columns):
    table = {"query_id": ["a", "a", "b"], "item_id": [1, 2, 1], "clicks": [1.0, 0.0, 2.0],
             "propensity": [0.5, 1.0, 0.25], "x": [1.0, 2.0, 3.0]}  # fmt: skip
    return pa.table({name: c for name, c in (table | columns).items() if c is not None})


def test_clicks_by_chance_are_taken_off(tmp_path):
    parquet.write_table(shard(by_chance=[0.5, 0.0, 0.0]), tmp_path / "0.parquet")
    dataset, log = read_training_shards(tmp_path)
    assert dataset.query_sizes.tolist() == [2, 1]
    assert log.item.tolist() == [0, 0]
    assert log.weights.tolist() == [1.0, 8.0]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"propensity": None}, "no column 'propensity'.*expected what write_training_shards wrote"),
        ({"x": None}, "no rows or no features"),
        ({"x": ["1", "2", "3"]}, "'x' is String, expected numbers"),
        ({"x": pa.array([1, None, 3], pa.float32())}, "values are missing"),
        ({"x": [1.0, np.nan, 3.0]}, "values are missing"),
        ({"x": [1.0, np.inf, 3.0]}, "not finite|finite"),
        ({"query_id": ["a", None, "b"]}, "values are missing"),
        ({"query_id": [0.5, 1.5, 2.5]}, "expected integers or strings"),
        ({"propensity": [0.5, 2.0, 0.5]}, "propensity"),
        ({"clicks": [0.0, 0.0, 0.0]}, "every count is 0"),
        ({"clicks": [1.0, -1.0, 0.0]}, "count"),
    ],
)
def test_shards_that_are_none(columns, message, tmp_path):
    parquet.write_table(shard(**columns), tmp_path / "0.parquet")
    with pytest.raises(DataError, match=message) as caught:
        read_training_shards(tmp_path)
    assert str(caught.value).startswith(str(tmp_path))


def test_files_that_are_no_shards(tmp_path):
    with pytest.raises(DataError, match="no such file or folder"):
        read_training_shards(tmp_path / "none")
    (tmp_path / "0.parquet").write_bytes(b"nothing")
    with pytest.raises(DataError, match="cannot be read"):
        read_training_shards(tmp_path)
    parquet.write_table(shard(), tmp_path / "0.parquet")
    with pytest.raises(DataError, match="1 files for 2 processes, expected at least one for each"):
        read_training_shards(tmp_path, world_size=2)
    with pytest.raises(ParameterError, match="rank is 2, expected below 2"):
        read_training_shards(tmp_path, rank=2, world_size=2)


# -- training ------------------------------------------------------------------------------------


def test_two_processes_train_on_what_spark_wrote(made, shards, tmp_path):
    """The whole path: a log, Spark's cluster, torchrun, a ranker that ranks."""
    need("torch")
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
         "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1",
         str(ROOT / "examples" / "train_from_shards.py"), str(shards), "-o",
         str(tmp_path / "ranker.json"), "--hidden", "8", "--learning-rate", "0.01",
         "--epochs", "8", "--seed", str(SEED)],
        env=os.environ | {
            "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
            "OMP_NUM_THREADS": "1",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # see docs/torch.md
        },
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[0].startswith("epoch 1: dcg@10 0.")
    ranker, dataset = load_ranker(tmp_path / "ranker.json"), read_features(made[1]).dataset
    assert ranker.provenance_["n_clicks"] == pytest.approx(sum(made[0]["click"].to_pylist()))
    by_chance = np.random.default_rng(SEED).random(dataset.n_items)
    before = evaluate(by_chance, dataset, "ndcg@5")["ndcg@5"]
    best = evaluate(dataset.labels, dataset, "ndcg@5")["ndcg@5"]
    after = evaluate(ranker, dataset, "ndcg@5")["ndcg@5"]
    assert after > before + 0.6 * (best - before)


def test_without_hidden_layers_it_is_a_linear_ranker(shards, tmp_path):
    need("torch")
    from countersample import torch

    settings = torch.NeuralRanker(
        hidden=(), learning_rate=0.02, epochs=15, patience=None, random_state=SEED
    )
    told = []
    ranker = torch.train_on_shards(
        settings, shards, progress=lambda what, share: told.append((what, share))
    )
    assert isinstance(ranker, CounterSampleRanker)
    assert len(told) == 15
    assert told[-1][1] == 1
    assert (np.sign(ranker.weights_) == np.sign(WANTED)).all()
    ranker.save(tmp_path / "ranker.json")
    dataset, _ = read_training_shards(shards)
    again = load_ranker(tmp_path / "ranker.json")
    assert (again.predict(dataset) == ranker.predict(dataset)).all()
    assert not hasattr(settings, "scorer_")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "ips"}, "method is 'ips', expected 'countersample' for shards"),
        ({"start": "served"}, "start is 'served', expected 'auto', 'zero' for shards"),
        ({"normalize": "standard"}, "normalize is 'standard', expected None, 'minmax'"),
        ({"feature_transform": "log"}, "feature_transform is 'log', expected None for shards"),
        ({"warm_start": True}, "warm_start is True, expected False for shards"),
        ({"random_state": None}, "random_state is None, expected a number"),
        ({"epochs": 0}, "epochs is 0"),
    ],
)
def test_settings_that_shards_do_not_have(settings, message, shards):
    need("torch")
    from countersample import torch

    with pytest.raises(ParameterError, match=message):
        torch.train_on_shards(torch.NeuralRanker(**({"random_state": 0} | settings)), shards)


# -- draws ---------------------------------------------------------------------------------------


@pytest.fixture
def ranks(monkeypatch, rng):
    """Samplers of three processes, as if each were one, with very different weights."""
    need("torch")
    from countersample.torch import ShardSampler
    from countersample.torch import samplers as module

    logs = [
        ClickLog(query=np.arange(n), item=np.zeros(n, int), propensity=rng.uniform(low, 1, n),
                 count=rng.integers(1, 5, n))
        for n, low in ((3, 0.01), (20, 0.9), (8, 0.1))
    ]  # fmt: skip
    every = np.array([[log.weights.sum(), log.n_clicks, log.n_rows] for log in logs])
    monkeypatch.setattr(module, "gather_ranks", lambda _values: every)
    samplers = []
    for rank, log in enumerate(logs):
        monkeypatch.setattr(module, "process_rank", lambda rank=rank: (rank, 3))
        samplers.append(ShardSampler(log, batch_size=16, n_draws=16 * 2000, seed=SEED))
    return samplers, logs


def test_draws_over_all_processes_are_unbiased(ranks):
    """π_i·m_i = v_i/N by enumeration, where π_i = P(rank)·P(i in the rank)."""
    samplers, logs = ranks
    n_clicks = sum(log.n_clicks for log in logs)
    for rank, (sampler, log) in enumerate(zip(samplers, logs, strict=True)):
        of_rank = sampler.totals[rank] / sampler.totals.sum()
        chance = of_rank * sampler.plan.probabilities
        assert_allclose(chance * sampler.plan.multipliers, log.weights / n_clicks, rtol=1e-12)


def test_the_mean_over_processes_is_that_of_all_draws(ranks):
    """The weights of a step's clicks, over ranks, add up to M̄/B each."""
    import torch

    from countersample.torch import ClickBatch

    samplers, _ = ranks
    mean = samplers[0].plan.multipliers[0]
    for batches in zip(*(list(sampler)[:5] for sampler in samplers), strict=True):
        total = []
        for sampler, drawn in zip(samplers, batches, strict=True):
            n = len(drawn)
            weight = torch.from_numpy(sampler.plan.multipliers[drawn] / max(1, n))
            ends = torch.arange(n + 1)
            batch = ClickBatch(torch.zeros(n, 1), ends, ends, torch.zeros(n).long(), weight)
            total.append(sampler.reweigh(batch).weight.numpy() / 3)
        assert_allclose(np.concatenate(total), np.full(16, mean / 16), rtol=1e-12)
