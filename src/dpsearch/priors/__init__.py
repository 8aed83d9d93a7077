"""Priors on partitions.

`by_name` finds a prior of this package, a registered one, or one of an installed package.
"""

from __future__ import annotations

from dpsearch.priors.antoniak import AntoniakCounts
from dpsearch.priors.base import Prior, Tables
from dpsearch.priors.concentration import Concentration, Gamma
from dpsearch.priors.dirichlet_process import DirichletProcess
from dpsearch.priors.pitman_yor import PitmanYor
from dpsearch.registry import Registry

__all__ = [
    "PRIORS", "AntoniakCounts", "Concentration", "DirichletProcess", "Gamma", "PitmanYor", "Prior",
    "Tables", "by_name", "from_dict", "names", "register",
]  # fmt: skip

# The priors by name; `from_dict` is the inverse of `Prior.to_dict`.
PRIORS: Registry[Prior] = Registry("prior", Prior, "dpsearch.priors")  # type: ignore[type-abstract]
register, by_name, from_dict = PRIORS.register, PRIORS.by_name, PRIORS.from_dict
names = PRIORS.names

for _prior in (DirichletProcess, PitmanYor, AntoniakCounts):
    register(_prior)
