"""Proposals to split a component: some of its rows, divided in two by hard assignments."""

from __future__ import annotations

import numpy as np

from dpsearch._types import Matrix, Rng
from dpsearch.families.linear import LinearForm
from dpsearch.passes.chunk import Totals

_PAIRS = 4  # starting pairs of rows, of which the best result is taken
_SWEEPS = 10
_NUMBERS = 1 << 22  # limit on the features of all rows that are drawn
_MOST = 100  # rows drawn from a component


def rows_to_draw(form: LinearForm, n_components: int) -> int:
    """Return how many rows of each component are drawn for a birth."""
    return int(np.clip(_NUMBERS // (n_components * form.n_totals), 2, _MOST))


def split_rows(form: LinearForm, rows: Matrix, rng: Rng) -> tuple[Totals, float]:
    """Return the totals of two groups of rows of features, and the gain by the division.

    The gain is in log H and in the probability of labels given the groups' shares.  Each row goes
    to the group under which it is more probable.  The first groups are single rows with the same
    spread, the prior's, so that the first border does not depend on it.
    """
    best, found = -np.inf, Totals(np.ones(2), rows[:2])
    for _ in range(_PAIRS):
        totals = Totals(np.ones(2), rows[rng.choice(len(rows), 2, replace=False)])
        for _ in range(_SWEEPS):
            weights, constants = form.weights(*totals)
            second = rows @ (weights[1] - weights[0]) > constants[0] - constants[1]
            sizes = np.array([(~second).sum(), second.sum()], dtype=np.float64)
            if not sizes.all():
                break
            totals = Totals(sizes, np.stack([rows[~second].sum(axis=0), rows[second].sum(axis=0)]))
        value = form.log_marginals(*totals).sum() + totals.sizes @ np.log(totals.sizes / len(rows))
        if totals.sizes.sum() == len(rows) and value > best:
            best, found = value, totals
    whole = form.log_marginals(np.full(1, float(len(rows))), rows.sum(axis=0)[None])
    return found, float(best - whole[0])
