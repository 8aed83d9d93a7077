"""Explanations of partitions, and naive versions of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import logsumexp

import naive
from dpsearch import explain
from dpsearch.mixture import Mixture
from dpsearch.problem import Problem
from models import PRODUCT_PRIORS


def paired_groups(name):
    """Return three pairs of groups, each divided by the first column, and three distant rows."""
    rng = np.random.default_rng(1)
    centres = np.array([[0, 0], [5, 0], [30, 0], [35, 0], [0, 30], [5, 30]])
    X = centres[np.repeat(np.arange(6), [60, 50, 40, 35, 30, 25])] + rng.normal(size=(240, 2))
    X[:3] = [[-30.0, -30.0], [70.0, 60.0], [70.5, 60.0]]
    names = [name.format(i) for i in range(240)]
    return pd.DataFrame(X, columns=["wide", "tall"], index=names)


def mixture_of(X, family, prior, labels):
    problem = Problem(X, family, prior)
    return Mixture.of(problem.model, problem.items, np.asarray(labels), prior)


def explained(X, family, labels, prior=PRODUCT_PRIORS[0], **options):
    """Explain a given partition of rows."""
    mixture = mixture_of(X, family, prior, labels)
    names = tuple(f"column {j}" for j in range(X.shape[1]))
    options = {"outlier_rate": 0.01, "rng": np.random.default_rng(0)} | options
    return explain.explain_mixture(mixture, names, X, np.asarray(labels), **options)


def naive_log_joint(family, X, labels, prior):
    if len(X) == 0:
        return 0.0
    blocks = [X[labels == k] for k in np.unique(labels)]
    value = sum(naive.log_marginal(family, block) for block in blocks)
    return value + prior.log_probability([len(block) for block in blocks])


def naive_places(family, prior, X, labels, x, n_clusters):
    """Return the log joints with x in each of the others' clusters and in a new one."""
    rows = np.vstack([X, x])
    values = np.full(n_clusters + 1, -np.inf)
    for k in [*np.unique(labels), n_clusters]:
        values[k] = naive_log_joint(family, rows, np.append(labels, k), prior)
    return values, naive_log_joint(family, X, labels, prior)


def agrees_with_naive(family, X, prior, new):
    """Check that certainty, second place and density are those of the naive recomputation.

    X has nine rows; `new` are rows that are in no cluster.
    """
    labels = np.array([0, 1, 0, 2, 1, 0, 3, 1, 0])  # clusters 2 and 3 have one row each
    mixture = mixture_of(X, family, prior, labels)
    family = mixture.model.family
    found = mixture.memberships(X, labels)
    fine = []
    for i, k in enumerate(labels):
        others = np.arange(9) != i
        values, before = naive_places(family, prior, X[others], labels[others], X[i], 4)
        if not (labels[others] == k).any():  # it was alone: its place is a new cluster
            values[k], values[4] = values[4], -np.inf
        total = logsumexp(values)
        known, sizes = np.unique(labels[others], return_counts=True)
        chances = [prior.log_probability(sizes + (known == j)) for j in known]
        inside = logsumexp(values[known]) - before
        inside += prior.log_probability(sizes) - logsumexp(chances)
        fine.append(np.isclose(found.log_inside[i], inside, rtol=1e-7, atol=1e-8))
        fine.append(np.isclose(found.certainty[i], np.exp(values[k] - total), rtol=1e-7))
        fine.append(np.isclose(found.log_density[i], total - before, rtol=1e-7, atol=1e-8))
        values[k] = -np.inf
        fine.append(np.isclose(values[found.second[i]], values.max(), rtol=1e-9))
    found = mixture.memberships(new)
    for i, x in enumerate(new):
        values, before = naive_places(family, prior, X, labels, x, 4)
        total = logsumexp(values)
        fine.append(np.isclose(values[found.labels[i]], values[:4].max(), rtol=1e-9))
        best = np.exp(values[found.labels[i]] - total)
        fine.append(np.isclose(found.certainty[i], best, rtol=1e-7))
        fine.append(np.isclose(found.log_density[i], total - before, rtol=1e-7, atol=1e-8))
    return all(fine)
