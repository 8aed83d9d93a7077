"""`dpsearch.split_merge`: split-merge sampling of partitions, in four variants."""

from __future__ import annotations

from typing import Any

from dpsearch._types import ArrayLike
from dpsearch.errors import ParameterError
from dpsearch.families.base import Family
from dpsearch.objective import Problem
from dpsearch.priors.base import Prior
from dpsearch.samplers.draws import Draws
from dpsearch.samplers.pair_moves import RANDOM, RESTRICTED_GIBBS, SEQUENTIAL
from dpsearch.samplers.run import sample_problem

# Variant → how a cluster is divided, and whether a Gibbs sweep follows.
VARIANTS: dict[Any, tuple[int, bool]] = {
    1: (RANDOM, False),
    2: (RESTRICTED_GIBBS, False),
    3: (RESTRICTED_GIBBS, True),
    "sams": (SEQUENTIAL, True),
}


def split_merge(
    X: ArrayLike,
    family: Family,
    prior: Prior,
    *,
    draws: int,
    variant: int | str = 3,
    moves: int = 1,
    scans: int = 5,
    gibbs_sweep: bool | None = None,
    **options: Any,
) -> Draws:
    """Draw partitions from the posterior by splits and merges of clusters.

    Gibbs sampling moves one item at a time and takes very long to divide a cluster or to join
    two; here that is one Metropolis–Hastings proposal.

    Parameters
    ----------
    X, family, prior, draws
        As for `gibbs`.
    variant
        How a split is proposed.  1: at random; 2: by restricted Gibbs scans; 3 (default): the
        same, and a Gibbs sweep over all items after the proposals (Jain & Neal 2004);
        ``"sams"``: by allocating the members one after another, without scans, and a Gibbs sweep
        (Dahl 2005).
    moves
        Proposals in each sweep.  One costs about 2 (scans + 2)/K² of a Gibbs sweep over K clusters
        of equal size.
    scans
        Restricted Gibbs scans before the last one, in variants 2 and 3.
    gibbs_sweep
        Whether a Gibbs sweep follows the proposals, if not as the variant says.
    **options
        Everything else that `gibbs` takes: burn_in, thin, chains, start, scan, alpha,
        hyperparameters, n_jobs, rng, callback, checkpoint, resume, checkpoint_seconds.

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
    if isinstance(variant, bool) or variant not in VARIANTS:
        known = ", ".join(map(repr, VARIANTS))
        raise ParameterError(f"unknown variant {variant!r}: known are {known}")
    if isinstance(moves, int) and moves < 1:
        raise ParameterError(f"moves must be a whole number ≥ 1, got {moves!r}")
    rule, sweeps = VARIANTS[variant]
    return sample_problem(
        Problem.of(X, family, prior),
        sampler=f"split-merge {variant}",
        draws=draws,
        moves=moves,
        rule=rule,
        scans=scans,
        gibbs=sweeps if gibbs_sweep is None else bool(gibbs_sweep),
        **options,
    )
