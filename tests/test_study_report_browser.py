"""report.html in a real browser: it opens in silence, fits every width, and prints."""

import numpy as np
import pytest
from conftest import SEED
from made_report import made_report

from countersample.study.report import write_report


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    write_report(made_report(np.random.default_rng(SEED), folder), folder / "report.html")
    return (folder / "report.html").as_uri()


def test_opens_without_a_word_and_without_a_request(open_page, address):
    page = open_page(address)
    assert page.locator("h1").inner_text() == "Accelerated convergence, measured again"
    widths = page.locator("img").evaluate_all("all => all.map(image => image.naturalWidth)")
    assert len(widths) > 2
    assert min(widths) > 0  # the policy of the page allows them


@pytest.mark.parametrize("width", [320, 700, 1920])
def test_nothing_overflows(open_page, address, width):
    page = open_page(address, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_wide_tables_scroll_in_their_box(open_page, address):
    page = open_page(address, viewport={"width": 400, "height": 800})
    box = page.locator("#study-position-bias .scroll").first
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")


def test_dark_and_light(open_page, address):
    grounds = [
        open_page(address, color_scheme=scheme).evaluate(
            "getComputedStyle(document.body).backgroundColor"
        )
        for scheme in ("light", "dark")
    ]
    assert grounds == ["rgb(253, 253, 251)", "rgb(22, 24, 27)"]


def test_prints_as_pdf(open_page, address):
    assert open_page(address).pdf(format="A4").startswith(b"%PDF-")
