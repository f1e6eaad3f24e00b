"""The error of each estimator of a ranker's value, over 1,000 logs whose truth is known.

    .venv/bin/python benchmarks/bench_estimators.py [--logs 1000] [--json]

The value is DCG@10 per session: the clicks of users who examine everything, each with the reward
of its rank. In each condition the data, what was logged and the candidate stay as they are, and all
sessions are drawn anew for each log.

``beta-ips`` needs X, how many relevant items a session has: "X known" as such, and "longer log"
from five times as many sessions, the log itself among them. ``snips`` is multiplied by the same X,
so that all are estimates of the same value. The first table has the error of each in percent of the
true value: the root of the mean squared error. The second has bias and standard deviation, in
percent as well, and the mean squared error of ``beta-ips`` as a share of that of ``snips``, with
the standard error of this share: errors about the value of what was shown, which is all that these
two can tell.

The third is of choices. Rankers of eight learning rates are trained on four fifths of 4,000 queries
and judged by the rest: as `HeldOut` does it, which is ``beta-ips`` with the whole log as control,
and by ``snips``. It has the true DCG@10 of what each chooses, of the best and of the mean
candidate, how often the two choose differently, and shares of mean squared errors as above: of
values, and of the difference between two candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from output import make_parser, output, table

from countersample import ClickLog, PositionBias, RankingDataset
from countersample.clicks import Shuffled, simulate_impressions
from countersample.evaluation import HeldOut, estimate
from countersample.metrics import item_ranks, rank_values
from countersample.training import train_many

METRIC = "dcg@10"
BIAS = PositionBias(1.0)
N_FEATURES = 8
RELEVANT, NOISE = 3, 0.1
LONGER = 5  # times as many sessions
RATES = [1e-4 * 10 ** (k / 1.5) for k in range(8)]
NAMES = (
    "ips", "clipped", "dr",
    "snips, X known", "beta-ips, X known", "snips, longer log", "beta-ips, longer log",
)  # fmt: skip
PAIRS = (("X known", 4, 3), ("longer log", 6, 5))


@dataclass(frozen=True)
class Condition:
    """What is logged and judged; `skill` is 1 for a policy as good as the candidate."""

    name: str
    skill: float | None  # None: at random
    n_sessions: int = 500
    top: int | None = None
    n_queries: int = 300
    part: float = 1.0  # of the queries, that judge


CONDITIONS = (
    Condition("strong policy", 0.9),
    Condition("weak policy", 0.2),
    Condition("random policy", None),
    Condition("few clicks: 100 sessions", 0.5, n_sessions=100),
    Condition("few clicks, weak policy", 0.2, n_sessions=100),
    Condition("many: 4,000 sessions", 0.5, n_sessions=4000),
    Condition("top 10 shown", 0.5, top=10),
    Condition("a fifth of the queries judges", 0.5, n_queries=1000, n_sessions=4000, part=0.2),
)


@dataclass(frozen=True, eq=False)
class World:
    """A dataset, what ranked in the log, the candidate, and what is true."""

    dataset: RankingDataset
    logged: np.ndarray
    candidate: np.ndarray
    value: float
    shown: float  # the part of the value that is of items shown
    mean_weight: float  # X


def make_world(condition: Condition, rng: np.random.Generator) -> World:
    """Draw queries of 5 to 40 items; some have more relevant items than others."""
    sizes = rng.integers(5, 41, condition.n_queries)
    query = np.repeat(np.arange(condition.n_queries), sizes)
    features = rng.normal(size=(len(query), N_FEATURES)).astype(np.float32)
    weights = rng.normal(size=N_FEATURES)
    clean = features @ weights / np.linalg.norm(weights)
    score = clean + 0.5 * rng.normal(size=len(query)) + 0.7 * rng.normal(size=len(sizes))[query]
    labels = np.searchsorted(np.quantile(score, [0.5, 0.7, 0.88, 0.96]), score)
    dataset = RankingDataset(
        features, labels.astype(np.float32), np.append(0, np.cumsum(sizes)), np.arange(len(sizes))
    )
    skill = condition.skill or 0.0
    logged = skill * clean + np.sqrt(1 - skill**2) * rng.normal(size=len(query))
    candidate = clean + 0.3 * rng.normal(size=len(query))
    relevance = np.where(labels >= RELEVANT, 1.0, NOISE)
    worth = rank_values(METRIC, item_ranks(candidate, dataset))
    value = float(worth @ relevance) / len(sizes)
    if condition.top is not None:  # what is not shown is not told by any sum over clicks
        relevance = relevance * (item_ranks(logged, dataset) <= condition.top)
    shown = float(worth @ relevance) / len(sizes)
    return World(dataset, logged, candidate, value, shown, relevance.sum() / len(sizes))


def make_log(world: World, condition: Condition, rng: np.random.Generator) -> ClickLog:
    """Draw sessions; a row for each item shown."""
    dataset, is_random = world.dataset, condition.skill is None
    shown = simulate_impressions(
        dataset, Shuffled(world.logged) if is_random else world.logged, condition.n_sessions,
        bias=BIAS, relevant=RELEVANT, noise=NOISE, top=condition.top, rng=rng,
    )  # fmt: skip
    query, position = shown["query_id"].to_numpy(), shown["position"].to_numpy()
    theta = propensity = BIAS.propensity(position)
    if is_random:  # each position as often as any other
        sizes = np.arange(1, dataset.query_sizes.max() + 1)
        mean = np.cumsum(BIAS.propensity(sizes)) / sizes
        propensity = mean[dataset.query_sizes[query] - 1]
    return ClickLog(
        query, shown["item_id"].to_numpy(), propensity, shown["click"].to_numpy(),
        session=shown["session"].to_numpy(), position=position, examination=theta,
        impressions=np.ones(len(query)), n_sessions=condition.n_sessions,
    )  # fmt: skip


def clicked(log: ClickLog) -> ClickLog:
    """Return the rows of a log that were clicked, and how many sessions it had."""
    return log.weighted().replace(impressions=None, n_sessions=log.n_sessions)


def judges(log: ClickLog, condition: Condition, rng: np.random.Generator) -> ClickLog:
    """Return the rows of the queries that judge, which are resampled as wholes."""
    queries = rng.permutation(condition.n_queries)[: round(condition.part * condition.n_queries)]
    return log.of_queries(queries).replace(session=None)


def estimates(world: World, log: ClickLog, longer: ClickLog) -> list[float]:
    """Return what each of `NAMES` says."""

    def value(estimator: str, judging: ClickLog, **options: Any) -> float:
        return estimate(
            world.candidate, judging, world.dataset, metric=METRIC, estimator=estimator,
            n_bootstrap=1, rng=0, **options,
        ).value  # fmt: skip

    known = world.mean_weight
    snips = value("snips", log)
    return [
        value("ips", log), value("clipped", log), value("dr", log),
        snips * known, value("beta-ips", log, control=known),
        snips * longer.weights.sum() / longer.n_sessions,
        value("beta-ips", log, control=longer),
    ]  # fmt: skip


def run(condition: Condition, n_logs: int, seed: int) -> dict[str, Any]:
    """Return bias, standard deviation and error of each estimator, in shares of the truth."""
    world = make_world(condition, np.random.default_rng(seed))
    found = []
    if condition.part < 1:
        for k in range(n_logs):
            rng = np.random.default_rng([seed, k])
            whole = make_log(world, condition, rng)
            found.append(estimates(world, judges(whole, condition, rng), clicked(whole)))
    else:
        logs = [make_log(world, condition, np.random.default_rng([seed, k])) for k in range(LONGER)]
        for k in range(n_logs):
            longer = ClickLog.concat(map(clicked, logs))
            found.append(estimates(world, logs[0], longer))
            following = make_log(world, condition, np.random.default_rng([seed, k + LONGER]))
            logs = [*logs[1:], following]
    errors = np.array(found) / world.value - 1
    squares = (np.array(found) - world.shown) ** 2
    result: dict[str, Any] = {"condition": condition.name, "logs": n_logs, "value": world.value}
    for name, error in zip(NAMES, errors.T, strict=True):
        result[name] = {
            "bias": error.mean(), "deviation": error.std(), "error": np.sqrt((error**2).mean())
        }  # fmt: skip
    for name, ours, theirs in PAIRS:
        share = squares[:, ours].mean() / squares[:, theirs].mean()
        spread = (squares[:, ours] - share * squares[:, theirs]).std()
        result[name] = {
            "share": share, "standard error": spread / squares[:, theirs].mean() / np.sqrt(n_logs)
        }  # fmt: skip
    return result


def choose(n_logs: int, seed: int) -> dict[str, Any]:
    """Return what the best of some rankers is worth, where a fifth of the queries judges them."""
    condition = Condition("choices", 0.5, n_queries=4000, n_sessions=12_000)
    world = make_world(condition, np.random.default_rng(seed))
    dataset = world.dataset
    relevance = np.where(dataset.labels >= RELEVANT, 1.0, NOISE)
    differ, values, errors, gaps = [], [], [], []
    for k in range(n_logs):
        rng = np.random.default_rng([seed, k])
        log = make_log(world, condition, rng).weighted().detached()
        held_out = HeldOut(dataset, log, METRIC, least_queries=1, rng=rng)
        (fold,) = held_out.folds
        rankers = train_many(dataset, fold.train, learning_rates=RATES, seeds=[k], steps=3000,
                             unit="query", workers=1)  # fmt: skip
        rewards = [rank_values(METRIC, item_ranks(ranker, dataset)) for ranker in rankers]
        true = np.array([reward @ relevance for reward in rewards]) / relevance.sum()
        sums = [held_out.sums([ranker]) for ranker in rankers]
        found = np.array([
            [held_out.value(each) for each in sums],
            [each.sum() / held_out.weight_sums.sum() for each in sums],
        ])  # fmt: skip
        chosen = found.argmax(axis=1)
        differ.append(chosen[0] != chosen[1])
        values.append([*true[chosen], true.max(), true.mean()])
        errors.append(found - true)
        gaps.append((found - true)[:, :, None] - (found - true)[:, None])
    per_session = relevance.sum() / dataset.n_queries
    values_a_session = np.array(values) * per_session
    gained = values_a_session[:, 0] - values_a_session[:, 1]
    names = ("beta-ips", "snips", "best", "mean")
    shares = [np.divide(*(np.array(each) ** 2).mean(axis=(0, *axes)))
              for each, axes in ((errors, (2,)), (gaps, (2, 3)))]  # fmt: skip
    return {
        "logs": n_logs,
        "differ": float(np.mean(differ)),
        "value": dict(zip(names, values_a_session.mean(axis=0).tolist(), strict=True)),
        "gained": float(gained.mean()),
        "standard error": float(gained.std() / np.sqrt(n_logs)),
        "share of values": float(shares[0]),
        "share of differences": float(shares[1]),
    }


def show(report: dict[str, Any]) -> str:
    """Return the tables."""
    results, choices = report["conditions"], report["choices"]
    first = [
        {"": result["condition"]} | {name: f"{100 * result[name]['error']:.2f}" for name in NAMES}
        for result in results
    ]
    second = [
        {"": result["condition"]}
        | {
            name: f"{100 * result[name]['bias']:+.2f} ± {100 * result[name]['deviation']:.2f}"
            for name in NAMES
        }
        | {
            f"share, {name}": f"{result[name]['share']:.3f} ± {result[name]['standard error']:.3f}"
            for name, *_ in PAIRS
        }
        for result in results
    ]
    third = {"logs": choices["logs"], "differ": f"{choices['differ']:.0%}"}
    third |= {name: f"{value:.4f}" for name, value in choices["value"].items()}
    third["gained"] = f"{choices['gained']:+.4f} ± {choices['standard error']:.4f}"
    shares = ("share of values", "share of differences")
    third |= {name: f"{choices[name]:.3f}" for name in shares}
    return "\n\n".join(map(table, (first, second, [third])))


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--logs", type=int, default=1000)
    parser.add_argument("--choices", type=int, default=200, help="logs for the third table")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    report = {
        "conditions": [run(each, arguments.logs, arguments.seed) for each in CONDITIONS],
        "choices": choose(arguments.choices, arguments.seed),
    }
    output(report, show, as_json=arguments.json)
    for result, (name, *_) in product(report["conditions"], PAIRS):
        if result[name]["share"] > 1 + 2 * result[name]["standard error"]:
            raise SystemExit(f"beta-ips is worse than snips: {result['condition']}, {name}")


if __name__ == "__main__":
    main()
