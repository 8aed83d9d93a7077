"""A few runs of all kernels with Numba's check of indices, which is off otherwise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import numpy as np
from models import DRAWS, ALL_PRIORS
from dpsearch.problem import Problem
from dpsearch.prefix_search.search import search
from dpsearch.refinement import refine

for name in ("gaussian", "multinomial"):
    for prior in (ALL_PRIORS[1], ALL_PRIORS[3]):
        for n in (1, 2, 9):
            family, X = DRAWS[name](np.random.default_rng(n), n)
            problem = Problem(X, family, prior)
            for beam_size in (1, 3):
                found = search(problem, beam_size=beam_size)
            if not prior.product_form:
                continue
            for start in (found.labels, np.zeros(n, np.int64), np.arange(n)):
                refine(problem, start, rng=0)
            pool, sizes = problem.rows(np.arange(n) // 2)
            blocks = Problem.of_items(problem.model, problem.model.blocks(pool, sizes), 0.0, prior)
            for start in (np.zeros(len(sizes), np.int64), np.arange(len(sizes))):
                refine(blocks, start, rng=0)
family, X = DRAWS["gaussian"](np.random.default_rng(0), 6)
for heuristic in ("admissible", "replica", "trivial", "inadmissible"):
    search(Problem(X, family, ALL_PRIORS[0]), heuristic=heuristic, beam_size=None)
print("no index out of bounds")
"""


@pytest.mark.slow
def test_no_kernel_reads_past_an_array(tmp_path):
    environment = os.environ | {
        "NUMBA_BOUNDSCHECK": "1",
        "NUMBA_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": str(Path(__file__).parents[1] / "support"),
    }
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False
    )
    assert run.stdout == "no index out of bounds\n", run.stderr[-2000:]
