"""A family made of parts: groups of columns, independent given the cluster, each with a family.

    log H(x) = Σ_p log H_p(x_p)        over the parts p that the data row has

so every function is the sum of its parts', which are called by address.  A data row may lack a
part: then that part's statistics stay as they are, which is the marginal over what was observed.
`Product` and `WithGaps` are both made of this.

Layout.  params: P, then an `_Entry` for each part, then the parts' own params; parts with equal
params share them.  row: n, then the parts' rows; each counts the points that have the part.  Data
row: where the data of each of the P parts end, below 0 if the part is missing, then these data.
Features, for bounds: for each part the number of points that have it, then its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dpsearch import _jit
from dpsearch._types import Ints, Matrix, Vector
from dpsearch.errors import DataError, located
from dpsearch.families.base import Family
from dpsearch.families.functions import Functions
from dpsearch.families.linear import LinearForm, columns_of, namespace
from dpsearch.families.packing import pack
from dpsearch.items import Items


class _Entry(NamedTuple):
    """What the parameters have of one part."""

    begin: int  # of its own parameters
    end: int
    row: int  # where its row begins
    width: int
    feature: int  # where its features begin, with whether a point has the part
    n_features: int  # besides
    sparse: int  # whether its data have column numbers
    update: int  # from here on the addresses of its functions
    merge: int
    score_rows: int
    log_marginal: int
    score_member: int
    features: int
    bound: int


_AT = _Entry(*range(len(_Entry._fields)))
_HEAD = 1  # the numbers of a row, and of parameters, before those of parts
_AT_ONCE = 64  # clusters scored together, the length of `stack_vector`
_LARGEST_TABLES = 1 << 24


@_jit.inner
def _entry(params, p, which):  # type: ignore[no-untyped-def]
    return int(params[_HEAD + len(_AT) * p + which])


@_jit.inline
def _own(params, p):  # type: ignore[no-untyped-def]
    """The part's own parameters."""
    return params[_entry(params, p, _AT.begin) : _entry(params, p, _AT.end)]


@_jit.inline
def _row(params, p, row):  # type: ignore[no-untyped-def]
    """The part's own statistics."""
    begin = _entry(params, p, _AT.row)
    return row[begin : begin + _entry(params, p, _AT.width)]


@_jit.inner
def _begin(params, p, values):  # type: ignore[no-untyped-def]
    """Where the part's data begin."""
    return int(abs(values[p - 1]) if p > 0 else params[0])


@_jit.inline
def _values(params, p, values):  # type: ignore[no-untyped-def]
    """The part's own data."""
    return values[_begin(params, p, values) : int(values[p])]


@_jit.inline
def _ids(params, p, ids, values):  # type: ignore[no-untyped-def]
    """The column numbers of the part's data, none if they are dense."""
    sparse = _entry(params, p, _AT.sparse)
    return ids[sparse * _begin(params, p, values) : sparse * int(values[p])]


@_jit.pointer("update")
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    row[0] += weight
    for p in range(int(params[0])):
        if values[p] >= 0.0:
            own, part = _own(params, p), _row(params, p, row)
            own_ids, own_values = _ids(params, p, ids, values), _values(params, p, values)
            address = _entry(params, p, _AT.update)
            _jit.call_update(address, (own, part, own_ids, own_values, weight))


@_jit.pointer("merge")
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    row[0] += sign * other[0]
    for p in range(int(params[0])):
        own, part, added = _own(params, p), _row(params, p, row), _row(params, p, other)
        _jit.call_merge(_entry(params, p, _AT.merge), (own, part, added, sign))


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
            own, own_pool = _own(params, p), pool[_entry(params, p, _AT.row) :]
            own_ids, own_values = _ids(params, p, ids, values), _values(params, p, values)
            _jit.call_score_rows(
                _entry(params, p, _AT.score_rows),
                (own, own_pool, rows, own_ids, own_values, scratch[:n_rows]),
            )
            for k in range(n_rows):
                scores[k] += scratch[k]


@_jit.pointer("log_marginal")
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    out = 0.0
    for p in range(int(params[0])):
        own, part = _own(params, p), _row(params, p, row)
        out += _jit.call_log_marginal(_entry(params, p, _AT.log_marginal), (own, part))
    return out


@_jit.pointer("score_member")
def _score_member(params, row, ids, values):  # type: ignore[no-untyped-def]
    out = 0.0
    for p in range(int(params[0])):
        if values[p] >= 0.0:
            own, part = _own(params, p), _row(params, p, row)
            own_ids, own_values = _ids(params, p, ids, values), _values(params, p, values)
            address = _entry(params, p, _AT.score_member)
            out += _jit.call_score_member(address, (own, part, own_ids, own_values))
    return out


@_jit.pointer("features")
def _features(params, ids, values, out):  # type: ignore[no-untyped-def]
    for f in range(out.shape[0]):
        out[f] = 0.0
    for p in range(int(params[0])):
        if values[p] >= 0.0:
            begin = _entry(params, p, _AT.feature)
            out[begin] = 1.0
            features = out[begin + 1 : begin + 1 + _entry(params, p, _AT.n_features)]
            own_ids, own_values = _ids(params, p, ids, values), _values(params, p, values)
            address = _entry(params, p, _AT.features)
            _jit.call_features(address, (_own(params, p), own_ids, own_values, features))


@_jit.pointer("bound")
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    """In every part the best over how many of the helpers have it."""
    out = 0.0
    for p in range(int(params[0])):
        if values[p] < 0.0:
            continue
        own, part = _own(params, p), _row(params, p, row)
        own_ids, own_values = _ids(params, p, ids, values), _values(params, p, values)
        begin = _entry(params, p, _AT.feature)
        end = begin + 1 + _entry(params, p, _AT.n_features)
        least, most = low[begin + 1 : end], high[begin + 1 : end]
        best = -np.inf
        for count in range(
            max(int(np.ceil(low[begin])), 0), min(int(np.floor(high[begin])), helpers) + 1
        ):
            # It is NaN if this number of helpers cannot have such features.
            bound = _jit.call_bound(
                _entry(params, p, _AT.bound), (own, part, count, least, most, own_ids, own_values)
            )
            if bound > best:
                best = bound
        out += best
    return out


class Part(NamedTuple):
    """A family, completed by `resolve`, and the columns that it is for."""

    family: Family
    columns: Ints

    @property
    def width(self) -> int:
        return self.family.width(len(self.columns))

    @property
    def n_features(self) -> int:
        """Features for bounds: of the family, and whether a point has the part."""
        return 1 + self.family.bound_width(len(self.columns))


def functions_of(parts: Sequence[Part]) -> Functions:
    """The functions of all parts together, with the capabilities that every part has."""
    variants = [part.family.variant() for part in parts]
    member = all(v.score_member is not None for v in variants)
    bounded = all(v.bound is not None for v in variants)
    return Functions(
        _update,
        _merge,
        _score_rows,
        _log_marginal,
        score_member=_score_member if member else None,
        bound=_bound if bounded else None,
        features=_features,
    )


def starts_of(parts: Sequence[Part]) -> Ints:
    """Return where in a row each part's row begins, and where the last one ends."""
    return np.cumsum([_HEAD, *(part.width for part in parts)])


def counts_of(parts: Sequence[Part]) -> Ints:
    """Return which numbers of a row are counts: the parts' sizes and their own counts."""
    out = [np.zeros(1, np.int64)]
    for part, at in zip(parts, starts_of(parts), strict=False):
        counts = part.family.counts_in_row(len(part.columns))
        out.append(np.array([at]))
        if counts is not None:
            out.append(at + np.arange(part.width)[counts])
    return np.concatenate(out)


def parameters_of(parts: Sequence[Part], X: Any) -> Vector:
    """The flat parameters, for data X without gaps; tables are smaller if there are too many."""
    heads = np.zeros((len(parts), len(_AT)))
    tables: list[Vector] = []
    end = _HEAD + heads.size
    for members in _alike(parts):
        # For the largest of the parts that share it: tables may be sized to the data.
        share = X[: max(2, X.shape[0] * _LARGEST_TABLES // (X.size + 1))]
        part = max((parts[p] for p in members), key=lambda part: share[:, part.columns].sum())
        tables.append(part.family.parameters(len(part.columns), share[:, part.columns]))
        heads[members, _AT.begin] = end
        end += len(tables[-1])
        heads[members, _AT.end] = end
    n_features = [part.n_features for part in parts]
    heads[:, _AT.row] = starts_of(parts)[:-1]
    heads[:, _AT.width] = [part.width for part in parts]
    heads[:, _AT.feature] = np.cumsum(n_features) - n_features
    heads[:, _AT.n_features] = np.array(n_features) - 1
    heads[:, _AT.sparse] = [_encodes_sparsely(part.family, X[:1, part.columns]) for part in parts]
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

    An address is an integer below 2⁵³, which a double holds exactly.
    """
    params = params.copy()
    heads = params[_HEAD : _HEAD + len(_AT) * len(parts)].reshape(len(parts), len(_AT))
    for head, part in zip(heads, parts, strict=True):
        variant = part.family.variant()
        pointers = [getattr(variant, name) for name in _Entry._fields[_AT.update :]]
        head[_AT.update :] = [0 if found is None else found.address for found in pointers]
        begin, end = int(head[_AT.begin]), int(head[_AT.end])
        params[begin:end] = part.family.relocated(params[begin:end], len(part.columns))
    return params


def linear_of(parts: Sequence[Part], forms: Sequence[LinearForm]) -> LinearForm:
    """The linear form of all parts together: their features side by side."""
    n_totals = np.cumsum([form.n_totals for form in forms])

    def apart(totals: Matrix) -> Iterator[tuple[LinearForm, Matrix]]:
        return zip(forms, np.split(totals, n_totals[:-1], axis=1), strict=True)

    def features(X: Any) -> Any:
        pairs = zip(forms, parts, strict=True)
        found = [form.features(columns_of(X, part.columns)) for form, part in pairs]
        return namespace(X).concat(found, axis=1)

    def log_marginals(sizes: Vector, totals: Matrix) -> Vector:
        found = [form.log_marginals(sizes, own) for form, own in apart(totals)]
        return np.asarray(np.sum(found, axis=0))

    def weights(sizes: Vector, totals: Matrix) -> tuple[Matrix, Vector]:
        found = [form.weights(sizes, own) for form, own in apart(totals)]
        by_totals, by_size = zip(*found, strict=True)
        return np.hstack(by_totals), np.sum(by_size, axis=0)

    def rows(sizes: Vector, totals: Matrix) -> Matrix:
        return np.hstack([sizes[:, None], *(form.rows(sizes, own) for form, own in apart(totals))])

    begins = [0, *n_totals[:-1]]
    moved = [
        [term.moved(at) for term in form.terms] for form, at in zip(forms, begins, strict=True)
    ]
    terms = tuple(term for of_form in moved for term in of_form) if all(moved) else ()
    return LinearForm(int(n_totals[-1]), features, log_marginals, weights, rows, terms)


@_jit.kernel
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
    ends = n_parts + np.cumsum(present, axis=1)
    values[indptr[:-1, None] + np.arange(n_parts)] = np.where(observed, ends, -ends)
    begins = indptr[:-1, None] + ends - present
    for p, own in enumerate(items):
        _place(own.values, own.ids, own.indptr, begins, present, p, values, ids)
    return Items(values, ids, indptr.astype(np.int64), np.ones(n_rows, np.int64), False)


def _encodes_sparsely(family: Family, X: Any) -> bool:
    """Whether encoded data have column numbers; not if the row, of zeros maybe, has no code."""
    try:
        with np.errstate(divide="ignore"):
            encoded = family.encode(X)
    except DataError:
        return False
    return bool(sp.issparse(encoded) or (isinstance(encoded, Items) and len(encoded.ids) > 0))
