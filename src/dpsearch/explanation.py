"""`Explanation`: an explained clustering as arrays, frames and text."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import Ints, Labels, Matrix, Vector
from dpsearch.errors import ParameterError

_TYPICAL = 10  # rows named for each cluster
_SURE = 0.9  # rows below are borderline
_PLAIN = (1e-4, 1e15)  # sizes of numbers that are written without an exponent


class Indication(NamedTuple):
    """How a column sets a cluster apart."""

    column: str
    log_bayes_factor: float
    centre: float  # expected in the cluster: the posterior mean, or the likeliest code
    elsewhere: float  # the same in all other clusters taken together
    is_code: bool = False  # whether these are codes of categories, of which none is higher

    @property
    def direction(self) -> str:
        """Whether values are higher or lower than elsewhere, or otherwise different."""
        if self.is_code or self.centre == self.elsewhere or math.isnan(self.elsewhere):
            return "different"
        return "higher" if self.centre > self.elsewhere else "lower"


@dataclass(frozen=True, repr=False)
class Explanation:
    """A clustering explained.  Arrays with a place for each row are empty if no rows were given.

    Attributes
    ----------
    columns
        [K, D] log Bayes factor of each cluster and column, in nats; see `dpsearch.explain`.
    centres, elsewhere
        [K, D] what to expect of each column in the cluster, and in all the others together: the
        posterior mean, for categories the likeliest code.  `elsewhere` is NaN if there are none.
    names
        Of the columns.
    sizes
        [K] points in each cluster.
    labels
        [N] cluster of each row.
    certainty
        [N] probability of that cluster for the row, given all others; new clusters included.
    second
        [N] the next most probable cluster; K stands for a new one.
    log_density
        [N] log posterior predictive density of the row, given all others.
    p_value
        [N] share of draws from the clusters found that are no more probable than the row, at equal
        length where the model takes lengths as given.
    outlier_rate
        Rows with smaller p-values are outliers.
    n_draws
        Number of draws behind the p-values, smaller for wider tables; see `can_find_outliers`.
    levels
        By the name of a column of categories, what its codes stand for.
    codes
        [D] which columns hold codes of categories.
    """

    columns: Matrix
    centres: Matrix
    elsewhere: Matrix
    names: tuple[str, ...]
    sizes: Ints
    labels: Labels
    certainty: Vector
    second: Labels
    log_density: Vector
    p_value: Vector
    outlier_rate: float
    n_draws: int = 0
    levels: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    codes: tuple[bool, ...] = ()

    @property
    def n_clusters(self) -> int:
        return len(self.sizes)

    @property
    def can_find_outliers(self) -> bool:
        """Whether there are enough draws for a p-value as small as `outlier_rate`."""
        return (self.n_draws + 1) * self.outlier_rate >= 1.0

    def value(self, column: str, number: float) -> float | str:
        """Return the level that a code of a column stands for, or the number itself."""
        levels = self.levels.get(column)
        return number if levels is None else str(levels[round(number)])

    @property
    def outliers(self) -> Ints:
        """Rows out of the ordinary, the least probable first."""
        rows = np.flatnonzero(self.p_value <= self.outlier_rate)
        return rows[np.lexsort((self.log_density[rows], self.p_value[rows]))]

    @property
    def typical(self) -> tuple[Ints, ...]:
        """The ten most probable rows of each cluster, those with a certainty below 0.5 last."""
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

    def indicative(self, k: int, n: int = 10) -> list[Indication]:
        """Return the n columns that set cluster k apart most, the most indicative first."""
        if not isinstance(k, (int, np.integer)) or not 0 <= k < self.n_clusters:
            raise ParameterError(
                f"{{parameter}} must be a cluster, 0 … {self.n_clusters - 1}, got {k!r}",
                parameter="k",
            )
        best = np.argsort(-self.columns[k], kind="stable")[:n]
        return [
            Indication(
                self.names[d],
                float(self.columns[k, d]),
                float(self.centres[k, d]),
                float(self.elsewhere[k, d]),
                bool(self.codes) and self.codes[d],
            )
            for d in best
        ]

    def to_frame(self, table: str = "points", *, library: str | None = None) -> Any:
        """Return a table as a pandas or polars frame.

        Parameters
        ----------
        table
            ``"points"``: a line for each row of the data.  ``"clusters"``: a line for each cluster
            and column, the most indicative columns of each cluster first.
        library
            ``"pandas"`` or ``"polars"``; None for the first of them that is installed.
        """
        if table == "points":
            content: dict[str, Any] = {
                "cluster": self.labels,
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
            raise ParameterError(
                f"{{parameter}} must be 'points' or 'clusters', got {table!r}", parameter="table"
            )
        if library is None:
            library = "pandas" if importlib.util.find_spec("pandas") else "polars"
        if library not in ("pandas", "polars"):
            raise ParameterError(
                f"{{parameter}} must be 'pandas', 'polars' or None, got {library!r}",
                parameter="library",
            )
        return importlib.import_module(library).DataFrame(content)

    def summary(self) -> str:
        """Return the explanation as a few lines of text."""
        lines = []
        for k, rows in enumerate(self.typical):
            lines += self._cluster_lines(k)
            if len(rows):
                lines.append(f"  typical rows: {_listed(rows[:5])}")
        return "\n".join(lines + (self._row_lines() if len(self.labels) else []))

    def _cluster_lines(self, k: int) -> list[str]:
        size = self.sizes[k]
        lines = [f"cluster {k}: {size} {'point' if size == 1 else 'points'}"]
        for one in self.indicative(k, 3):
            if one.log_bayes_factor <= 0.0:
                continue
            inside, outside = _shown(
                self.value(one.column, one.centre), self.value(one.column, one.elsewhere)
            )
            # The likeliest level may be the same, though not its probability.
            same = "as elsewhere, with another probability"
            there = same if one.is_code and inside == outside else f"elsewhere {outside}"
            lines.append(
                f"  {one.column}: {inside}, {there} (log Bayes factor {one.log_bayes_factor:.1f})"
            )
        if len(lines) == 1 and self.n_clusters > 1:
            lines.append("  no single column sets it apart")
        return lines

    def _row_lines(self) -> list[str]:
        lines = [
            f"certainty: {self.certainty.mean():.3f} on average;"
            f" {len(self.borderline)} of {len(self.labels)} rows below {_SURE}"
        ]
        for i in self.borderline[:3]:
            other = self.second[i]
            place = "a new one" if other == self.n_clusters else f"{other}"
            lines.append(
                f"  row {i}: cluster {self.labels[i]} with probability"
                f" {self.certainty[i]:.2f}; next, {place}"
            )
        found = self.outliers
        count = (
            f"not known from {self.n_draws} draws"
            if not self.can_find_outliers
            else f"{len(found)}"
        )
        if self.can_find_outliers and len(found):
            count += f": {_listed(found[:10])}{' …' if len(found) > 10 else ''}"
        return [*lines, f"outliers at a rate of {self.outlier_rate:g}: {count}"]

    def __repr__(self) -> str:
        return (
            f"Explanation({len(self.labels)} rows, {self.n_clusters} clusters,"
            f" {len(self.names)} columns, {len(self.outliers)} outliers)"
        )


def _listed(rows: Ints) -> str:
    return ", ".join(str(i) for i in rows)


def _shown(*values: float | str) -> list[str]:
    """Return levels as they are, and numbers with as many digits as distinguish them.

    That is one digit more than the first in which they differ, and at least three.

    >>> _shown(2008.31, 2006.94), _shown(112345.0, 98001.0), _shown(5.006, 1.0), _shown(1.0, 1.0)
    (['2008.3', '2006.9'], ['112,000', '98,000'], ['5.01', '1'], ['1', '1'])
    """
    numbers = [x for x in values if not isinstance(x, str)]
    size = max(map(abs, numbers), default=0.0)
    difference = max(numbers, default=0.0) - min(numbers, default=0.0)
    digits = 3
    if 0.0 < difference < math.inf:
        digits = max(3, _order(size) - _order(difference) + 2)
    return [x if isinstance(x, str) else _number(x, size, digits) for x in values]


def _number(value: float, size: float, digits: int) -> str:
    """Return a number with the decimals that give `digits` digits to a number of that size."""
    if value == 0.0 or not math.isfinite(value):
        return f"{value:g}"
    if not _PLAIN[0] <= size < _PLAIN[1]:
        return f"{value:.{digits}g}"
    decimals = digits - 1 - _order(size)
    rounded = round(value, decimals) + 0.0  # turns −0 into 0
    text = f"{rounded:{',' if abs(rounded) >= 1e4 else ''}.{max(decimals, 0)}f}"
    return text.rstrip("0").rstrip(".") if decimals > 0 else text


def _order(size: float) -> int:
    """Return the order of magnitude: 0 for ones, 1 for tens."""
    return math.floor(math.log10(size))
