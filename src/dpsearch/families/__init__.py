"""Families: conjugate likelihoods, one per file.

A family is found by its name in `BY_NAME`; `from_dict` is the inverse of `Family.to_dict`.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

from dpsearch._validate import check_counts
from dpsearch.errors import ParameterError
from dpsearch.families.base import Example, Family, Functions, pointer
from dpsearch.families.bernoulli import Bernoulli
from dpsearch.families.categorical import Categorical
from dpsearch.families.diagonal_gaussian import DiagonalGaussian
from dpsearch.families.full_gaussian import FullGaussian
from dpsearch.families.gaussian import Gaussian
from dpsearch.families.multinomial import Multinomial
from dpsearch.families.poisson import Poisson
from dpsearch.families.product import Product
from dpsearch.families.projected_gaussian import ProjectedGaussian
from dpsearch.families.with_gaps import WithGaps

__all__ = [
    "BY_NAME",
    "Bernoulli",
    "Categorical",
    "DiagonalGaussian",
    "Example",
    "Family",
    "FullGaussian",
    "Functions",
    "Gaussian",
    "Multinomial",
    "Poisson",
    "Product",
    "ProjectedGaussian",
    "WithGaps",
    "by_name",
    "check_counts",
    "from_dict",
    "pointer",
]

BY_NAME: dict[str, type[Family]] = {
    family.name: family
    for family in (
        Gaussian,
        DiagonalGaussian,
        FullGaussian,
        ProjectedGaussian,
        Multinomial,
        Bernoulli,
        Poisson,
        Categorical,
    )
}


def _look_up(
    name: Any, known: Mapping[str, type[Family]], also: Sequence[str] = ()
) -> type[Family]:
    if not isinstance(name, str) or name not in known:
        there_are = ", ".join([*also, *sorted(known)])
        raise ParameterError(f"there is no family {name!r}; there are {there_are}")
    return known[name]


def by_name(name: str, also: Sequence[str] = ()) -> type[Family]:
    """Return the class of a family; `also` is what else one may say there, for the error.

    >>> by_name("poisson")()
    Poisson(shape=1.0, rate=1.0)
    """
    return _look_up(name, BY_NAME, also)


def from_dict(spec: Mapping[str, Any], extra: Mapping[str, type[Family]] | None = None) -> Family:
    """Return the family that `Family.to_dict` describes.

    Parameters
    ----------
    spec
        A name and hyperparameters, as plain values.
    extra
        Families by name that this package does not have.

    >>> from_dict({"name": "bernoulli", "successes": [0.5, 2.0]})
    Bernoulli(successes=(0.5, 2.0), failures=1.0)
    """
    if not isinstance(spec, Mapping):
        raise ParameterError(f"a family is described by a name and fields, got {spec!r}")
    if spec.get("name") == WithGaps.name:
        plain = from_dict(_only(spec, "family"), extra)
        return WithGaps(plain).family.with_gaps()  # checked, and in the form of its own if any
    if spec.get("name") == Product.name:
        return Product(_parts(_only(spec, "parts"), extra))
    family = _look_up(spec.get("name"), {**BY_NAME, **(extra or {})})
    fields = {field.name: field for field in dataclasses.fields(family) if field.init}  # type: ignore[arg-type]
    given = {name: value for name, value in spec.items() if name != "name"}
    for name, value in given.items():
        if name not in fields:
            known = ", ".join(fields) or "none"
            raise ParameterError(
                f"the {family.name} family has no parameter {name!r}; it has {known}"
            )
        # A name where a number belongs would otherwise be noticed only when data come.
        if isinstance(value, str) and isinstance(fields[name].default, (int, float, type(None))):
            raise ParameterError(f"{name} must be a number or numbers, got {value!r}")
    try:
        return family(**{name: _plain(value, name) for name, value in given.items()})
    except TypeError as error:
        raise ParameterError(f"the {family.name} family: {error}") from error


def _only(spec: Mapping[str, Any], field: str) -> Any:
    """Return the one field that a family made of others has."""
    if set(spec) != {"name", field}:
        raise ParameterError(f"the {spec['name']} family has the field {field!r} and no other")
    return spec[field]


def _parts(parts: Any, extra: Mapping[str, type[Family]] | None) -> list[tuple[Family, Any]]:
    pairs = isinstance(parts, (list, tuple)) and all(
        isinstance(part, (list, tuple)) and len(part) == 2 for part in parts
    )
    if not pairs:
        raise ParameterError(f"parts must be pairs of a family and its columns, got {parts!r}")
    return [(from_dict(family, extra), _plain(columns, "columns")) for family, columns in parts]


def _plain(value: Any, name: str) -> Any:
    """Return a plain value, lists as tuples, which can be compared and hashed."""
    if isinstance(value, (list, tuple)):
        return tuple(_plain(item, name) for item in value)
    if value is None or isinstance(value, (str, numbers.Real)):
        return value
    raise ParameterError(f"{name} must be a number, a name or a list of them, got {value!r}")
