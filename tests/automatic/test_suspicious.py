"""Codes of missing values and rows far from all others do not determine the choice."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score

from dpsearch import DPMixture, compare, families, load, log_joint
from dpsearch.automatic import resolve_prior
from dpsearch.automatic.suspicious import far_values, find_codes
from dpsearch.errors import ParameterError
from dpsearch.tables import CheckedTable


def three_clusters(width, n_rows=300, seed=3):
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n_rows)
    centres = 10.0 * rng.permuted(np.tile(np.arange(3.0)[:, None], width), axis=0)
    return centres[truth] + rng.normal(size=(n_rows, width)), truth


def coded(X, code=-9999.0, share=0.1):
    """Return the table with values replaced by a code, and with gaps instead."""
    at = np.random.default_rng(1).random(X.shape) < share
    return np.where(at, code, X), np.where(at, np.nan, X)


# -- what is far -------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
PLAIN = {
    "normal": RNG.normal(size=200),
    "few": RNG.normal(size=9),
    "log-normal": np.exp(1.5 * RNG.normal(size=1000)),
    "zero-inflated": np.where(RNG.random(500) < 0.9, 0.0, RNG.gamma(1.0, 5.0, 500)),
    "two clusters": RNG.normal(size=300) + 40.0 * (np.arange(300) % 2),
    "0 and 1": (RNG.random(100) < 0.05) * 1.0,
    "constant": np.ones(50),
    "no value": np.full(20, np.nan),
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_values_are_not_far(name):
    assert not far_values(PLAIN[name]).any()


@pytest.mark.parametrize("scale", [1.0, -1.0, 1e-9, 1e9])
def test_far_values_are_found_in_any_units(scale):
    column = np.concatenate([RNG.normal(size=90), [3000.0, -700.0, 650.0, np.nan]])
    far = far_values(scale * column + 5.0 * scale)
    np.testing.assert_array_equal(np.flatnonzero(far), [90, 91, 92])
    many = np.concatenate([RNG.normal(size=85), np.full(15, -9999.0)])
    assert far_values(scale * many).sum() == 15


def test_codes_are_far_repeated_and_written_with_nines():
    X = np.repeat(RNG.normal(size=(80, 1)), 5, axis=1)
    X[:4, 0] = -9999.0
    X[:2, 1] = 999.0  # too few
    X[:4, 2] = 5000.0  # a number like others
    X[:, 3] = np.where(np.arange(80) % 8, X[:, 3] + 90.0, 99.0)  # not far
    X[:3, 4] = -99.99
    assert find_codes(CheckedTable(X), range(5)) == ((0, -9999.0), (4, -99.99))


@pytest.mark.parametrize("code", [-8888.0, 77.0, -32768.0, -999.25, 1e20, 9.96921e36, -1e30])
@pytest.mark.parametrize("share", [0.1, 0.6])
def test_codes_of_people_and_programs(code, share):
    """The ARI was 0 when only codes of nines in less than half of a column were recognised."""
    X, at = np.random.default_rng(0).normal(size=(100, 2)), np.arange(100) < 100 * share
    X[at, 1] = code
    assert find_codes(CheckedTable(X), range(2)) == ((1, code),)


@pytest.mark.parametrize("value", [0.0, -1.0, 5000.0, 100.0, 1000.0, -12.5])
def test_other_values_are_no_codes(value):
    X = np.random.default_rng(0).normal(size=(100, 1))
    X[:10] = value
    assert find_codes(CheckedTable(X), [0]) == ()
    assert find_codes(CheckedTable(np.full((50, 1), 99.0)), [0]) == ()
    assert find_codes(CheckedTable(np.repeat([[1.0], [99.0]], 25, axis=0)), [0]) == ()


# -- rows far from all others ------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 4, pytest.param(12, marks=pytest.mark.slow), 40])
def test_a_far_row_does_not_decide(width):
    """The ARI was 0 when all other rows were one cluster in units of the far row."""
    X, truth = three_clusters(width)
    X[7] = 3000.0
    others = np.arange(300) != 7
    model, without = DPMixture().fit(X), DPMixture().fit(X[others])
    assert model.family_ == without.family_
    assert (
        model.reason_ == without.reason_ + "; 1 row far from all others took no part in the choice"
    )
    assert adjusted_rand_score(truth[others], model.labels_[others]) > 0.98
    assert (model.labels_ == model.labels_[7]).sum() == 1
    assert 7 in model.outliers(X)


@pytest.mark.slow
def test_far_rows_of_a_mixed_frame_with_gaps():
    X, truth = three_clusters(4)
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame["kind"] = np.array(["u", "v", "w"])[truth]
    frame.loc[::9, "b"] = np.nan
    frame.loc[9, "a"] = 3000.0  # a row with a gap
    model = DPMixture().fit(frame)
    others = np.arange(300) != 9
    assert adjusted_rand_score(truth[others], model.labels_[others]) > 0.98
    assert (model.labels_ == model.labels_[9]).sum() == 1
    weighted = DPMixture().fit(frame, sample_weight=np.full(300, 2))
    assert adjusted_rand_score(truth[others], weighted.labels_[others]) > 0.98


def test_a_far_row_with_gaps_beside_complete_rows():
    slant = 0.3 * np.eye(5) + np.ones((5, 5))
    X, truth = three_clusters(5)
    X = X @ slant
    X[5] = [np.nan, 4000.0, 4000.0, 4000.0, 4000.0]
    model = DPMixture().fit(X)
    others = np.arange(300) != 5
    assert adjusted_rand_score(truth[others], model.labels_[others]) > 0.95
    assert DPMixture().fit(X, sample_weight=np.ones(300, int)).n_clusters_ > 1
    assert DPMixture(n_shards=3).fit(X).n_clusters_ > 1


def test_a_far_cluster_is_a_cluster():
    X, truth = three_clusters(2)
    X[truth == 1] += 1000.0
    model = DPMixture().fit(X)
    assert "far" not in model.reason_
    assert adjusted_rand_score(truth == 1, model.labels_ == model.labels_[truth == 1][0]) > 0.99


def test_rows_that_would_change_the_kind_of_the_table_decide():
    binary = (np.random.default_rng(0).random((60, 4)) < 0.4) * 1.0
    binary[3, 2] = 3000.0
    assert DPMixture().fit(binary).family_.kind != "binary"
    codes = np.random.default_rng(0).integers(4, size=(80, 3)).astype(float)
    codes[0, 0] = 40.0
    assert DPMixture("categorical").fit(codes).family_.n_levels[0] == 41


# -- codes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [2, 4, pytest.param(12, marks=pytest.mark.slow)])
@pytest.mark.parametrize("share", [0.02, 0.1])
def test_codes_are_gaps(width, share, tmp_path):
    """The ARI was 0.002 when a tenth of the values were codes."""
    X, truth = three_clusters(width)
    with_codes, with_gaps = coded(X, share=share)
    model, same = DPMixture().fit(with_codes), DPMixture().fit(with_gaps)
    assert (model.family_, model.log_joint_) == (same.family_, same.log_joint_)
    assert model.reason_ == same.reason_ + f"; -9999 in {width} columns treated as missing"
    np.testing.assert_array_equal(model.labels_, same.labels_)
    assert adjusted_rand_score(truth, model.labels_) > 0.9
    model.save(tmp_path / "model.npz")
    for one in (model, load(tmp_path / "model.npz")):
        np.testing.assert_array_equal(one.predict(with_codes), same.predict(with_gaps))
        np.testing.assert_allclose(one.impute(with_codes), same.impute(with_gaps), rtol=1e-9)
        found, wanted = one.score_samples(with_codes), same.score_samples(with_gaps)
        np.testing.assert_allclose(found, wanted, rtol=1e-9)
        labels = np.where(np.isnan(with_gaps).all(axis=1), -1, model.labels_)
        np.testing.assert_array_equal(one.fitted_labels(with_codes), labels)


def test_codes_in_a_frame():
    X, truth = three_clusters(3)
    frame = pd.DataFrame(coded(X, 999.0)[0], columns=list("abc"))
    frame["kind"] = np.array(["u", "v"])[truth % 2]
    frame["b"] = X[:, 1]
    model = DPMixture().fit(frame)
    assert model.reason_.endswith("; 999 in 2 columns treated as missing")
    assert adjusted_rand_score(truth, model.labels_) > 0.95
    one = DPMixture().fit(frame[["a", "b", "kind"]])
    assert one.reason_.endswith("; 999 in column 'a' treated as missing")


@pytest.mark.slow
def test_codes_may_be_kept_or_given():
    X, _ = three_clusters(4)
    with_codes, with_gaps = coded(X)
    kept = DPMixture(missing_codes=None).fit(with_codes)
    assert "missing" not in kept.reason_
    given = DPMixture(missing_codes=[-7.25]).fit(np.where(np.isnan(with_gaps), -7.25, with_gaps))
    np.testing.assert_array_equal(given.labels_, DPMixture().fit(with_gaps).labels_)
    as_it_is = DPMixture(families.DiagonalGaussian()).fit(with_codes)
    assert as_it_is.family_.name == "diagonal_gaussian"
    with pytest.raises(ParameterError, match="missing_codes must be 'auto', None or numbers"):
        DPMixture(missing_codes="all").fit(X)


def test_families_are_compared_on_the_same_values():
    """A family that skips gaps and one that cannot are compared with the codes as numbers."""
    X = coded(three_clusters(2)[0])[0]
    found = compare(X, ["diagonal_gaussian", "full_gaussian"])
    for one in found:
        assert one.log_joint == pytest.approx(
            log_joint(X, one.model.component_labels_, one.family, resolve_prior("auto"))
        )


# -- rows without any value --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("width", [12, 4])
def test_rows_without_any_value_take_no_part(width, tmp_path):
    """Such rows enlarged the largest cluster, which made it more probable for new rows."""
    X, _ = three_clusters(width)
    X[::11, 0] = np.nan
    if width == 4:
        X[:, 1] += 0.9 * X[:, 2]  # so that the table is completed
    empty = np.insert(X, np.arange(0, 300, 6), np.nan, axis=0)
    there = ~np.isnan(empty).all(axis=1)
    model, same = DPMixture().fit(empty), DPMixture().fit(X)
    assert (model.family_, model.log_joint_) == (same.family_, same.log_joint_)
    assert (model.completed_ is None) == (width == 12)
    np.testing.assert_array_equal(model.labels_[there], same.labels_)
    np.testing.assert_array_equal(model.predict_proba(X), same.predict_proba(X))
    np.testing.assert_array_equal(model.labels_[~there], model.predict(empty[~there]))
    np.testing.assert_array_equal(model.sample_weight_, there)
    model.save(tmp_path / "model.npz")
    for one in (model, load(tmp_path / "model.npz")):
        np.testing.assert_array_equal(one.fitted_labels(empty)[there], same.labels_)
        assert not set(np.flatnonzero(~there)) & set(one.outliers(empty))
    weights = np.where(there, 2, 5)
    weighted = DPMixture().fit(empty, sample_weight=weights)
    twice = DPMixture().fit(X, sample_weight=np.full(300, 2))
    assert weighted.log_joint_ == twice.log_joint_
    np.testing.assert_array_equal(weighted.labels_[there], twice.labels_)
