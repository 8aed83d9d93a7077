"""The attacks on certificates, a few of each; `python -m studies` runs many."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dpsearch.exact import certify
from dpsearch.partition import all_partitions
from dpsearch.problem import Problem
from studies.attacks import certificates
from studies.attacks.small_sets import draw, log_joints


@pytest.mark.parametrize(
    ("attack", "count"),
    [
        (certificates.against_enumeration, 20),
        (certificates.against_integer_programme, 5),
        (certificates.forged, 20),
        pytest.param(certificates.against_enumeration, 150, marks=pytest.mark.slow),
        pytest.param(certificates.against_integer_programme, 40, marks=pytest.mark.slow),
        pytest.param(certificates.forged, 126, marks=pytest.mark.slow),
    ],
)
def test_no_attack_on_certificates_succeeds(attack, count):
    outcome = attack(count, 1)
    assert (outcome.tried, outcome.failed) == (count, 0)
    assert outcome.seconds > 0.0


def test_the_enumeration_is_right():
    rng = np.random.default_rng(0)
    for _ in range(30):
        X, family, prior = draw(rng)
        if len(X) > 4:
            continue
        problem = Problem(X, family, prior)
        values = log_joints(problem)
        best = max(problem.log_joint(labels) for labels in all_partitions(len(X)))
        assert values.max() == pytest.approx(best, rel=1e-9, abs=1e-9)
        assert len(values) == {1: 1, 2: 2, 3: 5, 4: 15}[len(X)]


@pytest.mark.slow
def test_a_verification_that_trusts_its_certificate_is_detected(monkeypatch):
    from dpsearch.exact import certificate

    monkeypatch.setattr(certificate, "is_proved", lambda one: math.isfinite(one.upper_bound))
    assert certificates.forged(60, 1).failed > 20


def test_a_bound_that_is_too_low_is_detected(monkeypatch):
    def low(*arguments, **options):
        found = certify(*arguments, **options)
        return replace(found, upper_bound=found.lower_bound - 1.0)

    monkeypatch.setattr(certificates, "certify", low)
    assert certificates.against_enumeration(20, 1).failed >= 10
