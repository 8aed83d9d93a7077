"""check_family and check_prior pass correct classes and name the law that a bug breaks."""

import numpy as np
import pytest

from dpsearch import check_family, check_prior, families, priors
from dpsearch.checks import LawError
from models import ALL_PRIORS, FewComponents
from planted import BROKEN_FAMILIES, BROKEN_PRIORS, Right

FAMILIES = [*families.FAMILIES.classes.values(), families.Product]


# What a family of this package need not have.  Draws of the projected and of wide families are not
# normalised by adding up, and compositions do not learn.
MAY_BE_SKIPPED = {
    "features_by_the_array_api",  # without array-api-strict
    "bounds_are_above",  # families by nodes
    "statistic_agrees",
    "gaps_are_skipped",
    "gaps_are_predicted",
    "sparse_is_dense",
    "predictive_is_normalised",
    "learns",
    "restated_is_counted_again",  # families by nodes
}


def statuses(outcomes):
    return {outcome.law: outcome.status for outcome in outcomes}


# Families by nodes share their kernels, and checks take long with 192 nodes: Student's t stands for
# them.  Von Mises-Fisher has the tests of its own integrals.
SLOW = {
    families.Beta, families.Gamma, families.NegativeBinomial, families.Ordinal,
    families.RoundedGaussian, families.StudentT, families.VonMises, families.VonMisesFisher,
}  # fmt: skip


@pytest.mark.parametrize(
    "family",
    [pytest.param(one, marks=pytest.mark.slow if one in SLOW else ()) for one in FAMILIES],
    ids=lambda family: family.name,
)
def test_every_family_passes(family):
    outcomes = check_family(family)
    assert len({outcome.subject for outcome in outcomes}) == len(
        {repr(example.family) for example in family.examples()}
    )
    assert {outcome.law for outcome in outcomes if outcome.status != "passed"} <= MAY_BE_SKIPPED


@pytest.mark.parametrize("prior", [*ALL_PRIORS, FewComponents(4.0, 0.7)], ids=repr)
def test_every_prior_passes(prior):
    found = statuses(check_prior(prior))
    assert set(found.values()) <= {"passed", "skipped"}
    assert found["search_finds_the_best"] == "passed"
    if prior.product_form:
        assert {law for law, status in found.items() if status == "skipped"} <= {
            "one_point_more",
            "sizes_beyond_the_table",
        }


def test_a_family_from_outside_passes_and_the_rest_is_skipped():
    outcomes = check_family(Right)
    found = statuses(outcomes)
    assert set(found.values()) == {"passed", "skipped"}
    skipped = [outcome for outcome in outcomes if outcome.status == "skipped"]
    assert {outcome.law for outcome in skipped} >= {"bounds_are_above", "sparse_is_dense"}
    assert all(outcome.reason for outcome in skipped)
    assert "planted" not in families.names()  # checking registers nothing


def test_an_object_is_checked_and_other_data():
    X = np.random.default_rng(1).geometric(0.2, size=(9, 3)) - 1.0
    outcomes = check_family(Right(0.5, 3.0), X)
    assert {outcome.subject for outcome in outcomes} == {"Right(a=0.5, b=3.0)"}
    assert statuses(check_prior(priors.PitmanYor(0.5, 0.5)))["sums_to_one"] == "passed"


BUGS = [(law, cls) for law, broken in BROKEN_FAMILIES.items() for cls in broken]
PRIOR_BUGS = [(law, cls) for law, broken in BROKEN_PRIORS.items() for cls in broken]


@pytest.mark.parametrize(("law", "cls"), BUGS, ids=lambda value: getattr(value, "__name__", value))
def test_a_bug_in_a_family_is_caught_by_name(law, cls):
    with pytest.raises(LawError, match=law) as caught:
        check_family(cls)
    assert caught.value.law == law
    assert cls.__name__ in caught.value.subject
    assert caught.value.reason


@pytest.mark.parametrize(
    ("law", "cls"), PRIOR_BUGS, ids=lambda value: getattr(value, "__name__", value)
)
def test_a_bug_in_a_prior_is_caught_by_name(law, cls):
    with pytest.raises(LawError, match=law) as caught:
        check_prior(cls)
    assert caught.value.law == law
    assert cls.__name__ in caught.value.subject


def test_all_laws_are_reported_if_asked_for():
    (wrong_sum,) = BROKEN_PRIORS["sums_to_one"]
    found = statuses(check_prior(wrong_sum(), raise_on_fail=False))
    assert found["sums_to_one"] == "failed"
    assert found["description_comes_back"] == "passed"
