"""Features that know the clicks: which are found, and whether others are taken for such.

``python benchmarks/quality/leaks.py`` makes logs whose truth is known and asks `find_leaks` of each
about features that were there before its clicks (true relevance, that with noise, a click rate of
earlier sessions, the scores that pages were ranked by, …) and of features that were computed from
them. The table has the share of logs in which each was named, and by how much of the chance in the
clicks it was seen.
"""

import argparse

import numpy as np

from countersample import ClickLog, RankingDataset
from countersample.fitting import find_leaks

ITEMS = 10
SIZES = {
    "350, 200": {"queries": 200, "sessions": 400},
    "3,500, 200": {"queries": 200, "sessions": 4_000},
    "35,000, 2000": {"queries": 2_000, "sessions": 40_000},
}


class World:
    """Queries of ten items that are shown by two rankers, and clicked as the position-based model.

    relevance : "equal", "little" or "much", by how much items of a query differ
    users : "alike"; "various", of whom half never click; "one click", who leave after the first
    """

    def __init__(self, rng, *, queries=200, relevance="much", users="alike", gamma=1.0):
        self.rng, self.users, self.gamma, shape = rng, users, gamma, (queries, ITEMS)
        self.relevance = {
            "equal": lambda: np.full(shape, 0.3),
            "little": lambda: np.minimum(1.0, 0.3 * np.exp(0.2 * rng.normal(size=shape))),
            "much": lambda: rng.beta(0.5, 1.5, shape),
        }[relevance]()
        self.scores = rng.normal(size=(2, *shape))
        self.scores[1] += 2 * self.relevance

    def sessions(self, n):
        """Return the query, the position of each item and its click, of so many sessions."""
        rng = self.rng
        query = rng.integers(len(self.relevance), size=n)
        order = np.argsort(-self.scores[rng.integers(2, size=n), query], axis=1)
        position = np.argsort(order, axis=1) + 1
        often = 2.0 * rng.integers(2, size=(n, 1)) if self.users == "various" else 1.0
        chance = often * self.relevance[query] / position**self.gamma
        clicks = rng.random(position.shape) < chance
        if self.users == "one click":
            first = np.where(clicks, position, ITEMS + 1).min(axis=1)
            clicks &= position == first[:, None]
        return query, position, clicks

    def log(self, sessions):
        """Return everything that was shown, with known examination."""
        query, position, clicks = sessions
        pair = query[:, None] * ITEMS + np.arange(ITEMS)
        keys, member = np.unique(pair * (ITEMS + 1) + position, return_inverse=True)
        pair, position = np.divmod(keys, ITEMS + 1)
        query, item = np.divmod(pair, ITEMS)
        theta = 1 / position**self.gamma
        return ClickLog(
            query, item, theta, np.bincount(member.ravel(), clicks.ravel()), position=position,
            impressions=np.bincount(member.ravel()), examination=theta,
        )  # fmt: skip

    def counts(self, sessions):
        """Return clicks, impressions and examinations of each query and item."""
        query, position, clicks = sessions
        found = np.zeros((3, *self.relevance.shape))
        for total, column in zip(
            found, (clicks, np.ones(clicks.shape), 1 / position**self.gamma), strict=True
        ):
            np.add.at(total, query, column)
        return found[0], np.maximum(found[1], 1), np.maximum(found[2], 1e-9)

    def before(self, n_sessions):
        """Return features that were there before the clicks."""
        relevance, noise = self.relevance, self.rng.normal(size=self.relevance.shape)
        clicks, shown, examined = self.counts(self.sessions(n_sessions))
        return {
            "noise": noise,
            "true relevance": relevance,
            "relevance, with noise": relevance + 0.1 * noise,
            "earlier click rate": clicks / shown,
            "earlier clicks": clicks,
            "earlier debiased rate": clicks / examined,
            "score of a ranker": self.scores[0],
            "score of the other": self.scores[1],
        }

    def after(self, sessions):
        """Return features that were computed from the clicks of these sessions."""
        clicks, shown, examined = self.counts(sessions)
        rate = clicks / shown
        sd = np.sqrt(np.mean(rate * (1 - rate) / shown))  # that chance gives to a rate
        noise = self.rng.normal(size=rate.shape)
        return {
            "click rate": rate,
            "clicks": clicks,
            "smoothed rate": (clicks + 1) / (shown + 10),
            "log of clicks": np.log1p(clicks),
            "debiased rate": clicks / examined,
            "rank by rate in the query": np.argsort(np.argsort(rate, axis=1), axis=1),
            "rate, with as much noise": rate + sd * noise,
            "rate, with twice the noise": rate + 2 * sd * noise,
            "relevance + debiased rate": self.relevance + clicks / examined,
            "3 × relevance + debiased rate": 3 * self.relevance + clicks / examined,
        }


def dataset_of(features):
    """Return a dataset of features that are (queries, items)."""
    columns = np.stack([np.ravel(column) for column in features.values()], axis=1)
    n_queries, n_items = next(iter(features.values())).shape
    return RankingDataset.from_arrays(
        X=columns, y=np.zeros(len(columns)), qid=np.repeat(np.arange(n_queries), n_items),
        feature_names=list(features),
    )  # fmt: skip


def main():
    """Read the arguments, make the logs, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--logs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    columns, table = [], {}
    for size, settings in SIZES.items():
        for relevance in ("equal", "little", "much"):
            columns.append(f"{size} | {relevance}")
            for k in range(args.logs):
                rng = np.random.default_rng([args.seed, k])
                world = World(rng, queries=settings["queries"], relevance=relevance)
                sessions = world.sessions(settings["sessions"])
                features = world.before(settings["sessions"]) | world.after(sessions)
                named = find_leaks(world.log(sessions), dataset_of(features), rng=rng)
                sizes = {leak.name: leak.size for leak in named}
                for name in features:
                    table.setdefault(name, {}).setdefault(columns[-1], []).append(sizes.get(name))
    for part, header in enumerate(("clicks and queries", "how relevance varies")):
        heads = (column.rpartition(" | ")[2 * part] for column in columns)
        print(f"{header:30}" + "".join(f"{head:>13}" for head in heads))
    for name, found in table.items():
        cells = []
        for column in columns:
            seen = [size for size in found[column] if size is not None]
            share = f"{len(seen) / args.logs:.0%}"
            cells.append(f"{share} {np.mean(seen):.2f}" if seen else share)
        print(f"{name:30}" + "".join(f"{cell:>13}" for cell in cells))


if __name__ == "__main__":
    main()
