"""Families and priors from outside the package: registered for a while, or installed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from dpsearch.families import FAMILIES
from dpsearch.priors import PRIORS

MODULE = '''
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import gammaln, logsumexp

from dpsearch.families import Bernoulli
from dpsearch.priors import Prior


@dataclass(frozen=True)
class Coins(Bernoulli):
    name: ClassVar[str] = "coins"


@dataclass(frozen=True)
class FiniteMixture(Prior):
    """Mixtures of a random number of components: one and a Poisson number more."""

    weight: float = 1.0

    name: ClassVar[str] = "finite_mixture"

    def log_v(self, n_points, most_clusters=None):
        most_clusters = n_points if most_clusters is None else most_clusters
        m = np.arange(1.0, most_clusters + 200.0)
        log_p = -1.0 - gammaln(m) + gammaln(self.weight * m) - gammaln(self.weight * m + n_points)
        out = [0.0]
        for k in range(1, most_clusters + 1):
            ways = gammaln(m[k - 1 :] + 1.0) - gammaln(m[k - 1 :] - k + 1.0)
            out.append(logsumexp(ways + log_p[k - 1 :]))
        return np.array(out)

    def log_w(self, sizes):
        return gammaln(sizes + self.weight) - gammaln(self.weight)
'''


@contextlib.contextmanager
def as_registered_before() -> Iterator[None]:
    """Unregister at the end what was registered meanwhile."""
    before = {registry: set(registry.classes) for registry in (FAMILIES, PRIORS)}
    try:
        yield
    finally:
        for registry, names in before.items():
            for name in set(registry.classes) - names:
                registry.unregister(name)


@contextlib.contextmanager
def installed(folder: Path, module: str, entry_points: str, code: str = MODULE) -> Iterator[None]:
    """Write a distribution into a folder, as an installer would, and make it importable."""
    (folder / f"{module}.py").write_text(code, encoding="utf-8")
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    about = f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n"
    (info / "METADATA").write_text(about, encoding="utf-8")
    (info / "entry_points.txt").write_text(entry_points, encoding="utf-8")
    sys.path.insert(0, str(folder))
    try:
        with as_registered_before():
            yield
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(module, None)
