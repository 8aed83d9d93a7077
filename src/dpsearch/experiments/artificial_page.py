"""The page of section 4.1: four panels for each prior, and the paper's findings beside ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from dpsearch.experiments import artificial
from dpsearch.experiments.artificial import METHODS, SEARCHES, Record, Settings
from dpsearch.experiments.report import Report, joined, machine, short
from dpsearch.plots import COLOURS

PRIOR_WORDS = {"paper": "the paper's prior, P(m)", "true": "the true prior, p(c)"}
# The same colour for the two forms of a search: full, and with a queue of 10 (dashed).
_COLOURS = {
    "trivial": COLOURS[1],
    "tighter": COLOURS[3],
    "admissible": COLOURS[2],
    "inadmissible": COLOURS[0],
    "Gibbs": COLOURS[6],
    "split-merge": COLOURS[5],
}
_MARKERS = {
    "trivial": "o", "tighter": "s", "admissible": "D", "inadmissible": "^", "Gibbs": "x",
    "split-merge": "+",
}  # fmt: skip

Rows = list[Record]


def write(records: Rows, settings: Settings, report: Report, n_jobs: int) -> None:
    lines = [
        *_about(settings, n_jobs),
        *_findings(records, report),
        *_what_changes(records),
    ]
    for dimension in settings.dimensions:
        lines += ["", f"## In {_dimensions(dimension)}", ""]
        words = f"four panels for each prior, data in {_dimensions(dimension)}"
        figure = _panels([r for r in records if r.dimension == dimension])
        lines += report.figure(f"artificial_{dimension}d", figure, words)
        for prior in artificial.PRIORS:
            own = [r for r in records if r.dimension == dimension and r.prior == prior]
            lines += [f"### {PRIOR_WORDS[prior][0].upper()}{PRIOR_WORDS[prior][1:]}", ""]
            lines += _tables(own, settings, report, f"{dimension}d_{prior}")
    headers = list(Record._fields)
    report.table("artificial_all", headers, [list(record) for record in records])
    lines += ["Every method on every set: [CSV](tables/artificial_all.csv)."]
    report.page("artificial", "Artificial data (section 4.1)", lines)


def _dimensions(dimension: int) -> str:
    return "one dimension" if dimension == 1 else f"{dimension} dimensions"


def _about(settings: Settings, n_jobs: int) -> list[str]:
    runs = settings.runs_per_start
    quick = settings != Settings(seed=settings.seed)
    return [
        *(["**A quick run:** fewer sets and sizes, shorter searches and chains.", ""] * quick),
        f"Sets of N = {joined([str(n) for n in settings.sizes])} points, {settings.n_sets} of each"
        f" size in {joined([_dimensions(d) for d in settings.dimensions])}, drawn from the"
        f" Gaussian Dirichlet process mixture with prior mean 0, prior variance"
        f" {artificial.PRIOR_VARIANCE:g}, noise variance {artificial.NOISE_VARIANCE:g} and α ="
        f" {artificial.ALPHA:g} (seed {settings.seed}). The paper leaves the dimension, the noise"
        " and α unsaid.",
        "",
        "- Searches: *trivial*, *tighter* (the paper's scaled replicas, which are not admissible),"
        " *admissible* (our bound that is; it needs the true prior) and *inadmissible*, each in"
        f" full and with a queue of {artificial.QUEUE}, in ascending order of marginal likelihood."
        f" A full search is stopped at {settings.max_states:,} states and then completed greedily;"
        " sizes at which some searches were stopped have hollow marks in the figures, sizes at"
        " which all were have none.",
        f"- Samplers: {3 * runs} runs of {settings.sweeps:,} iterations, {runs} from one cluster,"
        f" {runs} from N, {runs} from log N random ones; the best state of the best run, and the"
        " time that this run took to get there. One iteration of split-merge (the third variant)"
        " is a proposal and a Gibbs sweep. Samplers draw from the true posterior; in the panels"
        " of the paper's prior their states are judged by that.",
        "- The optimum: by enumeration up to 15 points; beyond, by certificate under the true"
        " prior, and under the paper's by going through all contiguous partitions in one"
        " dimension; in more dimensions it is not proved, and the best found by any method takes"
        " its place.",
        "- f-score: harmonic mean of pairwise precision and recall against the true clusters.",
        f"- {machine(n_jobs)}. What takes under 0.05 s is timed three times.",
        "",
    ]  # fmt: skip


# -- findings ----------------------------------------------------------------------------------


def _share(rows: Rows, condition: Callable[[Record], bool]) -> str:
    return f"{sum(map(condition, rows))} of {len(rows)}"


def _of(records: Rows, prior: str, method: str) -> Rows:
    return [r for r in records if r.prior == prior and r.method == method]


def _optimal(rows: Rows) -> str:
    ratio = np.mean([r.ratio for r in rows])
    return f"optimal in {_share(rows, lambda r: r.is_optimal)} sets, mean ratio {ratio:.4f}"


def _cells(records: Rows, prior: str, value: Callable[[Record], float]) -> list[dict[str, float]]:
    """For each dimension and size, the mean of each method that was not stopped in all sets."""
    out = []
    groups = sorted({(r.dimension, r.size) for r in records})
    for dimension, size in groups:
        cell = {}
        for method in METHODS:
            rows = [
                r for r in _of(records, prior, method) if (r.dimension, r.size) == (dimension, size)
            ]
            if rows and not all(r.stopped for r in rows):
                cell[method] = float(np.mean([value(r) for r in rows]))
        out.append(cell)
    return out


def _least(cells: list[dict[str, float]], methods: list[str]) -> str:
    """In how many cells one of the methods has the least, or shares it; what has it elsewhere."""
    others: Counter[str] = Counter()
    for cell in cells:
        first = min(cell, key=lambda m: cell[m])
        shared = any(cell.get(m, np.inf) <= cell[first] for m in methods)
        others[methods[0] if shared else first] += 1
    count = others.pop(methods[0], 0)
    said = f"one of the two in {count} of {len(cells)} (sizes and dimensions)"
    if others:
        said += "; elsewhere " + joined([f"{name} ({n})" for name, n in others.most_common()])
    return said


def _intractable(records: Rows, prior: str, method: str) -> str:
    rows = _of(records, prior, method)
    stopped = sorted({r.size for r in rows if r.stopped})
    largest = max((r.size for r in rows if not r.stopped), default=0)
    seconds = np.mean([r.seconds for r in rows if r.size == largest]) if largest else 0.0
    if not stopped:
        return f"never stopped; N = {largest} takes {short(float(seconds))} s"
    counts = _share([r for r in rows if r.size == stopped[0]], lambda r: r.stopped)
    return f"first stopped at N = {stopped[0]} ({counts} sets)"


def _findings(records: Rows, report: Report) -> list[str]:
    both = ["inadmissible", "inadmissible, queue 10"]

    def row(finding: str, ours: Callable[[str], str]) -> list[str]:
        return [finding, *(ours(prior) for prior in artificial.PRIORS)]

    def capped(prior: str) -> str:
        return "; ".join(
            f"{m}: {_optimal(_of(records, prior, m))}"
            for m in ("trivial, queue 10", "tighter, queue 10", "admissible, queue 10")
            if _of(records, prior, m)
        )

    def finished(prior: str) -> str:
        said = []
        for method in ("trivial", "tighter", "admissible"):
            rows = [r for r in _of(records, prior, method) if not r.stopped]
            if rows:
                share = _share(rows, lambda r: r.is_optimal)
                said.append(f"{method}: optimal in {share} that were not stopped")
        return "; ".join(said)

    rows = [
        row(
            "both inadmissible searches are optimal",
            lambda p: "; ".join(
                f"{words}: {_optimal(_of(records, p, method))}"
                for words, method in zip(("full", "queue 10"), both, strict=True)
            ),
        ),
        row("admissible searches find the optimum", finished),
        row("the capped admissible searches do worse", capped),
        row(
            "Gibbs never reaches the optimum, except on the smallest sets",
            lambda p: _optimal(_of(records, p, "Gibbs")),
        ),
        row("split-merge is variable", lambda p: _optimal(_of(records, p, "split-merge"))),
        row(
            "trivial search is intractable beyond 10–15 points",
            lambda p: _intractable(records, p, "trivial"),
        ),
        row("tighter search grows fast too", lambda p: _intractable(records, p, "tighter")),
        row(
            "inadmissible search is always the fastest",
            lambda p: _least(_cells(records, p, _seconds), both),
        ),
        row(
            "inadmissible search always has the best f-score",
            lambda p: _least(_cells(records, p, lambda r: -r.f_score), both),
        ),
        row(
            "inadmissible search enqueues by far the fewest states",
            lambda p: _least(_cells_of_searches(records, p), both),
        ),
        row(
            "it dequeues between N and N + 5",
            lambda p: (
                f"in {_share(_of(records, p, 'inadmissible'), _few_dequeued)} sets (in full)"
            ),
        ),
    ]  # fmt: skip
    headers = ["the paper finds", *(f"here, with {PRIOR_WORDS[p]}" for p in artificial.PRIORS)]
    lines = ["## The paper's findings, and ours", ""]
    lines += report.table("artificial_findings", headers, rows)
    unproved = [r for r in records if not r.proof and r.method == "inadmissible"]
    if unproved:
        sizes = joined([str(n) for n in sorted({r.size for r in unproved})])
        words = joined([PRIOR_WORDS[p] for p in sorted({r.prior for r in unproved})])
        lines += [
            f"The optimum is not proved for {len(unproved)} sets (N = {sizes}, {words}): there"
            " \"optimal\" means that no method found better.",
            "",
        ]  # fmt: skip
    return [*lines, *_where_worse(records), ""]


def _seconds(record: Record) -> float:
    return record.seconds


def _few_dequeued(record: Record) -> bool:
    return record.size <= record.dequeued <= record.size + 5


def _cells_of_searches(records: Rows, prior: str) -> list[dict[str, float]]:
    searches = [r for r in records if r.method in SEARCHES]
    return _cells(searches, prior, lambda r: r.enqueued)


def _where_worse(records: Rows) -> list[str]:
    """Say where what the paper found does not hold here, and why."""
    lines = []
    for prior, words in PRIOR_WORDS.items():
        rows = _of(records, prior, "inadmissible")
        missed = [r for r in rows if not r.is_optimal]
        if missed:
            worst = max(missed, key=lambda r: r.value - r.optimum)
            lines.append(
                f"- **Worse than the paper says**, with {words}: full inadmissible search is not"
                f" optimal in {len(missed)} of {len(rows)} sets; at worst it is"
                f" {worst.value - worst.optimum:.2f} nats above the optimum (N = {worst.size},"
                f" {_dimensions(worst.dimension)}). Its score takes every unplaced point as a"
                " cluster of its own, so an early choice that only later points make good is"
                " dropped. The paper does not say how its optimum was found at sizes that its"
                " own full searches could not finish; ours is proved or searched for by more"
                " methods."
            )
        gibbs = _of(records, prior, "Gibbs")
        good = sum(r.is_optimal for r in gibbs)
        if good > 0.1 * len(gibbs):
            lines.append(
                f"- The paper's Gibbs sampler never reached the optimum but on the smallest sets;"
                f" ours does in {good} of {len(gibbs)} sets with {words}. Several runs from three"
                " kinds of start on so few points visit the best partition sooner or later. Why"
                " the paper's did not cannot be told from it; if it judged states of the true"
                " posterior by P(m), the best of them were rare visits."
            )
    return ["### Where ours differs", "", *lines] if lines else []


def _what_changes(records: Rows) -> list[str]:
    numbers = {}
    for prior in artificial.PRIORS:
        rows = _of(records, prior, "inadmissible")
        numbers[prior] = (
            float(np.mean([r.n_clusters for r in rows])),
            float(np.mean([r.f_score for r in rows])),
            _share(rows, lambda r: r.is_optimal),
            float(np.mean([r.n_clusters > r.true_clusters for r in rows])),
        )
    true_clusters = np.mean([r.true_clusters for r in _of(records, "true", "inadmissible")])
    paper, true = numbers["paper"], numbers["true"]
    better = "better" if true[1] > paper[1] else "worse"
    return [
        "## What changes with the true prior",
        "",
        "The paper's P(m) is the probability of a vector of cluster sizes, not of a partition: it"
        " adds up all partitions of that shape, and so hardly penalises splitting. On these sets"
        f" full inadmissible search finds {paper[0]:.2f} clusters on average with P(m) and"
        f" {true[0]:.2f} with p(c); the truth has {true_clusters:.2f}. It finds more clusters than"
        f" there are in {paper[3]:.0%} of the sets with P(m) and in {true[3]:.0%} with p(c). The"
        f" mean f-score against the truth is {paper[1]:.3f} with P(m) and {true[1]:.3f} with p(c),"
        f" which is {better}. It is optimal in {paper[2]} sets with P(m), in {true[2]} with p(c)."
        " Only with p(c) can a bound on prior and likelihood together be had (*admissible*), and"
        " a proof of optimality in the plane at any of these sizes.",
        "",
    ]


# -- tables ------------------------------------------------------------------------------------

_QUANTITIES: dict[str, tuple[str, Callable[[Record], float], Callable[[float], str]]] = {
    "ratio": ("Negative log joint, as a ratio to the optimum", lambda r: r.ratio, "{:.4f}".format),
    "seconds": ("Seconds", _seconds, short),
    "f_score": ("f-score", lambda r: r.f_score, "{:.3f}".format),
    "enqueued": ("States enqueued", lambda r: r.enqueued, "{:,.0f}".format),
}  # fmt: skip


def _tables(rows: Rows, settings: Settings, report: Report, name: str) -> list[str]:
    """Means by method and size; * where some searches were stopped, ** where all were."""
    lines = []
    for quantity, (words, value, form) in _QUANTITIES.items():
        methods = [m for m in METHODS if any(r.method == m for r in rows)]
        if quantity == "enqueued":
            methods = [m for m in methods if m in SEARCHES]
        table = []
        for method in methods:
            cells = []
            for size in settings.sizes:
                cell = [r for r in rows if r.method == method and r.size == size]
                stopped = sum(r.stopped for r in cell)
                mark = "" if not stopped else "\\*\\*" if stopped == len(cell) else "\\*"
                cells.append(form(float(np.mean([value(r) for r in cell]))) + mark)
            table.append([method, *cells])
        headers = ["", *(f"N = {n}" for n in settings.sizes)]
        body = report.table(f"artificial_{name}_{quantity}", headers, table)
        lines += [f"<details><summary>{words}, mean over sets</summary>", "", *body, "</details>"]
        lines += [""]
    return lines


# -- the figure --------------------------------------------------------------------------------


def _panels(records: Rows) -> Any:
    """The paper's four panels, side by side for both priors."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(17.0, 8.6), layout="constrained")
    halves: Any = figure.subfigures(1, 2, wspace=0.03)
    handles: dict[str, Any] = {}
    limits: dict[int, list[tuple[float, float]]] = {}
    drawn = []
    for half, prior in zip(halves, artificial.PRIORS, strict=True):
        half.suptitle(f"With {PRIOR_WORDS[prior]}", fontsize=14)
        axes = half.subplots(2, 2)
        own = [r for r in records if r.prior == prior]
        for at, quantity in enumerate(("ratio", "seconds", "f_score", "enqueued")):
            axis = axes.flat[at]
            handles.update(_panel(axis, own, quantity))
            limits.setdefault(at, []).append(axis.get_ylim())
            drawn.append((at, axis))
    for at, axis in drawn:  # the same scale for both priors
        axis.set_ylim(min(low for low, _ in limits[at]), max(high for _, high in limits[at]))
    ordered = [method for method in METHODS if method in handles]
    figure.legend(
        [handles[m] for m in ordered], ordered, loc="outside lower center", ncols=5, frameon=False,
        fontsize=11, handlelength=3.2,
    )  # fmt: skip
    return figure


def _panel(axis: Any, rows: Rows, quantity: str) -> dict[str, Any]:
    words, value, _ = _QUANTITIES[quantity]
    handles = {}
    sizes = sorted({r.size for r in rows})
    for method in METHODS:
        kind = method.split(",")[0]
        capped = "queue" in method
        x, y, hollow = [], [], []
        for size in sizes:
            cell = [r for r in rows if r.method == method and r.size == size]
            if not cell or all(r.stopped for r in cell):
                continue
            if quantity == "enqueued" and method not in SEARCHES:
                continue
            x.append(size)
            y.append(float(np.mean([value(r) for r in cell])))
            hollow.append(any(r.stopped for r in cell))
        if not x:
            continue
        style = {"color": _COLOURS[kind], "marker": _MARKERS[kind], "markersize": 5.5}
        (line,) = axis.plot(
            x, y, linestyle="--" if capped else "-", linewidth=1.6, alpha=0.9, **style
        )
        if any(hollow):
            axis.plot(
                np.array(x)[hollow], np.array(y)[hollow], linestyle="", markerfacecolor="white",
                zorder=3, **style,
            )  # fmt: skip
        handles[method] = line
    axis.set_xscale("log")
    ticks = [n for n in sizes if n not in (11, 13, 14)]
    axis.set_xticks(ticks, [str(n) for n in ticks])
    axis.minorticks_off()
    if quantity in ("seconds", "enqueued"):
        axis.set_yscale("log")
    axis.set_xlabel("points in the set, N")
    axis.set_title(words, fontsize=11)
    axis.grid(axis="y", color="0.9", linewidth=0.7)
    axis.spines[["top", "right"]].set_visible(False)
    return handles
