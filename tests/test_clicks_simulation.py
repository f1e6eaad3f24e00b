"""Simulated users: kernels equal to their twins, samples that follow their closed forms."""

from functools import partial

import numpy as np
import pytest
import twins_clicks as twins
from chances import check_cells
from conftest import SEED

from countersample._kernels import clicks as kernels
from countersample._kernels.clicks import source_of
from countersample.clicks import (
    CLICK_MODELS,
    DynamicBayesian,
    PositionBased,
    PositionBias,
    TableBias,
    simulate_clicks,
    simulate_impressions,
)
from countersample.clicks.models import Steps
from countersample.data import RankingDataset, synthetic
from countersample.errors import DataError, ParameterError
from countersample.metrics import item_ranks

SIZES = [1, 2, 5, 12, 30]
SETTING = {"bias": PositionBias(gamma=0.7, offset=1), "relevant": 3, "noise": 0.2}


@pytest.fixture(scope="module")
def data():
    """Queries of different sizes with grades 0..4 all over."""
    grades = [(3 * i + q) % 5 for q, size in enumerate(SIZES) for i in range(size)]
    qid = [f"q{q}" for q, size in enumerate(SIZES) for _ in range(size)]
    return RankingDataset.from_arrays(X=np.zeros((sum(SIZES), 1)), y=grades, qid=qid)


def ranked_rows(data, scores):
    """The rows of each query: largest score first, ties in the order of the file."""
    return [
        sorted(range(start, end), key=lambda row: -scores[row])
        for start, end in twins.pairwise(data.offsets)
    ]


def closed_forms(data, scores, click_model):
    """Propensity and probability of a click of each row, by the formulas of the twins."""
    propensity, click = np.empty(data.n_items), np.empty(data.n_items)
    setting = SETTING | {"bias": lambda rank: (rank + 1) ** -0.7}
    for rows in ranked_rows(data, scores):
        labels = data.labels[rows]
        propensity[rows] = twins.propensities(click_model, labels, **setting)
        attract = twins.attraction(click_model, labels, relevant=3, noise=0.2)
        click[rows] = propensity[rows] * attract
    return propensity, click


# -- kernels and their twins ---------------------------------------------------------------------


def random_walks(rng):
    """Lists of random lengths, with probabilities that are often exactly 0 or 1."""
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 40, size=rng.integers(1, 20)))])
    values = rng.uniform(-0.3, 1.3, size=(3, offsets[-1])).clip(0, 1)
    values[0] **= rng.integers(1, 6)
    values[0, 0] = 1.0  # some item must be clicked, or clicks_until never ends
    return offsets, *values


def test_reach_is_its_twin(rng):
    walks = random_walks(rng)
    reached = np.empty(walks[0][-1])
    kernels.reach(*walks, reached)
    np.testing.assert_allclose(reached, twins.reach(*walks), rtol=1e-12)


@pytest.mark.parametrize("repeat", range(6))
def test_clicks_are_those_of_the_twins(repeat):
    walks = random_walks(np.random.default_rng([SEED, repeat]))

    def twice():
        """Return two generators with the same numbers: for the kernel and for its twin."""
        return (np.random.default_rng([SEED, repeat, 1]) for _ in range(2))

    queries, rows = np.empty(300, np.int32), np.empty(300, np.int64)
    one, other = twice()
    kernels.clicks_until(source_of(one), *walks, queries, rows)
    assert (queries.tolist(), rows.tolist()) == twins.clicks_until(other, *walks, 300)
    sessions = np.arange(200) % (len(walks[0]) - 1)
    click = np.zeros(np.diff(walks[0])[sessions].sum(), np.int8)
    one, other = twice()
    kernels.clicks_shown(source_of(one), *walks, sessions, click)
    assert click.tolist() == twins.clicks_shown(other, *walks, sessions)


# -- every click model against its closed form ----------------------------------------------------


@pytest.mark.parametrize("click_model", CLICK_MODELS)
def test_closed_forms(click_model):
    labels = [0, 4, 2, 3, 0, 1] * 5
    model = CLICK_MODELS[click_model](**SETTING)
    setting = SETTING | {"bias": lambda rank: (rank + 1) ** -0.7}
    propensity = np.array(twins.propensities(click_model, labels, **setting))
    attract = twins.attraction(click_model, labels, relevant=3, noise=0.2)
    np.testing.assert_allclose(model.propensities(labels), propensity, rtol=1e-12)
    np.testing.assert_allclose(model.click_probabilities(labels), propensity * attract, rtol=1e-12)


@pytest.mark.parametrize("click_model", CLICK_MODELS)
def test_clicks_follow_the_closed_form(data, rng, click_model):
    """Each item against the most clicked one of another query.

    A session has a click on at most one of the two, so of the clicks on either, in the order of
    the log, each is on the item with probability p/(p + p'): the first n are n throws of a coin.
    """
    scores = rng.integers(6, size=data.n_items)
    propensity, chance = closed_forms(data, scores, click_model)
    log = simulate_clicks(data, scores, 200_000, **SETTING, click_model=click_model, rng=rng)
    assert len(log) == 200_000
    row = data.offsets[log.query] + log.item
    np.testing.assert_allclose(log.propensity, propensity[row], rtol=1e-12)
    query = np.repeat(np.arange(len(SIZES)), SIZES)
    share = chance / chance.sum()
    cells = {}
    for item in range(data.n_items):
        other = int(np.argmax(np.where(query == query[item], -1, chance)))
        n = int(len(log) * (share[item] + share[other]) / 2)  # half of what is to be expected
        either = row[(row == item) | (row == other)][:n]
        assert len(either) == n
        p = chance[item] / (chance[item] + chance[other])
        cells[item] = (int((either == item).sum()), n, p)
    check_cells(cells)


@pytest.mark.parametrize("click_model", CLICK_MODELS)
def test_whole_sessions_follow_the_model(rng, click_model):
    """Which items are clicked together: all 16 patterns of clicks on a list of four."""
    labels = [1, 3, 0, 4]
    data = RankingDataset.from_arrays(X=np.zeros((4, 1)), y=labels, qid=[7] * 4)
    n = 50_000
    table = simulate_impressions(data, np.zeros(4), n, **SETTING, click_model=click_model, rng=rng)
    seen, counts = np.unique(table["click"].to_numpy().reshape(n, 4), axis=0, return_counts=True)
    counts = dict(zip(map(tuple, seen.tolist()), counts.tolist(), strict=True))
    steps = CLICK_MODELS[click_model](**SETTING).steps(data.labels, np.arange(1, 5))
    expected = twins.patterns(steps)
    assert sum(expected.values()) == pytest.approx(1)
    check_cells({pattern: (counts.get(pattern, 0), n, p) for pattern, p in expected.items()})


# -- the log -------------------------------------------------------------------------------------


def test_same_seed_same_bytes():
    data = synthetic("tiny", rng=0)
    scores = data.features[:, 0]
    one, two = (simulate_clicks(data, scores, n, rng=SEED) for n in (5000, 1000))
    for column in ("query", "item", "propensity"):  # a longer log starts with the shorter one
        assert getattr(one.take(slice(1000)), column).tobytes() == getattr(two, column).tobytes()
    other = simulate_clicks(data, scores, 5000, rng=SEED + 1)
    assert one.query.tobytes() != other.query.tobytes()
    assert (one.fingerprint, one.n_clicks) == (data.fingerprint, 5000)
    tables = [simulate_impressions(data, scores, 100, rng=SEED) for _ in range(2)]
    assert tables[0].equals(tables[1])


def test_ties_rank_in_the_order_of_the_file():
    data = RankingDataset.from_arrays(X=np.zeros((3, 1)), y=[4, 4, 4], qid=[1, 1, 1])
    table = simulate_impressions(data, [0.5, 0.7, 0.5], 1, rng=SEED)
    assert table["item_id"].to_pylist() == [1, 0, 2]
    infinite = simulate_impressions(data, [-np.inf, np.inf, 0], 1, rng=SEED)
    assert infinite["item_id"].to_pylist() == [1, 2, 0]


def test_a_label_that_float32_rounds_is_still_relevant():
    data = RankingDataset.from_arrays(X=[[0.0]], y=[0.7], qid=[1])
    assert len(simulate_clicks(data, [0.0], 3, relevant=0.7, noise=0, rng=SEED)) == 3


def test_a_click_model_of_the_user():
    class OnlyTheFirst(PositionBased):
        def steps(self, labels, ranks):
            on = np.ones(len(labels))
            return Steps(examine=1.0 * (ranks == 1), attract=on, after_click=on, after_skip=on)

    data = synthetic("tiny", rng=0)
    log = simulate_clicks(data, -np.arange(data.n_items), 500, click_model=OnlyTheFirst, rng=SEED)
    assert set(log.item.tolist()) == {0}
    hasty = partial(DynamicBayesian, continuation=0)
    log = simulate_clicks(data, -np.arange(data.n_items), 500, click_model=hasty, rng=SEED)
    assert set(log.item.tolist()) == {0}
    assert log.max_weight == 1


# -- impressions ---------------------------------------------------------------------------------


def test_impressions_have_every_item_shown(data):
    table = simulate_impressions(data, -np.arange(data.n_items), 300, top=10, rng=SEED)
    assert table.column_names == ["session", "query_id", "item_id", "position", "click"]
    frame = table.to_pandas()
    assert frame["session"].nunique() == 300
    for _, session in frame.groupby("session"):
        (query_id,) = session["query_id"].unique()
        n_shown = min(10, SIZES[int(query_id[1:])])
        assert session["position"].tolist() == list(range(1, n_shown + 1))
        assert session["item_id"].tolist() == list(range(n_shown))
    assert set(frame["click"]) == {0, 1}
    assert (frame.groupby("session")["click"].sum() == 0).any()  # some have no click


# -- errors --------------------------------------------------------------------------------------


class Doubled:
    def propensity(self, ranks):
        return 2.0 / np.asarray(ranks)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": np.zeros(3)}, r"scores have shape \(3,\), expected \(50,\): one per item"),
        ({"policy": None}, "scores are of type object, .* or a ranker with a predict method"),
        ({"policy": [0.0] * 10 + [np.nan] * 40}, r"NaN at row 10 \(query 3, both counted from 0\)"),
        ({"noise": 1.5}, "noise is 1.5, expected a number of at least 0 and at most 1"),
        ({"relevant": np.nan}, "relevant is nan, expected a number"),
        ({"click_model": "human"}, "click_model is 'human', expected 'position-based', 'perfect'"),
        ({"click_model": partial(DynamicBayesian, continuation=2)}, "continuation is 2"),
        ({"bias": Doubled()}, "the bias gives 2.0 at rank 1, expected a probability"),
        ({"top": 0}, "top is 0, expected None or a whole number"),
    ],
)
def test_bad_options(data, options, message):
    options = {"policy": np.zeros(data.n_items)} | options
    for simulate in (simulate_clicks, simulate_impressions):
        with pytest.raises((DataError, ParameterError), match=message):
            simulate(data, **options)
        with pytest.raises(ParameterError, match=r"n_\w+ is 0, expected a whole number of at"):
            simulate(data, options["policy"], 0)


@pytest.mark.parametrize("options", [{"noise": 0, "relevant": 5}, {"bias": TableBias([1e-300])}])
def test_a_world_without_clicks_is_rejected(data, options):
    with pytest.raises(DataError, match=r"clicks .* times per session on average, expected at"):
        simulate_clicks(data, np.zeros(data.n_items), **options)
    with pytest.raises(DataError, match="the dataset has no queries"):
        simulate_impressions(data.subset([]), [])


def test_clicks_say_where_they_were_shown():
    data = synthetic("tiny", rng=SEED)
    scores, bias = data.features[:, 0], PositionBias(1.0)
    ranks = item_ranks(scores, data)
    plain = simulate_clicks(data, scores, 500, relevant=1, bias=bias, rng=SEED)
    assert (plain.position == ranks[data.offsets[plain.query] + plain.item]).all()
    both = {"a": scores, "b": -scores}
    mixed = simulate_clicks(data, both, 500, relevant=1, bias=bias, rng=SEED)
    assert mixed.examination == pytest.approx(bias.propensity(mixed.position))
