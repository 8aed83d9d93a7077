"""Running laws and reporting their outcomes.

A law is a public function of one of the modules of laws.  It takes the object to check and a random
number generator.  It raises an error if the object breaks it, and `CapabilityError` if it does not
apply.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import getdoc, isfunction
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import Rng
from dpsearch.errors import CapabilityError

Law = Callable[[Any, Rng], None]


class LawError(AssertionError):
    """A class breaks a law.

    Attributes
    ----------
    law
        The name of the law.
    subject
        The family or prior.
    reason
        The values that disagree.
    """

    def __init__(self, law: str, subject: str, reason: str, about: str = "") -> None:
        super().__init__(f"{subject} breaks the law {law}: {about} {reason}")
        self.about = about
        self.law = law
        self.subject = subject
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return LawError, (self.law, self.subject, self.reason, self.about)


class Outcome(NamedTuple):
    """The result of checking one law."""

    law: str
    subject: str
    status: str  # "passed", "skipped" or "failed"
    reason: str = ""


def laws_of(module: ModuleType) -> list[Law]:
    """Return the public functions that a module defines, in their order."""
    return [
        value
        for name, value in vars(module).items()
        if isfunction(value) and value.__module__ == module.__name__ and name[0] != "_"
    ]


def run_laws(
    module: ModuleType, subject: str, tested: Any, raise_on_fail: bool, repeats: int = 1
) -> list[Outcome]:
    """Run the laws of a module, each with `repeats` random number generators."""
    out = []
    for law in laws_of(module):
        status, reason = "passed", ""
        try:
            for seed in range(repeats):
                law(tested, np.random.default_rng(seed))
        except CapabilityError as absent:
            status, reason = "skipped", str(absent)
        except Exception as error:
            kind = "" if type(error) is AssertionError else f"{type(error).__name__}: "
            about = (getdoc(law) or "").partition("\n")[0]
            broken = LawError(law.__name__, subject, f"{kind}{error}", about)
            if raise_on_fail:
                raise broken from error
            status, reason = "failed", str(broken)
        out.append(Outcome(law.__name__, subject, status, reason))
    return out


def applies_if(condition: bool, otherwise: str) -> None:
    """Skip the law unless a condition holds."""
    if not condition:
        raise CapabilityError(otherwise)


def agree(
    what: str, found: Any, expected: Any, tolerance: float = 1e-8, scale: float = 1.0
) -> None:
    """Raise unless two numbers or arrays are the same up to rounding."""
    found, expected = np.asarray(found, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    ensure(found.shape == expected.shape, f"{what} has shape {found.shape}, not {expected.shape}")
    with np.errstate(invalid="ignore"):
        apart = ~(np.abs(found - expected) <= tolerance * (scale + np.abs(expected)))
    apart &= found != expected  # infinities may be the same
    if apart.any():
        at = tuple(int(index[0]) for index in np.nonzero(apart)) if apart.ndim else ()
        where = f" at {list(at)}" if at else ""
        raise AssertionError(f"{what} is {float(found[at])!r}{where}, not {float(expected[at])!r}")


def ensure(holds: Any, message: str) -> None:
    """Raise unless a condition holds, everywhere if it is an array."""
    if not np.all(holds):
        raise AssertionError(message)
