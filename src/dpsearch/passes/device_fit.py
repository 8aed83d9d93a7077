"""The fit of many rows on a device: clusters of a sample first, then passes over all rows there.

The sample decides on the family, and with the final clusters on the levels, in memory.  Threads
check all rows meanwhile, and add up their log base.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from dpsearch._arrays import is_sparse, to_host
from dpsearch._types import Ints, Labels
from dpsearch._validate import as_matrix, n_threads
from dpsearch.automatic import choose, recognise_codes
from dpsearch.deadline import OutOfTime, current
from dpsearch.errors import located, plain_interrupts
from dpsearch.families.linear import indices, namespace
from dpsearch.fitted import FittedState
from dpsearch.fitting import FitOptions
from dpsearch.passes.device import open_rows
from dpsearch.passes.fit import MOST_CLUSTERS, Sample, ShardsFit, Start, with_values
from dpsearch.passes.rows import Encoding
from dpsearch.passes.search import BatchSearch
from dpsearch.passes.start import clusters_of_sample
from dpsearch.problem import Problem
from dpsearch.sources.opened import OpenedTable
from dpsearch.sources.shards import SAMPLE_ROWS, ArrayShard, drawn_rows, stacked
from dpsearch.tables import CheckedTable

_CHECKED = 1 << 22  # cells that a thread checks at once
_BUDGET = 2.0  # sweeps of all rows that regrouping may cost by default


def fit_on_device(opened: OpenedTable, options: FitOptions) -> FittedState | None:
    """Fit many rows on a device; return None if they are few, or if more is asked for."""
    plain = options.certify_seconds is None and options.checkpoint is None
    here = opened.cluster() is None and options.prior.product_form
    if opened.n_rows <= SAMPLE_ROWS or not plain or not here:
        return None
    try:
        return _DeviceFit(opened, options).run()
    except _NotSo:
        return None


class _NotSo(Exception):
    """Rows must be changed before they can be fitted, or their family has no linear form."""


class _Rows:
    """Rows on a device whose labels come here."""

    def __init__(self, rows: Any, log_base: float) -> None:
        self.rows, self.log_base, self.n_rows = rows, log_base, rows.n_rows

    def labels(self) -> Labels:
        return np.asarray(to_host(self.rows.labels()), dtype=np.int64)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rows, name)


class _Search(BatchSearch):
    """A search that knows which rows are the sample."""

    sample: Ints

    def sample_labels(self) -> Labels:
        labels: Labels = self.rows.labels()[self.sample]
        return labels


class _DeviceFit(ShardsFit):
    """One fit on a device."""

    def run(self) -> FittedState:
        options, history, X = self.options, self.history, _whole(self.opened)
        numbers = _sampled(X, self.seed)
        rows = _taken(X, numbers)
        sample, problem, reason = self.chosen(X, as_matrix(to_host(rows), gaps=True), numbers)
        model = problem.model
        encoding = Encoding(model.family, model.n_features)
        form = encoding.form()
        with ThreadPoolExecutor(n_threads(options.n_jobs)) as threads:
            checks = [threads.submit(_checked, encoding, X, *span) for span in _spans(X)]
            few = self.search(open_rows(form, rows, options.device), encoding, lambda *_: None)
            few.begin_from(clusters_of_sample(problem, options.rng))
            self.in_time(few, few.first)
            log_base = sum(check.result() for check in checks)
        history.log_base = lambda: log_base
        here: Any = _Rows(open_rows(form, X, options.device), log_base)
        batch: Any = self.search(here, encoding, history.note)
        batch.sample = sample.numbers
        batch.begin_from(few.totals)
        history.note("place", batch.log_joint, batch.n_clusters)
        current().has_result = True
        with current().during("refining", 0.8):
            converged = self.in_time(batch, lambda: self.improved(batch))
        start = Start(encoding, batch.totals, reason)
        return self.fitted(sample, start, model, batch, here, converged)

    def chosen(self, X: Any, matrix: Any, numbers: Ints) -> tuple[Sample, Problem, str]:
        """Choose the family by the sample."""
        options, schema = self.options, self.opened.kinds
        with located(rows=numbers):
            table, codes = recognise_codes(
                CheckedTable(matrix), options.family, schema, options.missing_codes
            )
            sample = with_values(table, numbers)
            given = options.family, options.prior, schema
            with current().during("choosing the family", 0.4):
                choice = choose(sample.matrix, *given, may_complete=False, may_try=False)
            family = choice.family
            gaps = not is_sparse(X) and bool(namespace(X).any(namespace(X).isnan(X)))
            if codes or (gaps and not family.takes_gaps):
                raise _NotSo
            family = family.with_gaps() if gaps else family
            problem = Problem(sample.matrix, family, options.prior)
        if problem.model.family.linear(problem.model.n_features) is None:
            raise _NotSo
        return sample, problem, choice.reason

    def search(
        self, rows: Any, encoding: Encoding, note: Callable[[str, float, int], None]
    ) -> _Search:
        tables = self.options.prior.tables(rows.n_rows, min(rows.n_rows, MOST_CLUSTERS))
        check_time, rng = self.history.check_time, self.options.rng
        return _Search(rows, encoding.form(), tables, rng, note, check_time)

    def in_time(self, batch: BatchSearch, work: Callable[[], bool | None]) -> bool:
        """Do the work until the time is up; return what it says, or False."""
        try:
            with plain_interrupts():
                return bool(work())
        except OutOfTime:
            return False
        except KeyboardInterrupt:  # labels and totals may not be of the same moment
            current().interrupt()
            with current().needed():
                batch.begin_from(batch.totals)
            return False

    def improved(self, batch: BatchSearch) -> bool:
        """Sweep, divide and merge; regroup for a while, or until nothing gains any more."""
        how, n = self.options.refinement, batch.rows.n_rows
        if not how.wanted:
            return False
        batch.sweeps_until_settled()
        batch.first(1)
        batch.failures[:] = 0
        return batch.rounds(_BUDGET * n * batch.n_clusters if how.automatic else np.inf)


def _whole(opened: OpenedTable) -> Any:
    """All rows in one array, where they are."""
    first = opened.shards[0]
    if isinstance(first, ArrayShard):
        return first.array
    return stacked([shard.load() for shard in opened.shards])


def _sampled(X: Any, seed: int) -> Ints:
    """The numbers of some rows drawn at random, and of those with extreme values."""
    drawn = drawn_rows(X.shape[0], SAMPLE_ROWS, [seed])
    if is_sparse(X):
        return drawn
    xp = namespace(X)
    extreme = [to_host(find(X, axis=0)) for find in (xp.argmin, xp.argmax)]
    return np.unique(np.concatenate([drawn, *extreme]))


def _taken(X: Any, numbers: Ints) -> Any:
    """Some of the rows, where they are."""
    return X[numbers] if is_sparse(X) else namespace(X).take(X, indices(X, numbers), axis=0)


def _spans(X: Any) -> list[tuple[int, int]]:
    step = max(1, _CHECKED // X.shape[1])
    return [(a, min(a + step, X.shape[0])) for a in range(0, X.shape[0], step)]


def _checked(encoding: Encoding, X: Any, begin: int, end: int) -> float:
    """Check rows against the family; return the sum of their log base."""
    rows = X[begin:end] if is_sparse(X) else X[begin:end, :]
    with located(rows=begin):
        matrix = as_matrix(rows, gaps=True)
    empty, log_base = encoding.check(matrix, begin)
    if empty.any():
        raise _NotSo
    return log_base
