"""The tools that are compared, with every setting that is not their own default."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import dpsearch
from dpsearch.errors import ParameterError
from studies.peers import environments
from studies.peers.tables import Table

LADDER = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50)
SILHOUETTE_SAMPLE = 5000
# Raise it when a worker does something else with the same settings.
WORKERS_VERSION = 1

_BAYESIAN = {"weight_concentration_prior_type": "dirichlet_process", "max_iter": 1000}
_BNPY = {
    "nLap": 50,
    "nBatch": 5,
    "K": 30,
    "gamma0": 1.0,
    "moves": "merge,delete,shuffle",
}
_BNPY_GAUSS = {"sF": 1.0, "ECovMat": "eye", "initname": "randexamplesbydist"}


@dataclass(frozen=True)
class Tool:
    name: str
    worker: str
    settings: dict[str, Any] = field(default_factory=dict)
    environment: str | None = None  # None: the Python that runs dpsearch
    package: str = ""  # whose version is shown
    form: str = "common"
    kinds: tuple[str, ...] = ("numbers", "counts")
    group: str = "peer"  # or dpsearch, oracle (given the true number of clusters)
    deterministic: bool = False

    def takes(self, table: Table) -> bool:
        return table.kind in self.kinds

    def settings_for(self, n_classes: int) -> dict[str, Any]:
        return {**self.settings, "true_k": n_classes} if self.group == "oracle" else self.settings

    def stamp(self) -> str:
        """What a result depends on beside the settings: the pinned packages, or our sources."""
        if self.environment is None:
            return source_stamp()
        text = f"{WORKERS_VERSION} {environments.requirements(self.environment)}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def version(self) -> str:
        if self.environment is None:
            return dpsearch.__version__
        return environments.version(self.environment, self.package)


@cache
def source_stamp() -> str:
    """A fingerprint of the sources of dpsearch that a fit can depend on."""
    root = Path(dpsearch.__file__).parent
    digest = hashlib.sha256(str(WORKERS_VERSION).encode())
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if name.split("/")[0] not in ("cli", "demo.py"):
            digest.update(name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _scikit(name: str, method: str, *, options: dict[str, Any], **about: Any) -> Tool:
    settings = {"method": method, "options": options, **about.pop("settings", {})}
    return Tool(name, "by_scikit", settings, "scikit", "scikit-learn", **about)


DPSEARCH = Tool(
    "dpsearch",
    "by_dpsearch",
    form="raw",
    kinds=("numbers", "counts", "mixed"),
    group="dpsearch",
)
DPSEARCH_COMMON = Tool("dpsearch, common columns", "by_dpsearch", group="dpsearch")
BGM_FULL = "BayesianGaussianMixture full"
LACE = Tool("pylace", "by_lace", {"updates": 200}, "lace", "pylace")

PEERS: tuple[Tool, ...] = (
    DPSEARCH,
    DPSEARCH_COMMON,
    *(
        _scikit(
            f"BayesianGaussianMixture {shape}",
            "BayesianGaussianMixture",
            options={**_BAYESIAN, "covariance_type": shape},
            settings={"n_components": 50},
        )
        for shape in ("full", "diag", "spherical")
    ),
    *(
        _scikit(
            f"GaussianMixture {shape}, BIC",
            "GaussianMixture, BIC",
            options={"covariance_type": shape},
            settings={"ladder": LADDER},
        )
        for shape in ("full", "diag")
    ),
    _scikit(
        "KMeans, silhouette",
        "KMeans, silhouette",
        options={},
        settings={"ladder": LADDER[1:], "sample": SILHOUETTE_SAMPLE},
    ),
    _scikit("HDBSCAN", "HDBSCAN", options={"min_cluster_size": 15}, deterministic=True),
    Tool("DP-means", "by_dp_means", {}, "dp_means", "pdc-dp-means"),
    Tool("DP-means, δ by χ²", "by_dp_means", {"quantile": 0.999}, "dp_means", "pdc-dp-means"),
    Tool(
        "bnpy diagonal",
        "by_bnpy",
        {"observations": "DiagGauss", "options": {**_BNPY, **_BNPY_GAUSS}},
        "bnpy",
        "bnpy",
    ),
    Tool(
        "bnpy multinomial",
        "by_bnpy",
        {"observations": "Mult", "options": {**_BNPY, "lam": 0.1, "initname": "bregmankmeans"}},
        "bnpy",
        "bnpy",
        form="raw",
        kinds=("counts",),
    ),
    _scikit("KMeans, given K", "KMeans, given", options={}, group="oracle"),
    _scikit(
        "GaussianMixture full, given K",
        "GaussianMixture, given",
        options={"covariance_type": "full"},
        group="oracle",
    ),
)


def chosen(only: Sequence[str] | None, tools: Sequence[Tool]) -> list[Tool]:
    """Those that `only` names: each word must begin the name of at least one, in any case."""
    return list(tools) if only is None else _named(only, tools, "tool")


def chosen_tables(only: Sequence[str] | None, tables: Sequence[Table]) -> list[Table]:
    return list(tables) if only is None else _named(only, tables, "data set")


def _named(only: Sequence[str], things: Sequence[Any], what: str) -> list[Any]:
    for word in only:
        if not any(thing.name.lower().startswith(word.strip().lower()) for thing in things):
            known = "; ".join(thing.name for thing in things)
            raise ParameterError(f"unknown {what} {word!r}: known are {known}")
    return [
        thing
        for thing in things
        if any(thing.name.lower().startswith(word.strip().lower()) for word in only)
    ]
