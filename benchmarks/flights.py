"""The flights that benchmarks use: minute of the day, delay, distance and both airports' places."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpsearch import families


class Flights(NamedTuple):
    X: Any
    family: families.FullGaussian
    log_joint_of_one_cluster: float


def flights(folder: Path) -> Any:
    """Return three million flights in seven columns, not standardised."""
    with np.load(folder / "flights3m.npz") as z:
        ends = [z[name][z["route"]] for name in ("route_origin", "route_dest")]
        places = [z[name][end] for end in ends for name in ("airport_lat", "airport_lon")]
        minute = np.cumsum(z["minute_delta"].astype(np.int64)) % 1440
        distance = z["route_distance_mi"][z["route"]]
        return np.column_stack([minute, z["delay_min"], distance, *places]).astype(np.float64)


def some_flights(folder: Path) -> Flights:
    """Return 300,000 standardised flights, and the family under which results are known."""
    X = flights(folder)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    X = X[np.random.default_rng(0).permutation(len(X))[:300_000]]
    known = json.loads((folder / "flights300k.json").read_text(encoding="utf-8"))
    given = {name: value for name, value in known["family"].items() if name != "name"}
    return Flights(X, families.FullGaussian(**given), known["log_joint_one_cluster"])
