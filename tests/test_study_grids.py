"""Grids as data: those of the package, those of a user, and the errors of bad ones."""

import re
import textwrap

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from countersample.errors import ParameterError
from countersample.study import grids
from countersample.study.experiment import load_grid
from countersample.study.settings import PAPER, check_setting

GOOD = """
title = "Mine"
about = "A study."
kind = "regret"
datasets = ["tiny"]
methods = ["IPS-SGD", { name = "mine", plan = "countersample", unit = "pair" }]

[vary]
gamma = [0.5, 1]

[settings]
clicks = 1000

[[claims]]
text = "Mine is better."
test = "lower"
method = "mine"
than = "IPS-SGD"
source = "beyond"

[scale.smoke.vary]
gamma = [1]
"""


ROW = r"\| .+? \| `([\w-]+)` \| (.+) \|"  # of the table of claims in docs/paper-tables.md


def write(folder, text):
    path = folder / "my.toml"
    path.write_text(textwrap.dedent(text))
    return path


@given(clicks=st.integers(10, 10**7), batch_size=st.sampled_from([1, 10, 50]))
def test_runs_are_evaluated_20_to_500_times(clicks, batch_size):
    config = PAPER.with_settings({"clicks": clicks, "batch_size": batch_size})
    assert min(20, config.steps()) <= len(config.points()) <= 501
    assert config.points()[-1] == config.steps()


@pytest.mark.parametrize("name", grids.names())
def test_the_grids_of_the_package_are_sound_at_every_scale(name):
    for scale in grids.SCALES:
        grid = load_grid(grids.path_of(name), scale)
        assert grid.title
        assert grid.about
        for config in grid.configs(grids.config_of(scale).with_settings(grid.settings)):
            config.check()


def test_a_grid_of_a_user(tmp_path):
    path = write(tmp_path, GOOD)
    grid = load_grid(path)
    assert grid.name == "my"
    assert [method.name for method in grid.methods] == ["IPS-SGD", "mine"]
    assert (grid.axis, grid.values) == ("gamma", (0.5, 1.0))
    assert grid.reference == "IPS-SGD"
    assert dict(grid.settings) == {"clicks": 1000}
    assert load_grid(path, "smoke").values == (1.0,)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kind =", "knd =", "has an unknown key knd"),
        ('"regret"', '"regrets"', "kind is 'regrets', expected one of regret"),
        ('title = "Mine"', "title = 3", "is 3, expected text"),
        ('title = "Mine"', "", "has no title"),
        ('"IPS-SGD", {', '"IPS", {', "no method 'IPS' (did you mean IPS-SGD?)"),
        ('"pair"', '"page"', "has plan 'countersample' and unit 'page'"),
        ('"pair" }', '"pair", exposure = "all" }', "exposure is 'all', expected one of policy"),
        ('"pair" }', '"pair", clip = 1 }', "clip"),
        ("gamma = [0.5, 1]", "gama = [0.5, 1]", "no setting 'gama' (did you mean gamma?)"),
        ("gamma = [0.5, 1]", "gamma = [0.5, -1]", "gamma is -1, expected a number of"),
        ("gamma = [0.5, 1]", "gamma = [1, 1.0]", "expected a list of different values"),
        ("gamma = [0.5, 1]", "gamma = 1", "expected a list"),
        ("gamma = [0.5, 1]", "gamma = [1]\ntop = [5]", "vary has gamma, top, expected one"),
        ("gamma = [0.5, 1]", "learning_rates = [1]", "tuned, not varied"),
        ("gamma = [0.5, 1]", "beta1 = [0.5, 0.9]", "beta1"),
        ("gamma = [0.5, 1]", 'metric = ["arp"]', "metric is 'arp'"),
        ("gamma = [0.5, 1]", 'metric = ["ndgc@5"]', "ndgc@5"),
        ("gamma = [0.5, 1]", 'policy = ["best"]', "policy is 'best', expected one of ranked"),
        ("clicks = 1000", "tuning_logs = 6", "tuning_logs is 6, expected at most 5"),
        ('plan = "countersample"', 'plan = "proposal"', "which needs probabilities"),
        ("clicks = 1000", "clicks = true", "clicks is True, expected a whole number"),
        ("clicks = 1000", "bits = 9", "bits is 9, expected one of 8, 16, 32"),
        ("clicks = 1000", "learning_rates = []", "expected a list of different numbers"),
        ('"beyond"', '"beyond"\nmargin = -1', "margin is -1"),
        ('"beyond"', '"beyond"\non = "tiny"', "on is 'tiny', expected one of istella-s, yah"),
        ('"lower"', '"lowest"', "lowest"),
        ("scale.smoke", "scale.tiny", "tiny"),
        ("[scale.smoke.vary]\ngamma", "[scale.smoke.vary]\ntop", "top"),
        ("[vary]", "nothing_set = 1\n[vary]", "nothing_set"),
        ('datasets = ["tiny"]', "datasets = [1]", "datasets[0]"),
        ("title", "= 1\ntitle", "is not TOML"),
    ],
)
def test_a_bad_grid_is_rejected_with_its_file(tmp_path, old, new, message):
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(ParameterError) as error:
        load_grid(path)
    assert str(path) in str(error.value)
    assert message in str(error.value)


def test_unknown_names_have_hints():
    with pytest.raises(ParameterError, match=r"no study 'optimizer' \(did you mean optimizers\?\)"):
        grids.path_of("optimizer")
    with pytest.raises(ParameterError, match=r"no scale 'smal' \(did you mean small\?\)"):
        grids.config_of("smal")
    with pytest.raises(ParameterError, match="no setting 'x'"):
        check_setting("x", 1)


@pytest.mark.parametrize(
    ("name", "value"), [("epochs", 1e300), ("clicks", 10**30), ("seeds", 2**40)]
)
def test_a_study_that_would_never_end(name, value):
    with pytest.raises(ParameterError, match=f"^{name} is .*, expected a (whole )?number"):
        check_setting(name, value)


# -- the paper's numbers and claims ---------------------------------------------------------------


@pytest.fixture(scope="module")
def published():
    return grids.load_published()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (("optimizers", "yahoo-set1", "CounterSample", "adam"), (0.35, "▽")),
        (("optimizers", "istella-s", "Biased-SGD", "adam"), (2.04, "▽")),  # the one of its kind
        (("position-bias", "istella-s", "Biased-SGD", 1.5), (2.53, "△")),
        (("position-bias", "yahoo-set1", "CounterSample", 0.5), (0.30, "")),
        (("batch-sizes", "yahoo-set1", "IPS-SGD", 50), (0.44, "")),
        (("propensities", "yahoo-set1", "M̄", 1.0), (7.92, "")),
        (("datasets", "istella-s", "", "queries"), (33118, "")),
        (("batch-sizes", "yahoo-like", "IPS-SGD", 10), (0.41, "")),  # a shape stands for a set
        (("position-bias", "yahoo-set1", "IPS-SGD", 1), (0.41, "")),  # 1 is 1.0
        (("clipping", "yahoo-set1", "IPS-SGD", 10), None),
        (("batch-sizes", "mq2008", "IPS-SGD", 10), None),
        (("batch-sizes", "yahoo-set1", "IPS-SGD", 11), None),
    ],
)
def test_numbers_of_the_paper(published, name, expected):
    assert published.number(*name) == expected


@pytest.fixture(scope="module")
def list_of_claims():
    """Study and claim of each row of the table."""
    text = (ROOT / "docs" / "paper-tables.md").read_text("utf-8")
    section = text.split("## Every claim of the paper")[1].split("\n## ")[0]
    return [found.groups() for line in section.splitlines() if (found := re.fullmatch(ROW, line))]


def claims_of(study):
    grid = load_grid(grids.path_of(study))
    return {claim.text: claim.source for claim in grid.claims}


def test_every_row_is_a_claim_of_its_study(list_of_claims):
    assert len(list_of_claims) > 25
    for study, claim in list_of_claims:
        claims = claims_of(study)
        assert not claims or claim in claims, f"{study}: {claim}"


def test_every_claim_of_the_paper_has_its_row(list_of_claims):
    for study in grids.names():
        for claim, source in claims_of(study).items():
            assert source == "beyond" or (study, claim) in list_of_claims, f"{study}: {claim}"
