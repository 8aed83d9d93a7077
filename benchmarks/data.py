"""Data sets for benchmarks, from a folder that the user names."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dpsearch import datasets


class Documents(NamedTuple):
    counts: Any  # CSR, after dropping the ten most frequent words and keeping the next 1000
    words: list[str]


def load_mnist(folder: Path | str | None) -> datasets.Digits:
    """Return all 60,000 digits if the folder has them, else the embedded 3,000."""
    path = None if folder is None else Path(folder) / "mnist_train.npz"
    if path is None or not path.exists():
        print("mnist_train.npz not found: using the embedded 3,000 digits")
        return datasets.mnist_digits()
    with np.load(path, allow_pickle=False) as entries:
        images = entries["images"].reshape(-1, 784)
        return datasets.Digits(images, entries["labels"].astype(np.int64), np.arange(len(images)))


def load_nips(folder: Path | str | None) -> Documents | None:
    path = None if folder is None else Path(folder) / "nips12.npz"
    if path is None or not path.exists():
        return None
    with np.load(path, allow_pickle=False) as z:
        parts = (z["data"].astype(int), z["indices"].astype(int), z["indptr"])
        counts = sp.csr_matrix(parts, shape=tuple(z["shape"]))[:, 10:1010].tocsr()
        words = bytes(z["vocab"]).decode().split("\n")[10:1010]
    return Documents(counts, words)
