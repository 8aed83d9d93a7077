"""What the experiments share: the two priors, and all methods on one data set.

Every method works in one thread, so that seconds compare; as many run at a time as there are jobs.
Only searches are run alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpsearch import priors
from dpsearch._types import Labels
from dpsearch.families.base import Family
from dpsearch.prefix_search.search import search
from dpsearch.priors.base import Prior
from dpsearch.problem import Problem
from dpsearch.refinement import refine
from studies.reproduction.cache import Cache, Result
from studies.reproduction.chains import MOVES, run_for
from studies.reproduction.data import fingerprint
from studies.reproduction.work import Check, Lazily, in_threads

ALPHA = 1.0  # in all of the paper's experiments that name it
PRIORS: dict[str, Prior] = {
    "paper": priors.AntoniakCounts(ALPHA),
    "true": priors.DirichletProcess(ALPHA),
}
SAMPLERS = ("gibbs", "split-merge")


class Found(NamedTuple):
    """A partition, valued under both priors (negative log joints)."""

    prior: str  # that it was searched with
    beam_size: int
    order: str
    paper_value: float
    true_value: float
    together: float  # all points in one cluster, under the true prior
    seconds: float  # from the start of the search
    labels: Labels

    def value(self, prior: str) -> float:
        return self.paper_value if prior == "paper" else self.true_value

    @property
    def clusters(self) -> int:
        return int(self.labels.max()) + 1

    @property
    def n_points(self) -> int:
        return len(self.labels)


class Chained(NamedTuple):
    """A sampler's run for a given time, and its best state under the true prior."""

    sampler: str
    start: str
    seconds: float
    sweeps: int
    best_seconds: float  # when the best state was reached
    paper_value: float
    true_value: float
    clusters: int

    def value(self, prior: str) -> float:
        return self.paper_value if prior == "paper" else self.true_value


class Part(NamedTuple):
    """The results of all methods on one data set."""

    searched: list[Found]
    refined: list[Found]
    chains: list[Chained]

    def of(self, prior: str, beam_size: int, order: str = "ascending") -> list[Found]:
        """Return the searches whose order's name has this beginning."""
        return [
            found
            for found in self.searched
            if (found.prior, found.beam_size) == (prior, beam_size)
            and found.order.startswith(order)
        ]

    def one(self, prior: str, beam_size: int, order: str = "ascending") -> Found:
        return self.of(prior, beam_size, order)[0]

    def best_chain(self, prior: str, sampler: str | None = None) -> Chained:
        mine = [c for c in self.chains if sampler in (None, c.sampler)]
        return min(mine, key=lambda chain: chain.value(prior))

    @property
    def best_refined(self) -> Found:
        return min(self.refined, key=lambda found: found.true_value)


def problems_of(X: Any, family: Family) -> dict[str, Problem]:
    """Return the problem under each prior."""
    true = Problem(X, family, PRIORS["true"])
    return {name: true.with_prior(prior) for name, prior in PRIORS.items()}


class Study:
    """One data set, whose results are kept in a cache."""

    def __init__(
        self,
        name: str,
        data: Callable[[], Any],
        family: Family,
        key: dict[str, Any],
        cache: Cache,
        seed: int,
        n_jobs: int,
    ) -> None:
        self.name, self.cache, self.seed, self.n_jobs = name, cache, seed, n_jobs
        self.key = {**key, "family": repr(family), "priors": repr(PRIORS), "seed": seed}
        self._data, self._family = data, family
        self.problems = Lazily(self._prepare)  # not if nothing has to be computed

    def _prepare(self) -> dict[str, Problem]:
        X = self._data()
        compile_kernels(X, self._family)
        return problems_of(X, self._family)

    def _valued(self, labels: Labels, seconds: float) -> Result:
        problems = self.problems()
        values = {f"{name}_value": -p.log_joint(labels) for name, p in problems.items()}
        values["together"] = -problems["true"].log_joint(np.zeros_like(labels))
        return Result({"seconds": seconds, **values}, {"labels": labels.astype(np.uint16)})

    def search(self, prior: str, beam_size: int, order: str = "ascending") -> Found:
        """Run searches; the name of a random order ends with its number."""

        def compute() -> Result:
            name, *number = order.split()
            rng = np.random.default_rng([self.seed, *map(int, number)])
            found = search(self.problems()[prior], beam_size=beam_size, order=name, rng=rng)
            return self._valued(found.labels, found.seconds)

        key = {**self.key, "prior": prior, "beam": beam_size, "order": order}
        return _found(self.cache.unit(f"{self.name}-search", key, compute), prior, beam_size, order)

    def refine(self, starts: Sequence[Found], seconds: float) -> list[Found]:
        """Refine each partition under the true prior; times include the search."""

        def one(start: Found, check: Check) -> Found:
            def compute() -> Result:
                result = refine(
                    self.problems()["true"], start.labels, seconds=seconds, rng=self.seed,
                    n_jobs=1, callback=lambda point: check(),
                )  # fmt: skip
                return self._valued(result.labels, result.seconds)

            key = {**self.key, "start": fingerprint(start.labels), "seconds": seconds}
            found = _found(
                self.cache.unit(f"{self.name}-refine", key, compute, self.n_jobs),
                start.prior, start.beam_size, start.order,
            )  # fmt: skip
            return found._replace(seconds=start.seconds + found.seconds)

        return in_threads(one, starts, self.n_jobs)

    def chains(self, starts: Sequence[str], seconds: float) -> list[Chained]:
        """Run samplers of the true posterior, each for a given time."""
        wanted = [(sampler, start) for sampler in SAMPLERS for start in starts]

        def one(which: tuple[str, str], check: Check) -> Chained:
            sampler, start = which

            def compute() -> Result:
                problem = self.problems()["true"]
                run = run_for(problem, sampler, start, seconds, self.seed, check)
                about = {
                    "seconds": float(run.seconds[-1]),
                    "sweeps": len(run.seconds),
                    "best_seconds": float(run.seconds[run.log_joint.argmax()]),
                    "clusters": int(run.labels.max()) + 1,
                }
                return Result({**self._valued(run.labels, 0.0).values, **about})

            key = {**self.key, "sampler": sampler, "start": start, "for": seconds}
            values = self.cache.unit(f"{self.name}-chain", key, compute, self.n_jobs).values
            del values["together"]
            return Chained(sampler=sampler, start=start, **values)

        return in_threads(one, wanted, self.n_jobs)


def _found(result: Result, prior: str, beam_size: int, order: str) -> Found:
    labels = result.arrays["labels"].astype(np.int64)
    return Found(prior=prior, beam_size=beam_size, order=order, labels=labels, **result.values)


def compile_kernels(X: Any, family: Family) -> None:
    """Compile or load all kernels, so that this is not timed."""
    few = problems_of(X[:60], family)
    for problem in few.values():
        for beam_size in (1, 2):
            search(problem, beam_size=beam_size)
    start = np.zeros(few["true"].n_items, np.int64)
    refine(few["true"], start, seconds=1.0, rng=0, n_jobs=1)
    for sampler in MOVES:
        run_for(few["true"], sampler, "search", 0.0, 0)
