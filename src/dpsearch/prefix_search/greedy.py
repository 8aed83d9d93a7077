"""Greedy search, a beam of one: each item in turn goes where the log joint grows most."""

from __future__ import annotations

import numpy as np

from dpsearch._clock import clock
from dpsearch._types import Ints, Labels
from dpsearch.deadline import OutOfTime, current
from dpsearch.events import Callback, Event
from dpsearch.problem import Problem
from dpsearch.state import State

_CHUNK = 8192  # items between two calls of the callback, or checks for Ctrl-C


def greedy(problem: Problem, order: Ints, callback: Callback | None = None) -> Labels:
    """Return the labels of one greedy pass in this order.

    The pass starts from the background's clusters, whose labels come first.  Items that are not in
    the order get the label −1.
    """
    return greedy_state(problem, order, callback).labels


def greedy_state(problem: Problem, order: Ints, callback: Callback | None = None) -> State:
    """Return the state after a greedy pass; slots are numbered in the order of their creation."""
    begun = clock()
    n = len(order)
    state = State(problem, np.full(problem.n_items, -1))
    for begin in range(0, n, _CHUNK):
        try:
            current().check()
            state.sweep(order[begin : begin + _CHUNK])
        except OutOfTime:
            return _completed(problem, state, order)
        if callback is not None:
            seconds, done = clock() - begun, min(n, begin + _CHUNK)
            callback(Event(seconds, state.log_joint, state.n_live, "search", done, n))
    return state


def _completed(problem: Problem, state: State, order: Ints) -> State:
    """Return the state with all items that were not reached in one further cluster."""
    labels, left = state.labels.copy(), order[state.labels[order] < 0]
    labels[left] = labels.max() + 1
    return State(problem, labels)
