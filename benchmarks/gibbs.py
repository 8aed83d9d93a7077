"""A collapsed Gibbs sampler (Neal 2000, algorithm 3), as a yardstick for refinement.

It draws each item's cluster in proportion to the same gains that a sweep compares.
"""

from __future__ import annotations

import time

import numpy as np

from dpsearch._jit import kernel
from dpsearch._types import Labels
from dpsearch.items import add_item, clear_row, score_item
from dpsearch.objective import Problem
from dpsearch.refinement.state import State
from dpsearch.refinement.sweep import drop, set_size


@kernel
def _sweep(core, items, alone, tables, clusters, n_live, u):  # type: ignore[no-untyped-def]
    """Visit every item once; return (items visited, clusters): fewer when slots run out."""
    capacity = clusters.sizes.shape[0]
    width = core.width
    out = np.empty(capacity)
    scratch = np.empty(width)
    for i in range(u.shape[0]):
        if n_live + 1 > capacity:
            return i, n_live
        size = items.sizes[i]
        slot = clusters.labels[i]
        at = clusters.place[slot]
        add_item(core, items, i, clusters.pool[slot * width : (slot + 1) * width], -1.0)
        set_size(tables, clusters, at, clusters.sizes[slot] - size)
        if clusters.sizes[slot] == 0:
            n_live -= 1
            drop(clusters, n_live, at)
        score_item(core, items, i, clusters.pool, clusters.starts[:n_live], out, scratch)
        top = alone[i] + tables.log_w[size]
        if n_live > 0:
            top += tables.log_v[n_live + 1] - tables.log_v[n_live]
        fresh = top
        for k in range(n_live):
            out[k] += clusters.steps[k]
            top = max(top, out[k])
        total = np.exp(fresh - top)
        for k in range(n_live):
            total += np.exp(out[k] - top)
        left = u[i] * total
        chosen = n_live
        for k in range(n_live):
            left -= np.exp(out[k] - top)
            if left <= 0.0:
                chosen = k
                break
        if chosen == n_live:
            slot = clusters.live[n_live]
            clusters.starts[n_live] = slot * width
            clusters.place[slot] = n_live
            clusters.sizes[slot] = 0
            clear_row(core, clusters.pool[slot * width : (slot + 1) * width])
            n_live += 1
        slot = clusters.live[chosen]
        add_item(core, items, i, clusters.pool[slot * width : (slot + 1) * width], 1.0)
        set_size(tables, clusters, chosen, clusters.sizes[slot] + size)
        clusters.labels[i] = slot
    return u.shape[0], n_live


def best_of_gibbs(
    problem: Problem, labels: Labels, seconds: float, seed: int = 0
) -> tuple[float, int]:
    """Return the best log joint that a chain visits in the given time, and its sweeps."""
    rng = np.random.default_rng(seed)
    state = State(problem, labels)
    best, n_sweeps, begun = state.log_joint, 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        while state.n_live + 64 > len(state.values):
            state._grow()
        done, state.n_live = _sweep(
            problem.model.core, problem.items, problem.alone, problem.tables, state.clusters,
            state.n_live, rng.random(problem.n_items),
        )  # fmt: skip
        if done < problem.n_items:
            state._grow()
        state.refresh()
        n_sweeps += 1
        best = max(best, state.log_joint)
    return best, n_sweeps
