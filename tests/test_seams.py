"""Mistakes in a user's own family, prior or input that must not pass silently."""

import math
import pickle
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from dpsearch import (
    DPMixture,
    Problem,
    certify,
    check_family,
    check_prior,
    consensus,
    families,
    gibbs,
    log_joint,
    priors,
    search,
    split_merge,
)
from dpsearch.checks import LawError
from dpsearch.errors import CapabilityError, DataError, ParameterError

GAUSSIAN, PRIOR = families.Gaussian(0.0, 4.0, 1.0), priors.DirichletProcess(1.0)
X = 3.0 * np.random.default_rng(0).normal(size=(6, 2))


@dataclass(frozen=True)
class Even(priors.Prior):
    """A uniform prior on partitions into an even number of clusters (or of one point)."""

    name: ClassVar[str] = "even"

    def log_v(self, n_points, most_clusters=None):
        most = n_points if most_clusters is None else most_clusters
        clusters = np.arange(most + 1)
        allowed = (clusters % 2 == 0) if n_points > 1 else clusters < 2
        return np.where(allowed, 0.0, -np.inf)

    def log_w(self, sizes):
        return np.zeros(np.shape(sizes))


@pytest.mark.parametrize("sampler", [gibbs, split_merge])
def test_samplers_refuse_numbers_of_clusters_that_they_cannot_reach(sampler):
    with pytest.raises(CapabilityError, match="excludes between 2 and 6"):
        sampler(X, GAUSSIAN, Even(), draws=10, rng=0)


@pytest.mark.parametrize("options", [{}, {"beam_size": 1}, {"method": "best-first"}], ids=str)
def test_search_refuses_a_prior_of_another_form_without_its_rule(options):
    class Unlike(priors.PitmanYor):
        product_form: ClassVar[bool] = False

    with pytest.raises(CapabilityError, match="pitman_yor has neither"):
        search(X, GAUSSIAN, Unlike(1.0, 0.5), **options)


class OtherRows(families.Poisson):
    """A subclass with its own functions, whose rows the parent's capabilities cannot read."""

    name: ClassVar[str] = "other_rows"
    functions = families.Multinomial.functions


def test_a_subclass_with_other_functions_inherits_nothing_that_reads_rows():
    for name in ("columns", "draws", "gaps", "form_with_gaps", "row_with_gaps", "log_ceiling"):
        inherited = getattr(OtherRows, name)
        assert inherited is getattr(families.Family, name), name
    assert OtherRows().variant() is families.Multinomial.functions


@pytest.mark.parametrize("name", ["poisson", "diagonal_gaussian", "bernoulli", "categorical"])
def test_a_subclass_with_other_functions_has_gaps_by_these(name):
    parent = families.by_name(name)

    class Changed(parent):
        name: ClassVar[str] = "changed"
        functions = families.Multinomial.functions

    assert type(Changed().with_gaps()) is families.WithGaps
    assert type(parent().with_gaps()) is not families.WithGaps


def test_functions_are_used_where_the_parent_has_variants():
    class Changed(families.Gaussian):
        name: ClassVar[str] = "changed"
        functions = families.DiagonalGaussian.functions

    assert Changed().variant() is families.DiagonalGaussian.functions


class Scaled(families.Gaussian):
    """A class that would be saved as its parent, as it has the parent's name."""

    def encode(self, X):
        return 3.0 * super().encode(X)

    def log_base(self, X):
        return super().log_base(X) + X.shape[1] * math.log(3.0)


def test_a_class_that_would_load_as_another_is_not_saved(tmp_path):
    model = DPMixture(Scaled(0.0, 9.0, 1.0), alpha=1.0).fit(X)
    with pytest.raises(ParameterError, match="cannot be stored: its name 'gaussian' is that of"):
        model.save(tmp_path / "model.npz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0, 1, 1, 1, 1, 1], r"weights\[0\] is 0: .* integer ≥ 1"),
        ([-1, 1, 1, 1, 1, 1], "weights"),
        ([2], "weights has shape"),
        ([1.5] * 6, "weights"),
        ([[1]] * 6, "weights has shape"),
    ],
)
def test_weights_of_a_problem_are_checked(weights, message):
    with pytest.raises(DataError, match=message):
        Problem(X, GAUSSIAN, PRIOR, weights=weights)


def test_weights_may_be_a_list_or_floats_without_a_fraction():
    wanted = log_joint(Problem(X, GAUSSIAN, PRIOR, weights=np.full(6, 2)), np.arange(6))
    for weights in ([2] * 6, np.full(6, 2.0)):
        assert log_joint(Problem(X, GAUSSIAN, PRIOR, weights=weights), np.arange(6)) == wanted


def test_consensus_takes_a_problem():
    view = consensus(Problem(X, GAUSSIAN, PRIOR), n_restarts=2, rng=0)
    assert view.best.log_joint == consensus(X, GAUSSIAN, PRIOR, n_restarts=2, rng=0).best.log_joint


@dataclass(frozen=True)
class Halved(priors.DirichletProcess):
    name: ClassVar[str] = "halved"

    def log_w(self, sizes):
        return 0.5 * super().log_w(sizes)


def test_a_broken_law_shows_the_values_and_survives_a_pickle():
    with pytest.raises(LawError, match="sums_to_one") as broken:
        check_prior(Halved(1.0))
    assert "nonzero" not in str(broken.value)
    again = pickle.loads(pickle.dumps(broken.value))
    assert (again.law, str(again)) == (broken.value.law, str(broken.value))


@dataclass(frozen=True)
class Bare(families.Poisson):
    name: ClassVar[str] = "bare"

    @classmethod
    def examples(cls):
        return []


def test_a_family_without_examples_is_not_checked():
    with pytest.raises(LawError, match="has_examples"):
        check_family(Bare)


@dataclass(frozen=True)
class Given(priors.Prior):
    """A prior with the given tables."""

    v: tuple = (0.0,)
    w: tuple = (0.0,)

    name: ClassVar[str] = "given_tables"

    def log_v(self, n_points, most_clusters=None):
        return np.array(self.v)

    def log_w(self, sizes):
        return np.array(self.w)[sizes]


@pytest.mark.parametrize(
    ("v", "w", "message"),
    [
        ((0.0, 0.0), (0.0,) * 7, "must return 7 values of log V"),
        ((0.0,) * 7, (0.0, -np.inf, *(0.0,) * 5), "log W is -inf at size 1"),
        ((0.0, *(-np.inf,) * 6), (0.0,) * 7, "log V must be finite for some"),
    ],
)
def test_tables_that_no_solver_can_use_are_named(v, w, message):
    with pytest.raises(ParameterError, match=message):
        search(X, GAUSSIAN, Given(v, w))


def test_a_statistic_of_the_wrong_type_is_named():
    class Wrong(families.Gaussian):
        name: ClassVar[str] = "wrong"

        def statistic(self, X):
            return np.asarray(X)

    with pytest.raises(CapabilityError, match="it returns a ndarray"):
        certify(X, np.zeros(6), Wrong(0.0, 4.0, 1.0), PRIOR)
