"""What the default ranker does where there is nothing to gain, or where clicks tell the contrary.

    python benchmarks/quality/nothing_to_gain.py [--logs 20]

100 queries of 10 items with 20 features, clicks with known propensities 1/rank, and the scores of
what was served as baseline. Three worlds:

equal
    all items are equally relevant, so that all rankings are equally good
best
    what was served ranks by relevance, which features tell: nothing is better
inverted
    the same, and users click an item the more, the less relevant it is

"left" is the share of the draws of held-out queries that leave what was logged, "shown" that of the
logs on which some candidate is said to be better with 95 % confidence. "change" is the true DCG@10
on 2,000 new queries, less that of what was served, as a share of it; "worst" that of a log.
"""

import argparse

import numpy as np

from countersample import ClickLog, CounterSampleRanker, RankingDataset
from countersample.metrics import ranks_of

WORLDS = ("equal", "best", "inverted")
CLICKS = (100, 300, 1_000, 10_000)
QUERIES, ITEMS, FEATURES, TESTED = 100, 10, 20, 2_000


def relevance_of(scores, world):
    return np.full(len(scores), 0.5) if world == "equal" else 1 / (1 + np.exp(0.5 - scores))


def one(world, n_clicks, seed):
    """Return the share of the draws that leave, whether that is shown, and the true change."""
    rng = np.random.default_rng([seed, n_clicks])
    weights = rng.normal(size=FEATURES)
    features = rng.random(((QUERIES + TESTED) * ITEMS, FEATURES))
    scores = features @ weights
    scores = (scores - scores.mean()) / scores.std()
    learned, tested = np.split(np.arange(len(scores)), [QUERIES * ITEMS])
    query = np.repeat(np.arange(QUERIES), ITEMS)
    dataset = RankingDataset.from_arrays(features[learned], np.zeros(len(learned)), query)
    rank = ranks_of(scores[learned], dataset.offsets)
    relevance = relevance_of(scores[learned], world)
    chance = (1 - relevance if world == "inverted" else relevance) / rank
    chance /= np.repeat(np.add.reduceat(chance, dataset.offsets[:-1]), ITEMS) * QUERIES
    row = rng.choice(len(chance), n_clicks, p=chance)
    log = ClickLog(query[row], row % ITEMS, 1 / rank[row], position=rank[row])
    ranker = CounterSampleRanker(random_state=seed)
    ranker.fit_log(dataset, log, baseline=scores[learned])

    def dcg(by):
        rank = ranks_of(np.asarray(by, np.float64), np.arange(TESTED + 1) * ITEMS)
        return relevance_of(scores[tested], world) @ (1 / np.log2(1 + rank))

    change = dcg(ranker.predict(features[tested])) / dcg(scores[tested]) - 1
    return 1 - ranker.path_.kept, ranker.path_.is_shown, change


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--logs", type=int, default=20, help="of each world and number of clicks")
    args = parser.parse_args()
    print(
        f"{'world':9} {'clicks':>7} {'logs':>5} {'left':>6} {'shown':>6} {'change':>8} {'worst':>8}"
    )
    for world in WORLDS:
        for n_clicks in CLICKS:
            found = np.array([one(world, n_clicks, seed) for seed in range(args.logs)])
            left, shown, change = found.mean(axis=0)
            print(
                f"{world:9} {n_clicks:7,} {args.logs:5} {left:6.0%} {shown:6.0%} "
                f"{change:+8.2%} {found[:, 2].min():+8.2%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
