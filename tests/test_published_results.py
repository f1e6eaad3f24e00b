"""What the documentation publishes of studies at larger scales is what their data says."""

import itertools
import re
from functools import cache

import numpy as np
import pytest
from conftest import ROOT
from pyarrow import compute, parquet

from countersample.cli.study import settings_of
from countersample.study.artifacts import evaluate_file
from countersample.study.design import grids
from countersample.study.design.config import PAPER_RATES
from countersample.study.experiment import plan
from countersample.study.findings.statistics import interval, lead
from countersample.study.kinds import load_grid
from countersample.study.running.rows import read_results, results_of

FOLDER = ROOT / "docs" / "results"
PAGE = (ROOT / "docs" / "reproduction.md").read_text("utf-8")
SECTIONS = {"paper": "## At the paper's scale\n", "medium": "## At medium scale\n"}
# How the tables of a study begin.
TABLES = {
    "position-bias": "| γ, with SGD |",
    "optimizers": "| γ = 1, batch size 1 |",
    "batch-sizes": "| γ = 1, SGD, batches of |",
}
DATASETS = ("yahoo-like", "istella-like")
METHODS = ("Biased-SGD", "IPS-SGD", "CounterSample")


def section(scale):
    return PAGE.partition(SECTIONS[scale])[2].partition("\n## ")[0]


def row_of(label, text):
    """The numbers of the first row of that label with their half widths; None for a dash."""
    (line,) = re.findall(rf"^\| {re.escape(label)} \|(.*)\|$", text, re.MULTILINE)[:1]
    cells = [re.findall(r"−?[\d.]+", cell) for cell in line.split("|")]
    return [[float(number.replace("−", "-")) for number in cell[:2]] or None for cell in cells]


@cache
def result_of(scale, study, dataset):
    rows = read_results(FOLDER / f"{scale}.parquet")
    for column, value in {"study": study, "dataset": dataset}.items():
        rows = rows.filter(compute.equal(rows[column], value))
    return results_of(rows, load_grid(grids.path_of(study)))


def check_row(told, values, sample_of, at_most=0.0051):
    """Hold a row, a column a value of the grid, against samples by value."""
    assert sum(cell is not None for cell in told) == len(values)
    for cell, value in zip(filter(None, told), values, strict=True):
        sample = sample_of(value)
        assert cell == pytest.approx([sample.mean(), interval(sample)], abs=at_most)


@cache
def tables_of(scale):
    return {table.name: table for table in evaluate_file(FOLDER / f"{scale}.parquet").tables}


def entries(scale, name, dataset, method):
    (group,) = (group for group in tables_of(scale)[name].groups if group.title == dataset)
    (row,) = (row for row in group.rows if row.label == method)
    return row.entries


def check_entries(text, label, found, at_most):
    """Compare a row of a page with numbers, half widths and marks of a table."""
    told = row_of(label, text)
    np.testing.assert_allclose(told, [[e.value, e.half_width] for e in found], atol=at_most)
    (line,) = re.findall(rf"^\| {re.escape(label)} \|(.*)\|$", text, re.MULTILINE)[:1]
    assert ["".join(re.findall("[▽△]", cell)) for cell in line.split("|")] == [
        entry.mark for entry in found
    ]


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize(
    ("scale", "study"), [*itertools.product(SECTIONS, TABLES), ("medium", "large-batches")]
)
def test_regret_and_marks(scale, study, dataset):
    """They are those of the command that the page names, which corrects for both sets' tests."""
    methods = METHODS[1:] if study == "large-batches" else METHODS
    text = section(scale)
    text = text[text.index(TABLES.get(study, "| γ = 1, SGD, large batches |")) :]
    for method in methods:
        found = entries(scale, f"{study}-regret", dataset, method)
        check_entries(text, f"{dataset}: {method}", found, 0.0051)


@pytest.mark.parametrize("dataset", DATASETS)
def test_where_runs_end(dataset):
    for method in METHODS[1:]:
        found = entries("paper", "position-bias-ndcg", dataset, method)
        check_entries(section("paper"), f"{dataset}: {method} ends at", found, 5.1e-5)


def test_whether_it_is_adams_fault():
    """Every number and mark of the table in docs/study.md, row by row."""
    text = (ROOT / "docs" / "study.md").read_text("utf-8").partition("## Is it Adam's fault?")[2]
    lines = text.partition("\n## ")[0].splitlines()
    rows = [line for line in lines if re.match(r"\| .*(SGD|CounterSample) \| \d", line)]
    wanted = [("amsgrad-regret", dataset, method) for dataset in DATASETS for method in METHODS]
    wanted += [("amsgrad-ndcg", dataset, method) for dataset in DATASETS for method in METHODS[1:]]
    for row, (name, dataset, method) in zip(rows, wanted, strict=True):
        cells, digits = row.split("|")[2:-1], 4 if name.endswith("ndcg") else 2
        for cell, entry in zip(cells, entries("medium", name, dataset, method), strict=True):
            expected = [round(entry.value, digits), round(entry.half_width, digits)]
            assert [float(number) for number in re.findall(r"[\d.]+", cell)] == expected
            assert "".join(re.findall("[▽△]", cell)) == entry.mark


@pytest.mark.parametrize("drawn", [50_000, 500_000, 5_000_000])
@pytest.mark.parametrize("dataset", DATASETS)
def test_the_lead_in_the_course_of_training(dataset, drawn):
    result = result_of("paper", "position-bias", dataset)
    told = row_of(f"{dataset}: {drawn:,}", section("paper"))
    at = drawn // 10_000 - 1
    check_row(told, result.grid.values, lambda value: lead(result, dataset, value)[:, at])


def test_nothing_set_is_as_the_table_has_it():
    kept = (FOLDER / "position-bias-nothing-set.csv").read_text("utf-8").splitlines()[1:]
    text = section("paper").partition("### With no tuning at all")[2]
    found = {}
    for line in kept:
        dataset, label, gamma, mean, half, *_ = line.split(",")
        found.setdefault((dataset, label), {})[float(gamma)] = (float(mean), float(half))
    for (dataset, label), by_gamma in found.items():
        told = filter(None, row_of(f"{dataset}: {label}", text))
        for cell, gamma in zip(told, sorted(by_gamma), strict=True):
            assert cell == pytest.approx(by_gamma[gamma], abs=5.1e-5)
    assert len(found) == 8


@pytest.mark.parametrize(("label", "column"), [("M̄", "mean_weight"), ("M", "max_weight")])
@pytest.mark.parametrize("dataset", DATASETS)
def test_weights_are_those_of_the_logs(dataset, label, column):
    rows = parquet.read_table(FOLDER / "paper.parquet", columns=["dataset", "gamma", column])
    rows = rows.filter(compute.equal(rows["dataset"], dataset))
    found = rows.group_by("gamma").aggregate([(column, "mean")]).sort_by("gamma")
    row = rf"^\| {label}: {dataset}, \$\(1/r\)\^\\gamma\$ \|(.*)\|$"
    (line,) = re.findall(row, PAGE, re.MULTILINE)
    told = [float(cell.replace(",", "")) for cell in line.split("|")]
    np.testing.assert_allclose(found[f"{column}_mean"].to_numpy(), told, atol=0.006)


@pytest.mark.parametrize("scale", SECTIONS)
@pytest.mark.parametrize("dataset", DATASETS)
def test_every_verdict_is_that_of_the_rows(scale, dataset):
    """The table of claims has a column a scale and dataset."""
    column = [*SECTIONS].index(scale) * 2 + DATASETS.index(dataset)
    text = PAGE.partition("## Every claim\n")[2].partition("\n## ")[0]
    verdicts = evaluate_file(FOLDER / f"{scale}.parquet", [dataset]).verdicts
    for verdict in verdicts:
        (line,) = re.findall(rf"^\| {re.escape(verdict.claim)} \|(.*)\|$", text, re.MULTILINE)
        told = line.split("|")[column].strip()
        assert told.startswith(f"{verdict.outcome} (")
    n_told = len(re.findall(r"^\| .*\.( \[?\(?.*)? \|", text, re.MULTILINE))
    assert n_told >= len(verdicts)


def test_results_are_those_of_whole_runs_and_small():
    rows = parquet.read_table(FOLDER / "paper.parquet")
    sizes = [path.stat().st_size for path in FOLDER.iterdir()]
    assert sum(sizes) < 5_000_000
    assert set(np.unique(rows["clicks"].to_numpy())) == {1_000_000}
    assert rows["drawn"].to_numpy().max() == 5_000_000
    assert set(rows["rates_tried"].to_pylist()) <= {8, 22}
    assert not any(rows["rate_at_edge"].to_pylist())  # of eight, too, the best is well within


@pytest.mark.parametrize("scale", SECTIONS)
def test_each_row_is_of_what_its_command_asks_for(scale):
    """Keys are hashes of the whole configuration: that of the package, with the rates it names."""
    rows = parquet.read_table(FOLDER / f"{scale}.parquet").select(
        ["study", "dataset", "method", "value", "key", "rates_tried", "rates_from", "rates_to"]
    )
    asked = {}
    for row in rows.group_by(rows.column_names).aggregate([]).to_pylist():
        if row["study"] in grids.names():
            tried = tuple(r for r in PAPER_RATES if row["rates_from"] <= r <= row["rates_to"])
            assert len(tried) == row["rates_tried"]
            asked.setdefault((row["study"], tried), set()).add(row["key"].partition("-")[0])
    for (study, tried), contents in asked.items():
        planned = plan([study], scale=scale, settings={"learning_rates": list(tried)})
        jobs = planned.work().jobs.values()
        assert contents <= {job.content for job in jobs if job.stage == "run"}


# Reasons why regret grows with γ, tested at medium scale on yahoo-like: the rows of each.
REASONS = {
    "nothing": "position-bias",
    "the released code's law": "ends",
    "five times the clicks": "ends, five million clicks",
    "both": "ends, both",
}


@pytest.mark.parametrize("method", ["IPS-SGD", "CounterSample"])
@pytest.mark.parametrize("reason", REASONS)
def test_how_much_regret_grows_for_which_reason(reason, method):
    rows = parquet.read_table(FOLDER / "medium.parquet")
    wanted = {"study": REASONS[reason], "dataset": "yahoo-like", "method": method}
    for column, value in wanted.items():
        rows = rows.filter(compute.equal(rows[column], value))
    by_gamma = {
        gamma: rows.filter(compute.equal(rows["gamma"], gamma))["regret"].to_numpy()
        for gamma in (0.5, 1.5)
    }
    small, large = (100 * each.reshape(5, 100).mean(axis=1) for each in by_gamma.values())
    told = row_of(f"{reason}: {method}", PAGE)
    for cell, sample in zip(told, (small, large, large - small), strict=True):
        assert cell == pytest.approx([sample.mean(), interval(sample)], abs=0.0051)


def test_rows_with_rates_a_click_alike_are_of_what_the_page_asks_for():
    rows = parquet.read_table(FOLDER / "paper.parquet", columns=["study", "batch_size", "key"])
    rows = rows.filter(compute.equal(rows["study"], FINER["paper"][0]))
    commands = re.findall(r'^countersample .*"(.*)".* # batches of (\d+)$', PAGE, re.MULTILINE)
    assert {int(size) for _, size in commands} == {10, 50} == {*rows["batch_size"].to_pylist()}
    for setting, size in commands:
        own = rows.filter(compute.equal(rows["batch_size"], int(size)))
        planned = plan(["batch-sizes"], scale="paper", settings=settings_of([setting]))
        contents = {job.content for job in planned.work().jobs.values()}
        assert {key.partition("-")[0] for key in own["key"].to_pylist()} <= contents


# Regret at batches of 10 and 50 with finer rates: where, and how the page begins to tell it.
FINER = {
    "medium": ("batch-sizes, finer rates", "the lead is"),
    "paper": ("batch-sizes, rates a click alike", "it is"),
}


@pytest.mark.parametrize("scale", FINER)
def test_with_finer_rates_the_lead_does_not_hang_on_the_batch(scale):
    study, beginning = FINER[scale]
    rows = parquet.read_table(FOLDER / f"{scale}.parquet")
    rows = rows.filter(compute.equal(rows["study"], study))
    leads = {}
    for dataset in DATASETS:
        for size in (10, 50):
            means = []
            for method in ("IPS-SGD", "CounterSample"):
                own = rows
                wanted = {"dataset": dataset, "batch_size": size, "method": method}
                for column, value in wanted.items():
                    own = own.filter(compute.equal(own[column], value))
                means.append(100 * own["regret"].to_numpy().mean())
            leads[dataset, size] = f"{means[0] - means[1]:.2f}"
    text = " ".join(section(scale).split())
    small, large = (leads["yahoo-like", size] for size in (10, 50))
    assert f"{beginning} {small} at batches of 10 and {large} at 50 on yahoo-like" in text
    small, large = (leads["istella-like", size] for size in (10, 50))
    assert f"{small} and {large} on istella-like" in text
