"""The data of the comparison: rows to fit, fresh rows to predict, and the model of both."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpsearch import datasets, families
from dpsearch.families import Family
from studies.reproduction.data import mnist_or_embedded, paper_documents
from studies.say import say

FRESH = 0.1  # of the rows, which no method sees
PEERS = ("penbased", "optdigits", "wine")


class Set(NamedTuple):
    """A data set under a family."""

    name: str
    load: Callable[[], tuple[Any, Family]]

    def halves(self) -> tuple[Any, Any, Family]:
        """Return the rows to fit, the fresh ones, and the family."""
        X, family = self.load()
        order = np.random.default_rng(1).permutation(X.shape[0])
        n_fresh = max(1, round(FRESH * X.shape[0]))
        return X[order[n_fresh:]], X[order[:n_fresh]], family


def _artificial(n: int, width: int, n_clusters: int) -> tuple[Any, Family]:
    X, _ = datasets.planted_clusters(n, width, n_clusters, rng=0)
    return X, families.Gaussian(0.0, 9.0, 1.0)


@cache
def _whitened(data: Path | None) -> Any:
    return datasets.whitened(mnist_or_embedded(data).images)


def _digits(data: Path | None, share: float) -> tuple[Any, Family]:
    X = _whitened(data)
    rows = np.random.default_rng(0).permutation(len(X))[: round(share * len(X))]
    return X[rows], families.Gaussian(0.0, 0.1, 1.0)


def _flights(data: Path) -> tuple[Any, Family]:
    about = json.loads((data / "flights300k.json").read_text())["family"]
    with np.load(data / "flights3m.npz") as z:
        origin, goal = (z[name][z["route"]] for name in ("route_origin", "route_dest"))
        X = np.column_stack(
            [
                np.cumsum(z["minute_delta"].astype(np.int64)) % 1440,
                z["delay_min"],
                z["route_distance_mi"][z["route"]],
                *(z[name][where] for where in (origin, goal) for name in
                  ("airport_lat", "airport_lon")),
            ]
        ).astype(np.float64)  # fmt: skip
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    rows = np.random.default_rng(0).permutation(len(X))[:300_000]
    fields = {name: value for name, value in about.items() if name != "name"}
    return X[rows], families.FullGaussian(**fields)


def _peer(table: Any) -> tuple[Any, Family]:
    X = table.form("common", 0)["X"]
    return X, families.FullGaussian.suggest(X).learned(X, table.truth(0))


def sets(data: Path | None, quick: bool) -> Iterator[Set]:
    """Yield the available data sets; print which are missing."""
    for n, width, n_clusters in ((500, 2, 6), (5000, 10, 30)):
        name = f"artificial, {n:,}×{width}"
        yield Set(name, partial(_artificial, n, width, n_clusters))
    whole = len(_whitened(data)) > 3000
    for share in (0.05, 0.2, 1.0) if whole else (1.0,):
        name = f"MNIST, {share:.0%}" if whole else "MNIST, 3,000 digits"
        yield Set(name, partial(_digits, data, share))
        if quick:
            return
    documents = paper_documents(data)
    if documents is None:
        say("NIPS left out: give --data FOLDER with nips12.npz")
    else:
        yield Set("NIPS", lambda: (documents.counts, families.Multinomial(10.0)))
    if data is None or not (data / "flights3m.npz").exists():
        say("flights left out: give --data FOLDER with flights3m.npz and flights300k.json")
    else:
        yield Set("flights, 300,000×7", partial(_flights, data))
    from studies.peers.tables import labelled_tables

    for table in labelled_tables(data)[0]:
        if table.name in PEERS:
            yield Set(table.name, partial(_peer, table))
