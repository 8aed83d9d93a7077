"""Rows of length 1, such as embeddings and tf-idf rows, under a von Mises–Fisher distribution.

    p(x | m, κ) = C(κ) exp(κ⟨m, x⟩),   m | κ ~ vMF(m₀, c₀κ),   log κ uniform between two bounds

on the unit sphere in D dimensions (Mardia & Jupp 2000, "Directional Statistics", section 9.3; the
prior on m is the conjugate one, of c₀ points in the direction m₀; c₀ = 0 is uniform).  With
L = log C(0)/C(κ), which `_bessel` computes, and R = ‖c₀m₀ + Σx‖ of n points,

    log H = n log C(0) + log ∫ exp(−n L(κ) + L(κR) − L(κc₀)) d log κ + constant
    posterior   κ as in this integral,   m | κ ~ vMF(c₀m₀ + Σx, κR)

The integral is a sum over nodes that are equally spaced in log κ.  The Fisher information of log κ
is at most D/2 for each point, so the standard deviation of log κ given n points is at least
√(2/Dn).  The more points there are, the closer are the nodes that are used: see
`_concentration.py`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from dpsearch._bessel import expansion, log_mean_exps
from dpsearch._types import Ints, Matrix, Rng, Vector
from dpsearch._validate import per_column
from dpsearch.errors import DataError, ParameterError
from dpsearch.families import layout
from dpsearch.families._concentration import PARAMS, of_blocks, shares
from dpsearch.families._directions import FUNCTIONS, ROW
from dpsearch.families.base import Example, Family
from dpsearch.families.capabilities import Columns, PredictiveDraws, Restated
from dpsearch.families.functions import Functions
from dpsearch.families.learning import STRENGTHS, most_likely, sums_of
from dpsearch.families.linear import LinearForm, namespace

_TOLERANCE = 1e-3  # of lengths, since numbers may have been rounded to few digits
_STEP, _LONGEST_STEP = 1.2, 0.05  # between nodes: in standard deviations of log κ, and at most
# With this many columns, and columns times points, the posterior of log κ is nearly normal.
_WIDE, _INFORMED = 64, 800.0
_MOST_NODES, _MOST_WIDE = 16384, 1024  # the second with that many columns
_USUAL = (0.1, 50.0)  # the usual concentrations, divided by the number of columns
_BEYOND = 2.0  # the factor between the bounds of κ and the concentrations of present clusters
_TAIL = 0.02  # the share of rows whose clusters' concentrations are ignored as extreme


def lengths_of(X: Any) -> Vector:
    """Return the length of each row."""
    squares = X.multiply(X).sum(axis=1) if sp.issparse(X) else np.einsum("ij,ij->i", X, X)
    return np.sqrt(np.asarray(squares, dtype=np.float64).reshape(-1))


def are_directions(X: Any) -> bool:
    """Whether all rows have length 1 up to rounding."""
    return bool(X.shape[1] > 1 and (np.abs(lengths_of(X) - 1.0) <= _TOLERANCE).all())


def concentration_of(sizes: Vector, lengths: Vector, n_features: int) -> Vector:
    """Estimate κ of clusters of n ≥ 2 points with |Σx| = R.

    κ ≈ r(D − r²)/(1 − r²) (Banerjee et al. 2005, "Clustering on the unit hypersphere using von
    Mises–Fisher distributions", eq. 4.4), where r² = (R² − n)/n(n − 1) is the mean product of two
    points, which has no bias.
    """
    squares = np.clip((lengths**2 - sizes) / (sizes * (sizes - 1.0)), 1e-6, 1.0 - 1e-6)
    return np.asarray(np.sqrt(squares) * (n_features - squares) / (1.0 - squares))


@dataclass(frozen=True)
class VonMisesFisher(Family):
    """Directions with unknown mean direction and concentration.

    Rows must have length 1 within a thousandth, and are normalised exactly.

    Parameters
    ----------
    concentration
        The least and the largest concentration κ of a cluster, or one number if it is known.  None
        means D/10 to 50 D, in D columns.
    mean_direction
        The prior mean direction of clusters: a vector of any length above 0, one number per column,
        or None for a uniform prior.
    prior_strength
        The weight of the prior, as a number of points in this direction.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.VonMisesFisher((10.0, 100.0)).name
    'von_mises_fisher'
    """

    concentration: Any = None
    mean_direction: Any = None
    prior_strength: float = 0.0

    name: ClassVar[str] = "von_mises_fisher"
    kind: ClassVar[str] = "direction"
    accepts_sparse: ClassVar[bool] = True
    functions: ClassVar[Functions] = FUNCTIONS

    def _range(self, n_features: int) -> tuple[float, float]:
        if self.concentration is None:
            return _USUAL[0] * n_features, _USUAL[1] * n_features
        bounds = np.asarray(self.concentration, dtype=np.float64).reshape(-1)
        low, high = bounds[0], bounds[-1]
        if not (len(bounds) <= 2 and 0.0 < low <= high < 1e9):
            raise ParameterError.must(
                "concentration", "be a number above 0, or the smallest and the largest",
                self.concentration,
            )  # fmt: skip
        return float(low), float(high)

    def _nodes(self, n_features: int) -> Vector:
        return _nodes(*self._range(n_features), n_features)[0]

    def _prior(self, n_features: int) -> Vector:
        """Return c₀m₀."""
        if not 0.0 <= self.prior_strength < math.inf:
            raise ParameterError.must("prior_strength", "be a number ≥ 0", self.prior_strength)
        if self.mean_direction is None:
            return np.zeros(n_features)
        direction = per_column(self.mean_direction, n_features, "mean_direction", above_zero=False)
        length = float(np.linalg.norm(direction))
        if not length > 0.0:
            raise ParameterError.must("mean_direction", "have a length above 0", direction)
        return np.asarray(self.prior_strength / length * direction)

    def row_layout(self) -> Any:
        return ROW

    def parameters(self, n_features: int, X: Any) -> Vector:
        nu, (low, high), prior = (
            0.5 * n_features - 1.0,
            self._range(n_features),
            self._prior(n_features),
        )
        nodes, at_nodes, slopes, strides, limits = _nodes(low, high, n_features)
        strength, last = float(np.linalg.norm(prior)), len(nodes) - 1
        starts = np.full(len(nodes), -math.log(max(last, 1)))
        if last:
            starts[[0, last]] -= math.log(2.0)  # since these have half an interval each
        of_prior = log_mean_exps(nu, expansion(nu), strength * nodes)
        return layout.make_params(
            PARAMS,
            n_features=n_features,
            order=nu,
            strength=strength,
            typical=slopes.mean() ** 2,
            whole=math.log(high / low),
            many=_INFORMED / n_features if n_features >= _WIDE and last else np.inf,
            expansion=expansion(nu),
            nodes=nodes,
            at_nodes=at_nodes,
            slopes=slopes,
            prior_slopes=of_prior[1],
            starts=starts - of_prior[0],
            strides=strides,
            limits=limits,
            prior=prior if strength > 0.0 else [],
        )

    def resolve(self, X: Any) -> VonMisesFisher:
        if X.shape[1] < 2:
            raise DataError("directions need at least two columns")
        return self.with_parameters(concentration=self._range(X.shape[1]))

    def check(self, X: Any) -> None:
        off = np.abs(lengths_of(X) - 1.0)
        if (off > _TOLERANCE).any():
            row = int((off > _TOLERANCE).argmax())
            length = lengths_of(X[row : row + 1])[0]
            advice = "use sklearn.preprocessing.normalize(X)" if length > 0.0 else "leave it out"
            raise DataError(
                f"{{place}} of X has length {length:.6g}, but a direction has length 1: {advice}",
                row=row,
            )

    def encode(self, X: Any) -> Any:
        lengths = lengths_of(X)
        if sp.issparse(X):
            return sp.csr_matrix(sp.diags_array(1.0 / lengths) @ X)
        return X / lengths[:, None]

    def log_base(self, X: Any) -> Vector:
        """Return log C(0), the density of a uniform direction."""
        half = 0.5 * X.shape[1]
        return np.full(X.shape[0], math.lgamma(half) - math.log(2.0) - half * math.log(math.pi))

    def log_ceiling(self, X: Any) -> Vector:
        # A predictive is a mean of densities, whose largest value is C(κ) exp(κ) at the largest κ.
        largest = self._range(X.shape[1])[1:]
        nu = 0.5 * X.shape[1] - 1.0
        below = log_mean_exps(nu, expansion(nu), np.array(largest))[0, 0]
        return np.full(X.shape[0], largest[0] - below)

    def linear(self, n_features: int) -> LinearForm:
        """Return the linear form, whose features are the directions themselves."""
        params, prior = self.parameters(n_features, None), self._prior(n_features)

        def features(X: Any) -> Any:
            if sp.issparse(X):
                return self.encode(X)
            xp = namespace(X)
            return X / xp.sqrt(xp.sum(X * X, axis=1, keepdims=True))

        def blocks(sizes: Vector, totals: Matrix) -> tuple[Matrix, Matrix]:
            sums = totals + prior
            lengths = np.sqrt(np.einsum("kd,kd->k", sums, sums))
            return of_blocks(params, np.asarray(sizes, dtype=np.float64), lengths), sums

        def weights(sizes: Vector, totals: Matrix) -> tuple[Matrix, Vector]:
            (_, by_length, by_size), sums = blocks(sizes, totals)
            return by_length[:, None] * sums, by_size

        def rows(sizes: Vector, totals: Matrix) -> Matrix:
            sums = np.where(sizes[:, None] > 0.0, totals + prior, 0.0)
            return layout.make_rows(ROW, len(sizes), n_features, n=sizes, sums=sums)

        return LinearForm(
            n_features, features, lambda sizes, totals: blocks(sizes, totals)[0][0], weights, rows
        )

    def restated(self, row: Vector, n_features: int, other: Any) -> Restated:
        fields = layout.read(ROW, row, n_features)
        totals = np.where(fields.n > 0.0, fields.sums - self._prior(n_features), 0.0)
        return Restated(other.linear(n_features).rows(np.array([fields.n]), totals[None])[0])

    def _posterior(self, row: Vector, n_features: int) -> tuple[Vector, Vector, float, Vector]:
        """Return the nodes that matter, their weights, R and the mean direction."""
        fields = layout.read(ROW, row, n_features)
        length = float(np.linalg.norm(fields.sums))
        at, weights = shares(self.parameters(n_features, None), fields.n, length)
        direction = fields.sums / length if length > 0.0 else np.eye(n_features)[0]  # arbitrary
        return self._nodes(n_features)[at], weights, length, direction

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        nodes, weights, length, direction = self._posterior(row, n_features)
        return {
            "mean_direction": direction,
            "concentration": float(weights @ nodes),
            "mean_concentration": float(weights @ nodes) * length,
        }

    def columns(self, row: Vector, n_features: int) -> Columns:
        """Return columns as approximately normal, with the variance of a typical cluster.

        A coordinate of x has the mean r(κ) m_d, and in many dimensions nearly a normal distribution
        of variance v = (1 − r²)/(D − 1); of a uniform direction m_d has the variance 1/D.  κ is
        taken in the middle of its range.
        """
        fields = layout.read(ROW, row, n_features)
        nu, (low, high) = 0.5 * n_features - 1.0, self._range(n_features)
        mean = log_mean_exps(nu, expansion(nu), np.array([math.sqrt(low * high)]))[1, 0]
        variance = (1.0 - mean * mean) / (n_features - 1.0)
        tau, n = variance * n_features / mean**2, fields.n
        own = (fields.sums - self._prior(n_features)) / (max(n, 1.0) * math.sqrt(variance))
        return Columns(
            -0.5 * (math.log1p(n / tau) + tau * n / (n + tau) * own**2),
            self._expected(row, n_features),
            moments=np.stack([np.full(n_features, n), own]),
        )

    def _expected(self, row: Vector, n_features: int) -> Vector:
        """Return the mean of the predictive, Σ_g w_g r(κ_g) r(κ_g R) times the mean direction."""
        nodes, weights, length, direction = self._posterior(row, n_features)
        nu = 0.5 * n_features - 1.0
        terms = expansion(nu)
        both = log_mean_exps(nu, terms, nodes)[1] * log_mean_exps(nu, terms, nodes * length)[1]
        return np.asarray(float(weights @ both) * direction)

    def draws(self, row: Vector, n_features: int) -> PredictiveDraws:
        nodes, weights, length, direction = self._posterior(row, n_features)

        def sample(size: int, rng: Rng) -> Matrix:
            kappas = rng.choice(nodes, size=size, p=weights)
            means = draw_directions(np.tile(direction, (size, 1)), kappas * length, rng)
            return draw_directions(means, kappas, rng)

        return PredictiveDraws(sample)

    @classmethod
    def suggest(cls, X: Any) -> VonMisesFisher:
        n, n_features = X.shape
        low, high = _USUAL[0] * n_features, _USUAL[1] * n_features
        if n > 1:  # clusters are at least as concentrated as all rows together
            length = np.linalg.norm(np.asarray(X.sum(axis=0)))
            whole = concentration_of(np.array([float(n)]), np.array([length]), n_features)
            low = float(np.clip(whole[0], low, 0.1 * high))
        return cls((low, high))

    def learned(self, X: Any, labels: Ints) -> VonMisesFisher:
        n_features = X.shape[1]
        sums = sums_of(self.encode(X), labels)
        sizes, totals = sums.counts[:, 0], sums.sums
        lengths = np.linalg.norm(totals, axis=1)
        several = sizes > 1.0
        found = self
        if several.any():
            own = concentration_of(sizes[several], lengths[several], n_features)
            low, high = _quantiles(own, sizes[several], (_TAIL, 1.0 - _TAIL))
            found = type(self)((low / _BEYOND, high * _BEYOND))
        towards = totals.sum(axis=0)  # of all rows, for any partition
        if not np.linalg.norm(towards) > 0.0:
            return found
        direction = tuple((towards / np.linalg.norm(towards)).tolist())

        def log_likelihood(strength: float) -> float:
            prior = found.with_parameters(mean_direction=direction, prior_strength=strength)
            form = prior.linear(n_features)
            return float(form.log_marginals(sizes, totals).sum())

        strength = most_likely(log_likelihood, STRENGTHS)
        return found.with_parameters(mean_direction=direction, prior_strength=strength)

    @classmethod
    def examples(cls) -> list[Example]:
        rng = np.random.default_rng(0)
        X = np.vstack([rng.normal(size=(8, 3)), [2.0, 0.0, 1.0] + 0.3 * rng.normal(size=(6, 3))])
        X /= np.linalg.norm(X, axis=1)[:, None]
        wide = rng.normal(size=(10, 40)) + np.repeat([[1.0], [0.0]], 5, axis=0)
        wide *= rng.random(wide.shape) < 0.6
        wide /= np.linalg.norm(wide, axis=1)[:, None]
        return [
            Example(cls((2.0, 8.0)), X),
            Example(cls(6.0, (1.0, 0.5, 0.0), 0.7), X.astype(np.float32)),
            Example(cls((20.0, 80.0)), sp.csr_matrix(wide)),
        ]


@functools.lru_cache(maxsize=8)
def _nodes(low: float, high: float, n_features: int) -> tuple[Vector, ...]:
    """Return nodes κ_g, L and L′ there, strides, and the most points for each stride.

    Strides are 1, 2, 3, 4, 6, 8, 12, …, and the last is for any number of points.
    """
    whole, nu = math.log(high / low), 0.5 * n_features - 1.0
    information = 0.5 * n_features  # an upper bound on that of log κ in one point
    count = 2 * math.ceil(0.5 * whole / min(_STEP / math.sqrt(information), _LONGEST_STEP))
    strides, most = [1.0], _MOST_NODES if n_features < _WIDE else _MOST_WIDE
    while 0 < count * strides[-1] < most // 2:
        strides += [2.0 ** (len(strides) // 2 + 1), 3.0 * 2.0 ** (len(strides) // 2)]
    nodes = np.geomspace(low, high, 1 + count * int(strides[-1]))
    steps = whole / max(len(nodes) - 1, 1) * np.array(strides)
    limits = np.append(np.inf, (_STEP / steps[1:]) ** 2 / information)
    of_nodes = log_mean_exps(nu, expansion(nu), nodes)
    return nodes, *of_nodes, np.array(strides[::-1]), limits[::-1]


def _quantiles(values: Vector, weights: Vector, at: tuple[float, float]) -> list[float]:
    """Return the values below which these shares of the weights lie."""
    order = np.argsort(values)
    below = np.cumsum(weights[order]) / weights.sum()
    return [float(values[order][np.searchsorted(below, share)]) for share in at]


def draw_directions(means: Matrix, kappas: Vector, rng: Rng) -> Matrix:
    """Draw a direction for each row of mean directions and each concentration.

    Its product w with the mean direction by rejection (Wood 1994, "Simulation of the von Mises
    Fisher distribution"), the rest uniform among the directions across.
    """
    size, n_features = means.shape
    rest = n_features - 1.0
    ratio = rest / (2.0 * kappas + np.sqrt(4.0 * kappas**2 + rest**2))
    node = (1.0 - ratio) / (1.0 + ratio)
    scale = kappas * node + rest * np.log1p(-(node**2))
    w, left = np.empty(size), np.arange(size)
    while len(left):
        z, b = rng.beta(0.5 * rest, 0.5 * rest, size=len(left)), ratio[left]
        tried = (1.0 - (1.0 + b) * z) / (1.0 - (1.0 - b) * z)
        logs = kappas[left] * tried + rest * np.log1p(-node[left] * tried) - scale[left]
        kept = logs >= np.log(rng.random(len(left)))
        w[left[kept]] = tried[kept]
        left = left[~kept]
    across = rng.standard_normal((size, n_features))
    across -= np.einsum("ij,ij->i", across, means)[:, None] * means
    across /= np.linalg.norm(across, axis=1)[:, None]
    return np.asarray(w[:, None] * means + np.sqrt(1.0 - w**2)[:, None] * across)
