"""The demo: a ranker from the click log of a shop, and one small study of regret, on one page.

The shop is in `shop.py`, the text of the page in ``templates/demo.html``. The study compares the
methods of the paper. Its grid, with the number of clicks, is `experiments/demo.toml`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample import _text, pages
from countersample._files import temporary_folder
from countersample._progress import Progress
from countersample._version import __version__
from countersample.pages.charts import inline_figure
from countersample.study import grids
from countersample.study.experiment import plan
from countersample.study.figures import Mark, draw_panels, mean_band
from countersample.study.results import Cell, StudyResult, gather, gather_warnings
from countersample.study.runner import run
from countersample.study.shop import Shop, draw_gains, fit_shop, write_shop
from countersample.study.statistics import INTERVAL, independent, interval
from countersample.study.store import Store
from countersample.study.tables import DEFAULT_RANKER, show_number

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from countersample._arrays import Floats
    from countersample._progress import Show
    from countersample.study.settings import ExperimentConfig

HEADER = (
    "method", "nDCG@10", "regret ×100", "steps to 99 %", "seconds", "speed-up", "learning rate"
)  # fmt: skip
_FACTS = ("n_queries", "n_items", "n_features", "fingerprint")
_BY_QUERY = "CounterSample by query"
_SHOP_SHARE = 0.15  # of the time
_MIN_FALL = 0.002  # of nDCG@10 from a curve's highest point to its end that is explained


@dataclass(frozen=True)
class Demo:
    """The results of the demo."""

    result: StudyResult  # of one dataset and one setting
    config: ExperimentConfig
    is_user_data: bool  # whether the data is the user's
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

    def fall(self) -> tuple[int, float, float] | None:
        """Return where the curve of training by query has its maximum, the maximum and the end.

        None if it does not fall afterwards, or hardly.
        """
        cell = self.cells.get(_BY_QUERY)
        if cell is None:
            return None
        curve = cell.ndcg.mean(axis=0)
        maximum, end = float(curve.max()), float(curve[-1])
        steps = int(cell.drawn[curve.argmax()]) // self.config.batch_size
        return None if maximum - end < _MIN_FALL else (steps, maximum, end)

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
            is_user_data=bool(data),
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
    cell = next(iter(demo.cells.values()))  # all have the same runs
    mark = Mark(DEFAULT_RANKER, demo.default_steps, *mean_band(demo.default_ndcg, cell))
    figure = draw_panels(demo.result, folder / "curves", mark=mark)
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
