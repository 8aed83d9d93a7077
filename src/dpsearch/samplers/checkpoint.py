"""Checkpoints: files with chains between two legs, from which another process continues them."""

from __future__ import annotations

import hashlib
import numbers
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpsearch._archive import CheckpointFile
from dpsearch._clock import clock
from dpsearch.errors import ModelFileError
from dpsearch.problem import Problem
from dpsearch.samplers.chain import Chain
from dpsearch.samplers.moves import Move
from dpsearch.samplers.options import RunOptions


def _fingerprint(problem: Problem) -> str:
    """Return a digest of the data as the family encodes them."""
    items = problem.items
    digest = hashlib.sha256(f"{problem.model.n_features} {items.blocks}".encode())
    for array in (items.values, items.ids, items.indptr, items.sizes):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


class Checkpoint:
    """The checkpoint file of one run."""

    def __init__(
        self, path: Path, problem: Problem, sampler: str, moves: Sequence[Move], how: RunOptions
    ) -> None:
        self.seconds = 0.0  # spent by earlier processes
        self._begun = clock()
        self.path, self.problem, self.moves, self.how = path, problem, moves, how
        same = {
            "data": _fingerprint(problem),
            "family": problem.model.family.to_dict(),
            "prior": problem.prior.to_dict(),
            "seed": int(how.rng) if isinstance(how.rng, numbers.Integral) else None,
            "sampler": sampler,
            **how.described(),
            "schedule of moves": [move.described() for move in moves],
        }
        self.file = CheckpointFile(path, "dpsearch-checkpoint", 2, "a dpsearch checkpoint", same)

    def write(self, chains: list[Chain]) -> None:
        arrays: dict[str, Any] = {}
        states = []
        for c, chain in enumerate(chains):
            arrays[f"{c}_now"] = chain.labels
            if chain.n_sweeps:
                arrays |= {f"{c}_{name}": chain.recorded(name) for name in chain.records}
            states.append(
                {
                    "n_sweeps": chain.n_sweeps,
                    "alpha": chain.alpha,
                    "steps": [step.state.tolist() for step in chain.steps],
                    "random": chain.rng.bit_generator.state,
                }
            )
        seconds = self.seconds + clock() - self._begun
        self.file.write({"seconds": seconds, "chains": states}, arrays)

    def read(self) -> list[Chain]:
        """Return the chains as an earlier process of the same run left them."""
        with self.file.read() as (about, arrays):
            if len(about["chains"]) != self.how.chains:
                raise ModelFileError(f"the checkpoint holds {len(about['chains'])} chains")
            self.seconds = float(about["seconds"])
            return [self._chain(c, state, arrays) for c, state in enumerate(about["chains"])]

    def _chain(self, c: int, state: dict[str, Any], arrays: dict[str, Any]) -> Chain:
        rng = np.random.Generator(np.random.PCG64())
        rng.bit_generator.state = state["random"]
        now = np.asarray(arrays[f"{c}_now"], dtype=np.int64)
        if now.shape != (self.problem.n_items,):
            raise ModelFileError(f"chain {c} has {now.size} labels")
        chain = Chain(self.problem, now, self.moves, rng)
        chain.n_sweeps = int(state["n_sweeps"])
        if chain.n_sweeps > self.how.draws:
            raise ModelFileError(
                f"the checkpoint has {chain.n_sweeps} draws already, more than {self.how.draws}"
            )
        chain.alpha = float(state["alpha"])
        for step, saved in zip(chain.steps, state["steps"], strict=True):
            step.state[:] = saved
        if chain.n_sweeps:
            n_kept = int(self.how.kept()[: chain.n_sweeps].sum())
            for name, parts in chain.records.items():
                values = arrays[f"{c}_{name}"]
                shape = (n_kept, len(now)) if name == "labels" else (chain.n_sweeps,)
                if values.shape[: len(shape)] != shape:
                    raise ModelFileError(f"chain {c} has lost part of its {name}")
                parts.append(values)
        return chain
