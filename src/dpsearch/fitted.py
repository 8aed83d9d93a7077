"""`FittedState`: the result of a fit, as plain data that a model file can store."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dpsearch._types import Ints, Labels, Matrix
from dpsearch.automatic import completed_table
from dpsearch.levels import LevelOptions, Levels
from dpsearch.mixture import Mixture
from dpsearch.problem import Clustering
from dpsearch.tables import CheckedTable, Codes, Schema, Triage

if TYPE_CHECKING:
    from dpsearch.exact import Certificate


class FittedState(NamedTuple):
    """The result of a fit."""

    mixture: Mixture  # the components and the clusters that they form, ready for prediction
    clustering: Clustering  # the partition into components, its value and how it was found
    reason: str  # why the family was chosen
    levels: Levels  # the tree over the components
    schema: Schema | None = None  # what the columns hold; None if all hold numbers
    names: tuple[str, ...] | None = None  # of the columns, if they have any
    weights: Ints | None = None  # how often each row counts, 0 if it has no value; None: once
    completed: Matrix | None = None  # the table that was fitted, if gaps were filled first
    certificate: Certificate | None = None  # the proof of the clustering's upper bound
    index_name: str | None = None  # the column that named the rows of a file
    last_batch: bool = False  # whether labels are those of the last batch, not of all rows
    level_reason: str = ""  # why the components form these clusters, in words
    codes: Codes = ()  # columns and values that were taken as missing
    triage: Triage | None = None  # what was decided about the columns of a frame or file
    cut_short: tuple[str, ...] = ()  # phases of the fit that the time limit ended
    departure: str | None = None  # how a batch departed from earlier rows, in words

    def at_level(self, options: LevelOptions) -> FittedState:
        """Return the same fit with its clusters at another level."""
        mixture = self.mixture.grouped(self.levels.groups(options))
        reason = self.levels.reason(options, mixture.n_clusters)
        return self._replace(mixture=mixture, level_reason=reason)

    def labels_of(self, table: CheckedTable) -> Labels | None:
        """Return the component of each row, −1 for none; None if these are not the rows of the fit.

        They are those of the fit if its labels give them the components' statistics.
        """
        labels, mixture = self.clustering.labels, self.mixture
        if labels is None or table.shape[0] != len(labels):
            return None
        family = mixture.model.family
        if table.gaps and not (family.skips(table) and family.suited(table) == family):
            return None
        seen = np.ones(len(labels), bool) if self.weights is None else self.weights > 0
        items, _ = mixture.model.items(table.rows(seen))
        if self.weights is not None:
            items = items._replace(sizes=self.weights[seen])
        labels = np.asarray(labels)
        pool, _ = mixture.model.rows(items, labels[seen], mixture.n_components)
        same = np.allclose(mixture.settled(pool), mixture.settled(mixture.pool), rtol=1e-9)
        return np.asarray(np.where(seen, labels, -1)) if same else None

    def completed_again(self, table: CheckedTable) -> Matrix | None:
        """Return the completed table that was fitted, if these are its rows.

        Completion gives the same result every time, so a model from a file can repeat it.
        """
        labels = self.clustering.labels
        if labels is None or len(labels) != table.shape[0]:
            return None
        if np.isnan(table.matrix).all(axis=0).any():
            return None
        seen = slice(None) if self.weights is None else self.weights > 0
        schema = None if self.schema is None else self.schema.for_choice
        inside = completed_table(table.rows(seen), schema, self.mixture.prior)
        found = self.with_unseen(inside, table)
        known = found is not None and self.labels_of(CheckedTable(found)) is not None
        return found if known else None

    def with_unseen(self, inside: Matrix | None, table: CheckedTable) -> Matrix | None:
        """Return completed rows together with rows of weight 0, whose gaps are imputed.

        Rows of the fit without any value have weight 0, too.
        """
        if inside is None or self.weights is None:
            return inside
        out = np.empty(table.shape)
        seen = self.weights > 0
        out[seen] = inside
        if not seen.all():
            out[~seen] = self.mixture.impute(table.matrix[~seen])
        return out
