"""Checks of a family or a prior: the laws, and every solver against enumeration."""

from dpsearch.checks.check import check_family, check_prior
from dpsearch.checks.law import LawError, Outcome

__all__ = ["LawError", "Outcome", "check_family", "check_prior"]
