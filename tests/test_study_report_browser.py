"""report.html in a real browser: it opens in silence, reacts, fits and prints."""

import itertools
import re

import numpy as np
import pytest
from conftest import SEED
from made_report import made_report, toy_path
from scipy import stats

from countersample.pages.drawing import log_ticks
from countersample.study.report.page import write_report

LAPTOP = {"width": 1280, "height": 800}
PHONE = {"width": 400, "height": 800}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return made_report(np.random.default_rng(SEED), tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def address(report, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(report, path)
    return path.as_uri()


@pytest.fixture
def visit(open_page, address):
    """Open the page and wait until it is drawn."""

    def visit(**options):
        page = open_page(address, **{"viewport": LAPTOP, **options})
        if options.get("java_script_enabled", True):
            page.locator(".plot svg").last.wait_for()
        return page

    return visit


def section_of(report, name):
    return next(section for section in report.sections if section.name == name)


def read(panel):
    """What the reading below a panel says: (clicks drawn, {method: (mean, half)})."""
    reading = panel.locator(".reading")
    drawn = int(re.match(r"[\d,]+", reading.locator("strong").inner_text())[0].replace(",", ""))
    values = {}
    for line in reading.locator("dl div").all():
        numbers = line.locator("dd").inner_text().replace("−", "-").split(" ± ")
        values[line.get_attribute("data-method")] = [float(number) for number in numbers]
    return drawn, values


def interval(sample):
    low, high = stats.t.interval(0.95, len(sample) - 1, sample.mean(), stats.sem(sample))
    return (high - low) / 2


def points(line):
    return np.array([p.split(",") for p in line.get_attribute("points").split()], float)


def test_opens_without_a_word_and_without_a_request(visit):
    page = visit()
    assert page.locator("h1").inner_text() == "Accelerated convergence, measured again"
    assert page.locator("#study-optimizers .plot svg").count() == 2 * 2 * 3  # and the leads
    assert page.locator("#study-position-bias .plot svg").count() == 2 * (2 * 5) + 2


class TestReading:
    def test_hovering_reads_the_data(self, visit, report):
        result = section_of(report, "position-bias").curves
        panels = visit().locator("#study-position-bias .panel")
        shares = itertools.cycle([0.2, 0.55, 0.99])
        for index, (dataset, value) in enumerate(
            itertools.product(result.datasets, result.grid.values)
        ):
            panel, share = panels.nth(index), next(shares)
            box = panel.locator(".plot").bounding_box()
            panel.locator(".plot").hover(position={"x": share * box["width"], "y": 80})
            drawn, values = read(panel)
            assert list(values) == [method.name for method in result.grid.methods]
            for name, (mean, *half) in values.items():
                cell = result.cells[dataset, name, value]
                (at,) = np.flatnonzero(cell.drawn == drawn)
                assert mean == pytest.approx(cell.ndcg[:, at].mean(), abs=6e-5)
                expected = [] if cell.n_diverged else [interval(cell.ndcg[:, at])]
                assert half == pytest.approx(expected, abs=6e-5)

    def test_the_value_read_is_the_one_below_the_pointer(self, visit):
        page = visit()
        panel = page.locator("#study-optimizers .panel").first
        line = points(panel.locator("[data-method='CounterSample']").first)
        box = panel.locator(".plot").bounding_box()
        for i in (0, 17, 99):  # 10,000 clicks drawn are one point
            panel.locator(".plot").hover(position={"x": line[i, 0], "y": box["height"] / 2})
            assert read(panel)[0] == 10_000 * (i + 1)
            dot = panel.locator(".cursor .dot").last
            assert float(dot.get_attribute("cy")) == pytest.approx(line[i, 1], abs=0.01)

    def test_leaving_ends_the_reading(self, visit):
        page = visit()
        panel = page.locator("#study-optimizers .panel").first
        panel.locator(".plot").hover()
        assert panel.locator(".reading").is_visible()
        page.locator("#study-optimizers h2").hover()
        assert not panel.locator(".reading").is_visible()

    def test_a_finger_reads_too(self, visit):
        page = visit(viewport=PHONE, has_touch=True)
        panel = page.locator("#study-optimizers .panel").first
        line = points(panel.locator("[data-method='CounterSample']").first)
        panel.locator(".plot").tap(position={"x": line[29, 0], "y": 80})
        drawn, values = read(panel)  # still there when the finger is lifted
        assert drawn == 300_000
        assert len(values) == 3

    def test_arrow_keys_read_and_a_listener_hears_it(self, visit):
        page = visit()
        panel = page.locator("#study-optimizers .panel").first
        plot = panel.locator(".plot")
        plot.focus()
        assert read(panel)[0] == 1_000_000
        steps = {"ArrowLeft": 990_000, "Home": 10_000, "ArrowRight": 20_000, "PageUp": 120_000,
                 "End": 1_000_000}  # fmt: skip
        for key, expected in steps.items():
            page.keyboard.press(key)
            drawn, values = read(panel)
            assert drawn == expected
            heard = plot.get_attribute("aria-valuetext")
            assert heard.startswith(f"{drawn:,} clicks drawn: Biased-SGD ")
            assert f"CounterSample {values['CounterSample'][0]:.4f}" in heard
        page.keyboard.press("Escape")
        assert not panel.locator(".reading").is_visible()

    def test_regret_is_read_at_the_values_of_the_study(self, visit, report):
        result = section_of(report, "position-bias").curves
        page = visit()
        panel = page.locator("#study-position-bias .panel").nth(10)
        panel.locator(".plot").focus()
        page.keyboard.press("Home")
        assert panel.locator(".reading strong").inner_text() == "Position bias (γ): 0.5"
        regret = 100 * result.cells["yahoo-like", "CounterSample by query", 0.5].regrets.mean()
        shown = panel.locator("[data-method='CounterSample by query'] dd").inner_text()
        assert float(shown.split(" ± ")[0].replace("−", "-")) == pytest.approx(regret, abs=6e-3)

    def test_divergence_is_written_below_its_panel(self, visit):
        notes = visit().locator("#study-optimizers .diverged").all_inner_texts()
        assert notes[:6] == ["", "", "", "", "", "IPS-SGD: 2 of 5 runs diverged."]
        assert notes[6:] == ["", "", "", "", "", "lead: IPS-SGD, 2 of 5 runs diverged."]


class TestSwitches:
    def test_a_method_goes_from_the_whole_section_and_comes_back(self, visit):
        page = visit()
        section = page.locator("#study-position-bias")
        lines = section.locator("polyline[data-method='IPS-SGD']")
        elsewhere = page.locator("#study-optimizers polyline[data-method='IPS-SGD']")
        button = section.get_by_role("button", name="IPS-SGD", exact=True)
        assert (lines.count(), elsewhere.count()) == (12, 6)
        button.click()
        assert button.get_attribute("aria-pressed") == "false"
        assert (lines.count(), elsewhere.count()) == (0, 6)
        assert section.locator("polyline[data-method='CounterSample']").count() == 12
        notes = "".join(section.locator(".diverged").all_inner_texts())
        assert notes == "lead: IPS-SGD, 2 of 5 runs diverged."  # the lead is shown still
        section.locator(".plot").first.hover()
        assert "IPS-SGD" not in read(section.locator(".panel").first)[1]
        button.click()
        assert button.get_attribute("aria-pressed") == "true"
        assert lines.count() == 12

    def test_all_methods_can_be_off(self, visit):
        section = visit().locator("#study-optimizers")
        for button in section.locator(".legend button").all():
            button.click()
        section.locator(".plot").first.hover()
        assert read(section.locator(".panel").first)[1] == {}

    def test_the_logarithmic_axis(self, visit):
        page = visit()
        section = page.locator("#study-optimizers")
        line = section.locator("polyline[data-method='CounterSample']").first
        drawn = 10_000 * np.arange(1, 101)
        linear = points(line)
        ticks = section.locator(".plot").first.locator(".tick.middle")
        assert ticks.all_text_contents() == ["0", "250k", "500k", "750k", "1M"]
        steps = np.diff(linear[:, 0])
        np.testing.assert_allclose(steps, steps.mean(), atol=0.02)
        section.get_by_role("button", name="log").click()
        moved = points(line)
        assert ticks.all_text_contents() == ["10k", "30k", "100k", "300k", "1M"]
        slope, start = np.polyfit(np.log10(drawn), moved[:, 0], 1)
        np.testing.assert_allclose(moved[:, 0], start + slope * np.log10(drawn), atol=0.02)
        assert moved[-1, 0] == linear[-1, 0]
        assert (moved[:, 1] == linear[:, 1]).all()
        pressed = section.locator(".switch button").evaluate_all(
            "all => all.map(b => b.ariaPressed)"
        )
        assert pressed == ["false", "true"]
        section.get_by_role("button", name="linear").click()
        assert (points(line) == linear).all()


class TestTicks:
    def test_those_of_a_logarithmic_axis_are_those_of_the_figures(self, visit):
        page = visit()
        for low, high in ((300, 30_000), (2000, 9000), (1, 1e12), (1e-4, 100)):
            found = page.evaluate("([low, high]) => logTicks(low, high)", [low, high])
            assert found == pytest.approx(log_ticks(low, high))

    @pytest.mark.parametrize("ends", [(6000, 9000), (7100, 7500), (0.31, 0.33)])
    def test_short_axes_have_some(self, visit, ends):
        found = visit().evaluate("([low, high]) => logTicks(low, high)", ends)
        assert 2 <= len(found) <= 5
        assert ends[0] <= min(found)
        assert max(found) <= ends[1]


class TestToy:
    def test_paths_are_those_of_numpy(self, visit, report):
        toy = section_of(report, "toy").toy
        page = visit()
        for rate, draw in itertools.product([0.001, 0.03, 0.1, 0.4], toy["draws"]):
            for plan, drawn in draw.items():
                found = page.evaluate(
                    "([toy, plan, drawn, rate]) => toyPath(toy, plan, drawn, rate)",
                    [toy, plan, drawn, rate],
                )
                expected = toy_path(toy, plan, drawn, rate)
                size = max(1, np.abs(expected).max())  # a path that explodes loses digits
                np.testing.assert_allclose(
                    np.array(found, float), expected, rtol=0, atol=1e-9 * size
                )

    def test_contours_are_lines_of_equal_loss(self, visit, report):
        toy = section_of(report, "toy").toy
        x, y, p = (np.array(toy[name]) for name in "xyp")
        at_start = (y**2 / p).mean()
        rings = np.array(visit().evaluate("toy => toyContours(toy)", toy))
        for ring in rings:
            loss = ((ring @ x.T - y) ** 2 / p).mean(axis=1)
            np.testing.assert_allclose(loss, loss[0])
        assert ((rings[0] @ x.T - y) ** 2 / p).mean() == pytest.approx(at_start)

    def test_the_slider_moves_both_paths_to_where_numpy_has_them(self, visit, report):
        toy = section_of(report, "toy").toy
        page = visit()
        section = page.locator("#study-toy")
        before = section.locator(".map polyline").evaluate_all("all => all.map(p => p.outerHTML)")
        section.get_by_role("slider", name="Learning rate").fill("-2")
        lines = section.locator(".map polyline").all()
        after = [line.evaluate("line => line.outerHTML") for line in lines]
        assert all(old != new for old, new in zip(before, after, strict=True))
        assert section.locator(".rate").inner_text() == "0.01"
        for line, plan in zip(lines, ("ips", "countersample"), strict=True):
            path = toy_path(toy, plan, toy["draws"][0][plan], 0.01)
            drawn = points(line)
            unit = np.abs(np.diff(drawn, axis=0)).sum() / np.abs(np.diff(path, axis=0)).sum()
            moved = (drawn - drawn[0]) * [1, -1] / unit  # the vertical axis of a screen points down
            np.testing.assert_allclose(moved, path - path[0], atol=0.02)

    def test_it_says_where_the_paths_end_and_when_one_diverges(self, visit, report):
        toy = section_of(report, "toy").toy
        section = visit().locator("#study-toy")
        for power in (-2.0, -0.3):
            section.get_by_role("slider", name="Learning rate").fill(str(power))
            says = section.locator(".says").inner_text()
            for plan, name in (("ips", "IPS-SGD"), ("countersample", "CounterSample")):
                end = toy_path(toy, plan, toy["draws"][0][plan], 10**power)[-1]
                distance = np.linalg.norm(end - toy["optimum"])
                if distance > np.linalg.norm(toy["optimum"]):
                    assert f"{name} diverges" in says
                else:
                    path = toy_path(toy, plan, toy["draws"][0][plan], 10**power)
                    average = np.linalg.norm(path[:-1].mean(axis=0) - toy["optimum"])
                    ends = f"{name} ends at a distance of {distance:.3f} from the optimum"
                    assert f"{ends}, its average at {average:.3f}" in says
        assert "diverges" in says  # at 0.5 both do

    def test_new_draws_go_round(self, visit):
        section = visit().locator("#study-toy")
        button = section.get_by_role("button", name="New draws")
        seen = []
        for _ in range(5):
            seen.append(section.locator(".map polyline").first.get_attribute("points"))
            button.click()
        assert len(set(seen[:4])) == 4
        assert seen[4] == seen[0]
        assert button.inner_text() == "New draws (2 of 4)"


class TestLayout:
    def test_nothing_overflows(self, visit):
        page = visit()
        for width in (320, 400, 700, 1280, 1920):
            page.set_viewport_size({"width": width, "height": 800})
            page.wait_for_timeout(200)  # drawn anew
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.locator(".plot").last.focus()  # a reading below the last panel
            assert page.evaluate("document.documentElement.scrollWidth") <= width

    def test_wide_tables_scroll_in_their_box(self, visit):
        box = visit(viewport=PHONE).locator("#study-position-bias .scroll").first
        assert box.evaluate("box => box.scrollWidth > box.clientWidth")

    def test_panels_are_drawn_for_the_width_there_is(self, visit):
        page = visit()
        plot = page.locator("#study-optimizers .plot").first
        widths = []
        for viewport in (LAPTOP, PHONE):
            page.set_viewport_size(viewport)
            page.wait_for_timeout(200)
            view = plot.locator("svg").get_attribute("viewBox").split()
            widths.append(float(view[2]))
            assert widths[-1] == pytest.approx(plot.bounding_box()["width"], abs=1)
        assert widths[0] != widths[1]

    def test_the_contents_stay_in_view_and_follow(self, visit):
        page = visit()
        page.locator("nav a", has_text="Severity of position bias").click()
        current = page.locator("nav a[aria-current]")
        current.filter(has_text="Severity of position bias").wait_for()
        assert current.count() == 1
        assert page.locator("nav ul").bounding_box()["y"] >= 0

    def test_every_control_is_reached_by_tab_and_shows_it(self, visit):
        page = visit()
        page.locator("summary").click()
        wanted = page.locator("button, input, .plot, nav a, .scroll").count()
        reached = set()
        for _ in range(wanted + 60):
            page.keyboard.press("Tab")
            active = page.evaluate("""() => {
              const all = [...document.querySelectorAll("button, input, .plot, nav a, .scroll")];
              const style = getComputedStyle(document.activeElement);
              return [all.indexOf(document.activeElement), style.outlineStyle];
            }""")
            if active[0] >= 0:
                assert active[1] == "solid"
                reached.add(active[0])
        assert len(reached) == wanted

    def test_without_a_program_text_and_tables_are_there(self, visit):
        page = visit(java_script_enabled=False)
        assert page.locator("noscript").is_visible()
        assert page.locator("table.numbers").count() == 3
        assert page.locator("button").count() == 0


class TestLooks:
    def test_dark_and_light(self, visit):
        grounds, lines = [], []
        for scheme in ("light", "dark"):
            page = visit(color_scheme=scheme)
            grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            line = page.locator("polyline[data-method='CounterSample']").first
            lines.append(line.evaluate("line => getComputedStyle(line).stroke"))
        assert grounds == ["rgb(253, 253, 251)", "rgb(22, 24, 27)"]
        assert lines == ["rgb(0, 114, 178)", "rgb(74, 168, 232)"]

    def test_every_method_has_a_look_of_its_own(self, visit):
        section = visit().locator("#study-position-bias .panel").first
        looks = section.locator("polyline[data-method]").evaluate_all(
            "all => all.map(line => getComputedStyle(line)).map(s => s.stroke + s.strokeDasharray)"
        )
        assert len(set(looks)) == len(looks) == 4

    def test_print_is_light_and_has_no_controls(self, visit):
        page = visit(color_scheme="dark")
        page.locator(".plot").first.focus()
        page.emulate_media(media="print", color_scheme="dark")
        for control in ("nav", ".switch", ".slider", ".reading", ".controls > button"):
            assert page.locator(control).count() > 0
            assert not any(element.is_visible() for element in page.locator(control).all())
        assert page.locator(".legend").first.is_visible()  # it tells the lines apart
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == "rgb(253, 253, 251)"
        inside = page.locator(".panel").first.evaluate(
            "panel => getComputedStyle(panel).breakInside"
        )
        assert inside == "avoid"

    def test_prints_as_pdf(self, visit):
        assert visit().pdf(format="A4").startswith(b"%PDF-")
