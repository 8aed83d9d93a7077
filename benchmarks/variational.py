"""Variational inference: the cost of an iteration, and scikit-learn's to the same bound.

    python -m benchmarks.variational [--rows 20000] [--width 50] [--components 50] [--iterations N]

Full covariance, one thread.  The yardstick of an iteration is one product of the rows' features
with the components' weights.  The bound of what scikit-learn's BayesianGaussianMixture finds is
computed from its responsibilities by the formula that `variational` uses.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from sklearn.mixture import BayesianGaussianMixture
from threadpoolctl import threadpool_limits

from benchmarks.engine import fastest
from dpsearch import Problem, datasets, families, priors, variational
from dpsearch.mean_field.fit import _Fit, _Point
from dpsearch.mean_field.tables import InMemory
from dpsearch.passes.chunk import Totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"rows": 20_000, "width": 50, "components": 50, "iterations": 100}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    X, _ = datasets.planted_clusters(given.rows, given.width, given.components, rng=0)
    width = X.shape[1]
    scale = np.diag(X.var(axis=0))
    family = families.FullGaussian(X.mean(axis=0), 1.0, float(width), scale)
    problem = Problem(X, family, priors.DirichletProcess(1.0))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begun = time.perf_counter()
        theirs = BayesianGaussianMixture(
            n_components=given.components, weight_concentration_prior=1.0,
            mean_precision_prior=1.0, degrees_of_freedom_prior=width, covariance_prior=scale,
            reg_covar=0.0, max_iter=given.iterations, random_state=0,
        ).fit(X)  # fmt: skip
        seconds = time.perf_counter() - begun
        table = InMemory(problem, "search", 1, None)
        fit = _Fit(table, given.components, np.random.default_rng(0), 0.0, None)
        shares = theirs.predict_proba(X)
        features = fit.form.features(X)
        totals = Totals(shares.sum(axis=0), shares.T @ features)
        point, _ = fit.passed(_Point(totals, 0.0, 0.0, 0.0), None)
        reached = []
        begun = time.perf_counter()
        found = variational(
            problem, truncation=given.components, rng=0,
            callback=lambda event: reached.append((event.seconds, event.log_joint)),
        )  # fmt: skip
        ours = time.perf_counter() - begun
        first = next((s for s, bound in reached if bound >= point.bound), float("nan"))
        product = fastest(lambda: features @ totals.sums.T, 3)
        iteration = fastest(lambda: fit.passed(_Point(totals, 0.0, 0.0, 0.0), None), 3)
    print(f"scikit-learn: bound {point.bound:,.1f} in {seconds:.1f} s, {theirs.n_iter_} iterations")
    print(f"variational: bound {found.lower_bound:,.1f} in {ours:.1f} s, {found}")
    print(f"time to scikit-learn's bound: {first:.2f} s, {seconds / first:.1f} times faster")
    print(f"an iteration: {iteration / product:.2f} matrix products ({iteration:.3f} s)")


if __name__ == "__main__":
    main()
