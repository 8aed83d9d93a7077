"""The small modules: data sets, pair scores, atomic files, the progress bar."""

import io
import os
import stat

import numpy as np
import pytest
from rich.console import Console
from scipy import stats
from sklearn.decomposition import PCA

from dpsearch import datasets, families, priors, search
from dpsearch._files import atomic_write
from dpsearch.errors import DataError, ParameterError
from dpsearch.metrics import pair_scores
from dpsearch.partition import all_partitions
from dpsearch.progress import progress

# -- pair scores -------------------------------------------------------------------------------


def naive_pair_scores(truth, labels):
    """Look at every pair."""
    n = len(truth)
    pairs = [(i, j) for i in range(n) for j in range(i)]
    wanted = {(i, j) for i, j in pairs if truth[i] == truth[j]}
    found = {(i, j) for i, j in pairs if labels[i] == labels[j]}
    precision = len(wanted & found) / len(found) if found else 1.0
    recall = len(wanted & found) / len(wanted) if wanted else 1.0
    both = precision + recall
    return precision, recall, 2.0 * precision * recall / both if both else 0.0


def test_pair_scores_of_all_partitions_of_four_points():
    for truth in all_partitions(4):
        for labels in all_partitions(4):
            want = naive_pair_scores(truth, labels)
            assert pair_scores(truth, labels) == pytest.approx(want, rel=1e-14)


def test_pair_scores_of_random_partitions():
    rng = np.random.default_rng(0)
    for _ in range(20):
        n = int(rng.integers(2, 60))
        truth, labels = rng.integers(rng.integers(1, 9, size=(2, 1)), size=(2, n))
        assert pair_scores(truth, labels) == pytest.approx(naive_pair_scores(truth, labels))
        renamed = rng.permutation(10)[labels]
        assert pair_scores(truth, renamed) == pair_scores(truth, labels)
        swapped = pair_scores(labels, truth)
        assert swapped.precision == pair_scores(truth, labels).recall
        assert pair_scores(truth, truth) == (1.0, 1.0, 1.0)


def test_pair_scores_of_many_points_do_not_overflow():
    n = 200_000
    truth, labels = np.zeros(n, int), np.arange(n) % 2
    scores = pair_scores(truth, labels)
    pairs, found = n * (n - 1) / 2, 2 * (n / 2) * (n / 2 - 1) / 2
    assert scores.precision == 1.0
    assert scores.recall == pytest.approx(found / pairs, rel=1e-12)


# -- data sets ---------------------------------------------------------------------------------


def test_the_digits_are_what_they_say():
    digits = datasets.mnist_digits()
    assert digits.images.shape == (3000, 784)
    assert digits.images.dtype == np.uint8
    assert digits.images.min() == 0
    assert digits.images.max() == 255
    assert set(digits.labels.tolist()) == set(range(10))
    assert len(set(digits.rows.tolist())) == 3000
    assert digits.rows.min() >= 0
    assert digits.rows.max() < 60_000
    assert np.bincount(digits.labels).min() > 200


def test_whitened_is_what_scikit_learn_calls_it():
    X = np.random.default_rng(0).normal(size=(200, 6)) @ np.random.default_rng(1).normal(
        size=(6, 6)
    )
    Z = datasets.whitened(X + 100.0, 4)
    np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-10)
    np.testing.assert_allclose(np.cov(Z.T), np.eye(4), atol=1e-8)
    other = PCA(4, whiten=True, svd_solver="full").fit_transform(X)
    signs = np.sign((Z * other).sum(axis=0))
    np.testing.assert_allclose(Z, other * signs, atol=1e-8)
    assert Z.flags.c_contiguous
    assert np.array_equal(Z, datasets.whitened(X + 100.0, 4))
    # Whole numbers that would overflow their own type.
    small = (np.abs(X) * 20.0).clip(0, 255).astype(np.uint8)
    np.testing.assert_allclose(datasets.whitened(small, 2), datasets.whitened(small * 1.0, 2))


@pytest.mark.parametrize("n_components", [0, -1, 5, 50])
def test_whitening_to_more_than_there_is(n_components):
    X = np.random.default_rng(0).normal(size=(30, 4))
    with pytest.raises(ParameterError, match="n_components"):
        datasets.whitened(X, n_components)
    with pytest.raises(ParameterError, match="n_components"):
        datasets.whitened(X[:, [0, 1, 0, 1]], 3)
    with pytest.raises(ParameterError, match="n_components"):
        datasets.whitened(X[:1], 1)


def test_draws_from_the_process_have_the_right_number_of_clusters():
    """E[K] = Σ α/(α + i), and its variance Σ αi/(α + i)²."""
    n, alpha, draws = 60, 2.5, 600
    rng = np.random.default_rng(0)
    counts = []
    for _ in range(draws):
        labels = datasets.dirichlet_process_draw(n, 1, alpha=alpha, rng=rng).labels
        counts.append(labels.max() + 1)
        # Clusters are numbered by first appearance.
        first = [int(np.flatnonzero(labels == k)[0]) for k in range(counts[-1])]
        assert first == sorted(first)
    i = np.arange(n)
    mean = (alpha / (alpha + i)).sum()
    deviation = np.sqrt((alpha * i / (alpha + i) ** 2).sum())
    assert abs(np.mean(counts) - mean) < 4.0 * deviation / np.sqrt(draws)
    assert np.std(counts) == pytest.approx(deviation, rel=0.15)


def test_draws_from_the_process_follow_its_prior():
    """Every partition of four points as often as `DirichletProcess` says."""
    prior, draws = priors.DirichletProcess(0.8), 3000
    rng = np.random.default_rng(1)
    seen = {}
    for _ in range(draws):
        labels = tuple(datasets.dirichlet_process_draw(4, 1, alpha=0.8, rng=rng).labels.tolist())
        seen[labels] = seen.get(labels, 0) + 1
    partitions = [tuple(labels.tolist()) for labels in all_partitions(4)]
    expected = [draws * np.exp(prior.log_probability(np.bincount(p))) for p in partitions]
    assert sum(expected) == pytest.approx(draws)
    assert set(seen) <= set(partitions)
    assert stats.chisquare([seen.get(p, 0) for p in partitions], expected).pvalue > 1e-3


def test_draws_from_the_process_have_the_right_spread():
    rng = np.random.default_rng(2)
    draws = [
        datasets.dirichlet_process_draw(
            50, 3, alpha=5.0, prior_variance=16.0, noise_variance=0.25, rng=rng
        )
        for _ in range(200)
    ]
    assert all(draw.X.shape == (50, 3) for draw in draws)
    within, centres = [], []
    for X, labels in draws:
        largest = X[labels == np.bincount(labels).argmax()]
        within.append(largest.var(axis=0, ddof=1).mean())
        centres.append(largest.mean(axis=0))
    assert np.mean(within) == pytest.approx(0.25, rel=0.1)
    assert np.var(centres) == pytest.approx(16.0, rel=0.2)
    one, two = (datasets.dirichlet_process_draw(20, rng=3) for _ in range(2))
    assert np.array_equal(one.X, two.X)
    assert np.array_equal(one.labels, two.labels)


def test_planted_clusters():
    draw = datasets.planted_clusters(5000, 2, 4, spread=50.0, rng=0)
    assert draw.X.shape == (5000, 2)
    assert stats.chisquare(np.bincount(draw.labels, minlength=4)).pvalue > 1e-3
    for k in range(4):
        np.testing.assert_allclose(draw.X[draw.labels == k].var(axis=0), 1.0, rtol=0.15)
    assert np.array_equal(draw.X, datasets.planted_clusters(5000, 2, 4, spread=50.0, rng=0).X)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: datasets.dirichlet_process_draw(0), "n_points"),
        (lambda: datasets.dirichlet_process_draw(5, 0), "n_features"),
        (lambda: datasets.dirichlet_process_draw(5, alpha=0.0), "alpha"),
        (lambda: datasets.dirichlet_process_draw(5, alpha=-1.0), "alpha"),
        (lambda: datasets.dirichlet_process_draw(5, prior_variance=-1.0), "prior_variance"),
        (lambda: datasets.dirichlet_process_draw(5, noise_variance=np.nan), "noise_variance"),
        (lambda: datasets.dirichlet_process_draw(5, rng="seed"), "rng"),
        (lambda: datasets.planted_clusters(0, 2, 3), "n_points"),
        (lambda: datasets.planted_clusters(5, 2, 0), "n_clusters"),
    ],
)
def test_bad_arguments_of_draws_are_named(call, named):
    with pytest.raises(ParameterError, match=named):
        call()


# -- files -------------------------------------------------------------------------------------


def test_a_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "file.txt"
    with atomic_write(path, "w") as stream:
        stream.write("größe\n")
        stream.flush()
        assert not path.exists()
        (temporary,) = tmp_path.iterdir()
        assert temporary.name.startswith(".file.txt.")
    assert path.read_bytes() == "größe\n".encode()
    assert list(tmp_path.iterdir()) == [path]
    with atomic_write(str(path)) as stream:
        stream.write(b"new")
        assert path.read_text(encoding="utf-8") == "größe\n"
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_write_that_ends_badly_changes_nothing(error, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail():
        with atomic_write(path) as stream:
            stream.write(b"half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_rename_that_fails_leaves_no_temporary_file(tmp_path, monkeypatch):
    def refuse(source, target):
        raise PermissionError(13, "Permission denied", target)

    def write():
        with atomic_write(tmp_path / "file") as stream:
            stream.write(b"all of it")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError):
        write()
    assert list(tmp_path.iterdir()) == []


def test_files_have_the_usual_permissions(tmp_path):
    with atomic_write(tmp_path / "atomic") as stream:
        stream.write(b"x")
    (tmp_path / "plain").write_bytes(b"x")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("atomic", "plain")]
    assert modes[0] == modes[1]


def test_folders_that_are_not_there_or_in_the_way(tmp_path):
    def write(path):
        with atomic_write(path) as stream:
            stream.write(b"x")

    with pytest.raises(FileNotFoundError, match="no such folder.*nowhere'"):
        write(tmp_path / "nowhere" / "file")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder.*folder'"):
        write(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


# -- progress ----------------------------------------------------------------------------------


def test_the_progress_bar_follows_a_search():
    X = np.random.default_rng(0).normal(size=(9000, 2))
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120)
    with progress(console, "search") as callback:
        result = search(
            X, families.Gaussian(0.0, 4.0, 1.0), priors.DirichletProcess(1.0), callback=callback
        )
    text = shown.getvalue()
    assert "9,000/9,000" in text
    assert f"{result.n_clusters} clusters, log joint" in text


def test_the_progress_bar_goes_when_a_search_fails():
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120)

    def fail():
        with progress(console, "search") as callback:
            assert callback is not None
            raise DataError("X is bad")

    with pytest.raises(DataError, match="X is bad"):
        fail()
    assert "\x1b[?25h" in shown.getvalue()  # the cursor is back


def test_off_a_terminal_nothing_is_shown():
    shown = io.StringIO()
    with progress(Console(file=shown), "search") as callback:
        assert callback is None
    assert shown.getvalue() == ""
