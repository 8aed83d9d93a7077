"""Sparse rows (documents as counts of words) on a device, by PyTorch.

The scores of a row are a weighted sum of a few columns of weights, which is what PyTorch calls a
bag of embeddings.  Rows are scored under all candidates; those of other groups are left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dpsearch._arrays import is_torch
from dpsearch._types import Ints, Matrix
from dpsearch.families.linear import LinearForm
from dpsearch.passes import arrays
from dpsearch.passes.chunk import Candidates, Totals
from dpsearch.passes.device_rows import DeviceRows

_ENTRIES = 1 << 26  # of a part: positions in it are int32, and so are columns


class Part(NamedTuple):
    """Consecutive rows in CSR on the device."""

    rows: slice
    starts: Any  # int32 [rows + 1]
    columns: Any  # int32
    values: Any


class CsrRows(DeviceRows):
    """Rows of a CSR matrix of SciPy, whose features go to a device once.

    Those of float64 are computed with in float64, others and whole numbers in float32.
    """

    def __init__(self, form: LinearForm, X: Any, device: Any, first: int = 0) -> None:
        self.torch, self.form = arrays.torch(), form
        super().__init__(self.torch.empty(0, device=device), X.shape[0], first)
        double = X.dtype == np.float64
        self.dtype = self.torch.float64 if double else self.torch.float32
        self._here = sp.csr_matrix(form.features(X))
        self._parts = [self._part(a, b) for a, b in _divided(self._here.indptr)]

    def _part(self, a: int, b: int) -> Part:
        here = self._here
        entries = slice(here.indptr[a], here.indptr[b])
        starts = here.indptr[a : b + 1] - here.indptr[a]
        int32 = self.torch.int32
        columns = self._array(here.indices[entries], int32)
        values = self._array(here.data[entries], self.dtype)
        return Part(slice(a, b), self._array(starts, int32), columns, values)

    def _features_of(self, rows: Ints) -> Matrix:
        return np.asarray(self._here[rows].toarray(), dtype=np.float64)

    def _totals(self, n_clusters: int) -> Totals:
        return arrays.here(self._sums(self._labels, n_clusters))

    def _assign(self, candidates: Candidates) -> Totals:
        groups, starts, weights, constants = candidates
        torch, n = self.torch, len(constants)
        owners = self._array(np.repeat(np.arange(len(starts) - 1), np.diff(starts)))
        of_clusters = self._array(groups)
        columns = self._array(weights, self.dtype).T.contiguous()  # [P, C]
        offsets = self._array(constants, self.dtype)
        one_group = len(starts) == 2
        chosen = torch.full_like(self._choice, -1)
        for part in self._parts:
            step = max(self.chunk_numbers // (2 * n), 1)
            for a in range(part.rows.start, part.rows.stop, step):
                rows = slice(a, min(a + step, part.rows.stop))
                group = of_clusters[self._labels[rows].long()]
                scores = self._scores(part, rows, columns) + offsets
                if not one_group:
                    scores.masked_fill_(group[:, None] != owners, -torch.inf)
                best, at = scores.max(dim=1)
                inside = (group >= 0) & (best > -torch.inf)
                chosen[rows] = torch.where(inside, at, -1).to(torch.int32)
                kept = torch.where(group >= 0, chosen[rows], self._choice[rows])
                self._choice[rows] = kept
        found = self._sums(chosen, n)
        return found if is_torch(weights) else arrays.here(found)

    def _scores(self, part: Part, rows: slice, columns: Any) -> Any:
        """Return the products of rows with columns of weights [rows, C]."""
        a, b = rows.start - part.rows.start, rows.stop - part.rows.start
        starts, ends = part.starts[a : b + 1], self._here.indptr
        first, last = (int(ends[i] - ends[part.rows.start]) for i in (rows.start, rows.stop))
        return self.torch.nn.functional.embedding_bag(
            part.columns[first:last], columns, starts - starts[0], mode="sum",
            per_sample_weights=part.values[first:last], include_last_offset=True,
        )  # fmt: skip

    def _scores_by_chunks(self, columns: Any, n_columns: int) -> Iterator[tuple[slice, Any]]:
        columns = columns.contiguous()
        for part in self._parts:
            entries = len(part.columns) / max(part.rows.stop - part.rows.start, 1)
            step = max(int(self.chunk_numbers // (n_columns * (4 + entries))), 1)
            for a in range(part.rows.start, part.rows.stop, step):
                at = slice(a, min(a + step, part.rows.stop))
                yield at, self._scores(part, at, columns)

    def _shared(self, at: slice, shares: Any) -> Matrix:
        part = next(part for part in self._parts if at.start < part.rows.stop)
        ends, first = self._here.indptr, self._here.indptr[part.rows.start]
        inside = slice(int(ends[at.start] - first), int(ends[at.stop] - first))
        lengths = self._array(np.diff(ends[at.start : at.stop + 1]))
        rows = self.torch.repeat_interleave(lengths)
        out = self.torch.zeros((self.form.n_totals, shares.shape[1]), dtype=self.torch.float64,
                               device=self.device)  # fmt: skip
        parts = part.values[inside, None] * shares[rows]
        out.index_add_(0, part.columns[inside], parts.to(self.torch.float64))
        return np.asarray(out.T.cpu().numpy())

    def _sums(self, labels: Any, n_clusters: int) -> Totals:
        """Return totals, added in float64: exact for counts."""
        torch, width = self.torch, self.form.n_totals
        sums = torch.zeros(n_clusters * width, dtype=torch.float64, device=self.device)
        for part in self._parts:
            owners = labels[part.rows].long()
            of_entries = torch.repeat_interleave(
                owners, torch.diff(part.starts), output_size=len(part.columns)
            )
            counted = (of_entries >= 0).to(torch.float64)
            places = of_entries.clamp_(min=0) * width + part.columns
            sums.index_add_(0, places, part.values * counted)
        sizes = torch.bincount(labels.long() + 1, minlength=n_clusters + 1)[1:]
        return Totals(sizes.to(torch.float64), sums.reshape(n_clusters, width))


def _divided(starts: Ints) -> list[tuple[int, int]]:
    """Return the bounds of parts of at most so many entries, of whole rows."""
    edges = [0]
    while edges[-1] < len(starts) - 1:
        most = int(np.searchsorted(starts, starts[edges[-1]] + _ENTRIES, side="right")) - 1
        edges.append(max(most, edges[-1] + 1))
    return list(itertools.pairwise(edges))
