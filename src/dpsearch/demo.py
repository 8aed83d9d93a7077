"""The demonstration: cluster 3,000 handwritten digits and show what was found."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from dpsearch import datasets, families, priors
from dpsearch._types import Labels
from dpsearch.errors import ParameterError
from dpsearch.plots import mean_images, save_figure
from dpsearch.prefix_search.search import search
from dpsearch.problem import Clustering, Problem
from dpsearch.progress import stages
from dpsearch.refinement import refine

# The paper's section 4.2, 5 % of MNIST in Matlab: "roughly 270 data points per second".
PAPER_POINTS_PER_SECOND = 270
REFINE_SECONDS = 0.5
SHOWN = 12


def run_demo(out: Path, console: Console) -> None:
    """Run the demonstration; the picture needs matplotlib and is left out without it."""
    if out.exists() and not out.is_dir():
        raise ParameterError("is a file, not a folder", source=out)
    begun = time.perf_counter()
    digits = datasets.mnist_digits()
    n = len(digits.images)
    console.print(f"{n:,} digits of MNIST, 28×28 pixels; PCA to 50 dimensions, whitened")
    X = datasets.whitened(digits.images)
    family = families.Gaussian(prior_mean=0.0, prior_variance=0.1, noise_variance=1.0)
    console.print("Loading the kernels; the first run compiles them, which takes a while …")
    problem = Problem(X, family, priors.DirichletProcess(alpha=1.0))
    with stages(console) as stage:
        stage.begin("searching")
        # A first pass and a small problem compile or load the kernels before anything is timed.
        search(problem, beam_size=10, callback=stage.callback)
        few = Problem(X[:60], family, problem.prior)
        refine(few, np.arange(60), rng=0)
    result = search(problem, beam_size=10)
    refined = refine(problem, result.labels, seconds=REFINE_SECONDS, rng=0)
    _print_result(console, result, refined, digits.labels)
    _draw(digits.images, refined.labels, out, console)
    console.print(f"The demonstration took {time.perf_counter() - begun:.1f} s.")


def _print_result(console: Console, found: Clustering, result: Clustering, truth: Labels) -> None:
    table = Table(title="Result")
    for heading in ("", "search", "with refinement"):
        table.add_column(heading, justify="right" if heading else "left")
    table.add_row("clusters", str(found.n_clusters), str(result.n_clusters))
    table.add_row("log joint", f"{found.log_joint:,.1f}", f"{result.log_joint:,.1f}")
    table.add_row("seconds", f"{found.seconds:.3f}", f"{found.seconds + result.seconds:.3f}")
    table.add_row("points per second", f"{len(truth) / found.seconds:,.0f}", "")
    console.print(table)
    console.print(f"(The paper's search, in 2007: {PAPER_POINTS_PER_SECOND} points per second.)")
    sizes = Table(title="The largest clusters, after refinement")
    for heading in ("cluster", "points", "mostly", "share"):
        sizes.add_column(heading, justify="right")
    for k, size in enumerate(result.sizes[:SHOWN]):
        counts = np.bincount(truth[result.labels == k], minlength=10)
        share = counts.max() / size
        sizes.add_row(str(k), str(size), f"digit {counts.argmax()}", f"{share:.0%}")
    console.print(sizes)
    if result.n_clusters > SHOWN:
        console.print(f"(and {result.n_clusters - SHOWN} smaller ones)")
    console.print(
        "Each is one Gaussian component of the mixture, and a digit takes several of them."
        " DPMixture and dpsearch fit also say which components belong together."
    )


def _draw(images: Any, labels: Labels, out: Path, console: Console) -> None:
    """Save the mean image of each cluster, largest first."""
    try:
        axis = mean_images(images, labels)
    except ImportError:
        # "[plots]" would be taken for markup.
        console.print(
            "(Install dpsearch[plots] to get a picture of the clusters' mean images.)", markup=False
        )
        return
    axis.set_title("Mean image of each cluster and its number of digits", fontsize=10)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "digits.png"
    save_figure(axis.figure, path, dpi=120)
    console.print(f"Mean images of the clusters: {path}", markup=False, soft_wrap=True)
