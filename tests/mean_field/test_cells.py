"""Cells whose rows share responsibilities, against rows with the means of their cells."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dpsearch import Problem, families, priors, variational
from dpsearch.mean_field.cells import CellRows
from dpsearch.passes import chunk

FAMILY, DP = families.Gaussian(0.0, 16.0, 1.0), priors.DirichletProcess(1.0)


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    centres = np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 5.0]])
    return centres[rng.integers(3, size=n)] + rng.normal(size=(n, 2))


def cell_numbers(rows):
    """Return the cell of each row: its `labels` if every cell had a label of its own."""
    rows._labels = np.arange(len(rows.counts), dtype=np.int32)
    return rows.labels()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_a_pass_is_that_of_rows_with_the_means_of_their_cells(sparse, own):
    rng = np.random.default_rng(1)
    X = rng.poisson(2.0, (90, 5)).astype(float)
    form = families.Multinomial(1.0).linear(5)
    rows = CellRows(form, sp.csr_matrix(X) if sparse else X, 40)
    weights, constants = rng.normal(size=(4, 5)), rng.normal(size=4)
    terms = chunk.Own(*rng.normal(size=(3, 4)) * 0.1) if own else None
    for n_cells in (5, 10, 20, 40):
        assert len(rows.counts) == n_cells
        assert rows.counts.sum() == 90
        cells = cell_numbers(rows)
        means = np.array([X[cells == k].mean(axis=0) for k in range(n_cells)])[cells]
        want = chunk.soften(means, weights, constants, terms, np.zeros(90, np.int32))
        found = rows.soften(weights, constants, terms)
        for mine, its in zip(found.totals, want.totals, strict=True):
            np.testing.assert_allclose(mine, its)
        for mine, its in zip(found[1:], want[1:], strict=True):
            np.testing.assert_allclose(mine, its, atol=1e-9)
        assert rows.refine() == (n_cells < 40)


def test_the_cells_that_gain_most_are_divided():
    """Dividing cells of equal rows gains nothing; finally every other row has its own cell."""
    X = np.concatenate([np.full((64, 2), 7.0), table(64)])
    rows = CellRows(FAMILY.resolve(X).linear(2), X, 128)
    weights, constants = (
        np.array([[0.5, 0.0, 0.0], [-0.5, 0.3, 0.0]])[:, : rows._sums.shape[1]],
        np.zeros(2),
    )
    before = rows.soften(weights, constants, None).log_normaliser
    while rows.refine():
        found = rows.soften(weights, constants, None).log_normaliser
        assert found >= before - 1e-9
        before = found
    alone = rows.counts[cell_numbers(rows)[64:]]
    assert (alone == 1).all()


def test_the_bound_rises_from_cell_to_row():
    """The bound rises with the number of cells, up to that of single rows."""
    problem = Problem(table(), FAMILY, DP)
    plain = variational(problem, moves=False, tol=1e-12)
    bounds = []
    for cells in (8, 32, 128, 400):
        found = variational(problem, cells=cells, moves=False, tol=1e-12)
        assert (np.diff(found.history) > -1e-9).all()
        bounds.append(found.lower_bound)
    assert (np.diff(bounds) > 0.0).all()
    assert bounds[-1] == pytest.approx(plain.lower_bound, abs=1e-5)
    np.testing.assert_allclose(found.sizes, plain.sizes, atol=1e-3)
    np.testing.assert_array_equal(found.clustering.labels, plain.clustering.labels)


def test_few_cells_find_the_components():
    X = table(4000)
    plain = variational(X, FAMILY, DP, start=np.zeros(4000), rng=0)
    found = variational(X, FAMILY, DP, start=np.zeros(4000), cells=200, rng=0)
    assert (found.clustering.labels != plain.clustering.labels).mean() < 0.02
    assert found.lower_bound <= plain.lower_bound
    repeated = variational(X, FAMILY, DP, start=np.zeros(4000), cells=200, rng=0)
    assert repeated.lower_bound == found.lower_bound
