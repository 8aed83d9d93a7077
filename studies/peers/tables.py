"""The tables that tools are tried on, and the preprocessing that all numeric tools share.

A table has forms: the same rows as different tools get them.

- ``raw``: as it comes; sparse counts for documents.
- ``common``: standardised, constant columns dropped; above 50 columns reduced to the 50 first
  principal components.  Documents: tf-idf, reduced to 50 columns by a truncated singular value
  decomposition, rows scaled to length one, as in scikit-learn's example of clustering documents.
- ``gaps``: standardised, with 30 % of the entries removed at random; other entries for each seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch import datasets
from dpsearch._types import Labels, Matrix
from studies.peers import mixed
from studies.reproduction.data import load_mnist
from studies.reproduction.work import Lazily

Arrays = dict[str, Any]
WIDEST = 50
MISSING = 0.3
NEWS_WORDS = 2000
# Goes into the key of kept results: raise it when a form is made in another way.
FORMS_VERSION = 1


@dataclass(frozen=True)
class Table:
    """Rows with known classes; drawn anew for each seed if `drawn`."""

    name: str
    source: Callable[[int], tuple[Arrays, Labels]]  # raw arrays and the true class of each row
    kind: str = "numbers"  # or counts, mixed
    drawn: bool = False
    single_seed: bool = False

    def raw(self, seed: int) -> Arrays:
        return self.source(seed if self.drawn else 0)[0]

    def truth(self, seed: int) -> Labels:
        return self.source(seed if self.drawn else 0)[1]

    def form(self, form: str, seed: int) -> Arrays:
        """Return the table in the form that a tool gets."""
        raw = self.raw(seed)
        if form == "raw":
            return raw
        if form == "common":
            if self.kind == "counts":
                return {"X": latent_columns(sparse(raw))}
            return {"X": common(raw["X"])}
        if form == "gaps":
            return {"X": with_gaps(raw["X"], MISSING, seed)}
        raise ValueError(form)

    def stamp(self, form: str, seed: int) -> str:
        """A fingerprint of the data and their preprocessing, the same on every machine."""
        digest = hashlib.sha256(f"{FORMS_VERSION} {form} {seed if form == 'gaps' else 0}".encode())
        for name, array in sorted(self.raw(seed).items()):
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]


# -- preprocessing -----------------------------------------------------------------------------


def standardised(X: Matrix) -> Matrix:
    """Standardise each column by its observed values; drop constant columns."""
    X = np.asarray(X, np.float64)
    deviations = np.nanstd(X, axis=0)
    # A constant column of large values may get a tiny deviation by rounding.
    varies = deviations > 1e-9 * np.maximum(1.0, np.nanmax(np.abs(X), axis=0))
    return np.asarray((X[:, varies] - np.nanmean(X[:, varies], axis=0)) / deviations[varies])


def common(X: Matrix) -> Matrix:
    """Return the form that every numeric tool gets."""
    out = standardised(X)
    return datasets.principal_components(out, WIDEST) if out.shape[1] > WIDEST else out


def with_gaps(X: Matrix, share: float, seed: int) -> Matrix:
    """Remove entries at random with the same probability, and standardise the rest."""
    out = np.array(X, np.float64)
    out[np.random.default_rng([seed, 30]).random(out.shape) < share] = np.nan
    return standardised(out)


def latent_columns(counts: Any) -> Matrix:
    """Return documents as numbers: tf-idf, truncated singular value decomposition, length one."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.preprocessing import normalize

    weights = TfidfTransformer().fit_transform(counts)
    n_columns = min(WIDEST, counts.shape[1] - 1)
    return np.asarray(normalize(TruncatedSVD(n_columns, random_state=0).fit_transform(weights)))


def sparse(raw: Arrays) -> Any:
    return sp.csr_matrix((raw["data"], raw["indices"], raw["indptr"]), shape=tuple(raw["shape"]))


# -- sources -----------------------------------------------------------------------------------


def _once(load: Callable[[], tuple[Arrays, Labels]]) -> Callable[[int], tuple[Arrays, Labels]]:
    loaded = Lazily(load)
    return lambda seed: loaded()


def _scikit(loader: str) -> tuple[Arrays, Labels]:
    import sklearn.datasets

    X, y = getattr(sklearn.datasets, loader)(return_X_y=True)
    return {"X": X}, y


def _uci(path: Path, name: str) -> tuple[Arrays, Labels]:
    with np.load(path, allow_pickle=False) as entries:
        return {"X": entries[f"{name}_X"].astype(np.float64)}, entries[f"{name}_y"]


def _digits(digits: datasets.Digits) -> tuple[Arrays, Labels]:
    return {"X": digits.images}, digits.labels


def _mnist(folder: Path) -> tuple[Arrays, Labels]:
    digits = load_mnist(folder)
    assert digits is not None  # the file was there when the list was made
    return _digits(digits)


def news_part(counts: Any, classes: Labels, words: int = NEWS_WORDS) -> tuple[Arrays, Labels]:
    """Keep the most frequent words, and the documents that contain any of them."""
    totals = np.asarray(counts.sum(axis=0)).reshape(-1)
    counts = counts[:, np.sort(np.argsort(-totals, kind="stable")[:words])].tocsr()
    kept = np.flatnonzero(np.diff(counts.indptr) > 0)
    counts = counts[kept]
    counts.sort_indices()
    return {
        "data": counts.data.astype(np.int32),
        "indices": counts.indices.astype(np.int32),
        "indptr": counts.indptr.astype(np.int64),
        "shape": np.array(counts.shape, np.int64),
    }, np.asarray(classes)[kept]


def _news(path: Path) -> tuple[Arrays, Labels]:
    with np.load(path, allow_pickle=False) as z:
        parts = (z["data"].astype(np.int64), z["indices"].astype(np.int64), z["indptr"])
        counts = sp.csr_matrix(parts, shape=tuple(z["shape"]))
        training = np.flatnonzero(z["is_test"] == 0)
        return news_part(counts[training], z["label"][training])


def labelled_tables(folder: Path | None) -> tuple[list[Table], list[str]]:
    """The labelled data sets, small ones first, and a line for each one that is not there."""
    tables = [
        Table(name, _once(partial(_scikit, loader)))
        for name, loader in (
            ("iris", "load_iris"),
            ("wine", "load_wine"),
            ("breast cancer", "load_breast_cancer"),
            ("digits", "load_digits"),
        )
    ]
    absent: list[str] = []
    where = "name a folder that has it with --data or DPSEARCH_DATA"

    def from_file(table: Table, file: str, *others: str) -> None:
        names = (file, *others)
        if folder is not None and any((folder / name).is_file() for name in names):
            tables.append(table)
        else:
            absent.append(f"{table.name} left out: {file} not found; {where}")

    uci = Path("uci_labelled.npz") if folder is None else folder / "uci_labelled.npz"
    from_file(Table("optdigits", _once(partial(_uci, uci, "optdigits"))), uci.name)
    from_file(Table("penbased", _once(partial(_uci, uci, "penbased"))), uci.name)
    tables.append(Table("MNIST 3k", _once(lambda: _digits(datasets.mnist_digits()))))
    news = Path("news20_bydate.npz") if folder is None else folder / "news20_bydate.npz"
    from_file(Table("20 newsgroups", _once(partial(_news, news)), kind="counts"), news.name)
    if folder is not None:
        whole = Table("MNIST 60k", _once(partial(_mnist, folder)), single_seed=True)
        from_file(whole, "mnist_train.npz", "train-images-idx3-ubyte.gz", "train-images-idx3-ubyte")
    else:
        absent.append(f"MNIST 60k left out: mnist_train.npz not found; {where}")
    return tables, absent


def mixed_tables() -> list[Table]:
    """Return drawn tables of numbers, counts and categories with gaps, and their clusters."""

    def source(settings: mixed.Settings, seed: int) -> tuple[Arrays, Labels]:
        drawn = mixed.draw(settings, seed)
        return {"X": drawn.X, "kinds": drawn.kinds}, drawn.labels

    return [
        Table(f"mixed, {s}", partial(source, s), kind="mixed", drawn=True) for s in mixed.SETTINGS
    ]
