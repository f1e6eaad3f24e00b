"""The demo: a ranker from the click log of a shop, and one small study of regret, on one page.

The shop is made up: queries with ten items each. Three rankers served its searches in turn: by
price, by sales, by reviews. Users examine position k with probability 1/k. An item that they
examine they click with probability 1 if they want it, else 0.1. Which items they want depends on
the match of the text, on reviews and price, and on chance. That probability is the item's label;
`fit` does not read it. So the true gain is known: the relative difference of DCG@10 on queries that
are in no log.

The study compares the methods of the paper. Its grid, with the number of clicks, is
`experiments/demo.toml`. The text of the page is in ``templates/demo.html``.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from countersample import _text, pages
from countersample._files import atomic_path, temporary_folder
from countersample._progress import Progress
from countersample._version import __version__
from countersample.clicks import PositionBias, simulate_impressions
from countersample.data import RankingDataset
from countersample.evaluation import evaluate
from countersample.fitting import fit_from_impressions, write_page
from countersample.logs import read_features, read_impressions
from countersample.pages.charts import figure_style, inline_figure, new_axes
from countersample.plotting import plot_gain
from countersample.study import grids
from countersample.study.experiment import plan
from countersample.study.figures import draw_panels
from countersample.study.jobs import run
from countersample.study.results import Cell, StudyResult, gather, gather_warnings
from countersample.study.statistics import INTERVAL, independent, interval
from countersample.study.store import Store
from countersample.study.tables import DEFAULT_RANKER, show_number

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from countersample._arrays import Floats
    from countersample._progress import Show
    from countersample.fitting import Fit
    from countersample.study.settings import ExperimentConfig

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
HEADER = (
    "method", "nDCG@10", "regret ×100", "steps to 99 %", "seconds", "speed-up", "learning rate"
)  # fmt: skip
_FACTS = ("n_queries", "n_items", "n_features", "fingerprint")
_SHOP_SHARE = 0.15  # of the time


# -- the shop ------------------------------------------------------------------------------------


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


# -- the page ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Demo:
    """The results of the demo."""

    result: StudyResult  # of one dataset and one setting
    config: ExperimentConfig
    facts: Mapping[str, Any]  # sizes and fingerprint of the training data, weights of the first log
    default_steps: int  # of the longest training of a ranker with default options
    relevance: str  # a sentence on the smallest relevant grade, and how many items reach it
    warnings: tuple[str, ...] = ()  # if too few do
    notes: tuple[str, ...] = ()  # on the files of the data
    shop: Shop | None = None  # None if the data is the user's

    @property
    def cells(self) -> dict[str, Cell]:
        """The runs of each method."""
        return {method: cell for (_, method, _), cell in self.result.cells.items()}

    @property
    def default_ndcg(self) -> Floats:
        """nDCG@10 of rankers with default options, one per run, (n_runs,)."""
        (values,) = self.result.nothing_set.values()
        return values

    def steps_to(self, method: str, share: float = 0.99) -> int | None:
        """Return the first point at which the mean curve has this share of the best mean of all."""
        target = share * max(cell.ndcg.mean(axis=0).max() for cell in self.cells.values())
        cell = self.cells[method]
        points = np.flatnonzero(cell.ndcg.mean(axis=0) >= target)
        return int(cell.drawn[points[0]]) // self.config.batch_size if len(points) else None

    def steps_per_second(self, method: str) -> float:
        """Return the speed of the fastest run, on one core."""
        return self.config.steps() / float(self.cells[method].seconds.min())

    @property
    def best(self) -> float:
        """nDCG@10 of a ranker that is trained on all labels."""
        (best,) = self.result.best.values()
        return best

    @property
    def policy(self) -> float:
        """nDCG@10 of the logging policy."""
        (policy,) = self.result.policy.values()
        return policy

    def rows(self) -> list[list[str]]:
        """Return the table: one row per method, with the columns of `HEADER`."""
        ndcg, end = f"{self.default_ndcg.mean():.4f}", f"ends at {self.default_steps:,}"
        return [
            *(self._row(method) for method in self.cells),
            [DEFAULT_RANKER, ndcg, "–", end, "–", "–", "none"],
        ]

    def _row(self, method: str) -> list[str]:
        cell = self.cells[method]
        regrets = independent(100 * cell.regrets, cell.runs)
        steps, ips_steps = self.steps_to(method), self.steps_to("IPS-SGD")
        at_least = "> " if ips_steps is None else ""
        speed_up = (ips_steps or self.config.steps()) / steps if steps else 0.0
        return [
            method + (f" ({cell.n_diverged} diverged)" if cell.n_diverged else ""),
            f"{cell.final.mean():.4f}",
            f"{regrets.mean():.2f} ± {interval(regrets):.2f}",
            f"{steps:,}" if steps else "not reached",
            f"{steps / self.steps_per_second(method):.2f}" if steps else "–",
            f"{at_least}{speed_up:.1f}×" if steps else "–",
            " ".join(map(show_number, cell.learning_rates)),
        ]

    def summary(self) -> str:
        """Return the verdict on the shop's ranker and the table of methods, for a terminal."""
        config = self.config
        title = f"The methods of the paper, on {config.seeds} logs of {config.clicks:,} clicks:"
        shop = [] if self.shop is None else [self.shop.summary(), ""]
        return "\n".join([*shop, title, "", _text.table(HEADER, self.rows())])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        return {
            "shop": None if self.shop is None else self.shop.to_dict(),
            "settings": asdict(self.config) | dict(self.facts),
            "relevance": self.relevance,
            "warnings": list(self.warnings),
            "full_supervision": self.best,
            "logging_policy": self.policy,
            "methods": {
                method: {
                    "ndcg@10": float(cell.final.mean()),
                    "regret": cell.regrets.tolist(),
                    "steps_to_99_percent": self.steps_to(method),
                    "steps_per_second": self.steps_per_second(method),
                    "learning_rates": list(cell.learning_rates),
                    "n_diverged": cell.n_diverged,
                }
                for method, cell in self.cells.items()
            },
            "nothing_set": {
                "ndcg@10": float(self.default_ndcg.mean()),
                "steps": self.default_steps,
            },
        }


def run_demo(
    data: str | None,
    settings: Mapping[str, Any],
    *,
    fold: int | None = None,
    workers: int,
    progress: Progress | Show | None = None,
) -> Demo:
    """Fit the log of the shop, and run the study of experiments/demo.toml in a temporary folder.

    `data` is the user's, by name or path; `fold` is one of its folds, by default all. With it only
    the study runs. `settings` replace settings of the grid.
    """
    experiment = plan(
        [grids.folder() / "demo.toml"], scale="paper", datasets=[data] if data else (),
        settings=settings, fold=fold,
    )  # fmt: skip
    (study,), work = experiment.studies, experiment.work()
    progress = Progress.of(progress)
    shop = None if data else fit_shop(progress.part(_SHOP_SHARE, "a shop"))
    progress = progress if data else progress.part(1 - _SHOP_SHARE)
    with temporary_folder() as folder:
        store = Store(folder)
        run(work.jobs.values(), store, workers=workers, progress=progress)
        by_stage = {job.stage: job for job in reversed(work.jobs.values())}  # the first of each
        train_set = store.data(by_stage["data"])[0]
        first_run = store.read(by_stage["run"])
        facts = {name: getattr(train_set, name) for name in _FACTS}
        facts |= {name: first_run[name] for name in ("max_weight", "mean_weight")}
        return Demo(
            result=gather(study, work, store),
            config=study.config,
            facts=facts,
            default_steps=store.read(by_stage["ranker"])["steps"],
            relevance=store.read(by_stage["relevance"])["sentence"],
            warnings=tuple(gather_warnings(work.jobs.values(), store)),
            notes=tuple(experiment.notes),
            shop=shop,
        )


def write_demo(demo: Demo, folder: Path, *, command: str) -> None:
    """Write index.html, curves.png (and .svg, .pdf), curves.csv and the files of the shop."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = draw_panels(demo.result, folder / "curves")
    if demo.shop is not None:
        write_shop(demo.shop, folder / "shop")
    page = pages.render_template(
        "countersample.study", "demo.html", kind="countersample demo", command=command,
        title=demo.result.grid.title if demo.shop is None else "From clicks to a better ranker",
        demo=demo, shop=demo.shop, shop_folder=folder / "shop", interval=INTERVAL, header=HEADER,
        gains="" if demo.shop is None else draw_gains(demo.shop),
        curves=inline_figure(figure, "Learning curves: nDCG@10 on held-out queries, by method"),
        default_ranker=DEFAULT_RANKER, version=__version__,
    )  # fmt: skip
    pages.write_page(folder / "index.html", page)
