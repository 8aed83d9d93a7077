"""`partial_fit`: a model that is updated batch by batch."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import replace
from typing import Any, Self

import numpy as np

from dpsearch._types import ArrayLike
from dpsearch.deadline import Deadline, limited
from dpsearch.errors import CapabilityError, DepartureWarning, plain_interrupts
from dpsearch.fitted import FittedState
from dpsearch.fitted_methods import FittedMethods, generator
from dpsearch.fitting import FitOptions, fit_in_memory
from dpsearch.items import Rows
from dpsearch.levels import LevelOptions, find_levels
from dpsearch.mixture import Mixture
from dpsearch.passes.departure import FEWEST, Expected, changed_columns, in_words
from dpsearch.passes.stream import Stream
from dpsearch.problem import Clustering
from dpsearch.tables import CheckedTable, without_codes

_FOLLOWS = (
    "Hyperparameters are learned again from a sample of all rows, now and as more rows come; if the"
    " earlier rows no longer matter, start a new model with recent rows"
)
_STAYS = (
    "The {name} family stays as it is, because {why}; if the earlier rows no longer matter, start"
    " a new model with recent rows"
)


class StreamMethods(FittedMethods):
    """The methods of `DPMixture` for streams."""

    level: Any
    min_cluster_size: int
    time_limit: float | None
    _stream: Stream | None

    @abstractmethod
    def fit(self, X: ArrayLike) -> Self:
        """Find the best partition of the rows of X."""

    @abstractmethod
    def fit_options(self, callback: Any = None) -> FitOptions:
        """Return the parameters of a fit, checked."""

    @abstractmethod
    def _set(self, state: FittedState) -> None:
        """Set the fitted attributes."""

    def partial_fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Add a batch of rows to the model, for streams; memory stays bounded.

        The first batch is fitted as by `fit`.  Each later batch is added to the clusters, which are
        merged and split from time to time.  Until 20,000 rows have come, all rows are fitted again
        at growing intervals, with a new choice of the family and its hyperparameters.  After that,
        hyperparameters are learned from a sample of all rows each time that the number of rows has
        doubled, unless the family was given.  `log_joint_` is exactly that of all rows seen, under
        the current hyperparameters; `labels_` are those of this batch.  After `fit`, the clusters
        of the fit are the start.

        If many rows of a batch are far less probable than the rows before, a `DepartureWarning`
        says so, and `departure_` has its text.

        Gaps that the family cannot skip are filled: in the first batch as by `fit`, later with the
        expectation of the row's most probable cluster, given the observed values.

        With `time_limit`, a batch is always added; phases for which there was no time are named in
        `cut_short_`, and tried again with the next batch.

        A call that raises an error or is interrupted changes nothing: pass the batch again.
        """
        after = object.__new__(type(self))
        after.__dict__.update(vars(self))
        with plain_interrupts():
            after._add(X)
        self.__dict__ = after.__dict__  # at once
        return self

    def _add(self, X: ArrayLike) -> None:
        """Add a batch; if this is interrupted, the model must not be used."""
        if not hasattr(self, "mixture_"):
            self.fit(X)
            self._begin(self.encode(X))
            return
        table, mixture = self.checked(X), self.mixture_
        if table.gaps and not self.family_.skips(table):
            table = CheckedTable(mixture.impute(table.matrix, from_one=True), complete=True)
        stream, mixture = self._stream_for(table, mixture)
        by_name, prior = isinstance(self.family, str), mixture.prior
        departure = None if by_name and stream.keeps_all else self._departed(stream, mixture, table)
        n_rows, keeps_all = table.shape[0], stream.keeps_all_of(table.shape[0])
        with limited(self.time_limit, None) as deadline:
            if by_name and keeps_all and stream.is_due(n_rows):
                stream.keep(table.matrix, stream.n_seen, np.zeros(n_rows, np.int64))
                self._learn_again(stream, n_rows, deadline)
                return
            model, labels, renamed = stream.add(
                mixture.model, prior, table.matrix, learning=by_name and not keeps_all
            )
        found = Clustering(labels, stream.log_joint(model, prior))
        mixture = Mixture(model, *stream.clusters, prior)
        state = self.state_._replace(
            mixture=mixture, clustering=found, weights=None, certificate=None, last_batch=True,
            departure=departure or self.state_.departure, cut_short=tuple(deadline.cut_short),
        )  # fmt: skip
        self._set(self._with_levels(state, stream, renamed is not None))
        self._stream = stream

    def _stream_for(self, table: CheckedTable, mixture: Mixture) -> tuple[Stream, Mixture]:
        """Return the stream for a batch, and the clusters in a form that allows its gaps."""
        before = self._stream
        stream = self._new_stream(int(mixture.sizes.sum())) if before is None else before.copy()
        if table.gaps and not mixture.has_gaps and self.family_.takes_gaps:
            mixture = mixture.gapped
            stream.clusters = Rows(mixture.pool, mixture.sizes)
        return stream, mixture

    def _departed(self, stream: Stream, mixture: Mixture, table: CheckedTable) -> str | None:
        """Warn, and return the warning, if a batch is the first to depart from earlier rows."""
        if len(stream.kept_rows) < FEWEST:
            return None
        if stream.expected is None:
            stream.expected = Expected.of(mixture, stream.kept, stream.kept_labels)
        before = stream.departed
        stream.departed = stream.expected.left_by(mixture, table, stream.n_judged)
        stream.n_judged += 1
        if before or not stream.departed:
            return None
        stream.origin = stream.n_seen
        columns = () if self.schema_ is None else self.schema_.columns
        codes = {j for j, one in enumerate(columns) if one.kind == "category"}
        names = self._column_names()
        changed = changed_columns(stream.kept, table.matrix, names, codes)
        family, by_name = mixture.model.family, isinstance(self.family, str)
        why = "its statistics depend on hyperparameters" if by_name else "it was given"
        follows = by_name and family.learns_on
        then = _FOLLOWS if follows else _STAYS.format(name=family.name, why=why)
        text = in_words(stream.expected, mixture, table, stream.n_seen, changed, then)
        warnings.warn(DepartureWarning(text), stacklevel=4)
        return text

    def _begin(self, table: CheckedTable, n_last: int | None = None) -> None:
        """Begin a stream with the rows of the fit, whose last rows are the last batch."""
        stream, state = self._new_stream(0), self.state_
        seen = slice(None) if state.weights is None else state.weights > 0
        stream.keep(table.matrix[seen], 0, self.component_labels_[seen])
        last = slice(None if n_last is None else -n_last, None)
        found = replace(state.clustering, labels=state.clustering.labels[last], weights=None)
        self._set(state._replace(clustering=found, weights=None, completed=None, last_batch=True))
        self._stream = stream

    def _learn_again(self, stream: Stream, n_last: int, deadline: Deadline) -> None:
        """Fit all rows so far, which have all been kept, as one table."""
        before, rows = self.state_, CheckedTable(stream.kept)
        kinds = None if before.schema is None else before.schema.for_choice
        state = fit_in_memory(rows, kinds, self.fit_options())
        codes = tuple(dict.fromkeys([*before.codes, *state.codes]))
        names, schema, triage = before.names, before.schema, before.triage
        self._set(
            state._replace(
                names=names, schema=schema, triage=triage, codes=codes,
                cut_short=tuple(deadline.cut_short),
            )
        )  # fmt: skip
        self._begin(self.encode(without_codes(rows, codes)), n_last)

    def _with_levels(self, state: FittedState, stream: Stream, renamed: bool) -> FittedState:
        """Return a state with the clusters of before, or clusters found again from the kept rows.

        They are found again if components have changed, or the number of rows has doubled.
        """
        mixture, before = state.mixture, self._levels
        same = mixture.n_components == self.n_components_ and not renamed
        if same and stream.n_seen < 2 * before.tree.sizes[-1]:
            levels = before.with_sizes(mixture.sizes)
        else:
            rows, _ = mixture.model.items(stream.kept)
            levels = find_levels(mixture, rows, stream.kept_labels, stream.kept, halves=False)
            if stream.before:  # the check before used rows that are no longer kept
                levels = replace(levels, merges=before.merges, finding=before.finding)
        options = LevelOptions.of(self.level, self.min_cluster_size)
        return state._replace(levels=levels).at_level(options.at_most(mixture.n_components))

    def _new_stream(self, before: int) -> Stream:
        mixture = self.mixture_
        if not mixture.prior.product_form:
            raise CapabilityError(
                f"partial_fit needs a prior of product form; {mixture.prior.name} is not"
            )
        clusters = Rows(mixture.pool, mixture.sizes)
        (rng,) = generator(self.random_state).spawn(1)  # its own, whose state may be reset
        return Stream.of(mixture.model, mixture.prior, clusters, self.log_joint_, rng, before)
