"""`DPMixture`: scikit-learn's conventions, accepted input, and predictions against formulas."""

import copy
import itertools
import pickle
import subprocess
import sys

import numba
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from scipy import stats
from scipy.integrate import cumulative_trapezoid, quad
from scipy.special import gammaln, logsumexp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

import naive
from dpsearch import DPMixture, datasets, families, log_joint, priors
from dpsearch.errors import DataError, ParameterError
from models import DRAWS
from studies.attacks.inject import interrupted_at, some_moments

AUTO_PRIOR = priors.DirichletProcess(priors.Gamma(1.0, 1.0))  # what alpha="auto" stands for


@parametrize_with_checks([DPMixture(family=families.DiagonalGaussian())])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


# Those whose tables matter to the choice of a family; all the others are slow.
OF_THE_CHOICE = ("clustering", "fit2d_1feature", "fit2d_1sample")


@pytest.mark.parametrize("check", OF_THE_CHOICE)
def test_scikit_learns_own_checks_of_the_default(check):
    found = [
        one
        for _, one in estimator_checks_generator(DPMixture())
        if one.func.__name__ == f"check_{check}" and not one.keywords.get("readonly_memmap")
    ]
    assert len(found) == 1
    found[0](DPMixture())


@pytest.mark.slow
@parametrize_with_checks(
    [DPMixture(), DPMixture(family="diagonal_gaussian"), DPMixture(family="gaussian")]
)
def test_scikit_learns_own_checks_of_families(estimator, check):
    check(estimator)


def blobs(n=60, width=2, seed=0):
    """Two clusters far apart, in random order."""
    rng = np.random.default_rng(seed)
    centres = np.where(rng.random(n) < 0.4, 9.0, 0.0)
    return centres[:, None] + rng.normal(size=(n, width))


def counts(n=40, seed=0):
    rng = np.random.default_rng(seed)
    rates = np.array([[9.0, 1.0, 0.2, 0.0, 3.0], [0.1, 6.0, 5.0, 1.0, 0.0]])
    return rng.poisson(rates[rng.integers(2, size=n)])


@pytest.fixture(scope="module")
def default():
    """A default fit to `blobs()`, for tests that do not change it."""
    return DPMixture().fit(blobs())


def same_fit(one, two):
    assert np.array_equal(one.labels_, two.labels_)
    assert one.log_joint_ == two.log_joint_
    assert one.family_.to_dict() == two.family_.to_dict()


# -- what comes in -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kinds",
    [[np.float32], [np.float16], [np.int64, np.int8, np.uint16], [bool]],
    ids=["float32", "float16", "integers", "bool"],
)
def test_other_number_types_are_taken_as_their_values(kinds):
    values = np.abs(blobs() * (0.2 if bool in kinds else 1.0)).astype(kinds[0])
    want = DPMixture().fit(values.astype(np.float64))
    for kind in kinds:
        X = values.astype(kind)
        same_fit(DPMixture().fit(X), want)
        assert np.array_equal(X, values)


@pytest.mark.slow
def test_memory_layout_does_not_matter(tmp_path):
    X = blobs()
    plain = DPMixture().fit(X)
    read_only = X.copy()
    read_only.flags.writeable = False
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert isinstance(mapped, np.memmap)
    raw = np.memmap(tmp_path / "X.raw", dtype=np.float64, mode="w+", shape=X.shape)
    raw[:] = X
    raw.flush()
    raw = np.memmap(tmp_path / "X.raw", dtype=np.float64, mode="r", shape=X.shape)
    wide = np.zeros((2 * len(X), 2 * X.shape[1]))
    wide[::2, ::2] = X
    layouts = [read_only, mapped, raw, np.asfortranarray(X), wide[::2, ::2], X.tolist()]
    for other in layouts:
        model = DPMixture().fit(other)
        same_fit(model, plain)
        assert np.array_equal(model.predict_proba(other), plain.predict_proba(X))
    assert np.array_equal(read_only, X)
    assert np.array_equal(mapped, X)


@pytest.mark.parametrize(
    ("family", "sparse"),
    [("auto", sp.csr_matrix), ("auto", sp.csc_array), ("multinomial", sp.csr_array),
     ("multinomial", sp.csc_matrix), ("poisson", sp.coo_matrix), ("poisson", sp.csr_matrix)],
)  # fmt: skip
def test_sparse_counts_are_as_good_as_dense_ones(family, sparse):
    X = counts()
    model = DPMixture(family=family).fit(sparse(X))
    assert model.family_.name == ("multinomial" if family == "auto" else family)
    dense = DPMixture(family=model.family_).fit(X)
    same_fit(model, dense)
    for name in ("predict", "predict_proba", "score_samples"):
        found, want = getattr(model, name)(sparse(X)), getattr(dense, name)(X)
        np.testing.assert_allclose(found, want, rtol=1e-12)


def test_duplicate_entries_of_a_sparse_matrix_add_up_and_it_stays_as_it_was():
    rows, columns = np.array([0, 0, 1, 2, 2]), np.array([1, 1, 0, 1, 0])
    X = sp.coo_matrix((np.array([1.0, 2.0, 4.0, 3.0, 0.0]), (rows, columns)), shape=(3, 2))
    family = families.Multinomial(1.0)
    model = DPMixture(family=family).fit(X)
    assert X.nnz == 5
    assert model.log_joint_ == log_joint(X.toarray(), model.component_labels_, family, AUTO_PRIOR)
    messy = sp.csr_matrix((X.data, columns, np.array([0, 2, 3, 5])), shape=(3, 2))
    assert DPMixture(family=family).fit(messy).log_joint_ == model.log_joint_
    assert messy.nnz == 5


def test_zeros_and_ones_are_taken_for_what_they_are():
    X = (np.random.default_rng(0).random((30, 4)) < 0.3).astype(int)
    assert DPMixture().fit(X).family_.name == "bernoulli"
    assert DPMixture().fit(sp.csr_matrix(X)).family_.name == "bernoulli"


# -- frames ------------------------------------------------------------------------------------


def frame(kind, X, names=("height", "weight")):
    if kind == "pandas":
        return pd.DataFrame(X, columns=list(names), index=np.arange(len(X)) * 10)
    return pl.DataFrame(X, schema=list(names))


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_frames_keep_their_names(kind, default):
    X = blobs()
    table = frame(kind, X)
    model = DPMixture().fit(table)
    same_fit(model, default)
    assert list(model.feature_names_in_) == ["height", "weight"]
    assert model.n_features_in_ == 2
    assert np.array_equal(model.predict(table), default.predict(X))
    for names in (("weight", "height"), ("height", "width")):
        with pytest.raises(ValueError, match="feature names"):
            model.predict(frame(kind, X, names))
    wide = frame(kind, np.hstack([X, X[:, :1]]), ("height", "weight", "age"))
    for method in (model.predict, model.predict_proba, model.score_samples, model.transform):
        with pytest.raises(ValueError, match="age"):
            method(wide)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X)


@pytest.mark.parametrize("width", [1, 3])
def test_the_wrong_width_is_refused(width, default):
    for method in (default.predict, default.predict_proba, default.score_samples, default.score):
        with pytest.raises(ValueError, match=f"X has {width} features.* 2 features"):
            method(blobs(width=width))


def test_output_as_frames(default):
    X = blobs()
    names = [f"dpmixture{k}" for k in range(default.n_clusters_)]
    assert list(default.get_feature_names_out()) == names
    table = frame("pandas", X)
    out = DPMixture().set_output(transform="pandas").fit_transform(table)
    assert isinstance(out, pd.DataFrame)
    assert list(out.columns) == names
    assert list(out.index) == list(table.index)
    assert np.array_equal(out.to_numpy(), default.transform(X))
    out = DPMixture().set_output(transform="polars").fit_transform(frame("polars", X))
    assert isinstance(out, pl.DataFrame)
    assert out.columns == names
    assert np.array_equal(out.to_numpy(), default.transform(X))


# -- scikit-learn's tools ----------------------------------------------------------------------


def test_a_clone_has_the_parameters_and_nothing_else():
    family, prior = families.Gaussian(0.0, 10.0, 1.0), priors.PitmanYor(1.0, 0.2)
    model = DPMixture(family=family, alpha=prior, beam_size=3, order="random", random_state=5)
    model.fit(blobs())
    other = clone(model)
    assert other.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        other.predict(blobs())
    same_fit(other.fit(blobs()), model)


@pytest.mark.parametrize("name", DRAWS)
def test_pickles_predict_the_same_to_the_bit(name):
    family, X = DRAWS[name](np.random.default_rng(1), 30)
    model = DPMixture(family=family).fit(X)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        same_fit(other, model)
        assert other.alpha_ == model.alpha_
        for method in ("predict", "predict_proba", "score_samples"):
            assert np.array_equal(getattr(other, method)(X), getattr(model, method)(X))
    unfitted = pickle.loads(pickle.dumps(DPMixture(family=family)))
    assert unfitted.family.to_dict() == family.to_dict()


def test_a_pickle_works_in_another_process(tmp_path, default):
    """The addresses of compiled functions differ between processes."""
    X = blobs()
    (tmp_path / "model.pickle").write_bytes(pickle.dumps((default, X)))
    code = (
        "import pickle, sys, numpy as np\n"
        "with open(sys.argv[1], 'rb') as stream:\n"
        "    model, X = pickle.load(stream)\n"
        "np.save(sys.argv[2], model.predict_proba(X))\n"
    )
    files = [str(tmp_path / "model.pickle"), str(tmp_path / "out.npy")]
    subprocess.run([sys.executable, "-c", code, *files], check=True, timeout=120)
    assert np.array_equal(np.load(tmp_path / "out.npy"), default.predict_proba(X))


def test_in_a_pipeline():
    X = blobs() * [1.0, 1000.0]
    pipeline = make_pipeline(StandardScaler(), DPMixture("diagonal_gaussian"))
    scaled = StandardScaler().fit_transform(X)
    alone = DPMixture("diagonal_gaussian").fit(scaled)
    assert np.array_equal(pipeline.fit_predict(X), alone.labels_)
    assert np.array_equal(pipeline.predict(X), alone.predict(scaled))
    assert pipeline.score(X) == alone.score(scaled)
    assert np.array_equal(pipeline.transform(X), alone.predict_proba(scaled))


@pytest.mark.slow
def test_grid_search_over_alpha_picks_the_best_predictive_score():
    X = blobs()
    model = DPMixture(family=families.Gaussian(0.0, 30.0, 1.0))
    grid = [0.01, 1.0, 1000.0]
    found = GridSearchCV(model, {"alpha": grid}, cv=3).fit(X)
    scores = [cross_val_score(clone(model).set_params(alpha=a), X, cv=3).mean() for a in grid]
    assert found.best_params_ == {"alpha": grid[int(np.argmax(scores))]}
    assert found.best_score_ == max(scores)
    assert found.best_estimator_.alpha_ == found.best_params_["alpha"]


# -- parameters --------------------------------------------------------------------------------


def test_alpha_as_a_number_a_prior_and_auto():
    X = blobs()
    family = families.Gaussian(0.0, 30.0, 1.0)
    number = DPMixture(family=family, alpha=2).fit(X)
    assert number.alpha_ == 2.0
    same_fit(number, DPMixture(family=family, alpha=priors.DirichletProcess(2.0)).fit(X))
    for prior in (
        priors.PitmanYor(0.5, 0.3),
        priors.AntoniakCounts(1.0),
        priors.DirichletProcess(priors.Gamma(2.0, 3.0)),
    ):
        model = DPMixture(family=family, alpha=prior).fit(X)
        assert model.log_joint_ == pytest.approx(
            log_joint(X, model.component_labels_, family, prior)
        )
    auto = DPMixture(family=family).fit(X)
    assert auto.log_joint_ == pytest.approx(
        log_joint(X, auto.component_labels_, family, AUTO_PRIOR)
    )
    weight, mean = (_moment(auto.n_clusters_, len(X), power) for power in (0, 1))
    assert auto.alpha_ == pytest.approx(mean / weight, rel=1e-6)


def _moment(n_clusters, n, power, shape=1.0, rate=1.0):
    """Return ∫ α^power · α^K Γ(α)/Γ(α + N) · Gamma(α; shape, rate) dα, up to a constant."""

    def integrand(u):
        alpha = np.exp(u)
        log = (n_clusters + power + shape) * u - rate * alpha
        return np.exp(log + gammaln(alpha) - gammaln(alpha + n) + gammaln(n))

    return quad(integrand, -40.0, 10.0, limit=500, epsabs=0.0, epsrel=1e-10)[0]


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"family": "normal"}, "there is no family 'normal'.*diagonal_gaussian"),
        ({"family": 3}, "family must be"),
        ({"family": families.Gaussian}, "family must be"),
        ({"alpha": "large"}, "alpha must be .*'large'"),
        ({"alpha": None}, "alpha"),
        ({"alpha": True}, "alpha"),
        ({"alpha": 10**400}, "alpha"),
        ({"beam_size": 0}, "beam_size"),
        ({"order": "sideways"}, "order"),
        ({"refine": "yes"}, "refine must be 'auto', True, False or a number ≥ 0, got 'yes'"),
        ({"order": [0, 1, 2]}, "order must be a permutation of 0 … 59"),
    ],
    ids=str,
)
def test_bad_parameters_are_named(parameters, named):
    with pytest.raises(ParameterError, match=named):
        DPMixture(**parameters).fit(blobs())


@pytest.mark.parametrize(
    "parameters", [{}, {"family": "diagonal_gaussian", "order": "random"}], ids=str
)
def test_the_same_seed_gives_the_same_result(parameters):
    X = blobs(seed=3)
    for state in (7, np.random.RandomState(7)):
        one = DPMixture(random_state=copy.deepcopy(state), **parameters).fit(X)
        two = DPMixture(random_state=copy.deepcopy(state), **parameters).fit(X)
        same_fit(one, two)
    assert one.random_state is not two.random_state


def test_verbose_says_that_kernels_are_compiled(capsys):
    def compiles(event):
        numba.njit(lambda x: x + 1)(1)

    DPMixture("diagonal_gaussian", verbose=1).fit(blobs(), callback=compiles)
    assert capsys.readouterr().out.count("compiling kernels") == 1
    DPMixture("diagonal_gaussian").fit(blobs(), callback=compiles)
    assert "compiling" not in capsys.readouterr().out


def test_verbose_says_what_was_found(capsys):
    model = DPMixture(verbose=1).fit(blobs())
    said = capsys.readouterr().out
    assert "diagonal_gaussian family (numbers in 2 columns, independent within clusters)" in said
    assert f"{model.n_components_} components" in said
    DPMixture().fit(blobs())
    assert capsys.readouterr().out == ""


# -- what comes out ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", families.names())
def test_every_family_by_its_name(name):
    rng = np.random.default_rng(2)
    # Refinement is most patient with the smallest tables, and some families take long to score.
    X = DRAWS[name](rng, 50)[1] if name in DRAWS else families.by_name(name).examples()[0].X[:8]
    model = DPMixture(family=name).fit(X)
    assert model.family_.name == name
    assert model.n_features_in_ == X.shape[1]
    assert np.isfinite(model.log_joint_)
    assert np.isfinite(model.alpha_)
    assert np.isfinite(model.score(X))
    assert model.log_joint_ == pytest.approx(
        log_joint(X, model.component_labels_, model.family_, AUTO_PRIOR), abs=1e-9
    )
    assert model.log_joint_ == model.clustering_.log_joint
    sizes = np.bincount(model.labels_)
    assert model.labels_.dtype == np.int64
    assert len(sizes) == model.n_clusters_
    assert (np.diff(sizes) <= 0).all()
    assert sizes.min() >= 1
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (X.shape[0], model.n_clusters_)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-12)
    assert (probabilities >= 0.0).all()
    assert np.array_equal(model.predict(X), probabilities.argmax(axis=1))
    assert np.isfinite(model.score_samples(X)).all()
    drawn, labels = model.sample(20)
    assert np.isfinite(drawn).all()
    assert drawn.shape == (20, X.shape[1])
    assert set(labels) <= set(range(model.n_clusters_ + 1))
    assert np.isfinite(model.score_samples(drawn)).all()


@pytest.mark.parametrize("name", ["gaussian", "diagonal_gaussian", "full_gaussian"])
def test_points_far_from_everything_have_predictions_too(name):
    X = blobs()
    model = DPMixture(family=name).fit(X)
    for distance in (1e3, 1e8, 1e40, 1e100):
        far = distance * np.array([[1.0, 0.5], [-1.0, 1.0], [1.0, 0.0]])
        np.testing.assert_allclose(model.predict_proba(far).sum(axis=1), 1.0, rtol=1e-9)
        assert np.isfinite(model.score_samples(far)).all()
        assert (model.score_samples(far) < model.score_samples(X).min()).all()


def test_labels_go_from_the_largest_cluster_to_the_smallest():
    centres = np.repeat([0.0, 100.0, 200.0], [5, 9, 5])
    X = (centres + np.random.default_rng(0).normal(size=19))[:, None]
    model = DPMixture(family=families.Gaussian(100.0, 1e4, 1.0)).fit(X)
    assert model.labels_.tolist() == [1] * 5 + [0] * 9 + [2] * 5


def fitted(name, prior=1.0, seed=4, n=12):
    """A fitted model with known hyperparameters."""
    family, X = DRAWS[name](np.random.default_rng([seed, len(name)]), n)
    return DPMixture(family=family, alpha=prior).fit(X), X


@pytest.mark.parametrize("prior", [priors.DirichletProcess(0.7), priors.PitmanYor(0.7, 0.4)])
@pytest.mark.parametrize("name", DRAWS)
def test_the_predictive_is_the_mixtures(name, prior):
    """Compare with log Σ_k p(k) H(x | cluster k), computed cluster by cluster."""
    model, X = fitted(name, prior)
    discount = getattr(prior, "discount", 0.0)
    sizes = np.bincount(model.labels_)
    weights = np.append(sizes - discount, prior.alpha + discount * len(sizes))
    weights = weights / weights.sum()
    assert weights.sum() == pytest.approx(1.0)
    new, _ = model.sample(5)
    for x in np.vstack([X[:5], new]):
        inside = [
            naive.log_predictive(model.family_, X[model.labels_ == k], x) for k in range(len(sizes))
        ]
        outside = naive.log_marginal(model.family_, x[None])
        terms = np.log(weights) + np.array([*inside, outside])
        assert model.score_samples(x[None])[0] == pytest.approx(logsumexp(terms), abs=1e-8)
        want = np.exp(terms[:-1] - logsumexp(terms[:-1]))
        np.testing.assert_allclose(model.predict_proba(x[None])[0], want, atol=1e-8)


def test_the_weight_of_a_new_cluster_with_alpha_integrated_out():
    """Compare with E[α/(α + N) | K, N] by quadrature over α."""
    X = blobs(20)
    model = DPMixture(family=families.Gaussian(0.0, 30.0, 1.0)).fit(X)
    n, n_clusters = len(X), model.n_clusters_
    # α^K Γ(α)/Γ(α + N + 1) is the weight with one more point, which opens a cluster if times α.
    fresh, old = _moment(n_clusters, n + 1, 1), n * _moment(n_clusters, n + 1, 0)
    assert np.exp(model.mixture_.log_fresh_weight) == pytest.approx(fresh / (fresh + old), rel=1e-6)
    sizes = np.bincount(model.labels_)
    want = sizes / n * (1.0 - fresh / (fresh + old))
    np.testing.assert_allclose(np.exp(model.mixture_.log_weights), want, rtol=1e-6)


LINE = {
    "gaussian": families.Gaussian(1.0, 20.0, 1.0),
    "diagonal_gaussian": families.DiagonalGaussian(1.0, 0.1, 2.0, 1.0),
    "full_gaussian": families.FullGaussian(1.0, 0.1, 4.0, 1.0),
}


@pytest.mark.parametrize("name", LINE)
def test_the_predictive_density_integrates_to_one(name):
    model = DPMixture(family=LINE[name], alpha=1.0).fit(blobs(40, width=1))
    # x = sinh u reaches e^40, where the heaviest tail holds less than 1e-17.
    u = np.linspace(-40.0, 40.0, 40_001)
    density = np.exp(model.score_samples(np.sinh(u)[:, None])) * np.cosh(u)
    assert np.trapezoid(density, u) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("name", ["bernoulli", "categorical", "poisson", "multinomial"])
def test_the_predictive_probabilities_add_up_to_one(name):
    model, X = fitted(name)
    width = X.shape[1]
    if name == "bernoulli":
        space = itertools.product([0, 1], repeat=width)
    elif name == "categorical":
        space = itertools.product(range(4), repeat=width)
    elif name == "multinomial":  # given the length of the document
        space = (x for x in itertools.product(range(7), repeat=width) if sum(x) == 6)
    else:
        model = DPMixture(family=families.Poisson(2.0, 1.0), alpha=1.0).fit(X[:, :1])
        space = itertools.product(range(400), repeat=1)
    total = np.exp(model.score_samples(np.array(list(space), dtype=float))).sum()
    assert total == pytest.approx(1.0, abs=1e-9)


def test_score_is_the_mean_of_score_samples(default):
    X = blobs()
    assert default.score(X) == pytest.approx(default.score_samples(X).mean(), rel=1e-14)


# -- draws -------------------------------------------------------------------------------------


def test_draws_repeat_with_the_seed():
    X, family = blobs(), families.Gaussian(0.0, 30.0, 1.0)
    one, two, other = (DPMixture(family, random_state=seed).fit(X).sample(50) for seed in (1, 1, 2))
    assert np.array_equal(one[0], two[0])
    assert np.array_equal(one[1], two[1])
    assert not np.array_equal(one[0], other[0])


@pytest.mark.parametrize("name", LINE)
def test_draws_on_a_line_follow_the_predictive(name):
    model = DPMixture(family=LINE[name], alpha=3.0, random_state=0).fit(blobs(40, width=1))
    drawn, labels = model.sample(4000)
    assert drawn.shape == (4000, 1)
    u = np.linspace(-20.0, 20.0, 20_001)
    density = np.exp(model.score_samples(np.sinh(u)[:, None])) * np.cosh(u)
    below = cumulative_trapezoid(density, u, initial=0.0)
    assert stats.kstest(drawn[:, 0], lambda x: np.interp(np.arcsinh(x), u, below)).pvalue > 1e-3
    # A draw from cluster k falls where cluster k predicts it; a new one has the last label.
    seen = np.bincount(labels, minlength=model.n_clusters_ + 1)
    sizes = np.append(np.bincount(model.labels_), 3.0)
    assert stats.chisquare(seen, sizes / sizes.sum() * 4000).pvalue > 1e-3


@pytest.mark.parametrize("name", ["bernoulli", "categorical"])
def test_draws_of_codes_follow_the_predictive(name):
    family, X = DRAWS[name](np.random.default_rng(0), 30)
    model = DPMixture(family=family, alpha=1.0, random_state=0).fit(X)
    drawn, _ = model.sample(4000)
    levels = 2 if name == "bernoulli" else 4
    space = np.array(list(itertools.product(range(levels), repeat=X.shape[1])), dtype=float)
    expected = 4000 * np.exp(model.score_samples(space))
    code = (levels ** np.arange(X.shape[1])).astype(float)
    seen = np.array([(drawn @ code == x @ code).sum() for x in space])
    assert seen.sum() == 4000
    often = expected > 5.0
    seen, expected = (np.append(a[often], a[~often].sum()) for a in (seen, expected))
    if expected[-1] == 0.0:
        seen, expected = seen[:-1], expected[:-1]
    assert stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue > 1e-3


@pytest.mark.parametrize("n_samples", [0, -1, 2.5, True, "many", None])
def test_a_bad_number_of_draws_is_named(n_samples, default):
    with pytest.raises(ParameterError, match="n_samples"):
        default.sample(n_samples)


def test_nothing_works_before_fit():
    model = DPMixture()
    for method in ("predict", "predict_proba", "transform", "score_samples", "score", "impute"):
        with pytest.raises(NotFittedError):
            getattr(model, method)(blobs())
    for method, argument in (("sample", 1), ("save", "model.npz")):
        with pytest.raises(NotFittedError):
            getattr(model, method)(argument)


def test_a_failed_fit_leaves_the_fitted_model_alone(default):
    X, model = blobs(), copy.deepcopy(default)
    with pytest.raises(DataError):
        model.fit([[1.0, np.inf]])
    assert np.array_equal(model.predict_proba(X), default.predict_proba(X))
    assert model.n_features_in_ == 2


def test_it_finds_the_clusters_of_a_draw_from_the_model():
    rng = np.random.default_rng(1)
    draw = datasets.planted_clusters(300, 2, 4, spread=20.0, rng=rng)
    model = DPMixture(family=families.Gaussian(0.0, 400.0, 1.0)).fit(draw.X)
    truth = log_joint(draw.X, draw.labels, model.family_, AUTO_PRIOR)
    assert model.log_joint_ >= truth - 1e-9


def test_a_fit_that_fails_leaves_the_fit_before_as_it_was():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=40), "b": np.repeat([0.0, 9.0], 20)})
    model = DPMixture(certify=0.1, random_state=0).fit(frame)
    before = dict(vars(model))

    def interrupt(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(frame[["a"]], callback=interrupt)
    with pytest.raises(DataError):
        model.fit(frame.assign(a=np.inf, b=np.inf))
    assert vars(model) == before
    model.set_params(certify=False).fit(frame[["a"]])
    assert not hasattr(model, "certificate_")
    assert model.feature_names_in_.tolist() == ["a"]


@pytest.mark.parametrize(
    ("step", "phase"),
    [
        ("dpsearch.refinement.turns.Refinement.run", "refining"),
        ("dpsearch.exact.certificate._Certification.run", "certifying"),
    ],
)
def test_ctrl_c_that_ends_a_phase_is_reported(step, phase, monkeypatch):
    def interrupted(*arguments, **options):
        monkeypatch.undo()  # once
        raise KeyboardInterrupt

    monkeypatch.setattr(step, interrupted)
    model = DPMixture(families.Gaussian(0.0, 30.0, 1.0), 1.0, certify=0.1, random_state=0)
    with pytest.warns(RuntimeWarning, match=f"^interrupted while {phase}: "):
        model.fit(np.random.default_rng(0).normal(size=(30, 1)))
    assert phase in model.cut_short_


def test_a_second_fit_that_is_interrupted_anywhere_leaves_the_first():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=30), "b": np.repeat([0.0, 9.0], 15)})
    family = families.Gaussian(0.0, 30.0, 1.0)
    model = DPMixture(family, 1.0, refine=False, random_state=0).fit(frame[["a"]])
    with interrupted_at() as moments:
        model.fit(frame[["a"]])
    model.fit(frame)
    before, labels = dict(vars(model)), model.predict(frame)
    replaced = 0
    for at in some_moments(moments.count, rng):
        try:
            with interrupted_at(at):
                model.fit(frame[["a"]])
        except KeyboardInterrupt:
            if model.n_features_in_ == 1:  # at the very end, when all is in place
                replaced += 1
                assert model.predict(frame[["a"]]).shape == (30,)
                assert model.feature_names_in_.tolist() == ["a"]
                model.fit(frame)
                before = dict(vars(model))
            else:
                assert vars(model) == before, at
                assert np.array_equal(model.predict(frame), labels), at
    assert replaced <= 2


def test_the_rows_of_the_fit_as_solvers_see_them():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=40), "b": np.repeat(["x", "y"], 20)})
    model = DPMixture(random_state=0).fit(frame)
    rows = model.encode(frame)
    assert model.problem(frame).log_joint(model.component_labels_) == pytest.approx(
        model.log_joint_
    )
    assert model.problem(rows).log_joint(model.component_labels_) == pytest.approx(model.log_joint_)
    np.testing.assert_array_equal(model.fitted_labels(frame), model.labels_)
    assert model.fitted_labels(frame[:20]) is None
    np.testing.assert_array_equal(model.predict(rows), model.predict(frame))
    again = DPMixture.from_state(model.state_)
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))
    assert again.family == model.family_


def test_a_better_partition_of_the_same_rows_is_adopted():
    X = np.repeat([[0.0], [9.0]], 10, axis=0) + np.linspace(0.0, 1.0, 20)[:, None]
    good = DPMixture(families.Gaussian(prior_variance=25.0), 1.0).fit(X)
    poor = DPMixture(families.Gaussian(prior_variance=25.0), 1.0, refine=False, order="random")
    poor.fit(X).adopt(good)
    assert poor.log_joint_ == good.log_joint_
    np.testing.assert_array_equal(poor.labels_, good.labels_)
    np.testing.assert_array_equal(poor.predict(X), good.predict(X))


def test_threads_share_the_rows_of_a_prediction_and_change_nothing(monkeypatch):
    monkeypatch.setattr("dpsearch.items._NUMBERS_AT_ONCE", 100)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) + 6.0 * rng.integers(0, 3, size=(200, 1))
    model = DPMixture("diagonal_gaussian", random_state=0).fit(X)
    alone = model.predict(X), model.predict_proba(X), model.score_samples(X)
    model.set_params(n_jobs=3)
    for one, other in zip(
        alone, (model.predict(X), model.predict_proba(X), model.score_samples(X)), strict=True
    ):
        np.testing.assert_array_equal(one, other)
