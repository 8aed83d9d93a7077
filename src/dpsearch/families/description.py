"""A line of text about a family: its name and hyperparameters, with only the length of vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SHOWN = 6  # numbers of a vector that are shown


def described(spec: Mapping[str, Any]) -> str:
    """Return a line of text from the result of `Family.to_dict` or `Prior.to_dict`.

    >>> described({"name": "gaussian", "prior_mean": [0.0] * 20, "noise_variance": 1.0})
    'gaussian, prior_mean (20 numbers), noise_variance 1'
    """
    name = str(spec.get("name", ""))
    if "parts" in spec:
        parts = "; ".join(f"{_columns(own)}: {described(part)}" for part, own in spec["parts"])
        return f"{name} of {parts}"
    if isinstance(spec.get("family"), Mapping):
        return f"{described(spec['family'])}, {name.replace('_', ' ')}"
    fields = [f"{key} {_value(value)}" for key, value in spec.items() if key != "name"]
    return ", ".join([name, *fields])


def _columns(columns: Any) -> str:
    count = len(columns)
    return f"{count} column{'s' * (count != 1)}"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{key} {_value(part)}" for key, part in value.items()) + ")"
    if isinstance(value, (list, tuple)):
        if len(value) > _SHOWN or any(isinstance(part, (list, tuple)) for part in value):
            rows = isinstance(value[0], (list, tuple))
            return f"({len(value)} {'rows' if rows else 'numbers'})"
        return "(" + ", ".join(_value(part) for part in value) + ")"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
