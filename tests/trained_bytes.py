"""What training computes, down to the last bit: run under the name of another CPU, it is the same.

NUMBA_CPU_NAME=haswell NUMBA_CPU_FEATURES= python tests/trained_bytes.py
"""

import hashlib
import itertools
import json
import sys

import numpy as np

from countersample import ClickLog, RankingDataset
from countersample.objectives import OBJECTIVES
from countersample.plans import UNITS
from countersample.training import OPTIMIZERS, train_many

RATES = [0.001 * 2**k for k in range(6)]  # batched by four and one by one


def problem(width):
    """Thirty queries and clicks on them, made of whole numbers: the same on any CPU."""
    rng = np.random.default_rng(width)
    sizes = rng.integers(1, 40, 30)
    features = rng.integers(-500, 500, (sizes.sum(), width)) / 1000
    qid = np.repeat(np.arange(30), sizes)
    data = RankingDataset.from_arrays(features, np.zeros(len(qid)), qid)
    query = rng.integers(0, 30, 200)
    item = rng.integers(0, sizes[query])
    return data, ClickLog(query, item, 1 / rng.integers(1, 20, 200))


def trained():
    """A digest of the weights of each objective, optimizer, unit and batch size."""
    digests = {}
    for kind in itertools.product(OBJECTIVES, OPTIMIZERS, UNITS, (1, 20)):
        objective, optimizer, unit, batch_size = kind
        data, log = problem(width=61)  # 48 + 8 + 4 + 1: all ways to end a sum
        results = train_many(
            data, log, learning_rates=RATES, seeds=[0], steps=300, objective=objective,
            optimizer=optimizer, unit=unit, batch_size=batch_size, radius=3.0,
        )  # fmt: skip
        weights = np.array([(result.coef, result.average_coef) for result in results])
        digests[" ".join(map(str, kind))] = hashlib.sha256(weights.tobytes()).hexdigest()
    return digests


if __name__ == "__main__":
    sys.stdout.write(json.dumps(trained()))
