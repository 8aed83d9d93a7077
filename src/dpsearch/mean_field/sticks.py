"""Stick-breaking weights of components, and their mean-field posterior.

π_k = v_k Π_{j<k} (1 − v_j) with v_k ~ Beta(a_k, b_k).  Given the expected numbers of rows N_k, and
those of all later components N_{>k}, the best q(v_k) is Beta(a_k + N_k, b_k + N_{>k}) (Blei &
Jordan 2005).  The model has infinitely many components.  Under q either no row belongs to one
beyond the truncation, or, with a *tail*, those components have their prior (Kurihara, Welling &
Vlassis 2006); their sum has a closed form if α is fixed.

With a Gamma prior on α, q(α) is a Gamma distribution, and the update of q(v) uses its mean.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import betaln, digamma, gammaln, polygamma

from dpsearch._types import Vector
from dpsearch.errors import CapabilityError
from dpsearch.passes.chunk import Own
from dpsearch.priors.base import Prior
from dpsearch.priors.concentration import Gamma

_ROUNDS = 20  # alternating updates of q(v) and q(α), which cost nothing


class StickPosterior(NamedTuple):
    """q(v), and q(α) if α has a prior."""

    log_v: Vector  # E[log v]
    log_rest: Vector  # E[log (1 − v)]
    one: Vector  # q(v_k) = Beta(one, other)
    other: Vector
    divergence: float  # KL divergence of q(v) and q(α) from their priors
    alpha: float  # E[α]; NaN if the prior has none


class Sticks:
    """The prior of the weights of up to `most` components."""

    def __init__(self, prior: Prior, most: int, needed_by: str) -> None:
        found = prior.sticks(most) if prior.product_form else None
        if found is None:
            raise CapabilityError(
                f"{needed_by} needs a prior whose weights are broken sticks (its method sticks):"
                f" DirichletProcess or PitmanYor; {prior.name} is not one"
            )
        self.a, self.b = found
        concentration = prior.concentration()
        self.gamma: Gamma | None = None if concentration is None else concentration.gamma
        same = bool((self.b == self.b[0]).all() and (self.a == 1.0).all())
        # The infinite tail has a closed form if all its sticks are Beta(1, α) with α known.
        self.has_tail = same and self.gamma is None
        self.alpha = float(self.b[0]) if same else math.nan

    def log_tail(self) -> float:
        """Return log Σ_k exp E[log v_k Π_{j<k} (1 − v_j)] over infinitely many prior sticks."""
        first = digamma(1.0) - digamma(1.0 + self.alpha)
        return float(first - math.log(-math.expm1(-1.0 / self.alpha)))

    def fit(self, sizes: Vector, tail: float) -> StickPosterior:
        """Return the best q(v) and q(α) for these expected numbers of rows."""
        n = len(sizes)
        later = after(sizes) + tail
        a, b = self.a[:n], self.b[:n]
        gamma, alpha, log_alpha, spent = self.gamma, self.alpha, 0.0, 0.0
        for _ in range(_ROUNDS if gamma else 1):
            b = np.full(n, alpha) if gamma else b
            one, other = a + sizes, b + later
            both = digamma(one + other)
            log_v, log_rest = digamma(one) - both, digamma(other) - both
            if gamma:
                shape, rate = gamma.shape + n, gamma.rate - log_rest.sum()
                moved, alpha = abs(shape / rate - alpha) > 1e-12 * alpha, shape / rate
                log_alpha = float(digamma(shape) - math.log(rate))
                spent = shape * math.log(rate) - gammaln(shape) + (shape - 1.0) * log_alpha - shape
                spent -= gamma.shape * math.log(gamma.rate) - gammaln(gamma.shape)
                spent -= (gamma.shape - 1.0) * log_alpha - gamma.rate * alpha
                if not moved:
                    break
        entropy = betaln(one, other) - (one - 1.0) * log_v - (other - 1.0) * log_rest
        if gamma:
            expected = n * log_alpha + (alpha - 1.0) * log_rest.sum()
        else:
            expected = ((a - 1.0) * log_v + (b - 1.0) * log_rest - betaln(a, b)).sum()
        spent += -entropy.sum() - expected
        return StickPosterior(log_v, log_rest, one, other, float(spent), float(alpha))


def after(sizes: Vector) -> Vector:
    """Return for each component the sum of the sizes of all later ones."""
    return np.append(np.cumsum(sizes[::-1])[::-1][1:], 0.0)


def log_weights(q: StickPosterior) -> Vector:
    """Return E[log π_k]."""
    return np.asarray(q.log_v + np.append(0.0, np.cumsum(q.log_rest)[:-1]))


def mean_weights(q: StickPosterior) -> tuple[Vector, float]:
    """Return E[π_k] and the expected weight of all later components."""
    mean = q.one / (q.one + q.other)
    rest = np.cumprod(1.0 - mean)
    return mean * np.append(1.0, rest[:-1]), float(rest[-1])


def collapsed_weights(
    q: StickPosterior, squares: Vector, squares_after: Vector, order: int
) -> Vector:
    """Return E[log p(z_i = k | the other rows)] with the sticks integrated out.

    p(z_i = k | …) = (a + N_k)/(a + b + N_≥k) Π_{j<k} (b + N_>j)/(a + b + N_≥j), and the logarithm
    of a sum of N independent indicators is expanded to first or second order around its mean
    (Kurihara, Welling & Teh 2007):  E[log (c + N)] ≈ log (c + E N) − Var N / 2(c + E N)².  Row i is
    still counted here; `own_share` corrects for it.
    """
    both = q.one + q.other
    here, there, total = np.log(q.one), np.log(q.other), np.log(both)
    if order == 2:
        here = here - 0.5 * squares / q.one**2
        there = there - 0.5 * squares_after / q.other**2
        total = total - 0.5 * _from_here(squares_after) / both**2
    rest = there - total
    return np.asarray(here - total + np.append(0.0, np.cumsum(rest)[:-1]))


def own_share(q: StickPosterior) -> Own:
    """Return the change of these values when a row is left out, to first order in its share."""
    return Own(-1.0 / q.one, 1.0 / (q.one + q.other), -1.0 / q.other)


def collapsed_gain(q: StickPosterior, squares: Vector, squares_after: Vector) -> float:
    """Return the second-order estimate of the bound's rise when the sticks are integrated out.

    `squares` are variances of N_k, `squares_after` of N_>k.
    """
    out = polygamma(1, q.one) * squares + polygamma(1, q.other) * squares_after
    out -= polygamma(1, q.one + q.other) * _from_here(squares_after)
    return 0.5 * float(out.sum())


def _from_here(after: Vector) -> Vector:
    """Return the variances of N_≥k: that of N_>(k−1), and 0 for all rows together."""
    return np.append(0.0, after[:-1])
