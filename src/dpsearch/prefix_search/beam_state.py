"""The state of a beam search: hypotheses, the cluster rows that they share, lists of members."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import Ints, Vector
from dpsearch.priors.completion import Completion, completion_room


class Hypotheses(NamedTuple):
    """The beam.  Entry h has `counts[h]` clusters, whose rows are `rows[h, :counts[h]]`.

    The rest of `rows[h]` is 0, an unused row whose gain is −∞: a loop over all
    hypotheses can then take the same number of steps for each, which processors predict.
    """

    rows: Any  # [beam, capacity]; unsigned, which spares the test for indices from the end
    counts: Ints
    scores: Vector  # by which hypotheses are ranked
    placed: Vector  # scores without the prior's completion; for AntoniakCounts only


class Rows(NamedTuple):
    """Cluster statistics, shared between hypotheses and counted by their users."""

    pool: Vector
    sizes: Ints
    steps: Vector  # log W(n + 1) − log W(n) of its size n; 0 for AntoniakCounts
    users: Ints
    members: Ints  # last node of the list of members
    live: Any  # the rows in use, in no order
    free: Any  # a stack of the others
    gains: Vector  # score of the current item in this row
    wanted: Ints  # number of new hypotheses that add the current item to this row
    successor: Any  # the row with the current item added


class Nodes(NamedTuple):
    """Linked lists of items, with common beginnings shared and counted by their users."""

    before: Any  # int32, as all of these
    item: Any
    users: Any
    free: Any


class Room(NamedTuple):
    """Working space: of one item's scores, and of the successors that it gives rise to."""

    starts: Ints
    out: Vector
    row: Vector
    parents: Any  # uint32
    choices: Any  # uint32
    scores: Vector
    children: Ints
    slots: Ints
    best: Vector  # per hypothesis: score of its best successor,
    second: Vector  # of the next best,
    at: Ints  # and which the best is
    values: Vector  # of all successors, hypothesis by hypothesis; for AntoniakCounts and particles
    sizes: Ints
    completion: Completion  # for AntoniakCounts


class Counts(NamedTuple):
    """How much of each structure is in use."""

    hypotheses: int
    widest: int  # largest number of clusters that a hypothesis has had
    live: int
    free_rows: int
    free_nodes: int


def new_rows(width: int, capacity: int) -> Rows:
    rows = Rows(
        pool=np.empty(capacity * width),
        sizes=np.zeros(capacity, np.int64),
        steps=np.zeros(capacity),
        users=np.zeros(capacity, np.int64),
        members=np.zeros(capacity, np.int64),
        live=np.zeros(capacity, np.uint32),
        free=np.arange(capacity, dtype=np.uint32)[::-1].copy(),  # row 0, at the end, stays unused
        gains=np.zeros(capacity),
        wanted=np.zeros(capacity, np.int64),
        successor=np.zeros(capacity, np.uint32),
    )
    rows.gains[0] = -np.inf
    return rows


def new_nodes(capacity: int) -> Nodes:
    return Nodes(
        before=np.zeros(capacity, np.int32),
        item=np.zeros(capacity, np.int32),
        users=np.zeros(capacity, np.int32),
        free=np.arange(capacity, dtype=np.int32)[::-1].copy(),
    )


def new_hypotheses(beam_size: int, capacity: int) -> Hypotheses:
    return Hypotheses(
        rows=np.zeros((beam_size, capacity), np.uint32),
        counts=np.zeros(beam_size, np.int64),
        scores=np.zeros(beam_size),
        placed=np.zeros(beam_size),
    )


def new_room(hypotheses: Hypotheses, rows: Rows, width: int, n_points: int) -> Room:
    beam_size = len(hypotheses.counts)
    return Room(
        starts=np.empty(len(rows.sizes), np.int64),
        out=np.empty(len(rows.sizes)),
        row=np.empty(width),
        parents=np.empty(hypotheses.rows.size, np.uint32),
        choices=np.empty(hypotheses.rows.size, np.uint32),
        scores=np.empty(hypotheses.rows.size),
        children=np.zeros(beam_size, np.int64),
        slots=np.zeros(beam_size, np.uint32),
        best=np.zeros(beam_size),
        second=np.zeros(beam_size),
        at=np.zeros(beam_size, np.int64),
        values=np.empty(hypotheses.rows.size),
        sizes=np.zeros(hypotheses.rows.shape[1], np.int64),
        completion=completion_room(n_points),
    )


def enlarged(old: Any, larger: Any, n_free: int) -> Any:
    """Copy pools into larger ones; what these have in addition joins the stack of free entries."""
    copied(old, larger)
    n, more = len(old.free), len(larger.free) - len(old.free)
    larger.free[n_free : n_free + more] = np.arange(n, n + more)
    return larger


def copied(old: Any, larger: Any) -> Any:
    """Copy arrays into the beginnings of larger ones."""
    for source, target in zip(old, larger, strict=True):
        target[: len(source)] = source
    return larger


def wider(hypotheses: Hypotheses) -> Hypotheses:
    if hypotheses.counts.max() + 1 < hypotheses.rows.shape[1]:
        return hypotheses
    return hypotheses._replace(rows=np.hstack([hypotheses.rows, np.zeros_like(hypotheses.rows)]))
