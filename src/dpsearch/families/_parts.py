"""A family made of parts: groups of columns, independent given the cluster, each with a family.

    log H(x) = Σ_p log H_p(x_p)        over the parts p that the data row has

so every function is the sum of its parts', which are called by address.  A data row may lack a
part: then that part's statistics stay as they are, which is the marginal over what was observed.
`Product` and `WithGaps` are both made of this.

Layout.  params: P, then for each part the entries below, then the parts' own params; parts with
equal params share them.  row: n, then the parts' rows; each counts the points that have the part.
Data row: P lengths, −1 where the part is missing, then the parts' data rows.  Features, for bounds:
for each part the number of points that have it, then its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dpsearch._jit import (
    BOUND,
    FEATURES,
    INIT,
    LOG_MARGINAL,
    MERGE,
    SCORE_MEMBER,
    SCORE_ROWS,
    UPDATE,
    call_bound,
    call_features,
    call_init,
    call_log_marginal,
    call_merge,
    call_score_member,
    call_score_rows,
    call_update,
    inline,
    inner,
    kernel,
    pointer,
)
from dpsearch._stack import stack_vector
from dpsearch._types import Ints, Vector
from dpsearch.errors import located
from dpsearch.families.base import Family, Functions, pack
from dpsearch.items import Items

# The entries of one part, from params[1 + _ENTRIES · p].
_BEGIN, _END, _ROW, _WIDTH, _FEATURE, _N_FEATURES, _SPARSE, _ADDRESSES = range(8)
_NAMES = (
    "init",
    "update",
    "merge",
    "score_rows",
    "log_marginal",
    "score_member",
    "features",
    "bound",
)
(
    _INIT,
    _UPDATE,
    _MERGE,
    _SCORE_ROWS,
    _LOG_MARGINAL,
    _SCORE_MEMBER,
    _FEATURES_OF,
    _BOUND_OF,
) = range(_ADDRESSES, _ADDRESSES + len(_NAMES))
_ENTRIES = _ADDRESSES + len(_NAMES)
_HEAD = 1
_AT_ONCE = 64  # clusters scored together, the length of `stack_vector`
_LARGEST_TABLES = 1 << 24


@inner
def _entry(params, p, which):  # type: ignore[no-untyped-def]
    return int(params[1 + _ENTRIES * p + which])


@inline
def _own(params, p):  # type: ignore[no-untyped-def]
    """The part's own parameters."""
    return params[_entry(params, p, _BEGIN) : _entry(params, p, _END)]


@inline
def _row(params, p, row):  # type: ignore[no-untyped-def]
    """The part's own statistics."""
    return row[_entry(params, p, _ROW) : _entry(params, p, _ROW) + _entry(params, p, _WIDTH)]


@inline
def _ids(params, p, ids, begin, end):  # type: ignore[no-untyped-def]
    """The column numbers of the part's values, none if its data are dense."""
    return ids[begin * _entry(params, p, _SPARSE) : end * _entry(params, p, _SPARSE)]


@pointer(INIT)
def _init(params, row):  # type: ignore[no-untyped-def]
    row[0] = 0.0
    for p in range(int(params[0])):
        own, part = _own(params, p), _row(params, p, row)
        call_init(_entry(params, p, _INIT), (own, part))


@pointer(UPDATE)
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    n_parts = int(params[0])
    row[0] += weight
    begin = n_parts
    for p in range(n_parts):
        if values[p] < 0.0:
            continue
        end = begin + int(values[p])
        own, part = _own(params, p), _row(params, p, row)
        call_update(
            _entry(params, p, _UPDATE),
            (own, part, _ids(params, p, ids, begin, end), values[begin:end], weight),
        )
        begin = end


@pointer(MERGE)
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    row[0] += sign * other[0]
    for p in range(int(params[0])):
        own, part, added = _own(params, p), _row(params, p, row), _row(params, p, other)
        call_merge(_entry(params, p, _MERGE), (own, part, added, sign))


@pointer(SCORE_ROWS)
def _score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    n_parts = int(params[0])
    scratch = stack_vector()  # type: ignore[call-arg,var-annotated]
    for first in range(0, starts.shape[0], _AT_ONCE):
        n_rows = min(_AT_ONCE, starts.shape[0] - first)
        rows = starts[first : first + n_rows]
        scores = out[first : first + n_rows]
        for k in range(n_rows):
            scores[k] = 0.0
        begin = n_parts
        for p in range(n_parts):
            if values[p] < 0.0:
                continue
            end = begin + int(values[p])
            own = _own(params, p)
            # The part's rows begin where the whole rows do, in a pool that begins later.
            call_score_rows(
                _entry(params, p, _SCORE_ROWS),
                (
                    own,
                    pool[_entry(params, p, _ROW) :],
                    rows,
                    _ids(params, p, ids, begin, end),
                    values[begin:end],
                    scratch[:n_rows],
                ),
            )
            for k in range(n_rows):
                scores[k] += scratch[k]
            begin = end


@pointer(LOG_MARGINAL)
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    out = 0.0
    for p in range(int(params[0])):
        own, part = _own(params, p), _row(params, p, row)
        out += call_log_marginal(_entry(params, p, _LOG_MARGINAL), (own, part))
    return out


@pointer(SCORE_MEMBER)
def _score_member(params, row, ids, values):  # type: ignore[no-untyped-def]
    n_parts = int(params[0])
    out = 0.0
    begin = n_parts
    for p in range(n_parts):
        if values[p] < 0.0:
            continue
        end = begin + int(values[p])
        own, part = _own(params, p), _row(params, p, row)
        out += call_score_member(
            _entry(params, p, _SCORE_MEMBER),
            (own, part, _ids(params, p, ids, begin, end), values[begin:end]),
        )
        begin = end
    return out


@pointer(FEATURES)
def _features(params, ids, values, out):  # type: ignore[no-untyped-def]
    n_parts = int(params[0])
    for f in range(out.shape[0]):
        out[f] = 0.0
    begin = n_parts
    for p in range(n_parts):
        if values[p] < 0.0:
            continue
        end = begin + int(values[p])
        own = _own(params, p)
        at = _entry(params, p, _FEATURE)
        out[at] = 1.0
        call_features(
            _entry(params, p, _FEATURES_OF),
            (
                own,
                _ids(params, p, ids, begin, end),
                values[begin:end],
                out[at + 1 : at + 1 + _entry(params, p, _N_FEATURES)],
            ),
        )
        begin = end


@pointer(BOUND)
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    """In every part the best over how many of the helpers have it."""
    n_parts = int(params[0])
    out = 0.0
    begin = n_parts
    for p in range(n_parts):
        if values[p] < 0.0:
            continue
        end = begin + int(values[p])
        own, part = _own(params, p), _row(params, p, row)
        feature = _entry(params, p, _FEATURE)
        last = feature + 1 + _entry(params, p, _N_FEATURES)
        best = -np.inf
        fewest = max(int(np.ceil(low[feature])), 0)
        most = min(int(np.floor(high[feature])), helpers)
        for count in range(fewest, most + 1):
            # Not a number where so few helpers could not have such features.
            bound = call_bound(
                _entry(params, p, _BOUND_OF),
                (
                    own,
                    part,
                    count,
                    low[feature + 1 : last],
                    high[feature + 1 : last],
                    _ids(params, p, ids, begin, end),
                    values[begin:end],
                ),
            )
            if bound > best:
                best = bound
        out += best
        begin = end
    return out


class Part(NamedTuple):
    """A family, completed by `resolve`, and the columns that it is for."""

    family: Family
    columns: Ints

    def row(self, row: Vector, at: int) -> Vector:
        return row[at : at + self.width]

    @property
    def width(self) -> int:
        return self.family.width(len(self.columns))

    @property
    def n_features(self) -> int:
        """Features for bounds: of the family, and whether a point has the part."""
        return 1 + self.family.bound_width(len(self.columns))


def functions_of(parts: Sequence[Part]) -> Functions:
    """The functions of the whole, with the capabilities that all parts have."""
    variants = [part.family.variant() for part in parts]
    member = all(v.score_member is not None for v in variants)
    bounded = all(v.features is not None and v.bound is not None for v in variants)
    return Functions(
        _init,
        _update,
        _merge,
        _score_rows,
        _log_marginal,
        score_member=_score_member if member else None,
        features=_features if bounded else None,
        bound=_bound if bounded else None,
    )


def width_of(parts: Sequence[Part]) -> int:
    return _HEAD + sum(part.width for part in parts)


def features_of(parts: Sequence[Part]) -> int:
    return sum(part.n_features for part in parts)


def starts_of(parts: Sequence[Part]) -> list[int]:
    """Where in a row each part's begins."""
    widths = [part.width for part in parts]
    return [_HEAD + sum(widths[:p]) for p in range(len(parts))]


def rows_of(parts: Sequence[Part], row: Vector) -> list[Vector]:
    """The parts' rows."""
    return [part.row(row, at) for part, at in zip(parts, starts_of(parts), strict=True)]


def counts_of(parts: Sequence[Part]) -> Ints:
    """Which numbers of a row are whole: the parts' sizes and their counts."""
    out = [np.zeros(1, np.int64)]
    for part, at in zip(parts, starts_of(parts), strict=True):
        counts = part.family.counts_in_row(len(part.columns))
        out.append(np.array([at]))
        if counts is not None:
            out.append(at + np.arange(part.width)[counts])
    return np.concatenate(out)


def parameters_of(parts: Sequence[Part], X: Any) -> Vector:
    """The flat parameters, for data X without gaps; tables are smaller if there are too many."""
    heads = np.zeros((len(parts), _ENTRIES))
    tables: list[Vector] = []
    end = 1 + heads.size
    for members in _alike(parts):
        # For the largest of the parts that share it: tables may be sized to the data.
        share = X[: max(2, X.shape[0] * _LARGEST_TABLES // (X.size + 1))]
        part = max((parts[p] for p in members), key=lambda part: share[:, part.columns].sum())
        own = part.family.parameters(len(part.columns), share[:, part.columns])
        tables.append(own)
        heads[members, _BEGIN] = end
        end += len(own)
        heads[members, _END] = end
    features = np.cumsum([0, *(part.n_features for part in parts)])
    heads[:, _ROW] = starts_of(parts)
    heads[:, _WIDTH] = [part.width for part in parts]
    heads[:, _FEATURE] = features[:-1]
    heads[:, _N_FEATURES] = np.diff(features) - 1
    heads[:, _SPARSE] = [_is_sparse(part.family.encode(X[:1, part.columns])) for part in parts]
    return relocated(parts, np.concatenate([[len(parts)], heads.reshape(-1), *tables]))


def _alike(parts: Sequence[Part]) -> list[list[int]]:
    """Group the parts that have the same parameters but for the sizes of tables."""
    shapes = [(type(part.family), len(part.columns)) for part in parts]
    groups: dict[Any, list[int]] = {}
    for p, (part, shape) in enumerate(zip(parts, shapes, strict=True)):
        key: Any = shape
        if shapes.count(shape) > 1:
            width = shape[1]
            params = part.family.parameters(width, np.zeros((1, width)))
            key = (shape, np.asarray(params, dtype=np.float64).tobytes())
        groups.setdefault(key, []).append(p)
    return list(groups.values())


def relocated(parts: Sequence[Part], params: Vector) -> Vector:
    """Return params with the addresses that the parts' functions have in this process.

    An address is a whole number below 2⁵³, which a double holds exactly.
    """
    params = params.copy()
    heads = params[1 : 1 + _ENTRIES * len(parts)].reshape(len(parts), _ENTRIES)
    for head, part in zip(heads, parts, strict=True):
        variant = part.family.variant()
        pointers = [getattr(variant, name) for name in _NAMES]
        head[_ADDRESSES:] = [0 if found is None else found.address for found in pointers]
        begin, end = int(head[_BEGIN]), int(head[_END])
        params[begin:end] = part.family.relocated(params[begin:end], len(part.columns))
    return params


@kernel
def _place(own_values, own_ids, indptr, begins, lengths, p, values, ids):  # type: ignore[no-untyped-def]
    """Copy the data rows of part p to where they begin."""
    for i in range(lengths.shape[0]):
        for j in range(lengths[i, p]):
            values[begins[i, p] + j] = own_values[indptr[i] + j]
            if own_ids.shape[0] > 0:
                ids[begins[i, p] + j] = own_ids[indptr[i] + j]


def encoded(parts: Sequence[Part], X: Any, observed: Any) -> Items:
    """Lay the parts' data rows end to end; `observed` [rows, parts] says which are there."""
    items = []
    for part in parts:
        with located(columns=part.columns.tolist()):
            items.append(pack(part.family.encode(X[:, part.columns])))
    lengths = np.stack([np.diff(own.indptr) for own in items], axis=1)
    present = np.where(observed, lengths, 0)
    n_rows, n_parts = lengths.shape
    indptr = np.concatenate([[0], np.cumsum(n_parts + present.sum(axis=1))])
    values = np.empty(indptr[-1])
    sparse = any(len(own.ids) > 0 for own in items)
    ids = np.zeros(indptr[-1] if sparse else 0, np.int32)
    heads = indptr[:-1, None] + np.arange(n_parts)
    values[heads] = np.where(observed, lengths, -1.0)
    begins = indptr[:-1, None] + n_parts + np.cumsum(present, axis=1) - present
    for p, own in enumerate(items):
        _place(own.values, own.ids, own.indptr, begins, present, p, values, ids)
    return Items(values, ids, indptr.astype(np.int64), np.ones(n_rows, np.int64), False)


def _is_sparse(encoded: Any) -> bool:
    """Whether encoded data have column numbers."""
    return bool(sp.issparse(encoded) or (isinstance(encoded, Items) and len(encoded.ids) > 0))
