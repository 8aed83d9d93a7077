"""A test of whether components describe the rows: are rows assigned as clearly as draws?

The certainty of a row is its largest membership.  Rows drawn from the fitted mixture have the
certainties that the model predicts.  If a real group does not have the family's shape, several
components share it, and its rows lie between them more often than draws do, with smaller
certainties.  The two samples are compared by the one-sided Kolmogorov–Smirnov test: D is the
largest amount by which the distribution function of the rows' certainties exceeds that of the
draws'.
Components are taken to be parts of larger groups if D is both significant and not small.

Overlap by itself does not count: if groups of the family's shape overlap, draws are as uncertain as
rows.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dpsearch._numbers import share
from dpsearch._types import Ints, Labels, Matrix, Rng, Vector
from dpsearch.errors import DataError
from dpsearch.mixture import Mixture
from dpsearch.tables.checked import CheckedTable

# Chosen on planted data and labelled tables: see docs/too_many_clusters.md.
_SIGNIFICANT = 0.025
_DISTANCE = 0.06
_LEAST_DRAWS = 4000  # or twice as many as there are rows …
_NUMBERS = 4_000_000  # … unless these are more numbers than this
_DIGITS = 6  # of certainties: smaller differences are rounding


class Check(NamedTuple):
    """The result of the test."""

    p_value: float
    certainty: float  # where the two distribution functions differ most
    rows: float  # the share of rows with at most this certainty
    draws: float  # the share of draws with at most this certainty

    @property
    def distance(self) -> float:
        return self.rows - self.draws

    @property
    def fails(self) -> bool:
        """Whether rows are less certain of their component than the mixture predicts."""
        return self.distance >= _DISTANCE and self.p_value <= _SIGNIFICANT

    def in_words(self) -> str:
        if not self.fails:
            return "rows are as certain of their component as the mixture expects"
        certainty = f"{self.certainty:.4f}".rstrip("0").rstrip(".")
        return (
            f"rows lie between components more often than the mixture expects ({share(self.rows)}"
            f" have a certainty of at most {certainty}, where {share(self.draws)} are expected)"
        )


def check_components(
    mixture: Mixture, matrix: Any, labels: Labels, log_memberships: Matrix, rng: Rng
) -> Check:
    """Compare the rows of a matrix, which have these components as labels, with draws."""
    rows = np.round(np.exp(log_memberships.max(axis=1)), _DIGITS)
    drawn = _drawn_certainty(mixture, matrix, labels, rng)
    return kolmogorov_smirnov(np.sort(rows), np.sort(drawn))


def kolmogorov_smirnov(rows: Vector, draws: Vector) -> Check:
    """Compare sorted samples by the one-sided Kolmogorov–Smirnov test.

    The p-value is that of Hodges (1958), equation 5.3, as in `scipy.stats.ks_2samp`, whose import
    takes longer than many fits.
    """
    values = np.concatenate([rows, draws])
    shares = [np.searchsorted(part, values, side="right") / len(part) for part in (rows, draws)]
    at = int(np.argmax(shares[0] - shares[1]))
    of_rows, of_draws = float(shares[0][at]), float(shares[1][at])
    n, m = sorted((len(rows), len(draws)))
    z = math.sqrt(m * n / (m + n)) * (of_rows - of_draws)
    shift = 2.0 * z * (m + 2 * n) / math.sqrt(m * n * (m + n)) / 3.0
    return Check(min(1.0, math.exp(-2.0 * z * z - shift)), float(values[at]), of_rows, of_draws)


def _drawn_certainty(mixture: Mixture, matrix: Any, labels: Labels, rng: Rng) -> Vector:
    """Return the certainties of draws with the lengths (totals) and gaps of these rows."""
    if mixture.narrow is not mixture and not np.isnan(matrix).any():
        mixture = mixture.narrow
        matrix = np.zeros((len(labels), mixture.model.n_features))
    n_draws = max(_LEAST_DRAWS, min(2 * len(labels), _NUMBERS // mixture.model.n_features))
    models = rng.integers(len(labels), size=n_draws)  # the row whose length and gaps a draw has
    lengths = mixture.model.family.lengths(matrix)
    out = np.empty(n_draws)
    for k in np.unique(labels[models]):
        own: Ints = np.flatnonzero(labels[models] == k)
        like = matrix[models[own]]
        try:
            X = mixture.draws(int(k), "level='auto'").like(lengths[models[own]], rng)
        except np.linalg.LinAlgError:  # a scale below the resolution of floating point
            out[own] = 1.0
            continue
        if isinstance(like, np.ndarray):
            X = np.where(np.isnan(like), np.nan, X)
        out[own] = np.round(_certainties(mixture, X), _DIGITS)
    return out


def _certainties(mixture: Mixture, X: Matrix) -> Vector:
    """Return the certainties of rows; 1 for a row that is too large to be scored.

    Many draws of large counts may exceed the total that a table may have.
    """
    try:
        inside, _ = mixture.log_joint_probabilities(CheckedTable(X))
    except DataError:
        if len(X) == 1:
            return np.ones(1)
        parts = np.array_split(X, 2)
        return np.concatenate([_certainties(mixture, part) for part in parts])
    inside -= inside.max(axis=1, keepdims=True)
    return np.asarray(1.0 / np.exp(inside).sum(axis=1))
