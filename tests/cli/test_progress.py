"""The progress bar."""

import io

import numpy as np
import pytest
from rich.console import Console

from dpsearch import Problem, families, priors, search
from dpsearch.errors import DataError
from dpsearch.progress import progress


def test_the_progress_bar_follows_a_search():
    X = np.random.default_rng(0).normal(size=(9000, 2))
    problem = Problem(X, families.Gaussian(0.0, 4.0, 1.0), priors.DirichletProcess(1.0))
    search(problem)  # Compiled now, so that the bar shows nothing but the search.
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120)
    with progress(console, "search") as callback:
        result = search(problem, callback=callback)
    text = shown.getvalue()
    assert "9,000/9,000" in text
    assert f"{result.n_clusters} clusters, log joint" in text


def test_the_progress_bar_goes_when_a_search_fails():
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120)

    def fail():
        with progress(console, "search") as callback:
            assert callback is not None
            raise DataError("X is bad")

    with pytest.raises(DataError, match="X is bad"):
        fail()
    assert "\x1b[?25h" in shown.getvalue()  # the cursor is back


def test_off_a_terminal_nothing_is_shown():
    shown = io.StringIO()
    with progress(Console(file=shown), "search") as callback:
        assert callback is None
    assert shown.getvalue() == ""
