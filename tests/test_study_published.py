"""The paper's numbers: found by name, and checked when they are read."""

import pytest
from conftest import ROOT

from countersample.study.design.grids import load_published


@pytest.fixture(scope="module")
def published():
    return load_published(ROOT / "experiments" / "published.toml")


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


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("yahoo-like", "yahoo-set1"), ("istella-like", "istella-s")],
)
def test_a_set_of_the_same_shape(published, ours, theirs):
    for column in (10, 20, 50):
        number = published.number("batch-sizes", ours, "IPS-SGD", column)
        assert number == published.number("batch-sizes", theirs, "IPS-SGD", column) is not None


def test_settings_are_compared_as_numbers(published):
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
