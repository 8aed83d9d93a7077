"""The laws of solvers: on a few points, they agree with the enumeration of all partitions."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dpsearch._types import Rng
from dpsearch.checks.law import agree, ensure
from dpsearch.estimator import DPMixture, load
from dpsearch.exact import certify
from dpsearch.families import FAMILIES, Family
from dpsearch.partition import all_partitions, by_appearance
from dpsearch.prefix_search.search import search
from dpsearch.priors import PRIORS, Prior
from dpsearch.problem import Clustering, Problem, log_joint
from dpsearch.refinement import refine
from dpsearch.samplers.run import gibbs, split_merge


@dataclass(frozen=True)
class Case:
    """A few points under a family and a prior, with the log joint of every partition."""

    X: Any
    family: Family
    prior: Prior

    @cached_property
    def problem(self) -> Problem:
        return Problem(self.X, self.family, self.prior)

    @cached_property
    def values(self) -> dict[tuple[int, ...], float]:
        partitions = all_partitions(self.problem.n_items)
        return {tuple(c.tolist()): self.problem.log_joint(c) for c in partitions}

    @cached_property
    def best(self) -> float:
        return max(self.values.values())

    @property
    def rounding(self) -> float:
        return 1e-8 * (1.0 + abs(self.best))

    def check_value(self, found: Clustering) -> None:
        """Raise unless a clustering has its own log joint, and none above the best."""
        agree("the log joint", found.log_joint, log_joint(self.problem, found.labels))
        highest = self.best + self.rounding
        ensure(found.log_joint <= highest, f"{found.log_joint} is above the best, {self.best}")


def search_finds_the_best(case: Case, rng: Rng) -> None:
    """A beam that holds every partition finds a best one."""
    found = search(case.problem, beam_size=1000)
    agree("the log joint that search found", found.log_joint, case.best)
    case.check_value(search(case.problem, beam_size=1))


def refine_improves(case: Case, rng: Rng) -> None:
    """Refinement ends at a partition that is no worse, and no better than the best."""
    start = search(case.problem, beam_size=1)
    found = refine(case.problem, start, rng=0)
    case.check_value(found)
    lowest = start.log_joint - 1e-9 * (1.0 + abs(start.log_joint))
    ensure(found.log_joint >= lowest, f"from {start.log_joint} to {found.log_joint}")


def certify_bounds_the_best(case: Case, rng: Rng) -> None:
    """The bounds of a certificate enclose the best partition, and agree when it is proved."""
    proof = certify(case.problem, search(case.problem), time_limit=2.0)
    lowest, highest = proof.lower_bound - case.rounding, proof.upper_bound + case.rounding + 1e-6
    ensure(
        lowest <= case.best <= highest,
        f"the bounds are {proof.lower_bound} and {proof.upper_bound}, the best is {case.best}",
    )
    if proof.optimal:
        agree("the log joint proved best", proof.lower_bound, case.best, 2e-6)


def samplers_draw_partitions(case: Case, rng: Rng) -> None:
    """Every draw of a sampler is a partition with its own log joint."""
    for sampler in (gibbs, split_merge):
        draws = sampler(case.problem, draws=40, rng=0)
        expected = [case.values[tuple(by_appearance(c).tolist())] for c in draws.labels]
        agree(f"the log joint of draws of {sampler.__name__}", draws.log_joint, expected)


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
