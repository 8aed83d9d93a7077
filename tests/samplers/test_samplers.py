"""What samplers return, how they start, stop and continue, and what they refuse."""

from __future__ import annotations

import itertools
import json
import threading
import warnings
from dataclasses import replace

import joblib
import numpy as np
import pytest
import scipy.sparse as sp

import dpsearch
from dpsearch import Draws, _archive, families, gibbs, log_joint, metropolis, priors, split_merge
from dpsearch.errors import (
    CheckpointWarning,
    DataError,
    DPSearchError,
    ModelFileError,
    ParameterError,
)
from dpsearch.mixture import Mixture
from dpsearch.problem import Problem
from dpsearch.samplers import GibbsSweep, Move, SplitMerge, sample
from dpsearch.samplers.chain import Chain
from dpsearch.samplers.options import starting_labels
from dpsearch.samplers.summaries import expected_loss, point_estimate
from enumeration import partitions
from models import DRAWS, PRODUCT_PRIORS

FAMILY = families.Gaussian(0.0, 16.0, 1.0)
PRIOR = priors.DirichletProcess(1.0)
GAMMA = priors.DirichletProcess(priors.Gamma(1.0, 1.0))


def data(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return np.repeat([[0.0, 0.0], [5.0, 5.0], [-5.0, 5.0]], n // 3, axis=0) + rng.normal(
        size=(n, 2)
    )


@pytest.fixture(scope="module")
def draws():
    return gibbs(data(), FAMILY, GAMMA, draws=300, burn_in=100, thin=2, chains=2, rng=0)


# -- what draws hold -------------------------------------------------------------------------


def test_shapes_and_values(draws):
    assert draws.labels.shape == (200, 60)
    assert draws.labels.dtype == np.uint8
    assert len(draws) == 200
    assert draws.trace.log_joint.shape == (2, 300)
    np.testing.assert_array_equal(np.bincount(draws.chain), [100, 100])
    for d in (0, 57, 199):
        want = log_joint(data(), draws.labels[d], FAMILY, GAMMA)
        assert draws.log_joint[d] == pytest.approx(want, abs=1e-8)
        assert draws.n_clusters[d] == draws.labels[d].max() + 1
    # The draws kept are every second sweep after burn-in.
    np.testing.assert_array_equal(draws.by_chain("log_joint"), draws.trace.log_joint[:, 101::2])
    assert (draws.alpha > 0).all()
    assert np.ptp(draws.alpha) > 0
    assert "2 chains of gibbs" in repr(draws)


@pytest.mark.parametrize("name", DRAWS)
def test_log_joints_are_those_of_the_partitions(name):
    family, X = DRAWS[name](np.random.default_rng(2), 30)
    for prior in PRODUCT_PRIORS:
        problem = Problem(X, family, prior)
        result = split_merge(X, family, prior, draws=30, moves=3, rng=0)
        for labels, value in zip(result.labels, result.log_joint, strict=True):
            assert value == pytest.approx(problem.log_joint(labels.astype(np.int64)), abs=1e-7)


def test_many_clusters_make_room_as_they_go():
    X = np.random.default_rng(0).normal(size=(400, 2)) * 1000.0
    family = families.Gaussian(0.0, 1e6, 1.0)
    for sampler in (gibbs, split_merge):
        result = sampler(X, family, PRIOR, draws=6, start="one", rng=0)
        assert result.n_clusters[-1] > 300
        assert result.labels.dtype == np.uint16
        want = log_joint(X, result.labels[-1], family, PRIOR)
        assert result.log_joint[-1] == pytest.approx(want, rel=1e-10)


def test_coclustering(draws):
    matrix = draws.coclustering()
    naive = (draws.labels[:, :, None] == draws.labels[:, None, :]).mean(axis=0)
    np.testing.assert_allclose(matrix, naive)
    np.testing.assert_allclose(draws.coclustering([3, -1], [0]), naive[[3, -1]][:, [0]])
    blocks = list(draws.coclustering_blocks(25))
    assert [len(rows) for rows, _ in blocks] == [25, 25, 10]
    np.testing.assert_allclose(np.vstack([part for _, part in blocks]), naive)
    with pytest.raises(ParameterError, match="rows must be row numbers between 0 and 59"):
        draws.coclustering([60])


def _naive_loss(a, b, loss):
    """Return Binder's loss by pairs of items, or the variation of information by entropies."""
    n = len(a)
    if loss == "binder":
        differ = [(a[i] == a[j]) != (b[i] == b[j]) for i, j in itertools.combinations(range(n), 2)]
        return np.mean(differ)
    joint = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(joint, (a, b), 1.0 / n)

    def entropy(p):
        p = p[p > 0]
        return -(p * np.log2(p)).sum()

    return 2 * entropy(joint.ravel()) - entropy(joint.sum(axis=0)) - entropy(joint.sum(axis=1))


@pytest.mark.parametrize("loss", ["binder", "vi"])
def test_point_estimates_are_the_best_of_all_partitions(loss):
    """Expected losses are compared with their definition, estimates with all 203 partitions."""
    everything, _ = partitions(6)
    rng = np.random.default_rng(0)
    best = 0
    for _ in range(40):
        weights = rng.dirichlet(np.full(len(everything), 0.02))
        some = everything[rng.choice(len(everything), size=60, p=weights)]
        values = [np.mean([_naive_loss(c, d, loss) for d in some[:10]]) for c in everything[::40]]
        found = [expected_loss(c, some[:10], loss) for c in everything[::40]]
        np.testing.assert_allclose(found, values, atol=1e-12)
        losses = [expected_loss(c, some, loss) for c in everything]
        estimate = expected_loss(point_estimate(some, loss, 500), some, loss)
        assert estimate <= min(losses[i] for i in np.flatnonzero(weights > 0.05)) + 1e-12
        best += estimate <= min(losses) + 1e-12
    assert best >= 38  # a descent, no proof: it may stop short now and then


def test_point_estimate_of_draws(draws):
    for loss in ("vi", "binder"):
        found = draws.point_estimate(loss)
        assert found.n_clusters == 3
        assert found.log_joint == pytest.approx(log_joint(data(), found.labels, FAMILY, GAMMA))
        assert draws.expected_loss(found.labels, loss) <= draws.expected_loss(
            draws.best().labels, loss
        )
    with pytest.raises(ParameterError, match="unknown loss 'squared'"):
        draws.point_estimate("squared")


def test_the_predictive_density_is_the_mean_over_draws(draws):
    X = np.array([[0.0, 0.0], [40.0, 0.0]])
    problem = Problem(data(), FAMILY, GAMMA)
    densities = []
    for labels in draws.labels[:3]:
        mixture = Mixture.of(problem.model, problem.items, labels.astype(np.int64), GAMMA)
        inside, outside = mixture.log_joint_probabilities(X)
        densities.append(np.exp(inside).sum(axis=1) + np.exp(outside))
    few = replace(draws, labels=draws.labels[:3])
    np.testing.assert_allclose(np.exp(few.log_predictive(X)), np.mean(densities, axis=0))


def test_the_predictive_density_integrates_to_one():
    X = data(30)[:, :1]
    result = gibbs(X, FAMILY, GAMMA, draws=20, rng=0)
    grid = np.linspace(-60.0, 60.0, 6001)
    total = np.exp(result.log_predictive(grid[:, None])).sum() * (grid[1] - grid[0])
    assert total == pytest.approx(1.0, abs=1e-6)


def test_k_posterior_and_diagnostics(draws):
    posterior = draws.k_posterior()
    assert posterior.sum() == pytest.approx(1.0)
    assert np.argmax(posterior) == 3
    about = draws.diagnostics()
    assert set(about) == {"log_joint", "n_clusters", "alpha"}
    long = split_merge(data(), FAMILY, GAMMA, draws=2000, chains=4, rng=0).diagnostics()
    assert long["log_joint"]["rhat"] < 1.02
    assert 100 < long["log_joint"]["ess"] < 9000
    # Chains that stay apart are told, and a value that never changes has no R-hat.
    apart = replace(draws, log_joint=draws.log_joint + 50.0 * draws.chain)
    assert apart.diagnostics()["log_joint"]["rhat"] > 1.5
    still = replace(draws, n_clusters=np.full(200, 3))
    assert np.isnan(still.diagnostics()["n_clusters"]["rhat"])
    with pytest.raises(ParameterError, match="no 'labels' with a number"):
        draws.by_chain("labels")


def test_arviz(draws):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ArviZ announces its next version
        pytest.importorskip("arviz")
        inference = draws.to_arviz()
    posterior = inference["posterior"]
    assert posterior["n_clusters"].shape == (2, 100)
    assert posterior["labels"].shape == (2, 100, 60)
    np.testing.assert_array_equal(posterior["alpha"].values, draws.by_chain("alpha"))


def test_trace_plot(draws, tmp_path):
    pytest.importorskip("matplotlib")
    from dpsearch.plots import save_figure

    top, bottom = draws.plot_trace()
    assert len(top.lines) == 2
    assert bottom.get_xlabel() == "sweep (grey: burn-in)"
    np.testing.assert_array_equal(top.lines[1].get_ydata(), draws.trace.log_joint[1])
    np.testing.assert_array_equal(bottom.lines[0].get_ydata(), draws.trace.n_clusters[0])
    save_figure(top.figure, tmp_path / "trace.png")
    assert (tmp_path / "trace.png").read_bytes()[1:4] == b"PNG"
    with pytest.raises(ParameterError, match="must end with one of"):
        save_figure(top.figure, tmp_path / "trace.xyz")


def test_draws_can_be_saved_and_loaded(draws, tmp_path):
    path = tmp_path / "draws.npz"
    draws.save(path)
    again = Draws.load(path)
    for name in ("labels", "log_joint", "n_clusters", "alpha", "chain"):
        np.testing.assert_array_equal(getattr(again, name), getattr(draws, name))
    np.testing.assert_array_equal(again.trace.log_joint, draws.trace.log_joint)
    assert again.burn_in == 100
    with pytest.raises(DataError, match="do not have their data"):
        again.log_predictive(data())
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ModelFileError, match="damaged"):
        Draws.load(path)


# -- starts ----------------------------------------------------------------------------------


def test_starts():
    problem = Problem(data(), FAMILY, PRIOR)
    rng = np.random.default_rng(0)
    assert len(np.unique(starting_labels(problem, "one", 0, rng))) == 1
    assert len(np.unique(starting_labels(problem, "all", 0, rng))) == 60
    assert 2 <= len(np.unique(starting_labels(problem, "log", 0, rng))) <= 4
    found = dpsearch.search(data(), FAMILY, PRIOR, beam_size=1)
    np.testing.assert_array_equal(starting_labels(problem, "search", 0, rng), found.labels)
    refined = starting_labels(problem, "refined", 0, rng)
    assert problem.log_joint(refined) >= found.log_joint
    given = starting_labels(problem, found, 3, rng)
    assert problem.log_joint(given) == pytest.approx(found.log_joint)
    with pytest.raises(ParameterError, match="unknown start 'two'"):
        starting_labels(problem, "two", 0, rng)


# -- seeds, threads, checkpoints -------------------------------------------------------------

OPTIONS = [
    {},
    {"alpha": "sample", "scan": "shuffled"},
    {"hyperparameters": {"noise_variance": 0.5}},
]


def same(a, b):
    for name in ("labels", "log_joint", "n_clusters", "alpha"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert a.hyperparameters.keys() == b.hyperparameters.keys()
    for name, values in a.hyperparameters.items():
        np.testing.assert_array_equal(values, b.hyperparameters[name])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_same_seed_gives_the_same_draws_on_any_number_of_threads(options):
    how = {"draws": 40, "chains": 3, **options}
    first = split_merge(data(), FAMILY, GAMMA, rng=7, n_jobs=1, **how)
    same(first, split_merge(data(), FAMILY, GAMMA, rng=7, n_jobs=3, **how))
    other = split_merge(data(), FAMILY, GAMMA, rng=8, n_jobs=1, **how)
    assert (first.log_joint != other.log_joint).any()


class Killed(Exception):
    pass


@pytest.mark.parametrize("error", [Killed, KeyboardInterrupt])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_run_that_was_killed_goes_on_bit_for_bit(tmp_path, monkeypatch, options, error):
    monkeypatch.setattr(dpsearch.samplers.chain, "_LEG_NUMBERS", 10_000)  # short legs
    how = {"draws": 60, "burn_in": 10, "chains": 2, "rng": 3, **options}
    whole = split_merge(data(), FAMILY, GAMMA, **how)
    path = tmp_path / "run.checkpoint"

    def stop(progress):
        if progress.done >= 50:
            raise error

    with pytest.raises(error):
        split_merge(
            data(), FAMILY, GAMMA, checkpoint=path, checkpoint_seconds=0, callback=stop, **how
        )
    assert path.exists()
    same(whole, split_merge(data(), FAMILY, GAMMA, checkpoint=path, resume=True, **how))


@pytest.mark.parametrize("run", [gibbs, metropolis, split_merge])
def test_an_interrupted_run_returns_its_draws(monkeypatch, run):
    monkeypatch.setattr(dpsearch.samplers.chain, "_LEG_NUMBERS", 10_000)  # short legs
    how = {"draws": 60, "burn_in": 10, "thin": 3, "chains": 2, "rng": 3}

    def stopped_at(sweeps):
        def stop(progress):
            if progress.done >= sweeps:
                raise KeyboardInterrupt

        return run(data(), FAMILY, GAMMA, callback=stop, **how)

    whole, part = run(data(), FAMILY, GAMMA, **how), stopped_at(50)
    done = part.trace.log_joint.shape[1]
    assert 20 <= done < 60
    np.testing.assert_array_equal(part.trace.log_joint, whole.trace.log_joint[:, :done])
    for chain in range(2):
        mine, all_of_it = part.labels[part.chain == chain], whole.labels[whole.chain == chain]
        assert len(mine) == (done - 10) // 3
        np.testing.assert_array_equal(mine, all_of_it[: len(mine)])
    assert part.best().log_joint <= whole.best().log_joint
    with pytest.raises(KeyboardInterrupt):
        stopped_at(2)  # before any draw is kept


def test_a_disk_that_is_full_at_a_checkpoint_stops_no_chain(tmp_path, monkeypatch):
    monkeypatch.setattr(dpsearch.samplers.chain, "_LEG_NUMBERS", 10_000)  # short legs
    how = {"draws": 200, "chains": 2, "rng": 3}
    whole = gibbs(data(), FAMILY, PRIOR, **how)
    path, real, calls = tmp_path / "run.checkpoint", _archive.np.savez, []

    def full(stream, **arrays):
        calls.append(1)
        if len(calls) > 1:
            stream.write(b"half")
            raise OSError(28, "No space left on device")
        real(stream, **arrays)

    monkeypatch.setattr(_archive.np, "savez", full)
    options = {"checkpoint": path, "checkpoint_seconds": 0}
    with pytest.warns(CheckpointWarning, match="run.checkpoint: .*No space.*the last one is kept"):
        same(whole, gibbs(data(), FAMILY, PRIOR, **options, **how))
    assert len(calls) > 1
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.setattr(_archive.np, "savez", real)
    same(whole, gibbs(data(), FAMILY, PRIOR, checkpoint=path, resume=True, **how))


PARTS = families.Product([(FAMILY, [0]), (FAMILY, [1])])


@pytest.mark.slow
@pytest.mark.parametrize(("family", "options"), [(FAMILY, OPTIONS[2]), (PARTS, {})], ids=str)
def test_chains_in_other_processes_are_the_same(family, options, tmp_path):
    how = {"draws": 30, "chains": 2, "rng": 0, **options}
    path = tmp_path / "run.checkpoint"
    told = []
    here = gibbs(data(), family, GAMMA, **how)
    with joblib.parallel_config("loky", n_jobs=2, max_nbytes=100):  # arrays come read-only
        there = gibbs(data(), family, GAMMA, checkpoint=path, callback=told.append, **how)
    same(here, there)
    assert [point.done for point in told] == [30, 60]
    same(here, gibbs(data(), family, GAMMA, checkpoint=path, resume=True, **how))


@pytest.mark.slow
def test_draws_are_pickled_with_their_data_and_work_in_another_process(draws):
    with joblib.parallel_config("loky", n_jobs=2, max_nbytes=100):
        [there] = joblib.Parallel()([joblib.delayed(draws.log_predictive)(data(seed=1))])
    np.testing.assert_array_equal(there, draws.log_predictive(data(seed=1)))


def test_a_finished_run_can_be_made_longer(tmp_path):
    path = tmp_path / "run.checkpoint"
    first = gibbs(data(), FAMILY, PRIOR, draws=20, rng=0, checkpoint=path)
    longer = gibbs(data(), FAMILY, PRIOR, draws=50, rng=0, checkpoint=path, resume=True)
    np.testing.assert_array_equal(longer.labels[:20], first.labels)
    assert len(longer) == 50
    with pytest.raises(ModelFileError, match="has 50 draws already, more than 30"):
        gibbs(data(), FAMILY, PRIOR, draws=30, rng=0, checkpoint=path, resume=True)


def test_a_checkpoint_of_something_else_is_refused_and_kept(tmp_path, monkeypatch):
    path = tmp_path / "run.checkpoint"
    how = {"draws": 20, "rng": 0, "checkpoint": path}
    gibbs(data(), FAMILY, PRIOR, **how)
    before = path.read_bytes()
    with pytest.raises(ParameterError, match="exists: resume=True"):
        gibbs(data(), FAMILY, PRIOR, **how)
    with pytest.raises(ModelFileError, match="belongs to other data"):
        gibbs(data(seed=1), FAMILY, PRIOR, resume=True, **how)
    with pytest.raises(ModelFileError, match="another prior"):
        gibbs(data(), FAMILY, GAMMA, resume=True, **how)
    with pytest.raises(ModelFileError, match="another family"):
        gibbs(data(), families.Gaussian(0.0, 9.0, 1.0), PRIOR, resume=True, **how)
    with pytest.raises(ModelFileError, match=r"another seed \(0\) than this run \(1\)"):
        gibbs(data(), FAMILY, PRIOR, resume=True, **how | {"rng": 1})
    with pytest.raises(ModelFileError, match="another sampler"):
        split_merge(data(), FAMILY, PRIOR, resume=True, **how)
    with pytest.raises(ModelFileError, match=r"another start \('search'\) than this run \('all'\)"):
        gibbs(data(), FAMILY, PRIOR, resume=True, start="all", **how)
    with pytest.raises(ModelFileError, match=r"another thin \(1\) than this run \(2\)"):
        gibbs(data(), FAMILY, PRIOR, resume=True, thin=2, **how)
    monkeypatch.setattr(dpsearch._archive, "__version__", "0.0.1")
    with pytest.raises(ModelFileError, match="another version of dpsearch"):
        gibbs(data(), FAMILY, PRIOR, resume=True, **how)
    monkeypatch.undo()
    assert path.read_bytes() == before
    path.write_bytes(before[: len(before) // 2])
    with pytest.raises(ModelFileError, match="damaged"):
        gibbs(data(), FAMILY, PRIOR, resume=True, **how)
    assert len(path.read_bytes()) == len(before) // 2


def test_any_damaged_checkpoint_is_an_error(tmp_path):
    path = tmp_path / "run.checkpoint"
    how = {"draws": 20, "rng": 0, "checkpoint": path}
    gibbs(data(), FAMILY, PRIOR, **how)
    with np.load(path) as entries:
        arrays = dict(entries)
    about = json.loads(bytes(arrays["about"]))

    def write(change_about=None, **changes):
        text = json.loads(json.dumps(about))
        if change_about is not None:
            change_about(text)
        new = {**arrays, "about": np.frombuffer(json.dumps(text).encode(), np.uint8), **changes}
        with path.open("wb") as stream:
            np.savez(stream, **new)

    for change in (
        {"0_now": np.zeros(7, np.int64)},
        {"0_log_joint": np.zeros(3)},
        {"0_labels": np.zeros((3, 60), np.uint8)},
        {"0_alpha": np.zeros(19)},
        {"change_about": lambda text: text["chains"].append(text["chains"][0])},
        {"change_about": lambda text: text["chains"][0].pop("random")},
        {"change_about": lambda text: text["chains"][0].update(n_sweeps=3)},
        {"change_about": lambda text: text.update(version=99)},
        {"change_about": lambda text: text.pop("chains")},
    ):
        write(**change)
        with pytest.raises(ModelFileError, match="run.checkpoint"):
            gibbs(data(), FAMILY, PRIOR, resume=True, **how)


def test_callback_reports_progress_from_the_callers_thread():
    seen = []
    threads = set()

    def callback(progress):
        seen.append(progress)
        threads.add(threading.get_ident())

    gibbs(data(), FAMILY, PRIOR, draws=1200, chains=2, rng=0, callback=callback)
    assert seen[-1].done == seen[-1].total == 2400
    assert len(seen) > 1
    assert threads == {threading.get_ident()}


# -- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": 0}, "draws must be an integer ≥ 1, got 0"),
        ({"draws": 2.5}, "draws must be an integer"),
        ({"draws": True}, "draws must be an integer"),
        ({"draws": 10, "burn_in": 10}, "burn_in 10 and thin 1 leave nothing of 10 draws"),
        ({"draws": 10, "burn_in": 20}, "burn_in 20"),
        ({"draws": 10, "burn_in": -1}, "burn_in must be an integer ≥ 0"),
        ({"draws": 10, "thin": 11}, "thin 11"),
        ({"draws": 10, "thin": 0}, "thin must be an integer ≥ 1"),
        ({"draws": 10, "chains": 0}, "chains must be an integer ≥ 1"),
        ({"draws": 10, "start": [0, 1]}, "labels have shape \\(2,\\), but there are 60 rows"),
        ({"draws": 10, "start": "nowhere"}, "unknown start 'nowhere'"),
        ({"draws": 10, "scan": "sideways"}, "unknown scan 'sideways'"),
        ({"draws": 10, "alpha": "sample"}, "needs a prior on α"),
        ({"draws": 10, "alpha": 3.0}, "alpha must be one of"),
        ({"draws": 10, "rng": "x"}, "rng must be"),
        ({"draws": 10, "n_jobs": 0}, "n_jobs must be"),
        ({"draws": 10, "hyperparameters": {"colour": 1.0}}, "has no hyperparameter 'colour'"),
        ({"draws": 10, "hyperparameters": {"prior_mean": 1.0}}, "prior_mean .* cannot be sampled"),
        ({"draws": 10, "hyperparameters": {"noise_variance": 0.0}}, "spread of noise_variance"),
        ({"draws": 10, "hyperparameters": ["noise_variance"]}, "must map names"),
        ({"draws": 10, "scan": ["random"]}, "unknown scan"),
        ({"draws": 10, "checkpoint": "no/such/folder/x"}, "no such folder"),
        ({"draws": 10, "checkpoint": "."}, "is a folder"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(DPSearchError, match=message):
        gibbs(data(), FAMILY, PRIOR, **options)


def test_numpy_numbers_and_names_are_taken(tmp_path):
    result = split_merge(
        data(), FAMILY, PRIOR, draws=np.int64(12), burn_in=np.int32(2), moves=np.int64(2),
        start=np.array(["a", "b"] * 30, dtype=object), rng=np.random.default_rng(0),
        checkpoint=tmp_path / "c",
    )  # fmt: skip
    assert len(result) == 10


def test_a_checkpoint_of_wider_data_is_refused(tmp_path):
    """The same stored values in a matrix of more columns are different data."""
    counts = sp.csr_matrix(np.random.default_rng(0).poisson(1.0, size=(30, 5)))
    wider = sp.csr_matrix((counts.data, counts.indices, counts.indptr), shape=(30, 9))
    how = {"draws": 5, "rng": 0, "checkpoint": tmp_path / "c"}
    gibbs(counts, families.Multinomial(0.5), PRIOR, **how)
    with pytest.raises(ModelFileError, match="belongs to other data"):
        gibbs(wider, families.Multinomial(0.5), PRIOR, resume=True, **how)


def test_bad_input_of_split_merge():
    for moves in (0, np.int64(0), True, 1.5):
        with pytest.raises(ParameterError, match="moves must be an integer"):
            split_merge(data(), FAMILY, PRIOR, draws=10, moves=moves)
    for variant in ([1], True, 1.0, "4"):
        with pytest.raises(ParameterError, match="unknown variant"):
            split_merge(data(), FAMILY, PRIOR, draws=10, variant=variant)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        split_merge(data(), FAMILY, PRIOR, draws=10, colour=1)
    with pytest.raises(ParameterError, match="unknown variant 4: known are 1, 2, 3, 'sams'"):
        split_merge(data(), FAMILY, PRIOR, draws=10, variant=4)
    with pytest.raises(ParameterError, match="scans must be an integer"):
        split_merge(data(), FAMILY, PRIOR, draws=10, scans=-1)
    with pytest.raises(DPSearchError, match="product form"):
        gibbs(data(), FAMILY, priors.AntoniakCounts(1.0), draws=10)


def test_a_hyperparameter_without_other_values_is_refused():
    X = np.random.default_rng(0).integers(0, 4, size=(20, 2))
    family = families.Categorical(1.0, n_levels=(4, 4))
    with pytest.raises(ParameterError, match="n_levels .* cannot take other values"):
        gibbs(X, family, PRIOR, draws=5, hyperparameters={"n_levels": 1.0})
    result = gibbs(X, family, PRIOR, draws=5, hyperparameters={"concentration": 1.0}, rng=0)
    assert np.ptp(result.hyperparameters["concentration"]) > 0.0


def test_a_small_hyperparameter_has_diagnostics():
    draws = gibbs(
        data() * 1e-4, families.Gaussian(0.0, 1e-7, 1e-8), PRIOR, draws=60, rng=0,
        hyperparameters={"noise_variance": 1.0}, chains=2,
    )  # fmt: skip
    assert np.isfinite(draws.diagnostics()["noise_variance"]["rhat"])


def test_most_draws_must_be_a_number_above_zero(draws):
    for call in (draws.point_estimate, lambda **o: draws.log_predictive(data(), **o)):
        with pytest.raises(ParameterError, match="most_draws must be an integer ≥ 1"):
            call(most_draws=0)
    with pytest.raises(ParameterError, match="size must be an integer ≥ 1"):
        draws.coclustering_blocks(2.5)


def test_legs_are_short_when_clusters_are_many():
    """Ctrl-C, progress reports and checkpoints take effect between legs."""
    problem = Problem(np.random.default_rng(0).normal(size=(4000, 3)), FAMILY, PRIOR)
    few = Chain(problem, np.zeros(4000), [GibbsSweep()], np.random.default_rng(0))
    many = Chain(problem, np.arange(4000), [GibbsSweep()], np.random.default_rng(0))
    few.n_sweeps = many.n_sweeps = 1000
    assert few.leg > 100
    assert many.leg < 30


@pytest.mark.parametrize("far", [1e8, 1e13])
def test_a_far_row_leaves_nothing_in_the_statistics_of_a_chain(far):
    """The log joint was off by 200 nats for up to 1,000 sweeps, and so were the draws."""
    X = np.random.default_rng(0).normal(size=(40, 2)) + 6.0 * (np.arange(40) % 2)[:, None]
    X[7, 1] = far
    problem = Problem(X, families.DiagonalGaussian(0.0, 0.01, 3.0, 2.0), PRIOR)
    draws = gibbs(problem, draws=20, rng=0, start="one")
    want = [problem.log_joint(labels.astype(np.int64)) for labels in draws.labels]
    np.testing.assert_allclose(draws.log_joint, want, atol=1e-5)


class Reversal:
    """A step in Python that reverses the labels, which leaves the partition the same."""

    names = ("reversals",)

    def __init__(self):
        self.state = np.zeros(1)

    @property
    def values(self):
        return self.state.copy()

    def step(self, problem, labels, rng):
        self.state += 1
        return problem, labels.max() - labels


class ReversalMove(Move):
    def begin(self, problem):
        return Reversal()

    def described(self):
        return {"move": "reversal"}


def test_a_users_own_move_is_made_recorded_and_resumed(tmp_path):
    problem = Problem(data(), FAMILY, GAMMA)
    moves = [SplitMerge(), ReversalMove(), GibbsSweep()]
    how = {"burn_in": 4, "chains": 2, "rng": 0}
    result = sample(problem, moves, name="mine", draws=20, **how)
    assert result.sampler == "mine"
    expected = np.tile(np.arange(5, 21), 2)
    np.testing.assert_array_equal(result.hyperparameters["reversals"], expected)
    path = tmp_path / "c"
    sample(problem, moves, name="mine", draws=9, checkpoint=path, **how)
    same(result, sample(problem, moves, name="mine", draws=20, checkpoint=path, resume=True, **how))


def test_samplers_take_a_problem():
    problem = Problem(data(), FAMILY, GAMMA)
    for sampler in (gibbs, split_merge):
        same(
            sampler(problem, draws=10, rng=0),
            sampler(data(), FAMILY, GAMMA, draws=10, rng=0),
        )
    with pytest.raises(ParameterError, match="prior is missing"):
        gibbs(data(), FAMILY, draws=10)


def test_one_point():
    for sampler in (gibbs, split_merge):
        result = sampler([[1.0]], FAMILY, PRIOR, draws=5, rng=0)
        assert (result.labels == 0).all()


# -- the concentration -----------------------------------------------------------------------


def test_alpha_profile():
    X, labels = data(), np.repeat([0, 1, 2], 20)
    alphas = [0.1, 0.5, 1.0, 4.0]
    profile = dpsearch.alpha_profile(X, labels, FAMILY, alphas)
    want = [log_joint(X, labels, FAMILY, priors.DirichletProcess(a)) for a in alphas]
    np.testing.assert_allclose(profile.log_joint, want, rtol=1e-12)
    assert profile.best == 0.5
    assert 0.4 < dpsearch.alpha_profile(X, labels, FAMILY).best < 0.7
    with pytest.raises(ParameterError, match="alphas must be a finite number above 0"):
        dpsearch.alpha_profile(X, labels, FAMILY, [1.0, -1.0])
    with pytest.raises(ParameterError, match="at least one value"):
        dpsearch.alpha_profile(X, labels, FAMILY, [])


def test_select_alpha():
    choice = dpsearch.select_alpha(data(), FAMILY, [1e-6, 0.5, 50.0], runs=2, rng=0)
    assert choice.alpha == 0.5
    assert choice.log_joints.shape == (3, 2)
    assert choice.clustering.log_joint == pytest.approx(choice.log_joints[1].max())
    assert choice.clustering.n_clusters == 3
    weighed = dpsearch.select_alpha(
        data(), FAMILY, [1e-6, 0.5, 50.0], runs=1, prior=priors.Gamma(1.0, 1e5), rng=0
    )
    assert weighed.alpha == 1e-6
    for runs in (0, True):
        with pytest.raises(ParameterError, match="runs must be"):
            dpsearch.select_alpha(data(), FAMILY, runs=runs)


@pytest.mark.parametrize("algorithm", [5, 7])
def test_metropolis_counts_its_proposals_and_refuses_none(algorithm):
    options = {"proposals": 4, "scan": "shuffled", "algorithm": algorithm}
    draws = metropolis(data(), FAMILY, PRIOR, draws=20, rng=0, **options)
    assert draws.sampler == "metropolis"
    assert (draws.trace.accepted <= 4 * draws.labels.shape[1]).all()
    assert draws.trace.accepted.sum() > 0
    for labels, value in zip(draws.labels, draws.log_joint, strict=True):
        assert log_joint(data(), labels, FAMILY, PRIOR) == pytest.approx(value, abs=1e-8)
    with pytest.raises(ParameterError, match="proposals must be an integer ≥ 1"):
        metropolis(data(), FAMILY, PRIOR, draws=10, proposals=0)
    with pytest.raises(ParameterError, match="algorithm must be 5 or 7, got 8"):
        metropolis(data(), FAMILY, PRIOR, draws=10, algorithm=8)
    with pytest.raises(DPSearchError, match="product form"):
        metropolis(data(), FAMILY, priors.AntoniakCounts(1.0), draws=10)


def test_options_that_are_not_there_are_named():
    problem = Problem(data(), FAMILY, PRIOR)
    with pytest.raises(TypeError, match="gibbs got .* argument 'burnin': it takes alpha, .* thin"):
        gibbs(problem, draws=10, burnin=5)
    with pytest.raises(TypeError, match="gibbs got an unexpected keyword argument 'moves'"):
        gibbs(problem, draws=10, moves=3)
    with pytest.raises(ParameterError, match="resume needs a checkpoint"):
        gibbs(problem, draws=10, resume=True)
    with pytest.raises(DataError, match=r"X is the path 'y.csv'.*: read the file first"):
        gibbs("y.csv", FAMILY, PRIOR, draws=10)
