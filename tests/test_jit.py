"""Compilation: what is reported about it, and that results do not depend on who compiled."""

import importlib.util
import os
import re
import subprocess
import sys

import numba
import numpy as np
import pytest

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

_RESULTS = """
import sys
import numpy as np
from dpsearch import DPMixture, families, gibbs, priors, refine, search

rng = np.random.default_rng(0)
X = np.vstack([rng.normal(m, 1.0, size=(60, 3)) for m in (0.0, 2.0, 4.0)])
family, prior = families.FullGaussian(0.0, 0.5, 8.0, 3.0), priors.DirichletProcess(1.0)

def drawn():
    return gibbs(X, family, prior, draws=20, rng=0).log_joint.tobytes().hex()

def found():
    start = search(X, family, prior, beam_size=1)
    refined = refine(X, start, family, prior, rng=0)
    fitted = DPMixture(random_state=0).fit(X)
    return start.log_joint.hex(), refined.log_joint.hex(), fitted.log_joint_.hex()

steps = [found, drawn] if "found-first" in sys.argv else [drawn, found]
print(sorted(str(step()) for step in steps))
"""


def _loaded(path):
    spec = importlib.util.spec_from_file_location("kernels", path)
    module = importlib.util.module_from_spec(spec)
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


@pytest.mark.slow
def test_a_seed_gives_the_same_bits_whoever_compiled_and_whatever_is_loaded(tmp_path):
    """The process that compiles, one that loads, and one that loads in another order."""
    script = tmp_path / "results.py"
    script.write_text(_RESULTS)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    results = [
        subprocess.run(
            [sys.executable, script, *options], env=environment, check=True, capture_output=True
        ).stdout
        for options in ([], [], ["found-first"], ["found-first"])
    ]
    assert len(set(results)) == 1


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
    """Two processes that write at the same time can give two kernels one name."""
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
