"""The demo: a study of regret with a write-up of its own."""

import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from study_results import make_result

from countersample import load_ranker
from countersample._progress import Progress
from countersample.study import demo as demo_module
from countersample.study.demo import (
    DEFAULT_RANKER,
    HEADER,
    Demo,
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
    return Demo(result, config, facts, 25, about)


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


@pytest.fixture(scope="module")
def shop():
    return demo_module.fit_shop(Progress.of(None))


def test_the_estimated_gain_of_the_shop_is_its_true_gain(shop):
    gain = shop.fit.gain
    assert shop.fit.is_better
    assert shop.fit.warnings == ()
    assert gain.relative_low < shop.true_gain < gain.relative_high


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
    demo_module.write_shop(shop, Path("shop"))
    before = load_ranker("shop/ranker.json").coef_
    run(*shlex.split(shop.command(Path("shop")))[1:])
    assert_array_equal(load_ranker("shop/ranker.json").coef_, before)
