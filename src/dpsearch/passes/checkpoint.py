"""Checkpoints of a fit by passes: the best clusters so far.

They are totals of features, kilobytes for any number of rows.  Labels are not among them: a run
that goes on from a checkpoint gives all rows to the best of its clusters, as one that begins does
with those of a sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dpsearch._archive import CheckpointFile
from dpsearch.families import FAMILIES
from dpsearch.families.base import Family
from dpsearch.fitting import FitOptions
from dpsearch.passes.chunk import Totals
from dpsearch.passes.rows import Encoding
from dpsearch.sources.shards import Shard, Survey
from dpsearch.tables import Schema


class Resumed(NamedTuple):
    """Where a run goes on."""

    encoding: Encoding
    clusters: Totals
    reason: str  # for the family
    log_joint: float


class Checkpoint:
    """The file of one run."""

    def __init__(
        self,
        path: str | Path,
        shards: Sequence[Shard],
        options: FitOptions,
        schema: Schema | None,
        surveys: Sequence[Survey],
    ) -> None:
        family, codes = options.family, options.missing_codes
        if not isinstance(codes, str | None):
            codes = [float(code) for code in codes]
        same = {
            "number of rows": sum(shard.n_rows for shard in shards),
            "family": family.to_dict() if isinstance(family, Family) else family,
            "prior": options.prior.to_dict(),
            "missing_codes": codes,
            "columns": None if schema is None else schema.to_dict(),
            "data": f"{sum(one.digest for one in surveys) % 2**64:016x}",
        }
        what = "a checkpoint of a fit"
        self.file = CheckpointFile(path, "dpsearch-shards", 4, what, same)
        self.path = self.file.path
        self.family = family
        self.n_written = 0

    def write(self, encoding: Encoding, clusters: Totals, log_joint: float, reason: str) -> None:
        about = {
            "chosen": encoding.family.to_dict(),
            "reason": reason,
            "n_features": encoding.n_features,
            "codes": encoding.codes,
            "n_written": self.n_written + 1,
            "log_joint": log_joint,
        }
        if self.file.write(about, clusters._asdict()):
            self.n_written += 1

    def read(self) -> Resumed | None:
        """Return where an earlier run stopped, None if there was none."""
        if not self.path.exists():
            return None
        with self.file.read() as (about, arrays):
            extra = None
            if isinstance(self.family, Family):
                extra = {self.family.name: type(self.family)}
            family = FAMILIES.from_dict(about["chosen"], extra)
            codes = tuple((int(j), float(value)) for j, value in about["codes"])
            encoding = Encoding(family, int(about["n_features"]), codes)
            clusters = Totals(*(arrays[name] for name in Totals._fields))
            _check(clusters, encoding.form().n_totals)
            self.n_written = int(about["n_written"])
            return Resumed(encoding, clusters, str(about["reason"]), float(about["log_joint"]))


def _check(clusters: Totals, n_totals: int) -> None:
    """Raise unless these can be clusters."""
    sizes, sums = clusters
    right = sizes.ndim == 1 and len(sizes) > 0 and sums.shape == (len(sizes), n_totals)
    if not right or sizes.dtype != np.float64 or sums.dtype != np.float64:
        raise ValueError("sizes and sums do not go together")
    if not (np.isfinite(sums).all() and np.isfinite(sizes).all() and sizes.min() > 0):
        raise ValueError("sizes and sums are out of range")
