"""The paper's numbers: found by name, and checked when they are read."""

import pytest
from conftest import ROOT

from countersample.errors import ParameterError
from countersample.study.design.published import load_published


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a]\ncolumns = [1, 2]\nyahoo.x = [1]", r"p\.toml:3: \[1\], expected 2 numbers"),
        ("[a]\ncolumns = [1]\nyahoo.x = 1", r"p\.toml:3: 1, expected 1 numbers"),
        ("[a]\ncolumns = [1]\n\nyahoo.x = ['0.3w']", r"p\.toml:4: '0.3w', expected a number"),
        ("[a]\ncolumns = [1]\nyahoo = [true]", r"p\.toml:3: True, expected a number"),
        ("[a]\ncolumns = [1]\nyahoo = [nan]", r"p\.toml:3: nan, expected a number"),
        ("[a]\nyahoo.x = [1]", r"p\.toml:1: a has no columns"),
        ("a = 3", r"p\.toml:1: a has no columns"),
        ("[a\n", r"p\.toml: is not TOML.*line 1"),
    ],
)
def test_a_wrong_file_says_where(tmp_path, text, message):
    path = tmp_path / "p.toml"
    path.write_text(text)
    with pytest.raises(ParameterError, match=message):
        load_published(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ParameterError, match="cannot be read"):
        load_published(tmp_path / "none.toml")
