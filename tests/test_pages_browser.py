"""Pages of the kit in a real browser: on a phone, in the dark, on paper."""

import numpy as np
import pytest
from made_rankers import made

from countersample import pages
from countersample.export import export
from countersample.pages.charts import inline_figure, new_axes
from countersample.plotting import plot_learning_curve

WORDS = "Clicks are biased towards the top of the page. " * 8


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A page with every part, one of them a table that is too wide for a phone."""
    figure, axes = new_axes(4, 2.5)
    plot_learning_curve([1, 2, 3], [0.5, 0.6, 0.65], label="CounterSample", ax=axes)
    header = ["method", *(f"a long column {k}" for k in range(8))]
    wide = pages.table(header, [["CounterSample by query", *["1,234.5"] * 8]] * 3, caption="Wide")
    narrow = pages.table(["method", "nDCG"], [["IPS-SGD", "0.7"]], caption="Narrow")
    facts = pages.render_part("facts", [("fingerprint", "0123456789abcdef" * 8)])
    cards = [
        pages.render_part("card", "Facts", content=[facts]),
        pages.render_part(
            "card", "A chart", content=[inline_figure(figure, "A line that rises"), wide]
        ),
    ]
    content = [
        pages.render_part("notice", WORDS, "good"),
        pages.render_part("warning_list", [WORDS, "a" * 200]),
        pages.section("First", pages.paragraphs([WORDS]), wide, narrow, name="first"),
        pages.render_part("cards", content=cards),
        pages.section("Last", pages.code("countersample fit " + "--option " * 40), name="last"),
    ]
    path = tmp_path_factory.mktemp("page") / "page.html"
    contents = {"first": "First", "last": "Last"}
    page = pages.render_page("A title " * 9, content, kind="a sample", contents=contents)
    pages.write_page(path, page)
    return path.as_uri()


def style(locator, name):
    return locator.evaluate(f"element => getComputedStyle(element).{name}")


@pytest.mark.parametrize("width", [320, 380, 1280])
def test_the_page_never_scrolls_sideways(open_page, address, width):
    page = open_page(address, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_table_that_is_too_wide_scrolls_and_shows_it(open_page, address):
    page = open_page(address, viewport={"width": 380, "height": 800})
    wide, narrow, _ = page.locator(".scroll").all()
    assert wide.evaluate("box => box.scrollWidth > box.clientWidth")
    assert narrow.evaluate("box => box.scrollWidth == box.clientWidth")
    wide.scroll_into_view_if_needed()
    edge = wide.bounding_box()
    strip = {"x": edge["x"] + edge["width"] - 3, "y": edge["y"] + 3, "width": 2, "height": 10}
    shaded = page.screenshot(clip=strip)
    wide.evaluate("box => { box.scrollLeft = box.scrollWidth }")
    assert page.screenshot(clip=strip) != shaded  # nothing more is there: no shade
    wide.focus()
    assert style(wide, "outlineStyle") == "solid"


def test_texts_of_a_model_card_wrap(open_page, tmp_path):
    """The table of settings may have a long sentence, which hid all other values."""
    ranker, _ = made("linear", "minmax", np.random.default_rng(0))
    ranker.provenance_ |= {"choice": WORDS, "data": WORDS}
    card = export(ranker, tmp_path / "shop.json", to="solr", card="html").card
    page = open_page(card.as_uri(), viewport={"width": 1280, "height": 800})
    for table in page.locator("table").all():
        assert table.evaluate("table => table.scrollWidth <= table.clientWidth")


def test_dark_and_light(open_page, address):
    seen = []
    for scheme in ("light", "dark"):
        page = open_page(address, color_scheme=scheme)
        line = page.locator(".drawing path[stroke*=countersample-click]").first
        text = page.locator(".drawing text").first
        seen.append(
            (style(page.locator("body"), "backgroundColor"), style(line, "stroke"),
             style(text, "fill"))
        )  # fmt: skip
    assert seen == [
        ("rgb(253, 253, 251)", "rgb(0, 114, 178)", "rgb(91, 88, 82)"),
        ("rgb(22, 24, 27)", "rgb(74, 168, 232)", "rgb(170, 166, 158)"),
    ]
