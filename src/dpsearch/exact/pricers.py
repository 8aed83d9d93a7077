"""Which pricer suits a closed form of log H."""

from __future__ import annotations

from dpsearch.exact.centre_pricing import CentrePricer
from dpsearch.exact.pricing import Pricer
from dpsearch.exact.sum_pricing import SumPricer
from dpsearch.families.statistics import NormalMeans, Statistic
from dpsearch.problem import Problem


def pricer_for(problem: Problem, statistic: Statistic | None, lam: float) -> Pricer | None:
    """Return a pricer for the problem's clusters, or None if there is none."""
    if statistic is None:
        return None
    if isinstance(statistic, NormalMeans):
        return CentrePricer(problem, statistic, lam) if CentrePricer.takes(problem) else None
    return SumPricer(problem, statistic, lam) if SumPricer.takes(statistic) else None
