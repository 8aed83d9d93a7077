"""Hostile input of every kind, made by Hypothesis: refused in a sentence, or it works."""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from typer.testing import CliRunner

from dpsearch import DPMixture, Problem, families, load, priors, search
from dpsearch.cli.app import app
from dpsearch.errors import DPSearchError
from dpsearch.io import Reading, read_table
from studies.attacks.record import Outcome
from studies.attacks.victims import rows
from studies.say import say

_TOLD = 2000  # characters of a message

_HOSTILE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
    st.sampled_from([10**400, 2**63, -(2**63), 1e308, 5e-324, [], {}, [[]], {"name": "gaussian"}]),
    st.lists(st.one_of(st.none(), st.floats(), st.text(max_size=3)), max_size=4),
)  # fmt: skip


def _fuzzed(name: str, what: str, count: int, seed: int, strategy: Any, law: Any) -> Outcome:
    """Try a law with so many inputs; a failure is shrunk and told, and ends the attempt.

    So does Ctrl-C, with the number of inputs tried until then.
    """
    begun, tried = time.perf_counter(), 0

    @seeded(seed)
    @settings(
        max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(strategy)
    def test(value: Any) -> None:
        nonlocal tried
        tried += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            law(value)

    failed = 0
    try:
        test()
    except KeyboardInterrupt:
        say(f"{name}: stopped")
    except Exception as error:
        failed = 1
        notes = "\n".join(getattr(error, "__notes__", ()))
        say(f"BROKEN, {name}: {type(error).__name__}: {error}\n{notes}"[:_TOLD])
    return Outcome(name, what, tried, failed, time.perf_counter() - begun)


# -- model files --------------------------------------------------------------------------------


class _Models(list[tuple[bytes, Any]]):
    """Model files, and rows for them; messages do not show them."""

    def __repr__(self) -> str:
        return "models"


def _models() -> _Models:
    """Files of several families."""
    X = rows(n=40)
    counts = np.abs(X).round()
    found = _Models()
    for family, data in (
        (families.Gaussian(0.0, 60.0, 1.0), X),
        (families.DiagonalGaussian(0.0, 0.1, 3.0, 2.0), X),
        (families.FullGaussian(0.0, 0.1, 6.0, 1.0), X),
        (families.Poisson(1.0, 0.5), counts),
        (families.Multinomial(0.5), counts),
        (families.Bernoulli(1.0, 1.0), (X > 0).astype(float)),
        (families.Categorical((3, 3)), counts % 3),
    ):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.npz"
            DPMixture(family, 1.0, refine=False).fit(data).save(path)
            found.append((path.read_bytes(), data[:5]))
    return found


@st.composite
def _damage(draw: Any, models: _Models) -> tuple[bytes, Any]:
    """Bytes changed, lost or put in; or another text or other arrays in a sound archive."""
    whole, X = draw(st.sampled_from(models))
    if draw(st.booleans()):
        data = bytearray(whole)
        for _ in range(draw(st.integers(1, 4))):
            at = draw(st.integers(0, len(data) - 1))
            action = draw(st.sampled_from(["flip", "flip", "cut", "insert"]))
            if action == "flip":
                data[at] = draw(st.integers(0, 255))
            elif action == "cut":
                del data[at : at + draw(st.integers(1, 50))]
            else:
                data[at:at] = draw(st.binary(max_size=20))
            if not data:
                break
        return bytes(data), X
    with np.load(io.BytesIO(whole)) as entries:
        arrays = {name: entries[name] for name in entries.files}
    about = json.loads(bytes(arrays.pop("about")))
    for _ in range(draw(st.integers(1, 2))):
        if draw(st.booleans()):
            where, key = _somewhere(draw, about)
            where[key] = deepcopy(draw(_HOSTILE))  # the next change may be inside of it
        else:
            name = draw(st.sampled_from(sorted(arrays)))
            arrays[name] = draw(_changed(arrays[name]))
    stream = io.BytesIO()
    text = json.dumps(about).encode()
    np.savez(stream, about=np.frombuffer(text, dtype=np.uint8), **arrays)
    return stream.getvalue(), X


def _somewhere(draw: Any, about: Any) -> tuple[Any, Any]:
    """A place in a nested description."""
    while True:
        keys = sorted(about) if isinstance(about, dict) else range(len(about))
        key = draw(st.sampled_from(list(keys)))
        inner = about[key]
        if not isinstance(inner, (dict, list)) or not inner or draw(st.booleans()):
            return about, key
        about = inner


@st.composite
def _changed(draw: Any, array: Any) -> Any:
    changeable = array.ndim == 1 and len(array) > 0 and array.dtype.kind in "fiu"
    if not changeable or draw(st.integers(0, 3)) == 0:
        return draw(hnp.arrays(
            draw(st.sampled_from([np.int64, np.float64, np.uint8, np.complex128])),
            hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=30),
        ))  # fmt: skip
    out = array.copy()
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(out) - 1))
        if out.dtype.kind == "f":
            out[at] = draw(st.one_of(st.floats(), st.sampled_from([1e300, -1.0, 2.0**53, 0.5])))
        else:
            info = np.iinfo(out.dtype)
            out[at] = draw(st.integers(int(info.min), int(info.max)))
    return out


def fuzz_model_file(count: int, seed: int) -> Outcome:
    """Damage model files: they are refused as such, or the model predicts."""
    models = _models()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "model.npz"

        def law(case: tuple[bytes, Any]) -> None:
            path.write_bytes(case[0])
            try:
                model = load(path)
            except DPSearchError:
                return
            try:
                found = model.predict_proba(case[1])
            except DPSearchError:
                return
            assert found.shape == (5, model.n_clusters_)
            assert os.listdir(name) == ["model.npz"]

        what = "bytes flipped, cut and put in, and hostile values in every field and array"
        return _fuzzed("fuzz_model_file", what, count, seed, _damage(models), law)


# -- tables -------------------------------------------------------------------------------------

_CELLS = st.one_of(
    st.integers(-5, 20).map(str), st.floats().map(repr), st.text(max_size=6),
    st.sampled_from(["", "NA", "nan", "inf", "1,5", '"', '"a', "1e999", "true", "=1", "\x00"]),
)  # fmt: skip


@st.composite
def _texts(draw: Any) -> bytes:
    """Something like a table, or any bytes."""
    if draw(st.integers(0, 4)) == 0:
        return bytes(draw(st.binary(max_size=200)))
    width = draw(st.integers(1, 4))
    lines = draw(st.lists(st.lists(_CELLS, min_size=width, max_size=width + 1), max_size=10))
    separator = draw(st.sampled_from([",", ";", "\t", "|", " "]))
    text = draw(st.sampled_from(["\n", "\r\n", "\r"])).join(separator.join(line) for line in lines)
    encoding = draw(st.sampled_from(["utf-8", "utf-8", "utf-16", "latin-1", "utf-8-sig"]))
    return bytes(text.encode(encoding, "replace"))


_READINGS = st.fixed_dictionaries(
    {},
    optional={
        "columns": st.sampled_from(["0", "a", "0,1", "9", "-1", ""]),
        "drop": st.sampled_from(["0", "x"]),
        "index": st.sampled_from(["0", "1", "b"]),
        "text": st.sampled_from(["0", "a"]),
        "header": st.booleans(),
        "delimiter": st.sampled_from([",", ";", "ab", ""]),
        "decimal_comma": st.booleans(),
        "categories": st.sampled_from(["0", "a,b"]),
        "encoding": st.sampled_from(["utf-8", "latin-1", "nonsense"]),
    },
)


def fuzz_csv(count: int, seed: int) -> Outcome:
    """Read any text as a table: an error with its place, or a table of as many rows."""
    known = {field.name for field in fields(Reading)}
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "x.csv"

        def law(case: tuple[bytes, dict[str, Any]]) -> None:
            path.write_bytes(case[0])
            options = {key: value for key, value in case[1].items() if key in known}
            try:
                table = read_table(path, Reading(**options))
            except DPSearchError:
                return
            assert table.n_rows == table.X.shape[0] > 0
            assert table.n_columns == table.X.shape[1]

        what = "texts like tables and any bytes, with options of reading, read as CSV"
        strategy = st.tuples(_texts(), _READINGS)
        return _fuzzed("fuzz_csv", what, count, seed, strategy, law)


# -- the command line ---------------------------------------------------------------------------

_WORDS = st.one_of(
    st.sampled_from([
        "fit", "predict", "inspect", "certify", "sample", "x.csv", "model.npz", "out", "-", "--",
        "--out", "--force", "--report", "--json", "--quiet", "--seed", "--family", "gaussian",
        "poisson", "auto", "--alpha", "1.0", "--refine", "no", "0s", "--draws", "5", "--chains",
        "--columns", "a", "--index", "--shards", "2", "--proba", "--labels", "p.csv", "--format",
        "parquet", "--time-limit", "1s", "--checkpoint", "c", "--resume", "--verbatim", "--help",
        "--beam-size", "1e9", "-1", "nan", "../x", "/", "", "\x00",
    ]),
    st.text(max_size=6),
)  # fmt: skip
_COMMANDS = st.tuples(
    st.sampled_from([
        ["fit", "x.csv", "--refine", "no"], ["predict", "model.npz", "x.csv"],
        ["inspect", "model.npz"], ["certify", "model.npz", "x.csv", "--time-limit", "0.1s"],
        ["sample", "x.csv", "--draws", "3"], [],
    ]),
    st.lists(_WORDS, max_size=4),
)  # fmt: skip


def fuzz_command_line(count: int, seed: int) -> Outcome:
    """Any words after a command: done, refused in a sentence, or wrong usage; never a bug."""
    before, folder = Path.cwd(), Path(tempfile.mkdtemp(prefix="attack."))
    try:
        os.chdir(folder)
        np.savetxt("x.csv", rows(n=30), delimiter=",", header="a,b", comments="")
        DPMixture(families.Gaussian(0.0, 60.0, 1.0), 1.0).fit(rows(n=30)).save("model.npz")

        def law(case: tuple[list[str], list[str]]) -> None:
            result = CliRunner().invoke(app, [*case[0], *case[1]])
            if result.exit_code == 130:  # Ctrl-C is for the attack
                raise KeyboardInterrupt
            assert result.exit_code in (0, 1, 2), (result.exit_code, result.output)
            assert not list(Path().glob(".*.part"))
            for path in Path().iterdir():
                if path.name not in ("x.csv", "model.npz"):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

        what = "commands with any words after them, options, numbers and nonsense"
        return _fuzzed("fuzz_command_line", what, count, seed, _COMMANDS, law)
    finally:
        os.chdir(before)
        shutil.rmtree(folder)


# -- problems -----------------------------------------------------------------------------------

_NUMBERS = st.one_of(
    st.floats(-1e3, 1e3), st.floats(), st.integers(-3, 40).map(float),
    st.sampled_from([0.0, -0.0, 1e-300, 1e149, 1e150, 1e308, np.nan, np.inf]),
)  # fmt: skip
_PLAIN = st.one_of(st.floats(-50, 50), st.integers(0, 9).map(float))
_POSITIVE = st.one_of(st.floats(1e-3, 1e3), st.sampled_from([1e-12, 1e12, 0.0, -1.0, np.nan]))


@st.composite
def _problems(draw: Any) -> tuple[Any, Callable[[], Any], Callable[[], Any]]:
    shape = draw(st.tuples(st.integers(0, 8), st.integers(0, 3)))
    cells = draw(st.sampled_from([_NUMBERS, _PLAIN, _PLAIN, st.integers(0, 2).map(float)]))
    X: Any = draw(hnp.arrays(np.float64, shape, elements=cells))
    form = draw(st.sampled_from(["array", "array", "list", "sparse", "float32", "int"]))
    with np.errstate(all="ignore"):
        if form == "list":
            X = X.tolist()
        elif form == "sparse":
            X = sp.csr_matrix(X)
        elif form != "array":
            X = X.astype(np.float32 if form == "float32" else np.int64)
    a, b, c, d = (draw(_POSITIVE) for _ in range(4))
    family = draw(st.sampled_from([
        partial(families.Gaussian, a, b, c), partial(families.DiagonalGaussian, a, b, c, d),
        partial(families.FullGaussian, a, b, c, d), partial(families.Poisson, a, b),
        partial(families.Bernoulli, a, b), partial(families.Multinomial, a),
        partial(families.Categorical, a, 3),
    ]))  # fmt: skip
    prior = draw(st.sampled_from([
        partial(priors.DirichletProcess, a), partial(priors.PitmanYor, a, b),
        lambda: priors.DirichletProcess(priors.Gamma(a, b)), partial(priors.AntoniakCounts, a),
    ]))  # fmt: skip
    return X, family, prior


def fuzz_problem(count: int, seed: int) -> Outcome:
    """Any numbers under any family and prior: refused, or search finds what it says."""

    def law(case: tuple[Any, Callable[[], Any], Callable[[], Any]]) -> None:
        X, family, prior = case
        try:
            problem = Problem(X, family(), prior())
            found = search(problem, rng=0)
        except DPSearchError:
            return
        value = problem.log_joint(found.labels)
        assert np.isfinite(found.log_joint)
        assert abs(value - found.log_joint) <= 1e-6 * max(1.0, abs(value))

    what = "arrays, lists and sparse matrices of any numbers under any family and prior"
    return _fuzzed("fuzz_problem", what, count, seed, _problems(), law)
