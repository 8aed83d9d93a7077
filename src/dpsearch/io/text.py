"""Documents as counts of words, made by scikit-learn's CountVectorizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dpsearch._files import visible_files
from dpsearch.errors import DataError, located
from dpsearch.io.blocks import not_in_encoding
from dpsearch.io.table import Reading, Table

_FEW_DOCUMENTS = 20
_TOO_COMMON = 0.5  # share of the documents


def read_folder(path: Path, reading: Reading) -> Table:
    """Read a folder of text files; each is a document, named by its path in the folder."""
    import polars as pl

    files = visible_files(path)
    if not files:
        raise DataError("the folder has no files; each file of a folder is read as a document")
    X, names, note = count_words(_texts(files, reading.encoding), reading)
    index = pl.Series("document", [file.relative_to(path).as_posix() for file in files])
    return Table(X, names, index=index, notes=[note] if note else [])


def _texts(files: list[Path], encoding: str) -> Iterator[str]:
    for file in files:
        with located(str(file)):
            try:
                text = file.read_text(encoding=encoding)
            except UnicodeError as error:
                raise not_in_encoding(encoding, getattr(error, "start", 0)) from error
            if "\0" in text:
                raise DataError("not text: there is a NUL byte")
        yield text


def count_text_column(table: Table, reading: Reading) -> Table:
    """Replace a table's column of texts by counts of words."""
    texts = table.X.fill_null("").to_list()
    table.X, table.names, note = count_words(iter(texts), reading)
    table.notes += [note] if note else []
    return table


def count_words(texts: Iterator[str], reading: Reading) -> tuple[Any, list[str], str | None]:
    """Return counts, words, and a note on what was counted.

    Words in a single document and words in more than half of them hardly distinguish clusters;
    except in small collections they are not counted.  With `reading.model` its words are counted.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    if reading.model is not None and reading.model.names is not None:
        known = list(reading.model.names)
        counter = CountVectorizer(vocabulary=known, dtype=np.float64)
        return counter.transform(texts), known, None
    counter = CountVectorizer(dtype=np.float64)
    try:
        X = counter.fit_transform(texts)
    except DataError:
        raise
    except ValueError as error:  # "empty vocabulary"
        raise DataError("there are no words") from error
    words = np.array(counter.get_feature_names_out(), dtype=object)
    total = len(words)
    if X.shape[0] >= _FEW_DOCUMENTS:
        documents = np.diff(X.tocsc().indptr)
        useful = (documents >= 2) & (documents <= _TOO_COMMON * X.shape[0])
        if useful.any():
            X, words = X[:, useful], words[useful]
    if len(words) > reading.words:
        frequent = np.argsort(-np.asarray(X.sum(axis=0)).ravel(), kind="stable")[: reading.words]
        frequent.sort()
        X, words = X[:, frequent], words[frequent]
    note = f"{len(words):,} of {total:,} words are counted" if len(words) < total else None
    return X.tocsr(), [str(word) for word in words], note
