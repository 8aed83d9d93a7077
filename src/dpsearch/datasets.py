"""Example data: a part of MNIST that comes with the package, and draws from the model itself."""

from __future__ import annotations

from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh

from dpsearch._types import Labels, Matrix
from dpsearch._validate import as_rng, positive
from dpsearch.errors import ParameterError


class Digits(NamedTuple):
    images: Any  # uint8 [N, 784]
    labels: Labels
    rows: Labels  # row numbers in the MNIST training set


class Draw(NamedTuple):
    X: Matrix
    labels: Labels


def mnist_digits() -> Digits:
    """Return 3,000 handwritten digits: a random 5 % of the MNIST training set, as raw pixels.

    >>> mnist_digits().images.shape
    (3000, 784)
    """
    file = resources.files("dpsearch").joinpath("data/mnist_3000.npz")
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as entries:
        return Digits(
            entries["images"],
            entries["labels"].astype(np.int64),
            entries["rows"].astype(np.int64),
        )


def whitened(X: Any, n_components: int = 50) -> Matrix:
    """Return X centred and reduced to principal components of unit variance."""
    return principal_components(X, n_components, whiten=True)


def principal_components(X: Any, n_components: int = 50, *, whiten: bool = False) -> Matrix:
    """Return X centred and reduced to its principal components, largest first.

    With `whiten`, each component is scaled to unit variance.
    """
    centred = np.asarray(X, dtype=np.float64) - np.mean(X, axis=0)
    n, width = centred.shape
    if not 1 <= n_components <= min(n - 1, width):
        raise ParameterError(
            f"n_components must be 1 … {min(n - 1, width)} for X of shape {(n, width)},"
            f" got {n_components!r}"
        )
    covariance = centred.T @ centred / (n - 1)
    wanted = (width - n_components, width - 1)
    variances, directions = eigh(covariance, subset_by_index=wanted)
    # Largest first, and each direction with the sign that makes its largest entry positive.
    variances, directions = variances[::-1], directions[:, ::-1]
    if variances[-1] <= 1e-12 * variances[0]:
        raise ParameterError(f"X varies in fewer directions than n_components = {n_components}")
    largest = np.abs(directions).argmax(axis=0)
    directions = directions * np.sign(directions[largest, np.arange(n_components)])
    if whiten:
        directions = directions / np.sqrt(variances)
    return np.ascontiguousarray(centred @ directions)


def dirichlet_process_draw(
    n_points: int,
    n_features: int = 2,
    *,
    alpha: float = 1.0,
    prior_variance: float = 10.0,
    noise_variance: float = 1.0,
    rng: Any = None,
) -> Draw:
    """Draw data and their true clusters from the Gaussian Dirichlet process mixture.

    The defaults are those of the paper's artificial data.
    """
    if n_points < 1 or n_features < 1:
        raise ParameterError("n_points and n_features must be at least 1")
    alpha = positive(alpha, "alpha")
    prior_variance = positive(prior_variance, "prior_variance")
    noise_variance = positive(noise_variance, "noise_variance")
    rng = as_rng(rng)
    labels = np.zeros(n_points, np.int64)
    sizes = [1]
    for i in range(1, n_points):
        weights = np.array([*sizes, alpha])
        k = int(rng.choice(len(weights), p=weights / weights.sum()))
        if k == len(sizes):
            sizes.append(0)
        sizes[k] += 1
        labels[i] = k
    means = np.sqrt(prior_variance) * rng.standard_normal((len(sizes), n_features))
    noise = np.sqrt(noise_variance) * rng.standard_normal((n_points, n_features))
    return Draw(means[labels] + noise, labels)


def planted_clusters(
    n_points: int, n_features: int, n_clusters: int, *, spread: float = 3.0, rng: Any = None
) -> Draw:
    """Draw Gaussian clusters of unit noise and equal weight; `spread` is that of the centres."""
    if n_points < 1 or n_features < 1 or n_clusters < 1:
        raise ParameterError("n_points, n_features and n_clusters must be at least 1")
    rng = as_rng(rng)
    labels = rng.integers(n_clusters, size=n_points)
    centres = spread * rng.standard_normal((n_clusters, n_features))
    return Draw(centres[labels] + rng.standard_normal((n_points, n_features)), labels)
