"""Logs of shops with the truth known, made by examples/make_shop_log.py."""

import importlib.util
from functools import cache

import numpy as np
from conftest import ROOT, SEED

from countersample import PositionBias, synthetic
from countersample.clicks import simulate_impressions
from countersample.fitting import fit_from_impressions
from countersample.logs import FeatureTable, read_features, read_impressions

KNOWN = PositionBias(1.0)  # the true curve of every shop


def load_example(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKE = load_example("make_shop_log")


def make(seed, *, queries=100, sessions=4000, policies=None, gamma=1.0):
    """Return the tables of impressions and features; rows of some policies only, if named."""
    rng = np.random.default_rng(seed)
    features, wanted = MAKE.make_shop(queries, rng)
    log = MAKE.make_log(features, wanted, sessions, gamma, rng)
    if policies is not None:
        log = log.filter(np.isin(log["policy"].to_pylist(), policies))
    return log, features


def opened(log, features, **options):
    return read_impressions(log, **options), read_features(features)


@cache
def usual_shop():
    return make(SEED)


@cache
def usual_fit():
    """Return the fit of the usual shop by default; tests do not change it."""
    return fit_from_impressions(*opened(*usual_shop()), seed=SEED)


@cache
def known_fit():
    """Return the fit of the usual shop with its true propensities; tests do not change it."""
    return fit_from_impressions(*opened(*usual_shop()), propensities=KNOWN, seed=SEED)


@cache
def top_five():
    """Return a dataset, its table of features, and a log of pages that show five of many items."""
    data = synthetic("tiny", n_queries=300, rng=SEED)
    items = np.arange(data.n_items) - np.repeat(data.offsets[:-1], data.query_sizes)
    policies = {"old": data.features[:, 0], "new": data.features[:, 1] + data.features[:, 0] / 2}
    log = simulate_impressions(
        data, policies, 30_000, shares=[0.9, 0.1], top=5, bias=KNOWN, rng=SEED
    )
    return data, FeatureTable(data, items, has_labels=True), log


def with_column(table, name, values):
    """Return a table with other values in a column."""
    return table.set_column(table.column_names.index(name), name, [values])
