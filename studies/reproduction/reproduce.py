"""Running the experiments and writing their pages, for `python -m studies reproduce`."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dpsearch import datasets
from dpsearch._validate import n_threads
from dpsearch.errors import DataError, ParameterError
from studies.reproduction import (
    artificial,
    artificial_page,
    mnist,
    mnist_page,
    nips,
    nips_page,
)
from studies.reproduction.cache import Cache
from studies.reproduction.data import (
    MNIST_ABSENT,
    NIPS_ABSENT,
    data_folder,
    load_mnist,
    paper_documents,
)
from studies.reproduction.report import PAPER, Report
from studies.reproduction.work import Tell

EXPERIMENTS = ("artificial", "mnist", "nips")
DIMENSIONS = (1, 2)
MOST_DIMENSIONS = 50


def reproduce(
    which: str,
    out: Path,
    *,
    quick: bool = False,
    dimensions: Sequence[int] = DIMENSIONS,
    data: Path | None = None,
    download: bool = False,
    seed: int = 0,
    n_jobs: int = -1,
    tell: Tell = lambda message: None,
) -> list[str]:
    """Run one experiment or all; return those whose pages were written.

    What is done is kept in `out`/cache: a run that was stopped goes on where it was.  A quick run
    has a folder of its own in `out`, so that it never takes the place of a full one.
    """
    if which not in (*EXPERIMENTS, "all"):
        known = ", ".join((*EXPERIMENTS, "all"))
        raise ParameterError(f"unknown experiment {which!r}: known are {known}")
    if importlib.util.find_spec("matplotlib") is None:
        raise ParameterError("reproduce draws figures: install matplotlib, or dpsearch[plots]")
    if out.exists() and not out.is_dir():
        raise ParameterError(f"{out}: is a file, not a folder")
    wrong = [d for d in dimensions if not 1 <= d <= MOST_DIMENSIONS]
    if wrong or not dimensions:
        raise ParameterError(f"dimension must be 1 … {MOST_DIMENSIONS}, got {list(dimensions)}")
    out = results_folder(out, quick)
    folder = data_folder(data)
    jobs = n_threads(n_jobs)
    cache, report = Cache(out / "cache"), Report(out)
    done = []
    for name in EXPERIMENTS if which == "all" else (which,):
        if name == "artificial":
            _artificial(quick, dimensions, seed, cache, report, jobs, tell)
        elif name == "mnist":
            _mnist(folder, download, quick, seed, cache, report, jobs, tell)
        elif not _nips(folder, quick, seed, cache, report, jobs, tell):
            if which == "nips":
                raise DataError(NIPS_ABSENT)
            tell(f"NIPS left out. {NIPS_ABSENT}")
            continue
        done.append(name)
        _index(report)
    return done


def results_folder(out: Path, quick: bool) -> Path:
    return out / "quick" if quick else out


def _artificial(
    quick: bool,
    dimensions: Sequence[int],
    seed: int,
    cache: Cache,
    report: Report,
    n_jobs: int,
    tell: Tell,
) -> None:
    settings = artificial.QUICK if quick else artificial.Settings()
    settings = replace(settings, seed=seed, dimensions=tuple(sorted(set(dimensions))))
    records = artificial.run(settings, cache, n_jobs, tell)
    artificial_page.write(records, settings, report, cache.ran("artificial"))


def _mnist(
    folder: Path | None,
    download: bool,
    quick: bool,
    seed: int,
    cache: Cache,
    report: Report,
    n_jobs: int,
    tell: Tell,
) -> None:
    settings = replace(mnist.QUICK if quick else mnist.Settings(), seed=seed)
    digits = load_mnist(folder, download=download)
    if digits is None:
        digits = datasets.mnist_digits()
        tell(f"Using the {len(digits.images):,} digits that dpsearch has with it. {MNIST_ABSENT}")
    outcome = mnist.run(digits, settings, cache, n_jobs, tell)
    mnist_page.write(outcome, settings, report, cache.ran("mnist"))


def _nips(
    folder: Path | None,
    quick: bool,
    seed: int,
    cache: Cache,
    report: Report,
    n_jobs: int,
    tell: Tell,
) -> bool:
    settings = replace(nips.QUICK if quick else nips.Settings(), seed=seed)
    documents = paper_documents(folder)
    if documents is None:
        return False
    outcome = nips.run(documents, settings, cache, n_jobs, tell)
    nips_page.write(outcome, documents, settings, report, cache.ran("nips"))
    return True


def _index(report: Report) -> None:
    """Link the existing pages, from this run or an earlier one."""
    lines = [f"The experiments of {PAPER}, repeated by `python -m studies reproduce`.", ""]
    about = {
        "artificial": "searches and samplers on draws from the model, beside the true optimum",
        "mnist": "handwritten digits",
        "nips": "documents of the NIPS proceedings",
    }
    for name, words in about.items():
        if (report.folder / f"{name}.md").exists():
            title = (report.folder / f"{name}.md").read_text(encoding="utf-8").splitlines()[0]
            lines.append(f"- [{title.lstrip('# ')}]({name}.md): {words}")
    report.page("index", "The paper, reproduced", lines)
