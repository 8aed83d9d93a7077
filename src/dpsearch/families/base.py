"""`Family`: a conjugate likelihood with its prior, without any knowledge of partitions.

A family is a frozen dataclass of hyperparameters.  `compile` checks a data set against it and
returns a `Model`: flat parameters, the width of a row, and the addresses of the family's functions.
The functions (see `dpsearch._jit` for their signatures) work on *rows*: one flat float64 vector per
cluster with its sufficient statistics and the constants that make scoring cheap.

``docs/add_a_family.md`` explains how to write one.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from abc import abstractmethod
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from dpsearch._types import ArrayLike, Ints, Matrix, Vector
from dpsearch._validate import place_of
from dpsearch.errors import DataError
from dpsearch.families import layout
from dpsearch.families.capabilities import (
    Columns,
    Gaps,
    PredictiveDraws,
    Restated,
    Simpler,
    lacking,
)
from dpsearch.families.functions import Bounds, Dots, Functions, address
from dpsearch.families.linear import LinearForm
from dpsearch.families.packing import pack, writable
from dpsearch.families.restored import skipped
from dpsearch.families.statistics import Statistic
from dpsearch.items import Core, Items, clear_row, log_predictive, rows_of_parts
from dpsearch.registry import Described
from dpsearch.tables.checked import CheckedTable


@dataclasses.dataclass(frozen=True)
class Example:
    """Hyperparameters and data on which the tests exercise a family."""

    family: Family
    X: Any


class Family(Described):
    """Base of all families; a subclass is a frozen dataclass of hyperparameters."""

    # What the columns hold: "real", "count", "binary" or "category" values, "words" of documents
    # of given length, a "direction", a "regression" on other columns, or a "projection" of real
    # values.  None if none of these.
    kind: ClassVar[str | None] = None
    accepts_sparse: ClassVar[bool] = False
    numbers_a_value: ClassVar[int] = 1  # the most numbers that encode one value
    # Whether points can be scaled, which the paper's replica heuristic does with real vectors.
    scale_replicas: ClassVar[bool] = False
    # Whether columns are independent given the cluster, so that missing values can be skipped.
    independent_columns: ClassVar[bool] = False
    functions: ClassVar[Functions]
    # Whether capabilities read the rows of these functions, not the rows of the parts.
    reads_own_rows: ClassVar[bool] = True
    # The class that `with_gaps` applies to a family of independent columns; see `with_gaps.py`.
    form_with_gaps: ClassVar[Any]

    def __init_subclass__(cls, **options: Any) -> None:
        """Drop inherited capabilities that a subclass has made invalid.

        Proofs rely on `statistic` and `log_ceiling`, passes on `linear`; these are valid for the
        functions, parameters and encoding that they were written for.  `columns`, `draws` and the
        forms for missing values read the rows of the functions.  A class that defines other
        functions must define these again.
        """
        super().__init_subclass__(**options)
        defined, dropped = cls.__dict__, []
        if any(name in defined for name in ("functions", "variant", "parameters", "encode")):
            dropped += ["statistic", "log_ceiling", "linear", "restated"]
        if cls.reads_own_rows and ("functions" in defined or "variant" in defined):
            dropped += ["variant", "columns", "draws", "gaps", "form_with_gaps", "row_with_gaps"]
        for name in dropped:
            if name not in defined and hasattr(Family, name):
                setattr(cls, name, getattr(Family, name))

    # -- required ----------------------------------------------------------------------------

    def row_layout(self) -> Any:
        """Return the layout of a row; None for a family that defines `width`."""
        return None

    def row_size(self, n_features: int) -> int:
        """Return the length of the vectors of a row that has a layout."""
        return n_features

    def width(self, n_features: int) -> int:
        """Return the length of one row of statistics."""
        return layout.width(self.row_layout(), self.row_size(n_features))

    @abstractmethod
    def parameters(self, n_features: int, X: Any) -> Vector:
        """Return a flat vector of hyperparameters and tables, whose sizes may depend on X."""

    @abstractmethod
    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        """Return the cluster's posterior parameters by name, for people to read."""

    @classmethod
    @abstractmethod
    def examples(cls) -> list[Example]:
        """Return data sets that are small and varied enough to test the family."""

    # -- hyperparameters -----------------------------------------------------------------------

    def hyperparameters(self) -> dict[str, Any]:
        """Return every hyperparameter by its name in `rescaled`."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return {field.name: getattr(self, field.name) for field in fields}

    def with_parameters(self, **changes: Any) -> Self:
        """Return a copy with some hyperparameters changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def rescaled(self, factors: Mapping[str, float]) -> Self:
        """Return a copy with some hyperparameters multiplied, vectors and matrices as a whole."""
        return self.with_parameters(
            **{name: _times(getattr(self, name), factor) for name, factor in factors.items()}
        )

    def column(self, d: int, n_features: int) -> Self:
        """Return the family of a single column, if columns are independent."""
        vectors = {name: v for name, v in self.hyperparameters().items() if np.ndim(v) == 1}
        own = {name: np.asarray(v)[d if len(v) > 1 else 0].item() for name, v in vectors.items()}
        return self.with_parameters(**own)

    # -- the data before the functions see them, and what depends on the functions -------------

    def check(self, X: Any) -> None:
        """Raise `DataError` if the values cannot come from this family."""

    def check_support(self, X: Any, bad: Any, wanted: str) -> None:
        """Raise `DataError` at the first value outside the support, leaving out gaps.

        `bad` says which values of X, or of those that a sparse X stores, are outside.
        """
        values = X.data if sp.issparse(X) else X
        at = np.flatnonzero(bad & ~np.isnan(values))
        if len(at) > 0:
            raise DataError(
                f"the {self.name} family takes {wanted}, but X at {{place}} is"
                f" {values.flat[at[0]]:g}",
                **place_of(X, at),
            )

    def without(self, X: Matrix, rows: Ints, columns: Ints) -> Matrix:
        """Return X with gaps in place of some values, and of others that determine them."""
        out = X.copy()
        out[rows, columns] = np.nan
        return out

    def resolve(self, X: Any) -> Self:
        """Return the family with all hyperparameters that it derives from the data."""
        return self

    def encode(self, X: Any) -> Any:
        """Return the data in the form that the functions need, for example centred and scaled."""
        return X

    def log_base(self, X: Any) -> Vector:
        """Return the log of factors that do not depend on clusters: coefficients, Jacobians."""
        return np.zeros(X.shape[0])

    def variant(self) -> Functions:
        """Return the functions for these hyperparameters."""
        return self.functions

    def bound_width(self, n_features: int) -> int:
        """Return the number of features that `features` writes."""
        return self.row_size(n_features)

    def counts_in_row(self, n_features: int) -> slice | Ints | None:
        """Return the positions of integers ≥ 0 in a row, by which kernels may index."""
        if self.row_layout() is None:
            return None
        return layout.counts(self.row_layout(), self.row_size(n_features))

    # -- learning: hyperparameters when the user gives none -----------------------------------

    @classmethod
    def suggest(cls, X: Any) -> Self:
        """Return hyperparameters to start from, which must not depend on units."""
        return cls()

    @classmethod
    def suggest_for(cls, table: CheckedTable) -> Self:
        """Return what `suggest` returns; a family may also use the names of the columns."""
        return cls.suggest(table.matrix)

    def learned(self, X: Any, labels: Ints) -> Self:
        """Return hyperparameters for data with a known partition; see `families.learning`.

        `self` is what `suggest` returned for all the data; X may be a sample of them.
        """
        return self

    def simpler(self, X: Any) -> Simpler | None:
        """Return a family with fewer parameters per cluster, which finds clusters to start from."""
        return None

    # -- capabilities, None by default; see `families.capabilities` ----------------------------

    def columns(self, row: Vector, n_features: int) -> Columns | None:
        """Return evidence and centres of columns in a cluster: for `explain`, `impute`, reports."""
        return None

    def draws(self, row: Vector, n_features: int) -> PredictiveDraws | None:
        """Return draws from a cluster's posterior predictive: for `sample` and `outliers`."""
        return None

    def narrow(self, n_features: int) -> tuple[Family, int]:
        """Return a family of few columns with the same rows of statistics, and their number.

        The density of a row of the table is that of the row of these columns.
        """
        return self, n_features

    def lengths(self, X: Any) -> Matrix:
        """Return what is not modelled of each row, [rows, any number]: a document's length."""
        return np.empty((X.shape[0], 0))

    def gaps(self, rows: list[Vector], n_features: int) -> Gaps | None:
        """Return densities and fillings of rows with missing values: for `predict`, `impute`."""
        return skipped(self, rows, n_features) if self.takes_gaps else None

    def restated(self, row: Vector, n_features: int, other: Any) -> Restated | None:
        """Return a row under other hyperparameters, so that streams can learn them."""
        return None

    @property
    def learns_on(self) -> bool:
        """Whether hyperparameters may change when only rows of statistics are left of the data."""
        return type(self).restated is not Family.restated

    def restatable(self, other: Any) -> Any:
        """Return `other` if rows can be restated under it, else this family."""
        return other if self.learns_on else self

    def log_ceiling(self, X: Any) -> Vector | None:
        """Return a bound on log H(x | any cluster of up to len(X) points), without `log_base`."""
        return None

    def linear(self, n_features: int) -> LinearForm | None:
        """Return features and log H of their totals: for passes over many rows at once."""
        return None

    def statistic(self, X: Any) -> Statistic | None:
        """Return a closed form of log H with these data: for `certify` and the heuristic 'dual'."""
        return None

    # -- provided ------------------------------------------------------------------------------

    @property
    def takes_gaps(self) -> bool:
        """Whether data may have missing values, which are NaN."""
        return self.independent_columns

    @property
    def predicts_gaps(self) -> bool:
        """Whether new rows may have missing values, even if rows of the fit may not."""
        return self.takes_gaps or type(self).gaps is not Family.gaps

    def by_column(self, n_features: int) -> list[Family]:
        """Return the family of each column."""
        return [self] * n_features

    @property
    def members(self) -> tuple[Family, ...]:
        """The families that this one is made of."""
        return ()

    def skips(self, table: CheckedTable) -> bool:
        """Whether the missing values of a table can be skipped."""
        return self.takes_gaps

    def contradicted(self, X: Matrix) -> list[int]:
        """Return the columns that would follow from others, but in some rows do not."""
        return []

    def with_gaps(self) -> Family:
        """Return the same family with rows of statistics that can skip missing values."""
        return self.form_with_gaps(self)  # type: ignore[no-any-return]

    def row_with_gaps(self, row: Vector, n_features: int) -> Vector:
        """Return a row as one of `with_gaps()`, for `merge` to complete."""
        of_columns = self.columns(row, n_features)
        if of_columns is None or of_columns.rows is None:
            need = "prediction for rows with gaps by clusters of complete data"
            raise lacking(self, "columns", "its method columns, with rows,", need)
        return np.concatenate([row[:1], *of_columns.rows])

    def suited(self, table: CheckedTable) -> Family:
        """Return the family resolved by a table, in the form for gaps if it has any."""
        return (self.with_gaps() if table.gaps else self).resolve(table.matrix)

    def table(self, X: ArrayLike | CheckedTable) -> CheckedTable:
        """Return X as a checked table; raise if the family does not accept its form or gaps."""
        return CheckedTable.of(X, accept_sparse=self.accepts_sparse, gaps=self.takes_gaps)

    def compile(self, X: ArrayLike | CheckedTable) -> Model:
        """Check X and return the family compiled for it."""
        table = self.table(X)
        family = self.suited(table)
        family.check(table.matrix)
        return Model(family, table)

    def compile_empty(self, n_features: int) -> Model:
        """Compile a resolved family for future data of this width."""
        return Model(self, CheckedTable(np.zeros((1, n_features)), None, True)).without_data()

    def relocated(self, params: Vector, n_features: int) -> Vector:
        """Return parameters from another process, with addresses of this process."""
        return params


def _times(value: Any, factor: float) -> Any:
    if isinstance(value, tuple):
        return tuple(_times(part, factor) for part in value)
    return np.asarray(value, dtype=np.float64) * factor if np.ndim(value) else value * factor


class Model:
    """A family compiled for data of one width, with methods for rows of statistics."""

    def __init__(self, family: Family, table: CheckedTable) -> None:
        self.family = family
        self.n_features = table.shape[1]
        parameters = family.parameters(self.n_features, table.matrix)
        self._params: Vector = np.ascontiguousarray(parameters, dtype=np.float64)
        self._functions = family.variant()
        self._sparse = table.sparse
        self._table: CheckedTable | None = table

    @functools.cached_property
    def summaries(self) -> Core:
        """The functions that make rows of statistics and their log H; they cannot score points."""
        functions, width = self._functions, self.family.width(self.n_features)
        update, merge = functions.update.address, functions.merge.address
        return Core(self._params, width, update, merge, 0, functions.log_marginal.address, 0, 0)

    @functools.cached_property
    def core(self) -> Core:
        """The parameters and functions for solvers; each is compiled when it is first used."""
        functions = self._functions
        return self.summaries._replace(
            score_rows=functions.score_rows.address,
            score_member=address(functions.score_member),
            score_best=address(functions.score_best),
        )

    def __copy__(self) -> Model:
        out = object.__new__(Model)
        out.__dict__.update(self.__dict__)
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        # Addresses of compiled functions are invalid in another process.  Parameters are sent with
        # their tables, so that results are the same to the last bit.
        return _recompiled, (
            self.family, self.n_features, self._params, self._sparse, self._table,
        )  # fmt: skip

    @property
    def data(self) -> CheckedTable:
        """The checked data that the model was compiled for."""
        if self._table is None:
            raise DataError("the model no longer holds its data: pass the rows")
        return self._table

    @property
    def matrix(self) -> Any:
        """The matrix of these data."""
        return self.data.matrix

    def without_data(self) -> Model:
        """Return the same model without its data."""
        out = copy.copy(self)
        out._table = None
        return out

    def with_params(self, params: Vector) -> Model:
        """Return the same model with parameters for another data set: tables of another size."""
        out = copy.copy(self)
        out._params = self.family.relocated(params, self.n_features)
        for made in ("summaries", "core"):
            out.__dict__.pop(made, None)
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
        """Return log p(x | cluster) for each row of X and each row of statistics in a pool."""
        items, base = self.items(X)
        return np.asarray(log_predictive(self.core, items, pool) + base[:, None])

    def empty_row(self) -> Vector:
        row = np.empty(self.summaries.width)
        clear_row(self.summaries, row)
        return row

    def rows(
        self, items: Items, labels: Ints, n_clusters: int, threads: Executor | None = None
    ) -> tuple[Vector, Ints]:
        """Return (flat pool, sizes) of the clusters under some labels."""
        return rows_of_parts(self.summaries, items, labels, n_clusters, threads)

    def blocks(self, pool: Vector, sizes: Ints) -> Items:
        """Return rows of statistics as items: one item per row."""
        indptr = np.arange(len(sizes) + 1, dtype=np.int64) * self.summaries.width
        return Items(pool, np.empty(0, np.int32), indptr, sizes, True)

    def dots(self) -> Dots | None:
        """The block capability, if the family has it and the data are dense."""
        functions = self._functions
        if functions.score_dots is None or self._sparse:
            return None
        score, best = functions.score_dots.address, address(functions.best_dots)
        return Dots(score, functions.dots_offset, self.n_features, best)

    def bounds(self, solver: str) -> Bounds:
        """The bound capability; `solver` is named in the error when there is none."""
        functions = self._functions
        if functions.bound is None:
            raise lacking(self.family, "bounds", "the function 'bound'", solver)
        return Bounds(
            functions.features.address,
            self.family.bound_width(self.n_features),
            functions.bound.address,
        )


def _recompiled(
    family: Family, n_features: int, params: Vector, sparse: bool, table: CheckedTable | None
) -> Model:
    model = family.compile_empty(n_features).with_params(writable(params))
    model._sparse, model._table = sparse, table
    return model
