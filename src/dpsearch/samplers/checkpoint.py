"""Checkpoints: chains between two legs, in a file from which another process carries them on."""

from __future__ import annotations

import hashlib
import json
import numbers
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpsearch._archive import read_archive, write_archive
from dpsearch._version import __version__
from dpsearch.errors import ModelFileError
from dpsearch.problem import Problem
from dpsearch.samplers.chain import Chain, Records
from dpsearch.samplers.moves import Move
from dpsearch.samplers.options import RunOptions

FORMAT = "dpsearch-checkpoint"
VERSION = 2
WHAT = "a dpsearch checkpoint"
_RECORDS = ("labels", "log_joint", "n_clusters", "alpha", "hyperparameters", "accepted")


def fingerprint(problem: Problem) -> str:
    """A digest of the data as the family encodes them."""
    items = problem.items
    digest = hashlib.sha256(f"{problem.model.n_features} {items.blocks}".encode())
    for array in (items.values, items.ids, items.indptr, items.sizes):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


class Checkpoint:
    """The file of one run."""

    def __init__(
        self, path: Path, problem: Problem, sampler: str, moves: Sequence[Move], how: RunOptions
    ) -> None:
        if path.is_dir():
            raise ModelFileError(f"{path}: is a folder, not a file for the checkpoint")
        if not path.parent.is_dir():
            raise ModelFileError(f"{path.parent}: no such folder for the checkpoint")
        self.path = path
        self.seconds = 0.0  # spent by earlier processes
        self._begun = time.perf_counter()
        self.problem, self.moves, self.how = problem, moves, how
        # What must be the same for the chains to be the same, in words for the message.
        self.same = {
            "version of dpsearch": __version__,
            "data": fingerprint(problem),
            "family": problem.model.family.to_dict(),
            "prior": problem.prior.to_dict(),
            "seed": int(how.rng) if isinstance(how.rng, numbers.Integral) else None,
            "sampler": sampler,
            **how.described(),
            "schedule of moves": [move.described() for move in moves],
        }
        self.same = json.loads(json.dumps(self.same))  # tuples become lists, as in the file

    def write(self, chains: list[Chain]) -> None:
        arrays: dict[str, Any] = {}
        states = []
        for c, chain in enumerate(chains):
            arrays[f"{c}_now"] = chain.labels
            for name in _RECORDS:
                parts = getattr(chain.records, name)
                if parts:
                    arrays[f"{c}_{name}"] = np.concatenate(parts)
            states.append(
                {
                    "n_sweeps": chain.n_sweeps,
                    "alpha": chain.alpha,
                    "steps": [step.state.tolist() for step in chain.steps],
                    "random": chain.rng.bit_generator.state,
                }
            )
        about = {
            "format": FORMAT,
            "version": VERSION,
            "same": self.same,
            "seconds": self.seconds + time.perf_counter() - self._begun,
            "chains": states,
        }
        write_archive(self.path, about, arrays)

    def read(self) -> list[Chain]:
        """Return the chains where they were, if they are of this run."""
        about, arrays = read_archive(self.path, FORMAT, VERSION, WHAT)
        try:
            found = dict(about["same"])
            for name, value in self.same.items():
                if found.get(name) != value:
                    raise ModelFileError(self._mismatch(name, found.get(name), value))
            if len(about["chains"]) != self.how.chains:
                raise ModelFileError(f"{self.path}: {len(about['chains'])} chains are left")
            self.seconds = float(about["seconds"])
            return [self._chain(c, state, arrays) for c, state in enumerate(about["chains"])]
        except ModelFileError:
            raise
        except Exception as error:
            raise ModelFileError(f"{self.path}: damaged checkpoint: {error}") from error

    def _mismatch(self, name: str, found: Any, expected: Any) -> str:
        if name == "data":
            return f"{self.path}: the checkpoint is of other data"
        return (
            f"{self.path}: the checkpoint has another {name}: {found!r}, this run {expected!r};"
            " chains can be continued only as they were begun"
        )

    def _chain(self, c: int, state: dict[str, Any], arrays: dict[str, Any]) -> Chain:
        rng = np.random.Generator(np.random.PCG64())
        rng.bit_generator.state = state["random"]
        now = np.asarray(arrays[f"{c}_now"], dtype=np.int64)
        if now.shape != (self.problem.n_items,):
            raise ModelFileError(f"{self.path}: chain {c} has {now.size} labels")
        chain = Chain(self.problem, now, self.moves, rng)
        chain.n_sweeps = int(state["n_sweeps"])
        if chain.n_sweeps > self.how.draws:
            raise ModelFileError(
                f"{self.path}: the checkpoint has {chain.n_sweeps} draws already, more than"
                f" {self.how.draws}"
            )
        chain.alpha = float(state["alpha"])
        for step, carried in zip(chain.steps, state["steps"], strict=True):
            step.state[:] = carried
        records = {name: arrays.get(f"{c}_{name}") for name in _RECORDS}
        chain.records = Records(
            **{name: [] if value is None else [value] for name, value in records.items()}
        )
        self._check_records(c, chain)
        return chain

    def _check_records(self, c: int, chain: Chain) -> None:
        expected: dict[str, tuple[int, ...]] = dict.fromkeys(
            ("log_joint", "n_clusters", "accepted"), (chain.n_sweeps,)
        )
        n_kept = int(self.how.kept()[: chain.n_sweeps].sum())
        expected["labels"] = (n_kept, self.problem.n_items)
        if chain.concentration is not None:
            expected["alpha"] = (chain.n_sweeps,)
        if chain.steps:
            n_values = sum(len(step.names) for step in chain.steps)
            expected["hyperparameters"] = (chain.n_sweeps, n_values)
        for name, shape in expected.items():
            parts = getattr(chain.records, name)
            if chain.n_sweeps and (not parts or parts[0].shape != shape):
                raise ModelFileError(f"{self.path}: chain {c} has lost part of its {name}")
