"""Wide tables of counts and their logarithms are recognised, and get the components above noise."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

from dpsearch import DPMixture, families, log_joint, priors
from dpsearch.automatic.counts import expected_counts, wide_counts
from dpsearch.errors import DataError
from dpsearch.families._count_rows import dispersion


def genes(n_rows=120, width=400, n_groups=3, seed=0, depth=0.5, over=0.2):
    """Return over-dispersed counts whose rows have different exposures."""
    rng = np.random.default_rng(seed)
    profiles = rng.lognormal(0.5, 1.0, width) * np.exp(
        rng.normal(size=(n_groups, width)) * (rng.random((n_groups, width)) < 0.15)
    )
    labels = rng.integers(n_groups, size=n_rows)
    means = profiles[labels] * np.exp(rng.normal(0.0, depth, (n_rows, 1)))
    if over:
        means = means * rng.gamma(1.0 / over, over, means.shape)
    return rng.poisson(means).astype(float), labels


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
    family = wide_counts(COUNTS).family()
    np.testing.assert_allclose(family.project(3.0 * COUNTS), family.project(COUNTS), atol=1e-9)
    logged = wide_counts(np.log1p(COUNTS)).family()
    z = logged.project(np.log1p(COUNTS))
    np.testing.assert_allclose(z, family.project(COUNTS), atol=1e-9)


def test_the_log_joint_is_that_of_rows_in_units_of_their_noise():
    family = wide_counts(COUNTS).family()
    m, total = np.array(family.centre), np.median(COUNTS.sum(axis=1))
    assert family.total == total
    rows = []
    for u in COUNTS:
        off = total * u / u.sum() - m
        length = np.sqrt(np.mean(off**2 / (m + family.dispersion * m**2)))
        rows.append(m + off / length)
    plain = family.with_parameters(total=None)
    assert log_joint(COUNTS, LABELS, family, priors.DirichletProcess(1.0)) == pytest.approx(
        log_joint(np.array(rows), LABELS, plain, priors.DirichletProcess(1.0)), rel=1e-9
    )


def test_centres_of_clusters_are_their_mean_counts():
    """Centres are given at the median of the rows' sums, for rows of any sum."""
    model = DPMixture().fit(COUNTS)
    shares = np.median(COUNTS.sum(axis=1)) * SHARES
    for k in range(model.n_clusters_):
        own = shares[model.labels_ == k].mean(axis=0)
        component = int(np.flatnonzero(model.mixture_.groups == k)[0])
        centre = model.mixture_.posterior(component)["mean"]
        off = shares.mean(axis=0)
        assert np.abs(centre - own).mean() < 0.5 * np.abs(off - own).mean()


@pytest.mark.parametrize("over", [0.0, 0.3])
def test_rows_that_were_counted_for_very_different_times(over):
    for seed, n_groups in enumerate((1, 4)):
        X, labels = genes(150, 800, n_groups, seed, depth=1.0, over=over)
        model = DPMixture().fit(X)
        assert len(model.family_.components) == max(1, n_groups - 1)
        assert adjusted_rand_score(labels, model.labels_) > 0.95
        assert model.n_clusters_ <= n_groups + 1


def test_counts_of_which_most_are_zero_are_words_only_if_they_are_rare():
    rng = np.random.default_rng(5)
    profiles = rng.lognormal(-0.7, 1.2, 500) * np.exp(rng.normal(size=(3, 500)))
    labels = rng.integers(3, size=200)
    X = rng.poisson(profiles[labels] * rng.gamma(1.0, 1.0, (200, 500))).astype(float)
    assert (X == 0.0).mean() > 0.5
    model = DPMixture().fit(X)  # a multinomial distribution has dozens of clusters of one row
    assert adjusted_rand_score(labels, model.labels_) > 0.95
    assert (np.bincount(model.labels_) == 1).sum() <= 2
    assert DPMixture().fit(rng.poisson(0.3 * profiles[labels]).astype(float)).family_.name == (
        "multinomial"
    )


def test_groups_that_differ_in_all_columns_differ_in_their_noise_too():
    rng = np.random.default_rng(2)
    profiles = rng.gamma(0.5, 1.0, (3, 60))
    labels = rng.integers(3, size=600)
    X = rng.poisson(1000.0 * (profiles / profiles.sum(axis=1, keepdims=True))[labels]).astype(float)
    model = DPMixture().fit(X)
    assert len(model.family_.components) == 2
    assert adjusted_rand_score(labels, model.labels_) == 1.0
    holes = np.where(rng.random(X.shape) < 0.05, np.nan, X)
    there = ~np.isnan(holes)
    filled = model.impute(holes)
    np.testing.assert_array_equal(filled[there], X[there])
    expected = (profiles / profiles.sum(axis=1, keepdims=True))[labels] * X.sum(axis=1)[:, None]
    off = (filled - expected)[~there] / np.sqrt(expected[~there] + 1.0)
    assert np.abs(off).mean() < 0.3  # a count itself is off by about 0.8 deviations
    nothing = model.impute(np.full((1, 60), np.nan))
    assert nothing.sum() == pytest.approx(np.median(X.sum(axis=1)), rel=0.05)


def test_the_dispersion_of_counts_is_found():
    for over in (0.0, 0.5):
        X, _ = genes(300, 600, 1, 1, depth=0.5, over=over)
        assert dispersion(X, X.sum(axis=0) / X.sum()) == pytest.approx(over, abs=0.05)


@pytest.mark.parametrize("name", ["counts", "logarithms", "normalised"])
def test_gaps_do_not_hide_counts(name):
    X, words = FORMS[name]
    gone = np.random.default_rng(0).random(X.shape) < 0.02
    for gaps in (gone, np.arange(X.size).reshape(X.shape) == 77):
        model = DPMixture().fit(np.where(gaps, np.nan, X))
        assert words in model.reason_
        assert "missing values filled in" in model.reason_
        assert adjusted_rand_score(LABELS, model.labels_) > 0.95


def test_expected_counts_are_products_of_sums():
    rates = np.outer([1.0, 5.0, 20.0], [0.5, 2.0, 3.0, 9.0])
    assert np.allclose(expected_counts(rates), rates)
    gaps = rates.copy()
    gaps[0, 1] = gaps[2, 3] = np.nan
    np.testing.assert_allclose(expected_counts(gaps), rates, rtol=0.01)


def test_gaps_are_filled_with_the_depth_of_their_own_row():
    model = DPMixture().fit(COUNTS)
    rows = np.vstack([COUNTS[:20], 10.0 * COUNTS[:20]])
    gone = np.zeros(rows.shape, bool)
    gone[:, ::5] = True
    filled = model.impute(np.where(gone, np.nan, rows))
    assert filled[20:][gone[20:]].mean() == pytest.approx(rows[20:][gone[20:]].mean(), rel=0.2)
    np.testing.assert_allclose(filled[20:], 10.0 * filled[:20], rtol=1e-6)
    assert (model.predict(np.where(gone, np.nan, rows)) == np.tile(model.labels_[:20], 2)).all()


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
    """Draws of the projections have the same densities as draws of whole rows."""
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
        centre = model.mixture_.posterior(int(np.flatnonzero(model.mixture_.groups == k)[0]))
        # Logarithms of mean counts, which are not the means of logarithms.
        assert np.expm1(centre["mean"]).sum() == pytest.approx(1e4, rel=0.02)
    drawn, _ = model.sample(200)
    assert np.expm1(drawn).sum(axis=1).mean() == pytest.approx(1e4, rel=0.25)
    rng = np.random.default_rng(0)
    gone = rng.random(X.shape) < 0.1
    filled = model.impute(np.where(gone, np.nan, X))
    assert np.expm1(filled[gone]).mean() == pytest.approx(np.expm1(X[gone]).mean(), rel=0.1)
