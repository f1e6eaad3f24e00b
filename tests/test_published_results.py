"""The numbers that the documentation publishes of studies are those of their results."""

import itertools
import re
from functools import cache

import numpy as np
import pytest
from conftest import ROOT
from pyarrow import compute, parquet

from countersample.study import grids
from countersample.study.experiment import load_grid, plan
from countersample.study.reproduction import evaluate_file, parse_settings
from countersample.study.results import read_results, results_of
from countersample.study.settings import PAPER_RATES
from countersample.study.statistics import interval, lead

FOLDER = ROOT / "docs" / "results"
PAGE = "\n".join(
    (ROOT / "docs" / name).read_text("utf-8") for name in ("results.md", "paper-tables.md")
)
SCALES = ("paper", "medium")
AT_PAPER_SCALE = PAGE.partition("## At the paper's scale\n")[2].partition("\n## ")[0]
# How the tables of a study begin.
TABLES = {
    "position-bias": "| γ, with SGD |",
    "optimizers": "| γ = 1, batch size 1 |",
    "batch-sizes": "| γ = 1, SGD, batches of |",
    "large-batches": "| γ = 1, SGD, large batches |",
}
DATASETS = ("yahoo-like", "istella-like")
METHODS = ("Biased-SGD", "IPS-SGD", "CounterSample")


def row_of(label, text):
    """The numbers of the first row of that label with their half widths; None for a dash."""
    (line,) = re.findall(rf"^\| {re.escape(label)} \|(.*)\|$", text, re.MULTILINE)[:1]
    cells = [re.findall(r"−?[\d.]+", cell) for cell in line.split("|")]
    return [[float(number.replace("−", "-")) for number in cell[:2]] or None for cell in cells]


def select(rows, **values):
    """Return the rows that have these values in their columns."""
    for column, value in values.items():
        rows = rows.filter(compute.equal(rows[column], value))
    return rows


@cache
def result_of(scale, study, dataset):
    rows = select(read_results(FOLDER / f"{scale}.parquet"), study=study, dataset=dataset)
    return results_of(rows, load_grid(grids.path_of(study)))


@cache
def tables_of(scale):
    return {table.name: table for table in evaluate_file(FOLDER / f"{scale}.parquet").tables}


def entries(scale, name, dataset, method):
    (group,) = (group for group in tables_of(scale)[name].groups if group.title == dataset)
    (row,) = (row for row in group.rows if row.label == method)
    return row.entries


def check_entries(text, label, computed, at_most):
    """Compare a row of a page with numbers, half widths and marks of a table."""
    published = row_of(label, text)
    np.testing.assert_allclose(published, [[e.value, e.half_width] for e in computed], atol=at_most)
    (line,) = re.findall(rf"^\| {re.escape(label)} \|(.*)\|$", text, re.MULTILINE)[:1]
    assert ["".join(re.findall("[▽△]", cell)) for cell in line.split("|")] == [
        entry.mark for entry in computed
    ]


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("study", TABLES)
def test_regret_and_marks(study, dataset):
    """They are those of the command that the page names, which corrects for both sets' tests."""
    scale, methods = ("medium", METHODS[1:]) if study == "large-batches" else ("paper", METHODS)
    text = PAGE[PAGE.index(TABLES[study]) :]
    for method in methods:
        computed = entries(scale, f"{study}-regret", dataset, method)
        check_entries(text, f"{dataset}: {method}", computed, 0.0051)


@pytest.mark.parametrize("dataset", DATASETS)
def test_where_runs_end(dataset):
    for method in METHODS[1:]:
        computed = entries("paper", "position-bias-ndcg", dataset, method)
        check_entries(AT_PAPER_SCALE, f"{dataset}: {method} ends at", computed, 5.1e-5)


def test_whether_it_is_adams_fault():
    """Every number and mark of its table, row by row."""
    text = PAGE.partition("\n## Adam and AMSGrad")[2]
    lines = text.partition("\n## ")[0].splitlines()
    rows = [line for line in lines if re.match(r"\| .*(SGD|CounterSample) \| \d", line)]
    expected = [("amsgrad-regret", dataset, method) for dataset in DATASETS for method in METHODS]
    expected += [
        ("amsgrad-ndcg", dataset, method) for dataset in DATASETS for method in METHODS[1:]
    ]
    for row, (name, dataset, method) in zip(rows, expected, strict=True):
        cells, digits = row.split("|")[2:-1], 4 if name.endswith("ndcg") else 2
        for cell, entry in zip(cells, entries("medium", name, dataset, method), strict=True):
            expected = [round(entry.value, digits), round(entry.half_width, digits)]
            assert [float(number) for number in re.findall(r"[\d.]+", cell)] == expected
            assert "".join(re.findall("[▽△]", cell)) == entry.mark


@pytest.mark.parametrize("drawn", [50_000, 500_000, 5_000_000])
@pytest.mark.parametrize("dataset", DATASETS)
def test_the_lead_in_the_course_of_training(dataset, drawn):
    result = result_of("paper", "position-bias", dataset)
    cells = filter(None, row_of(f"{dataset}: {drawn:,}", AT_PAPER_SCALE))
    for cell, value in zip(cells, result.grid.values, strict=True):
        sample = lead(result, dataset, value)[:, drawn // 10_000 - 1]
        assert cell == pytest.approx([sample.mean(), interval(sample)], abs=0.0051)


def test_nothing_set_is_as_the_table_has_it():
    lines = (FOLDER / "position-bias-nothing-set.csv").read_text("utf-8").splitlines()[1:]
    text = AT_PAPER_SCALE.partition("### Without any tuning")[2]
    computed = {}
    for line in lines:
        dataset, label, gamma, mean, half, *_ = line.split(",")
        computed.setdefault((dataset, label), {})[float(gamma)] = (float(mean), float(half))
    for (dataset, label), by_gamma in computed.items():
        published = filter(None, row_of(f"{dataset}: {label}", text))
        for cell, gamma in zip(published, sorted(by_gamma), strict=True):
            assert cell == pytest.approx(by_gamma[gamma], abs=5.1e-5)
    assert len(computed) == 8


@pytest.mark.parametrize(("label", "column"), [("M̄", "mean_weight"), ("M", "max_weight")])
@pytest.mark.parametrize("dataset", DATASETS)
def test_weights_are_those_of_the_logs(dataset, label, column):
    rows = parquet.read_table(FOLDER / "paper.parquet", columns=["dataset", "gamma", column])
    rows = select(rows, dataset=dataset)
    computed = rows.group_by("gamma").aggregate([(column, "mean")]).sort_by("gamma")
    row = rf"^\| {label}: {dataset}, \$\(1/r\)\^\\gamma\$ \|(.*)\|$"
    (line,) = re.findall(row, PAGE, re.MULTILINE)
    published = [float(cell.replace(",", "")) for cell in line.split("|")]
    np.testing.assert_allclose(computed[f"{column}_mean"].to_numpy(), published, atol=0.006)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("dataset", DATASETS)
def test_every_verdict_is_that_of_the_rows(scale, dataset):
    """The table of claims has a column a scale and dataset."""
    column = SCALES.index(scale) * 2 + DATASETS.index(dataset)
    text = PAGE.partition("## Every claim\n")[2].partition("\n## ")[0]
    verdicts = evaluate_file(FOLDER / f"{scale}.parquet", [dataset]).verdicts
    for verdict in verdicts:
        (line,) = re.findall(rf"^\| {re.escape(verdict.claim)} \|(.*)\|$", text, re.MULTILINE)
        published = line.split("|")[column].strip()
        assert published.startswith(f"{verdict.outcome} (")
    n_published = len(re.findall(r"^\| .*\.( \[?\(?.*)? \|", text, re.MULTILINE))
    assert n_published >= len(verdicts)


@pytest.mark.parametrize("scale", SCALES)
def test_each_row_is_of_what_its_command_asks_for(scale):
    """Keys are hashes of the whole configuration: that of the package, with the rates it names."""
    rows = parquet.read_table(FOLDER / f"{scale}.parquet").select(
        ["study", "dataset", "method", "value", "key", "rates_tried", "rates_from", "rates_to"]
    )
    contents_by_rates = {}
    for row in rows.group_by(rows.column_names).aggregate([]).to_pylist():
        if row["study"] in grids.names():
            rates = tuple(r for r in PAPER_RATES if row["rates_from"] <= r <= row["rates_to"])
            assert len(rates) == row["rates_tried"]
            contents_by_rates.setdefault((row["study"], rates), set()).add(
                row["key"].partition("-")[0]
            )
    for (study, rates), contents in contents_by_rates.items():
        experiment = plan([study], scale=scale, settings={"learning_rates": list(rates)})
        jobs = experiment.work().jobs.values()
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
    rows = select(
        parquet.read_table(FOLDER / "medium.parquet"),
        study=REASONS[reason], dataset="yahoo-like", method=method,
    )  # fmt: skip
    by_gamma = {gamma: select(rows, gamma=gamma)["regret"].to_numpy() for gamma in (0.5, 1.5)}
    small, large = (100 * each.reshape(5, 100).mean(axis=1) for each in by_gamma.values())
    published = row_of(f"{reason}: {method}", PAGE)
    for cell, sample in zip(published, (small, large, large - small), strict=True):
        assert cell == pytest.approx([sample.mean(), interval(sample)], abs=0.0051)


# Regret at batches of 10 and 50 with finer rates: the study, and how the sentence begins.
FINER = {
    "medium": ("batch-sizes, finer rates", "the lead is"),
    "paper": ("batch-sizes, rates a click alike", "it is"),
}


def test_rows_with_rates_a_click_alike_are_of_what_the_page_asks_for():
    rows = parquet.read_table(FOLDER / "paper.parquet", columns=["study", "batch_size", "key"])
    rows = rows.filter(compute.equal(rows["study"], FINER["paper"][0]))
    commands = re.findall(r'^countersample .*"(.*)".* # batches of (\d+)$', PAGE, re.MULTILINE)
    assert {int(size) for _, size in commands} == {10, 50} == {*rows["batch_size"].to_pylist()}
    for setting, size in commands:
        rows_of_size = rows.filter(compute.equal(rows["batch_size"], int(size)))
        experiment = plan(["batch-sizes"], scale="paper", settings=parse_settings([setting]))
        contents = {job.content for job in experiment.work().jobs.values()}
        assert {key.partition("-")[0] for key in rows_of_size["key"].to_pylist()} <= contents


def test_results_are_those_of_whole_runs_and_small():
    rows = parquet.read_table(FOLDER / "paper.parquet")
    sizes = [path.stat().st_size for path in FOLDER.iterdir()]
    assert sum(sizes) < 5_000_000
    assert set(np.unique(rows["clicks"].to_numpy())) == {1_000_000}
    assert rows["drawn"].to_numpy().max() == 5_000_000
    assert set(rows["rates_tried"].to_pylist()) <= {8, 22}
    assert not any(rows["rate_at_edge"].to_pylist())  # of eight, too, the best is well within


@pytest.mark.parametrize("scale", FINER)
def test_with_finer_rates_the_lead_does_not_hang_on_the_batch(scale):
    study, beginning = FINER[scale]
    rows = select(parquet.read_table(FOLDER / f"{scale}.parquet"), study=study)
    leads = {}
    for dataset, size in itertools.product(DATASETS, (10, 50)):
        ips, sampled = (
            100
            * select(rows, dataset=dataset, batch_size=size, method=m)["regret"].to_numpy().mean()
            for m in METHODS[1:]
        )
        leads[dataset, size] = f"{ips - sampled:.2f}"
    text = " ".join(PAGE.split())
    small, large = (leads["yahoo-like", size] for size in (10, 50))
    assert f"{beginning} {small} at batches of 10 and {large} at 50 on yahoo-like" in text
    small, large = (leads["istella-like", size] for size in (10, 50))
    assert f"{small} and {large} on istella-like" in text
