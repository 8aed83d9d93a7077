"""Precision and recall of pairs."""

import numpy as np
import pytest

from dpsearch.partition import all_partitions
from studies.reproduction.pair_scores import pair_scores


def naive_pair_scores(truth, labels):
    """Compute the scores by visiting every pair."""
    n = len(truth)
    pairs = [(i, j) for i in range(n) for j in range(i)]
    wanted = {(i, j) for i, j in pairs if truth[i] == truth[j]}
    found = {(i, j) for i, j in pairs if labels[i] == labels[j]}
    precision = len(wanted & found) / len(found) if found else 1.0
    recall = len(wanted & found) / len(wanted) if wanted else 1.0
    both = precision + recall
    return precision, recall, 2.0 * precision * recall / both if both else 0.0


def test_pair_scores_of_all_partitions_of_four_points():
    for truth in all_partitions(4):
        for labels in all_partitions(4):
            want = naive_pair_scores(truth, labels)
            assert pair_scores(truth, labels) == pytest.approx(want, rel=1e-14)


def test_pair_scores_of_random_partitions():
    rng = np.random.default_rng(0)
    for _ in range(20):
        n = int(rng.integers(2, 60))
        truth, labels = rng.integers(rng.integers(1, 9, size=(2, 1)), size=(2, n))
        assert pair_scores(truth, labels) == pytest.approx(naive_pair_scores(truth, labels))
        renamed = rng.permutation(10)[labels]
        assert pair_scores(truth, renamed) == pair_scores(truth, labels)
        swapped = pair_scores(labels, truth)
        assert swapped.precision == pair_scores(truth, labels).recall
        assert pair_scores(truth, truth) == (1.0, 1.0, 1.0)


def test_pair_scores_of_many_points_do_not_overflow():
    n = 200_000
    truth, labels = np.zeros(n, int), np.arange(n) % 2
    scores = pair_scores(truth, labels)
    pairs, found = n * (n - 1) / 2, 2 * (n / 2) * (n / 2 - 1) / 2
    assert scores.precision == 1.0
    assert scores.recall == pytest.approx(found / pairs, rel=1e-12)
