"""Pages: whole, escaped, without network, in one style; and the charts in them."""

import base64
import hashlib
import re
from importlib.resources import files

import numpy as np
import pytest
from html_pages import Page
from hypothesis import given
from hypothesis import strategies as st

from countersample import pages
from countersample.errors import CounterSampleError, ParameterError
from countersample.pages.charts import (
    STYLES,
    figure_style,
    inline_figure,
    log_ticks,
    new_panels,
    save_figure,
    save_picture,
)

UNSEEN, SEEN = "a\x1b\x07\x00\x9b\u202e\u2066", r"a\u001b\u0007\u0000\u009b\u202e\u2066"
NASTY = '<b onclick="x">&</b></script><!--'


def a_figure(colour="#0072B2"):
    with figure_style():
        figure, panels = new_panels(1, 1, width=4, height=2.5)
        axes = panels[0, 0]
        axes.errorbar([1, 2, 3], [3, 2, 1], [0.1, 0.2, 0.3], color=colour, marker="o")
        axes.fill_between([1, 2, 3], [2, 1, 0], [4, 3, 2], color="black", alpha=0.2)
        axes.set(xlabel="position <x>", ylabel="propensity")
    return figure


def a_page(**options):
    content = [
        pages.render_part("notice", NASTY, "good"),
        pages.render_part("warning_list", [NASTY]),
        pages.section(NASTY, pages.paragraphs([NASTY, " "]), name="first"),
        pages.render_part("card", NASTY, content=[pages.render_part("facts", [(NASTY, NASTY)])]),
        pages.render_part(
            "details",
            NASTY,
            content=[pages.table([NASTY, NASTY], [[NASTY, NASTY]], caption=NASTY)],
        ),
        inline_figure(a_figure(), NASTY),
        inline_figure(a_figure("#D55E00"), "Another"),
        pages.code(NASTY),
    ]
    return Page(pages.render_page(NASTY, content, kind=NASTY, **options))


class TestPage:
    def test_texts_are_escaped_and_tags_balanced(self):
        page = a_page(contents={"first": NASTY})
        assert not [element for element in page.elements if "onclick" in element]
        for tag in ("title", "h1", "h2", "caption", "dd", "code", "summary"):
            assert page.all(tag)[0]["text"] == NASTY, tag
        assert [e["aria-label"] for e in page.all("svg")] == [NASTY, "Another"]
        assert not page.all("script")

    def test_control_characters_are_shown_as_codes(self):
        """Also in parts that are HTML already, such as the labels of a drawing."""
        page = pages.render_page(UNSEEN, [f"<b>{UNSEEN}</b>"], kind=UNSEEN)
        assert not set(UNSEEN[1:]) & set(page)
        assert page.count(SEEN) == 4
        assert SEEN in pages.notebook_table([UNSEEN], [[1]])

    def test_names_are_used_once(self):
        page = a_page(contents={"first": "First"})
        ids = [element["id"] for element in page.elements if "id" in element]
        assert len(ids) == len(set(ids))
        text = {e.get("href", "").removeprefix("#") for e in page.all("a")}
        assert text <= set(ids)

    def test_the_policy_allows_this_style_and_no_program(self):
        page = a_page(css="p { color: red; }")
        (meta,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
        (element,) = page.all("style")
        digest = base64.b64encode(hashlib.sha256(element["text"].encode()).digest()).decode()
        assert f"style-src 'sha256-{digest}'" in meta["content"]
        assert "script-src" not in meta["content"]
        assert meta["content"].startswith("default-src 'none'")
        assert "unsafe" not in meta["content"]
        assert all("style" not in element for element in page.elements)  # the policy forbids them

    def test_written_whole_or_not_at_all(self, tmp_path):
        pages.write_page(tmp_path / "a.html", "é")
        assert (tmp_path / "a.html").read_bytes() == "é".encode()
        with pytest.raises(CounterSampleError, match="cannot be written"):
            pages.write_page(tmp_path / "none" / "a.html", "")


class TestDrawing:
    def test_a_drawing_follows_the_colours_and_the_font_of_its_page(self):
        text = inline_figure(a_figure(), "A line")
        css = files("countersample.pages").joinpath("style.css").read_text()
        named = set(re.findall(r"var\(--([\w-]+)\)", text))
        assert named == {"countersample-click", "ink", "muted"}
        assert all(f"--{name}:" in css for name in named)
        assert "#0072b2" not in text
        assert "font-family" not in text
        assert ">position &lt;x&gt;</text>" in text

    def test_the_same_figure_gives_the_same_bytes(self, tmp_path):
        for stem in ("a.1", "b.1"):
            save_figure(a_figure(), tmp_path / stem, ["x", "y"], [[1, np.float64(1) / 3]])
        assert inline_figure(a_figure(), "A") == inline_figure(a_figure(), "A")
        for suffix in ("png", "svg", "pdf", "csv"):
            first, second = (tmp_path / f"{stem}.1.{suffix}" for stem in "ab")
            assert first.read_bytes() == second.read_bytes()
        assert (tmp_path / "a.1.csv").read_text() == "x,y\n1,0.333333\n"

    @given(
        low=st.floats(1, 10),
        scale=st.sampled_from([1e-6, 1.0, 1000.0]),
        ratio=st.floats(1.05, 1e11),
    )
    def test_ticks_of_a_logarithmic_axis(self, low, scale, ratio):
        """Two to five, within the axis, and far enough apart for their labels."""
        first, last = low * scale, low * scale * ratio
        ticks = np.array(log_ticks(first, last))
        assert 2 <= len(ticks) <= 5
        assert first * (1 - 1e-6) <= ticks[0] <= ticks[-1] <= last * (1 + 1e-6)
        gaps = np.diff(np.log(ticks)) / np.log(ratio)  # in shares of the axis
        assert gaps.min() > 0.1

    def test_other_formats_are_refused(self, tmp_path):
        with pytest.raises(ParameterError, match=r"a name that ends in \.png, \.svg or \.pdf"):
            save_picture(a_figure(), tmp_path / "a.jpeg")


def luminance(colour):
    """WCAG 2: the relative luminance of #rrggbb."""
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


class TestColours:
    @pytest.fixture(params=["light", "dark"])
    def colours(self, request):
        css = files("countersample.pages").joinpath("style.css").read_text()
        light, dark = re.findall(r":root \{(.*?)\}", css, re.DOTALL)[:2]
        named = re.findall(r"--([\w-]+): (#[0-9a-f]{6});", light)
        changed = re.findall(r"--([\w-]+): (#[0-9a-f]{6});", dark)
        assert {name for name, _ in named} == {name for name, _ in changed}
        return dict(named if request.param == "light" else changed)

    def test_contrast_by_its_definition(self):
        assert contrast("#000000", "#ffffff") == pytest.approx(21)

    def test_text_can_be_read(self, colours):
        for ground in ("ground", "card"):
            for ink in ("ink", "muted", "link", "bad"):
                assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
        for outcome in ("good", "part", "bad"):
            assert contrast(colours[outcome], colours["ground"]) >= 4.5, outcome
            assert contrast(colours[outcome], colours[f"{outcome}-ground"]) >= 4.5, outcome

    def test_lines_can_be_seen(self, colours):
        for method in STYLES:
            for ground in ("ground", "card"):
                assert contrast(colours["-".join(method)], colours[ground]) >= 3, method
