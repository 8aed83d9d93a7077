"""A prior with two tables and nothing else runs in every solver, and is right by enumeration."""

from __future__ import annotations

import numpy as np
import pytest

import dpsearch
from dpsearch import DPMixture, Draws, Problem, certify, gibbs, load, priors, refine, search
from dpsearch.errors import CapabilityError, ParameterError
from dpsearch.report import write_report
from enumeration import best, log_joints
from models import DRAWS, EvenSizes, FewComponents, FiniteMixture

PRIORS = [FiniteMixture(3.0, 0.6), FewComponents(3, 0.8), EvenSizes()]
CONVEX = PRIORS[:2]
FAMILY = dpsearch.families.Gaussian(0.0, 25.0, 1.0)


@pytest.fixture
def registered():
    """Register the priors by name, as their package would."""
    for prior in PRIORS:
        priors.register(type(prior))
    yield
    for prior in PRIORS:
        priors.PRIORS.unregister(prior.name)


def groups(n=60, seed=0):
    """Return rows around four points, in random order."""
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]])
    return rng.permutation(np.repeat(centres, n // 4, axis=0) + rng.normal(size=(n, 2)))


def small(prior, name, seed, n=6):
    family, X = DRAWS[name](np.random.default_rng([seed, n]), n)
    return Problem(X, family, prior)


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
@pytest.mark.parametrize("name", ["gaussian", "poisson", "multinomial"])
def test_searches_and_proofs_against_enumeration(prior, name):
    for seed in range(6):
        problem = small(prior, name, seed)
        values = log_joints(problem)
        top = values.max()
        proved = search(problem, heuristic="admissible", beam_size=None)
        assert proved.optimal
        assert proved.log_joint == pytest.approx(top, abs=1e-8)
        found = search(problem, beam_size=50)
        refined = refine(problem, search(problem, beam_size=1), rng=0)
        for one in (found, refined):
            assert one.log_joint <= top + 1e-8
            assert np.abs(values - one.log_joint).min() < 1e-8
        certificate = certify(problem, found)
        assert certificate.upper_bound >= top - 1e-8
        if certificate.optimal:
            assert certificate.clustering.log_joint == pytest.approx(top, abs=1e-8)
        assert certificate.verify()


def test_certificates_close_on_a_line_and_in_the_plane():
    for width in (1, 2):
        problem = Problem(groups(20)[:, :width], FAMILY, FiniteMixture(3.0, 0.6))
        certificate = certify(problem, search(problem), time_limit=20)
        assert certificate.optimal
        assert certificate.verify()


@pytest.mark.parametrize("heuristic", ["trivial", "replica"])
def test_heuristics_by_the_largest_cluster_need_a_convex_log_w(heuristic):
    for prior in CONVEX:
        problem = small(prior, "gaussian", 1)
        found = search(problem, heuristic=heuristic, beam_size=None)
        assert found.log_joint == pytest.approx(best(problem), abs=1e-8) or heuristic == "replica"
    with pytest.raises(CapabilityError, match="log W is convex .* even_sizes is not"):
        search(small(EvenSizes(), "gaussian", 1), heuristic=heuristic, beam_size=None)


def test_numbers_of_clusters_that_the_prior_excludes_are_left():
    problem = Problem(groups(), FAMILY, FewComponents(3, 0.8))
    for start in (np.arange(60), np.zeros(60, int)):
        assert refine(problem, start, rng=0).n_clusters == 3
    assert gibbs(problem, draws=40, start="one", rng=0).n_clusters.max() <= 3
    with pytest.raises(ParameterError, match="start from 60 clusters: the prior allows at most 3"):
        gibbs(problem, draws=40, start="all", rng=0)
    assert FewComponents(3, 0.8).log_probability([1, 1, 1, 1]) == -np.inf


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
def test_the_estimator_without_a_concentration(prior, registered, tmp_path):
    X = groups()
    proved = isinstance(prior, FiniteMixture) and not isinstance(prior, FewComponents)
    model = DPMixture(FAMILY, prior, certify=proved, random_state=0).fit(X)
    assert model.clustering_.optimal == proved
    assert model.alpha_ is None
    if prior in CONVEX:
        assert model.n_clusters_ == (3 if isinstance(prior, FewComponents) else 4)
        np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert model.clustering_.log_joint == pytest.approx(
        dpsearch.log_joint(X, model.component_labels_, FAMILY, prior)
    )
    again = X + np.random.default_rng(1).normal(size=X.shape)
    assert np.isfinite(model.score_samples(again)).all()
    assert (model.predict_proba(again).sum(axis=1) <= 1.0 + 1e-9).all()
    assert "α" not in model._repr_html_()
    model.save(tmp_path / "model.npz")
    loaded = load(tmp_path / "model.npz")
    assert loaded.alpha_ is None
    assert loaded.get_params()["alpha"] == prior
    np.testing.assert_array_equal(loaded.predict(again), model.predict(again))
    draws = gibbs(X, FAMILY, prior, draws=20, rng=0)
    write_report(tmp_path / "report.html", model, X, draws=draws)
    assert "concentration" not in (tmp_path / "report.html").read_text(encoding="utf-8").lower()


@pytest.mark.parametrize("prior", PRIORS[:2], ids=repr)
def test_shards_streams_and_consensus(prior):
    X = groups(400)
    most = 3 if isinstance(prior, FewComponents) else 4
    sharded = DPMixture(FAMILY, prior, n_shards=3, random_state=0).fit(X)
    assert (sharded.n_clusters_, sharded.alpha_) == (most, None)
    stream = DPMixture(FAMILY, prior, random_state=0)
    for batch in np.split(X, 4):
        stream.partial_fit(batch)
    assert (stream.n_clusters_, stream.alpha_) == (most, None)
    view = dpsearch.consensus(groups(), FAMILY, prior, n_restarts=2, rng=0)
    assert view.clusterings[0].n_clusters == most


def test_draws_have_no_alpha_without_a_concentration(tmp_path):
    problem = Problem(groups(), FAMILY, FiniteMixture(3.0, 0.6))
    path = tmp_path / "c"
    draws = gibbs(problem, draws=30, chains=2, rng=0, checkpoint=path)
    longer = gibbs(problem, draws=60, chains=2, rng=0, checkpoint=path, resume=True)
    np.testing.assert_array_equal(
        longer.by_chain("n_clusters")[:, :30], draws.by_chain("n_clusters")
    )
    assert draws.alpha is None
    assert draws.trace.alpha is None
    assert set(draws.diagnostics()) == {"log_joint", "n_clusters"}
    with pytest.raises(ParameterError, match="no 'alpha': the prior has no concentration"):
        draws.by_chain("alpha")
    draws.save(tmp_path / "draws.npz")
    loaded = Draws.load(tmp_path / "draws.npz")
    assert loaded.alpha is None
    np.testing.assert_array_equal(loaded.labels, draws.labels)
    assert np.isfinite(draws.log_predictive(groups(seed=1))).all()
    with pytest.raises(CapabilityError, match="alpha='sample' needs a prior on α.*FiniteMixture"):
        gibbs(problem, draws=10, alpha="sample")
