"""`dpsearch reproduce`: the paper's findings on small versions, readers, pages and resuming."""

import csv
import gzip
import re
import sys
import time
from concurrent.futures import CancelledError
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.io import savemat

import enumeration
from dpsearch import datasets, families, priors
from dpsearch.cli import main
from dpsearch.errors import CapabilityError, DataError, ParameterError
from dpsearch.experiments import (
    artificial,
    artificial_page,
    cache,
    chains,
    data,
    mnist,
    mnist_page,
    nips,
    nips_page,
    optimum,
    paper,
    reproduce,
    work,
)
from dpsearch.experiments.report import Report, against, markdown_table, rounded
from dpsearch.objective import Problem
from dpsearch.prefix_search import search_problem
from dpsearch.priors.base import log_prior

DP, COUNTS = priors.DirichletProcess(1.0), priors.AntoniakCounts(1.0)
GAUSSIAN = families.Gaussian(0.0, 10.0, 1.0)
TINY = artificial.Settings(
    sizes=(4, 7, 16), n_sets=2, runs_per_start=1, sweeps=50, max_states=2000, seed=3
)
TINY_MNIST = mnist.Settings(
    shares=(0.05, 0.2), beam_size=2, refine_seconds=(0.3, 0.3), chain_seconds=(0.2, 0.2),
    starts=("one",), variant_beam=1,
)  # fmt: skip
TINY_NIPS = nips.Settings(
    beam_sizes=(1, 3), n_random=3, refine_seconds=0.3, chain_seconds=0.2, starts=("one", "all")
)


def silent(message):
    pass


def problem(n, dimension, prior, seed=0):
    return Problem.of(datasets.dirichlet_process_draw(n, dimension, rng=seed).X, GAUSSIAN, prior)


def documents(seed=0, n=120, width=60, topics=8):
    """Documents of very different lengths about a few topics."""
    rng = np.random.default_rng(seed)
    by_topic = rng.dirichlet(np.full(width, 0.15), size=topics)
    lengths, about = rng.integers(5, 200, size=n), rng.integers(topics, size=n)
    counts = [rng.multinomial(m, by_topic[t]) for m, t in zip(lengths, about, strict=True)]
    return data.Documents(sp.csr_matrix(counts), [f"w{j}" for j in range(width)], "drawn")


# -- the paper's findings, on small versions ---------------------------------------------------


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    settings = replace(TINY, sizes=(4, 6, 8, 10, 12), n_sets=3, max_states=50_000)
    folder = tmp_path_factory.mktemp("cache")
    return artificial.run(settings, cache.Cache(folder), 1, silent)


def test_inadmissible_search_enqueues_fewest_states_and_dequeues_hardly_more_than_n(records):
    of_the_paper = [m for m in artificial.SEARCHES if not m.startswith("admissible")]
    for dimension, size, prior in {(r.dimension, r.size, r.prior) for r in records}:
        cell = [r for r in records if (r.dimension, r.size, r.prior) == (dimension, size, prior)]
        mean = {
            method: np.mean([r.enqueued for r in cell if r.method == method])
            for method in of_the_paper
        }
        assert min(mean.values()) == mean["inadmissible"]
        if size >= 10:
            assert mean["inadmissible"] < mean["trivial"] / 2
    dequeued = [r.dequeued - r.size for r in records if r.method == "inadmissible"]
    assert min(dequeued) >= 0
    assert max(dequeued) <= 5


def test_admissible_search_is_optimal(records):
    proved = [r for r in records if r.prior == "true" and r.method in ("admissible", "trivial")]
    assert len(proved) == 60
    assert not any(r.stopped for r in proved)
    assert all(r.proof == "enumeration" for r in proved)
    for record in proved:
        assert record.value == pytest.approx(record.optimum, abs=1e-9)
    # The others are no better, and not all as good.
    assert all(r.value >= r.optimum - 1e-9 for r in records)
    assert not all(r.is_optimal for r in records if r.method == "trivial, queue 10")


@pytest.mark.parametrize("prior", [DP, COUNTS], ids=["true", "paper"])
def test_ascending_order_beats_descending(prior):
    for seed in range(5):
        drawn = Problem.of(documents(seed).counts, families.Multinomial(1.0), prior)
        up, down = (
            search_problem(drawn, beam_size=1, order=order) for order in ("ascending", "descending")
        )
        assert up.log_joint > down.log_joint


# -- what methods are compared with ------------------------------------------------------------


@pytest.mark.parametrize("dimension", [1, 2])
@pytest.mark.parametrize("prior", [DP, COUNTS, priors.AntoniakCounts(0.3)], ids=repr)
def test_the_optimum_is_that_of_all_partitions(prior, dimension, monkeypatch):
    for n in (1, 2, 5, 7):
        for seed in range(3):
            drawn = problem(n, dimension, prior, seed)
            best = enumeration.best(drawn)
            found = optimum.optimum(drawn, np.zeros(n, np.int64))
            assert found.log_joint == pytest.approx(best, abs=1e-9)
            assert found.proof == "enumeration"
            if n > 1 and dimension == 1 and prior is not DP:
                known = drawn.log_joint(np.zeros(n, np.int64))
                assert optimum._by_intervals(drawn, known) == pytest.approx(best, abs=1e-9)


def test_the_optimum_beyond_enumeration():
    for prior, dimension, proof in ((COUNTS, 1, "intervals"), (COUNTS, 2, ""), (DP, 2, None)):
        drawn = problem(18, dimension, prior)
        start = search_problem(drawn, beam_size=1)
        found = optimum.optimum(drawn, start.labels)
        assert found.log_joint >= start.log_joint - 1e-9
        assert proof is None or found.proof == proof
    with pytest.raises(CapabilityError, match="α fixed"):
        optimum.optimum(problem(5, 1, priors.PitmanYor(1.0, 0.3)), np.zeros(5, np.int64))


def test_samplers_are_judged_by_each_prior_at_its_best():
    drawn = problem(9, 1, DP)
    best = chains.best_of_runs(drawn, [COUNTS, DP], "split-merge", ["one", "all"], 80, 0)
    for visited, prior in zip(best, (COUNTS, DP), strict=True):
        value = drawn.with_prior(prior).log_joint(visited.labels)
        assert visited.log_joint == pytest.approx(value, abs=1e-9)
        assert 1 <= visited.sweep <= 80
        assert visited.seconds > 0.0
    other = drawn.log_joint(best[0].labels)
    assert other <= best[1].log_joint + 1e-9
    assert best[1].log_joint == pytest.approx(enumeration.best(drawn), abs=1e-9)


def test_log_priors_of_many_partitions():
    sizes = np.array([[3, 2, 2], [7, 0, 0], [5, 1, 1], [4, 0, 3]])
    for prior in (DP, COUNTS):
        drawn = problem(7, 1, prior)
        want = [log_prior(drawn.tables, row[row > 0]) for row in sizes]
        assert chains._log_priors(drawn, sizes) == pytest.approx(want, abs=1e-12)


# -- reading data ------------------------------------------------------------------------------


def idx(array):
    header = b"\x00\x00\x08" + bytes([array.ndim])
    return header + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def test_mnist_in_its_formats(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(5, 28, 28), dtype=np.uint8)
    labels = np.array([3, 1, 4, 1, 5], np.uint8)
    assert data.load_mnist(None) is None
    assert data.load_mnist(tmp_path) is None
    assert len(data.mnist_or_embedded(tmp_path).images) == 3000
    folders = [tmp_path / name for name in ("gz", "plain", "npz")]
    for folder in folders:
        folder.mkdir()
    (folders[0] / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
    (folders[0] / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
    (folders[1] / "train-images-idx3-ubyte").write_bytes(idx(images))
    (folders[1] / "train-labels-idx1-ubyte").write_bytes(idx(labels))
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


def test_images_of_another_size(tmp_path):
    np.savez(tmp_path / "mnist_train.npz", images=np.zeros((2, 9)), labels=np.zeros(2))
    with pytest.raises(DataError, match="784 pixels"):
        data.load_mnist(tmp_path)


def write_uci(folder, counts, words, zipped=True):
    matrix = sp.coo_matrix(counts)
    lines = [str(n) for n in (*matrix.shape, matrix.nnz)]
    lines += [
        f"{i + 1} {j + 1} {v}" for i, j, v in zip(matrix.row, matrix.col, matrix.data, strict=True)
    ]
    text = ("\n".join(lines) + "\n").encode()
    if zipped:
        (folder / "docword.nips.txt.gz").write_bytes(gzip.compress(text))
    else:
        (folder / "docword.nips.txt").write_bytes(text)
    (folder / "vocab.nips.txt").write_text("\n".join(words) + "\n")


def test_nips_in_its_formats(tmp_path):
    counts = np.array([[2, 0, 1, 5], [0, 3, 0, 4], [1, 0, 0, 6]])
    words = ["a", "b", "c", "d"]
    assert data.load_nips(None) is None
    assert data.load_nips(tmp_path) is None
    folders = {name: tmp_path / name for name in ("uci", "plain", "mat", "later", "npz")}
    for folder in folders.values():
        folder.mkdir()
    write_uci(folders["uci"], counts, words)
    write_uci(folders["plain"], counts, words, zipped=False)
    cells = np.array(words, dtype=object)[:, None]
    roweis = folders["mat"] / "nips12raw_str602.mat"
    savemat(roweis, {"counts": sp.csc_matrix(counts.T.astype(float)), "wl": cells})
    savemat(folders["later"] / "nips_1-17.mat", {"counts": counts.T, "words": cells.T})
    matrix = sp.csr_matrix(counts)
    np.savez(
        folders["npz"] / "nips12.npz", data=matrix.data, indices=matrix.indices,
        indptr=matrix.indptr, shape=matrix.shape,
        vocab=np.frombuffer("\n".join(words).encode(), np.uint8),
    )  # fmt: skip
    for folder in folders.values():
        found = data.load_nips(folder)
        assert np.array_equal(found.counts.toarray(), counts), folder
        assert found.words == words
    kept = data.paper_vocabulary(found, drop=1, keep=2)
    assert kept.words == ["a", "b"]  # by total, ties as they come: d, a, b, c
    assert np.array_equal(kept.counts.toarray(), counts[:, :2])


def test_bad_documents(tmp_path):
    write_uci(tmp_path, np.eye(3, dtype=int), ["a", "b"])
    with pytest.raises(DataError, match="counts of 3 words, but 2 words named"):
        data.load_nips(tmp_path)
    (tmp_path / "docword.nips.txt.gz").write_bytes(gzip.compress(b"1\n2\n1\n1 3 1\n"))
    with pytest.raises(DataError, match="do not fit"):
        data.load_nips(tmp_path)
    (tmp_path / "docword.nips.txt.gz").write_bytes(gzip.compress(b"words\n"))
    with pytest.raises(DataError, match="not a bag of words"):
        data.load_nips(tmp_path)
    (tmp_path / "nips_1-17.mat").write_bytes(b"nothing of the kind" * 20)
    with pytest.raises(DataError, match="not a MATLAB file"):
        data.load_nips(tmp_path)
    savemat(tmp_path / "nips_1-17.mat", {"counts": np.eye(2)})
    with pytest.raises(DataError, match="expected the entries"):
        data.load_nips(tmp_path)


def test_the_folder_is_an_option_or_a_variable(tmp_path, monkeypatch):
    monkeypatch.delenv(data.VARIABLE, raising=False)
    assert data.data_folder(None) is None
    monkeypatch.setenv(data.VARIABLE, str(tmp_path))
    assert data.data_folder(None) == tmp_path
    with pytest.raises(ParameterError, match="no such folder"):
        data.data_folder(tmp_path / "nowhere")


def test_indicative_words():
    counts = sp.csr_matrix([[9, 5, 0, 1], [9, 4, 0, 0], [9, 0, 7, 0], [9, 0, 0, 0]])
    texts = data.Documents(counts, ["all", "first", "second", "once"], "")
    labels = np.array([0, 0, 1, 1])
    # tf-idf 9 log 2 and 1 log 4 in the first cluster; a word that all have counts nothing.
    assert data.indicative_words(texts, labels, 0, 2) == ["first", "once"]
    assert data.indicative_words(texts, labels, 1, 1) == ["second"]


# -- keeping what is done ----------------------------------------------------------------------


def test_a_stopped_run_goes_on_where_it_was(tmp_path, monkeypatch):
    store = cache.Cache(tmp_path)
    settings = replace(TINY, sizes=(4, 5), dimensions=(1,))
    one_set, done = artificial.one_set, []

    def stopped(unit):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(unit)
        return one_set(unit)

    monkeypatch.setattr(artificial, "_compiled", True)
    monkeypatch.setattr(artificial, "one_set", stopped)
    with pytest.raises(KeyboardInterrupt):
        artificial.run(settings, store, 1, silent)
    assert len(list(tmp_path.iterdir())) == 3
    assert all(path.suffix == ".npz" for path in tmp_path.iterdir())
    later = []
    monkeypatch.setattr(artificial, "one_set", lambda unit: later.append(unit) or one_set(unit))
    first = artificial.run(settings, store, 1, silent)
    assert len(later) == 1
    assert later[0] not in done
    monkeypatch.setattr(artificial, "one_set", None)
    assert artificial.run(settings, store, 1, silent) == first
    # A file that was damaged is done again.
    path = next(tmp_path.iterdir())
    path.write_bytes(path.read_bytes()[:100])
    monkeypatch.setattr(artificial, "one_set", lambda unit: later.append(unit) or one_set(unit))
    again = artificial.run(settings, store, 1, silent)
    assert len(later) == 2
    assert [r.value for r in again] == [r.value for r in first]


def test_results_are_kept_apart_by_parameters_and_version(tmp_path, monkeypatch):
    store = cache.Cache(tmp_path)
    result = cache.Result({"x": 1.5}, {"labels": np.arange(3)})
    store.put("unit", {"seed": 0}, result)
    kept = store.get("unit", {"seed": 0})
    assert kept.values == {"x": 1.5}
    assert np.array_equal(kept.arrays["labels"], np.arange(3))
    assert store.get("unit", {"seed": 1}) is None
    assert store.get("other", {"seed": 0}) is None
    monkeypatch.setattr(cache, "__version__", "999")
    assert store.get("unit", {"seed": 0}) is None


def test_two_processes_do_the_same_as_one(tmp_path):
    settings = replace(TINY, sizes=(4, 6), dimensions=(2,), n_sets=1)
    one = artificial.run(settings, cache.Cache(tmp_path / "one"), 1, silent)
    two = artificial.run(settings, cache.Cache(tmp_path / "two"), 2, silent)
    timeless = [[r._replace(seconds=0.0) for r in records] for records in (one, two)]
    assert timeless[0] == timeless[1]


def test_refinement_that_was_interrupted_is_no_result(monkeypatch):
    drawn = problem(30, 2, DP)
    start = np.zeros(30, np.int64)
    result = work.refine_for(drawn, start, 0.05, seed=0, n_jobs=1)
    assert result.log_joint > drawn.log_joint(start)
    half = replace(result, converged=False, seconds=0.01)
    monkeypatch.setattr(work, "refine_problem", lambda *args, **options: half)
    with pytest.raises(KeyboardInterrupt):
        work.refine_for(drawn, start, 0.05, seed=0, n_jobs=1)


def test_threads_stop_when_one_fails():
    begun, seen = time.perf_counter(), []

    def function(item, check):
        if item == 0:
            raise ValueError("fails")
        seen.append(item)
        while time.perf_counter() - begun < 30.0:
            check()
            time.sleep(0.01)

    with pytest.raises(ValueError, match="fails"):
        work.in_threads(function, [0, 1, 2, 3, 4], 2)
    assert time.perf_counter() - begun < 10.0
    assert len(seen) < 4
    with pytest.raises(CancelledError):
        chains.run_for(problem(9, 1, DP), "gibbs", "one", 9.0, 0, _give_up)
    assert work.in_threads(lambda item, check: 2 * item, [1, 2, 3], 2) == [2, 4, 6]


def _give_up():
    raise CancelledError


def test_made_once():
    made = []
    lazily = work.Lazily(lambda: made.append(1) or len(made))
    assert [lazily(), lazily()] == [1, 1]


# -- pages -------------------------------------------------------------------------------------


def check_links(folder):
    """Every link of every page leads to a file."""
    for page in folder.glob("*.md"):
        links = re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
        assert links
        for link in links:
            assert link.startswith("http") or (folder / link).is_file(), (page, link)


def test_the_artificial_page(records, tmp_path):
    settings = replace(TINY, sizes=(4, 6, 8, 10, 12), dimensions=(2,), n_sets=3)
    records = [r for r in records if r.dimension == 2]
    artificial_page.write(records, settings, Report(tmp_path), 1)
    check_links(tmp_path)
    text = (tmp_path / "artificial.md").read_text(encoding="utf-8")
    found = [r for r in records if r.prior == "true" and r.method == "inadmissible"]
    share = f"full: optimal in {sum(r.is_optimal for r in found)} of {len(found)} sets"
    assert share in text
    with (tmp_path / "tables" / "artificial_2d_true_enqueued.csv").open(encoding="utf-8") as lines:
        table = {row[0]: row[1:] for row in csv.reader(lines)}
    want = np.mean([r.enqueued for r in found if r.dimension == 2 and r.size == 8])
    assert table["inadmissible"][2] == f"{want:,.0f}"
    assert (tmp_path / "figures" / "artificial_2d.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "figures" / "artificial_2d.svg").read_text()


def test_the_artificial_page_says_where_ours_is_worse(records, tmp_path):
    def written(change):
        lines = artificial_page._findings([change(r) for r in records], Report(tmp_path))
        return "\n".join(lines)

    settled = written(lambda r: r._replace(value=r.optimum))
    assert "Worse than the paper says" not in settled
    one = next(r for r in records if r.method == "inadmissible" and r.size == 10)
    worse = written(lambda r: r._replace(value=r.optimum + (2.5 if r == one else 0.0)))
    assert "not optimal in 1 of" in worse
    assert "2.50 nats above the optimum (N = 10" in worse
    unproved = written(lambda r: r._replace(proof="") if r == one else r)
    assert "The optimum is not proved for 1 sets (N = 10" in unproved


def test_the_mnist_page_from_the_embedded_digits(tmp_path):
    store = cache.Cache(tmp_path / "cache")
    digits = datasets.mnist_digits()
    few = datasets.Digits(digits.images[:3000], digits.labels[:3000], digits.rows[:3000])
    outcome = mnist.run(few, TINY_MNIST, store, 2, silent)
    mnist_page.write(outcome, TINY_MNIST, Report(tmp_path), 2)
    check_links(tmp_path)
    text = (tmp_path / "mnist.md").read_text(encoding="utf-8")
    assert "Left out: 20% of MNIST" in text
    X = datasets.whitened(digits.images)
    for found in outcome.searched + outcome.refined:
        drawn = Problem.of(X, mnist.FAMILY, mnist.PRIORS["true"])
        assert found.true_value == pytest.approx(-drawn.log_joint(found.labels))
        by_counts = drawn.with_prior(mnist.PRIORS["paper"])
        assert found.paper_value == pytest.approx(-by_counts.log_joint(found.labels))
        assert f"{found.value(found.prior):,.0f}" in text
    for before, after in zip(outcome.searched, outcome.refined, strict=True):
        assert after.true_value < before.true_value
    assert len(outcome.variants) == len(mnist.VARIANTS)
    # All that took time is there for the next run.
    again = mnist.run(few, TINY_MNIST, store, 1, silent)
    assert again.chains == outcome.chains
    assert again.variants == outcome.variants
    # Planted: a value above the paper's is called worse, one below is not.
    one = outcome.searched[0]
    theirs = paper.MNIST[0.05].value
    bad = outcome._replace(searched=[one._replace(paper_value=1.01 * theirs), outcome.searched[1]])
    good = outcome._replace(searched=[one._replace(paper_value=0.9 * theirs), outcome.searched[1]])
    assert "the paper's P(m): 1.0% higher (worse) than" in "\n".join(mnist_page._verdicts(bad))
    assert "the paper's P(m): 10.0% lower (better) than" in "\n".join(mnist_page._verdicts(good))


def test_shares_of_mnist():
    images = np.zeros((60_000, 1), np.uint8)
    digits = datasets.Digits(images, np.zeros(60_000, np.int64), np.arange(60_000))
    assert np.array_equal(mnist._rows(digits, 0.05, 0), datasets.mnist_digits().rows)
    assert len(np.unique(mnist._rows(digits, 0.2, 0))) == 12_000
    assert np.array_equal(mnist._rows(digits, 1.0, 0), np.arange(60_000))
    assert mnist._rows(datasets.mnist_digits(), 0.2, 0) is None


def test_the_nips_page(tmp_path):
    texts = documents(1)
    outcome = nips.run(texts, TINY_NIPS, cache.Cache(tmp_path / "cache"), 2, silent)
    nips_page.write(outcome, texts, TINY_NIPS, Report(tmp_path), 2)
    check_links(tmp_path)
    text = (tmp_path / "nips.md").read_text(encoding="utf-8")
    assert "Not the paper's collection" in text
    assert len(outcome.searched) == 2 * 2 * 5
    for found in outcome.searched:
        assert found.clusters == len(np.unique(found.labels))
    up = outcome.of("true", 1, "ascending")[0]
    assert f"| the true p(c) | 1 | {up.true_value:,.0f} | {up.clusters} |" in text
    random = [f.true_value for f in outcome.of("true", 1, "random")]
    assert len(set(random)) > 1
    assert f"| {np.mean(random):,.0f} | {np.std(random, ddof=1):,.0f} |" in text
    words = data.indicative_words(texts, outcome.of("paper", 3, "ascending")[0].labels, 0)
    assert " ".join(words) in text


def test_numbers_in_words():
    assert against(2.05e5, 2.04e5) == "0.5% higher (worse)"
    assert against(2.03e5, 2.04e5) == "0.5% lower (better)"
    assert against(2.04e5, 2.04e5) == "the same"
    assert rounded(2.04e5) == "2.04e5"
    assert rounded(3.2e6, 2) == "3.2e6"
    lines = markdown_table(["a", "b"], [["x|y", 1.5], ["z", "2,000"]])
    assert lines == ["| a | b |", "| --- | ---: |", "| x\\|y | 1.5 |", "| z | 2,000 |"]


# -- the command -------------------------------------------------------------------------------


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(data.VARIABLE, raising=False)
    small = replace(TINY, sizes=(4, 6), dimensions=(1,), n_sets=1)
    monkeypatch.setattr(artificial, "QUICK", small)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["dpsearch", "reproduce", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return run


def test_all_in_quick(run, tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(mnist, "run", lambda digits, settings, *rest: given.append(settings))
    monkeypatch.setattr(mnist_page, "write", lambda outcome, settings, report, n_jobs: None)
    code, out, err = run("all", "--quick", "--jobs", 1, "--seed", 5, "--out", "docs/reproduction")
    assert (code, out) == (0, "")
    assert "artificial, mnist: docs/reproduction/index.md" in err
    assert "NIPS left out" in err
    assert "archive.ics.uci.edu" in err
    assert "Using the 3,000 digits" in err
    assert given == [replace(mnist.QUICK, seed=5)]
    folder = tmp_path / "docs" / "reproduction"
    check_links(folder)
    index = (folder / "index.md").read_text(encoding="utf-8")
    assert "(artificial.md)" in index
    assert "(nips.md)" not in index
    assert "(seed 5)" in (folder / "artificial.md").read_text(encoding="utf-8")
    assert not list(folder.rglob("*.part"))


def test_what_is_wrong_is_said(run, tmp_path, monkeypatch):
    for arguments, said in (
        (["everything"], "unknown experiment 'everything'"),
        (["nips"], "NIPS documents not found"),
        (["artificial", "--data", "nowhere"], "nowhere: no such folder"),
    ):
        code, out, err = run(*arguments)
        assert (code, out) == (1, "")
        assert err.startswith("dpsearch: ")
        assert len(err.splitlines()) == 1
        assert said in err
    (tmp_path / "taken").write_text("mine")
    assert "is a file" in run("artificial", "--out", "taken")[2]
    monkeypatch.setattr(reproduce.importlib.util, "find_spec", lambda name: None)
    assert "dpsearch[plots]" in run("artificial")[2]
