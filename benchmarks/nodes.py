"""One greedy pass of families by nodes, compared with the conjugate families that they replace.

    python -m benchmarks.nodes

Both families learn from the planted clusters, and the concentration of the conjugate one's prior
is chosen so that it finds about as many clusters.  Times are the least processor times of
interleaved passes.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from dpsearch import families, priors
from dpsearch._types import Labels, Matrix, Rng
from dpsearch.prefix_search.greedy import greedy
from dpsearch.problem import Problem

_N_COLUMNS, _REPEATS = 8, 15
_SIZES = ((500, 10), (4_000, 10), (4_000, 20))  # rows, planted clusters


def numbers(labels: Labels, n_clusters: int, rng: Rng) -> Matrix:
    means = rng.normal(0.0, 6.0, size=(n_clusters, _N_COLUMNS))
    return means[labels] + rng.normal(size=(len(labels), _N_COLUMNS))


def counts(labels: Labels, n_clusters: int, rng: Rng) -> Matrix:
    means = np.exp(rng.uniform(np.log(2.0), np.log(60.0), size=(n_clusters, _N_COLUMNS)))
    rates = means[labels] * rng.gamma(50.0, 0.02, size=(len(labels), _N_COLUMNS))
    return rng.poisson(rates).astype(np.float64)


CASES: list[tuple[Any, Any, Any, float]] = [
    (families.NegativeBinomial, families.Poisson, counts, 4.0),
    (families.StudentT, families.DiagonalGaussian, numbers, 8.0),
]


def seconds(problem: Problem) -> float:
    begun = time.process_time()
    greedy(problem, np.arange(problem.n_items))
    return time.process_time() - begun


def n_found(problem: Problem) -> int:
    return int(greedy(problem, np.arange(problem.n_items)).max()) + 1


def alike(X: Matrix, labels: Labels, replaced: Any, wanted: int) -> tuple[Problem, int]:
    """Return the conjugate family's problem with the number of clusters closest to the target."""
    tried = [
        Problem(X, replaced.suggest(X).learned(X, labels), priors.DirichletProcess(alpha))
        for alpha in np.geomspace(1e-40, 1e6, 24)
    ]
    found = [n_found(problem) for problem in tried]
    at = int(np.abs(np.array(found) - wanted).argmin())
    return tried[at], found[at]


def main() -> None:
    print("| family | against | rows | clusters | ns a number | ratio | |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for family, replaced, draw, most in CASES:
        for n_rows, n_clusters in _SIZES:
            rng = np.random.default_rng(1)
            labels = rng.integers(n_clusters, size=n_rows)
            X = draw(labels, n_clusters, rng)
            learned = family.suggest(X).learned(X, labels)
            ours = Problem(X, learned, priors.DirichletProcess(1.0))
            found = n_found(ours)
            theirs, count = alike(X, labels, replaced, found)
            pairs = [[seconds(ours), seconds(theirs)] for _ in range(_REPEATS)]
            own, other = np.array(pairs).min(axis=0)
            each = [f"{1e9 * value / X.size:.0f}" for value in (own, other)]
            said = "met" if own <= most * other else "missed"
            print(
                f"| `{family.__name__}` | `{replaced.__name__}` | {n_rows:,} | {found}, {count}"
                f" | {each[0]}, {each[1]} | {own / other:.1f}× | ≤ {most:.0f}: {said} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
