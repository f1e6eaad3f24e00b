"""Each metric by hand and against its twin, metrics by name, and what is refused."""

import warnings
from fractions import Fraction
from math import comb, log2

import numpy as np
import pytest
import twins_metrics as twins
from hypothesis import given, settings
from hypothesis import strategies as st

from countersample.errors import CounterSampleError, ParameterError
from countersample.metrics import (
    METRICS,
    arp,
    average_precision,
    dcg,
    err,
    get_metric,
    mrr,
    ndcg,
    precision,
)

TIES = ("file", "best", "worst", "expected")

# One query ranked as it stands: grades 1, 0, 2, 0 at ranks 1 to 4.
LABELS, SCORES, ONE = [1, 0, 2, 0], [0.9, 0.7, 0.5, 0.3], [0, 4]
# The same grades where the first three items are tied.
TIED = [0.9, 0.9, 0.9, 0.3]


def value(metric, labels=LABELS, scores=SCORES, **options):
    """The metric of one query."""
    (result,) = metric(labels, scores, [0, len(labels)], **options)
    return result


# -- by hand -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "options", "expected"),
    [
        (dcg, {}, 1 / log2(2) + 3 / log2(4)),
        (dcg, {"k": 2}, 1 / log2(2)),
        (dcg, {"k": 99}, 1 / log2(2) + 3 / log2(4)),
        (dcg, {"gain": "linear"}, 1 / log2(2) + 2 / log2(4)),
        (dcg, {"discount": "letor"}, 1 + 3 / log2(3)),
        (ndcg, {}, (1 / log2(2) + 3 / log2(4)) / (3 / log2(2) + 1 / log2(3))),
        (ndcg, {"k": 1}, 1 / 3),
        (ndcg, {"gain": "linear"}, (1 + 2 / log2(4)) / (2 + 1 / log2(3))),
        (ndcg, {"discount": "letor"}, (1 + 3 / log2(3)) / (3 + 1)),
        (arp, {}, (1 * 1 + 3 * 2) / (1 + 2)),
        (precision, {}, 2 / 4),
        (precision, {"k": 1}, 1 / 1),
        (precision, {"k": 3}, 2 / 3),
        (precision, {"k": 10}, 2 / 10),
        (precision, {"k": 3, "relevant": 2}, 1 / 3),
        (average_precision, {}, (1 / 1 + 2 / 3) / 2),
        (average_precision, {"k": 2}, (1 / 1) / 2),
        (average_precision, {"relevant": 2}, (1 / 3) / 1),
        (mrr, {}, 1 / 1),
        (mrr, {"relevant": 2}, 1 / 3),
        (mrr, {"relevant": 2, "k": 2}, 0.0),
        (err, {}, 1 / 4 + (1 / 3) * (3 / 4) * (1 - 1 / 4)),
        (err, {"k": 2}, 1 / 4),
        (err, {"max_label": 4}, 1 / 16 + (1 / 3) * (3 / 16) * (1 - 1 / 16)),
    ],
)
def test_by_hand(metric, options, expected):
    assert value(metric, **options) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("metric", "file", "best", "worst", "expected"),
    [
        # Grades 1, 0, 2 share ranks 1 to 3: best is 2, 1, 0 and worst is 0, 1, 2.
        (dcg, 1 + 3 / 2, 3 + 1 / log2(3), 1 / log2(3) + 3 / 2, 4 / 3 * (1 + 1 / log2(3) + 1 / 2)),
        (arp, 7 / 3, (1 * 2 + 2 * 1) / 3, (2 * 1 + 3 * 2) / 3, 2.0),
        (average_precision, 5 / 6, 1.0, (1 / 2 + 2 / 3) / 2, (1 + 5 / 6 + 7 / 12) / 3),
        (mrr, 1.0, 1.0, 1 / 2, (1 + 1 + 1 / 2) / 3),
        (err, 7 / 16, 3 / 4 + 1 / 32, 1 / 8 + 3 / 16, None),
        (precision, 2 / 4, 2 / 4, 2 / 4, 2 / 4),
    ],
)
def test_tie_rules_by_hand(metric, file, best, worst, expected):
    assert value(metric, scores=TIED, ties="file") == pytest.approx(file, rel=1e-14)
    assert value(metric, scores=TIED, ties="best") == pytest.approx(best, rel=1e-14)
    assert value(metric, scores=TIED, ties="worst") == pytest.approx(worst, rel=1e-14)
    if expected is not None:
        assert value(metric, scores=TIED, ties="expected") == pytest.approx(expected, rel=1e-14)


def test_expected_err_by_hand():
    # Two tied items of grades 1 and 2, p = 1/4 and 3/4, in either order.
    first, second = 1 / 4 + (1 / 2) * (3 / 4) * (3 / 4), 3 / 4 + (1 / 2) * (1 / 4) * (1 / 4)
    result = value(err, [1, 2], [0, 0], ties="expected")
    assert result == pytest.approx((first + second) / 2, rel=1e-14)


@pytest.mark.parametrize(("n", "relevant", "k"), [(50, 3, None), (200, 7, 10), (64, 64, 5)])
def test_reciprocal_rank_of_one_long_tie_is_hypergeometric(n, relevant, k):
    # The first relevant item is at rank r with probability C(n−r, relevant−1) / C(n, relevant).
    exact = sum(
        Fraction(comb(n - r, relevant - 1), comb(n, relevant) * r) for r in range(1, (k or n) + 1)
    )
    labels = [1] * relevant + [0] * (n - relevant)
    assert value(mrr, labels, np.zeros(n), ties="expected", k=k) == pytest.approx(
        float(exact), rel=1e-12
    )


@pytest.mark.parametrize("name", sorted(METRICS.keys() - {"arp", "dcg"}))
def test_a_query_without_relevant_items(name):
    metric = METRICS[name]
    labels, scores, offsets = [0, 0, 1, 0], [0.2, 0.1, 0.9, 0.3], [0, 2, 4]
    assert metric(labels, scores, offsets)[0] == 0
    assert metric(labels, scores, offsets, no_relevant="zero")[0] == 0
    assert metric(labels, scores, offsets, no_relevant="one")[0] == 1
    skipped = metric(labels, scores, offsets, no_relevant="skip")
    assert np.isnan(skipped[0])
    assert skipped[1] == metric(labels, scores, offsets)[1] > 0


# -- against the twins ---------------------------------------------------------------------------


@st.composite
def queries(draw, max_size):
    """Grades and scores of a few queries: many ties, single items, queries of zeros only."""
    sizes = draw(st.lists(st.integers(1, max_size), min_size=1, max_size=4))
    highest_grade = draw(st.integers(0, 4))
    levels = draw(st.sampled_from([1, 2, 3, 1000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    labels = np.repeat(rng.integers(0, highest_grade + 1, len(sizes)), sizes)
    labels = rng.integers(0, labels + 1).astype(np.float64)
    scores = rng.integers(0, levels, len(labels)).astype(np.float64)
    return labels, scores, np.cumsum([0, *sizes])


@given(data=queries(max_size=100), depth=st.integers(1, 120), favour=st.sampled_from([-1, 0, 1]))
def test_rank_is_its_twin(data, depth, favour):
    from countersample._kernels import metrics as kernels

    values, scores, offsets = data
    order = np.empty(len(values), np.int64)
    kernels.rank(values, scores, offsets, depth, favour, order)
    for rows in twins.rows_of(offsets):
        twin = rows.start + np.array(twins.rank(values[rows], scores[rows], favour))
        assert order[rows][:depth].tolist() == twin[:depth].tolist()


@pytest.mark.parametrize("name", ["additive", "cascade", "precision_sum"])
@pytest.mark.parametrize(("average", "max_size"), [(False, 40), (True, 6)])
@given(data=st.data(), depth=st.integers(1, 45))
def test_sums_are_their_twins(name, average, max_size, data, depth):
    from countersample._kernels import metrics as kernels

    labels, scores, offsets = data.draw(queries(max_size))
    values = labels / 4 if name != "precision_sum" else (labels > 0) * 1.0
    weights = 1 / np.arange(1.0, depth + 1)
    order, result = np.empty(len(values), np.int64), np.empty(len(offsets) - 1)
    kernels.rank(values, scores, offsets, len(values), 0, order)
    if name == "cascade":
        kernels.cascade(values, scores, offsets, order, weights, average, result)
    else:
        is_cumulative = name == "precision_sum"
        kernels.add_up(values, scores, offsets, order, weights, average, is_cumulative, result)
    twin = getattr(twins, name)
    for query, rows in enumerate(twins.rows_of(offsets)):
        v, s = values[rows], scores[rows]
        orders = twins.tied_orders(s) if average else [twins.rank(v, s, 0)]
        expected = np.mean([twin(v[order].tolist(), weights) for order in orders])
        assert result[query] == pytest.approx(expected, rel=1e-11, abs=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("ties", TIES)
@settings(max_examples=40)
@given(data=st.data(), k=st.one_of(st.none(), st.integers(1, 8)))
def test_metrics_are_their_definitions(name, ties, data, k):
    labels, scores, offsets = data.draw(queries(max_size=6 if ties == "expected" else 30))
    options = {"k": None if name == "arp" else k}
    if name in ("ndcg", "dcg"):
        options["gain"] = data.draw(st.sampled_from(["exponential", "linear"]))
        options["discount"] = data.draw(st.sampled_from(["log2", "letor"]))
    elif name == "err":
        options["max_label"] = data.draw(st.sampled_from([4, 5.5]))
    elif name != "arp":
        options["relevant"] = data.draw(st.sampled_from([1, 2]))
    result = METRICS[name](labels, scores, offsets, ties=ties, no_relevant="skip", **options)
    for query, rows in enumerate(twins.rows_of(offsets)):
        if labels[rows].max() < options.get("relevant", 1):
            assert np.isnan(result[query])
        else:
            expected = twins.measure(name, labels[rows], scores[rows], ties, **options)
            assert result[query] == pytest.approx(expected, rel=1e-11, abs=1e-13)


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nDCG", "recall@5", "ndcg@", "ndcg@x", "ndcg@-1", "ndcg@1.5", ""])
def test_unknown_names_are_refused_with_the_known_ones(name):
    with pytest.raises(ParameterError, match=r"is not known, expected one of arp, .*'ndcg@10'"):
        get_metric(name)


@pytest.mark.parametrize(
    ("name", "option", "sentence"),
    [
        ("precision@5", {"gain": "linear"}, r"precision takes no 'gain', its options: relevant, "),
        ("ndcg", {"relevant": 2}, r"ndcg takes no 'relevant', its options: gain, discount, ties, "),
        ("ndcg@10", {"k": 5}, r"ndcg takes no 'k'"),
    ],
)
def test_options_of_other_metrics_are_refused(name, option, sentence):
    with pytest.raises(ParameterError, match=sentence):
        get_metric(name, **option)


# -- what is refused -----------------------------------------------------------------------------

REFUSED = [
    (ndcg, {"k": 0}, "k is 0, expected None for all ranks or a whole number of at least 1"),
    (ndcg, {"k": 2.5}, "k is 2.5, expected None for all ranks or a whole number"),
    (ndcg, {"k": True}, "k is True, expected None for all ranks or a whole number"),
    (arp, {"k": 10}, "k is 10, expected None for arp"),
    (dcg, {"gain": "log"}, "gain is 'log', expected one of exponential, linear"),
    (dcg, {"discount": None}, "discount is None, expected one of log2, letor"),
    (mrr, {"ties": "random"}, "ties is 'random', expected one of file, best, worst, expected"),
    (mrr, {"no_relevant": 0}, "no_relevant is 0, expected one of zero, one, skip"),
    (dcg, {"no_relevant": "one"}, "no_relevant is 'one', expected 'zero' or 'skip' for dcg"),
    (arp, {"no_relevant": "zero"}, "no_relevant is 'zero', expected 'skip' for arp"),
    (mrr, {"relevant": "1"}, "relevant is '1', expected a number"),
    (mrr, {"relevant": np.nan}, "relevant is nan, expected a number"),
    (err, {"max_label": -1}, "max_label is -1, expected a number of at least 0 and at most 1000"),
    (err, {"max_label": 1}, r"labels have 2 at row 2 \(query 0.*expected grades from 0 to 1"),
    (dcg, {"labels": [0, -1, 0, 0]}, r"labels have -1 at row 1 \(query 0, .*grades from 0 to 1000"),
    (arp, {"labels": [0, -1, 0, 0]}, "labels have -1 at row 1"),
    (err, {"labels": [0, 0, 2000, 0]}, "labels have 2000 at row 2 .*from 0 to 1000"),
    (err, {"labels": [0, np.nan, 0, 0]}, "labels have nan at row 1"),
    (mrr, {"labels": [0, np.inf, 0, 0]}, "labels have inf at row 1"),
    (mrr, {"labels": [[1, 0, 2, 0]]}, r"labels has shape \(1, 4\), expected a column"),
    (mrr, {"labels": ["a", "b", "c", "d"]}, "labels is of type <U1, expected numbers"),
    (mrr, {"labels": [[1], [1, 2]]}, "labels must be a column"),
    (mrr, {"scores": [1, 2, 3]}, r"scores have shape \(3,\), expected \(4,\): one for each label"),
    (mrr, {"scores": [1, 2, np.nan, 3]}, r"scores have NaN at row 2 \(query 0, both counted from"),
    (mrr, {"offsets": [0, 3]}, "offsets run from 0 to 3, expected 0 to 4"),
    (mrr, {"offsets": [1, 4]}, "offsets run from 1 to 4, expected 0 to 4"),
    (mrr, {"offsets": [0, 2, 2, 4]}, "give query 1 the rows 2:2, expected at least one row"),
    (mrr, {"offsets": [0, 3, 1, 4]}, "give query 1 the rows 3:1, expected at least one row"),
    (mrr, {"offsets": [0.0, 4.0]}, "offsets are 2 numbers of type float64, expected integers"),
    (mrr, {"offsets": [[0, 4]]}, r"offsets has shape \(1, 2\), expected a column"),
]


@pytest.mark.parametrize(("metric", "change", "sentence"), REFUSED)
def test_what_is_wrong_is_said(metric, change, sentence):
    arguments = {"labels": LABELS, "scores": SCORES, "offsets": ONE, **change}
    with pytest.raises(CounterSampleError, match=sentence):
        metric(**arguments)


# -- habits --------------------------------------------------------------------------------------


def test_extreme_grades_give_finite_values():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert value(ndcg, [1000.0, 0.0], [1, 2]) == pytest.approx(1 / log2(3))
        assert value(ndcg, [3e38, 0.0], [1, 2], gain="linear") == pytest.approx(1 / log2(3))
        assert value(err, [1e-30, 0.5], [1, 2]) > 0
