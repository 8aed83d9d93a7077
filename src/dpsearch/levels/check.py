"""Whether components describe the rows: are rows as certain of theirs as the mixture promises?

Rows drawn from the fitted mixture are as certain of their component as the model says that rows
are.  Where a real group is not of the family's shape, several components share it, and its rows
lie between them more often than draws do: their certainty, the largest membership, tends to be
smaller.  The two samples are compared by the one-sided Kolmogorov–Smirnov test: D is the largest
amount by which the distribution function of the rows' certainties exceeds that of the draws'.
Components are taken for parts of larger groups where that is both significant and not small.

Overlap by itself does not count: where groups of the family's shape overlap, draws are just as
uncertain as rows are.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dpsearch._numbers import share
from dpsearch._types import Ints, Labels, Matrix, Rng, Vector
from dpsearch.mixture import Mixture
from dpsearch.tables.checked import CheckedTable

# Chosen on planted data and labelled tables: see docs/too_many_clusters.md.
_SIGNIFICANT = 0.025
_DISTANCE = 0.06
_LEAST_DRAWS = 4000  # and twice as many as there are rows …
_NUMBERS = 4_000_000  # … as long as they are not more numbers than this
_DIGITS = 6  # of certainties: less is rounding


class Check(NamedTuple):
    """How far the rows' certainties are below those of draws."""

    p_value: float
    certainty: float  # where the two distributions differ most
    rows: float  # the share of the rows that are at most as certain
    draws: float  # and that of the draws

    @property
    def distance(self) -> float:
        return self.rows - self.draws

    @property
    def fails(self) -> bool:
        """Whether rows are less certain of their component than the mixture promises."""
        return self.distance >= _DISTANCE and self.p_value <= _SIGNIFICANT

    def in_words(self) -> str:
        if not self.fails:
            return "rows are as certain of their component as the mixture expects"
        certainty = f"{self.certainty:.4f}".rstrip("0").rstrip(".")
        return (
            "rows lie between components more often than the mixture expects (a certainty of at"
            f" most {certainty} have {share(self.rows)}, expected are {share(self.draws)})"
        )


def check_components(
    mixture: Mixture, matrix: Any, labels: Labels, log_memberships: Matrix, rng: Rng
) -> Check:
    """Compare the rows of a matrix, which are in these components, with draws."""
    rows = np.round(np.exp(log_memberships.max(axis=1)), _DIGITS)
    drawn = _drawn_certainty(mixture, matrix, labels, rng)
    return kolmogorov_smirnov(np.sort(rows), np.sort(drawn))


def kolmogorov_smirnov(rows: Vector, draws: Vector) -> Check:
    """Compare sorted samples by the one-sided Kolmogorov–Smirnov test.

    Its probability by Hodges (1958), equation 5.3, as `scipy.stats.ks_2samp`, which takes longer
    to import than many fits.
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
    """Return the certainties of draws that have the lengths and the gaps of these rows."""
    if mixture.narrow is not mixture and not np.isnan(matrix).any():
        mixture = mixture.narrow
        matrix = np.zeros((len(labels), mixture.model.n_features))
    n_draws = max(_LEAST_DRAWS, min(2 * len(labels), _NUMBERS // mixture.model.n_features))
    models = rng.integers(len(labels), size=n_draws)  # the row that each draw is like
    lengths = mixture.model.family.lengths(matrix)
    out = np.empty(n_draws)
    for k in np.unique(labels[models]):
        own: Ints = np.flatnonzero(labels[models] == k)
        like = matrix[models[own]]
        try:
            X = mixture.draws(int(k), "level='auto'").like(lengths[models[own]], rng)
        except np.linalg.LinAlgError:  # a row beyond what floating point can tell from others
            out[own] = 1.0
            continue
        if isinstance(like, np.ndarray):
            X = np.where(np.isnan(like), np.nan, X)
        inside, _ = mixture.log_joint_probabilities(CheckedTable(X))
        inside -= inside.max(axis=1, keepdims=True)
        out[own] = np.round(1.0 / np.exp(inside).sum(axis=1), _DIGITS)
    return out
