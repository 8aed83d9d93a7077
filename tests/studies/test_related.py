"""`python -m studies related`: time limits of all methods, the page, and continued runs."""

import json
import math
import os
import time

import numpy as np
import pytest

from dpsearch import Problem, datasets, families, priors
from studies.related import command, methods, problems
from studies.related.methods import METHODS, Found, effective_size
from studies.related.page import _above, _speedup
from studies.related.processes import Job, run_jobs

X, LABELS = datasets.planted_clusters(120, 2, 3, spread=8.0, rng=0)
FAMILY = families.Gaussian(0.0, 50.0, 1.0)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_finds_the_planted_clusters_in_its_time(method):
    problem = Problem(X, FAMILY, priors.DirichletProcess(1.0))
    truth = problem.log_joint(LABELS)
    METHODS[method](problem, 0.1, X[:30], 0.01)  # compiles
    # Proposals that know nothing of a row, and rows that share a cell's label, do not get there.
    rough = "Metropolis" in method or "cells" in method
    for seconds in (0.3, 1.2, 4.8):  # the first is enough on a machine that does nothing else
        found = METHODS[method](problem, seconds, X[:30], 0.01)
        if found.log_joint >= truth - (500.0 if rough else 1e-6):
            break
    else:
        pytest.fail(f"{found.log_joint} is below {truth}, that of the planted clusters")
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
    assert np.isnan(effective_size(np.linspace(0.0, 9.0, 500) + rng.normal(size=500)))  # it climbs


def test_what_the_tables_show_as_the_same_does_not_differ():
    known = {"a 1": {"held_out": -4.24112}, "b 1": {"held_out": -4.24108}}
    assert _above("a", "b", "held_out")(known, 1) is None
    known["b 1"]["held_out"] = -4.2391
    assert _above("a", "b", "held_out")(known, 1) is False


def test_speedups_are_read_off_the_times():
    known = {f"{method} {t}": {} for method in METHODS for t in (1, 10, 100)}
    for t, gibbs, ours in ((1, -9.0, -5.005), (10, -7.0, -5.0), (100, -5.0, -5.0)):
        known[f"Gibbs {t}"] = {"held_out": gibbs, "seconds": 2.0 * t}
        known[f"variational {t}"] = {"held_out": ours, "seconds": 0.5 * t}
    assert _speedup(known) == 400.0
    for t in (1, 10, 100):
        known[f"variational {t}"]["held_out"] = -6.0
    assert _speedup(known) is None


def test_jobs_have_a_core_each_and_end_at_their_limit():
    jobs = [
        Job("core", lambda: os.sched_getaffinity(0), 60.0),
        Job("late", lambda: time.sleep(60.0), 0.2),
        Job("fails", lambda: os._exit(3), 60.0),
        Job("last", lambda: 5, 60.0),
    ]
    begun = time.monotonic()
    found = dict(run_jobs(jobs, 2, math.inf))
    assert len(found.pop("core")) == 1
    assert found == {"late": None, "fails": None, "last": 5}
    assert dict(run_jobs([Job("never", lambda: time.sleep(60.0), 60.0)], 1, begun)) == {}
    assert not dict(run_jobs([jobs[1]._replace(limit=60.0)], 1, time.monotonic() + 0.2))
    assert time.monotonic() - begun < 50.0


@pytest.mark.slow
def test_a_run_that_is_stopped_goes_on_and_a_page_is_made_of_its_file(tmp_path, monkeypatch):
    """With methods that take no time, check what is run, what is kept, and the page."""

    def made(problem, limit, fresh, unit):
        called.write_text(called.read_text() + "x")
        return Found(limit, -100.0, 3, -4.0, float("nan"))

    def lost(problem, limit, fresh, unit):
        if limit > 0.02 and problem.n_items > 100:
            os._exit(1)
        return made(problem, limit, fresh, unit)

    called = tmp_path / "called"
    called.write_text("")
    monkeypatch.setattr("studies.related.methods.METHODS", dict.fromkeys(METHODS, made))
    monkeypatch.setitem(methods.METHODS, "Gibbs", lost)
    monkeypatch.setattr("studies.related.page.METHODS", methods.METHODS)
    tiny = problems.Set("tiny", lambda: (X, FAMILY))
    monkeypatch.setattr(problems, "sets", lambda data, quick: iter([tiny]))
    monkeypatch.setattr(command, "_WARM", 0.01)
    monkeypatch.setattr(command, "_unit", lambda one: 0.02)
    options = {"out": tmp_path, "data": None, "processes": 2, "cap": 1.0, "note": "A note."}
    command.related(**options, minutes=0.0)
    assert not (tmp_path / "related.md").exists()
    command.related(**options)
    page = (tmp_path / "related.md").read_text("utf-8")
    assert "A beam of 10 counts for 0.020 s; 100× is cut to 50×, 1 s." in page
    (row,) = (line for line in page.splitlines() if line.startswith("| Gibbs |"))
    assert row.count("no result") == 2
    assert "A note." in page
    (tmp_path / "related.json").rename(tmp_path / "other.json")
    before = called.read_text()
    command.related(**options | {"note": ""}, page=tmp_path / "other.json")
    assert (tmp_path / "related.md").read_text("utf-8") == page.replace("A note.\n\n", "")
    assert called.read_text() == before


@pytest.mark.slow
def test_a_quick_run_writes_the_page_and_goes_on(tmp_path, monkeypatch):
    tiny = problems.Set("tiny", lambda: (X, FAMILY))
    monkeypatch.setattr(problems, "sets", lambda data, quick: iter([tiny]))
    monkeypatch.setattr(command, "_LEAST", 0.005)
    monkeypatch.setattr(command, "_WARM", 0.05)
    command.related(out=tmp_path, data=None, quick=True)
    page = (tmp_path / "related.md").read_text("utf-8")
    assert all(f"| {method} |" in page for method in METHODS)
    assert "What the paper says" in page
    assert (tmp_path / "related.png").stat().st_size > 10_000
    before = json.loads((tmp_path / "related.json").read_text())
    command.related(out=tmp_path, data=None, quick=True)
    assert json.loads((tmp_path / "related.json").read_text()) == before
