"""What a fit has found, as tables and as a record of the run."""

from __future__ import annotations

import contextlib
import importlib
import platform
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from dpsearch.io import Reading, Table, labels_table, write_table

_WIDE = 100  # columns beyond which parameters are left to the model file
_TYPICAL = 5
_INDICATIVE = 10
_PACKAGES = ("numpy", "scipy", "numba", "sklearn", "polars")


@dataclass
class Results:
    """A fitted model with its data, and the explanation of both."""

    model: Any
    table: Table
    explanation: Any

    @classmethod
    def of(cls, model: Any, table: Table) -> Self:
        give_names(model, table)
        with quiet_about_names():
            return cls(model, table, model.explain(table.X))

    def labels_table(self) -> pl.DataFrame:
        return labels_table(
            self.table.index,
            self.table.n_rows,
            **label_columns(self.model, self.model.component_labels_, self.explanation.certainty),
        )

    @property
    def n_rows(self) -> int:
        return self.table.n_rows

    def write_labels(self, path: str | Path, verbatim: bool = False) -> None:
        write_table(path, self.labels_table(), verbatim=verbatim)

    def cluster_table(self) -> pl.DataFrame:
        """A line for each cluster: size, weight, rows, columns, and posterior parameters.

        The parameters are those of a single component that has all points of the cluster.
        """
        mixture, apart = self.model.mixture_, self.model.rows_apart_
        sizes, components = mixture.cluster_sizes, np.bincount(mixture.groups)
        index = labels_table(self.table.index, self.table.n_rows).to_series(0)
        weights = np.bincount(mixture.groups, np.exp(mixture.log_weights))
        typical = self.explanation.typical
        lines = []
        for k in range(self.model.n_clusters_):
            line: dict[str, Any] = {
                "cluster": k,
                "size": int(sizes[k]),
                "components": int(components[k]),
                "weight": float(weights[k]),
                "apart_from": None if apart[k] < 0 else int(apart[k]),
                "typical_rows": _listed(index[typical[k][:_TYPICAL].tolist()]),
                "indicative_columns": _listed(
                    f"{indication.column} ({self._said(indication)})"
                    for indication in self.explanation.indicative(k, _INDICATIVE)
                    if indication.log_bayes_factor > 0.0
                ),
            }
            lines.append({**line, **self._posterior(k)})
        return pl.DataFrame(lines, infer_schema_length=None)

    def _posterior(self, k: int) -> dict[str, Any]:
        width = self.table.n_columns
        if width > _WIDE:
            return {}
        names = [self.table.name(j) for j in range(width)]
        about = flat(self.model.mixture_.merged.posterior(k), names)
        if about:
            return about
        return {f"centre of {name}": x for name, x in zip(names, self._centres(k), strict=True)}

    def _said(self, indication: Any) -> str:
        """Higher or lower than elsewhere; of categories the likeliest."""
        centre = self.explanation.value(indication.column, indication.centre)
        return centre if isinstance(centre, str) else str(indication.direction)

    def _centres(self, k: int) -> list[float | str]:
        """What to expect of each column; of categories the likeliest."""
        return [
            self.explanation.value(name, float(x))
            for name, x in zip(self.explanation.names, self.explanation.centres[k], strict=True)
        ]

    def summary(self) -> str:
        model = self.model
        text = (
            f"{self.n_rows:,} rows in {model.n_clusters_} clusters; log joint of the components"
            f" {model.log_joint_:.6g}; family {model.family_.name}"
        )
        if model.clustering_.optimal:
            return f"{text}; proved to be the best partition"
        if np.isfinite(model.clustering_.upper_bound):
            gap = model.clustering_.upper_bound - model.log_joint_
            return f"{text}; at most {gap:.3g} nats below the best"
        return text

    def levels_in_words(self) -> str:
        """How components led to clusters, how sure their number is, and rows apart."""
        model = self.model
        text = f"level: {model.level_reason_}"
        apart = model.rows_apart_ >= 0
        if apart.any():
            sizes = model.mixture_.cluster_sizes[apart]
            text += (
                f"; rows apart: {sizes.sum()} rows in {len(sizes)} clusters of at most"
                f" {sizes.max()}"
            )
        return text


def label_columns(model: Any, components: Any, certainty: Any) -> dict[str, Any]:
    """What is written about each row, given the component that it is in."""
    clusters = model.mixture_.groups[components]
    nearest = model.rows_apart_[clusters]
    return {
        "cluster": clusters,
        "component": components,
        "certainty": np.round(certainty, 6),
        "apart_from": pl.Series(nearest).set(pl.Series(nearest < 0), None),
    }


def _listed(values: Any) -> str:
    return "; ".join(str(value) for value in values)


def flat(posterior: dict[str, Any], names: list[str]) -> dict[str, float]:
    """Posterior parameters as columns: numbers by their name, vectors by the data's columns.

    >>> flat({"mean": np.array([1.0, 2.0]), "strength": 3.0}, ["a", "b"])
    {'mean of a': 1.0, 'mean of b': 2.0, 'strength': 3.0}
    """
    out: dict[str, float] = {}
    for key, value in posterior.items():
        array = None if isinstance(value, (list, dict)) else np.asarray(value, dtype=np.float64)
        if array is None or array.ndim > 1:
            continue  # matrices and lists of lists: in the model file
        if array.ndim == 0:
            out[key] = float(array)
        elif len(array) == len(names):
            out.update({f"{key} of {name}": float(x) for name, x in zip(names, array)})
    return out


def give_names(model: Any, table: Table) -> None:
    """Matrices carry no names: let the model know those of the file, or which columns it has."""
    model.index_name_ = table.index_column
    known = table.names is not None or table.numbers is not None
    if known and not hasattr(model, "feature_names_in_"):
        names = [table.name(j) for j in range(table.n_columns)]
        model.feature_names_in_ = np.array(names, dtype=object)


@contextlib.contextmanager
def quiet_about_names() -> Iterator[None]:
    """scikit-learn warns of matrices without names; here they have been checked."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        yield


def level_record(model: Any) -> dict[str, Any]:
    """What a record says about the clusters."""
    return {
        "level": model.level,
        "level_reason": model.level_reason_,
        "clusters": model.n_clusters_,
        "sizes": model.mixture_.cluster_sizes,
        "components": model.n_components_,
        "component_sizes": model.mixture_.sizes,
    }


def run_record(model: Any, table: Table, reading: Reading) -> dict[str, Any]:
    """Enough to repeat the run, and to see whether the data are the same."""
    from dpsearch._version import __version__

    clustering = model.clustering_
    parameters = model.get_params(deep=False)
    return {
        "dpsearch": __version__,
        "python": platform.python_version(),
        "packages": {name: importlib.import_module(name).__version__ for name in _PACKAGES},
        "platform": platform.platform(),
        "command": ["dpsearch", *sys.argv[1:]],
        "input": {
            "source": table.source,
            "sha256": table.sha256,
            "rows": table.n_rows,
            "columns": table.n_columns,
            "left_out": table.left_out,
            "reading": {k: v for k, v in asdict(reading).items() if v is not None},
        },
        "parameters": parameters,
        "seed": parameters["random_state"],
        "family": model.family_.to_dict(),
        "prior": model.mixture_.prior.to_dict(),
        "alpha": model.alpha_,
        **level_record(model),
        "log_joint": model.log_joint_,
        "upper_bound": clustering.upper_bound,
        "optimal": clustering.optimal,
        "converged": clustering.converged,
    }
