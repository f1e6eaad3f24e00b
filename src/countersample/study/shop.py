"""The click log of a small shop, made up, and what `fit` makes of it: the demo opens with it.

A shop has queries with ten items each. Three rankers served its searches in turn: by price, by
sales, by reviews. Users examine position k with probability 1/k. An item that they examine they
click with probability 1 if they want it, else 0.1. Which items they want depends on the match of
the text, on reviews and price, and on chance. That probability is the item's label; `fit` does not
read it. So the true gain is known: the relative difference of DCG@10 on queries that are in no log.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from countersample._files import atomic_path
from countersample.clicks import PositionBias, simulate_impressions
from countersample.data import RankingDataset
from countersample.evaluation import evaluate
from countersample.fitting import fit_from_impressions, write_page
from countersample.logs import read_features, read_impressions
from countersample.pages.charts import figure_style, inline_figure, new_axes
from countersample.plotting import plot_gain

if TYPE_CHECKING:
    from pathlib import Path

    from countersample._progress import Progress
    from countersample.fitting import Fit

FEATURES = ("text_match", "reviews", "price", "sales", "is_new")
WANTED = np.array([2.6, 1.6, -1.4, 0.3, 0.2])  # how much users want an item, by feature
POLICIES = {
    "by-price": np.array([0.0, 0.0, -1.0, 0.0, 0.0]),
    "by-sales": np.array([0.0, 0.0, 0.0, 1.0, 0.0]),
    "by-reviews": np.array([0.0, 1.0, 0.0, 0.3, 0.0]),
}
N_QUERIES, N_SESSIONS, N_ITEMS = 400, 20_000, 10  # items per query
N_TRUE_QUERIES = 4_000  # that no log has: they give the true gain
WANTED_SHARE = 0.2  # of the items
NOISE = 0.1  # P(click) of an item that is examined and not wanted
SEED = 0
SAMPLE_ROWS = 5  # of the log, on the page


@dataclass(frozen=True, eq=False)
class Shop:
    """The log of the shop, the ranker that was fitted on it, and the true values."""

    log: pa.Table
    features: pa.Table
    fit: Fit
    true_logged: float  # DCG@10 of the rankers that served the searches, their mean
    true_new: float  # DCG@10 of the fitted ranker
    n_sessions: int = N_SESSIONS
    n_true_queries: int = N_TRUE_QUERIES

    @property
    def n_clicks(self) -> int:
        """The number of clicks in the log."""
        return int(np.sum(self.log["click"].to_numpy()))

    @property
    def true_gain(self) -> float:
        """The relative gain, by what users want."""
        return self.true_new / self.true_logged - 1

    def summary(self) -> str:
        """Return the verdict and the true gain, for a terminal."""
        return (
            f"A small shop, made up: {self.n_sessions:,} searches, {self.n_clicks:,} clicks.\n"
            f"{self.fit.verdict}\n"
            f"The true gain, which a real log does not show: {self.true_gain:+.1%}."
        )

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the table of estimated and true values."""
        gain = self.fit.gain
        interval = f"{gain.relative_low:+.1%} to {gain.relative_high:+.1%}"
        return [
            ("current rankers", f"{gain.logged.value:.3f}", f"{self.true_logged:.3f}"),
            ("new ranker", f"{gain.new.value:.3f}", f"{self.true_new:.3f}"),
            ("gain", f"{gain.relative:+.1%} ({interval})", f"{self.true_gain:+.1%}"),
        ]

    def first_rows(self) -> list[tuple[Any, ...]]:
        """Return the first rows of the log."""
        columns = self.log.slice(0, SAMPLE_ROWS).to_pydict()
        return list(zip(*columns.values(), strict=True))

    @staticmethod
    def command(folder: Path) -> str:
        """Return the command that fits the same ranker, on the files of `write_shop`."""
        log, features = folder / "impressions.parquet", folder / "features.parquet"
        words = ("fit", log, "--features", features, "-o", folder / "ranker.json")
        return shlex.join(["countersample", *map(str, words)])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"true_gain": self.true_gain, "fit": self.fit.to_dict()}


def make_shop(n_queries: int, rng: np.random.Generator) -> RankingDataset:
    """Return items with features; a label is P(click) of the item once it is examined."""
    n_items = n_queries * N_ITEMS
    features = rng.random((n_items, len(FEATURES)), dtype=np.float32)
    features[:, FEATURES.index("is_new")] = rng.random(n_items) < 0.2
    wish = features @ WANTED + 0.5 * rng.normal(size=n_items)
    is_wanted = wish > np.quantile(wish, 1 - WANTED_SHARE)
    query_ids = [f"query {number}" for number in np.repeat(np.arange(n_queries), N_ITEMS)]
    labels = np.where(is_wanted, 1.0, NOISE)
    return RankingDataset.from_arrays(features, labels, query_ids, feature_names=FEATURES)


def fit_shop(progress: Progress) -> Shop:
    """Simulate the log, fit a ranker on it, and compute the true gain."""
    rng = np.random.default_rng(SEED)
    shop, others = make_shop(N_QUERIES, rng), make_shop(N_TRUE_QUERIES, rng)
    log = simulate_impressions(
        shop, {name: shop.features @ weights for name, weights in POLICIES.items()}, N_SESSIONS,
        top=N_ITEMS, bias=PositionBias(1.0), relevant=1.0, noise=NOISE, rng=rng,
    )  # fmt: skip
    columns = dict(zip(FEATURES, np.asarray(shop.features).T, strict=True))
    item_ids = np.tile(np.arange(N_ITEMS, dtype=np.int32), N_QUERIES)
    query_ids = np.repeat(shop.query_ids, shop.query_sizes)
    features = pa.table({"query_id": query_ids, "item_id": item_ids, **columns})
    with read_impressions(log) as impressions:
        fit = fit_from_impressions(
            impressions, read_features(features), seed=SEED, progress=progress
        )

    def true_value(ranker: Any) -> float:  # noqa: ANN401 (or its scores)
        return evaluate(ranker, others, fit.gain.metric, gain="linear")[fit.gain.metric]

    logged = [true_value(others.features @ weights) for weights in POLICIES.values()]
    return Shop(log, features, fit, float(np.mean(logged)), true_value(fit.ranker))


def write_shop(shop: Shop, folder: Path) -> None:
    """Write the log, the features, the ranker and the report of `fit` into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in {"impressions": shop.log, "features": shop.features}.items():
        with atomic_path(folder / f"{name}.parquet") as temporary:
            parquet.write_table(table, temporary)
    shop.fit.ranker.save(folder / "ranker.json")
    ranker = folder / "ranker.json"
    write_page(folder / "ranker.html", shop.fit, command=shop.command(folder), ranker=ranker)


@figure_style()
def draw_gains(shop: Shop) -> str:
    """Return a chart of the estimated gain with its interval, and of the true gain."""
    figure, axes = new_axes(6.0, 1.1)
    plot_gain(shop.fit.gain, ax=axes)
    axes.plot(shop.true_gain, 0, "|", color="black", ms=22, mew=2)
    axes.annotate("true", (shop.true_gain, 0), (0, 14), textcoords="offset points", ha="center")
    return inline_figure(figure, f"The estimated gain, and the true gain of {shop.true_gain:+.1%}")
