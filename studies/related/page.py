"""The page of the comparison: tables, a figure, and verdicts on the paper's sentences."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dpsearch.plots import COLOURS, new_axes, save_figure
from studies.related.methods import METHODS

TIMES = (1, 10, 100)
_LEAST = 0.02  # seconds that a search counts for at least, as in `command`
# Decimals that the tables show, and by which two values differ or not.
_SHOWN = {"log_joint": 0, "held_out": 3, "effective": 3}
_SAME = 0.01  # nats a row, by which held-out densities are still the same
Results = dict[str, Any]
# Whether something is so on a set at a time; None where that cannot be said.
Question = Callable[[Results, int], bool | None]


def _times(known: Results) -> list[int]:
    return [t for t in TIMES if all(f"{method} {t}" in known for method in METHODS)]


def _table(name: str, known: Results) -> list[str]:
    times, unit = _times(known), known["unit"]
    cells = ["log joint", "clusters", "held out"]
    head = " | ".join(f"{cell}, {t}×" for t in times for cell in cells)
    given = {t: known[f"search {t}"]["limit"] for t in times}
    short = [f"{t}× is cut to {given[t] / unit:.2g}×, {given[t]:.3g} s"
             for t in times if given[t] < 0.99 * t * unit]  # fmt: skip
    takes = "counts for" if unit == _LEAST else "takes"
    said = [f"A beam of 10 {takes} {unit:.3f} s", *short]
    lines = [
        f"## {name}", "", f"{'; '.join(said)}.", "",
        f"| method | {head} | effective samples per second | MB |",
        "| --- |" + " --- |" * (3 * len(times) + 2),
    ]  # fmt: skip
    best = {t: max(known[f"{m} {t}"]["log_joint"] for m in METHODS) for t in times}
    for method in METHODS:
        row = [method]
        for t in times:
            found = known[f"{method} {t}"]
            if found["log_joint"] == -math.inf:
                row += ["no result", "", ""]
                continue
            value = f"{found['log_joint']:,.0f}"
            late = " (late)" if found["seconds"] > 1.5 * given[t] + 0.05 else ""
            row += [(f"**{value}**" if value == f"{best[t]:,.0f}" else value) + late]
            row += [f"{found['n_clusters']}", f"{found['held_out']:.3f}"]
        last = known[f"{method} {times[-1]}"]
        for value, form in ((last["effective"], ".3g"), (last["megabytes"], ".0f")):
            row.append("" if math.isnan(value) else format(value, form))
        lines.append(f"| {' | '.join(row)} |")
    return [*lines, ""]


def _share(results: Results, question: Question) -> tuple[str, str]:
    """Return in how many cases something is so, and what that says of a claim that it is."""
    votes = [question(known, t) for known in results.values() for t in _times(known)]
    votes = [vote for vote in votes if vote is not None]
    return f"{sum(filter(None, votes))} of {len(votes)}", _verdict(votes)


def _verdict(votes: list[Any]) -> str:
    if not votes:
        return "not measured"
    share = sum(votes) / len(votes)
    return "holds" if share > 2 / 3 else "does not hold" if share < 1 / 3 else "mixed"


def _above(first: str, second: str, what: str = "log_joint") -> Question:
    """Whether one method is above another; None if the tables show the same, or nothing."""

    def question(known: Results, t: int) -> bool | None:
        values = [known[f"{method} {t}"][what] for method in (first, second)]
        ours, theirs = np.round(values, _SHOWN[what]).tolist()
        return None if math.isnan(ours) or math.isnan(theirs) or ours == theirs else ours > theirs

    return question


def _speedup(known: Results) -> float | None:
    """How many times earlier variational inference is where Gibbs ends, held out; None if never."""
    times = _times(known)
    wanted = known[f"Gibbs {times[-1]}"]["held_out"] - _SAME
    first = {}
    for method in ("Gibbs", "variational"):
        found = [known[f"{method} {t}"] for t in times]
        first[method] = [one["seconds"] for one in found if one["held_out"] >= wanted]
    return first["Gibbs"][0] / first["variational"][0] if first["variational"] else None


def _verdicts(results: Results) -> list[str]:
    others = [m for m in METHODS if not m.startswith("search")]

    def unbeaten(known: Results, t: int) -> bool:
        best = max(known[f"{m} {t}"]["log_joint"] for m in others)
        return bool(best <= known[f"search {t}"]["log_joint"] + 0.5)

    def fails(known: Results, t: int) -> bool | None:
        best = max(known[f"{m} {t}"]["log_joint"] for m in METHODS)
        return None if t < _times(known)[-1] else known[f"Gibbs {t}"]["log_joint"] < best - 0.5

    speedups = {name: _speedup(known) for name, known in results.items()}
    said = ", ".join(f"{name}: " + ("never" if s is None else f"{s:.2g}×")
                     for name, s in speedups.items())  # fmt: skip
    fast = [s is not None and s >= 100.0 for s in speedups.values()]
    rows = [
        ("Jain and Neal's split-merge sampler mixes faster than Gibbs sampling",
         "more effective samples per second in {} cases",
         _share(results, _above("split-merge", "Gibbs", "effective"))),
        ("Xing et al.'s Metropolis–Hastings sampler mixes faster than Gibbs sampling",
         "more effective samples per second in {} cases",
         _share(results, _above("Metropolis", "Gibbs", "effective"))),
        ("Particle filters look somewhat like a stochastic beam search",
         "the best particle has a higher log joint than the beam's best partition in {} cases that"
         " differ",
         (_share(results, _above("particle filter", "search"))[0], "a resemblance")),
        ("Variational methods are 100 to 300 times faster than Gibbs sampling, with essentially the"
         " same held-out likelihood",
         f"how many times earlier they come within {_SAME} nats per row of the value with which"
         f" Gibbs sampling ends, whose own time is known up to a factor of ten: {said}",
         ("", _verdict(fast))),
        ("Kurihara et al.'s accelerated variational algorithm is even more efficient",
         "with cells of a tree and a tail it has a higher held-out density than without in {} cases"
         " that differ",
         _share(results, _above("variational, in cells", "variational", "held_out"))),
        ("Kurihara et al.'s collapsed variational algorithm is even more efficient",
         "a higher held-out density than with sticks in {} cases that differ",
         _share(results, _above("collapsed variational", "variational", "held_out"))),
        ("Search often achieves better results than Gibbs sampling",
         "a higher log joint in {} cases that differ", _share(results, _above("search", "Gibbs"))),
        ("It is difficult to imagine an algorithm that is more efficient than search",
         "no method except its own refinement has a higher log joint in the same time in {} cases",
         _share(results, unbeaten)),
        ("The Gibbs sampler often fails to ever reach the best partition",
         "below the best log joint known in {} cases, at the longest time",
         _share(results, fails)),
        ("A start from search saves a sampler the way to the region of high posterior probability",
         "Gibbs sampling from search has a higher log joint in the same time than from one cluster"
         " in {} cases that differ", _share(results, _above("Gibbs, from search", "Gibbs"))),
        ("One cannot easily re-estimate the concentration",
         "samplers draw it, variational inference has its posterior, search integrates it out",
         ("", "does not hold")),
    ]  # fmt: skip
    head = "## What the paper says, and what was measured"
    lines = [
        head, "",
        "A case is a data set at one of the times. A sentence holds if it is true in more than"
        " two thirds of the cases, and does not hold if it is true in less than one third. Values"
        " that the tables show as equal do not count as different. Every method was run once,"
        " with one seed: a share near one third or two thirds may be on the other side in another"
        " run.", "",
        "| sentence | measured | verdict |", "| --- | --- | --- |",
    ]  # fmt: skip
    for sentence, measured, (count, verdict) in rows:
        lines.append(f"| {sentence} | {measured.format(count)} | {verdict} |")
    return [*lines, ""]


def _figure(results: Results, path: Path) -> None:
    """One row for each set: log joint, and held-out density, against time."""
    axes = new_axes(len(results), 2, (11.0, 2.8 * len(results) + 1.0))
    for row, (name, known) in enumerate(results.items()):
        for column, what in enumerate(("log_joint", "held_out")):
            axis, values = axes[row, column], []
            for number, method in enumerate(METHODS):
                found = [known[f"{method} {t}"] for t in _times(known)]
                found = [one for one in found if one["log_joint"] > -math.inf]
                values += [one[what] for one in found]
                axis.plot(
                    [one["seconds"] for one in found], [one[what] for one in found], marker="o",
                    markersize=4, color=COLOURS[number % len(COLOURS)],
                    linestyle="-" if number < len(COLOURS) else "--", label=method,
                )  # fmt: skip
            low, high = np.quantile(values, 0.3), max(values)
            room = max(high - low, 1e-6)
            words = ("log joint", "held-out log density a row")[column]
            axis.set(xscale="log", xlabel="seconds", ylabel=words, title=name,
                     ylim=(low - 0.1 * room, high + 0.1 * room))  # fmt: skip
    figure = axes[0, 0].figure
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=4, frameon=False)
    save_figure(figure, path, dpi=100)


def write(results: Results, out: Path, note: str = "") -> None:
    """Write related.md and related.png, of what is complete."""
    results = {name: known for name, known in results.items() if _times(known)}
    if not results:
        return
    lines = [
        "# The paper's other systems", "",
        "Written by `python -m studies related`. All methods have the same model, the same rows"
        " and the same time on one core: 1, 10 and 100 times that of a beam of 10, which counts"
        f" as at least {_LEAST:.2f} s. Samplers start with all rows in one cluster, and"
        " variational inference starts from the result of greedy search, unless stated otherwise."
        " The log joint is that of the best partition visited. More time means a wider beam for"
        " search and more particles for the filter; these are separate runs, whose best partition"
        " may be worse than that of a shorter run. Variational inference raises its bound, but"
        " the partition of its last mixture may become worse. Held out is the log predictive"
        " density of new rows, a tenth of all, in nats per row. Where 100 times would be too"
        " long, all methods have the same shorter time, and the section says so. A method that"
        " cannot stop within the time is marked as late; one that has not ended after twice the"
        " time and half a minute has no result. The effective samples of a chain are those of the"
        " log joint in its second half. They are left out if the log joint still moves there, so"
        " that the two halves of this part differ by more than a standard deviation. For"
        " particles they are those of the final weights, which do not show the cost of early"
        " choices. MB is the memory that a method uses in addition to the data, at the longest"
        " time.", "",
        *([note, ""] if note else []),
        *_verdicts(results),
        "![Log joint and held-out density against time](related.png)", "",
        "The lowest values lie outside the panels.", "",
    ]  # fmt: skip
    for name, known in results.items():
        lines += _table(name, known)
    _figure(results, out / "related.png")
    (out / "related.md").write_text("\n".join(lines), encoding="utf-8")
