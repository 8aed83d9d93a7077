"""Checkpoints of a fit in shards: the clusters after the best round so far.

They are rows of statistics, kilobytes for any number of rows.  Labels are not among them: a
run that goes on from a checkpoint first places all rows among its clusters, as one that begins
does among those of a sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpsearch._archive import CheckpointFile
from dpsearch.families import FAMILIES
from dpsearch.families.base import Family, Model
from dpsearch.families.restored import restored_rows
from dpsearch.items import Rows
from dpsearch.priors.base import Prior
from dpsearch.scale.source import Look, Shard
from dpsearch.tables import Schema


class Resumed(NamedTuple):
    """Where a run goes on."""

    model: Model
    clusters: Rows
    reason: str  # for the family
    n_rounds: int
    log_joint: float


class Checkpoint:
    """The file of one run."""

    def __init__(
        self,
        path: str | Path,
        shards: Sequence[Shard],
        family: Any,
        prior: Prior,
        schema: Schema | None,
        looks: Sequence[Look],
    ) -> None:
        same = {
            "number of rows": sum(shard.n_rows for shard in shards),
            "family": family.to_dict() if isinstance(family, Family) else family,
            "prior": prior.to_dict(),
            "columns": None if schema is None else schema.to_dict(),
            "data": f"{sum(one.digest for one in looks) % 2**64:016x}",
        }
        what = "a checkpoint of a fit in shards"
        self.file = CheckpointFile(path, "dpsearch-shards", 2, what, same)
        self.path = self.file.path
        self.family = family
        self.n_rounds = 0

    def write(self, model: Model, clusters: Rows, log_joint: float, reason: str) -> None:
        n_rounds = self.n_rounds + 1
        about = {
            "chosen": model.family.to_dict(),
            "reason": reason,
            "n_features": model.n_features,
            "n_rounds": n_rounds,
            "log_joint": log_joint,
        }
        if self.file.write(about, clusters._asdict()):
            self.n_rounds = n_rounds

    def read(self) -> Resumed | None:
        """Return where an earlier run stopped, None if there was none."""
        if not self.path.exists():
            return None
        with self.file.read() as (about, arrays):
            extra = None
            if isinstance(self.family, Family):
                extra = {self.family.name: type(self.family)}
            family = FAMILIES.from_dict(about["chosen"], extra)
            model = family.compile_empty(int(about["n_features"]))
            clusters = _checked(Rows(*(arrays[name] for name in Rows._fields)), model)
            self.n_rounds = int(about["n_rounds"])
            return Resumed(
                model, clusters, str(about["reason"]), self.n_rounds, float(about["log_joint"])
            )


def _checked(clusters: Rows, model: Model) -> Rows:
    """The clusters, if kernels can work on them."""
    pool, sizes = clusters
    whole = sizes.ndim == 1 and sizes.dtype == np.int64 and len(sizes) > 0 and sizes.min() > 0
    if not whole or pool.dtype != np.float64 or pool.shape != (len(sizes) * model.core.width,):
        raise ValueError("pool and sizes do not go together")
    return Rows(restored_rows(model, pool, sizes), np.ascontiguousarray(sizes))
