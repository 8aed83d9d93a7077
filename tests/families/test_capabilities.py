"""Optional capabilities of families: found by one rule, combined by products, missed by name."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

import dpsearch
from dpsearch import DPMixture, families, priors, search
from dpsearch.errors import CapabilityError, ParameterError
from dpsearch.families import Columns, Family
from dpsearch.families.capabilities import all_or_none, fill_by_columns, log_bayes_factors
from models import DRAWS

SOURCES = Path(dpsearch.__file__).parent


@dataclasses.dataclass(frozen=True)
class Plain(families.Poisson):
    """A family with the required methods only."""

    name = "plain"
    kind = None
    columns, draws, log_ceiling = Family.columns, Family.draws, Family.log_ceiling


@pytest.fixture(scope="module")
def mixed():
    rng = np.random.default_rng(0)
    X = rng.poisson(np.repeat([[2.0, 2.0], [30.0, 30.0]], 20, axis=0)).astype(float)
    return families.Product([(Plain(2.0, 0.2), [1]), (families.Poisson(2.0, 0.2), [0])]), X


def test_a_product_has_what_all_of_its_parts_have(mixed):
    product, X = mixed
    model = DPMixture(product).fit(X)
    which = r"which the product family \(of plain, poisson\) does not have"
    for call, name in (
        (model.explain, "columns"),
        (lambda: model.sample(3), "draws"),
        (lambda: model.outliers(X), "draws"),
        (lambda: search(X, product, priors.DirichletProcess(), heuristic="trivial"), "log_ceiling"),
    ):
        with pytest.raises(CapabilityError, match=f"the capability '{name}', {which}"):
            call()


def test_the_same_with_gaps(mixed):
    product, X = mixed
    X = X.copy()
    X[3] = np.nan
    model = DPMixture(product).fit(X)
    for call in (model.explain, lambda: model.sample(3), lambda: model.impute(X)):
        with pytest.raises(CapabilityError, match=r"which the .*plain.* does not have"):
            call()


def test_what_each_column_holds():
    parts = [(families.Categorical(), [3]), (families.Gaussian(), [2, 0]), (Plain(), [1])]
    product = families.Product(parts)
    kinds = ["real", None, "real", "category"]
    assert [family.kind for family in product.by_column(4)] == kinds
    gaps = families.WithGaps(families.Bernoulli())
    assert [family.kind for family in gaps.by_column(2)] == ["binary", "binary"]


@pytest.mark.parametrize("name", DRAWS)
def test_every_family_says_what_its_columns_hold(name):
    family, X = DRAWS[name](np.random.default_rng(0), 6)
    known = {"real", "count", "binary", "category", "words", "projection"}
    assert all(own.kind in known for own in family.by_column(X.shape[1]))


def test_unknown_kinds_compare_with_all():
    X = np.random.default_rng(0).poisson(3.0, (20, 2)).astype(float)
    found = dpsearch.compare(X, [Plain(), families.Gaussian()])
    assert {one.family.name for one in found} == {"plain", "gaussian"}
    with pytest.raises(ParameterError, match="poisson and gaussian cannot be compared"):
        dpsearch.compare(X, [families.Poisson(), families.Gaussian()])


def test_columns_of_parts_are_put_in_order():
    one = Columns(np.array([1.0, 2.0]), np.array([10.0, 20.0]), moments=np.full((2, 2), 3.0))
    two = Columns(np.array([3.0]), np.array([1.0]), probabilities=[np.array([0.2, 0.8])])
    both = Columns.joined([one, two], [1, 2, 0])
    np.testing.assert_array_equal(both.log_marginals, [2.0, 3.0, 1.0])
    np.testing.assert_array_equal(both.centres, [20.0, 1.0, 10.0])
    np.testing.assert_array_equal(both.moments, [[3.0, 0.0, 3.0]] * 2)
    assert both.probabilities[0] is None
    X = np.array([[np.nan, np.nan, 5.0]])
    np.testing.assert_array_equal(fill_by_columns([both], X, np.ones((1, 1))), [[20.0, 1.0, 5.0]])


def test_bayes_factors_keep_their_digits_far_from_zero():
    """Data and prior mean are shifted by a million noise standard deviations."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9, 2))
    parts = np.array([0, 0, 0, 1, 1, 1, 1, 1, 1])

    def factors(shift, prior_mean):
        model = families.Gaussian(prior_mean, 4e12, 1.0, form="columns").compile(X + shift)
        items, _ = model.items()
        pool, _ = model.rows(items, parts, 2)
        whole, _ = model.rows(items, np.zeros(9, np.int64), 1)
        rows = [*pool.reshape(2, -1), whole]
        return log_bayes_factors(*(model.family.columns(row, 2) for row in rows))

    np.testing.assert_allclose(factors(1e6, 0.0), factors(0.0, -1e6), rtol=1e-9)


def test_all_or_none():
    assert all_or_none([1, 2]) == [1, 2]
    assert all_or_none([1, None]) is None


def test_nothing_outside_the_families_goes_by_their_names():
    """Dispatch on the name or class of a family would ignore a user's own family."""
    concrete = "|".join(
        [*(kind.__name__ for kind in families.FAMILIES.classes.values()), "Product", "WithGaps"]
    )
    wrong = re.compile(rf"family_?\.name (==|!=|in|not in) |isinstance\([^)]*\b({concrete})\b")
    for path in SOURCES.rglob("*.py"):
        if path.parent.name in ("families", "priors"):  # priors have a Gamma of their own
            continue
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            assert not wrong.search(line), f"{path.relative_to(SOURCES)}:{number}: {line.strip()}"
