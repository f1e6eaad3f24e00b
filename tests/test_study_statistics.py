"""Tests of significance: against scipy, closed forms and the properties that define them."""

import math

import numpy as np
import pytest
from scipy import stats
from study_results import make_cell, make_result, make_runs

from countersample.errors import DataError
from countersample.evaluation.comparison import holm
from countersample.study.statistics import (
    common_runs,
    contrasts,
    paired_test,
    paper_test,
)

FOLDS = ("Fold1", "Fold2", "Fold3")


class TestPaired:
    def test_it_is_scipys(self, rng):
        a, b = rng.normal(size=(2, 9))
        test = paired_test(a, b, make_runs(9))
        expected = stats.ttest_rel(a, b)
        low, high = expected.confidence_interval(0.95)
        assert test.difference == pytest.approx((a - b).mean())
        assert test.p == pytest.approx(expected.pvalue)
        assert test.half() == pytest.approx((high - low) / 2)
        assert test.effect == pytest.approx(expected.statistic / 3)  # t = d_z·√n
        assert test.n == 9

    def test_folds_are_what_is_tested(self, rng):
        a, b = rng.normal(size=(2, 3, 4))  # by fold and seed
        test = paired_test(a.ravel(), b.ravel(), make_runs(4, FOLDS))
        assert test.n == 3
        assert test.p == pytest.approx(stats.ttest_rel(a.mean(axis=1), b.mean(axis=1)).pvalue)

    def test_no_difference_at_all(self):
        test = paired_test([0.1, 0.2, 0.3], [0.1, 0.2, 0.3], make_runs(3))
        assert (test.difference, test.half(), test.p, test.effect) == (0, 0, 1, 0)

    @pytest.mark.parametrize("shift", [0.05, -0.05])
    def test_the_same_difference_everywhere(self, shift):
        a = np.array([0.1, 0.7, 0.3])
        test = paired_test(a + shift, a, make_runs(3))  # equal but for rounding
        assert test.difference == pytest.approx(shift)
        assert (test.half(), test.p, test.effect) == (0, 0, math.copysign(math.inf, shift))

    def test_one_pair_is_no_test(self):
        test = paired_test([0.3], [0.2], make_runs(1))
        assert test.difference == pytest.approx(0.1)
        assert np.isnan([test.half(), test.p, test.effect]).all()
        assert test.n == 1


class TestPaperTest:
    def test_it_finds_more_than_students_test(self, rng):
        a, b = rng.normal(size=(2, 5))
        usual = stats.ttest_ind(a, b)
        # the population deviation is smaller by √(4/5)
        expected = 2 * stats.t.sf(abs(usual.statistic) * math.sqrt(5 / 4), df=8)
        assert paper_test(a, b) == pytest.approx(expected)
        assert paper_test(a, b) < usual.pvalue

    def test_no_spread(self):
        assert paper_test([0.1 + 0.2] * 3, [0.3] * 3) == 1
        assert paper_test([0.1] * 3, [0.3] * 3) == 0

    def test_one_run_is_no_test(self):
        assert math.isnan(paper_test([1], [2]))


class TestContrasts:
    @pytest.fixture
    def result(self, rng):
        centres = {"Biased-SGD": 2.6, "IPS-SGD": 0.5, "CounterSample": 0.4}
        return make_result(
            {
                (dataset, method, value): make_cell(centre + 0.1 * rng.normal(size=5))
                for dataset in ("yahoo-like", "mq2008")
                for method, centre in centres.items()
                for value in ("sgd", "adam")
            }
        )

    def test_every_other_method_corrected_over_the_whole_study(self, result):
        tests = contrasts(result)
        places = [(one.dataset, one.method, one.value) for one in tests]
        assert places == [place for place in result.cells if place[1] != "IPS-SGD"]
        for one in tests:
            a = 100 * result.cells[one.dataset, one.method, one.value].regrets
            b = 100 * result.cells[one.dataset, "IPS-SGD", one.value].regrets
            assert one.test.p == pytest.approx(stats.ttest_rel(a, b).pvalue)
            assert one.paper_p == pytest.approx(paper_test(a, b))
        assert [one.adjusted for one in tests] == holm([one.test.p for one in tests]).tolist()
        assert contrasts(make_result(result.cells, reference="")) == []

    def test_marks_follow_the_corrected_p(self):
        """Alone 0.03 is significant; beside another test with the same p it is not."""
        lower = make_cell([1.0, 1.1, 1.2, 1.3])
        higher = make_cell(100 * lower.regrets + [0.05, 0.1, 0.2, 0.25])
        alone = make_result({("a", "CounterSample", 1): lower, ("a", "IPS-SGD", 1): higher})
        (one,) = contrasts(alone)
        assert 0.025 < one.test.p < 0.05
        assert one.mark == "▽"
        twice = make_result({(d, m, v): c for d in "ab" for (_, m, v), c in alone.cells.items()})
        assert [one.mark for one in contrasts(twice)] == ["", ""]

    def test_marks_by_the_papers_test_have_their_own_threshold(self):
        a, b = make_cell([1.0, 2.0, 3.0]), make_cell([3.0, 4.0, 5.1])
        (one,) = contrasts(make_result({("a", "CounterSample", 1): a, ("a", "IPS-SGD", 1): b}))
        assert 0.01 < one.paper_p < 0.05
        assert (one.mark, one.paper_mark) == ("▽", "")
        far = make_cell([-3.0, -4.0, -5.1])
        (one,) = contrasts(make_result({("a", "CounterSample", 1): a, ("a", "IPS-SGD", 1): far}))
        assert (one.mark, one.paper_mark) == ("△", "△")


def test_cells_of_other_runs_are_an_error():
    with pytest.raises(DataError, match="different runs"):
        common_runs(make_cell([1, 2]), make_cell([1, 2, 3]))
