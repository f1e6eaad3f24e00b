"""Features with heavy tails on a root scale: the rule, and that all that scores takes the roots."""

import json
import math
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from conftest import SEED
from hypothesis import given
from hypothesis import strategies as st
from made_rankers import KINDS, on_thresholds, predict, ranker_of, some_scorer
from numpy.testing import assert_allclose, assert_array_equal
from readers_export import elasticsearch_scores, solr_scores
from requirements import need
from scipy.stats import rankdata

from countersample import (
    CounterSampleRanker,
    PositionBias,
    RankingDataset,
    evaluate,
    load_ranker,
    simulate_clicks,
    synthetic,
    train,
)
from countersample.data.columns import ends
from countersample.data.compact import CompactFeatures
from countersample.data.heavy_tails import MOST_ROOTS, SHARE, choose_roots, rooted, unrooted
from countersample.data.normalize import Normalizer
from countersample.errors import DataError, ParameterError
from countersample.evaluation import estimate
from countersample.export import export
from countersample.rankers.loading import load_scorer

BITS = (8, 16)


@pytest.fixture(scope="module")
def data():
    """Five features, two of them with tails of Pareto's kind: one above, one on both sides."""
    made = synthetic("tiny", n_queries=300, rng=SEED)
    values = made.features.astype(np.float64)
    p = (rankdata(values, axis=0, method="ordinal") - 0.5) / len(values)
    values[:, 1] = (1 - p[:, 1]) ** -1.5
    values[:, 3] = (1 - p[:, 3]) ** -1.2 - p[:, 3] ** -1.2
    return made.with_features(values.astype(np.float32))


@pytest.fixture(scope="module")
def log(data):
    return simulate_clicks(data, data.features[:, 0], 5000, bias=PositionBias(1.0), rng=SEED)


@pytest.fixture(scope="module")
def normalizer(data):
    return Normalizer.fit(data, "root-minmax")


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
    """The fewest that leave at most SHARE; else all, if they halve it; else none."""
    for times in range(MOST_ROOTS + 1):
        if share_of(column, times) <= SHARE:
            return times
    return MOST_ROOTS if share_of(column, MOST_ROOTS) <= share_of(column, 0) / 2 else 0


# -- the scale -----------------------------------------------------------------------------------


@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=6),
    st.data(),
)
def test_roots_equal_their_twin_and_go_back(values, drawn):
    times = drawn.draw(st.lists(st.integers(0, MOST_ROOTS), min_size=len(values),
                                max_size=len(values)))  # fmt: skip
    found = rooted([values, values], times)
    assert_array_equal(found, [[root_of(*each) for each in zip(values, times, strict=True)]] * 2)
    assert_allclose(unrooted(found, times), [values, values], rtol=1e-14)
    assert_array_equal(rooted(values, times), found[0])


def test_nothing_stays_nothing_and_what_is_missing_stays_missing():
    assert_array_equal(rooted([0.0, -0.0, np.nan, np.inf], [3] * 4), [0, 0, np.nan, np.inf])


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


def test_without_heavy_tails_it_is_minmax():
    data = synthetic("tiny", rng=SEED)
    by_root, plain = Normalizer.fit(data, "root-minmax"), Normalizer.fit(data, "minmax")
    assert by_root == replace(plain, how="root-minmax")
    assert_array_equal(by_root.foldable_scale(), plain.foldable_scale())


def test_minmax_of_roots(data, normalizer):
    assert normalizer.roots[1] >= 1
    assert normalizer.roots[3] >= 1
    assert normalizer.roots[0] == normalizer.roots[2] == normalizer.roots[4] == 0
    found = normalizer(data).features
    assert_allclose(found.min(axis=0), 0, atol=1e-7)
    assert_allclose(found.max(axis=0), 1, rtol=1e-6)
    for column, times in enumerate(normalizer.roots):
        roots = np.array([root_of(x, times) for x in data.features[:, column].tolist()])
        expected = (roots - roots.min()) / (roots.max() - roots.min())
        assert_allclose(found[:, column], expected, atol=1e-6)
        assert_array_equal(  # the order of values is kept
            np.argsort(data.features[:, column], kind="stable"), np.argsort(roots, kind="stable")
        )


# -- a value that is kept ------------------------------------------------------------------------


def test_round_trip_through_json_is_exact(data, normalizer):
    saved = json.loads(json.dumps(normalizer.to_dict()))
    again = Normalizer.from_dict(saved)
    assert again == normalizer
    assert again(data) == normalizer(data)


@pytest.mark.parametrize("roots", [
    [], [0, 1], [0, 0], "01", [0, 1, 6], [0, -1, 0], [0, 1.0, 0], [True, 0, 0], [0, 0, 0],
    [0, float("nan"), 0], [10**9, 0, 0], {"0": 1},
])  # fmt: skip
def test_roots_that_are_none(roots):
    saved = Normalizer("root-minmax", 3, (0.0,) * 3, (1.0,) * 3, (0, 1, 3)).to_dict()
    assert Normalizer.from_dict(saved).roots == (0, 1, 3)
    with pytest.raises(DataError, match=r"roots.* of a saved normalizer is .*, expected "):
        Normalizer.from_dict(saved | {"roots": roots})


# -- codes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", BITS)
def test_codes_are_even_on_the_root_scale(data, normalizer, bits):
    codes = data.compact(bits, roots=True).features
    assert codes.roots == normalizer.roots
    for column, times in enumerate(codes.roots):
        roots = np.array([root_of(x, times) for x in data.features[:, column].tolist()])
        step = (roots.max() - roots.min()) / (2**bits - 1)
        expected = np.rint((roots - roots.min()) / step)
        assert np.abs(codes.codes[:, column] - expected).max() <= 1  # ties of rounding
        values = roots.min() + step * codes.codes[:, column]
        assert_allclose(codes[:, column], values * np.abs(values) ** (2**times - 1), rtol=1e-5,
                        atol=1e-5)  # fmt: skip
    assert_allclose(ends(codes), ends(data.features), rtol=1e-6, atol=1e-6)
    assert_array_equal(codes.take([3, 1])[:], codes[[3, 1]])
    some = codes.select([3, 0])
    assert_array_equal(some[:], codes[:][:, [3, 0]])
    assert some.roots == (codes.roots[3], 0)
    weights = np.array([[1.0, 0.0, 2.0, 0.0, -1.0], [0.5, 1e-4, 0.0, 1e-3, 0.0]])
    expected = weights @ codes[:].T.astype(np.float64)
    assert_allclose(codes.scores(weights), expected, rtol=1e-4, atol=1e-4)
    assert codes.take(np.zeros(0, int)).scores(weights).shape == (2, 0)


def test_what_is_lost_is_told_for_each_feature(data):
    plain, on_roots = data.compact_report(8), data.compact_report(8, roots=True)
    assert plain.roots == (0,) * 5
    assert plain.roots_taken is None
    assert plain.heavy == (1, 3)
    for report in (plain, on_roots):
        for column, times in enumerate(report.roots):
            expected = share_of(data.features[:, column], times)
            assert report.share[column] == pytest.approx(expected, rel=1e-4)
    assert plain.sentence.endswith(
        "of 2 with heavy tails (f2, f4) by more than 0.05: take 16 bits, or a root scale "
        "(roots=True, --roots)."
    )
    assert on_roots.heavy == ()
    assert on_roots.sentence.startswith("8 bits a feature (2 of them on a root scale): no value is")
    assert data.compact("auto").bits == 16
    made = data.compact("auto", roots=True)
    assert made.bits == 8
    told = made.compact_report(8)
    assert told.roots == on_roots.roots
    assert_allclose(told.share, on_roots.share, rtol=0.01)


def test_a_root_that_is_not_enough_is_told_so():
    values = np.zeros((3000, 1), np.float32)
    values[:2, 0] = 1, 2  # rare
    data = RankingDataset.from_arrays(values, np.zeros(3000), np.arange(3000) // 10)
    report = data.compact_report(8, roots=True)
    assert report.heavy == (0,)
    assert report.roots == (0,)
    assert report.sentence.endswith(": take 16 bits.")
    assert data.compact(8, roots=True).features.roots is None


@pytest.mark.parametrize("bits", BITS)
def test_codes_on_a_root_scale_are_kept_in_folders(data, bits, tmp_path):
    compact = data.compact(bits, roots=True)
    compact.save(tmp_path / "folder")
    opened = RankingDataset.open(tmp_path / "folder")
    assert opened == compact
    assert opened != data.compact(bits)
    assert all(type(times) is int for times in opened.features.roots)
    assert opened.fingerprint == data.fingerprint
    assert opened.content_hash() == compact.content_hash()
    plain = RankingDataset(compact.features.linear, data.labels, data.offsets, data.query_ids)
    assert plain.content_hash() != compact.content_hash()
    assert plain != compact.with_features(compact.features)
    for bad in (1.5, np.nan, 6, -1):
        kept = np.load(tmp_path / "folder" / "codes.npy")
        kept[2, 0] = bad
        np.save(tmp_path / "folder" / "codes.npy", kept)
        with pytest.raises(DataError, match=r"damaged dataset folder .*roots of codes are"):
            RankingDataset.open(tmp_path / "folder")


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("how", ["minmax", "standard", "query-minmax", "root-minmax"])
@pytest.mark.parametrize("roots", [True, False])
def test_normalised_codes_are_codes_on_any_scale(data, how, bits, roots):
    """The same codes where both take the same roots, else new ones of as many bits."""
    compact = data.compact(bits, roots=roots)
    normalizer = Normalizer.fit(compact, how)
    found = normalizer(compact)
    assert found.bits == bits
    assert found.features.roots is None
    numbers = data.with_features(compact.features[:])
    expected = normalizer(numbers).features
    step = 1.01 / 2 ** (bits + 1) * np.ptp(expected, axis=0).max()
    assert_allclose(found.features[:], expected, atol=step + 1e-5)
    same = how == "root-minmax" and roots
    assert (normalizer.foldable_scale(compact.features) is not None) == (
        same or (how in {"minmax", "standard"} and not roots)
    )
    if same:
        assert found.features.codes is compact.features.codes


# -- rankers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [None, *BITS])
def test_a_saved_ranker_scores_raw_features_as_trained(data, log, bits, tmp_path):
    trained_on = data if bits is None else data.compact(bits, roots=True)
    ranker = CounterSampleRanker(
        normalize="root-minmax", learning_rate=0.01, steps=2000, random_state=SEED
    ).fit_log(trained_on, log)
    plain = CounterSampleRanker(
        normalize="root-minmax", learning_rate=0.01, steps=2000, random_state=SEED
    ).fit_log(data, log)
    assert ranker.normalizer_.roots == plain.normalizer_.roots
    size = np.abs(plain.weights_).max()
    assert_allclose(ranker.weights_, plain.weights_, atol=0.02 * size)
    raw = data.features
    times = ranker.normalizer_.roots
    roots = np.array([[root_of(*each) for each in zip(row, times, strict=True)]
                      for row in raw.tolist()])  # fmt: skip
    expected = (roots - ranker.normalizer_.shift) / ranker.normalizer_.scale @ ranker.weights_
    assert_allclose(ranker.predict(data), expected, atol=1e-5 * np.abs(expected).max())
    ranker.save(tmp_path / "ranker.json")
    for again in (load_ranker(tmp_path / "ranker.json"), load_scorer(tmp_path / "ranker.json")):
        assert_array_equal(again.predict(data), ranker.predict(data))
        assert_array_equal(again.rank(data), ranker.rank(data))
    coded = data.compact(bits or 8, roots=True)
    step = 1 / 2 ** (bits or 8)
    assert np.abs(ranker.predict(coded) - expected).max() <= step * np.abs(ranker.weights_).sum()


def test_the_default_path_trains_on_codes_as_they_are(data, log):
    """From what was served, judged by held-out clicks: as good as on numbers."""
    found = []
    for each in (data, data.compact(8, roots=True)):
        ranker = CounterSampleRanker(normalize="root-minmax", random_state=SEED).fit_log(each, log)
        found.append(evaluate(ranker, data, "ndcg@10")["ndcg@10"])
        estimate(ranker, log, each, rng=SEED)
    assert found[1] == pytest.approx(found[0], abs=0.02)


def test_other_normalisations_and_trees_take_codes_on_a_root_scale(data, log):
    compact = data.compact(16, roots=True)
    ranker = CounterSampleRanker(learning_rate=0.01, steps=500, random_state=SEED)
    weights = [ranker.fit_log(each, log).weights_.copy() for each in (compact, data)]
    assert_allclose(*weights, atol=0.02 * np.abs(weights[1]).max())
    need("lightgbm")
    from countersample import gbdt

    trees = gbdt.GBDTRanker(n_trees=3, patience=None, random_state=SEED,
                            backend_params={"num_threads": 1}).fit_log(compact, log)  # fmt: skip
    assert_allclose(trees.predict(compact), trees.predict(compact.features[:]), rtol=1e-5)


def test_scores_that_are_not_linear_in_codes_are_refused(data, log):
    compact = data.compact(8, roots=True)
    for steps in (
        lambda: train(compact, log, learning_rate=0.01, steps=10),
        lambda: CounterSampleRanker(normalize=None, learning_rate=0.01, steps=10).fit_log(
            compact, log
        ),
    ):
        with pytest.raises(DataError, match=r"are codes on a root scale.*'root-minmax'"):
            steps()
    train(compact.normalized("root-minmax"), log.detached(), learning_rate=0.01, steps=10)


def test_codes_with_bad_roots():
    codes = np.zeros((2, 2), np.uint8)
    for roots in ((1,), (0, 6), (0, 1.5)):
        with pytest.raises(DataError, match=r"roots of codes are .*expected 2 whole numbers of 0"):
            CompactFeatures(codes, np.ones(2), np.ones(2), roots)


# -- exports -------------------------------------------------------------------------------------


def made(kind, data, normalizer, rng):
    """Return a ranker of this kind that nobody trained, and raw rows within and around training."""
    scorer = some_scorer(kind, rng, normalizer(data).features)
    names = tuple(f"feature {index}" for index in range(data.n_features))
    ranker = ranker_of(kind, scorer, names=names, normalizer=normalizer)
    rows = np.concatenate([data.features[:200], -3 * data.features[:50], np.zeros((1, 5))])
    rows = rows.astype(np.float32)
    return ranker, np.concatenate(
        [rows, on_thresholds(ranker, rows)] if kind == "boosted" else [rows]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_onnx_scores_as_the_ranker(kind, data, normalizer, rng, tmp_path):
    ranker, rows = made(kind, data, normalizer, rng)
    written = export(ranker, tmp_path / "r.onnx", to="onnx")
    assert "gives the ranker's scores on 64 rows" in written.card.read_text()
    session = onnxruntime.InferenceSession(written.path, providers=["CPUExecutionProvider"])
    (scores,) = session.run(["scores"], {"features": rows})
    expected = predict(ranker, rows)
    assert np.abs(scores - expected).max() <= 1e-5 * np.abs(expected).max()
    card = written.card.read_text()
    assert "| square roots |" in card
    assert f"| 1 | feature 1 | {normalizer.roots[1]} |" in card


@pytest.mark.parametrize(
    ("to", "read"),
    [("elasticsearch", elasticsearch_scores), ("opensearch", elasticsearch_scores),
     ("solr", solr_scores)],
)  # fmt: skip
def test_engines_take_trees_and_refuse_what_they_cannot_express(
    to, read, data, normalizer, rng, tmp_path
):
    ranker, rows = made("boosted", data, normalizer, rng)
    names = list(ranker.feature_names_in_)
    found = read(export(ranker, tmp_path / "r.json", to=to).path, names, rows)
    expected = predict(ranker, rows)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    for kind in ("linear", "neural") if to == "solr" else ("linear",):
        ranker, _ = made(kind, data, normalizer, rng)
        with pytest.raises(ParameterError) as error:
            export(ranker, tmp_path / "new.json", to=to)
        assert str(error.value).endswith(
            " cannot take the square roots that this ranker takes of feature 'feature 1' and 1 "
            "more (root-minmax): export to ONNX (--to onnx) or SQL (--to sql), or take them in "
            "your own pipeline and train on that with normalize='minmax', or train with "
            "normalize='minmax' or 'standard' and feature_transform=None"
        )
        assert not (tmp_path / "new.json").exists()


@pytest.mark.parametrize("to", ["elasticsearch", "solr"])
def test_without_roots_engines_take_it_as_minmax(to, tmp_path):
    data = synthetic("tiny", rng=SEED)
    content = []
    for how in ("minmax", "root-minmax"):
        normalizer = Normalizer.fit(data, how)
        ranker, _ = made("linear", data, normalizer, np.random.default_rng(SEED))
        content.append(export(ranker, tmp_path / "r.json", to=to).path.read_bytes())
    assert content[0] == content[1]


# -- the command line ----------------------------------------------------------------------------


def test_on_the_command_line(data, log, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data.save("numbers")
    log.save("log.parquet")
    printed = run("data", "info", "numbers")
    assert "2 with heavy tails (f2, f4)" in " ".join(printed.split())
    assert "Take the roots with train --normalize root-minmax" in printed
    told = json.loads(run("data", "info", "numbers", "--json"))["numbers"]["compact"]
    assert [report["bits"] for report in told] == [8, 8]
    assert told[1]["roots"] == list(Normalizer.fit(data, "root-minmax").roots)
    assert len(told[0]["share"]) == data.n_features
    printed = run("data", "convert", "numbers", "codes", "--bits", "8", "--roots")
    assert "(2 of them on a root scale)" in " ".join(printed.split())
    assert "countersample train --normalize root-minmax" in printed
    assert "(2 of them on a root scale)" in " ".join(run("data", "info", "codes").split())
    quick = [
        "--no-evaluation",
        "--normalize",
        "root-minmax",
        "--steps",
        "500",
        "--learning-rate",
        "0.01",
    ]
    for source, more in (("codes", []), ("numbers", ["--bits", "8"])):
        run("train", source, "log.parquet", "-o", f"{source}.json", *quick, *more)
        run("evaluate", f"{source}.json", "numbers")
    assert_array_equal(load_ranker("codes.json").weights_, load_ranker("numbers.json").weights_)
    assert load_ranker("codes.json").normalizer_.roots is not None
    assert "--roots is given without --bits, expected both" in run(
        "data", "convert", "numbers", "more", "--roots", fails=True
    )
