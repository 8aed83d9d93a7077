"""`dpsearch.gibbs`: collapsed Gibbs sampling of partitions (Neal 2000, algorithm 3)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpsearch._types import ArrayLike
from dpsearch.events import Callback
from dpsearch.families.base import Family
from dpsearch.priors.base import Prior
from dpsearch.problem import Problem
from dpsearch.samplers.draws import Draws
from dpsearch.samplers.run import sample_problem


def gibbs(
    X: ArrayLike,
    family: Family,
    prior: Prior,
    *,
    draws: int,
    burn_in: int = 0,
    thin: int = 1,
    chains: int = 1,
    start: Any = "search",
    scan: str = "systematic",
    alpha: str = "integrate",
    hyperparameters: Mapping[str, float] | None = None,
    n_jobs: int | None = None,
    rng: Any = None,
    callback: Callback | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    checkpoint_seconds: float = 30.0,
) -> Draws:
    """Draw partitions from the posterior by collapsed Gibbs sampling.

    In a sweep each item in turn leaves its cluster and joins one, or a new one, with its
    conditional probability.

    Parameters
    ----------
    X, family, prior
        As for `search`.  The prior must be of product form (not AntoniakCounts).
    draws
        Number of sweeps of each chain, burn-in included.
    burn_in
        Sweeps at the beginning that are not kept.
    thin
        Of the others, every `thin`-th is kept.
    chains
        Number of independent chains.
    start
        ``"search"`` (default: in ascending order for the first chain, in random orders for
        others), ``"refined"``, ``"one"`` cluster, ``"all"`` items apart, ``"log"``: log N random
        clusters, or labels, or a `Clustering`.
    scan
        ``"systematic"``: items in order of rows; ``"shuffled"``: in a new random order each
        sweep; ``"random"``: as many items as there are, drawn with replacement.
    alpha
        For a prior ``DirichletProcess(Gamma(…))``: ``"integrate"`` α out and draw it afterwards
        for each partition, or ``"sample"`` it in turn with the partition (Escobar & West).
        Both have the same posterior; the first moves more freely.
    hyperparameters
        Names of the family's hyperparameters to sample too, each with the standard deviation of
        its log around the given value: ``{"noise_variance": 1.0}``.
    n_jobs
        Threads, at most one a chain; −1 for all cores.  The draws do not depend on it.
    rng
        Seed or Generator.
    callback
        Called now and then with an `Event` whose `done` counts sweeps of all chains.
    checkpoint
        A file to which the chains are written every `checkpoint_seconds`, on Ctrl-C and at the
        end.  With ``resume=True`` the run goes on from it if it exists: a run that was killed
        ends with the draws that it would have had, bit for bit.

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
    return sample_problem(
        Problem(X, family, prior),
        sampler="gibbs",
        draws=draws,
        burn_in=burn_in,
        thin=thin,
        chains=chains,
        start=start,
        scan=scan,
        alpha=alpha,
        hyperparameters=hyperparameters,
        n_jobs=n_jobs,
        rng=rng,
        callback=callback,
        checkpoint=checkpoint,
        resume=resume,
        checkpoint_seconds=checkpoint_seconds,
    )
