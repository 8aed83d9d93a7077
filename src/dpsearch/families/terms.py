"""Terms of log H, into which proofs decompose a family's linear form.

The log H of a linear form is a sum of terms, each a **convex** function of the size n of a block
and a few of its totals T.  So over a convex region of statistics a term is below every plane that
is above it at the region's corners.  If a family lists the `terms` of its form, its partitions can
be proved optimal; see `dpsearch.exact.statistic_pricing`.

`upper` is a term rounded up.  An error of a few units in the last place in each operation changes
it by at most a few units of 2⁻⁵² times its magnitude: the sum of the absolute values of what is
added up and, for an argument that is itself a difference such as Q − S²/κ, of its parts times the
slope there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import Ints, Matrix, Vector

_ROUNDING = 16.0 * 2.0**-52


class Term(NamedTuple):
    """A term of log H, convex in (n, T), and what its totals are.

    totals
        The numbers of its totals in the linear form: the number of rows that have values if it is
        `counted`, the sums of D values, and if `squares` (of one value or two) the sums of their
        products, by rows of the lower triangle.  With squares, the term is the larger the smaller
        the scatter of the values is, and for a given scatter largest at means nearest to 0, as
        that of normal values is with the prior mean at 0.
    upper
        `upper(sizes, totals)` returns the term [K], rounded up; ∞ where the totals are none of any
        data and the function is not defined.
    weights
        `weights(sizes, totals)` returns its gradient, by the totals [K, P] and by the size [K].
    exactly
        `exactly(real, n, *totals)` returns the term of one block in another arithmetic, such as
        that of intervals: numbers come and go as what `real(x)` makes of a float, `real.log`,
        `real.log_gamma` and `real.pi` are what else there is.  None: not known.
    """

    totals: Ints
    n_values: int
    upper: Callable[[Vector, Matrix], Vector]
    weights: Callable[[Vector, Matrix], tuple[Matrix, Vector]]
    squares: bool = False
    counted: bool = False
    begins: Ints | None = None  # if given, the first totals of groups that are added up
    exactly: Callable[..., Any] | None = None

    def of(self, totals: Matrix) -> Matrix:
        """Return the totals of this term, given the linear form's totals or features."""
        own = totals[:, self.totals]
        return own if self.begins is None else np.add.reduceat(own, self.begins, axis=1)

    def moved(self, begin: int) -> Term:
        """Return the term in a form in which its totals begin `begin` places later."""
        return self._replace(totals=self.totals + begin)

    def exactly_counted(self) -> Callable[..., Any] | None:
        """Return `exactly` for a column with gaps, whose first total replaces the size."""
        own = self.exactly
        return None if own is None else lambda real, n, count, *totals: own(real, count, *totals)


def rounded_up(value: Vector, *magnitudes: Any) -> Vector:
    """Return values plus a bound on their rounding errors; ∞ where they are not finite."""
    with np.errstate(invalid="ignore"):
        out = value + _ROUNDING * (1.0 + np.abs(value) + sum(magnitudes))
    return np.where(np.isfinite(out), out, np.inf)


def each_run(function: Callable[[Vector], Vector], sizes: Vector) -> Vector:
    """Return a function of sizes, evaluated once for each run of equal sizes."""
    begins = np.concatenate([[0], np.flatnonzero(np.diff(sizes)) + 1])[: len(sizes)]
    return np.repeat(function(sizes[begins]), np.diff(np.append(begins, len(sizes))))


def group_terms(totals_of: Any) -> tuple[Term, ...]:
    """Return terms for groups of levels.

    A Dirichlet distribution is a tree of beta distributions: the levels of a group are halved
    repeatedly, each time with a term B(a + s, b + t)/B(a, b) of the totals of both halves.
    """
    levels, concentrations = totals_of
    begins = np.cumsum(levels) - levels
    whole = [np.arange(begin, begin + size) for begin, size in zip(begins, levels, strict=True)]
    out = []
    while whole:
        at = whole.pop()
        if len(at) > 1:
            middle = len(at) // 2
            out.append(_of_halves(type(totals_of), at, middle, concentrations))
            whole += [at[:middle], at[middle:]]
    return tuple(out)


def _of_halves(kind: Any, at: Ints, middle: int, concentrations: Vector) -> Term:
    begins = np.array([0, middle])
    own = kind(np.array([2]), np.add.reduceat(concentrations[at], begins))

    def upper(sizes: Vector, totals: Matrix) -> Vector:
        return rounded_up(own.log_marginals(sizes, totals), own.magnitude(totals))

    def exactly(real: Any, n: Any, *counts: Any) -> Any:
        halves = [sum(map(real, part)) for part in np.split(concentrations[at], [middle])]
        return log_beta_ratio(real, *halves, *counts)

    return Term(at, 2, upper, own.weights, begins=begins, exactly=exactly)


def log_beta_ratio(real: Any, a: Any, b: Any, s: Any, t: Any) -> Any:
    """Return log B(a + s, b + t)/B(a, b) in some arithmetic; see `Term.exactly`."""
    rising = [
        real.log_gamma(x + y) - real.log_gamma(x) for x, y in ((a, s), (b, t), (a + b, s + t))
    ]
    return rising[0] + rising[1] - rising[2]


def of_counted(value: Any, weights: Any) -> tuple[Any, Any]:
    """Return a function of size and totals, and its gradient, for a column with gaps.

    The first of the totals then replaces the size.
    """

    def by_totals(sizes: Vector, totals: Matrix) -> tuple[Matrix, Vector]:
        gradient, by_count = weights(totals[:, 0], totals[:, 1:])
        return np.column_stack([by_count, gradient]), np.zeros(len(by_count))

    return lambda sizes, totals: value(totals[:, 0], totals[:, 1:]), by_totals


def counted_term(term: Term) -> Term:
    """Return a term for a column with gaps."""
    at, functions = np.concatenate([[0], term.totals + 1]), of_counted(term.upper, term.weights)
    begins = None if term.begins is None else np.concatenate([[0], term.begins + 1])
    return Term(at, term.n_values, *functions, term.squares, True, begins, term.exactly_counted())
