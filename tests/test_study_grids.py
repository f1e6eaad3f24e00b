"""Grids as data: those of the package, those of a user, and what is said of bad ones."""

import re
import textwrap
from dataclasses import asdict

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from countersample.errors import ParameterError
from countersample.study.design import grids
from countersample.study.design.config import PAPER, ExperimentConfig, check_setting
from countersample.study.experiment import plan
from countersample.study.kinds import grid_of, load_grid

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


ROW = r"\| .+? \| `([\w-]+)` \| (.+) \|"  # of the table of claims in docs/study.md


def write(folder, text):
    path = folder / "my.toml"
    path.write_text(textwrap.dedent(text))
    return path


class TestThePaper:
    def test_has_22_learning_rates_from_1e_10_to_3(self):
        rates = PAPER.learning_rates
        assert len(rates) == 22
        assert rates[:3] == (1e-10, 3e-10, 1e-9)
        assert rates[-3:] == (0.3, 1.0, 3.0)

    def test_draws_five_million_clicks_and_looks_500_times(self):
        assert PAPER.steps() == 5_000_000
        assert PAPER.points() == list(range(10_000, 5_000_001, 10_000))

    @given(clicks=st.integers(10, 10**7))
    def test_looks_20_to_500_times_however_many_clicks(self, clicks):
        config = PAPER.with_settings({"clicks": clicks})
        assert 20 <= len(config.points()) <= 501
        assert config.points()[-1] == config.steps()

    @pytest.mark.parametrize("batch_size", [10, 50])
    def test_looks_as_often_whatever_the_batch_size(self, batch_size):
        config = PAPER.with_settings({"batch_size": batch_size})
        assert config.steps() * batch_size == 5_000_000
        assert len(config.points()) == 500


@pytest.mark.parametrize("name", grids.names())
def test_the_grids_of_the_package_are_sound_at_every_scale(name):
    for scale in grids.SCALES:
        grid = load_grid(grids.path_of(name), scale)
        assert grid.title
        assert grid.about
        for config in grid.configs(grids.config_of(scale).with_settings(grid.settings)):
            config.check()


def test_all_studies_of_the_issue_are_there():
    assert set(grids.names()) == {
        "datasets", "propensities", "toy", "optimizers", "batch-sizes", "position-bias",
        "units", "clipping", "misspecified", "noise", "clicks", "bounds", "cutoff", "untuned",
        "large-batches", "amsgrad", "variance", "nonlinear",
    }  # fmt: skip


def test_paper_scale_changes_the_bits_of_features_alone():
    assert grids.config_of("paper") == ExperimentConfig(bits=16)


def test_medium_draws_a_million_clicks_a_run():
    config = grids.config_of("medium")
    assert (config.steps(), config.clicks, len(config.points())) == (1_000_000, 1_000_000, 100)


def test_a_scale_never_changes_the_data_that_was_asked_for(tmp_path):
    path = write(tmp_path, GOOD.replace('["tiny"]', '["yahoo-like"]'))
    for scale in grids.SCALES:
        assert plan([path], scale=scale).datasets == ["yahoo-like"]


def test_several_settings_are_crossed(tmp_path):
    text = GOOD.replace("[vary]", '[vary]\ntop = [5, 0]\nclick_model = ["position-based", "dbn"]')
    grid = load_grid(write(tmp_path, text))
    assert grid.outer == (("top", (5, 0)), ("click_model", ("position-based", "dbn")))
    assert (grid.axis, grid.values) == ("gamma", (0.5, 1.0))
    assert len(grid.blocks()) == 4
    seen = [(c.top, c.click_model, c.gamma) for c in grid.configs(PAPER)]
    assert len(set(seen)) == 8
    assert seen[0] == (5, "position-based", 0.5)
    assert grid.where("tiny", grid.blocks()[1]) == "tiny, Items shown: 5, Click model: dbn"
    assert grid_of(asdict(grid)) == grid
    assert load_grid(write(tmp_path, text), "smoke").varied["gamma"] == (1.0,)


def test_a_grid_of_a_user(tmp_path):
    path = write(tmp_path, GOOD)
    grid = load_grid(path)
    assert grid.name == "my"
    assert [method.name for method in grid.methods] == ["IPS-SGD", "mine"]
    assert (grid.axis, grid.values) == ("gamma", (0.5, 1.0))
    assert grid.reference == "IPS-SGD"
    assert dict(grid.settings) == {"clicks": 1000}
    assert load_grid(path, "smoke").values == (1.0,)


def test_a_method_may_have_other_weights(tmp_path):
    text = GOOD.replace('"pair" }', '"pair", exposure = "position-only" }')
    usual, mine = load_grid(write(tmp_path, text)).methods
    assert (usual.exposure, usual.look) == ("policy-aware", ("ips", "click"))
    assert (mine.exposure, mine.look) == ("position-only", ("position-only", "pair"))


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("kind =", "knd =", 4, "unknown key 'knd' (did you mean kind?)"),
        ('"regret"', '"regrets"', 4, "kind is 'regrets', expected one of regret"),
        ('title = "Mine"', "title = 3", 2, "title is 3, expected a text"),
        ('"IPS-SGD", {', '"IPS", {', 6, "no method 'IPS' (did you mean IPS-SGD?)"),
        ('"pair"', '"page"', 6, "has plan 'countersample' and unit 'page'"),
        ('"pair" }', '"pair", exposure = "all" }', 6, "exposure is 'all', expected one of policy"),
        ('"pair" }', '"pair", clip = 1 }', 6, "no method {"),
        ("gamma = [0.5, 1]", "gama = [0.5, 1]", 9, "no setting 'gama' (did you mean gamma?)"),
        (
            "gamma = [0.5, 1]",
            "gamma = [0.5, -1]",
            9,
            "gamma is -1, expected a number of",
        ),
        ("gamma = [0.5, 1]", "gamma = [1, 1.0]", 9, "the same value twice"),
        ("gamma = [0.5, 1]", "gamma = 1", 9, "expected a list of values"),
        ("gamma = [0.5, 1]", "learning_rates = [1]", 9, "tuned, not varied"),
        ("gamma = [0.5, 1]", "seeds = [1, 2]", 9, "seeds is how many runs there are"),
        ("gamma = [0.5, 1]", "beta1 = [0.5, 0.9]", 9, "sgd takes no setting 'beta1'"),
        ("gamma = [0.5, 1]", 'metric = ["arp"]', 9, "expected one of which more is better"),
        ("gamma = [0.5, 1]", 'metric = ["ndgc@5"]', 9, "metric 'ndgc@5' is not known"),
        ("gamma = [0.5, 1]", 'policy = ["best"]', 9, "policy is 'best', expected one of ranked"),
        ("clicks = 1000", "tuning_logs = 6", 12, "tuning_logs is 6, expected at most 5"),
        ('plan = "countersample"', 'plan = "proposal"', 6, "which needs probabilities"),
        ("clicks = 1000", "clicks = 1.5", 12, "clicks is 1.5, expected a whole number"),
        ("clicks = 1000", "clicks = true", 12, "clicks is True, expected a whole number"),
        ("clicks = 1000", 'optimizer = "lion"', 12, "optimizer is 'lion', expected one of sgd"),
        ("clicks = 1000", "learning_rates = []", 12, "expected a list of different numbers"),
        ('"beyond"', '"beyond"\nmargin = -1', 20, "margin is -1, expected a number above 0"),
        ('"beyond"', '"beyond"\nmargin = "big"', 20, "margin is 'big', expected a number"),
        ('"beyond"', '"beyond"\non = "tiny"', 20, "on is 'tiny', expected one of istella-s, yah"),
        ('"lower"', '"lowest"', 16, "lowest"),
        ('method = "mine"', 'method = "yours"', 17, "yours"),
        ('"beyond"', '"me"', 19, "source is 'me'"),
        ("scale.smoke", "scale.tiny", 21, "no scale 'tiny'"),
        ("[vary]", "nothing_set = 1\n[vary]", 8, "nothing_set is 1, expected true or false"),
        ('datasets = ["tiny"]', "datasets = [1]", 5, "expected a list of texts"),
    ],
)
def test_a_bad_grid_is_refused_with_file_and_line(tmp_path, old, new, line, message):
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(ParameterError) as error:
        load_grid(path)
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert message in str(error.value)


@pytest.mark.parametrize("missing", ['title = "Mine"\n', 'kind = "regret"\n'])
def test_a_missing_key_is_named(tmp_path, missing):
    with pytest.raises(ParameterError, match=f"{missing.split()[0]} is missing"):
        load_grid(write(tmp_path, GOOD.replace(missing, "")))


def test_what_is_not_toml_is_refused_with_its_line(tmp_path):
    with pytest.raises(ParameterError, match=r"my\.toml: is not TOML: .*line 3"):
        load_grid(write(tmp_path, 'a = "b"\n\n= 1\n'))


def test_a_grid_that_is_not_there(tmp_path):
    with pytest.raises(ParameterError, match=r"no\.toml: cannot be read"):
        load_grid(tmp_path / "no.toml")


def test_unknown_names_have_hints():
    with pytest.raises(ParameterError, match=r"no study 'optimizer' \(did you mean optimizers\?\)"):
        grids.path_of("optimizer")
    with pytest.raises(ParameterError, match=r"no scale 'smal' \(did you mean small\?\)"):
        grids.config_of("smal")
    with pytest.raises(ParameterError, match="no setting 'x'"):
        check_setting("x", 1)


@pytest.mark.parametrize(("name", "value"), [("epochs", 1e300), ("clicks", 10**30)])
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
    ],
)
def test_numbers_of_the_paper(published, name, expected):
    assert published.number(*name) == expected


def test_settings_are_compared_as_numbers_and_shapes_stand_for_sets(published):
    assert published.number("batch-sizes", "yahoo-like", "IPS-SGD", 10) == (0.41, "")
    assert published.number("batch-sizes", "yahoo-set1", "IPS-SGD", 10.0) == (0.41, "")
    assert published.number("position-bias", "yahoo-set1", "IPS-SGD", 1) == (0.41, "")


@pytest.mark.parametrize(
    "name",
    [
        ("clipping", "yahoo-set1", "IPS-SGD", 10),
        ("batch-sizes", "mq2008", "IPS-SGD", 10),
        ("batch-sizes", "yahoo-set1", "CounterSample by query", 10),
        ("batch-sizes", "yahoo-set1", "IPS-SGD", 11),
    ],
)
def test_what_the_paper_has_not(published, name):
    assert published.number(*name) is None


@pytest.fixture(scope="module")
def listed():
    """Study and claim of each row of the table."""
    text = (ROOT / "docs" / "study.md").read_text("utf-8")
    section = text.split("## Every claim of the paper")[1].split("\n## ")[0]
    return [found.groups() for line in section.splitlines() if (found := re.fullmatch(ROW, line))]


def claims_of(study):
    grid = load_grid(grids.path_of(study))
    return {claim.text: claim.source for claim in grid.claims}


def test_every_row_is_a_claim_of_its_study(listed):
    assert len(listed) > 25
    for study, claim in listed:
        known = claims_of(study)
        assert not known or claim in known, f"{study}: {claim}"


def test_every_claim_of_the_paper_has_its_row(listed):
    for study in grids.names():
        for claim, source in claims_of(study).items():
            assert source == "beyond" or (study, claim) in listed, f"{study}: {claim}"
