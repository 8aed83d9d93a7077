"""Compilation: how it is reported, and that results do not depend on which process compiled."""

import importlib.util
import json
import os
import re
import subprocess
import sys

import numba
import numpy as np
import pytest
from llvmlite.binding import Linkage

from dpsearch._jit import on_compile

_MODULE = """
from dpsearch._jit import inner, kernel

@inner
def twice(x):
    return 2.0 * x

@kernel
def four_times(x):
    return twice(twice(x))
"""

_SHARING = """
import numpy as np
from dpsearch._jit import inner, kernel

@inner
def mean(x):
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i]
    return total / x.shape[0]

@kernel
def centred(x):
    return x - mean(x)

@kernel
def spread(x, rng):
    return np.sqrt((centred(x) ** 2).sum()) * rng.standard_gamma(2.0)
"""

_RESULTS = """
import hashlib
import json
import sys
import numpy as np
from dpsearch import (
    DPMixture, Problem, certify, families, gibbs, priors, refine, search, split_merge
)

rng = np.random.default_rng(0)
X = np.vstack([rng.normal(m, 1.0, size=(60, 11)) for m in (0.0, 1.0, 2.0)])
family = families.FullGaussian(0.0, 0.5, 16.0, 3.0)
prior = priors.DirichletProcess(priors.Gamma(1.0, 1.0))

def bits(*parts):
    digest = hashlib.sha256()
    for part in parts:
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()

def fit():
    fitted = DPMixture(random_state=0).fit(X)
    return bits(fitted.labels_, fitted.log_joint_, fitted.score_samples(X))

def refined():
    start = search(X, family, prior, beam_size=1)
    better = refine(X, start, family, prior, rng=0)
    return bits(start.log_joint, better.labels, better.log_joint)

def drawn(**options):
    out = gibbs(X, family, prior, draws=1500, alpha="sample", rng=0, **options)
    return bits(out.labels, out.log_joint, out.alpha)

def begun():
    def stop(event):
        assert event.done < 1500
        raise KeyboardInterrupt

    try:
        drawn(checkpoint=sys.argv[1], checkpoint_seconds=0, callback=stop)
    except KeyboardInterrupt:
        pass

def resumed():
    return drawn(checkpoint=sys.argv[1], resume=True)

def others():
    some, gaussian = X[:15, :2], families.Gaussian(0.0, 9.0, 1.0)
    certify(Problem(some, gaussian, prior), search(some, gaussian, prior), time_limit=10.0)
    for other in (gaussian, families.DiagonalGaussian(), families.Poisson()):
        split_merge(np.abs(X).round(), other, prior, draws=5, alpha="sample", rng=0)

results = {name: globals()[name]() for name in sys.argv[2:]}
print(json.dumps({name: value for name, value in results.items() if value is not None}))
"""


def _loaded(path):
    spec = importlib.util.spec_from_file_location("dpsearch_test_kernels", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where Numba looks for the module of a kernel from disk
    spec.loader.exec_module(module)
    return module


def test_functions_are_reported_when_they_are_compiled_and_not_when_cached(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(_MODULE)
    reports = []
    with on_compile(reports.append):
        assert _loaded(path).four_times(1.5) == 6.0
        assert [report.name for report in reports] == ["four_times", "twice"]
        assert [report.number for report in reports] == [1, 2]
        assert all(report.expected >= 2 for report in reports)
        assert _loaded(path).four_times(1.5) == 6.0  # from the cache
    assert len(reports) == 2
    _loaded(path).four_times(1)  # another type, when no callback is set
    assert len(reports) == 2


def test_python_may_call_what_kernels_contain(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(_MODULE)
    module = _loaded(path)
    assert module.twice(1.5) == module.twice.py_func(1.5) == 3.0
    assert module.twice.__name__ == "twice"


def test_no_kernel_shares_what_it_contains_with_another(tmp_path, monkeypatch):
    """A process runs the first loaded of two copies of a function, which may round differently.

    A function that other code could use, or that could replace the kernel's own, is neither
    internal nor an entry point.
    """
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "kernels.py"
    path.write_text(_SHARING)
    module = _loaded(path)
    x, rng = np.arange(5.0), np.random.default_rng(0)
    assert module.spread(x, rng) > 0.0
    for dispatcher in (module.centred, module.spread):
        [compiled] = dispatcher.overloads.values()
        functions = list(compiled.library.get_defined_functions())
        shared = {f.name for f in functions if f.linkage != Linkage.internal}
        entries = {compiled.fndesc.llvm_func_name, compiled.fndesc.llvm_cpython_wrapper_name}
        assert shared == entries


@pytest.mark.slow
def test_a_seed_gives_the_same_bits_in_any_process_and_with_any_kernels_loaded(tmp_path):
    """Compare processes that compile, that load, and that used other kernels before."""
    script = tmp_path / "results.py"
    script.write_text(_RESULTS)

    def results(cache, checkpoint, *steps, seed="0"):
        environment = os.environ | {
            "NUMBA_CACHE_DIR": str(tmp_path / cache),
            "PYTHONHASHSEED": seed,
        }
        run = subprocess.run(
            [sys.executable, script, tmp_path / checkpoint, *steps],
            env=environment,
            check=True,
            capture_output=True,
        )
        return json.loads(run.stdout)

    cold = results("one", "a", "fit", "refined", "drawn", "begun")
    warm = results("one", "b", "fit", "refined", "drawn", "begun")
    assert warm == cold
    mixed = results("one", "a", "others", "resumed", "drawn", "refined", "fit")
    assert mixed == cold | {"resumed": cold["drawn"]}
    loaded = results("one", "b", "others", "resumed", "fit", "drawn", "refined")
    assert loaded == mixed
    begun_elsewhere = results("two", "c", "others", "begun", "drawn", "refined", "fit", seed="1")
    assert begun_elsewhere == cold
    assert results("one", "c", "resumed") == {"resumed": cold["drawn"]}


@pytest.mark.parametrize("ending", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", ["truncated", "emptied", "changed", "other"])
def test_a_damaged_cache_file_is_named_and_compiled_again(tmp_path, monkeypatch, ending, damage):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "kernels.py"
    path.write_text(_MODULE)
    assert _loaded(path).four_times(1.5) == 6.0
    [file] = (tmp_path / "cache").rglob(f"*{ending}")
    content = file.read_bytes()
    middle = len(content) // 2
    file.write_bytes(
        {
            "truncated": content[:middle],
            "emptied": b"",
            "changed": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
            "other": b"no kernel",
        }[damage]
    )
    with pytest.warns(RuntimeWarning, match=f"{re.escape(str(file))} .* is damaged"):
        assert _loaded(path).four_times(1.5) == 6.0
    reports = []
    with on_compile(reports.append):
        assert _loaded(path).four_times(1.5) == 6.0
    assert reports == []  # it was stored again


def test_a_file_with_the_kernel_of_other_types_is_not_taken_for_its_own(tmp_path, monkeypatch):
    """Two processes that write at the same time can give two kernels the same name."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "kernels.py"
    path.write_text(_MODULE)
    module = _loaded(path)
    assert (module.four_times(1.5), module.four_times(np.float32(1.5))) == (6.0, 6.0)
    first, second = (tmp_path / "cache").rglob("*.nbc")
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    module = _loaded(path)
    assert (module.four_times(1.5), module.four_times(np.float32(1.5))) == (6.0, 6.0)


_WITH_HELPERS = """
import dpsearch_test_constants
from dpsearch_test_constants import SHIFT, more
from dpsearch._jit import kernel

@kernel
def shifted(x):
    return more(x) + SHIFT + dpsearch_test_constants.FURTHER
"""
_HELPERS = """
import numba

SHIFT, FURTHER = {}, {}

@numba.njit
def more(x):
    return x + {}
"""


def test_a_kernel_is_compiled_again_when_what_it_refers_to_has_changed(tmp_path, monkeypatch):
    """Numba does not notice changes of constants and functions in other files."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    path, helpers = tmp_path / "kernels.py", tmp_path / "dpsearch_test_constants.py"
    path.write_text(_WITH_HELPERS)
    for values in [(0.0, 0.0, 0.0), (5.0, 0.0, 0.0), (5.0, 0.25, 0.0), (5.0, 0.25, 30.0)]:
        helpers.write_text(_HELPERS.format(*values))
        for _ in range(2):
            sys.modules.pop("dpsearch_test_constants", None)
            monkeypatch.setattr(sys, "dont_write_bytecode", True)
            reports = []
            with on_compile(reports.append):
                assert _loaded(path).shifted(1.0) == 1.0 + sum(values)
        assert "shifted" not in [report.name for report in reports]  # from the cache
