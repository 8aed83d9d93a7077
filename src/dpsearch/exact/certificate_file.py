"""Files of certificates: NumPy archives of plain numbers and one JSON text.  They contain no code.

They contain the family, the prior, the partition, the prices and every figure that a certificate
states, but not the data, which are given again to verify it.  A file can state anything;
`Certificate.verify` checks whether it is true.

Entries: ``about`` (JSON as bytes), ``labels``, ``prices`` (a row for each range of the number of
clusters), ``order`` of points on a line if the proof is by the dynamic programme, and ``filled``,
the values that the fit of a model put in place of missing ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpsearch._archive import opened_archive, require, write_archive
from dpsearch._types import Matrix, Vector
from dpsearch.errors import DataError
from dpsearch.exact.proof import Bounded
from dpsearch.exact.verification import Claims
from dpsearch.families import FAMILIES
from dpsearch.families.base import Family
from dpsearch.priors import PRIORS
from dpsearch.priors.base import Prior
from dpsearch.problem import Clustering, Problem

FORMAT = "dpsearch-certificate"
VERSION = 1
_FIGURES = ("upper_bound", "lower_bound", "gap", "optimal", "tolerance", "method", "seconds")
_OF_RANGE = ("low", "high", "lam", "slack", "kind", "upper")


class StoredCertificate(NamedTuple):
    """The contents of a file: a certificate without its data.

    Attributes
    ----------
    family, prior
        Of the certificate's problem.
    fields
        The fields of `Certificate`, without the problem.
    columns
        How the command line read the data, as given to `write_certificate`.
    filled
        Values in place of missing ones, row by row.
    """

    family: Family
    prior: Prior
    fields: dict[str, Any]
    columns: dict[str, Any] | None
    filled: Vector | None

    def problem(self, data: Any) -> Problem:
        """Return the problem of these data; raise if the number of rows differs."""
        problem = Problem(data, self.family, self.prior)
        n_rows = len(self.fields["clustering"].labels)
        if problem.n_items != n_rows:
            raise DataError(f"{problem.n_items} rows, but the certificate is about {n_rows}")
        return problem


def write_certificate(
    path: str | Path,
    certificate: Claims,
    *,
    columns: dict[str, Any] | None = None,
    filled: Vector | None = None,
) -> None:
    """Write a certificate.  An existing file is replaced only when the new one is complete."""
    model, entries = certificate.problem.model, certificate.prices
    about = {
        "format": FORMAT,
        "version": VERSION,
        "family": FAMILIES.described(model.family),
        "prior": PRIORS.described(certificate.problem.prior),
        **{name: _plain(getattr(certificate, name)) for name in _FIGURES},
        "ranges": [
            {name: _plain(getattr(entry, name)) for name in (*_OF_RANGE, "triples")}
            for entry in entries
        ],
        "columns": columns,
    }
    arrays = {
        "labels": certificate.clustering.labels,
        "prices": _rows([entry.y for entry in entries]),
        "order": certificate.order,
        "filled": filled,
    }
    write_archive(path, about, {name: a for name, a in arrays.items() if a is not None})


def read_certificate(path: str | Path) -> StoredCertificate:
    """Read what `write_certificate` wrote; its statements are checked by `verify`, not here."""
    path = Path(path)
    with opened_archive(path, FORMAT, VERSION, "a dpsearch certificate") as (about, arrays):
        figures = {name: about[name] for name in _FIGURES}
        labels, filled = arrays["labels"], arrays.get("filled")
        in_a_row = labels.ndim == 1 and (filled is None or filled.ndim == 1)
        require(in_a_row, "its labels or filled values are not one-dimensional")
        clustering = Clustering(
            labels, figures["lower_bound"], upper_bound=figures["upper_bound"],
            optimal=figures["optimal"], seconds=figures["seconds"],
        )  # fmt: skip
        n_prices = len(labels) + ("order" in arrays)
        entries = tuple(
            _entry(one, y, n_prices)
            for one, y in zip(about["ranges"], arrays["prices"], strict=True)
        )
        return StoredCertificate(
            FAMILIES.from_dict(about["family"]),
            PRIORS.from_dict(about["prior"]),
            {**figures, "clustering": clustering, "prices": entries, "order": arrays.get("order")},
            about["columns"],
            filled,
        )


def _rows(prices: list[Vector]) -> Matrix:
    """Return prices as rows of one length, padded with zeros."""
    out = np.zeros((len(prices), max(map(len, prices), default=0)))
    for row, y in zip(out, prices, strict=True):
        row[: len(y)] = y
    return out


def _entry(about: dict[str, Any], y: Vector, n_prices: int) -> Bounded:
    triples = np.array(about.get("triples", []), dtype=np.int64).reshape(-1, 3)
    figures = {name: about[name] for name in _OF_RANGE}
    return Bounded(y=y[: n_prices + len(triples)].copy(), triples=triples, **figures)


def _plain(value: Any) -> Any:
    """Return a NumPy number or array as Python numbers, for JSON."""
    return value.tolist() if hasattr(value, "tolist") else value
