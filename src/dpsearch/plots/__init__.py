"""Plots with matplotlib; each takes axes and returns them."""

from dpsearch.plots._axes import COLOURS, check_figure, new_axes, save_figure
from dpsearch.plots.clusters import mean_images, profiles, scatter, trace
from dpsearch.plots.draws import coclustering, k_posterior, sampler_trace
from dpsearch.plots.trees import dendrogram

__all__ = [
    "COLOURS",
    "check_figure",
    "coclustering",
    "dendrogram",
    "k_posterior",
    "mean_images",
    "new_axes",
    "profiles",
    "sampler_trace",
    "save_figure",
    "scatter",
    "trace",
]
