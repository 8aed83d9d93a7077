"""Attacks on certificates: adversarial data against two oracles, and forgeries.

The oracles are the enumeration of all partitions and an integer programme over all sets.  Every
attack takes a count and a seed, and returns an `Outcome`.  Failures are printed with the
numbers that reproduce them.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from dpsearch.errors import CapabilityError, DataError, ParameterError
from dpsearch.exact import Certificate, certify
from dpsearch.exact.assumptions import rounding_of, statistic_of
from dpsearch.problem import Problem
from studies.attacks.forgeries import FORGERIES
from studies.attacks.record import Outcome
from studies.attacks.small_sets import draw, log_joints, members_of, set_weights, without_structure

_SOLVER_ERROR = 1e-5  # of the integer programme, relative: the tolerances of HiGHS
_KINDS = ("line", "prices", "sets", "quick", "ceiling")
_FOR_FORGERY = 200  # different certificates, for forgeries
Rng = np.random.Generator


def against_enumeration(count: int, seed: int) -> Outcome:
    """Certify adversarial small sets, and compare with the best of all partitions."""
    return _outcome(
        "certificates against enumeration",
        "small sets with ties, copies, extreme scales and extreme α, under all families that"
        " certify takes; broken by a bound below the best partition, a wrong proof, or an honest"
        " certificate that is not verified",
        _against_enumeration, count, seed,
    )  # fmt: skip


def against_integer_programme(count: int, seed: int) -> Outcome:
    """Certify small sets, and compare with HiGHS on the set partitioning over all sets."""
    return _outcome(
        "certificates against an integer programme",
        "small sets, whose 2ⁿ − 1 possible clusters are all given to HiGHS; broken if its optimum"
        " differs from that of certify",
        _against_integer_programme, count, seed,
    )  # fmt: skip


def forged(count: int, seed: int) -> Outcome:
    """Verify forged certificates: every field, every kind of proof."""
    begun = time.perf_counter()
    pool = _certificates(min(_FOR_FORGERY, count // 4), seed)
    failed, tried = 0, 0
    while tried < count:
        rng = np.random.default_rng([seed, tried, 1])
        forgery = FORGERIES[tried % len(FORGERIES)]
        other = None
        while other is None:
            number = int(rng.integers(len(pool)))
            other = forgery(pool[number], rng)
        tried += 1
        why = _accepted(other)
        if why:
            failed += 1
            _tell(f"forged {seed} {tried - 1}: {forgery.__name__} of certificate {number}: {why}")
    return Outcome(
        "forged certificates",
        f"{len(FORGERIES)} ways to falsify a certificate, in every field; broken if one is"
        " accepted or makes verify raise an error",
        tried, failed, time.perf_counter() - begun,
    )  # fmt: skip


def _outcome(
    name: str, what: str, attack: Callable[[Rng], str | None], count: int, seed: int
) -> Outcome:
    begun, tried, failed, trial = time.perf_counter(), 0, 0, 0
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C: what was tried until then counts
        while tried < count:
            found = attack(np.random.default_rng([seed, trial]))
            if found is not None:
                tried += 1
            if found:
                failed += 1
                _tell(f"{name} {seed} {trial}: {found}")
            trial += 1
    return Outcome(name, what, tried, failed, time.perf_counter() - begun)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _accepted(certificate: Certificate) -> str:
    try:
        return "accepted" if certificate.verify() else ""
    except Exception as error:
        return f"raised {error!r}"


def _problem(rng: Rng) -> Problem | None:
    """Return an adversarial problem, or None if the family or the prior refuses it."""
    X, family, prior = draw(rng)
    with contextlib.suppress(DataError, ParameterError):
        return Problem(X, family, prior)
    return None


def _start(problem: Problem, rng: Rng) -> Any:
    n = problem.n_items
    return [np.zeros(n, int), np.arange(n), rng.integers(0, n, size=n)][rng.integers(3)]


def _options(rng: Rng) -> dict[str, Any]:
    return {
        "polish": bool(rng.random() < 0.5),
        "line": bool(rng.random() < 0.7),
        "tolerance": float(rng.choice([1e-6, 1e-6, 0.0, 1e-9, 1e-3])),
        "time_limit": float(rng.choice([5.0, 5.0, 0.0])),
    }


def _against_enumeration(rng: Rng) -> str | None:
    """Return what is wrong with one certificate: "" if nothing, None if there is no certificate."""
    problem = _problem(rng)
    if problem is None:
        return None
    if rng.random() < 0.01:
        return _weights_are_refused(problem)
    try:
        found = certify(problem, _start(problem, rng), **_options(rng))
    except Exception as error:
        return f"{problem.model.family!r} {problem.prior!r}: raised {error!r}"
    best = float(log_joints(problem).max())
    statistic = statistic_of(problem, found.clustering.labels)
    rounding = rounding_of(problem, statistic, best)
    wrong = []
    if not found.upper_bound >= best - rounding:
        wrong.append(f"bound {found.upper_bound!r} below the optimum {best!r}")
    if not found.lower_bound <= best + rounding:
        wrong.append(f"value {found.lower_bound!r} above the optimum {best!r}")
    if found.optimal and not found.lower_bound >= best - found.tolerance - rounding:
        wrong.append(f"value {found.lower_bound!r} proved to be the optimum {best!r}")
    if not found.verify():
        wrong.append(f"not verified, method {found.method}")
    about = f"{problem.model.family!r} {problem.prior!r}: "
    return about + "; ".join(wrong) if wrong else ""


def _weights_are_refused(problem: Problem) -> str:
    weights = np.full(problem.n_items, 2)
    weighted = Problem(problem.model.matrix, problem.model.family, problem.prior, weights=weights)
    try:
        certify(weighted, np.zeros(problem.n_items))
    except CapabilityError:
        return ""
    return "rows with weights were certified"


def _against_integer_programme(rng: Rng) -> str | None:
    problem = _problem(rng)
    if problem is None:
        return None
    found = certify(problem, _start(problem, rng), time_limit=5.0)
    if not found.optimal:
        return None
    other = _integer_optimum(problem)
    off = abs(found.lower_bound - other)
    if off > _SOLVER_ERROR * (1.0 + abs(other)):
        return f"{problem.model.family!r} {problem.prior!r}: {found.lower_bound!r}, not {other!r}"
    return ""


def _integer_optimum(problem: Problem) -> float:
    """Return the best log joint by HiGHS, with a variable for each set and each number of sets."""
    n, weights = problem.n_items, set_weights(problem)
    log_v = problem.tables.log_v[1:]
    members = members_of(problem).T.astype(float)
    constraints = np.block(
        [
            [members, np.zeros((n, n))],
            [np.ones((1, len(weights))), -np.arange(1.0, n + 1.0)[None, :]],
            [np.zeros((1, len(weights))), np.ones((1, n))],
        ]
    )
    right = np.concatenate([np.ones(n), [0.0, 1.0]])
    result = milp(
        -np.concatenate([weights, log_v]),
        integrality=np.ones(len(weights) + n),
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(constraints, right, right),
        options={"mip_rel_gap": 0.0},
    )
    chosen = np.round(result.x)  # the value of the partition itself, not of what is nearly one
    return float(chosen @ np.concatenate([weights, log_v])) + problem.log_base


def _certificates(count: int, seed: int) -> list[Certificate]:
    """Return valid certificates by every method, in about equal numbers."""
    by_kind: dict[str, list[Certificate]] = {kind: [] for kind in _KINDS}
    trial = 0
    while sum(map(len, by_kind.values())) < count:
        rng = np.random.default_rng([seed, trial, 2])
        problem = _problem(rng) if trial % 2 else without_structure(rng)
        trial += 1
        if problem is None or problem.n_items < 2:
            continue
        found = certify(problem, _start(problem, rng), **{**_options(rng), "tolerance": 1e-6})
        if len(by_kind[found.method]) < count // 4 + 1:
            by_kind[found.method].append(found)
    return [certificate for kind in _KINDS for certificate in by_kind[kind]]
