"""The paper's data sets, from a folder that the user names; the public originals are read too.

MNIST: ``mnist_train.npz`` (entries images, labels), or the original IDX files
``train-images-idx3-ubyte`` and ``train-labels-idx1-ubyte``, gzipped or not; or OpenML's copy.

NIPS: ``nips12.npz`` (CSR counts and vocabulary), Roweis's ``nips12raw_str602.mat``, its successor
``nips_1-17.mat``, or UCI's ``docword.nips.txt`` with ``vocab.nips.txt``, gzipped or not.
"""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import scipy.sparse as sp

from dpsearch import datasets
from dpsearch._types import Labels
from dpsearch.errors import DataError, ParameterError

VARIABLE = "DPSEARCH_DATA"
# The paper's collection, NIPS volumes 0–12.
PAPER_DOCUMENTS = 1740

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
    """A checksum, so that results are kept apart from those of other data."""
    out = 0
    for array in arrays:
        out = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data, out)
    return out


# -- MNIST -------------------------------------------------------------------------------------


def load_mnist(folder: Path | None, *, download: bool = False) -> datasets.Digits | None:
    """Return the training set as raw pixels, None if it is not there."""
    if folder is not None and (folder / "mnist_train.npz").is_file():
        with np.load(folder / "mnist_train.npz", allow_pickle=False) as entries:
            return _digits(entries["images"], entries["labels"], folder / "mnist_train.npz")
    images = _either(folder, "train-images-idx3-ubyte")
    labels = _either(folder, "train-labels-idx1-ubyte")
    if images is not None and labels is not None:
        return _digits(read_idx(images), read_idx(labels), images)
    if download:
        from sklearn.datasets import fetch_openml

        images, labels = fetch_openml("mnist_784", version=1, return_X_y=True, as_frame=False)
        # The first 60,000 of its 70,000 are the training set.
        return _digits(images[:60_000], labels[:60_000], Path("OpenML"))
    return None


def mnist_or_embedded(folder: Path | str | None) -> datasets.Digits:
    """Return the training set if the folder has it, else the embedded 3,000 digits."""
    digits = load_mnist(None if folder is None else Path(folder))
    return datasets.mnist_digits() if digits is None else digits


def _digits(images: Any, labels: Any, source: Path) -> datasets.Digits:
    images = np.asarray(images)
    images = images.reshape(len(images), -1)
    if images.shape[1] != 784 or len(labels) != len(images):
        raise DataError(f"{source}: expected images of 784 pixels, and as many labels as images")
    return datasets.Digits(
        np.ascontiguousarray(images, dtype=np.uint8),
        np.asarray(labels).astype(np.int64),
        np.arange(len(images)),
    )


def read_idx(path: Path) -> Any:
    """Read an array of bytes in MNIST's IDX format: magic number, lengths, values."""
    with _open(path) as stream:
        content = stream.read()
    n_axes = content[3] if len(content) >= 4 else 0
    header = 4 + 4 * n_axes
    if content[:3] != b"\x00\x00\x08" or n_axes == 0 or len(content) < header:
        raise DataError(f"{path}: not an IDX file of bytes")
    shape = tuple(np.frombuffer(content, ">u4", n_axes, 4).tolist())
    values = np.frombuffer(content, np.uint8, offset=header)
    if len(values) != np.prod(shape, dtype=np.int64):
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
    with np.load(path, allow_pickle=False) as z:
        parts = (z["data"].astype(int), z["indices"].astype(int), z["indptr"])
        counts = sp.csr_matrix(parts, shape=tuple(z["shape"]))
        words = bytes(z["vocab"]).decode().split("\n")
    return _documents(counts, words, path)


def read_mat(path: Path) -> Documents:
    """Read Roweis's MATLAB file: word-by-document counts, and the words."""
    from scipy.io import loadmat

    try:
        entries = loadmat(path)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise DataError(f"{path}: not a MATLAB file: {error}") from error
    named = next((name for name in ("words", "wl") if name in entries), None)
    if "counts" not in entries or named is None:
        raise DataError(f"{path}: expected the entries counts, and words or wl")
    words = [str(np.ravel(cell)[0]).strip() for cell in np.ravel(entries[named])]
    counts = sp.csr_matrix(entries["counts"])
    if counts.shape[1] != len(words):
        counts = counts.T
    return _documents(counts, words, path)


def read_bag_of_words(counts: Path, vocabulary: Path) -> Documents:
    """Read UCI's bag of words: three lengths, then lines "document word count" from 1 on."""
    with _open(vocabulary) as stream:
        words = stream.read().decode("utf-8").split()
    with _open(counts) as stream:
        try:
            n_documents, n_words, n_entries = (int(stream.readline()) for _ in range(3))
            table = np.loadtxt(stream, dtype=np.int64, ndmin=2)
        except ValueError as error:
            raise DataError(f"{counts}: not a bag of words: {error}") from error
    inside = table.shape == (n_entries, 3) and (table[:, :2] >= 1).all()
    if not inside or (table[:, :2] > [n_documents, n_words]).any():
        raise DataError(f"{counts}: its lines do not fit its first three")
    rows, columns = table[:, 0] - 1, table[:, 1] - 1
    matrix = sp.csr_matrix((table[:, 2], (rows, columns)), shape=(n_documents, n_words))
    return _documents(matrix, words, counts)


def _documents(counts: Any, words: list[str], path: Path) -> Documents:
    if counts.shape[1] != len(words):
        raise DataError(f"{path}: counts of {counts.shape[1]} words, but {len(words)} words named")
    counts = sp.csr_matrix(counts).astype(np.int64)
    counts.eliminate_zeros()
    counts.sort_indices()
    return Documents(counts, words, path.name)


def indicative_words(documents: Documents, labels: Labels, cluster: int, n: int = 20) -> list[str]:
    """The words of highest tf-idf in a cluster.

    tf: occurrences in the cluster's documents; idf: log(documents / documents with the word).
    """
    with_word = np.asarray((documents.counts > 0).sum(axis=0)).reshape(-1)
    rarity = np.log(documents.counts.shape[0] / np.maximum(with_word, 1))
    total = np.asarray(documents.counts[labels == cluster].sum(axis=0)).reshape(-1)
    best = np.argsort(-total * rarity, kind="stable")[:n]
    return [documents.words[j] for j in best]


# -- files -------------------------------------------------------------------------------------


def _either(folder: Path | None, name: str) -> Path | None:
    """The file, or its gzipped form."""
    if folder is None:
        return None
    found = (path for path in (folder / f"{name}.gz", folder / name) if path.is_file())
    return next(found, None)


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path) if path.suffix == ".gz" else path.open("rb"))
