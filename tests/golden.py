"""Compute the numbers that no refactoring may change: the golden values.

    python tests/golden.py --write [subject ...]

Each function in `SUBJECTS` computes numbers of one subject from fixed inputs, whatever
COUNTERSAMPLE_TEST_SEED is. ``--write`` stores them in ``tests/golden/<subject>.json``, and
``test_golden.py`` compares. Write them again only if a number is meant to change, and say in the
commit why.

A refactoring adapts the imports and the section "Calls of the package"; the stored values stay.
"""

import argparse
import hashlib
import json
import math
import os
import platform
import re
import tempfile
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path

import llvmlite.binding
import numpy as np
import pyarrow as pa
from day_logs import day_log
from made_rankers import KINDS, NAMES, made, made_missing, predict, ranker_of, some_features
from made_rankers import with_holes as punch_holes
from pyarrow import compute, csv, parquet
from readers_export import elasticsearch_scores, solr_scores, sql_scores
from scipy.special import expit
from shops import make as make_shop
from shops import opened
from study_runs import finish
from twins_propensity import counted, served, shuffled

from countersample import (
    ClickLog,
    CounterSampleRanker,
    GBDTRanker,
    NeuralRanker,
    RankingDataset,
    estimate,
    estimate_gain,
    evaluate,
    propensity,
    simulate_clicks,
    synthetic,
    theory,
    train,
)
from countersample.clicks import (
    CLICK_MODELS,
    Shuffled,
    Swapped,
    TableBias,
    TeamDraft,
    diagnose,
    simulate_impressions,
)
from countersample.data.encoder import EncodedColumn, FeatureEncoder, learn_encoder
from countersample.data.preprocessing import (
    IMPUTATIONS,
    TRANSFORMS,
    Imputer,
    Normalizer,
    Preprocessing,
)
from countersample.data.preprocessing import SCALINGS as NORMALIZATIONS
from countersample.evaluation import ESTIMATORS, HeldOut, compare, logged_values, plan_ab_test
from countersample.export import export
from countersample.export.targets import TARGETS
from countersample.fitting import (
    compare_from_impressions,
    find_leaks,
    fit_from_impressions,
    judgements_from_impressions,
)
from countersample.logs import (
    PositionCounts,
    count_days,
    join_features,
    read_impressions,
)
from countersample.metrics import METRICS
from countersample.objectives import OBJECTIVES
from countersample.options import EvaluationOptions, PropensityOptions
from countersample.plans import PLANS, UNITS, Examples, make_plan
from countersample.propensity.estimation import needs_features
from countersample.scorers import LinearScorer
from countersample.study.experiment import plan
from countersample.study.results import write_results
from countersample.study.store import Store
from countersample.training import risk

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(__file__).resolve().parent / "golden"
RANKER_METHODS = ("countersample", "ips", "naive")
LONGEST = 14  # numbers of an array that are stored one by one
DIGEST = "(digest)"
TOLERANCE = 1e-12
ENDS = 2  # numbers stored from each end of a longer array

# -- Inputs: whole numbers and their quotients, the same on every CPU ------------------------------


@cache
def fixed_data(n_queries=40, width=13):
    """Return a dataset with features in thousandths and grades from 0 to 4."""
    rng = np.random.default_rng(1)
    sizes = rng.integers(2, 15, n_queries)
    features = rng.integers(0, 1000, (sizes.sum(), width)) / 1000
    grades = (5 * (features[:, 1] + features[:, 2]) / 2).astype(int)
    return RankingDataset.from_arrays(features, grades, np.repeat(np.arange(n_queries), sizes))


@cache
def fixed_log(seed=2, column=0):
    """Return clicks on rankings by one feature: every item has a row, at each of two positions."""
    data, rng = fixed_data(), np.random.default_rng(seed)
    columns = {name: [] for name in ("query", "item", "position", "impressions", "count")}
    for query, (start, end) in enumerate(zip(data.offsets[:-1], data.offsets[1:], strict=True)):
        ranks = np.argsort(np.argsort(-data.features[start:end, column], kind="stable"))
        for position, shown in ((ranks + 1, 60), ((ranks + 1) % (end - start) + 1, 20)):
            rate = (1 + data.labels[start:end]) / (6 * position)
            columns["query"] += [query] * (end - start)
            columns["item"] += range(end - start)
            columns["position"] += position.tolist()
            columns["impressions"] += [shown] * (end - start)
            columns["count"] += (rng.random((shown, end - start)) < rate).sum(axis=0).tolist()
    arrays = {name: np.array(values) for name, values in columns.items()}
    theta = 1 / arrays["position"]
    pair = 100 * arrays["query"] + arrays["item"]
    rho = np.bincount(pair, theta * arrays["impressions"])[pair] / 80
    return ClickLog(
        arrays["query"], arrays["item"], rho, arrays["count"], position=arrays["position"],
        impressions=arrays["impressions"], examination=theta, sessions=np.full(len(theta), 80),
        n_sessions=80 * data.n_queries,
    )  # fmt: skip


def on_days(log, n_days=10):
    """Return a log whose sessions are spread evenly over days."""
    session = log["session"].to_numpy()
    day = session * n_days // (session.max() + 1)
    stamps = np.datetime64("2026-03-01T12:00:00", "us") + day * np.timedelta64(1, "D")
    return log.append_column("timestamp", pa.array(stamps))


def in_contexts(logs):
    """Return the counts of several contexts as one log."""
    columns = [
        np.concatenate([getattr(log, name) for log in logs.values()])
        for name in ("query", "item", "position", "clicks", "impressions")
    ]
    context = np.repeat(list(logs), [len(log) for log in logs.values()])
    return PositionCounts.from_columns(*columns, context=context)


def counts_with_trust(rng, n_queries=100, depth=5):
    """Return counts of four rankings per query with P(click at k) = β_k + α_k·r."""
    alpha, beta = 0.6 / np.arange(1, depth + 1), 0.2 / np.arange(1, depth + 1) ** 2
    relevance = (rng.random((n_queries, depth)) < 0.3).astype(float)
    scores = relevance[:, None] + rng.standard_normal((n_queries, 4, depth))
    item = np.argsort(-scores, axis=2)
    query = np.broadcast_to(np.arange(n_queries)[:, None, None], item.shape)
    index = np.broadcast_to(np.arange(depth), item.shape)
    rate = beta[index] + alpha[index] * relevance[query, item]
    cells = (query, item, index + 1, np.full(item.shape, 50), rate)
    return counted(*(cell.ravel() for cell in cells), rng)


@cache
def data_with_holes():
    data = fixed_data()
    return data.with_features(punch_holes(data.features, np.random.default_rng(3)))


# -- Calls of the package: what a refactoring adapts -----------------------------------------------


def fit_linear(data=None, log=None, **params):
    data, log = data or fixed_data(), log or fixed_log()
    return CounterSampleRanker(**{"random_state": 0} | params).fit_log(data, log)


def linear_weights(ranker):
    return {"weights": ranker.weights_, "last weights": ranker.coef_, "steps": ranker.n_steps_}


def estimate_numbers(result):
    names = ("value", "low", "high", "n_clicks", "effective_clicks", "never_shown")
    return {name: getattr(result, name) for name in names if getattr(result, name) is not None}


def gain_numbers(gain):
    names = ("value", "low", "high", "relative", "relative_low", "relative_high")
    return {
        **{name: getattr(gain, name) for name in names},
        **prefix("new", estimate_numbers(gain.new)),
        **prefix("logged", estimate_numbers(gain.logged)),
    }


def curve_numbers(curve):
    names = ("value", "low", "high", "n_impressions")
    return {name: getattr(curve, name) for name in names}


def counts_numbers(counts):
    names = ("query", "item", "position", "context", "impressions", "clicks", "value", "sessions")
    return {name: getattr(counts, name) for name in names}


def log_numbers(log):
    names = ("query", "item", "propensity", "count", "session", "position")
    return {name: getattr(log, name) for name in names if getattr(log, name) is not None}


def leak_numbers(leaks):
    numbers = {}
    for leak in leaks:
        period = {"training": "learned", "evaluation": "judged"}.get(leak.period, leak.period)
        key = f"{leak.name} {period} {leak.evidence}"
        numbers |= {f"{key} size": leak.size, f"{key} false alarm": leak.false_alarm}
    return {"count": len(leaks), **numbers}


def fit_numbers(fit):
    """Return the numbers of a fit; of its words only the kind of verdict and the figures."""
    kinds = {
        "better": fit.is_better,
        "worse": fit.decision.is_worse,
        "withheld": fit.decision.is_withheld,
        "kept": fit.keeps_logged,
    }
    plan_numbers = {k: v for k, v in asdict(fit.ab_plan).items() if v is not None}
    ends = () if fit.gain_at_ends is None else fit.gain_at_ends
    return {
        "verdict": "+".join(kind for kind, holds in kinds.items() if holds) or "not shown",
        "verdict figures": " ".join(re.findall(r"[-+]?\d+\.\d+ ?%", fit.verdict)),
        "estimator": fit.estimator.name,
        "gain at ends": ends,
        "learning curve": [each.value for _, each in fit.learning_curve],
        "mean weight": fit.weights.mean_weight,
        "n warnings": len(fit.warnings),
        **prefix("gain", gain_numbers(fit.gain)),
        **prefix("A/B plan", plan_numbers),
        **prefix("leaks", leak_numbers(fit.leaks)),
        **prefix("shown", log_numbers(fit.shown)),
        "heaviest": [each.weight for each in fit.heaviest],
    }


def comparison_numbers(comparison):
    names = ("value", "low", "high", "relative", "relative_low", "relative_high")
    numbers = {}
    for each in comparison.differences:
        numbers |= prefix(each.candidate, {name: getattr(each, name) for name in names})
        numbers[f"{each.candidate}: verdict"] = comparison.verdicts[each.candidate].outcome
    for name, each in comparison.estimates.items():
        numbers |= prefix(f"estimate of {name}", estimate_numbers(each))
    return numbers


def prefix(name, numbers):
    return {f"{name}: {key}": value for key, value in numbers.items()}


# -- Subjects --------------------------------------------------------------------------------------


RATE = {"learning_rate": 0.01, "steps": 300}


def linear():
    """Weights of the linear ranker with a learning rate."""
    configurations = {
        **{
            f"{method} by {unit}": {"method": method, "unit": unit}
            for method, unit in product(RANKER_METHODS, UNITS)
        },
        **{
            f"{optimizer}, batch size {size}": {"optimizer": optimizer, "batch_size": size}
            for optimizer in ("sgd", "adam", "adagrad", "amsgrad")
            for size in (1, 20)
        },
        **{f"objective {name}": {"objective": name} for name in (*OBJECTIVES, "precision@5")},
        **{f"normalize {name}": {"normalize": name} for name in (None, *NORMALIZATIONS)},
        **{f"transform {name}": {"feature_transform": name} for name in TRANSFORMS},
        "clip": {"clip": 0.2},
        "not averaged": {"average": False},
        "l2": {"l2": 0.1},
        "radius": {"radius": 0.1},
        "temper": {"temper": 0.5},
    }
    numbers = {}
    for name, params in configurations.items():
        numbers |= prefix(name, linear_weights(fit_linear(**RATE | params)))
    for name in (each for each in IMPUTATIONS if each != "error"):
        ranker = fit_linear(data_with_holes(), fixed_log().detached(), impute=name, **RATE)
        numbers |= prefix(f"impute {name}", linear_weights(ranker))
    ranker = fit_linear(warm_start=True, **RATE)
    ranker.fit_log(fixed_data(), fixed_log(seed=4, column=1))
    return numbers | prefix("warm start", linear_weights(ranker))


def linear_paths():
    """Weights of the linear ranker without a learning rate, or from the current ranker."""
    numbers = {}
    for name, params in {
        "by default": {},
        "safety 0": {"safety": 0},
        "from zero, temper 0.5": {"start": "zero", "temper": 0.5},
        "naive": {"method": "naive"},
        "ips by click": {"method": "ips", "unit": "click"},
        "by pair": {"unit": "pair"},
        "clip": {"clip": 0.2},
        "doubly robust": {"doubly_robust": True},
        "transform chosen": {"feature_transform": "auto", "steps": 1000},
        "l2 and radius": {"l2": 0.01, "radius": 1.0},
        "learning rate, from the served ranker": RATE | {"start": "served"},
    }.items():
        numbers |= prefix(name, linear_weights(fit_linear(**params)))
    ranker = fit_linear(data_with_holes(), fixed_log().detached())
    numbers |= prefix("missing values", linear_weights(ranker))
    ranker = fit_linear(warm_start=True)
    ranker.fit_log(fixed_data(), fixed_log(seed=4, column=1))
    numbers |= prefix("warm start", linear_weights(ranker))
    return numbers | prefix("fit of a shop", linear_weights(default_fit().ranker))


def training():
    """Weights by every plan and unit, risks, and what the theorems say."""
    data, log, numbers = fixed_data(), fixed_log().weighted(), {}
    rate = {"learning_rate": 0.01, "steps": 200, "rng": 0}
    for method, unit in product(PLANS, UNITS):
        name = f"{method} by {unit}"
        examples = Examples.of(log, unit)
        bounds = theory.gradient_bounds(data, examples)
        given = {"bounded": {"bounds": bounds}, "proposal": {"probabilities": 1 + bounds}}
        options = given.get(method, {})
        result = train(data, log, method=method, unit=unit, **rate, **options)
        numbers[f"{name}: last"], numbers[f"{name}: mean"] = result.coef, result.average_coef
        draws = make_plan(method, examples, **options)
        numbers[f"{name}: multipliers"] = draws.multipliers
        numbers[f"{name}: probabilities"] = draws.probabilities
        numbers[f"{name}: worst case"] = theory.worst_case(draws, bounds)
    for name in OBJECTIVES:
        found = risk(data, log, np.ones(data.n_features), objective=name)
        numbers[f"risk, {name}"] = [found.mean, found.deviation]
    return numbers


def neural():
    """Scores and weights of the PyTorch ranker."""
    numbers = {}
    small = {"hidden": (4,), "learning_rate": 0.01, "batch_size": 250, "random_state": 0}
    for name, params in {
        "zero": {"epochs": 3, "patience": None, "safety": 0, "start": "zero"},
        "stopped by held-out clicks": {"epochs": 4, "patience": 1},
        "root, standard": {
            "epochs": 2, "patience": None, "safety": 0, "feature_transform": "root",
            "normalize": "standard",
        },
    }.items():  # fmt: skip
        ranker = NeuralRanker(**small | params).fit_log(fixed_data(), fixed_log())
        numbers[f"{name}: scores"] = ranker.predict(fixed_data())
        for layer, weights in enumerate(ranker.scorer_.weights):
            numbers[f"{name}: weights {layer}"] = weights
    return numbers


def _trees(backend, threads):
    """Scores of boosted trees by one library."""
    numbers = {}
    few = {
        "backend": backend, "n_trees": 6, "num_leaves": 4, "min_items_in_leaf": 1,
        "backend_params": {threads: 1}, "random_state": 0,
    }  # fmt: skip
    for name, data, params in [
        ("ips", fixed_data(), {"patience": None, "safety": 0}),
        ("naive, minmax", fixed_data(), {
            "patience": None, "safety": 0, "method": "naive", "normalize": "minmax",
        }),
        ("stopped by held-out clicks", fixed_data(), {"patience": 2}),
        ("missing values", data_with_holes(), {"patience": None, "safety": 0}),
    ]:  # fmt: skip
        ranker = GBDTRanker(**few | params).fit_log(data, fixed_log().detached())
        numbers[f"{name}: scores"] = ranker.predict(data)
        numbers[f"{name}: thresholds"] = ranker.scorer_.threshold
    return numbers


def lightgbm():
    """Scores of the LightGBM ranker."""
    return _trees("lightgbm", "num_threads")


def xgboost():
    """Scores of the XGBoost ranker."""
    return _trees("xgboost", "nthread")


def propensities():
    """Propensity curves with their intervals, of each method, and exposure."""
    rng = np.random.default_rng(5)
    theta = 1 / np.arange(1, 6)
    features = rng.standard_normal((40, 5, 2))
    relevance = expit(features @ [1.0, -1.0] - 1)
    counts = shuffled(rng, theta, n_queries=40, sessions=60, relevance=relevance)
    features = features[propensity.pair_ids(counts)]
    numbers = {}
    for method in propensity.METHODS:
        options = {"features": features} if needs_features(method) else {}
        curve = propensity.estimate(counts, method=method, n_bootstrap=20, rng=6, **options)
        numbers |= prefix(method, curve_numbers(curve))
    law = propensity.estimate_gamma(counts, method="all-pairs", n_bootstrap=20, rng=6)
    numbers |= {"power law": [law.gamma, law.low, law.high]}
    options = {"n_queries": 60, "sessions": 100, "n_rankers": 4, "noise": 1}
    devices = {
        name: served(rng, np.arange(1, 6) ** -gamma, **options)[0]
        for name, gamma in {"desktop": 0.5, "phone": 2.0}.items()
    }
    by_context = propensity.estimate_by_context(in_contexts(devices), n_bootstrap=20, rng=6)
    for name, curve in by_context.curves.items():
        numbers |= prefix(f"context {name}", curve_numbers(curve))
    trust = propensity.estimate_trust(counts_with_trust(rng), n_bootstrap=20, rng=6)
    names = ("alpha", "alpha_low", "alpha_high", "beta", "beta_low", "beta_high", "p_value")
    return numbers | prefix("trust", {name: getattr(trust, name) for name in (*names, "origin")})


def exposure():
    """Exposure of items when pages show the top of a list; statistics of weights."""
    data = fixed_data()
    rows = simulate_impressions(
        data, {"old": data.features[:, 0], "new": data.features[:, 1]}, 600, shares=[0.75, 0.25],
        top=3, bias=TableBias(1 / np.arange(1, 16)), relevant=3, rng=7,
    )  # fmt: skip
    counts = read_impressions(rows).counts()
    numbers = {}
    for how in ("policy-aware", "position-only"):
        log, _ = join_features(
            counts, 1 / np.arange(1, 4), data, exposure=how, missing="error", keep="shown"
        )
        numbers |= prefix(how, log_numbers(log) | {"weights": log.weights})
    diagnosis = diagnose(fixed_log().weighted())
    names = ("max_weight", "mean_weight", "effective_clicks", "predicted_gain", "top_share")
    return numbers | prefix("diagnosis", {name: getattr(diagnosis, name) for name in names})


@cache
def default_fit():
    log, features = make_shop(11, queries=60, sessions=1500)
    return fit_from_impressions(*opened(log, features), seed=0)


def fit():
    """Gain with intervals, verdict, A/B plan and leaks of a fit on a shop log, by default."""
    curve = default_fit().propensity_source.curve
    return fit_numbers(default_fit()) | prefix("curve", curve_numbers(curve))


def fits():
    """The same with other options, and of other logs."""
    numbers = {}
    log, features = make_shop(11, queries=60, sessions=1500)
    options = {
        "ranker": CounterSampleRanker(steps=500),
        "propensities": TableBias(1 / np.arange(1, 11)),
        "seed": 0,
    }
    dated, table = opened(on_days(log), features)
    fit = fit_from_impressions(dated.with_half_life("5d"), table, **options)
    numbers |= prefix("by time", fit_numbers(fit))
    clicks = compute.cast(log["click"], pa.float32())
    shown = pa.table({"item_id": log["item_id"], "click": clicks})
    means = shown.group_by("item_id").aggregate([("click", "mean")])
    leaky = features.join(means, "item_id").sort_by("item_id")
    leaky = leaky.rename_columns([*features.column_names, "click_rate"])
    leaky = leaky.set_column(
        leaky.num_columns - 1, "click_rate", compute.fill_null(leaky["click_rate"], 0)
    )
    snips = EvaluationOptions(estimator="snips")
    fit = fit_from_impressions(*opened(log, leaky), evaluation=snips, **options)
    numbers |= prefix("with a leak", fit_numbers(fit))
    one_policy, features = make_shop(12, queries=40, sessions=400, policies=["by-sales"])
    by_position = PropensityOptions(known=options["propensities"], exposure="position-only")
    fit = fit_from_impressions(
        *opened(one_policy, features),
        evaluation=EvaluationOptions(estimator="dr"),
        **options | {"propensities": by_position},
    )
    numbers |= prefix("doubly robust", fit_numbers(fit))
    few, features = make_shop(17, queries=30, sessions=150, policies=["by-reviews"])
    fit = fit_from_impressions(*opened(few, features), **options)
    return numbers | prefix("few sessions", fit_numbers(fit))


def comparisons():
    """Values and differences of rankers by a log, with every off-policy estimator."""
    data, log = fixed_data(), fixed_log()
    scores = {"a": data.features[:, 1], "b": data.features[:, 2], "c": data.features[:, 3]}
    numbers = {}
    for name in ESTIMATORS:
        control = {"control": fixed_log(seed=8)} if name == "beta-ips" else {}
        options = {"estimator": name, "n_bootstrap": 100, "rng": 0} | control
        numbers |= prefix(
            f"{name} value", estimate_numbers(estimate(scores["a"], log, data, **options))
        )
        numbers |= prefix(
            f"{name} gain", gain_numbers(estimate_gain(scores["a"], log, data, **options))
        )
        numbers |= prefix(
            f"{name} compared", comparison_numbers(compare(scores, log, data, **options))
        )
    for metric in ("dcg", "precision@3", "arp"):
        found = estimate(scores["a"], log, data, metric=metric, n_bootstrap=100, rng=0)
        numbers |= prefix(metric, estimate_numbers(found))
    shop_log, features = make_shop(13, queries=60, sessions=1500)
    opened_shop = opened(shop_log, features)
    matrix = opened_shop[1].dataset.features
    candidates = {"by match": matrix[:, 0], "by match and reviews": matrix[:, 0] + matrix[:, 1]}
    judged = compare_from_impressions(*opened_shop, candidates, seed=0)
    numbers |= prefix("from impressions", comparison_numbers(judged.comparison))
    ab_plan = plan_ab_test(scores["a"], log, data, n_bootstrap=100, rng=0)
    numbers |= prefix("A/B plan", {k: v for k, v in asdict(ab_plan).items() if v is not None})
    logged = logged_values(log, data, "dcg@10")
    held_out = HeldOut(data, log, "dcg@10", logged=logged, rng=np.random.default_rng(0))
    scorers = [LinearScorer(np.eye(data.n_features)[1])] * len(held_out.folds)
    sums, logged_sums = held_out.sums(scorers), held_out.logged_sums()
    return numbers | {
        "held out: value": held_out.value(sums),
        "held out: logged value": held_out.value(logged_sums),
        "held out: z": held_out.z_score(sums, logged_sums),
        "held out: sums": sums,
        "held out: logged": logged,
        "held out: intervals": held_out.intervals(np.stack([sums]), np.random.default_rng(0)),
    }


def leaks():
    """Statistics of features that were computed from the clicks that evaluate them."""
    rng = np.random.default_rng(9)
    query, item = np.divmod(np.arange(2000), 10)
    clicks, later = (rng.binomial(40, 0.2 / (item + 1)) for _ in range(2))
    columns = [
        rng.integers(0, 1000, 2000) / 1000,
        clicks / 40,
        (clicks + later) / 80,
        1 / (item + 1),
    ]
    data = RankingDataset.from_arrays(np.column_stack(columns), np.zeros(2000), query)
    shown, judged = (
        ClickLog(query, item, 1 / (item + 1), count, impressions=np.full(2000, 40))
        for count in (clicks, later)
    )
    one = find_leaks(shown, data, item_ids=item, rng=np.random.default_rng(0))
    both = find_leaks(shown, data, evaluation=judged, rng=np.random.default_rng(0))
    return prefix("one log", leak_numbers(one)) | prefix("two periods", leak_numbers(both))


def judgements():
    """Relevance of items with intervals, and grades."""
    numbers = {}
    log, _ = make_shop(14, queries=30, sessions=1500)
    for name, options in {
        "estimated": {},
        "known": {
            "propensities": TableBias(1 / np.arange(1, 11)),
            "grades": [0.2, 0.4],
            "confidence": 0.9,
        },
    }.items():
        table = judgements_from_impressions(read_impressions(log), seed=0, **options)
        columns = (
            "relevance",
            "low",
            "high",
            "grade",
            "clicks",
            "impressions",
            "exposure",
            "cut_offs",
        )
        numbers |= prefix(name, {column: getattr(table, column) for column in columns})
        numbers[f"{name}: left out"] = table.n_left_out
    return numbers


def _read_onnx(path, _, rows):
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(["scores"], {"features": rows.astype(np.float32)})[0]


def _read_search(path, names, rows):
    return elasticsearch_scores(path, names, rows)


READERS = {
    "onnx": _read_onnx,
    "elasticsearch": _read_search,
    "opensearch": _read_search,
    "solr": solr_scores,
    "sql": sql_scores,
}


def _export_scores(targets):
    """Return the scores of exported rankers, as their readers compute them."""
    numbers = {}
    cases = [
        (f"{kind}, {how}, {transform}", made, kind, how, {"transform": transform})
        for kind in KINDS
        for how, transform in [
            (None, None), ("minmax", None), ("standard", None), ("root-minmax", None),
            ("query-minmax", None), ("minmax", "log"), ("standard", "root"), (None, "quantile"),
        ]
    ]  # fmt: skip
    cases += [(f"{kind}, missing values", made_missing, kind, "minmax", {}) for kind in KINDS]
    with tempfile.TemporaryDirectory() as folder:
        for (name, make, kind, how, options), to in product(cases, targets):
            is_search = to not in {"onnx", "sql"}
            if kind not in TARGETS[to].kinds or (is_search and not _search_can(how, options)):
                continue
            ranker, rows = make(kind, how, np.random.default_rng(10), **options)
            rows = rows[:60]
            names, given = NAMES, rows
            if is_search and ranker.preprocessing_.imputer is not None:
                names, given = (
                    ranker.preprocessing_.imputer.names(NAMES),
                    ranker.preprocessing_.imputer.transform(rows),
                )
            needs = {"onnx": {"one_query": True}, "sql": {"query": "query"}}
            more = needs[to] if how == "query-minmax" else {}
            path = export(ranker, Path(folder) / f"{len(numbers)}.out", to=to, **more).path
            numbers[f"{to}: {name}"] = READERS[to](path, names, given)
            if to == "onnx":
                numbers[f"predict: {name}"] = predict(ranker, rows)
            if kind == "boosted" and to == "elasticsearch" and make is made:
                path = export(ranker, path, to=to, model_type="ranklib").path
                numbers[f"ranklib: {name}"] = READERS[to](path, names, given)
    return numbers


def _search_can(how, options):
    """Tell whether search engines can express this normalisation."""
    return how in {None, "minmax", "standard"} and options.get("transform") is None


def exports():
    """Scores of exported rankers: SQL in DuckDB, and the readers of search models."""
    numbers = _export_scores([name for name in TARGETS if name != "onnx"])
    with tempfile.TemporaryDirectory() as folder:
        encoder = FeatureEncoder((
            EncodedColumn("price", "number"),
            EncodedColumn("day", "date", reference="2026-03-31"),
            EncodedColumn("color", "category", values=("blue", "it's")),
        ))  # fmt: skip
        weights = LinearScorer(np.array([1.0, 10.0, 0.1, 0.2]))
        ranker = ranker_of("linear", weights, names=encoder.feature_names)
        ranker.preprocessing_ = Preprocessing(encoder)
        path = export(ranker, Path(folder) / "v.sql", to="sql").path
        days = pa.array(["2026-03-30", "2025-03-31", "2026-04-01"]).cast(pa.date32())
        columns = ([3.0, 0.25, -1.0], days, pa.array(["blue", "it's", "green"]))
        numbers["sql: encoder"] = _sql_with_columns(path, encoder.column_names, columns)
    return numbers


def _sql_with_columns(path, names, columns):
    import duckdb

    with duckdb.connect() as connection:
        table = {"item": range(len(columns[0]))} | dict(zip(names, columns, strict=True))
        connection.register("features", pa.table(table))
        connection.execute(path.read_text().replace("CREATE OR REPLACE", "CREATE TEMPORARY"))
        return connection.table(path.stem).order("item").fetchnumpy()["score"]


def exports_onnx():
    """Scores of ONNX models, and of the rankers they were made from."""
    return _export_scores(["onnx"])


def metrics():
    """All metrics on fixed rankings with ties."""
    data = fixed_data()
    scores = np.floor(4 * data.features[:, 0]) / 4  # few values: ties
    ties = ("file", "best", "worst", "expected")
    numbers = {
        f"{name}@{k}, ties {how}": metric(data.labels, scores, data.offsets, k=k, ties=how)
        for (name, metric), k, how in product(METRICS.items(), (None, 3), ties)
        if k is None or name != "arp"  # which has no cut-off
    }
    for name, discount in product(("dcg", "ndcg"), ("log2", "letor")):
        options = {"gain": "linear", "discount": discount, "no_relevant": "skip"}
        found = METRICS[name](data.labels, scores, data.offsets, k=5, **options)
        numbers[f"{name}, linear, {discount}"] = found[np.isfinite(found)]
    names = [name if name == "arp" else f"{name}@5" for name in METRICS]
    return numbers | {
        f"evaluate {name}": value for name, value in evaluate(scores, data, names).items()
    }


PUBLISHED_TEXTS = ("dataset", "method", "key", "train_fingerprint", "test_fingerprint")


def published():
    """Columns of the published rows: digests."""
    numbers = {}
    for path in sorted((ROOT / "docs" / "results").glob("*.parquet")):
        table = parquet.read_table(path)
        numbers[f"{path.stem}: rows"] = table.num_rows
        for name in table.column_names:
            if pa.types.is_string(table[name].type):
                if name in PUBLISHED_TEXTS:
                    text = "\n".join(table[name].to_pylist()).encode()
                    numbers[f"{path.stem}: {name}"] = hashlib.sha256(text).hexdigest()
            else:
                values = compute.fill_null(compute.cast(table[name], pa.float64()), math.nan)
                numbers[f"{path.stem}: {name}"] = values.to_numpy()
    for path in sorted((ROOT / "docs" / "results").glob("*.csv")):
        table = csv.read_csv(path)
        for name in table.column_names:
            if not pa.types.is_string(table[name].type):
                values = compute.cast(table[name], pa.float64()).to_numpy()
                numbers[f"{path.stem}: {name}"] = values
    return numbers


GRID = """
title = "Golden"
about = "A study."
kind = "regret"
datasets = ["tiny"]
methods = ["Biased-SGD", "IPS-SGD", "CounterSample"]

[vary]
VALUES

[settings]
queries = 60
clicks = 400
epochs = 1.0
seeds = 2
evaluate_every = 20
learning_rates = [1e-3, 1e-2, 1e-1]
"""
OF_RUNS = (
    "seed", "step", "drawn", "ndcg", "diverged", "learning_rate", "max_weight", "mean_weight",
    "policy_ndcg",
)  # fmt: skip
OF_REFERENCES = ("best_ndcg", "regret")


@cache
def study_tables():
    """Return the rows of small studies, run to their end."""
    tables = {}
    for name, values in {
        "optimizers": 'optimizer = ["sgd", "adam", "adagrad"]',
        "position bias": "gamma = [0.5, 1.5]",
        "batch sizes": "batch_size = [1, 10]",
    }.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "golden.toml"
            path.write_text(GRID.replace("VALUES", values))
            experiment = plan([path], scale="paper")
            store = Store(Path(folder) / "out")
            store.claim(experiment.identity())
            work = finish(experiment, store)
            write_results(experiment.studies, work, store, Path(folder) / "rows.parquet")
            tables[name] = parquet.read_table(Path(folder) / "rows.parquet")
    return tables


def _study_columns(columns):
    return {
        f"{name}: {column}": compute.cast(table[column], pa.float64()).to_numpy()
        for name, table in study_tables().items()
        for column in columns
    }


def study():
    """Rows of small studies: the runs."""
    return _study_columns(OF_RUNS)


def study_references():
    """Rows of small studies: nDCG of training on all labels, and regret against it."""
    return _study_columns(OF_REFERENCES)


def clicks():
    """Simulated clicks of every click model and logging policy."""
    data, numbers = fixed_data(), {}
    old, new = data.features[:, 0], data.features[:, 1]
    bias = TableBias(1 / np.arange(1, 16))
    for model in CLICK_MODELS:
        log = simulate_clicks(data, old, 300, bias=bias, relevant=3, click_model=model, rng=0)
        numbers |= prefix(model, log_numbers(log))
    for name, policy in {
        "shuffled": Shuffled(old, depth=5),
        "swapped": Swapped(old, rate=0.3),
        "team draft": TeamDraft({"old": old, "new": new}),
        "mixture": {"old": old, "new": new},
    }.items():
        log = simulate_clicks(data, policy, 300, bias=bias, relevant=3, top=4, rng=0)
        numbers |= prefix(name, log_numbers(log))
    return numbers


def counts():
    """Counts of raw logs, and of logs that were counted by day."""
    log = day_log(0)
    numbers = prefix("raw", counts_numbers(read_impressions(log).counts()))
    numbers |= prefix(
        "half-life", counts_numbers(read_impressions(log).with_half_life("1d").counts())
    )
    numbers |= prefix("policy", counts_numbers(read_impressions(log).of_policy("a").counts()))
    check = read_impressions(log).check()
    own = read_impressions(log).logged_propensities(check.counts)
    numbers["logged propensities"] = own.value
    with tempfile.TemporaryDirectory() as folder:
        count_days(read_impressions(log), Path(folder) / "counts")
        by_day = read_impressions(Path(folder) / "counts").counts()
        numbers |= prefix("by day", counts_numbers(by_day))
    return numbers


def preparation():
    """Features as normalizers, transforms, imputers and encoders make them; synthetic data."""
    numbers = {}
    rows = some_features(np.random.default_rng(15), 90)
    qid = np.repeat(np.arange(9), 10)
    data = RankingDataset.from_arrays(rows, np.zeros(90), qid)
    for how, transform in [
        *((how, None) for how in NORMALIZATIONS),
        *product((None, *NORMALIZATIONS), TRANSFORMS),
    ]:
        if transform is None or how != "root-minmax":  # which is a transform itself
            normalizer = Normalizer.fit(data, how, transform)
            numbers[f"normalize {how}, {transform}"] = normalizer(data).features
    holed = data.with_features(punch_holes(rows, np.random.default_rng(16)))
    for how in (each for each in IMPUTATIONS if each != "error"):
        numbers[f"impute {how}"] = Imputer.fit(holed, how)(holed).features
    table = pa.table({
        "price": [1.5, 2.0, None, 4.0] * 30,
        "since": ["2026-03-01", "2026-02-28T12:00:00Z", "2026-03-01 06:00:00", None] * 30,
        "color": ["red", "blue", "red", None] * 30,
    })  # fmt: skip
    encoder = learn_encoder(dict.fromkeys(table.column_names, table)).encoder
    numbers["encoder"] = encoder.transform(table)[:4]
    made_up = synthetic("tiny", n_queries=20, rng=0)
    return numbers | {"synthetic features": made_up.features, "synthetic labels": made_up.labels}


# -- Storing ---------------------------------------------------------------------------------------


EVERY_CPU, WITH_FMA, SAME_CPU = "every CPU", "CPUs with FMA", "the stored CPU"


@dataclass(frozen=True)
class Subject:
    """A function that computes numbers, and how closely they must be met.

    Parameters
    ----------
    compute : callable
    exact_on : {EVERY_CPU, WITH_FMA, SAME_CPU}, optional
        If given, every bit must be as stored there (with the same versions of the libraries, but
        on every CPU); elsewhere `elsewhere` holds.
    elsewhere : float or None
        The largest relative difference on another CPU, or with other versions of the libraries;
        10^-12 on the stored CPU with the stored versions. None: nothing is compared elsewhere.
    libraries : tuple of str
        Packages whose version may change the last bits.
    is_slow : bool
    """

    compute: object
    exact_on: str | None = None
    elsewhere: float | None = TOLERANCE
    libraries: tuple[str, ...] = ("numpy", "numba", "scipy", "scikit-learn")
    is_slow: bool = False


# Measured as PyTorch without AVX, as Haswell, as x86-64 without FMA, and as `as_older_cpu.py` sets
# it; the comments have the largest relative differences there.
SUBJECTS = {
    # Compiled loops fuse multiplications and additions where the CPU can. Without FMA the last bits
    # differ, and a margin near the kink of a hinge falls on its other side.
    "linear": Subject(linear, WITH_FMA, elsewhere=1e-3),
    "training": Subject(training, SAME_CPU, elsewhere=1e-3),
    # Differs by 1e-6 as Haswell; probably BLAS, which solves for the weights where paths begin.
    "linear_paths": Subject(linear_paths, SAME_CPU, elsewhere=1e-2),
    # float32, and sums in another order.
    "neural": Subject(neural, libraries=("torch", "numpy"), elsewhere=1e-3, is_slow=True),
    "lightgbm": Subject(lightgbm, libraries=("lightgbm", "numpy"), elsewhere=1e-5),
    "xgboost": Subject(xgboost, libraries=("xgboost", "numpy"), elsewhere=1e-5),
    "propensities": Subject(propensities, elsewhere=1e-8),
    "exposure": Subject(exposure),
    "fit": Subject(fit, elsewhere=1e-9),
    "fits": Subject(fits, elsewhere=1e-9, is_slow=True),
    "comparisons": Subject(comparisons, elsewhere=1e-10),
    "leaks": Subject(leaks),
    "judgements": Subject(judgements),
    "exports": Subject(exports, libraries=("duckdb", "numpy")),
    "exports_onnx": Subject(exports_onnx, libraries=("onnxruntime", "numpy"), elsewhere=1e-3),
    "metrics": Subject(metrics),
    "published": Subject(published, EVERY_CPU),
    "study": Subject(study, WITH_FMA, elsewhere=1e-3),
    # Without FMA the reference ends 0.02 of nDCG lower; probably another learning rate is chosen.
    "study_references": Subject(study_references, SAME_CPU, elsewhere=None),
    "clicks": Subject(clicks, EVERY_CPU),
    "counts": Subject(counts, EVERY_CPU),
    "preparation": Subject(preparation),
}


def shorten(numbers, *, has_hex):
    """Return what is stored of numbers: strings, and lists of floats or of their hex."""
    write = float.hex if has_hex else float
    values = {}
    for name, value in numbers.items():
        if isinstance(value, str):
            values[name] = value
            continue
        array = np.asarray(value, np.float64).ravel()
        if len(array) <= LONGEST:
            values[name] = [write(number) for number in array.tolist()]
            continue
        ends = [*array[:ENDS].tolist(), *array[-ENDS:].tolist()]
        finite = array[np.isfinite(array)].tolist()
        sums = (
            float(len(finite)), math.fsum(finite), math.fsum(map(abs, finite)),
            math.fsum(number * number for number in finite),
        )  # fmt: skip
        values[f"{name} (length)"] = [write(float(len(array)))]
        values[f"{name} (ends)"] = [write(number) for number in ends]
        values[f"{name} (finite, sum, sum of sizes, sum of squares)"] = [*map(write, sums)]
        if has_hex:
            values[f"{name} {DIGEST}"] = hashlib.sha256(array.tobytes()).hexdigest()
    return values


SETTINGS = (
    "ATEN_CPU_CAPABILITY", "NPY_DISABLE_CPU_FEATURES", "NUMBA_CPU_NAME", "OPENBLAS_CORETYPE",
)  # fmt: skip


def cpu():
    """Return what compiled loops, NumPy, BLAS and PyTorch choose their instructions by."""
    given = [f"{name}={os.environ[name]}" for name in SETTINGS if name in os.environ]
    return " ".join([llvmlite.binding.get_host_cpu_name(), *given])


def has_fma():
    """Tell whether compiled loops multiply and add at once, on x86-64."""
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        return False
    if name := os.environ.get("NUMBA_CPU_NAME"):
        return name not in {"generic", "x86-64", "x86-64-v2"}
    return bool(llvmlite.binding.get_host_cpu_features().get("fma"))


def versions(libraries):
    found = {}
    for name in libraries:
        for package in (name, f"{name}-cpu"):  # XGBoost without graphics cards is called so
            try:
                found[name] = version(package)
            except PackageNotFoundError:
                continue
    return found


def read(name):
    return json.loads((FOLDER / f"{name}.json").read_text("utf-8"))


def compute_values(name):
    subject = SUBJECTS[name]
    return shorten(subject.compute(), has_hex=subject.exact_on is not None)


def write(name):
    """Compute a subject and store its values."""
    head = {"cpu": cpu(), "versions": versions(SUBJECTS[name].libraries)}
    values = compute_values(name).items()
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in values)
    text = f'{{{json.dumps(head)[1:-1]},\n"values": {{\n{lines}\n}}}}\n'
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(text, "utf-8")


def differences(name):
    """Return a sentence for each value that is not as stored: its name, and both numbers."""
    stored, computed = read(name), compute_values(name)
    tolerance = tolerance_here(SUBJECTS[name], stored)
    sentences = []
    for key in {**stored["values"], **computed}:
        old, new = stored["values"].get(key), computed.get(key)
        if old == new or (key.endswith(DIGEST) and tolerance and old and new):
            continue
        if not (tolerance and is_close(old, new, tolerance)):
            sentences.append(f"{name}: {key}: stored {old}, computed {new}")
    return sentences


def tolerance_here(subject, stored):
    """Return the largest relative difference here: 0 asks for every bit, None for nothing."""
    is_same_release = stored["versions"] == versions(subject.libraries)
    is_same_cpu = stored["cpu"] == cpu()
    is_exact = subject.exact_on == EVERY_CPU or (
        is_same_release
        and ((subject.exact_on == SAME_CPU and is_same_cpu)
             or (subject.exact_on == WITH_FMA and has_fma()))
    )  # fmt: skip
    if is_exact:
        return 0.0
    return TOLERANCE if is_same_release and is_same_cpu else subject.elsewhere


def is_close(old, new, tolerance):
    """Compare each number by its size plus a hundredth of the largest in its list.

    The second part is for numbers near 0 that are differences of larger ones.
    """
    if not isinstance(old, list) or not isinstance(new, list) or len(old) != len(new):
        return False
    old, new = (
        np.array([float.fromhex(each) if isinstance(each, str) else each for each in values], float)
        for values in (old, new)
    )
    largest = np.abs(old[np.isfinite(old)]).max(initial=1e-3)
    return np.allclose(new, old, rtol=tolerance, atol=tolerance * largest / 100, equal_nan=True)


def main():
    parser = argparse.ArgumentParser(description="Store the golden values.")
    parser.add_argument("--write", nargs="*", choices=SUBJECTS, required=True, metavar="subject")
    for name in parser.parse_args().write or SUBJECTS:
        write(name)


if __name__ == "__main__":
    main()
