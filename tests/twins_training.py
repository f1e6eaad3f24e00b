"""Algorithms 1 and 2, slow, in float64: w₁ = 0, w_{t+1} = w_t − step, w̄ = (w₁ + … + w_T)/T.

An optimizer takes the points of a path, (w, gradient there) each, and gives the steps.
"""

from dataclasses import replace

import numpy as np
from twins_plans import click_gradient, features_of, objective_value

from countersample.plans import Examples, make_plan
from countersample.training.runs import CHUNK

KINK = 1e-4  # far above what rounding adds up to in the steps of a test


def draws(plan, n_steps, batch_size, seed, at_once=None):
    """The examples of each step, (n_steps, batch_size): drawn as `train` draws them."""
    rng = np.random.default_rng(seed)
    at_once = at_once or max(1, CHUNK // batch_size)
    sizes = [min(at_once, n_steps - done) for done in range(0, n_steps, at_once)]
    drawn = [plan.draw(size * batch_size, rng).reshape(size, batch_size) for size in sizes]
    return np.concatenate(drawn)


def contributions(dataset, examples, plan, w, objective, chosen=None):
    """u_i = n·π_i·m_i Σ_j share_j f_j(w), of all examples or of those chosen."""
    levels = len(examples) * plan.probabilities * plan.multipliers
    terms = []
    for i in range(len(examples)) if chosen is None else chosen:
        scores = features_of(dataset, examples.query[i]) @ w
        clicked = range(examples.starts[i], examples.starts[i + 1])
        values = [objective_value(scores, examples.item[j], objective) for j in clicked]
        terms.append(levels[i] * (plan.shares[clicked] @ values))
    return np.array(terms)


def tilt_of(u, variance):
    """κ = λ·√n / ((n − 1)·√S), and ū."""
    return variance * np.sqrt(len(u)) / ((len(u) - 1) * u.std(ddof=1)), u.mean()


def step_gradient(dataset, examples, plan, batch, w, objective, tilt=None):
    """The mean over the batch of m_i Σ_j share_j ∇f_j(w), each times 1 + κ·(u_i − ū)."""
    total = np.zeros(dataset.n_features)
    plan = replace(plan, multipliers=plan.multipliers.copy())
    if tilt is not None:
        chosen = np.unique(batch)
        u = contributions(dataset, examples, plan, w, objective, chosen)
        plan.multipliers[chosen] *= 1 + tilt[0] * (u - tilt[1])
    for i in batch:
        for j in range(examples.starts[i], examples.starts[i + 1]):
            share = plan.multipliers[i] * plan.shares[j]
            total += share * click_gradient(
                dataset, examples.query[i], examples.item[j], w, objective
            )
    return total / len(batch)


def nearest_kink(dataset, examples, batch, w):
    """The smallest |margin − 1| of a step: at a kink float32 and float64 may take either side."""
    distances = [1.0]
    for i in batch:
        scores = features_of(dataset, examples.query[i]) @ w
        clicked = examples.item[examples.starts[i] : examples.starts[i + 1]]
        distances += [np.abs(scores[item] - scores - 1).min() for item in clicked]
    return min(distances)


def sgd(points, rate, momentum=0.0):
    velocity = 0.0
    for _, g in points:
        velocity = momentum * velocity + g
        yield rate * velocity


def adam(points, rate, beta1=0.9, beta2=0.999, epsilon=1e-8):
    m = v = 0.0
    for t, (_, g) in enumerate(points, 1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        yield rate * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + epsilon)


def amsgrad(points, rate, beta1=0.9, beta2=0.999, epsilon=1e-8):
    m = v = 0.0
    largest = 0.0
    for t, (_, g) in enumerate(points, 1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        largest = np.maximum(largest, v)
        yield rate * (m / (1 - beta1**t)) / (np.sqrt(largest / (1 - beta2**t)) + epsilon)


def adagrad(points, rate, epsilon=1e-10):
    total = 0.0
    for _, g in points:
        total = total + g**2
        yield rate * g / (np.sqrt(total) + epsilon)


def dog(points, rate, first_distance=1e-3):
    path, squares = [], []
    for w, g in points:
        path.append(w)
        squares.append(np.sum(g**2))
        reach = max(first_distance, *(np.linalg.norm(other - path[0]) for other in path))
        yield rate * reach / np.sqrt(np.sum(squares)) * g if np.any(squares) else np.zeros_like(g)


OPTIMIZERS = {each.__name__: each for each in (sgd, adam, adagrad, dog, amsgrad)}


def train(
    dataset, log, *, learning_rate, steps, method, unit, objective, optimizer, batch_size, seed,
    l2=0.0, radius=np.inf, start=0.0, variance=0.0, **settings,
):  # fmt: skip
    """Return w and w̄ after each step, two arrays (n, n_features), up to the first kink."""
    examples = Examples.of(log, unit)
    of_plan = {name: settings.pop(name) for name in ("bounds", "probabilities") if name in settings}
    plan = make_plan(method, examples, **of_plan)
    w = np.zeros(dataset.n_features) + start
    current = [w]
    a_round = -(-len(set(examples.query.tolist())) // batch_size) if variance else None

    def points():
        tilt = None
        for t, batch in enumerate(draws(plan, steps, batch_size, seed, a_round)):
            w = current[0]
            if variance and t % a_round == 0:
                tilt = tilt_of(contributions(dataset, examples, plan, w, objective), variance)
            if nearest_kink(dataset, examples, batch, w) < KINK:
                return
            yield w, step_gradient(dataset, examples, plan, batch, w, objective, tilt) + l2 * w

    weights, averages, total = [], [], np.zeros_like(w)
    for step in OPTIMIZERS[optimizer](points(), learning_rate, **settings):
        total += current[0]
        w = current[0] - step
        current[0] = w * min(1.0, radius / max(np.linalg.norm(w), 1e-300))
        weights.append(current[0])
        averages.append(total / (len(averages) + 1))
    return np.array(weights), np.array(averages)
