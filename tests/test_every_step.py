"""A shop as it is, with holes, dates and categories: fitted, ranked, served, counted, gone on."""

import duckdb
import invoking
import numpy as np
import pyarrow as pa
import pytest
import shops
from conftest import SEED
from pyarrow import parquet

from countersample import load_ranker

GAMMA = ("--gamma", "1")


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    rng = np.random.default_rng(SEED)
    log, features = shops.make(SEED + 3, queries=60, sessions=2500)
    n = len(features)
    reviews = features["reviews"].to_numpy()
    stars = np.array(["few", "it's some", "many"], object)[(reviews * 3).astype(int)]
    stars[rng.random(n) < 0.1] = None
    price = np.exp(3 * features["price"].to_numpy())
    since = np.datetime64("2026-01-01") + rng.integers(0, 300, n)
    features = features.drop_columns(["reviews", "price", "label"])
    features = features.append_column("stars", pa.array(stars))
    features = features.append_column("price", pa.array(price, mask=rng.random(n) < 0.2))
    features = features.append_column("since", pa.array(since))
    parquet.write_table(features, folder / "features.parquet")
    parquet.write_table(log, folder / "log.parquet")
    return folder


@pytest.fixture
def run(shop, monkeypatch):
    monkeypatch.chdir(shop)

    def invoke(*arguments, fails=False):
        found = invoking.invoke(*arguments)
        assert (found.exit_code != 0) == fails, found.output
        return str(found.exception) if fails else found.stdout

    return invoke


@pytest.mark.slow
@pytest.mark.parametrize("model", ["linear", "lightgbm"])
def test_from_a_table_with_holes_to_a_view(run, shop, model):
    """What fit takes, rank takes; a database and the ranker give the same scores."""
    options = ["--transform", "log"] if model == "linear" else []
    run("fit", "log.parquet", "--features", "features.parquet", "-o", f"{model}.json",
        "--model", model, *options, *GAMMA)  # fmt: skip
    ranker = load_ranker(shop / f"{model}.json")
    assert [column.kind for column in ranker.preprocessing_.encoder.columns] == [
        "number", "number", "number", "category", "number", "date",
    ]  # fmt: skip
    assert (ranker.preprocessing_.imputer is None) == (model == "lightgbm")
    run("rank", f"{model}.json", "features.parquet", "-o", f"{model}.parquet")
    ranked = parquet.read_table(shop / f"{model}.parquet")
    assert ranked.column_names == ["query_id", "item_id", "score", "rank"]
    frame = ranker.rank_frame(parquet.read_table(shop / "features.parquet"))
    assert frame.drop_columns(["score"]).equals(ranked.drop_columns(["score"]))
    # the file is read in blocks, in which a product of matrices may round otherwise
    np.testing.assert_allclose(frame["score"], ranked["score"], rtol=1e-12, atol=1e-12)
    run("export", f"{model}.json", "--to", "sql", "--query", "query_id", "-o", f"{model}.sql")
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE features AS FROM '{shop / 'features.parquet'}'")
    connection.execute((shop / f"{model}.sql").read_text())
    found = connection.table(model).select("query_id", "item_id", "score").to_arrow_table()
    by_view = dict(zip(zip(*found.select([0, 1]).to_pydict().values(), strict=True),
                       found["score"].to_pylist(), strict=True))  # fmt: skip
    keys = zip(*ranked.select([0, 1]).to_pydict().values(), strict=True)
    scores = np.array([by_view[key] for key in keys])
    np.testing.assert_allclose(scores, ranked["score"].to_numpy(), rtol=1e-6, atol=1e-6)
    card = (shop / f"{model}.md").read_text()
    assert "age in days" in card
    assert "stars" in card
