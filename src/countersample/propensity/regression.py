"""The position-based model with relevance as a function of item features: regression-EM."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from countersample._params import choice, whole_number
from countersample.data._arrays import check_features
from countersample.data.imputing import filled_table
from countersample.errors import DataError, ParameterError
from countersample.propensity.cells import sums
from countersample.propensity.connections import MANY

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Bools, Floats
    from countersample.clicks.impressions import PositionCounts
    from countersample.propensity.cells import Cells

_EDGE = 1e-9  # probabilities stay this far from 0 and 1
_SHRINKAGE = 0.1  # of the trees of boosting
_FAR = 0.2  # in log p: a longer step is not trusted
_RIDGE = 1e-6  # a little, so that features that separate clicks from none have a maximum


def pair_ids(counts: PositionCounts) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the query and item id of each query-item pair, in the order `features` must have.

    Examples
    --------
    >>> from countersample.clicks.impressions import PositionCounts
    >>> from countersample.propensity import pair_ids
    >>> counts = PositionCounts.from_columns(["a", "a", "b"], [7, 7, 7], [1, 2, 1], [1, 0, 1])
    >>> pair_ids(counts)
    (array(['a', 'b'], dtype='<U1'), array([7, 7]))
    """
    first = counts.pair_starts[:-1]
    return counts.query_ids[counts.query[first]], counts.item_ids[counts.item[first]]


class RegressionEM:
    """p, f maximise Σ_cells c·log(p_k·r_i) + (n − c)·log(1 − p_k·r_i), r_i = f(features of i).

    Wang et al., WSDM 2018. As in expectation maximisation of the tabular model, with a regression
    of P(relevant) on features in place of a relevance for each pair. So items need not be seen at
    several positions; instead, features must tell relevance, and must not tell the position.

    With ``model="logistic"`` the likelihood is smooth, and L-BFGS climbs to the maximum that the
    alternation would reach. With ``model="boosting"`` each round adds a small regression tree, and
    takes p to its exact maximum given r (Liu and Rubin, 1994).

    Parameters
    ----------
    cells : Cells
    features : float array (n_pairs, n_features)
        Of each query-item pair, in the order of `pair_ids`.
    model : {"logistic", "boosting"}
    n_trees : int
        Of boosting.
    """

    needs_features = True

    def __init__(
        self,
        cells: Cells,
        *,
        features: ArrayLike | None = None,
        model: str = "logistic",
        n_trees: int = 200,
    ) -> None:
        self.notes: list[str] = []
        self._cells = cells
        table = _checked(features, cells.n_feature_rows)
        pairs, self._pair = np.unique(cells.feature_row, return_inverse=True)
        self._features = table[pairs]
        self._is_logistic = choice("model", model, ("logistic", "boosting")) == "logistic"
        self._trees = whole_number("n_trees", n_trees, least=1)
        if not self._is_logistic:
            self.notes.append(
                "the relevance model is kept in the resamples, so the intervals leave out its error"
            )

    def curves(self, weights: Floats) -> Floats:
        """Return the curve of each resample; see `Method`."""
        if self._is_logistic:
            examination = self._logistic(weights)
        else:
            examination = np.array(
                [self._examination(row[self._cells.query], self._relevance) for row in weights]
            )
        with np.errstate(divide="ignore", invalid="ignore"):
            curves = examination / examination[:, [self._cells.reference]]
        return np.where(self.lost(weights), np.nan, curves)

    def lost(self, weights: Floats) -> Bools:
        """Return where `curves` has NaN: positions not shown, all where the reference has no click.

        Nothing is known of a position that no resampled query shows.
        """
        shown, clicked = ((by_query.T @ weights.T).T for by_query in self._by_query)
        unknown: Bools = (shown == 0) | (clicked[:, [self._cells.reference]] == 0)
        return unknown

    @property
    def is_sure(self) -> bool:
        """Whether no resample loses a position; see `Method`."""
        shown, clicked = ((by_query > 0).sum(axis=0) for by_query in self._by_query)
        return bool(min(shown.min(), clicked[self._cells.reference]) >= MANY)

    @cached_property
    def _by_query(self) -> tuple[sparse.csr_array, sparse.csr_array]:
        """Impressions and clicks, each (n_queries, K)."""
        cells = self._cells
        where = (cells.query, cells.position)
        shape = (cells.n_queries, cells.n_positions)
        shown = sparse.coo_array((cells.impressions, where), shape).tocsr()
        return shown, sparse.coo_array((cells.clicks, where), shape).tocsr()

    # -- logistic

    @cached_property
    def _design(self) -> Floats:
        """The features, each with mean 0 and variance 1, and a column of 1."""
        spread = self._features.std(axis=0)
        scaled = (self._features - self._features.mean(axis=0)) / np.where(spread > 0, spread, 1)
        return np.column_stack([scaled, np.ones(len(scaled))])

    @cached_property
    def _solution(self) -> Floats:
        """What the whole log says, from which what resamples say is not far."""
        start = np.zeros(self._cells.n_positions + self._design.shape[1])
        return self._climb(np.ones(len(self._cells.query)), start)

    def _logistic(self, weights: Floats) -> Floats:
        """Return p of each resample, (n_resamples, K).

        One step from the whole log's maximum where that is short (the score bootstrap of Kline and
        Santos, 2012), and else by climbing again.
        """
        cells = self._cells
        found = self._solution[: cells.n_positions] + (weights - 1) @ self._influence
        change = log_expit(found) - log_expit(self._solution[: cells.n_positions])
        change -= change[:, [cells.reference]]
        for row in np.flatnonzero(np.abs(change).max(axis=1) > _FAR):
            climbed = self._climb(weights[row, cells.query], self._solution)
            found[row] = climbed[: cells.n_positions]
        examination: Floats = expit(found)
        return examination

    @cached_property
    def _influence(self) -> Floats:
        """How logit p changes if a query is there once more, to first order, (n_queries, K).

        The slope of the likelihood by query, times the inverse of its expected bend, both in logit
        p and the coefficients.
        """
        cells, design = self._cells, self._design
        by_position, coef = self._solution[: cells.n_positions], self._solution[cells.n_positions :]
        score = (design @ coef)[self._pair]
        click = np.minimum(expit(by_position)[cells.position] * expit(score), 1 - 1e-15)
        misses = cells.impressions - cells.clicks
        excess = cells.clicks - misses * click / (1 - click)
        spread = cells.impressions * click / (1 - click)
        to_position, to_score = expit(-by_position)[cells.position], expit(-score)

        n_queries, n_positions, n_pairs = cells.n_queries, cells.n_positions, len(design)
        by_query = sparse.coo_array(
            (excess * to_score, (cells.query, self._pair)), (n_queries, n_pairs)
        )
        slope = np.zeros((n_queries, n_positions + design.shape[1]))
        np.add.at(slope, (cells.query, cells.position), excess * to_position)
        slope[:, n_positions:] = by_query.tocsr() @ design
        both = sparse.coo_array(
            (spread * to_position * to_score, (cells.position, self._pair)), (n_positions, n_pairs)
        )
        cross = both.tocsr() @ design
        own = np.diag(cells.by_position(spread * to_position**2))
        features = (design.T * sums(self._pair, spread * to_score**2, n_pairs)) @ design
        bend = np.block([[own, cross], [cross.T, features]])
        bend += 2 * _RIDGE * cells.impressions.sum() * np.eye(len(bend))
        return slope @ np.linalg.inv(bend)[:, :n_positions]

    def _climb(self, weights: Floats, start: Floats) -> Floats:
        """Return logit p and the coefficients, side by side."""
        cells = self._cells
        total = float(weights @ cells.impressions)

        def loss(state: Floats) -> tuple[float, Floats]:
            by_position, coef = state[: cells.n_positions], state[cells.n_positions :]
            score = (self._design @ coef)[self._pair]
            log_click = log_expit(by_position)[cells.position] + log_expit(score)
            click = np.minimum(np.exp(log_click), 1 - 1e-15)
            misses = cells.impressions - cells.clicks
            value = weights @ (cells.clicks * log_click + misses * np.log1p(-click))
            slope = weights * (cells.clicks - misses * click / (1 - click))
            to_position = cells.by_position(slope) * expit(-by_position)
            to_score = sums(self._pair, slope * expit(-score), len(self._design))
            gradient = np.concatenate([to_position, to_score @ self._design]) / total
            ridge = _RIDGE * (state @ state)
            return -value / total + ridge, 2 * _RIDGE * state - gradient

        found = minimize(
            loss, start, jac=True, method="L-BFGS-B",
            options={"maxiter": 1000, "ftol": 1e-12, "gtol": 1e-7},
        )  # fmt: skip
        solution: Floats = found.x
        return solution

    # -- boosting

    @cached_property
    def _relevance(self) -> Floats:
        """The relevance of each pair, (n_pairs,).

        Each tree is a step of Newton in the score z, r = 1/(1 + e^−z), with the slope and the
        expected bend of the likelihood: with μ = p·r, Σ_k (c − n·μ)/(1 − μ)·(1 − r) and
        Σ_k n·μ/(1 − μ)·(1 − r)².
        """
        from sklearn.tree import DecisionTreeRegressor  # noqa: PLC0415 (heavy, only where used)

        cells = self._cells
        ones = np.ones(len(cells.query))
        n_pairs = len(self._features)
        tree = DecisionTreeRegressor(max_leaf_nodes=8, min_samples_leaf=20, random_state=0)
        score = np.zeros(n_pairs)
        for _ in range(self._trees):
            relevance = np.clip(expit(score), _EDGE, 1 - _EDGE)
            click = self._examination(ones, relevance)[cells.position] * relevance[self._pair]
            excess = (cells.clicks - cells.impressions * click) / (1 - click)
            spread = cells.impressions * click / (1 - click)
            slope = sums(self._pair, excess, n_pairs) * (1 - relevance)
            bend = sums(self._pair, spread, n_pairs) * (1 - relevance) ** 2
            tree.fit(self._features, slope / bend, sample_weight=bend)
            score += _SHRINKAGE * tree.predict(self._features)
        fitted: Floats = np.clip(expit(score), _EDGE, 1 - _EDGE)
        return fitted

    def _examination(self, weights: Floats, relevance: Floats) -> Floats:
        """Return the p that solve Σ c/p = Σ (n − c)·r/(1 − p·r), position by position, (K,)."""
        cells = self._cells
        here = relevance[self._pair]
        misses = weights * (cells.impressions - cells.clicks)
        hits = cells.by_position(weights * cells.clicks)
        examination = np.full(cells.n_positions, 0.5)
        for _ in range(100):  # Newton's steps on a concave function, kept within (0, 1)
            rest = 1 - examination[cells.position] * here
            slope = hits / examination - cells.by_position(misses * here / rest)
            bend = hits / examination**2 + cells.by_position(misses * (here / rest) ** 2)
            step = slope / np.maximum(bend, 1e-300)
            after = np.clip(examination + step, examination / 4, (examination + 1 - _EDGE) / 2)
            settled = np.abs(after - examination).max() <= 1e-10
            examination = after
            if settled:
                break
        return np.where(hits > 0, examination, 0.0)


def _checked(features: ArrayLike | None, n_pairs: int) -> Floats:
    if features is None:
        raise ParameterError(
            "regression-em needs features=, an array with a row for each query-item pair in the "
            "order of pair_ids(counts)"
        )
    table = np.asarray(features, np.float64)
    if table.ndim != 2 or len(table) != n_pairs or not table.shape[1]:
        raise DataError(
            f"features have shape {table.shape}, expected a row for each of {n_pairs} "
            "query-item pairs, in the order of pair_ids(counts)"
        )
    check_features(table, "features")
    return np.asarray(filled_table(table), np.float64)
