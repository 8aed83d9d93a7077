"""How chains are run: what users may set, checked, and turned into what kernels see."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsearch._types import Labels
from dpsearch._validate import whole
from dpsearch.errors import CapabilityError, ParameterError
from dpsearch.problem import Problem
from dpsearch.samplers.chain import RANDOM_ITEMS, SHUFFLED, SYSTEMATIC, Chain, Plan
from dpsearch.samplers.hyperparameters import Hyperparameters

SCANS = {"systematic": SYSTEMATIC, "shuffled": SHUFFLED, "random": RANDOM_ITEMS}
ALPHAS = ("integrate", "sample")


@dataclass(frozen=True)
class Settings:
    """How chains are run, in plain numbers and words."""

    sampler: str
    draws: int
    burn_in: int
    thin: int
    chains: int
    moves: int
    rule: int
    scans: int
    gibbs: bool
    scan: str
    start: str  # a name, or a digest of labels
    alpha: str
    spreads: tuple[tuple[str, float], ...]

    def plan(self, problem: Problem) -> Plan:
        gamma = problem.prior.alpha_prior
        sampled = self.alpha == "sample" and gamma is not None
        shape, rate = (1.0, 1.0) if gamma is None else (gamma.shape, gamma.rate)
        return Plan(
            self.moves, self.rule, self.scans, self.gibbs, SCANS[self.scan], sampled,
            float(shape), float(rate),
        )  # fmt: skip

    def kept(self) -> Any:
        """Which sweeps are kept: every `thin`-th after burn-in."""
        sweeps = np.arange(1, self.draws + 1)
        return (sweeps > self.burn_in) & ((sweeps - self.burn_in) % self.thin == 0)


def new_chain(
    problem: Problem, settings: Settings, labels: Labels, rng: np.random.Generator
) -> Chain:
    sampled = Hyperparameters(problem, dict(settings.spreads)) if settings.spreads else None
    return Chain(problem, labels, settings.plan(problem), rng, sampled)


def checked(problem: Problem, settings: Settings) -> Settings:
    """Return the settings in Python's own numbers, or raise."""
    if not problem.prior.product_form:
        raise CapabilityError(
            f"samplers need a prior over partitions of product form; {problem.prior.name} is not:"
            " use DirichletProcess"
        )
    least = {"draws": 1, "burn_in": 0, "thin": 1, "chains": 1, "moves": 0, "scans": 0}
    if not settings.gibbs:
        least["moves"] = 1
    numbers: dict[str, Any] = {
        name: whole(getattr(settings, name), name, smallest) for name, smallest in least.items()
    }
    if settings.burn_in + settings.thin > settings.draws:
        raise ParameterError(
            f"burn_in {settings.burn_in} and thin {settings.thin} leave nothing of"
            f" {settings.draws} draws: draws counts all sweeps, burn-in included"
        )
    if not isinstance(settings.scan, str) or settings.scan not in SCANS:
        raise ParameterError(f"unknown scan {settings.scan!r}: known are {', '.join(SCANS)}")
    if settings.alpha not in ALPHAS:
        raise ParameterError(f"alpha must be one of {', '.join(ALPHAS)}, got {settings.alpha!r}")
    if settings.alpha == "sample" and problem.prior.alpha_prior is None:
        raise ParameterError(
            "alpha='sample' needs a prior on α: DirichletProcess(Gamma(shape, rate))"
        )
    return replace(settings, **numbers)
