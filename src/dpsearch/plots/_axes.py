"""What all plots share: colours, markers, axes without pyplot, and files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpsearch._extras import naming_extras
from dpsearch._files import atomic_write
from dpsearch._types import ArrayLike, Ints
from dpsearch._validate import column_names
from dpsearch.errors import ParameterError
from dpsearch.partition import check_labels

# Okabe & Ito's colours, which colour-blind people can distinguish.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
# Together with the colours they distinguish 7 × 6 clusters.
MARKERS = ("o", "s", "^", "D", "v", "P")


def new_axes(n_rows: int, n_columns: int, size: tuple[float, float]) -> Any:
    """Return a figure's axes as an array, without touching pyplot's state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure.subplots(n_rows, n_columns, squeeze=False)


def one_axis(axis: Any, width: float, height: float) -> Any:
    """Return the axis that was given, or that of a new figure."""
    return new_axes(1, 1, (width, height))[0, 0] if axis is None else axis


def open_frame(*axes: Any) -> None:
    """Hide the upper and the right border."""
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)


def colour_bar(picture: Any, axis: Any, label: str, **options: Any) -> None:
    """Add a bar that explains the colours of a picture, and hide the borders of both."""
    bar = axis.figure.colorbar(picture, ax=axis, shrink=0.9, pad=0.02, **options)
    bar.set_label(label, fontsize="medium")
    bar.outline.set_visible(False)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)


def groups(labels: ArrayLike, n_points: int) -> tuple[list[str], Ints]:
    """Return the sorted names of the clusters, and the index of each point's cluster."""
    check_labels(labels, n_points)
    names, codes = np.unique(np.asarray(labels), return_inverse=True)
    return [str(name) for name in names], codes.reshape(-1)


def column_titles(X: Any, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the titles of the columns of X: as given, or the names of a frame, or numbers."""
    width = X.shape[1]
    if names is None:
        return tuple(column_names(X) or (f"column {j}" for j in range(width)))
    if len(names) != width:
        raise ParameterError.of("names", f"has {len(names)} entries for {width} columns of X")
    return tuple(str(name) for name in names)


def check_figure(path: str | Path) -> str:
    """Return the format of a figure by its file name; raise if it or matplotlib is not there."""
    with naming_extras("plots"):
        from matplotlib.backend_bases import FigureCanvasBase
    form = Path(path).suffix.lstrip(".").lower()
    known = FigureCanvasBase.get_supported_filetypes()
    if form not in known:
        raise ParameterError(
            f"the name must end with one of {', '.join(sorted(known))}", source=path
        )
    return form


def save_figure(figure: Any, path: str | Path, dpi: int = 150) -> None:
    """Write a figure in the format of the file's ending; the file appears when it is complete."""
    form = check_figure(path)
    # Without a date, equal figures are equal files.
    metadata = {"Date": None} if form == "svg" else None
    with atomic_write(path) as stream:
        figure.savefig(stream, format=form, dpi=dpi, metadata=metadata)
