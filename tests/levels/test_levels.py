"""From components to clusters: memberships, the check by halves, levels, `DPMixture` at a level."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.stats import ks_2samp
from sklearn.metrics import adjusted_rand_score

from dpsearch import DPMixture, Problem, families, load, priors
from dpsearch.errors import ModelFileError, ParameterError
from dpsearch.levels import find_levels
from dpsearch.levels.check import check_components, kolmogorov_smirnov
from dpsearch.levels.halves import Halves
from dpsearch.levels.overlap import overlap
from dpsearch.levels.tree import grow
from dpsearch.mixture import Mixture
from models import DRAWS


def lognormal(n=2400, seed=0):
    """Return three skewed groups that need several Gaussians each."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n)
    centres = np.array([[0.0, 0.0], [14.0, 0.0], [0.0, 14.0]])
    return centres[truth] + np.exp(0.8 * rng.normal(size=(n, 2))), truth


def gaussians(k=6, n=1200, spread=4.0, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.integers(k, size=n)
    return spread * rng.normal(size=(k, 2))[truth] + rng.normal(size=(n, 2)), truth


@pytest.fixture(scope="module")
def skewed():
    X, truth = lognormal()
    return X, truth, DPMixture().fit(X)


# -- memberships ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", DRAWS)
def test_memberships_are_those_of_a_gibbs_sampler(name):
    """Compare with log joints of moving the row to each component, for every family."""
    rng = np.random.default_rng(5)
    family, X = DRAWS[name](rng, 12)
    problem = Problem(X, family, priors.DirichletProcess(0.7))
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3])
    mixture = Mixture.of(problem.model, problem.items, labels, problem.prior)
    found = mixture.log_memberships(problem.items, labels)
    for i in range(12):
        values = []
        for k in range(4):
            moved = labels.copy()
            moved[i] = k
            values.append(problem.log_joint(np.unique(moved, return_inverse=True)[1]))
        expected = np.array(values) - np.logaddexp.reduce(values)
        np.testing.assert_allclose(found[i], expected, rtol=1e-6, atol=1e-8)


def test_clusters_have_the_summed_probabilities_of_their_components(skewed):
    X, _, model = skewed
    groups, mixture = model.mixture_.groups, model.mixture_
    assert 1 < model.n_clusters_ < model.n_components_
    apart = mixture.grouped()
    inside, _ = mixture.log_joint_probabilities(X[:50])
    shares = np.exp(inside - np.logaddexp.reduce(inside, axis=1)[:, None])
    expected = np.array([shares[:, groups == c].sum(axis=1) for c in range(model.n_clusters_)]).T
    np.testing.assert_allclose(model.predict_proba(X[:50]), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(model.predict(X[:50]), expected.argmax(axis=1))
    np.testing.assert_array_equal(model.predict_components(X[:50]), inside.argmax(axis=1))

    components = model.component_labels_
    one, all_ = mixture.memberships(X, components), apart.memberships(X, components)
    np.testing.assert_array_equal(one.labels, groups[components])
    np.testing.assert_allclose(one.log_density, all_.log_density)
    log_r = mixture.log_memberships(Problem(X, model.family_, mixture.prior).items, components)
    own = np.array([np.exp(log_r[i, groups == one.labels[i]]).sum() for i in range(len(X))])
    shared = mixture.sizes[components] > 1
    # The certainty also counts a new component, with the same share in both.
    old = all_.certainty / np.exp(log_r[np.arange(len(X)), components])
    np.testing.assert_allclose(one.certainty[shared], (own * old)[shared], rtol=1e-8)
    assert (one.certainty >= all_.certainty - 1e-12).all()
    assert (one.second != one.labels).all()


def _renewed(model, mixture):
    """Return rows with everything derived anew from their statistics."""
    items, numbers = model.blocks(mixture.pool, mixture.sizes), np.arange(len(mixture.sizes))
    return model.rows(items, numbers, len(numbers))[0]


def test_a_merged_cluster_has_the_statistics_of_its_rows(skewed):
    X, _, model = skewed
    mixture = model.mixture_
    direct = Mixture.of(
        mixture.model, mixture.model.items(X)[0], np.asarray(model.labels_), mixture.prior
    )
    found, wanted = (_renewed(mixture.model, one) for one in (mixture.merged, direct))
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(mixture.cluster_sizes, np.bincount(model.labels_))


# -- the check ------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "m"), [(1, 1), (7, 30), (40, 40), (300, 90)])
def test_the_test_is_that_of_scipy(n, m):
    rng = np.random.default_rng(n)
    for digits in (1, 6):
        rows, draws = (np.sort(np.round(rng.random(size), digits)) for size in (n, m))
        want = ks_2samp(rows, draws, alternative="greater", method="asymp")
        found = kolmogorov_smirnov(rows, draws)
        assert found.p_value == pytest.approx(want.pvalue, rel=1e-12)
        assert found.distance == pytest.approx(max(want.statistic, found.distance))
        assert found.certainty == want.statistic_location
        assert found.rows == (rows <= found.certainty).mean()
        assert found.draws == (draws <= found.certainty).mean()


def test_rows_from_the_mixture_pass_the_check_and_skewed_ones_do_not(skewed):
    X, _, model = skewed
    assert model.n_components_ > 5
    passed = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        drawn, components = [], []
        for k, size in enumerate(model.mixture_.sizes):
            drawn.append(model.mixture_.draws(k).sample(int(size), rng))
            components += [k] * int(size)
        rows, labels = np.vstack(drawn), np.array(components)
        again = Mixture.of(
            model.mixture_.model,
            model.mixture_.model.items(rows)[0],
            labels,
            priors.DirichletProcess(1.0),
        )
        log_r = again.log_memberships(again.model.items(rows)[0], labels)
        passed += not check_components(again, rows, labels, log_r, rng).fails
    assert passed >= 9
    items, _ = model.mixture_.model.items(X)
    log_r = model.mixture_.log_memberships(items, model.component_labels_)
    check = check_components(
        model.mixture_, X, model.component_labels_, log_r, np.random.default_rng(0)
    )
    assert check.fails
    assert check.distance == pytest.approx(check.rows - check.draws)
    assert "rows lie between components" in check.in_words()


def test_rows_with_gaps_are_compared_with_draws_that_have_the_same_gaps():
    """A row with few observed values is uncertain even if components do not overlap."""
    X, _ = gaussians(k=4, n=900, seed=3)
    X = np.column_stack([X, X[:, ::-1] + np.random.default_rng(1).normal(size=X.shape)])
    X[np.random.default_rng(2).random(X.shape) < 0.4] = np.nan
    X = X[~np.isnan(X).all(axis=1)]
    model = DPMixture("diagonal_gaussian").fit(X)
    items, _ = model.mixture_.model.items(X)
    labels = model.component_labels_
    log_r = model.mixture_.log_memberships(items, labels)
    found = [
        check_components(model.mixture_, rows, labels, log_r, np.random.default_rng(0))
        for rows in (X, np.nan_to_num(X))  # the second takes rows for complete
    ]
    assert not found[0].fails
    assert found[1].distance > 2.0 * found[0].distance


# -- levels ---------------------------------------------------------------------------------


def test_skewed_groups_are_clusters_and_gaussian_ones_stay_components(skewed):
    X, truth, model = skewed
    assert model.n_clusters_ == 3
    assert adjusted_rand_score(truth, model.labels_) > 0.9
    assert adjusted_rand_score(truth, model.component_labels_) < 0.8
    assert "so overlapping components were merged into 3 clusters" in model.level_reason_

    X, truth = gaussians()
    model = DPMixture().fit(X)
    assert model.n_clusters_ == model.n_components_
    assert "so each component is a cluster" in model.level_reason_
    np.testing.assert_array_equal(model.labels_, model.component_labels_)


def one_cloud(kind, seed):
    rng = np.random.default_rng(seed)
    if kind == "gaussian":
        return rng.normal(size=(400, 3)) @ rng.normal(size=(3, 3))
    if kind == "poisson":
        return pd.DataFrame(rng.poisson([3.0, 8.0, 1.0], size=(400, 3)), columns=list("abc"))
    return pd.DataFrame({c: pd.Categorical(rng.choice(list("xyz"), 400)) for c in "abcd"})


@pytest.mark.parametrize(
    "kind",
    [*(pytest.param(one, marks=pytest.mark.slow) for one in ["gaussian", "poisson"]), "category"],
)
def test_one_cloud_is_one_cluster(kind):
    found = [DPMixture().fit(one_cloud(kind, seed)).n_clusters_ for seed in range(10)]
    assert found.count(1) >= 9


@pytest.mark.slow
def test_many_overlapping_gaussians_keep_their_partition():
    """Fits to halves disagree because they have few rows, not because the model is wrong."""
    lost = []
    for seed in range(4):
        X, truth = gaussians(k=20, n=2000, spread=5.0, seed=seed)
        model = DPMixture().fit(X)
        scores = [adjusted_rand_score(truth, y) for y in (model.component_labels_, model.labels_)]
        lost.append(scores[0] - scores[1])
    assert np.mean(lost) < 0.02


def test_levels_by_number(skewed):
    X, _, model = skewed
    levels = model.levels_
    assert list(levels) == list(range(1, model.n_components_ + 1))
    assert levels[1].agreement == 1.0
    assert all(len(np.unique(levels[k].labels)) == k for k in levels)
    assert [levels[k].height for k in sorted(levels)] == sorted(
        (levels[k].height for k in levels), reverse=True
    )
    np.testing.assert_array_equal(levels[3].labels, model.cut(3))
    np.testing.assert_array_equal(model.cut(), model.labels_)
    assert levels[3].agreement > levels[model.n_components_].agreement
    assert model._levels.n_clusters_in_halves
    at = model.at_level(2)
    assert at.n_clusters_ == 2
    np.testing.assert_array_equal(at.labels_, model.cut(2))
    assert at.log_joint_ == model.log_joint_
    assert at.predict_proba(X[:5]).shape == (5, 2)
    assert at.get_params()["level"] == 2
    assert model.at_level("components").n_clusters_ == model.n_components_
    few = X[:600]
    fitted = DPMixture(model.family_, level=2).fit(few)
    want = DPMixture(model.family_).fit(few).at_level(2)
    np.testing.assert_array_equal(fitted.labels_, want.labels_)
    assert want.n_components_ > fitted.n_clusters_ == 2
    assert "cut at 2 clusters, as requested" in fitted.level_reason_


def test_agreement_is_the_adjusted_rand_index_of_gathered_components():
    rng = np.random.default_rng(0)
    whole, half = rng.integers(5, size=300), rng.integers(4, size=300)
    half[whole < 2] = 0
    table = np.zeros((4, 5))
    np.add.at(table, (half, whole), 1.0)
    groups = np.array([0, 0, 1, 2, 2])
    to = [np.bincount(groups[whole][half == h], minlength=3).argmax() for h in range(4)]
    expected = adjusted_rand_score(groups[whole], np.array(to)[half])
    assert Halves((table,), (1,)).agreement(groups) == pytest.approx(expected, abs=1e-12)


def test_rows_apart_have_a_nearest_cluster():
    X, _ = gaussians(k=3, n=600, spread=8.0, seed=1)
    X = np.vstack([X, X[0] + [60.0, 0.0]])
    model = DPMixture().fit(X)
    last = model.labels_[-1]
    assert model.mixture_.cluster_sizes[last] == 1
    apart = model.rows_apart_
    assert apart[last] >= 0
    assert (apart[model.mixture_.cluster_sizes > 4] == -1).all()
    assert model.mixture_.cluster_sizes[apart[last]] > 4
    assert (DPMixture(min_cluster_size=5).fit(X).mixture_.cluster_sizes >= 5).all()


# -- everywhere -----------------------------------------------------------------------------


@pytest.mark.slow
def test_weights_are_repeated_rows():
    X, _ = lognormal(n=400, seed=2)
    weights = np.random.default_rng(0).integers(1, 4, size=len(X))
    family = DPMixture().fit(X).family_
    weighted = DPMixture(family).fit(X, sample_weight=weights)
    problem = Problem(X, weighted.family_, weighted.mixture_.prior, weights=weights)
    rows = np.repeat(np.arange(len(X)), weights)
    copies = Problem(X[rows], weighted.family_, weighted.mixture_.prior)
    mixture = weighted.mixture_.grouped()
    labels = weighted.component_labels_
    one = find_levels(mixture, problem.items, labels, X)
    two = find_levels(mixture, copies.items, labels[rows], X[rows])
    np.testing.assert_allclose(one.tree.heights, two.tree.heights, rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(one.tree.merges, two.tree.merges)
    assert one.merges == two.merges


def test_documents_and_mixed_tables():
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(60, 0.2), size=4)
    truth = rng.integers(4, size=300)
    burst = np.array([rng.multinomial(60, rng.dirichlet(20.0 * topics[k] + 1e-9)) for k in truth])
    model = DPMixture("multinomial").fit(sp.csr_matrix(burst))
    assert model.n_clusters_ < model.n_components_
    assert adjusted_rand_score(truth, model.labels_) > adjusted_rand_score(
        truth, model.component_labels_
    )
    X, _ = lognormal(n=500, seed=4)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(
        c=pd.Categorical(rng.choice(["u", "v"], 500))
    )
    model = DPMixture().fit(frame)
    assert model.tree_.n_components == model.n_components_
    assert model.predict(frame.iloc[:7]).max() < model.n_clusters_


def test_files_have_the_tree(skewed, tmp_path):
    X, _, model = skewed
    model.save(tmp_path / "m.npz")
    loaded = load(tmp_path / "m.npz")
    np.testing.assert_array_equal(loaded.labels_, model.labels_)
    np.testing.assert_array_equal(loaded.component_labels_, model.component_labels_)
    np.testing.assert_array_equal(loaded.tree_.linkage, model.tree_.linkage)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.level_reason_ == model.level_reason_
    assert loaded.levels_[2].agreement == model.levels_[2].agreement
    assert loaded.at_level(2).n_clusters_ == 2


def stored(path, **changes):
    """Rewrite a model file with other entries; None leaves an entry out."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    arrays |= changes
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("tree_merges", lambda a: a[::-1]),
        ("tree_merges", lambda a: np.zeros_like(a)),
        ("tree_merges", lambda a: a.astype(float)),
        ("tree_heights", lambda a: a[::-1]),
        ("tree_heights", lambda a: np.full_like(a, np.nan)),
        ("tree_log_lift", lambda a: a[1:]),
        ("tree_log_weights", lambda a: None),
        ("groups", lambda a: None),
        ("groups", lambda a: a + 1),
        ("groups", lambda a: -a),
        ("groups", lambda a: a[:-1]),
    ],
)
def test_a_tree_from_a_file_is_checked(skewed, tmp_path, name, change):
    model = skewed[2]
    path = tmp_path / "m.npz"
    model.save(path)
    with np.load(path) as file:
        changed = change(file[name])
    stored(path, **{name: None if changed is None else np.ascontiguousarray(changed)})
    with pytest.raises(ModelFileError):
        load(path)


@pytest.mark.slow
def test_streams_and_shards(skewed):
    X, truth, _ = skewed
    stream = DPMixture()
    for begin in range(0, len(X), 600):
        stream.partial_fit(X[begin : begin + 600])
        assert stream.tree_.n_components == stream.n_components_
        assert len(stream.labels_) == 600
        np.testing.assert_array_equal(
            stream.labels_, stream.mixture_.groups[stream.component_labels_]
        )
    assert stream.n_clusters_ < stream.n_components_
    assert adjusted_rand_score(truth, stream.predict(X)) > 0.8
    sharded = DPMixture(n_shards=3).fit(X)
    assert sharded.tree_.n_components == sharded.n_components_
    assert adjusted_rand_score(truth, sharded.labels_) > 0.8


def test_a_family_without_draws_keeps_its_components(skewed):
    class NoDraws(families.FullGaussian):
        name = "no_draws"

        def draws(self, row, n_features):
            return None

    X, _, model = skewed
    family = NoDraws(**model.family_.hyperparameters())
    found = DPMixture(family).fit(X)
    assert found.n_clusters_ == found.n_components_
    assert "cannot draw rows" in found.level_reason_
    assert found.cut(2).max() == 1


@pytest.mark.parametrize("level", [0, -1, True, 2.5, "clusters", None])
def test_invalid_levels_are_refused(level):
    with pytest.raises(
        ParameterError, match="level must be 'auto', 'components' or an integer ≥ 1"
    ):
        DPMixture(level=level).fit(np.zeros((5, 2)) + np.arange(5)[:, None])


def test_more_clusters_than_components():
    X = np.random.default_rng(0).normal(size=(50, 2))
    with pytest.raises(ParameterError, match="level is 9, but there are only 1 components"):
        DPMixture(level=9).fit(X)
    with pytest.raises(ParameterError, match="min_cluster_size must be an integer ≥ 1"):
        DPMixture(min_cluster_size=0).fit(X)


def test_rows_of_no_weight_are_labelled_as_predicted(skewed):
    X, _, model = skewed
    new = np.random.default_rng(3).uniform(-3.0, 20.0, size=(400, 2))
    weights = np.repeat([1, 0], [len(X), len(new)])
    fitted = DPMixture(model.family_).fit(np.vstack([X, new]), sample_weight=weights)
    assert fitted.n_clusters_ < fitted.n_components_
    np.testing.assert_array_equal(fitted.labels_[len(X) :], fitted.predict(new))
    np.testing.assert_array_equal(fitted.labels_, fitted.mixture_.groups[fitted.component_labels_])


def test_a_stream_after_a_fit_keeps_what_was_found(skewed):
    X, _, model = skewed
    model = DPMixture(model.family_).fit(X)
    assert model.n_clusters_ == 3
    model.partial_fit(np.random.default_rng(0).normal(size=(30, 2)) + 200.0)
    assert model.n_components_ > model.n_clusters_
    assert model._levels.merges


def test_a_stream_counts_its_rows():
    """Sizes, numbers and the least size follow the rows even if components stay the same."""
    rng = np.random.default_rng(0)
    centres = 30.0 * np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    model = DPMixture(families.Gaussian(15.0, 900.0, 1.0), min_cluster_size=60)
    for shares, n in (([0.7, 0.1, 0.1, 0.1], 400), ([0.05, 0.05, 0.1, 0.8], 390)):
        kind = rng.choice(4, size=n, p=shares)
        model.partial_fit(centres[kind] + rng.normal(size=(n, 2)))
    assert model.n_components_ == 4
    assert model.tree_.sizes[:4].tolist() == model.mixture_.sizes.tolist()
    assert model.tree_.sizes[-1] == 790
    sizes = model.mixture_.cluster_sizes
    assert (sizes >= 60).all()
    model.set_params(level="components", min_cluster_size=1).partial_fit(centres)
    assert model.n_clusters_ == 4


def test_a_level_that_a_stream_cannot_have_yet():
    X, _ = gaussians(k=4, n=400, spread=20.0, seed=1)
    model = DPMixture(families.Gaussian(0.0, 400.0, 1.0), level=4)
    model = DPMixture(model.family, level="auto").partial_fit(X[:50])
    model.set_params(level=99).partial_fit(X[50:])
    assert model.n_clusters_ == model.n_components_


def test_thousands_of_components_are_cut_at_once():
    """Every level of a tree over many components, and the least size, take one walk each."""
    rng = np.random.default_rng(0)
    log_r = 3.0 * rng.normal(size=(500, 1500))
    log_r -= np.logaddexp.reduce(log_r, axis=1)[:, None]
    tree = grow(overlap(log_r, 0.25), rng.integers(1, 9, size=1500))
    assert [int(tree.cut(n).max()) + 1 for n in (1, 2, 700, 1500)] == [1, 2, 700, 1500]
    groups = tree.cut(height=-np.inf, min_size=20)
    assert np.bincount(groups, tree.sizes[:1500]).min() >= 20


def test_draws_of_large_counts():
    """Thousands of draws add up to more than a table of counts may."""
    X = np.rint(np.random.default_rng(0).gamma(3.0, size=(100, 1)) * 1e9 / 3.0)
    assert np.isfinite(DPMixture("poisson", random_state=0).fit(X).log_joint_)
