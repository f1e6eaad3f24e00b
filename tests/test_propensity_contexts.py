"""Contexts: a curve for each, from its own rows; pooled, cut or refused by the rule."""

import numpy as np
import pytest
from conftest import SEED
from scipy.special import expit
from twins_propensity import served, shuffled, streams

from countersample.errors import DataError
from countersample.logs import PositionCounts
from countersample.propensity import (
    METHODS,
    estimate,
    estimate_by_context,
    pair_ids,
)
from countersample.propensity.cells import QueryDraws, cells_of
from countersample.propensity.contexts import resample_by_context
from countersample.propensity.estimation import needs_features

THETA = 1 / np.arange(1, 6)
# Users of phones look at the first results, those of desktops further: 0.011 and 0.322 at 10.
RANK = np.arange(1, 11)
DEVICES = {"desktop": RANK**-0.492, "phone": RANK**-1.96}


def mixed(logs):
    """Put the logs of contexts together, as one log with a column `context`."""
    columns = [
        np.concatenate([getattr(log, name) for log in logs.values()])
        for name in ("query", "item", "position", "clicks", "impressions")
    ]
    context = np.repeat(list(logs), [len(log) for log in logs.values()])
    return PositionCounts.from_columns(*columns, context=context)


def two_devices(rng, n_queries=400, sessions=200):
    relevance = rng.beta(2, 3, (n_queries, 10))
    options = {"n_queries": n_queries, "sessions": sessions, "n_rankers": 4, "noise": 1}
    return mixed({
        name: served(rng, theta, relevance=relevance, **options)[0]
        for name, theta in DEVICES.items()
    })  # fmt: skip


def test_both_curves_are_covered():
    """Of mixed devices, over many logs; and the pooled curve is neither."""
    n_logs, hits, errors = 25, [], []
    for rng in streams(n_logs):
        result = estimate_by_context(two_devices(rng), n_bootstrap=60, rng=rng)
        assert list(result.curves) == ["desktop", "phone"]
        assert not any("pooled" in note for note in result.notes)
        for name, theta in DEVICES.items():
            curve = result.curves[name]
            hits.append(((curve.low <= theta) & (theta <= curve.high))[1:])
            errors.append(np.log(curve.value / theta)[1:])
    # Positions of a log share their clicks: about three of nine are its own.
    assert 0.92 - 4 * np.sqrt(0.92 * 0.08 / (2 * 3 * n_logs)) < np.mean(hits) < 0.995
    spread = np.std(errors, axis=0)
    assert (np.abs(np.mean(errors, axis=0)) < 0.15 + 4 * spread / np.sqrt(2 * n_logs)).all()
    pooled = estimate(two_devices(rng), rng=SEED)
    assert DEVICES["phone"][9] * 3 < pooled.value[9] < DEVICES["desktop"][9] * 0.9
    assert any("2 contexts, and this curve is between theirs" in note for note in pooled.notes)


def test_resamples_of_contexts_are_of_the_same_queries(rng):
    """So that what is computed from several contexts has the right spread over logs."""
    counts = two_devices(rng, n_queries=60)
    draws = QueryDraws(np.ones(60, np.bool_), 30, SEED)
    options = {"method": "pivot", "n_bootstrap": 20, "confidence": 0.9, "rng": 0, "draws": draws}
    result, resamples = resample_by_context(counts, **options)
    for code, name in enumerate(counts.context_ids):
        alone = METHODS["pivot"](cells_of(counts.take(counts.context == code)))
        expected = np.concatenate([alone.curves(weights) for weights in draws.blocks()])
        np.testing.assert_allclose(resamples[name], expected)
        low = np.minimum(np.nanquantile(expected, 0.05, axis=0), result.curves[name].value)
        np.testing.assert_allclose(result.curves[name].low, low)


@pytest.mark.parametrize("method", METHODS)
def test_positions_are_compared_within_contexts(method):
    """The curve over contexts is that of a log whose queries have the context in their name."""
    rng = np.random.default_rng(SEED)
    features = rng.standard_normal((40, 5, 2))
    relevance = expit(features @ [1.0, -1.0] - 1)
    options = {"n_queries": 40, "sessions": 60, "relevance": relevance}
    counts = mixed({name: shuffled(rng, theta, **options)
                    for name, theta in (("a", THETA), ("b", THETA**2))})  # fmt: skip
    apart = PositionCounts.from_columns(
        counts.query * 2 + counts.context, counts.item, counts.position, counts.clicks,
        counts.impressions,
    )  # fmt: skip
    given = {}
    for log, queries in ((counts, 1), (apart, 2)):
        query, item = pair_ids(log)
        given[queries] = {"features": features[query // queries, item]}
    first, second = (
        METHODS[method](cells_of(log), **(given[n] if needs_features(method) else {}))
        for log, n in ((counts, 1), (apart, 2))
    )
    (one,) = first.curves(np.ones((1, 40)))
    (other,) = second.curves(np.ones((1, 80)))
    np.testing.assert_allclose(one, other, rtol={"regression-em": 5e-3}.get(method, 1e-6))


def test_an_item_at_two_positions_in_two_contexts_tells_nothing():
    rows = [(q, 0, k, 5, 10, context) for q in range(9) for k, context in ((1, "a"), (2, "b"))]
    *columns, context = zip(*rows, strict=True)
    counts = PositionCounts.from_columns(*columns, context=context)
    with pytest.raises(DataError, match="no query-item pair was shown both in position 1 and"):
        estimate(counts, method="all-pairs")
    with pytest.raises(DataError, match=r"no context of the log .*: in 'a', the log has"):
        estimate_by_context(counts)


# -- the rule


def fixed(n_queries=60):
    """A log of one ranker that never changed: it tells nothing."""
    query, item = np.repeat(np.arange(n_queries), 5), np.tile(np.arange(5), n_queries)
    clicks = np.tile([9, 7, 5, 4, 3], n_queries)
    return PositionCounts.from_columns(query, item, item + 1, clicks, np.full(5 * n_queries, 50))


def test_pooled_where_a_context_cannot_tell_and_the_others_agree(rng):
    logs = {name: served(rng, THETA, n_queries=100, sessions=200)[0] for name in "ab"}
    result = estimate_by_context(mixed(logs | {"fixed": fixed()}), rng=0)
    assert result.unsupported == {}
    curve = result.curves["fixed"]
    assert any(note.startswith("pooled over contexts: no query-item pair") for note in curve.notes)
    together = estimate(mixed(logs), rng=0)
    np.testing.assert_allclose(curve.value, together.value)
    np.testing.assert_array_equal(curve.n_impressions, np.full(5, 60 * 50))


def test_pooled_where_a_context_has_too_little(rng):
    logs = {name: served(rng, THETA, n_queries=100, sessions=200)[0] for name in "ab"}
    logs["few"] = shuffled(np.random.default_rng(2), THETA, n_queries=20, sessions=5)
    result = estimate_by_context(mixed(logs), method="all-pairs", rng=0)
    curve, alone = result.curves["few"], estimate(logs["few"], method="all-pairs", rng=0)
    assert (alone.high > 4 * alone.low).any()
    assert any("its own intervals, which it keeps, are wide" in note for note in curve.notes)
    assert np.abs(np.log(curve.value / THETA)).max() < 0.3
    assert (curve.high > 2 * curve.low)[1:].any()


def test_refused_where_the_others_do_not_agree(rng):
    logs = {name: served(rng, theta, n_queries=100, sessions=200)[0]
            for name, theta in (("a", THETA), ("b", THETA**0.2))}  # fmt: skip
    result = estimate_by_context(mixed(logs | {"fixed": fixed()}), rng=0)
    assert list(result.curves) == ["a", "b"]
    assert result.unsupported["fixed"].startswith("no query-item pair was shown both in position 1")
    assert any(note.startswith("fixed: no curve: ") for note in result.notes)
    alpha, beta = result.examination_of([1, 1, 9, 2], ["fixed", "a", "a", "?"])
    np.testing.assert_array_equal(alpha, [np.nan, 1, np.nan, np.nan])
    assert not beta.any()


def test_what_a_context_tells_is_kept_down_to_its_depth(rng):
    """Items of c move between positions 1 and 2 only, and a and b do not agree."""
    logs = {name: served(rng, theta, n_queries=100, sessions=200)[0]
            for name, theta in (("a", THETA), ("b", THETA**0.2))}  # fmt: skip
    rows = [(q, i, k, 5, 20) for q in range(40) for i in (0, 1) for k in (1, 2)]
    rows += [(q, 2, 3, 2, 20) for q in range(40)]
    logs["c"] = PositionCounts.from_columns(*map(list, zip(*rows, strict=True)))
    result = estimate_by_context(mixed(logs), rng=0)
    assert len(result.curves["c"].value) == 2
    assert any("positions beyond 2 have no estimate: no query-item" in n for n in result.notes)
    alpha, _ = result.examination_of([1, 2, 3], ["c", "c", "c"])
    np.testing.assert_array_equal(alpha[:2], result.curves["c"].value)
    assert np.isnan(alpha[2])
