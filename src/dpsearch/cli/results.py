"""The results of a fit as tables, and a record of the run."""

from __future__ import annotations

import contextlib
import importlib
import json
import platform
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from dpsearch._files import atomic_write
from dpsearch._numbers import brief, count
from dpsearch.cli.console import plain
from dpsearch.cli.model import quiet_about_names, write_page
from dpsearch.cli.source import NAMED, Source, empty_in_words
from dpsearch.deadline import current
from dpsearch.io import Reading, Table, labels_table, write_table
from dpsearch.io.output import write_pieces
from dpsearch.sources.shards import drawn_rows

_WIDE = 100  # with more columns, parameters are only in the model file
_TYPICAL = 5
_INDICATIVE = 10
_FEW = 2000  # rows that are explained if there is no time for all
_CELLS = 10_000  # clusters × columns that are explained in no time
_PACKAGES = ("numpy", "scipy", "numba", "sklearn", "polars")


@dataclass
class Results:
    """A fitted model with its data, and the explanation of the rows that are in memory."""

    model: Any
    source: Source
    table: Table  # the rows that are explained
    explanation: Any  # of clusters only if there was no time for rows; None if for neither

    @classmethod
    def of(cls, model: Any, source: Source) -> Self:
        table = source.table
        if source.opened is None and table.schema is None and model.schema_ is not None:
            table.take_features(model)  # the table was read for the model
        # The matrix has no names, so the model gets those of the file or its column numbers.
        model.state_ = model.state_._replace(index_name=table.index_column)
        known = table.names is not None or table.numbers is not None
        if known and not hasattr(model, "feature_names_in_"):
            model.feature_names_in_ = np.array(table.all_names, dtype=object)
        out = cls(model, source, table, None)
        with current().during("explaining", 0.5):
            out.explain(table.X)
        if out.explanation is None and table.n_rows > _FEW:
            out.table = table.rows(drawn_rows(table.n_rows, _FEW, [0]))
            with current().during("explaining a sample", 0.7):
                out.explain(out.table.X)
        if out.explanation is None:
            few = model.n_clusters_ * model.n_features_in_ <= _CELLS
            with current().needed() if few else contextlib.nullcontext():
                out.explain(None)
        return out

    def explain(self, rows: Any) -> None:
        """Explain the clusters, and the rows if given, if there is time."""
        with current().optional(), self.source.errors_named(), quiet_about_names():
            current().check()
            self.explanation = self.model.explain(rows)

    @property
    def explains_rows(self) -> bool:
        return self.explanation is not None and len(self.explanation.labels) == self.table.n_rows

    def write(self, folder: Path, form: str, verbatim: bool) -> None:
        """Write labels, clusters and model."""
        self.write_labels(folder / f"labels.{form}", verbatim)
        write_table(folder / f"clusters.{form}", self.cluster_table(), verbatim=verbatim)
        self.model.save(folder / "model.npz")

    def write_record(self, folder: Path, record: dict[str, Any]) -> None:
        text = json.dumps(plain(record), indent=2, ensure_ascii=False, default=str) + "\n"
        with atomic_write(folder / "run.json") as stream:
            stream.write(text.encode("utf-8", "replace"))  # file names may hold lone surrogates

    def write_page(self, path: Path, **options: Any) -> None:
        """Write the report; see `dpsearch.report`."""
        write_page(
            path, self.model, self.table, explanation=self.explanation,
            sample=self.source.n_rows != self.table.n_rows, **options,
        )  # fmt: skip

    def write_labels(self, path: str | Path, verbatim: bool = False) -> None:
        write_pieces(path, self.labels(), verbatim=verbatim)

    def labels(self) -> Iterator[pl.DataFrame]:
        """Yield the table of labels, block by block."""
        if self.source.opened is None:
            whole = self.explains_rows and self.table.n_rows == self.source.n_rows
            known = self.explanation.certainty if whole else None
            yield self._about(self.source.table.row_names, self.model.component_labels_, known)
            return
        begin = 0
        for names, rows in self.source.blocks():
            labels = self.model.component_labels_[begin : begin + len(names)]
            known = None
            if not current().over:
                known = self.model.mixture_.memberships(self.model.encode(rows), labels).certainty
            yield self._about(names, labels, known)
            begin += len(names)

    def _about(self, names: pl.Series, components: Any, certainty: Any) -> pl.DataFrame:
        clusters = self.model.mixture_.groups[components]
        nearest = self.model.rows_apart_[clusters]
        return labels_table(
            names,
            cluster=clusters,
            component=components,
            certainty=pl.Series([None] * len(names), dtype=pl.Float64)
            if certainty is None
            else np.round(certainty, 6),
            apart_from=pl.Series(nearest).set(pl.Series(nearest < 0), None),
        )

    def cluster_table(self) -> pl.DataFrame:
        """Return a line for each cluster: size, weight, rows, columns, posterior parameters.

        The parameters are those of a single component that contains all points of the cluster.
        """
        mixture, apart = self.model.mixture_, self.model.rows_apart_
        sizes, components = np.bincount(self.model.labels_), np.bincount(mixture.groups)
        index = self.table.row_names
        weights = np.bincount(mixture.groups, np.exp(mixture.log_weights))
        explanation = self.explanation
        typical = None if explanation is None else explanation.typical
        lines = []
        for k in range(self.model.n_clusters_):
            line: dict[str, Any] = {
                "cluster": k,
                "size": int(sizes[k]),
                "components": int(components[k]),
                "weight": float(weights[k]),
                "apart_from": None if apart[k] < 0 else int(apart[k]),
                "typical_rows": "",
                "indicative_columns": "",
            }
            if typical is not None:
                line["typical_rows"] = _listed(index[typical[k][:_TYPICAL].tolist()])
                line["indicative_columns"] = _listed(
                    f"{indication.column} ({self._direction(indication)})"
                    for indication in explanation.indicative(k, _INDICATIVE)
                    if indication.log_bayes_factor > 0.0
                )
            lines.append({**line, **self._posterior(k)})
        return pl.DataFrame(lines, infer_schema_length=None)

    def _posterior(self, k: int) -> dict[str, Any]:
        names = self.source.table.all_names
        if len(names) > _WIDE:
            return {}
        about = flat(self.model.mixture_.merged.posterior(k), names)
        if about or self.explanation is None:
            return about
        explanation = self.explanation
        centres = map(explanation.value, explanation.names, explanation.centres[k].tolist())
        return {f"centre of {name}": x for name, x in zip(names, centres, strict=True)}

    def _direction(self, indication: Any) -> str:
        """Return the most probable category, or "higher" or "lower" than in other clusters."""
        centre = self.explanation.value(indication.column, indication.centre)
        return centre if isinstance(centre, str) else str(indication.direction)

    def empty_rows(self) -> str:
        """Return a note on the rows without any value, which the fit did not use; "" if none."""
        weights = self.model.sample_weight_
        empty = np.flatnonzero(weights == 0) if weights is not None else np.empty(0, np.int64)
        if not len(empty):
            return ""
        some = empty[:NAMED].tolist()
        known = self.source.opened is None
        names = self.source.table.row_names[some].to_list() if known else some
        return f"{empty_in_words(names, len(empty))}; the sizes in clusters.csv include them"

    def summary(self) -> str:
        model = self.model
        text = (
            f"{count(self.source.n_rows, 'row')} in {count(model.n_clusters_, 'cluster')};"
            f" log joint of the components {model.log_joint_:.6g}; family {model.family_.name}"
        )
        if model.clustering_.optimal:
            return f"{text}; proved to be the best partition"
        if np.isfinite(model.clustering_.upper_bound):
            gap = model.clustering_.upper_bound - model.log_joint_
            return f"{text}; at most {brief(max(gap, 0.0))} nats below the best partition"
        return text

    def levels_in_words(self) -> str:
        """Say how clusters follow from components, how sure their number is, and the rows apart."""
        model = self.model
        text = f"level: {model.level_reason_}"
        apart = model.rows_apart_ >= 0
        if apart.any():
            from dpsearch.report.summary import clusters_apart

            text += f"; rows apart: {clusters_apart(model.mixture_.cluster_sizes[apart])}"
        return text


def advice(model: Any, folder: Path) -> str:
    """Return the command for fewer clusters if halves of the rows agree little; "" otherwise."""
    fewer = model.advised_level
    if fewer is None:
        return ""
    command = f"dpsearch cut {shlex.quote(str(folder))} --clusters {fewer}"
    return f"fewer clusters may be more reliable: {command}"


def _listed(values: Any) -> str:
    return "; ".join(str(value) for value in values)


def flat(posterior: dict[str, Any], names: list[str]) -> dict[str, float]:
    """Return posterior parameters as columns of a table; vectors have one for each data column.

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


def level_record(model: Any) -> dict[str, Any]:
    """Return the part of a record that is about the clusters."""
    return {
        "level": model.level,
        "level_reason": model.level_reason_,
        "clusters": model.n_clusters_,
        "sizes": np.bincount(model.labels_),
        "components": model.n_components_,
        "component_sizes": np.bincount(model.component_labels_),
    }


def run_record(model: Any, source: Source, reading: Reading) -> dict[str, Any]:
    """Return all that is needed to repeat the run and to recognise its data."""
    from dpsearch._version import __version__

    clustering, table = model.clustering_, source.table
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
            "rows": source.n_rows,
            "columns": table.n_columns,
            "reading": {k: v for k, v in asdict(reading).items() if v is not None},
        },
        "triage": None if source.triage is None else source.triage.to_list(),
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
