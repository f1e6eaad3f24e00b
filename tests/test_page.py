"""The report of a fit as a page: whole, without network, without ids."""

import json
import re

import numpy as np
import pytest
from conftest import SEED
from html_pages import Page
from shops import make, opened

from countersample import PositionBias
from countersample.fitting import fit_from_impressions, write_page


@pytest.fixture(scope="module")
def shop():
    return make(SEED)


@pytest.fixture(scope="module")
def fit(shop):
    return fit_from_impressions(*opened(*shop), seed=SEED)


@pytest.fixture
def page(fit, tmp_path):
    def page(**options):
        path = tmp_path / "page.html"
        write_page(path, fit, command="countersample fit a<b --out 'x'", **options)
        return path.read_text("utf-8")

    return page


def test_it_is_whole_and_needs_no_network(page, fit):
    text = page()
    elements = Page(text)
    assert len(elements.all("svg")) == 4
    assert not elements.all("script")
    addresses = [value for each in elements.elements for name, value in each.items()
                 if name in {"src", "href"}]  # fmt: skip
    assert not addresses
    assert "http:" not in text
    assert "https:" not in text
    assert "nan" not in text
    [notice] = elements.all("div", **{"class": "notice good"})
    assert notice["text"] == fit.verdict
    assert "countersample fit a&lt;b" in text
    titles = {each["text"] for each in elements.all("h2")}
    assert {"Examination by position", "How clicks are weighted", "Learning"} <= titles


def test_no_ids_unless_asked(page, fit, shop):
    def ids(text):
        return set(re.findall(r"\bq\d{5}\b|item-\d+", text))

    assert not ids(page())
    shown = {each for row in fit.heaviest for each in (row.query_id, row.item_id)}
    assert ids(page(show_ids=True)) == shown
    assert not ids(json.dumps(fit.to_dict()))
    assert shown <= set(shop[0]["query_id"].to_pylist()) | set(shop[0]["item_id"].to_pylist())


def test_heaviest_pairs_first(fit):
    weights = [row.weight for row in fit.heaviest]
    assert weights == sorted(weights, reverse=True)
    pair, counts = fit.heaviest[0], fit.check.counts
    rows = counts.query_ids[counts.query] == pair.query_id
    rows &= counts.item_ids[counts.item] == pair.item_id
    theta = fit.propensity_source.propensities.propensity(counts.position[rows])
    examined = (counts.impressions[rows] * theta).sum()
    sessions = counts.sessions[counts.query[rows][0]]
    assert np.isclose(pair.weight, counts.clicks[rows].sum() / (examined / sessions))


@pytest.mark.slow
def test_known_propensities_are_shown_by_their_means(shop, tmp_path):
    fit = fit_from_impressions(*opened(*shop), propensities=PositionBias(1.0))
    write_page(tmp_path / "page.html", fit, command="")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert '<th scope="row">5</th><td>0.2</td>' in text
