"""The demo: a study of regret with a write-up of its own."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from study_results import make_result

from countersample import load_ranker
from countersample._progress import Progress
from countersample.study import shop as demo_shop
from countersample.study.demo import (
    DEFAULT_RANKER,
    HEADER,
    Demo,
    run_demo,
    write_demo,
)
from countersample.study.results import Cell
from countersample.study.settings import PAPER


def make_demo(curves, *, best=0.8, batch_size=1):
    """A demo with these curves by method and run, at the steps 10, 20 and 30."""
    cells = {
        ("mine", method, "sgd"): Cell(
            learning_rates=(0.1,),
            drawn=batch_size * np.array([10, 20, 30]),
            ndcg=np.array(runs),
            best=np.full(len(runs), best),
            runs=tuple(("", seed) for seed in range(len(runs))),
            n_diverged=0,
            seconds=np.linspace(0.5, 1, len(runs)),
        )
        for method, runs in curves.items()
    }
    runs = next(iter(curves.values()))
    settings = {"clicks": 30 * batch_size, "epochs": 1.0, "batch_size": batch_size, "seeds": 2}
    config = PAPER.with_settings(settings)
    result = replace(make_result(cells), nothing_set={("mine", "sgd"): np.full(len(runs), 0.71)})
    about = "Items are relevant from grade 3 on."
    facts = {"n_queries": 7, "n_items": 70, "n_features": 5, "max_weight": 20.0,
             "mean_weight": 4.0, "fingerprint": "abc"}  # fmt: skip
    return Demo(result, config, True, facts, 25, about)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_steps_to_a_share_of_the_best_mean_of_all(batch_size):
    curves = {"IPS-SGD": [[0.5, 0.6, 0.7]], "CounterSample": [[0.1, 0.69, 0.695]],
              "Biased-SGD": [[0.1, 0.2, 0.3]]}  # fmt: skip
    demo = make_demo(curves, batch_size=batch_size)
    # 99 % of 0.7 is 0.693
    assert [demo.steps_to(method) for method in curves] == [30, 30, None]
    assert demo.steps_to("IPS-SGD", share=0.8) == 20


def test_the_table_has_a_row_per_method():
    curves = {
        "IPS-SGD": [[0.5, 0.6, 0.7], [0.7, 0.7, 0.7]],
        "CounterSample": [[0.7, 0.7, 0.7], [0.7, 0.7, 0.7]],
        "Biased-SGD": [[0.1, 0.1, 0.1], [0.1, 0.1, 0.1]],
    }
    columns = dict(zip(HEADER, zip(*make_demo(curves).rows(), strict=True), strict=True))
    assert columns["method"] == (*curves, DEFAULT_RANKER)
    assert columns["nDCG@10"] == ("0.7000", "0.7000", "0.1000", "0.7100")
    # 100 · ((0.3 + 0.2 + 0.1)/3 + 0.1)/2; t with one degree of freedom is 12.706: · 10/2
    assert columns["regret ×100"][0] == "15.00 ± 63.53"
    assert columns["steps to 99 %"] == ("30", "10", "not reached", "ends at 25")
    assert columns["seconds"] == ("0.50", "0.17", "–", "–")  # of 0.5 s for 30 steps
    assert columns["speed-up"] == ("1.0×", "3.0×", "–", "–")


def test_the_speed_up_over_a_reference_that_never_gets_there():
    demo = make_demo({"IPS-SGD": [[0.1, 0.1, 0.1]], "CounterSample": [[0.7, 0.7, 0.7]]})
    assert [row[5] for row in demo.rows()] == ["–", "> 3.0×", "–"]


def test_the_page_has_everything_and_needs_no_network(tmp_path):
    demo = make_demo({"IPS-SGD": [[0.5, 0.6, 0.7]], "CounterSample": [[0.7, 0.7, 0.7]]})
    write_demo(demo, tmp_path / "out", command="countersample demo --data <mine>")
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "simulated on\nyour data:\n7 queries" in page
    assert "countersample demo --data &lt;mine&gt;" in page
    assert all(cell in page for row in demo.rows() for cell in row[:1])
    assert not re.search(r"(src|href)=\"http", page)
    rows = (tmp_path / "out" / "curves.csv").read_text().splitlines()
    assert len(rows) == 1 + 2 * 3 + 1
    assert rows[-1] == f"mine,sgd,{DEFAULT_RANKER},25,0.71,0.71,0.71"


@pytest.mark.parametrize(("end", "is_explained"), [(0.749, False), (0.74, True)])
def test_a_curve_that_falls_is_explained(end, is_explained):
    by_query = "CounterSample by query"
    demo = make_demo({"IPS-SGD": [[0.5, 0.8, 0.7]], by_query: [[0.7, 0.75, end]]})
    assert demo.fall() == ((20, 0.75, end) if is_explained else None)


@pytest.fixture(scope="module")
def shop():
    return demo_shop.fit_shop(Progress.of(None))


def test_the_estimated_gain_of_the_shop_is_its_true_gain(shop):
    gain = shop.fit.gain
    assert shop.fit.is_better
    assert shop.fit.warnings == ()
    assert gain.relative_low < shop.true_gain < gain.relative_high


def test_the_labels_of_the_shop_are_what_users_click_once_they_examine(shop):
    first = shop.log.filter(np.asarray(shop.log["position"]) == 1)  # always examined
    data = demo_shop.make_shop(demo_shop.N_QUERIES, np.random.default_rng(demo_shop.SEED))
    queries = {name: number for number, name in enumerate(data.query_ids)}
    rows = [data.offsets[queries[query]] for query in first["query_id"].to_pylist()]
    labels = data.labels[np.array(rows) + np.asarray(first["item_id"])]
    clicks = np.asarray(first["click"])
    assert clicks[labels == 1].all()
    # A binomial rate of about 15,000 clicks with P = 0.1 is within 0.015 (six deviations).
    assert clicks[labels < 1].mean() == pytest.approx(demo_shop.NOISE, abs=0.015)


def test_the_page_opens_with_the_verdict_and_the_true_gain(shop, tmp_path):
    demo = replace(make_demo({"IPS-SGD": [[0.5, 0.6, 0.7]]}), shop=shop)
    write_demo(demo, tmp_path, command="countersample demo")
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    order = [page.index(text) for text in (shop.fit.verdict, f"{shop.true_gain:+.1%}", "IPS-SGD")]
    assert order == sorted(order)
    files = ["features.parquet", "impressions.parquet", "ranker.html", "ranker.json"]
    assert sorted(path.name for path in (tmp_path / "shop").iterdir()) == files
    assert 'href="shop/ranker.html"' in page


def test_fit_repeats_the_ranker_of_the_shop(shop, tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    demo_shop.write_shop(shop, Path("shop"))
    before = load_ranker("shop/ranker.json").coef_
    run(*shlex.split(shop.command(Path("shop")))[1:])
    assert_array_equal(load_ranker("shop/ranker.json").coef_, before)


@pytest.mark.slow
def test_what_the_paper_shows():
    """Naive is far off; drawing by weight has less regret than weighting; by query has least."""
    settings = {
        "queries": 1500, "clicks": 50_000, "seeds": 3, "evaluate_every": 500,
        "learning_rates": [1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4],
    }  # fmt: skip
    demo = run_demo(None, settings, workers=2)
    naive, ips, sampled, by_query = (cell.regrets.mean() for cell in demo.cells.values())
    assert naive > sampled
    assert ips > sampled > by_query
    assert demo.policy < demo.best
    assert all(cell.n_diverged == 0 for cell in demo.cells.values())
