"""Hyperparameters of a family as a whole: read, changed, multiplied, taken for one column."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from dpsearch.registry import Described


class Parametrised(Described):
    """A frozen dataclass of hyperparameters: numbers, one number per column, or matrices."""

    def hyperparameters(self) -> dict[str, Any]:
        """Every hyperparameter by the name that `rescaled` knows it by."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return {field.name: getattr(self, field.name) for field in fields}

    def with_parameters(self, **changes: Any) -> Self:
        """Return a copy with some hyperparameters changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def rescaled(self, factors: Mapping[str, float]) -> Self:
        """Return a copy with some hyperparameters multiplied, vectors and matrices as a whole."""
        return self.with_parameters(
            **{name: _times(getattr(self, name), factor) for name, factor in factors.items()}
        )

    def column(self, d: int, n_features: int) -> Self:
        """The same for one column on its own, where columns are independent."""
        vectors = {name: v for name, v in self.hyperparameters().items() if np.ndim(v) == 1}
        return self.with_parameters(**{name: _at(value, d) for name, value in vectors.items()})


def _at(values: Any, d: int) -> Any:
    """Element d of a vector of hyperparameters, as a plain number."""
    return np.asarray(values)[d if len(values) > 1 else 0].item()


def _times(value: Any, factor: float) -> Any:
    if isinstance(value, tuple):
        return tuple(_times(part, factor) for part in value)
    return np.asarray(value, dtype=np.float64) * factor if np.ndim(value) else value * factor
