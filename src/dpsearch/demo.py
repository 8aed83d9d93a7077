"""The demonstration: cluster 3,000 handwritten digits and show what was found."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from dpsearch import datasets, families, priors
from dpsearch._files import atomic_write
from dpsearch._types import Labels
from dpsearch.errors import ParameterError
from dpsearch.objective import Clustering, Problem
from dpsearch.prefix_search.search import search_problem
from dpsearch.progress import progress

# The paper's section 4.2, 5 % of MNIST in Matlab: "roughly 270 data points per second".
PAPER_POINTS_PER_SECOND = 270


class Demo(NamedTuple):
    clustering: Clustering
    points_per_second: float
    seconds: float
    picture: Path | None


def run_demo(out: Path, console: Console) -> Demo:
    """Run the demonstration; the picture needs matplotlib and is left out without it."""
    if out.exists() and not out.is_dir():
        raise ParameterError(f"{out}: is a file, not a folder")
    begun = time.perf_counter()
    digits = datasets.mnist_digits()
    n = len(digits.images)
    console.print(f"{n:,} digits of MNIST, 28×28 pixels; PCA to 50 dimensions, whitened")
    X = datasets.whitened(digits.images)
    family = families.Gaussian(prior_mean=0.0, prior_variance=0.1, noise_variance=1.0)
    problem = Problem.of(X, family, priors.DirichletProcess(alpha=1.0))
    with progress(console, "search") as callback:
        # One pass compiles or loads the kernels, so that the second is timed by itself.
        search_problem(problem, beam_size=10, callback=callback)
    result = search_problem(problem, beam_size=10)
    rate = n / result.seconds
    _print_result(console, result, digits.labels, rate)
    picture = _draw(digits.images, result.labels, out, console)
    seconds = time.perf_counter() - begun
    console.print(f"All of it took {seconds:.1f} s.")
    return Demo(result, rate, seconds, picture)


def _print_result(console: Console, result: Clustering, truth: Labels, rate: float) -> None:
    table = Table(title="What search found", show_header=False)
    table.add_row("clusters", str(result.n_clusters))
    table.add_row("log joint", f"{result.log_joint:,.1f}")
    table.add_row("seconds", f"{result.seconds:.3f}")
    table.add_row(
        "points per second", f"{rate:,.0f}   (the paper, 2007: {PAPER_POINTS_PER_SECOND})"
    )
    console.print(table)
    sizes = Table(title="The clusters")
    for heading in ("cluster", "points", "mostly", "share"):
        sizes.add_column(heading, justify="right")
    for k, size in enumerate(result.sizes):
        counts = np.bincount(truth[result.labels == k], minlength=10)
        share = counts.max() / size
        sizes.add_row(str(k), str(size), f"digit {counts.argmax()}", f"{share:.0%}")
    console.print(sizes)


def _draw(images: Any, labels: Labels, out: Path, console: Console) -> Path | None:
    """Save the mean image of each cluster, largest first."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        console.print("(Install dpsearch[plots] to get the clusters' mean images as a picture.)")
        return None
    n_clusters = int(labels.max()) + 1
    columns = min(n_clusters, 8)
    rows = -(-n_clusters // columns)
    figure = Figure(figsize=(1.3 * columns, 1.55 * rows + 0.4), layout="constrained")
    axes = np.atleast_1d(figure.subplots(rows, columns)).reshape(-1)
    for axis in axes:
        axis.set_axis_off()
    for k in range(n_clusters):
        members = images[labels == k]
        axes[k].imshow(members.mean(axis=0).reshape(28, 28), cmap="gray_r")
        axes[k].set_title(f"{k}: {len(members)}", fontsize=9)
    figure.suptitle("Mean image of each cluster, with its number of digits", fontsize=10)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "digits.png"
    with atomic_write(path) as stream:
        figure.savefig(stream, dpi=120, format="png")
    console.print(f"Mean images of the clusters: {path}")
    return path
