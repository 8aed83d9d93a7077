"""The library works without the libraries of its extras."""

import subprocess
import sys

import pytest

from dpsearch._extras import EXTRAS, naming_extras
from dpsearch.errors import MissingLibraryError

WITHOUT = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(EXTRAS)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""


def run(program, *arguments):
    command = [sys.executable, "-c", WITHOUT + program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def test_arrays_are_fitted_saved_and_explained_without_any_extra(tmp_path):
    program = """
import numpy as np
import dpsearch
X = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0.0], [9.0]], 30, axis=0)
model = dpsearch.DPMixture().fit(X)
model.save(sys.argv[1])
print(dpsearch.load(sys.argv[1]).n_clusters_, len(model.explain(X).outliers))
draws = dpsearch.gibbs(X, model.family_, dpsearch.priors.DirichletProcess(1.0), draws=3, rng=0)
for what in (lambda: model.fit("table.csv"), draws.diagnostics, draws.to_arviz):
    try:
        what()
    except dpsearch.errors.MissingLibraryError as error:
        print(error)
"""
    (tmp_path / "table.csv").write_text("a,b\n1,2\n3,4\n")
    found = run(program, str(tmp_path / "model.npz"))
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    assert lines[0] == "2 0"
    assert lines[1] == 'tables in files and batches need polars: pip install "dpsearch[cli]"'
    assert lines[2] == 'diagnostics of draws need arviz_stats: pip install "dpsearch[arviz]"'
    assert lines[3] == 'draws for ArviZ need arviz: pip install "dpsearch[arviz]"'


def test_the_program_without_its_extra_says_what_to_install():
    found = run("from dpsearch.cli import main\nmain()")
    assert found.returncode == 1
    assert found.stderr == 'dpsearch: commands need typer: pip install "dpsearch[cli]"\n'


def test_a_package_that_no_extra_installs_is_reported_as_python_does():
    with pytest.raises(ModuleNotFoundError) as raised, naming_extras("things"):
        import no_such_package  # noqa: F401
    assert not isinstance(raised.value, MissingLibraryError)


def test_libraries_are_imported_when_they_are_used():
    """In one process, imports are tested in the order of increasing needs."""
    program = """
import sys
for statement, spared in (
    ("import dpsearch", {"numpy", "numba", "scipy"}),
    ("import dpsearch.cli.app", {"numba", "polars", "scipy", "sklearn"}),
    ("from dpsearch import DPMixture", {"pandas", "polars", "scipy.stats"}),
):
    exec(statement)
    assert not spared & set(sys.modules), (statement, spared & set(sys.modules))
import sklearn.utils.fixes as fixes
assert fixes.pd.DataFrame({"a": [1]}).shape == (1, 1)  # what scikit-learn holds
assert fixes.scipy.stats.norm.cdf(0.0) == 0.5
import pandas, scipy.stats
assert pandas.DataFrame is fixes.pd.DataFrame and "pandas" in sys.modules
assert scipy.stats is sys.modules["scipy.stats"] and scipy.stats.norm.cdf(0.0) == 0.5
from dpsearch._sklearn import _when_used
import types
with _when_used("wave", "no_such_module"):  # used at once, and by a submodule's import
    assert "no_such_module" not in sys.modules
    import wave
    assert wave.__dict__.get("open") is None and callable(wave.open)
assert callable(sys.modules["wave"].__dict__["open"])
"""
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False
    )
    assert found.returncode == 0, found.stderr
