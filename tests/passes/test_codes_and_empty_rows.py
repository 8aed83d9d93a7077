"""Codes of missing values and rows without any value are treated as in memory, also in shards."""

import numpy as np
from sklearn.metrics import adjusted_rand_score

from dpsearch import DPMixture
from shard_tables import planted


def fits(X):
    return DPMixture().fit(X), DPMixture(n_shards=3, n_jobs=1).fit(X)


def test_codes_are_recognised_in_shards():
    X, labels = planted(900, 3, 4)
    X[np.random.default_rng(1).random(X.shape) < 0.1] = -9999.0
    whole, shards = fits(X)
    assert "-9999 in 4 columns treated as missing" in whole.reason_
    assert "-9999 in 4 columns treated as missing" in shards.reason_
    for model in (whole, shards):
        assert adjusted_rand_score(labels, model.labels_) > 0.9
        new = np.array([[-9999.0, *X[0, 1:]]])
        gap = np.where(new == -9999.0, np.nan, new)
        np.testing.assert_array_equal(model.predict_proba(new), model.predict_proba(gap))


def test_rows_without_any_value_are_no_points_in_shards():
    """Such rows get the most probable label but do not enlarge its cluster."""
    X, _ = planted(900, 3, 4)
    X[::10] = np.nan
    whole, shards = fits(X)
    for model in (whole, shards):
        assert model.mixture_.sizes.sum() == 810
        assert len(np.unique(model.labels_[::10])) == 1
    assert shards.n_clusters_ == whole.n_clusters_
