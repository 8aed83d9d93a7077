"""The laws of priors.  Each law takes a prior and a random number generator."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from collections import Counter
from collections.abc import Iterator
from functools import cache

import numpy as np

from dpsearch._types import Rng
from dpsearch.checks.law import agree, applies_if, ensure
from dpsearch.errors import CapabilityError
from dpsearch.partition import all_partitions
from dpsearch.priors import PRIORS, Prior
from dpsearch.priors.base import size_step, size_weight

_MOST_POINTS = 8
_BEGUN = [(), (1,), (2,), (1, 1), (3, 1), (2, 2, 1), (5,)]
_NO_PRODUCT = "the prior is not of product form"


@cache
def _shapes(n: int) -> Counter[tuple[int, ...]]:
    """Return the possible cluster sizes of n points, each with its number of partitions."""
    return Counter(tuple(sorted(np.bincount(labels).tolist())) for labels in all_partitions(n))


def tables_are_finite(prior: Prior, rng: Rng) -> None:
    """The tables begin with 0, have no NaN, and are shorter for fewer clusters."""
    for n, most in [(1, 1), (5, 2), (5, 5), (300, 7), (1000, 300)]:
        tables, log_v = prior.tables(n, most), prior.log_v(n)
        ensure(len(log_v) == n + 1, f"log_v({n}) has {len(log_v)} entries, not {n + 1}")
        ensure(np.isfinite(tables.log_v), f"log_v({n}) has an entry that is not finite")
        ensure(np.isfinite(tables.log_w), f"log_w of {n} points has an entry that is not finite")
        agree("log_v[0]", log_v[0], 0.0)
        agree("log_w(0)", prior.log_w(np.zeros(1, np.int64)), [0.0])
        known = np.isfinite(log_v[: most + 1])
        agree(f"log_v({n}, {most})", prior.log_v(n, most)[known], log_v[: most + 1][known], 1e-9)


def sums_to_one(prior: Prior, rng: Rng) -> None:
    """The probabilities of all partitions of n points add up to 1."""
    applies_if(prior.product_form, _NO_PRODUCT)
    for n in range(1, _MOST_POINTS + 1):
        total = sum(
            times * math.exp(prior.log_probability(sizes)) for sizes, times in _shapes(n).items()
        )
        agree(f"the sum over the partitions of {n} points", total, 1.0, 1e-9)


def probability_is_the_product(prior: Prior, rng: Rng) -> None:
    """`log_probability` is log V of the number of clusters and log W of their sizes added up."""
    applies_if(prior.product_form, _NO_PRODUCT)
    for sizes in _shapes(6):
        value = prior.log_v(6)[len(sizes)] + prior.log_w(np.array(sizes)).sum()
        agree(f"log_probability of {sizes}", prior.log_probability(sizes), value, 1e-9)
        agree("log_probability in another order", prior.log_probability(sizes[::-1]), value, 1e-9)


def one_point_more(prior: Prior, rng: Rng) -> None:
    """The probability of a partition is that of all its extensions by one more point."""
    applies_if(prior.consistent, "the prior does not declare that it is consistent")
    for sizes in itertools.chain(*map(_shapes, range(1, _MOST_POINTS))):
        grown = sum(math.exp(prior.log_probability(s)) for s in _extensions(sizes))
        agree(f"the sum from {sizes}", grown, math.exp(prior.log_probability(sizes)), 1e-9)


def _extensions(sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the sizes after one more point in each cluster in turn, and in a new one."""
    for k in range(len(sizes)):
        yield (*sizes[:k], sizes[k] + 1, *sizes[k + 1 :])
    yield (*sizes, 1)


def completion_is_the_best(prior: Prior, rng: Rng) -> None:
    """`best_completion` is the largest log probability over all ways to place further points."""
    applies_if(prior.product_form, _NO_PRODUCT)
    for sizes in _BEGUN:
        completions = {sizes}
        for remaining in range(5):
            best = max(map(prior.log_probability, filter(None, completions)), default=-math.inf)
            if math.isfinite(best):
                found = prior.best_completion(sizes, remaining)
                agree(f"best_completion({sizes}, {remaining})", found, best, 1e-9)
            completions = {tuple(sorted(s)) for before in completions for s in _extensions(before)}


def sizes_beyond_the_table(prior: Prior, rng: Rng) -> None:
    """Sizes beyond the table of W, by `size_discount`, agree with `log_w`."""
    discount = prior.size_discount()
    if discount is None:
        raise CapabilityError("the prior has no size_discount")
    tables = prior.tables(3 * 10**9, 3)
    edge = len(tables.log_w)
    sizes = np.array([1, 2, edge - 2, edge - 1, edge, edge + 1, 10**7, 10**9])
    found = [size_weight(tables, size) for size in sizes]
    agree("log W", found, prior.log_w(sizes), 1e-14, scale=100.0)
    for n in (1, edge - 2, edge - 1, edge, 10**7):
        step = math.log(n - discount)
        agree(f"log W({n + 1}) - log W({n})", size_step(tables, n), step)


def description_comes_back(prior: Prior, rng: Rng) -> None:
    """`to_dict` describes the prior in plain values, from which it comes back; so does pickle."""
    extra = {prior.name: type(prior)}
    again = PRIORS.from_dict(json.loads(json.dumps(prior.to_dict())), extra)
    ensure(again == prior, f"{again!r} came back from its description")
    unpickled = pickle.loads(pickle.dumps(prior))
    ensure(unpickled == prior, f"{unpickled!r} came back from a pickle")
