"""`Explanation`: the explanation of a clustering as arrays, frames and text."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dpsearch._numbers import Format, count
from dpsearch._types import Ints, Labels, Matrix, Vector
from dpsearch.errors import ParameterError

_TYPICAL = 10  # rows named for each cluster
_SURE = 0.9  # rows below are borderline
_APART_SHOWN = 10  # clusters of rows apart that are named


def _none() -> Any:
    return np.empty(0, np.int64)


class Indication(NamedTuple):
    """How a column sets a cluster apart."""

    column: str
    log_bayes_factor: float
    centre: float  # expected in the cluster: the posterior mean, or the most probable code
    elsewhere: float  # the same in all other clusters together, or in the nearest cluster
    is_code: bool = False  # whether these are codes of categories, which have no order

    @property
    def direction(self) -> str:
        """Whether values are "higher" or "lower" than elsewhere, or "different"."""
        if self.is_code or self.centre == self.elsewhere or math.isnan(self.elsewhere):
            return "different"
        return "higher" if self.centre > self.elsewhere else "lower"


@dataclass(frozen=True, repr=False)
class Explanation:
    """The explanation of a clustering; arrays [N] over rows are empty if no rows were given.

    Attributes
    ----------
    columns
        [K, D] log Bayes factor of each cluster and column, in nats; see `dpsearch.explain`.
    centres, elsewhere
        [K, D] the expectation of each column in the cluster, and in all other clusters together:
        the posterior mean, or for categories the most probable code.  `elsewhere` is NaN if there
        is only one cluster.
    names
        The names of the columns.
    sizes
        [K] the number of points in each cluster.
    labels
        [N] the cluster of each row.
    certainty
        [N] the probability of that cluster, given all other rows; new clusters are included.
    second
        [N] the next most probable cluster; K stands for a new cluster.
    log_density
        [N] the log posterior predictive density of the row, given all other rows.
    p_value
        [N] the share of draws from the clusters that are no more probable than the row, at equal
        length if the model conditions on lengths.
    outlier_rate
        Rows with smaller p-values are outliers.
    n_draws
        The number of draws behind the p-values.  It is smaller for wider tables, and 0 if there was
        no time for any; the p-values are then 1.  See `can_find_outliers`.
    levels
        The levels that the codes stand for, by the name of the column of categories.
    units
        The unit, such as $ or %, by the name of the column that has one in the table.
    codes
        [D] which columns hold codes of categories.
    nearest
        [K] the cluster that each shares most with, by the tree over components; −1 if none.
    against_nearest
        [K, D] log Bayes factors as in `columns`, with the nearest cluster in place of all others.
    components
        [N] the component of each row; for new rows the most probable one.
    apart
        [K] for rows apart, which are clusters of at most four rows, the nearest cluster; −1 for
        all other clusters.
    index
        The names of the rows if they came in a pandas frame; otherwise None.
    """

    columns: Matrix
    centres: Matrix
    elsewhere: Matrix
    names: tuple[str, ...]
    sizes: Ints
    outlier_rate: float
    labels: Labels = field(default_factory=_none)
    certainty: Vector = field(default_factory=_none)
    second: Labels = field(default_factory=_none)
    log_density: Vector = field(default_factory=_none)
    p_value: Vector = field(default_factory=_none)
    n_draws: int = 0
    levels: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    codes: tuple[bool, ...] = ()
    nearest: Ints = field(default_factory=_none)
    against_nearest: Matrix = field(default_factory=lambda: np.empty((0, 0)))
    components: Labels = field(default_factory=_none)
    apart: Ints = field(default_factory=_none)
    index: Any = None

    @property
    def n_clusters(self) -> int:
        return len(self.sizes)

    @property
    def can_find_outliers(self) -> bool:
        """Whether there are enough draws for p-values as small as `outlier_rate`."""
        return (self.n_draws + 1) * self.outlier_rate >= 1.0

    def value(self, column: str, number: float) -> float | str:
        """Return the level that a code of a column stands for, or the number itself."""
        levels = self.levels.get(column)
        return number if levels is None else str(levels[round(number) % len(levels)])

    @property
    def outliers(self) -> Ints:
        """Rows that are improbable under every cluster, the least probable first."""
        rows = np.flatnonzero(self.p_value <= self.outlier_rate)
        return rows[np.lexsort((self.log_density[rows], self.p_value[rows]))]

    @property
    def typical(self) -> tuple[Ints, ...]:
        """The ten most probable rows of each cluster; those of certainty below 0.5 come last."""
        out = []
        for k in range(self.n_clusters):
            rows = np.flatnonzero(self.labels == k)
            doubtful = self.certainty[rows] < 0.5
            order = np.lexsort((-self.log_density[rows], -self.p_value[rows], doubtful))
            out.append(rows[order[:_TYPICAL]])
        return tuple(out)

    @property
    def borderline(self) -> Ints:
        """Rows whose certainty is below 0.9, the least certain first."""
        rows = np.flatnonzero(self.certainty < _SURE)
        return rows[np.argsort(self.certainty[rows], kind="stable")]

    def indicative(self, k: int, n: int = 10, *, against: str = "rest") -> list[Indication]:
        """Return the n columns that set cluster k apart most, the most indicative first.

        Parameters
        ----------
        k
            The cluster.
        n
            The number of columns.
        against
            ``"rest"``: compare with all other clusters together.  ``"nearest"``: compare with the
            cluster that it shares most with, `nearest[k]`.
        """
        if not isinstance(k, (int, np.integer)) or not 0 <= k < self.n_clusters:
            raise ParameterError.must("k", f"be a cluster, 0 … {self.n_clusters - 1}", k)
        if against not in ("rest", "nearest"):
            raise ParameterError.must("against", "be 'rest' or 'nearest'", against)
        evidence, elsewhere = self.columns[k], self.elsewhere[k]
        if against == "nearest":
            if self.nearest[k] < 0:
                raise ParameterError(
                    f"cluster {k} has no nearest cluster: it is the only one", parameter="against"
                )
            evidence, elsewhere = self.against_nearest[k], self.centres[self.nearest[k]]
        codes = self.codes or (False,) * len(self.names)
        lists = (of.tolist() for of in (evidence, self.centres[k], elsewhere))
        every = [Indication(*one) for one in zip(self.names, *lists, codes, strict=True)]
        return [every[d] for d in np.argsort(-evidence, kind="stable")[:n]]

    def to_frame(self, table: str = "points", *, library: str | None = None) -> Any:
        """Return a table as a pandas or polars frame.

        Parameters
        ----------
        table
            ``"points"``: a line for each row of the data.  The column `apart_from` has the nearest
            cluster of rows apart, and −1 for all other rows.  ``"clusters"``: a line for each
            cluster and column, with the most indicative columns of each cluster first.
        library
            ``"pandas"`` or ``"polars"``; None: the first of them that is installed.  In pandas the
            lines of points have the index of the rows, if there is one.
        """
        if table == "points":
            content: dict[str, Any] = {
                "cluster": self.labels,
                "component": self.components,
                "apart_from": self.apart[self.labels],
                "certainty": self.certainty,
                "second": self.second,
                "log_density": self.log_density,
                "p_value": self.p_value,
                "outlier": self.p_value <= self.outlier_rate,
            }
        elif table == "clusters":
            width = len(self.names)
            order = np.argsort(-self.columns, axis=1, kind="stable")
            at = (np.repeat(np.arange(self.n_clusters), width), order.reshape(-1))
            content = {
                "cluster": at[0],
                "size": self.sizes[at[0]],
                "column": [self.names[d] for d in at[1]],
                "log_bayes_factor": self.columns[at],
                "centre": self.centres[at],
                "elsewhere": self.elsewhere[at],
            }
        else:
            raise ParameterError.must("table", "be 'points' or 'clusters'", table)
        if library is None:
            library = "pandas" if importlib.util.find_spec("pandas") else "polars"
        if library not in ("pandas", "polars"):
            raise ParameterError.must("library", "be 'pandas', 'polars' or None", library)
        frame = importlib.import_module(library).DataFrame(content)
        indexed = table == "points" and self.index is not None and library == "pandas"
        return frame.set_index(self.index) if indexed else frame

    def summary(self) -> str:
        """Return the explanation as a few lines of text."""
        lines = []
        for k, rows in enumerate(self.typical):
            if self.apart[k] >= 0:
                continue
            lines += self._cluster_lines(k)
            if len(rows):
                lines.append(f"  typical rows: {self._listed(rows[:5])}")
        lines += self._apart_lines()
        return "\n".join(lines + (self._row_lines() if len(self.labels) else []))

    def _cluster_lines(self, k: int) -> list[str]:
        lines = [f"cluster {k}: {count(self.sizes[k], 'point')}"]
        said = [f"  {self._said(one)}" for one in self._telling(k, 3, "rest")]
        if not said and self.n_clusters > 1:
            said = ["  no single column sets it apart"]
        if self.nearest[k] >= 0 and self.n_clusters > 2:
            telling = self._telling(k, 2, "nearest")
            text = "; ".join(map(self._contrast, telling))
            said.append(
                f"  compared with cluster {self.nearest[k]}, the nearest:"
                f" {text or 'no single column sets it apart'}"
            )
        return lines + said

    def _telling(self, k: int, n: int, against: str) -> list[Indication]:
        found = self.indicative(k, n, against=against)
        return [one for one in found if one.log_bayes_factor > 0.0]

    def _values(self, one: Indication) -> list[str]:
        """Return what is expected in the cluster and outside of it, as texts that differ."""
        pair = (one.centre, one.elsewhere)
        if one.column in self.levels:
            return [str(self.value(one.column, number)) for number in pair]
        own = self.centres[:, self.names.index(one.column)]
        return Format.of([*own, *pair], self.units.get(one.column, "")).distinct(*pair)

    def _said(self, one: Indication) -> str:
        """Return in words how a column sets a cluster apart from all other clusters."""
        inside, outside = self._values(one)
        # The most probable level may be the same with another probability.
        same = one.is_code and inside == outside
        there = "as elsewhere, but with another probability" if same else f"elsewhere {outside}"
        return f"{one.column}: {inside}, {there} (log Bayes factor {one.log_bayes_factor:.1f})"

    def _contrast(self, one: Indication) -> str:
        """Return in words how a column sets a cluster apart from its nearest cluster."""
        inside, outside = self._values(one)
        if one.is_code and inside == outside:
            return f"{one.column} is also {inside}, but with another probability"
        what = f"mostly {inside}" if one.is_code else f"{one.direction}, {inside}"
        return f"{one.column} is {what} (there {outside})"

    def _apart_lines(self) -> list[str]:
        """Return one line about all clusters of rows apart."""
        small = np.flatnonzero(self.apart >= 0)
        if not len(small):
            return []
        said = []
        for k in small[:_APART_SHOWN]:
            rows = np.flatnonzero(self.labels == k)
            what = f" (row{'s' * (len(rows) > 1)} {self._listed(rows)})" if len(rows) else ""
            said.append(f"cluster {k}{what}, nearest to cluster {self.apart[k]}")
        more = f"; and {len(small) - _APART_SHOWN} more" if len(small) > _APART_SHOWN else ""
        total, clusters = self.sizes[small].sum(), count(len(small), "small cluster")
        return [f"rows apart: {count(total, 'point')} in {clusters}: {'; '.join(said)}{more}"]

    def _listed(self, rows: Iterable[int]) -> str:
        return ", ".join(str(i if self.index is None else self.index[i]) for i in rows)

    def _row_lines(self) -> list[str]:
        lines = [
            f"certainty: {self.certainty.mean():.3f} on average;"
            f" below {_SURE} for {len(self.borderline):,} of {count(len(self.labels), 'row')}"
        ]
        for i in self.borderline[:3]:
            other = self.second[i]
            place = "a new cluster" if other == self.n_clusters else f"cluster {other}"
            lines.append(
                f"  row {self._listed([i])}: cluster {self.labels[i]} with probability"
                f" {self.certainty[i]:.2f}, or else {place}"
            )
        found = self.outliers
        known = f"{len(found):,}"
        if not self.can_find_outliers:
            known = f"not known from {self.n_draws} draws"
        elif len(found):
            known += f": {self._listed(found[:10])}{' …' if len(found) > 10 else ''}"
        return [*lines, f"outliers at a rate of {self.outlier_rate:g}: {known}"]

    def __repr__(self) -> str:
        return (
            f"Explanation({count(len(self.labels), 'row')}, {count(self.n_clusters, 'cluster')},"
            f" {count(len(self.names), 'column')}, {count(len(self.outliers), 'outlier')})"
        )
