"""Which code a result was made with: found from imports, the same on every machine."""

import ast

import pytest

from countersample.study.running import code, stages
from countersample.study.running.stages import bounds

JOBS = (
    stages.prepare_data, stages.references, stages.simulate, stages.tune, stages.ranker,
    stages.network.run, bounds.measure,
)  # fmt: skip


def runs(source):
    tree = ast.parse(source)
    for_types = [node for node in ast.walk(tree) if code._is_for_types(node)]
    return code._what_runs(source, tree, for_types)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
def test_a_job_does_not_hang_on_how_results_are_shown(job):
    others = ("cli.", "pages", "plotting", "study.report", "study.findings", "study.kinds",
              "study.design.grids", "study.design.config", "export", "fitting")  # fmt: skip
    for module in code.modules_of(job.__module__):
        assert not module.startswith(tuple(f"countersample.{name}" for name in others))


def test_a_run_hangs_on_what_it_computes_with():
    names = ("plans", "objectives.additive", "training.loop", "training.optimizers", "metrics",
             "_kernels.training", "_kernels.updates", "_kernels.metrics", "clicks.log")  # fmt: skip
    found = code.modules_of(stages.run.__module__)
    assert {f"countersample.{name}" for name in names} <= set(found)
    assert "countersample.clicks.simulation" not in found  # it needs a log, which hangs on it


def test_what_is_only_said_does_not_count():
    source = """
\"\"\"A module.\"\"\"
import numpy as np
if TYPE_CHECKING:
    from countersample.clicks import ClickLog

def twice(x):  # a comment
    \"\"\"2·x.\"\"\"

    text = "# no comment"
    return 2 * x
"""
    expected = """import numpy as np
def twice(x):
    text = "# no comment"
    return 2 * x"""
    assert runs(source) == expected
    assert runs(source.replace("a comment", "another").replace("2·x", "x + x")) == expected
    assert runs(source.replace("2 * x", "3 * x")) != expected


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("import countersample.plans", ["countersample.plans"]),
        ("from countersample.clicks import ClickLog", ["countersample.clicks.log"]),
        ("from countersample._kernels import ahead", ["countersample._kernels.ahead"]),
        ("from countersample.rankers import CounterSampleRanker", ["countersample.rankers.linear"]),
        ("from countersample import train", ["countersample.training.loop"]),
        ("from . import log, bias", ["countersample.clicks.log", "countersample.clicks.bias"]),
        ("from .log import ClickLog", ["countersample.clicks.log"]),
        ("import numpy", []),
    ],
)
def test_a_name_is_looked_up_where_it_is_made(statement, expected):
    (node,) = ast.parse(statement).body
    assert list(code._imported(node, "countersample.clicks")) == expected


def test_what_has_no_text_counts_by_version():
    assert code._source("math").text == code.__version__
