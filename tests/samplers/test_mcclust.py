"""Summaries of draws against the R package mcclust 1.0.1 (Fritsch), run on the draws below.

Only its printed output (under R 4.2.2) is here.  Its Binder loss is a sum over pairs, ours a mean.
"""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from dpsearch.samplers.summaries import coclustering, expected_loss, point_estimate

DRAWS = np.array([
    [1, 1, 1, 2, 1, 1, 3, 3, 2, 3, 3, 4, 4, 4, 5, 5],
    [1, 1, 2, 1, 1, 1, 3, 4, 4, 4, 4, 5, 5, 5, 2, 2],
    [1, 1, 1, 1, 1, 2, 3, 3, 3, 1, 1, 1, 3, 4, 5, 5],
    [1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 4, 4, 4, 1, 1],
    [1, 2, 1, 1, 1, 1, 3, 3, 3, 3, 3, 4, 5, 3, 4, 3],
    [1, 1, 1, 1, 1, 2, 1, 3, 3, 3, 3, 4, 5, 5, 2, 2],
    [1, 1, 1, 1, 2, 1, 3, 3, 4, 3, 3, 5, 5, 5, 2, 2],
    [1, 2, 2, 2, 2, 3, 4, 4, 2, 4, 1, 4, 3, 3, 5, 5],
    [1, 2, 3, 1, 4, 1, 5, 5, 5, 5, 5, 3, 3, 3, 2, 4],
    [1, 1, 1, 1, 1, 2, 2, 3, 4, 2, 2, 5, 4, 4, 3, 3],
    [1, 2, 2, 2, 2, 1, 3, 3, 3, 3, 3, 1, 4, 4, 5, 5],
    [1, 1, 1, 2, 1, 3, 4, 3, 3, 4, 4, 5, 4, 5, 3, 3],
])  # fmt: skip
N_PAIRS = 120

# comp.psm, times 12, below the diagonal
TOGETHER = [
    [7],
    [7, 9],
    [7, 8, 8],
    [7, 9, 9, 8],
    [6, 4, 4, 5, 4],
    [1, 1, 1, 1, 1, 1],
    [0, 0, 0, 0, 0, 1, 8],
    [0, 1, 1, 2, 1, 1, 5, 8],
    [1, 1, 1, 1, 1, 1, 9, 9, 6],
    [2, 1, 1, 1, 1, 1, 8, 8, 6, 11],
    [2, 1, 2, 1, 1, 1, 1, 1, 0, 2, 1],
    [0, 0, 1, 0, 0, 1, 2, 1, 2, 1, 1, 5],
    [0, 0, 1, 0, 0, 1, 1, 1, 2, 1, 1, 6, 9],
    [1, 1, 1, 0, 1, 2, 0, 2, 1, 0, 0, 1, 0, 0],
    [1, 0, 1, 0, 2, 2, 1, 3, 2, 1, 1, 0, 0, 1, 10],
]

# vi.dist and arandi of each draw and the next
VI = [
    1.15402459041938, 2.19496346742273, 2.0762050593046, 1.67318124582294, 1.97036171470815,
    1.61714393630795, 1.90402459041938, 2.7012050593046, 2.49838552818982, 1.49838552818982,
    1.93466365264895,
]  # fmt: skip
RAND = [
    0.518413597733711, 0.116981132075472, 0.149090909090909, 0.410876132930514,
    0.244274809160305, 0.33920704845815, 0.235127478753541, 0.0187590187590188,
    0.0651558073654391, 0.405099150141643, 0.221140472878999,
]  # fmt: skip

# binder of each draw, and the mean of vi.dist to all draws
BINDER = [
    20.0833333333333, 22.0833333333333, 34.75, 20.5833333333333, 29.75, 23.4166666666667,
    21.0833333333333, 27.0833333333333, 24.75, 23.25, 19.0833333333333, 27.5833333333333,
]  # fmt: skip
MEAN_VI = [
    1.33186769231285, 1.4623814945314, 1.87605823068024, 1.33711241589637, 1.80232434171092,
    1.50187281437415, 1.37629126008879, 1.87353435897951, 1.80239976082003, 1.5904074742757,
    1.2764599171151, 1.81573357750415,
]  # fmt: skip

# minbinder by its four methods: (value, partition)
MINBINDER = {
    "avg": (18.25, [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 4, 4]),
    "comp": (18.25, [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 4, 4]),
    "draws": (19.0833333333333, [1, 2, 2, 2, 2, 1, 3, 3, 3, 3, 3, 1, 4, 4, 5, 5]),
    "laugreen": (16.9166666666667, [1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3, 4, 5, 5, 6, 6]),
}


def test_coclustering_is_comp_psm():
    everything = np.arange(DRAWS.shape[1])
    found = coclustering(DRAWS.astype(np.uint8), everything, everything)
    want = [count for line in TOGETHER for count in line]
    np.testing.assert_allclose(12.0 * found[np.tril_indices(16, -1)], want, rtol=1e-14)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(np.diag(found), 1.0)


def test_losses_of_one_draw_are_vi_dist_and_those_of_all_are_binder():
    for one, other, vi in zip(DRAWS, DRAWS[1:], VI, strict=False):
        assert expected_loss(one, other[None, :], "vi") == pytest.approx(vi, rel=1e-12)
    for draw, binder, vi in zip(DRAWS, BINDER, MEAN_VI, strict=True):
        assert N_PAIRS * expected_loss(draw, DRAWS, "binder") == pytest.approx(binder, rel=1e-12)
        assert expected_loss(draw, DRAWS, "vi") == pytest.approx(vi, rel=1e-12)


def test_adjusted_rand_index_of_the_studies_is_arandi():
    for one, other, want in zip(DRAWS, DRAWS[1:], RAND, strict=False):
        assert adjusted_rand_score(one, other) == pytest.approx(want, rel=1e-12)


def test_point_estimate_is_no_worse_than_minbinder():
    for value, labels in MINBINDER.values():
        found = expected_loss(np.array(labels), DRAWS, "binder")
        assert N_PAIRS * found == pytest.approx(value, rel=1e-12)
    best = point_estimate(DRAWS, "binder", 500)
    least = min(value for value, _ in MINBINDER.values())
    assert N_PAIRS * expected_loss(best, DRAWS, "binder") <= least + 1e-12
    assert expected_loss(point_estimate(DRAWS, "vi", 500), DRAWS, "vi") <= min(MEAN_VI) + 1e-12
