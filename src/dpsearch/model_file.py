"""Model files: NumPy archives of plain numbers and one JSON text.  They cannot contain code.

Entries: ``about`` (JSON as bytes: format, version, family, prior, parameters, what was found),
``pool`` and ``sizes`` (the components' statistics), ``labels`` (the component of each row),
``groups`` (the cluster of each component), the tree over components, and ``weights`` if rows had
any.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpsearch._archive import opened_archive, require, write_archive
from dpsearch._types import Ints, Labels
from dpsearch.errors import DataError
from dpsearch.families import FAMILIES
from dpsearch.families.restored import restored_rows
from dpsearch.fitted import FittedState
from dpsearch.levels import stored
from dpsearch.mixture import Mixture
from dpsearch.priors import PRIORS
from dpsearch.problem import Clustering
from dpsearch.tables import Codes, Schema, Triage
from dpsearch.weights import check_weights

FORMAT = "dpsearch-model"
VERSION = 1
_MANY_FEATURES = 2**20
_PLAIN = (str, int, float, bool, type(None), np.generic)
_PATHS = ("checkpoint",)  # parameters that name files: no model file decides where a fit writes


def write_model(path: str | Path, state: FittedState, parameters: Mapping[str, Any]) -> None:
    """Write what a fit found, and the parameters of the estimator."""
    mixture, clustering = state.mixture, state.clustering
    upper = clustering.upper_bound
    about = {
        "format": FORMAT,
        "version": VERSION,
        "family": FAMILIES.described(mixture.model.family),
        "prior": PRIORS.described(mixture.prior),
        "n_features": mixture.model.n_features,
        "feature_names": None if state.names is None else list(state.names),
        "index": state.index_name,
        "schema": None if state.schema is None else state.schema.to_dict(),
        "triage": None if state.triage is None else state.triage.to_list(),
        "reason": state.reason,
        # A file cannot hold objects; the family and prior made of them are stored above.
        "parameters": {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in parameters.items()
            if isinstance(value, _PLAIN) and name not in _PATHS
        },
        "log_joint": clustering.log_joint,
        "seconds": clustering.seconds,
        "upper_bound": upper if math.isfinite(upper) else None,
        "optimal": clustering.optimal,
        "converged": clustering.converged,
        "last_batch": state.last_batch,
        "levels": stored.about(state.levels),
        "level_reason": state.level_reason,
        "codes": [list(code) for code in state.codes],
        "cut_short": list(state.cut_short),
        "departure": state.departure,
    }
    if clustering.labels is None:
        text = "the labels stayed on a Dask cluster when the model was pickled"
        raise DataError(f"{text}, so it cannot be saved to a file")
    labels = np.asarray(clustering.labels)
    labels = labels.astype(np.min_scalar_type(labels.max(initial=0)))  # files are not compressed
    arrays = {"pool": mixture.pool, "sizes": mixture.sizes, "labels": labels}
    arrays |= {"groups": mixture.groups, **stored.arrays_of(state.levels)}
    if state.weights is not None:
        arrays["weights"] = state.weights
    write_archive(path, about, arrays)


def read_model(path: Path) -> tuple[FittedState, dict[str, Any]]:
    """Read what `write_model` wrote: what the fit found, and the estimator's parameters."""
    with opened_archive(path, FORMAT, VERSION, "a dpsearch model") as (about, arrays):
        parameters = {k: v for k, v in dict(about["parameters"]).items() if k not in _PATHS}
        return _state(about, arrays), parameters


def _state(about: dict[str, Any], arrays: dict[str, Any]) -> FittedState:
    family = FAMILIES.from_dict(about["family"])
    prior = PRIORS.from_dict(about["prior"])
    # Checked before anything of that size is allocated.
    n_features = about["n_features"]
    most = max(_MANY_FEATURES, arrays["pool"].size)
    is_count = type(n_features) is int and 1 <= n_features <= most
    require(is_count, f"n_features is {n_features!r}")
    index = about["index"]
    require(isinstance(index, str | None), f"index is {index!r}, not a name")
    last_batch = bool(about["last_batch"])
    pool, sizes, labels, weights = _checked(arrays, family.width(n_features), last_batch)
    model = family.compile_empty(n_features)
    pool = restored_rows(model, pool, sizes)
    schema = None if about["schema"] is None else Schema.from_dict(about["schema"])
    fits = schema is None or len(schema.columns) == n_features
    require(fits, f"the schema does not have {n_features} columns")
    groups = stored.check_groups(arrays["groups"], len(sizes))
    levels = stored.levels_of(about["levels"], arrays, sizes)
    return FittedState(
        Mixture(model, pool, sizes, prior, groups),
        _clustering(about, labels, weights),
        str(about["reason"]),
        levels,
        schema,
        _names(about["feature_names"], n_features),
        weights,
        index_name=index,
        last_batch=last_batch,
        level_reason=str(about["level_reason"]),
        codes=_codes(about["codes"], n_features),
        triage=None if about["triage"] is None else Triage.from_list(about["triage"]),
        cut_short=tuple(map(str, about["cut_short"])),
        departure=None if about["departure"] is None else str(about["departure"]),
    )


def _codes(codes: Any, n_features: int) -> Codes:
    found = tuple((column, float(value)) for column, value in codes)
    known = all(type(column) is int and 0 <= column < n_features for column, _ in found)
    require(known, "codes of missing values name columns that do not exist")
    return found


def _clustering(about: dict[str, Any], labels: Any, weights: Any) -> Clustering:
    log_joint, upper = float(about["log_joint"]), about["upper_bound"]
    require(math.isfinite(log_joint), f"log_joint is {log_joint}")
    return Clustering(
        labels,
        log_joint,
        upper_bound=math.inf if upper is None else float(upper),
        optimal=bool(about["optimal"]),
        converged=bool(about["converged"]),
        seconds=float(about["seconds"]),
        weights=weights,
    )


def _names(names: Any, n_features: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    fits = isinstance(names, list) and len(names) == n_features
    require(fits, f"feature_names are not {n_features} names")
    return tuple(str(name) for name in names)


def _checked(arrays: dict[str, Any], width: int, last_batch: bool) -> tuple[Any, ...]:
    """Return pool, sizes, labels and weights if they fit together; kernels index by them."""
    for name in ("groups", "labels", "pool", "sizes"):
        require(name in arrays, f"the entry {name} is missing")
    pool, sizes, labels = arrays["pool"], arrays["sizes"], arrays["labels"]
    labels = labels.astype(np.int64) if labels.dtype.kind == "u" else labels
    integers = all(a.ndim == 1 and a.dtype == np.int64 and len(a) > 0 for a in (sizes, labels))
    numbers = pool.ndim == 1 and pool.dtype == np.float64
    require(integers and numbers, "pool, sizes or labels have the wrong type")
    fits = len(pool) == len(sizes) * width
    require(fits, f"pool has {len(pool)} numbers, not {len(sizes)} × {width}")
    require(np.isfinite(pool).all(), "pool holds numbers that are not finite")
    weights = arrays.get("weights")
    if weights is not None:
        weights = check_weights(weights, len(labels), "weights")
    agree = _agree(labels, weights, sizes, last_batch)
    require(agree, "labels do not agree with the clusters' sizes")
    return np.ascontiguousarray(pool), np.ascontiguousarray(sizes), labels, weights


def _agree(labels: Labels, weights: Ints | None, sizes: Ints, last_batch: bool) -> bool:
    """Whether the sizes are those of the labels; with a last batch they may be larger."""
    if labels.min() < 0 or labels.max() >= len(sizes) or sizes.min() <= 0:
        return False
    counts = np.bincount(labels, weights, minlength=len(sizes))
    return bool(((counts <= sizes) if last_batch else (counts == sizes)).all())
