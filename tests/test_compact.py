"""Features in 8 and 16 bits: what they are, and that everything that reads features reads them."""

import numpy as np
import pytest
from conftest import SEED
from numpy.testing import assert_allclose, assert_array_equal

from countersample import (
    CounterSampleRanker,
    PositionBias,
    RankingDataset,
    evaluate,
    simulate_clicks,
    synthetic,
    train,
)
from countersample.clicks.log import only_shown
from countersample.data.compact import HEAVY_SHARE, CompactFeatures, compact_report, linear_scores
from countersample.data.preprocessing import Normalizer
from countersample.errors import DataError, ParameterError
from countersample.evaluation import learning_curve

BITS = (8, 16)


@pytest.fixture(scope="module")
def data():
    return synthetic("tiny", n_queries=200, rng=SEED)


@pytest.fixture(scope="module")
def log(data):
    return simulate_clicks(data, data.features[:, 0], 5000, bias=PositionBias(1.0), rng=SEED)


def twin(features, bits):
    """Codes and what they stand for, feature by feature."""
    codes, numbers = np.zeros(features.shape, int), np.zeros(features.shape)
    for k, column in enumerate(features.T.astype(float)):
        step = (column.max() - column.min()) / (2**bits - 1)
        if step > 0:
            codes[:, k] = np.rint((column - column.min()) / step)
        numbers[:, k] = column.min() + step * codes[:, k]
    return codes, numbers


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("n_items", [1, 7, 3000])
def test_codes_are_those_of_the_twin(bits, n_items, rng):
    features = rng.normal(size=(n_items, 130)).astype(np.float32)
    features[:, 3] = 7.5
    features[:, 4] *= 1e6
    compact = CompactFeatures.of(features, bits=bits)
    codes, numbers = twin(features, bits)
    assert np.abs(compact.codes.astype(int) - codes).max() <= 1  # ties of rounding
    assert_allclose(compact[:], compact.offset + compact.codes * compact.scale, rtol=1e-6)
    assert (np.abs(compact[:] - features) <= 0.5001 * compact.scale + 1e-6 * abs(features)).all()
    assert_allclose(numbers[:, 3], 7.5)
    assert_array_equal(np.asarray(compact), compact[:])
    assert_array_equal(compact[[0, -1]], compact[:][[0, -1]])
    assert_array_equal(compact[:, 4], compact[:][:, 4])
    assert compact[0, 4] == compact[:][0, 4]
    weights = rng.normal(size=(3, 130))
    expected = weights @ (compact.offset + compact.codes * compact.scale).T
    for result in (
        compact.scores(weights),
        linear_scores(weights, compact),
        (compact @ weights.T).T,
    ):
        assert_allclose(result, expected, rtol=1e-4, atol=1e-4 * abs(expected).max())
    assert_allclose(compact @ weights[0], expected[0], rtol=1e-4, atol=1e-4 * abs(expected).max())


def test_auto_takes_as_many_bits_as_long_tails_need(rng):
    even, heavy = rng.random((2000, 1)), rng.random((2000, 1)) ** -1.5
    for column, bits in ((even, 8), (heavy, 16)):
        dataset = RankingDataset.from_arrays(column, np.zeros(2000), np.arange(2000) // 10)
        report = dataset.compact_report("auto")
        assert report.bits == dataset.compact("auto").bits == bits
    by_8 = compact_report(heavy.astype(np.float32), ("length",), 8)
    assert by_8.worst > HEAVY_SHARE
    assert "with heavy tails (length)" in by_8.sentence
    assert ": use 16 bits, or square roots" in by_8.sentence
    assert by_8.error[0] == pytest.approx((heavy.max() - heavy.min()) / 255 / 2, rel=1e-6)
    assert by_8.share[0] == pytest.approx(by_8.error[0] / heavy.std(), rel=1e-4)
    assert by_8.to_frame("pyarrow").column_names == ["feature", "error", "share"]


@pytest.mark.parametrize("bits", [4, 32, True, "8", None])
def test_bits_that_there_are_not(data, bits):
    with pytest.raises(ParameterError, match=r"bits is .*, expected 8, 16 or 'auto'"):
        data.compact(bits)


def test_what_is_refused(data):
    with pytest.raises(DataError, match="has 8 bits a feature already"):
        data.compact(8).compact(16)
    with pytest.raises(DataError, match="column 0 of the features has a value that is not finite"):
        CompactFeatures.of(np.array([[np.inf], [1.0]], np.float32), bits=8)
    with pytest.raises(DataError, match=r"column 1 of the features is missing \(NaN\)"):
        CompactFeatures.of(np.array([[2.0, np.nan], [1.0, 1.0]], np.float32), bits=8)
    good = data.compact(8).features
    for changed in (
        (good.codes.astype(np.int32), good.scale, good.offset),
        (good.codes[:, ::2], good.scale[::2], good.offset[::2]),
        (good.codes, good.scale[:-1], good.offset),
        (good.codes, good.scale * np.nan, good.offset),
    ):
        with pytest.raises(DataError, match="codes"):
            CompactFeatures(*changed)


@pytest.mark.parametrize("bits", BITS)
def test_parts_and_variants_stay_compact(data, log, bits, tmp_path):
    compact = data.compact(bits)
    assert f"bits={bits})" in repr(compact)
    assert compact == data.compact(bits) != data
    queries = [3, 1, 7]
    part = compact.subset(queries)
    assert part.bits == bits
    assert_array_equal(part.features[:], compact.features[:][part_rows(data, queries)])
    some = compact.select_features(["f4", "f2"])
    assert some.bits == bits
    assert_array_equal(some.features[:], compact.features[:][:, [3, 1]])
    compact.save(tmp_path / "folder")
    opened = RankingDataset.open(tmp_path / "folder")
    assert opened == compact
    assert isinstance(opened.features.codes, np.memmap)
    assert opened.fingerprint == compact.fingerprint == data.fingerprint
    assert_allclose(compact.describe().feature_max, data.describe().feature_max, rtol=1e-6)
    shown = log.replace(impressions=np.ones(log.n_rows, int)).of_queries([0, 5])
    assert only_shown(compact, shown)[0].bits == bits


def part_rows(data, queries):
    return np.concatenate([np.arange(data.offsets[q], data.offsets[q + 1]) for q in queries])


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("how", ["minmax", "standard", "query-minmax"])
def test_normalised_codes_are_codes(data, how, bits):
    compact = data.compact(bits)
    result = Normalizer.fit(compact, how)(compact)
    assert result.bits == bits
    numbers = data.with_features(compact.features[:])
    expected = Normalizer.fit(numbers, how)(numbers).features
    assert_allclose(result.features[:], expected, atol=1.01 / 2 ** (bits + 1) + 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("settings", [
    {}, {"unit": "query", "optimizer": "adam"},
    {"unit": "pair", "objective": "dcg", "batch_size": 5},
    {"optimizer": "dog", "scale": [1, 2, 3, 4, 5]},
])  # fmt: skip
def test_training_on_codes_is_training_on_what_they_stand_for(data, log, bits, settings):
    """The same steps, up to rounding: an offset changes no gradient."""
    compact = data.compact(bits)
    numbers = data.with_features(compact.features[:])
    rate = None if settings.get("optimizer") == "dog" else 1e-3
    a, b = (
        train(each, log.detached(), learning_rate=rate, steps=300, rng=SEED, **settings)
        for each in (compact, numbers)
    )
    assert_allclose(a.weights, b.weights, rtol=2e-3, atol=2e-3 * np.abs(b.weights).max())


@pytest.mark.slow
@pytest.mark.parametrize("bits", BITS)
def test_a_ranker_from_codes_scores_features_as_they_are(data, log, bits):
    compact = data.compact(bits)
    ranker = CounterSampleRanker(random_state=SEED).fit_log(compact, log)
    plain = CounterSampleRanker(random_state=SEED).fit_log(data, log)
    result, expected = (evaluate(each, data, "ndcg@10")["ndcg@10"] for each in (ranker, plain))
    assert result == pytest.approx(expected, abs=0.02)
    assert_allclose(ranker.predict(compact), ranker.predict(compact.features[:]), atol=1e-4)
    curve = learning_curve(np.array([ranker.weights_, -ranker.weights_]), compact, "ndcg@10")
    assert curve[0] > curve[1]
