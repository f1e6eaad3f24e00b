"""A made-up report: all that the page can show, without any training.

python tests/made_report.py report.html     writes it, to be looked at
"""

import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from study_results import make_cell, make_result

from countersample.study.claims import Verdict, summarize
from countersample.study.grids import Grid
from countersample.study.report import (
    Figure,
    Report,
    Section,
    SettingLine,
    write_report,
)
from countersample.study.tables import rates_table, regret_table

DATASETS = ("yahoo-like", "mq2008")
REGRETS = {"Biased-SGD": 2.6, "IPS-SGD": 0.5, "CounterSample": 0.3}
CLAIMS = (
    ("optimizers", "CounterSample has less regret than IPS-SGD with every optimizer.", "paper"),
    ("position-bias", "Its lead over IPS-SGD grows with γ.", "paper"),
    ("units", "By query, CounterSample has lower regret still.", "beyond"),
)
OUTCOMES = ("confirmed", "open", "in part", "not confirmed")
PICTURE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 120" width="400">
<polyline points="20,100 150,60 380,40" fill="none" stroke="#0072B2" stroke-width="2"/></svg>"""


def make_study(rng, values, **options):
    """Five runs of each method; two of IPS-SGD diverged at the last value."""
    cells = {
        (dataset, method, value): make_cell(
            regret + 0.01 * rng.normal(size=5),
            n_diverged=2 * ((method, value) == ("IPS-SGD", values[-1])),
        )
        for dataset, (method, regret), value in product(DATASETS, REGRETS.items(), values)
    }
    return make_result(cells, **options)


def add_published(table):
    """Return the table with a number of the paper beside each of ours."""

    def add(entry):
        return replace(entry, published=1.1 * entry.value, published_mark=entry.mark)

    def add_row(row):
        return replace(row, entries=tuple(map(add, row.entries)))

    groups = (replace(group, rows=tuple(map(add_row, group.rows))) for group in table.groups)
    return replace(table, groups=tuple(groups))


def made_report(rng, folder):
    """A report with every part; its pictures are written into `folder`."""
    picture = folder / "weights.svg"
    picture.write_text(PICTURE)
    figure = Figure(picture, "A line that falls", "Learning curves.")
    optimizers = make_study(rng, ("sgd", "adam", "adagrad"))
    bias = make_study(
        rng, (0.5, 0.75, 1.0, 1.25, 1.5), name="position-bias", axis_title="Position bias (γ)"
    )
    evidence = "Regret ×100 for CounterSample minus for IPS-SGD is −0.62 to −0.08 at 3 settings."
    verdicts = tuple(
        Verdict(study, dataset, claim, source, OUTCOMES[(i + j) % 4], evidence)
        for i, (study, claim, source) in enumerate(CLAIMS)
        for j, dataset in enumerate(DATASETS)
    )

    def section(name, title, about, paper="", **parts):
        grid = Grid(name, title, about, "regret", paper)
        of_study = tuple(verdict for verdict in verdicts if verdict.study == name)
        return Section(grid, verdicts=of_study, **parts)

    return Report(
        title="Accelerated convergence, measured again",
        summary=summarize(verdicts),
        sections=(
            section(
                "optimizers", "Effect of the optimizer",
                "Plain SGD, Adam and Adagrad.\n\nEvery method sees the same clicks.",
                "Table 3, Figure 2",
                tables=(add_published(regret_table(optimizers)), rates_table(optimizers)),
                figures=(figure,),
                files={
                    "tables/regret": ["tables/regret.csv", "tables/regret.tex"],
                    "figures/regret & more": ["figures/regret & more.pdf"],
                },
            ),
            section(
                "position-bias", "Severity of position bias", "Rank r is examined with (1/r)^γ.",
                "Table 5, Figure 4", tables=(regret_table(bias),), figures=(figure,),
            ),
            section(
                "units", "Weights <M̄ & M> by γ", "The weights of both curves.",
                figures=(figure,), notes=("The paper's table agrees with the shifted curve.",),
            ),
        ),
        settings=(
            SettingLine("clicks of a log", "100,000", "1,000,000"),
            SettingLine("epochs", "5", "5", "code"),
            SettingLine("seeds", "5", "5"),
        ),
        versions={"countersample": "0.4.0", "Python": "3.11.2", "numpy": "2.1.0"},
        commands=("countersample reproduce --scale small --data yahoo-like --data mq2008",),
        files={"results.parquet": "every evaluation point as Parquet"},
    )  # fmt: skip


if __name__ == "__main__":
    target = Path(sys.argv[1])
    write_report(made_report(np.random.default_rng(0), target.parent), target)
