"""Never worse than what was logged: what held-out clicks have to show before it is replaced.

Of candidate c, held-out clicks give the gain d_c over what was logged and its standard error e_c.
At a confidence whose normal quantile is z, clicks show that c is better where d_c − z·e_c > 0, and
the candidate to take is the one for which this lower end is highest: of two that look equally good
the one that changes less of what was shown, of which clicks tell more.

What is kept, where nothing is shown to be better than what was logged, is an imitation of it. So a
candidate that is shown to be better than the imitation takes its place, though not better than what
was logged: with features that know little of what was served that is all there is to write.

A choice among many by noisy numbers is itself noisy. So it is made again and again, in draws of the
held-out queries (a bootstrap), each of which takes the candidate whose lower end is highest in it,
or what was logged where no lower end is above 0. The share of the draws that take a candidate is
its weight in the ranker: the mean of what the draws choose (bagging). With few clicks many draws
keep what was logged and the ranker moves a little; with many it moves all the way.

So a draw asks of each candidate by itself whether it is better, and there are many candidates:
where all rankings are equally good, most draws find one that looks better, and the ranker moves
among equals. Whether any candidate at all is better, which is another question, is told beside it
(`is_shown`): by a lower end that holds for all candidates at once.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from countersample._params import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample._arrays import Floats, Ints
    from countersample.evaluation.held_out import HeldOut

DRAWS = 100
SIGNS = 1_000  # draws of them
ERRORS = 1  # standard errors, by less of which a candidate is as good
FEWEST_QUERIES = 8  # that judge; by fewer nothing is shown


def check_safety(name: str, value: object) -> float:
    """Return a confidence: 0 for none, or from a half on, below which worse would do."""
    return 0.0 if value == 0 else number(name, value, least=0.5, below=1, or_else="0")


class Compared(NamedTuple):
    """Candidates, compared with what was logged; the first three are each (n_candidates,)."""

    gain: Floats
    low: Floats  # the lower end of the gain
    share: Floats  # of the draws that choose it
    is_shown: bool  # whether the highest lower end that holds for all at once is above 0

    @property
    def kept(self) -> float:
        """The share of the draws that keep what was logged."""
        return max(0.0, round(1.0 - float(self.share.sum()), 9))


def compare_with(
    held_out: HeldOut,
    candidates: Sequence[Floats],
    logged: Floats,
    *,
    kept: Floats | None = None,
    beside: Sequence[Floats] = (),
    safety: float,
    rng: np.random.Generator,
) -> Compared:
    """Compare candidates with what was logged, all by their sums over held-out clicks.

    Parameters
    ----------
    held_out : HeldOut
    candidates : sequence of float64 (n_groups,)
        As of `HeldOut.sums`.
    logged : float64 (n_groups,)
        As of `HeldOut.logged_sums`.
    kept : float64 (n_groups,), optional
        Those of what is written where what was logged is kept; by default the same.
    beside : sequence of float64 (n_groups,)
        Candidates that were tried and are out of the question by now: whether something is shown to
        be better (`is_shown`) is asked of so many more.
    safety : 0, or float in [0.5, 1)
        The confidence; with 0 every draw takes the candidate that is best in it.
    rng : numpy Generator

    Examples
    --------
    >>> import numpy as np
    >>> from countersample import ClickLog, synthetic
    >>> from countersample.evaluation import HeldOut
    >>> from countersample.tuning.safety import compare_with
    >>> data = synthetic("tiny", rng=0)
    >>> held_out = HeldOut(data, ClickLog.from_labels(data), rng=np.random.default_rng(0))
    >>> right, wrong = (
    ...     held_out.sums([sign * fold.validation.labels for fold in held_out.folds])
    ...     for sign in (1, -1)
    ... )
    >>> compare_with(held_out, [right], wrong, safety=0.95, rng=np.random.default_rng(0)).kept
    0.0
    >>> compare_with(held_out, [wrong], right, safety=0.95, rng=np.random.default_rng(0)).kept
    1.0
    """
    judges = held_out.n_queries >= FEWEST_QUERIES
    n_groups = len(logged)
    times = rng.multinomial(n_groups, np.full(n_groups, 1 / n_groups), DRAWS)
    z = _quantile(safety)
    gain, low, lows = _lower_ends(held_out, candidates, logged, times, z)
    at_once = lower_ends_at_once(held_out, [*candidates, *beside], logged, safety, rng)
    at_once = at_once[: len(candidates)]
    chosen = lows.argmax(axis=1)
    if safety:
        if kept is not None:
            _, _, over_kept = _lower_ends(held_out, candidates, kept, times, z)
            keeps = lows.max(axis=1) <= 0
            lows[keeps], chosen[keeps] = over_kept[keeps], over_kept[keeps].argmax(axis=1)
        chosen = chosen[(lows.max(axis=1) > 0) & judges]
    share = np.bincount(chosen, minlength=len(gain)) / DRAWS
    return Compared(gain, low, share, bool(judges and at_once.max() > 0))


def gains_over(
    held_out: HeldOut, candidates: Sequence[Floats], logged: Floats, safety: float
) -> tuple[Floats, Floats]:
    """Return each candidate's gain over what was logged, and its lower end, (n_candidates,)."""
    no_draw = np.ones((0, len(logged)), np.int64)
    gain, low, _ = _lower_ends(held_out, candidates, logged, no_draw, _quantile(safety))
    return gain, low


def simplest_as_good(
    held_out: HeldOut,
    candidates: Sequence[Floats],
    low: Floats,
    transforms: Sequence[str | None],
) -> int:
    """Return the index of the candidate whose lower end is highest, or of a simpler one as good.

    Of the transforms, which come simplest first, it is the first whose best candidate is not worse
    than the best of all by a standard error of the difference, and has a lower end above 0 if that
    has: the rule of one standard error (Breiman and others, 1984). So noise alone bends no feature.
    """
    top = int(low.argmax())
    for name in dict.fromkeys(transforms):
        own = [k for k, each in enumerate(transforms) if each == name]
        best = own[int(low[own].argmax())]
        is_shown = low[best] > 0 or low[top] <= 0
        if is_shown and held_out.z_score(candidates[top], candidates[best]) < ERRORS:
            return best
    return top


def _quantile(safety: float) -> float:
    return NormalDist().inv_cdf(safety) if safety else 0.0


def lower_ends_at_once(
    held_out: HeldOut,
    candidates: Sequence[Floats],
    other: Floats,
    safety: float,
    rng: np.random.Generator,
) -> Floats:
    """d_c − z·e_c, (n_candidates,), with z so large that all hold at once with this confidence.

    P(max_c Σ_g ±y_gc / e_c ≤ z) = safety over random signs of the groups, with y_gc what group g
    has to say of the difference d_c: if no candidate is better than the other, signs are as likely
    one way as the other. So it holds for candidates that are much alike, and where a few groups
    tell: of three queries, all three change for the better by chance in one case of eight, of which
    √3 standard errors know nothing. With a confidence of 0 it is d_c.
    """
    found = [held_out.difference(sums, other) for sums in candidates]
    gain = np.array([value for value, _ in found])
    adds = np.array([added for _, added in found])
    errors = np.sqrt(np.einsum("ij,ij->i", adds, adds))
    differ = errors > 0
    if not safety or not differ.any():
        return gain
    weights = held_out.weight_sums / held_out.weight_sums.sum()
    said = (adds + gain[:, None] * weights)[differ] / errors[differ, None]
    signs = rng.choice(np.array([-1.0, 1.0]), (SIGNS, adds.shape[1]))
    z = max(0.0, float(np.quantile((signs @ said.T).max(axis=1), safety)))
    lows: Floats = gain - z * errors
    return lows


def _lower_ends(
    held_out: HeldOut, candidates: Sequence[Floats], other: Floats, times: Ints, z: float
) -> tuple[Floats, Floats, Floats]:
    """Return the gain over another, its lower end, (n_candidates,), and that in each draw."""
    found = [held_out.difference(sums, other) for sums in candidates]
    gain = np.array([value for value, _ in found])
    adds = np.array([added for _, added in found])
    errors = np.sqrt(np.einsum("ij,ij->i", adds, adds))
    return gain, gain - z * errors, gain + (times - 1) @ adds.T - z * errors
