"""Shards that fail, for workers of a Dask cluster to import."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpsearch.errors import DataError


@dataclass(frozen=True)
class Deadly:
    """A shard that kills the worker that loads it, once, if a file says so."""

    shard: object
    flag: Path

    @property
    def n_rows(self):
        return self.shard.n_rows

    def load(self):
        try:
            self.flag.unlink()
        except FileNotFoundError:
            return self.shard.load()
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Unreachable:
    """A shard on another machine, which does not answer."""

    log: Path
    n_rows: int = 100

    def load(self):
        with self.log.open("a") as stream:
            stream.write("asked\n")
        raise ConnectionError("no answer from the data base")


@dataclass(frozen=True)
class Large:
    """A shard that needs more memory than there is, and keeps it."""

    n_bytes: int
    n_rows: int = 100

    def load(self):
        held = np.ones(self.n_bytes // 8)
        time.sleep(30)
        return held[: self.n_rows, None]


@dataclass(frozen=True)
class ParquetShard:
    """A Parquet file."""

    path: Path
    n_rows: int

    def load(self):
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(self.path)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self.path}: cannot be read: {error}") from error
        return np.column_stack([table[name].to_numpy() for name in table.column_names])
