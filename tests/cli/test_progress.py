"""The progress line."""

import io

import numpy as np
import pytest
from rich.console import Console

from dpsearch import Problem, families, priors, search
from dpsearch.errors import DataError
from dpsearch.progress import stages


def test_the_line_follows_a_search():
    X = np.random.default_rng(0).normal(size=(9000, 2))
    problem = Problem(X, families.Gaussian(0.0, 4.0, 1.0), priors.DirichletProcess(1.0))
    search(problem)  # compiled now, so that the line tells of nothing but the search
    with stages(Console(file=io.StringIO(), force_terminal=True, width=120)) as stage:
        stage.begin("searching")
        result = search(problem, callback=stage.callback)
        line = stage.line()
    assert line.startswith(f"searching: {result.n_clusters} clusters, log joint")


def test_the_line_goes_when_a_search_fails():
    shown = io.StringIO()

    def fail():
        with stages(Console(file=shown, force_terminal=True, width=120)) as stage:
            assert stage.callback is not None
            raise DataError("X is bad")

    with pytest.raises(DataError, match="X is bad"):
        fail()
    assert "\x1b[?25h" in shown.getvalue()  # the cursor is back


def test_quiet_shows_nothing():
    shown = io.StringIO()
    with stages(Console(file=shown, quiet=True)) as stage:
        assert stage.callback is None
    assert shown.getvalue() == ""
