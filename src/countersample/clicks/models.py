"""Click models: which items of a ranked list users examine, and which of these they click.

They rest on the examination hypothesis: a click needs an item that is examined and that attracts.
All models are one kind of walk. A user reaches the items from the top down; an item that the user
reaches is *examined* with one probability, *clicked* once examined with another, and then the user
*continues* to the next item with a third, which may depend on whether there was a click. A model is
a formula for these four probabilities per item (`Steps`); sampling and closed forms follow for all
models alike::

    reach(r)      = Π_{i<r} click(i) · after_click(i) + (1 − click(i)) · after_skip(i)
    propensity(r) = reach(r) · examine(r)           click(r) = examine(r) · attract(r)
    P(click at r) = propensity(r) · attract(r)

The propensity is the probability of examination over all sessions of the query, so a click
weighted by 1/propensity has mean attract(r): the attractiveness of the item once examined.

A new model is one subclass of `ClickModel` and one line in `CLICK_MODELS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from countersample._params import number
from countersample.clicks.bias import PositionBias, PositionBiasCurve
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats, Ints

PAPER_BIAS = PositionBias()


class Steps(NamedTuple):
    """The four probabilities of a walk, each a float64 array (n_items,)."""

    examine: Floats  # the item is examined, if the user reaches it
    attract: Floats  # it is clicked, if it is examined
    after_click: Floats  # the user continues to the next item after a click
    after_skip: Floats  # the user continues to the next item without a click

    @property
    def click(self) -> Floats:
        """P(click | reached) = examine · attract, (n_items,)."""
        return self.examine * self.attract

    @property
    def walk(self) -> tuple[Floats, Floats, Floats]:
        """The three probabilities that the kernels take: click, after_click, after_skip."""
        return self.click, self.after_click, self.after_skip

    def propensity(self, offsets: Ints) -> Floats:
        """Return P(examined) = reach · examine, (n_items,)."""
        from countersample._kernels import clicks as kernels  # noqa: PLC0415 (numba takes 0.5 s)

        reached = np.empty(len(self.examine))
        kernels.reach(offsets, *self.walk, reached)
        return self.examine * reached


@dataclass(frozen=True)
class ClickModel(ABC):
    """Base of all models of what users examine and click.

    Parameters
    ----------
    bias : PositionBiasCurve
        The probability that a rank is examined, for models that use one.
    relevant : float
        The smallest label that is relevant.
    noise : float in [0, 1]
        The probability that an item that is not relevant is clicked once examined, for models
        that use it.
    """

    bias: PositionBiasCurve = PAPER_BIAS
    relevant: float = 3
    noise: float = 0.1

    def __post_init__(self) -> None:
        number("noise", self.noise, least=0, most=1)
        number("relevant", self.relevant)

    @abstractmethod
    def steps(self, labels: NDArray[np.float32], ranks: Ints) -> Steps:
        """Return the four probabilities of each item, for labels and ranks (from 1), (n_items,)."""

    def click_probabilities(self, labels: ArrayLike) -> Floats:
        """Return P(click) = propensity · attract for the labels of one list in rank order."""
        steps, offsets = self._one_list(labels)
        return steps.propensity(offsets) * steps.attract

    def propensities(self, labels: ArrayLike) -> Floats:
        """Return P(examined) = reach · examine for the labels of one list in rank order."""
        steps, offsets = self._one_list(labels)
        return steps.propensity(offsets)

    def relevance(self, labels: ArrayLike) -> Floats:
        """Return P(click | examined) of each label, the truth that weighted clicks estimate."""
        array = np.asarray(labels, np.float32)
        return self.steps(array, np.ones(len(array), np.int64)).attract

    def _one_list(self, labels: ArrayLike) -> tuple[Steps, Ints]:
        array = np.asarray(labels, np.float32)
        steps = self.steps(array, np.arange(1, len(array) + 1))
        return steps, np.array([0, len(array)])

    def _without_stop(self, examine: Floats, attract: Floats) -> Steps:
        """Return the steps of a user who always continues: items are independent."""
        on = np.ones(len(examine))
        return Steps(examine, attract, on, on)

    def _examination(self, ranks: Ints) -> Floats:
        """Return bias(rank), checked: the curve may be a user's own class."""
        table = self.bias.propensity(np.arange(1, ranks.max(initial=1) + 1))
        is_valid = (table >= 0) & (table <= 1)
        if not is_valid.all():
            rank = int(is_valid.argmin()) + 1
            raise DataError(
                f"the bias gives {table[rank - 1]} at rank {rank}, expected a probability"
            )
        return table[ranks - 1]

    def _by_relevance(
        self, labels: NDArray[np.float32], yes: Floats | float, no: Floats | float
    ) -> Floats:
        """Return ``yes`` for each label of at least ``relevant``, and else ``no``."""
        # In float32, the type of labels: else the label 0.7 would be below 0.7.
        return np.where(labels >= np.float32(self.relevant), yes, no).astype(np.float64)


@dataclass(frozen=True)
class PositionBased(ClickModel):
    """P(click) = bias(rank) · (1 if relevant, else noise): the position-based model (PBM).

    The click model of the paper, and of most counterfactual learning to rank. Each item is
    examined, and clicked, independently of the others. The propensity is bias(rank).

    Examples
    --------
    >>> from countersample.clicks import PositionBased
    >>> PositionBased(relevant=3, noise=0.1).click_probabilities([0, 4])  # 1 · 0.1 and 1/2 · 1
    array([0.1, 0.5])
    """

    def steps(self, labels: NDArray[np.float32], ranks: Ints) -> Steps:
        """Return examine = bias(rank), attract = 1 or noise; always continues."""
        attract = self._by_relevance(labels, 1, self.noise)
        return self._without_stop(self._examination(ranks), attract)


@dataclass(frozen=True)
class Perfect(ClickModel):
    """P(click) = 1 if relevant, else 0. The user examines everything and is never wrong.

    The propensity is 1; ``bias`` and ``noise`` are not used.

    Examples
    --------
    >>> from countersample.clicks import Perfect
    >>> Perfect(relevant=3).click_probabilities([0, 4, 3])
    array([0., 1., 1.])
    """

    def steps(self, labels: NDArray[np.float32], ranks: Ints) -> Steps:  # noqa: ARG002 (not used)
        """Return examine = 1, attract = 1 or 0; always continues."""
        return self._without_stop(np.ones(len(labels)), self._by_relevance(labels, 1, 0))


@dataclass(frozen=True)
class NearRandom(ClickModel):
    """P(click) = bias(rank) · (0.6 if relevant, else 0.4). The user hardly recognises relevance.

    0.4 and 0.6 are the ends of the scale of the near-random user of Oosterhuis and de Rijke (ECIR
    2019), with 0.45, 0.5 and 0.55 for grades in between. The propensity is bias(rank); ``noise``
    is not used.

    Examples
    --------
    >>> from countersample.clicks import NearRandom
    >>> NearRandom(relevant=3).click_probabilities([0, 4])  # 1 · 0.4 and 1/2 · 0.6
    array([0.4, 0.3])
    """

    def steps(self, labels: NDArray[np.float32], ranks: Ints) -> Steps:
        """Return examine = bias(rank), attract = 0.6 or 0.4; always continues."""
        return self._without_stop(self._examination(ranks), self._by_relevance(labels, 0.6, 0.4))


@dataclass(frozen=True)
class Cascade(ClickModel):
    """P(click at r) = a_r · Π_{i<r} (1 − a_i), with a = 1 if relevant, else noise.

    The user examines one item after the other and stops at the first click (Craswell et al., WSDM
    2008). The propensity Π_{i<r} (1 − a_i) depends on the items above: nothing below the first
    relevant item is ever examined, and no weight can compensate for that. ``bias`` is not used.

    Examples
    --------
    >>> from countersample.clicks import Cascade
    >>> Cascade(relevant=3, noise=0.5).click_probabilities([0, 0, 4, 4])
    array([0.5 , 0.25, 0.25, 0.  ])
    """

    def steps(self, labels: NDArray[np.float32], ranks: Ints) -> Steps:  # noqa: ARG002 (not used)
        """Return examine = 1, attract = 1 or noise; continues until the first click."""
        on = np.ones(len(labels))
        return Steps(on, self._by_relevance(labels, 1, self.noise), np.zeros(len(labels)), on)


@dataclass(frozen=True)
class DependentClick(ClickModel):
    """P(click at r) = a_r · Π_{i<r} (1 − a_i·(1 − bias(i))), with a = 1 if relevant, else noise.

    The dependent click model of Guo, Liu and Wang (WSDM 2009): the user examines one item after the
    other; after a click at rank i the next one is examined with probability bias(i), and else
    always. With a bias of 0 it is the cascade model. The propensity is the product.

    Examples
    --------
    The third item is examined with probability (1 − 1·(1 − 1)) · (1 − 1·(1 − 1/2)):

    >>> from countersample.clicks import DependentClick
    >>> DependentClick(relevant=3).propensities([4, 4, 4])
    array([1. , 1. , 0.5])
    """

    def steps(self, labels: NDArray[np.float32], ranks: Ints) -> Steps:
        """Return examine = 1, attract = 1 or noise; continues with bias(rank) after a click."""
        on = np.ones(len(labels))
        attract = self._by_relevance(labels, 1, self.noise)
        return Steps(on, attract, after_click=self._examination(ranks), after_skip=on)


@dataclass(frozen=True)
class DynamicBayesian(ClickModel):
    """P(click at r) = a_r · Π_{i<r} continuation · (1 − a_i·s_i).

    The dynamic Bayesian network of Chapelle and Zhang (WWW 2009): the user clicks an item with
    probability a (1 if relevant, else noise), is satisfied by the clicked item with probability
    s (``satisfaction`` if relevant, else 0) and then stops; a user who is not satisfied continues
    with probability ``continuation``. The propensity is the product. ``bias`` is not used.

    Parameters
    ----------
    continuation, satisfaction : float in [0, 1]

    Examples
    --------
    The second item is examined with probability 0.5 · (1 − 1·0.5):

    >>> from countersample.clicks import DynamicBayesian
    >>> user = DynamicBayesian(relevant=3, continuation=0.5, satisfaction=0.5)
    >>> user.click_probabilities([4, 4])
    array([1.  , 0.25])
    """

    continuation: float = 0.9
    satisfaction: float = 0.7

    def __post_init__(self) -> None:
        super().__post_init__()
        number("continuation", self.continuation, least=0, most=1)
        number("satisfaction", self.satisfaction, least=0, most=1)

    def steps(self, labels: NDArray[np.float32], ranks: Ints) -> Steps:  # noqa: ARG002 (not used)
        """Return examine = 1, attract = 1 or noise; continues if not satisfied."""
        return Steps(
            examine=np.ones(len(labels)),
            attract=self._by_relevance(labels, 1, self.noise),
            after_click=self.continuation * (1 - self._by_relevance(labels, self.satisfaction, 0)),
            after_skip=np.full(len(labels), self.continuation, np.float64),
        )


@dataclass(frozen=True)
class TrustBias(ClickModel):
    """P(click at r) = bias(r) · (ε⁺_r if relevant, else ε⁻_r).

    Users trust high ranks and click there even if the item is not relevant (Agarwal et al., WWW
    2019), with the values of Vardasbi et al. (CIKM 2020)::

        ε⁺_r = 1 − (min(r, 20) + 1) / 100        ε⁻_r = 0.65 / min(r, 10)

    The propensity is bias(r). Weights of 1/propensity do not remove the trust: ε⁻_r still favours
    the top. That needs the affine correction of Vardasbi et al.,
    (click − β_r) / α_r, with `affine` β_r = bias(r)·ε⁻_r and α_r = bias(r)·(ε⁺_r − ε⁻_r), whose
    mean is the `relevance`, 1 or 0. ``noise`` is not used.

    Examples
    --------
    >>> from countersample.clicks import TrustBias
    >>> TrustBias(relevant=3).click_probabilities([0, 4])  # 1 · 0.65 and 1/2 · 0.97
    array([0.65 , 0.485])
    >>> alpha, beta = TrustBias(relevant=3).affine([1, 2])
    >>> (beta + alpha * [0, 1]).round(3)
    array([0.65 , 0.485])
    """

    def steps(self, labels: NDArray[np.float32], ranks: Ints) -> Steps:
        """Return examine = bias(rank), attract = ε⁺ or ε⁻ of the rank; always continues."""
        attract = self._by_relevance(labels, *self._trust(ranks))
        return self._without_stop(self._examination(ranks), attract)

    def relevance(self, labels: ArrayLike) -> Floats:
        """Return 1 for each relevant label, else 0: P(click at r) = β_r + α_r · relevance."""
        return self._by_relevance(np.asarray(labels, np.float32), 1, 0)

    def affine(self, ranks: ArrayLike) -> tuple[Floats, Floats]:
        """Return α = bias·(ε⁺ − ε⁻) and β = bias·ε⁻ of ranks, from 1."""
        array = np.asarray(ranks, np.int64)
        examine, (plus, minus) = self._examination(array), self._trust(array)
        return examine * (plus - minus), examine * minus

    def _trust(self, ranks: Ints) -> tuple[Floats, Floats]:
        """Return ε⁺ and ε⁻ of ranks."""
        return 1 - (np.minimum(ranks, 20) + 1) / 100, 0.65 / np.minimum(ranks, 10)


CLICK_MODELS: dict[str, Callable[..., ClickModel]] = {
    "position-based": PositionBased,
    "perfect": Perfect,
    "near-random": NearRandom,
    "cascade": Cascade,
    "dependent-click": DependentClick,
    "dbn": DynamicBayesian,
    "trust-bias": TrustBias,
}


def make_click_model(
    click_model: str | Callable[..., ClickModel],
    *,
    bias: PositionBiasCurve,
    relevant: float,
    noise: float,
) -> ClickModel:
    """Return the click model of this name, or made by this class or function."""
    maker = CLICK_MODELS.get(click_model) if isinstance(click_model, str) else click_model
    if not callable(maker):
        names = ", ".join(map(repr, CLICK_MODELS))
        raise ParameterError(
            f"click_model is {click_model!r}, expected {names}, or a class or functools.partial "
            "that makes a ClickModel from bias, relevant and noise"
        )
    return maker(bias=bias, relevant=relevant, noise=noise)
