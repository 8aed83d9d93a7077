"""Data sets: the digits, draws from the process, planted clusters."""

import numpy as np
import pytest
from scipy import stats
from sklearn.decomposition import PCA

from dpsearch import datasets, priors
from dpsearch.errors import ParameterError
from dpsearch.partition import all_partitions


def test_the_digits_are_what_they_say():
    digits = datasets.mnist_digits()
    assert digits.images.shape == (3000, 784)
    assert digits.images.dtype == np.uint8
    assert digits.images.min() == 0
    assert digits.images.max() == 255
    assert set(digits.labels.tolist()) == set(range(10))
    assert len(set(digits.rows.tolist())) == 3000
    assert digits.rows.min() >= 0
    assert digits.rows.max() < 60_000
    assert np.bincount(digits.labels).min() > 200


def test_whitened_is_what_scikit_learn_calls_it():
    X = np.random.default_rng(0).normal(size=(200, 6)) @ np.random.default_rng(1).normal(
        size=(6, 6)
    )
    Z = datasets.whitened(X + 100.0, 4)
    np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-10)
    np.testing.assert_allclose(np.cov(Z.T), np.eye(4), atol=1e-8)
    other = PCA(4, whiten=True, svd_solver="full").fit_transform(X)
    signs = np.sign((Z * other).sum(axis=0))
    np.testing.assert_allclose(Z, other * signs, atol=1e-8)
    assert Z.flags.c_contiguous
    assert np.array_equal(Z, datasets.whitened(X + 100.0, 4))
    # Whole numbers that would overflow their own type.
    small = (np.abs(X) * 20.0).clip(0, 255).astype(np.uint8)
    np.testing.assert_allclose(datasets.whitened(small, 2), datasets.whitened(small * 1.0, 2))


@pytest.mark.parametrize("n_components", [0, -1, 5, 50])
def test_whitening_to_more_than_there_is(n_components):
    X = np.random.default_rng(0).normal(size=(30, 4))
    with pytest.raises(ParameterError, match="n_components"):
        datasets.whitened(X, n_components)
    with pytest.raises(ParameterError, match="n_components"):
        datasets.whitened(X[:, [0, 1, 0, 1]], 3)
    with pytest.raises(ParameterError, match="n_components"):
        datasets.whitened(X[:1], 1)


def test_draws_from_the_process_have_the_right_number_of_clusters():
    """K has the mean Σ α/(α + i) and the variance Σ αi/(α + i)²."""
    n, alpha, draws = 60, 2.5, 600
    rng = np.random.default_rng(0)
    counts = []
    for _ in range(draws):
        labels = datasets.dirichlet_process_draw(n, 1, alpha=alpha, rng=rng).labels
        counts.append(labels.max() + 1)
        # Clusters are numbered by first appearance.
        first = [int(np.flatnonzero(labels == k)[0]) for k in range(counts[-1])]
        assert first == sorted(first)
    i = np.arange(n)
    mean = (alpha / (alpha + i)).sum()
    deviation = np.sqrt((alpha * i / (alpha + i) ** 2).sum())
    assert abs(np.mean(counts) - mean) < 4.0 * deviation / np.sqrt(draws)
    assert np.std(counts) == pytest.approx(deviation, rel=0.15)


def test_draws_from_the_process_follow_its_prior():
    """Each partition of four points is drawn as often as `DirichletProcess` says."""
    prior, draws = priors.DirichletProcess(0.8), 3000
    rng = np.random.default_rng(1)
    seen = {}
    for _ in range(draws):
        labels = tuple(datasets.dirichlet_process_draw(4, 1, alpha=0.8, rng=rng).labels.tolist())
        seen[labels] = seen.get(labels, 0) + 1
    partitions = [tuple(labels.tolist()) for labels in all_partitions(4)]
    expected = [draws * np.exp(prior.log_probability(np.bincount(p))) for p in partitions]
    assert sum(expected) == pytest.approx(draws)
    assert set(seen) <= set(partitions)
    assert stats.chisquare([seen.get(p, 0) for p in partitions], expected).pvalue > 1e-3


def test_draws_from_the_process_have_the_right_spread():
    rng = np.random.default_rng(2)
    draws = [
        datasets.dirichlet_process_draw(
            50, 3, alpha=5.0, prior_variance=16.0, noise_variance=0.25, rng=rng
        )
        for _ in range(200)
    ]
    assert all(draw.X.shape == (50, 3) for draw in draws)
    within, centres = [], []
    for X, labels in draws:
        largest = X[labels == np.bincount(labels).argmax()]
        within.append(largest.var(axis=0, ddof=1).mean())
        centres.append(largest.mean(axis=0))
    assert np.mean(within) == pytest.approx(0.25, rel=0.1)
    assert np.var(centres) == pytest.approx(16.0, rel=0.2)
    one, two = (datasets.dirichlet_process_draw(20, rng=3) for _ in range(2))
    assert np.array_equal(one.X, two.X)
    assert np.array_equal(one.labels, two.labels)


def test_planted_clusters():
    draw = datasets.planted_clusters(5000, 2, 4, spread=50.0, rng=0)
    assert draw.X.shape == (5000, 2)
    assert stats.chisquare(np.bincount(draw.labels, minlength=4)).pvalue > 1e-3
    for k in range(4):
        np.testing.assert_allclose(draw.X[draw.labels == k].var(axis=0), 1.0, rtol=0.15)
    assert np.array_equal(draw.X, datasets.planted_clusters(5000, 2, 4, spread=50.0, rng=0).X)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: datasets.dirichlet_process_draw(0), "n_points"),
        (lambda: datasets.dirichlet_process_draw(5, 0), "n_features"),
        (lambda: datasets.dirichlet_process_draw(5, alpha=0.0), "alpha"),
        (lambda: datasets.dirichlet_process_draw(5, alpha=-1.0), "alpha"),
        (lambda: datasets.dirichlet_process_draw(5, prior_variance=-1.0), "prior_variance"),
        (lambda: datasets.dirichlet_process_draw(5, noise_variance=np.nan), "noise_variance"),
        (lambda: datasets.dirichlet_process_draw(5, rng="seed"), "rng"),
        (lambda: datasets.planted_clusters(0, 2, 3), "n_points"),
        (lambda: datasets.planted_clusters(5, 2, 0), "n_clusters"),
    ],
)
def test_bad_arguments_of_draws_are_named(call, named):
    with pytest.raises(ParameterError, match=named):
        call()
