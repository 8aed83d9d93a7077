"""One figure, with a line for each tool and a dot for each data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpsearch.plots import COLOURS, new_axes


class Line(NamedTuple):
    """A tool's values, one per data set."""

    name: str
    group: str
    ari: Sequence[float]  # 0 where it was stopped or failed
    clusters_per_class: Sequence[float]  # these two only where it was done
    seconds: Sequence[float]


_COLOUR = {"dpsearch": COLOURS[5], "peer": COLOURS[0], "oracle": "0.45"}


def figure(lines: Sequence[Line], limit: float) -> Any:
    """Draw agreement, clusters per class and seconds side by side, best tool on top."""
    lines = sorted(lines, key=lambda line: float(np.mean(line.ari)))
    axes = new_axes(1, 3, (12.0, 1.6 + 0.34 * len(lines)))[0]
    panels: tuple[tuple[str, list[Sequence[float]], Callable[[Any], Any], str], ...] = (
        ("adjusted Rand index", [line.ari for line in lines], np.mean, "mean"),
        (
            "clusters per class",
            [line.clusters_per_class for line in lines],
            _centre,
            "geometric mean",
        ),
        ("seconds on one thread", [line.seconds for line in lines], _centre, "geometric mean"),
    )
    for axis, (title, columns, middle, word) in zip(axes, panels, strict=True):
        for y, (line, values) in enumerate(zip(lines, columns, strict=True)):
            colour = _COLOUR[line.group]
            axis.axhline(y, color="0.93", linewidth=0.8, zorder=0)
            if not len(values):
                continue
            axis.plot(values, np.full(len(values), y), "o", color=colour, alpha=0.35, ms=5, mew=0)
            axis.plot([middle(values)], [y], "|", color=colour, ms=15, mew=3)
        axis.set_title(f"{title}\n(dot: a data set, bar: {word})", fontsize=10, loc="left")
        axis.set_ylim(-0.7, len(lines) - 0.3)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
        axis.set_yticks([])
    axes[0].set_yticks(range(len(lines)), [line.name for line in lines], fontsize=9)
    for text, line in zip(axes[0].get_yticklabels(), lines, strict=True):
        text.set_color(_COLOUR[line.group])
        text.set_fontweight("bold" if line.group == "dpsearch" else "normal")
    axes[0].set_xlim(left=min(-0.02, *(min(line.ari) for line in lines)), right=1.02)
    for axis in axes[1:]:
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
    axes[1].axvline(1.0, color="0.6", linewidth=1.0, linestyle=":", zorder=0)
    axes[2].axvline(limit, color="0.6", linewidth=1.0, linestyle=":", zorder=0)
    axes[2].text(limit, -0.6, " limit", fontsize=8, color="0.4", ha="right", va="bottom")
    return axes[0].figure


def _centre(values: Sequence[float]) -> float:
    """The geometric mean, which is the mean on a logarithmic axis."""
    return float(np.exp(np.mean(np.log(np.maximum(values, 1e-4)))))
