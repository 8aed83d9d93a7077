"""The laws of solvers: on a few points they agree with the enumeration of all partitions."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import Labels, Rng
from dpsearch.checks.law import agree, ensure
from dpsearch.estimator import DPMixture, load
from dpsearch.exact import certify
from dpsearch.families import FAMILIES, Family
from dpsearch.partition import all_partitions, by_appearance
from dpsearch.prefix_search import search
from dpsearch.priors import PRIORS, Prior
from dpsearch.problem import Problem, log_joint
from dpsearch.refinement import refine
from dpsearch.samplers.gibbs import gibbs
from dpsearch.samplers.split_merge import split_merge

N_POINTS = 6


class Case(NamedTuple):
    """A few points under a family and a prior."""

    X: Any
    family: Family
    prior: Prior


@cache
def partitions(n: int) -> tuple[tuple[int, ...], ...]:
    """Return the labels of every partition of n points, numbered by first appearance."""
    return tuple(tuple(int(k) for k in labels) for labels in all_partitions(n))


def enumerated(case: Case) -> dict[tuple[int, ...], float]:
    """Return the log joint of every partition."""
    problem = Problem(*case)
    return {c: problem.log_joint(np.array(c)) for c in partitions(problem.n_items)}


def _worth(case: Case, labels: Labels, value: float, best: float) -> None:
    """Raise unless a partition has the value that a solver says, and none above the best."""
    agree("the log joint", value, log_joint(case.X, labels, case.family, case.prior))
    ensure(value <= best + 1e-8 * (1.0 + abs(best)), f"{value} is above the best, {best}")


def search_finds_the_best(case: Case, rng: Rng) -> None:
    """A beam that holds every partition finds a best one."""
    best = max(enumerated(case).values())
    found = search(*case, beam_size=1000)
    agree("the log joint that search found", found.log_joint, best)
    greedy = search(*case, beam_size=1)
    _worth(case, greedy.labels, greedy.log_joint, best)


def refine_improves(case: Case, rng: Rng) -> None:
    """Refinement ends at a partition that is no worse, and no better than the best."""
    start = search(*case, beam_size=1)
    found = refine(case.X, start, case.family, case.prior, rng=0)
    _worth(case, found.labels, found.log_joint, max(enumerated(case).values()))
    lowest = start.log_joint - 1e-9 * (1.0 + abs(start.log_joint))
    ensure(found.log_joint >= lowest, f"from {start.log_joint} to {found.log_joint}")


def certify_bounds_the_best(case: Case, rng: Rng) -> None:
    """The bounds of a certificate enclose the best partition, and agree when it is proved."""
    best = max(enumerated(case).values())
    proof = certify(case.X, search(*case), case.family, case.prior, time_limit=2.0)
    rounding = 1e-8 * (1.0 + abs(best))
    ensure(
        proof.lower_bound - rounding <= best <= proof.upper_bound + rounding + 1e-6,
        f"the bounds are {proof.lower_bound} and {proof.upper_bound}, the best is {best}",
    )
    if proof.optimal:
        agree("the log joint proved best", proof.lower_bound, best, 2e-6)


def samplers_draw_partitions(case: Case, rng: Rng) -> None:
    """Every draw of a sampler is a partition with its own log joint."""
    values = enumerated(case)
    for sampler in (gibbs, split_merge):
        draws = sampler(*case, draws=40, rng=0)
        wanted = [values[tuple(by_appearance(c).tolist())] for c in draws.labels]
        agree(f"the log joint of draws of {sampler.__name__}", draws.log_joint, wanted)


def model_is_saved_and_loaded(case: Case, rng: Rng) -> None:
    """A fitted `DPMixture` comes back from its file and predicts the same."""
    model = DPMixture(family=case.family, alpha=case.prior, random_state=0).fit(case.X)
    with (
        tempfile.TemporaryDirectory() as folder,
        FAMILIES.knowing(type(case.family)),
        PRIORS.knowing(type(case.prior)),
    ):
        model.save(Path(folder) / "model.npz")
        loaded = load(Path(folder) / "model.npz")
    ensure(loaded.family_.to_dict() == model.family_.to_dict(), f"{loaded.family_} came back")
    ensure(np.array_equal(loaded.labels_, model.labels_), "other labels came back")
    agree("log_joint_", loaded.log_joint_, model.log_joint_, 0.0)
    agree("the scores", loaded.score_samples(case.X), model.score_samples(case.X), 1e-10)


SOLVERS = [
    search_finds_the_best,
    refine_improves,
    certify_bounds_the_best,
    samplers_draw_partitions,
    model_is_saved_and_loaded,
]
