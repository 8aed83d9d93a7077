"""`dpsearch.certify`: by how much the best partition can exceed a known one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dpsearch._clock import clock
from dpsearch._types import ArrayLike, Ints, Labels
from dpsearch._validate import n_threads
from dpsearch.deadline import current
from dpsearch.errors import CapabilityError, ParameterError, plain_interrupts
from dpsearch.events import Callback, Event
from dpsearch.exact.assumptions import at_least, require_points, rounding_of, statistic_of
from dpsearch.exact.certificate_file import read_certificate, write_certificate
from dpsearch.exact.dynamic_programme import interval_optimum
from dpsearch.exact.proof import Bounded, Proof, Sets, by_loose_prices, by_prices, pricer_for
from dpsearch.exact.slopes import is_linear, ranges, slope
from dpsearch.exact.statements import NumberBound, bound_of_n_clusters, bound_of_pair
from dpsearch.exact.verification import Claims, is_proved, is_proved_exactly
from dpsearch.families.base import Family
from dpsearch.partition import by_appearance
from dpsearch.priors.base import Prior
from dpsearch.problem import Clustering, Problem, as_problem, labels_of
from dpsearch.refinement import refine
from dpsearch.tables.checked import CheckedTable

_FEW_COLUMNS = 4  # with no more, branch and bound is fast
_POLISH = 4e-4  # seconds of refinement per point; the proof itself finds further improvements …
_LEAST_POLISH = 0.01
_LONGER = 25.0  # … except perhaps with many columns, where refinement takes this many times as long


@dataclass(frozen=True)
class Certificate(Claims):
    """A proved bound on the log joint of every partition of a data set.

    Attributes
    ----------
    upper_bound
        No partition has a larger log joint.
    lower_bound
        The log joint of `clustering`.
    gap
        Their difference: no partition is more than e^gap times as probable as `clustering`.
    optimal
        Whether the gap is at most `tolerance`.
    clustering
        The best partition known: the one given, or a better one that was found on the way.
    prices
        The proof of the bound: prices for each range of the number of clusters.
    order
        The order of points on a line, if the proof is by the dynamic programme.
    method
        How it was proved: ``"line"`` (dynamic programme), ``"prices"``, ``"sets"`` (prices, and an
        integer programme over all sets that fit into the gap), ``"quick"`` or ``"ceiling"`` (loose
        prices that need no search).
    seconds
        Wall time spent, without that of compiling.
    """

    def verify(self, *, exact: bool = False) -> bool:
        """Whether everything that the certificate says follows from its data and its prices.

        The log joint of the partition and the bound of every range of the number of clusters are
        computed again, from the data, the partition and the prices alone, and all other figures
        must agree with them; only the `seconds` cannot be checked.  Whatever the fields hold, the
        answer is True or False, never an error.  See `dpsearch.exact.verification`.

        Parameters
        ----------
        exact
            Whether the bound must also hold in interval arithmetic, rounded outward, which looks at
            every set of rows: of at most 16, and with mpmath (``pip install "dpsearch[exact]"``).
            More rows, and a family whose terms are not known `exactly`, raise an error.

        Examples
        --------
        >>> import numpy as np
        >>> from dpsearch import certify, families, priors
        >>> X = np.array([[0.0, 1.0], [0.2, 0.9], [9.0, 3.0], [9.1, 3.3]])
        >>> family = families.DiagonalGaussian(0.0, 0.1, 2.0, 1.0)
        >>> certify(X, np.zeros(4), family, priors.DirichletProcess(1.0)).verify(exact=True)
        True
        """
        return is_proved_exactly(self) if exact else is_proved(self)

    def with_clusters(self, n_clusters: int, *, time_limit: float = 10.0) -> NumberBound:
        """Bound the partitions into so many clusters: by how much are they worse than the best?

        Examples
        --------
        >>> import numpy as np
        >>> from dpsearch import certify, families, priors
        >>> X = np.random.default_rng(0).normal(size=(30, 2)) + 6.0 * (np.arange(30) % 3)[:, None]
        >>> family, prior = families.Gaussian(0.0, 25.0, 1.0), priors.DirichletProcess(1.0)
        >>> certificate = certify(X, np.arange(30) % 3, family, prior)
        >>> certificate.with_clusters(2).worse_by > 80.0, certificate.apart(0, 1, within=5.0)
        (True, True)
        """
        return bound_of_n_clusters(self, n_clusters, time_limit)

    def apart(self, i: int, j: int, *, within: float = 0.0) -> bool:
        """Whether rows i and j are proved apart in each partition within so many nats of this."""
        bound = bound_of_pair(self, i, j, together=True, worse_by=within)
        return bound < self.lower_bound - within

    def together(self, i: int, j: int, *, within: float = 0.0) -> bool:
        """Whether rows i and j are proved together in each partition within so many nats."""
        bound = bound_of_pair(self, i, j, together=False, worse_by=within)
        return bound < self.lower_bound - within

    def save(self, path: str | Path) -> None:
        """Write everything but the data to a file, from which `load` makes the certificate again.

        The file is an archive of numbers and one text, and contains no code.
        """
        write_certificate(path, self)

    @classmethod
    def load(cls, path: str | Path, data: ArrayLike | CheckedTable) -> Certificate:
        """Return the certificate of a file, about these data; nothing of it is believed.

        It says what the file says.  Whether that is true of the data, `verify` tells.

        Parameters
        ----------
        path
            What `save` or ``dpsearch certify --out`` wrote.
        data
            The rows that were certified, in their order, as `certify` takes them.

        Examples
        --------
        >>> import numpy as np, tempfile
        >>> from dpsearch import Certificate, certify, families, priors
        >>> X = np.array([[0.0], [0.2], [9.0], [9.1]])
        >>> family, prior = families.Gaussian(0.0, 25.0, 1.0), priors.DirichletProcess(1.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     certify(X, np.zeros(4), family, prior).save(f"{folder}/proof.npz")
        ...     again = Certificate.load(f"{folder}/proof.npz", X)
        ...     other = Certificate.load(f"{folder}/proof.npz", X + 0.1)
        >>> again.verify(), other.verify()
        (True, False)
        """
        stored = read_certificate(path)
        return cls(**stored.fields, problem=stored.problem(data))


def certify(
    data: Problem | ArrayLike,
    start: Clustering | ArrayLike,
    family: Family | None = None,
    prior: Prior | None = None,
    *,
    time_limit: float | None = None,
    tolerance: float = 1e-6,
    polish: bool | None = None,
    line: bool = True,
    n_jobs: int | None = None,
    callback: Callback | None = None,
) -> Certificate:
    """Bound the log joint of every partition from above, and close the gap to the best one known.

    Parameters
    ----------
    data, family, prior
        As for `search`.  The prior must be of product form (not AntoniakCounts).
    start
        A clustering or labels.  A better partition that is found on the way takes its place.
    time_limit
        Wall time in seconds, without the time that Numba takes to compile kernels when they are
        first used.  None: run until the gap is closed, or cannot be closed further.
    tolerance
        A gap up to this, in nats, counts as closed.
    polish
        Whether to refine the partition first.  None: refine it unless `start` is a clustering on
        which refinement has converged.
    line
        Whether to use the dynamic programme on one-dimensional data.  Its potentials bound every
        partition, but are not prices of arbitrary sets.
    n_jobs
        Threads that price boxes of the statistic; -1: one for each core.  The result is the same.
    callback
        Called with an `Event` as the gap closes.

    Returns
    -------
    Certificate
        Its upper bound is finite and valid, even if time runs out early.  Ctrl-C returns what has
        been proved so far.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsearch import certify, families, priors
    >>> X = np.random.default_rng(0).normal(size=(30, 2)) + 6.0 * (np.arange(30) % 3)[:, None]
    >>> family, prior = families.Gaussian(0.0, 25.0, 1.0), priors.DirichletProcess(1.0)
    >>> certificate = certify(X, np.zeros(30), family, prior)
    >>> certificate.optimal, certificate.clustering.n_clusters, certificate.verify()
    (True, 3, True)
    """
    begun = clock()
    _check_number(time_limit, "time_limit", none=True)
    _check_number(tolerance, "tolerance", none=False)
    problem = as_problem(data, family, prior)
    if not problem.prior.product_form:
        raise CapabilityError(
            f"certify needs a prior that is a product over clusters; {problem.prior.name} is not"
        )
    require_points(problem, "certify")
    if polish is None:
        polish = not (isinstance(start, Clustering) and start.converged)
    labels = by_appearance(labels_of(start, problem))
    if labels.max() + 1 >= len(problem.log_v):  # more clusters than the prior allows
        labels[:] = 0
    threads = n_threads(n_jobs)
    certification = _Certification(problem, labels, begun, time_limit, tolerance, threads, callback)
    try:
        with plain_interrupts():
            certification.run(polish, line)
    except KeyboardInterrupt:
        current().interrupt()
    return certification.certificate()


class _Certification:
    """One run, which bounds one range of the number of clusters after another."""

    def __init__(
        self,
        problem: Problem,
        labels: Labels,
        begun: float,
        time_limit: float | None,
        tolerance: float,
        threads: int,
        callback: Callback | None,
    ) -> None:
        self.problem = problem
        self.labels = labels
        self.lower = problem.log_joint(labels)
        self.begun = begun
        self.deadline = math.inf if time_limit is None else clock() + time_limit
        self.tolerance = float(tolerance)
        self.threads = threads
        self.callback = callback
        self.done: list[Bounded] = []
        self.later: list[Bounded] = []
        self.order: Ints | None = None
        self.statistic = statistic_of(problem, labels)
        self.everything = by_loose_prices(problem)
        self.work: list[Bounded] = [self.everything]

    def run(self, polish: bool, line: bool) -> None:
        self._report(self.work[0].upper)
        if line and self._by_interval():
            return
        if polish:
            self._improve()
        if pricer_for(self.problem, self.statistic, 0.0) is None:
            return
        if self.problem.model.n_features > _FEW_COLUMNS:
            self._quick()
        start, log_v = self.work[0], self.problem.log_v
        n_clusters = int(self.labels.max()) + 1
        self.work = [start._replace(low=low, high=high) for low, high in ranges(log_v, n_clusters)]
        sets = Sets()
        while self.work and clock() <= self.deadline:
            self._next(sets)
            if not self.work:  # return to ranges whose share of the time ran out
                self.work, self.later = self.later, []

    def certificate(self) -> Certificate:
        entries = tuple(self.done + self.later + self.work)
        covered = {k for entry in entries for k in range(entry.low, entry.high + 1)}
        if len(covered) < len(self.problem.log_v) - 1:  # interrupted while ranges changed hands
            entries = (*entries, self.everything)
        clustering = self.problem.clustering(self.labels)
        lower = clustering.log_joint
        if not all(np.isfinite(entry.upper) for entry in entries):
            entries = (self.everything,)
        loosest = max(entries, key=lambda entry: entry.upper)
        upper = float(loosest.upper)
        for entry in entries:
            if entry.low <= clustering.n_clusters <= entry.high:  # it bounds this partition too
                spent = float(np.abs(entry.y).sum())
                rounding = rounding_of(self.problem, self.statistic, lower, entry.upper, spent)
                upper = max(upper, at_least(lower, entry.upper, rounding))
        optimal = bool(upper - lower <= self.tolerance)
        seconds = clock() - self.begun
        return Certificate(
            upper_bound=upper,
            lower_bound=lower,
            gap=upper - lower,
            optimal=optimal,
            clustering=replace(clustering, upper_bound=upper, optimal=optimal, seconds=seconds),
            tolerance=self.tolerance,
            method=loosest.kind,
            seconds=seconds,
            prices=entries,
            order=self.order,
            problem=self.problem,
        )

    def _improve(self) -> None:
        """Polish the partition, as only a proof around the best one can succeed.

        The moves that gain most have as much time as they need, so that the start is no worse on a
        busy machine.
        """
        left = max(0.2 * (self.deadline - clock()), 0.0)
        first = refine(self.problem, self.labels, thorough=False, rng=0,
                       seconds=None if math.isinf(left) else left)  # fmt: skip
        self._take(first.labels)
        seconds = max(_LEAST_POLISH, _POLISH * self.problem.n_items)
        if self.problem.model.n_features > _FEW_COLUMNS:
            seconds *= _LONGER
        seconds = min(seconds, max(0.2 * (self.deadline - clock()), 0.0))
        self._take(refine(self.problem, self.labels, seconds=seconds, rng=0).labels)

    def _by_interval(self) -> bool:
        """Solve one-dimensional data by the dynamic programme; return whether that was possible."""
        found = interval_optimum(self.problem, self.statistic, self.deadline)
        if found is None:
            return False
        self.done = list(found.entries)
        self.work, self.order = [], found.order
        self._take(found.labels)
        return True

    def _quick(self) -> None:
        """Find prices to fall back on, as branch and bound may not get far in many dimensions."""
        start = self.work[0]
        pricer = pricer_for(self.problem, self.statistic, start.lam)
        y = None if pricer is None else pricer.quick(deadline=self._share(0.5))
        if y is None:
            return
        found = by_prices(self.problem, start, y, 0.0, "quick")
        if found.upper < start.upper:
            self.work[0] = found
            self._report(found.upper)

    def _share(self, share: float) -> float:
        """Return when this share of the time left will be over."""
        now = clock()
        return now + share * max(self.deadline - now, 0.0)

    def _take(self, labels: Labels) -> None:
        value = self.problem.log_joint(labels)
        if value > self.lower:
            self.labels, self.lower = by_appearance(labels), value
            self._report(max(entry.upper for entry in self.done + self.later + self.work))

    def _next(self, sets: Sets) -> None:
        """Work on one range until it is bounded or split, or a better partition is found."""
        log_v = self.problem.log_v
        start = self.work[-1]
        low, high = start.low, start.high
        until = self._share(1.0 / len(self.work))
        others = [entry.upper for entry in self.done + self.later + self.work[:-1]]
        pricer = pricer_for(self.problem, self.statistic, slope(log_v, low, high), self.threads)
        assert pricer is not None  # as `run` has seen
        proof = Proof(
            pricer, sets, start, self.labels, self.lower, tolerance=self.tolerance, deadline=until,
            report=lambda upper: self._report(max([upper, *others])),
        )  # fmt: skip
        outcome = proof.run()
        self.work[-1] = outcome.bounded
        if outcome.what == "better" and outcome.labels is not None:
            self._take(outcome.labels)
            if not is_linear(log_v):
                self.work = _split_at(self.work, int(self.labels.max()) + 1)
            return
        self.work.pop()
        if outcome.what == "stuck" and low < high and not is_linear(log_v):
            middle = (low + high) // 2
            self.work.append(outcome.bounded._replace(low=low, high=middle))
            self.work.append(outcome.bounded._replace(low=middle + 1, high=high))
        elif clock() > until:
            self.later.append(outcome.bounded)
        else:
            self.done.append(outcome.bounded)

    def _report(self, upper: float) -> None:
        if self.callback is not None:
            elapsed, n_clusters = clock() - self.begun, int(self.labels.max()) + 1
            upper = max(upper, self.lower)
            self.callback(Event(elapsed, self.lower, n_clusters, "certify", upper_bound=upper))


def _split_at(entries: list[Bounded], n_clusters: int) -> list[Bounded]:
    """Split ranges at the best number of clusters known, so that their lines are tight there."""
    out = []
    for entry in entries:
        if entry.low < n_clusters < entry.high:
            out += [entry._replace(high=n_clusters), entry._replace(low=n_clusters)]
        else:
            out.append(entry)
    return out


def _check_number(value: float | None, name: str, *, none: bool) -> None:
    if value is None and none:
        return
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not (is_number and 0 <= value < np.inf):  # type: ignore[operator]
        raise ParameterError(
            f"{name} must be a number ≥ 0{' or None' if none else ''}, got {value!r}"
        )
