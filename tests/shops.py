"""Logs of shops with the truth known, made by examples/make_shop_log.py."""

import importlib.util

import numpy as np
from conftest import ROOT

from countersample.logs import read_features, read_impressions


def load_example(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKE = load_example("make_shop_log")


def make(seed, *, queries=100, sessions=4000, policies=None, gamma=1.0):
    """Return the tables of impressions and features; by some of the policies only, if asked."""
    rng = np.random.default_rng(seed)
    features, wanted = MAKE.make_shop(queries, rng)
    log = MAKE.make_log(features, wanted, sessions, gamma, rng)
    if policies is not None:
        log = log.filter(np.isin(log["policy"].to_pylist(), policies))
    return log, features


def opened(log, features, **options):
    return read_impressions(log, **options), read_features(features)
