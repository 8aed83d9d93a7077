"""Priors against enumeration, quadrature and sequential construction."""

import math

import numpy as np
import pytest
from scipy.special import betaln, gammaln

import naive
from dpsearch import priors
from dpsearch.checks import prior_laws
from dpsearch.checks.law import laws_of
from dpsearch.errors import CapabilityError, ParameterError
from dpsearch.partition import all_partitions
from dpsearch.priors import AntoniakCounts, DirichletProcess, Gamma, PitmanYor
from models import ALL_PRIORS, PRODUCT_PRIORS, EvenSizes, FewComponents, FiniteMixture

PRIORS_FROM_ELSEWHERE = [FiniteMixture(3.0, 0.6), FewComponents(3, 0.8), EvenSizes()]


def sizes_of(labels):
    return np.bincount(labels)


MORE_PRIORS = [DirichletProcess(0.2), DirichletProcess(9.0), PitmanYor(-0.2, 0.5)]
MAY_BE_ABSENT = (prior_laws.one_point_more, prior_laws.sizes_beyond_the_table)


@pytest.mark.parametrize("law", laws_of(prior_laws), ids=lambda law: law.__name__)
@pytest.mark.parametrize("prior", [*ALL_PRIORS, *PRIORS_FROM_ELSEWHERE, *MORE_PRIORS], ids=repr)
def test_laws(prior, law):
    try:
        law(prior, np.random.default_rng(0))
    except CapabilityError:
        assert law in MAY_BE_ABSENT or not prior.product_form


def test_the_papers_probability_does_not_sum_to_one():
    prior = AntoniakCounts(1.0)
    total = sum(math.exp(prior.log_probability(sizes_of(c))) for c in all_partitions(8))
    assert total == pytest.approx(158, abs=1)
    # but it does over shapes, which is what it is a distribution of
    shapes = {tuple(sorted(sizes_of(c))) for c in all_partitions(8)}
    assert sum(math.exp(prior.log_probability(s)) for s in shapes) == pytest.approx(1.0)


@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0])
def test_dirichlet_process_is_the_chinese_restaurant(alpha):
    labels = [0, 0, 1, 0, 2, 1]
    log_p, sizes = 0.0, []
    for i, k in enumerate(labels):
        if k == len(sizes):
            sizes.append(0)
        log_p += math.log((sizes[k] or alpha) / (i + alpha))
        sizes[k] += 1
    assert DirichletProcess(alpha).log_probability(sizes) == pytest.approx(log_p)


def test_pitman_yor_is_its_restaurant():
    alpha, discount = 0.7, 0.4
    sizes, log_p = [], 0.0
    for i, k in enumerate([0, 0, 1, 0, 2, 1, 3]):
        if k == len(sizes):
            weight = alpha + discount * len(sizes) if i else 1.0
            sizes.append(0)
        else:
            weight = sizes[k] - discount
        log_p += math.log(weight / (i + alpha if i else 1.0))
        sizes[k] += 1
    assert PitmanYor(alpha, discount).log_probability(sizes) == pytest.approx(log_p)


@pytest.mark.parametrize(("shape", "rate"), [(1.0, 1.0), (0.2, 0.01), (5.0, 2.0)])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (10, 1), (10, 10), (300, 7), (3000, 700)])
def test_integrated_alpha_against_quadrature(shape, rate, n, k):
    log_v = DirichletProcess(Gamma(shape, rate)).log_v(n)[k]

    u = np.linspace(-300.0, 25.0, 2_000_001)
    alpha = np.exp(u)
    log_f = (k + shape) * u + gammaln(alpha) - gammaln(alpha + n) - rate * alpha
    log_f += shape * math.log(rate) - math.lgamma(shape)
    peak = log_f.max()
    want = peak + math.log(np.exp(log_f - peak).sum() * (u[1] - u[0]))
    assert log_v == pytest.approx(want, abs=1e-8)


@pytest.mark.parametrize("gamma", [Gamma(1.0, 1.0), Gamma(0.5, 1e-4), Gamma(3.0, 100.0)])
@pytest.mark.parametrize(("n", "most"), [(200_000, 200_000), (200_000, 700), (5_000, 5_000)])
def test_integrated_alpha_with_many_clusters_against_quadrature_by_gauss(gamma, n, most):
    log_v = DirichletProcess(gamma).log_v(n, most)
    steps = np.geomspace(1, most - 1, 20).astype(int)
    constant = gamma.shape * math.log(gamma.rate) - math.lgamma(gamma.shape) - math.lgamma(n)
    nodes, weights = np.polynomial.legendre.leggauss(120)

    def log_f(u, k):
        alpha = np.exp(u)
        if alpha[-1] < 1e6 or len(u) > len(nodes):
            beta = betaln(alpha, n)
        else:  # where betaln is off by more than 1e-8
            beta = math.lgamma(n) - np.array([np.log(a + np.arange(n)).sum() for a in alpha])
        return (k + gamma.shape) * u - gamma.rate * alpha + beta

    for k in np.unique([*steps, *(most - steps), most]):
        u = np.linspace(-60.0, 30.0, 20_001)
        heights = log_f(u, k)
        inside = u[heights > heights.max() - 40.0]
        centre, half = 0.5 * (inside[-1] + inside[0]), 0.5 * (inside[-1] - inside[0]) + 5e-3
        heights = log_f(centre + half * nodes, k)
        peak = heights.max()
        total = half * (weights * np.exp(heights - peak)).sum()
        assert log_v[k] == pytest.approx(constant + peak + math.log(total), abs=1e-8)


def test_mean_alpha_is_the_posterior_mean():
    prior, n, k = DirichletProcess(Gamma(2.0, 0.5)), 40, 6
    grid = np.linspace(1e-6, 60, 400_001)
    log_p = k * np.log(grid) + gammaln(grid) - gammaln(grid + n) + np.log(grid) - 0.5 * grid
    p = np.exp(log_p - log_p.max())
    assert prior.concentration().mean(n, k) == pytest.approx((grid * p).sum() / p.sum(), rel=1e-6)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.5])
def test_antoniak_greedy_completion_follows_the_paper(alpha):
    prior = AntoniakCounts(alpha, early_stop=False)
    for sizes in ([], [1], [1, 1, 1, 1, 4], [2, 2, 3], [7, 1]):
        for remaining in (1, 2, 5, 9):
            want = prior.log_probability(naive.greedy_completion(alpha, sizes, remaining))
            assert prior.best_completion(sizes, remaining) == pytest.approx(want, abs=1e-9)


@pytest.mark.parametrize("early_stop", [False, True])
def test_antoniak_greedy_completion_from_many_states(early_stop):
    rng = np.random.default_rng(0)
    for _ in range(400):
        alpha = float(rng.choice([0.3, 1.0, 2.5]))
        sizes = rng.integers(1, rng.choice([4, 12]), size=rng.integers(9)).tolist()
        remaining = int(rng.integers(1, 20))
        prior = AntoniakCounts(alpha, early_stop)
        complete = naive.early_completion if early_stop else naive.greedy_completion
        want = prior.log_probability(complete(alpha, sizes, remaining))
        assert prior.best_completion(sizes, remaining) == pytest.approx(want, abs=1e-9)


def test_antoniak_greedy_is_not_the_best_and_the_early_stop_changes_it():
    plain, early = AntoniakCounts(1.0, early_stop=False), AntoniakCounts(1.0)
    assert plain.best_completion([1, 1, 1, 1, 4], 3) == pytest.approx(
        plain.log_probability([1, 1, 1, 2, 6])
    )
    assert plain.best_completion([1, 1, 1, 1, 4], 3) < plain.log_probability([1, 1, 2, 3, 4])
    assert early.best_completion([5], 30) <= plain.best_completion([5], 30) + 1e-12


def test_antoniak_completion_depends_on_sizes_and_remaining_alone():
    prior = AntoniakCounts(1.0)
    values = [prior.best_completion(s, r) for s, r in (([3, 1], 2), ([3, 1], 4), ([2, 2], 2))]
    again = [prior.best_completion(s, r) for s, r in (([1, 3], 2), ([3, 1], 4), ([2, 2], 2))]
    assert values == again
    assert len(set(values)) == 3
    other = AntoniakCounts(3.0).best_completion([3, 1], 2)
    assert other != values[0]


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: DirichletProcess(0.0), "alpha"),
        (lambda: DirichletProcess(-1.0), "alpha"),
        (lambda: DirichletProcess(math.nan), "alpha"),
        (lambda: DirichletProcess("large"), "alpha"),
        (lambda: Gamma(0.0, 1.0), "shape"),
        (lambda: Gamma(1.0, math.inf), "rate"),
        (lambda: PitmanYor(1.0, 1.0), "discount"),
        (lambda: PitmanYor(-0.5, 0.3), "alpha"),
        (lambda: AntoniakCounts(0), "alpha"),
        (lambda: DirichletProcess(1.0).log_probability([0, 2]), "sizes"),
        (lambda: DirichletProcess(1.0).best_completion([1], -1), "remaining"),
        (lambda: priors.from_dict({"name": "unknown"}), "no prior 'unknown'"),
    ],
)
def test_bad_parameters_are_named(make, named):
    with pytest.raises(ParameterError, match=named):
        make()


@pytest.mark.parametrize("prior", PRODUCT_PRIORS, ids=repr)
def test_tables_stay_small(prior):
    tables = prior.tables(3 * 10**9, 3)
    assert len(tables.log_w) < 2**21
    assert len(tables.log_v) == 4
