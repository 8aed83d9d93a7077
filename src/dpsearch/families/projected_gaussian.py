"""Wide tables of numbers: a Gaussian with full covariance on a few projections of a row.

    z = A (x − m),   z | μ, Σ ~ N(μ, Σ),   μ, Σ ~ Normal–inverse-Wishart

where A has q rows: the leading principal components of the columns, or coordinates for columns that
determine each other.  Rows of statistics and functions are those of `FullGaussian` for z.
Densities, and so the log joint, are those of z, and comparable only under the same A.

Rows are recovered by x = m + Bz + r, with AB = I and Ar = 0.  The residual r is (I − BA)ε, where
the columns of ε are independent with variances ψ.  So the observed columns o of a row with gaps
give

    A_o (x_o − m_o) = Gz + A_o r_o,   G = A_o B_o,   A_o r_o = (A_o I_o − GA) ε

and with G = USVᵀ the projections S⁻¹Uᵀ A_o (x_o − m_o) = Vᵀz + noise, where S is not small: all of
z if little is missing.  The noise is normal, and its covariance is added to the scale matrix of
Vᵀz.

Components above the noise are kept: those whose singular value exceeds ω(β) times the median of
all, with β the ratio of the table's sides (Gavish & Donoho 2014, "The optimal hard threshold for
singular values is 4/√3", equation 5).  This assumes equal noise in all columns.

In a table of counts x stands for the counts of a row in units of their noise, or for their square
roots: see `_count_rows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpsearch._types import Ints, Matrix, Rng, Vector
from dpsearch._validate import per_column
from dpsearch.errors import DataError, ParameterError
from dpsearch.families._columns import as_tuple, independent, mean_and_variance, varies
from dpsearch.families._components import n_components, principal
from dpsearch.families._count_rows import CountRows
from dpsearch.families._observed import expected, log_densities
from dpsearch.families.base import Example, Family
from dpsearch.families.capabilities import Columns, Gaps, PredictiveDraws, Restated, Simpler
from dpsearch.families.full_gaussian import FullGaussian
from dpsearch.families.functions import Functions
from dpsearch.families.linear import LinearForm, like

_MOST_COMPONENTS = 20
_ROWS_A_COMPONENT = 15
_NOTHING = 1e-10  # a smaller share of the variance is rounding
_UNEXPLAINED = 0.01  # a column with a smaller unexplained share of its variance is left out
_LEAST_OBSERVED = 0.3  # the least singular value S of a projection that was observed
_BLOCK = 4096


class _Map(NamedTuple):
    """The map from rows to projections, and back."""

    components: Matrix  # A
    loadings: Matrix  # B
    centre: Vector  # m
    deviation: Vector  # √ψ
    counts: CountRows | None  # the map between rows of counts and x; None for other tables

    @property
    def width(self) -> int:
        """The number of projections."""
        return len(self.components)

    def forward(self, X: Any) -> Any:
        """Return x of each row: the row itself, or counts in units of their noise."""
        return X if self.counts is None else self.counts.forward(X)

    def inverse(self, z: Any) -> Matrix:
        """Return x = m + Bz for projections z."""
        return np.asarray(self.centre + z @ self.loadings.T)


class _Observed(NamedTuple):
    """The projections of rows with the same gaps, as far as the observed columns determine them."""

    at: Ints  # the indices of the rows
    seen: Matrix  # Vᵀz of each row; NaN where the observed columns do not determine it
    rotation: Matrix  # V
    reading: Matrix  # the matrix that maps x − m to `seen`
    noise: Matrix  # [q, D]: the noise of `seen` is this times standard normal numbers


@dataclass(frozen=True)
class ProjectedGaussian(Family):
    """Gaussian with unknown mean and covariance matrix on projections of the rows.

    Parameters
    ----------
    components
        The matrix A: a row for each projection, a column for each column of the data.
    centre
        What is subtracted before projecting: a scalar, or one number per column.
    prior_mean, prior_strength, degrees, scale
        As in `FullGaussian`, for the projections.
    loadings
        The matrix B, with AB = I: a row with projections z has the expectation m + Bz.  By default
        the pseudo-inverse of A.
    residual_variance
        The variances ψ of the columns given the projections: a scalar, or one number per column.
        They are used only for draws of rows and for rows with gaps.
    total
        If given, the columns are counts u, scaled to this total T; see above for x.
    dispersion
        α of counts; None for square roots of counts.
    logged
        Whether a table of counts holds log(1 + u) in place of u.
    given_total
        The total Σu of rows that are mapped back from x; by default `total`.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.ProjectedGaussian([[1.0, 0.0, 1.0]]).name
    'projected_gaussian'
    """

    components: Any
    centre: Any = 0.0
    prior_mean: Any = 0.0
    prior_strength: float = 1.0
    degrees: float | None = None
    scale: Any = 1.0
    loadings: Any = None
    residual_variance: Any = 0.0
    total: float | None = None
    dispersion: float | None = 0.0
    logged: bool = False
    given_total: float | None = None

    name: ClassVar[str] = "projected_gaussian"
    kind: ClassVar[str] = "projection"
    functions: ClassVar[Functions] = FullGaussian.functions

    @cached_property
    def _checked(self) -> _Map:
        """The map; it is kept, since converting long tuples to arrays takes a while."""
        components = _as_matrix(self.components, "components")
        if self.loadings is None:
            loadings = np.asarray(np.linalg.pinv(components))
        else:
            loadings = _as_matrix(self.loadings, "loadings")
            if loadings.shape != components.T.shape:
                text = f"has shape {loadings.shape}, but components {components.shape}"
                raise ParameterError.of("loadings", text)
            if not np.allclose(components @ loadings, np.eye(len(components)), atol=1e-6):
                raise ParameterError("components times loadings must be the identity matrix")
        width = components.shape[1]
        centre = per_column(self.centre, width, "centre", above_zero=False)
        variance = per_column(self.residual_variance, width, "residual_variance", above_zero=False)
        if (variance < 0.0).any():
            at = int(np.flatnonzero(variance < 0.0)[0])
            text = f"must be at least 0, got {variance[at]} for {{place}}"
            raise ParameterError.of("residual_variance", text, column=at)
        counts = None
        if self.total is not None:
            given = self.total if self.given_total is None else self.given_total
            counts = CountRows(centre, self.dispersion, self.total, self.logged, given)
        return _Map(components, loadings, centre, np.sqrt(variance), counts)

    def _map(self, n_features: int) -> _Map:
        width = self._checked.components.shape[1]
        if width != n_features:
            text = f"has {width} columns, but the data have {n_features}"
            raise ParameterError.of("components", text)
        return self._checked

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_checked"}

    def _some_projections(self, n_features: int) -> Matrix:
        """A row of zeros with one column for each projection."""
        return np.zeros((1, self._map(n_features).width))

    @property
    def _inner(self) -> FullGaussian:
        """The family of the projections."""
        return FullGaussian(self.prior_mean, self.prior_strength, self.degrees, self.scale)

    def _with_inner(self, inner: FullGaussian) -> ProjectedGaussian:
        return self.with_parameters(**inner.hyperparameters())

    def project(self, X: Any) -> Matrix:
        """Return z = A (x − m) of each row."""
        projection = self._map(X.shape[1])
        return np.asarray((projection.forward(X) - projection.centre) @ projection.components.T)

    def check(self, X: Any) -> None:
        if self.total is not None and X.size and np.nanmin(X, initial=0.0) < 0.0:
            at = int(np.flatnonzero((X < 0.0).any(axis=0))[0])
            raise DataError("{place} of X holds counts, which are at least 0", column=at)

    def hyperparameters(self) -> dict[str, Any]:
        # Those of the projections are left out: log joints under others are not comparable.
        return self._inner.hyperparameters()

    def resolve(self, X: Any) -> ProjectedGaussian:
        return self._with_inner(self._inner.resolve(self._some_projections(X.shape[1])))

    def row_layout(self) -> Any:
        return self._inner.row_layout()

    def row_size(self, n_features: int) -> int:
        return self._map(n_features).width

    def parameters(self, n_features: int, X: Any) -> Vector:
        return self._inner.parameters(self._map(n_features).width, X)

    def encode(self, X: Any) -> Any:
        return self._inner.encode(self.project(X))

    def log_base(self, X: Any) -> Vector:
        # The same for every row.
        base = self._inner.log_base(self._some_projections(X.shape[1]))
        return np.full(X.shape[0], base[0])

    def log_ceiling(self, X: Any) -> Vector:
        return self._inner.log_ceiling(self.project(X))

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        """Of the projections; `mean` is that of the columns."""
        projection = self._map(n_features)
        out = self._inner.posterior(row, projection.width)
        mean = projection.inverse(out["mean"])
        if projection.counts is not None:
            mean = projection.counts.rows(mean, projection.counts.lengths(mean))
        return {**out, "projected_mean": out["mean"], "mean": mean}

    def narrow(self, n_features: int) -> tuple[Family, int]:
        return self._inner, self._map(n_features).width

    def columns(self, row: Vector, n_features: int) -> Columns:
        """Of each column as its projections show it, vᵀz with v its row of B."""
        found = self._inner.columns_along(self._map(n_features).loadings, row)
        return found._replace(centres=self.posterior(row, n_features)["mean"])

    def linear(self, n_features: int) -> LinearForm:
        projection = self._map(n_features)
        form = self._inner.linear(projection.width)

        def features(X: Any) -> Any:
            off = projection.forward(X) - like(X, projection.centre)
            return form.features(off @ like(X, projection.components.T))

        return replace(form, features=features)

    def restated(self, row: Vector, n_features: int, other: Any) -> Restated | None:
        """Of the same projections."""
        same = self.with_parameters(**other.hyperparameters()) == other
        return self._inner.restated(row, self.row_size(n_features), other._inner) if same else None

    def gaps(self, rows: list[Vector], n_features: int) -> Gaps:
        """Density of the projections that the observed columns determine: 1 if there are none."""
        projection = self._map(n_features)
        means, scales, degrees = self._inner.predictives(rows, projection.width)

        def densities(X: Any) -> Matrix:
            out = np.empty((X.shape[0], len(rows)))
            for part in self._observed_projections(X):
                rotated = _rotated(means, scales, part)
                out[part.at] = log_densities(part.seen, *rotated, degrees)
            return out

        def fill(X: Any, weights: Matrix) -> Matrix:
            out = np.array(X)
            for part in self._observed_projections(X):
                at, rotated = part.at, _rotated(means, scales, part)
                z = expected(part.seen, weights[at], *rotated) @ part.rotation.T
                filled = projection.inverse(z)
                if projection.counts is not None:
                    filled = projection.counts.rows_like(filled, X[at])
                out[at] = np.where(np.isnan(X[at]), filled, X[at])
            return out

        return Gaps(densities, fill)

    def _observed_projections(self, X: Any) -> Iterator[_Observed]:
        """What each row determines of its projections, for rows with the same gaps at a time."""
        projection = self._map(X.shape[1])
        patterns, which = np.unique(np.isnan(X), axis=0, return_inverse=True)
        for p, missing in enumerate(patterns):
            at = np.flatnonzero(which.ravel() == p)
            known = np.where(missing, 0.0, projection.components)
            left, values, right = np.linalg.svd(known @ projection.loadings)
            enough = values >= _LEAST_OBSERVED
            reading, noise = np.zeros_like(known), np.zeros_like(known)
            reading[enough] = left.T[enough] @ known / values[enough, None]
            noise[enough] = (reading - right @ projection.components)[enough] * projection.deviation
            seen = np.where(missing, 0.0, projection.forward(X[at]) - projection.centre) @ reading.T
            seen[:, ~enough] = np.nan
            yield _Observed(at, seen, right.T, reading, noise)

    def drawn(self, X: Matrix, labels: Ints, rows: list[Vector], rng: Rng) -> Matrix:
        """Return X with its gaps filled by draws given what was observed and the row's cluster.

        By Matheron's rule: x*_m + C_mo C_oo⁻¹ (o − o*), with x* a draw of the complete row, o the
        observed projections, and C their covariances, as if Student's t were normal.
        """
        n_features = X.shape[1]
        components, loadings, _, deviation, _ = self._map(n_features)
        _, scales, degrees = self._inner.predictives(rows, len(components))
        spreads = scales * (degrees / np.maximum(degrees - 2.0, 1.0))[:, None, None]
        whole = np.empty_like(X)
        for k in np.unique(labels):
            own = labels == k
            whole[own] = self.draws(rows[k], n_features).sample(int(own.sum()), rng)
        off = np.where(np.isnan(X), 0.0, X - whole)
        for part in self._observed_projections(X):
            noise = part.noise * deviation
            with_rest = noise.T - loadings @ (components @ noise.T)  # covariance of r and o
            some = ~np.isnan(part.seen[0])
            for k in np.unique(labels[part.at]):
                at = part.at[labels[part.at] == k]
                shared = spreads[k] @ part.rotation
                among = part.rotation.T @ shared + part.noise @ part.noise.T
                given = (loadings @ shared + with_rest)[:, some]
                weights = np.linalg.solve(among[np.ix_(some, some)], given.T)
                whole[at] += off[at] @ part.reading[some].T @ weights
        return np.where(np.isnan(X), whole, X)

    def draws(self, row: Vector, n_features: int) -> PredictiveDraws:
        """Rows with projections from the posterior predictive, and independent residuals."""
        projection = self._map(n_features)
        inner, counts = self._inner.draws(row, projection.width), projection.counts

        def sample(size: int, rng: Rng) -> Any:
            rows = projection.inverse(inner.sample(size, rng))
            lengths = None if counts is None else counts.lengths(rows)
            if projection.deviation.any():
                rest = rng.standard_normal(rows.shape) * projection.deviation
                rows += rest - rest @ projection.components.T @ projection.loadings.T
            return rows if counts is None else counts.rows(rows, lengths)

        return PredictiveDraws(sample)

    @classmethod
    def suggest(cls, X: Any) -> ProjectedGaussian:
        """The leading principal components of the columns, each divided by its standard deviation.

        At most 20, and at most one for every fifteen rows.  A constant column has no part in them.
        """
        scale = 1.0 / np.sqrt(mean_and_variance(X)[1])
        return cls._leading(X, X.mean(axis=0), scale)

    @classmethod
    def of_one_unit(cls, X: Any) -> ProjectedGaussian:
        """The same of columns that share a unit, which are not divided by their deviations."""
        changing = varies(X)
        variance = mean_and_variance(X)[1][changing].mean() if changing.any() else 1.0
        return cls._leading(X, X.mean(axis=0), np.full(X.shape[1], 1.0 / np.sqrt(variance)))

    @classmethod
    def of_counts(cls, counts: Any) -> ProjectedGaussian:
        """The same of counts, in units of their noise or as roots: what needs fewer components.

        Noise that is not as supposed shows as components.
        """
        made = [
            (m, cls._leading(m.forward(counts), m.centre, m.scale))
            for m in CountRows.candidates(counts)
        ]
        projection, found = min(made, key=lambda one: len(one[1].components))
        return found.with_parameters(total=projection.total, dispersion=projection.dispersion)

    @classmethod
    def _leading(cls, X: Any, mean: Vector, scale: Vector) -> ProjectedGaussian:
        """The leading principal components of columns that are multiplied by `scale` first."""
        changing = varies(X)
        units = np.where(changing, scale, 0.0)
        n_rows, width = X.shape
        most = max(1, min(_MOST_COMPONENTS, n_rows // _ROWS_A_COMPONENT, width))
        wanted = min(most, n_components(X, mean, units))
        components = principal(X, mean, units, wanted)
        if not len(components):  # all columns are constant
            components, units = np.eye(1, width), scale
        # The sign of an eigenvector is arbitrary: its largest entry is made positive.
        rows = np.arange(len(components))
        signs = np.sign(components[rows, np.abs(components).argmax(axis=1)])
        components = components * signs[:, None]
        return cls._with_coordinates(X, mean, components * units, (components / scale).T)

    @classmethod
    def condensed(cls, X: Any) -> ProjectedGaussian | None:
        """Coordinates for columns of which some follow from others; None if none do.

        Columns are left out one after the other, always that which the others explain best, while
        they explain more than 99 hundredths of it (a variance inflation factor above 100).  B has
        the regressions of all columns on those that are left, and z is what all columns together
        say of these, by least squares in units of standard deviations.
        """
        mean, variance = mean_and_variance(X)
        changing = varies(X)
        deviation = np.sqrt(variance)
        standard = np.where(changing, (X - mean) / deviation, 0.0)
        correlations = standard.T @ standard / len(X)
        kept = independent(correlations, np.flatnonzero(changing), _UNEXPLAINED)
        if len(kept) in (0, X.shape[1]):
            return None
        loadings = np.linalg.solve(correlations[np.ix_(kept, kept)], correlations[kept]).T
        components = np.linalg.pinv(loadings) / deviation
        return cls._with_coordinates(X, mean, components, deviation[:, None] * loadings)

    @classmethod
    def _with_coordinates(
        cls, X: Any, mean: Vector, components: Matrix, loadings: Matrix
    ) -> ProjectedGaussian:
        family = cls(as_tuple(components), as_tuple(mean), loadings=as_tuple(loadings))
        squares = np.zeros(X.shape[1])
        for at in range(0, len(X), _BLOCK):
            rows = X[at : at + _BLOCK]
            squares += ((rows - family._checked.inverse(family.project(rows))) ** 2).sum(axis=0)
        # A column's share of itself that the projections leave over; of all columns, D − q.
        left = np.maximum(1.0 - np.einsum("qd,dq->d", components, loadings), _NOTHING)
        family = family.with_parameters(residual_variance=as_tuple(squares / (len(X) * left)))
        return family._with_inner(FullGaussian.suggest(family.project(X)))

    def simpler(self, X: Any) -> Simpler | None:
        found = self._inner.simpler(self.project(X))
        return None if found is None else found._replace(replaces=False)

    def learned(self, X: Any, labels: Ints) -> ProjectedGaussian:
        return self._with_inner(self._inner.learned(self.project(X), labels))

    @classmethod
    def examples(cls) -> list[Example]:
        rng = np.random.default_rng(0)
        components = ((1.0, 0.5, 0.0, -1.0), (0.0, 1.0, 2.0, 0.3))
        X = rng.normal(size=(12, 4))
        return [
            Example(cls(components, 0.0, 0.0, 0.5), X),
            Example(cls(components, (1.0, 0.0, 2.0, 0.0), (0.3, -1.0), 1.5, 3.5, 2.0), X),
        ]


def _as_matrix(values: Any, name: str) -> Matrix:
    try:
        matrix = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{name} must be a matrix of numbers") from error
    if matrix.ndim != 2 or not matrix.size or not np.isfinite(matrix).all():
        raise ParameterError(f"{name} must be a matrix of finite numbers")
    return matrix


def _rotated(means: Matrix, scales: Matrix, part: _Observed) -> tuple[Matrix, Matrix]:
    """Return the locations of Vᵀz, and its scale matrices with the noise added."""
    rotated = part.rotation.T @ scales @ part.rotation + part.noise @ part.noise.T
    return np.ascontiguousarray(means @ part.rotation), np.ascontiguousarray(rotated)
