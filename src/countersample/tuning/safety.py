"""Safety: what held-out clicks have to show before your current ranker is replaced.

Held-out clicks give the gain d_c of candidate c over the logging policy and its standard error e_c.
At a confidence whose normal quantile is z, clicks show that c is better if d_c − z·e_c > 0. The
candidate to take is the one with the highest lower end: if two look equally good, it is the one
that changes less of the current ranking, whose clicks are in the log.

If nothing is shown to be better than the logging policy, an imitation of it is kept. So a candidate
that is shown to be better than the imitation replaces it, even if it is not better than the logging
policy: if the features explain little of the logged ranking, only the imitation can be saved.

A choice among many by noisy numbers is itself noisy. So it is made again in many draws of the
held-out queries (a bootstrap). Each draw takes the candidate with the highest lower end in it, or
the logging policy if no lower end is above 0. The share of the draws that take a candidate is its
weight in the ranker, which is the mean of the choices (bagging). With few clicks many draws keep
the logging policy and the ranker moves a little; with many clicks it moves all the way.

Each draw tests each candidate by itself, and there are many candidates. If all rankings are equally
good, most draws find one that looks better, and the ranker moves among equals. Whether any
candidate at all is better is another question, which `SafeChoice.is_shown` answers: by a lower end
that holds for all candidates at once.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from countersample._params import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample._arrays import Floats, Ints
    from countersample.evaluation.holdout import HeldOut

BOOTSTRAP_DRAWS = 100
SIGN_DRAWS = 1_000
MAX_STANDARD_ERRORS = 1  # a candidate that is worse by less is as good
MIN_QUERIES = 8  # held-out queries with clicks; fewer show nothing


def check_safety(name: str, value: object) -> float:
    """Return a confidence: 0 for none, or at least 0.5, below which worse would do."""
    return 0.0 if value == 0 else number(name, value, least=0.5, below=1, or_else="0")


class SafeChoice(NamedTuple):
    """Candidates compared with the logging policy; the first three are (n_candidates,)."""

    gain: Floats
    low: Floats  # the lower end of the gain
    share: Floats  # of the draws that choose it
    is_shown: bool  # whether the highest lower end that holds for all at once is above 0

    @property
    def kept(self) -> float:
        """The share of the draws that keep the logging policy."""
        return max(0.0, round(1.0 - float(self.share.sum()), 9))


def choose_safely(
    held_out: HeldOut,
    candidates: Sequence[Floats],
    logged: Floats,
    *,
    imitation: Floats | None = None,
    rejected: Sequence[Floats] = (),
    safety: float,
    rng: np.random.Generator,
) -> SafeChoice:
    """Compare candidates with the logging policy, all by their sums over held-out clicks.

    Candidates, `logged` and `imitation` (the ranker that is written if the logging policy is kept;
    by default the policy itself) are float64 (n_groups,), as `HeldOut.sums` returns them.
    `rejected` are candidates that cannot be chosen any more: `is_shown` holds for these as well.
    With a `safety` of 0 every draw takes the candidate that is best in it.

    Examples
    --------
    >>> import numpy as np
    >>> from countersample import ClickLog, synthetic
    >>> from countersample.evaluation import HeldOut
    >>> from countersample.tuning.safety import choose_safely
    >>> data = synthetic("tiny", rng=0)
    >>> held_out = HeldOut(data, ClickLog.from_labels(data), rng=np.random.default_rng(0))
    >>> right, wrong = (
    ...     held_out.sums([sign * fold.validation.labels for fold in held_out.folds])
    ...     for sign in (1, -1)
    ... )
    >>> choose_safely(held_out, [right], wrong, safety=0.95, rng=np.random.default_rng(0)).kept
    0.0
    >>> choose_safely(held_out, [wrong], right, safety=0.95, rng=np.random.default_rng(0)).kept
    1.0
    """
    has_enough = held_out.n_queries >= MIN_QUERIES
    n_groups = len(logged)
    times = rng.multinomial(n_groups, np.full(n_groups, 1 / n_groups), BOOTSTRAP_DRAWS)
    gain, low, lows = _lower_ends(held_out, candidates, logged, safety, times)
    at_once = simultaneous_lower_ends(held_out, [*candidates, *rejected], logged, safety, rng)
    at_once = at_once[: len(candidates)]
    choices = lows.argmax(axis=1)
    if safety:
        if imitation is not None:
            _, _, over_imitation = _lower_ends(held_out, candidates, imitation, safety, times)
            keeps = lows.max(axis=1) <= 0
            lows[keeps] = over_imitation[keeps]
            choices[keeps] = over_imitation[keeps].argmax(axis=1)
        choices = choices[(lows.max(axis=1) > 0) & has_enough]
    share = np.bincount(choices, minlength=len(gain)) / BOOTSTRAP_DRAWS
    return SafeChoice(gain, low, share, bool(has_enough and at_once.max() > 0))


def gains_over(
    held_out: HeldOut, candidates: Sequence[Floats], reference: Floats, safety: float
) -> tuple[Floats, Floats]:
    """Return each candidate's gain over the reference, and its lower end, (n_candidates,)."""
    gain, low, _ = _lower_ends(
        held_out, candidates, reference, safety, np.ones((0, len(reference)), np.int64)
    )
    return gain, low


def choose_simplest(
    held_out: HeldOut,
    candidates: Sequence[Floats],
    low: Floats,
    transforms: Sequence[str | None],
) -> int:
    """Return the index of the candidate with the highest lower end, or of a simpler one as good.

    Transforms come simplest first. The first is taken whose best candidate is at most one standard
    error of the difference worse than the best of all, and has a lower end above 0 if that has: the
    rule of one standard error (Breiman and others, 1984). So noise alone transforms no feature.
    """
    top = int(low.argmax())
    for name in dict.fromkeys(transforms):
        indices = [k for k, each in enumerate(transforms) if each == name]
        best = indices[int(low[indices].argmax())]
        is_shown = low[best] > 0 or low[top] <= 0
        z_score = held_out.z_score(candidates[top], candidates[best])
        if is_shown and z_score < MAX_STANDARD_ERRORS:
            return best
    return top


def simultaneous_lower_ends(
    held_out: HeldOut,
    candidates: Sequence[Floats],
    reference: Floats,
    safety: float,
    rng: np.random.Generator,
) -> Floats:
    """d_c − z·e_c, (n_candidates,), with z so large that all hold at once with this confidence.

    P(max_c Σ_g ±y_gc / e_c ≤ z) = safety over random signs of the groups, with y_gc the
    contribution of group g to the difference d_c. If no candidate is better than the reference,
    both signs are equally likely. So it holds for candidates that are much alike, and for few
    groups: three queries all change for the better by chance in one case of eight, which √3
    standard errors would ignore. With a safety of 0 it is d_c.
    """
    gain, parts, errors = _differences(held_out, candidates, reference)
    differs = errors > 0
    if not safety or not differs.any():
        return gain
    weights = held_out.weight_sums / held_out.weight_sums.sum()
    contributions = (parts + gain[:, None] * weights)[differs] / errors[differs, None]
    signs = rng.choice(np.array([-1.0, 1.0]), (SIGN_DRAWS, parts.shape[1]))
    z = max(0.0, float(np.quantile((signs @ contributions.T).max(axis=1), safety)))
    lows: Floats = gain - z * errors
    return lows


def _lower_ends(
    held_out: HeldOut, candidates: Sequence[Floats], reference: Floats, safety: float, times: Ints
) -> tuple[Floats, Floats, Floats]:
    """Return the gain, its lower end, (n_candidates,), and the lower end in each draw."""
    z = NormalDist().inv_cdf(safety) if safety else 0.0
    gain, parts, errors = _differences(held_out, candidates, reference)
    return gain, gain - z * errors, gain + (times - 1) @ parts.T - z * errors


def _differences(
    held_out: HeldOut, candidates: Sequence[Floats], reference: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return d_c, the part of each group in it, (n_candidates, n_groups), and e_c."""
    differences = [held_out.difference(sums, reference) for sums in candidates]
    gain = np.array([value for value, _ in differences])
    parts = np.array([by_group for _, by_group in differences])
    return gain, parts, np.sqrt(np.einsum("ij,ij->i", parts, parts))
