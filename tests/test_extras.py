"""The library without the libraries of its extras."""

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


def test_importing_the_package_imports_no_library():
    program = "import dpsearch; print(sorted({'numpy', 'numba', 'scipy'} & set(sys.modules)))"
    assert run(program).stdout == "[]\n"
