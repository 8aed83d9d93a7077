"""`python -m studies related`: every method under a limit, the page, and a run that goes on."""

import json

import numpy as np
import pytest

from dpsearch import Problem, datasets, families, priors
from studies.related import command, problems
from studies.related.methods import METHODS, effective_size
from studies.related.page import _speedup

X, LABELS = datasets.planted_clusters(120, 2, 3, spread=8.0, rng=0)
FAMILY = families.Gaussian(0.0, 50.0, 1.0)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_finds_the_planted_clusters_in_its_time(method):
    problem = Problem(X, FAMILY, priors.DirichletProcess(1.0))
    truth = problem.log_joint(LABELS)
    METHODS[method](problem, 0.1, X[:30], 0.01)  # compiles
    found = METHODS[method](problem, 0.3, X[:30], 0.01)
    assert found.log_joint >= truth - (1e-6 if "Metropolis" not in method else 500.0)
    assert -8.0 < found.held_out < -2.0


def test_effective_size_of_independent_and_of_slow_chains():
    rng = np.random.default_rng(0)
    steps = rng.normal(size=20_000)
    slow = np.empty_like(steps)
    slow[0] = 0.0
    for i in range(1, len(steps)):
        slow[i] = 0.9 * slow[i - 1] + steps[i]
    assert effective_size(steps) == pytest.approx(20_000, rel=0.1)
    assert effective_size(slow) == pytest.approx(20_000 * 0.1 / 1.9, rel=0.25)
    assert np.isnan(effective_size(np.ones(50)))


def test_speedups_are_read_off_the_times():
    known = {f"{method} {t}": {} for method in METHODS for t in (1, 10, 100)}
    for t, gibbs, ours in ((1, -9.0, -5.005), (10, -7.0, -5.0), (100, -5.0, -5.0)):
        known[f"Gibbs {t}"], known[f"variational {t}"] = {"held_out": gibbs}, {"held_out": ours}
    assert _speedup(known) == 100.0
    for t in (1, 10, 100):
        known[f"variational {t}"] = {"held_out": -6.0}
    assert _speedup(known) is None


def test_a_quick_run_writes_the_page_and_goes_on(tmp_path, monkeypatch):
    tiny = problems.Set("tiny", lambda: (X, FAMILY))
    monkeypatch.setattr(problems, "sets", lambda data, quick: iter([tiny]))
    monkeypatch.setattr(command, "_LEAST", 0.005)
    command.related(out=tmp_path, data=None, quick=True)
    page = (tmp_path / "related.md").read_text("utf-8")
    assert all(f"| {method} |" in page for method in METHODS)
    assert "What the paper says" in page
    assert (tmp_path / "related.png").stat().st_size > 10_000
    before = json.loads((tmp_path / "related.json").read_text())
    command.related(out=tmp_path, data=None, quick=True)
    assert json.loads((tmp_path / "related.json").read_text()) == before
