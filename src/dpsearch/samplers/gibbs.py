"""`dpsearch.gibbs`: collapsed Gibbs sampling of partitions (Neal 2000, algorithm 3)."""

from __future__ import annotations

from typing import Any

from dpsearch._types import ArrayLike
from dpsearch.families.base import Family
from dpsearch.priors.base import Prior
from dpsearch.problem import Problem, as_problem
from dpsearch.samplers.draws import Draws
from dpsearch.samplers.moves import GibbsSweep
from dpsearch.samplers.run import sample


def gibbs(
    data: Problem | ArrayLike,
    family: Family | None = None,
    prior: Prior | None = None,
    *,
    draws: int,
    scan: str = "systematic",
    **options: Any,
) -> Draws:
    """Draw partitions from the posterior by collapsed Gibbs sampling.

    In a sweep each item in turn leaves its cluster and joins one, or a new one, with its
    conditional probability.

    Parameters
    ----------
    data, family, prior
        A `Problem`, or X with a family and a prior, as for `search`.  The prior must be of product
        form (not AntoniakCounts).
    draws
        Number of sweeps of each chain, burn-in included.
    scan
        The order of the items: ``"systematic"``, ``"shuffled"`` or ``"random"``; see
        `dpsearch.samplers.GibbsSweep`.
    **options
        alpha and hyperparameters: see `dpsearch.samplers.sample`.  burn_in, thin, chains, start,
        n_jobs, rng, callback, checkpoint, resume, checkpoint_seconds: see
        `dpsearch.samplers.RunOptions`.

    Returns
    -------
    Draws

    Examples
    --------
    >>> import numpy as np
    >>> from dpsearch import families, gibbs, priors
    >>> X = np.concatenate([np.zeros(20), np.full(20, 9.0)])[:, None]
    >>> family, prior = families.Gaussian(0.0, 25.0, 1.0), priors.DirichletProcess(1.0)
    >>> draws = gibbs(X, family, prior, draws=200, burn_in=100, rng=0)
    >>> draws.labels.shape
    (100, 40)
    >>> draws.point_estimate().n_clusters
    2
    """
    problem = as_problem(data, family, prior)
    return sample(problem, [GibbsSweep(scan)], name="gibbs", draws=draws, **options)
