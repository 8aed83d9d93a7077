"""Directions: planted clusters and embeddings against k-means and HDBSCAN, and a greedy pass.

    python -m benchmarks.directions [--umap PYTHON] [--vectors FILE.npz] [--out FILE.md] [--quick]

Seconds are processor seconds.  Planted clusters have uniform mean directions, sizes from a
Dirichlet(2) draw with at least five rows each, and concentrations between 0.4 and 2.5 times the
number of columns.  Rows are in single precision.  k-means is given the number of clusters and has
ten starts; for the large table one start is timed, and the time of ten starts is taken to be ten
times as long.  HDBSCAN is run on five UMAP coordinates (cosine) of up to 10,000 rows, computed by
an interpreter that has umap-learn; its time in the first table includes compilation.  The kernels
of dpsearch are compiled beforehand.

The file of vectors has an array of rows for each name, and their classes under NAME_y.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score

from dpsearch import DPMixture, families, priors
from dpsearch._types import Labels, Matrix
from dpsearch.families.learning import pooled_variance
from dpsearch.families.von_mises_fisher import draw_directions
from dpsearch.prefix_search.greedy import greedy
from dpsearch.problem import Problem

_UMAP = """
import sys, time
import numpy as np
from umap import UMAP
for path in map(str.strip, sys.stdin):
    begun = time.process_time()
    found = UMAP(n_components=5, metric="cosine", min_dist=0.0).fit_transform(np.load(path))
    np.save(path, found)
    print(time.process_time() - begun, flush=True)
"""


_MOST_ROWS = 2_500  # of a table of embeddings


class Case(NamedTuple):
    n_rows: int
    n_columns: int
    n_clusters: int
    starts: int  # of k-means that are run; ten count


CASES = [Case(5_000, 384, 50, 10), Case(100_000, 768, 500, 1)]


def planted(case: Case, seed: int = 0) -> tuple[Matrix, Labels]:
    rng = np.random.default_rng(seed)
    n, d, k = case[:3]
    sizes = 5 + rng.multinomial(n - 5 * k, rng.dirichlet(np.full(k, 2.0)))
    means = draw_directions(np.tile(np.eye(1, d), (k, 1)), np.zeros(k), rng)
    kappas = d * np.exp(rng.uniform(np.log(0.4), np.log(2.5), size=k))
    labels = rng.permutation(np.repeat(np.arange(k), sizes))
    X = np.empty((n, d), np.float32)
    for begin in range(0, n, 10_000):  # not all in double precision at once
        own = labels[begin : begin + 10_000]
        X[begin : begin + 10_000] = draw_directions(means[own], kappas[own], rng)
    return X, labels


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a function, and its processor time."""
    begun = time.process_time()
    found = function()
    return found, time.process_time() - begun


class Umap:
    """UMAP in a process of an interpreter that has it; the first table includes its compilation."""

    def __init__(self, python: str, most_rows: int) -> None:
        self.most_rows = most_rows
        self.process = subprocess.Popen(
            [python, "-W", "ignore", "-c", _UMAP], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def hdbscan(self, X: Matrix) -> tuple[Labels, float] | None:
        """Return HDBSCAN's labels and the processor time of both; None if UMAP is not there."""
        if len(X) > self.most_rows:
            return None
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "X.npy"
            np.save(path, X)
            try:
                print(path, file=self.process.stdin, flush=True)
            except BrokenPipeError:
                return None
            assert self.process.stdout is not None
            spent = self.process.stdout.readline()
            if not spent:
                return None
            coordinates = np.load(path)
        found, seconds = timed(
            lambda: HDBSCAN(min_cluster_size=15, copy=True).fit_predict(coordinates)
        )
        return np.asarray(found), seconds + float(spent)


def run_case(X: Matrix, truth: Labels, case: Case, umap: Umap) -> list[str]:
    DPMixture().fit(X[:300])  # compiles
    rows = []

    def add(method: str, labels: Labels, seconds: float, note: str = "") -> None:
        ari = adjusted_rand_score(truth, labels)
        ami = adjusted_mutual_info_score(truth, labels)
        count = len(set(labels.tolist()) - {-1})
        rows.append(f"| {method} | {count} | {ari:.3f} | {ami:.3f} | {seconds:.1f} | {note} |")
        print(rows[-1], flush=True)

    model, own = timed(lambda: DPMixture(n_jobs=1).fit(X))
    add("`DPMixture()`", model.labels_, own, model.family_.name)
    k_means = KMeans(case.n_clusters, n_init=case.starts, random_state=0)
    found, seconds = timed(lambda: k_means.fit_predict(X))
    note = f"`DPMixture` takes {own / (seconds * 10 / case.starts):.2f} of the time of ten starts"
    add(f"k-means given K, starts: {case.starts}", found, seconds, note)
    other = umap.hdbscan(X)
    if other is None:
        rows.append("| HDBSCAN on UMAP | | | | | not run |")
    else:
        add("HDBSCAN on UMAP", *other, f"{(other[0] == -1).mean():.0%} noise")
    return rows


def section(title: str, X: Matrix, truth: Labels, case: Case, umap: Umap) -> list[str]:
    print(title, flush=True)
    head = [
        "| method | clusters | ARI | AMI | seconds | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    return [title, "", *head, *run_case(X, truth, case, umap), ""]


def embeddings(path: Path) -> Iterator[tuple[str, Matrix, Labels, Case]]:
    """Return the tables of a file, and parts of each."""
    with np.load(path) as tables:
        for name in [name for name in tables if not name.endswith("_y")]:
            X, truth = tables[name], np.unique(tables[f"{name}_y"], return_inverse=True)[1]
            for n in sorted({300, min(len(X), _MOST_ROWS)}):
                case = Case(n, X.shape[1], len(np.unique(truth[:n])), 10)
                title = f"### {name}, {n:,} × {X.shape[1]}, {case.n_clusters} classes"
                yield title, X[:n], truth[:n], case


def pass_ratio() -> list[str]:
    """Compare a greedy pass with one of isotropic Gaussians with about as many clusters."""
    X, labels = planted(CASES[0])
    X, prior = X.astype(np.float64), priors.DirichletProcess(1.0)
    order, n_columns = np.arange(len(X)), X.shape[1]
    directions = Problem(X, families.VonMisesFisher((0.3 * n_columns, 3.0 * n_columns)), prior)
    n_found = greedy(directions, order).max() + 1
    within, total = float(pooled_variance(X, labels).mean()), float(X.var(axis=0).mean())
    noises = within * np.array([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.7, 2.0])
    gaussians = [Problem(X, families.Gaussian(0.0, total - within, v), prior) for v in noises]
    counts = [int(greedy(one, order).max()) + 1 for one in gaussians]
    at = int(np.abs(np.array(counts) - n_found).argmin())
    pairs = [
        [timed(lambda p=problem: greedy(p, order))[1] for problem in (directions, gaussians[at])]
        for _ in range(15)
    ]
    ours, theirs = np.array(pairs).min(axis=0)
    ratio = ours / theirs
    own = f"{1e3 * ours:.1f} ms with {n_found} clusters"
    return [
        f"One greedy pass over {len(X):,} × {n_columns} takes {own}, and with isotropic Gaussians"
        f" {1e3 * theirs:.1f} ms with {counts[at]} clusters: {ratio:.2f}×"
        f" (≤ 1.3: {'met' if ratio <= 1.3 else 'missed'}).",
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--umap", default=sys.executable, help="an interpreter with umap-learn")
    parser.add_argument("--vectors", type=Path, help="embeddings with classes, as an .npz file")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="of planted tables the small one only")
    arguments = parser.parse_args()
    assert __doc__ is not None
    about = " ".join(__doc__.split("\n\n")[2].split())
    lines = ["# Directions", "", "Written by `python -m benchmarks.directions`.", "", about, ""]
    lines += pass_ratio()
    print(lines[-2], flush=True)

    def write(more: list[str]) -> None:
        lines.extend(more)
        if arguments.out:
            arguments.out.write_text("\n".join(lines), encoding="utf-8")

    umap = Umap(arguments.umap, 10_000)
    for case in CASES[:1] if arguments.quick else CASES:
        title = f"## {case.n_rows:,} × {case.n_columns}, {case.n_clusters} clusters"
        write(section(title, *planted(case), case, umap))
    if arguments.vectors:
        write(["## Real embeddings", ""])
        for title, X, truth, case in embeddings(arguments.vectors):
            write(section(title, X, truth, case, umap))


if __name__ == "__main__":
    main()
