"""Comparison of a partition with the known truth, by pairs of points."""

from __future__ import annotations

from typing import NamedTuple

from sklearn.metrics.cluster import pair_confusion_matrix

from dpsearch._types import ArrayLike


class PairScores(NamedTuple):
    precision: float
    recall: float
    f_score: float


def pair_scores(truth: ArrayLike, labels: ArrayLike) -> PairScores:
    """Return precision, recall and their harmonic mean over "same cluster or not" decisions.

    With no pair together in truth (or in labels), recall (or precision) counts as 1.

    >>> pair_scores([0, 0, 1, 1], [0, 0, 0, 1]).f_score
    0.4
    """
    (_, false_positive), (false_negative, together) = pair_confusion_matrix(truth, labels).tolist()
    precision = together / (together + false_positive) if together + false_positive else 1.0
    recall = together / (together + false_negative) if together + false_negative else 1.0
    total = precision + recall
    return PairScores(precision, recall, 2.0 * precision * recall / total if total else 0.0)
