"""A family made of parts: groups of columns, independent given the cluster, each with a family.

    log H(x) = Σ_p log H_p(x_p)        over the parts p that the data row has

so every function is the sum of those of the parts, which are called by address.  If a data row
lacks a part, that part's statistics do not change, which gives the marginal of the observed values.
`Product` and `WithGaps` are both based on this, through `composite.py`.

Parameters are P, an `Entry` for each part, and the parts' own parameters, which parts with equal
ones share.  A row is n, then the parts' rows, each of which counts the points that have the part.
A data row has the ends of the data of each of the P parts, negative if the part is missing, then
these data.  Features, for bounds, are for each part the number of points that have it, then its
own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dpsearch import _jit
from dpsearch.families.functions import Functions


class Entry(NamedTuple):
    """The entry of one part in the parameters."""

    begin: int  # of its own parameters
    end: int
    row: int  # where its row begins
    width: int
    feature: int  # where its features begin; the first says whether a point has the part
    n_features: int  # the number of further features
    sparse: int  # whether its data have column indices
    update: int  # from here on the addresses of its functions
    merge: int
    score_rows: int
    log_marginal: int
    score_member: int
    features: int
    bound: int


AT = Entry(*range(len(Entry._fields)))
HEAD = 1  # the numbers of a row, and of parameters, before those of parts
_AT_ONCE = 64  # clusters scored together, the length of `stack_vector`


@_jit.inner
def _entry(params, p, which):  # type: ignore[no-untyped-def]
    return int(params[HEAD + len(AT) * p + which])


@_jit.inline
def _own(params, p):  # type: ignore[no-untyped-def]
    """Return the part's own parameters."""
    return params[_entry(params, p, AT.begin) : _entry(params, p, AT.end)]


@_jit.inline
def _row(params, p, row):  # type: ignore[no-untyped-def]
    """Return the part's own statistics."""
    begin = _entry(params, p, AT.row)
    return row[begin : begin + _entry(params, p, AT.width)]


@_jit.inner
def _begin(params, p, values):  # type: ignore[no-untyped-def]
    """Return where the part's data begin."""
    return int(abs(values[p - 1]) if p > 0 else params[0])


@_jit.inline
def _values(params, p, values):  # type: ignore[no-untyped-def]
    """Return the part's own data."""
    return values[_begin(params, p, values) : int(values[p])]


@_jit.inline
def _ids(params, p, ids, values):  # type: ignore[no-untyped-def]
    """Return the column indices of the part's data; none if they are dense."""
    sparse = _entry(params, p, AT.sparse)
    return ids[sparse * _begin(params, p, values) : sparse * int(values[p])]


@_jit.pointer("update")
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    row[0] += weight
    for p in range(int(params[0])):
        if values[p] >= 0.0:
            own, part = _own(params, p), _row(params, p, row)
            own_ids, own_values = _ids(params, p, ids, values), _values(params, p, values)
            address = _entry(params, p, AT.update)
            _jit.call_update(address, (own, part, own_ids, own_values, weight))


@_jit.pointer("merge")
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    row[0] += sign * other[0]
    for p in range(int(params[0])):
        own, part, added = _own(params, p), _row(params, p, row), _row(params, p, other)
        _jit.call_merge(_entry(params, p, AT.merge), (own, part, added, sign))


@_jit.pointer("score_rows")
def _score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    scratch = _jit.stack_vector()  # type: ignore[call-arg,var-annotated]
    for first in range(0, starts.shape[0], _AT_ONCE):
        n_rows = min(_AT_ONCE, starts.shape[0] - first)
        rows = starts[first : first + n_rows]
        scores = out[first : first + n_rows]
        for k in range(n_rows):
            scores[k] = 0.0
        for p in range(int(params[0])):
            if values[p] < 0.0:
                continue
            # The part's rows have the starts of the full rows, in a pool that begins later.
            own, own_pool = _own(params, p), pool[_entry(params, p, AT.row) :]
            own_ids, own_values = _ids(params, p, ids, values), _values(params, p, values)
            _jit.call_score_rows(
                _entry(params, p, AT.score_rows),
                (own, own_pool, rows, own_ids, own_values, scratch[:n_rows]),
            )
            for k in range(n_rows):
                scores[k] += scratch[k]


@_jit.pointer("log_marginal")
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    out = 0.0
    for p in range(int(params[0])):
        own, part = _own(params, p), _row(params, p, row)
        out += _jit.call_log_marginal(_entry(params, p, AT.log_marginal), (own, part))
    return out


@_jit.pointer("score_member")
def _score_member(params, row, ids, values):  # type: ignore[no-untyped-def]
    out = 0.0
    for p in range(int(params[0])):
        if values[p] >= 0.0:
            own, part = _own(params, p), _row(params, p, row)
            own_ids, own_values = _ids(params, p, ids, values), _values(params, p, values)
            address = _entry(params, p, AT.score_member)
            out += _jit.call_score_member(address, (own, part, own_ids, own_values))
    return out


@_jit.pointer("features")
def _features(params, ids, values, out):  # type: ignore[no-untyped-def]
    for f in range(out.shape[0]):
        out[f] = 0.0
    for p in range(int(params[0])):
        if values[p] >= 0.0:
            begin = _entry(params, p, AT.feature)
            out[begin] = 1.0
            features = out[begin + 1 : begin + 1 + _entry(params, p, AT.n_features)]
            own_ids, own_values = _ids(params, p, ids, values), _values(params, p, values)
            address = _entry(params, p, AT.features)
            _jit.call_features(address, (_own(params, p), own_ids, own_values, features))


@_jit.pointer("bound")
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    """Return the sum over parts of the best bound over how many helpers have the part."""
    out = 0.0
    for p in range(int(params[0])):
        if values[p] < 0.0:
            continue
        own, part = _own(params, p), _row(params, p, row)
        own_ids, own_values = _ids(params, p, ids, values), _values(params, p, values)
        begin = _entry(params, p, AT.feature)
        end = begin + 1 + _entry(params, p, AT.n_features)
        least, most = low[begin + 1 : end], high[begin + 1 : end]
        best = -np.inf
        for count in range(
            max(int(np.ceil(low[begin])), 0), min(int(np.floor(high[begin])), helpers) + 1
        ):
            # The bound is NaN if this number of helpers cannot have such features.
            bound = _jit.call_bound(
                _entry(params, p, AT.bound), (own, part, count, least, most, own_ids, own_values)
            )
            if bound > best:
                best = bound
        out += best
    return out


def functions_of(members: Sequence[Functions]) -> Functions:
    """Return the functions of all parts together, with the capabilities that every part has."""
    member = all(one.score_member is not None for one in members)
    bounded = all(one.bound is not None for one in members)
    return Functions(
        _update,
        _merge,
        _score_rows,
        _log_marginal,
        score_member=_score_member if member else None,
        bound=_bound if bounded else None,
        features=_features,
    )
