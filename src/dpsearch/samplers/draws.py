"""`Draws`: partitions drawn from the posterior, with summaries, diagnostics and files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logsumexp

from dpsearch._archive import opened_archive, require, write_archive
from dpsearch._extras import naming_extras
from dpsearch._types import ArrayLike, Ints, Matrix, Vector
from dpsearch._validate import whole
from dpsearch.errors import DataError, ParameterError
from dpsearch.mixture import Mixture
from dpsearch.partition import by_size, check_labels
from dpsearch.problem import Clustering, Problem
from dpsearch.samplers.chain import Chain
from dpsearch.samplers.hyperparameters import Hyperparameters
from dpsearch.samplers.options import RunOptions
from dpsearch.samplers.summaries import coclustering, evenly_spaced, expected_loss, point_estimate

FORMAT = "dpsearch-draws"
VERSION = 1
_LARGE = 20_000  # items above which the full co-clustering matrix is refused


@dataclass(frozen=True)
class Trace:
    """Every sweep of every chain, burn-in included: arrays [chains, sweeps]."""

    log_joint: Matrix
    n_clusters: Any
    alpha: Matrix | None
    accepted: Any  # proposals accepted in each sweep


@dataclass(frozen=True, eq=False)
class Draws:
    """Partitions drawn from the posterior, chain after chain.

    Attributes
    ----------
    labels
        [draws, N]: the cluster of each row in each kept draw, numbered by first appearance, in
        the smallest type of unsigned integer that holds them.
    log_joint, n_clusters
        [draws]: log p(c, x) with every constant (α integrated out if it has a prior; given the
        draw's own hyperparameters if those are sampled), and K.
    alpha
        [draws]: the concentration, drawn along with the partition if it has a prior; None if the
        prior on partitions has no concentration.
    chain
        [draws]: the chain that each draw comes from.
    hyperparameters
        Name → [draws]: sampled values (factors on the given ones where those are vectors).
    trace
        Every sweep, burn-in included.
    sampler, burn_in, thin, seconds
        How they were made; the time is without that of compiling.
    """

    labels: Any
    log_joint: Vector
    n_clusters: Any
    alpha: Vector | None
    chain: Ints
    trace: Trace
    sampler: str
    burn_in: int
    thin: int
    seconds: float
    hyperparameters: dict[str, Vector] = field(default_factory=dict)
    _problem: Problem | None = field(default=None, repr=False, compare=False)
    _sampled: Hyperparameters | None = field(default=None, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        likely = int(np.argmax(self.k_posterior()))
        return (
            f"Draws({len(self)} partitions of {self.labels.shape[1]} points, {self.n_chains}"
            f" chains of {self.sampler}, most often {likely} clusters, {self.seconds:.3g} s)"
        )

    @property
    def n_chains(self) -> int:
        return int(self.trace.log_joint.shape[0])

    # -- the partition ----------------------------------------------------------------------

    def best(self) -> Clustering:
        """Return the draw with the highest log joint."""
        at = int(np.argmax(self.log_joint))
        labels = by_size(self.labels[at].astype(np.int64))
        return Clustering(labels, float(self.log_joint[at]), seconds=self.seconds)

    def k_posterior(self) -> Vector:
        """Return the posterior of the number of clusters: entry k is p(K = k | x)."""
        return np.asarray(np.bincount(self.n_clusters) / len(self))

    def coclustering(self, rows: ArrayLike = None, columns: ArrayLike = None) -> Matrix:
        """Return the posterior probability that rows share a cluster with columns (default: all).

        For large N take some rows at a time, or `coclustering_blocks`.
        """
        n = self.labels.shape[1]
        if rows is None and columns is None and n > _LARGE:
            raise ParameterError(
                f"the co-clustering matrix of {n:,} points takes {8 * n * n / 1e9:.0f} GB: ask for"
                " some rows, or use coclustering_blocks"
            )
        rows, columns = _indices(rows, n, "rows"), _indices(columns, n, "columns")
        return coclustering(self.labels, rows, columns)

    def coclustering_blocks(self, size: int = 1000) -> Iterator[tuple[Ints, Matrix]]:
        """Yield (row numbers, their lines of the co-clustering matrix), `size` at a time."""
        size, everything = whole(size, "size", 1), np.arange(self.labels.shape[1])
        blocks = (everything[begin : begin + size] for begin in range(0, len(everything), size))
        return ((rows, coclustering(self.labels, rows, everything)) for rows in blocks)

    def point_estimate(self, loss: str = "vi", *, most_draws: int = 500) -> Clustering:
        """Return the partition with the least posterior expected loss that a descent finds.

        Parameters
        ----------
        loss
            ``"vi"``: variation of information; ``"binder"``: Binder's loss, whose best draw is
            the least-squares clustering.  Binder tends to more, smaller clusters.
        most_draws
            Of more draws, this many evenly spaced ones are used.

        Returns
        -------
        Clustering
            Its log joint is that under the family as given, and NaN after `load`.
        """
        labels = point_estimate(self.labels, loss, whole(most_draws, "most_draws", 1))
        value = np.nan if self._problem is None else self._problem.log_joint(labels)
        return Clustering(labels, float(value), seconds=self.seconds)

    def expected_loss(self, labels: ArrayLike, loss: str = "vi") -> float:
        """Return the posterior expected loss of a partition: VI in bits, Binder's per pair."""
        return expected_loss(check_labels(labels, self.labels.shape[1]), self.labels, loss)

    # -- new data ---------------------------------------------------------------------------

    def log_predictive(self, X: ArrayLike, *, most_draws: int = 100) -> Vector:
        """Return the log posterior predictive density of each row, averaged over draws.

        Of more than `most_draws` draws, that many evenly spaced ones are used.
        """
        if self._problem is None:
            raise DataError("these draws do not have their data: they are of a file, or of batches")
        values = []
        for d in evenly_spaced(len(self), whole(most_draws, "most_draws", 1)):
            source = self._problem
            if self._sampled is not None:
                sampled = np.array([self.hyperparameters[k][d] for k in self._sampled.names])
                source = self._sampled.problem_with(np.log(sampled / self._sampled.units))
            labels = self.labels[d].astype(np.int64)
            mixture = Mixture.of(source.model, source.items, labels, source.prior)
            inside, outside = mixture.log_joint_probabilities(X)
            values.append(np.logaddexp(logsumexp(inside, axis=1), outside))
        return np.asarray(logsumexp(values, axis=0) - np.log(len(values)))

    # -- convergence ------------------------------------------------------------------------

    def by_chain(self, name: str) -> Any:
        """Return log_joint, n_clusters, alpha or a hyperparameter as [chains, draws]."""
        if name == "alpha" and self.alpha is None:
            raise ParameterError("draws have no 'alpha': the prior has no concentration")
        values = self._scalars().get(name)
        if values is None:
            raise ParameterError(f"draws have no {name!r} with a number for each draw")
        return values

    def _scalars(self) -> dict[str, Any]:
        """Return all quantities with one value per draw, as [chains, draws]."""
        alpha = {} if self.alpha is None else {"alpha": self.alpha}
        scalars = {"log_joint": self.log_joint, "n_clusters": self.n_clusters, **alpha}
        scalars |= self.hyperparameters
        return {name: np.reshape(values, (self.n_chains, -1)) for name, values in scalars.items()}

    def diagnostics(self) -> dict[str, dict[str, float]]:
        """Return R-hat and effective sample size of log joint, K, α and sampled hyperparameters.

        Rank-normalised split R-hat and bulk ESS (Vehtari et al. 2021), by ArviZ.  R-hat above
        1.01 shows that chains disagree.  One chain has no R-hat, and a value that never changes
        has neither (NaN).
        """
        with naming_extras("diagnostics of draws"):
            from arviz_stats.base import array_stats  # type: ignore[attr-defined]

        out = {}
        for name, values in self._scalars().items():
            if name == "log_joint":
                # Values of equal partitions differ only by rounding, which would affect ranks.
                values = values.round(5)
            varies = np.ptp(values) > 0
            if name == "alpha" and not varies:
                continue
            rhat = ess = np.nan
            if values.shape[1] >= 4 and varies:
                # Standardising changes neither result, but tiny values would count as equal.
                values = (values - values.mean()) / values.std()
                ess = float(array_stats.ess(values, chain_axis=0, draw_axis=1))
                rhat = float(array_stats.rhat(values, chain_axis=0, draw_axis=1))
            out[name] = {"rhat": rhat, "ess": ess}
        return out

    def to_arviz(self) -> Any:
        """Return the draws as ArviZ's InferenceData (or DataTree, from ArviZ 1.0 on).

        The group ``posterior`` has log_joint, n_clusters, alpha, hyperparameters and labels.
        """
        with naming_extras("draws for ArviZ"):
            import arviz

        n_points = self.labels.shape[1]
        posterior = self._scalars()
        posterior["labels"] = self.labels.reshape(self.n_chains, -1, n_points)
        shape: dict[str, Any] = {
            "dims": {"labels": ["point"]},
            "coords": {"point": np.arange(n_points)},
        }
        if int(arviz.__version__.split(".")[0]) >= 1:
            return arviz.from_dict({"posterior": posterior}, **shape)
        return arviz.from_dict(posterior=posterior, **shape)

    def plot_trace(self, axes: Any = None) -> Any:
        """Plot log joint and number of clusters by sweep; see `dpsearch.plots.sampler_trace`."""
        from dpsearch.plots import sampler_trace

        return sampler_trace(self, axes)

    # -- files ------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the draws to a file that `Draws.load` reads; it holds no code, nor the data."""
        about = {name: getattr(self, name) for name in _ABOUT}
        about |= {"format": FORMAT, "version": VERSION, "hyperparameters": [*self.hyperparameters]}
        write_archive(path, about, self._arrays())

    @classmethod
    def load(cls, path: str | Path) -> Draws:
        """Read draws from a file; they lack the data, which `log_predictive` needs."""
        what = "a file of dpsearch draws"
        with opened_archive(Path(path), FORMAT, VERSION, what) as (about, arrays):
            if "alpha" not in arrays:  # of a prior without a concentration
                arrays |= {"alpha": None, "trace_alpha": None}
            draws = cls(
                **{name: arrays[name] for name in _ARRAYS},
                **{name: kind(about[name]) for name, kind in _ABOUT.items()},
                trace=Trace(**{name: arrays[f"trace_{name}"] for name in _TRACES}),
                hyperparameters={
                    str(name): arrays[f"hyper_{name}"] for name in about["hyperparameters"]
                },
            )
            require(draws._fits_together(), "the arrays do not fit together")
            return draws

    def _arrays(self) -> dict[str, Any]:
        """Return the arrays by their names in files, without those that are None."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {f"trace_{name}": getattr(self.trace, name) for name in _TRACES}
        arrays |= {f"hyper_{name}": values for name, values in self.hyperparameters.items()}
        return {name: values for name, values in arrays.items() if values is not None}

    def _fits_together(self) -> bool:
        shapes = {name: values.shape for name, values in self._arrays().items()}
        of_trace = {shape for name, shape in shapes.items() if name.startswith("trace")}
        n_draws = {shape[0] for name, shape in shapes.items() if not name.startswith("trace")}
        as_labels = self.labels.ndim == 2 and self.labels.dtype.kind == "u"
        return len(of_trace) == len(n_draws) == 1 and self.trace.log_joint.ndim == 2 and as_labels


_ABOUT = {"sampler": str, "burn_in": int, "thin": int, "seconds": float}
_ARRAYS = ("labels", "log_joint", "n_clusters", "alpha", "chain")
_TRACES = ("log_joint", "n_clusters", "alpha", "accepted")


def collect(
    problem: Problem, chains: list[Chain], sampler: str, how: RunOptions, seconds: float
) -> Draws:
    """Return the draws of chains, up to the last sweep that all of them have made."""
    done = min(chain.n_sweeps for chain in chains)
    kept = how.kept()[:done]

    def stacked(name: str) -> Any:
        known = name in chains[0].records
        return np.stack([chain.recorded(name)[:done] for chain in chains]) if known else None

    def of_draws(values: Any) -> Any:
        return None if values is None else values[:, kept].reshape(-1)

    trace = Trace(**{name: stacked(name) for name in _TRACES})
    labels = np.concatenate([chain.recorded("labels")[: kept.sum()] for chain in chains])
    names = [name for step in chains[0].steps for name in step.names]
    values = stacked("hyperparameters")
    sampled = [step for step in chains[0].steps if isinstance(step, Hyperparameters)]
    return Draws(
        labels=labels.astype(np.min_scalar_type(int(labels.max()))),
        log_joint=of_draws(trace.log_joint),
        n_clusters=of_draws(trace.n_clusters),
        alpha=of_draws(trace.alpha),
        chain=np.repeat(np.arange(len(chains)), int(kept.sum())),
        trace=trace,
        sampler=sampler,
        burn_in=how.burn_in,
        thin=how.thin,
        seconds=seconds,
        hyperparameters={name: of_draws(values[:, :, at]) for at, name in enumerate(names)},
        _problem=problem,
        _sampled=sampled[0] if sampled else None,
    )


def _indices(chosen: ArrayLike, n: int, name: str) -> Ints:
    if chosen is None:
        return np.arange(n)
    out = np.atleast_1d(np.asarray(chosen))
    if out.dtype.kind not in "iu" or out.ndim != 1 or not ((-n <= out) & (out < n)).all():
        raise ParameterError(f"{name} must be row numbers between 0 and {n - 1}, got {chosen!r}")
    return np.asarray(out % n, dtype=np.int64)
