"""Priors on partitions."""

from __future__ import annotations

from typing import Any

from dpsearch.errors import ParameterError
from dpsearch.priors.antoniak import AntoniakCounts
from dpsearch.priors.base import Prior, Tables
from dpsearch.priors.dirichlet_process import DirichletProcess, Gamma
from dpsearch.priors.pitman_yor import PitmanYor

__all__ = [
    "AntoniakCounts",
    "DirichletProcess",
    "Gamma",
    "PitmanYor",
    "Prior",
    "Tables",
    "from_dict",
]

_BY_NAME: dict[str, type[Prior]] = {
    cls.name: cls for cls in (DirichletProcess, PitmanYor, AntoniakCounts)
}


def from_dict(spec: dict[str, Any]) -> Prior:
    """Build a prior from what `Prior.to_dict` returned."""
    values = dict(spec)
    name = values.pop("name", None)
    if name not in _BY_NAME:
        raise ParameterError(f"unknown prior {name!r}: known are {', '.join(sorted(_BY_NAME))}")
    if isinstance(values.get("alpha"), dict):
        values["alpha"] = Gamma(**values["alpha"])
    return _BY_NAME[name](**values)
