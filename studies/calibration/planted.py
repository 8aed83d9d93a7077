"""Bugs that the study must detect, each planted in a running copy of the package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from scipy.special import gammaln

from dpsearch import explain
from dpsearch.mixture import Mixture
from dpsearch.priors import DirichletProcess
from dpsearch.samplers import AlphaUpdate
from studies.calibration.ranks import Ranks, of_outliers, of_predictions, of_samplers


class Bug(NamedTuple):
    """A bug, how to plant it, and the part of the study that must detect it."""

    what: str
    planted: Callable[[], Any]
    ranks: Callable[[int, int], list[Ranks]]


def _shape() -> Any:
    right = AlphaUpdate.planned

    def wrong(self: Any, plan: Any, problem: Any) -> Any:
        plan = right(self, plan, problem)
        return plan._replace(shape=plan.shape + 1.0)

    return patch.object(AlphaUpdate, "planned", wrong)


def _guest_counted_twice() -> Any:
    return patch.object(DirichletProcess, "log_w", lambda self, sizes: gammaln(sizes + 1.0))


@contextmanager
def _no_sizes() -> Iterator[None]:
    right = Mixture.__init__

    def wrong(self: Any, *given: Any) -> None:
        right(self, *given)
        inside = np.log1p(-np.exp(self.log_fresh_weight)) - np.log(self.n_components)
        self.log_weights = np.full(self.n_components, inside)

    with patch.object(Mixture, "__init__", wrong):
        yield


def _whole_draws() -> Any:
    def wrong(mixture: Any, lengths: Any, missing: Any, *rest: Any) -> Any:
        return explain._p_values_of_whole(mixture, lengths, *rest)

    return patch.object(explain, "_p_values_with_gaps", wrong)


BUGS = (
    Bug(
        "the shape in the update of α is too large by one", _shape,
        lambda count, seed: [*of_samplers("Gaussian", "gibbs, α sampled", count, seed)],
    ),
    Bug(
        "the weight of a cluster has n instead of n − 1", _guest_counted_twice,
        lambda count, seed: [*of_samplers("Gaussian", "gibbs, α fixed", count, seed)],
    ),
    Bug(
        "predictions do not weight clusters by their sizes", _no_sizes,
        lambda count, seed: of_predictions("Bernoulli", count, seed)[0],
    ),
    Bug(
        "a row with a gap is compared with draws without gaps", _whole_draws,
        lambda count, seed: [of_outliers("Gaussian", True, count, seed)],
    ),
)  # fmt: skip


def caught(bug: Bug, count: int, seed: int) -> Ranks:
    """Return the least uniform ranks with the bug in place."""
    with bug.planted():
        return min(bug.ranks(count, seed), key=Ranks.p_value)
