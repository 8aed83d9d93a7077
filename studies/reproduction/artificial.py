"""Section 4.1: searches and samplers on draws from the model itself.

A unit of work is one data set: six searches (eight, with our admissible score) under each prior,
two samplers, and the optimum to compare them with.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from dpsearch import datasets, families
from dpsearch._types import Labels
from dpsearch.partition import by_size
from dpsearch.prefix_search.best_first import Outcome, best_first
from dpsearch.prefix_search.ordering import placing_order
from dpsearch.prefix_search.search import HEURISTICS
from dpsearch.problem import Problem
from studies.reproduction.cache import Cache, Result
from studies.reproduction.chains import MOVES, best_of_runs
from studies.reproduction.optimum import optimum
from studies.reproduction.pair_scores import pair_scores
from studies.reproduction.study import ALPHA, PRIORS, problems_of
from studies.reproduction.work import Tell, whole_or_nothing

PRIOR_VARIANCE, NOISE_VARIANCE = 10.0, 1.0
FAMILY = families.Gaussian(0.0, PRIOR_VARIANCE, NOISE_VARIANCE)
QUEUE = 10
# Method → heuristic and cap on the queue.  Our admissible score needs a prior of product form.
SEARCHES: dict[str, tuple[str, int | None]] = {
    "trivial": ("trivial", None),
    "tighter": ("replica", None),
    "admissible": ("admissible", None),
    "inadmissible": ("inadmissible", None),
    "trivial, queue 10": ("trivial", QUEUE),
    "tighter, queue 10": ("replica", QUEUE),
    "admissible, queue 10": ("admissible", QUEUE),
    "inadmissible, queue 10": ("inadmissible", QUEUE),
}
SAMPLERS = {"Gibbs": "gibbs", "split-merge": "split-merge"}
# Those that the paper tried and left out: run too, but not shown in the panels.
LEFT_OUT = {"split-merge, variant 1": "split-merge 1", "split-merge, variant 2": "split-merge 2"}
METHODS = (*SEARCHES, *SAMPLERS)
STARTS = ("one", "all", "log")
_SAME = 1e-6  # nats: a log joint this near to the optimum is the optimum
_BRIEF = 0.05  # seconds: what is shorter is timed three times


@dataclass(frozen=True)
class Settings:
    sizes: tuple[int, ...] = (4, 6, 8, 10, 11, 12, 13, 14, 15, 20, 25, 30, 50)
    dimensions: tuple[int, ...] = (1, 2)
    n_sets: int = 10
    runs_per_start: int = 5
    sweeps: int = 1000
    max_states: int = 1_000_000  # of a full search
    max_seconds: float = 5.0  # of processor time
    proof_seconds: float = 20.0
    seed: int = 0


QUICK = Settings(
    sizes=(4, 6, 8, 10, 12, 16), n_sets=2, runs_per_start=1, sweeps=200, max_states=100_000,
    max_seconds=1.0, proof_seconds=5.0,
)  # fmt: skip


class Record(NamedTuple):
    """The result of one method on one set under one prior."""

    dimension: int
    size: int
    number: int
    prior: str
    method: str
    value: float  # negative log joint
    optimum: float  # the smallest there is, or the smallest known
    proof: str  # of the optimum; "" if it is not proved
    seconds: float  # of processor time
    f_score: float
    n_clusters: int
    true_clusters: int
    enqueued: int  # 0 for samplers
    dequeued: int
    stopped: str  # "", or the limit that a full search was stopped at: "states" or "seconds"

    @property
    def ratio(self) -> float:
        return self.value / self.optimum

    @property
    def is_optimal(self) -> bool:
        return self.value <= self.optimum + _SAME


def run(settings: Settings, cache: Cache, n_jobs: int, tell: Tell) -> list[Record]:
    """Return the records of all sets, from the cache if they are there."""
    units = [
        {"dimension": d, "size": n, "number": s, **_relevant(settings)}
        for d in settings.dimensions
        for n in settings.sizes
        for s in range(settings.n_sets)
    ]
    missing = [unit for unit in units if cache.get("artificial", unit) is None]
    if missing:
        tell(f"artificial data: {len(missing)} of {len(units)} sets to do")
    for done, (unit, rows) in enumerate(_computed(missing, n_jobs), start=1):
        cache.put("artificial", unit, Result({"rows": rows}), n_jobs)
        if done % 20 == 0 or done == len(missing):
            tell(f"artificial data: {done} of {len(missing)} sets done")
    records = []
    for unit in units:
        result = cache.get("artificial", unit)
        if result is not None:
            records += [Record(**row) for row in result.values["rows"]]
    return records


def _relevant(settings: Settings) -> dict[str, Any]:
    """What the results of a set depend on, besides the set."""
    out = {**asdict(settings), "family": repr(FAMILY), "priors": repr(PRIORS), "alpha": ALPHA}
    out["methods"] = repr([SEARCHES, SAMPLERS, LEFT_OUT, STARTS, MOVES])
    for name in ("sizes", "dimensions", "n_sets"):
        del out[name]
    return out


def _computed(units: list[dict[str, Any]], n_jobs: int) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield units with their results as they are finished; large sets first."""
    units = sorted(units, key=lambda unit: -unit["size"])
    if n_jobs == 1 or len(units) < 2:
        _compile()
        for unit in units:
            yield unit, one_set(unit)
        return
    from joblib import Parallel, delayed

    # Processes, not threads: what takes microseconds is timed here.
    _compile()
    workers = Parallel(n_jobs, return_as="generator_unordered")
    yield from workers(delayed(_with_unit)(unit) for unit in units)


def _with_unit(unit: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    _compile()
    return unit, one_set(unit)


_compiled = False


def _compile() -> None:
    """Compile or load all kernels, once in each process, so that this is not timed."""
    global _compiled
    if not _compiled:
        brief = Settings(runs_per_start=1, sweeps=2, max_states=50, proof_seconds=2.0)
        for dimension, size in ((1, 5), (1, 17), (2, 17)):
            one_set({"dimension": dimension, "size": size, "number": 0, **_relevant(brief)})
    _compiled = True


def one_set(unit: dict[str, Any]) -> list[dict[str, Any]]:
    """Draw a data set and run every method on it."""
    with whole_or_nothing():
        return [record._asdict() for record in _records(unit)]


def _records(unit: dict[str, Any]) -> list[Record]:
    dimension, size, number = unit["dimension"], unit["size"], unit["number"]
    rng = np.random.default_rng([unit["seed"], dimension, size, number])
    draw = datasets.dirichlet_process_draw(
        size, dimension, alpha=ALPHA, prior_variance=PRIOR_VARIANCE,
        noise_variance=NOISE_VARIANCE, rng=rng,
    )  # fmt: skip
    problems = problems_of(draw.X, FAMILY)
    records: list[Record] = []
    found_best: dict[str, tuple[float, Labels]] = {}

    def record(prior: str, method: str, labels: Labels, seconds: float, **about: Any) -> None:
        value = problems[prior].log_joint(labels)
        if prior not in found_best or value > found_best[prior][0]:
            found_best[prior] = (value, labels)
        records.append(
            Record(
                dimension=dimension, size=size, number=number, prior=prior, method=method,
                value=-value, optimum=np.nan, proof="", seconds=seconds,
                f_score=pair_scores(draw.labels, labels).f_score,
                n_clusters=int(labels.max()) + 1, true_clusters=int(draw.labels.max()) + 1,
                **{"enqueued": 0, "dequeued": 0, "stopped": "", **about},
            )
        )  # fmt: skip

    for prior, problem in problems.items():
        for method in SEARCHES:
            if SEARCHES[method][0] == "admissible" and not problem.prior.product_form:
                continue
            found, seconds = _timed_search(problem, method, unit["max_states"], unit["max_seconds"])
            limit = "states" if found.n_enqueued >= unit["max_states"] else "seconds"
            record(
                prior, method, by_size(found.labels), seconds, enqueued=found.n_enqueued,
                dequeued=found.n_dequeued, stopped="" if found.complete else limit,
            )  # fmt: skip
    starts = [start for start in STARTS for _ in range(unit["runs_per_start"])]
    for method, sampler in {**SAMPLERS, **LEFT_OUT}.items():
        seed = int(rng.integers(2**31))
        best = best_of_runs(
            problems["true"], list(PRIORS.values()), sampler, starts, unit["sweeps"], seed
        )
        for prior, visited in zip(PRIORS, best, strict=True):
            record(prior, method, visited.labels, visited.seconds)
    out = []
    for prior, problem in problems.items():
        target = optimum(problem, found_best[prior][1], unit["proof_seconds"])
        own = [
            entry._replace(optimum=-target.log_joint, proof=target.proof)
            for entry in records
            if entry.prior == prior
        ]
        out += [_possible(entry) for entry in own]
    return out


def _possible(record: Record) -> Record:
    """Raise if a method exceeds a proved optimum by more than rounding, as one must be wrong."""
    if record.value < record.optimum - _SAME:
        raise RuntimeError(
            f"{record.method} found {record.value!r}, below the optimum {record.optimum!r} by"
            f" {record.proof or 'all methods'}: please report this bug with the whole record,"
            f" {record}"
        )
    return record


def _timed_search(
    problem: Problem, method: str, max_states: int, max_seconds: float
) -> tuple[Outcome, float]:
    """Run a search; take the median of three times if it is short."""
    heuristic, queue = SEARCHES[method]
    times: list[float] = []
    while not times or (len(times) < 3 and times[0] < _BRIEF):
        begun = time.thread_time()
        placing = placing_order(problem, "ascending", np.random.default_rng(0))
        found = best_first(
            problem, placing, HEURISTICS[heuristic](problem, placing), queue_size=queue,
            max_states=max_states, seconds=max_seconds,
        )  # fmt: skip
        times.append(time.thread_time() - begun)
    return found, float(np.median(times))
