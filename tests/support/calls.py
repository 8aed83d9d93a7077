"""Counting calls of functions."""

import sys


def calls_of(action, *functions):
    """Run an action; return how often it called each of these Python functions."""
    codes = [function.__code__ for function in functions]
    counts = [0] * len(codes)

    def count(frame, event, _):
        if event == "call" and frame.f_code in codes:
            counts[codes.index(frame.f_code)] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return counts
