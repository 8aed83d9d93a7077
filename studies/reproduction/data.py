"""The paper's data sets, from a folder that the user names; public originals can be read too.

MNIST: ``mnist_train.npz`` (entries images, labels), or the original IDX files
``train-images-idx3-ubyte`` and ``train-labels-idx1-ubyte``, gzipped or not; or OpenML's copy.

NIPS: ``nips12.npz`` (CSR counts and vocabulary), Roweis's ``nips12raw_str602.mat``, its successor
``nips_1-17.mat``, or UCI's ``docword.nips.txt`` with ``vocab.nips.txt``, gzipped or not.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dpsearch import datasets
from dpsearch._types import Labels
from dpsearch.errors import DataError, ParameterError

VARIABLE = "DPSEARCH_DATA"
# The paper's collection, NIPS volumes 0–12.
PAPER_DOCUMENTS = 1740
LEAST_IMAGES = 3000

MNIST_ABSENT = (
    "MNIST not found: put train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz (from"
    " https://yann.lecun.com/exdb/mnist or https://github.com/cvdfoundation/mnist) into a folder"
    f" and name it with --data or {VARIABLE}, or use --download to get it from OpenML"
)
NIPS_ABSENT = (
    "NIPS documents not found: put nips12raw_str602.mat (https://cs.nyu.edu/~roweis/data.html), or"
    " docword.nips.txt.gz and vocab.nips.txt (https://archive.ics.uci.edu/dataset/164, 1,500"
    f" documents instead of 1,740), into a folder and name it with --data or {VARIABLE}"
)


class Documents(NamedTuple):
    counts: Any  # CSR [documents, words]
    words: list[str]
    source: str


def data_folder(given: Path | str | None) -> Path | None:
    """Return the folder named by the user or by the environment, None if neither does."""
    name = given if given is not None else os.environ.get(VARIABLE) or None
    if name is None:
        return None
    folder = Path(name)
    if not folder.is_dir():
        raise ParameterError(f"{folder}: no such folder")
    return folder


def fingerprint(*arrays: Any) -> int:
    """A checksum, which distinguishes results from those of other data."""
    out = 0
    for array in arrays:
        out = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data, out)
    return out


@contextlib.contextmanager
def _naming(path: Path | str, what: str) -> Iterator[None]:
    """Turn any error about a file into a DataError that names it."""
    try:
        yield
    except DataError:
        raise
    except (
        OSError,
        EOFError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
    ) as error:
        raise DataError(f"{path}: not {what}, or damaged: {error}") from error
    except (zlib.error, zipfile.BadZipFile, NotImplementedError) as error:
        raise DataError(f"{path}: not {what}, or damaged: {error}") from error


def _whole(values: Any, name: str, path: Path | str) -> Any:
    """Return integers ≥ 0 as int64, or raise."""
    values = np.asarray(values)
    if values.dtype.kind not in "iuf":
        raise DataError(f"{path}: {name} must be numbers, not {values.dtype}")
    good = np.isfinite(values) & (values >= 0) & (values == np.floor(values))
    if not good.all():
        bad = values[~good].reshape(-1)[0]
        raise DataError(f"{path}: {name} must be whole numbers ≥ 0, got {bad}")
    return values.astype(np.int64)


def _entries(path: Path, *names: str) -> dict[str, Any]:
    """Return the entries of an .npz file."""
    with _naming(path, "an .npz archive"), path.open("rb") as stream:
        archive = np.load(stream, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise DataError(f"{path}: not an .npz archive, but a single array")
        absent = [name for name in names if name not in archive.files]
        if absent:
            raise DataError(f"{path}: has no entry {absent[0]!r}; expected {', '.join(names)}")
        return {name: archive[name] for name in names}


def _content(path: Path) -> bytes:
    """Return the bytes of a file, decompressed if its name ends with .gz."""
    with _naming(path, "a gzip file" if path.suffix == ".gz" else "readable"):
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


# -- MNIST -------------------------------------------------------------------------------------


def load_mnist(folder: Path | None, *, download: bool = False) -> datasets.Digits | None:
    """Return the training set as raw pixels, None if it is not there."""
    if folder is not None and (folder / "mnist_train.npz").is_file():
        path = folder / "mnist_train.npz"
        entries = _entries(path, "images", "labels")
        return _digits(entries["images"], entries["labels"], path)
    images = _either(folder, "train-images-idx3-ubyte")
    labels = _either(folder, "train-labels-idx1-ubyte")
    if images is not None and labels is not None:
        return _digits(read_idx(images), read_idx(labels), images)
    return _openml() if download else None


def _openml() -> datasets.Digits:
    from sklearn.datasets import fetch_openml

    try:
        images, labels = fetch_openml("mnist_784", version=1, return_X_y=True, as_frame=False)
    except Exception as error:  # of the network, of its cache or of scikit-learn
        raise DataError(f"OpenML: cannot be had: {error}. {MNIST_ABSENT}") from error
    with _naming("OpenML", "MNIST"):
        # The first 60,000 of its 70,000 are the training set.
        return _digits(images[:60_000], np.asarray(labels[:60_000], dtype=np.float64), "OpenML")


def mnist_or_embedded(folder: Path | str | None) -> datasets.Digits:
    """Return the training set if the folder has it, otherwise the embedded 3,000 digits."""
    digits = load_mnist(None if folder is None else Path(folder))
    return datasets.mnist_digits() if digits is None else digits


def _digits(images: Any, labels: Any, source: Path | str) -> datasets.Digits:
    """Check images and labels; at least 3,000 (5 %) are needed."""
    images, labels = _whole(images, "pixels", source), _whole(labels, "labels", source)
    if images.ndim < 2 or images[0].size != 784 or labels.shape != (len(images),):
        raise DataError(
            f"{source}: expected images of 784 pixels, and as many labels as images; got shapes"
            f" {images.shape} and {labels.shape}"
        )
    if images.max() > 255:
        raise DataError(f"{source}: pixels must be 0 … 255, got {images.max()}")
    if labels.max() > 9:
        row = int(labels.argmax())
        raise DataError(f"{source}: labels must be 0 … 9, but that of image {row} is {labels[row]}")
    if len(images) < LEAST_IMAGES:
        raise DataError(
            f"{source}: {len(images):,} images, fewer than the {LEAST_IMAGES:,} that are 5 % of"
            " MNIST"
        )
    images = np.ascontiguousarray(images.reshape(len(images), -1), dtype=np.uint8)
    return datasets.Digits(images, labels, np.arange(len(images)))


def read_idx(path: Path) -> Any:
    """Read an array of bytes in MNIST's IDX format: magic number, lengths, values."""
    content = _content(path)
    n_axes = content[3] if len(content) >= 4 else 0
    header = 4 + 4 * n_axes
    if content[:3] != b"\x00\x00\x08" or n_axes == 0 or len(content) < header:
        raise DataError(f"{path}: not an IDX file of bytes")
    shape = tuple(np.frombuffer(content, ">u4", n_axes, 4).tolist())
    values = np.frombuffer(content, np.uint8, offset=header)
    if len(values) != np.prod(shape, dtype=object):
        raise DataError(f"{path}: has {len(values)} values, but its header says {shape}")
    return values.reshape(shape)


# -- NIPS --------------------------------------------------------------------------------------


def load_nips(folder: Path | str | None) -> Documents | None:
    """Return all documents with their whole vocabulary, None if they are not there."""
    if folder is None:
        return None
    folder = Path(folder)
    if (folder / "nips12.npz").is_file():
        return _read_npz(folder / "nips12.npz")
    for name in ("nips12raw_str602.mat", "nips_1-17.mat"):
        if (folder / name).is_file():
            return read_mat(folder / name)
    counts, words = _either(folder, "docword.nips.txt"), _either(folder, "vocab.nips.txt")
    if counts is not None and words is not None:
        return read_bag_of_words(counts, words)
    return None


def paper_vocabulary(documents: Documents, drop: int = 10, keep: int = 1000) -> Documents:
    """Drop the most frequent words and keep the next, as the paper does."""
    totals = np.asarray(documents.counts.sum(axis=0)).reshape(-1)
    kept = np.argsort(-totals, kind="stable")[drop : drop + keep]
    return Documents(
        documents.counts[:, kept].tocsr(), [documents.words[j] for j in kept], documents.source
    )


def paper_documents(folder: Path | str | None) -> Documents | None:
    """Return the documents with the paper's vocabulary, None if they are not there."""
    documents = load_nips(folder)
    return None if documents is None else paper_vocabulary(documents)


def _read_npz(path: Path) -> Documents:
    z = _entries(path, "data", "indices", "indptr", "shape", "vocab")
    shape = tuple(_whole(z["shape"], "shape", path).tolist())
    parts = (_whole(z[name], name, path) for name in ("data", "indices", "indptr"))
    with _naming(path, "counts in CSR form"):
        counts = sp.csr_matrix(tuple(parts), shape=shape)
        counts.check_format()
    return _documents(counts, _lines(bytes(z["vocab"]), path), path)


def read_mat(path: Path) -> Documents:
    """Read Roweis's MATLAB file: word-by-document counts, and the words."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    with _naming(path, "a MATLAB file"):
        try:
            entries = loadmat(path)
        except MatReadError as error:
            raise DataError(f"{path}: not a MATLAB file, or damaged: {error}") from error
        named = next((name for name in ("words", "wl") if name in entries), None)
        if "counts" not in entries or named is None:
            raise DataError(f"{path}: expected the entries counts, and words or wl")
        words = [str(np.ravel(cell)[0]).strip() for cell in np.ravel(entries[named])]
        counts = sp.csr_matrix(entries["counts"])
    return _documents(counts if counts.shape[1] == len(words) else counts.T, words, path)


def read_bag_of_words(counts: Path, vocabulary: Path) -> Documents:
    """Read UCI's bag of words: three lengths, then lines "document word count" from 1 on."""
    words = _lines(_content(vocabulary), vocabulary)
    lines = _content(counts).splitlines()
    with _naming(counts, "a bag of words"):
        shape = [int(line) for line in lines[:3]]
        if len(shape) != 3 or len(lines) - 3 != shape[2] or not shape[2]:
            raise DataError(
                f"{counts}: {len(lines)} lines do not fit the numbers in its first three"
            )
        table = np.loadtxt(lines[3:], dtype=np.float64, ndmin=2)
        if table.shape[1] != 3:
            raise DataError(f"{counts}: its lines do not fit: expected document, word and count")
    table = _whole(table, "documents, words and counts", counts)
    for column, (name, most) in enumerate(zip(("document", "word"), shape, strict=False)):
        bad = np.flatnonzero((table[:, column] < 1) | (table[:, column] > most))
        if len(bad):
            raise DataError(
                f"{counts}: line {bad[0] + 4}: {name} {table[bad[0], column]} is not 1 … {most}"
            )
    rows, columns = table[:, 0] - 1, table[:, 1] - 1
    matrix = sp.csr_matrix((table[:, 2], (rows, columns)), shape=tuple(shape[:2]))
    return _documents(matrix, words, counts)


def _lines(content: bytes, path: Path) -> list[str]:
    """Return words from a file with one on each line."""
    try:
        return content.decode("utf-8").split()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: the vocabulary is not UTF-8: {error}") from error


def _documents(counts: Any, words: list[str], path: Path) -> Documents:
    if counts.shape[1] != len(words):
        raise DataError(f"{path}: counts of {counts.shape[1]} words, but {len(words)} words named")
    counts = sp.csr_matrix(counts)
    counts = sp.csr_matrix(
        (_whole(counts.data, "counts", path), counts.indices, counts.indptr), shape=counts.shape
    )
    counts.sum_duplicates()
    counts.eliminate_zeros()
    if counts.nnz == 0:
        raise DataError(f"{path}: no words are counted in it")
    return Documents(counts, words, path.name)


def indicative_words(documents: Documents, labels: Labels, cluster: int, n: int = 20) -> list[str]:
    """Return the words of highest tf-idf in a cluster.

    tf: occurrences in the cluster's documents; idf: log(documents / documents with the word).
    """
    with_word = np.asarray((documents.counts > 0).sum(axis=0)).reshape(-1)
    rarity = np.log(documents.counts.shape[0] / np.maximum(with_word, 1))
    total = np.asarray(documents.counts[labels == cluster].sum(axis=0)).reshape(-1)
    best = np.argsort(-total * rarity, kind="stable")[:n]
    return [documents.words[j] for j in best]


# -- files -------------------------------------------------------------------------------------


def _either(folder: Path | None, name: str) -> Path | None:
    """Return the path of the file, or of its gzipped form."""
    if folder is None:
        return None
    found = (path for path in (folder / f"{name}.gz", folder / name) if path.is_file())
    return next(found, None)
