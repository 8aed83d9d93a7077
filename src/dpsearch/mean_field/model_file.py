"""Files of variational mixtures: archives of plain numbers and a JSON text, without code."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from dpsearch._archive import opened_archive, require, write_archive
from dpsearch.errors import DataError
from dpsearch.families import FAMILIES
from dpsearch.families.restored import restored_rows
from dpsearch.mixture import Mixture
from dpsearch.priors import PRIORS
from dpsearch.problem import Clustering

FORMAT, VERSION = "dpsearch-variational", 1
_NUMBERS = ("lower_bound", "alpha", "log_joint", "seconds")


def write(path: str | Path, found: Any, mixture: Mixture) -> None:
    """Write a fitted mixture.  An existing file is replaced only when the new one is complete."""
    labels = found.clustering.labels
    if not isinstance(labels, np.ndarray):
        raise DataError("the labels are on a Dask cluster, so the model cannot be saved to a file")
    about = {
        "format": FORMAT, "version": VERSION,
        "family": FAMILIES.described(mixture.model.family),
        "prior": PRIORS.described(mixture.prior),
        "n_features": mixture.model.n_features,
        "lower_bound": found.lower_bound,
        "alpha": None if math.isnan(found.alpha) else found.alpha,
        "log_joint": found.clustering.log_joint,
        "converged": found.converged,
        "seconds": found.seconds,
    }  # fmt: skip
    weights = np.append(mixture.log_weights, mixture.log_fresh_weight)
    write_archive(path, about, {
        "pool": mixture.pool, "counts": mixture.sizes, "log_weights": weights,
        "sizes": found.sizes, "history": found.history, "labels": labels,
    })  # fmt: skip


def read(path: Path) -> tuple[dict[str, Any], Mixture, Clustering]:
    """Return the fields of a mixture, its components, and its partition."""
    what = "a dpsearch variational mixture"
    with opened_archive(path, FORMAT, VERSION, what) as (about, arrays):
        return _read(about, arrays)


def _read(about: dict[str, Any], arrays: dict[str, Any]) -> tuple[dict[str, Any], Mixture, Any]:
    about["alpha"] = math.nan if about["alpha"] is None else about["alpha"]
    numbers = {name: float(about[name]) for name in _NUMBERS}
    family, n_features = FAMILIES.from_dict(about["family"]), about["n_features"]
    whole = type(n_features) is int and 1 <= n_features <= arrays["pool"].size
    require(whole, f"n_features is {n_features!r}")
    n = len(arrays["counts"])
    shapes = {"pool": (n * family.width(n_features),), "log_weights": (n + 1,), "sizes": (n,),
              "history": (len(arrays["history"]),)}  # fmt: skip
    for name, shape in shapes.items():
        found = arrays[name]
        fits = found.shape == shape and found.dtype == np.float64 and np.isfinite(found).all()
        require(fits, f"{name} is not {shape} finite numbers")
    counts, labels, log_weights = arrays["counts"], arrays["labels"], arrays["log_weights"]
    integers = all(a.ndim == 1 and a.dtype == np.int64 and len(a) for a in (counts, labels))
    require(integers and counts.min() > 0, "counts or labels have the wrong type")
    require(math.isclose(np.exp(log_weights).sum(), 1.0, rel_tol=1e-6), "weights do not add up")
    model = family.compile_empty(n_features)
    pool = restored_rows(model, np.ascontiguousarray(arrays["pool"]), counts)
    mixture = Mixture(model, pool, counts, PRIORS.from_dict(about["prior"]))
    mixture.log_weights, mixture.log_fresh_weight = log_weights[:-1], float(log_weights[-1])
    clustering = Clustering(labels, numbers.pop("log_joint"))
    fields = numbers | {"sizes": arrays["sizes"], "history": arrays["history"],
                        "weights": np.exp(log_weights[:-1]),
                        "converged": bool(about["converged"])}  # fmt: skip
    return fields, mixture, clustering
