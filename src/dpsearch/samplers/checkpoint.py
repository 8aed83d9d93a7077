"""Checkpoints: chains between two legs, in a file from which another process carries them on."""

from __future__ import annotations

import hashlib
import json
import numbers
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from dpsearch._archive import read_archive, write_archive
from dpsearch.errors import ModelFileError
from dpsearch.problem import Problem
from dpsearch.samplers.chain import Chain, Records
from dpsearch.samplers.settings import Settings, new_chain

FORMAT = "dpsearch-checkpoint"
VERSION = 1
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

    def __init__(self, path: Path, problem: Problem, settings: Settings, rng: Any) -> None:
        from dpsearch import __version__

        if path.is_dir():
            raise ModelFileError(f"{path}: is a folder, not a file for the checkpoint")
        if not path.parent.is_dir():
            raise ModelFileError(f"{path.parent}: no such folder for the checkpoint")
        self.path = path
        self.seconds = 0.0  # spent by earlier processes
        self._begun = time.perf_counter()
        self.problem = problem
        chosen = {name: value for name, value in asdict(settings).items() if name != "draws"}
        seed = int(rng) if isinstance(rng, numbers.Integral) else None
        # What must be the same for the chains to be the same, in words for the message.
        self.same = {
            "version of dpsearch": __version__,
            "data": fingerprint(problem),
            "family": problem.model.family.to_dict(),
            "prior": problem.prior.to_dict(),
            "seed": seed,
            **{name.replace("_", " "): value for name, value in chosen.items()},
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
            sampled = chain.hyperparameters
            factors = [] if sampled is None else sampled.log_factors.tolist()
            states.append(
                {
                    "n_sweeps": chain.n_sweeps,
                    "alpha": chain.alpha,
                    "log_factors": factors,
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

    def read(self, settings: Settings) -> list[Chain]:
        """Return the chains where they were, if they are of this run."""
        about, arrays = read_archive(self.path, FORMAT, VERSION, WHAT)
        try:
            found = dict(about["same"])
            for name, value in self.same.items():
                if found.get(name) != value:
                    raise ModelFileError(self._mismatch(name, found.get(name), value))
            if len(about["chains"]) != settings.chains:
                raise ModelFileError(f"{self.path}: {len(about['chains'])} chains are left")
            self.seconds = float(about["seconds"])
            return [
                self._chain(c, state, arrays, settings) for c, state in enumerate(about["chains"])
            ]
        except ModelFileError:
            raise
        except Exception as error:
            raise ModelFileError(f"{self.path}: damaged checkpoint: {error}") from error

    def _mismatch(self, name: str, found: Any, wanted: Any) -> str:
        if name == "data":
            return f"{self.path}: the checkpoint is of other data"
        return (
            f"{self.path}: the checkpoint has another {name}: {found!r}, this run {wanted!r};"
            " chains can be carried on only as they were begun"
        )

    def _chain(
        self, c: int, state: dict[str, Any], arrays: dict[str, Any], settings: Settings
    ) -> Chain:
        rng = np.random.Generator(np.random.PCG64())
        rng.bit_generator.state = state["random"]
        now = np.asarray(arrays[f"{c}_now"], dtype=np.int64)
        if now.shape != (self.problem.n_items,):
            raise ModelFileError(f"{self.path}: chain {c} has {now.size} labels")
        chain = new_chain(self.problem, settings, now, rng)
        chain.n_sweeps = int(state["n_sweeps"])
        if chain.n_sweeps > settings.draws:
            raise ModelFileError(
                f"{self.path}: the checkpoint has {chain.n_sweeps} draws already, more than"
                f" {settings.draws}"
            )
        chain.alpha = float(state["alpha"])
        if chain.hyperparameters is not None:
            chain.hyperparameters.log_factors[:] = state["log_factors"]
        records = {name: arrays.get(f"{c}_{name}") for name in _RECORDS}
        chain.records = Records(
            **{name: [] if value is None else [value] for name, value in records.items()}
        )
        self._check_records(c, chain, settings)
        return chain

    def _check_records(self, c: int, chain: Chain, settings: Settings) -> None:
        n, sampled = self.problem.n_items, chain.hyperparameters
        wanted: dict[str, tuple[int, ...]] = dict.fromkeys(
            ("log_joint", "n_clusters", "alpha", "accepted"), (chain.n_sweeps,)
        )
        wanted["labels"] = (int(settings.kept()[: chain.n_sweeps].sum()), n)
        if sampled is not None:
            wanted["hyperparameters"] = (chain.n_sweeps, len(sampled.names))
        for name, shape in wanted.items():
            parts = getattr(chain.records, name)
            if chain.n_sweeps and (not parts or parts[0].shape != shape):
                raise ModelFileError(f"{self.path}: chain {c} has lost part of its {name}")
