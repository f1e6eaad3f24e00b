"""The demo: one small study of regret, written up as a table, a figure and a page.

Its grid is `experiments/demo.toml`: the number of clicks, of queries and of evaluations are there.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample import _text, pages
from countersample._files import temporary_folder
from countersample._version import __version__
from countersample.pages.charts import inline_figure
from countersample.study import grids
from countersample.study.experiment import plan
from countersample.study.figures import Mark, draw_panels, mean_band
from countersample.study.results import Cell, StudyResult, gather, gather_warnings
from countersample.study.runner import run
from countersample.study.statistics import INTERVAL, independent, interval
from countersample.study.store import Store
from countersample.study.tables import DEFAULT_RANKER, show_number

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from countersample._arrays import Floats
    from countersample._progress import Progress, Show
    from countersample.study.settings import ExperimentConfig

HEADER = (
    "method", "nDCG@10", "regret ×100", "steps to 99 %", "seconds", "speed-up", "learning rate"
)  # fmt: skip
NOTES = (
    (
        "nDCG@10 is measured at the averaged weights after the last step, on held-out queries with "
        "a relevant item, mean over the click logs. Regret is the mean distance to full "
        f"supervision over the evaluation points, ± the {INTERVAL} over the logs."
    ),
    (
        "Steps to 99 %: when the mean curve first has 99 % of the highest mean of all methods. "
        "Seconds: those steps at the speed of one run on one core. Speed-up: steps of IPS-SGD over "
        "steps of this method (at least, if IPS-SGD never got there)."
    ),
    (
        f"{DEFAULT_RANKER} has its default options, no labels and no learning rate. Held-out "
        "clicks of each log choose the path and its end; the longest of all ends at that step."
    ),
)
_CAPTION = (
    f"Lines are means over click logs, in {INTERVAL}s; the diamond is a ranker with default "
    "options; curves.csv has the numbers."
)
_FACTS = ("n_queries", "n_items", "n_features", "fingerprint")
_BY_QUERY = "CounterSample by query"
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

    def story(self) -> list[str]:
        """Describe the simulation and its results in paragraphs."""
        config, facts = self.config, self.facts
        (best,), (policy,) = self.result.best.values(), self.result.policy.values()
        data = "your data" if self.is_user_data else "synthetic data of the shape of Yahoo's"
        rank = f"(r + {config.bias_offset})" if config.bias_offset else "r"
        noise = "one in ten" if config.noise == 0.1 else f"{100 * config.noise:g} %"
        return [
            (
                f"{config.seeds} logs of {config.clicks:,} clicks each were simulated on {data}: "
                f"{facts['n_queries']:,} queries, {facts['n_items']:,} items, "
                f"{facts['n_features']} features. The rankings shown came from a ranker trained on "
                f"{100 * config.policy_fraction:g} % of the queries; users examine rank r with "
                f"probability (1/{rank})^{config.gamma:g} and click {noise} of the "
                f"items that are not relevant. {self.relevance}"
            ),
            *(f"Warning: on {text}." for text in self.warnings),
            (
                f"The logging ranker has nDCG@10 {policy:.4f}, one trained on all labels "
                f"{best:.4f}. A click weighs up to M = {facts['max_weight']:.0f}, on average M̄ = "
                f"{facts['mean_weight']:.2f}."
            ),
            *self._explain_fall(),
        ]

    def _explain_fall(self) -> list[str]:
        """Explain why the curve of training by query falls after its highest point, if it does."""
        cell = self.cells.get(_BY_QUERY)
        curve = np.zeros(1) if cell is None else cell.ndcg.mean(axis=0)
        if cell is None or curve.max() - curve[-1] < _MIN_FALL:
            return []
        steps = int(cell.drawn[curve.argmax()]) // self.config.batch_size
        text = (
            f"{_BY_QUERY} has its highest nDCG@10, {curve.max():.4f}, after {steps:,} steps, and "
            f"falls to {curve[-1]:.4f}: with more steps it fits the noise of the clicks and of the "
            "training queries. A user has no labels to see that. CounterSampleRanker with default "
            "options has no learning rate: held-out clicks choose the path and its end, here after "
            f"up to {self.default_steps:,} steps, with nDCG@10 {self.default_ndcg.mean():.4f} (the "
            "diamond)."
        )
        return [text]

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
        """Return the story, the table and its notes, for a terminal."""
        story = [f"{_text.paragraph(text)}\n" for text in self.story()]
        notes = map(_text.paragraph, NOTES)
        return "\n".join([*story, _text.table(HEADER, self.rows()), "", *notes])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        (best,), (policy,) = self.result.best.values(), self.result.policy.values()
        return {
            "settings": asdict(self.config) | dict(self.facts),
            "relevance": self.relevance,
            "warnings": list(self.warnings),
            "full_supervision": best,
            "logging_policy": policy,
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
    """Run the study of experiments/demo.toml, in a temporary folder.

    `data` is the user's, by name or path; `fold` is one of its folds, by default all. `settings`
    replace those of the grid.
    """
    experiment = plan(
        [grids.folder() / "demo.toml"], scale="paper", datasets=[data] if data else (),
        settings=settings, fold=fold,
    )  # fmt: skip
    (study,), work = experiment.studies, experiment.work()
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
        )


def write_demo(demo: Demo, folder: Path, *, command: str) -> None:
    """Write curves.png (and .svg, .pdf), curves.csv and index.html into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    cell = next(iter(demo.cells.values()))  # all have the same runs
    fingerprint = demo.facts["fingerprint"]
    mark = Mark(DEFAULT_RANKER, demo.default_steps, *mean_band(demo.default_ndcg, cell))
    figure = draw_panels(demo.result, folder / "curves", mark=mark)
    page = pages.render_page(
        demo.result.grid.title,
        [
            pages.paragraphs(demo.story()),
            inline_figure(figure, "Learning curves: nDCG@10 on held-out queries, by method"),
            pages.paragraphs([_CAPTION]),
            pages.table(HEADER, demo.rows(), caption="Every method at its best learning rate"),
            pages.paragraphs(NOTES),
            pages.section("To repeat it", pages.code(command), name="repeat"),
            pages.paragraphs([f"countersample {__version__}; dataset {fingerprint}."]),
        ],
        kind="countersample demo",
    )
    pages.write_page(folder / "index.html", page)
