"""Small problems to train on, and settings under which rounding stays small."""

import numpy as np
from conftest import SEED

from countersample import ClickLog, RankingDataset, simulate_clicks, synthetic
from countersample.plans import Examples
from countersample.training import OPTIMIZERS

# Steps of similar lengths
RATES = {"sgd": 0.003, "adam": 0.005, "adagrad": 0.02, "dog": 0.1, "amsgrad": 0.005}
METHODS = ("naive", "ips", "countersample")  # which need no settings


def random_problem(rng, n_rows=30):
    """A small dataset and a log of it, with features far from ties."""
    n_queries, width = int(rng.integers(1, 6)), int(rng.integers(1, 40))
    sizes = rng.integers(1, 20, n_queries)
    qid = np.repeat(np.arange(n_queries), sizes)
    data = RankingDataset.from_arrays(
        X=rng.normal(size=(len(qid), width)) / np.sqrt(width), y=np.zeros(len(qid)), qid=qid
    )
    query = rng.integers(0, n_queries, n_rows)
    item = rng.integers(0, sizes[query])
    return data, ClickLog(query=query, item=item, propensity=rng.uniform(0.05, 1, n_rows))


def calm(optimizer):
    """Where gradients cancel out, float32 leaves 1e-9 or so: by default, a whole step of some."""
    calming = {"epsilon": 0.01, "first_distance": 0.05}
    return {k: v for k, v in calming.items() if k in OPTIMIZERS[optimizer].defaults}


def plan_settings(method, log, unit, rng):
    name = {"bounded": "bounds", "proposal": "probabilities"}.get(method)
    return {} if name is None else {name: rng.uniform(1, 2, len(Examples.of(log, unit)))}


def close(ours, twin, tolerance=1e-4):
    np.testing.assert_allclose(ours, twin, rtol=tolerance, atol=tolerance * np.abs(twin).max())


def small_shop():
    """A dataset of sixty queries and five features, and 3,000 clicks."""
    data = synthetic("tiny", n_queries=60, rng=SEED).normalized()
    return data, simulate_clicks(data, data.features[:, 0], 3000, rng=SEED)
