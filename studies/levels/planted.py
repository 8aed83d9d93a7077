"""Planted data: mixtures of the families' own shape, and groups of other shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp

from dpsearch._types import Labels, Rng

OWN, OTHER = "of the family's shape", "of other shapes"


class Planted(NamedTuple):
    """A table to draw, with its groups."""

    name: str
    role: str  # OWN or OTHER
    n_groups: int
    draw: Callable[[Rng], tuple[Any, Labels]]


def groups(k: int, n: int, rng: Rng) -> Labels:
    """Draw groups of unequal sizes."""
    return rng.choice(k, size=n, p=rng.dirichlet(np.full(k, 3.0)))


def process(alpha: float, n: int, rng: Rng) -> Labels:
    """Draw groups from the Chinese restaurant process."""
    sizes: list[int] = []
    out = np.empty(n, np.int64)
    for i in range(n):
        weights = np.array([*sizes, alpha])
        out[i] = rng.choice(len(weights), p=weights / weights.sum())
        if out[i] == len(sizes):
            sizes.append(0)
        sizes[out[i]] += 1
    return out


def gaussians(y: Labels, width: int, spread: float, rng: Rng, *, full: bool = True) -> Any:
    """Draw rows of Gaussians with random means and covariances."""
    out = np.empty((len(y), width))
    for k in range(int(y.max()) + 1):
        own = y == k
        root = rng.normal(size=(width + 4, width)) / np.sqrt(width + 4)
        factor = np.linalg.cholesky(root.T @ root + 1e-3 * np.eye(width))
        if not full:
            factor = np.diag(np.exp(0.3 * rng.normal(size=width)))
        noise = rng.normal(size=(own.sum(), width)) @ factor.T
        out[own] = spread * rng.normal(size=width) + noise
    return out


def documents(y: Labels, words: int, length: int, rng: Rng, burst: float | None = None) -> Any:
    """Draw counts of words; with `burst`, a word that occurs is likely to occur again."""
    topics = rng.dirichlet(np.full(words, 0.2), size=int(y.max()) + 1)
    rows = []
    for k in y:
        p = topics[k] if burst is None else rng.dirichlet(topics[k] * burst + 1e-9)
        rows.append(rng.multinomial(rng.poisson(length) + 1, p))
    return sp.csr_matrix(np.array(rows))


def counts(y: Labels, width: int, rng: Rng) -> Any:
    return rng.poisson(rng.gamma(2.0, 4.0, size=(int(y.max()) + 1, width))[y])


def categories(y: Labels, width: int, rng: Rng) -> dict[str, Any]:
    levels = rng.dirichlet(np.full(4, 0.4), size=(int(y.max()) + 1, width))
    return {
        f"c{d}": pd.Categorical([f"level {rng.choice(4, p=levels[k, d])}" for k in y])
        for d in range(width)
    }


def frame(y: Labels, rng: Rng, spread: float = 2.5) -> Any:
    """Draw a frame of numbers, counts and categories."""
    numbers = gaussians(y, 3, spread, rng, full=False)
    counted = counts(y, 2, rng)
    columns: dict[str, Any] = {f"x{d}": numbers[:, d] for d in range(3)}
    columns |= {f"n{d}": counted[:, d] for d in range(2)}
    return pd.DataFrame(columns | categories(y, 3, rng))


def curved(y: Labels, rng: Rng) -> Any:
    angle = rng.uniform(-1.5, 1.5, len(y))
    turn = rng.uniform(0.0, 2.0 * np.pi, int(y.max()) + 1)[y]
    arc = 3.0 * np.column_stack([np.sin(angle), np.cos(angle)]) + 0.4 * rng.normal(size=(len(y), 2))
    cos, sin = np.cos(turn), np.sin(turn)
    turned = np.column_stack([cos * arc[:, 0] - sin * arc[:, 1], sin * arc[:, 0] + cos * arc[:, 1]])
    return 8.0 * rng.normal(size=(int(y.max()) + 1, 2))[y] + turned


def planted() -> Iterator[Planted]:
    """Return all planted tables, once for each seed."""

    def one(name: str, role: str, k: int, n: int, make: Callable[[Labels, Rng], Any]) -> Planted:
        def draw(rng: Rng) -> tuple[Any, Labels]:
            y = groups(k, n, rng)
            return make(y, rng), y

        return Planted(f"{k} × {name}, {n:,} rows", role, k, draw)

    shapes = (
        (1, 3, 1.0), (2, 2, 1.5), (3, 4, 1.0), (5, 2, 3.0), (8, 4, 1.5), (10, 8, 1.0), (15, 3, 3.0),
        (20, 2, 6.0), (20, 4, 2.0), (25, 2, 10.0), (30, 6, 1.5), (40, 3, 5.0), (40, 4, 2.0),
        (40, 8, 1.5),
    )  # fmt: skip
    for n in (200, 600, 2000, 5000):
        for k, width, spread in shapes:

            def full(y: Labels, rng: Rng, width: int = width, spread: float = spread) -> Any:
                return gaussians(y, width, spread, rng)

            yield one(f"Gaussian, {width} columns, spread {spread:g}", OWN, k, n, full)
    for k, width, spread in ((3, 5, 1.0), (8, 5, 1.5), (20, 6, 1.5), (40, 10, 1.5)):

        def diagonal(y: Labels, rng: Rng, width: int = width, spread: float = spread) -> Any:
            return gaussians(y, width, spread, rng, full=False)

        yield one(f"diagonal Gaussian, {width} columns", OWN, k, 2000, diagonal)
    for alpha in (1.0, 2.0, 4.0, 6.0):
        for width, spread, n in ((2, 4.0, 1500), (5, 2.0, 3000)):

            def drawn(
                rng: Rng, alpha: float = alpha, n: int = n, width: int = width, s: float = spread
            ) -> tuple[Any, Labels]:
                y = process(alpha, n, rng)
                return gaussians(y, width, s, rng), y

            yield Planted(
                f"DP, α = {alpha:g}, Gaussian, {width} columns, {n:,} rows", OWN, 0, drawn
            )
    for k in (3, 10, 20, 40):
        yield one("topic", OWN, k, 1500, lambda y, rng: documents(y, 300, 60, rng))
    for k in (1, 4, 12, 25):
        yield one("Poisson, 6 columns", OWN, k, 1500, lambda y, rng: counts(y, 6, rng))
        yield one("categorical, 12 columns", OWN, k, 1500,
                  lambda y, rng: pd.DataFrame(categories(y, 12, rng)))  # fmt: skip
    for k in (4, 12, 30):
        yield one("mixed columns", OWN, k, 1500, frame)
    for k, width, n in ((1, 2, 1500), (3, 2, 1500), (5, 4, 3000), (8, 3, 3000), (5, 4, 600)):

        def skewed(y: Labels, rng: Rng, width: int = width) -> Any:
            centres = 5.0 * rng.normal(size=(int(y.max()) + 1, width))
            return centres[y] + np.exp(0.8 * rng.normal(size=(len(y), width)))

        yield one(f"log-normal, {width} columns", OTHER, k, n, skewed)
    for k in (1, 4, 10):

        def heavy(y: Labels, rng: Rng) -> Any:
            return 6.0 * rng.normal(size=(int(y.max()) + 1, 3))[y] + rng.standard_t(3, (len(y), 3))

        def flat(y: Labels, rng: Rng) -> Any:
            return 5.0 * rng.normal(size=(int(y.max()) + 1, 2))[y] + rng.uniform(
                -1.7, 1.7, (len(y), 2)
            )

        yield one("Student t with 3 degrees", OTHER, k, 2500, heavy)
        yield one("uniform square", OTHER, k, 2500, flat)
    for k in (2, 5, 8):
        yield one("arc", OTHER, k, 2500, curved)
    for k in (5, 12):
        yield one("bursty topic", OTHER, k, 1500, lambda y, rng: documents(y, 200, 60, rng, 30.0))
