"""Families and priors by name: those of this package, registered ones and installed ones.

A package offers its own family or prior by an entry point in its ``pyproject.toml``:

    [project.entry-points."dpsearch.families"]
    geometric = "my_package:Geometric"

The entry point is loaded only when its name is requested.  So a description in a model file can
name only classes that are registered or installed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import numbers
from abc import ABC
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from dpsearch.errors import ParameterError


class Described(ABC):
    """A frozen dataclass of hyperparameters that is described by a name and plain values."""

    name: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the name and the hyperparameters, as plain values that JSON can hold."""
        return {"name": self.name} | {
            name: _as_json(getattr(self, name)) for name in _fields(type(self))
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], read: Callable[[Any], Any]) -> Self:
        """Return the object that `to_dict` described, from the values beside the name.

        `read` returns the object of a description among the values.
        """
        for name, value in fields.items():
            # A text in place of a number would otherwise be noticed only with the first data.
            number = isinstance(_fields(cls)[name].default, (int, float, type(None)))
            if number and isinstance(value, str):
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
        The group of entry points of other packages.
    """

    def __init__(self, kind: str, base: type[T], group: str) -> None:
        self.kind = kind
        self.base = base
        self.group = group
        self._known: dict[str, type[T]] = {}
        self._unlisted: set[str] = set()

    def register(self, cls: type[T], *, listed: bool = True) -> type[T]:
        """Register a class by its name in this process; works as a decorator.

        A class that is not `listed` is found in descriptions only, since it combines others and its
        name alone does not determine it.  Registering a class again, such as when a cell of a
        notebook runs twice, replaces it.
        """
        self._check(cls)
        known = self._known.get(cls.name, cls)
        if _path(known) != _path(cls):
            raise ParameterError(
                f"the name {cls.name!r} of {_path(cls)} is that of the {self.kind} {_path(known)}:"
                " give your class another name"
            )
        self._known[cls.name] = cls
        if not listed:
            self._unlisted.add(cls.name)
        return cls

    def unregister(self, name: str) -> None:
        """Remove a registered class; an installed one is found again when it is requested."""
        self._known.pop(name, None)

    @contextlib.contextmanager
    def knowing(self, cls: type[T]) -> Iterator[None]:
        """Register a class within the block, unless it is registered already."""
        if cls in self._known.values():
            yield
            return
        self.register(cls)
        try:
            yield
        finally:
            self.unregister(cls.name)

    @property
    def classes(self) -> dict[str, type[T]]:
        """The registered classes by name, and the installed ones that have been requested."""
        return {name: cls for name, cls in self._known.items() if name not in self._unlisted}

    def names(self) -> list[str]:
        """Return every name that `by_name` knows, installed ones included; nothing is loaded."""
        return sorted({*self.classes, *entry_points(group=self.group).names})

    def by_name(self, name: str, also: Sequence[str] = ()) -> type[T]:
        """Return the class of this name.

        `also` lists other words that are allowed in place of the name, for the error.
        """
        return self._found(name, self.classes, also)

    def _found(self, name: Any, known: Mapping[str, type[T]], also: Sequence[str] = ()) -> type[T]:
        if isinstance(name, str):
            if name in known:
                return known[name]
            points = list(entry_points(group=self.group, name=name))
            if points:
                return self._loaded(points)
        close = difflib.get_close_matches(str(name), self.names(), n=1, cutoff=0.8)
        if close:
            raise ParameterError(f"there is no {self.kind} {name!r}: did you mean {close[0]!r}?")
        there_are = ", ".join([*also, *self.names()])
        raise ParameterError(f"there is no {self.kind} {name!r}; there are {there_are}")

    def from_dict(self, spec: Any, extra: Mapping[str, type[T]] | None = None) -> T:
        """Return the object that `to_dict` described.

        Parameters
        ----------
        spec
            A name and hyperparameters, as plain values.
        extra
            Further classes by name, which take precedence.
        """
        if not isinstance(spec, Mapping):
            raise ParameterError(f"a {self.kind} is described by a name and fields, got {spec!r}")
        try:
            cls = self._found(spec.get("name"), {**self._known, **(extra or {})})
        except ParameterError as error:
            raise ParameterError(
                f"{error}. If it is one of yours, call {self.group}.register of its class first, or"
                " install the package that has it"
            ) from error
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

    def described(self, one: T) -> dict[str, Any]:
        """Return the description of an object; raise if its name is that of another class."""
        parts = getattr(one, "members", ())
        for part in parts:
            self.described(part)
        known = self._known.get(one.name, type(one))
        if not parts and known is not type(one):
            raise ParameterError(
                f"{_path(type(one))} cannot be stored: its name {one.name!r} is that of"
                f" {_path(known)}.  Give the class a name of its own and register it"
            )
        return one.to_dict()

    def _loaded(self, points: list[EntryPoint]) -> type[T]:
        """Import and register the class of an entry point."""
        point = points[0]
        if len({point.value for point in points}) > 1:
            owners = " and ".join(map(_owner, points))
            raise ParameterError(f"the {self.kind} {point.name!r} is in {owners}: remove one")
        where = f"the {self.kind} {point.name!r} of {_owner(point)} ({point.value})"
        try:
            cls = point.load()
            self._check(cls)
        except Exception as error:
            problem = (
                "cannot be used" if isinstance(error, ParameterError) else "cannot be imported"
            )
            raise ParameterError(f"{where} {problem}: {error}") from error
        if cls.name != point.name:
            raise ParameterError(f"{where} calls itself {cls.name!r}: the two names must agree")
        return self.register(cls)

    def _check(self, cls: Any) -> None:
        """Raise unless a class can be registered."""
        if not isinstance(cls, type) or not issubclass(cls, self.base):
            raise ParameterError(f"{cls!r} is not a subclass of {_path(self.base)}")
        name = getattr(cls, "name", None)
        if not isinstance(name, str) or not name.isidentifier():
            raise ParameterError(f"the name of {_path(cls)} must be an identifier, got {name!r}")
        if not dataclasses.is_dataclass(cls):
            raise ParameterError(f"{_path(cls)} must be a dataclass of its hyperparameters")


def plain_value(value: Any, name: str) -> Any:
    """Return a plain value with lists as tuples, so that it can be compared and hashed."""
    if isinstance(value, (list, tuple)):
        return tuple(plain_value(item, name) for item in value)
    if value is None or isinstance(value, (str, numbers.Real)):
        return value
    raise ParameterError(f"{name} must be a number, a name or a list of them, got {value!r}")


def _as_json(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, (list, tuple)):
        return [_as_json(part) for part in value]
    plain = value is None or isinstance(value, (str, bool))
    return value if plain else np.asarray(value).tolist()


def _fields(cls: Any) -> dict[str, Any]:
    return {field.name: field for field in dataclasses.fields(cls) if field.init}


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _owner(point: EntryPoint) -> str:
    return "an unnamed package" if point.dist is None else f"the package {point.dist.name}"
