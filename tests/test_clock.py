"""Time limits and reported times exclude Numba's compilation."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest
from numba.core import event

from dpsearch import certify, families, priors, refine, search
from dpsearch._clock import clock
from dpsearch.problem import Problem


def test_the_clock_stands_still_while_something_compiles():
    before, wall = clock(), time.perf_counter()
    with event.trigger_event("numba:compile", data={}):
        within = clock()
        with event.trigger_event("numba:compile", data={}):
            time.sleep(0.05)
        assert clock() == within
    assert clock() - before < time.perf_counter() - wall - 0.04
    after = clock()
    time.sleep(0.01)
    assert clock() >= after + 0.009


def test_reported_times_are_without_that_of_compiling():
    X = np.arange(12.0)[:, None]
    family, prior = families.Gaussian(4.0, 25.0, 1.0), priors.DirichletProcess(1.0)

    def compiling(_):
        with event.trigger_event("numba:compile", data={}):
            time.sleep(0.1)

    model = {"family": family, "prior": prior, "callback": compiling}
    greedy = partial(search, X, beam_size=1, **model)
    beam = partial(search, X, beam_size=3, **model)
    best_first = partial(beam, method="best-first")
    labels = np.zeros(12)
    for solve in (greedy, beam, best_first, partial(refine, X, labels, **model),
                  partial(certify, X, labels, **model)):  # fmt: skip
        begun = time.perf_counter()
        seconds = solve().seconds
        assert 0.0 < seconds < time.perf_counter() - begun - 0.1


def test_a_proof_has_its_time_besides_what_compiling_takes(monkeypatch):
    """As in a new installation, compiling refinement's kernels takes longer than the limit."""
    X = np.random.default_rng(0).normal(size=(60, 2)) + 8.0 * (np.arange(60) % 3)[:, None]
    problem = Problem(X, families.Gaussian(4.0, 25.0, 1.0), priors.DirichletProcess(1.0))
    assert certify(problem, np.zeros(60)).optimal  # compiled
    from dpsearch.exact import certificate

    refine = certificate.refine

    def compiling(*arguments, **options):
        with event.trigger_event("numba:compile", data={}):
            time.sleep(1.5)
        return refine(*arguments, **options)

    monkeypatch.setattr(certificate, "refine", compiling)
    assert certify(problem, np.zeros(60), time_limit=1.2).optimal


@pytest.mark.slow
def test_a_new_installation_proves_as_much_as_an_old_one(tmp_path):
    program = """
import numpy as np
from dpsearch import certify, families, priors
X = np.random.default_rng(0).normal(size=(60, 2)) + 8.0 * (np.arange(60) % 3)[:, None]
family, prior = families.Gaussian(4.0, 25.0, 1.0), priors.DirichletProcess(1.0)
print(certify(X, np.zeros(60), family, prior, time_limit=2.5).optimal)
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "True"
