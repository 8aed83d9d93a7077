"""`python -m studies counts`: wide tables of counts in planted groups, by several transforms."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from sklearn.metrics import adjusted_rand_score

from dpsearch import DPMixture
from dpsearch._types import Labels, Matrix, Rng
from dpsearch.families._count_rows import CountRows
from dpsearch.families.projected_gaussian import ProjectedGaussian
from studies.say import say

_MOST_VALUES = 2_000_000
_HANDFUL = 5


class Design(NamedTuple):
    """The parameters by which a table is drawn."""

    n_rows: int
    width: int
    groups: int
    depth: float  # standard deviation of the logarithm of how much is counted in a row
    level: float  # mean logarithm of the counts that are expected
    over: float  # α of the variance λ + αλ²
    share: float  # of the columns in which a group differs
    effect: float  # standard deviation of that difference, of logarithms


def design(rng: Rng, small: bool) -> Design:
    """Return a random design."""
    n_rows = int(rng.choice([100, 200, 300] if small else [100, 200, 500, 1000, 2000]))
    width = int(rng.choice([500, 1000] if small else [500, 1000, 2000, 5000]))
    return Design(
        n_rows,
        min(width, _MOST_VALUES // n_rows),
        int(rng.choice([1, 1, 1, 2, 3, 4, 6, 10])),
        float(rng.choice([0.0, 0.25, 0.5, 1.0])),
        float(rng.choice([-0.5, 0.0, 0.5, 1.0])),
        float(rng.choice([0.0, 0.1, 0.3, 1.0])),
        float(rng.choice([0.03, 0.1, 0.3, 1.0])),
        float(rng.choice([0.5, 1.0])),
    )


def drawn(rng: Rng, how: Design) -> tuple[Matrix, Labels]:
    """Return a table of counts and the groups of its rows."""
    shape = (how.groups, how.width)
    differs = rng.random(shape) < how.share
    profiles = rng.lognormal(how.level, 1.0, how.width) * np.exp(
        how.effect * rng.normal(size=shape) * differs
    )
    labels = rng.integers(how.groups, size=how.n_rows)
    means = profiles[labels] * np.exp(rng.normal(0.0, how.depth, (how.n_rows, 1)))
    if how.over:
        means = means * rng.gamma(1.0 / how.over, how.over, means.shape)
    return rng.poisson(means).astype(np.float64), labels


def _shares(X: Matrix) -> Matrix:
    sums = X.sum(axis=1, keepdims=True)
    return np.asarray(np.median(sums) * X / np.maximum(sums, 1.0))


def _of_one_unit(Y: Matrix) -> Labels:
    """Cluster by the components above the noise, without scaling columns."""
    family = ProjectedGaussian._leading(Y, Y.mean(axis=0), np.ones(Y.shape[1]))
    return _clusters(family.project(Y))


def _clusters(Z: Matrix) -> Labels:
    return DPMixture(family="full_gaussian").fit(Z).labels_


def _in_units(X: Matrix, *, by_row: bool) -> Labels:
    """Cluster by shares in units of the noise at the median sum, or at a row's own."""
    made = CountRows.of(X)
    Y = made.forward(X)
    family = ProjectedGaussian._leading(Y, made.centre, made.scale)
    return _clusters(family.project(Y if by_row else _shares(X)))


WAYS: dict[str, Callable[[Matrix], Labels]] = {
    "logarithms of shares": lambda X: _of_one_unit(np.log1p(_shares(X))),
    "roots of shares": lambda X: _of_one_unit(2.0 * np.sqrt(_shares(X))),
    "units of noise, same for all rows": lambda X: _in_units(X, by_row=False),
    "units of noise, row by row": lambda X: _in_units(X, by_row=True),
    "these or roots, by components": lambda X: _clusters(ProjectedGaussian.of_counts(X).project(X)),
    "multinomial": lambda X: DPMixture(family="multinomial").fit(X).labels_,
    "default": lambda X: DPMixture().fit(X).labels_,
}


class Found(NamedTuple):
    """The result of one transform for one table."""

    way: str
    how: Design
    ari: float
    n_clusters: int
    single: int
    seconds: float


def tried(task: tuple[int, bool, tuple[str, ...]]) -> list[Found]:
    """Draw one table and cluster it under several transforms."""
    seed, small, ways = task
    rng = np.random.default_rng([2021, seed])
    how = design(rng, small)
    X, truth = drawn(rng, how)
    out = []
    for way in ways:
        begun = time.process_time()
        labels = WAYS[way](X)
        sizes = np.bincount(labels)
        ari = float(adjusted_rand_score(truth, labels))
        spent = time.process_time() - begun
        out.append(Found(way, how, ari, len(sizes), int((sizes == 1).sum()), spent))
    return out


def counts(
    draws: Annotated[int, typer.Option(min=1, help="Tables that are drawn.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Number of the first draw.")] = 0,
    small: Annotated[bool, typer.Option(help="Only tables of up to 300 × 1,000.")] = False,
    only: Annotated[str, typer.Option(help="Ways with this in their name.")] = "",
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Page to write.")] = None,
) -> None:
    """Cluster wide tables of counts, whose rows differ in how much was counted, in several ways."""
    ways = tuple(way for way in WAYS if only in way)
    tasks = [(seed + k, small, ways) for k in range(draws)]
    found: list[Found] = []
    with ProcessPoolExecutor(jobs) as pool:
        for k, ones in enumerate(pool.map(tried, tasks)):
            found += ones
            say(f"{k + 1} of {draws}: " + ", ".join(f"{one.way} {one.ari:.2f}" for one in ones))
    text = "\n".join(_page(found, ways, draws))
    say(text)
    if out is not None:
        out.write_text(text + "\n")


def _page(found: list[Found], ways: tuple[str, ...], draws: int) -> Iterator[str]:
    """Yield the lines of a page: a table for all draws, and one for each varied parameter."""
    rows = sorted({one.how.n_rows for one in found})
    yield "# Wide tables of counts"
    yield ""
    yield (
        f"Written by `python -m studies counts`: {draws} tables with {rows[0]} to {rows[-1]:,} rows"
        " of counts in planted groups. Drawn at random are the number of groups, the number of"
        " columns in which they differ and by how much, the variation of the total count of a row"
        " (the standard deviation of its logarithm), and the overdispersion of the counts (α in"
        " the variance λ + αλ²). The adjusted Rand index is that with the planted groups; for a"
        " single group it is 1 for one cluster and 0 for more. [The automatic"
        " choice](../automatic.md) describes the methods."
    )
    yield ""
    head = [
        "method",
        "ARI",
        "one group",
        "several groups",
        f"more than {_HANDFUL} single rows",
        "seconds",
    ]
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for way in ways:
        own = [one for one in found if one.way == way]
        one_group = [one.ari for one in own if one.how.groups == 1]
        several = [one.ari for one in own if one.how.groups > 1]
        many = np.mean([one.single > _HANDFUL for one in own])
        spent = np.median([one.seconds for one in own])
        ari = _mean([one.ari for one in own])
        cells = [way, ari, _mean(one_group), _mean(several), f"{many:.0%}", f"{spent:.1f}"]
        yield f"| {' | '.join(cells)} |"
    varied = (("depth", "Variation of totals"), ("over", "Dispersion α"))
    for field, words in (*varied, ("share", "Columns that differ")):
        values = sorted({getattr(one.how, field) for one in found})
        yield ""
        yield f"| {words} | {' | '.join(f'{value:g}' for value in values)} |"
        yield f"|{' --- |' * (1 + len(values))}"
        for way in ways:
            cells = [
                _mean([f.ari for f in found if f.way == way and getattr(f.how, field) == value])
                for value in values
            ]
            yield f"| {way} | {' | '.join(cells)} |"


def _mean(values: list[Any]) -> str:
    return f"{np.mean(values):.3f}" if values else "–"
