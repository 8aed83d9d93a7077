"""Interrupts at chosen moments: Ctrl-C as it were, before a line of the package is run."""

import sys
from contextlib import contextmanager
from pathlib import Path

import dpsearch

PACKAGE = str(Path(dpsearch.__file__).parent)


class Moments:
    """Counts the lines of the package that run, and interrupts before one of them."""

    def __init__(self, at=None):
        self.at = at
        self.count = 0

    def __call__(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            self.count += 1
            if self.count == self.at:
                raise KeyboardInterrupt
        return self


@contextmanager
def interrupted_at(at=None):
    """Raise KeyboardInterrupt before the given line that runs; None: only count the lines."""
    moments, before = Moments(at), sys.gettrace()
    sys.settrace(moments)
    try:
        yield moments
    finally:
        sys.settrace(before)


def some(n_moments, rng, n_random=10, n_last=5):
    """Moments of a run of so many lines: some at random, and all of the last ones."""
    chosen = rng.choice(n_moments, size=min(n_random, n_moments), replace=False) + 1
    return sorted({*chosen.tolist(), *range(max(1, n_moments - n_last), n_moments + 1)})
