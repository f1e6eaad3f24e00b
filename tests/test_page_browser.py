"""The page of a fit in a browser: the verdict is on the first screen, also on a phone."""

from dataclasses import replace

import pytest
from conftest import SEED
from shops import opened, usual_shop

from countersample.fitting import Leak, fit_from_impressions, write_page
from countersample.options import PropensityOptions

PHONE = {"width": 375, "height": 667}
LAPTOP = {"width": 1280, "height": 800}
DOUBTS = {
    "Position bias": (
        "Propensities (adjacent-chain): 44 of 500 resamples left a position without connection.",
    ),
    "Evaluation": ("Thin support: the value rests on as much as 33 clicks of equal weight.",),
}


@pytest.fixture(scope="module")
def fit():
    """Return a fit with the method of the longest name."""
    options = PropensityOptions(method="adjacent-chain")
    return fit_from_impressions(*opened(*usual_shop()), seed=SEED, propensities=options)


@pytest.fixture
def visit(open_page, tmp_path):
    def visit(fit, viewport, **options):
        path, command = tmp_path / "page.html", "countersample fit " + "--option " * 30
        write_page(path, fit, command=command, **options)
        return open_page(path.as_uri(), viewport=viewport)

    return visit


def bottom(locator):
    box = locator.bounding_box()
    return box["y"] + box["height"]


@pytest.mark.parametrize("viewport", [PHONE, LAPTOP], ids=["phone", "laptop"])
def test_the_first_screen(visit, fit, viewport):
    """The longest verdict, the next step, the reason, and the first warning."""
    unsure = replace(fit, gain=replace(fit.gain, relative_low=-0.1), doubts=DOUBTS)
    assert "the interval includes 0" in unsure.verdict
    page = visit(unsure, viewport)
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    notice, step, reason = (
        page.locator(".notice"),
        page.locator(".notice + p"),
        page.locator("main > .small"),
    )
    assert notice.text_content() == unsure.verdict
    assert step.text_content() == f"Next step. {unsure.next_step}"
    assert reason.text_content() == unsure.holdout.sentence
    first = page.locator(".warnings li").first
    bottoms = [bottom(each) for each in (notice, step, reason, first)]
    assert bottoms == sorted(bottoms)
    assert bottoms[-1] <= viewport["height"]


def test_a_withheld_verdict_promises_nothing(visit, fit):
    """However good the gain looks: nothing is green, nothing to export or to plan."""
    leak = Leak(0, "click_rate", "log", "chance", 0.97, 1e-30)
    doubts = {"Features that leak the evaluation clicks": (leak.sentence,)} | DOUBTS
    withheld = replace(fit, leaks=(leak,), doubts=doubts)
    assert withheld.gain.low > 0
    page = visit(withheld, PHONE)
    assert page.locator(".notice").get_attribute("class") == "notice unsure"
    assert page.locator(".notice").text_content().startswith("No verdict: click_rate")
    assert bottom(page.locator(".warnings li").first) <= PHONE["height"]
    assert page.locator(".card:has-text('The gain over') svg").count() == 0
    assert "--accept-features" in page.locator(".notice").text_content()
    assert page.locator("section h2").all_text_contents() == ["Repeat it"]


@pytest.mark.parametrize(
    ("low", "high", "sign"),
    [(0.1, 0.2, "good"), (-0.1, 0.2, "unsure"), (-0.2, -0.1, "bad")],
)
def test_only_a_better_ranker_is_green(visit, fit, low, high, sign):
    gain = replace(fit.gain, relative_low=low, relative_high=high)
    page = visit(replace(fit, gain=gain, leaks=()), LAPTOP)
    assert page.locator(".notice").get_attribute("class") == f"notice {sign}"
    assert page.locator(".good").count() == (sign == "good")
