"""`DPMixture`: the scikit-learn estimator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from dpsearch._archive import check_checkpoint
from dpsearch._arrays import is_foreign, on_gpu
from dpsearch._extras import naming_extras
from dpsearch._jit import Compiling, on_compile
from dpsearch._sklearn import (
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
    check_is_fitted,
)
from dpsearch._threads import using
from dpsearch._types import ArrayLike, Labels
from dpsearch._validate import n_threads, positive
from dpsearch.automatic import check_kinds, recognises_codes, resolve_prior, takes_gaps
from dpsearch.deadline import limited
from dpsearch.errors import ParameterError, located, plain_interrupts
from dpsearch.events import Callback
from dpsearch.families import FAMILIES
from dpsearch.families.base import Family
from dpsearch.families.linear import indices
from dpsearch.fitted import FittedState
from dpsearch.fitted_methods import generator, grouped_labels
from dpsearch.fitting import FitOptions, Refinement, certify_seconds, fit_in_memory
from dpsearch.levels import LevelOptions
from dpsearch.model_file import read_model, write_model
from dpsearch.passes.device import check_device
from dpsearch.passes.device_fit import fit_on_device
from dpsearch.passes.fit import fit_in_shards, suits_shards
from dpsearch.sources.dask_tables import is_collection
from dpsearch.sources.opened import TableOptions, open_table
from dpsearch.streaming import StreamMethods
from dpsearch.tables import UNKNOWN


class DPMixture(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ClusterMixin,  # type: ignore[misc]
    StreamMethods,
):
    """Clustering without a given number of clusters: the best partition under a DP mixture.

    The blocks of the best partition are *components*.  A group of rows whose shape is not that of
    the family takes several components.  *Clusters* are sets of components: a tree over the
    components is cut where clusters share rows no more often than by chance.

    Parameters
    ----------
    family : "auto", str or Family
        The distribution of a cluster.  An object of `dpsearch.families` is used as it is.  For a
        name ("full_gaussian", "multinomial", …) the hyperparameters are learned from the data, in
        turn with a partition of at most 2,000 rows.  "auto" also chooses the family, by the
        contents and the number of the columns and by the number of rows; `reason_` says why.  The
        choice depends neither on units nor on `random_state`.
    alpha : "auto", float or Prior
        The concentration of the Dirichlet process: larger values mean more clusters.  "auto"
        integrates it out under a Gamma(1, 1) prior; `alpha_` is then its posterior mean.  Any
        object of `dpsearch.priors` is accepted too.
    beam_size : int
        The number of hypotheses that search keeps.  If refinement follows, one is as good as many.
    order : str or permutation
        The order in which search places the rows: by "ascending" or "descending" marginal
        likelihood, "random" or "given".
    refine : "auto", bool or float
        What to do after search: True refines until no move improves the partition, a number does
        so for that many seconds, and False keeps what search found.  "auto" means True for up to
        1,000 rows with 50,000 values in all; for larger tables only sweeps, splits and merges are
        made, without the last phase, which takes most of the time.
    level : "auto", "components" or int
        What a cluster is.  "auto": the components, if rows are as certain of their component as
        the mixture expects, and otherwise sets of components that share rows; `level_reason_` says
        which.  "components": each component is a cluster.  A number: that many clusters.
    min_cluster_size : int
        Clusters with fewer points are merged into the nearest one, that of the largest lift.
    certify : bool or float
        Whether to compute an upper bound on the log joint of every partition, which may prove the
        partition found optimal: True spends up to a minute, a number that many seconds.  See
        `dpsearch.certify`.
    kinds : dict or None
        What columns of a frame hold, by name, overriding `dpsearch.triage`: "real", "count",
        "binary", "category" or "date"; "keep" uses a column that would be dropped, and "drop"
        drops it.
    missing_codes : "auto", None or numbers and texts
        Values that mean missing; a text "NAME=VALUE" is for one column of a frame.  "auto"
        recognises codes such as −9999 and 999 that occur several times and lie far from all other
        values; `reason_` names them.  None: there are none.
    handle_unknown : "missing" or "error"
        What to do with values in new rows that a column cannot hold, such as a level that the fit
        did not see, or 0 if a log-normal was chosen: treat them as missing, with a warning, or
        raise an error.
    n_shards : int or None
        The number of blocks of rows into which the table is divided; passes over all rows read one
        block after the other, see `dpsearch.passes`.  None: one for each 250,000 rows.
    n_jobs : int or None
        The number of threads; −1 for all cores.  The result does not depend on it.
    device : str or None
        The device for passes over the rows: "cuda" for a GPU.  None: the GPU that holds X, if any,
        and otherwise threads of this process.
    time_limit : float or None
        The seconds that `fit` may take in all.  Phases that do not fit are shortened or left out,
        and `cut_short_` names them; phases that cannot be left out may take a little longer.  None:
        no limit.
    checkpoint : path or None
        A file to which the clusters are written whenever they have improved; for tables in shards,
        and for others of at least 20,000 rows.  If the file exists, the fit starts from its
        clusters instead of searching a sample; a file of other data or of another model is an
        error.
    random_state : int, RandomState or None
        The seed of everything that is random; by default the same every time.  None: a new seed
        every time.
    verbose : int
        1 prints the family, the reason for it, the result, and when kernels are compiled.

    Attributes
    ----------
    labels_ : array of int
        The cluster of each row, numbered from the largest cluster.
    n_clusters_ : int
    level_reason_ : str
        In words, how the components led to the clusters.
    component_labels_ : array of int
        The component of each row, numbered from the largest component.
    n_components_ : int
    log_joint_ : float
        log p(partition into components, X), with every constant.
    tree_ : Tree
        The dendrogram over components; `tree_.linkage` is in SciPy's format.
    levels_ : dict
        The `Level` for every number of clusters: its labels, its height, and how well fits to
        halves of the rows reproduce it.
    rows_apart_ : array of int
        For each cluster of at most four rows, the cluster that is nearest to it; −1 for all other
        clusters.
    sample_weight_ : array of int or None
        The weights that `fit` was given; 0 for rows without any values, which take no part in it.
    mixture_ : Mixture
        The components and clusters: their sizes, their posterior parameters and their predictions
        for new rows.
    clustering_ : Clustering
        The partition into components, with the time it took and the number of states that search
        expanded; with `certify` also `upper_bound` and `optimal`.
    certificate_ : Certificate
        The proof of the bound; only with `certify`.
    family_ : Family
        The family with the hyperparameters that were used.
    reason_ : str
        Why this family was chosen: what "auto" saw in the table, or "as named", or "as given".
    alpha_ : float or None
        The concentration: as given, or its posterior mean given the partition; None for a prior
        that has none.
    schema_ : Schema or None
        How the columns of a frame become numbers: their kinds, levels and parts; None if all of
        them are numbers and used as they are.
    triage_ : Triage or None
        What was decided about each column of a frame or file, and why; None for an array.
    cut_short_ : tuple of str
        The phases of the fit that ran out of time or were interrupted; empty if all were completed.
    departure_ : str or None
        In words, how the last batches of `partial_fit` departed from the rows before them, if they
        did.
    completed_ : array or None
        The table that was fitted, if gaps were filled before the fit.
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

    def __init__(
        self,
        family: Any = "auto",
        alpha: Any = "auto",
        *,
        beam_size: int = 1,
        order: Any = "ascending",
        refine: str | bool | float = "auto",
        level: str | int = "auto",
        min_cluster_size: int = 1,
        certify: bool | float = False,
        kinds: Any = None,
        missing_codes: Any = "auto",
        handle_unknown: str = "missing",
        n_shards: int | None = None,
        n_jobs: int | None = None,
        device: str | None = None,
        time_limit: float | None = None,
        checkpoint: str | Path | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.family = family
        self.alpha = alpha
        self.beam_size = beam_size
        self.order = order
        self.refine = refine
        self.level = level
        self.min_cluster_size = min_cluster_size
        self.certify = certify
        self.kinds = kinds
        self.missing_codes = missing_codes
        self.handle_unknown = handle_unknown
        self.n_shards = n_shards
        self.n_jobs = n_jobs
        self.device = device
        self.time_limit = time_limit
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

    def fit(
        self,
        X: ArrayLike,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        callback: Callback | None = None,
    ) -> Self:
        """Find the best partition of the rows of X.

        Parameters
        ----------
        X : array, pandas or polars frame, sparse matrix where the family takes one, path, batches
            Missing values (NaN, None, null) are skipped if the family can skip them.  Data need
            not fit into memory if X is the path of a file, a folder or a pattern of Parquet files,
            an iterator of arrays or frames, a function that returns one, or a polars LazyFrame that
            reads files.  A `dask.array` or `dask.dataframe` is fitted where it is, with one shard
            for each of its blocks, by the current Dask client, and so are Parquet and Arrow files
            if there is such a client; `labels_` is then a `dask.array`.
        y : ignored
        sample_weight : integers ≥ 0, optional
            The number of times that each row was seen.  The log joint is that of the repeated rows;
            the copies of a row stay together.  A row of weight 0 takes no part in the fit and is
            labelled by `predict`.
        callback : function, optional
            Called with a `dpsearch.events.Event` while the fit runs.
        """
        check_device(self.device)
        limit = None if self.time_limit is None else positive(self.time_limit, "time_limit")
        weighted = sample_weight is not None
        on_device = not weighted and (self.device is not None or on_gpu(X))
        options = self.reading(weighted=weighted, stay=on_device)
        with (
            plain_interrupts(),
            naming_extras("tables in files and batches"),
            limited(limit, callback) as deadline,
            using(n_threads(self.n_jobs)),
            open_table(X, options) as opened,
            on_compile(self._say_compiling),
        ):
            if opened.schema is not None:
                check_kinds(opened.schema, self.family)
            with located(columns=opened.names):
                how = self.fit_options(deadline.pass_on if deadline.callback is not None else None)
                fitted = fit_on_device(opened, how) if on_device else None
                if fitted is None and (weighted or not suits_shards(opened, how)):
                    fitted = fit_in_memory(opened.load(), opened.kinds, how, sample_weight)
                state = fitted or fit_in_shards(opened, how)
        deadline.warn_of_interrupt()
        self._set(
            state._replace(
                names=opened.feature_names,
                schema=opened.schema,
                triage=opened.triage,
                cut_short=tuple(deadline.cut_short),
            ),
            like=X if is_foreign(X) else None,
        )
        if self.verbose:
            found = f"log joint {self.log_joint_:.6g}, {self.clustering_.seconds:.3g} s"
            print(f"dpsearch: {self.family_.name} family ({self.reason_}); {found}")
            print(f"dpsearch: {self.level_reason_}")
        return self

    def _say_compiling(self, report: Compiling) -> None:
        if self.verbose and report.number == 1:
            print("dpsearch: compiling kernels, which only the first fit on a machine has to do")

    def reading(self, **options: Any) -> TableOptions:
        """Return how a table becomes numbers; for a given family its columns stay as they are."""
        if self.handle_unknown not in UNKNOWN:
            raise ParameterError.must("handle_unknown", "be 'missing' or 'error'",
                                      self.handle_unknown)  # fmt: skip
        return TableOptions(
            self.n_shards, takes_gaps(self.family), self.kinds, na=self._codes()[1],
            keep=isinstance(self.family, Family), cycles=self.family == "auto",
            codes=recognises_codes(self.family, self.missing_codes), **options,
        )  # fmt: skip

    def _codes(self) -> tuple[Any, tuple[str, ...]]:
        """Return the numeric codes (or None or "auto"), and all codes as texts."""
        codes = self.missing_codes
        if codes is None or isinstance(codes, str):
            return codes, ()
        try:
            texts = tuple(map(str, codes))
        except TypeError as error:
            wanted = "be 'auto', None or numbers"
            raise ParameterError.must("missing_codes", wanted, codes) from error
        return [code for code in codes if not isinstance(code, str)], texts

    def fit_options(self, callback: Callback | None = None) -> FitOptions:
        """Check the parameters and return the options of a fit."""
        if self.checkpoint is not None:
            if not isinstance(self.checkpoint, str | Path):
                raise ParameterError.must("checkpoint", "be a path or None", self.checkpoint)
            check_checkpoint(self.checkpoint)
        if isinstance(self.family, str) and self.family != "auto":
            FAMILIES.by_name(self.family, also=("auto",))
        return FitOptions(
            self.family,
            resolve_prior(self.alpha),
            generator(self.random_state),
            beam_size=self.beam_size,
            order=self.order,
            refinement=Refinement.of(self.refine),
            level=LevelOptions.of(self.level, self.min_cluster_size),
            certify_seconds=certify_seconds(self.certify),
            missing_codes=self._codes()[0],
            n_jobs=self.n_jobs,
            device=self.device,
            checkpoint=self.checkpoint,
            callback=callback,
        )

    def _set(self, state: FittedState, like: Any = None) -> None:
        """Replace the fitted state in one step, so that an interrupt changes nothing.

        With `like`, labels are an array of its library, on its device.
        """
        labels = grouped_labels(state.clustering.labels, state.mixture.groups)
        labels = labels if like is None else indices(like, labels)
        self.__dict__ = vars(self) | {"state_": state, "labels_": labels, "_stream": None}

    @classmethod
    def from_state(cls, state: FittedState, **parameters: Any) -> Self:
        """Return a model from a fitted state; its family and prior are the default parameters."""
        model = state.mixture.model
        out = cls(**{"family": model.family, "alpha": state.mixture.prior, **parameters})
        out._set(state)
        return out

    def at_level(self, level: str | int = "auto", *, min_cluster_size: int = 1) -> Self:
        """Return the same fit with clusters at another level of the tree, without fitting again."""
        check_is_fitted(self)
        options = LevelOptions.of(level, min_cluster_size)
        parameters = self.get_params(deep=False)
        parameters |= {"level": level, "min_cluster_size": min_cluster_size}
        return type(self).from_state(self.state_.at_level(options), **parameters)

    def adopt(self, other: DPMixture) -> None:
        """Take over a better partition of the same rows under the same family and prior.

        The upper bound of this model is kept, since it holds for every partition.
        """
        bound = self.clustering_.upper_bound
        clustering = replace(other.clustering_, upper_bound=bound)
        levels = other.state_.levels
        state = self.state_._replace(mixture=other.mixture_, clustering=clustering, levels=levels)
        self._set(state.at_level(LevelOptions.of(self.level, self.min_cluster_size)))

    def fit_predict(
        self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None
    ) -> Labels:
        """Fit, and return the cluster of each row."""
        return self.fit(X, sample_weight=sample_weight).labels_

    # -- notebooks --------------------------------------------------------------------------

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return scikit-learn's text, with `level_reason_` if the model is fitted."""
        parameters = str(super().__repr__(N_CHAR_MAX))
        return f"{parameters}\n{self.level_reason_}" if hasattr(self, "mixture_") else parameters

    def _html_repr(self) -> str:
        """Return what scikit-learn shows in a notebook, with a summary of the fit."""
        from dpsearch.notebook import model_html

        return model_html(self, super()._html_repr())

    # -- files ------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a file for `dpsearch.load`; the file contains no code."""
        check_is_fitted(self)
        write_model(path, self.state_, self.get_params(deep=False))

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if is_collection(state.get("labels_")):  # they are on a cluster, and mean nothing elsewhere
            state["labels_"] = None
            clustering = replace(self.clustering_, labels=None)  # type: ignore[arg-type]
            state["state_"] = self.state_._replace(clustering=clustering)
        return state


def load(path: str | Path) -> DPMixture:
    """Read a model that `DPMixture.save` wrote.

    Its family and prior are found by name among those of dpsearch, those of installed packages,
    and those that you registered with `families.register` or `priors.register`.  Nothing else is
    imported.
    """
    state, parameters = read_model(Path(path))
    known = DPMixture().get_params(deep=False)
    return DPMixture.from_state(state, **{k: v for k, v in parameters.items() if k in known})
