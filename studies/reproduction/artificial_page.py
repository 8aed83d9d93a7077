"""The page of section 4.1: four panels for each prior, and the paper's findings next to ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpsearch.plots import COLOURS
from studies.reproduction import artificial
from studies.reproduction.artificial import METHODS, SEARCHES, Record, Settings
from studies.reproduction.artificial_claims import MEANINGS, Rows, claims, limits, of, share
from studies.reproduction.report import PRIOR_WORDS, Report, joined, short, where
from studies.reproduction.study import ALPHA, PRIORS

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


def write(records: Rows, settings: Settings, report: Report, ran: list[str]) -> None:
    lines = [
        *_about(settings),
        *where(ran),
        *_claims(records, report),
        *_stopped(records, settings, report),
        *_what_changes(records),
    ]
    for dimension in settings.dimensions:
        lines += ["", f"## In {_dimensions(dimension)}", ""]
        words = f"four panels for each prior, data in {_dimensions(dimension)}"
        figure = _panels([r for r in records if r.dimension == dimension])
        lines += report.figure(f"artificial_{dimension}d", figure, words)
        lines += [
            "Means over sets. Hollow marks in the figure and * in the tables: some searches of the"
            " size were stopped, and count as they were then. No mark in the figure and ** in the"
            " tables: all were stopped.",
            "",
        ]
        for prior in PRIORS:
            own = [r for r in records if r.dimension == dimension and r.prior == prior]
            lines += [f"### With {PRIOR_WORDS[prior]}", ""]
            lines += _tables(own, settings, report, f"{dimension}d_{prior}")
    headers = list(Record._fields)
    report.table("artificial_all", headers, [list(record) for record in records])
    lines += ["Every method on every set: [CSV](tables/artificial_all.csv)."]
    report.page("artificial", "Artificial data (section 4.1)", lines)


def _dimensions(dimension: int) -> str:
    return "one dimension" if dimension == 1 else f"{dimension} dimensions"


def _about(settings: Settings) -> list[str]:
    runs = settings.runs_per_start
    whole = Settings(seed=settings.seed, dimensions=settings.dimensions)
    return [
        *(["**A quick run:** fewer sets and sizes, shorter searches and chains.", ""]
          * (settings != whole)),
        f"Sets of N = {joined([str(n) for n in settings.sizes])} points, {settings.n_sets} of each"
        f" size in {joined([_dimensions(d) for d in settings.dimensions])}, are drawn from the"
        " Gaussian Dirichlet process mixture with prior mean 0, prior variance"
        f" {artificial.PRIOR_VARIANCE:g}, noise variance {artificial.NOISE_VARIANCE:g} and α ="
        f" {ALPHA:g} (seed {settings.seed}). The paper does not state the dimension, the noise or"
        " α.",
        "",
        "- The searches are *trivial*, *tighter* (the paper's scaled replicas, which are not"
        " admissible), *admissible* (our admissible bound, which needs the true prior) and"
        f" *inadmissible*, each in full and with a queue of {artificial.QUEUE}, in ascending order"
        f" of marginal likelihood. A search is stopped at {settings.max_states:,} states or after"
        f" {settings.max_seconds:g} s, whichever comes first, and is then completed greedily.",
        f"- Each sampler has {3 * runs} runs of {settings.sweeps:,} iterations, {runs} from one"
        f" cluster, {runs} from N clusters and {runs} from log N random clusters. The result is"
        " the best state of the best run, and the time that this run needs to reach it, measured"
        " by repeating the run up to that state. One iteration of split-merge (the third variant)"
        " is a proposal and a Gibbs sweep. Samplers draw from the true posterior; in the panels"
        " for the paper's prior their states are evaluated under that prior.",
        "- The optimum is found by enumeration for up to 15 points. For more points it is found"
        f" under the true prior by a certificate (within {settings.proof_seconds:g} s), and under"
        " the paper's prior in one dimension by trying all contiguous partitions. If that is not"
        " possible or does not finish, the best partition found by any method takes its place. A"
        " method that beat a proved optimum would stop the run with an error.",
        "- The f-score is the harmonic mean of pairwise precision and recall with respect to the"
        " true clusters.",
        "- Times are processor seconds in one thread, so that other work on the machine has little"
        " effect. Work that takes less than 0.05 s is timed three times, and the median counts.",
        "",
    ]  # fmt: skip


# -- findings ----------------------------------------------------------------------------------


def _claims(records: Rows, report: Report) -> list[str]:
    """Return the table of claims, with remarks where they do not hold."""
    by_prior = [claims([r for r in records if r.prior == prior]) for prior in PRIORS]
    table = [
        (said, [finding, other]) for (said, finding), (_, other) in zip(*by_prior, strict=True)
    ]
    lines = ["## The paper's claims", "", MEANINGS, ""]
    lines += report.claims("artificial_claims", table, [PRIOR_WORDS[p] for p in PRIORS])
    unproved = [r for r in records if not r.proof and r.method == "inadmissible"]
    if unproved:
        sizes = joined([str(n) for n in sorted({r.size for r in unproved})])
        words = joined([PRIOR_WORDS[p] for p in PRIORS if any(r.prior == p for r in unproved)])
        lines += [
            f"The optimum is not proved for {len(unproved)} sets (N = {sizes}, {words}): there"
            ' "optimal" means that no method found better.',
            "",
        ]
    return [*lines, *_where_worse(records), ""]


def _where_worse(records: Rows) -> list[str]:
    """Return where the paper's findings do not hold here, and why."""
    lines = []
    for prior, words in PRIOR_WORDS.items():
        rows = [r for r in records if r.prior == prior]
        own = of(rows, "inadmissible")
        missed = [r for r in own if not r.is_optimal]
        if missed:
            worst = max(missed, key=lambda r: r.value - r.optimum)
            lines.append(
                f"- **Worse than the paper says**, with {words}: full inadmissible search is not"
                f" optimal in {len(missed)} of {len(own)} sets; at worst it is"
                f" {worst.value - worst.optimum:.2f} nats above the optimum (N = {worst.size},"
                f" {_dimensions(worst.dimension)}). Its score takes every unplaced point as a"
                " cluster of its own, so a choice that only later points would justify can be"
                f" lost for good. {_others_that_find(rows, missed)}"
            )
        gibbs = of(rows, "Gibbs")
        good = [r for r in gibbs if r.is_optimal and r.size > min(g.size for g in gibbs)]
        if good:
            lines.append(
                f"- Beyond the smallest sets the paper's Gibbs sampler never reached the optimum;"
                f" ours does in {len(good)} sets with {words}. The paper does not say enough to"
                " explain why."
            )
    return ["### Where ours differs", "", *lines] if lines else []


def _others_that_find(rows: Rows, missed: Rows) -> str:
    """Return which methods find what inadmissible search misses."""
    sets = {(r.dimension, r.size, r.number) for r in missed}
    rows = [r for r in rows if (r.dimension, r.size, r.number) in sets]
    counts = {method: sum(r.is_optimal for r in of(rows, method)) for method in METHODS}
    best = max(counts, key=lambda m: counts[m])
    if not counts[best]:
        return "No other method here finds the optimum of these sets either."
    name = best[0].upper() + best[1:]
    return f"{name} finds the optimum of {counts[best]} of them, and no method finds more."


def _stopped(records: Rows, settings: Settings, report: Report) -> list[str]:
    """Return which searches were stopped, by which limit and when."""
    methods = [m for m in SEARCHES if any(r.stopped for r in of(records, m))]
    if not methods:
        return ["No search was stopped at a limit.", ""]
    rows = [
        [method, *(limits([r for r in records if r.prior == p], method) for p in PRIORS)]
        for method in methods
        if all(of([r for r in records if r.prior == p], method) for p in PRIORS)
    ]
    rows += [
        [method, "–", limits([r for r in records if r.prior == "true"], method)]
        for method in methods
        if method.startswith("admissible")
    ]
    return [
        "## Searches that were stopped",
        "",
        f"Limits: {settings.max_states:,} states, and {settings.max_seconds:g} seconds.",
        "",
        *report.table(
            "artificial_stopped", ["search", *(f"with {PRIOR_WORDS[p]}" for p in PRIORS)], rows
        ),
    ]


def _what_changes(records: Rows) -> list[str]:
    numbers = {}
    for prior in PRIORS:
        rows = [r for r in of(records, "inadmissible") if r.prior == prior]
        numbers[prior] = (
            float(np.mean([r.n_clusters for r in rows])),
            float(np.mean([r.f_score for r in rows])),
            share(rows, lambda r: r.is_optimal),
            float(np.mean([r.n_clusters > r.true_clusters for r in rows])),
        )
    true_clusters = np.mean([r.true_clusters for r in of(records, "inadmissible")])
    paper, true = numbers["paper"], numbers["true"]
    near = min(numbers, key=lambda prior: abs(numbers[prior][0] - true_clusters))
    change = "no different"
    if abs(true[1] - paper[1]) >= 5e-4:
        change = "better" if true[1] > paper[1] else "worse"
    proved = {p: sum(bool(r.proof) for r in records if r.prior == p) for p in PRIORS}
    total = {p: sum(r.prior == p for r in records) for p in PRIORS}
    return [
        "## What changes with the true prior",
        "",
        "The paper's P(m) is the probability of a vector of cluster sizes, not of a partition: it"
        " adds up all partitions of that shape, and so hardly penalises splitting. On these sets"
        f" full inadmissible search finds {paper[0]:.2f} clusters on average with P(m) and"
        f" {true[0]:.2f} with p(c); the truth has {true_clusters:.2f}, so that"
        f" {PRIOR_WORDS[near]} is nearer. It finds too many clusters in {paper[3]:.0%}"
        f" of the sets with P(m) and in {true[3]:.0%} with p(c). The mean f-score against the truth"
        f" is {paper[1]:.3f} with P(m) and {true[1]:.3f} with p(c), which is {change}. The search"
        f" is optimal in {paper[2]} sets with P(m), and in {true[2]} with p(c). Only with p(c) is"
        " there a joint bound on prior and likelihood (*admissible*); the optimum is proved in"
        f" {proved['paper'] / total['paper']:.0%} of the sets with P(m), and in"
        f" {proved['true'] / total['true']:.0%} with p(c).",
        "",
    ]


# -- tables ------------------------------------------------------------------------------------

_QUANTITIES: dict[str, tuple[str, Callable[[Record], float], Callable[[float], str]]] = {
    "ratio": ("Negative log joint, as a ratio to the optimum", lambda r: r.ratio, "{:.4f}".format),
    "seconds": ("Seconds", lambda r: r.seconds, short),
    "f_score": ("f-score", lambda r: r.f_score, "{:.3f}".format),
    "enqueued": ("States enqueued", lambda r: r.enqueued, "{:,.0f}".format),
}  # fmt: skip


def _tables(rows: Rows, settings: Settings, report: Report, name: str) -> list[str]:
    """Return means by method and size, with * if some searches were stopped, ** if all were."""
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
                stopped = sum(bool(r.stopped) for r in cell)
                mark = "" if not stopped else "**" if stopped == len(cell) else "*"
                cells.append(form(float(np.mean([value(r) for r in cell]))) + mark)
            table.append([method, *cells])
        headers = ["", *(f"N = {n}" for n in settings.sizes)]
        body = report.table(f"artificial_{name}_{quantity}", headers, table)
        lines += [f"<details><summary>{words}, mean over sets</summary>", "", *body, "</details>"]
        lines += [""]
    return lines


# -- the figure --------------------------------------------------------------------------------


def _panels(records: Rows) -> Any:
    """Draw the paper's four panels, side by side for both priors."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(17.0, 8.6), layout="constrained")
    halves: Any = figure.subfigures(1, 2, wspace=0.03)
    handles: dict[str, Any] = {}
    limits: dict[int, list[tuple[float, float]]] = {}
    drawn = []
    for half, prior in zip(halves, PRIORS, strict=True):
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
