"""Families."""
from dpsearch.families.gaussian import Gaussian
from dpsearch.families.multinomial import Multinomial
