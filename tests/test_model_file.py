"""Model files contain the whole model, and no damaged or hostile file does harm."""

import io
import json
import pickle
import tracemalloc
import zipfile
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from dpsearch import DPMixture, families, load, model_file, priors
from dpsearch.errors import ModelFileError
from models import DRAWS

PRIORS = [
    priors.DirichletProcess(0.5),
    priors.DirichletProcess(priors.Gamma(2.0, 3.0)),
    priors.PitmanYor(0.7, 0.4),
    priors.AntoniakCounts(1.5, early_stop=False),
]


@dataclass(frozen=True)
class Mine(families.Bernoulli):
    """A family that dpsearch does not know."""

    name: ClassVar[str] = "mine"


def saved_entries(model, path):
    """Write a model file; return its entries."""
    model.save(path)
    with np.load(path) as entries:
        return {key: entries[key] for key in entries.files}


def same_model(loaded, model, X):
    assert np.array_equal(loaded.labels_, model.labels_)
    assert loaded.log_joint_ == model.log_joint_
    assert loaded.n_clusters_ == model.n_clusters_
    assert loaded.n_features_in_ == model.n_features_in_
    assert loaded.alpha_ == pytest.approx(model.alpha_, rel=1e-12)
    assert loaded.family_.to_dict() == model.family_.to_dict()
    assert np.array_equal(loaded.clustering_.labels, model.component_labels_)
    assert np.array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_allclose(loaded.predict_proba(X), model.predict_proba(X), atol=1e-10)
    np.testing.assert_allclose(loaded.score_samples(X), model.score_samples(X), atol=1e-10)


@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize("name", DRAWS)
def test_every_family_comes_back(name, by_name, tmp_path):
    family, X = DRAWS[name](np.random.default_rng(3), 30)
    model = DPMixture(family=name if by_name else family, random_state=4).fit(X)
    model.save(tmp_path / "model.npz")
    loaded = load(tmp_path / "model.npz")
    assert isinstance(loaded, DPMixture)
    same_model(loaded, model, X)
    drawn, labels = loaded.sample(10)
    want, want_labels = model.sample(10)
    np.testing.assert_allclose(drawn, want, rtol=1e-10)
    assert np.array_equal(labels, want_labels)
    if by_name:
        assert loaded.get_params() == model.get_params()
    else:
        assert loaded.family.to_dict() == model.family_.to_dict()
    # What was loaded can be saved, and fitted again.
    loaded.save(tmp_path / "again.npz")
    same_model(load(tmp_path / "again.npz"), model, X)
    assert np.isfinite(loaded.fit(X).log_joint_)


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
def test_every_prior_comes_back(prior, tmp_path):
    X = np.random.default_rng(0).normal(size=(25, 2)) * 4.0
    model = DPMixture(family="gaussian", alpha=prior, beam_size=4).fit(X)
    model.save(tmp_path / "model.npz")
    loaded = load(tmp_path / "model.npz")
    assert loaded.alpha == prior
    assert loaded.beam_size == 4
    same_model(loaded, model, X)


def test_feature_names_come_back(tmp_path):
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 2)), columns=["ä", "b,c"])
    model = DPMixture("gaussian").fit(table)
    model.save(tmp_path / "model.npz")
    loaded = load(tmp_path / "model.npz")
    assert list(loaded.feature_names_in_) == ["ä", "b,c"]
    same_model(loaded, model, table)
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(table.rename(columns={"ä": "a"}))
    DPMixture("gaussian").fit(table.to_numpy()).save(tmp_path / "nameless.npz")
    assert not hasattr(load(tmp_path / "nameless.npz"), "feature_names_in_")


def test_your_own_family_comes_back_once_it_is_registered(tmp_path):
    X = (np.random.default_rng(0).random((20, 3)) < 0.4).astype(float)
    model = DPMixture(family=Mine(2.0, 1.0)).fit(X)
    model.save(tmp_path / "model.npz")
    with pytest.raises(ModelFileError, match="model.npz.*no family 'mine'.*gaussian"):
        load(tmp_path / "model.npz")
    with families.FAMILIES.knowing(Mine):
        loaded = load(tmp_path / "model.npz")
    assert isinstance(loaded.family_, Mine)
    same_model(loaded, model, X)


def test_files_without_an_ending_and_strings_as_paths(tmp_path):
    X = np.arange(6.0)[:, None]
    model = DPMixture().fit(X)
    model.save(str(tmp_path / "model"))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    same_model(load(str(tmp_path / "model")), model, X)


# -- nothing is half-written -------------------------------------------------------------------


def test_a_failing_write_leaves_the_old_file(tmp_path, monkeypatch):
    model = DPMixture().fit(np.arange(6.0)[:, None])
    model.save(tmp_path / "model.npz")
    before = (tmp_path / "model.npz").read_bytes()

    def fail(stream, **arrays):
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model_file.np, "savez", fail)
    for path in ("model.npz", "other.npz"):
        with pytest.raises(OSError, match="No space"):
            model.save(tmp_path / path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.npz"]
    assert (tmp_path / "model.npz").read_bytes() == before


def test_a_missing_folder_is_named(tmp_path):
    model = DPMixture().fit(np.arange(6.0)[:, None])
    with pytest.raises(FileNotFoundError, match=r"no such folder.*nowhere'"):
        model.save(tmp_path / "nowhere" / "model.npz")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        model.save(tmp_path)


# -- damage ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A saved model: its bytes, entries, and `about`."""
    path = tmp_path_factory.mktemp("model") / "model.npz"
    X = np.random.default_rng(0).normal(size=(30, 2)) + np.repeat([[0.0], [9.0]], 15, axis=0)
    DPMixture(family=families.Gaussian(0.0, 30.0, 1.0), alpha=1.0).fit(X).save(path)
    with np.load(path) as entries:
        arrays = {name: entries[name] for name in entries.files}
    about = json.loads(bytes(arrays.pop("about")))
    return path.read_bytes(), arrays, about


def refused(path, reason=None):
    with pytest.raises(ModelFileError, match=reason) as caught:
        load(path)
    assert str(path) in str(caught.value)


def write(path, arrays, about):
    text = about if isinstance(about, bytes) else json.dumps(about).encode()
    np.savez(path, about=np.frombuffer(text, dtype=np.uint8), **arrays)


def test_the_helper_writes_valid_files(saved, tmp_path):
    _, arrays, about = saved
    write(tmp_path / "m.npz", arrays, about)
    assert load(tmp_path / "m.npz").n_clusters_ == len(arrays["sizes"])


def test_truncated_files_are_refused(saved, tmp_path):
    whole, _, _ = saved
    lengths = {0, 1, 3, 4, 21, 22, len(whole) - 1, *range(0, len(whole), len(whole) // 60)}
    assert len(lengths) > 60
    for length in sorted(lengths):
        (tmp_path / "m.npz").write_bytes(whole[:length])
        refused(tmp_path / "m.npz")


@pytest.mark.parametrize("compressed", [True, False])
def test_flipped_bytes_are_refused_or_harmless(compressed, saved, tmp_path):
    whole, arrays, about = saved
    if not compressed:
        write(tmp_path / "plain.npz", arrays, about)
        whole = (tmp_path / "plain.npz").read_bytes()
    rng = np.random.default_rng(0)
    X = np.array([[0.0, 0.0], [9.0, 9.0]])
    outcomes = {"loaded": 0, "refused": 0}
    for _ in range(250):
        damaged = bytearray(whole)
        for at in rng.integers(len(whole), size=rng.integers(1, 4)):
            damaged[at] ^= int(rng.integers(1, 256))
        (tmp_path / "m.npz").write_bytes(damaged)
        try:
            model = load(tmp_path / "m.npz")
        except ModelFileError:
            outcomes["refused"] += 1
            continue
        outcomes["loaded"] += 1  # in bytes that nothing depends on, such as a date
        assert np.isfinite(model.predict_proba(X)).all()
        assert np.array_equal(model.labels_, arrays["labels"])
    assert outcomes["refused"] > 100
    assert outcomes["loaded"] > 0


def test_things_that_are_not_model_files(tmp_path, saved):
    _, arrays, _ = saved
    refused(tmp_path / "nothing.npz", "no such file")
    refused(tmp_path, "no such file")
    (tmp_path / "text.npz").write_text("not a zip")
    refused(tmp_path / "text.npz", "not a dpsearch model")
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps({"a": 1}))
    refused(tmp_path / "pickle.npz", "not a dpsearch model")
    np.save(tmp_path / "array.npz.npy", np.zeros(3))
    refused(tmp_path / "array.npz.npy", "not a dpsearch model")
    np.savez(tmp_path / "other.npz", X=np.zeros(3))
    refused(tmp_path / "other.npz", "not a dpsearch model")
    with zipfile.ZipFile(tmp_path / "texts.npz", "w") as archive:
        archive.writestr("about.npy", "no array")
    refused(tmp_path / "texts.npz", "not a dpsearch model")
    with zipfile.ZipFile(tmp_path / "empty.npz", "w"):
        pass
    refused(tmp_path / "empty.npz", "not a dpsearch model")
    for about in (b"", b"{", b"[]", b"3", b"\xff\xfe", b"[" * 100_000, b'{"format": "x"}'):
        write(tmp_path / "m.npz", arrays, about)
        refused(tmp_path / "m.npz", "not a dpsearch model")


class Bomb:
    """An object whose unpickling leaves a trace."""

    exploded: ClassVar[list[int]] = []

    def __reduce__(self):
        return (Bomb.exploded.append, (1,))


@pytest.mark.parametrize("name", ["about", "pool", "sizes", "labels", "extra"])
def test_a_pickle_inside_is_refused_unread(name, saved, tmp_path):
    _, arrays, about = saved
    entries = {"about": np.frombuffer(json.dumps(about).encode(), dtype=np.uint8), **arrays}
    entries[name] = np.array([Bomb()], dtype=object)
    with (tmp_path / "m.npz").open("wb") as stream:
        np.savez(stream, allow_pickle=True, **entries)
    refused(tmp_path / "m.npz", "Python objects")
    with (tmp_path / "m.npz").open("rb") as stream, zipfile.ZipFile(stream) as archive:
        assert b"append" in archive.read(f"{name}.npy")
    assert Bomb.exploded == []


def header(shape, dtype="<f8"):
    stream = io.BytesIO()
    np.lib.format.write_array_header_2_0(
        stream, {"descr": dtype, "fortran_order": False, "shape": shape}
    )
    return stream.getvalue()


@pytest.mark.parametrize("lies_about_its_size", [False, True])
@pytest.mark.parametrize("shape", [(2**27,), (2**40,), (2**62,), (2**200,), (2**31, 2**31), (-1,)])
def test_a_header_that_asks_for_much_memory_is_refused(shape, lies_about_its_size, saved, tmp_path):
    _, arrays, about = saved
    write(tmp_path / "m.npz", arrays, about)
    with zipfile.ZipFile(tmp_path / "m.npz") as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    entries["pool.npy"] = header(shape) + bytes(64)
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
        if lies_about_its_size:
            archive.getinfo("pool.npy").file_size = 2**31 - 1
    tracemalloc.start()
    try:
        refused(tmp_path / "m.npz")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50e6


def test_a_huge_number_of_a_cluster_takes_no_memory(saved, tmp_path):
    _, arrays, about = saved
    groups = np.zeros(len(arrays["sizes"]), np.int64)
    groups[-1] = 10**8
    write(tmp_path / "m.npz", arrays | {"groups": groups}, about)
    tracemalloc.start()
    try:
        refused(tmp_path / "m.npz", "not numbered 0, 1")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50e6


@pytest.mark.parametrize("name", ["about", "pool", "labels", "extra"])
def test_a_small_file_that_unpacks_to_much_is_refused_unread(name, saved, tmp_path):
    _, arrays, about = saved
    entries = {"about": np.frombuffer(json.dumps(about).encode(), dtype=np.uint8), **arrays}
    entries[name] = np.zeros(12 << 20)  # 100 MB
    np.savez_compressed(tmp_path / "m.npz", **entries)
    assert (tmp_path / "m.npz").stat().st_size < 200_000
    tracemalloc.start()
    try:
        refused(tmp_path / "m.npz", "implausible for a file of this size")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2e6


def test_labels_take_little_room(tmp_path):
    X = np.repeat([[0.0], [90.0]], 5000, axis=0)
    DPMixture(families.Gaussian(0.0, 100.0, 1.0), 1.0, refine=False).fit(X).save(tmp_path / "m")
    assert (tmp_path / "m").stat().st_size < 14_000


# -- hostile contents --------------------------------------------------------------------------

HUGE = 10**400  # an integer that is no double

ABOUTS = [
    ({"version": 2}, "format 2, but this dpsearch reads format 1"),
    ({"version": None}, "format None"),
    ({"version": "1"}, "format '1'"),
    ({"format": "other"}, "not a dpsearch model"),
    ({"family": {"name": "nobody"}}, "no family 'nobody'"),
    ({"family": {"name": ["gaussian"]}}, "no family"),
    ({"family": {}}, "no family None"),
    ({"family": "gaussian"}, "a name and fields"),
    ({"family": None}, "a name and fields"),
    ({"family": {"name": "gaussian", "colour": 1}}, "no parameter 'colour'"),
    ({"family": {"name": "gaussian", "form": "diagonal"}}, "form"),
    ({"family": {"name": "categorical", "n_levels": 2**40}}, None),
    ({"family": {"name": "categorical", "n_levels": None}}, "n_levels"),
    ({"family": {"name": "full_gaussian"}}, "pool has"),
    ({"prior": {"name": "nobody"}}, "no prior 'nobody'"),
    ({"prior": {"name": {}}}, None),
    ({"prior": {}}, "no prior None"),
    ({"prior": None}, None),
    ({"prior": [1, 2]}, None),
    ({"prior": {"name": "dirichlet_process", "alpha": 0}}, "alpha"),
    ({"prior": {"name": "dirichlet_process", "alpha": -1.0}}, "alpha"),
    ({"prior": {"name": "dirichlet_process", "alpha": "1"}}, "alpha"),
    ({"prior": {"name": "dirichlet_process", "alpha": float("nan")}}, "alpha"),
    ({"prior": {"name": "dirichlet_process", "alpha": HUGE}}, "alpha"),
    ({"prior": {"name": "dirichlet_process", "alpha": {"shape": 1, "rat": 1}}}, "rat"),
    ({"prior": {"name": "dirichlet_process", "alpha": {"shape": -1}}}, "shape"),
    ({"prior": {"name": "pitman_yor", "alpha": [], "discount": {}}}, None),
    ({"prior": {"name": "pitman_yor", "alpha": HUGE}}, None),
    ({"prior": {"name": "dirichlet_process", "beta": 1}}, "beta"),
    ({"n_features": 3}, "pool has"),
    ({"n_features": 0}, "n_features is 0"),
    ({"n_features": -1}, "n_features is -1"),
    ({"n_features": 2.0}, "n_features is 2.0"),
    ({"n_features": True}, "n_features is True"),
    ({"n_features": "2"}, "n_features is '2'"),
    ({"n_features": None}, "n_features is None"),
    ({"n_features": 2**31}, "n_features"),
    ({"n_features": HUGE}, "n_features"),
    ({"feature_names": ["a"]}, "feature_names"),
    ({"feature_names": ["a", "b", "c"]}, "feature_names"),
    ({"feature_names": "ab"}, "feature_names"),
    ({"feature_names": 3}, "feature_names"),
    ({"parameters": None}, None),
    ({"parameters": 3}, None),
    ({"log_joint": "high"}, None),
    ({"log_joint": None}, None),
    ({"log_joint": HUGE}, None),
    ({"log_joint": float("nan")}, "log_joint"),
    ({"seconds": []}, None),
]


@pytest.mark.parametrize(("changes", "reason"), ABOUTS, ids=lambda value: repr(value)[:60])
def test_a_hostile_description_is_refused(changes, reason, saved, tmp_path):
    _, arrays, about = saved
    write(tmp_path / "m.npz", arrays, about | changes)
    refused(tmp_path / "m.npz", reason)


@pytest.mark.parametrize("missing", ["family", "prior", "n_features", "parameters", "log_joint"])
def test_a_missing_field_is_named(missing, saved, tmp_path):
    _, arrays, about = saved
    write(tmp_path / "m.npz", arrays, {k: v for k, v in about.items() if k != missing})
    refused(tmp_path / "m.npz", missing)


HOSTILE = ["x", [], {}, None, True, [[1.0]], [[[1.0]]], ["a", "b"], [1.0, None], [1, 2, 3]]
HOSTILE += [-1.0, 0, float("nan"), float("inf"), HUGE, 1e308, 1e-320, [1.0, HUGE]]


@pytest.mark.parametrize("name", DRAWS)
def test_hostile_hyperparameters_are_refused_or_work(name, tmp_path):
    family, X = DRAWS[name](np.random.default_rng(1), 12)
    model = DPMixture(family=family).fit(X)
    arrays = saved_entries(model, tmp_path / "model.npz")
    about = json.loads(bytes(arrays.pop("about")))
    outcomes = {"loaded": 0, "refused": 0}
    for field in set(about["family"]) - {"name"}:
        for value in HOSTILE:
            spec = about["family"] | {field: value}
            write(tmp_path / "m.npz", arrays, about | {"family": spec})
            try:
                loaded = load(tmp_path / "m.npz")
            except ModelFileError:
                outcomes["refused"] += 1
                continue
            outcomes["loaded"] += 1
            assert loaded.n_clusters_ == model.n_clusters_
            assert loaded.n_features_in_ == X.shape[1]
    assert outcomes["refused"] >= 8


ENTRIES = [
    ("labels", np.zeros(29, np.int64)),
    ("labels", np.zeros(30, np.int64)),
    ("labels", np.full(30, -1)),
    ("labels", np.full(30, 2**62)),
    ("labels", np.full(30, 2**33)),
    ("labels", np.zeros(30)),
    ("labels", np.zeros((30, 1), np.int64)),
    ("labels", np.zeros(0, np.int64)),
    ("labels", np.zeros(30, ">i8")),
    ("labels", np.array(3)),
    ("sizes", np.array([15, 14])),
    ("sizes", np.array([30])),
    ("sizes", np.array([15, 15, 0])),
    ("sizes", np.array([0, 15, 15])),
    ("sizes", np.array([-15, 45])),
    ("sizes", np.array([2**62, 2**62])),
    ("sizes", np.array([15.0, 15.0])),
    ("sizes", np.zeros(0, np.int64)),
    ("pool", np.zeros(3)),
    ("pool", np.zeros(0)),
    ("pool", np.full(20, np.nan)),
    ("pool", np.full(20, np.inf)),
    ("pool", np.zeros(20, np.float32)),
    ("pool", np.zeros((2, 10))),
    ("pool", np.zeros(20, complex)),
    ("pool", np.array(["a"] * 20)),
]


@pytest.mark.parametrize(("name", "array"), ENTRIES, ids=lambda value: repr(value)[:50])
def test_entries_that_do_not_fit_together_are_refused(name, array, saved, tmp_path):
    _, arrays, about = saved
    assert len(arrays["pool"]) == 20
    assert arrays["sizes"].tolist() == [15, 15]
    write(tmp_path / "m.npz", arrays | {name: array}, about)
    refused(tmp_path / "m.npz", "pool|sizes|labels")


@pytest.mark.parametrize("name", ["pool", "sizes", "labels"])
def test_a_missing_entry_is_refused(name, saved, tmp_path):
    _, arrays, about = saved
    write(tmp_path / "m.npz", {k: v for k, v in arrays.items() if k != name}, about)
    refused(tmp_path / "m.npz", name)


@pytest.mark.parametrize("name", ["multinomial", "poisson", "bernoulli", "categorical"])
def test_statistics_that_no_data_have_are_refused(name, tmp_path):
    """Kernels index tables by counts, so a negative count would read foreign memory."""
    family, X = DRAWS[name](np.random.default_rng(1), 12)
    DPMixture(family=family).fit(X).save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as entries:
        arrays = {key: entries[key] for key in entries.files}
    arrays["pool"] = np.full_like(arrays["pool"], -1e13)
    np.savez(tmp_path / "m.npz", **arrays)
    refused(tmp_path / "m.npz")


def test_a_file_does_not_say_where_a_fit_writes(saved, tmp_path):
    _, arrays, about = saved
    hostile = tmp_path / "victim"
    parameters = about["parameters"] | {"checkpoint": str(hostile), "n_shards": 2}
    write(tmp_path / "m.npz", arrays, about | {"parameters": parameters})
    loaded = load(tmp_path / "m.npz")
    assert loaded.checkpoint is None
    loaded.fit(np.random.default_rng(0).normal(size=(40, 2)))
    assert not hostile.exists()
    loaded.set_params(checkpoint=str(hostile)).save(tmp_path / "own.npz")
    assert b"victim" not in (tmp_path / "own.npz").read_bytes()


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_that_follow_from_statistics_are_not_believed(name, tmp_path):
    """A cluster's row is computed from its statistics, whatever the file contains."""
    family, X = DRAWS[name](np.random.default_rng(1), 12)
    model = DPMixture(family=family).fit(X)
    arrays = saved_entries(model, tmp_path / "model.npz")
    width = model.mixture_.model.core.width
    followed = 0
    for at in range(1, width):
        pool = arrays["pool"].copy()
        pool[at] += 1.0
        np.savez(tmp_path / "m.npz", **(arrays | {"pool": pool}))
        try:
            found = load(tmp_path / "m.npz").mixture_
        except ModelFileError:
            continue
        blocks = found.model.blocks(found.pool, found.sizes)
        again, _ = found.model.rows(blocks, np.arange(len(found.sizes)), len(found.sizes))
        np.testing.assert_allclose(found.pool, again, rtol=1e-9, atol=1e-12)
        followed += np.allclose(found.pool, model.mixture_.pool, rtol=1e-9)
    assert followed > 0  # the number was ignored, since others imply it


def test_a_loaded_model_ignores_parameters_that_it_does_not_know(saved, tmp_path):
    """A file of a later version may have additional parameters."""
    _, arrays, about = saved
    parameters = about["parameters"] | {"speed": 3, "__class__": "x"}
    write(tmp_path / "m.npz", arrays, about | {"parameters": parameters})
    loaded = load(tmp_path / "m.npz")
    assert not hasattr(loaded, "speed")
    assert loaded.alpha == 1.0


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("entry", [b"\0", b"\x93NUMPY\x02\x00\xff\xff\xff\x0f"])
def test_no_head_of_an_entry_is_unpacked_beyond_its_worth(tmp_path, method, entry):
    """A small compressed entry or a header must not make the reader allocate what it states."""
    path = tmp_path / "m.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("about.npy", entry + b" " * (65 << 20))
    tracemalloc.start()
    refused(path, "implausible for a file of this size")
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("about.npy", entry)
    refused(
        path,
        "a compression that dpsearch does not use" if method != zipfile.ZIP_DEFLATED else "damaged",
    )
