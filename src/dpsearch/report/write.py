"""`write_report`: from a fitted model and its data to a file to look at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpsearch._files import atomic_write
from dpsearch._numbers import brief
from dpsearch._types import ArrayLike, Ints, Labels, Rng
from dpsearch._validate import whole
from dpsearch._version import __version__
from dpsearch.errors import DataError
from dpsearch.explanation import Explanation
from dpsearch.families.description import described
from dpsearch.plots import COLOURS
from dpsearch.report import summary
from dpsearch.report.images import Images
from dpsearch.report.page import packed, render
from dpsearch.report.profiles import Profile, profiles
from dpsearch.report.projection import Projection, projections
from dpsearch.report.table import Table, top_words

_AT_LEAST = 30  # rows of each cluster in a sample, where it has them
_TYPICAL, _ODD = 5, 12  # rows listed of each kind
_COLUMNS = 24  # of the table and of the overview
_PARTS = 30  # columns described for each cluster
_CELLS = 5  # columns of such a list
_CARDS = 60  # clusters described one by one


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
    table = Table.of(X, model.family_, names, index, pixels=image_shape is not None)
    if explanation is None:
        explanation = model.explain(X)
    if not sample:
        _check_rows(model, table, explanation)
    if certificate is None:
        certificate = getattr(model, "certificate_", None)
    options = _Options(
        title or "Clusters found by dpsearch", image_shape, certificate, consensus, draws,
        whole(max_points, "max_points", 1), umap, seed, sample,
    )  # fmt: skip
    text = _composed(model, table, explanation, options)
    with atomic_write(path) as stream:
        stream.write(text.encode("utf-8", "replace"))  # half a character may be in the data


class _Options(NamedTuple):
    """Those of `write_report`."""

    title: str
    image_shape: tuple[int, int] | None
    certificate: Any
    consensus: Any
    draws: Any
    max_points: int
    umap: bool
    seed: int
    sample: bool


def _composed(model: Any, table: Table, explanation: Explanation, options: _Options) -> str:
    """Return the page."""
    labels, consensus, draws = explanation.labels, options.consensus, options.draws
    if consensus is not None and len(consensus.disagreement) != len(labels):
        raise DataError(
            f"consensus is of {len(consensus.disagreement)} rows, but X has {len(labels)}"
        )
    pixels = options.image_shape is not None
    columns = _columns_shown(table, explanation, pixels)
    sizes = model.mixture_.sizes if options.sample else None
    groups = profiles(table, labels, explanation.columns, columns, 0 if pixels else _PARTS, sizes)
    rng = np.random.default_rng(options.seed)
    chosen = _Chosen(explanation, len(groups), consensus)
    rows = rows_to_show(labels, chosen.all(), options.max_points, rng)
    shown = [*chosen.all(), *rng.permutation(rows)]
    images = Images.of(table, labels, options.image_shape, shown)
    maps = projections(table, rows, options.seed, umap=options.umap)
    return render(
        "report.html",
        title=options.title,
        sure=summary.how_sure(
            model.clustering_, explanation, options.certificate, consensus, draws
        ),
        consensus=consensus,
        explanation=explanation,
        images=images,
        n_shown=len(rows),
        n_columns_shown=len(columns),
        posterior=None if draws is None else _posterior(draws),
        has_trace=len(model.clustering_.trace) > 1,
        about=_about(model),
        payload=_payload(model, table, explanation, rows, columns, images, maps),
        **_sections(model, table, groups, explanation, chosen, columns, images is None),
    )


def _sections(
    model: Any,
    table: Table,
    groups: list[Profile],
    explanation: Explanation,
    chosen: _Chosen,
    columns: list[int],
    with_overview: bool,
) -> dict[str, Any]:
    """Return what the page says of clusters and of single rows."""
    n_rows = sum(group.size for group in groups)
    few = _most_indicative(explanation, columns)
    return {
        "table": table,
        "n_rows": n_rows,
        "groups": groups,
        "found": summary.found(table, groups),
        "figures": _figures(model, table, groups, explanation, n_rows),
        "cards": [_card(table, group, chosen.typical[group.k]) for group in groups[:_CARDS]],
        "overview": _overview(groups, columns, table) if with_overview else None,
        "borderline": _listing(table, chosen.borderline, few),
        "outliers": _listing(table, chosen.outliers, few),
        "moved": _listing(table, chosen.moved, few),
    }


def _check_rows(model: Any, table: Table, explanation: Explanation) -> None:
    known = model.labels_
    if len(known) != table.n_rows or (explanation.labels != known).any():
        raise DataError(
            f"X with {table.n_rows} rows is not the data that the model was fitted to: a report"
            f" shows those ({len(known)} rows)"
        )


class _Chosen:
    """The rows that the page names: most typical, least certain, out of the ordinary, moved."""

    def __init__(self, explanation: Explanation, n_clusters: int, consensus: Any) -> None:
        typical = explanation.typical[: min(n_clusters, _CARDS)]
        self.typical = [rows[:_TYPICAL] for rows in typical]
        self.borderline = explanation.borderline[:_ODD]
        self.outliers = explanation.outliers[:_ODD]
        away = np.zeros(0) if consensus is None else consensus.disagreement
        most = np.argsort(-away, kind="stable")[:_ODD]
        self.moved = most[away[most] > summary.MOVED]

    def all(self) -> Ints:
        every = np.concatenate([*self.typical, self.borderline, self.outliers, self.moved])
        return np.asarray(list(dict.fromkeys(every.tolist())), dtype=np.int64)


def rows_to_show(labels: Labels, chosen: Ints, size: int, rng: Rng) -> Ints:
    """Rows to show: those chosen, some of each cluster, and others by chance, in order."""
    n = len(labels)
    if n <= size:
        return np.arange(n)
    order = rng.permutation(n)
    # How many of a row's own cluster come before it in this order.
    by_cluster = np.argsort(labels[order], kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(labels))[:-1]])
    rank = np.empty(n, np.int64)
    rank[order[by_cluster]] = np.arange(n) - starts[labels[order[by_cluster]]]
    priority = np.where(rank < _AT_LEAST, 1, 2)
    priority[chosen] = 0
    return np.sort(order[np.argsort(priority[order], kind="stable")[:size]])


def _columns_shown(table: Table, explanation: Explanation, pixels: bool) -> list[int]:
    """The columns to show, in the table's order: those that set clusters apart."""
    if table.is_counts or pixels:
        return []
    evidence = explanation.columns.max(axis=0)
    return sorted(np.argsort(-evidence, kind="stable")[:_COLUMNS].tolist())


def _overview(groups: list[Profile], columns: list[int], table: Table) -> Any:
    """Lines of clusters and parts, by column: the heat map."""
    if not columns or len(groups) < 2:
        return None
    names = [table.names[j] for j in columns]
    lines = []
    for group in groups[:_CARDS]:
        parts = {part.column: part for part in group.parts}
        lines.append((group, [parts[j] for j in columns]))
    return {"names": names, "lines": lines}


def _card(table: Table, group: Profile, typical: Ints) -> dict[str, Any]:
    telling = [] if table.is_counts else [part.column for part in group.parts[:_CELLS]]
    return {"group": group, "typical": _listing(table, typical, telling)}


def _most_indicative(explanation: Explanation, columns: list[int]) -> list[int]:
    """A few of these columns: those that set clusters apart most."""
    evidence = explanation.columns.max(axis=0)
    return sorted(columns, key=lambda j: -evidence[j])[:_CELLS]


def _listing(table: Table, rows: Ints, columns: list[int]) -> dict[str, Any]:
    """Rows with what they have in some columns, or their words."""
    if table.is_counts:
        heads, cells = ["telling words"], [[words] for words in top_words(table, rows)]
    else:
        heads = [table.names[j] for j in columns]
        cells = [[table.cell(i, j) for j in columns] for i in rows]
    lines = [
        {"row": int(i), "name": table.rows[i], "cells": own}
        for i, own in zip(rows, cells, strict=True)
    ]
    return {"heads": heads, "lines": lines}


def _figures(
    model: Any, table: Table, groups: list[Profile], explanation: Explanation, n_rows: int
) -> list[tuple[str, str]]:
    figures = [
        ("rows", f"{n_rows:,}"),
        ("words" if table.is_counts else "columns", f"{len(table.names):,}"),
        ("clusters", f"{len(groups):,}"),
        ("mean certainty", f"{100.0 * explanation.certainty.mean():.1f} %"),
        ("log joint", f"{model.log_joint_:,.1f}".replace("-", "−")),
    ]
    if model.alpha_ is not None:
        figures.append(("concentration α", brief(model.alpha_)))
    return figures


def _posterior(draws: Any) -> list[dict[str, Any]]:
    """Histograms of K, and of α where it varies: heights in per cent of the highest."""
    shares = draws.k_posterior()
    seen = np.arange(np.flatnonzero(shares)[0], len(shares))
    out = [_histogram("number of clusters K", shares[seen], [str(k) for k in seen])]
    if draws.alpha is not None and np.ptp(draws.alpha) > 0.0:
        inside = np.quantile(draws.alpha, [0.0, 0.995])  # a long tail would flatten the rest
        counts, edges = np.histogram(draws.alpha, bins=30, range=tuple(inside))
        middles = [f"{m:.2g}" for m in (edges[1:] + edges[:-1]) / 2]
        out.append(_histogram("concentration α", counts / len(draws), middles))
    return out


def _histogram(title: str, shares: Any, names: list[str]) -> dict[str, Any]:
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


def _about(model: Any) -> list[tuple[str, str]]:
    clustering = model.clustering_
    return [
        ("family", described(model.family_.to_dict())),
        ("chosen because", getattr(model, "reason_", "as given")),
        ("prior", repr(model.mixture_.prior)),
        ("seconds of search", brief(clustering.seconds)),
        ("seed", repr(model.random_state)),
        ("dpsearch", __version__),
    ]


def _payload(
    model: Any,
    table: Table,
    explanation: Explanation,
    rows: Ints,
    columns: list[int],
    images: Images | None,
    maps: list[Projection],
) -> dict[str, Any]:
    """What the page's script works on: the rows shown, maps of them, the trace."""
    trace = model.clustering_.trace
    shown: list[dict[str, Any]] = []
    for j in columns:
        column = table.columns[j]
        part: dict[str, Any] = {"name": column.name, "values": packed(column.values[rows])}
        shown.append(part | ({} if column.levels is None else {"levels": column.levels}))
    if table.is_counts:
        shown.append({"name": "telling words", "text": top_words(table, rows)})
    return {
        "colours": COLOURS,
        "sizes": explanation.sizes.tolist(),
        "rows": packed(rows),
        "names": [table.rows[i] for i in rows],
        "cluster": packed(explanation.labels[rows]),
        "second": packed(explanation.second[rows]),
        "certainty": _single(explanation.certainty[rows]),
        "density": _single(explanation.log_density[rows]),
        "columns": shown,
        "maps": [
            {"name": one.name, "x": _single(one.x), "y": _single(one.y), "titles": one.titles}
            for one in maps
        ],
        "images": None if images is None else images.payload(),
        "trace": [[at.seconds, at.log_joint, at.n_clusters, at.step] for at in trace],
    }


def _single(values: ArrayLike) -> dict[str, str]:
    """Seven digits are enough to look at, unless the numbers are too large for that."""
    array = np.asarray(values, dtype=np.float64)
    few = np.abs(array[np.isfinite(array)]).max(initial=0.0) < np.finfo(np.float32).max
    return packed(array.astype(np.float32) if few else array)
