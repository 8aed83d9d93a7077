"""Families: conjugate likelihoods, one per file.

`by_name` finds a family of this package, a registered one or one of an installed package.
"""

from __future__ import annotations

from dpsearch._jit import pointer
from dpsearch._validate import check_counts
from dpsearch.families.base import Example, Family
from dpsearch.families.bernoulli import Bernoulli
from dpsearch.families.beta import Beta
from dpsearch.families.capabilities import Columns, Gaps, PredictiveDraws, Simpler
from dpsearch.families.categorical import Categorical
from dpsearch.families.derived import Derived
from dpsearch.families.diagonal_gaussian import DiagonalGaussian
from dpsearch.families.full_gaussian import FullGaussian
from dpsearch.families.functions import Functions
from dpsearch.families.gamma import Gamma
from dpsearch.families.gaussian import Gaussian
from dpsearch.families.johnson import Johnson
from dpsearch.families.linear import LinearForm
from dpsearch.families.linear_regression import LinearRegression
from dpsearch.families.log_normal import LogNormal
from dpsearch.families.multinomial import Multinomial
from dpsearch.families.negative_binomial import NegativeBinomial
from dpsearch.families.ordinal import Ordinal
from dpsearch.families.poisson import Poisson
from dpsearch.families.product import Product
from dpsearch.families.projected_gaussian import ProjectedGaussian
from dpsearch.families.quadrature import Quadrature, register_density
from dpsearch.families.rounded_gaussian import RoundedGaussian
from dpsearch.families.student_t import StudentT
from dpsearch.families.von_mises import VonMises
from dpsearch.families.von_mises_fisher import VonMisesFisher
from dpsearch.families.with_gaps import WithGaps
from dpsearch.registry import Registry

__all__ = [
    "FAMILIES", "Bernoulli", "Beta", "Categorical", "Columns", "Derived", "DiagonalGaussian",
    "Example", "Family", "FullGaussian", "Functions", "Gamma", "Gaps", "Gaussian", "Johnson",
    "LinearForm", "LinearRegression", "LogNormal", "Multinomial", "NegativeBinomial", "Ordinal",
    "Poisson", "PredictiveDraws", "Product", "ProjectedGaussian", "Quadrature", "RoundedGaussian",
    "Simpler", "StudentT", "VonMises", "VonMisesFisher", "WithGaps", "by_name", "check_counts",
    "from_dict", "names", "pointer", "register", "register_density",
]  # fmt: skip

# The families by name; `from_dict` is the inverse of `Family.to_dict`.
FAMILIES: Registry[Family] = Registry("family", Family, "dpsearch.families")  # type: ignore[type-abstract]
register, by_name, from_dict = FAMILIES.register, FAMILIES.by_name, FAMILIES.from_dict
names = FAMILIES.names

for _family in (
    Gaussian, DiagonalGaussian, FullGaussian, ProjectedGaussian, Multinomial, Bernoulli, Poisson,
    Categorical, VonMisesFisher, LinearRegression, StudentT, LogNormal, Johnson, Derived, Gamma,
    Beta, VonMises, NegativeBinomial, RoundedGaussian, Ordinal,
):  # fmt: skip
    register(_family)
register(Quadrature, listed=False)
register(Product, listed=False)
register(WithGaps, listed=False)
