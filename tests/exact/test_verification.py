"""Wrong certificates are never verified, and none makes `verify` raise."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from dpsearch import Certificate, certify, datasets, families, priors
from dpsearch._archive import write_archive
from dpsearch.errors import DataError, ModelFileError
from dpsearch.exact import certificate_file
from dpsearch.problem import Problem
from studies.attacks.forgeries import without_number

DP = priors.DirichletProcess(1.0)
GAUSSIAN = families.Gaussian(0.0, 10.0, 1.0)


def points(width, n=40):
    return datasets.dirichlet_process_draw(n, width, rng=3).X


def line(prior=DP, n=40):
    return certify(points(1, n), np.zeros(n), GAUSSIAN, prior)


def plane(prior=DP, n=40):
    return certify(points(2, n), np.zeros(n), GAUSSIAN, prior)


def ceiling():
    return certify(points(2), np.zeros(40), families.DiagonalGaussian(), DP, time_limit=0.0)


def variances():
    return certify(points(2, 25), np.zeros(25), families.DiagonalGaussian(0.0, 0.1, 2.0, 1.0), DP)


def quick():
    return certify(points(6), np.zeros(40), GAUSSIAN, DP, time_limit=0.0)


def sets():
    """Certify points of a cloud at which the LP over sets has a gap."""
    X = 2.0 * np.random.default_rng(165).normal(size=(14, 2))
    found = certify(X, np.zeros(14), families.Gaussian(0.0, 4.0, 1.0), DP)
    assert found.method == "sets"
    return found


EVERY = [line, plane, variances, ceiling, quick, sets, lambda: line(priors.PitmanYor(0.7, 0.4))]


def stated(certificate, **figures):
    """Return the certificate with other figures, and all others made to agree with them."""
    c = dataclasses.replace(certificate, **figures)
    gap = c.upper_bound - c.lower_bound
    optimal = bool(gap <= c.tolerance)
    clustering = dataclasses.replace(
        c.clustering, log_joint=c.lower_bound, upper_bound=c.upper_bound, optimal=optimal
    )
    return dataclasses.replace(c, gap=gap, optimal=optimal, clustering=clustering)


@pytest.mark.parametrize("make", EVERY)
def test_the_honest_certificate_is_verified_and_no_other(make):
    found = make()
    assert found.verify() is True
    assert stated(found).verify()
    below = found.lower_bound - 1e-3
    entries = tuple(entry._replace(upper=below) for entry in found.prices)
    for forged in (
        stated(found, upper_bound=below),
        stated(found, upper_bound=below, prices=entries),
        stated(found, upper_bound=below, prices=(), order=np.arange(len(found.clustering.labels))),
        stated(found, lower_bound=found.lower_bound + 1e-3, upper_bound=found.upper_bound + 1e-3),
        stated(found, lower_bound=math.nan),
        stated(found, upper_bound=math.inf),
        dataclasses.replace(found, optimal=not found.optimal),
        dataclasses.replace(found, gap=found.gap + 1e-3),
        dataclasses.replace(found, gap=found.gap - 1e-3),
        dataclasses.replace(found, tolerance=math.nan),
        dataclasses.replace(found, tolerance=-1.0),
        dataclasses.replace(found, tolerance=None),
        dataclasses.replace(found, method="proof"),
        dataclasses.replace(found, seconds=math.inf),
        dataclasses.replace(found, prices=None),
        dataclasses.replace(found, problem=None),
        dataclasses.replace(found, clustering=None),
    ):
        assert forged.verify() is False


@pytest.mark.parametrize("make", EVERY)
def test_no_part_of_an_entry_is_believed(make):
    found = make()
    *others, entry = found.prices
    n = len(found.clustering.labels)
    for change in (
        {"low": 0}, {"high": n + 1}, {"high": 10**15}, {"low": 1.0}, {"high": math.nan},
        {"low": None}, {"y": entry.y[:-1]}, {"y": entry.y * math.nan}, {"y": entry.y + math.inf},
        {"y": entry.y.astype(object)}, {"y": entry.y.astype(np.float32)}, {"y": list(entry.y)},
        {"y": entry.y[:0]}, {"lam": math.nan}, {"lam": None}, {"slack": -1.0}, {"slack": math.inf},
        {"upper": math.nan}, {"upper": found.lower_bound - 1.0}, {"kind": "proof"}, {"kind": None},
    ):  # fmt: skip
        forged = dataclasses.replace(found, prices=(*others, entry._replace(**change)))
        assert forged.verify() is False, change


def test_labels_must_be_those_of_the_value():
    found = plane()
    labels = found.clustering.labels
    moved = labels.copy()
    moved[0] = (moved[0] + 1) % (labels.max() + 1)
    for wrong in (
        labels.astype(float), labels + 1, labels - 1, labels[:-1], labels[:, None], list(labels),
        labels.astype(object), np.full(40, 2**62), None, moved, labels.max() - labels,
    ):  # fmt: skip
        clustering = dataclasses.replace(found.clustering, labels=wrong)
        assert dataclasses.replace(found, clustering=clustering).verify() is False


@pytest.mark.parametrize(
    "change",
    [
        {"log_joint": 0.0}, {"upper_bound": math.inf}, {"optimal": False}, {"converged": True},
        {"n_dequeued": 3}, {"n_enqueued": 3}, {"seconds": 1e6}, {"trace": [None]},
        {"weights": np.ones(40, np.int64)},
    ],
)  # fmt: skip
def test_the_figures_of_the_clustering_are_checked(change):
    found = plane()
    clustering = dataclasses.replace(found.clustering, **change)
    assert dataclasses.replace(found, clustering=clustering).verify() is False


def test_the_ranges_must_cover_every_number_of_clusters():
    n, prior = 16, priors.PitmanYor(0.7, 0.4)
    for found in (line(prior, n), plane(prior, n)):
        assert len(found.prices) > 1
        assert found.verify() is True
        for gone in range(1, n + 1):
            assert without_number(found, gone).verify() is False


def test_other_data_priors_and_weights_are_not_what_was_proved():
    found, X = plane(), points(2)
    weights = np.full(40, 2)
    for other in (
        Problem(X + 0.01, GAUSSIAN, DP),
        Problem(X[::-1], GAUSSIAN, DP),
        Problem(X[:-1], GAUSSIAN, DP),
        Problem(X, GAUSSIAN, priors.DirichletProcess(1.01)),
        Problem(X, families.Gaussian(0.0, 10.0, 1.01), DP),
        Problem(X, GAUSSIAN, DP, weights=weights),
    ):
        assert dataclasses.replace(found, problem=other).verify() is False


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", EVERY)
def test_a_file_keeps_a_certificate(make, tmp_path):
    found = make()
    found.save(tmp_path / "proof.npz")
    X = found.problem.model.matrix
    again = Certificate.load(tmp_path / "proof.npz", X)
    for name in ("upper_bound", "lower_bound", "gap", "optimal", "tolerance", "method", "seconds"):
        assert getattr(again, name) == getattr(found, name)
    np.testing.assert_array_equal(again.clustering.labels, found.clustering.labels)
    assert again.verify()
    assert not Certificate.load(tmp_path / "proof.npz", X + 0.5).verify()
    with pytest.raises(DataError, match="rows, but the certificate is about"):
        Certificate.load(tmp_path / "proof.npz", X[:-1])


def test_a_changed_file_is_read_and_not_verified_or_refused(tmp_path, monkeypatch):
    found, path, kept = plane(), tmp_path / "proof.npz", []
    monkeypatch.setattr(certificate_file, "write_archive", lambda *given: kept.append(given))
    found.save(path)
    _, about, arrays = kept[0]
    X = points(2)
    for change in (
        {"upper_bound": found.lower_bound - 1.0}, {"optimal": 1}, {"gap": None}, {"method": []},
        {"ranges": [{**about["ranges"][0], "high": 10**9}]},
        {"ranges": [{**about["ranges"][0], "lam": "x"}]},
        {"prior": {"name": "dirichlet_process", "alpha": 2.0}}, {"tolerance": -1.0},
    ):  # fmt: skip
        write_archive(path, {**about, **change}, arrays)
        assert Certificate.load(path, X).verify() is False, change
    for change in (
        {"ranges": []}, {"ranges": None}, {"ranges": [{}]}, {"family": {"name": "none"}},
        {"prior": 3}, {"format": "dpsearch-model"}, {"version": 2},
    ):  # fmt: skip
        write_archive(path, {**about, **change}, arrays)
        with pytest.raises(ModelFileError, match=r"proof\.npz"):
            Certificate.load(path, X)
    for change in ({"labels": np.zeros(40)}, {"prices": np.zeros((1, 40))}):
        write_archive(path, about, {**arrays, **change})
        assert Certificate.load(path, X).verify() is False
    path.write_bytes(json.dumps(about).encode())
    with pytest.raises(ModelFileError, match="damaged, or not a dpsearch certificate"):
        Certificate.load(path, X)
