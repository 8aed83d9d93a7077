"""Forged certificates: ways to change a valid one so that it states something false.

A forgery takes a certificate and random numbers, and returns another certificate, or None if it
does not apply.  A change that leaves a valid proof of what is stated, such as a larger price with a
larger bound, is not one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dpsearch import priors
from dpsearch.exact import Certificate
from dpsearch.problem import Problem

Rng = np.random.Generator
Forgery = Callable[[Certificate, Rng], Certificate | None]

_NOT_NUMBERS: tuple[Any, ...] = (
    math.nan, math.inf, -math.inf, None, "0.0", 1j, True, (0.0,), np.zeros(2),
)  # fmt: skip
_KINDS = ("line", "prices", "sets", "quick", "ceiling", "", "proof")


def _stated(c: Certificate, **figures: Any) -> Certificate:
    """Return the certificate with other figures, and all dependent ones made to agree."""
    c = replace(c, **figures)
    gap = c.upper_bound - c.lower_bound
    optimal = bool(gap <= c.tolerance)
    clustering = replace(
        c.clustering, log_joint=c.lower_bound, upper_bound=c.upper_bound, optimal=optimal
    )
    return replace(c, gap=gap, optimal=optimal, clustering=clustering)


def _much(c: Certificate, rng: Rng) -> float:
    """Return an amount of nats too large for rounding."""
    return float(10.0 ** rng.uniform(-5.0, 3.0)) + 1e-9 * abs(c.upper_bound)


def _with_entry(c: Certificate, at: int, **changes: Any) -> Certificate:
    entries = list(c.prices)
    entries[at] = entries[at]._replace(**changes)
    return replace(c, prices=tuple(entries))


def _any_entry(c: Certificate, rng: Rng) -> int:
    return int(rng.integers(len(c.prices)))


def _tight_entry(c: Certificate) -> int | None:
    """Return an entry whose prices are tight: they equal the weights of a best partition."""
    if not c.optimal or c.gap > 1e-6:
        return None
    held = [entry.low <= c.clustering.n_clusters <= entry.high for entry in c.prices]
    return held.index(True)


# -- bounds ---------------------------------------------------------------------------------------


def lower_the_bound(c: Certificate, rng: Rng) -> Certificate:
    return _stated(c, upper_bound=c.lower_bound - _much(c, rng))


def lower_every_bound(c: Certificate, rng: Rng) -> Certificate:
    """Claim a bound below the partition's own value, in all places."""
    upper = c.lower_bound - _much(c, rng)
    c = replace(c, prices=tuple(entry._replace(upper=upper) for entry in c.prices))
    return _stated(c, upper_bound=upper)


def lower_bounds_and_prices(c: Certificate, rng: Rng) -> Certificate:
    """Make the prices agree with a bound that is too low."""
    much = _much(c, rng)
    entries = []
    for entry in c.prices:
        y = entry.y.copy()
        if entry.kind == "line":
            y[rng.integers(1, len(y)) :] -= much
        else:
            y -= much * rng.dirichlet(np.ones(len(y)))
        entries.append(entry._replace(y=y, upper=entry.upper - much))
    upper = max(entry.upper for entry in entries)
    lower = min(c.lower_bound, upper)
    return _stated(replace(c, prices=tuple(entries)), upper_bound=upper, lower_bound=lower)


def close_the_gap(c: Certificate, rng: Rng) -> Certificate | None:
    """Claim that a partition with an open gap is a best one."""
    if c.gap < 1e-3 * (1.0 + 1e-6 * abs(c.upper_bound)):
        return None
    upper = c.lower_bound + c.tolerance * rng.random()
    entries = tuple(entry._replace(upper=min(entry.upper, upper)) for entry in c.prices)
    return _stated(replace(c, prices=entries), upper_bound=upper)


def raise_the_value(c: Certificate, rng: Rng) -> Certificate:
    """Claim a log joint that the partition does not have."""
    lower = c.lower_bound + _much(c, rng)
    return _stated(c, lower_bound=lower, upper_bound=max(c.upper_bound, lower))


def lower_the_value(c: Certificate, rng: Rng) -> Certificate:
    return _stated(c, lower_bound=c.lower_bound - _much(c, rng))


# -- fields ---------------------------------------------------------------------------------------


def break_a_figure(c: Certificate, rng: Rng) -> Certificate:
    name = rng.choice(["upper_bound", "lower_bound", "gap", "tolerance", "seconds", "optimal"])
    value: Any = _NOT_NUMBERS[rng.integers(len(_NOT_NUMBERS))]
    if name == "optimal" and isinstance(value, bool):
        value = 1
    return replace(c, **{str(name): value})


def break_all_figures(c: Certificate, rng: Rng) -> Certificate:
    """Put one value that is not a number in every place that must agree."""
    value: Any = (math.nan, math.inf, -math.inf)[rng.integers(3)]
    name = str(rng.choice(["upper_bound", "lower_bound"]))
    return _stated(c, **{name: value})


def disagree(c: Certificate, rng: Rng) -> Certificate:
    """Change one figure and none of those that follow from it."""
    much = _much(c, rng)
    kind = rng.integers(7)
    if kind == 0:
        return replace(c, optimal=not c.optimal)
    if kind == 1:
        return replace(c, gap=c.gap + rng.choice([-much, much]))
    if kind == 2:
        return replace(c, gap=0.0) if c.gap > 0.0 else replace(c, gap=-0.0 - much)
    if kind == 3:  # for which `optimal` would be another
        return replace(c, tolerance=0.5 * c.gap if c.optimal and c.gap > 0.0 else -much)
    if kind == 4:
        return replace(c, tolerance=-much)
    if kind == 5:
        return replace(c, seconds=-much)
    others = [name for name in _KINDS if name != c.method]
    return replace(c, method=others[rng.integers(len(others))])


def change_the_clustering(c: Certificate, rng: Rng) -> Certificate:
    found, much = c.clustering, _much(c, rng)
    changes: list[dict[str, Any]] = [
        {"log_joint": found.log_joint + much}, {"upper_bound": found.upper_bound - much},
        {"upper_bound": math.inf}, {"optimal": not found.optimal}, {"converged": True},
        {"n_dequeued": 1}, {"n_enqueued": 7}, {"seconds": found.seconds + much},
        {"trace": ["proved"]}, {"weights": np.ones(len(found.labels), np.int64)},
        {"log_joint": math.nan}, {"log_joint": None},
    ]  # fmt: skip
    at = int(rng.integers(len(changes) + 1))
    if at == len(changes):
        return replace(c, clustering=None)  # type: ignore[arg-type]
    return replace(c, clustering=replace(found, **changes[at]))


def break_labels(c: Certificate, rng: Rng) -> Certificate:
    """Give labels a wrong type, length or range."""
    labels = c.clustering.labels
    n = len(labels)
    wrong: list[Any] = [
        labels.astype(float), labels[:-1], np.append(labels, 0), labels - 1, labels + n,
        labels + 1, labels[:, None], list(labels), None, labels.astype(object), labels * np.nan,
        labels.astype(np.int32), labels.astype(str), np.full(n, 2**62), np.full(n, -(2**62)), 0,
    ]  # fmt: skip
    return replace(c, clustering=replace(c.clustering, labels=wrong[rng.integers(len(wrong))]))


def change_labels(c: Certificate, rng: Rng) -> Certificate | None:
    """State another partition with the value of this one."""
    n = len(c.clustering.labels)
    labels = rng.integers(0, int(rng.integers(1, n + 1)), n)
    if rng.random() < 0.5:
        labels = c.clustering.labels.copy()
        labels[rng.integers(n)] = rng.integers(labels.max() + 2)
    other = c.problem.clustering(labels)
    if abs(other.log_joint - c.lower_bound) < 1e-5 + 1e-9 * abs(c.lower_bound):
        return None
    return replace(c, clustering=replace(c.clustering, labels=other.labels))


# -- prices ---------------------------------------------------------------------------------------


def break_prices(c: Certificate, rng: Rng) -> Certificate:
    wrong: list[Any] = [
        (), None, list(c.prices), (None,), (*c.prices, ()), 0.0, "prices",
        tuple(tuple(entry) for entry in c.prices), *_NOT_NUMBERS,
    ]  # fmt: skip
    return replace(c, prices=wrong[rng.integers(len(wrong))])


def forge_without_prices(c: Certificate, rng: Rng) -> Certificate:
    """Claim something without any proof."""
    order = np.arange(len(c.clustering.labels)) if rng.random() < 0.7 else None
    method = str(rng.choice(_KINDS))
    upper = c.lower_bound - rng.choice([0.0, _much(c, rng)])
    return _stated(replace(c, prices=(), order=order, method=method), upper_bound=float(upper))


def break_an_entry(c: Certificate, rng: Rng) -> Certificate:
    """Give a price, range, slope, slack or bound a wrong type or an impossible value."""
    at, n = _any_entry(c, rng), len(c.clustering.labels)
    y = c.prices[at].y
    wrong_y: list[Any] = [
        y[:-1], np.append(y, 0.0), y.astype(np.float32), y.astype(object), list(y), None,
        y * math.nan, y + math.inf, -math.inf * np.ones(len(y)), y[:, None], y.astype(complex),
        np.zeros(0), np.full(len(y), -1e308), y.astype(str),
    ]  # fmt: skip
    wrong_range: list[Any] = [0, -1, n + 1, 10**18, 1.0, math.nan, None, "1", np.zeros(1)]
    name = str(rng.choice(["y", "low", "high", "lam", "slack", "upper", "kind"]))
    if name == "y":
        value: Any = wrong_y[rng.integers(len(wrong_y))]
    elif name in ("low", "high"):
        value = wrong_range[rng.integers(len(wrong_range))]
    elif name == "kind":
        # Prices that pay for every set may be called by the other name of such prices.
        same = {"quick", "ceiling"}, {"prices", "sets"}
        called = c.prices[at].kind
        kinds = [kind for kind in _KINDS if not any({kind, called} <= names for names in same)]
        kinds = [kind for kind in kinds if kind != called]
        value = kinds[rng.integers(len(kinds))]
    else:
        value = _NOT_NUMBERS[rng.integers(len(_NOT_NUMBERS))]
    return _with_entry(c, at, **{name: value})


def without_number(c: Certificate, gone: int) -> Certificate:
    """Return a certificate whose ranges leave out one number of clusters."""
    entries = []
    for entry in c.prices:
        if entry.low < gone:
            entries.append(entry._replace(high=min(entry.high, gone - 1)))
        if entry.high > gone:
            entries.append(entry._replace(low=max(entry.low, gone + 1)))
    return replace(c, prices=tuple(entries))


def leave_out_a_number(c: Certificate, rng: Rng) -> Certificate | None:
    """Leave out some number of clusters."""
    most = max(entry.high for entry in c.prices)
    if most < 2:
        return None
    return without_number(c, int(rng.integers(1, most + 1)))


def lower_a_price(c: Certificate, rng: Rng) -> Certificate | None:
    at = _tight_entry(c)
    if at is None:
        return None
    entry, much = c.prices[at], 10.0 * c.gap + _much(c, rng)
    y = entry.y.copy()
    if entry.kind == "sets" or len(y) < 3:
        return None
    # On a line the bound is the last potential less the first, and what others lack.
    y[rng.integers(1, len(y) - 1) if entry.kind == "line" else rng.integers(len(y))] -= much
    return _with_entry(c, at, y=y)


def change_the_slope(c: Certificate, rng: Rng) -> Certificate | None:
    at = _tight_entry(c)
    if at is None or c.prices[at].kind in ("sets", "line"):
        return None
    much = 10.0 * c.gap + _much(c, rng)
    return _with_entry(c, at, lam=c.prices[at].lam + much * float(rng.choice([-1.0, 1.0])))


def change_the_slack(c: Certificate, rng: Rng) -> Certificate:
    at = _any_entry(c, rng)
    entry = c.prices[at]
    if entry.kind in ("prices", "sets"):
        wrong = [0.0, -1.0, -entry.slack, 1e-300, 1e300]
        return _with_entry(c, at, slack=wrong[rng.integers(5 if entry.kind == "prices" else 4)])
    return _with_entry(c, at, slack=float(rng.choice([-1.0, 1e-12, 1.0])))


def change_the_order(c: Certificate, rng: Rng) -> Certificate | None:
    n = len(c.clustering.labels)
    if c.order is None:
        orders: list[Any] = [np.arange(n), np.zeros(n, np.int64), "line", 0]
        return replace(c, order=orders[rng.integers(len(orders))])
    wrong: list[Any] = [
        None, c.order.astype(float), c.order[:-1], np.append(c.order, n), c.order + 1,
        list(c.order), c.order - 1, c.order[:, None], c.order.astype(object), np.full(n, 2**62),
        "order",
    ]  # fmt: skip
    values = np.asarray(c.problem.model.matrix, dtype=float)[:, 0]
    backwards = c.order[::-1]
    if values[backwards[0]] != values[backwards[-1]]:
        wrong.append(backwards)
    return replace(c, order=wrong[rng.integers(len(wrong))])


# -- the problem ----------------------------------------------------------------------------------


def change_the_problem(c: Certificate, rng: Rng) -> Certificate | None:
    """Replace the data or the prior, under which the partition has another value."""
    given, kind = c.problem, rng.integers(4)
    if kind == 0:
        wrong: list[Any] = [None, 0, given.model, "data"]
        return replace(c, problem=wrong[rng.integers(4)])
    X = np.array(given.model.matrix, dtype=float)
    family, prior = given.model.family, given.prior
    weights = None
    if kind == 1:
        X = X[rng.permutation(len(X))] if rng.random() < 0.5 else np.vstack([X, X[:1]])
    elif kind == 2:
        prior = priors.PitmanYor(1.0 + rng.random(), rng.random())
    else:
        weights = np.full(len(X), 2)
    other = Problem(X, family, prior, weights=weights)
    if len(X) == given.n_items:
        off = abs(other.log_joint(c.clustering.labels) - c.lower_bound)
        if off < 1e-5 + 1e-9 * abs(c.lower_bound):
            return None
    return replace(c, problem=other)


FORGERIES: tuple[Forgery, ...] = (
    lower_the_bound, lower_every_bound, lower_bounds_and_prices, close_the_gap, raise_the_value,
    lower_the_value, break_a_figure, break_all_figures, disagree, change_the_clustering,
    break_labels, change_labels, break_prices, forge_without_prices, break_an_entry,
    leave_out_a_number, lower_a_price, change_the_slope, change_the_slack, change_the_order,
    change_the_problem,
)  # fmt: skip
