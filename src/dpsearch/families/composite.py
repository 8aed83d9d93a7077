"""The base of families that are made of parts: `Product` and `WithGaps`.

A subclass returns the parts for a table of some width.  The functions are those of `_parts.py`, and
a capability exists if all parts have it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from dpsearch import _jit
from dpsearch._types import Ints, Matrix, Rng, Vector
from dpsearch.errors import DataError, located
from dpsearch.families._parts import AT, HEAD, Entry, functions_of
from dpsearch.families.base import Family
from dpsearch.families.capabilities import Columns, PredictiveDraws, Restated, all_or_none
from dpsearch.families.functions import Functions, address
from dpsearch.families.linear import LinearForm, columns_of, namespace
from dpsearch.families.packing import pack
from dpsearch.items import Items

_LARGEST_TABLES = 1 << 24


class Part(NamedTuple):
    """A family, completed by `resolve`, and its columns."""

    family: Family
    columns: Ints

    @property
    def width(self) -> int:
        return self.family.width(len(self.columns))

    @property
    def n_features(self) -> int:
        """The number of features for bounds: the family's, and whether a point has the part."""
        return 1 + self.family.bound_width(len(self.columns))


class Composite(Family):
    """A family made of parts, each with columns of its own."""

    reads_own_rows: ClassVar[bool] = False

    @abstractmethod
    def _parts(self, n_features: int) -> list[Part]:
        """Return the parts for a table of this width."""

    def _complete(self, X: Any) -> Any:
        """Return the data for the parts, which have no gaps."""
        return X

    def _observed(self, X: Any) -> Any:
        """Return whether each row of the data has each part."""
        return np.ones((X.shape[0], len(self._parts(X.shape[1]))), bool)

    def _rows(self, row: Vector, n_features: int) -> list[Vector]:
        """Return the row of each part."""
        return np.split(row, _starts(self._parts(n_features))[:-1])[1:]

    def _triples(self, row: Vector, n_features: int) -> list[tuple[Family, Vector, int]]:
        """Return the family, the row and the number of columns of each part."""
        pairs = zip(self._parts(n_features), self._rows(row, n_features), strict=True)
        return [(part.family, own, len(part.columns)) for part, own in pairs]

    def _order(self, n_features: int) -> Ints:
        """Return the order that sorts the concatenated columns of the parts as in the table."""
        return np.argsort(np.concatenate([part.columns for part in self._parts(n_features)]))

    def variant(self) -> Functions:
        return functions_of([member.variant() for member in self.members])

    def width(self, n_features: int) -> int:
        return int(_starts(self._parts(n_features))[-1])

    def bound_width(self, n_features: int) -> int:
        return sum(part.n_features for part in self._parts(n_features))

    def parameters(self, n_features: int, X: Any) -> Vector:
        """The flat parameters; tables are smaller if there are too many."""
        parts, X = self._parts(n_features), self._complete(X)
        heads = np.zeros((len(parts), len(AT)))
        tables: list[Vector] = []
        end = HEAD + heads.size
        for members in _sharing_parameters(parts):
            # Parts share the largest of their tables, whose sizes may depend on the data.
            share = X[: max(2, X.shape[0] * _LARGEST_TABLES // (X.size + 1))]
            part = max((parts[p] for p in members), key=lambda part: share[:, part.columns].sum())
            tables.append(part.family.parameters(len(part.columns), share[:, part.columns]))
            heads[members, AT.begin] = end
            end += len(tables[-1])
            heads[members, AT.end] = end
        n_bounded = [part.n_features for part in parts]
        heads[:, AT.row] = _starts(parts)[:-1]
        heads[:, AT.width] = [part.width for part in parts]
        heads[:, AT.feature] = np.cumsum(n_bounded) - n_bounded
        heads[:, AT.n_features] = np.array(n_bounded) - 1
        heads[:, AT.sparse] = [_encodes_sparsely(one.family, X[:1, one.columns]) for one in parts]
        params = np.concatenate([[len(parts)], heads.reshape(-1), *tables])
        return self.relocated(params, n_features)

    def relocated(self, params: Vector, n_features: int) -> Vector:
        """Return params with the addresses of the parts' functions in this process.

        An address is an integer below 2⁵³, which a double represents exactly.
        """
        parts, params = self._parts(n_features), params.copy()
        heads = params[HEAD : HEAD + len(AT) * len(parts)].reshape(len(parts), len(AT))
        for head, part in zip(heads, parts, strict=True):
            variant = part.family.variant()
            names = Entry._fields[AT.update :]
            head[AT.update :] = [address(getattr(variant, name)) for name in names]
            begin, end = int(head[AT.begin]), int(head[AT.end])
            params[begin:end] = part.family.relocated(params[begin:end], len(part.columns))
        return params

    def counts_in_row(self, n_features: int) -> slice | Ints | None:
        """Return the positions of counts in a row: the parts' sizes and their own counts."""
        parts = self._parts(n_features)
        out = [np.zeros(1, np.int64)]
        for part, at in zip(parts, _starts(parts), strict=False):
            counts = part.family.counts_in_row(len(part.columns))
            out.append(np.array([at]))
            if counts is not None:
                out.append(at + np.arange(part.width)[counts])
        return np.concatenate(out)

    def encode(self, X: Any) -> Items:
        """Concatenate the data rows of the parts that were observed."""
        complete, observed, items = self._complete(X), self._observed(X), []
        for p, part in enumerate(self._parts(X.shape[1])):
            encoded = np.empty((X.shape[0], 0))
            if observed[:, p].any():
                with located(columns=part.columns.tolist()):
                    encoded = part.family.encode(complete[:, part.columns])
            items.append(pack(encoded))
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

    def _sum_observed(self, X: Any, method: str) -> Vector | None:
        """Return the sum of a method's results over the parts that were observed."""
        complete, observed = self._complete(X), self._observed(X)
        out = np.zeros(X.shape[0])
        for p, part in enumerate(self._parts(X.shape[1])):
            if not observed[:, p].any():
                continue
            value = getattr(part.family, method)(complete[:, part.columns])
            if value is None:
                return None
            out += np.where(observed[:, p], value, 0.0)
        return out

    def log_base(self, X: Any) -> Vector:
        return np.asarray(self._sum_observed(X, "log_base"))

    def log_ceiling(self, X: Any) -> Vector | None:
        return self._sum_observed(X, "log_ceiling")

    def _linear_of(self, part: Part) -> LinearForm | None:
        """Return the linear form of a part."""
        return part.family.linear(len(part.columns))

    def linear(self, n_features: int) -> LinearForm | None:
        parts = self._parts(n_features)
        forms = all_or_none(map(self._linear_of, parts))
        return None if forms is None else _linear(parts, forms)

    def restated(self, row: Vector, n_features: int, other: Any) -> Restated | None:
        triples = zip(self._triples(row, n_features), other._parts(n_features), strict=True)
        parts = all_or_none(
            Restated(own) if family == part.family else family.restated(own, width, part.family)
            for (family, own, width), part in triples
        )
        if parts is None:
            return None
        rows = np.concatenate([row[:1], *(part.row for part in parts)])
        return Restated(rows, sum(part.log_base for part in parts))

    def columns(self, row: Vector, n_features: int) -> Columns | None:
        triples = self._triples(row, n_features)
        parts = all_or_none(family.columns(own, width) for family, own, width in triples)
        return None if parts is None else Columns.joined(parts, self._order(n_features))

    def lengths(self, X: Any) -> Matrix:
        parts = self._parts(X.shape[1])
        return np.hstack([part.family.lengths(X[:, part.columns]) for part in parts])

    def draws(self, row: Vector, n_features: int) -> PredictiveDraws | None:
        triples = self._triples(row, n_features)
        parts = all_or_none(family.draws(own, width) for family, own, width in triples)
        if parts is None:
            return None
        given = [family.lengths(np.zeros((1, width))).shape[1] for family, _, width in triples]
        order = self._order(n_features)

        def sample(size: int, rng: Rng) -> Matrix:
            return np.hstack([part.sample(size, rng) for part in parts])[:, order]

        def of_lengths(lengths: Matrix, rng: Rng) -> Matrix:
            pairs = zip(parts, np.split(lengths, np.cumsum(given)[:-1], axis=1), strict=True)
            return np.hstack([part.like(own, rng) for part, own in pairs])[:, order]

        return PredictiveDraws(sample, of_lengths)

    def by_column(self, n_features: int) -> list[Family]:
        parts = self._parts(n_features)
        families = [family for part in parts for family in part.family.by_column(len(part.columns))]
        return [families[j] for j in self._order(n_features)]


def _starts(parts: Sequence[Part]) -> Ints:
    """Return where in a row each part's row begins, and where the last one ends."""
    return np.cumsum([HEAD, *(part.width for part in parts)])


def _sharing_parameters(parts: Sequence[Part]) -> list[list[int]]:
    """Group the parts that have the same parameters, apart from the sizes of tables."""
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


def _encodes_sparsely(family: Family, X: Any) -> bool:
    """Whether encoded data have column indices; False if this row cannot be encoded."""
    try:
        with np.errstate(divide="ignore"):
            encoded = family.encode(X)
    except DataError:
        return False
    return bool(sp.issparse(encoded) or (isinstance(encoded, Items) and len(encoded.ids) > 0))


@_jit.kernel
def _place(own_values, own_ids, indptr, begins, lengths, p, values, ids):  # type: ignore[no-untyped-def]
    """Copy the data rows of part p to their places."""
    for i in range(lengths.shape[0]):
        for j in range(lengths[i, p]):
            values[begins[i, p] + j] = own_values[indptr[i] + j]
            if own_ids.shape[0] > 0:
                ids[begins[i, p] + j] = own_ids[indptr[i] + j]


def _linear(parts: Sequence[Part], forms: Sequence[LinearForm]) -> LinearForm:
    """Return the linear form of all parts together, whose features are concatenated."""
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
