"""Explain a clustering: which columns distinguish clusters, how certain rows are, and outliers.

Columns.  The log Bayes factor of column d for cluster k compares two models of that column:

    log H_d(x in k) + log H_d(x not in k) − log H_d(all).

It is above 0 if the cluster's values have a distribution of their own, and below 0 if one
distribution fits all rows better.  It needs only the clusters' statistics.  With the rows of the
nearest cluster in place of all others, it contrasts a cluster with its nearest.

Rows.  Each row is removed from its cluster, and the posterior predictive given the others says
where it belongs and how probable it is.  A row is an outlier if its log density, given that it is
from one of the clusters found, is lower than that of nearly all draws from them.  With M draws, r
of them with at most its density, its p-value is (r + 1)/(M + 1) (Davison & Hinkley 1997, "Bootstrap
Methods and their Application", 4.2), so that a row that does come from these clusters is called an
outlier with probability `outlier_rate` at most.  Units do not matter, as they add the same number
to all log densities.  A row with missing values is compared with draws that lack the same values.

Codes and counts repeat.  A draw that equals a row of the fit must count as equally probable, so it
gets the row's density given all other rows, not its own density given all.  This is not done for a
row that is a cluster of its own, since without the row there is no such cluster.

The same holds for single codes: without the only row that has a level, nothing is known about this
level, and a table of many rare levels has many such rows.  If rows of a draw's component have its
levels, the draw is removed from the component in these columns, as those rows are.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dpsearch._jit import kernel
from dpsearch._types import Ints, Labels, Matrix, Rng, Vector
from dpsearch._validate import has_gaps
from dpsearch.deadline import current
from dpsearch.errors import ParameterError
from dpsearch.explanation import Explanation
from dpsearch.families.base import Model
from dpsearch.families.capabilities import Columns, log_bayes_factors, require
from dpsearch.items import Core, clear_row, copy_row, merge_rows
from dpsearch.mixture import Mixture

_DRAWS = 20_000  # at least, and so many that _BELOW are expected below the threshold
_BELOW = 20
_CHUNK = 4_000_000  # values drawn at a time
_MOST = 20_000_000  # values drawn in all, which takes a second or two
_FIRST_DRAWS = 32  # for a row with gaps; each round doubles the number of its draws
_ENOUGH = 10  # draws below a row with gaps, at which it needs no more
_LARGEST_COUNT = 2.0**53  # from here on doubles cannot represent every integer


def explain_mixture(
    mixture: Mixture,
    names: tuple[str, ...],
    X: Any = None,
    labels: Labels | None = None,
    *,
    fitted: Any = None,
    nearest: Ints | None = None,
    outlier_rate: float,
    rng: Rng,
    with_columns: bool = True,
) -> Explanation:
    """Explain the clusters by their columns, if `with_columns`, and the rows if X is given.

    `labels` are the components of the rows, −1 for a row that is in none of them; None if all rows
    are new.  `fitted` are the rows as the clusters contain them, if their gaps were filled.
    `nearest` is the cluster to contrast each cluster with, −1 for none.
    """
    if not isinstance(outlier_rate, (int, float)) or not 0.0 < outlier_rate < 1.0:
        raise ParameterError.must("outlier_rate", "lie between 0 and 1", outlier_rate)
    if nearest is None:
        nearest = np.full(mixture.n_clusters, -1)
    no_columns = np.empty((mixture.n_clusters, 0))
    columns, centres, elsewhere, against = (
        _about_columns(mixture.merged, nearest) if with_columns else (no_columns,) * 4
    )
    rows: dict[str, Any] = {}
    if X is not None:
        place = mixture.memberships(X, labels, fitted, check=current().check)
        wanted = max(_DRAWS, math.ceil(_BELOW / outlier_rate))
        n_draws = max(1, min(wanted, _MOST // mixture.narrow.model.n_features))
        known = _Known(
            _Twins.of(mixture, X, labels, place.log_inside), _Levels.of(mixture, X, labels)
        )
        rows = place._asdict()
        log_inside, rows["p_value"] = rows.pop("log_inside"), np.ones(X.shape[0])
        with current().optional():  # if there is no time for draws, no row is an outlier
            rows["p_value"] = _p_values(mixture, X, log_inside, known, n_draws, rng)
            rows["n_draws"] = n_draws
    families = mixture.model.family.by_column(mixture.model.n_features)
    return Explanation(
        columns,
        centres,
        elsewhere,
        names,
        mixture.cluster_sizes,
        float(outlier_rate),
        **rows,
        codes=tuple(family.kind == "category" for family in families),
        nearest=nearest,
        against_nearest=against,
        apart=np.full(mixture.n_clusters, -1),
    )


# -- columns ---------------------------------------------------------------------------------


def _about_columns(mixture: Mixture, nearest: Ints) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Return log Bayes factors, expected values inside and outside of clusters, and contrasts.

    The contrasts are log Bayes factors of each cluster against its nearest, NaN if it has none.
    """
    n, width = mixture.n_clusters, mixture.model.n_features
    own = [_columns(mixture.model, mixture.row(k)) for k in range(n)]
    centres = np.array([one.centres for one in own])
    nothing = np.full((n, width), math.nan)
    if n == 1:
        return np.zeros((1, width)), centres, nothing, nothing
    chain = np.column_stack([np.append(0, np.arange(n, 2 * n - 2)), np.arange(1, n)])
    all_own, rests = _branches(mixture.model.core, mixture.pool, chain)
    others = [_columns(mixture.model, rest) for rest in rests[:n]]
    both = _columns(mixture.model, all_own[-1])
    factors = [log_bayes_factors(*pair, both) for pair in zip(own, others, strict=True)]
    against = nothing.copy()
    for k, near in enumerate(nearest):
        if near >= 0:
            joined = mixture.row(k).copy()
            merge_rows(mixture.model.core, joined, mixture.row(near), 1.0)
            against[k] = log_bayes_factors(own[k], own[near], _columns(mixture.model, joined))
    return np.array(factors), centres, np.array([one.centres for one in others]), against


def _columns(model: Model, row: Vector) -> Columns:
    current().check()
    found: Columns = require(model.family, "columns", row, model.n_features, needed_by="explain")
    return found


class BranchColumns(NamedTuple):
    """Log Bayes factors [2K − 1, D] of a tree's nodes, against all other rows and the sibling.

    Those of the root are 0.
    """

    rest: Matrix
    sibling: Matrix


def explain_branches(mixture: Mixture, merges: Ints) -> BranchColumns:
    """Return how columns distinguish the nodes of a tree over components; see `Tree.merges`."""
    model, n = mixture.model, mixture.n_components
    pools = _branches(model.core, mixture.pool, merges)
    own, others = ([_columns(model, row) for row in pool] for pool in pools)
    rest, sibling = (np.zeros((2 * n - 1, model.n_features)) for _ in range(2))
    for m, (a, b) in enumerate(merges):
        sibling[a] = sibling[b] = log_bayes_factors(own[a], own[b], own[n + m])
        for child in (a, b):
            rest[child] = log_bayes_factors(own[child], others[child], own[-1])
    return BranchColumns(rest, sibling)


@kernel
def _branches(core: Core, pool: Vector, merges: Ints) -> Any:
    """Return statistics of the nodes of a tree, and of the complement of each.

    Complements are merged from the other nodes rather than subtracted from the whole, so that no
    digits are lost.
    """
    width, n = core.width, len(merges) + 1
    own, rest = np.empty((2 * n - 1, width)), np.empty((2 * n - 1, width))
    own[:n] = pool.reshape(n, width)
    for m in range(n - 1):
        copy_row(own[merges[m, 0]], own[n + m])
        merge_rows(core, own[n + m], own[merges[m, 1]], 1.0)
    clear_row(core, rest[2 * n - 2])
    for m in range(n - 2, -1, -1):
        for side in range(2):
            child = merges[m, side]
            copy_row(rest[n + m], rest[child])
            merge_rows(core, rest[child], own[merges[m, 1 - side]], 1.0)
    return own, rest


# -- rows ------------------------------------------------------------------------------------


class _Twins(NamedTuple):
    """Rows of the fit that draws may equal, by a hash key, and their densities given all others.

    The key of a row of codes or counts is Σ_d factor_d x_d modulo 2⁶⁴, with random factors.  It is
    computed exactly, and two different rows have the same key with a probability of about 2⁻⁶⁴.
    """

    factors: Any  # [D]
    keys: Any  # sorted
    log_inside: Vector

    @classmethod
    def of(
        cls, mixture: Mixture, X: Any, labels: Labels | None, log_inside: Vector
    ) -> _Twins | None:
        """Return the rows to compare draws with; None if no row of the fit has only integers."""
        if labels is None:
            return None
        rows = np.flatnonzero((labels >= 0) & (mixture.sizes[labels] > 1))
        factors = np.random.default_rng(0).integers(2**64, size=X.shape[1], dtype=np.uint64)
        step = max(1, _CHUNK // X.shape[1])
        parts = [_keys(X[part], factors) for part in np.split(rows, range(step, len(rows), step))]
        whole = np.concatenate([part[0] for part in parts])
        if not whole.any():
            return None
        keys, which = np.unique(np.concatenate([part[1] for part in parts]), return_inverse=True)
        lowest = np.full(len(keys), np.inf)  # equal rows may be in several clusters
        np.minimum.at(lowest, which, log_inside[rows[whole]])
        return cls(factors, keys, lowest)

    def given_others(self, X: Any, log_inside: Vector) -> Vector:
        """Return the log densities of draws; a draw that equals a row gets the row's density."""
        whole, keys = _keys(X, self.factors)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        same = self.keys[at] == keys
        out = log_inside.copy()
        out[np.flatnonzero(whole)[same]] = self.log_inside[at[same]]
        return out


class _Levels(NamedTuple):
    """The levels that the rows of each component have in columns of codes."""

    columns: Any  # [D]: whether the column has codes
    seen: list[Any]  # for each such column, the pairs of component and level, as integers

    @classmethod
    def of(cls, mixture: Mixture, X: Any, labels: Labels | None) -> _Levels | None:
        """Return the levels of rows of the fit; None if there are none."""
        by_column = mixture.model.family.by_column(mixture.model.n_features)
        codes = np.array([family.kind == "category" for family in by_column])
        if labels is None or sp.issparse(X) or not codes.any():
            return None
        seen = []
        for column in X[:, codes].T:
            own = (labels >= 0) & ~np.isnan(column)
            seen.append(np.unique(_pairs(labels[own], column[own])))
        return cls(codes, seen)

    def members(self, X: Any, components: Labels) -> Labels:
        """Return the components of draws, −1 for those with a level that no row there has."""
        known = np.ones(len(X), bool)
        for column, there in zip(X[:, self.columns].T, self.seen, strict=True):
            gone = np.isnan(column)
            known &= gone | np.isin(_pairs(components, np.where(gone, 0.0, column)), there)
        return np.where(known, components, -1)


def _pairs(components: Labels, levels: Vector) -> Ints:
    """Return a number for each pair of a component and a level."""
    return np.asarray((components << 32) + levels.astype(np.int64))


class _Known(NamedTuple):
    """Rows and levels of the fit that draws may share."""

    twins: _Twins | None
    levels: _Levels | None


def _keys(X: Any, factors: Any) -> tuple[Any, Any]:
    """Return which rows have only codes, counts or missing values, and the keys of these rows."""
    if sp.issparse(X):
        odd = np.append(0, np.cumsum(~_is_count(X.data)))
        whole = np.diff(odd[X.indptr]) == 0
        return whole, X[whole].astype(np.uint64) @ factors
    missing = np.isnan(X)
    whole = (missing | _is_count(X)).all(axis=1)
    values = np.where(missing[whole], _LARGEST_COUNT, X[whole])
    return whole, values.astype(np.uint64) @ factors


def _is_count(values: Any) -> Any:
    return (values >= 0.0) & (values < _LARGEST_COUNT) & (values == np.floor(values))


def _p_values(
    mixture: Mixture, X: Any, log_inside: Vector, known: _Known, n_draws: int, rng: Rng
) -> Vector:
    """Return the share of draws from the clusters that are no more probable than each row."""
    if len(log_inside) == 1 and log_inside[0] == -math.inf:
        return np.ones(1)  # there are no other rows to compare a single row with
    missing = np.isnan(X) if has_gaps(X) else np.zeros((X.shape[0], 0), bool)
    gappy = missing.any(axis=1)
    out = np.empty(X.shape[0])
    lengths = mixture.model.family.lengths(X)
    if not gappy.all():
        out[~gappy] = _p_values_of_whole(
            mixture, lengths[~gappy], log_inside[~gappy], known, n_draws, rng
        )
    if gappy.any():
        out[gappy] = _p_values_with_gaps(
            mixture, lengths[gappy], missing[gappy], log_inside[gappy], known, n_draws, rng
        )
    return out


def _log_inside(mixture: Mixture, X: Any, components: Labels, known: _Known) -> Vector:
    """Return the log densities of draws from components."""
    if known.levels is None:
        drawn = mixture.memberships(X).log_inside
    else:
        members = known.levels.members(X, components)
        drawn = mixture.log_inside(X, members, known.levels.columns)
    return drawn if known.twins is None else known.twins.given_others(X, drawn)


def _edge(log_inside: Vector) -> Vector:
    """Return densities with a margin for rounding, so that equal ones compare as equal."""
    return np.asarray(log_inside + 1e-9 * np.maximum(np.abs(log_inside), 1.0))


def _p_values_of_whole(
    mixture: Mixture, lengths: Matrix, log_inside: Vector, known: _Known, n_draws: int, rng: Rng
) -> Vector:
    """Compare all rows with the same draws, whose lengths are drawn from those of the rows."""
    if mixture.narrow is not mixture:  # in the narrow mixture, no draw equals a row
        mixture, known = mixture.narrow, _Known(None, None)
    wanted = rng.choice(lengths, size=n_draws)
    drawn = np.empty(n_draws)
    step = max(1, _CHUNK // mixture.model.n_features)
    for at in range(0, n_draws, step):
        current().check()
        X, components = _draws(mixture, wanted[at : at + step], rng)
        drawn[at : at + step] = _log_inside(mixture, X, components, known)
    if lengths.shape[1] > 0:
        expected, spread = _by_length(drawn, wanted)
        drawn = (drawn - expected(wanted)) / spread(wanted)
        log_inside = (log_inside - expected(lengths)) / spread(lengths)
    below = np.searchsorted(np.sort(drawn), _edge(log_inside), side="right")
    return np.asarray((below + 1.0) / (n_draws + 1.0))


def _p_values_with_gaps(
    mixture: Mixture,
    lengths: Matrix,
    missing: Any,
    log_inside: Vector,
    known: _Known,
    n_draws: int,
    rng: Rng,
) -> Vector:
    """Compare each row with its own draws, which lack the same values.

    Draws are added until h of them have at most the row's density.  If that is the case after l
    draws, the p-value is h/l (Besag & Clifford 1991, "Sequential Monte Carlo p-values",
    Biometrika 78).  Few rows need many draws.
    """
    n_rows = len(log_inside)
    below, out = np.zeros(n_rows, np.int64), np.zeros(n_rows)
    begin, end = 0, _FIRST_DRAWS
    while begin < n_draws and (out == 0.0).any():
        left = np.flatnonzero(out == 0.0)
        count = end - begin
        step = max(1, _CHUNK // (count * missing.shape[1]))
        for rows in np.split(left, range(step, len(left), step)):
            current().check()
            X, components = _draws(mixture, lengths[rows].repeat(count, axis=0), rng)
            X[missing[rows].repeat(count, axis=0)] = np.nan
            drawn = _log_inside(mixture, X, components, known).reshape(len(rows), count)
            low = drawn <= _edge(log_inside[rows])[:, None]
            running = below[rows, None] + np.cumsum(low, axis=1)
            below[rows] = running[:, -1]
            done = running[:, -1] >= _ENOUGH
            last = begin + 1 + (running >= _ENOUGH).argmax(axis=1)
            out[rows[done]] = _ENOUGH / last[done]
        begin, end = end, min(2 * end, n_draws)
    return np.where(out > 0.0, out, (below + 1.0) / (n_draws + 1.0))


def _draws(mixture: Mixture, lengths: Matrix, rng: Rng) -> tuple[Any, Labels]:
    """Return one draw from the mixture for each row of `lengths`, and its component."""
    model = mixture.model
    weights = np.exp(mixture.log_weights)
    labels = rng.choice(mixture.n_components, size=len(lengths), p=weights / weights.sum())
    out = np.empty((len(lengths), model.n_features))
    for k in np.unique(labels):
        own = labels == k
        out[own] = mixture.draws(k, "a search for outliers").like(lengths[own], rng)
    return out, labels


def _by_length(log_density: Vector, lengths: Matrix) -> tuple[Any, Any]:
    """Return the mean and standard deviation of the log density of draws as functions of length.

    As a sum over words, the log density has a mean and a variance that grow about linearly with the
    length.  Covariates of a regression count as lengths too, and may be negative.
    """
    largest = np.abs(lengths).max(axis=0)

    def terms(length: Matrix) -> Matrix:
        scaled = length / np.where(largest > 0.0, largest, 1.0)
        roots = np.sqrt(np.abs(scaled))
        return np.hstack([np.ones((len(scaled), 1)), roots, scaled, scaled**2])

    mean = np.linalg.lstsq(terms(lengths), log_density, rcond=None)[0]
    squares = (log_density - terms(lengths) @ mean) ** 2
    variance = np.linalg.lstsq(terms(lengths), squares, rcond=None)[0]
    least = max(1e-3 * float(squares.mean()), 1e-300)
    return (
        lambda length: terms(length) @ mean,
        lambda length: np.sqrt(np.maximum(terms(length) @ variance, least)),
    )
