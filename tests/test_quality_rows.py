"""The published comparison hands held-out rows to other libraries in an order that tells nothing.

Libraries break ties by the order of the rows. In the order shown, a ranker that knows nothing would
rank as the log did, look good by its clicks, and stop the training of one that has learned.
"""

from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

QUALITY = Path(__file__).resolve().parents[1] / "benchmarks" / "quality"
MANY = 4  # standard errors


@pytest.fixture(scope="module")
def quality():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(QUALITY))
        import libraries
        import worlds

        yield libraries, worlds


@pytest.fixture(scope="module", params=[None, 5], ids=["all shown", "top 5 shown"])
def world(quality, request):
    return quality[1].make("tiny", case=0, gamma=1.0, top=request.param)


class Spy:
    """A library that learns nothing, and remembers the rows it was given."""

    given: ClassVar = []
    trains_in = "shuffled"

    def __init__(self, rows, whole=None, held_out=None, to_score=None):
        self.rows, self.held_out, self.to_score = rows, held_out, to_score
        if whole is not None:
            Spy.given.append(self)

    def begin(self, _growth, _seed):
        return self

    def advance(self):
        pass

    def judged(self):
        return 0.0, np.zeros(len(self.to_score))

    def predict(self, features):
        return np.zeros(len(features))


def surprise(rows):
    """Return how many standard errors the places of rows in their groups go with positions.

    Of a random order Σ (place − mean)(position − mean) has the mean 0, and in a group of n the
    variance (Σ of squares of one)(Σ of squares of the other) / (n − 1).
    """
    total = variance = 0.0
    for start, size in zip(np.cumsum(rows.sizes) - rows.sizes, rows.sizes, strict=True):
        position = rows.position[start : start + size] - rows.position[start : start + size].mean()
        place = np.arange(size) - (size - 1) / 2
        total += place @ position
        variance += (place @ place) * (position @ position) / max(1, size - 1)
    return total / np.sqrt(variance)


@pytest.mark.parametrize("trains_in", ["shown", "shuffled"])
@pytest.mark.parametrize("rows_of", ["clicked_rows", "candidate_rows"])
def test_held_out_rows_tell_nothing_of_their_position(quality, world, trains_in, rows_of):
    Spy.given, Spy.trains_in = [], trains_in
    libraries = quality[0]
    libraries.learn(partial(Spy), world, 0, budget=1.0, rows_of=getattr(libraries, rows_of))
    assert len(Spy.given) >= 2
    for given in Spy.given:
        assert abs(surprise(given.held_out)) < MANY
        # What tells a position must, where the order is asked for, or the test would see nothing.
        assert (surprise(given.rows) > MANY) == (trains_in == "shown")


def test_the_order_shown_can_be_asked_for(quality, world):
    Spy.given, Spy.trains_in = [], "shuffled"
    quality[0].learn(partial(Spy), world, 0, budget=1.0, order="shown")
    for given in Spy.given:
        group_starts = np.cumsum(given.held_out.sizes) - given.held_out.sizes
        rises = np.diff(given.held_out.position) > 0
        rises[group_starts[1:] - 1] = True
        assert rises.all()


def test_every_row_is_held_out_or_learned_from(quality, world):
    Spy.given, Spy.trains_in = [], "shuffled"
    quality[0].learn(partial(Spy), world, 0, budget=1.0)
    for given in Spy.given:
        parts = given.rows, given.held_out
        assert sum(len(part.label) for part in parts) == len(world.shown.query)
        assert sum(part.label.sum() for part in parts) == world.shown.clicks.sum()
        assert all(part.sizes.sum() == len(part.label) for part in parts)


def test_what_was_not_shown_is_there_once_a_policy_and_not_clicked(quality, world):
    everything = np.ones(world.train.n_queries, bool)
    rng = np.random.default_rng(0)
    shown = quality[0].clicked_rows(world, everything, order="shown", rng=rng)
    rows = quality[0].candidate_rows(world, everything, order="shown", rng=rng)
    n_policies = np.bincount(
        np.unique(np.stack([world.shown.query, world.shown.policy]), axis=1)[0]
    )
    assert len(rows.label) == n_policies @ world.train.query_sizes
    assert len(rows.sizes) == len(shown.sizes)
    is_shown = rows.position <= shown.position.max()
    np.testing.assert_array_equal(rows.label[is_shown], shown.label)
    np.testing.assert_array_equal(rows.features[is_shown], shown.features)
    assert not rows.label[~is_shown].any()
