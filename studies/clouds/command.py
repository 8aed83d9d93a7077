"""How often a cloud is one cluster, and mixtures against the family that generated them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

import numpy as np
import typer
from sklearn.metrics import adjusted_rand_score

from dpsearch import DPMixture
from dpsearch._types import Labels, Matrix, Rng

_ROWS = 300
_SHARE = 0.95  # of draws with the planted number, and of the generating family's ARI


def _groups(rng: Rng, count: int) -> Labels:
    return rng.choice(count, size=_ROWS, p=(np.arange(count) + 1.0) / (count * (count + 1) / 2))


def _rated(rng: Rng) -> tuple[Matrix, int]:
    truth = rng.integers(2, size=_ROWS)[:, None]
    rating = rng.integers(1, 5, size=(_ROWS, 1))
    return np.hstack([rng.normal(size=(_ROWS, 2)) + 6.0 * truth, rating]), 2


CLOUDS: dict[str, Callable[[Rng], tuple[Matrix, int]]] = {
    "log-normal": lambda rng: (rng.lognormal(size=(_ROWS, 2)), 1),
    "Student t with 3 degrees": lambda rng: (rng.standard_t(3.0, size=(_ROWS, 2)), 1),
    "Gaussian, rounded": lambda rng: (np.rint(rng.normal(50.0, 2.0, size=(_ROWS, 2))), 1),
    "negative binomial": lambda rng: (rng.negative_binomial(2, 0.2, (_ROWS, 3)).astype(float), 1),
    "two groups beside 1 to 4": _rated,
}


def _skewed(rng: Rng) -> tuple[Matrix, Labels]:
    truth = _groups(rng, 3)
    return rng.lognormal(rng.normal(size=(3, 3))[truth] * 2.0, 0.7), truth


def _heavy(rng: Rng) -> tuple[Matrix, Labels]:
    truth = _groups(rng, 3)
    return rng.normal(size=(3, 3))[truth] * 6.0 + rng.standard_t(3.0, size=(_ROWS, 3)), truth


def _bursty(rng: Rng) -> tuple[Matrix, Labels]:
    truth = _groups(rng, 3)
    means = np.exp(rng.uniform(0.0, 4.5, size=(3, 4)))[truth]
    return rng.poisson(means * rng.gamma(2.0, 0.5, size=means.shape)).astype(float), truth


MIXTURES = {
    "skewed": (_skewed, "log_normal"),
    "heavy-tailed": (_heavy, "student_t"),
    "bursty": (_bursty, "negative_binomial"),
}


def clouds(
    draws: Annotated[int, typer.Option(help="Draws of each kind.")] = 20,
    seed: Annotated[int, typer.Option(help="Of the first draw.")] = 100,
) -> None:
    """Print how often clouds have the planted number of clusters, and the ARI of mixtures."""
    print("| cloud | planted number found | other numbers found | processor seconds per fit |")
    print("| --- | --- | --- | --- |")
    for name, plant in CLOUDS.items():
        begun, counts, wanted = time.process_time(), [], 1
        for i in range(draws):
            X, wanted = plant(np.random.default_rng(seed + i))
            counts.append(DPMixture().fit(X).n_clusters_)
        seconds = (time.process_time() - begun) / draws
        right = sum(count == wanted for count in counts)
        others = ", ".join(str(count) for count in sorted(counts) if count != wanted)
        met = "met" if right >= _SHARE * draws else "missed"
        print(f"| {name} | {right} of {draws}, {met} | {others} | {seconds:.2f} |", flush=True)
    print("\n| mixture | ARI of the automatic choice | of the generating family | ratio |")
    print("| --- | --- | --- | --- |")
    for name, (mixed, family) in MIXTURES.items():
        found = []
        for i in range(draws):
            X, truth = mixed(np.random.default_rng(seed + i))
            models = DPMixture().fit(X), DPMixture(family).fit(X)
            found.append([adjusted_rand_score(truth, model.labels_) for model in models])
        chosen, told = np.mean(found, axis=0)
        met = "met" if chosen >= _SHARE * told else "missed"
        print(f"| {name} | {chosen:.3f} | {told:.3f} | {chosen / told:.3f}, {met} |", flush=True)
