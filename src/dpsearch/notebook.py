"""Results in a notebook: a few lines of HTML for light and dark pages."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from dpsearch._numbers import brief, count
from dpsearch.plots._axes import COLOURS

_SHOWN = 12


def clustering_html(
    clustering: Any, caption: str = "Clustering", sizes: Any = None, more: str = ""
) -> str:
    """Return a clustering as HTML, with a bar for the size of each cluster.

    `sizes` are those of the clusters, if they are not the blocks of the partition.
    """
    sizes = clustering.sizes if sizes is None else sizes
    facts = [
        f"{count(len(clustering.labels), 'point')} in"
        f" <b>{count(len(sizes), 'cluster')}</b>{escape(more)}",
        f"log joint {clustering.log_joint:,.1f}".replace("-", "−") + _proof(clustering),
        f"{brief(clustering.seconds)} s",
    ]
    rows = "".join(_bar(k, int(size), int(sizes[0])) for k, size in enumerate(sizes[:_SHOWN]))
    left = len(sizes) - _SHOWN
    rest = f"<div style='opacity:.7'>and {count(left, 'smaller one')}</div>" if left > 0 else ""
    return (
        "<div style='font-size:13px;max-width:44em;margin:.4em 0'>"
        f"<div><b>{escape(caption)}</b>: {' · '.join(facts)}</div>"
        "<table style='border-collapse:collapse;margin:.4em 0;width:100%;font:inherit;"
        f"color:inherit'>{rows}</table>{rest}</div>"
    )


def model_html(model: Any, diagram: str) -> str:
    """Return scikit-learn's diagram of an estimator, and its clustering if it is fitted."""
    if not hasattr(model, "clustering_"):
        return diagram
    about = f"{type(model).__name__}, {model.family_.name} family"
    if model.alpha_ is not None:
        about += f", α = {brief(model.alpha_)}"
    return diagram + clustering_html(
        model.clustering_, about, model.mixture_.cluster_sizes, f" ({model.level_reason_})"
    )


def _proof(clustering: Any) -> str:
    if clustering.optimal:
        return ", proved best"
    gap = clustering.upper_bound - clustering.log_joint
    return (
        f", at most {brief(max(gap, 0.0))} below the best partition" if math.isfinite(gap) else ""
    )


def _bar(k: int, size: int, largest: int) -> str:
    # The last colour is black, which a dark page would hide.
    colour = COLOURS[k % (len(COLOURS) - 1)]
    cell = "border:0;padding:1px 8px 1px 0;background:none;text-align:right"
    return (
        f"<tr style='background:none'><td style='{cell}'>{k}</td><td style='{cell};width:99%'>"
        f"<div style='height:9px;border-radius:3px;background:{colour};"
        f"width:{max(100.0 * size / largest, 1.0):.1f}%'></div></td>"
        f"<td style='{cell}'>{size:,}</td></tr>"
    )
