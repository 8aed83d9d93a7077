"""The batch search on a GPU: its time, its results, and how close its passes are to peak speed.

    python -m benchmarks.gpu --work FOLDER [--cases NAME …] [--data FOLDER] [--out FILE.md]

Every case writes its figures to the work folder as JSON, so that cases can be run in several
calls; the page is written from all of them.  Times are wall times, from data on the GPU
to labels there; kernels are compiled beforehand.  `--device cpu --quick` tries the program itself.
Nothing is imported beyond what `dpsearch[gpu]` installs.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch

from benchmarks.flights import some_flights
from benchmarks.scale import D, K, planted
from dpsearch import DPMixture, Problem, datasets, families, priors
from dpsearch._arrays import to_host
from dpsearch.passes import dense_rows
from dpsearch.passes.chunk import Candidates, Totals
from dpsearch.passes.device import open_rows
from dpsearch.passes.rows import ThreadedRows
from dpsearch.passes.search import BatchSearch
from dpsearch.passes.start import clusters_of_sample

MOST_CLUSTERS = 20_000
SAMPLE = 100_000
Figures = list[dict[str, Any]]
Start = Callable[[], Totals]


class OutOfTime(Exception):
    """Raised when the time of a run is over."""


class Point(NamedTuple):
    seconds: float
    log_joint: float
    n_clusters: int


class Setting(NamedTuple):
    device: str
    quick: bool
    data: Path | None

    def rows(self, n: int) -> int:
        return max(n // 1000, 2000) if self.quick else n

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


class Run:
    """A search with a clock, which records what it reaches and when."""

    def __init__(self, form: Any, rows: Any, n: int, limit: float, begun: float) -> None:
        self.points: list[Point] = []
        self.begun, self.limit = begun, limit
        tables = priors.DirichletProcess(1.0).tables(n, min(n, MOST_CLUSTERS))
        rng = np.random.default_rng(0)
        self.search = BatchSearch(rows, form, tables, rng, self.note, self.check)

    def note(self, step: str, log_joint: float, n_clusters: int) -> None:
        self.points.append(Point(time.perf_counter() - self.begun, log_joint, n_clusters))

    def check(self) -> None:
        if time.perf_counter() - self.begun > self.limit:
            raise OutOfTime

    def to_the_end(self, work: Callable[[], None]) -> bool:
        """Do the work; return whether it was completed."""
        try:
            work()
        except OutOfTime:
            return False
        finally:
            last = self.search
            self.note("end", last.log_joint, last.n_clusters)
        return True

    def reached(self, seconds: float, base: float = 0.0) -> float | None:
        """Return the best log joint until a time."""
        found = [p.log_joint + base for p in self.points if p.seconds <= seconds]
        return max(found, default=None)

    def clusters(self, seconds: float) -> int:
        """Return the number of clusters at a time."""
        return [p.n_clusters for p in self.points if p.seconds <= seconds][-1]

    def settled(self) -> float:
        """Return the seconds until the search was within a millionth of its final value."""
        goal = self.points[-1].log_joint
        near = 1e-6 * abs(goal)
        return next(p.seconds for p in self.points if p.log_joint >= goal - near)


class Counted:
    """Rows whose passes are counted and, if asked for, timed."""

    def __init__(self, rows: Any, wait: Callable[[], None] | None = None) -> None:
        self.rows, self.wait = rows, wait
        self.n_passes, self.seconds = 0, 0.0

    def assign(self, candidates: Candidates) -> Any:
        self.n_passes += 1
        return self.timed(self.rows.assign, candidates)

    def repeated(self, sweep: Any, totals: Any, count: int) -> Any:
        """Repeat a sweep as one piece of work without waiting in between."""
        before, wait = self.n_passes, self.wait

        def work() -> Any:
            self.wait = None
            return self.rows.repeated(sweep, totals, count)

        try:
            return self.timed(work)
        finally:
            self.n_passes, self.wait = before + count, wait

    def draw(self, *given: Any) -> Any:
        return self.timed(self.rows.draw, *given)

    def decide(self, *given: Any) -> Any:
        return self.timed(self.rows.decide, *given)

    def timed(self, work: Callable[..., Any], *given: Any) -> Any:
        if self.wait is None:
            return work(*given)
        wait = self.wait
        wait()
        begun = time.perf_counter()
        out = work(*given)
        wait()
        self.seconds += time.perf_counter() - begun
        return out

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rows, name)


def shares(
    setting: Setting, form: Any, X: Any, seconds: float, start: Start | None = None
) -> dict[str, Any]:
    """Search for some seconds, waiting for every step, to see where the time goes."""
    rows = Counted(open_rows(form, X, setting.device), setting.wait)
    formulas = Counted(None, setting.wait)
    slow = replace(
        form,
        weights=lambda *given: formulas.timed(form.weights, *given),
        log_marginals=lambda *given: formulas.timed(form.log_marginals, *given),
    )
    begun = time.perf_counter()
    run, _ = search_all(slow, rows, X.shape[0], seconds, begun, start)
    spent = run.points[-1].seconds
    return {
        "seconds, waiting for each step": spent,
        "passes": rows.n_passes,
        "seconds in passes": rows.seconds,
        "in formulas of clusters": formulas.seconds,
        "in the driver": spent - rows.seconds - formulas.seconds,
    }


def search_all(
    form: Any, rows: Any, n: int, limit: float, begun: float, start: Start | None = None
) -> tuple[Run, bool]:
    """Search from one cluster, or from a start, until nothing improves."""
    run = Run(form, rows, n, limit, begun)
    if start is None:
        run.search.begin(1)
    else:
        run.search.begin_from(start())
    return run, run.to_the_end(run.search.run)


def search_from_sample(
    form: Any, rows: Any, X: Any, limit: float, begun: float
) -> tuple[Run, bool]:
    """Search the first rows, assign all rows to the result, and sweep, divide and merge."""
    n = X.shape[0]
    few = open_rows(form, X[:SAMPLE])
    first = Run(form, few, few.n_rows, limit, begun)
    first.search.begin(1)
    first.to_the_end(lambda: settle(first.search, few.n_rows, 2))
    found = first.search
    scores = found.scores(found.totals)
    everything = Candidates(np.zeros(1, np.int64), np.array([0, found.n_clusters]), *scores)
    rows.assign(everything)
    rows.decide(np.arange(found.n_clusters), np.zeros(1, np.int64))
    run = Run(form, rows, n, limit, begun)
    run.search.begin(found.n_clusters)
    return run, run.to_the_end(lambda: settle(run.search, n, 1))


def settle(search: BatchSearch, n: int, tries: int) -> None:
    search.sweeps(10, 1e-6 * n)
    search.grow(tries)
    search.merge()
    search.sweeps(10, 1e-6 * n)


def compile_kernels(form: Any, X: Any, device: str) -> None:
    """Make a pass of every size of block and of group, and a short search."""
    rows = open_rows(form, X[:4096], device)
    rng = np.random.default_rng(0)
    for n_clusters in (2, 16):
        rows.place(rng.integers(n_clusters, size=rows.n_rows))
        for count in (1, 2, 4, 8, 16):
            weights = rng.normal(size=(n_clusters * count, form.n_totals))
            starts = count * np.arange(n_clusters + 1)
            groups, constants = np.arange(n_clusters), np.zeros(len(weights))
            rows.assign(Candidates(groups, starts, weights, constants))
    rows.place(None)
    search_all(form, rows, rows.n_rows, 2.0, time.perf_counter())


# -- data -------------------------------------------------------------------------------------


def rows_of_clusters(setting: Setting, n: int, dtype: Any, full: bool) -> tuple[Any, Any]:
    """Draw n rows of 100 planted clusters on the device; return them and their clusters."""
    mixture, device = planted(), torch.device(setting.device)
    source = torch.Generator(device).manual_seed(1)
    edges = torch.asarray(np.cumsum(mixture.weights), device=device)
    chance = torch.rand(n, generator=source, device=device, dtype=torch.float64)
    truth = torch.searchsorted(edges, chance).clamp_(max=K - 1)
    X = torch.randn((n, D), generator=source, device=device, dtype=dtype)
    if full:
        for k in range(K):
            inside = torch.nonzero(truth == k)[:, 0]
            X[inside] = X[inside] @ torch.asarray(mixture.factors[k], dtype=dtype, device=device)
    means = torch.asarray(mixture.means, dtype=dtype, device=device)
    for a in range(0, n, 1 << 24):
        X[a : a + (1 << 24)] += means[truth[a : a + (1 << 24)]]
    return X, truth


def documents(setting: Setting, n: int, width: int, topics: int) -> tuple[Any, Any]:
    """Draw n documents of 100 words; return counts (CSR of SciPy) and the topic of each."""
    rng, device = np.random.default_rng(0), torch.device(setting.device)
    words = torch.asarray(rng.dirichlet(np.full(width, 0.05), topics).cumsum(axis=1), device=device)
    source = torch.Generator(device).manual_seed(2)
    truth = torch.randint(topics, (n,), generator=source, device=device)
    keys = []
    for k in range(topics):
        inside = torch.nonzero(truth == k)
        chance = torch.rand((len(inside), 100), generator=source, device=device).double()
        drawn = torch.searchsorted(words[k], chance).clamp_(max=width - 1)
        keys.append((inside * width + drawn).reshape(-1))
    places, counts = torch.unique(torch.cat(keys), return_counts=True)
    places, counts = places.cpu().numpy(), counts.cpu().numpy().astype(np.float32)
    starts = np.searchsorted(places, width * np.arange(n + 1))
    return sp.csr_matrix((counts, places % width, starts), shape=(n, width)), truth


def agreement(truth: Any, labels: Any) -> float:
    """Return the adjusted Rand index of two partitions on the same device."""
    labels = labels.to(truth.device)
    width = int(labels.max()) + 1
    table = torch.bincount(truth * width + labels, minlength=(int(truth.max()) + 1) * width)
    table = table.reshape(-1, width).double().cpu()

    def pairs(counts: Any) -> float:
        return float((counts * (counts - 1.0) / 2.0).sum())

    both, rows, columns = pairs(table), pairs(table.sum(dim=1)), pairs(table.sum(dim=0))
    expected = rows * columns / pairs(table.sum())
    return (both - expected) / (0.5 * (rows + columns) - expected)


class Piece(NamedTuple):
    X: Any

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    def load(self) -> Any:
        return self.X


# -- cases ------------------------------------------------------------------------------------


def fit_planted(setting: Setting, n: int, dtype: Any, full: bool, limit: float) -> Figures:
    family = families.FullGaussian(0.0, 0.1) if full else families.Gaussian(0.0, 16.0, 1.0)
    form, out = family.linear(D), []
    X, truth = rows_of_clusters(setting, setting.rows(n), dtype, full)
    compile_kernels(form, X, setting.device)
    for way in ("one cluster", "a sample"):
        setting.wait()
        begun = time.perf_counter()
        rows = open_rows(form, X)
        if way == "a sample":
            run, ended = search_from_sample(form, rows, X, limit, begun)
        else:
            run, ended = search_all(form, rows, len(X), limit, begun)
        labels = rows.labels()
        setting.wait()
        out.append(
            {
                "data": f"{len(X):,} × {D} {'full' if full else 'isotropic'}",
                "precision": str(dtype).removeprefix("torch."),
                "from": way,
                "seconds": time.perf_counter() - begun,
                "within 1e-6 after": run.settled(),
                "ended": ended,
                "clusters": run.search.n_clusters,
                "ARI": agreement(truth, labels),
            }
        )
        print(out[-1], flush=True)
        del rows, labels, run
    return out


def million(setting: Setting) -> Figures:
    kinds = (torch.float32, torch.float64)
    return [f for dtype in kinds for f in fit_planted(setting, 10**6, dtype, True, 20.0)]


def ten_million(setting: Setting) -> Figures:
    kinds = (torch.float32, torch.float64)
    return [f for dtype in kinds for f in fit_planted(setting, 10**7, dtype, True, 40.0)]


def hundred_million(setting: Setting) -> Figures:
    return fit_planted(setting, 10**8, torch.float32, False, 60.0)


def estimator(setting: Setting) -> Figures:
    """Time the whole call `DPMixture(device=…).fit(X)` for rows on the device."""
    out = []
    for n in (10**6, 10**7):
        X, truth = rows_of_clusters(setting, setting.rows(n), torch.float32, True)
        for family, name in (
            (families.FullGaussian(0.0, 0.1), "given"),
            ("full_gaussian", "named"),
        ):
            for compiled in (False, True):
                setting.wait()
                begun = time.perf_counter()
                model = DPMixture(family, 1.0, device=setting.device, level="components").fit(X)
                setting.wait()
                seconds = time.perf_counter() - begun
                if compiled or n > 10**6:
                    break
            out.append(
                {
                    "rows": len(X),
                    "family": name,
                    "seconds": seconds,
                    "components": model.n_components_,
                    "ARI": agreement(truth, model.labels_),
                    "labels": str(model.labels_.device),
                }
            )
            print(out[-1], flush=True)
    return out


def timed(
    setting: Setting, X: Any, family: Any, base: float, at: list[float], start: Start | None = None
) -> Figures:
    """Search until the last of several times; return what was reached at each."""
    form = family.linear(X.shape[1])
    compile_kernels(form, X, setting.device)
    setting.wait()
    begun = time.perf_counter()
    rows = Counted(open_rows(form, X, setting.device))
    run, ended = search_all(form, rows, X.shape[0], at[-1], begun, start)
    last = {"seconds": run.points[-1].seconds, "ended": ended, "passes": rows.n_passes}
    return [
        *(
            {"seconds": t, "log joint": run.reached(t, base), "clusters": run.clusters(t)}
            for t in at
        ),
        last,
        shares(setting, form, X, at[1], start),
    ]


def mnist(setting: Setting) -> Figures:
    if setting.data is None:
        X = datasets.whitened(datasets.mnist_digits().images)
    else:
        with np.load(setting.data / "mnist_train.npz") as z:
            X = datasets.whitened(z["images"])
    family = families.Gaussian(0.0, 0.1, 1.0)
    base = float(family.log_base(X).sum())
    return timed(setting, X.astype(np.float32), family, base, [1.0, 3.0, 10.0, 20.0])


def flights(setting: Setting) -> Figures:
    if setting.data is None:
        return []
    X, family, known = some_flights(setting.data)
    form, base = family.linear(X.shape[1]), float(family.log_base(X).sum())
    run = Run(form, open_rows(form, X), len(X), 1.0, 0.0)
    run.search.begin(1)
    first = {"one cluster": run.search.log_joint + base, "known": known}
    print(first, flush=True)
    at = [2.0, 5.0, 10.0, 20.0]
    return [first, *timed(setting, X, family, base, at)]


def newsgroups(setting: Setting) -> Figures:
    if setting.data is None:
        return []
    with np.load(setting.data / "news20_bydate.npz") as z:
        parts = z["data"].astype(np.float64), z["indices"].astype(int), z["indptr"]
        X = sp.csr_matrix(parts, shape=tuple(z["shape"]))
    family = families.Multinomial(0.1)
    X = X[np.diff(X.indptr) > 0]
    problem = Problem(X, family, priors.DirichletProcess(1.0))

    def start() -> Totals:
        """Start as `DPMixture` does, by greedy search of a sample, here of all documents."""
        return clusters_of_sample(problem, np.random.default_rng(0))

    start()  # compiles
    base = float(family.log_base(X).sum())
    return timed(setting, X, family, base, [2.0, 5.0, 10.0, 20.0], start)


def million_documents(setting: Setting) -> Figures:
    width, topics = (20_000, 50) if not setting.quick else (500, 5)
    X, truth = documents(setting, setting.rows(10**6), width, topics)
    form = families.Multinomial(0.1).linear(width)
    compile_kernels(form, X, setting.device)
    rows = open_rows(form, X, setting.device)
    setting.wait()
    begun = time.perf_counter()
    run, ended = search_all(form, rows, X.shape[0], 120.0, begun)
    labels = rows.labels()
    setting.wait()
    return [
        {
            "documents": X.shape[0],
            "entries": X.nnz,
            "seconds": time.perf_counter() - begun,
            "within 1e-6 after": run.settled(),
            "ended": ended,
            "clusters": run.search.n_clusters,
            "ARI": agreement(truth, labels),
        }
    ]


def peak(setting: Setting) -> Figures:
    """Compare the times of single passes with a copy and a matrix product of the same precision."""
    out: Figures = []
    for dtype in (torch.float32, torch.float64):
        size = 8192 if not setting.quick else 512
        flops, bandwidth = rates(setting, size, dtype)
        for full in (True, False):
            family = families.FullGaussian(0.0, 0.1) if full else families.Gaussian(0.0, 16.0, 1.0)
            form = family.linear(D)
            X, truth = rows_of_clusters(setting, setting.rows(10**7), dtype, full)
            rows = open_rows(form, X)
            rows.place(truth)
            run = Run(form, rows, len(X), 1e9, 0.0)
            run.search.begin(K)
            out += list(passes(setting, run, rows, flops, bandwidth))
            del X, truth, rows, run
    return out


def rates(setting: Setting, size: int, dtype: Any) -> tuple[float, float]:
    """Return the operations and the bytes a second of a matrix product and of a copy."""
    square = torch.randn((size, size), dtype=dtype, device=setting.device)
    large = torch.zeros(setting.rows(1 << 30), device=setting.device)
    room = torch.empty_like(large)
    flops = 2.0 * size**3 / clock(setting, lambda: square @ square)
    return flops, 2.0 * large.nbytes / clock(setting, lambda: room.copy_(large))


def passes(
    setting: Setting, run: Run, rows: Any, flops: float, bandwidth: float
) -> Iterator[dict[str, Any]]:
    n, width = rows.n_rows, rows.form.n_totals
    weights, constants = map(to_host, run.search.scores(run.search.totals))
    n_clusters = len(constants)
    two = np.repeat(np.arange(n_clusters), 2)
    rng = np.random.default_rng(0)
    near = weights[two] * (1.0 + 0.01 * rng.normal(size=(len(two), width)))
    kinds = {
        f"all rows, {n_clusters} clusters": Candidates(
            np.zeros(n_clusters, np.int64), np.array([0, n_clusters]), weights, constants
        ),
        f"{n_clusters} groups of 2": Candidates(
            np.arange(n_clusters), 2 * np.arange(n_clusters + 1), near, constants[two]
        ),
    }
    kernels, narrow = rows.fused, dense_rows._NARROW
    for name, candidates in kinds.items():
        count = n_clusters if "all" in name else 2
        bytes_needed = n * (width * rows.X.element_size() + 8.0)
        work = n * width * (2.0 * count + 1.0)
        ways = {"generic": (None, narrow), "as chosen": (kernels, narrow)}
        if kernels is not None:
            ways |= {"fused, any width": (kernels, 10**9)}
        for way, (rows.fused, dense_rows._NARROW) in ways.items():
            seconds = clock(setting, lambda c=candidates: rows.assign(c))
            floor = max(bytes_needed / bandwidth, work / flops)
            yield {
                "pass": name,
                "features": width,
                "precision": str(rows.dtype).removeprefix("torch."),
                "method": way,
                "milliseconds": 1e3 * seconds,
                "GB/s": bytes_needed / seconds / 1e9,
                "of copy": bytes_needed / seconds / bandwidth,
                "TFLOP/s": work / seconds / 1e12,
                "of product": work / seconds / flops,
                "of the floor": floor / seconds,
            }
        rows.fused, dense_rows._NARROW = kernels, narrow
    counts = np.full(n_clusters, 2)
    for name, step in {
        "draw": lambda: rows.draw(counts, 1),
        "decide": lambda: rows.decide(np.empty(0, np.int64), np.arange(n_clusters)),
        "sort": lambda: (rows._forget(), rows._by_cluster(n_clusters)),
        "totals": lambda: rows.totals(n_clusters),
    }.items():
        precision = str(rows.dtype).removeprefix("torch.")
        milliseconds = 1e3 * clock(setting, step)
        yield {
            "pass": name,
            "features": width,
            "precision": precision,
            "milliseconds": milliseconds,
        }


def clock(setting: Setting, work: Callable[[], Any]) -> float:
    """Return the median time of a piece of work."""
    times = []
    for number in range(13):
        setting.wait()
        begun = time.perf_counter()
        work()
        setting.wait()
        if number > 2:
            times.append(time.perf_counter() - begun)
    return float(np.median(times))


def agrees(setting: Setting) -> Figures:
    """Compare the same search by threads and on the device."""
    n, out = setting.rows(10**5), []
    for full in (True, False):
        family = families.FullGaussian(0.0, 0.1) if full else families.Gaussian(0.0, 16.0, 1.0)
        form = family.linear(D)
        X, _ = rows_of_clusters(setting, n, torch.float64, full)
        here = np.asarray(X.cpu())
        threads = ThreadedRows(form, [Piece(part) for part in np.array_split(here, 16)], 8)
        expected = Run(form, threads, n, 200.0, time.perf_counter())
        expected.search.begin(1)
        expected.to_the_end(lambda e=expected: settle(e.search, n, 6))
        theirs = torch.asarray(threads.labels(), device=X.device)
        for dtype in (torch.float64, torch.float32):
            rows = open_rows(form, X.to(dtype))
            run = Run(form, rows, n, 200.0, time.perf_counter())
            run.search.begin(1)
            run.to_the_end(lambda r=run: settle(r.search, n, 6))
            ours, known = run.search.log_joint, expected.search.log_joint
            out.append(
                {
                    "family": family.name,
                    "precision": str(dtype).removeprefix("torch."),
                    "relative difference": abs(ours - known) / abs(known),
                    "ARI with the processor": agreement(theirs, rows.labels()),
                    "seconds": run.points[-1].seconds,
                    "seconds on the processor": expected.points[-1].seconds,
                }
            )
    return out


CASES: dict[str, Callable[[Setting], Figures]] = {
    "agrees": agrees,
    "peak": peak,
    "million": million,
    "ten_million": ten_million,
    "hundred_million": hundred_million,
    "estimator": estimator,
    "mnist": mnist,
    "flights": flights,
    "newsgroups": newsgroups,
    "million_documents": million_documents,
}
TITLES = {
    "agrees": "The same search on the processor and on the GPU (100,000 × 20, 100 clusters)",
    "peak": "Single passes over 10,000,000 × 20, against a copy and a matrix product",
    "million": "A million rows, full covariance",
    "ten_million": "Ten million rows, full covariance (goal: 3 s)",
    "hundred_million": "A hundred million rows, isotropic (goal: 20 s)",
    "estimator": "`DPMixture(device=…)`, from an array on the GPU to its labels there",
    "mnist": "MNIST, 60,000 × 50, isotropic (goal: −3,947,800 in 3 s)",
    "flights": "300,000 flights, full covariance (goal: −404,526 in 5 s)",
    "newsgroups": "20 newsgroups, from greedy search",
    "million_documents": "A million documents of 100 words out of 20,000",
}


def page(work: Path) -> Iterator[str]:
    about = json.loads((work / "about.json").read_text(encoding="utf-8"))
    yield "# On a GPU"
    yield ""
    yield (
        f"Written by `python -m benchmarks.gpu` on {about['device']}, PyTorch {about['torch']}."
        " Times are wall-clock seconds from data on the GPU to labels there, with kernels compiled."
        " “Within 1e-6 after” is the time after which the log joint was within a millionth of its"
        " final value. “Of the floor” is the fraction of the time that would be needed at least to"
        " move the features once, or for the products alone, at the rates of a copy and a matrix"
        " product measured in the same run."
    )
    for name, title in TITLES.items():
        file = work / f"{name}.json"
        figures = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
        if not figures:
            continue
        yield from ("", f"## {title}")
        keys: tuple[str, ...] = ()
        for one in figures:
            if tuple(one) != keys:
                keys = tuple(one)
                yield from ("", f"| {' | '.join(keys)} |", f"|{' --- |' * len(keys)}")
            yield f"| {' | '.join(shown(value) for value in one.values())} |"


def shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="where figures are kept")
    parser.add_argument("--cases", nargs="*", choices=CASES, help="none: only the page")
    parser.add_argument("--data", type=Path, default=os.environ.get("DPSEARCH_DATA"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    setting = Setting(given.device, given.quick, given.data)
    given.work.mkdir(parents=True, exist_ok=True)
    for name in CASES if given.cases is None else given.cases:
        begun = time.perf_counter()
        figures = CASES[name](setting)
        for one in figures:
            print(name, {k: shown(v) for k, v in one.items()}, flush=True)
        print(f"{name}: {time.perf_counter() - begun:.1f} s in all", flush=True)
        (given.work / f"{name}.json").write_text(json.dumps(figures), encoding="utf-8")
        device = torch.cuda.get_device_name() if given.device == "cuda" else "a CPU"
        about = {"device": device, "torch": torch.__version__}
        (given.work / "about.json").write_text(json.dumps(about), encoding="utf-8")
    if given.out:
        given.out.write_text("\n".join(page(given.work)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
