"""A made-up report: all that the page can show, without any training.

python tests/made_report.py report.html     writes it, to be looked at
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from study_results import make_cell, make_result

from countersample.clicks import ClickLog, diagnose
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

DATASETS = ("yahoo-like", "mq2008")
REGRETS = {"Biased-SGD": 2.6, "IPS-SGD": 0.5, "CounterSample": 0.3}
_PICTURE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 120" width="400">
<polyline points="20,100 150,60 380,40" fill="none" stroke="#0072B2" stroke-width="2"/></svg>"""
_ABOUT = (
    "Plain stochastic gradient descent, Adam and Adagrad, each at the learning rate that is best "
    "on validation data.\n\nEvery method sees the same clicks."
)


def made_result(rng, values, **options):
    """Five runs of each method; two of IPS-SGD diverged at the last value."""
    cells = {
        (dataset, method, value): make_cell(
            regret + 0.01 * rng.normal(size=5),
            n_diverged=2 * ((method, value) == ("IPS-SGD", values[-1])),
        )
        for dataset in DATASETS
        for method, regret in REGRETS.items()
        for value in values
    }
    return make_result(cells, **options)


def made_log(rng, gamma):
    rank = rng.integers(1, 40, 20_000)
    clicked = rng.random(20_000) < rank**-gamma
    query = rng.integers(0, 900, 20_000)[clicked]
    return ClickLog(query=query, item=rank[clicked], propensity=rank[clicked] ** -gamma)


def _with_published(table):
    """The paper's number beside ours, in the first group."""
    first, *others = table.groups
    rows = tuple(replace(row, entries=tuple(map(_published, row.entries))) for row in first.rows)
    return replace(table, groups=(replace(first, rows=rows), *others))


def _published(entry):
    return replace(entry, published=1.1 * entry.value, published_mark=entry.mark)


def _verdicts():
    claims = (
        ("optimizers", "CounterSample has less regret than IPS-SGD with every optimizer.", "paper"),
        ("optimizers", "With Adam, CounterSample ends at a higher nDCG@10 than IPS-SGD.", "paper"),
        ("position-bias", "Its lead over IPS-SGD grows with γ.", "paper"),
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
    """A report with every part; its pictures are written into `folder`."""
    picture = folder / "weights.svg"
    picture.write_text(_PICTURE)
    optimizers = made_result(rng, ("sgd", "adam", "adagrad"))
    bias = made_result(
        rng, (0.5, 0.75, 1.0, 1.25, 1.5), name="position-bias", axis_title="Position bias (γ)"
    )
    verdicts = _verdicts()
    return Report(
        title="Accelerated convergence, measured again",
        summary=summarize(verdicts),
        verdicts=verdicts,
        sections=(
            Section(
                "optimizers", "Effect of the optimizer", _ABOUT, paper="Table 3, Figure 2",
                tables=(_with_published(regret_table(optimizers)), rates_table(optimizers)),
                figures=(Figure(picture, "Curves of optimizers", "Learning curves."),),
                files=(
                    Link("tables/optimizers-regret.csv", "csv"),
                    Link("tables/optimizers-regret.tex", "tex"),
                    Link("figures/optimizers & more.pdf", "figure as PDF"),
                ),
            ),
            Section(
                "position-bias", "Severity of position bias", "Rank r is examined with (1/r)^γ.",
                paper="Table 5, Figure 4", tables=(regret_table(bias),),
                figures=(Figure(picture, "Curves by γ", "Learning curves by γ."),),
            ),
            Section(
                "propensities", "Weights <M̄ & M> by γ", "The weights of both laws.",
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
        ),
        versions={"countersample": "0.4.0", "Python": "3.11.2", "numpy": "2.1.0"},
        commands=("countersample reproduce --scale small --data yahoo-like --data mq2008",),
        files=(Link("results.parquet", "every evaluation point as Parquet"),),
    )  # fmt: skip


if __name__ == "__main__":
    target = Path(sys.argv[1])
    write_report(made_report(np.random.default_rng(0), target.parent), target)
