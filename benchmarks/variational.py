"""Variational inference: the cost of an iteration, and of reaching scikit-learn's bound.

    python -m benchmarks.variational [--rows 20000] [--width 50] [--components 50] [--iterations N]
                                     [--bnpy PYTHON]

Full covariance, one thread.  The yardstick of an iteration is one product of the rows' features
with the components' weights.  The bound of what scikit-learn's BayesianGaussianMixture finds is
computed from its responsibilities by the formula that `variational` uses, and so is that of bnpy,
which needs a Python of its own (3.8 has what it is built for): its interpreter is PYTHON.  Times
are those of the processor.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.mixture import BayesianGaussianMixture
from threadpoolctl import threadpool_limits

from benchmarks.engine import fastest
from dpsearch import Problem, datasets, families, priors, variational
from dpsearch.mean_field.fit import _Fit, _How, _Point
from dpsearch.mean_field.tables import InMemory
from dpsearch.passes.chunk import Totals

# The same prior as that of `_theirs`: E[covariance] is the scale, with D + 2 degrees of freedom.
_BNPY = """
import sys, time
import numpy as np
np.float, np.int, np.bool = float, int, bool  # which its version uses
import bnpy
rows, shares, components, laps = sys.argv[1:]
data = bnpy.data.XData(np.load(rows))
begun = time.process_time()
model, _ = bnpy.run(data, "DPMixtureModel", "Gauss", "VB", K=int(components), nLap=int(laps),
                    nTask=1, ECovMat="diagcovdata", sF=1.0, nu=data.dim + 2, kappa=1.0,
                    gamma0=1.0, seed=0, initname="randexamples", output_path=shares + ".out",
                    printEvery=1000)
seconds = time.process_time() - begun
found = model.calc_local_params(data)["resp"]
np.savez(shares, resp=found, seconds=seconds)
"""


def against_bnpy(python: str, X: Any, components: int, laps: int) -> None:
    """Print the time to reach bnpy's bound, starting from random rows as is usual."""
    family = families.FullGaussian(
        np.zeros(X.shape[1]), 1.0, X.shape[1] + 2.0, np.diag(X.var(axis=0))
    )
    problem = Problem(X, family, priors.DirichletProcess(1.0))
    with tempfile.TemporaryDirectory() as folder:
        rows, shares = Path(folder) / "rows.npy", Path(folder) / "shares.npz"
        np.save(rows, X)
        plain = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        command = [python, "-c", _BNPY, str(rows), str(shares), str(components), str(laps)]
        subprocess.run(command, env=plain | one, check=True, stdout=subprocess.DEVNULL)
        with np.load(shares) as found:
            resp, seconds = found["resp"], float(found["seconds"])
    fit = fit_of(problem, components)
    bound = bound_of(fit, resp)[0].bound
    first, found = seconds_to(problem, components, bound)
    print(f"bnpy: bound {bound:,.1f} in {seconds:.1f} s, at most {laps} laps")
    print(f"variational: {found}")
    print(f"time to bnpy's bound: {first:.2f} s, {seconds / first:.1f} times faster (≥ 3)")


def fit_of(problem: Problem, components: int) -> _Fit:
    """Return the fit that `variational` makes of a problem, before it begins."""
    how = _How.checked(
        variant="stick-breaking", truncation=components, tail=False, order=2, start="search",
        moves=True, cells=None, max_iter=1000, tol=1e-6, rng=0, n_jobs=None, device=None,
        callback=None,
    )  # fmt: skip
    return _Fit(InMemory(problem, "search", 1, None), how)


def bound_of(fit: _Fit, shares: Any) -> tuple[_Point, Totals]:
    """Return the result of a pass from these responsibilities, and their totals."""
    order = np.argsort(-shares.sum(axis=0))
    shares = shares[:, order]
    features = fit.form.features(fit.table.model.matrix)
    totals = Totals(shares.sum(axis=0), shares.T @ features)
    totals = totals.take(totals.sizes > 1e-3)
    return fit.passed(_Point(totals, 0.0, 0.0, 0.0), None)[0], totals


def seconds_to(problem: Problem, components: int, bound: float) -> tuple[float, Any]:
    """Return the time until `variational` reaches this bound (NaN: never), and its bound then.

    Bounds within the tolerance at which an iteration ends, 1e-6 nats a row, are the same.
    """
    begun = time.process_time()
    seconds = float("nan")
    bound -= 1e-6 * problem.n_items

    def check(event: Any) -> None:
        nonlocal seconds
        if event.log_joint >= bound:
            seconds = time.process_time() - begun
            raise KeyboardInterrupt

    found = variational(problem, truncation=components, rng=0, callback=check)
    return seconds, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"rows": 20_000, "width": 50, "components": 50, "iterations": 100}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--bnpy", help="a Python that has bnpy")
    given = parser.parse_args()
    X, _ = datasets.planted_clusters(given.rows, given.width, given.components, rng=0)
    width = X.shape[1]
    scale = np.diag(X.var(axis=0))
    family = families.FullGaussian(X.mean(axis=0), 1.0, float(width), scale)
    problem = Problem(X, family, priors.DirichletProcess(1.0))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begun = time.process_time()
        theirs = BayesianGaussianMixture(
            n_components=given.components, weight_concentration_prior=1.0,
            mean_precision_prior=1.0, degrees_of_freedom_prior=width, covariance_prior=scale,
            reg_covar=0.0, max_iter=given.iterations, random_state=0,
        ).fit(X)  # fmt: skip
        seconds = time.process_time() - begun
        fit = fit_of(problem, given.components)
        point, totals = bound_of(fit, theirs.predict_proba(X))
        first, found = seconds_to(problem, given.components, point.bound)
        features = fit.form.features(X)
        product = fastest(lambda: features @ totals.sums.T, 3)
        iteration = fastest(lambda: fit.passed(_Point(totals, 0.0, 0.0, 0.0), None), 3)
    print(f"scikit-learn: bound {point.bound:,.1f} in {seconds:.1f} s, {theirs.n_iter_} iterations")
    print(f"variational: {found}")
    print(f"time to scikit-learn's bound: {first:.2f} s, {seconds / first:.1f} times faster (≥ 10)")
    print(f"an iteration: {iteration / product:.2f} matrix products ({iteration:.3f} s) (≤ 3)")
    if given.bnpy:
        with threadpool_limits(1):
            against_bnpy(given.bnpy, X, given.components, given.iterations)


if __name__ == "__main__":
    main()
