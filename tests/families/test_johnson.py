"""The fit of Johnson's curves: close to the optimum, and the same for mirrored columns."""

import numpy as np
import pytest

from dpsearch.families import Johnson

N = 300


def columns(seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=N)
    return labels, np.column_stack(
        [
            rng.lognormal(2.0 * labels, 0.5),
            -rng.gamma(1.5, size=N),
            rng.standard_t(3.0, size=N),
            rng.beta(0.5, 0.5, size=N),
        ]
    )


def log_likelihood(x, labels, centre, bend):
    z = np.arcsinh(bend * (x - centre)) / bend if bend else x
    variance = sum(((own - own.mean()) ** 2).sum() for own in (z[labels == 0], z[labels == 1])) / N
    return -0.5 * N * np.log(variance) - 0.5 * np.log1p((bend * (x - centre)) ** 2).sum()


@pytest.mark.parametrize("seed", range(3))
def test_no_curve_of_a_grid_is_likelier_by_a_nat(seed):
    labels, X = columns(seed)
    found = Johnson.suggest(X).learned(X, labels)
    for x, centre, bend in zip(X.T, found.centre, found.bend, strict=True):
        unit = np.subtract(*np.quantile(x, [0.75, 0.25])) / 1.35
        grid = [
            log_likelihood(x, labels, c, b / unit)
            for c in np.quantile(x, np.linspace(0.0, 1.0, 21))
            for b in np.exp(np.linspace(-3.0, 5.0, 25))
        ]
        slack = 1.0 if bend else 5.0  # which a curve must be worth
        assert log_likelihood(x, labels, centre, bend) > max(grid) - slack


@pytest.mark.parametrize("seed", range(3))
def test_mirrored_columns_get_mirrored_transformations(seed):
    labels, X = columns(seed)
    one, other = (Johnson.suggest(Y).learned(Y, labels) for Y in (X, -X))
    np.testing.assert_allclose(other.centre, -np.array(one.centre), rtol=1e-9)
    np.testing.assert_allclose(other.bend, one.bend, rtol=1e-9)
