"""Model files: NumPy archives of plain numbers and one JSON text.  They can hold no code.

Entries: ``about`` (JSON as bytes: format, version, family, prior, parameters, what was found),
``pool`` and ``sizes`` (the clusters' statistics), ``labels``, and ``weights`` if rows had any.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from dpsearch import families, priors
from dpsearch._archive import read_archive, write_archive
from dpsearch.errors import DataError, ModelFileError
from dpsearch.mixture import Mixture
from dpsearch.problem import Clustering
from dpsearch.tables import Schema
from dpsearch.weights import check_weights

FORMAT = "dpsearch-model"
VERSION = 1


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, int, float, bool, type(None), np.generic))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


_MANY_FEATURES = 2**20


def save(estimator: Any, path: str | Path) -> None:
    """Write a fitted `DPMixture`."""
    mixture: Mixture = estimator._mixture
    parameters = estimator.get_params(deep=False)
    names = getattr(estimator, "feature_names_in_", None)
    about = {
        "format": FORMAT,
        "version": VERSION,
        "family": mixture.model.family.to_dict(),
        "prior": mixture.prior.to_dict(),
        "n_features": mixture.model.n_features,
        "feature_names": None if names is None else [str(name) for name in names],
        "index": getattr(estimator, "index_name_", None),  # column that named the rows of a file
        "schema": None if estimator.schema_ is None else estimator.schema_.to_dict(),
        "reason": estimator.reason_,
        # Objects are not parameters that a file can hold; what they became is stored above.
        "parameters": {k: _plain(v) for k, v in parameters.items() if _is_plain(v)},
        "log_joint": estimator.log_joint_,
        "seconds": estimator.clustering_.seconds,
        "upper_bound": _finite(estimator.clustering_.upper_bound),
        "optimal": estimator.clustering_.optimal,
        # After partial_fit labels are those of the last batch, the clusters' sizes of all.
        "last_batch": hasattr(estimator, "_stream"),
    }
    if estimator.labels_ is None:
        raise DataError("the labels stayed on a Dask cluster when the model was pickled: no file")
    arrays = {"pool": mixture.pool, "sizes": mixture.sizes, "labels": estimator.labels_}
    if estimator.sample_weight_ is not None:
        arrays["weights"] = estimator.sample_weight_
    write_archive(path, about, arrays)


def load(path: str | Path) -> Any:
    """Read a model that `DPMixture.save` wrote.

    Its family and prior are found by name: those of dpsearch, those of installed packages, and
    your own after `families.register` or `priors.register`.  Nothing else is ever imported.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    DPMixture
    """
    from dpsearch.estimator import DPMixture

    about, arrays = read_archive(Path(path), FORMAT, VERSION, "a dpsearch model")
    try:
        family = families.from_dict(about["family"])
        prior = priors.from_dict(about["prior"])
        # Before anything is made that is as large as the file says.
        n_features = about["n_features"]
        most = max(_MANY_FEATURES, arrays["pool"].size)
        if not _is_whole(n_features) or not 1 <= n_features <= most:
            raise ModelFileError(f"n_features is {n_features!r}", source=path)
        pool, sizes, labels, weights = _checked(
            Path(path), arrays, family.width(n_features), bool(about.get("last_batch", False))
        )
        model = family.compile_empty(n_features)
        model.check_rows(pool, sizes)
        known = DPMixture().get_params(deep=False)
        given = {k: v for k, v in dict(about["parameters"]).items() if k in known}
        estimator = DPMixture(**given)
        if "family" not in given:
            estimator.set_params(family=family)
        if "alpha" not in given:
            estimator.set_params(alpha=prior)
        estimator._set_mixture(Mixture(model, pool, sizes, prior))
        estimator.labels_ = labels
        estimator.sample_weight_ = weights
        estimator.log_joint_ = float(about["log_joint"])
        if not math.isfinite(estimator.log_joint_):
            raise ModelFileError(f"log_joint is {estimator.log_joint_}", source=path)
        upper = about.get("upper_bound")
        estimator.clustering_ = Clustering(
            labels,
            estimator.log_joint_,
            upper_bound=math.inf if upper is None else float(upper),
            optimal=bool(about.get("optimal", False)),
            seconds=float(about["seconds"]),
            weights=weights,
        )
        estimator.reason_ = str(about.get("reason", "as in the file"))
        schema = about.get("schema")  # not in the files of earlier versions
        estimator.completed_ = None
        estimator.schema_ = None if schema is None else Schema.from_dict(schema)
        if estimator.schema_ is not None and len(estimator.schema_.columns) != n_features:
            raise ModelFileError(f"the schema has not {n_features} columns", source=path)
        index = about.get("index")
        if index is not None:
            if not isinstance(index, str):
                raise ModelFileError(f"index is {index!r}, not a name", source=path)
            estimator.index_name_ = index
        names = about["feature_names"]
        if names is not None:
            if not isinstance(names, list) or len(names) != n_features:
                raise ModelFileError(f"feature_names are not {n_features} names", source=path)
            estimator.feature_names_in_ = np.array([str(name) for name in names], dtype=object)
    except ModelFileError:
        raise
    except Exception as error:  # whatever else a value out of its range brings about
        raise ModelFileError(f"not a valid model: {error}", source=path) from error
    return estimator


def _checked(path: Path, arrays: dict[str, Any], width: int, last_batch: bool) -> tuple[Any, ...]:
    """Return pool, sizes, labels and weights if they fit together; kernels index by them."""
    missing = {"pool", "sizes", "labels"} - set(arrays)
    if missing:
        raise ModelFileError(f"the entry {min(missing)} is missing", source=path)
    pool, sizes, labels = arrays["pool"], arrays["sizes"], arrays["labels"]
    whole = all(a.ndim == 1 and a.dtype == np.int64 and len(a) > 0 for a in (sizes, labels))
    if not whole or pool.ndim != 1 or pool.dtype != np.float64:
        raise ModelFileError("pool, sizes or labels have the wrong type", source=path)
    if len(pool) != len(sizes) * width:
        raise ModelFileError(
            f"pool has {len(pool)} numbers, not {len(sizes)} × {width}", source=path
        )
    if not np.isfinite(pool).all():
        raise ModelFileError("pool holds numbers that are not finite", source=path)
    inside = labels.min() >= 0 and labels.max() < len(sizes) and sizes.min() > 0
    weights = (
        check_weights(arrays["weights"], len(labels), "weights") if "weights" in arrays else None
    )
    counts = np.bincount(labels, weights, minlength=len(sizes)) if inside else sizes
    if not inside or not ((counts <= sizes) if last_batch else (counts == sizes)).all():
        raise ModelFileError("labels do not agree with the clusters' sizes", source=path)
    return np.ascontiguousarray(pool), np.ascontiguousarray(sizes), labels, weights


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
