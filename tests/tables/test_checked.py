"""Tables that have been checked are not checked again."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from calls import calls_of
from dpsearch import DPMixture, Problem, families, priors
from dpsearch._validate import has_gaps, read_matrix
from dpsearch.errors import DataError
from dpsearch.families.base import Family
from dpsearch.tables import CheckedTable

PRIOR = priors.DirichletProcess(1.0)


def test_rows_and_columns_of_a_checked_table():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, None], "c": [5.0, 6.0]})
    table = CheckedTable.of(frame)
    assert table.gaps
    assert table.names == ("a", "b", "c")
    assert table.columns([0, 2]).names == ("a", "c")
    assert not table.columns([0, 2]).gaps
    assert not table.rows([0]).gaps
    assert table.rows([1]).columns([1]).gaps
    assert CheckedTable.of(table) is table


def test_what_the_family_does_not_take_is_refused_of_a_checked_table_too():
    gapped = CheckedTable.of(pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, None]}))
    with pytest.raises(DataError, match="row 1, column 'b' is missing"):
        Problem(gapped, families.FullGaussian(), PRIOR)
    with pytest.raises(DataError, match="sparse"):
        Problem(CheckedTable.of(sp.csr_matrix(np.eye(2))), families.FullGaussian(), PRIOR)


def test_a_problem_takes_a_checked_table_without_a_check():
    table = CheckedTable.of(np.eye(3))
    assert not table.gaps
    counts = calls_of(lambda: Problem(table, families.Gaussian(), PRIOR), read_matrix, has_gaps)
    assert counts == [0, 0]


def test_a_fit_checks_its_table_once():
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, 60)
    frame = pd.DataFrame({"a": rng.normal(4.0 * kind), "b": rng.normal(size=60)})
    assert calls_of(lambda: DPMixture().fit(frame), read_matrix, has_gaps) == [1, 0]
    frame["c"] = np.array(["x", "y"])[kind]
    checks = calls_of(lambda: DPMixture().fit(frame), read_matrix, has_gaps)
    assert checks[0] <= 1
    assert checks[1] <= 1


def test_a_fit_compiles_its_table_once_for_each_family(monkeypatch):
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 150)
    frame = pd.DataFrame(rng.normal(5.0 * kind[:, None], size=(150, 2)), columns=["a", "b"])
    frame["visits"] = rng.poisson(2.0 + 5.0 * kind)
    frame["town"] = np.array(["x", "y", "z"])[kind]
    compiled, compile = [], Family.compile

    def counted(family, X):
        compiled.append((family, X.matrix.tobytes()))
        return compile(family, X)

    monkeypatch.setattr(Family, "compile", counted)
    DPMixture().fit(frame)
    whole = [pair for pair in compiled if len(pair[1]) == 8 * 150 * 4]
    assert 4 < len(whole) == len(set(whole))
