"""The numbers that report.html draws."""

from dataclasses import replace

import numpy as np
import pytest
from made_report import made_result
from scipy import stats

from countersample.study.report.data import MOST_POINTS, curves_data, thin


def study(rng, **changes):
    given = {"name": "s", "title": "S", "axis": "gamma", "axis_title": "Position bias (γ)",
             "values": (0.5, 1.0, 1.5)}  # fmt: skip
    return made_result(rng, **{**given, **changes})


class TestCurves:
    def test_a_line_is_the_mean_of_runs_in_students_interval(self, rng):
        result = study(rng)
        data = curves_data(result)
        for row, dataset in zip(data["rows"], result.datasets, strict=True):
            for panel, value in zip(row["panels"], result.grid.values, strict=True):
                for line, method in zip(panel["lines"], data["methods"], strict=True):
                    cell = result.cells[dataset, method["name"], value]
                    assert line["x"] == cell.drawn.tolist()
                    mean = cell.ndcg.mean(axis=0)
                    np.testing.assert_allclose(line["mean"], mean, atol=1e-6)
                    if cell.n_diverged:
                        continue
                    low, high = stats.t.interval(0.95, 4, mean, stats.sem(cell.ndcg, axis=0))
                    np.testing.assert_allclose(line["half"], (high - low) / 2, atol=1e-6)

    def test_a_cell_with_diverged_runs_shows_each_run_and_says_so(self, rng):
        result = study(rng)
        line = curves_data(result)["rows"][1]["panels"][2]["lines"][1]
        cell = result.cells["mq2008", "IPS-SGD", 1.5]
        assert line["note"] == "2 of 5 runs diverged"
        np.testing.assert_allclose(line["runs"], cell.ndcg, atol=1e-6)
        assert line["half"] is None

    def test_the_range_has_all_sound_lines_and_rules_but_no_fall_to_zero(self, rng):
        result = study(rng)
        for row, dataset in zip(curves_data(result)["rows"], result.datasets, strict=True):
            low, high = row["range"]
            inside = [rule["y"] for rule in row["rules"]]
            assert inside == [result.best[dataset], result.policy[dataset]]
            for (of_dataset, _, _), cell in result.cells.items():
                if of_dataset == dataset and not cell.n_diverged:
                    inside += cell.mean_curve.tolist()
            assert low < min(inside)
            assert max(inside) < high
            assert low > 0.3

    def test_titles(self, rng):
        def titles(**changes):
            return [p["title"] for p in curves_data(study(rng, **changes))["rows"][0]["panels"]]

        assert titles() == ["γ = 0.5", "γ = 1", "γ = 1.5"]
        assert titles(axis_title="Clicks", values=(10_000, 1_000_000)) == [
            "Clicks: 10,000",
            "Clicks: 1,000,000",
        ]
        assert titles(axis_title="Optimizer", values=("sgd", "adam")) == ["SGD", "Adam"]

    def test_one_run_has_no_band(self, rng):
        result = study(rng)
        cells = {
            key: replace(cell, ndcg=cell.ndcg[:1], best=cell.best[:1], runs=cell.runs[:1])
            for key, cell in result.cells.items()
        }
        data = curves_data(replace(result, cells=cells))
        assert data["rows"][0]["panels"][0]["lines"][0]["half"] is None
        assert data["versus"]["panels"][0]["lines"][0]["half"] is None

    @pytest.mark.parametrize("n_points", [1, 2, 199, 200, 201, 500, 12_345])
    def test_thinning_keeps_the_ends_and_both_axes_dense(self, n_points):
        kept = thin(n_points)
        assert len(kept) <= MOST_POINTS
        assert kept[0] == 0
        assert kept[-1] == n_points - 1
        assert (np.diff(kept) > 0).all()
        if n_points > MOST_POINTS:
            assert np.diff(kept).max() <= np.ceil(n_points / (MOST_POINTS // 2 - 1)) + 1
            assert kept[:3].tolist() == [0, 1, 2]

    def test_long_curves_are_thinned(self, rng):
        line = curves_data(study(rng, n_points=500))["rows"][0]["panels"][0]["lines"][0]
        assert len(line["x"]) == len(line["mean"]) == len(line["half"]) <= MOST_POINTS


class TestRegretAgainstTheAxis:
    def test_regret_times_hundred_at_each_value(self, rng):
        result = study(rng)
        versus = curves_data(result)["versus"]
        assert versus["ticks"] == [[0.5, "0.5"], [1.0, "1"], [1.5, "1.5"]]
        for panel, dataset in zip(versus["panels"], result.datasets, strict=True):
            for line, method in zip(panel["lines"], result.grid.methods, strict=True):
                cells = [result.cells[dataset, method.name, v] for v in result.grid.values]
                expected = [100 * (c.best - c.ndcg.mean(axis=1)).mean() for c in cells]
                np.testing.assert_allclose(line["mean"], expected, atol=1e-5)

    def test_diverged_settings_are_named_and_do_not_set_the_range(self, rng):
        panel = curves_data(study(rng))["versus"]["panels"][1]
        assert panel["lines"][1]["note"] == "2 of 5 runs diverged at 1.5"
        assert panel["range"][1] < panel["lines"][1]["mean"][2]

    def test_names_have_no_such_axis(self, rng):
        assert curves_data(study(rng, values=("sgd", "adam")))["versus"] is None

    def test_orders_of_magnitude_have_a_logarithmic_axis(self, rng):
        assert curves_data(study(rng, values=(10_000, 1_000_000)))["versus"]["log"]
        assert not curves_data(study(rng))["versus"]["log"]
