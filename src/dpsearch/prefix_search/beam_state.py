"""The state of a beam search: hypotheses, the cluster rows that they share, and member lists."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsearch._records import zeros
from dpsearch._types import Ints, Ints32, Matrix, Vector
from dpsearch.dots import BLOCK
from dpsearch.priors.completion import Completion, completion_room

Naturals = NDArray[np.uint32]  # unsigned, which spares Numba's test for negative indices


class Hypotheses(NamedTuple):
    """The beam.  Entry h has `counts[h]` clusters, whose rows are `rows[h, :counts[h]]`.

    The rest of `rows[h]` is 0, an unused row whose gain is −∞.  Loops can then take the same number
    of steps for every hypothesis, which branch prediction rewards.
    """

    rows: Naturals  # [beam, capacity]
    counts: Ints
    scores: Vector  # by which hypotheses are ranked
    placed: Vector  # scores without the prior's completion; for AntoniakCounts only


class Rows(NamedTuple):
    """Cluster statistics that hypotheses share, with a reference count for each row.

    The row that was freed last is the first to be reused.  This keeps the rows in use close
    together, as loops go through all rows up to the highest one in the order of memory.
    """

    pool: Vector
    sizes: Ints
    steps: Vector  # log W(n + 1) − log W(n) at the row's size n; 0 for AntoniakCounts
    users: Ints  # number of hypotheses that have the row
    members: Ints  # last node of the list of members
    free: Naturals  # a stack of the rows that are not in use
    gains: Vector  # score of the current item in this row, −∞ if it is free
    added: Ints  # number of new hypotheses that add the current item to this row
    successor: Naturals  # the row with the current item added


class Nodes(NamedTuple):
    """Linked lists of items that share common beginnings; `before` is always a smaller index."""

    before: Ints32  # −1 at the beginning of a list
    item: Ints32


class Room(NamedTuple):
    """Working space for the scores of one item and for the successors that place it."""

    starts: Ints  # where each row begins
    # For families with the block capability:
    points: Matrix  # the next items,
    products: Matrix  # [items, rows]: their inner products with each row,
    gram: Matrix  # and with each other
    out: Vector
    row: Vector
    parents: Naturals
    choices: Naturals
    scores: Vector
    children: Ints
    slots: Naturals
    best: Vector  # for each hypothesis: score of its best successor,
    second: Vector  # of the second best,
    at: Ints  # and which is the best; later the rows that change
    values: Vector  # of successors, hypothesis by hypothesis; for AntoniakCounts and particles
    sizes: Ints
    completion: Completion  # for AntoniakCounts


class Counts(NamedTuple):
    """How much of each array is in use."""

    hypotheses: int
    widest: int  # largest number of clusters that a hypothesis has had
    highest: int  # no row above this one is in use
    free_rows: int
    nodes: int


def new_rows(width: int, capacity: int) -> Rows:
    rows = zeros(Rows, capacity, pool=capacity * width)
    rows.free[:] = np.arange(capacity)[::-1]  # row 0, at the end, stays unused
    rows.gains[0] = -np.inf
    return rows


def new_room(hypotheses: Hypotheses, rows: Rows, width: int, n_points: int) -> Room:
    beam_size, capacity = hypotheses.rows.shape
    all_rows, successors = len(rows.sizes), beam_size * capacity
    room = zeros(
        Room, beam_size, starts=all_rows, points=(BLOCK, width), products=(BLOCK, all_rows),
        gram=(BLOCK, BLOCK), out=all_rows, row=width, parents=successors, choices=successors,
        scores=successors, values=successors, sizes=capacity, completion=completion_room(n_points),
    )  # fmt: skip
    room.starts[:] = np.arange(all_rows) * width
    return room
