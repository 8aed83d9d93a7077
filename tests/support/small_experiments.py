"""Small settings, small data and a run, shared by the tests of `python -m studies reproduce`."""

import re

import numpy as np
import scipy.sparse as sp

from dpsearch import datasets, families, priors
from dpsearch.problem import Problem
from studies.reproduction import (
    artificial,
    data,
    mnist,
    nips,
)

DP, COUNTS = priors.DirichletProcess(1.0), priors.AntoniakCounts(1.0)
GAUSSIAN = families.Gaussian(0.0, 10.0, 1.0)
TINY = artificial.Settings(
    sizes=(4, 7, 16), n_sets=2, runs_per_start=1, sweeps=50, max_states=2000, proof_seconds=3.0,
    seed=3,
)  # fmt: skip
TINY_MNIST = mnist.Settings(
    shares=(0.05, 0.2), beam_sizes=(1, 2), refine_seconds=(0.3, 0.3), chain_seconds=(0.2, 0.2),
    starts=("one",), variant_beam=1,
)  # fmt: skip
TINY_NIPS = nips.Settings(
    beam_sizes=(1, 3), n_random=3, refine_seconds=0.3, chain_seconds=0.2, starts=("one", "all")
)


def silent(message):
    pass


def problem(n, dimension, prior, seed=0):
    return Problem(datasets.dirichlet_process_draw(n, dimension, rng=seed).X, GAUSSIAN, prior)


def documents(seed=0, n=120, width=60, topics=8):
    """Return documents of very different lengths about a few topics."""
    rng = np.random.default_rng(seed)
    by_topic = rng.dirichlet(np.full(width, 0.15), size=topics)
    lengths, about = rng.integers(5, 200, size=n), rng.integers(topics, size=n)
    counts = [rng.multinomial(m, by_topic[t]) for m, t in zip(lengths, about, strict=True)]
    return data.Documents(sp.csr_matrix(counts), [f"w{j}" for j in range(width)], "drawn")


def check_links(folder):
    """Check that every link of every page leads to a file."""
    for page in folder.glob("*.md"):
        links = re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
        assert links
        for link in links:
            assert link.startswith("http") or (folder / link).is_file(), (page, link)
