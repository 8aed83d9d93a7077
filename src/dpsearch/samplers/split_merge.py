"""`dpsearch.split_merge`: split-merge sampling of partitions, in four variants."""

from __future__ import annotations

from typing import Any

from dpsearch._types import ArrayLike
from dpsearch.errors import ParameterError
from dpsearch.families.base import Family
from dpsearch.priors.base import Prior
from dpsearch.problem import Problem, as_problem
from dpsearch.samplers.draws import Draws
from dpsearch.samplers.moves import GibbsSweep, Move, SplitMerge
from dpsearch.samplers.run import sample

# Variant → name of the sampler, how a cluster is divided, whether a Gibbs sweep follows.
VARIANTS: dict[Any, tuple[str, str, bool]] = {
    1: ("split-merge-1", "random", False),
    2: ("split-merge-2", "restricted_gibbs", False),
    3: ("split-merge-3", "restricted_gibbs", True),
    "sams": ("sams", "sequential", True),
}


def split_merge(
    data: Problem | ArrayLike,
    family: Family | None = None,
    prior: Prior | None = None,
    *,
    draws: int,
    variant: int | str = 3,
    moves: int = 1,
    scans: int = 5,
    gibbs_sweep: bool | None = None,
    scan: str = "systematic",
    **options: Any,
) -> Draws:
    """Draw partitions from the posterior by splits and merges of clusters.

    Gibbs sampling moves one item at a time and takes very long to divide a cluster or to join
    two; here that is one Metropolis–Hastings proposal.

    Parameters
    ----------
    data, family, prior, draws, scan, **options
        As for `gibbs`.
    variant
        How a split is proposed.  1: at random; 2: by restricted Gibbs scans; 3 (default): the
        same, and a Gibbs sweep over all items after the proposals (Jain & Neal 2004);
        ``"sams"``: by allocating the members one after another, without scans, and a Gibbs sweep
        (Dahl 2005).
    moves, scans
        As for `dpsearch.samplers.SplitMerge`; scans are made in variants 2 and 3.
    gibbs_sweep
        Whether a Gibbs sweep follows the proposals, if not as the variant says.

    Returns
    -------
    Draws

    Examples
    --------
    >>> import numpy as np
    >>> from dpsearch import families, priors, split_merge
    >>> X = np.concatenate([np.zeros(20), np.full(20, 9.0)])[:, None]
    >>> family, prior = families.Gaussian(0.0, 25.0, 1.0), priors.DirichletProcess(1.0)
    >>> draws = split_merge(X, family, prior, draws=100, start="one", rng=0)
    >>> draws.best().n_clusters
    2
    """
    known = isinstance(variant, (int, str)) and not isinstance(variant, bool)
    if not known or variant not in VARIANTS:
        names = ", ".join(map(repr, VARIANTS))
        raise ParameterError(f"unknown variant {variant!r}: known are {names}")
    name, division, sweeps = VARIANTS[variant]
    schedule: list[Move] = [SplitMerge(division, moves, scans), GibbsSweep(scan)]
    if not (sweeps if gibbs_sweep is None else gibbs_sweep):
        schedule.pop()
    return sample(as_problem(data, family, prior), schedule, name=name, draws=draws, **options)
