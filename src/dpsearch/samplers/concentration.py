"""The concentration α of a Dirichlet process: its profile likelihood, and its choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsearch._types import ArrayLike, Vector
from dpsearch._validate import as_rng, positive, whole
from dpsearch.errors import ParameterError
from dpsearch.families.base import Family
from dpsearch.prefix_search.search import search
from dpsearch.priors import DirichletProcess, Gamma
from dpsearch.problem import Clustering, Problem, labels_of
from dpsearch.refinement import refine


@dataclass(frozen=True)
class AlphaProfile:
    """log p(c, x | α) of one partition along a grid of α."""

    alpha: Vector
    log_joint: Vector

    @property
    def best(self) -> float:
        """The α of the grid under which the partition is most probable."""
        return float(self.alpha[int(np.argmax(self.log_joint))])


def alpha_profile(
    X: ArrayLike,
    labels: Clustering | ArrayLike,
    family: Family,
    alphas: Sequence[float] | Vector | None = None,
) -> AlphaProfile:
    """Return log p(labels, X | α) of a fixed partition as a function of α.

    Only p(c | α) changes with α, and it depends on K and N alone.

    Parameters
    ----------
    X, family
        As for `search`.
    labels
        A clustering or labels.
    alphas
        Values above 0; default: 200 from 10^-3 to N, evenly in log α.

    Examples
    --------
    >>> from dpsearch import alpha_profile, families
    >>> X = [[0.0], [0.1], [5.0], [9.0]]
    >>> profile = alpha_profile(X, [0, 0, 1, 2], families.Gaussian(0.0, 25.0, 1.0))
    >>> 2.0 < profile.best < 6.0
    True
    """
    problem = Problem(X, family, DirichletProcess(1.0))
    n = problem.n_points
    checked = labels_of(labels, problem)
    n_clusters = int(checked.max()) + 1
    grid = _grid(np.geomspace(1e-3, max(n, 2), 200) if alphas is None else alphas)
    log_v = np.array([DirichletProcess(a).log_v(n, n_clusters)[n_clusters] for a in grid.tolist()])
    return AlphaProfile(grid, problem.log_joint(checked) - problem.log_v[n_clusters] + log_v)


@dataclass(frozen=True)
class AlphaChoice:
    """The best of several runs at each α of a grid, and the results of all."""

    alpha: float
    clustering: Clustering
    alphas: Vector
    log_joints: Any  # [α, run]
    n_clusters: Any  # [α, run]


def select_alpha(
    X: ArrayLike,
    family: Family,
    alphas: Sequence[float] | Vector | None = None,
    *,
    runs: int = 3,
    refine_seconds: float | None = None,
    prior: Gamma | None = None,
    rng: Any = None,
) -> AlphaChoice:
    """Choose α from a grid: the one at which a search finds the highest log p(c, x, α).

    The paper does not sample α and proposes this instead, since search is fast enough for it.
    `DirichletProcess(Gamma(…))` integrates α out in one run and is the better default.

    Parameters
    ----------
    X, family
        As for `search`.
    alphas
        Values above 0; default: 13 from 0.01 to 100.
    runs
        Searches at each α: the first in ascending order, the others in random orders.
    refine_seconds
        Time for the refinement of each run; None until it converges, 0 for no refinement.
    prior
        A Gamma prior on α; by default all values of the grid have the same weight.
    rng
        Seed or Generator.

    Examples
    --------
    >>> from dpsearch import families, select_alpha
    >>> X = [[0.0], [0.1], [0.2], [9.0], [9.1]]
    >>> select_alpha(X, families.Gaussian(0.0, 25.0, 1.0), [0.1, 1.0, 10.0], rng=0).alpha
    1.0
    """
    grid = _grid(np.geomspace(0.01, 100.0, 13) if alphas is None else alphas)
    runs = whole(runs, "runs", 1)
    generator = as_rng(rng)
    compiled = Problem(X, family, DirichletProcess(1.0))
    found = []
    for alpha in grid:
        problem = compiled.with_prior(DirichletProcess(float(alpha)))
        for run in range(runs):
            order = "ascending" if run == 0 else "random"
            one = search(problem, beam_size=1, order=order, rng=generator)
            if refine_seconds != 0:
                one = refine(problem, one.labels, seconds=refine_seconds, rng=generator)
            found.append(one)
    log_joints = np.reshape([one.log_joint for one in found], (len(grid), runs))
    n_clusters = np.reshape([one.n_clusters for one in found], (len(grid), runs))
    log_prior = np.zeros(len(grid))
    if prior is not None:
        log_prior = (float(prior.shape) - 1.0) * np.log(grid) - float(prior.rate) * grid
    best = int(np.argmax(log_joints + log_prior[:, None]))
    return AlphaChoice(float(grid[best // runs]), found[best], grid, log_joints, n_clusters)


def _grid(alphas: Sequence[float] | Vector) -> Vector:
    grid = np.array([positive(alpha, "alphas") for alpha in np.ravel(alphas).tolist()])
    if len(grid) == 0:
        raise ParameterError("{parameter} must hold at least one value", parameter="alphas")
    return grid
