"""The report of a fit as a page: complete, without network, without ids."""

import json
import re

import numpy as np
import pytest
from html_pages import Page
from shops import usual_fit, usual_shop

from countersample.fitting import write_page


@pytest.fixture
def read_page(tmp_path):
    def read_page(fit, **options):
        path = tmp_path / "page.html"
        write_page(path, fit, command="countersample fit a<b --out 'x'", **options)
        return path.read_text("utf-8")

    return read_page


def test_it_is_complete_and_needs_no_network(read_page):
    text = read_page(usual_fit())
    elements = Page(text)
    assert len(elements.all("svg")) == 4
    assert not elements.all("script")
    names = {name for each in elements.elements for name in each}
    assert not names & {"src", "href"}
    assert not re.search("https?:|nan", text)
    [notice] = elements.all("div", **{"class": "notice good"})
    assert notice["text"] == usual_fit().verdict
    assert "countersample fit a&lt;b" in text
    titles = {each["text"] for each in elements.all("h2")}
    assert {"Examination by position", "How clicks are weighted", "Learning"} <= titles


def test_no_ids_by_default(read_page):
    def ids(text):
        return set(re.findall(r"\bq\d{5}\b|item-\d+", text))

    fit, log = usual_fit(), usual_shop()[0]
    assert not ids(read_page(fit))
    assert not ids(json.dumps(fit.to_dict()))
    heaviest = {each for row in fit.heaviest for each in (row.query_id, row.item_id)}
    assert ids(read_page(fit, show_ids=True)) == heaviest
    assert heaviest <= set(log["query_id"].to_pylist()) | set(log["item_id"].to_pylist())


def test_heaviest_pairs_first():
    fit = usual_fit()
    weights = [row.weight for row in fit.heaviest]
    assert weights == sorted(weights, reverse=True)
    pair, counts = fit.heaviest[0], fit.check.counts
    rows = counts.query_ids[counts.query] == pair.query_id
    rows &= counts.item_ids[counts.item] == pair.item_id
    theta = fit.propensity_source.propensities.propensity(counts.position[rows])
    examined = (counts.impressions[rows] * theta).sum()
    sessions = counts.sessions[counts.query[rows][0]]
    assert np.isclose(pair.weight, counts.clicks[rows].sum() / (examined / sessions))
