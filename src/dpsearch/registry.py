"""Families and priors by name: those of this package, registered ones and installed ones.

A package brings a family or a prior of its own by an entry point, in its ``pyproject.toml``:

    [project.entry-points."dpsearch.families"]
    geometric = "my_package:Geometric"

The entry point is loaded only when its name is asked for.  A description, as model files have it,
can therefore name classes that are registered or installed and nothing else.
"""

from __future__ import annotations

import contextlib
import dataclasses
import numbers
from abc import ABC
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from dpsearch.errors import ParameterError


class Described(ABC):
    """A frozen dataclass of hyperparameters that a name and plain values describe."""

    name: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """Name and hyperparameters, as plain values that JSON can hold."""
        return {"name": self.name} | {
            name: _as_json(getattr(self, name)) for name in _fields(type(self))
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], read: Callable[[Any], Any]) -> Self:
        """Return the object that `to_dict` described, from the values beside the name.

        `read` makes an object of a description that is among the values.
        """
        of_numbers = {
            name: isinstance(field.default, (int, float, type(None)))
            for name, field in _fields(cls).items()
        }
        for name, value in fields.items():
            # A name where a number belongs would otherwise be noticed only when data come.
            if isinstance(value, str) and of_numbers[name]:
                raise ParameterError(f"{name} must be a number or numbers, got {value!r}")
        return cls(**{name: plain_value(value, name) for name, value in fields.items()})


T = TypeVar("T", bound=Described)


class Registry(Generic[T]):
    """The classes of one kind by name.

    Parameters
    ----------
    kind
        The word for one of them in messages.
    base
        The class that all of them inherit.
    group
        The group of entry points under which other packages bring theirs.
    """

    def __init__(self, kind: str, base: type[T], group: str) -> None:
        self.kind = kind
        self.base = base
        self.group = group
        self._listed: dict[str, type[T]] = {}
        self._unlisted: dict[str, type[T]] = {}

    def register(self, cls: type[T], *, listed: bool = True) -> type[T]:
        """Make a class known by its name in this process; works as a decorator.

        A class that is not `listed` is found in descriptions only: it is made of others, and its
        name alone says too little.  Registering a class again, as when a cell of a notebook runs
        twice, replaces it.
        """
        name = self._checked(cls)
        known = (self._listed | self._unlisted).get(name)
        if known is not None and _path(known) != _path(cls):
            raise ParameterError(
                f"the name {name!r} of {_path(cls)} is that of the {self.kind} {_path(known)}:"
                " give your class another name"
            )
        (self._listed if listed else self._unlisted)[name] = cls
        return cls

    def unregister(self, name: str) -> None:
        """Forget a registered class; an installed one is found again when it is asked for."""
        self._listed.pop(name, None)

    @contextlib.contextmanager
    def knowing(self, cls: type[T]) -> Iterator[None]:
        """Have a class registered for a while, unless it is anyway."""
        if cls in (*self._listed.values(), *self._unlisted.values()):
            yield
            return
        self.register(cls)
        try:
            yield
        finally:
            self.unregister(cls.name)

    @property
    def classes(self) -> Mapping[str, type[T]]:
        """The registered classes by name, without those of packages not asked for yet."""
        return MappingProxyType(self._listed)

    def names(self) -> list[str]:
        """Every name that `by_name` knows, installed ones included; nothing is loaded."""
        return sorted({*self._listed, *(point.name for point in self._entry_points())})

    def by_name(self, name: str, also: Sequence[str] = ()) -> type[T]:
        """Return the class of this name.

        `also` holds the other words that are allowed where the name was given, for the error.
        """
        return self._found(name, self._listed, also)

    def from_dict(self, spec: Any, extra: Mapping[str, type[T]] | None = None) -> T:
        """Return the object that `to_dict` described.

        Parameters
        ----------
        spec
            A name and hyperparameters, as plain values.
        extra
            Classes by name to look among first.
        """
        if not isinstance(spec, Mapping):
            raise ParameterError(f"a {self.kind} is described by a name and fields, got {spec!r}")
        known = {**self._listed, **self._unlisted, **(extra or {})}
        cls = self._found(spec.get("name"), known)
        fields = {name: value for name, value in spec.items() if name != "name"}
        for name in fields:
            if name not in _fields(cls):
                has = ", ".join(_fields(cls)) or "none"
                raise ParameterError(
                    f"the {cls.name} {self.kind} has no parameter {name!r}; it has {has}"
                )
        try:
            return cls.from_fields(fields, lambda inner: self.from_dict(inner, extra))
        except TypeError as error:
            raise ParameterError(f"the {cls.name} {self.kind}: {error}") from error

    def _found(self, name: Any, known: Mapping[str, type[T]], also: Sequence[str] = ()) -> type[T]:
        if isinstance(name, str):
            if name in known:
                return known[name]
            points = [point for point in self._entry_points() if point.name == name]
            if points:
                return self._loaded(points)
        there_are = ", ".join([*also, *self.names()])
        raise ParameterError(f"there is no {self.kind} {name!r}; there are {there_are}")

    def _entry_points(self) -> list[EntryPoint]:
        return list(entry_points(group=self.group))

    def _loaded(self, points: list[EntryPoint]) -> type[T]:
        """Import and register the class of an entry point."""
        if len({point.value for point in points}) > 1:
            owners = " and ".join(_owner(point) for point in points)
            raise ParameterError(f"the {self.kind} {points[0].name!r} is in {owners}: remove one")
        point = points[0]
        where = f"the {self.kind} {point.name!r} of {_owner(point)} ({point.value})"
        try:
            cls = point.load()
        except Exception as error:
            raise ParameterError(f"{where} cannot be imported: {error}") from error
        try:
            self._checked(cls)
        except ParameterError as error:
            raise ParameterError(f"{where} is of no use: {error}") from error
        if cls.name != point.name:
            raise ParameterError(f"{where} calls itself {cls.name!r}: the two names must agree")
        return self.register(cls)

    def _checked(self, cls: Any) -> str:
        """Return the name of a class that can be registered."""
        if not isinstance(cls, type) or not issubclass(cls, self.base):
            raise ParameterError(f"{cls!r} is not a subclass of {_path(self.base)}")
        name = getattr(cls, "name", None)
        if not isinstance(name, str) or not name.isidentifier():
            raise ParameterError(f"the name of {_path(cls)} must be an identifier, got {name!r}")
        if not dataclasses.is_dataclass(cls):
            raise ParameterError(f"{_path(cls)} must be a dataclass of its hyperparameters")
        return name


def plain_value(value: Any, name: str) -> Any:
    """Return a plain value, with lists as tuples, which can be compared and hashed."""
    if isinstance(value, (list, tuple)):
        return tuple(plain_value(item, name) for item in value)
    if value is None or isinstance(value, (str, numbers.Real)):
        return value
    raise ParameterError(f"{name} must be a number, a name or a list of them, got {value!r}")


def _as_json(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    plain = value is None or isinstance(value, (str, bool))
    return value if plain else np.asarray(value).tolist()


def _fields(cls: Any) -> dict[str, Any]:
    return {field.name: field for field in dataclasses.fields(cls) if field.init}


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _owner(point: EntryPoint) -> str:
    return "an unnamed package" if point.dist is None else f"the package {point.dist.name}"
