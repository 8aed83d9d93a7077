"""log H of many blocks at once from their sizes and totals, with its gradient.

These closed forms serve linear forms (`linear.py`) and proofs (`statistics.py`).  Sizes and totals
may be fractions.  D columns are independent: sums over columns have the shape [K], gradients
[K, D].  The number n of values is [K, 1] if all columns have the same, else [K, D].

Totals of documents are mostly 0, where log Γ(a + s)/Γ(a) is 0, so log-gammas are computed for the
others only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import digamma, gammaln

from dpsearch._special import LOG_2PI
from dpsearch._types import Ints, Matrix, Vector
from dpsearch.families.linear import LinearForm, like, masked, namespace, special
from dpsearch.families.terms import Term, log_beta_ratio, rounded_up


class NormalTotals(NamedTuple):
    """Normal values of variance 1 about a mean that is N(0, 1/τ): totals S, and Q of all squares.

    log H = ½ Σ_d [S²/(n + τ) − log (n + τ)/τ] − ½ Q − ½ nD log 2π
    """

    precision: Vector

    def log_marginals(self, sizes: Any, totals: Any) -> Any:
        xp, n, sums = namespace(totals), sizes[:, None], totals[:, :-1]
        tau = like(totals, self.precision)
        columns = xp.log1p(n / tau) - sums * sums / (n + tau) + n * LOG_2PI
        return -0.5 * (xp.sum(columns, axis=1) + totals[:, -1])

    def weights(self, sizes: Any, totals: Any) -> tuple[Any, Any]:
        xp, precision = namespace(totals), sizes[:, None] + like(totals, self.precision)
        means = totals[:, :-1] / precision
        by_size = -0.5 * xp.sum(1.0 / precision + means * means + LOG_2PI, axis=1)
        return xp.concat([means, 0.0 * totals[:, -1:] - 0.5], axis=1), by_size

    def terms(self) -> tuple[Term, ...]:
        """Return a term for the sum of each column, and one for the squares."""

        def of_column(d: int) -> Term:
            own = NormalTotals(self.precision[d : d + 1])

            def upper(sizes: Vector, totals: Matrix) -> Vector:
                without = own.log_marginals(sizes, np.column_stack([totals, np.zeros(len(sizes))]))
                pull = totals[:, 0] ** 2 / (sizes + own.precision)
                return rounded_up(without, pull, np.log1p(sizes / own.precision), 2.0 * sizes)

            def weights(sizes: Vector, totals: Matrix) -> tuple[Matrix, Vector]:
                by_totals, by_size = own.weights(sizes, np.column_stack([totals, 0.0 * totals]))
                return by_totals[:, :1], by_size

            def exactly(real: Any, n: Any, total: Any) -> Any:
                tau = real(own.precision[0])
                pull = total * total / (n + tau) - n * real.log(2 * real.pi)
                return (pull - real.log((n + tau) / tau)) / 2

            return Term(np.array([d]), 1, upper, weights, exactly=exactly)

        n_columns = len(self.precision)
        squares = Term(
            np.array([n_columns]),
            1,
            lambda sizes, totals: rounded_up(-0.5 * totals[:, 0]),
            lambda sizes, totals: (np.full((len(sizes), 1), -0.5), np.zeros(len(sizes))),
            exactly=lambda real, n, total: -total / 2,
        )
        return (*map(of_column, range(n_columns)), squares)


class NormalGammaTotals(NamedTuple):
    """Normal values whose mean is N(0, v/κ₀) and variance v InverseGamma(a₀, 1): totals S and Q.

    κ = κ₀ + n,   a = a₀ + n/2,   β = 1 + ½ (Q − S²/κ)
    log H = Σ_d [log Γ(a)/Γ(a₀) − a log β − ½ log κ/κ₀ − n/2 log 2π]
    """

    strength: Vector
    shape: Vector

    def _posterior(self, n: Matrix, sums: Matrix, squares: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        """Return a, the mean S/κ and β."""
        means = sums / (self.strength + n)
        # β ≥ 1, but the squares of data very far from the prior mean cancel badly.
        beta = np.maximum(1.0 + 0.5 * (squares - sums * means), 0.5)
        return _same_or_each(self.shape) + 0.5 * n, means, beta

    def magnitude(self, n: Matrix, sums: Matrix, squares: Matrix) -> Matrix:
        """Return the magnitude of the terms of a column; ∞ if no data have such totals."""
        shape, means, beta = self._posterior(n, sums, squares)
        inside = 1.0 + 0.5 * (squares - sums * means) > 0.5
        of_beta = np.abs(np.log(beta)) + (1.0 + 0.5 * (np.abs(squares) + sums * means)) / beta
        return np.where(inside, shape * (of_beta + np.log1p(shape)) + 2.0 * n, np.inf)

    def log_marginals(self, n: Matrix, sums: Matrix, squares: Matrix) -> Vector:
        shape, _, beta = self._posterior(n, sums, squares)
        out = gammaln(shape) - gammaln(_same_or_each(self.shape)) - shape * np.log(beta)
        return np.asarray((out - 0.5 * (np.log1p(n / self.strength) + n * LOG_2PI)).sum(axis=1))

    def weights(self, n: Matrix, sums: Matrix, squares: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        shape, means, beta = self._posterior(n, sums, squares)
        ratio = shape / beta
        by_n = digamma(shape) - np.log(beta) - 1.0 / (self.strength + n) - LOG_2PI
        return 0.5 * (by_n - ratio * means**2), ratio * means, -0.5 * ratio

    def exactly(self, real: Any, n: Any, total: Any, square: Any) -> Any:
        """Return log H of one column; see `Term.exactly`."""
        strength, shape = real(self.strength[0]), real(self.shape[0])
        kappa, after = strength + n, shape + n / 2
        scale = 1 + (square - total * total / kappa) / 2
        out = real.log_gamma(after) - real.log_gamma(shape) - after * real.log(scale)
        return out - (real.log(kappa / strength) + n * real.log(2 * real.pi)) / 2


class GammaTotals(NamedTuple):
    """Poisson counts whose rate is Gamma(a, b): totals S.

    log H = Σ_d [log Γ(a + S)/Γ(a) − a log (b + n)/b − S log(b + n)]
    """

    shape: Vector
    rate: Vector

    def magnitude(self, n: Matrix, sums: Matrix) -> Matrix:
        """Return the magnitude of the terms of a column."""
        after = self.shape + np.abs(sums) + 1.0
        return after * (np.log(after) + np.abs(np.log(self.rate + n)) + 1.0)

    def log_marginals(self, n: Matrix, sums: Matrix) -> Vector:
        rate = _same_or_each(self.rate)
        spread = self.shape * np.log1p(n / rate) + sums * np.log(rate + n)
        return np.asarray(_log_rising(self.shape, sums) - spread.sum(axis=1))

    def weights(self, n: Matrix, sums: Matrix) -> tuple[Matrix, Matrix]:
        rate = _same_or_each(self.rate) + n
        return -(self.shape + sums) / rate, _digamma(self.shape, sums) - np.log(rate)

    def exactly(self, real: Any, n: Any, total: Any) -> Any:
        """Return log H of one column; see `Term.exactly`."""
        shape, rate = real(self.shape[0]), real(self.rate[0])
        rising = real.log_gamma(shape + total) - real.log_gamma(shape)
        return rising - shape * real.log((rate + n) / rate) - total * real.log(rate + n)


class BetaTotals(NamedTuple):
    """Zeros and ones whose probability of a one is Beta(a, b): totals S, the ones.

    log H = Σ_d log B(a + S, b + n − S)/B(a, b)
    """

    successes: Vector
    failures: Vector

    def _of_zeros(self, function: Callable[[Any], Any], n: Matrix, ones: Matrix) -> Matrix:
        """Return a function of b + n − S."""
        out = np.array(np.broadcast_to(function(_same_or_each(self.failures) + n), ones.shape))
        k, d = np.nonzero(ones)
        out[k, d] = function(self.failures[d] + np.broadcast_to(n, ones.shape)[k, d] - ones[k, d])
        return out

    def magnitude(self, n: Matrix, ones: Matrix) -> Matrix:
        """Return the magnitude of the terms of a column."""
        after = self.successes + self.failures + n + 1.0
        return np.asarray(4.0 * after * (np.log(after) + 1.0))

    def log_marginals(self, n: Matrix, ones: Matrix) -> Vector:
        total = _same_or_each(self.successes + self.failures)
        zeros = self._of_zeros(gammaln, n, ones) - gammaln(self.failures)
        zeros -= gammaln(total + n) - gammaln(total)
        return np.asarray(_log_rising(self.successes, ones) + zeros.sum(axis=1))

    def weights(self, n: Matrix, ones: Matrix) -> tuple[Matrix, Matrix]:
        zeros = self._of_zeros(digamma, n, ones)
        total = _same_or_each(self.successes + self.failures)
        return zeros - digamma(total + n), _digamma(self.successes, ones) - zeros

    def exactly(self, real: Any, n: Any, total: Any) -> Any:
        """Return log H of one column; see `Term.exactly`."""
        prior = real(self.successes[0]), real(self.failures[0])
        return log_beta_ratio(real, *prior, total, n - total)


class DirichletTotals(NamedTuple):
    """Counts of levels whose probabilities are Dirichlet(a), in groups of levels: totals S.

    A group is the levels of a column, or all words of documents.  With A and N the sums of a and S
    over the levels l of a group g,

    log H = Σ_l log Γ(a + S)/Γ(a) − Σ_g log Γ(A + N)/Γ(A)
    """

    levels: Ints  # how many each group has
    concentrations: Vector

    def _of_groups(self, totals: Any) -> tuple[Vector, Any]:
        """Return A and N of each group."""
        begins = np.cumsum(self.levels) - self.levels
        whole = np.add.reduceat(self.concentrations, begins)
        if isinstance(totals, np.ndarray):
            return whole, np.add.reduceat(totals, begins, axis=1)
        return whole, totals @ like(totals, self._members())

    def magnitude(self, totals: Matrix) -> Vector:
        """Return the magnitude of the terms of all groups."""
        after = self.concentrations + np.abs(totals) + 1.0
        return np.asarray(4.0 * (after * (np.log(after.sum(axis=1, keepdims=True)) + 1.0)).sum(1))

    def _members(self) -> Matrix:
        """Return the indicators [levels, groups] of each level's group."""
        return np.repeat(np.eye(len(self.levels)), self.levels, axis=0)

    def log_marginals(self, sizes: Any, totals: Any) -> Any:
        of_groups = _log_rising(*self._of_groups(totals))
        return _log_rising(self.concentrations, totals) - of_groups

    def weights(self, sizes: Any, totals: Any) -> tuple[Any, Any]:
        out, of_groups = _digamma(self.concentrations, totals), _digamma(*self._of_groups(totals))
        if len(self.levels) > 1:
            of_groups = of_groups @ like(totals, self._members().T)
        return out - of_groups, 0.0 * sizes


def by_columns(
    totals_of: Any,
    n_features: int,
    encode: Callable[[Any], Any],
    rows: Callable[..., Matrix],
    *,
    powers: int = 1,
    gaps: bool = False,
) -> LinearForm:
    """Return the linear form of independent columns, with features z = `encode(X)` or z and z².

    With gaps, masks of the columns come before these, whose totals are counts.
    `rows(sizes, n, *totals)` is given the totals of each power separately.
    """

    def features(X: Any) -> Any:
        z = encode(X)
        of_powers = [z] if powers == 1 else [z, z * z]
        if gaps:
            return masked(X, of_powers)
        return z if powers == 1 else namespace(X).concat(of_powers, axis=1)

    log_marginals, weights, apart = _of_totals(totals_of, powers, gaps)
    return LinearForm(
        n_features * (powers + gaps),
        features,
        log_marginals,
        weights,
        lambda sizes, totals: rows(sizes, *apart(sizes, totals)),
        _column_terms(totals_of, n_features, powers, gaps),
    )


def _of_totals(totals_of: Any, powers: int, gaps: bool) -> tuple[Any, Any, Any]:
    """Return log H and its gradient as functions of sizes and totals, and a function that splits.

    It returns the number of values of each column, and the totals of each power.
    """

    def apart(sizes: Vector, totals: Matrix) -> list[Matrix]:
        found = np.split(totals, powers + gaps, axis=1)
        return found if gaps else [sizes[:, None], *found]

    def log_marginals(sizes: Vector, totals: Matrix) -> Vector:
        return np.asarray(totals_of.log_marginals(*apart(sizes, totals)))

    def weights(sizes: Vector, totals: Matrix) -> tuple[Matrix, Vector]:
        by_n, *by_totals = totals_of.weights(*apart(sizes, totals))
        if gaps:
            return np.hstack([by_n, *by_totals]), np.zeros(len(sizes))
        return np.hstack(by_totals), by_n.sum(axis=1)

    return log_marginals, weights, apart


def _column_terms(totals_of: Any, n_columns: int, powers: int, gaps: bool) -> tuple[Term, ...]:
    """Return a term for each of independent columns."""

    def term(d: int) -> Term:
        own = type(totals_of)(*(values[d : d + 1] for values in totals_of))
        log_marginals, weights, apart = _of_totals(own, powers, gaps)

        def upper(sizes: Vector, totals: Matrix) -> Vector:
            magnitude = own.magnitude(*apart(sizes, totals))[:, 0]
            return rounded_up(log_marginals(sizes, totals), magnitude)

        at = d + n_columns * np.arange(powers + gaps)
        out = Term(at, 1, upper, weights, powers == 2, counted=gaps, exactly=own.exactly)
        return out._replace(exactly=out.exactly_counted()) if gaps else out

    return tuple(map(term, range(n_columns)))


def _same_or_each(values: Vector) -> Vector:
    """Return one number if all are the same, so that it is used once for all columns."""
    return values[:1] if (values == values[0]).all() else values


def _log_rising(a: Vector, totals: Any) -> Any:
    """Return Σ_d log Γ(a + s)/Γ(a) of each block."""
    if not isinstance(totals, np.ndarray):
        rising = special(totals).gammaln(totals + like(totals, a)) - like(totals, gammaln(a))
        return namespace(totals).sum(rising, axis=1)
    k, d = np.nonzero(totals)
    terms = gammaln(a[d] + totals[k, d]) - gammaln(a)[d]
    return np.bincount(k, terms, minlength=len(totals)).astype(np.float64)


def _digamma(a: Vector, totals: Any) -> Any:
    """Return ψ(a + s)."""
    if not isinstance(totals, np.ndarray):
        return special(totals).digamma(totals + like(totals, a))
    out = np.tile(digamma(a), (len(totals), 1))
    k, d = np.nonzero(totals)
    out[k, d] = digamma(a[d] + totals[k, d])
    return out
