"""Checks of the archives that `make dist` builds.

    python tests/support/archives.py dist

looks into the sdist and the wheel, installs the wheel alone in a new environment outside the tree,
and runs the tutorial there.
"""

import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
LARGEST_WHEEL = 2_000_000  # bytes


def the_one(folder, pattern):
    found = sorted(folder.glob(pattern))
    assert len(found) == 1, f"{folder}: {pattern} should be one file, but there are {found}"
    return found[0]


def check_wheel(wheel):
    """Check that the wheel has the package with all its data files, and nothing else."""
    size = wheel.stat().st_size
    assert size < LARGEST_WHEEL, f"{wheel.name}: {size:,} bytes"
    names = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.split("/")[0] for name in names}
    assert {top.split("-")[0] for top in tops} == {"dpsearch"}, f"{wheel.name} holds {tops}"
    tracked = subprocess.run(
        ["git", "ls-files", "src/dpsearch"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    wanted = {name.removeprefix("src/") for name in tracked}
    packed = {name for name in names if name.startswith("dpsearch/")}
    assert packed == wanted, f"{wheel.name}: not as in git: {sorted(packed ^ wanted)}"
    print(f"{wheel.name}: {size:,} bytes, {len(names)} files")


def check_sdist(sdist):
    """Check that the sdist has what is needed to build, test and read it, and no build products."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    top = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile"}
    lacking = (top | {"tests/test_docs.py", "docs/tutorial.md", "src/dpsearch/py.typed"}) - names
    assert not lacking, f"{sdist.name} lacks {lacking}"
    made = [name for name in names if any(part in name for part in ("_build", ".venv", "__pyc"))]
    assert not made, f"{sdist.name} holds {made}"
    print(f"{sdist.name}: {sdist.stat().st_size:,} bytes, {len(names)} files")


def try_alone(wheel):
    """Install the wheel in an empty environment, and run the tutorial."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        packed = f"{wheel.resolve()}[cli]"
        subprocess.run([python, "-m", "pip", "install", "--quiet", packed], check=True)
        script = Path(folder) / "documents.py"
        script.write_text((ROOT / "tests/support/documents.py").read_text("utf-8"), "utf-8")
        subprocess.run([python, script, ROOT / "docs/tutorial.md"], check=True, cwd=folder)
        subprocess.run([python, "-m", "pip", "check"], check=True)
    print(f"{wheel.name}: the tutorial runs with it alone")


if __name__ == "__main__":
    dist = Path(sys.argv[1])
    check_sdist(the_one(dist, "*.tar.gz"))
    check_wheel(the_one(dist, "*.whl"))
    try_alone(the_one(dist, "*.whl"))
