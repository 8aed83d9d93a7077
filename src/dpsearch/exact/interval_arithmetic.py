"""Verification of certificates in interval arithmetic, over every set of a few rows.

log H of each of the 2^N − 1 sets is enclosed between two numbers of 128 bits, rounded outward, by
the functions that the terms of the family's linear form declare (`Term.exactly`).  The upper ends
minus the prices are rounded up to integers on a grid.  The largest sum of them over any partition
into K sets is found for all sets of rows, from small to large:

    best(S, K) = max over C ⊆ S with the first row of S of  w(C) − y(C) + best(S ∖ C, K − 1),

and log V(K) + Σy + best(all rows, K) bounds these partitions for any prices.  Rounding cannot
invalidate the result, and it does not rely on convexity, pricing or an integer programme.  It is a
theorem about these numbers: the features in double precision (squares are those of the values), the
family's parameters, the tables log V and log W, and `log_base`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from dpsearch._extras import naming_extras
from dpsearch._jit import kernel
from dpsearch._types import Ints, Matrix, Vector
from dpsearch.errors import CapabilityError, ParameterError
from dpsearch.exact.assumptions import AGREEMENT, Totals, totals_of
from dpsearch.exact.proof import Bounded
from dpsearch.families.terms import Term
from dpsearch.problem import Problem

MOST_ROWS = 16  # 65,535 sets
_BITS = 128  # of the ends of intervals
_UNIT = 1 << 100  # steps per nat of the grid of prices and bounds
_COARSE = 1 << 54  # of these steps in one of the coarse grid, which sums over partitions are on
_LEAST = -(1 << 58)  # least value of a set on the coarse grid: −4,096 nats
_STIRLING = 30  # argument above which log Γ is computed by Stirling's series
_SERIES = 24  # number of its terms


class Intervals:
    """Interval arithmetic, as `Term.exactly` uses it."""

    def __init__(self) -> None:
        with naming_extras("certificates in interval arithmetic"):
            from mpmath import bernfrac
            from mpmath.ctx_iv import MPIntervalContext
        self._context = MPIntervalContext()
        self._context.prec = _BITS
        self.pi = self._context.pi * 1
        self._known: dict[Any, Any] = {}
        orders = range(1, _SERIES + 2)
        ratios = [Fraction(*map(int, bernfrac(2 * k))) / (2 * k * (2 * k - 1)) for k in orders]
        self._series = [self(one.numerator) / one.denominator for one in ratios]

    def __call__(self, number: Any) -> Any:
        """Return the interval that contains only this float or integer."""
        return self._context.mpf(number if isinstance(number, int) else float(number))

    def log(self, x: Any) -> Any:
        key = "log", x._mpi_
        if key not in self._known:
            self._known[key] = self._context.log(x)
        return self._known[key]

    def log_gamma(self, x: Any) -> Any:
        """Return log Γ of an interval above 0, by Stirling's series.

        For x > 0 the error of a truncated series is less than the first term that is left out.
        """
        key = "log Γ", x._mpi_
        if key not in self._known:
            steps = 1
            while not x.a > _STIRLING:
                steps, x = steps * x, x + 1
            power, square, out = 1 / x, x * x, (x - 0.5) * self.log(x) - x
            for ratio in self._series[:-1]:
                out, power = out + ratio * power, power / square
            last = self._series[-1] * power
            within = self._context.mpf([min(last.a, -last.b), max(-last.a, last.b)])
            out += self.log(2 * self.pi) / 2 + within - self.log(self(1) * steps)
            self._known[key] = out
        return self._known[key]


def require_exact(problem: Problem) -> Totals:
    """Return the totals that log H follows from; raise unless it can be enclosed for every set."""
    if problem.n_items > MOST_ROWS:
        raise ParameterError.of(
            "exact",
            f"needs at most {MOST_ROWS} rows, since it checks every subset, got {problem.n_items}",
        )
    totals, name = totals_of(problem), problem.model.family.name
    if totals is None or any(term.exactly is None for term in totals.form.terms):
        what = "terms" if totals is None else "`exactly` for each of its terms"
        raise CapabilityError(
            f"interval arithmetic needs a family whose linear form has {what} for these data; the"
            f" {name} family has none"
        )
    return totals


def enclosed_log_h(problem: Problem) -> list[Any]:
    """Return intervals for log H of every set; the bits of an index are the rows of its set."""
    totals = require_exact(problem)
    name = problem.model.family.name
    real, n_sets = Intervals(), 1 << problem.n_items
    out = [real(0)] * n_sets
    for term in totals.form.terms:
        for members, value in enumerate(_enclosed_term(real, term, totals.features)):
            out[members] += value
    sizes = _subset_sums([1.0] * problem.n_items)[1:]
    sums = np.array(_subset_sums(list(totals.features)))[1:]
    own = totals.form.log_marginals(sizes, sums)
    off = np.abs(own - [float(value.mid) for value in out[1:]])
    if not (off <= AGREEMENT * (1.0 + np.abs(own))).all():
        raise CapabilityError(f"`exactly` of the {name} family's terms disagrees with log H")
    return out


def _enclosed_term(real: Intervals, term: Term, features: Matrix) -> list[Any]:
    """Return intervals of a term for every set; 0 for the empty set.

    The features are taken as exact numbers; squares are computed exactly from the values.
    """
    assert term.exactly is not None  # as `enclosed_log_h` has seen
    begins = np.arange(len(term.totals)) if term.begins is None else term.begins
    rows = []
    for row in features[:, term.totals]:
        own = [sum(map(real, part)) for part in np.split(row, begins[1:])]
        if term.squares:
            values = own[term.counted : term.counted + term.n_values]
            own = own[: term.counted] + values
            own += [values[i] * values[j] for i in range(len(values)) for j in range(i + 1)]
        rows.append(np.array(own, dtype=object))
    out, known = [real(0)], {}
    for members, totals in enumerate(_subset_sums(rows)[1:], 1):
        n = members.bit_count()
        key = (n, *(one._mpi_ for one in totals))
        if key not in known:
            known[key] = term.exactly(real, real(n), *totals)
        out.append(known[key])
    return out


def _subset_sums(values: Any) -> Any:
    """Return the sums of values over the members of every set, by index."""
    out = np.zeros((1, *np.shape(values[0])), dtype=np.asarray(values).dtype)
    for value in values:
        out = np.concatenate([out, out + value])
    return out


class ExactSets:
    """Upper bounds of log W + log H of every set of a problem's rows, in units of 2⁻¹⁰⁰ nats."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.log_h = enclosed_log_h(problem)
        self.log_w = [Fraction(one) for one in problem.size_weights()]
        self.worth = np.zeros(len(self.log_h), dtype=object)
        for members in range(1, len(self.log_h)):
            most = _fraction(self.log_h[members]._mpi_[1]) + self.log_w[members.bit_count()]
            self.worth[members] = math.ceil(most * _UNIT)

    def value_within(self, labels: Ints) -> tuple[Fraction, Fraction]:
        """Return a lower and an upper bound of the log joint of a partition."""
        sizes = np.bincount(labels)
        sets = [sum(1 << int(i) for i in np.flatnonzero(labels == k)) for k in range(len(sizes))]
        constant = Fraction(self.problem.log_base) + Fraction(self.problem.log_v[len(sizes)])
        constant += sum(self.log_w[size] for size in sizes)
        low, high = (sum(_fraction(self.log_h[s]._mpi_[end]) for s in sets) for end in (0, 1))
        return constant + low, constant + high

    def prove(self, entries: Sequence[Bounded], order: Ints | None) -> bool:
        """Whether the bounds of all entries hold.

        Where prices state by how much a set may exceed them, also whether no set exceeds that.
        """
        n = self.problem.n_items
        for entry in entries:
            if entry.kind in ("prices", "sets"):
                above = self._above(entry.y[:n]) + math.ceil(Fraction(entry.lam) * _UNIT)
                for three, toll in zip(entry.triples, _on_grid(entry.y[n:]), strict=True):
                    above[_subset_sums(np.isin(np.arange(n), three) * 1) >= 2] -= toll
                if above[1:].max() > Fraction(entry.slack) * _UNIT:
                    return False
        prices = entries[0].y[:n]
        if order is not None:  # potentials
            prices = np.empty(len(order))
            prices[order] = np.diff(entries[0].y)
        bounds = self._bounds(prices)
        return all(
            max(bounds[entry.low : entry.high + 1]) <= Fraction(entry.upper) for entry in entries
        )

    def _above(self, prices: Vector) -> Any:
        """Return a bound on how much every set exceeds these prices, without λ."""
        return self.worth - _subset_sums(np.array(_on_grid(prices), dtype=object))

    def _bounds(self, prices: Vector) -> list[Any]:
        """Return for K = 0, 1, … a bound on all partitions into K sets, valid for any prices."""
        coarse = np.maximum(-(-self._above(prices) // _COARSE), _LEAST)
        if coarse.max() > -_LEAST:
            return [math.inf] * len(self.problem.log_v)
        best = _best_by_n_clusters(coarse.astype(np.int64)).tolist()
        same = Fraction(self.problem.log_base) + Fraction(sum(_on_grid(prices)), _UNIT)
        return [
            same + Fraction(log_v) + Fraction(most * _COARSE, _UNIT)
            for log_v, most in zip(self.problem.log_v, best, strict=False)
        ]


def _on_grid(prices: Vector) -> list[int]:
    return [math.floor(Fraction(one) * _UNIT) for one in prices]


def _fraction(number: Any) -> Fraction:
    """Return an end of an mpmath interval as a fraction; raise if it is infinite."""
    sign, mantissa, exponent, bits = number
    if not mantissa and bits:
        raise OverflowError("an interval has no end")
    value = -mantissa if sign else mantissa
    return Fraction(value << exponent) if exponent >= 0 else Fraction(value, 1 << -exponent)


@kernel
def _best_by_n_clusters(worth):  # type: ignore[no-untyped-def]
    """Return for each K the largest sum of `worth` over the sets of a partition into K sets."""
    n_rows = int(np.log2(len(worth)) + 0.5)
    best = np.full((len(worth), n_rows + 1), -(1 << 62), np.int64)
    size = np.zeros(len(worth), np.int64)
    best[0, 0] = 0
    for rows in range(1, len(worth)):
        first = rows & -rows
        others = rows ^ first
        size[rows] = size[others] + 1
        left = others  # rows outside the set that contains the first row
        while True:
            here = worth[rows ^ left]
            for k in range(min(size[left], 1), size[left] + 1):
                best[rows, k + 1] = max(best[rows, k + 1], here + best[left, k])
            if left == 0:
                break
            left = (left - 1) & others
    return best[-1]
