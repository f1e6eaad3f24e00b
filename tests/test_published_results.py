"""What the documentation publishes of studies at larger scales is what their data says."""

import re

import numpy as np
import pytest
from conftest import ROOT
from pyarrow import compute, parquet

from countersample.study.findings.statistics import interval

FOLDER = ROOT / "docs" / "results"
PAGE = (ROOT / "docs" / "reproduction.md").read_text("utf-8")
AT_PAPER_SCALE = PAGE.partition("## At the paper's scale\n")[2].partition("\n## ")[0]


def row_of(label, text):
    """The numbers of the first row of that label, and their half widths."""
    (line,) = re.findall(rf"^\| {re.escape(label)} \|(.*)\|$", text, re.MULTILINE)[:1]
    cells = [re.findall(r"−?[\d.]+", cell) for cell in line.split("|")]
    return [[float(number.replace("−", "-")) for number in cell[:2]] for cell in cells]


AT_MEDIUM_SCALE = PAGE.partition("## At medium scale\n")[2].partition("\n## ")[0]
TABLES = {"optimizers": ("| γ = 1", ["sgd", "adam", "adagrad"]),
          "position-bias": ("| γ, with SGD", ["0.5", "1.0", "1.5"])}  # fmt: skip


@pytest.mark.parametrize("dataset", ["yahoo-like", "istella-like"])
@pytest.mark.parametrize("study", TABLES)
def test_regret_at_medium_scale(study, dataset):
    begin, values = TABLES[study]
    text = AT_MEDIUM_SCALE[AT_MEDIUM_SCALE.index(begin) :]
    rows = parquet.read_table(FOLDER / "medium.parquet")
    for method in ("Biased-SGD", "IPS-SGD", "CounterSample"):
        told = row_of(f"{dataset}: {method}", text)
        wanted = {"study": study, "dataset": dataset, "method": method}
        for value, (mean, half) in zip(values, told, strict=True):
            own = rows
            for column, each in (wanted | {"value": value}).items():
                own = own.filter(compute.equal(own[column], each))
            regrets = 100 * own["regret"].to_numpy().reshape(5, 100).mean(axis=1)
            assert mean == pytest.approx(regrets.mean(), abs=0.0051)
            assert half == pytest.approx(interval(regrets), abs=0.0051)


@pytest.fixture(scope="module")
def rows():
    return parquet.read_table(FOLDER / "paper.parquet")


# The columns of the tables at the paper's scale.
CELLS = [("yahoo-like", 0.5), ("yahoo-like", 1.0), ("yahoo-like", 1.5), ("istella-like", 1.0)]


def runs_of(rows, method, cell):
    """(n_runs, n_points) of regret ×100."""
    own = rows
    for column, value in zip(("method", "dataset", "gamma"), (method, *cell), strict=True):
        own = own.filter(compute.equal(own[column], value))
    return 100 * own["regret"].to_numpy().reshape(5, 500)


@pytest.mark.parametrize("method", ["Biased-SGD", "IPS-SGD", "CounterSample"])
def test_regret_at_the_scale_of_the_paper(rows, method):
    told = row_of(method, AT_PAPER_SCALE)
    for cell, (mean, half) in zip(CELLS, told, strict=True):
        regrets = runs_of(rows, method, cell).mean(axis=1)
        assert mean == pytest.approx(regrets.mean(), abs=0.0051)
        assert half == pytest.approx(interval(regrets), abs=0.0051)


@pytest.mark.parametrize("drawn", [50_000, 500_000, 5_000_000])
def test_the_lead_in_the_course_of_training(rows, drawn):
    told = row_of(f"{drawn:,}", AT_PAPER_SCALE)
    for cell, (mean, half) in zip(CELLS, told, strict=True):
        ips, sampled = (runs_of(rows, name, cell) for name in ("IPS-SGD", "CounterSample"))
        lead = (ips - sampled)[:, : drawn // 10_000].mean(axis=1)
        assert mean == pytest.approx(lead.mean(), abs=0.0051)
        assert half == pytest.approx(interval(lead), abs=0.0051)


def test_nothing_set_is_as_the_table_has_it():
    kept = (FOLDER / "position-bias-nothing-set.csv").read_text("utf-8").splitlines()[1:]
    for line in kept:
        dataset, label, gamma, mean, half, *_ = line.split(",")
        at = CELLS.index((dataset, float(gamma)))
        told = row_of(label, AT_PAPER_SCALE.partition("### With no tuning at all")[2])[at]
        assert told == pytest.approx([float(mean), float(half)], abs=5.1e-5)


def test_results_are_those_of_whole_runs_and_small(rows):
    sizes = [path.stat().st_size for path in FOLDER.iterdir()]
    assert sum(sizes) < 5_000_000
    assert set(np.unique(rows["clicks"].to_numpy())) == {1_000_000}
    assert rows["drawn"].to_numpy().max() == 5_000_000
    assert set(rows["rates_tried"].to_pylist()) == {22}


def test_regret_under_the_law_of_the_released_code():
    text = PAGE[PAGE.index("| γ, with SGD, $(1/(1 + r))^\\gamma$") :]
    rows = parquet.read_table(FOLDER / "medium.parquet")
    rows = rows.filter(compute.equal(rows["bias_offset"], 1))
    for method in ("Biased-SGD", "IPS-SGD", "CounterSample"):
        told = row_of(f"yahoo-like: {method}", text)
        for gamma, (mean, half) in zip((0.5, 1.5), told, strict=True):
            own = rows.filter(compute.equal(rows["method"], method))
            own = own.filter(compute.equal(own["gamma"], gamma))
            regrets = 100 * own["regret"].to_numpy().reshape(5, 100).mean(axis=1)
            assert mean == pytest.approx(regrets.mean(), abs=0.0051)
            assert half == pytest.approx(interval(regrets), abs=0.0051)
