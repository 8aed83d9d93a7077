"""The state of a beam search: hypotheses, the cluster rows that they share, lists of members."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from dpsearch._types import Ints, Matrix, Vector
from dpsearch.dots import BLOCK
from dpsearch.priors.completion import Completion, completion_room

T = TypeVar("T", bound=tuple[Any, ...])
Ints32 = NDArray[np.int32]
Naturals = NDArray[np.uint32]  # which spare the test for indices from the end


class Hypotheses(NamedTuple):
    """The beam.  Entry h has `counts[h]` clusters, whose rows are `rows[h, :counts[h]]`.

    The rest of `rows[h]` is 0, an unused row whose gain is −∞: a loop over all
    hypotheses can then take the same number of steps for each, which processors predict.
    """

    rows: Naturals  # [beam, capacity]
    counts: Ints
    scores: Vector  # by which hypotheses are ranked
    placed: Vector  # scores without the prior's completion; for AntoniakCounts only


class Rows(NamedTuple):
    """Cluster statistics, shared between hypotheses and counted by their users.

    Rows that become free are the first to be taken again, so that those in use lie close together:
    loops go through all rows up to the highest one, in the order of memory.
    """

    pool: Vector
    sizes: Ints
    steps: Vector  # log W(n + 1) − log W(n) of its size n; 0 for AntoniakCounts
    users: Ints
    members: Ints  # last node of the list of members
    free: Naturals  # a stack of the rows that are not in use
    gains: Vector  # score of the current item in this row, −∞ if it is free
    wanted: Ints  # number of new hypotheses that add the current item to this row
    successor: Naturals  # the row with the current item added


class Nodes(NamedTuple):
    """Linked lists of items, with common beginnings shared; a node comes after those before it."""

    before: Ints32
    item: Ints32


class Room(NamedTuple):
    """Working space: of one item's scores, and of the successors that it gives rise to."""

    starts: Ints  # where each row begins
    points: Matrix  # for families with the block capability: the next items,
    products: Matrix  # [items, rows]: their inner products with each row,
    gram: Matrix  # and with each other
    out: Vector
    row: Vector
    parents: Naturals
    choices: Naturals
    scores: Vector
    children: Ints
    slots: Naturals
    best: Vector  # per hypothesis: score of its best successor,
    second: Vector  # of the next best,
    at: Ints  # and which the best is; later the rows that change
    values: Vector  # of successors, hypothesis by hypothesis; for AntoniakCounts and particles
    sizes: Ints
    completion: Completion  # for AntoniakCounts


class Counts(NamedTuple):
    """How much of each structure is in use."""

    hypotheses: int
    widest: int  # largest number of clusters that a hypothesis has had
    highest: int  # no row above this one is in use
    free_rows: int
    nodes: int


def zeros(kind: type[T], size: int, **others: Any) -> T:
    """Return arrays of zeros of the types that the fields of a NamedTuple are annotated with.

    All have this length but `others`: their lengths or shapes, or what is not an array itself.
    """
    return kind(
        *(
            np.zeros(others.get(name, size), dtype) if dtype else others[name]
            for name, dtype in _dtypes(kind)
        )
    )


@functools.cache
def _dtypes(kind: Any) -> list[tuple[str, Any]]:
    """Return the fields, each with the type of its numbers; None if it is not an array."""
    return [(name, _dtype(hint)) for name, hint in get_type_hints(kind).items()]


def _dtype(hint: Any) -> Any:
    """The type of an array's numbers: the last parameter of NDArray, or of what it stands for."""
    if parameters := get_args(hint):
        return _dtype(parameters[-1])
    return hint if isinstance(hint, type) and issubclass(hint, np.generic) else None


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


def copied(old: Any, larger: Any) -> Any:
    """Copy arrays into the beginnings of larger ones."""
    for source, target in zip(old, larger, strict=True):
        target[: len(source)] = source
    return larger
