"""`DPMixture`: the scikit-learn estimator."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from dpsearch._types import ArrayLike, Ints, Labels, Matrix, Vector
from dpsearch._validate import (
    as_matrix,
    as_rng,
    column_names,
    has_gaps,
    is_array,
    n_threads,
    whole,
)
from dpsearch.automatic import (
    Choice,
    check_columns,
    check_kinds,
    choose,
    choose_weighted,
    completed_table,
    resolve_prior,
    takes_gaps,
)
from dpsearch.errors import CapabilityError, ParameterError, located
from dpsearch.events import Event
from dpsearch.explain import explain_mixture
from dpsearch.explanation import Explanation
from dpsearch.families.base import Family
from dpsearch.items import Rows
from dpsearch.mixture import Mixture
from dpsearch.prefix_search.search import search
from dpsearch.problem import Clustering, Problem
from dpsearch.refinement import refine
from dpsearch.scale.cluster import DaskWorkers, present_client, some_client
from dpsearch.scale.dask_tables import is_collection, open_collection
from dpsearch.scale.fit import fit_shards
from dpsearch.scale.opened import Opened, Wishes, is_source, open_shards
from dpsearch.scale.source import Shard, n_shards_for, shards_of_array
from dpsearch.scale.stream import Stream
from dpsearch.scale.workers import Teller, Threads, Workers
from dpsearch.tables import CheckedTable, Schema, is_frame, is_mixed, replace_columns
from dpsearch.weights import check_weights

_CERTIFY_SECONDS = 60.0
_BLOCK = 1 << 22  # cells of tables that are made and thrown away
_MOST_ROUNDS = 1000  # over shards, where refinement is to converge
_FEW_ROWS = 200  # for which refinement is thorough unless told otherwise


class DPMixture(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ClusterMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Clustering that finds the number of clusters: the best partition under a DP mixture.

    Parameters
    ----------
    family : "auto", str or Family
        What a cluster looks like.  An object of `dpsearch.families` is used as it is.  Of a name
        ("full_gaussian", "multinomial", …) the hyperparameters are learned from the data, in turn
        with a partition of at most 2,000 rows.  "auto" also chooses the family, by what the
        columns hold, how many there are and how many rows; `reason_` says why.  The choice does
        not depend on units nor on `random_state`.
    alpha : "auto", float or Prior
        Concentration of the Dirichlet process: larger means more clusters.  "auto" integrates it
        out under a Gamma(1, 1) prior; `alpha_` is then its posterior mean.  Any object of
        `dpsearch.priors` is taken too.
    beam_size : int
        Number of hypotheses that search keeps.  With refinement after it, one is as good as many.
    order : str or permutation
        Order in which search places the rows: "ascending" marginal likelihood, "descending",
        "random" or "given".
    refine : "auto", bool or float
        What to do after search: True refines until no move improves the partition, a number does
        so for that many seconds, False keeps what search found.  "auto" is True for up to 200
        rows; for more it leaves out the last phase, which takes most of the time and finds
        little: sweeps, splits and merges alone.
    certify : bool or float
        Whether to bound from above what any partition could have, and so to prove the one found
        optimal where that can be done: True spends up to a minute on it, a number that many
        seconds.  See `dpsearch.certify`.
    kinds : dict or None
        What columns of a pandas or polars frame hold, by name, where their types do not say it:
        "real", "count", "binary" or "category".
    n_shards : int or None
        Into how many blocks of rows the table is divided, each of which is searched on its own;
        see `dpsearch.scale`.  None: one for each 250,000 rows.
    n_jobs : int or None
        Threads, for refinement and for shards; −1 for all cores.  The result does not depend on
        it.
    checkpoint : path or None
        A file for the clusters of a table in shards, written after every round.  If it is there
        already the fit begins with its clusters, and not with a search of a sample.
    random_state : int, RandomState or None
        Seed for whatever is random: by default always the same.  None for another every time.
    verbose : int
        1 prints the family, the reason for it, and what was found.

    Attributes
    ----------
    labels_ : array of int
        Cluster of each row, numbered from the largest cluster.
    n_clusters_ : int
    log_joint_ : float
        log p(partition, X), with every constant.
    sample_weight_ : array of int or None
        The weights that `fit` was given.
    clustering_ : Clustering
        The result: how long it took, how many states search saw; with `certify` also
        `upper_bound` and `optimal`.
    certificate_ : Certificate
        What proves the bound; only with `certify`.
    family_ : Family
        The family with the hyperparameters that were used.
    reason_ : str
        Why this family: what "auto" saw in the table, or "as named", or "as given".
    alpha_ : float or None
        The concentration: as given, or its posterior mean given the partition; None for a prior
        that has none.
    schema_ : Schema or None
        The kinds and levels of the columns, when X is a frame with other columns than numbers.
    completed_ : array or None
        The table that was fitted, where gaps were filled before the fit.
    n_features_in_ : int
    feature_names_in_ : array of str, when X has column names

    Examples
    --------
    >>> import numpy as np
    >>> from dpsearch import DPMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (50, 2)), rng.normal(8, 1, (50, 2))])
    >>> model = DPMixture().fit(X)
    >>> model.n_clusters_
    2
    >>> model.predict([[8.0, 8.0]]) == model.labels_[-1]
    array([ True])
    """

    # Told how the fit goes on; the command line's progress.  No parameter, and never stored.
    _listener: Callable[[Any], None] | None = None

    _mixture: Mixture
    family_: Family

    def __init__(
        self,
        family: Any = "auto",
        alpha: Any = "auto",
        *,
        beam_size: int = 1,
        order: Any = "ascending",
        refine: str | bool | float = "auto",
        certify: bool | float = False,
        kinds: Any = None,
        n_shards: int | None = None,
        n_jobs: int | None = None,
        checkpoint: str | Path | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.family = family
        self.alpha = alpha
        self.beam_size = beam_size
        self.order = order
        self.refine = refine
        self.certify = certify
        self.kinds = kinds
        self.n_shards = n_shards
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # What every setting takes.  "auto" and the families of counts take sparse counts too.
        tags.input_tags.sparse = False
        tags.input_tags.allow_nan = takes_gaps(self.family)
        return tags

    # -- fitting ----------------------------------------------------------------------------

    def fit(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Find the best partition of the rows of X.

        Parameters
        ----------
        X : array, pandas or polars frame, sparse matrix where the family takes one, path, batches
            Missing values (NaN, None, null) are skipped, where the family can.  The path of a
            file, a folder or a pattern of Parquet files, an iterator of arrays or frames, or a
            function that returns one, need not fit into memory.  A `dask.array` or
            `dask.dataframe` is fitted where it is, a shard for each of its blocks, by the present
            Dask client, and so are Parquet and Arrow files if there is such a client; `labels_` is
            then a `dask.array`.
        y : ignored
        sample_weight : whole numbers ≥ 0, optional
            How many times each row was seen.  The log joint is that of the repeated rows; the
            copies of a row stay together.  A row of weight 0 takes no part in the fit, and is
            labelled by `predict`.
        """
        self.__dict__.pop("_stream", None)
        if is_source(X):
            if sample_weight is not None:
                raise ParameterError("sample_weight is for tables in memory")
            wishes = Wishes(self.n_shards, takes_gaps(self.family), self.kinds)
            with open_shards(X, wishes) as opened:
                client = present_client() if opened.lasting else None
                workers = None if client is None else DaskWorkers(opened.shards, client)
                return self._fit_opened(opened, workers)
        schema: Schema | None = None
        matrix: Any = X  # arrays are checked later: in shards, if there are several
        gaps = takes_gaps(self.family)
        if is_collection(X):
            if sample_weight is not None:
                raise ParameterError("sample_weight cannot be had for Dask's collections")
            return self._fit_dask(X, gaps)
        if self.kinds is not None or is_mixed(X):
            schema, matrix = Schema.with_matrix(X, self.kinds)
            check_kinds(schema, self.family)
        elif not is_array(X):
            matrix = as_matrix(X, gaps=gaps)
        n_shards = n_shards_for(matrix.shape[0], matrix.shape[1], self.n_shards)
        names = column_names(X)
        with located(columns=names):
            if n_shards > 1 and sample_weight is None:
                validate_data(self, X, reset=True, skip_check_array=True)
                return self._fit_shards(shards_of_array(matrix, n_shards, gaps), schema)
            self._refuse_checkpoint()
            if matrix is X:
                matrix = as_matrix(X, gaps=gaps)
            return self._fit(X, matrix, schema, sample_weight)

    def _refuse_checkpoint(self) -> None:
        if self.checkpoint is not None:
            raise ParameterError("checkpoint is for tables in shards: set n_shards")

    def _fit_opened(self, opened: Opened, workers: Workers | None = None) -> Self:
        """Fit what was opened; a single shard as a table in memory."""
        schema, names = opened.schema, opened.names
        if schema is not None:
            check_kinds(schema, self.family)
        self.n_features_in_ = opened.n_columns
        self.__dict__.pop("feature_names_in_", None)
        with located(columns=names):
            if len(opened.shards) > 1:
                self._fit_shards(opened.shards, schema, workers)
            else:
                self._refuse_checkpoint()
                matrix = opened.shards[0].load()
                self._fit(matrix, matrix, schema, None)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        return self

    def partial_fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Go on with a batch of rows, for data without end; memory stays bounded.

        The first batch is fitted as by `fit`, and decides on the family and its hyperparameters.
        Each later one is added to the clusters, which are merged and split from time to time.
        `log_joint_` is that of all rows seen, exactly; `labels_` are those of this batch.  After
        `fit`, goes on from its clusters.

        Gaps that the family cannot skip are filled: in the first batch as by `fit`, later by what
        the row's most probable cluster, given what was observed of it, expects there.
        """
        if not hasattr(self, "_mixture"):
            self.fit(X)
            matrix = self._as_fitted(self._new_data(X))
            self._stream = self._new_stream(0)
            self._stream.keep(matrix, 0, self.labels_)
            return self
        matrix = self._new_data(X)
        if has_gaps(matrix) and not self.family_.skips(CheckedTable(matrix)):
            matrix = self._mixture.impute_from_one(matrix)
        if not hasattr(self, "_stream"):
            self._stream = self._new_stream(int(self._mixture.sizes.sum()))
        if has_gaps(matrix) and not self._mixture.has_gaps and self.family_.takes_gaps:
            self._mixture = self._mixture.gapped
            self._stream.clusters = Rows(self._mixture.pool, self._mixture.sizes)
        stream, model, prior = self._stream, self._mixture.model, self._mixture.prior
        labels, _ = stream.add(model, prior, matrix)
        self._set_mixture(Mixture(model, *stream.clusters, prior))
        value = stream.log_joint(model, prior)
        self._set_clustering(Clustering(labels, value), None)
        return self

    def _new_stream(self, before: int) -> Stream:
        mixture = self._mixture
        if not mixture.prior.product_form:
            raise CapabilityError(
                f"partial_fit needs a prior of product form; {mixture.prior.name} is not"
            )
        clusters = Rows(mixture.pool, mixture.sizes)
        rng = _generator(self.random_state)
        return Stream.of(mixture.model, mixture.prior, clusters, self.log_joint_, rng, before)

    def _fit(
        self, X: ArrayLike, matrix: Any, schema: Schema | None, sample_weight: ArrayLike | None
    ) -> Self:
        table = CheckedTable(matrix)
        check_columns(table)
        validate_data(self, X, reset=True, skip_check_array=True)
        rng = _generator(self.random_state)
        prior = resolve_prior(self.alpha)
        if sample_weight is None:
            choice = choose(table, self.family, prior, schema)
            rows = table if choice.completed is None else CheckedTable(choice.completed)
            problem = choice.problem or Problem(rows, choice.family, prior)
            weights = None
        else:
            weights = check_weights(sample_weight, matrix.shape[0])
            rows, sizes = table.rows(weights > 0), weights[weights > 0]
            choice = choose_weighted(rows, sizes, self.family, prior, schema)
            problem = Problem(rows, choice.family, prior, weights=sizes)
            rest = np.flatnonzero(weights == 0)
            if has_gaps(matrix) and not choice.family.skips(CheckedTable(matrix)):
                rest = rest[~np.isnan(matrix[rest]).any(axis=1)]
            if len(rest):
                problem.model.items(matrix[rest])  # to find now what is wrong with them
        if _wanted(self.certify, "certify"):
            problem.require_points("certify")
        clustering = search(
            problem,
            beam_size=self.beam_size,
            order=self.order,
            rng=rng,
            callback=self._listener,
        )
        clustering = choice.or_carried(problem, clustering)
        if (self.refine == "auto" or _wanted(self.refine, "refine")) and prior.product_form:
            clustering = self._refined(problem, clustering, rng)
        if _wanted(self.certify, "certify"):
            clustering = self._certified(problem, clustering)
        self._set_fitted(problem, clustering, matrix, weights)
        return self._with_choice(choice, schema)

    def _with_choice(self, choice: Choice, schema: Schema | None) -> Self:
        self.schema_ = schema
        self.reason_ = choice.reason
        self.completed_ = choice.completed
        if self.verbose:
            print(f"dpsearch: {self.family_.name} family ({choice.reason}); {self.clustering_}")
        return self

    def _fit_dask(self, X: Any, gaps: bool) -> Self:
        with some_client() as (client, stay):
            shards, schema, like = open_collection(X, gaps, self.kinds)
            if schema is not None:
                check_kinds(schema, self.family)
            validate_data(self, like, reset=True, skip_check_array=True)
            names = column_names(like)
            with located(columns=names):
                return self._fit_shards(shards, schema, DaskWorkers(shards, client, stay=stay))

    def _fit_shards(
        self, shards: Sequence[Shard], schema: Schema | None, workers: Workers | None = None
    ) -> Self:
        if _wanted(self.certify, "certify"):
            raise ParameterError("certify cannot be had for a table in shards: set n_shards=1")
        wanted = self.refine == "auto" or _wanted(self.refine, "refine")
        endless = isinstance(self.refine, (str, bool, np.bool_))
        limit = None if self.refine == "auto" or not endless else _MOST_ROUNDS
        workers = workers or Threads(shards, n_threads(self.n_jobs))
        teller = None
        if self._listener is not None:
            teller = Teller(self._listener, len(shards))
            workers.tell = teller.shard
        fitted = fit_shards(
            shards,
            workers,
            self.family,
            resolve_prior(self.alpha),
            schema=schema,
            beam_size=self.beam_size,
            order=self.order,
            seconds=None if endless else float(self.refine),
            most_rounds=limit if wanted else 0,
            rng=_generator(self.random_state),
            tell=None if teller is None else teller.round,
            checkpoint=self.checkpoint,
        )
        self._set_mixture(fitted.mixture)
        found = Clustering(
            fitted.labels, fitted.log_joint, seconds=fitted.seconds, trace=fitted.trace,
            converged=fitted.converged,
        )  # fmt: skip
        self._set_clustering(found, None)
        return self._with_choice(fitted.choice, schema)

    def _refined(self, problem: Problem, found: Clustering, rng: np.random.Generator) -> Clustering:
        automatic = isinstance(self.refine, str)
        endless = automatic or isinstance(self.refine, (bool, np.bool_))
        seconds = None if endless else float(self.refine)
        result = refine(
            problem,
            found.labels,
            seconds=seconds,
            rng=rng,
            n_jobs=self.n_jobs,
            thorough=not automatic or problem.n_items <= _FEW_ROWS,
            callback=self._listener,
        )
        searched = found.seconds
        trace = [point._replace(seconds=point.seconds + searched) for point in result.trace]
        return replace(
            result,
            n_dequeued=found.n_dequeued,
            n_enqueued=found.n_enqueued,
            seconds=searched + result.seconds,
            trace=[*found.trace, *trace],
        )

    def _certified(self, problem: Problem, found: Clustering) -> Clustering:
        from dpsearch.exact import certify

        is_flag = isinstance(self.certify, (bool, np.bool_))
        self.certificate_ = certify(
            problem,
            found,
            time_limit=_CERTIFY_SECONDS if is_flag else float(self.certify),
            polish=not found.converged,
            callback=self._listener,
        )
        best = self.certificate_.clustering
        point = Event(
            found.seconds + self.certificate_.seconds, best.log_joint, best.n_clusters, "certify"
        )
        return replace(
            found,
            labels=best.labels,
            log_joint=best.log_joint,
            upper_bound=best.upper_bound,
            optimal=best.optimal,
            seconds=point.seconds,
            trace=[*found.trace, point],
        )

    def _set_fitted(
        self, problem: Problem, clustering: Clustering, matrix: Any, weights: Ints | None
    ) -> None:
        mixture = Mixture.of(problem.model, problem.items, clustering.labels, problem.prior)
        self._set_mixture(mixture)
        if weights is not None:
            labels = np.empty(len(weights), np.int64)
            labels[weights > 0] = clustering.labels
            if (weights == 0).any():
                labels[weights == 0] = mixture.memberships(matrix[weights == 0]).labels
            clustering = replace(clustering, labels=labels, weights=weights)
        self._set_clustering(clustering, weights)

    def _set_clustering(self, clustering: Clustering, weights: Ints | None) -> None:
        self.sample_weight_ = weights
        self.clustering_ = clustering
        self.labels_ = clustering.labels
        self.log_joint_ = clustering.log_joint

    def _take(self, other: DPMixture) -> None:
        """Take over a better partition of the same rows under the same family and prior."""
        self._set_mixture(other._mixture)
        self.clustering_ = replace(
            other.clustering_, upper_bound=self.clustering_.upper_bound
        )  # which holds for every partition
        self.labels_ = self.clustering_.labels
        self.log_joint_ = self.clustering_.log_joint

    def _set_mixture(self, mixture: Mixture) -> None:
        self._mixture = mixture
        self.n_features_in_ = mixture.model.n_features
        self.family_ = mixture.model.family
        self.n_clusters_ = mixture.n_clusters
        self._n_features_out = mixture.n_clusters
        concentration = mixture.prior.concentration()
        self.alpha_ = None
        if concentration is not None:
            self.alpha_ = concentration.mean(int(mixture.sizes.sum()), mixture.n_clusters)

    def fit_predict(
        self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None
    ) -> Labels:
        """Fit and return the cluster of each row."""
        return self.fit(X, sample_weight=sample_weight).labels_

    # -- new data ---------------------------------------------------------------------------

    def _in_blocks(self, X: ArrayLike) -> Iterator[tuple[Matrix, Vector]]:
        """Log joint probabilities, for some rows after the other: so much memory does it take."""
        check_is_fitted(self)
        plain = is_array(X) and self.schema_ is None  # which need not be in memory
        rows: Any = X if plain else self._new_data(X)
        size = max(1, _BLOCK // (self.n_clusters_ + self.n_features_in_))
        for begin in range(0, max(1, rows.shape[0]), size):
            with located(rows=begin):
                block = rows[begin : begin + size]
                block = self._new_data(block) if plain else block
            yield self._mixture.log_joint_probabilities(block)

    def _new_data(self, X: ArrayLike) -> Any:
        """Check X against what the model was fitted to, and return it as a matrix."""
        check_is_fitted(self)
        if self.schema_ is not None:
            return self.schema_.encode(X)
        matrix = as_matrix(X, gaps=self.family_.predicts_gaps)
        validate_data(self, X, reset=False, skip_check_array=True)
        return matrix

    def predict(self, X: ArrayLike) -> Labels:
        """Return the most probable cluster of each row, among those found."""
        parts = [inside.argmax(axis=1) for inside, _ in self._in_blocks(X)]
        return np.asarray(np.concatenate(parts), dtype=np.int64)

    def predict_proba(self, X: ArrayLike) -> Matrix:
        """Return the probability of each cluster for each row, given that it is in one of them."""
        return self._probabilities(self._new_data(X))

    def _probabilities(self, matrix: Any) -> Matrix:
        inside, _ = self._mixture.log_joint_probabilities(matrix)
        return np.asarray(np.exp(inside - logsumexp(inside, axis=1, keepdims=True)))

    def transform(self, X: ArrayLike) -> Matrix:
        """Return `predict_proba`: the data as coordinates in cluster space."""
        return self.predict_proba(X)

    def score_samples(self, X: ArrayLike) -> Vector:
        """Return the log posterior predictive density of each row, new clusters included."""
        blocks = self._in_blocks(X)
        return np.concatenate(
            [np.logaddexp(logsumexp(inside, axis=1), outside) for inside, outside in blocks]
        )

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return the mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def impute(self, X: ArrayLike) -> Any:
        """Return X with missing values filled in from the posterior predictive.

        Each gap gets what the clusters expect there, weighted by their probabilities given the
        rest of the row: the mean of numbers and counts, the most probable level of categories.
        The result is what X is: an array, or a pandas or polars frame.
        """
        matrix = self._new_data(X)
        if not has_gaps(matrix):
            return copy(X) if is_frame(X) or sp.issparse(X) else matrix.copy()
        filled = self._mixture.impute(matrix)
        if not is_frame(X):
            return filled
        at = range(matrix.shape[1]) if self.schema_ is None else self.schema_.places(X)
        gaps = np.isnan(matrix).any(axis=0)
        new = {place: filled[:, j] for j, place in enumerate(at) if gaps[j]}
        return replace_columns(X, self.schema_, new)

    def sample(self, n_samples: int = 1) -> tuple[Any, Labels]:
        """Draw rows from the posterior predictive, and the clusters that they come from.

        A draw from a cluster not seen so far has the label `n_clusters_`.  Rows come as a frame if
        the model was fitted to one with other columns than numbers.
        """
        check_is_fitted(self)
        count = whole(n_samples, "n_samples", 1)
        rows, labels = self._mixture.sample(count, _generator(self.random_state))
        return (rows if self.schema_ is None else self.schema_.decode(rows)), labels

    # -- what it means ----------------------------------------------------------------------

    def explain(
        self, X: ArrayLike | None = None, *, outlier_rate: float = 0.001, rng: Any = 0
    ) -> Explanation:
        """Tell what sets each cluster apart, how sure each row is, and which rows are odd.

        Parameters
        ----------
        X
            The rows that the model was fitted to, all of them in the same order: each is then
            judged by all the others.  Or new rows, judged by the clusters.  None: clusters only.
            Rows with gaps are judged by what was observed of them.
        outlier_rate
            The share of rows that may be called outliers though they come from the clusters.
        rng
            Seed or Generator, for the draws that rows are compared with.

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
        matrix = None if X is None else self._new_data(X)
        fitted = None if matrix is None else self._as_fitted(matrix)
        given = getattr(self, "feature_names_in_", None)
        names = [f"column {j}" for j in range(self.n_features_in_)] if given is None else given
        found = explain_mixture(
            self._mixture,
            tuple(str(name) for name in names),
            matrix,
            None if fitted is None else self._containing(fitted),
            fitted=fitted,
            outlier_rate=outlier_rate,
            rng=as_rng(rng),
            with_columns=with_columns,
        )
        columns = () if self.schema_ is None else self.schema_.columns
        levels = {one.name: one.levels or () for one in columns if one.kind == "category"}
        return replace(found, levels=levels)

    def _as_fitted(self, matrix: Any) -> Any:
        """Rows as the solvers saw them: those of the fit completed, where that was done.

        Completion is the same every time, so that a model from a file can do it once more.
        """
        if not has_gaps(matrix) or self.family_.skips(CheckedTable(matrix)):
            return matrix
        if self.completed_ is None and self._may_have_completed(matrix):
            again = completed_table(CheckedTable(matrix), self.schema_, self._mixture.prior)
            known = again is not None and self._containing(again) is not None
            self.completed_ = again if known else None
        filled = self.completed_
        if filled is not None and filled.shape == matrix.shape:
            seen = ~np.isnan(matrix)
            if np.array_equal(filled[seen], matrix[seen]):
                return filled
        return matrix

    def _may_have_completed(self, matrix: Any) -> bool:
        """Whether these may be rows that the fit completed."""
        automatic = isinstance(self.family, str) and self.family == "auto"
        if not automatic or self.labels_ is None or self.sample_weight_ is not None:
            return False
        return len(matrix) == len(self.labels_) and not np.isnan(matrix).all(axis=0).any()

    def _containing(self, matrix: Any) -> Labels | None:
        """The clusters that contain the rows, if they are those of the fit: None if not.

        They are if with `labels_` they have the clusters' statistics.
        """
        if self.labels_ is None or matrix.shape[0] != len(self.labels_):
            return None
        mixture, weights = self._mixture, self.sample_weight_
        if has_gaps(matrix) and not (self.family_.skips(CheckedTable(matrix)) and mixture.has_gaps):
            return None
        seen = np.ones(len(self.labels_), bool) if weights is None else weights > 0
        items, _ = mixture.model.items(matrix[seen])
        if weights is not None:
            items = items._replace(sizes=weights[seen])
        labels = np.asarray(self.labels_)
        pool, _ = mixture.model.rows(items, labels[seen], mixture.n_clusters)
        same = np.allclose(pool, mixture.pool, rtol=1e-9)
        return np.asarray(np.where(seen, labels, -1)) if same else None

    def outliers(self, X: ArrayLike, rate: float = 0.001, *, rng: Any = 0) -> Ints:
        """Return the rows that are less probable than all but a share `rate` of draws.

        The draws are from the clusters; rows of the fit are judged by all the others.  Least
        probable first.  See `explain`.
        """
        return self._explained(X, rate, rng, with_columns=False).outliers

    # -- notebooks --------------------------------------------------------------------------

    def _html_repr(self) -> str:
        """What scikit-learn shows in a notebook, and what was found."""
        from dpsearch.notebook import model_html

        return model_html(self, super()._html_repr())

    # -- files ------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a file that `dpsearch.load` reads; it holds no code."""
        from dpsearch.model_file import save

        check_is_fitted(self)
        save(self, path)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if is_collection(state.get("labels_")):  # they are on a cluster, and mean nothing elsewhere
            state["labels_"] = None
            state["clustering_"] = replace(state["clustering_"], labels=None)
        return state


def _wanted(value: Any, name: str) -> bool:
    """Whether a setting that may be a flag or a number of seconds asks for the step."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if not (isinstance(value, numbers.Real) and float(value) >= 0):
        words = "'auto', True" if name == "refine" else "True"
        raise ParameterError(f"{name} must be {words}, False or a number ≥ 0, got {value!r}")
    return True


def _generator(random_state: Any) -> np.random.Generator:
    """Turn scikit-learn's random_state into a Generator."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    legacy = check_random_state(random_state)
    return np.random.default_rng(legacy.randint(0, 2**31 - 1, size=4))
