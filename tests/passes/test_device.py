"""Rows on devices against rows that threads read."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import digamma, gammaln

from dpsearch import families, priors
from dpsearch._arrays import to_host
from dpsearch.errors import CapabilityError, DataError, ParameterError
from dpsearch.families.linear import LinearForm
from dpsearch.passes import chunk
from dpsearch.passes.chunk import Candidates
from dpsearch.passes.device import DividedRows, open_rows
from dpsearch.passes.rows import ThreadedRows
from dpsearch.passes.search import BatchSearch

N, D, K = 3001, 3, 7


class Piece(NamedTuple):
    X: Any

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    def load(self) -> Any:
        return self.X


def threaded(form: LinearForm, X: Any) -> ThreadedRows:
    first = X.shape[0] // 3
    return ThreadedRows(form, [Piece(X[:first]), Piece(X[first:])], 2)


def planted() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    truth = rng.integers(K, size=N)
    return 30.0 * rng.normal(size=(K, D))[truth] + rng.normal(size=(N, D)), truth


def gaussian() -> LinearForm:
    form = families.FullGaussian(0.0, 0.1, None, 2.0).linear(D)
    assert form is not None
    return form


def dirichlet(width: int) -> LinearForm:
    """The linear form of counts under a symmetric Dirichlet with weight 1, written naively."""

    def log_marginals(sizes: Any, totals: Any) -> Any:
        return gammaln(totals + 1.0).sum(axis=1) - gammaln((totals + 1.0).sum(axis=1))

    def weights(sizes: Any, totals: Any) -> Any:
        every = digamma((totals + 1.0).sum(axis=1, keepdims=True))
        return digamma(totals + 1.0) - every, np.zeros(len(sizes))

    return LinearForm(width, lambda X: X, log_marginals, weights, lambda n, t: t)


def documents() -> Any:
    rng = np.random.default_rng(1)
    topics = rng.dirichlet(np.full(40, 0.1), size=5)
    return sp.csr_matrix([rng.multinomial(20, topics[i % 5]) for i in range(600)]).astype(float)


def numpy_array(X: Any) -> Any:
    return X


def strict_array(X: Any) -> Any:
    return array_api_strict.asarray(X)


def tensor(X: Any) -> Any:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.set_num_threads(1)
    return torch.asarray(X)


def single(X: Any) -> Any:
    return tensor(X).to(tensor(np.float32(0)).dtype)


KINDS = [numpy_array, strict_array, tensor]


def two_groups(form: LinearForm, rng: Any) -> Candidates:
    """Clusters 0, 2 and 4 have five candidates, 1 and 3 three; 5 and 6 are in no group."""
    totals = 30.0 * rng.normal(size=(8, form.n_totals)) / form.n_totals
    constants = rng.normal(size=8)
    constants[2] = -np.inf
    return Candidates(np.array([0, 1, 0, 1, 0, -1, -1]), np.array([0, 5, 8]), totals, constants)


def one_group(form: LinearForm, rng: Any) -> Candidates:
    weights = rng.normal(size=(20, form.n_totals))
    return Candidates(np.zeros(K, np.int64), np.array([0, 20]), weights, rng.normal(size=20))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("candidates", [two_groups, one_group])
def test_passes_are_those_of_threads(kind: Any, candidates: Any) -> None:
    X, truth = planted()
    form, rng = gaussian(), np.random.default_rng(2)
    here, there = threaded(form, X), open_rows(form, kind(X))
    for rows in (here, there):
        rows.place(truth)
    np.testing.assert_allclose(here.totals(K).sums, there.totals(K).sums, rtol=1e-11, atol=1e-8)
    np.testing.assert_array_equal(here.totals(K).sizes, there.totals(K).sizes)
    for _ in range(2):
        some = candidates(form, rng)
        for ours, theirs in zip(there.assign(some), here.assign(some), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-8)
    # The second group alone; the first keeps what was proposed.
    again = some._replace(groups=np.where(some.groups == 1, 1, -1))
    if len(some.starts) > 2:
        np.testing.assert_allclose(there.assign(again).sums, here.assign(again).sums, atol=1e-8)
    of_candidates = np.arange(some.n_candidates) - 1
    for rows in (here, there):
        rows.decide(of_candidates, np.arange(K)[::-1])
    np.testing.assert_array_equal(to_host(there.labels()), here.labels())
    assert type(there.labels()) is type(kind(X))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_rows_are_drawn(kind: Any, monkeypatch: Any) -> None:
    X, truth = planted()
    form = gaussian()
    here, there = threaded(form, X), open_rows(form, kind(X))
    halves = DividedRows([open_rows(form, kind(X[:1500])), open_rows(form, kind(X[1500:]))])
    halves.parts[1].first = 1500
    counts = np.array([2, 0, 3, 1, 5000, 0, 2])
    for rows in (here, there, halves):
        rows.place(truth)
    for seed in (1, 2**61 + 12345):
        for spare in (64.0, -1.9):  # with too few looked at, a second look finds all
            monkeypatch.setattr("dpsearch.passes.device_rows._SPARE", spare)
            for rows in (there, halves):
                for ours, theirs in zip(rows.draw(counts, seed), here.draw(counts, seed)):
                    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def same_partition(rows: Any, oracle: Any) -> bool:
    ours, theirs = to_host(rows.labels()), oracle.labels()
    pairs = len(np.unique(np.stack([ours, theirs]), axis=1).T)
    return pairs == len(np.unique(ours)) == len(np.unique(theirs))


def searched(rows: Any, form: LinearForm, n: int) -> BatchSearch:
    tables = priors.DirichletProcess(1.0).tables(n)
    rng = np.random.default_rng(3)
    search = BatchSearch(rows, form, tables, rng, lambda *event: None, lambda: None)
    search.begin(1)
    search.run()
    return search


@pytest.mark.parametrize(("kind", "within"), [*((k, 1e-9) for k in KINDS), (single, 1e-5)])
def test_the_same_search(kind: Any, within: float) -> None:
    X, _ = planted()
    form = gaussian()
    oracle = threaded(form, X)
    expected = searched(oracle, form, N).log_joint
    rows = open_rows(form, kind(X))
    assert searched(rows, form, N).log_joint == pytest.approx(expected, rel=within)
    assert same_partition(rows, oracle)


@pytest.mark.parametrize("kind", KINDS)
def test_features_that_do_not_fit_are_computed_again(kind: Any, monkeypatch: Any) -> None:
    X, truth = planted()
    form, rng = gaussian(), np.random.default_rng(2)
    kept = open_rows(form, kind(X))
    monkeypatch.setattr("dpsearch.passes.dense_rows._KEPT", 0)
    computed = open_rows(form, kind(X))
    assert computed._features is None
    for some in (two_groups(form, rng), one_group(form, rng)):
        for rows in (kept, computed):
            rows.place(truth)
        np.testing.assert_allclose(kept.assign(some).sums, computed.assign(some).sums, rtol=1e-12)


def test_rows_divided_over_two_devices() -> None:
    X, _ = planted()
    form = gaussian()
    oracle, edge = threaded(form, X), 1100
    parts = [open_rows(form, tensor(X[:edge])), open_rows(form, tensor(X[edge:]))]
    parts[1].first = edge
    rows = DividedRows(parts)
    assert rows.n_rows == N
    expected = searched(oracle, form, N).log_joint
    assert searched(rows, form, N).log_joint == pytest.approx(expected, rel=1e-9)
    assert same_partition(rows, oracle)
    rows.place(oracle.labels())
    np.testing.assert_array_equal(to_host(rows.labels()), oracle.labels())


def test_documents() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    X = documents()
    form = dirichlet(X.shape[1])
    oracle = threaded(form, X)
    expected = searched(oracle, form, X.shape[0])
    parts = (torch.asarray(x) for x in (X.indptr, X.indices, X.data))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "beta"
        csr = torch.sparse_csr_tensor(*parts, X.shape, check_invariants=True)
    coo = torch.sparse_coo_tensor(np.array(X.nonzero()), X.data, X.shape, check_invariants=True)
    for given in (X, csr, coo):
        rows = open_rows(form, given, "cpu")
        found = searched(rows, form, X.shape[0]).log_joint
        assert found == pytest.approx(expected.log_joint, rel=1e-9)
        assert same_partition(rows, oracle)
    rng = np.random.default_rng(5)
    labels = rng.integers(K, size=X.shape[0])
    for some in (two_groups(form, rng), one_group(form, rng)):
        for either in (oracle, rows):
            either.place(labels)
        for ours, theirs in zip(rows.assign(some), oracle.assign(some), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        for either in (oracle, rows):
            either.decide(np.arange(some.n_candidates), np.arange(K))
        np.testing.assert_array_equal(rows.labels().numpy(), oracle.labels())
    counts = np.zeros(int(oracle.labels().max()) + 1, np.int64)
    counts[1] = 3
    np.testing.assert_array_equal(rows.draw(counts, 9).features, oracle.draw(counts, 9).features)


def test_smaller_chunks_when_memory_is_short(monkeypatch: Any) -> None:
    X, truth = planted()
    form, rng = gaussian(), np.random.default_rng(2)
    rows = open_rows(form, X)
    rows.place(truth)
    some = one_group(form, rng)
    expected = rows.assign(some).sums
    load, most = rows._load, 200

    def short_of_memory(which: slice) -> Any:
        if which.stop - which.start > most:
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return load(which)

    rows._load = short_of_memory
    monkeypatch.setattr("dpsearch.passes.dense_rows._WHOLE_BLOCK", 100)
    np.testing.assert_allclose(rows.assign(some).sums, expected, rtol=1e-12)
    most = 0
    with pytest.raises(CapabilityError, match="device: cpu has too little memory for passes over"):
        rows.assign(some)
    rows._load = lambda which: 1 / 0
    with pytest.raises(ZeroDivisionError):
        rows.assign(some)


def test_what_cannot_be_opened_is_refused(monkeypatch: Any) -> None:
    X, _ = planted()
    for wrong in ("gpu", "cuda:", "cuda:x", 3):
        with pytest.raises(ParameterError, match="device must be None, 'cpu', 'cuda'"):
            open_rows(gaussian(), X, wrong)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="1 dimensions"):
        open_rows(gaussian(), X[0])
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(CapabilityError, match=r'needs PyTorch: pip install "dpsearch\[gpu\]"'):
        open_rows(gaussian(), X, "cuda")


def test_no_gpu() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(CapabilityError, match="device is 'cuda', but PyTorch .* sees no GPU"):
        open_rows(gaussian(), planted()[0], "cuda")


def test_keys_in_signed_words_keep_the_order_of_unsigned_ones() -> None:
    numbers = np.arange(1000)
    unsigned = chunk.row_keys(numbers.astype(np.uint64), 2**62 - 7)
    words = numbers + chunk.seed_key(2**62 - 7).astype(np.int64)
    from dpsearch.passes.device_rows import _ordered_keys

    signed = _ordered_keys(words)
    np.testing.assert_array_equal(signed.view(np.uint64) ^ np.uint64(1 << 63), unsigned)
    np.testing.assert_array_equal(np.argsort(signed), np.argsort(unsigned))


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_on_a_gpu(device: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    X, _ = planted()
    form = gaussian()
    expected = searched(threaded(form, X), form, N).log_joint
    for given, within in ((X, 1e-9), (X.astype(np.float32), 1e-5)):
        rows = open_rows(form, given, device)
        assert searched(rows, form, N).log_joint == pytest.approx(expected, rel=within)
        assert rows.labels().is_cuda


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_recorded_sweeps_are_those_of_single_steps(dtype: Any) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    X, _ = planted()
    form = families.FullGaussian(0.0, 0.1).linear(X.shape[1])
    found = []
    for records in (True, False):
        rows = open_rows(form, X.astype(dtype), "cuda")
        assert rows.records
        rows.records = records
        found.append(searched(rows, form, N).log_joint)
        assert (rows._recorded is not None) == records
    # Products of a recording may be added in another order.
    assert found[0] == pytest.approx(found[1], rel=1e-9 if dtype == np.float64 else 1e-5)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("array", ["numpy_array", "strict_array", "tensor", "divided", "sparse"])
def test_rows_are_shared_as_threads_share_them(array, own):
    rng = np.random.default_rng(3)
    X = documents() if array == "sparse" else planted()[0]
    form = dirichlet(40) if array == "sparse" else gaussian()
    weights, constants = 0.1 * rng.normal(size=(5, form.n_totals)), rng.normal(size=5)
    steps = chunk.Own(*0.3 * rng.normal(size=(3, 5))) if own else None
    if array == "divided":
        rows = DividedRows([open_rows(form, X[:1000]), open_rows(form, X[1000:])])
    elif array == "sparse":
        pytest.importorskip("torch")
        rows = open_rows(form, X, "cpu")
    else:
        rows = open_rows(form, globals()[array](X))
    expected = threaded(form, X)
    wanted, found = (one.soften(weights, constants, steps) for one in (expected, rows))
    close = {"rtol": 1e-5, "atol": 1e-3} if array == "sparse" else {"rtol": 1e-9}  # in float32
    assert np.allclose(found.totals.sizes, wanted.totals.sizes, **close)
    assert np.allclose(
        found.totals.sums,
        wanted.totals.sums,
        **close,
    )
    for mine, theirs in zip(found[1:], wanted[1:], strict=True):
        assert np.allclose(mine, theirs, **close)
    assert np.array_equal(to_host(rows.labels()), expected.labels())
