"""Methods of a fitted model: predictions for new rows, levels of clusters and explanations."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp

from dpsearch._sklearn import BaseEstimator, check_is_fitted, check_random_state, validate_data
from dpsearch._threads import using
from dpsearch._types import ArrayLike, Ints, Labels, Matrix, Vector
from dpsearch._validate import as_rng, is_array, n_threads, readable, whole
from dpsearch.automatic.checks import refused
from dpsearch.errors import OutsideSupportWarning, located
from dpsearch.explain import explain_mixture
from dpsearch.explanation import Explanation
from dpsearch.families.base import Family
from dpsearch.fitted import FittedState
from dpsearch.levels import LevelOptions, Levels, Tree
from dpsearch.mixture import Mixture
from dpsearch.problem import Clustering, Problem
from dpsearch.tables import (
    CheckedTable,
    Schema,
    Triage,
    is_frame,
    replace_columns,
    without_codes,
)

_BLOCK = 1 << 22  # cells of tables that are made and thrown away
_APART = 4  # rows of a cluster that is shown as rows apart, at most …
_SMALL_SHARE = 0.02  # … and at most this share of all rows


class Level(NamedTuple):
    """One level of the tree over components."""

    n_clusters: int
    height: float  # −log lift of the highest merge that was made; −∞ if none was
    agreement: float  # of fits to halves of the rows with this level: adjusted Rand index
    groups: Ints  # the cluster of each component
    component_labels: Labels

    @property
    def labels(self) -> Any:
        """The cluster of each row."""
        return grouped_labels(self.component_labels, self.groups)

    def __repr__(self) -> str:
        return (
            f"Level({self.n_clusters} clusters, height {self.height:.3g},"
            f" agreement {self.agreement:.3g})"
        )


def _field(name: str, *, absent_if_none: bool = False) -> Any:
    """Return the property that is a field of `state_`."""

    def get(self: FittedMethods) -> Any:
        value = attrgetter(name)(self.state_)
        if value is None and absent_if_none:
            raise AttributeError(f"the fit has no {name}")
        return value

    return property(get)


class FittedMethods(BaseEstimator):  # type: ignore[misc]
    """The methods of `DPMixture` that need a fit and do not change it.

    `state_` holds the result of a fit as plain data; `from_state` makes a model of it.
    """

    family: Any
    handle_unknown: str
    level: str | int
    min_cluster_size: int
    n_jobs: int | None
    random_state: Any
    state_: FittedState
    labels_: Labels

    mixture_: Mixture = _field("mixture")
    n_features_in_: int = _field("mixture.model.n_features")
    family_: Family = _field("mixture.model.family")
    n_clusters_: int = _field("mixture.n_clusters")
    n_components_: int = _field("mixture.n_components")
    clustering_: Clustering = _field("clustering")
    log_joint_: float = _field("clustering.log_joint")
    level_reason_: str = _field("level_reason")
    sample_weight_: Ints | None = _field("weights")
    schema_: Schema | None = _field("schema")
    triage_: Triage | None = _field("triage")
    cut_short_: tuple[str, ...] = _field("cut_short")
    departure_: str | None = _field("departure")
    reason_: str = _field("reason")
    completed_: Matrix | None = _field("completed")
    certificate_: Any = _field("certificate", absent_if_none=True)
    index_name_: Any = _field("index_name", absent_if_none=True)
    _feature_names: Any = _field("names", absent_if_none=True)
    _levels: Levels = _field("levels")
    _n_features_out: int = _field("mixture.n_clusters")

    @property
    def feature_names_in_(self) -> Any:
        """The names of the columns, if they have any."""
        return np.array(self._feature_names, dtype=object)

    @feature_names_in_.setter
    def feature_names_in_(self, names: Any) -> None:
        self.state_ = self.state_._replace(names=tuple(map(str, names)))

    @property
    def alpha_(self) -> float | None:
        """The concentration, or its posterior mean; None for a prior that has none."""
        mixture = self.mixture_
        alpha = mixture.prior.concentration()
        n_points = int(mixture.sizes.sum())
        return None if alpha is None else alpha.mean(n_points, mixture.n_components)

    # -- components and clusters ------------------------------------------------------------

    @property
    def component_labels_(self) -> Labels:
        """Component of each row."""
        check_is_fitted(self)
        return self.clustering_.labels

    @property
    def tree_(self) -> Tree:
        """The dendrogram over components."""
        return self._fitted_levels().tree

    @property
    def levels_(self) -> dict[int, Level]:
        """For every number of clusters, the level of the tree that has as many."""
        levels = self._fitted_levels()
        heights = np.concatenate([[-np.inf], levels.tree.heights])
        n = levels.tree.n_components
        return {
            count: Level(
                count,
                float(heights[n - count]),
                float(levels.agreement[count - 1]),
                levels.tree.cut(count),
                self.component_labels_,
            )
            for count in range(1, n + 1)
        }

    def cut(
        self,
        n_clusters: int | None = None,
        *,
        height: float | None = None,
        min_size: int | None = None,
    ) -> Any:
        """Return the cluster of each row at another level of the tree, without fitting again.

        Parameters
        ----------
        n_clusters
            The number of clusters.
        height
            Make all merges below this height, −log lift: at height 0, clusters share rows as often
            as by chance.  If neither is given, the automatic level is used.
        min_size
            Clusters with fewer points are merged into the nearest one, that of the largest lift.

        Examples
        --------
        >>> import numpy as np
        >>> from dpsearch import DPMixture
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(90, 2)) + np.repeat([[0, 0], [9, 0], [50, 50]], 30, axis=0)
        >>> np.bincount(DPMixture().fit(X).cut(2))
        array([60, 30])
        """
        levels = self._fitted_levels()
        if n_clusters is None and height is None:
            height = levels.height
        groups = levels.tree.cut(n_clusters, height=height, min_size=min_size)
        return grouped_labels(self.component_labels_, groups)

    @property
    def rows_apart_(self) -> Ints:
        """The nearest cluster of each cluster of at most four rows; −1 for larger clusters."""
        check_is_fitted(self)
        sizes, out = self.mixture_.cluster_sizes, np.full(self.n_clusters_, -1)
        small = sizes <= min(_APART, _SMALL_SHARE * sizes.sum())
        if not small.any() or small.all():
            return out
        nearest = self._levels.tree.nearest(self.mixture_.groups, among=~small)
        return np.where(small, nearest, out)

    @property
    def advised_level(self) -> int | None:
        """The number of clusters to try instead if fits to halves agree poorly; None otherwise."""
        options = LevelOptions.of(self.level, self.min_cluster_size)
        return self._levels.advised(options, self.n_clusters_)

    def _fitted_levels(self) -> Levels:
        check_is_fitted(self)
        return self._levels

    # -- rows of data -----------------------------------------------------------------------

    def checked(
        self, X: ArrayLike | CheckedTable, *, lacking: bool = False, first: int = 0
    ) -> CheckedTable:
        """Return rows as a checked table; raise unless they have the columns of the fit.

        With `lacking`, columns may be absent if the model can predict without them.  `first` is
        the number of the first row, for warnings.
        """
        check_is_fitted(self)
        if isinstance(X, CheckedTable):
            return X
        if self.schema_ is not None and not (self.schema_.all_numbers and is_array(X)):
            lacking = lacking and self.family_.predicts_gaps
            matrix = self.schema_.encode(X, self.handle_unknown, lacking=lacking)
            table = CheckedTable(matrix, tuple(self.schema_.names))
        else:
            X = readable(X)
            table = CheckedTable.of(X, gaps=self.family_.predicts_gaps)
            validate_data(self, X, reset=False, skip_check_array=True)
        return self.within_support(without_codes(table, self.state_.codes), first)

    def within_support(self, table: CheckedTable, first: int = 0) -> CheckedTable:
        """Return rows with values outside the support of chosen families replaced by gaps.

        A warning for each column says how many there are.  Such values stay, and cause an error
        later, if the user chose the family, if the family does not accept gaps, or with
        ``handle_unknown="error"``.
        """
        family, names = self.family_, self._column_names()
        chosen = isinstance(self.family, str) and self.family == "auto"
        as_gaps = chosen and family.predicts_gaps and self.handle_unknown == "missing"
        if table.sparse or not as_gaps:
            return table
        observed = table.matrix
        while (error := refused(family, table)) is not None and error.cells is not None:
            rows, columns, values = map(np.asarray, error.cells)
            for d in np.unique(columns):
                at, own = np.flatnonzero(columns == d), family.by_column(table.shape[1])[d]
                example, row = f"{values[at[0]]:g}", first + rows[at[0]]
                text = OutsideSupportWarning(names[d], len(at), example, row, own.name)
                warnings.warn(text, stacklevel=3)
            without = family.without(table.matrix, rows, columns)
            table = CheckedTable(without, table.names, observed=observed)
        return table

    def encode(self, X: ArrayLike | CheckedTable) -> CheckedTable:
        """Return rows as the checked table of numbers that solvers work on.

        Categories are codes.  If the fit filled gaps, the rows of the fit have the same fillings.
        """
        table = self.checked(X)
        if not table.gaps or self.family_.skips(table):
            return table
        if self.completed_ is None and isinstance(self.family, str) and self.family == "auto":
            self.state_ = self.state_._replace(completed=self.state_.completed_again(table))
        filled = self.completed_
        if filled is not None and filled.shape == table.shape:
            seen = ~np.isnan(table.matrix)
            if np.array_equal(filled[seen], table.matrix[seen]):
                return CheckedTable(filled, table.names)
        return table

    def problem(self, X: ArrayLike | CheckedTable) -> Problem:
        """Return the `Problem` of these rows under the model's family and prior, for solvers."""
        return Problem(self.encode(X), self.family_, self.mixture_.prior)

    def fitted_labels(self, X: ArrayLike | CheckedTable) -> Labels | None:
        """Return the component of each row if X has all rows of the fit in order; else None.

        Rows of weight 0 have the label −1.
        """
        return self.state_.labels_of(self.encode(X))

    def _in_blocks(self, X: ArrayLike | CheckedTable) -> Iterator[tuple[Matrix, Vector]]:
        """Yield log joint probabilities block by block, so that memory stays bounded."""
        check_is_fitted(self)
        plain = is_array(X) and self.schema_ is None  # which need not be in memory
        rows: Any = X if plain else self.checked(X, lacking=True)
        size = max(1, _BLOCK // (self.n_components_ + self.n_features_in_))
        for begin in range(0, max(1, rows.shape[0]), size):
            block = slice(begin, begin + size)
            with located(rows=begin), using(n_threads(self.n_jobs)):
                table = self.checked(rows[block], first=begin) if plain else rows.rows(block)
                found = self.mixture_.log_joint_probabilities(table)
            yield found

    def predict(self, X: ArrayLike | CheckedTable) -> Labels:
        """Return the most probable cluster of each row, among the clusters of the fit."""
        blocks = self._in_blocks(X)
        parts = [self.mixture_.summed(inside).argmax(axis=1) for inside, _ in blocks]
        return np.asarray(np.concatenate(parts), dtype=np.int64)

    def predict_components(self, X: ArrayLike | CheckedTable) -> Labels:
        """Return the most probable component of each row, among the components of the fit."""
        parts = [inside.argmax(axis=1) for inside, _ in self._in_blocks(X)]
        return np.asarray(np.concatenate(parts), dtype=np.int64)

    def predict_proba(self, X: ArrayLike | CheckedTable) -> Matrix:
        """Return the probability of each cluster for each row, given that it is in one of them."""
        table = self.checked(X, lacking=True)
        with using(n_threads(self.n_jobs)):
            inside, _ = self.mixture_.log_joint_probabilities(table)
        inside = self.mixture_.summed(inside)
        return np.asarray(np.exp(inside - logsumexp(inside, axis=1, keepdims=True)))

    def transform(self, X: ArrayLike) -> Matrix:
        """Return `predict_proba`: the data as coordinates in cluster space."""
        return self.predict_proba(X)

    def score_samples(self, X: ArrayLike) -> Vector:
        """Return the log posterior predictive density of each row, including new clusters."""
        blocks = self._in_blocks(X)
        return np.concatenate(
            [np.logaddexp(logsumexp(inside, axis=1), outside) for inside, outside in blocks]
        )

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return the mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def impute(self, X: ArrayLike) -> Any:
        """Return X with missing values filled in from the posterior predictive distribution.

        Each gap gets the value that the clusters expect, weighted by their probabilities given the
        rest of the row: the mean for numbers and counts, the most probable level for categories.
        The result has the type of X: an array, or a pandas or polars frame.
        """
        X = readable(X)
        table = self.checked(X)
        matrix = table.matrix
        if not table.gaps:
            return copy(X) if is_frame(X) or sp.issparse(X) else matrix.copy()
        filled = self.mixture_.impute(matrix)
        if table.observed is not None:  # what was observed stays
            filled = np.where(table.impossible, table.observed, filled)
        if not is_frame(X):
            return filled
        width, schema = matrix.shape[1], self.schema_
        at = dict(zip(range(width), range(width))) if schema is None else schema.places(X)
        gaps = (np.isnan(matrix) & ~table.impossible).any(axis=0)
        new = {place: filled[:, j] for j, place in at.items() if gaps[j]}
        return replace_columns(X, () if self.schema_ is None else self.schema_.columns, new)

    def sample(self, n_samples: int = 1) -> tuple[Any, Labels]:
        """Draw rows from the posterior predictive distribution, and their clusters.

        A draw from a new cluster has the label `n_clusters_`.  The rows are a frame if the model
        was fitted to a frame with columns other than numbers.
        """
        check_is_fitted(self)
        count = whole(n_samples, "n_samples", 1)
        rows, labels = self.mixture_.sample(count, generator(self.random_state))
        return (rows if self.schema_ is None else self.schema_.decode(rows)), labels

    # -- what it means ----------------------------------------------------------------------

    def explain(
        self, X: ArrayLike | None = None, *, outlier_rate: float = 0.001, rng: Any = 0
    ) -> Explanation:
        """Explain which columns set clusters apart, how certain rows are, and which are outliers.

        Parameters
        ----------
        X
            All rows that the model was fitted to, in the same order: each is then judged by all
            the others.  Or new rows, which are judged by the clusters.  None: clusters only.
            Rows with gaps are judged by their observed values.
        outlier_rate
            The share of rows that may be called outliers although they come from the clusters.
        rng
            The seed or Generator for the draws that rows are compared with.

        Examples
        --------
        >>> import numpy as np
        >>> from dpsearch import DPMixture
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(60, 2)) + np.repeat([[0.0, 0.0], [0.0, 9.0]], 30, axis=0)
        >>> explanation = DPMixture(random_state=0).fit(X).explain(X)
        >>> explanation.indicative(0)[0].column
        'column 1'
        """
        return self._explained(X, outlier_rate, rng)

    def _explained(
        self, X: ArrayLike | None, outlier_rate: float, rng: Any, *, with_columns: bool = True
    ) -> Explanation:
        check_is_fitted(self)
        table = None if X is None else self.checked(X)
        fitted = None if table is None else self.encode(table)
        found = explain_mixture(
            self.mixture_,
            tuple(self._column_names()),
            None if table is None else table.matrix,
            None if fitted is None else self.state_.labels_of(fitted),
            fitted=None if fitted is None else fitted.matrix,
            nearest=self._nearest_clusters(),
            outlier_rate=outlier_rate,
            rng=as_rng(rng),
            with_columns=with_columns,
        )
        columns = () if self.schema_ is None else self.schema_.columns
        levels = {one.name: one.levels or () for one in columns if one.kind == "category"}
        units = {one.name: one.unit for one in columns if one.unit}
        index: Any = getattr(X, "index", None) if hasattr(X, "iloc") else None
        if table is not None and table.observed is not None:  # rows that no cluster can have
            p_value = np.where(table.impossible.any(axis=1), 0.0, found.p_value)
            found = replace(found, p_value=p_value)
        codes = tuple(one or name in levels for one, name in zip(found.codes, found.names))
        found = replace(found, codes=codes, levels=levels, units=units)
        return replace(found, apart=self.rows_apart_, index=index)

    def _column_names(self) -> list[str]:
        given = getattr(self, "feature_names_in_", None)
        names = [f"column {j}" for j in range(self.n_features_in_)] if given is None else given
        return [str(name) for name in names]

    def _nearest_clusters(self) -> Ints:
        """Return each cluster's nearest one; rows apart only if there are no other clusters."""
        tree, groups, apart = self._levels.tree, self.mixture_.groups, self.rows_apart_
        among = apart < 0 if (apart < 0).sum() > 1 else True
        return np.where(apart < 0, tree.nearest(groups, among), apart)

    def outliers(self, X: ArrayLike, rate: float = 0.001, *, rng: Any = 0) -> Ints:
        """Return the rows that are less probable than all but a share `rate` of draws.

        The draws come from the clusters; rows of the fit are judged by all the others.  The least
        probable row comes first.  See `explain`.
        """
        return self._explained(X, rate, rng, with_columns=False).outliers


def grouped_labels(labels: Any, groups: Ints) -> Any:
    """Return the cluster of each row; labels on a Dask cluster stay there."""
    if labels is None or isinstance(labels, np.ndarray):
        return None if labels is None else groups[labels]
    return labels.map_blocks(_clusters, groups, dtype=np.int64)


def _clusters(components: Labels, groups: Ints) -> Labels:
    return np.asarray(groups[components])


def generator(random_state: Any) -> np.random.Generator:
    """Return the Generator of scikit-learn's random_state."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    legacy = check_random_state(random_state)
    return np.random.default_rng(legacy.randint(0, 2**31 - 1, size=4))
