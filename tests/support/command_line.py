"""What the tests of the command line share: see `run` in conftest.py."""

import re

import numpy as np


def complains(outcome, *parts):
    """Check that standard error is a single line that contains all of these texts."""
    code, out, err = outcome
    assert code == 1, err
    assert out == ""
    # `fit` shows what it makes of the columns before it begins.
    shown = r"(column +role +treatment +why\n([^\n]+\n)+)?"
    assert re.fullmatch(shown + r"dpsearch: [^\n]+\n", err), err
    assert "Traceback" not in err
    for part in parts:
        assert part in err, err


def table(n=40):
    """Return two clusters in the plane."""
    rng = np.random.default_rng(0)
    return np.repeat([[0.0, 0.0], [9.0, -9.0]], n // 2, axis=0) + rng.normal(size=(n, 2))


def as_text(X, header=""):
    return header + "".join(",".join(map(repr, row)) + "\n" for row in X.tolist())


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())
