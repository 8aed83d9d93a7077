"""Reading MNIST and NIPS in the formats of the public originals, and bad files."""

import gzip
import re
from urllib.error import URLError

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.io import savemat

from dpsearch.errors import DataError, ParameterError
from studies.reproduction import data

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
DOCWORD, VOCABULARY = "docword.nips.txt", "vocab.nips.txt"
COUNTS = np.array([[2, 0, 1, 5], [0, 3, 0, 4], [1, 0, 0, 6]])
WORDS = ["a", "b", "c", "d"]


def idx(array):
    header = b"\x00\x00\x08" + bytes([array.ndim])
    return header + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def few_digits(monkeypatch):
    """Return five images, and let the reader accept so few."""
    monkeypatch.setattr(data, "LEAST_IMAGES", 5)
    images = np.random.default_rng(0).integers(256, size=(5, 28, 28), dtype=np.uint8)
    return images, np.array([3, 1, 4, 1, 5], np.uint8)


def uci(counts=COUNTS):
    matrix = sp.coo_matrix(counts)
    lines = [str(n) for n in (*matrix.shape, matrix.nnz)]
    lines += [
        f"{i + 1} {j + 1} {v}" for i, j, v in zip(matrix.row, matrix.col, matrix.data, strict=True)
    ]
    return ("\n".join(lines) + "\n").encode()


def refused(folder, said, **options):
    """Check that reading the folder raises a DataError; return its message."""
    with pytest.raises(DataError, match=said) as caught:
        read(folder, **options)
    return str(caught.value)


def read(folder, **options):
    data.load_mnist(folder, **options)
    data.load_nips(folder)


# -- what can be read --------------------------------------------------------------------------


def test_mnist_in_its_formats(tmp_path, monkeypatch):
    assert data.load_mnist(None) is None
    assert data.load_mnist(tmp_path) is None
    assert len(data.mnist_or_embedded(tmp_path).images) == 3000
    images, labels = few_digits(monkeypatch)
    folders = [tmp_path / name for name in ("gz", "plain", "npz")]
    for folder in folders:
        folder.mkdir()
    for name, array in ((IMAGES, images), (LABELS, labels)):
        (folders[0] / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        (folders[1] / name).write_bytes(idx(array))
    np.savez_compressed(folders[2] / "mnist_train.npz", images=images, labels=labels)

    def fetch(name, **options):
        return images.reshape(5, 784).astype(float), labels.astype(str)

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    found = [data.load_mnist(folder) for folder in folders]
    found += [data.load_mnist(tmp_path, download=True), data.mnist_or_embedded(folders[0])]
    for digits in found:
        assert np.array_equal(digits.images, images.reshape(5, 784))
        assert digits.images.dtype == np.uint8
        assert np.array_equal(digits.labels, labels)


def test_nips_in_its_formats(tmp_path):
    assert data.load_nips(None) is None
    assert data.load_nips(tmp_path) is None
    folders = {name: tmp_path / name for name in ("uci", "plain", "mat", "later", "npz")}
    for folder in folders.values():
        folder.mkdir()
    (folders["uci"] / f"{DOCWORD}.gz").write_bytes(gzip.compress(uci()))
    (folders["plain"] / DOCWORD).write_bytes(uci())
    for name in ("uci", "plain"):
        (folders[name] / VOCABULARY).write_text("\n".join(WORDS) + "\n")
    cells = np.array(WORDS, dtype=object)[:, None]
    roweis = folders["mat"] / "nips12raw_str602.mat"
    savemat(roweis, {"counts": sp.csc_matrix(COUNTS.T.astype(float)), "wl": cells})
    savemat(folders["later"] / "nips_1-17.mat", {"counts": COUNTS.T, "words": cells.T})
    np.savez(folders["npz"] / "nips12.npz", **archive())
    for folder in folders.values():
        found = data.load_nips(folder)
        assert np.array_equal(found.counts.toarray(), COUNTS), folder
        assert found.words == WORDS
    kept = data.paper_vocabulary(found, drop=1, keep=2)
    assert kept.words == ["a", "b"]  # by total, ties as they come: d, a, b, c
    assert np.array_equal(kept.counts.toarray(), COUNTS[:, :2])


def archive(counts=COUNTS, **other):
    matrix = sp.csr_matrix(counts)
    vocabulary = np.frombuffer("\n".join(WORDS).encode(), np.uint8)
    return {
        "data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr,
        "shape": matrix.shape, "vocab": vocabulary, **other,
    }  # fmt: skip


def test_the_folder_is_an_option_or_a_variable(tmp_path, monkeypatch):
    monkeypatch.delenv(data.VARIABLE, raising=False)
    assert data.data_folder(None) is None
    monkeypatch.setenv(data.VARIABLE, str(tmp_path))
    assert data.data_folder(None) == tmp_path
    with pytest.raises(ParameterError, match="no such folder"):
        data.data_folder(tmp_path / "nowhere")


def test_what_is_absent_can_be_had_somewhere():
    for said, names in (
        (data.MNIST_ABSENT, [f"{IMAGES}.gz", "--download"]),
        (data.NIPS_ABSENT, ["nips12raw_str602.mat", f"{DOCWORD}.gz"]),
    ):
        assert "https://" in said
        for name in (*names, "--data", data.VARIABLE):
            assert name in said


def test_indicative_words():
    counts = sp.csr_matrix([[9, 5, 0, 1], [9, 4, 0, 0], [9, 0, 7, 0], [9, 0, 0, 0]])
    texts = data.Documents(counts, ["all", "first", "second", "once"], "")
    labels = np.array([0, 0, 1, 1])
    # tf-idf 9 log 2 and 1 log 4 in the first cluster; a word that all have counts nothing.
    assert data.indicative_words(texts, labels, 0, 2) == ["first", "once"]
    assert data.indicative_words(texts, labels, 1, 1) == ["second"]


# -- what cannot -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not an IDX file"),
        (b"\x00\x00\x0d\x01", "not an IDX file"),
        (idx(np.zeros((2, 3), np.uint8))[:-1], "header says"),
    ],
)
def test_bad_idx_files(content, said, tmp_path):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(DataError, match=said):
        data.read_idx(tmp_path / "x")


def test_files_that_are_not_what_their_name_says(tmp_path, monkeypatch):
    images, labels = few_digits(monkeypatch)
    (tmp_path / f"{LABELS}.gz").write_bytes(gzip.compress(idx(labels)))
    path = tmp_path / f"{IMAGES}.gz"
    for content in (gzip.compress(idx(images))[:-40], idx(images), b""):
        path.write_bytes(content)
        assert refused(tmp_path, "or damaged|not an IDX file").startswith(str(path))
    damaged = bytearray(gzip.compress(idx(images)))
    damaged[len(damaged) // 2] ^= 255
    path.write_bytes(bytes(damaged))
    assert refused(tmp_path, "a gzip file, or damaged").startswith(str(path))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"images": np.zeros((5, 9))}, r"784 pixels.*\(5, 9\)"),
        ({"images": np.zeros(5)}, "784 pixels"),
        ({"images": np.full((5, 784), 256)}, "pixels must be 0 … 255, got 256"),
        ({"images": np.full((5, 784), 0.5)}, "pixels must be whole numbers ≥ 0, got 0.5"),
        ({"images": np.full((5, 784), np.nan)}, "pixels must be whole numbers ≥ 0, got nan"),
        ({"images": np.zeros((5, 784), "U1")}, "pixels must be numbers"),
        ({"labels": np.array([0, 1, 10, 3, 4])}, "that of image 2 is 10"),
        ({"labels": np.array([0, 1, -1, 3, 4])}, "labels must be whole numbers ≥ 0, got -1"),
        ({"labels": np.arange(4)}, "as many labels as images"),
        ({"labels": None}, "has no entry 'labels'"),
    ],
)
def test_bad_digits(change, said, tmp_path, monkeypatch):
    images, labels = few_digits(monkeypatch)
    entries = {"images": images, "labels": labels, **change}
    path = tmp_path / "mnist_train.npz"
    np.savez(path, **{name: value for name, value in entries.items() if value is not None})
    assert refused(tmp_path, said).startswith(str(path))


def test_fewer_images_than_five_percent(tmp_path):
    images = np.zeros((2999, 784), np.uint8)
    np.savez_compressed(tmp_path / "mnist_train.npz", images=images, labels=np.zeros(2999))
    assert "mnist_train.npz" in refused(tmp_path, "2,999 images, fewer than the 3,000")


def test_files_that_are_not_archives(tmp_path):
    path = tmp_path / "mnist_train.npz"
    path.write_bytes(b"PK\x03\x04 and nothing else")
    assert refused(tmp_path, "not an .npz archive").startswith(str(path))
    with path.open("wb") as stream:
        np.save(stream, np.zeros(3))
    assert refused(tmp_path, "a single array").startswith(str(path))
    np.savez(path, images=np.array([{}], dtype=object), labels=np.zeros(1))
    assert refused(tmp_path, "not an .npz archive, or damaged").startswith(str(path))


def test_no_way_to_openml(tmp_path, monkeypatch):
    def fetch(name, **options):
        raise URLError("no route to host")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    assert refused(tmp_path, "no route to host", download=True).startswith("OpenML: cannot be had")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"words\n", "not a bag of words"),
        (b"3\n4\n", "do not fit"),
        (b"3\n4\n2\n1 1 1\n", "do not fit"),
        (b"3\n4\n1\n1 1\n", "do not fit"),
        (b"3\n4\n1\n1 1 -2\n", "must be whole numbers ≥ 0, got -2"),
        (b"3\n4\n1\n1 1 1.5\n", "must be whole numbers ≥ 0, got 1.5"),
        (b"3\n4\n2\n1 1 1\n4 1 1\n", "line 5: document 4 is not 1 … 3"),
        (b"3\n4\n1\n0 1 1\n", "line 4: document 0 is not 1 … 3"),
        (b"3\n4\n1\n1 5 1\n", "line 4: word 5 is not 1 … 4"),
        (b"3\n5\n1\n1 5 1\n", "counts of 5 words, but 4 words named"),
        (b"3\n4\n1\n1 1 0\n", "no words are counted"),
    ],
)
def test_bad_bags_of_words(content, said, tmp_path):
    path = tmp_path / f"{DOCWORD}.gz"
    path.write_bytes(gzip.compress(content))
    (tmp_path / VOCABULARY).write_text("\n".join(WORDS))
    assert refused(tmp_path, said).startswith(str(path))


def test_a_vocabulary_that_is_not_text(tmp_path):
    (tmp_path / f"{DOCWORD}.gz").write_bytes(gzip.compress(uci()))
    (tmp_path / VOCABULARY).write_bytes("naïve\nb\nc\nd".encode("latin-1"))
    assert VOCABULARY in refused(tmp_path, "the vocabulary is not UTF-8")
    (tmp_path / f"{DOCWORD}.gz").write_bytes(gzip.compress(uci())[:-20])
    (tmp_path / VOCABULARY).write_text("\n".join(WORDS))
    assert DOCWORD in refused(tmp_path, "a gzip file, or damaged")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"vocab": None}, "has no entry 'vocab'"),
        ({"data": -np.ones(7, int)}, "data must be whole numbers ≥ 0, got -1"),
        ({"data": np.full(7, 0.5)}, "data must be whole numbers ≥ 0, got 0.5"),
        ({"indices": np.full(7, 4)}, "not counts in CSR form"),
        ({"shape": (3, 9)}, "counts of 9 words, but 4 words named"),
        ({"vocab": np.frombuffer(b"\xff\xfe", np.uint8)}, "not UTF-8"),
    ],
)
def test_bad_counts(change, said, tmp_path):
    path = tmp_path / "nips12.npz"
    entries = {k: v for k, v in archive(**change).items() if v is not None}
    np.savez(path, **entries)
    assert refused(tmp_path, said).startswith(str(path))


def test_bad_matlab_files(tmp_path):
    path = tmp_path / "nips_1-17.mat"
    cells = np.array(WORDS, dtype=object)[:, None]
    for content in (b"", b"nothing of the kind" * 20):
        path.write_bytes(content)
        assert refused(tmp_path, "not a MATLAB file").startswith(str(path))
    savemat(path, {"counts": COUNTS.T, "words": cells})
    path.write_bytes(path.read_bytes()[:-30])
    assert refused(tmp_path, "not a MATLAB file, or damaged").startswith(str(path))
    for entries, said in (
        ({"counts": np.eye(2)}, "expected the entries"),
        ({"counts": -COUNTS.T, "words": cells}, "counts must be whole numbers ≥ 0"),
        ({"counts": COUNTS.T + 0.5, "words": cells}, "counts must be whole numbers ≥ 0"),
        ({"counts": COUNTS.T, "words": cells[:2]}, re.escape("but 2 words named")),
    ):
        savemat(path, entries)
        assert refused(tmp_path, said).startswith(str(path))
