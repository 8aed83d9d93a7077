"""What all plots share: colours, markers, axes without pyplot, and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dpsearch._files import atomic_write
from dpsearch._types import ArrayLike, Ints
from dpsearch.errors import ParameterError
from dpsearch.partition import check_labels

# Okabe & Ito's colours, which people who see colours differently can tell apart.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
# With the colours they tell 7 × 6 clusters apart, and those of one colour without colour.
MARKERS = ("o", "s", "^", "D", "v", "P")


def new_axes(n_rows: int, n_columns: int, size: tuple[float, float]) -> Any:
    """Return a figure's axes as an array, without touching pyplot's state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure.subplots(n_rows, n_columns, squeeze=False)


def groups(labels: ArrayLike, n_points: int) -> tuple[list[str], Ints]:
    """Return the clusters' names, in order, and which of them each point belongs to."""
    check_labels(labels, n_points)
    names, codes = np.unique(np.asarray(labels), return_inverse=True)
    return [str(name) for name in names], codes.reshape(-1)


def check_figure(path: str | Path) -> str:
    """Return the format that a figure's file name asks for, or raise; also without matplotlib."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        raise ParameterError(
            "plots need matplotlib: pip install dpsearch[plots]",
            source=path,
        ) from error
    form = Path(path).suffix.lstrip(".").lower()
    known = FigureCanvasBase.get_supported_filetypes()
    if form not in known:
        raise ParameterError(
            f"the name must end with one of {', '.join(sorted(known))}", source=path
        )
    return form


def save_figure(figure: Any, path: str | Path, dpi: int = 150) -> None:
    """Write a figure in the format that the file's name ends with; nothing half-written."""
    form = check_figure(path)
    # No date: the same figure is the same file.
    metadata = {"Date": None} if form == "svg" else None
    with atomic_write(path) as stream:
        figure.savefig(stream, format=form, dpi=dpi, metadata=metadata)
