"""The fit of a table in shards: look at all rows, search a sample, then a few passes over all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dpsearch._threads import each, shared, single_products
from dpsearch._types import Ints, Labels
from dpsearch._validate import n_threads
from dpsearch.automatic import choose, codes_in_words, recognise_codes
from dpsearch.deadline import OutOfTime, current
from dpsearch.errors import (
    CapabilityError,
    DataError,
    ParameterError,
    WorkersError,
    located,
    plain_interrupts,
)
from dpsearch.events import Event
from dpsearch.families.base import Model
from dpsearch.fitted import FittedState
from dpsearch.fitting import FitOptions, first_partition, fit_in_memory
from dpsearch.items import Items, log_marginals, merge_rows
from dpsearch.levels import find_levels
from dpsearch.mixture import Mixture
from dpsearch.passes.checkpoint import Checkpoint
from dpsearch.passes.chunk import Totals
from dpsearch.passes.dask_rows import DaskRows, survey_by_dask
from dpsearch.passes.history import History
from dpsearch.passes.memory import rows_in_memory
from dpsearch.passes.piloted import PilotedSearch
from dpsearch.passes.rows import (
    CHUNK_NUMBERS,
    FEWEST,
    KEPT,
    Encoding,
    LargeRows,
    ThreadedRows,
    features_of,
)
from dpsearch.passes.search import BatchSearch
from dpsearch.priors.base import log_prior
from dpsearch.problem import Clustering, Problem
from dpsearch.refinement import refine_first, refine_rows
from dpsearch.sources.opened import OpenedTable
from dpsearch.sources.shards import (
    SAMPLE_ROWS,
    ArrayShard,
    Shard,
    Survey,
    begins_of,
    decisive_rows,
    divided,
    drawn_rows,
    joined_surveys,
    sampled_rows,
    stacked,
    survey_part,
)
from dpsearch.tables import CheckedTable, content_order

_REGROUPS = 4  # in a round
_FEW = 2  # times as many rows as are sampled, up to which the sample is not refined by itself
_TURNS = 10  # times as many rows as are sampled, up to which rows are also moved one by one
_ROUNDS, _FEW_ROUNDS = 10, 3  # by default: in memory, and where rows have to be read
_MOST_ROUNDS = 1000  # where refinement is to converge
_CHUNKS_OF_SHARD = 4  # in memory: a thread that waits for the next shard waits less often
_SURVEYED = 1 << 14  # rows in memory at a time, in the first look
_LOOKED_UP = 1 << 12  # rows of the sample at a time, when they are put in order
MOST_CLUSTERS = 1 << 16  # that tables of the prior are made for


class Sample(NamedTuple):
    """Rows that were drawn from all shards, in an order that their content decides."""

    table: CheckedTable  # with gaps in place of codes, and without rows that have no value
    numbers: Ints  # which rows of the whole they are

    @property
    def matrix(self) -> Any:
        return self.table.matrix


class Start(NamedTuple):
    """What the sample decides: the family, and the clusters to begin with."""

    encoding: Encoding
    clusters: Totals
    reason: str


def suits_shards(opened: OpenedTable, options: FitOptions) -> bool:
    """Whether a table is fitted by passes over its shards.

    With a checkpoint that is also so for one shard, unless it is so small that it needs none.
    """
    kept = options.checkpoint is not None and opened.n_rows >= FEWEST
    return kept or not opened.in_memory


def fit_in_shards(opened: OpenedTable, options: FitOptions) -> FittedState:
    """Fit all rows of an opened table, which stay in their shards.

    A sample decides on the family and its hyperparameters, as in a fit in memory, and its clusters
    are the start.  With a checkpoint the clusters are written to this file whenever they are
    better; if the file exists, its clusters are the start instead.
    """
    for name, given in (("certify", options.certify_seconds), ("device", options.device)):
        if given is not None:
            raise ParameterError.of(
                name, "needs the table in memory: set n_shards=1, and no checkpoint"
            )
    if not options.prior.product_form:
        raise CapabilityError(f"shards need a prior of product form; {options.prior.name} is not")
    try:
        return ShardsFit(opened, options).run()
    except _OnePiece:
        table = CheckedTable(stacked([shard.load() for shard in opened.shards]))
        return fit_in_memory(table, opened.kinds, options)


class _OnePiece(Exception):
    """The family has no linear form, and the rows are in memory, where none is needed."""


class ShardsFit:
    """One fit: where the rows are, and what is known of them."""

    def __init__(self, opened: OpenedTable, options: FitOptions) -> None:
        self.opened, self.options = opened, options
        self.client = opened.cluster()
        self.in_memory = all(isinstance(shard, ArrayShard) for shard in opened.shards)
        self.history = History(options.refinement.seconds, options.callback)
        self.seed = int(options.rng.integers(2**31))
        self.gaps = True
        self.best: Totals | None = None
        self.store: Checkpoint | None = None

    def run(self) -> FittedState:
        opened, options = self.opened, self.options
        threads, told = n_threads(options.n_jobs), self.progress(len(opened.shards))
        with current().during("looking at all rows"):
            surveys = survey_shards(opened.shards, self.client, threads, self.seed, told)
        if options.checkpoint is not None:
            self.store = Checkpoint(
                options.checkpoint, opened.shards, options, opened.schema, surveys
            )
        resumed = None if self.store is None else self.store.read()
        self.gaps = any(one.gaps for one in surveys)
        matrix, numbers = drawn(surveys, begins_of(opened.shards))
        with located(rows=numbers):
            table = CheckedTable(matrix)
            if resumed is None:
                sample, start = self.begin(table, numbers)
            else:
                sample = with_values(resumed.encoding.without_codes(table), numbers)
                start = Start(resumed.encoding, resumed.clusters, resumed.reason)
        least = -np.inf if resumed is None else resumed.log_joint
        try:
            with single_products():
                return self.passes(sample, start, least)
        except WorkersError as error:
            if self.store is None or not self.store.n_written:
                raise
            raise WorkersError(
                f"{error}; {self.store.path} holds the best clusters found by then, and the same"
                " call continues from them"
            ) from error

    def progress(self, n_shards: int) -> Callable[[int], None] | None:
        """What is called with the number of shards that are done in a pass."""
        callback, history = self.options.callback, self.history
        if callback is None:
            return None

        def told(done: int) -> None:
            last = history.trace[-1] if history.trace else Event(0.0, np.nan, 0, "")
            callback(Event(history.elapsed, *last[1:3], "shards", done, n_shards))

        return told

    def begin(self, table: CheckedTable, numbers: Ints) -> tuple[Sample, Start]:
        """Choose the family by the sample and search it."""
        options, schema = self.options, self.opened.kinds
        prior, rng = options.prior, options.rng
        table, codes = recognise_codes(table, options.family, schema, options.missing_codes)
        sample = with_values(table, numbers)
        with current().during("choosing the family", 0.4):
            choice = choose(
                sample.table, options.family, prior, schema, may_complete=False, may_try=False
            )
        family = choice.family
        if (self.gaps or codes) and family.takes_gaps:
            family = family.with_gaps()  # also if the sample has none
        problem = Problem(sample.table, family, prior)
        model = problem.model
        encoding = Encoding(model.family, model.n_features, codes)
        if self.in_memory and model.family.linear(model.n_features) is None:
            raise _OnePiece
        form = encoding.form()
        with current().during("searching a sample", 0.4):
            told = replace(options, callback=None)
            labels = first_partition(problem, told, options.order, choice).labels
            if not self.suits_turns(encoding) or self.opened.n_rows > _FEW * len(labels):
                labels = refine_first(problem, labels, rng=rng, n_jobs=options.n_jobs)
        rows = rows_in_memory(form, sample.matrix, n_threads(options.n_jobs))
        rows.place(labels)
        reason = choice.reason + codes_in_words(codes, schema, options.missing_codes)
        return sample, Start(encoding, rows.totals(int(labels.max()) + 1), reason)

    def passes(self, sample: Sample, start: Start, least: float) -> FittedState:
        """Give all rows to the sample's clusters and improve them; return what was found."""
        options, history, encoding = self.options, self.history, start.encoding
        form = encoding.form()
        rows: LargeRows = rows_where_they_are(self.opened, encoding, n_threads(options.n_jobs))
        rows.progress = self.progress(rows.n_shards)
        history.log_base = lambda: rows.log_base
        tables = options.prior.tables(rows.n_rows, min(rows.n_rows, MOST_CLUSTERS))

        def note(step: str, log_joint: float, n_clusters: int) -> None:
            history.note(step, log_joint, n_clusters)
            self.best = batch.totals
            if self.store is not None and log_joint + rows.log_base > least:
                value = log_joint + rows.log_base
                self.store.write(encoding, batch.totals, value, start.reason)

        batch: BatchSearch
        how = options.rng, note, history.check_time
        if self.suits_turns(encoding):
            batch, improve = BatchSearch(rows, form, tables, *how), self.by_turns
        else:
            features, threads = features_of(form, sample.matrix), n_threads(options.n_jobs)
            batch = PilotedSearch(rows, features, form, tables, *how, threads)
            improve = self.by_pilot
        with current().during("placing all rows"), current().needed():
            batch.begin_from(start.clusters)
        n_seen = int(batch.totals.sizes.sum())  # rows without any value are no points
        if n_seen < rows.n_rows:
            batch.tables = options.prior.tables(n_seen, min(n_seen, MOST_CLUSTERS))
        note("place", batch.log_joint, batch.n_clusters)
        model = encoding.family.compile(sample.matrix)
        current().has_result = True
        with current().during("refining", 0.8):
            converged = improve(batch, model, encoding) if options.refinement.wanted else False
        return self.fitted(sample, start, model, batch, rows, converged)

    def suits_turns(self, encoding: Encoding) -> bool:
        """Whether passes take turns with moves of single rows: not many rows, in memory."""
        if not self.options.refinement.wanted or self.gaps or encoding.codes:
            return False  # also where a row without any value takes no part
        here = self.in_memory and self.client is None
        return here and FEWEST <= self.opened.n_rows <= _TURNS * SAMPLE_ROWS

    def by_turns(self, batch: BatchSearch, model: Model, encoding: Encoding) -> bool:
        """Improve clusters by passes and by moves of single rows; return whether none is left."""
        options, threads = self.options, n_threads(self.options.n_jobs)
        shards = batch.rows.chunks  # type: ignore[attr-defined]
        items = list(each(lambda one: model.items(encoding.load(one))[0], shards, threads))
        problem = Problem.of_items(
            model, Items.joined(items), 0.0, options.prior, tables=batch.tables
        )
        labels, converged = refine_rows(
            problem, batch, self.history, options.rng, n_threads=threads,
            thorough=not options.refinement.automatic,
        )  # fmt: skip
        batch.begin_with(labels)
        batch.note("end", batch.log_joint, batch.n_clusters)
        return converged

    def by_pilot(self, batch: Any, model: Model, encoding: Encoding) -> bool:
        """Improve clusters by passes that a sample prepares; return whether nothing gains more."""
        try:
            with plain_interrupts():
                return bool(batch.improve(*self.effort()))
        except OutOfTime:
            pass
        except KeyboardInterrupt:
            current().interrupt()
            # Labels and totals may not be of the same moment: one more pass makes them so.
            assert self.best is not None
            with current().needed():
                batch.begin_from(self.best)
        return False

    def effort(self) -> tuple[int, int]:
        """How many rounds are made at most, and how often clusters are regrouped in each."""
        if not self.options.refinement.automatic:
            return _MOST_ROUNDS, _REGROUPS
        return (_ROUNDS, _REGROUPS) if self.in_memory else (_FEW_ROUNDS, 0)

    def fitted(
        self,
        sample: Sample,
        start: Start,
        model: Model,
        batch: Any,
        rows: LargeRows,
        converged: bool,
    ) -> FittedState:
        """Return what was found, its clusters numbered from the largest."""
        options, encoding = self.options, start.encoding
        sizes = batch.totals.sizes.round().astype(np.int64)
        pool = _statistics(model, batch.form.rows(*batch.totals))
        marginals = log_marginals(model.core, pool, len(sizes))
        order = np.lexsort((-marginals, -sizes))
        batch.rows.decide(np.empty(0, np.int64), np.argsort(order))
        sizes, pool = sizes[order], pool.reshape(len(order), -1)[order].reshape(-1)
        value = log_prior(batch.tables, sizes) + float(marginals[order].sum()) + rows.log_base
        mixture = Mixture(model.without_data(), pool, sizes, options.prior)
        labels, weights = self.labels(rows, mixture, int(sizes.sum()))
        found = Clustering(
            labels, value, converged=converged, seconds=self.history.elapsed,
            trace=self.history.trace, weights=weights,
        )  # fmt: skip
        of_sample = labels[sample.numbers] if self.client is None else batch.sample_labels()
        with current().during("finding levels"):
            levels = find_levels(mixture, None, of_sample, sample.matrix)
        state = FittedState(
            mixture, found, start.reason, levels, self.opened.schema, weights=weights,
            codes=encoding.codes,
        )  # fmt: skip
        return state.at_level(options.level)

    def labels(self, rows: LargeRows, mixture: Mixture, n_seen: int) -> tuple[Any, Ints | None]:
        """The component of each row, and weights if some rows have no value: 0 for these.

        They get the most probable component, as `predict` says of a row without any value.
        """
        if n_seen == rows.n_rows:
            return rows.labels(), None
        nothing = CheckedTable(np.full((1, mixture.model.n_features), np.nan))
        label = int(mixture.memberships(nothing).components[0])
        if isinstance(rows, DaskRows):
            return rows.labels(label), None
        labels: Labels = rows.labels()
        return np.where(labels < 0, label, labels), (labels >= 0).astype(np.int64)


def survey_shards(
    shards: Sequence[Shard],
    client: Any,
    threads: int,
    seed: int,
    progress: Callable[[int], None] | None = None,
) -> list[Survey]:
    """Read every shard once, drawing some rows from each."""
    n_sampled = sampled_rows(shards, SAMPLE_ROWS)
    if client is not None:
        return survey_by_dask(shards, client, n_sampled, seed, progress)

    of_shards = [divided([shard], _SURVEYED) for shard in shards]
    places = [(s, p) for s, parts in enumerate(of_shards) for p in range(len(parts))]
    rows = [
        drawn_rows(shard.n_rows, int(n_sampled[s]), [seed, s]) for s, shard in enumerate(shards)
    ]

    def work(place: tuple[int, int]) -> Survey:
        s, p = place
        return survey_part(of_shards[s][p], begins_of(of_shards[s])[p], rows[s])

    found = []
    with closing(each(work, places, threads)) as surveys:
        for parts in of_shards:
            found.append(joined_surveys(list(itertools.islice(surveys, len(parts)))))
            if progress is not None:
                progress(len(found))
    return found


def rows_where_they_are(
    opened: OpenedTable, encoding: Encoding, threads: int
) -> DaskRows | ThreadedRows:
    """Return the rows of all shards of a table, for passes."""
    shards, form, client = opened.shards, encoding.form(), opened.cluster()
    if client is not None:
        return DaskRows(encoding, shards, client, stay=opened.client_stays)
    in_memory = all(isinstance(shard, ArrayShard) for shard in shards)
    array: Any = getattr(shards[0], "array", None)
    width = form.n_totals
    if sp.issparse(array):  # whose rows have few numbers, and whose totals have many
        width = max(1, array.nnz // array.shape[0])
    shards = divided(shards, max(1, _CHUNKS_OF_SHARD * CHUNK_NUMBERS // width))
    return ThreadedRows(form, shards, threads, encoding, kept=KEPT if in_memory else 0)


def drawn(surveys: Sequence[Survey], begins: Sequence[int]) -> tuple[Any, Ints]:
    """The rows that were drawn, and those that show which values there are; with their numbers.

    They come in an order that their content decides.
    """
    rows = [begin + one.rows for begin, one in zip(begins, surveys, strict=True)]
    decisive = stacked([one.decisive for one in surveys])
    which = [begin + one.decisive_rows for begin, one in zip(begins, surveys, strict=True)]
    chosen = decisive_rows(decisive) if decisive.shape[0] else np.empty(0, np.int64)
    samples = [part for one in surveys for part in one.samples]
    sample = stacked([*samples, decisive[chosen]])
    order = content_order(CheckedTable(sample))
    numbers = np.concatenate([*rows, np.concatenate(which)[chosen]])
    return _in_order(sample, order), numbers[order]


def _in_order(matrix: Any, order: Ints) -> Any:
    """Return the rows of a matrix in another order."""
    if sp.issparse(matrix):
        return matrix[order]
    out = np.empty_like(matrix)

    def write(begin: int) -> None:
        at = slice(begin, begin + _LOOKED_UP)
        np.take(matrix, order[at], axis=0, out=out[at], mode="clip")

    for _ in shared(write, range(0, len(order), _LOOKED_UP)):
        pass
    return out


def with_values(table: CheckedTable, numbers: Ints) -> Sample:
    """The rows that have a value."""
    seen = ~table.empty_rows
    if not seen.any():
        raise DataError("no row of X has any value")
    return Sample(table, numbers) if seen.all() else Sample(table.rows(seen), numbers[seen])


def _statistics(model: Model, rows: Any) -> Any:
    """Rows of statistics, end to end, completed by `merge`."""
    out = [model.empty_row() for _ in rows]
    for row, statistics in zip(out, rows, strict=True):
        merge_rows(model.core, row, statistics, 1.0)
    return np.concatenate(out)
