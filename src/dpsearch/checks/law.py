"""How laws are run and reported.

A law is a function that raises when what it is given breaks it.  Its name and the first line of its
docstring go into the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
        self.law = law
        self.subject = subject
        self.reason = reason


class Outcome(NamedTuple):
    """What became of one law."""

    law: str
    subject: str
    status: str  # "passed", "skipped" or "failed"
    reason: str = ""


def obey(law: Law, subject: str, tested: Any, rng: Rng) -> None:
    """Run a law; raise `LawError` if it is broken.

    A `CapabilityError` says that the law is about something which is not declared.
    """
    try:
        law(tested, rng)
    except CapabilityError:
        raise
    except Exception as error:
        reason = str(error) if type(error) is AssertionError else f"{type(error).__name__}: {error}"
        about = (law.__doc__ or "").strip().partition("\n")[0]
        raise LawError(law.__name__, subject, reason, about) from error


def run_laws(
    laws: Iterable[Law], subject: str, tested: Any, repeats: int, raise_on_fail: bool
) -> list[Outcome]:
    """Run laws, each from this many random states."""
    out = []
    for law in laws:
        outcome = Outcome(law.__name__, subject, "passed")
        try:
            for seed in range(repeats):
                obey(law, subject, tested, np.random.default_rng(seed))
        except CapabilityError as absent:
            outcome = outcome._replace(status="skipped", reason=str(absent))
        except LawError as error:
            if raise_on_fail:
                raise
            outcome = outcome._replace(status="failed", reason=str(error))
        out.append(outcome)
    return out


def agree(what: str, found: Any, wanted: Any, tolerance: float = 1e-8, scale: float = 1.0) -> None:
    """Raise unless two numbers or arrays are the same up to rounding."""
    found, wanted = np.asarray(found, dtype=np.float64), np.asarray(wanted, dtype=np.float64)
    if found.shape != wanted.shape:
        raise AssertionError(f"{what} has shape {found.shape}, not {wanted.shape}")
    with np.errstate(invalid="ignore"):
        apart = ~(np.abs(found - wanted) <= tolerance * (scale + np.abs(wanted)))
    apart &= found != wanted  # infinities may be the same
    if apart.any():
        at = tuple(int(index[0]) for index in np.nonzero(apart))
        where = f" at {list(at)}" if at else ""
        raise AssertionError(f"{what} is {found[at]!r}{where}, not {wanted[at]!r}")


def ensure(holds: Any, message: str) -> None:
    """Raise unless a condition holds, everywhere if it is an array."""
    if not np.all(holds):
        raise AssertionError(message)
