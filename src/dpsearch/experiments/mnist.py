"""Section 4.2: handwritten digits, in a share of 5 %, 20 % and all of MNIST."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dpsearch import datasets, families, priors
from dpsearch._types import Labels, Matrix
from dpsearch.experiments.cache import Cache, Result
from dpsearch.experiments.chains import PLANS, run_for
from dpsearch.experiments.data import fingerprint
from dpsearch.experiments.work import Check, Lazily, in_threads, refine_for
from dpsearch.objective import Problem
from dpsearch.partition import by_size
from dpsearch.prefix_search import search_problem
from dpsearch.priors.base import Prior
from dpsearch.refinement import refine_problem

ALPHA, PRIOR_VARIANCE, NOISE_VARIANCE, COMPONENTS = 1.0, 0.1, 1.0, 50
FAMILY = families.Gaussian(0.0, PRIOR_VARIANCE, NOISE_VARIANCE)
PRIORS: dict[str, Prior] = {
    "paper": priors.AntoniakCounts(ALPHA),
    "true": priors.DirichletProcess(ALPHA),
}
WHOLE = 60_000


@dataclass(frozen=True)
class Settings:
    shares: tuple[float, ...] = (0.05, 0.2, 1.0)
    beam_size: int = 100
    refine_seconds: tuple[float, ...] = (10.0, 30.0, 120.0)  # by share
    chain_seconds: tuple[float, ...] = (20.0, 40.0, 120.0)
    starts: tuple[str, ...] = ("one", "log", "search")
    variant_beam: int = 10
    seed: int = 0


QUICK = Settings(
    shares=(0.05,), beam_size=10, refine_seconds=(2.0,), chain_seconds=(2.0,),
    starts=("one", "search"), variant_beam=1,
)  # fmt: skip


class Searched(NamedTuple):
    """A partition, valued under both priors (negative log joints)."""

    share: float
    n_points: int
    prior: str  # that it was found with
    paper_value: float
    true_value: float
    together: float  # all points in one cluster, which has the same value under both priors
    clusters: int
    seconds: float
    labels: Labels

    def value(self, prior: str) -> float:
        return self.paper_value if prior == "paper" else self.true_value


class Chained(NamedTuple):
    """A sampler's run for a time."""

    share: float
    sampler: str
    start: str
    seconds: float
    sweeps: int
    paper_value: float
    true_value: float
    clusters: int


class Varied(NamedTuple):
    """Search on the smallest share after other preprocessing."""

    words: str
    together: float  # negative log joint of one cluster under the true prior
    paper_value: float
    paper_clusters: int
    true_value: float
    true_clusters: int


class Outcome(NamedTuple):
    searched: list[Searched]
    refined: list[Searched]
    chains: list[Chained]
    variants: list[Varied]
    images: dict[float, Any]  # by share
    truth: dict[float, Labels]


def run(
    digits: datasets.Digits,
    settings: Settings,
    cache: Cache,
    n_jobs: int,
    tell: Callable[[str], None],
) -> Outcome:
    """Run everything; shares that the digits do not reach are left out."""
    rows = {}
    for share in settings.shares:
        chosen = _rows(digits, share, settings.seed)
        if chosen is not None:
            rows[share] = chosen
    out = Outcome(
        [], [], [], [],
        {share: digits.images[chosen] for share, chosen in rows.items()},
        {share: digits.labels[chosen] for share, chosen in rows.items()},
    )  # fmt: skip
    for at, share in enumerate(settings.shares):
        if share not in rows:
            continue
        part = _Part(share, out.images[share], cache, settings, n_jobs)
        tell(f"MNIST {share:.0%}: search")
        searched = [part.search(prior) for prior in PRIORS]
        out.searched.extend(searched)
        tell(f"MNIST {share:.0%}: refinement, {settings.refine_seconds[at]:g} s from each")
        out.refined.extend(part.refine(found, settings.refine_seconds[at]) for found in searched)
        tell(f"MNIST {share:.0%}: samplers, {settings.chain_seconds[at]:g} s for each chain")
        out.chains.extend(part.chains(settings.chain_seconds[at]))
    tell("MNIST: variants of the preprocessing")
    smallest = min(rows)
    out.variants.extend(_variants(digits, rows[smallest], cache, settings))
    return out


def _rows(digits: datasets.Digits, share: float, seed: int) -> Labels | None:
    """Rows of a share; the embedded 3,000 digits are the 5 %, also of the whole set."""
    n = round(share * WHOLE)
    if n > len(digits.images):
        return None
    if n == len(digits.images):
        return np.arange(n)
    embedded = datasets.mnist_digits()
    if n == len(embedded.rows) and len(digits.images) == WHOLE:
        return embedded.rows
    return np.random.default_rng(seed).permutation(len(digits.images))[:n]


class _Part:
    """One share of the digits."""

    def __init__(
        self, share: float, images: Any, cache: Cache, settings: Settings, n_jobs: int
    ) -> None:
        self.share, self.images, self.cache = share, images, cache
        self.settings, self.n_jobs = settings, n_jobs
        self.key = {"share": share, "data": fingerprint(images)}
        self.problems = Lazily(self._prepare)  # not if nothing has to be computed

    def _prepare(self) -> dict[str, Problem]:
        X = datasets.whitened(self.images, COMPONENTS)
        _compile(X)
        true = Problem.of(X, FAMILY, PRIORS["true"])
        return {"paper": true.with_prior(PRIORS["paper"]), "true": true}

    def _valued(self, prior: str, labels: Labels, seconds: float) -> Result:
        values = {
            f"{name}_value": -problem.log_joint(labels) for name, problem in self.problems().items()
        }
        values["together"] = -self.problems()["true"].log_joint(np.zeros_like(labels))
        return Result(
            {"prior": prior, "seconds": seconds, **values},
            {"labels": labels.astype(np.uint16)},
        )

    def _searched(self, result: Result) -> Searched:
        labels = result.arrays["labels"].astype(np.int64)
        n_points, clusters = len(labels), int(labels.max()) + 1
        return Searched(
            share=self.share, n_points=n_points, clusters=clusters, labels=labels, **result.values
        )

    def search(self, prior: str) -> Searched:
        beam = self.settings.beam_size

        def compute() -> Result:
            found = search_problem(self.problems()[prior], beam_size=beam)
            return self._valued(prior, found.labels, found.seconds)

        key = {**self.key, "prior": prior, "beam": beam}
        return self._searched(self.cache.unit("mnist-search", key, compute))

    def refine(self, found: Searched, seconds: float) -> Searched:
        """Refine under the true prior, from a partition found with either."""

        def compute() -> Result:
            result = refine_for(
                self.problems()["true"], found.labels, seconds,
                seed=self.settings.seed, n_jobs=self.n_jobs,
            )  # fmt: skip
            return self._valued(found.prior, result.labels, result.seconds)

        key = {
            **self.key, "prior": found.prior, "start": fingerprint(found.labels),
            "seconds": seconds, "seed": self.settings.seed,
        }  # fmt: skip
        return self._searched(self.cache.unit("mnist-refine", key, compute))

    def chains(self, seconds: float) -> list[Chained]:
        """Run samplers of the true posterior, as many at a time as there are threads."""
        wanted = [(sampler, start) for sampler in PLANS for start in self.settings.starts]

        def one(which: tuple[str, str], check: Check) -> Chained:
            sampler, start = which

            def compute() -> Result:
                problems = self.problems()
                run = run_for(problems["true"], sampler, start, seconds, self.settings.seed, check)
                values = {name: -p.log_joint(run.labels) for name, p in problems.items()}
                return Result(
                    {
                        "seconds": float(run.seconds[-1]), "sweeps": len(run.seconds),
                        "clusters": int(run.labels.max()) + 1,
                        **{f"{name}_value": value for name, value in values.items()},
                    }
                )  # fmt: skip

            key = {
                **self.key, "sampler": sampler, "start": start, "seconds": seconds,
                "seed": self.settings.seed,
            }  # fmt: skip
            values = self.cache.unit("mnist-chain", key, compute).values
            return Chained(share=self.share, sampler=sampler, start=start, **values)

        return in_threads(one, wanted, self.n_jobs)


def _compile(X: Matrix) -> None:
    """Have all kernels compiled or loaded, so that they are not timed."""
    few = Problem.of(X[:60], FAMILY, PRIORS["true"])
    for problem in (few, few.with_prior(PRIORS["paper"])):
        search_problem(problem, beam_size=2)
    refine_problem(few, np.arange(60), rng=0)
    for sampler in PLANS:
        run_for(few, sampler, "search", 0.0, 0)


# -- what the paper leaves unsaid --------------------------------------------------------------


def _unit_scale(X: Matrix) -> Matrix:
    """Scale all columns by one factor to mean variance 1."""
    return np.asarray(X / np.sqrt(X.var(axis=0).mean()))


def _standardised(images: Any) -> Matrix:
    """Scale each pixel to unit variance; those that never vary stay 0."""
    deviation = images.std(axis=0)
    scaled = (images - images.mean(axis=0)) / np.where(deviation > 0.0, deviation, 1.0)
    return np.asarray(scaled)


def _on_sphere(images: Any) -> Matrix:
    """Scale each centred image to unit length."""
    centred = images - images.mean(axis=0)
    return np.asarray(centred / np.linalg.norm(centred, axis=1, keepdims=True))


def _components(X: Any) -> Matrix:
    return datasets.principal_components(X, COMPONENTS)


VARIANTS: dict[str, Callable[[Any], Matrix]] = {
    "centred, PCA to 50, each component to variance 1 (used above)": datasets.whitened,
    "centred, PCA to 50, pixels from 0 to 1": lambda images: _components(images / 255.0),
    "centred, PCA to 50, one factor to mean variance 1": lambda i: _unit_scale(_components(i)),
    "each pixel to variance 1, PCA to 50": lambda i: _components(_standardised(i)),
    "each pixel to variance 1, PCA to 50, one factor to mean variance 1": (
        lambda images: _unit_scale(_components(_standardised(images)))
    ),
    "each pixel to variance 1, PCA to 50, each component to variance 1": (
        lambda images: datasets.whitened(_standardised(images))
    ),
    "each image to length 1, PCA to 50": lambda images: _components(_on_sphere(images)),
    "each image to length 1, PCA to 50, each component to variance 1": (
        lambda images: datasets.whitened(_on_sphere(images))
    ),
}
FROM_ALL = "as used above, but with mean and components of all 60,000 images"


def _variants(
    digits: datasets.Digits, rows: Labels, cache: Cache, settings: Settings
) -> list[Varied]:
    images = digits.images[rows]
    variants = dict(VARIANTS)
    if len(rows) < len(digits.images):
        variants[FROM_ALL] = lambda _: datasets.whitened(digits.images)[rows]
    out = []
    for words, preprocess in variants.items():

        def compute(preprocess: Callable[[Any], Matrix] = preprocess) -> Result:
            true = Problem.of(preprocess(images.astype(np.float64)), FAMILY, PRIORS["true"])
            values: dict[str, Any] = {"together": -true.log_joint(np.zeros(len(images), np.int64))}
            for name, prior in PRIORS.items():
                found = search_problem(true.with_prior(prior), beam_size=settings.variant_beam)
                values[f"{name}_value"] = -found.log_joint
                values[f"{name}_clusters"] = found.n_clusters
            return Result(values)

        key = {
            "data": fingerprint(images), "words": words, "beam": settings.variant_beam,
            "of": len(digits.images),
        }  # fmt: skip
        out.append(Varied(words=words, **cache.unit("mnist-variant", key, compute).values))
    return out


def digit_shares(labels: Labels, truth: Labels) -> Matrix:
    """For each cluster the share of each digit."""
    labels = by_size(labels)
    table = np.zeros((int(labels.max()) + 1, 10))
    np.add.at(table, (labels, truth), 1.0)
    return np.asarray(table / table.sum(axis=1, keepdims=True))
