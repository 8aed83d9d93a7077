"""The error of log H on nodes, against quadrature that follows the posterior.

The integral: location uniform in its coordinate over the range of the nodes, logarithm of the width
with the prior of the nodes between their extremes.  It is taken on a grid about the mode that is
narrowed until its edges are 40 nats below the mode.  Of directions the integral is that over the
logarithm of the concentration, on a fine grid.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from scipy.special import logsumexp

from dpsearch import families
from dpsearch._bessel import expansion, log_mean_exps
from dpsearch._types import Matrix, Rng, Vector
from dpsearch.families.located import Located
from dpsearch.families.von_mises_fisher import draw_directions

_SIZES = (1, 10, 100, 1_000, 10_000)
_GRID = 48
_ROUNDS = 6
_SHAPE = 5.0


class Case(NamedTuple):
    """A family, and how to draw blocks of data for it."""

    family: Any
    draw: Any


CASES = {
    "StudentT": Case(families.StudentT(), lambda n, rng: rng.standard_t(4.0, n)),
    "Gamma": Case(families.Gamma(), lambda n, rng: rng.gamma(2.0, size=n)),
    "Beta": Case(families.Beta(), lambda n, rng: rng.beta(2.0, 5.0, n)),
    "VonMises": Case(families.VonMises(), lambda n, rng: rng.vonmises(1.0, 3.0, n) % (2 * np.pi)),
    "RoundedGaussian": Case(
        families.RoundedGaussian(), lambda n, rng: np.rint(rng.normal(50.0, 4.0, n))
    ),
    "Ordinal": Case(
        families.Ordinal(low=1.0, high=5.0), lambda n, rng: rng.integers(1, 6, n) * 1.0
    ),
}


_COLUMNS = (3, 30, 384)  # of directions
_FINE = 40_001


def direction_errors(
    n_features: int, repeats: int, rng: Rng, sizes: Any = _SIZES
) -> Iterator[tuple[int, Vector]]:
    """Yield block sizes, and the errors of log H of blocks of one cluster of directions."""

    def drawn(n: int) -> Matrix:
        return draw_directions(np.eye(1, n_features).repeat(n, 0), np.full(n, kappa), rng)

    kappa, nu = 1.5 * n_features, 0.5 * n_features - 1.0
    X = drawn(2_000)
    found = families.VonMisesFisher.suggest(X).learned(X, np.zeros(len(X), np.int64))
    family = families.VonMisesFisher(found.concentration)  # all directions as probable
    low, high = found.concentration
    nodes = np.geomspace(low, high, _FINE)
    own, form = log_mean_exps(nu, expansion(nu), nodes)[0], family.linear(n_features)
    for n in sizes:
        out = []
        for _ in range(repeats):
            total = drawn(n).sum(axis=0)
            length = float(np.linalg.norm(total))
            values = log_mean_exps(nu, expansion(nu), nodes * length)[0] - n * own
            wanted = logsumexp(values, b=_trapezoid(_FINE)) - np.log(_FINE - 1.0)
            out.append(form.log_marginals(np.array([float(n)]), total[None])[0] - wanted)
        yield n, np.array(out)


def integral(
    family: Located, x: Vector, scale: float, ends: tuple[float, float], widths: Any
) -> float:
    """Return log H of a block by a grid that follows the posterior."""
    further = family.of_columns(1)[0][0][0, 2:]
    steps = np.log(widths)
    # Nodes stand for the widths that are nearest to them.
    logs = np.array([1.5 * steps[0] - 0.5 * steps[1], 1.5 * steps[-1] - 0.5 * steps[-2]])
    limits: list[Any] = [list(ends), logs.tolist()]

    def log_prior(width: Vector) -> Vector:
        return -2.0 * _SHAPE * np.log(width / scale) - (_SHAPE - 1.0) * (scale / width) ** 2

    fine = np.exp(np.linspace(logs[0], logs[1], 2_001))
    norm = logsumexp(log_prior(fine)) + np.log((logs[1] - logs[0]) / 2_000)
    for _ in range(_ROUNDS):
        y, u = (np.linspace(limit[0], limit[1], _GRID) for limit in limits)
        steps = np.log(y[1] - y[0]) + np.log(u[1] - u[0])
        places = np.array([(a, b) for a in y for b in u])
        theta = np.column_stack([family.location(places[:, 0]), np.exp(places[:, 1])])
        theta = np.column_stack([theta, np.tile(further, (len(theta), 1))])
        values = _total(family, x, theta) + log_prior(theta[:, 1])
        ends_weights = np.outer(_trapezoid(_GRID), _trapezoid(_GRID)).reshape(-1)
        out = float(logsumexp(values, b=ends_weights) + steps - norm - np.log(ends[1] - ends[0]))
        near = places[values > values.max() - 40.0]
        margins = (y[1] - y[0], u[1] - u[0])
        limits = [
            [max(limit[0], near[:, i].min() - m), min(limit[1], near[:, i].max() + m)]
            for i, (limit, m) in enumerate(zip(limits, margins, strict=True))
        ]
    return out


def _total(family: Located, x: Vector, theta: Matrix) -> Vector:
    parts = np.array_split(x, max(1, len(x) // 500))
    terms = [family.log_densities(part, theta).sum(axis=0) for part in parts]
    return np.asarray(np.sum(terms, axis=0))


def _trapezoid(n: int) -> Vector:
    out = np.ones(n)
    out[[0, -1]] = 0.5
    return out


def errors(name: str, repeats: int, rng: Rng, sizes: Any = _SIZES) -> Iterator[tuple[int, Vector]]:
    """Yield block sizes, and the errors of log H of random blocks under nodes for 2,000 values."""
    case = CASES[name]
    X = case.draw(2_000, rng)[:, None]
    family = case.family.resolve(X).learned(X, np.zeros(len(X), np.int64))
    theta, _ = family.of_columns(1)[0]
    Y = np.asarray(family.coordinate(X))
    scale = float(np.clip(family._spread(Y, np.zeros(len(X), np.int64)), *family.limits)[0])
    ends = family.ends(0, Y[:, 0]) or (Y.min(), Y.max())
    widths = np.unique(theta[:, 1])
    for n in sizes:
        out = []
        for _ in range(repeats):
            x = np.clip(case.draw(n, rng), X.min(), X.max())
            found = family.evidence(x[:, None], np.zeros(n, np.int64))[0]
            out.append(found - integral(family, x, scale, ends, widths))
        yield n, np.array(out)


def quadrature(
    repeats: Annotated[int, typer.Option(help="Random blocks of each size.")] = 20,
) -> None:
    """Print the error of log H on nodes, median and 99th percentile, by family and size."""
    rng = np.random.default_rng(0)
    print("| family | " + " | ".join(f"{n:,} points" for n in _SIZES) + " |")
    print("| --- |" + " --- |" * len(_SIZES))
    rows = {f"`{name}`": errors(name, repeats, rng) for name in CASES}
    for n_features in _COLUMNS:
        name = f"`VonMisesFisher`, {n_features} columns"
        rows[name] = direction_errors(n_features, repeats, rng)
    for name, found in rows.items():
        cells = [
            f"{np.median(np.abs(own)):.4f} ({np.quantile(np.abs(own), 0.99):.4f})"
            for _, own in found
        ]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
