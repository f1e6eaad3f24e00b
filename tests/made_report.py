"""A made-up report: all that the page can show, without any training.

python tests/made_report.py report.html     writes it, to be looked at
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from countersample.clicks import ClickLog, diagnose
from countersample.study.design.grids import METHODS, Grid
from countersample.study.findings.claims import Verdict, summarize
from countersample.study.findings.tables import rates_table, regret_table
from countersample.study.report import (
    Figure,
    Link,
    LogDiagnosis,
    Report,
    Section,
    SettingLine,
    write_report,
)
from countersample.study.results import Cell, StudyResult

DATASETS = ("yahoo-like", "mq2008")
NAMES = ("Biased-SGD", "IPS-SGD", "CounterSample")
BEST = {"yahoo-like": 0.76, "mq2008": 0.51}
POLICY = {"yahoo-like": 0.68, "mq2008": 0.44}
_LEVELS = {
    "Biased-SGD": 0.35,
    "IPS-SGD": 0.9,
    "CounterSample": 0.97,
    "CounterSample by query": 1.06,
}
_SPEEDS = {"Biased-SGD": 9, "IPS-SGD": 2, "CounterSample": 6, "CounterSample by query": 20}
_PICTURE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 120" width="400">
<polyline points="20,100 150,60 380,40" fill="none" stroke="#0072B2" stroke-width="2"/></svg>"""


def made_result(rng, *, name, title, axis, axis_title, values, methods=NAMES, n_points=100):
    """Curves that rise towards a level of their own; IPS-SGD diverges at the last value of mq2008.

    The level of "CounterSample by query" is above w*, so its regret becomes negative.
    """
    grid = Grid(
        name=name,
        title=title,
        about="",
        kind="regret",
        paper="Table 3, Figure 2",
        datasets=DATASETS,
        methods=tuple(METHODS[method] for method in methods),
        reference="IPS-SGD",
        axis=axis,
        axis_title=axis_title,
        values=values,
    )
    cells = {}
    drawn = 10_000 * np.arange(1, n_points + 1)
    for dataset in DATASETS:
        for method in methods:
            for place, value in enumerate(values):
                low, high = POLICY[dataset], BEST[dataset]
                done = 1 - np.exp(-_SPEEDS[method] / (1 + 0.4 * place) * drawn / drawn[-1])
                ndcg = low + (high - low) * (_LEVELS[method] * done - 0.25 * (1 - done))
                runs = ndcg + rng.normal(0, 0.002, (5, 1)) + rng.normal(0, 0.001, (5, n_points))
                diverges = (dataset, method, value) == ("mq2008", "IPS-SGD", values[-1])
                if diverges:
                    runs[3:, n_points // 3 :] = 0
                cells[dataset, method, value] = Cell(
                    learning_rates=(1e-4,),
                    drawn=drawn,
                    ndcg=runs,
                    best=np.full(5, high),
                    runs=tuple(("", seed) for seed in range(5)),
                    n_diverged=2 if diverges else 0,
                    seconds=np.ones(5),
                )
    return StudyResult(grid, DATASETS, cells, BEST, POLICY)


def made_log(rng, gamma):
    rank = rng.integers(1, 40, 20_000)
    clicked = rng.random(20_000) < rank**-gamma
    query = rng.integers(0, 900, 20_000)[clicked]
    return ClickLog(query=query, item=rank[clicked], propensity=rank[clicked] ** -gamma)


def _with_published(table):
    """The paper's number beside ours, in the first group."""
    first = table.groups[0]
    rows = tuple(replace(row, entries=tuple(map(_published, row.entries))) for row in first.rows)
    return replace(table, groups=(replace(first, rows=rows), *table.groups[1:]))


def _published(entry):
    return replace(entry, published=1.1 * entry.value, published_mark=entry.mark)


def _verdicts():
    claims = (
        ("optimizers", "CounterSample has less regret than IPS-SGD with every optimizer.", "paper"),
        ("optimizers", "With Adam, CounterSample ends at a higher nDCG@10 than IPS-SGD.", "paper"),
        ("position-bias", "Its lead over IPS-SGD grows with γ.", "paper"),
        ("position-bias", "The regret of Biased-SGD grows with γ.", "paper"),
        ("units", "By query, CounterSample has lower regret still.", "beyond"),
    )  # fmt: skip
    outcomes = ("confirmed", "open", "in part", "confirmed", "not confirmed")
    evidence = "Regret ×100 is 0.08 to 0.62 lower at 3 of 3 settings, significantly at 3."
    return tuple(
        Verdict(study, dataset, claim, source, outcomes[(i + j) % 5], evidence)
        for i, (study, claim, source) in enumerate(claims)
        for j, dataset in enumerate(DATASETS)
    )


def made_report(rng, folder):
    """A report with every part; its one embedded picture is written into `folder`."""
    picture = folder / "weights.svg"
    picture.write_text(_PICTURE)
    optimizers = made_result(
        rng, name="optimizers", title="Effect of the optimizer", axis="optimizer",
        axis_title="Optimizer", values=("sgd", "adam", "adagrad"),
    )  # fmt: skip
    bias = made_result(
        rng, name="position-bias", title="Severity of position bias", axis="gamma",
        axis_title="Position bias (γ)", values=(0.5, 0.75, 1.0, 1.25, 1.5),
        methods=(*NAMES, "CounterSample by query"),
    )  # fmt: skip
    about = (
        "Plain stochastic gradient descent, Adam and Adagrad, each at the learning rate that is "
        "best on validation data. The paper finds CounterSample ahead of IPS-SGD with all three, "
        "most of all with Adam.\n\nEvery method sees the same clicks."
    )
    verdicts = _verdicts()
    return Report(
        title="Accelerated convergence, measured again",
        summary=summarize(verdicts),
        verdicts=verdicts,
        sections=(
            Section(
                "toy",
                "Two weights, fifty steps",
                "Fifty examples of a regression with two weights; a few count far more.",
                paper="Section 5.5, Figure 1",
                figures=(Figure(picture, "Paths", "Twenty runs of each method."),),
            ),
            Section(
                "optimizers",
                optimizers.grid.title,
                about,
                paper=optimizers.grid.paper,
                tables=(_with_published(regret_table(optimizers)), rates_table(optimizers)),
                figures=(Figure(picture, "Curves of optimizers", "Learning curves."),),
                files=(
                    Link("tables/optimizers-regret.csv", "csv"),
                    Link("tables/optimizers-regret.tex", "tex"),
                    Link("figures/optimizers & more.pdf", "figure as PDF"),
                ),
            ),
            Section(
                "position-bias",
                bias.grid.title,
                "Rank r is examined with probability (1/r)^γ.",
                paper="Table 5, Figure 4",
                tables=(regret_table(bias),),
            ),
            Section(
                "propensities",
                "Weights <M̄ & M> by γ",
                "The weights of both laws.",
                figures=(Figure(picture, "A line that falls", "M and M̄ against γ."),),
                notes=("The paper's table agrees with the shifted law.",),
            ),
        ),
        diagnoses=(
            LogDiagnosis("yahoo-like, γ = 1", diagnose(made_log(rng, 1.0))),
            LogDiagnosis("mq2008, γ = 0.5", diagnose(made_log(rng, 0.5))),
        ),
        settings=(
            SettingLine("clicks of a log", "100,000", "1,000,000"),
            SettingLine("epochs", "5", "5", "code"),
            SettingLine("seeds", "5", "5"),
            SettingLine("learning rates", "22: 1e-10, 3e-10, … 1, 3", "22: 1e-10, 3e-10, … 1, 3"),
            SettingLine("position bias", "(1/rank)^γ", "(1/rank)^γ"),
        ),
        versions={"countersample": "0.4.0", "Python": "3.11.2", "numpy": "2.1.0"},
        commands=("countersample reproduce --scale small --data yahoo-like --data mq2008",),
        files=(Link("results.parquet", "every evaluation point as Parquet"),),
    )  # fmt: skip


if __name__ == "__main__":
    target = Path(sys.argv[1])
    write_report(made_report(np.random.default_rng(0), target.parent), target)
