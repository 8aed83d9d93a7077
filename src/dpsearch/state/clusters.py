"""The clusters of a partition as rows of statistics, in slots that are reused."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpsearch._jit import inner, kernel, view
from dpsearch._lines import room_in_lines
from dpsearch._types import Ints, Labels, Vector
from dpsearch.items import Core, clear_row, log_marginal
from dpsearch.priors.base import size_step, size_weight


class Clusters(NamedTuple):
    """The current partition.  A label is a slot; the slots in use are `live[:n]`, in no order."""

    pool: Vector
    sizes: Ints  # [slot]; 0 if free
    steps: Vector  # [position in live]: log W(n + 1) − log W(n) at the cluster's size n
    live: Ints
    starts: Ints  # [position in live]: where the slot's row begins
    place: Ints  # [slot]: position in live
    changed: Any  # bool [slot]: since this was last set to False
    labels: Labels


@kernel
def empty_clusters(width: int, labels: Labels, capacity: int) -> Clusters:
    """Return `capacity` slots, none of them in use."""
    slots = np.arange(capacity)
    return Clusters(
        room_in_lines(capacity * width),
        np.zeros(capacity, np.int64),
        np.zeros(capacity),
        slots.copy(),
        slots * width,
        slots.copy(),
        np.ones(capacity, np.bool_),
        labels,
    )


@kernel
def grown(core: Core, old: Clusters) -> Clusters:
    """Return the same clusters with twice as many slots."""
    n = old.sizes.shape[0]
    new = empty_clusters(core.width, old.labels, 2 * n)
    new.pool[: n * core.width] = old.pool
    new.sizes[:n] = old.sizes
    new.steps[:n] = old.steps
    new.live[:n] = old.live
    new.starts[:n] = old.starts
    new.place[:n] = old.place
    new.changed[:n] = old.changed
    return new


@inner
def cluster_value(core, tables, clusters, slot):  # type: ignore[no-untyped-def]
    """Return log W(n) + log H of a cluster."""
    row = view(clusters.pool, slot * core.width, core.width)
    return size_weight(tables, clusters.sizes[slot]) + log_marginal(core, row)


@inner
def open_slot(core, clusters, n_live):  # type: ignore[no-untyped-def]
    """Open an empty cluster in the first free slot, at the end of live; return the slot."""
    slot = clusters.live[n_live]  # free slots follow the ones in use
    clear_row(core, view(clusters.pool, slot * core.width, core.width))
    clusters.sizes[slot] = 0
    clusters.starts[n_live] = slot * core.width
    clusters.place[slot] = n_live
    return slot


@inner
def set_size(tables, clusters, at, size):  # type: ignore[no-untyped-def]
    """Set the size of the cluster at a position in live."""
    clusters.sizes[clusters.live[at]] = size
    clusters.steps[at] = size_step(tables, size)


@inner
def drop(clusters, last, at):  # type: ignore[no-untyped-def]
    """Remove the empty cluster at a position of live, and move the last entry there."""
    slot = clusters.live[at]
    other = clusters.live[last]
    clusters.live[at] = other
    clusters.live[last] = slot
    clusters.place[other] = at
    # The dropped slot is now the first free one; its place must say so for the next drop.
    clusters.place[slot] = last
    clusters.starts[at] = clusters.starts[last]
    clusters.steps[at] = clusters.steps[last]
