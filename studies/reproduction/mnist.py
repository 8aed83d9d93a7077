"""Section 4.2: handwritten digits, for 5 %, 20 % and all of MNIST."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dpsearch import datasets, families
from dpsearch._types import Labels, Matrix
from dpsearch.partition import by_size
from dpsearch.prefix_search.search import search
from studies.reproduction.cache import Cache, Result
from studies.reproduction.data import fingerprint
from studies.reproduction.study import PRIORS, Part, Study, problems_of
from studies.reproduction.work import Tell

PRIOR_VARIANCE, NOISE_VARIANCE, COMPONENTS = 0.1, 1.0, 50
FAMILY = families.Gaussian(0.0, PRIOR_VARIANCE, NOISE_VARIANCE)
WHOLE = 60_000


@dataclass(frozen=True)
class Settings:
    shares: tuple[float, ...] = (0.05, 0.2, 1.0)
    beam_sizes: tuple[int, ...] = (10, 100)  # the paper's last
    refine_seconds: tuple[float, ...] = (10.0, 30.0, 120.0)  # by share
    chain_seconds: tuple[float, ...] = (20.0, 40.0, 90.0)
    starts: tuple[str, ...] = ("one", "log", "search")
    variant_beam: int = 10
    seed: int = 0


QUICK = Settings(
    shares=(0.05,), beam_sizes=(1, 10), refine_seconds=(1.0,), chain_seconds=(1.0,),
    starts=("one", "search"), variant_beam=1,
)  # fmt: skip


class Varied(NamedTuple):
    """The result of search on the smallest share after other preprocessing."""

    words: str
    together: float  # negative log joint of one cluster under the true prior
    paper_value: float
    paper_clusters: int
    true_value: float
    true_clusters: int


class Outcome(NamedTuple):
    parts: dict[float, Part]  # by share
    variants: list[Varied]
    images: dict[float, Any]
    truth: dict[float, Labels]
    missing: list[float]  # shares that there were too few digits for


def run(
    digits: datasets.Digits, settings: Settings, cache: Cache, n_jobs: int, tell: Tell
) -> Outcome:
    """Run everything; shares larger than the available digits are left out."""
    rows = {share: _rows(digits, share, settings.seed) for share in settings.shares}
    missing = [share for share, chosen in rows.items() if chosen is None]
    there = {share: chosen for share, chosen in rows.items() if chosen is not None}
    images = {share: digits.images[chosen] for share, chosen in there.items()}
    parts = {}
    for at, share in enumerate(settings.shares):
        if share in there:
            limits = settings.refine_seconds[at], settings.chain_seconds[at]
            parts[share] = _part(share, images[share], settings, *limits, cache, n_jobs, tell)
    tell("MNIST: variants of the preprocessing")
    variants = _variants(digits, there[min(there)], cache, settings)
    truth = {share: digits.labels[chosen] for share, chosen in there.items()}
    return Outcome(parts, variants, images, truth, missing)


def _rows(digits: datasets.Digits, share: float, seed: int) -> Labels | None:
    """Return the rows of a share; the embedded 3,000 digits are the 5 % of the whole set."""
    n = round(share * WHOLE)
    if n > len(digits.images):
        return None
    if n == len(digits.images):
        return np.arange(n)
    embedded = datasets.mnist_digits()
    if n == len(embedded.rows) and len(digits.images) == WHOLE:
        return embedded.rows
    return np.random.default_rng(seed).permutation(len(digits.images))[:n]


def _part(
    share: float,
    images: Any,
    settings: Settings,
    refine_seconds: float,
    chain_seconds: float,
    cache: Cache,
    n_jobs: int,
    tell: Tell,
) -> Part:
    """Run all methods on one share of the digits."""
    key = {"data": fingerprint(images), "components": COMPONENTS}
    study = Study(
        "mnist", lambda: datasets.whitened(images, COMPONENTS), FAMILY, key, cache, settings.seed,
        n_jobs,
    )  # fmt: skip
    tell(f"MNIST {share:.0%}: search")
    searched = [study.search(prior, beam) for prior in PRIORS for beam in settings.beam_sizes]
    tell(f"MNIST {share:.0%}: refinement, {refine_seconds:g} s from each")
    last = [found for found in searched if found.beam_size == settings.beam_sizes[-1]]
    refined = study.refine(last, refine_seconds)
    tell(f"MNIST {share:.0%}: samplers, {chain_seconds:g} s for each chain")
    return Part(searched, refined, study.chains(settings.starts, chain_seconds))


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
            problems = problems_of(preprocess(images.astype(np.float64)), FAMILY)
            together = -problems["true"].log_joint(np.zeros(len(images), np.int64))
            values: dict[str, Any] = {"together": together}
            for name, problem in problems.items():
                found = search(problem, beam_size=settings.variant_beam)
                values[f"{name}_value"] = -found.log_joint
                values[f"{name}_clusters"] = found.n_clusters
            return Result(values)

        key = {
            "data": fingerprint(images), "words": words, "beam": settings.variant_beam,
            "of": len(digits.images), "family": repr(FAMILY), "priors": repr(PRIORS),
        }  # fmt: skip
        out.append(Varied(words=words, **cache.unit("mnist-variant", key, compute).values))
    return out


def digit_shares(labels: Labels, truth: Labels) -> Matrix:
    """Return for each cluster the share of each digit."""
    labels = by_size(labels)
    table = np.zeros((int(labels.max()) + 1, 10))
    np.add.at(table, (labels, truth), 1.0)
    return np.asarray(table / table.sum(axis=1, keepdims=True))
