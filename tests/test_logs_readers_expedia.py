"""The script that judges rankers by Expedia's shuffled pages, on a made-up file with its header."""

import json

import duckdb
import numpy as np
import pytest
from conftest import ROOT, SEED
from public_logs import made_expedia
from shops import load_example

from countersample.logs import read_impressions
from countersample.propensity import estimate


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    rng = np.random.default_rng(SEED)
    return made_expedia(tmp_path_factory.mktemp("expedia") / "train.csv", rng, searches=6000)


@pytest.mark.slow
def test_shuffled_pages_prefer_weights(path, capsys):
    found = load_example("judge_on_expedia").judge(str(path), depth=8)
    n_shuffled = int(
        read_impressions(path, reader="expedia").of_policy("random").check().n_sessions
    )
    assert {len(value) for value in found.values()} == {n_shuffled}
    gain = found["with weights"] - found["without weights"]
    assert gain.mean() > 0  # about four standard errors
    assert found["with weights"].mean() > found["cheapest first"].mean()
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines[1:9]]
    assert [int(row[0]) for row in rows] == [1, 2, 3, 4, 6, 7, 8, 9]  # 5 is kept for other offers
    for place, value, _, _, _, rate in rows[:4]:
        assert float(value) * int(place) == pytest.approx(1, abs=0.5)
        assert float(rate) * int(place) == pytest.approx(1, abs=0.5)


@pytest.mark.slow
def test_fit_takes_the_file_as_it_is(path, tmp_path, run):
    hotels = duckdb.sql(load_example("judge_on_expedia").HOTELS, params={"path": str(path)})
    hotels.write_parquet(str(tmp_path / "hotels.parquet"))
    by_destination = read_impressions(path, reader="expedia").of_policy("random").counts()
    estimate(by_destination, method="randomized", rng=SEED).save(tmp_path / "curve.json")
    said = json.loads(
        run(
            "fit", path, "--reader", "expedia", "--columns", "query_id=srch_id",
            "--values", "click=1,booking=5", "--features", tmp_path / "hotels.parquet",
            "--propensities", tmp_path / "curve.json", "--missing", "skip",
            "-o", tmp_path / "ranker.json", "--json",
        )
    )  # fmt: skip
    assert said["gain"]["relative"] > 0
    assert said["weights"]["n_clicks"] > said["gain"]["new"]["n_clicks"]  # bookings are worth five


def test_the_documentation_shows_the_script_as_it_is():
    script = (ROOT / "examples" / "judge_on_expedia.py").read_text()
    page = (ROOT / "docs" / "public-logs.md").read_text()
    assert script.partition("\n")[2] in page  # but for the line to the linter
