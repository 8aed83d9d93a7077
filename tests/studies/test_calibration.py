"""Simulation-based calibration, a few data sets of each kind; `python -m studies calibration`."""

from __future__ import annotations

import numpy as np
import pytest

from studies.calibration import command
from studies.calibration.planted import BUGS, caught
from studies.calibration.ranks import Ranks, of_outliers, of_predictions, of_samplers

COUNT = 100
LEAST = 1e-3  # p-values, of about fifteen tests


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["gibbs, α sampled", "split_merge, α integrated"])
def test_samplers_are_calibrated(sampler):
    found = [*of_samplers("Poisson", sampler, COUNT, 0)]
    assert [one.what for one in found] == ["number of clusters", "log joint", "α"]
    for one in found:
        assert len(one.shares) == one.counts().sum() == COUNT
        assert one.p_value() > LEAST, one.what


@pytest.mark.slow
def test_predictions_and_p_values_are_calibrated():
    ranks, reliability = of_predictions("Gaussian", COUNT, 0)
    assert min(one.p_value() for one in ranks) > LEAST
    # The mean of outcomes less probabilities, in standard errors.
    off = np.array(reliability.outcome) - np.array(reliability.probability)
    assert abs(off.mean()) < 4.0 * off.std() / np.sqrt(len(off))
    for family in ("FullGaussian", "Bernoulli"):
        assert of_outliers(family, True, COUNT, 0).p_value() > LEAST


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 3])
def test_planted_bugs_are_seen(number):
    assert caught(BUGS[number], COUNT, 0).p_value() < LEAST


def test_ranks_are_tested():
    uniform = np.arange(200) / 200.0
    assert Ranks("", "", "", uniform).p_value() == pytest.approx(1.0)
    assert Ranks("", "", "", uniform**2).p_value() < 1e-6
    assert Ranks("", "", "", uniform**0.5, at_most=True).p_value() > 0.5
    assert Ranks("", "", "", uniform**2, at_most=True).p_value() < 1e-6


def test_the_page_keeps_its_text(tmp_path, monkeypatch):
    found = command.Found()
    shares = np.arange(40) / 40.0
    found.ranks = [Ranks("α", "gibbs", family, shares) for family in command.KINDS]
    found.bugs = [("a bug", Ranks("α", "gibbs", "Gaussian", shares**3))]
    for n_rows in command._MAP_ROWS:
        pairs = command.Reliability("Gaussian", "", [0.1, 0.9], [False, True])
        found.best.append(
            command.MapFigures("Gaussian", n_rows, pairs, (0.01, 0.05), (0.01, 0.05), 0.5)
        )
    found.reliability = [pairs]
    monkeypatch.setattr(command, "measure", lambda *given: found)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{command._BEGIN}old\n{command._END}after\n")
    command.calibration(page, 40, 0, 1)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| α | gibbs | 5 | 1 |" in text
    assert page.with_suffix(".png").exists()
