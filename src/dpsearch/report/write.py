"""`write_report`: a page about a fitted model and its data."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from dpsearch._files import atomic_write
from dpsearch._numbers import brief, share
from dpsearch._types import ArrayLike, Ints, Labels, Rng
from dpsearch._validate import as_image_shape, readable, whole
from dpsearch._version import __version__
from dpsearch.deadline import current
from dpsearch.errors import DataError, ParameterError
from dpsearch.explanation import Explanation
from dpsearch.families.description import described
from dpsearch.plots import COLOURS
from dpsearch.report import summary
from dpsearch.report.branches import Branches
from dpsearch.report.page import packed, render, single
from dpsearch.report.profiles import Profile, profiles
from dpsearch.report.projection import projections
from dpsearch.report.table import Table, top_words
from dpsearch.tables import is_frame

_AT_LEAST = 30  # rows of each component in a sample, if it has as many
_TYPICAL, _ODD = 5, 12  # rows listed: typical ones, and borderline, outlying or moved ones
_COLUMNS = 24  # columns of the table and of the overview
_PARTS, _FEWEST_PARTS = 30, 8  # columns described for each branch: at most and at least …
_ALL_PARTS = 4000  # … and about as many in all
_CELLS = 5  # columns of a list of rows
_LEAST_SHARE = 5e-4  # smaller probabilities of components are not on the page
_BLOCK = 4_000_000  # probabilities computed at a time
_IMAGE_BYTES = 2_500_000  # limit on the pixels in a page
_WORDS = "characteristic words"  # heading of the words of a row


def write_report(
    path: str | Path,
    model: Any,
    X: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    index: ArrayLike = None,
    title: str | None = None,
    explanation: Explanation | None = None,
    image_shape: tuple[int, int] | None = None,
    certificate: Any = None,
    consensus: Any = None,
    draws: Any = None,
    max_points: int = 20_000,
    umap: bool = True,
    seed: int = 0,
    sample: bool = False,
) -> None:
    """Write one HTML file that shows what was found; it can be read offline.

    Parameters
    ----------
    path
        Where to write it.  The file appears when it is complete.
    model
        A fitted `DPMixture`.
    X
        The data that it was fitted to: array, pandas or polars frame, sparse counts.
    names
        Names of the columns, or the words; default: those of the frame.
    index
        A name for each row; default: the index of the frame, or the row's number.
    title
        Title of the page.
    explanation
        From `model.explain(X)`, if it has been computed already.
    image_shape
        Height and width, if each row of X is an image.
    certificate
        From `certify`, if there is one; default: the model's own.
    consensus
        From `consensus`: restarts to compare with, and the rows that they place differently.
    draws
        From `gibbs` or `split_merge`: the posterior of K and α.
    max_points
        Rows in the map and the table.  Of more, a sample is shown, and the page says so.
    umap
        Whether to draw UMAP's map too, if umap-learn is installed: it may take a minute.
    seed
        Seed of the sample and the maps.
    sample
        Whether X is a sample of the rows that the model was fitted to: the sizes of the clusters
        are then those among all rows, and everything else comes from the sample.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsearch import DPMixture
    >>> from dpsearch.report import write_report
    >>> X = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0.0], [9.0]], 30, axis=0)
    >>> model = DPMixture(random_state=0).fit(X)
    >>> write_report("report.html", model, X, names=["height", "weight"])  # doctest: +SKIP
    """
    X = readable(X)
    rows, schema, dates = X, model.schema_, {}
    if schema is not None and is_frame(X):  # show the columns that the model uses
        rows, names = schema.decode(model.checked(X).matrix), schema.names
        dates = schema.dates(X)
        index = X.index if index is None and hasattr(X, "iloc") else index
    about = () if schema is None else schema.columns
    table = Table.of(rows, model.family_, names, index, pixels=image_shape is not None, about=about)
    certificate = getattr(model, "certificate_", None) if certificate is None else certificate
    page = _Page(
        model, X, table, dates, model.explain(X) if explanation is None else explanation,
        title or "Clusters found by dpsearch", image_shape, certificate, consensus, draws,
        whole(max_points, "max_points", 1), umap, seed, sample,
    )  # fmt: skip
    text = page.html()
    with atomic_write(path) as stream:
        stream.write(text.encode("utf-8", "replace"))  # the data may contain lone surrogates


@dataclass(frozen=True)
class _Page:
    """A page: the options of `write_report`, and what is computed from them."""

    model: Any
    X: Any
    table: Table
    dates: dict[str, list[str]]  # the columns of dates; the table has only parts of them
    explanation: Explanation
    title: str
    image_shape: tuple[int, int] | None
    certificate: Any
    consensus: Any
    draws: Any
    max_points: int
    umap: bool
    seed: int
    sample: bool

    def __post_init__(self) -> None:
        labels, known = self.explanation.components, self.model.component_labels_
        weights = self.model.sample_weight_  # rows of weight 0 may be in any component
        seen = slice(None) if weights is None else weights > 0
        same = len(known) == self.table.n_rows and (labels[seen] == known[seen]).all()
        if not self.sample and not same:
            raise DataError(
                f"X with {self.table.n_rows} rows is not the data that the model was fitted to: a"
                f" report shows those ({len(known)} rows)"
            )
        if self.consensus is not None and len(self.consensus.disagreement) != len(labels):
            raise DataError(
                f"consensus is of {len(self.consensus.disagreement)} rows, but X has {len(labels)}"
            )

    def html(self) -> str:
        explanation, columns = self.explanation, self.columns
        rng = np.random.default_rng(self.seed)
        named = np.concatenate([*self.typical, *self.listed.values()])
        chosen = np.array(list(dict.fromkeys(named.tolist())), dtype=np.int64)
        rows = rows_to_show(explanation.components, chosen, self.max_points, rng)
        images = self._images([*chosen, *rng.permutation(rows)])
        model = self.model
        as_asked = not isinstance(model.level, str) or model.min_cluster_size > 1
        as_asked &= model.n_components_ > 1  # with one component there was nothing to choose
        return render(
            "report.html",
            title=self.title,
            table=self.table,
            n_components=self.model.n_components_,
            n_clusters=self.model.n_clusters_,
            level=summary.level(self.model),
            n_rows=self.n_rows,
            n_shown=len(rows),
            n_columns_shown=len(columns),
            found=summary.found(self.table, self.clusters, explanation.apart, as_asked=as_asked),
            sure=summary.how_sure(
                self.model.clustering_,
                explanation,
                self.certificate,
                self.consensus,
                self.draws,
                self.table.n_empty(),
                self.sample,
            ),
            figures=self._figures(),
            consensus=self.consensus,
            outlier_rate=explanation.outlier_rate,
            images=images,
            posterior=None if self.draws is None else _posterior(self.draws),
            has_trace=len({point.log_joint for point in self.model.clustering_.trace}) > 1,
            about=self._about(),
            triage=self.model.triage_,
            payload={**self._payload(rows), "images": images},
        )

    @property
    def n_rows(self) -> int:
        return sum(cluster.size for cluster in self.clusters)

    @cached_property
    def evidence(self) -> Any:
        """The largest evidence of each column over the clusters."""
        return self.explanation.columns.max(axis=0)

    @cached_property
    def columns(self) -> Ints:
        """The columns with most evidence, which are shown, in the table's order."""
        if self.table.is_counts or self.image_shape is not None:
            return np.empty(0, np.int64)
        return np.sort(np.argsort(-self.evidence, kind="stable")[:_COLUMNS])

    @cached_property
    def branches(self) -> Branches:
        return Branches.of(self.model, self.explanation)

    @cached_property
    def profiles(self) -> list[Profile]:
        """The profile of each branch."""
        subsets = self.branches.subsets
        shown = int(np.clip(_ALL_PARTS // len(subsets.sets), _FEWEST_PARTS, _PARTS))
        sizes = self.model.mixture_.sizes if self.sample else None
        return profiles(
            self.table, self.explanation.components, subsets, self.columns,
            shown if self.image_shape is None else 0, sizes,
        )  # fmt: skip

    @property
    def clusters(self) -> list[Profile]:
        """The clusters of the fit."""
        return [self.profiles[b] for b in self.branches.fitted]

    @cached_property
    def typical(self) -> list[Ints]:
        """The most probable rows of each branch."""
        explanation, sets = self.explanation, self.branches.subsets.sets
        doubtful = explanation.certainty < 0.5
        order = np.lexsort((-explanation.log_density, -explanation.p_value, doubtful))
        parts = explanation.components[order]
        first = [order[parts == k][:_TYPICAL] for k in range(sets.shape[1])]
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        out = []
        for own in sets:
            rows = np.concatenate([first[k] for k in np.flatnonzero(own)])
            out.append(rows[np.argsort(rank[rows])][:_TYPICAL])
        return out

    @cached_property
    def listed(self) -> dict[str, Ints]:
        """The rows to list: the least certain, the outliers, and those that restarts move."""
        away = np.zeros(0) if self.consensus is None else self.consensus.disagreement
        most = np.argsort(-away, kind="stable")[:_ODD]
        return {
            "borderline": self.explanation.borderline[:_ODD],
            "outliers": self.explanation.outliers[:_ODD],
            "moved": most[away[most] > summary.MOVED],
        }

    def _figures(self) -> list[tuple[str, str]]:
        model, table = self.model, self.table
        figures = [
            ("rows", f"{self.n_rows:,}"),
            ("words" if table.is_counts else "columns", f"{len(table.names):,}"),
            ("clusters", f"{model.n_clusters_:,}"),
            ("components", f"{model.n_components_:,}"),
            ("mean certainty", share(self.explanation.certainty.mean())),
            ("log joint", f"{model.log_joint_:,.1f}".replace("-", "−")),
        ]
        if model.alpha_ is not None:
            figures.append(("concentration α", brief(model.alpha_)))
        return figures

    def _about(self) -> list[tuple[str, str]]:
        model = self.model
        return [
            ("family", described(model.family_.to_dict())),
            ("chosen because", model.reason_),
            ("prior", repr(model.mixture_.prior)),
            ("seconds of search", brief(model.clustering_.seconds)),
            ("seed", repr(model.random_state)),
            ("dpsearch", __version__),
        ]

    def _images(self, chosen: list[int]) -> dict[str, Any] | None:
        """Return grey images: the means of branches, and as many of these rows as a page allows."""
        if self.image_shape is None:
            return None
        shape = as_image_shape(self.image_shape, len(self.table.names), "X")
        X, sets = self.table.matrix(), self.branches.subsets.sets
        if X.shape[1] != len(self.table.names):
            raise ParameterError.of(
                "image_shape", "needs columns of numbers, but some are categories"
            )
        rows = list(dict.fromkeys(int(i) for i in chosen))[: max(1, _IMAGE_BYTES // X.shape[1])]
        parts = self.explanation.components
        counts = np.bincount(parts, minlength=sets.shape[1])
        sums = np.stack([X[parts == k].sum(axis=0) for k in range(sets.shape[1])])
        means = (sets @ sums) / np.maximum(sets @ counts, 1)[:, None]
        low, high = np.nanquantile(X[rows], [0.001, 0.999])

        def grey(values: Any) -> str:
            scaled = (np.nan_to_num(values, nan=low) - low) / (high - low if high > low else 1.0)
            pixels = np.clip(np.round(255.0 * scaled), 0, 255).astype(np.uint8)
            return base64.b64encode(pixels.tobytes()).decode()

        return {"shape": shape, "means": grey(means), "rows": rows, "pixels": grey(X[rows])}

    def _payload(self, rows: Ints) -> dict[str, Any]:
        """Return the data of the page's script: the rows shown, maps of them, and the trace."""
        table, explanation = self.table, self.explanation
        shown: list[dict[str, Any]] = []
        for j in self.columns:
            column = table.columns[j]
            part: dict[str, Any] = {"name": column.name, "values": packed(column.values[rows])}
            about = (
                {"format": column.format} if column.levels is None else {"levels": column.levels}
            )
            shown.append(part | about)
        shown += [{"name": k, "text": [v[i] for i in rows]} for k, v in self.dates.items()]
        few = np.argsort(-self.evidence[self.columns], kind="stable")[:_CELLS]
        moved = self.listed["moved"]
        if table.is_counts:
            shown.append({"name": _WORDS, "text": top_words(table, rows)})
        return {
            "colours": COLOURS,
            "rows": packed(rows),
            "names": [table.rows[i] for i in rows],
            "component": packed(explanation.components[rows]),
            "tree": self.branches.payload(),
            "branches": [self._branch(*pair) for pair in zip(self.profiles, self.typical)],
            "described": self._described_columns(),
            "overview": self.columns.tolist(),
            "words": table.is_counts,
            "shares": self._shares(rows),
            "outliers": self.listed["outliers"].tolist(),
            "moved": [[int(i), float(self.consensus.disagreement[i])] for i in moved],
            "cells": [shown[j]["name"] for j in few] if len(few) else [_WORDS] * table.is_counts,
            "density": single(explanation.log_density[rows]),
            "columns": shown,
            "maps": [
                {"name": one.name, "x": single(one.x), "y": single(one.y), "titles": one.titles}
                for one in projections(table, rows, self.seed, umap=self.umap)
            ],
            "trace": [
                [at.seconds, at.log_joint, at.n_clusters, at.step]
                for at in self.model.clustering_.trace
            ],
        }

    def _shares(self, rows: Ints) -> dict[str, Any]:
        """Return each row's probabilities of components, times 10⁴; component K is a new one."""
        model, mixture = self.model, self.model.mixture_
        table = model.checked(self.X)
        labels, fitted = model.fitted_labels(table), model.encode(table).matrix
        step = max(1, _BLOCK // (mixture.n_components + 1))
        parts = []
        for own in np.split(rows, range(step, len(rows), step)):
            places = np.empty((len(own), mixture.n_components + 1))
            known = None if labels is None else labels[own]
            mixture.memberships(
                table.matrix[own], known, fitted[own], check=current().check, places=places
            )
            shares = softmax(places, axis=1)
            at = np.nonzero(shares >= _LEAST_SHARE)
            parts.append((np.bincount(at[0], minlength=len(own)), at[1], shares[at]))
        counts, components, shares = (np.concatenate(part) for part in zip(*parts, strict=True))
        return {
            "counts": packed(counts),
            "components": packed(components),
            "shares": packed(np.round(1e4 * shares)),
        }

    def _branch(self, profile: Profile, typical: Ints) -> dict[str, Any]:
        return {
            "size": profile.size,
            "words": profile.in_words(8 if self.table.is_counts else 3),
            "against": profile.against_in_words(together=self.table.is_counts),
            "parts": [part.packed() for part in profile.parts],
            "typical": typical.tolist(),
        }

    def _described_columns(self) -> dict[int, list[Any]]:
        """Return the names of described columns; for numbers also mean, spread and format."""
        if self.table.is_counts:
            return {}
        return {
            part.column: [part.name, *part.of_all()]
            for profile in self.profiles
            for part in profile.parts
        }


def rows_to_show(labels: Labels, chosen: Ints, size: int, rng: Rng) -> Ints:
    """Return at most `size` rows: those chosen, some of each cluster, and others at random."""
    n = len(labels)
    if n <= size:
        return np.arange(n)
    order = rng.permutation(n)
    # A row's rank in the order among the rows of its cluster.
    by_cluster = np.argsort(labels[order], kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(labels))[:-1]])
    rank = np.empty(n, np.int64)
    rank[order[by_cluster]] = np.arange(n) - starts[labels[order[by_cluster]]]
    priority = np.where(rank < _AT_LEAST, 1, 2)
    priority[chosen] = 0
    return np.sort(order[np.argsort(priority[order], kind="stable")[:size]])


def _posterior(draws: Any) -> list[dict[str, Any]]:
    """Return histograms of K, and of α where it varies."""
    shares = draws.k_posterior()
    seen = np.arange(np.flatnonzero(shares)[0], len(shares))
    out = [_histogram("number of clusters K", shares[seen], [str(k) for k in seen])]
    if draws.alpha is not None and np.ptp(draws.alpha) > 0.0:
        inside = np.quantile(draws.alpha, [0.0, 0.995])  # a long tail would compress the rest
        counts, edges = np.histogram(draws.alpha, bins=30, range=tuple(inside))
        middles = [f"{m:.2g}" for m in (edges[1:] + edges[:-1]) / 2]
        out.append(_histogram("concentration α", counts / len(draws), middles))
    return out


def _histogram(title: str, shares: Any, names: list[str]) -> dict[str, Any]:
    """Return bars with heights in per cent of the highest, of which at most 15 are labelled."""
    step = -(-len(names) // 15)
    bars = [
        {
            "name": name,
            "share": float(share),
            "height": float(100.0 * share / shares.max()),
            "labelled": at % step == 0,
        }
        for at, (name, share) in enumerate(zip(names, shares))
    ]
    return {"title": title, "bars": bars}
