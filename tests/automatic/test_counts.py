"""Wide tables of counts and their logarithms are recognised, and get the components above noise."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

from dpsearch import DPMixture, families, log_joint, priors
from dpsearch.automatic.counts import wide_counts
from dpsearch.errors import DataError


def genes(n_rows=120, width=400, n_groups=3, seed=0):
    """Over-dispersed counts, of rows that were counted for different times."""
    rng = np.random.default_rng(seed)
    profiles = rng.lognormal(0.5, 1.0, width) * np.exp(
        rng.normal(size=(n_groups, width)) * (rng.random((n_groups, width)) < 0.15)
    )
    labels = rng.integers(n_groups, size=n_rows)
    means = profiles[labels] * np.exp(rng.normal(0.0, 0.5, (n_rows, 1)))
    return rng.poisson(means * rng.gamma(5.0, 0.2, means.shape)).astype(float), labels


COUNTS, LABELS = genes()
SHARES = COUNTS / COUNTS.sum(axis=1, keepdims=True)
FORMS = {
    "counts": (COUNTS, "counts in 400"),
    "in other units": (COUNTS / 255.0, "counts in 400"),
    "logarithms": (np.log1p(COUNTS), "logarithms of counts in 400"),
    "normalised": (np.log1p(1e4 * SHARES), "logarithms of counts brought to a common total"),
    "single precision": (np.log1p(1e4 * SHARES).astype(np.float32), "to a common total"),
}


@pytest.mark.parametrize("name", FORMS)
def test_counts_in_every_form_are_recognised(name):
    X, words = FORMS[name]
    model = DPMixture().fit(X)
    assert words in model.reason_
    assert adjusted_rand_score(LABELS, model.labels_) > 0.95
    assert (np.bincount(model.labels_) == 1).sum() <= 2


def test_how_long_a_row_was_counted_does_not_matter():
    family, _ = wide_counts(COUNTS)
    np.testing.assert_allclose(family.project(3.0 * COUNTS), family.project(COUNTS), atol=1e-9)
    logged, _ = wide_counts(np.log1p(COUNTS))
    z = logged.project(np.log1p(COUNTS))
    np.testing.assert_allclose(z, family.project(COUNTS), atol=1e-9)


def test_the_log_joint_is_that_of_the_logarithms():
    family, _ = wide_counts(COUNTS)
    logarithms = np.array([np.log1p(family.total * row / row.sum()) for row in COUNTS])
    plain = family.with_parameters(total=None)
    assert family.total == np.median(COUNTS.sum(axis=1))
    assert log_joint(COUNTS, LABELS, family, priors.DirichletProcess(1.0)) == pytest.approx(
        log_joint(logarithms, LABELS, plain, priors.DirichletProcess(1.0)), rel=1e-9
    )


def test_other_tables_are_not_counts():
    rng = np.random.default_rng(0)
    one_large = COUNTS.copy()
    one_large[:, 0] += 1e6
    tables = [load_digits().data, rng.normal(size=(50, 40)), rng.integers(0, 6, (90, 40)) * 1.0]
    for X in [*tables, one_large, rng.random((50, 40)), np.zeros((5, 40))]:
        assert wide_counts(X) is None


def test_counts_below_zero_are_refused():
    model = DPMixture().fit(COUNTS)
    wrong = COUNTS[:3].copy()
    wrong[1, 7] = -1.0
    with pytest.raises(DataError, match="column 7"):
        model.predict(wrong)
    assert (model.sample(50)[0] >= 0.0).all()


def test_components_are_those_above_the_noise():
    rng = np.random.default_rng(0)
    for n_rows, width in ((100, 900), (600, 60)):
        noise = rng.normal(size=(n_rows, width)) * np.arange(1.0, width + 1.0)
        for rank in (0, 3):
            # Every column has the same share of noise, which the threshold supposes.
            shared = rng.normal(size=(n_rows, rank)) @ rng.choice([-1.0, 1.0], (rank, width))
            X = noise + 0.7 * shared * np.arange(1.0, width + 1.0)
            assert len(families.ProjectedGaussian.suggest(X).components) == max(1, rank)


def test_outliers_of_projections_are_found_in_the_projections():
    """Draws of the projections have the densities that draws of whole rows have."""
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(80, 40)), rng.normal(size=(80, 40)) + 2.0])
    mixture = DPMixture().fit(X).mixture_
    few = mixture.narrow
    assert few.narrow is few is not mixture
    z = mixture.model.family.project(X)
    for whole, narrow in zip(
        mixture.log_joint_probabilities(X), few.log_joint_probabilities(z), strict=True
    ):
        np.testing.assert_allclose(whole, narrow, rtol=1e-9)


def test_logarithms_at_a_common_total_come_back_in_their_own_unit():
    X = np.log1p(1e4 * SHARES)
    model = DPMixture(random_state=0).fit(X)
    assert model.family_.given_total == pytest.approx(1e4)
    for k in range(model.n_clusters_):
        own = X[model.labels_ == k].mean(axis=0)
        centre = model.mixture_.posterior(int(np.flatnonzero(model.mixture_.groups == k)[0]))
        assert centre["mean"].mean() == pytest.approx(own.mean(), rel=0.25)
    drawn, _ = model.sample(200)
    assert drawn.mean() == pytest.approx(X.mean(), rel=0.25)
    rng = np.random.default_rng(0)
    gone = rng.random(X.shape) < 0.1
    filled = model.impute(np.where(gone, np.nan, X))
    assert filled[gone].mean() == pytest.approx(X[gone].mean(), rel=0.25)
