"""What a family is: a conjugate likelihood with its prior, and nothing about partitions.

A family is a frozen dataclass of hyperparameters.  `compile` checks a data set against it and
returns a `Model`: flat parameters, row width, and the addresses of the family's functions.  The
functions (see `dpsearch._jit` for their signatures) act on *rows*: one flat float64 vector per
cluster with its sufficient statistics and whatever constants make scoring cheap.

To write one, see ``docs/add_a_family.md``.
"""

from __future__ import annotations

import copy
import dataclasses
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from dpsearch._jit import (
    BOUND,
    FEATURES,
    INIT,
    LOG_MARGINAL,
    MERGE,
    SCORE_BEST,
    SCORE_DOTS,
    SCORE_MEMBER,
    SCORE_ROWS,
    UPDATE,
    Pointer,
    pointer,
)
from dpsearch._types import ArrayLike, Ints, Matrix, Rng, Vector
from dpsearch.errors import CapabilityError, DataError
from dpsearch.items import Core, Items, clear_row, log_predictive, merge_rows, rows_of_labels
from dpsearch.registry import Described
from dpsearch.tables.checked import CheckedTable

# All that a family's file needs: these, the signatures of its functions, and `pointer`.
__all__ = [
    "BOUND",
    "FEATURES",
    "INIT",
    "LOG_MARGINAL",
    "MERGE",
    "SCORE_BEST",
    "SCORE_DOTS",
    "SCORE_MEMBER",
    "SCORE_ROWS",
    "UPDATE",
    "Bounds",
    "Dots",
    "Example",
    "Family",
    "Functions",
    "Model",
    "pack",
    "pointer",
    "without_zeros",
]


@dataclasses.dataclass(frozen=True)
class Functions:
    """A family's functions.  The first five are required, the others are capabilities.

    score_member
        log H(x | the other members) for a point that the row contains.  Without it, or where it
        returns NaN, solvers copy the row, take the point out and compare marginals.
    score_best
        log H(x | cluster k) + offsets[k] for clusters that may have the largest such sum, leaving
        out the one at `skipped`; −∞ for those that have not.  For families that can see half-way
        that a cluster is too far: solvers that look for the best place alone then use it.
    score_dots, dots_offset
        Scoring needs only the inner product of the point with a linear statistic that starts at
        ``row[dots_offset]``: solvers then take points in blocks.
    features, bound
        The exact methods' upper bound on a predictive probability (see `heuristics.py`).
    """

    init: Pointer
    update: Pointer
    merge: Pointer
    score_rows: Pointer
    log_marginal: Pointer
    score_member: Pointer | None = None
    score_best: Pointer | None = None
    score_dots: Pointer | None = None
    dots_offset: int = 0
    features: Pointer | None = None
    bound: Pointer | None = None


class Dots(NamedTuple):
    """The block capability, as kernels see it."""

    score_dots: int
    offset: int
    n_features: int


class Bounds(NamedTuple):
    """The bound capability, as kernels see it."""

    features: int
    n_features: int
    bound: int


@dataclasses.dataclass(frozen=True)
class Example:
    """Hyperparameters and data on which the tests exercise a family."""

    family: Family
    X: Any


class Family(Described):
    """Base of all families; a subclass is a frozen dataclass of hyperparameters."""

    accepts_sparse: ClassVar[bool] = False
    # Whether points can be scaled, as the paper's replica heuristic does with real vectors.
    scale_replicas: ClassVar[bool] = False
    # Whether columns are independent given the cluster: missing values can then be skipped.
    independent_columns: ClassVar[bool] = False
    functions: ClassVar[Functions]

    # -- what a family must say -------------------------------------------------------------

    @abstractmethod
    def width(self, n_features: int) -> int:
        """Length of one row of statistics."""

    @abstractmethod
    def parameters(self, n_features: int, X: Any) -> Vector:
        """Flat vector of hyperparameters and tables.  Tables may be sized to the data."""

    @abstractmethod
    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        """The cluster's posterior parameters, for people to read."""

    @abstractmethod
    def draw(self, row: Vector, n_features: int, size: int, rng: Rng) -> Any:
        """Draw `size` new data rows, independent given the cluster, from the posterior predictive.

        Each is a draw with its own parameter, so the rows are exchangeable but not one sample
        from a single parameter.
        """

    @classmethod
    @abstractmethod
    def examples(cls) -> list[Example]:
        """Data sets small and varied enough to test the family with."""

    # -- what a family may say --------------------------------------------------------------

    def check(self, X: Any) -> None:
        """Raise `DataError` if the values cannot come from this family."""

    def resolve(self, X: Any) -> Self:
        """Return the family with everything filled in that it takes from the data."""
        return self

    def encode(self, X: Any) -> Any:
        """Return the data as the functions want them, for example centred and scaled."""
        return X

    def log_base(self, X: Any) -> Vector:
        """Log of each row's factor that no cluster changes: multinomial coefficients, Jacobians."""
        return np.zeros(X.shape[0])

    def log_ceiling(self, X: Any) -> Vector:
        """Upper bound on log H(x | any cluster of up to len(X) points), without `log_base`."""
        raise CapabilityError(f"the {self.name} family has no density ceiling")

    def bound_width(self, n_features: int) -> int:
        """Number of features that `features` writes."""
        return n_features

    @classmethod
    def suggest(cls, X: Any) -> Self:
        """Hyperparameters to start from when the user gives none.  Units must not matter."""
        return cls()

    def learned(self, X: Any, labels: Ints) -> Self:
        """Hyperparameters for data of which a partition is known; see `families.learning`.

        Called of what `suggest` made of all the data; X may be a sample of them.
        """
        return self

    def counts_in_row(self, n_features: int) -> slice | Ints | None:
        """Which numbers of a row are whole and not below zero: kernels may index by them."""
        return None

    def column_log_marginals(self, row: Vector, n_features: int) -> Vector:
        """Log H of each column of a cluster on its own, for `explain`.

        Factors that belong to each value alone may be left out, as with `log_base`: they cancel
        where clusterings are compared.
        """
        raise CapabilityError(f"the {self.name} family does not tell what its columns say")

    def column_bayes_factors(
        self, inside: Vector, outside: Vector, both: Vector, n_features: int
    ) -> Vector:
        """Log Bayes factor of each column: two clusters of their own against one for all."""
        parts = [self.column_log_marginals(row, n_features) for row in (inside, outside, both)]
        return np.asarray(parts[0] + parts[1] - parts[2])

    def column_centres(self, row: Vector, n_features: int) -> Vector:
        """What to expect in each column of a cluster: its posterior mean, or the likeliest code."""
        posterior = self.posterior(row, n_features)
        if "mean" not in posterior:
            raise CapabilityError(f"the {self.name} family does not tell what its columns say")
        return np.asarray(posterior["mean"])

    def lengths(self, X: Any) -> Matrix:
        """What the model takes as given of each row, as a document's length: [rows, how many]."""
        return np.empty((X.shape[0], 0))

    def draw_of_lengths(self, row: Vector, n_features: int, lengths: Matrix, rng: Rng) -> Any:
        """Draw a data row for each row of `lengths`."""
        return self.draw(row, n_features, len(lengths), rng)

    def expected(self, row: Vector, n_features: int) -> list[Vector]:
        """What `impute` fills a column with: its centre, as a vector of one number.

        For a column of codes instead the probabilities of 0, 1, 2 …, at least two of them.
        """
        return [np.array([centre]) for centre in self.column_centres(row, n_features)]

    def column_rows(self, row: Vector, n_features: int) -> list[Vector]:
        """The row as one for each column on its own: what `merge` and the predictive need."""
        raise CapabilityError(
            f"clusters of the {self.name} family were fitted to complete data and cannot be taken"
            " apart by column: fit to data with missing values, or fill them"
        )

    def variant(self) -> Functions:
        """The functions to use with these hyperparameters."""
        return self.functions

    # -- what every family then has ---------------------------------------------------------

    @property
    def takes_gaps(self) -> bool:
        """Whether data may have missing values, which are NaN."""
        return self.independent_columns

    @property
    def predicts_gaps(self) -> bool:
        """Whether new rows may have missing values, though those of the fit may not."""
        return self.takes_gaps

    def skips(self, table: CheckedTable) -> bool:
        """Whether what is missing in a table can be skipped."""
        return self.takes_gaps

    def observed_log_densities(self, rows: list[Vector], X: Any) -> Matrix:
        """log p(what was observed of x | cluster) for each row of X and each of these clusters."""
        if not self.takes_gaps:
            raise CapabilityError(
                f"the {self.name} family does not predict rows with missing values"
            )
        model, pool = self.gapped(rows, X.shape[1])
        return model.log_densities(pool, X)

    def fill(self, rows: list[Vector], X: Any, weights: Matrix) -> Matrix:
        """X with its gaps filled by what the clusters expect given the rest, in these shares."""
        missing = np.isnan(X)
        expected = [self.expected(row, X.shape[1]) for row in rows]
        out = np.array(X)
        for d in np.flatnonzero(missing.any(axis=0)):
            values = weights[missing[:, d]] @ np.stack([columns[d] for columns in expected])
            out[missing[:, d], d] = values[:, 0] if values.shape[1] == 1 else values.argmax(axis=1)
        return out

    def gapped(self, rows: list[Vector], n_features: int) -> tuple[Model, Vector]:
        """The family compiled for data with missing values, and these rows in its form."""
        model = self.with_gaps().compile_empty(n_features)
        out = []
        for row in rows:
            out.append(model.empty_row())
            merge_rows(model.core, out[-1], self.row_with_gaps(row, n_features), 1.0)
        return model, np.concatenate(out)

    def with_gaps(self) -> Family:
        """The same family with rows of statistics that can skip missing values."""
        from dpsearch.families.with_gaps import WithGaps

        return WithGaps(self)

    def row_with_gaps(self, row: Vector, n_features: int) -> Vector:
        """Return a row as one of `with_gaps()`, for `merge` to complete."""
        return np.concatenate([row[:1], *self.column_rows(row, n_features)])

    def suited(self, table: CheckedTable) -> Family:
        """Return the family completed by a table, in the form that its gaps need."""
        return (self.with_gaps() if table.gaps else self).resolve(table.matrix)

    def column(self, d: int, n_features: int) -> Self:
        """The family of one column on its own, where columns are independent."""
        values = {name: getattr(self, name) for name in _names(self)}
        return self.with_parameters(
            **{name: _at(value, d) for name, value in values.items() if np.ndim(value) == 1}
        )

    def table(self, X: ArrayLike | CheckedTable) -> CheckedTable:
        """Return X as a checked table; raise if it is sparse or has gaps that are not taken."""
        return CheckedTable.of(X, accept_sparse=self.accepts_sparse, gaps=self.takes_gaps)

    def compile(self, X: ArrayLike | CheckedTable) -> Model:
        """Check X against the family and make it ready for solvers."""
        table = self.table(X)
        family = self.suited(table)
        family.check(table.matrix)
        return Model(family, table)

    def compile_empty(self, n_features: int) -> Model:
        """Compile a family that `resolve` has completed, for data of this width to come."""
        return Model(self, CheckedTable(np.zeros((1, n_features)), None, True)).without_data()

    def with_parameters(self, **changes: Any) -> Self:
        """Return a copy with some hyperparameters changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def rescaled(self, factors: Mapping[str, float]) -> Self:
        """Return a copy with some hyperparameters multiplied, vectors and matrices as a whole."""
        return self.with_parameters(
            **{name: _times(getattr(self, name), factor) for name, factor in factors.items()}
        )

    def simpler(self, X: Any) -> tuple[Any, Family] | None:
        """A table and a family with fewer numbers a cluster, to find clusters to begin with."""
        return None

    def hyperparameters(self) -> dict[str, Any]:
        """Every hyperparameter by the name that `rescaled` knows it by."""
        return {name: getattr(self, name) for name in _names(self)}

    def relocated(self, params: Vector, n_features: int) -> Vector:
        """Return parameters from another process with whatever of them this one must renew."""
        return params


class Model:
    """A family compiled for data of one width, and the means to read its rows."""

    def __init__(self, family: Family, table: CheckedTable) -> None:
        self.family = family
        self.n_features = table.shape[1]
        functions = family.variant()
        self.core = Core(
            params=np.ascontiguousarray(
                family.parameters(self.n_features, table.matrix), dtype=np.float64
            ),
            width=family.width(self.n_features),
            init=functions.init.address,
            update=functions.update.address,
            merge=functions.merge.address,
            score_rows=functions.score_rows.address,
            log_marginal=functions.log_marginal.address,
            score_member=_address(functions.score_member),
            score_best=_address(functions.score_best),
        )
        self._functions = functions
        self._sparse = table.sparse
        self._table: CheckedTable | None = table

    def __copy__(self) -> Model:
        out = object.__new__(Model)
        out.__dict__.update(self.__dict__)
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        # Addresses of compiled functions mean nothing in another process.  The parameters go with
        # their tables, for the same bits.
        return _recompiled, (
            self.family, self.n_features, self.core.params, self._sparse, self._table,
        )  # fmt: skip

    @property
    def data(self) -> CheckedTable:
        """The checked data that the model was compiled for."""
        if self._table is None:
            raise DataError("the model has let go of its data: give rows")
        return self._table

    @property
    def matrix(self) -> Any:
        """The matrix of these data."""
        return self.data.matrix

    def without_data(self) -> Model:
        """The same model, letting go of the data."""
        out = copy.copy(self)
        out._table = None
        return out

    def check_rows(self, pool: Vector, sizes: Ints) -> None:
        """Raise `DataError` if rows from outside could not come from these functions.

        A row's first number is the size of its cluster; other counts are what the family says.
        """
        rows = pool.reshape(len(sizes), self.core.width)
        counts = self.family.counts_in_row(self.n_features)
        checked = rows[:, :1] if counts is None else np.hstack([rows[:, :1], rows[:, counts]])
        whole = (checked >= 0.0) & (checked <= 2.0**53) & (checked == np.floor(checked))
        if not np.isfinite(rows).all() or not whole.all() or (rows[:, 0] != sizes).any():
            raise DataError("the clusters' statistics are not those of any data")

    def with_params(self, params: Vector) -> Model:
        """The same model with the parameters of another data set: larger or smaller tables."""
        out = copy.copy(self)
        params = self.family.relocated(params, self.n_features)
        out.core = self.core._replace(params=params)
        return out

    def items(self, X: ArrayLike | CheckedTable | None = None) -> tuple[Items, Vector]:
        """Return the rows of X (default: the compiled data) as items, and their `log_base`."""
        if X is None:
            matrix = self.matrix
        else:
            table = self.family.table(X)
            if table.shape[1] != self.n_features:
                raise DataError(
                    f"X has {table.shape[1]} features, but the model was fitted with"
                    f" {self.n_features} features"
                )
            matrix = table.matrix
            self.family.check(matrix)
        base = self.family.log_base(matrix)
        return pack(self.family.encode(matrix)), base

    def log_densities(self, pool: Vector, X: Any) -> Matrix:
        """log p(x | cluster) for each row of X and each of a pool of rows of statistics."""
        items, base = self.items(X)
        return np.asarray(log_predictive(self.core, items, pool) + base[:, None])

    def empty_row(self) -> Vector:
        row = np.empty(self.core.width)
        clear_row(self.core, row)
        return row

    def rows(self, items: Items, labels: Ints, n_clusters: int) -> tuple[Vector, Ints]:
        """Return (flat pool, sizes) of the clusters that labels name."""
        pool, sizes = rows_of_labels(self.core, items, labels, n_clusters)
        return pool, sizes

    def blocks(self, pool: Vector, sizes: Ints) -> Items:
        """Return rows of statistics as items: one item per row."""
        indptr = np.arange(len(sizes) + 1, dtype=np.int64) * self.core.width
        return Items(pool, np.empty(0, np.int32), indptr, sizes, True)

    def dots(self) -> Dots | None:
        """The block capability, if the family has it and the data are dense."""
        if self._functions.score_dots is None or self._sparse:
            return None
        return Dots(
            self._functions.score_dots.address, self._functions.dots_offset, self.n_features
        )

    def bounds(self, solver: str) -> Bounds:
        """The bound capability; `solver` is named in the error when there is none."""
        functions = self._functions
        if functions.features is None or functions.bound is None:
            raise CapabilityError(
                f"{solver} needs the functions 'features' and 'bound', which the"
                f" {self.family.name} family does not have"
            )
        return Bounds(
            functions.features.address,
            self.family.bound_width(self.n_features),
            functions.bound.address,
        )


def _recompiled(
    family: Family, n_features: int, params: Vector, sparse: bool, table: CheckedTable | None
) -> Model:
    model = family.compile_empty(n_features).with_params(_writable(params))
    model._sparse, model._table = sparse, table
    return model


def _address(capability: Pointer | None) -> int:
    return 0 if capability is None else capability.address


def _names(family: Family) -> list[str]:
    return [field.name for field in dataclasses.fields(family)]  # type: ignore[arg-type]


def _at(values: Any, d: int) -> Any:
    """Element d of a vector of hyperparameters, as a plain number."""
    return np.asarray(values)[d if len(values) > 1 else 0].item()


def _times(value: Any, factor: float) -> Any:
    if isinstance(value, tuple):
        return tuple(_times(part, factor) for part in value)
    return np.asarray(value, dtype=np.float64) * factor if np.ndim(value) else value * factor


def without_zeros(X: Any) -> Any:
    """Return counts as a CSR matrix that stores no zeros; X itself is not changed."""
    encoded = sp.csr_matrix(X)
    if (encoded.data == 0.0).any():
        encoded = encoded.copy()
        encoded.eliminate_zeros()
    return encoded


def pack(X: Any) -> Items:
    """Lay dense or CSR rows end to end, unless the family has done so itself."""
    if isinstance(X, Items):
        return X
    sizes = np.ones(X.shape[0], np.int64)
    if sp.issparse(X):
        return Items(
            _writable(np.ascontiguousarray(X.data, dtype=np.float64)),
            _writable(np.ascontiguousarray(X.indices, dtype=np.int32)),
            _writable(np.ascontiguousarray(X.indptr, dtype=np.int64)),
            sizes,
            False,
        )
    indptr = np.arange(X.shape[0] + 1, dtype=np.int64) * X.shape[1]
    values = _writable(np.ascontiguousarray(X, dtype=np.float64).reshape(-1))
    return Items(values, np.empty(0, np.int32), indptr, sizes, False)


class _Unlocked:
    """A view of a read-only array that says it can be written to."""

    def __init__(self, array: Any) -> None:
        self.array = array
        address = array.__array_interface__["data"][0]
        self.__array_interface__ = array.__array_interface__ | {"data": (address, False)}


def _writable(array: Any) -> Any:
    """Return the array under the one type that kernels are compiled for.

    Numba gives read-only arrays (memory maps, joblib's) a type of their own.  Kernels never write
    to data, so there is no need to copy.
    """
    return array if array.flags.writeable else np.asarray(_Unlocked(array))


def unlocked(state: dict[str, Any]) -> dict[str, Any]:
    """Attributes as kernels take them; arrays that joblib or Dask has sent may be read-only."""
    return {name: _all_writable(value) for name, value in state.items()}


def _all_writable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _writable(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_all_writable, value))
    return value
