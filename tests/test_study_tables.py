"""Tables of a study: what they say, and that every format says the same."""

import csv
import io
import itertools
import re
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from requirements import skip_without
from rich.cells import cell_len
from scipy import stats
from study_results import METHODS, make_cell, make_result, make_runs

from countersample.errors import CounterSampleError
from countersample.study.grids import COMPARED, Grid, load_published
from countersample.study.results import Cell, StudyResult
from countersample.study.statistics import (
    independent,
    interval,
    lead,
)
from countersample.study.tables import (
    DEFAULT_RANKER,
    Entry,
    Group,
    Row,
    Table,
    final_table,
    nothing_set_table,
    rates_table,
    regret_table,
    render_table,
    show_number,
    significance_table,
    to_text,
    write_table,
)

FOLDS = ("Fold1", "Fold2", "Fold3")
DRAWN = np.array([10, 100, 200, 500, 1000])
REGRETS = {"Biased-SGD": 2.6, "IPS-SGD": 0.5, "CounterSample": 0.3}


@pytest.fixture
def published():
    return load_published()


@pytest.fixture
def result(rng):
    """Two datasets, one of them with folds; two of the runs of IPS-SGD with Adam diverged."""
    cells = {}
    for dataset, folds in (("yahoo-like", ("",)), ("mq2008", FOLDS)):
        for (method, regret), value in itertools.product(REGRETS.items(), ("sgd", "adam")):
            cells[dataset, method, value] = make_cell(
                regret + 0.01 * rng.normal(size=4 * len(folds)),
                folds=folds,
                n_diverged=2 if (method, value) == ("IPS-SGD", "adam") else 0,
                rates=tuple(10.0 ** -(5 + fold) for fold in range(len(folds))),
            )
    return make_result(cells)


def entries_of(table):
    """Entries by group, row and column."""
    return {
        (group.title, row.label, column): entry
        for group in table.groups
        for row in group.rows
        for column, entry in zip(table.columns, row.entries, strict=True)
    }


class TestRegretTable:
    def test_mean_and_interval(self, result):
        entry = entries_of(regret_table(result))["yahoo-like", "CounterSample", "Adam"]
        regrets = 100 * result.cells["yahoo-like", "CounterSample", "adam"].regrets
        assert entry.value == pytest.approx(regrets.mean())
        low, high = stats.t.interval(0.95, 3, regrets.mean(), stats.sem(regrets))
        assert entry.half_width == pytest.approx((high - low) / 2)

    def test_interval_is_over_folds_if_there_are_some(self, result):
        table = regret_table(result)
        entry = entries_of(table)["mq2008", "CounterSample", "Adam"]
        cell = result.cells["mq2008", "CounterSample", "adam"]
        means = independent(100 * cell.regrets, cell.runs)
        assert entry.half_width == pytest.approx(interval(means))
        notes = " ".join(table.notes)
        assert "over folds" in notes
        assert "the 8 tests" in notes  # two datasets, two methods, two settings

    def test_published_numbers_stand_beside(self, result, published):
        entries = entries_of(regret_table(result, published))
        entry = entries["yahoo-like", "CounterSample", "Adam"]
        assert (entry.published, entry.published_mark) == (0.35, "▽")
        assert entries["mq2008", "CounterSample", "Adam"].published is None


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (0.333, 2, "0.33"), (-0.333, 2, "−0.33"), (36251, 0, "36,251"), (-0.001, 2, "0.00"),
        (None, 2, "–"), (float("nan"), 2, "–"), (float("-inf"), 2, "−∞"), (3e-10, None, "3e-10"),
        (-3e-5, None, "−3e-5"), (0.3, None, "0.3"), (1e7, None, "1e+7"), (0, None, "0"),
    ],
)  # fmt: skip
def test_numbers_as_they_are_shown(value, digits, shown):
    assert show_number(value, digits) == shown


# -- formats -------------------------------------------------------------------------------------


def make_table(n_columns=2, **options):
    """Everything an entry can have, and text that every format must escape."""
    full = Entry(
        0.3312, 2, 0.0251, mark="▽", paper_mark="▽", published=0.35, published_mark="▽",
        note="2 of 5 runs diverged",
    )  # fmt: skip
    plain = Entry(-12.5, 2, paper_mark="△")
    nothing = Entry(None, published=1234.5)
    rows = (
        Row("M̄ | a_b", (full, *[plain] * (n_columns - 1))),
        Row("50 % & more", (*[plain] * (n_columns - 1), nothing)),
        Row(r"{x}^2 ~ \y #1 $", (Entry(float("inf")),) * n_columns),
    )
    return Table(
        name="made-up",
        caption="Regret ×100, <p> & *q*",
        axis="Bias γ",
        columns=tuple(f"{column / 2:g}" for column in range(n_columns)),
        groups=(Group("set_1", rows), Group("", rows)),
        notes=("▽: lower | p < 0.05",),
        **options,
    )


@given(n_columns=st.integers(1, 5))
def test_text_fits_the_terminal_and_has_every_number(n_columns):
    text = to_text(make_table(n_columns))
    assert max(map(cell_len, text.splitlines())) <= 100
    assert text.count("−12.50") == 4 * (n_columns - 1)
    assert text.count("∞") == 2 * n_columns
    assert "† set_1, M̄ | a_b, 0: 2 of 5 runs diverged." in text


def test_markdown_is_a_table_to_a_parser():
    html = MarkdownIt("commonmark").enable("table").render(render_table(make_table(), "table.md"))
    rows = [re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row) for row in html.split("<tr>")[1:]]
    assert rows[0] == ["Bias γ", "0", "0.5"]
    assert rows[1] == ["<strong>set_1</strong>", "", ""]
    assert rows[2] == ["M̄ | a_b", "0.33 ±0.03▽ t▽† (paper 0.35▽)", "−12.50 t△"]
    assert rows[3] == ["50 % &amp; more", "−12.50 t△", "– (paper 1,234.50)"]
    assert rows[4] == [r"{x}^2 ~ \y #1 $", "∞", "∞"]
    assert len(rows) == 8
    assert "<strong>Regret ×100, &lt;p&gt; &amp; *q*</strong>" in html
    assert "▽: lower | p &lt; 0.05" in html


def test_csv_is_tidy_and_not_rounded(tmp_path):
    _, path, _ = write_table(make_table(), tmp_path)
    rows = list(csv.DictReader(io.StringIO(path.read_bytes().decode())))
    assert len(rows) == 2 * 3 * 2
    assert rows[0] == {
        "dataset": "set_1", "row": "M̄ | a_b", "column": "0", "value": "0.3312",
        "half_width": "0.0251", "mark": "▽", "paper_mark": "▽", "published": "0.35",
        "published_mark": "▽", "note": "2 of 5 runs diverged",
    }  # fmt: skip
    assert rows[3]["value"] == ""
    assert float(rows[4]["value"]) == np.inf


class TestLatex:
    def test_layout_and_marks_of_the_paper(self):
        text = render_table(make_table(), "table.tex")
        assert r"Bias $\gamma$: & 0 & 0.5 \\" in text
        assert r"set\_1 & & \\" in text
        assert (
            r"\quad $\bar{M}$ $|$ a\_b & 0.33 $\pm$0.03\rlap{$^{\triangledown t \triangledown"
            r" \dagger}$} & $-$12.50\rlap{$^{t \triangle}$} \\"
        ) in text
        assert r"\quad \quad in the paper & 0.35\rlap{$^{\triangledown}$} &  \\" in text
        assert r"\{x\}\textasciicircum{}2 \textasciitilde{} \textbackslash{}y \#1 \$" in text

    @skip_without("latex")
    def test_it_compiles(self, tmp_path):
        (tmp_path / "all.tex").write_text(
            "\\documentclass{article}\\usepackage{amssymb,booktabs}\\begin{document}\n"
            + render_table(make_table(), "table.tex")
            + "\\end{document}\n"
        )
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)


@pytest.mark.parametrize("make", [regret_table, final_table, rates_table, significance_table])
def test_every_format_is_written_with_every_number_of_a_study(result, make, tmp_path):
    table = make(result)
    paths = write_table(table, tmp_path)
    assert [path.suffix for path in paths] == [".md", ".csv", ".tex"]
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    for path in paths:
        text = path.read_text(encoding="utf-8")
        for (title, _, _), entry in entries_of(table).items():
            shown = str(entry.value) if path.suffix == ".csv" else entry.number
            assert (shown.replace("−", "$-$") if path.suffix == ".tex" else shown) in text
            assert title in text
        assert path.suffix != ".tex" or text.isascii()
    with pytest.raises(CounterSampleError, match="cannot be written"):
        write_table(table, tmp_path / "none")


# -- the lead, and what users get ----------------------------------------------------------------


def leading(methods=METHODS, values=(0.5, 1.0)):
    """IPS-SGD stays at 0.6; CounterSample is 0.05, 0.04, … 0.01 ahead, by run a little more."""
    cells = {}
    for method in methods:
        ahead = np.array([5, 4, 3, 2, 1]) / 100 if method.name == "CounterSample" else 0.0
        by_run = np.array([[0.0], [0.01], [0.02]]) if method.name == "CounterSample" else 0.0
        for value in values:
            cells["a", method.name, value] = Cell(
                (1e-3,), DRAWN, 0.6 + ahead + by_run + np.zeros((3, 5)), np.full(3, 0.8),
                make_runs(), 0, np.ones(3),
            )  # fmt: skip
    grid = Grid(
        "mine", "Mine", "", "regret", methods=methods, reference="IPS-SGD", axis="gamma",
        axis_title="Position bias (γ)", values=values,
    )  # fmt: skip
    return StudyResult(grid, ("a",), cells, {"a": 0.8}, {"a": 0.5})


def test_the_lead_is_the_difference_of_regrets_up_to_there():
    """Means of 5; 5, 4; 5, 4, 3; … and 1 more from run to run."""
    result = leading()
    leads = lead(result, "a", 1.0)
    assert leads[0] == pytest.approx([5, 4.5, 4, 3.5, 3])
    assert leads[2] - leads[0] == pytest.approx([2] * 5)
    ips, sampled = (result.cells["a", method.name, 1.0].regrets for method in COMPARED)
    assert leads[:, -1] == pytest.approx(100 * (ips - sampled))


def rows_of(table):
    (group,) = table.groups
    return {row.label: row.entries for row in group.rows}


def test_differences_are_paired_by_run():
    cells = {
        ("tiny", "IPS-SGD", "sgd"): make_cell([0, 0, 0], [0.70, 0.72, 0.74]),
        ("tiny", "CounterSample", "sgd"): make_cell([0, 0, 0], [0.71, 0.73, 0.75]),
    }
    users = {("tiny", "sgd"): np.array([0.71, 0.74, 0.77])}
    rows = rows_of(nothing_set_table(replace(make_result(cells), nothing_set=users)))
    assert list(rows) == [DEFAULT_RANKER, "less IPS-SGD", "less CounterSample"]
    (default,), (ips,), (sampled,) = rows.values()
    assert default.value == pytest.approx((0.71 + 0.74 + 0.77) / 3)
    assert ips.value == pytest.approx((0.01 + 0.02 + 0.03) / 3)
    assert ips.half_width == pytest.approx(4.302653 * 0.01 / np.sqrt(3))  # t of 2 degrees
    assert sampled.value == pytest.approx((0.00 + 0.01 + 0.02) / 3)
