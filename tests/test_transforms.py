"""Logarithms, roots and quantiles of features: what is learned, kept, exported and chosen."""

import math
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from conftest import SEED
from every_ranker import tiny
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from made_rankers import made, predict
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import kstest
from sklearn.preprocessing import QuantileTransformer

from countersample import (
    CounterSampleRanker,
    PositionBias,
    RankingDataset,
    load_ranker,
    simulate_clicks,
)
from countersample.data import matrices
from countersample.data.compact import HEAVY_SHARE
from countersample.data.preprocessing import (
    CANDIDATES,
    MAX_KNOTS,
    MAX_ROOTS,
    TRANSFORMS,
    Normalizer,
    choose_knots,
    choose_logs,
    choose_roots,
    take_quantiles,
    take_roots,
)
from countersample.errors import ParameterError
from countersample.evaluation import HeldOut
from countersample.export import export
from countersample.tuning.safety import choose_safely, choose_simplest

each_transform = pytest.mark.parametrize("transform", TRANSFORMS)
# Each scaling and each transform occurs, not each pair of them.
PAIRS = [("log", "minmax"), ("root", "standard"), ("quantile", "query-minmax"), ("log", None)]
each_pair = pytest.mark.parametrize(("transform", "how"), PAIRS)


def as_data(values, n_queries=10):
    n = len(values)
    return RankingDataset.from_arrays(values, np.zeros(n), np.arange(n) * n_queries // n)


@pytest.fixture
def data(rng):
    """Log-normal, counts that are mostly 0, tails on both sides, even, binary, constant."""
    n = 3000  # of fewer, no tail is heavy in 8 bits
    z = rng.standard_normal((n, 6))
    values = np.exp(3 * z)
    values[:, 1] = np.where(rng.random(n) < 0.8, 0, np.floor(values[:, 1]))
    values[:, 2] = np.sinh(3 * z[:, 2])
    values[:, 3] = rng.random(n)
    values[:, 4] = z[:, 4] > 0
    values[:, 5] = 7
    return as_data(values.astype(np.float32))


@st.composite
def any_column(draw):
    """Return finite float32 values of one feature, ties likely."""
    numbers = st.sampled_from([0.0, 1.0, -1.0, 5.0]) | st.floats(width=32, allow_infinity=False)
    finite = numbers.filter(np.isfinite)
    return draw(arrays(np.float32, st.tuples(st.integers(1, 60), st.just(1)), elements=finite))


# -- what is learned -----------------------------------------------------------------------------


@pytest.mark.slow
@each_transform
@given(values=any_column())
def test_the_order_of_values_stays(transform, values):
    """Whatever was learned from, and for values that were not."""
    learned = Normalizer.fit(as_data(values, 1), None, transform)
    rows = np.concatenate([values, [[0], [-1e30], [1e30], [3.7]], values / 3, values / 2])
    rows = np.sort(rows.astype(np.float32), axis=0)
    result = learned.transform(rows)[:, 0]
    assert np.isfinite(result).all()
    assert (np.diff(result) >= 0).all()


def test_logarithms_are_as_they_are_written(data):
    values = data.features.astype(np.float64)
    logs = Normalizer.fit(data, None, "log").logs
    for column in range(4):
        sizes = np.sort(np.abs(values[values[:, column] != 0, column]))
        assert logs[column] == sizes[(len(sizes) - 1) // 2]
    assert logs[4:] == (0, 0)
    result = Normalizer.fit(data, None, "log").apply_transform(values)
    expected = np.sign(values[:, :4]) * np.log1p(np.abs(values[:, :4]) / logs[:4])
    assert_allclose(result[:, :4], expected, rtol=1e-12, atol=1e-15)
    assert_array_equal(result[:, 4:], values[:, 4:])


def test_quantiles_are_those_of_scikit_learn(rng):
    """Where no value is common: the shares differ by what one value of n is worth."""
    n = 4000
    values = np.exp(2 * rng.standard_normal((n, 3))).astype(np.float32)
    peer = QuantileTransformer(n_quantiles=MAX_KNOTS - 2, subsample=None).fit(np.float64(values))
    learned = Normalizer.fit(as_data(values), None, "quantile")
    rows = np.exp(2 * rng.standard_normal((1000, 3))).astype(np.float32)
    assert_allclose(learned.apply_transform(rows), peer.transform(np.float64(rows)), atol=3 / n)


def test_quantiles_make_heavy_tails_even_and_find_what_is_common(data, rng):
    learned = Normalizer.fit(data, None, "quantile")
    other = np.exp(3 * rng.standard_normal((3000, 6)))
    assert kstest(learned.apply_transform(other)[:, 0], "uniform").pvalue > 1e-4
    values = data.features[:, 1]
    knots, shares = learned.knots[1]
    assert knots[0] == 0
    assert shares[0] == pytest.approx((values == 0).mean() / 2)
    assert len(knots) > 5  # though four of five values are the first
    assert knots[-1] == values.max()
    for knot, share in zip(knots, shares, strict=True):
        below, equal = (values < knot).mean(), (values == knot).mean()
        assert share == pytest.approx(below + equal / 2)
    assert learned.knots[4:] == ((), ())
    assert max(len(each[0]) for each in learned.knots if each) <= MAX_KNOTS
    beyond = learned.apply_transform(np.array([[-1e9] * 6, [1e9] * 6]))
    assert_array_equal(beyond[:, :4], [[each[1][end] for each in learned.knots[:4]]
                                       for end in (0, -1)])  # fmt: skip


@each_transform
def test_what_is_missing_stays_missing_and_teaches_nothing(transform, data, rng):
    learned = Normalizer.fit(data, None, transform)
    holes = data.features.copy()
    holes[rng.random(holes.shape) < 0.2] = np.nan
    result = learned.apply_transform(holes)
    assert_array_equal(np.isnan(result), np.isnan(holes))
    full = learned.apply_transform(data.features)
    assert_array_equal(result[~np.isnan(holes)], full[~np.isnan(holes)])
    if transform == "log":
        column = holes[:, :1]
        kept = column[~np.isnan(column)][:, None]
        assert choose_logs(column) == choose_logs(kept)


def test_of_many_rows_a_sample_is_drawn_with_the_ends_of_all(rng):
    values = np.exp(2 * rng.standard_normal((5000, 1))).astype(np.float32)
    whole, sample = choose_knots(values), choose_knots(values, max_rows=1000)
    assert sample != whole
    assert sample == choose_knots(values, max_rows=1000)
    knots, _ = sample[0]
    assert (knots[0], knots[-1]) == (values.min(), values.max())
    assert len(knots) <= MAX_KNOTS
    assert_allclose(take_quantiles(values, sample), take_quantiles(values, whole), atol=0.08)


# -- roots --------------------------------------------------------------------------------------


def root_of(x, times):
    """The twin: one number, one root after the other."""
    for _ in range(times):
        x = math.copysign(math.sqrt(abs(x)), x)
    return x


def share_of(column, times):
    """What a value can be off in 8 bits, over the standard deviation, by the book."""
    values = np.array([root_of(x, times) for x in column.tolist()])
    spread = values.std()
    return (values.max() - values.min()) / 255 / 2 / spread if spread > 0 else 0.0


def roots_by_the_rule(column):
    """The fewest that leave at most HEAVY_SHARE; else all, if they halve it; else none."""
    for times in range(MAX_ROOTS + 1):
        if share_of(column, times) <= HEAVY_SHARE:
            return times
    return MAX_ROOTS if share_of(column, MAX_ROOTS) <= share_of(column, 0) / 2 else 0


@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=6),
    st.data(),
)
def test_roots_equal_their_twin(values, drawn):
    times = drawn.draw(st.lists(st.integers(0, MAX_ROOTS), min_size=len(values),
                                max_size=len(values)))  # fmt: skip
    result = take_roots([values, values], times)
    assert_array_equal(result, [[root_of(*each) for each in zip(values, times, strict=True)]] * 2)
    assert_array_equal(take_roots(values, times), result[0])


@pytest.mark.parametrize("n_items", [2, 50, 3000])
def test_the_rule_by_enumeration(n_items, rng):
    """Columns of all kinds, each decided as by the rule when it is written out."""
    z, p = rng.standard_normal(n_items), (np.arange(n_items) + 0.5) / n_items
    rare = np.arange(n_items) == 0
    columns = [z, np.exp(z), np.exp(2 * z), np.exp(4 * z), -np.exp(3 * z), np.sinh(3 * z),
               1 / p**0.7, 1 / p, 1 / p**2, 1 / p**9, 7 + 0 * z, 5.0 * rare,
               rare * np.exp(z), z + 1e38 * rare, 1e6 + np.exp(2 * z),
               1e-20 * np.exp(3 * z)]  # fmt: skip
    features = np.stack(columns, axis=1).astype(np.float32)
    expected = tuple(roots_by_the_rule(column) for column in features.T)
    assert (choose_roots(features) or (0,) * len(columns)) == expected
    if n_items == 3000:
        assert expected[6:12] == (1, 2, 3, 5, 0, 0)  # the last: constant; one rare value


# -- as a part of the normalizer -----------------------------------------------------------------


@each_pair
def test_scaling_comes_after(transform, how, data):
    learned = Normalizer.fit(data, how, transform)
    bent = data.with_features(learned.apply_transform(data.features).astype(np.float32))
    expected = bent if how is None else bent.normalized(how)
    assert_allclose(learned(data).features, expected.features, rtol=1e-4, atol=1e-5)


@each_pair
def test_blocks_of_any_size_give_the_same(transform, how, data, monkeypatch):
    learned = Normalizer.fit(data, how, transform)
    expected = learned(data).features
    monkeypatch.setattr(matrices, "BLOCK_VALUES", 30)
    assert_array_equal(learned(data).features, expected)
    again = Normalizer.fit(data, how, transform)
    if how != "standard":  # sums are merged block by block
        assert again == learned


def test_root_minmax_is_minmax_after_roots(data):
    assert Normalizer.fit(data, "root-minmax") == Normalizer.fit(data, "minmax", "root")
    with pytest.raises(ParameterError, match="transform is 'sqrt', expected one of log, root, qua"):
        Normalizer.fit(data, "minmax", "sqrt")


@each_pair
def test_codes(transform, how, data):
    """Of codes codes, that are off by their own step and by that of the codes they are made of."""
    learned, coded = Normalizer.fit(data, how, transform), data.compact(16)
    result = learned.features(coded.features, data.offsets)
    assert result.bits == 16
    expected = learned.transform(coded.features[:], data.offsets)
    span = expected.max(axis=0) - expected.min(axis=0)
    assert (np.abs(result[:] - expected) <= 1e-4 * span + 1e-6).all()
    assert learned.foldable_scale() is None


# -- exports -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "transform", "how"),
    [  # each kind, transform and scaling occurs, not each combination
        ("linear", "root", "standard"),
        ("linear", "quantile", None),
        ("boosted", "log", None),
        ("neural", "log", "minmax"),
        ("neural", "quantile", "query-minmax"),
    ],
)
def test_onnx_scores_as_the_ranker(kind, transform, how, rng, tmp_path):
    ranker, rows = made(kind, how, rng, transform=transform)
    if transform == "root":  # which these features would not take
        ranker.preprocessing_ = replace(
            ranker.preprocessing_,
            normalizer=replace(ranker.preprocessing_.normalizer, roots=(2, 1, 3, 0, 1, 5, 0)),
        )
    by_query = how == "query-minmax"
    written = export(ranker, tmp_path / "r.onnx", to="onnx", one_query=by_query)
    session = onnxruntime.InferenceSession(written.path, providers=["CPUExecutionProvider"])
    (scores,) = session.run(["scores"], {"features": rows})
    expected = predict(ranker, rows)
    assert np.abs(scores - expected).max() <= 1e-5 * np.abs(expected).max()
    card = written.card.read_text()
    told = {"log": "log of 1 + size over", "quantile": "quantiles between", "root": "square roots"}
    assert by_query or told[transform] in card


# -- chosen by held-out clicks -------------------------------------------------------------------


def world(seed, *, in_logs):
    """Return log-normal features, relevance linear in their logarithms or as they are, clicks."""
    rng = np.random.default_rng(seed)
    n_queries, n_items, n_features = 150, 10, 4
    z = rng.standard_normal((n_queries * n_items, n_features))
    values = np.exp(2 * z).astype(np.float32)
    weights = rng.uniform(0.5, 1.5, n_features)
    useful = (z if in_logs else values / values.std(axis=0)) @ weights
    order = np.argsort(np.argsort(useful.reshape(n_queries, n_items), axis=1), axis=1)
    labels = np.where(order >= n_items - 2, 4, 0).ravel()
    dataset = RankingDataset.from_arrays(values, labels, np.repeat(np.arange(n_queries), n_items))
    policy = rng.standard_normal(len(values))
    return dataset, simulate_clicks(dataset, policy, 4000, bias=PositionBias(1.0), rng=rng)


@pytest.mark.slow
def test_auto_chooses_what_relevance_is_linear_in():
    """Of five worlds of each kind, at most one is taken for the other, by chance."""
    chosen = {
        in_logs: [
            CounterSampleRanker(feature_transform="auto", steps=2000, random_state=SEED)
            .fit_log(*world(1000 * SEED + k, in_logs=in_logs))
            .path_.transform
            for k in range(5)
        ]
        for in_logs in (True, False)
    }
    assert chosen[True].count(None) <= 1
    assert chosen[False].count(None) >= 4


def test_auto_is_the_ranker_of_the_transform_that_it_chooses(tmp_path):
    dataset, log = world(SEED, in_logs=True)
    auto = CounterSampleRanker(feature_transform="auto", steps=500, random_state=SEED).fit_log(
        dataset, log
    )
    path = auto.path_
    assert path.transforms == CANDIDATES
    assert path.transform is not None
    assert path.sentence.endswith(
        f"Transform: {path.transform}, chosen among none, log, root and quantile."
    )
    assert {c.transform for c in path.candidates if c.share} == {path.transform}
    assert auto.feature_transform_ == path.transform
    named = CounterSampleRanker(feature_transform=path.transform, steps=500, random_state=SEED)
    named.fit_log(dataset, log)
    assert_array_equal(auto.weights_, named.weights_)
    assert auto.preprocessing_.normalizer == named.preprocessing_.normalizer
    assert named.path_.is_shown or not path.is_shown  # more was tried
    auto.save(tmp_path / "ranker.json")
    loaded = load_ranker(tmp_path / "ranker.json")
    assert loaded.feature_transform_ == path.transform
    assert loaded.provenance_["choice"] == path.sentence
    assert_array_equal(loaded.predict(dataset), auto.predict(dataset))


def test_one_standard_error_and_all_that_was_tried(rng):
    dataset, log = world(SEED, in_logs=True)
    held_out = HeldOut(dataset, log, rng=np.random.default_rng(SEED))
    good = held_out.sums([fold.validation.labels for fold in held_out.folds])
    noise = rng.standard_normal(dataset.n_items)
    bad = held_out.sums([noise[: fold.validation.n_items] for fold in held_out.folds])
    turns = np.resize([1.0, -1.0], len(good)) * (np.arange(len(good)) < len(good) // 2 * 2)
    near = good + 0.1 * turns  # here a little more, there a little less
    low = np.array([0.2, 0.3, 0.4])
    for sums, expected in (([near, bad, good], 0), ([bad, near, good], 1), ([bad, bad, good], 2)):
        assert choose_simplest(held_out, sums, low, [None, "log", "root"]) == expected
    assert choose_simplest(held_out, [near, bad, good], low - 0.25, [None, "log", "root"]) == 2
    # Whether the better of two is shown to be better depends on how many were tried.
    others = [
        held_out.sums([rng.standard_normal(f.validation.n_items) for f in held_out.folds])
        for _ in range(200)
    ]
    alone, among = (
        choose_safely(held_out, [others[0]], bad, rejected=beside, safety=0.95,
                     rng=np.random.default_rng(SEED))
        for beside in ((), others[1:])
    )  # fmt: skip
    assert_array_equal(alone.share, among.share)
    assert alone.is_shown >= among.is_shown


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"feature_transform": "auto", "learning_rate": 0.1}, "'auto' with a learning rate"),
        ({"feature_transform": "auto", "normalize": "root-minmax"}, "with feature_transform='auto"),
        ({"feature_transform": "log", "normalize": "root-minmax"}, "with the transform 'log"),
        ({"feature_transform": ["log"]}, r"is \['log'\], expected one of log, root, quantile"),
    ],
)
def test_parameters_that_do_not_fit(params, message):
    with pytest.raises(ParameterError, match=message):
        CounterSampleRanker(**params).fit_log(*tiny())
