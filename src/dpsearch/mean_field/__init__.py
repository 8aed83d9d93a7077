"""Variational inference: lower bounds on the evidence, and the mixtures that attain them."""

from dpsearch.mean_field.fit import variational
from dpsearch.mean_field.result import VariationalMixture

__all__ = ["VariationalMixture", "variational"]
