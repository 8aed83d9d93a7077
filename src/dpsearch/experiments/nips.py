"""Section 4.3: documents of the NIPS proceedings, by counts of words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dpsearch import families, priors
from dpsearch._types import Labels
from dpsearch.experiments.cache import Cache, Result
from dpsearch.experiments.chains import PLANS, run_for
from dpsearch.experiments.data import Documents, fingerprint
from dpsearch.experiments.work import Check, Lazily, in_threads, refine_for
from dpsearch.objective import Problem
from dpsearch.prefix_search import search_problem
from dpsearch.priors.base import Prior
from dpsearch.refinement import refine_problem

ALPHA, CONCENTRATION = 1.0, 10.0
FAMILY = families.Multinomial(CONCENTRATION)
PRIORS: dict[str, Prior] = {
    "paper": priors.AntoniakCounts(ALPHA),
    "true": priors.DirichletProcess(ALPHA),
}


@dataclass(frozen=True)
class Settings:
    beam_sizes: tuple[int, ...] = (1, 10, 100)
    n_random: int = 10
    refine_seconds: float = 30.0
    chain_seconds: float = 30.0
    starts: tuple[str, ...] = ("one", "all", "log", "search")
    seed: int = 0


QUICK = Settings(
    beam_sizes=(1, 10), n_random=4, refine_seconds=2.0, chain_seconds=2.0,
    starts=("one", "search"),
)  # fmt: skip


class Searched(NamedTuple):
    """A partition, valued under both priors (negative log joints)."""

    prior: str
    beam_size: int
    order: str  # ascending, descending, random 0, …
    paper_value: float
    true_value: float
    clusters: int
    seconds: float
    labels: Labels

    def value(self, prior: str) -> float:
        return self.paper_value if prior == "paper" else self.true_value


class Chained(NamedTuple):
    sampler: str
    start: str
    seconds: float
    sweeps: int
    paper_value: float
    true_value: float
    clusters: int


class Outcome(NamedTuple):
    searched: list[Searched]
    refined: list[Searched]
    chains: list[Chained]

    def of(self, prior: str, beam_size: int, order: str) -> list[Searched]:
        """Searches whose order's name begins so."""
        return [
            found
            for found in self.searched
            if (found.prior, found.beam_size) == (prior, beam_size)
            and found.order.startswith(order)
        ]


def run(
    documents: Documents,
    settings: Settings,
    cache: Cache,
    n_jobs: int,
    tell: Callable[[str], None],
) -> Outcome:
    """Run everything on documents whose vocabulary is reduced already."""
    counts = documents.counts
    data = fingerprint(counts.data, counts.indices, counts.indptr)

    def prepare() -> dict[str, Problem]:
        _compile(counts)
        true = Problem.of(counts, FAMILY, PRIORS["true"])
        return {"paper": true.with_prior(PRIORS["paper"]), "true": true}

    problems = Lazily(prepare)  # not if nothing has to be computed

    def valued(labels: Labels, seconds: float) -> Result:
        values: dict[str, Any] = {
            f"{name}_value": -problem.log_joint(labels) for name, problem in problems().items()
        }
        return Result({"seconds": seconds, **values}, {"labels": labels.astype(np.uint16)})

    def searched(result: Result, prior: str, beam: int, order: str) -> Searched:
        labels = result.arrays["labels"].astype(np.int64)
        return Searched(
            prior=prior, beam_size=beam, order=order, clusters=int(labels.max()) + 1,
            labels=labels, **result.values,
        )  # fmt: skip

    def search(prior: str, beam: int, order: str) -> Searched:
        def compute() -> Result:
            name, *number = order.split()
            rng = np.random.default_rng([settings.seed, *map(int, number)])
            found = search_problem(problems()[prior], beam_size=beam, order=name, rng=rng)
            return valued(found.labels, found.seconds)

        key = {"data": data, "prior": prior, "beam": beam, "order": order, "seed": settings.seed}
        return searched(cache.unit("nips-search", key, compute), prior, beam, order)

    def refine(found: Searched) -> Searched:
        def compute() -> Result:
            result = refine_for(
                problems()["true"], found.labels, settings.refine_seconds,
                seed=settings.seed, n_jobs=n_jobs,
            )  # fmt: skip
            return valued(result.labels, result.seconds)

        key = {
            "data": data, "start": fingerprint(found.labels), "seconds": settings.refine_seconds,
            "seed": settings.seed,
        }  # fmt: skip
        result = cache.unit("nips-refine", key, compute)
        return searched(result, found.prior, found.beam_size, found.order)

    def chain(which: tuple[str, str], check: Check) -> Chained:
        sampler, start = which

        def compute() -> Result:
            run = run_for(
                problems()["true"], sampler, start, settings.chain_seconds, settings.seed, check
            )
            about = {
                "sweeps": len(run.seconds), "seconds": float(run.seconds[-1]),
                "clusters": int(run.labels.max()) + 1,
            }  # fmt: skip
            return Result({**valued(run.labels, 0.0).values, **about})

        key = {
            "data": data, "sampler": sampler, "start": start, "seed": settings.seed,
            "seconds": settings.chain_seconds,
        }  # fmt: skip
        values = cache.unit("nips-chain", key, compute).values
        return Chained(sampler=sampler, start=start, **values)

    tell("NIPS: searches")
    orders = ["ascending", "descending", *(f"random {i}" for i in range(settings.n_random))]
    found = [
        search(prior, beam, order)
        for prior in PRIORS
        for beam in settings.beam_sizes
        for order in orders
    ]
    out = Outcome(found, [], [])
    tell(f"NIPS: refinement, {settings.refine_seconds:g} s from each")
    out.refined.extend(
        refine(out.of(prior, settings.beam_sizes[-1], "ascending")[0]) for prior in PRIORS
    )
    tell(f"NIPS: samplers, {settings.chain_seconds:g} s for each chain")
    wanted = [(sampler, start) for sampler in PLANS for start in settings.starts]
    out.chains.extend(in_threads(chain, wanted, n_jobs))
    return out


def _compile(counts: Any) -> None:
    """Have all kernels compiled or loaded, so that they are not timed."""
    few = Problem.of(counts[:60], FAMILY, PRIORS["true"])
    for problem in (few, few.with_prior(PRIORS["paper"])):
        for beam in (1, 2):
            search_problem(problem, beam_size=beam)
    refine_problem(few, np.zeros(60, np.int64), seconds=1.0, rng=0)
    for sampler in PLANS:
        run_for(few, sampler, "search", 0.0, 0)
