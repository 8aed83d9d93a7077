"""From components to clusters: the tree, the level where it is cut, and why.

1. Memberships of at most 4,000 rows, each given all the others (`Mixture.log_memberships`), are
   tempered by ζ = 1/4, which doubles the standard deviations of Gaussian components.  The tree of
   their overlaps (`tree`) can be cut where clusters share rows no more often than by chance.
2. If the rows of components that this would merge are as certain of theirs as the mixture predicts
   (`check`), the clusters are the components.  If not, the tree is cut.
3. Fits to two halves of the rows (`halves`) show how well each level is found again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dpsearch._numbers import count
from dpsearch._types import Ints, Labels, Vector
from dpsearch._validate import whole
from dpsearch.deadline import current
from dpsearch.errors import CapabilityError, ParameterError
from dpsearch.items import Items
from dpsearch.levels.check import check_components
from dpsearch.levels.halves import agreements, fit_halves
from dpsearch.levels.overlap import overlap
from dpsearch.levels.tree import Tree, grow
from dpsearch.mixture import Mixture

TEMPER = 0.25
_ROWS = 4000
_LITTLE = 0.5  # agreement of fits to halves below which the reason mentions it
AUTO, COMPONENTS = "auto", "components"


class LevelOptions(NamedTuple):
    """Which level to cut at, checked: `auto`, `components` or a number of clusters."""

    level: str | int = AUTO
    min_size: int = 1

    @classmethod
    def of(cls, level: Any, min_cluster_size: Any) -> LevelOptions:
        """Return the options for these parameters of the estimator."""
        if not (isinstance(level, str) and level in (AUTO, COMPONENTS)):
            try:
                level = whole(level, "level", 1)
            except ParameterError as error:
                raise ParameterError.must(
                    "level", "be 'auto', 'components' or an integer ≥ 1", level
                ) from error
        return cls(level, whole(min_cluster_size, "min_cluster_size", 1))

    def at_most(self, n_components: int) -> LevelOptions:
        """Return the same options, with at most `n_components` clusters."""
        if isinstance(self.level, int) and self.level > n_components:
            return self._replace(level=n_components)
        return self


@dataclass(frozen=True, eq=False)
class Levels:
    """The tree over components, and what is known about its levels."""

    tree: Tree
    merges: bool  # whether components are parts of larger groups, so that the tree is cut
    finding: str  # what was found about the components, in words
    # For 1, 2, …, K clusters, how well fits to halves of the rows find them again; NaN if that was
    # not tried.
    agreement: Vector
    n_clusters_in_halves: tuple[int, ...] = ()

    @property
    def height(self) -> float:
        """The height of the cut for level 'auto': 0, or below all merges."""
        return 0.0 if self.merges else -np.inf

    def with_sizes(self, sizes: Ints) -> Levels:
        """Return the same tree over components that have grown."""
        return replace(self, tree=self.tree.with_sizes(sizes))

    def groups(self, options: LevelOptions) -> Ints:
        """Return the cluster of each component at a level."""
        if isinstance(options.level, int):
            self.tree.require(options.level, "level")
            try:
                return self.tree.cut(options.level, min_size=options.min_size)
            except ParameterError as error:
                raise ParameterError.of(
                    "level",
                    f"is {options.level}, but no cut of the tree has as many clusters"
                    f" of at least {options.min_size} points (min_cluster_size)",
                ) from error
        height = self.height if options.level == AUTO else -np.inf
        return self.tree.cut(height=height, min_size=options.min_size)

    @property
    def n_if_merged(self) -> int:
        """How many clusters remain if all components that overlap are merged."""
        return int(self.tree.cut().max()) + 1

    def advised(self, options: LevelOptions, n_clusters: int) -> int | None:
        """Return `n_if_merged` if it is smaller and fits to halves agree little; else None."""
        little = options.level == AUTO and self.agreement[n_clusters - 1] < _LITTLE
        return self.n_if_merged if little and self.n_if_merged < n_clusters else None

    def reason(self, options: LevelOptions, n_clusters: int) -> str:
        """Return in words what was found, and how it determined the clusters."""
        n = self.tree.n_components
        components, clusters = count(n, "component"), count(n_clusters, "cluster")
        if isinstance(options.level, int):
            text = f"{components}; the tree was cut at {clusters}, as requested"
        elif options.level == COMPONENTS:
            text = f"{components}; each is a cluster, as requested"
        elif n == 1:
            text = components
        elif self.merges:
            text = f"{components}; {self.finding}, so overlapping components were merged into"
            text += f" {clusters}"
        else:
            text = f"{components}; {self.finding}, so each component is a cluster"
            if self.n_if_merged < n:
                text += (
                    f" (merging all that overlap would leave {count(self.n_if_merged, 'cluster')})"
                )
        if options.min_size > 1:
            text += (
                f"; clusters of fewer than {options.min_size} points were merged into the nearest"
            )
        counts = self.n_clusters_in_halves
        if options.level == AUTO and counts:
            low, high = min(counts), max(counts)
            found = count(low, "cluster") if low == high else f"{low} to {high} clusters"
            text += f"; fits to halves of the rows found {found}"
            agreement = float(self.agreement[n_clusters - 1])
            if agreement < _LITTLE:
                text += f", which agree poorly with these (adjusted Rand index {agreement:.2f})"
        return text


def find_levels(
    mixture: Mixture, items: Items | None, labels: Labels, matrix: Any, *, halves: bool = True
) -> Levels:
    """Find the levels of a mixture, given items with its components as labels.

    `matrix` has the rows of the items, each repeated as often as the item's size says.  Without
    items they are its rows, of which few are needed.
    """
    n = mixture.n_components
    if n == 1:
        tree = Tree(np.empty((0, 2), np.int64), np.empty(0), mixture.sizes.copy(),
                    np.zeros((1, 1)), np.zeros(1))  # fmt: skip
        return Levels(tree, False, "", np.ones(1))
    rng = np.random.default_rng(0)
    chosen = _sample(np.ones(len(labels), np.int64) if items is None else items.sizes, rng)
    labels, matrix = labels[chosen], matrix[chosen]
    if items is None:
        items, _ = mixture.model.items(matrix)
    else:
        items = items.take(chosen)._replace(sizes=np.ones(len(chosen), np.int64))
    log_r = mixture.log_memberships(items, labels)
    # Any level may be requested later, so the tree is always that of tempered overlaps.
    tree = grow(overlap(log_r, TEMPER), mixture.sizes)
    groups = tree.cut()
    merges, finding = False, "no two of them share more rows than by chance"
    together = (np.bincount(groups)[groups] > 1)[labels]  # rows of components that would be merged
    if together.any():
        rows = np.flatnonzero(together)
        merges, finding = True, "there was no time to compare rows with draws"
        with current().optional():
            current().check()
            merges, finding = _found(mixture, matrix[rows], labels[rows], log_r[rows], rng)
    agreement: Vector = np.full(n, np.nan)
    counts: tuple[int, ...] = ()
    if halves and len(chosen) >= 4:
        with current().optional():
            current().check()
            found = fit_halves(mixture, items, labels, TEMPER if merges else None, rng)
            agreement, counts = agreements(found, tree), found.n_clusters
    return Levels(tree, merges, finding, agreement, counts)


def _found(mixture: Mixture, matrix: Any, labels: Labels, log_r: Any, rng: Any) -> tuple[bool, str]:
    """Return whether components are parts of larger groups, and in words what was found."""
    try:
        check = check_components(mixture, matrix, labels, log_r, rng)
    except CapabilityError:
        name = mixture.model.family.name
        return False, f"the {name} family cannot draw rows to compare these with"
    return check.fails, check.in_words()


def _sample(sizes: Ints, rng: Any) -> Ints:
    """Return the rows of at most 4,000 points, the same every time."""
    n_points = int(sizes.sum())
    if n_points <= _ROWS:
        return np.repeat(np.arange(len(sizes)), sizes)
    points = np.sort(rng.choice(n_points, size=_ROWS, replace=False))
    return np.searchsorted(np.cumsum(sizes), points, side="right")
