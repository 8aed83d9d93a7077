"""How well a classifier that is given the classes does when entries are missing.

One Gaussian for each class, with the mean and covariance of its complete rows; a row with gaps goes
to the class that is most probable given its observed values.  A clustering, which is not given the
classes, can hardly be expected to do better.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from dpsearch._types import Labels, Matrix

_RIDGE = 1e-9  # of the variances: columns may be constant within a class


def classified(complete: Matrix, classes: Labels, gaps: Matrix) -> Labels:
    """Return the most probable class of each row of `gaps`."""
    names, places = np.unique(classes, return_inverse=True)
    scores = np.empty((len(gaps), len(names)))
    patterns, of_row = np.unique(~np.isnan(gaps), axis=0, return_inverse=True)
    rows_of = np.split(np.argsort(of_row, kind="stable"), np.cumsum(np.bincount(of_row))[:-1])
    for k in range(len(names)):
        own = complete[places == k]
        mean, covariance = own.mean(axis=0), np.atleast_2d(np.cov(own.T))
        covariance = covariance + _RIDGE * np.eye(len(mean))
        for seen, rows in zip(patterns, rows_of, strict=True):
            scores[rows, k] = np.log(len(own))
            if seen.any():
                factor = cho_factor(covariance[np.ix_(seen, seen)], lower=True)
                away = (gaps[np.ix_(rows, seen)] - mean[seen]).T
                squares = (away * cho_solve(factor, away)).sum(axis=0)
                scores[rows, k] -= 0.5 * squares + np.log(np.diag(factor[0])).sum()
    return np.asarray(names[scores.argmax(axis=1)])
