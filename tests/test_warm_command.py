"""``fit --warm-start`` and ``train --warm-start``: yesterday's ranker, and today's clicks."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import SEED
from every_ranker import make as make_ranker
from every_ranker import tiny
from pyarrow import parquet
from shops import make

from countersample import save_letor
from countersample.rankers import load_ranker

FEATURES = ("--features", "features.parquet")
TODAY = ("fit", "today.parquet", *FEATURES, "--gamma", "1", "-o", "today.json")
FROM = ("--warm-start", "yesterday.json")
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def shop():
    return make(SEED, queries=40, sessions=1500)


@pytest.fixture
def days(shop, tmp_path, monkeypatch, run):
    """Write the log of a shop in two days, and a ranker of the first."""
    monkeypatch.chdir(tmp_path)
    log, features = shop
    half = log.num_rows // 20 * 10  # whole sessions
    for name, part, day in (
        ("yesterday", log.slice(0, half), "2026-03-01"),
        ("today", log.slice(half), "2026-03-02"),
    ):
        times = pa.array([day] * part.num_rows)
        parquet.write_table(part.append_column("timestamp", times), f"{name}.parquet")
    parquet.write_table(features, "features.parquet")
    run("fit", "yesterday.parquet", *FEATURES, "--gamma", "1", "-o", "yesterday.json")
    return tmp_path


@slow
def test_fit(run, days):
    before = load_ranker("yesterday.json")
    printed = run(*TODAY, *FROM)
    n_clicks = before.provenance_["n_clicks"]
    page = Path("today.html").read_text(encoding="utf-8")
    assert f"from a ranker of {n_clicks:,.0f} clicks" in page
    assert "Warning: The ranker of the warm start" not in printed
    after = load_ranker("today.json")
    assert after.provenance_["previous"] == {"n_clicks": n_clicks, "updates": 1}
    assert after.provenance_["log"]["first_day"] == "2026-03-01"  # of the first training
    assert after.provenance_["log"]["last_day"] == "2026-03-02"
    assert after.preprocessing_.normalizer == before.preprocessing_.normalizer
    again = json.loads(run(*TODAY, *FROM, "--json"))
    assert again["settings"]["model"] == "linear"
    assert load_ranker("today.json").scorer_.weights.tolist() == after.scorer_.weights.tolist()
    # Days that the ranker has seen are warned about.
    printed = run("fit", "yesterday.parquet", *TODAY[2:], *FROM)
    text = "days until 2026-03-01, and this log begins on 2026-03-01: it was trained"
    assert text in " ".join(printed.split())
    (days / "bad.json").write_text("{}")
    for words, error in [
        ((*FROM, "--model", "neural"), "model is 'neural', expected 'linear' as the ranker of the"),
        (("--warm-start", "missing.json"), "missing.json: cannot be read"),
        (("--warm-start", "bad.json"), "bad.json: not a ranker file"),
        ((*FROM, "--exclude", "price"), "as the ranker of the warm start"),
    ]:
        assert error in run(*TODAY, *words, fails=True)


def test_a_nightly_job_replaces_the_ranker_that_it_continues(run, tmp_path):
    dataset, log = tiny()
    save_letor(dataset, tmp_path / "data.txt")
    log.detached().save(tmp_path / "clicks.parquet")
    ranker = tmp_path / "ranker.json"
    make_ranker("linear").fit_log(dataset, log).save(ranker)
    nightly = ("train", "data.txt", "clicks.parquet", "--no-evaluation", "--warm-start",
               "ranker.json", "-o", "ranker.json")  # fmt: skip
    for night in (1, 2):
        run(*nightly)
        assert load_ranker(ranker).provenance_["previous"]["updates"] == night
    before = ranker.read_bytes()
    run(*nightly, "--normalize", "standard", fails=True)
    assert ranker.read_bytes() == before
