"""The heuristic `dual` for best-first search: prices of the points.

Finding the prices is most of the work, and nearly a proof of optimality (`certify`).  With prices
that leave no gap, the search expands little more than one state per item.  See
`dpsearch.prefix_search.dual` for how they bound a prefix clustering.
"""

from __future__ import annotations

import numpy as np

from dpsearch._types import Ints, Vector
from dpsearch.errors import CapabilityError
from dpsearch.exact.assumptions import require_points, statistic_of
from dpsearch.exact.pricing import Pricer
from dpsearch.exact.proof import Proof, Sets, by_loose_prices, pricer_for
from dpsearch.exact.slopes import intercept, is_linear, slope
from dpsearch.partition import by_appearance
from dpsearch.prefix_search.beam import beam
from dpsearch.prefix_search.dual import tree_of
from dpsearch.prefix_search.heuristics import DUAL, Heuristic, blank
from dpsearch.prefix_search.ordering import placing_order
from dpsearch.problem import Problem
from dpsearch.refinement import refine

_TOLERANCE = 1e-6  # nats: a smaller gap between the prices and the best partition counts as closed
_MOST_SETS = 20_000
_ALLOWANCE = 0.05  # nats beyond the gap within which sets are listed
_BEAM = 10


def dual(problem: Problem, order: Ints) -> Heuristic:
    """Find prices for the problem, and list the sets whose weights come close to their prices."""
    require_points(problem, "heuristic 'dual'")
    n, log_v = problem.n_items, problem.tables.log_v
    if not problem.prior.product_form or not is_linear(log_v):
        raise CapabilityError(
            "heuristic 'dual' needs a prior with log V(K) linear in K, such as DirichletProcess"
            f" with a fixed alpha; got {problem.prior!r}"
        )
    lam = slope(log_v, 1, n)
    pricer = pricer_for(problem, statistic_of(problem, np.zeros(n, np.int64)), lam)
    if pricer is None:
        raise CapabilityError(
            f"heuristic 'dual' cannot price clusters of the {problem.model.family.name} family"
        )
    y, value = _prices(problem, pricer)
    ceiling = intercept(log_v, lam, 1, n) + float(y.sum())
    slack = max(ceiling + problem.log_base - value, 0.0) * 1.1 + _ALLOWANCE
    columns = pricer.columns_within(y, slack, limit=_MOST_SETS)
    while columns is None:  # too many sets: any smaller slack is valid, but the bound is looser
        slack = 0.5 * slack if slack > _TOLERANCE else 0.0
        columns = pricer.columns_within(y, slack, limit=_MOST_SETS) if slack > 0.0 else []
    worth = np.array([pricer.log_weight(members) - y[members].sum() for members in columns])
    tree = tree_of(columns, np.minimum(worth, 0.0), order, -slack, ceiling)
    return blank(problem, DUAL)._replace(tree=tree)


def _prices(problem: Problem, pricer: Pricer) -> tuple[Vector, float]:
    """Return prices that pay for every set, and the log joint of the best partition found."""
    order = placing_order(problem, "ascending", np.random.default_rng(0))
    labels, _, _ = beam(problem, order, _BEAM, None)
    labels = by_appearance(refine(problem, labels, seconds=5.0, rng=0).labels)
    bounded = by_loose_prices(problem)
    sets = Sets()
    while True:
        goal = problem.log_joint(labels)
        outcome = Proof(
            pricer, sets, bounded, labels, goal, tolerance=_TOLERANCE, tolls=False
        ).run()
        bounded = outcome.bounded
        if outcome.what != "better" or outcome.labels is None:
            break
        labels = by_appearance(outcome.labels)
    # Each set has at least one point, which pays for what the set may still lack.
    return bounded.y + max(bounded.slack, 0.0), problem.log_joint(labels)
