"""Ctrl-C while a kernel runs raises an exception and never ends the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

_CODE = """
import os, signal, sys, threading, time
import numpy as np
from dpsearch import families, priors, search
from dpsearch.problem import Problem

X = np.random.default_rng(0).normal(size=(int(sys.argv[2]), 4))
problem = Problem(X, families.DiagonalGaussian(0.0, 0.5, 2.0, 1.0), priors.DirichletProcess(5.0))
few = Problem(X[:int(sys.argv[3])], problem.model.family, problem.prior)
calls = {
    "beam": lambda one: search(one, beam_size=300),
    "best first": lambda one: search(one, heuristic="trivial", beam_size=None),
}
call = calls[sys.argv[1]]
call(few)  # compiles all there is
for _ in range(3):
    begun = time.perf_counter()
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        call(problem)
    except KeyboardInterrupt:
        pass
    print("ended", time.perf_counter() - begun < 20.0)
"""


@pytest.mark.parametrize(("what", "n", "n_first"), [("beam", 4000, 100), ("best first", 60, 8)])
def test_an_interrupted_kernel_returns(what, n, n_first):
    done = subprocess.run(
        [sys.executable, "-c", _CODE, what, str(n), str(n_first)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ended True\n" * 3
