"""The page of the comparison: tables, a figure, and verdicts on the paper's sentences."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from dpsearch.plots import COLOURS, new_axes, save_figure
from studies.related.methods import METHODS

TIMES = (1, 10, 100)
Results = dict[str, Any]


def _times(known: Results) -> list[int]:
    return [t for t in TIMES if all(f"{method} {t}" in known for method in METHODS)]


def _table(name: str, known: Results) -> list[str]:
    times = _times(known)
    cells = ["log joint", "clusters", "held out"]
    head = " | ".join(f"{cell}, {t}×" for t in times for cell in cells)
    lines = [
        f"## {name}", "", f"A beam of 10 takes {known['unit']:.3f} s.", "",
        f"| method | {head} | effective samples a second | MB |",
        "| --- |" + " --- |" * (3 * len(times) + 2),
    ]  # fmt: skip
    best = {t: max(known[f"{m} {t}"]["log_joint"] for m in METHODS) for t in times}
    for method in METHODS:
        row = [method]
        for t in times:
            found = known[f"{method} {t}"]
            value = f"{found['log_joint']:,.0f}"
            late = " (late)" if found["seconds"] > 1.5 * t * known["unit"] + 0.05 else ""
            row += [f"**{value}**" if found["log_joint"] == best[t] else value + late]
            row += [f"{found['n_clusters']}", f"{found['held_out']:.3f}"]
        last = known[f"{method} {times[-1]}"]
        effective = last["effective"]
        row += ["" if math.isnan(effective) else f"{effective:.3g}", f"{last['megabytes']:.0f}"]
        lines.append(f"| {' | '.join(row)} |")
    return [*lines, ""]


def _share(results: Results, better: Any) -> tuple[str, str]:
    """Return in how many cases something is so, and what that says of a claim that it is."""
    votes = [better(known, t) for known in results.values() for t in _times(known)]
    votes = [vote for vote in votes if vote is not None]
    return f"{sum(votes)} of {len(votes)}", _verdict(sum(votes) / max(len(votes), 1))


def _verdict(share: float) -> str:
    return "holds" if share > 2 / 3 else "does not hold" if share < 1 / 3 else "mixed"


def _mixes_faster(known: Results, t: int) -> bool | None:
    ours, gibbs = (known[f"{m} {t}"]["effective"] for m in ("Metropolis", "Gibbs"))
    return None if math.isnan(ours) or math.isnan(gibbs) else ours > gibbs


def _above(first: str, second: str, what: str = "log_joint") -> Any:
    return lambda known, t: known[f"{first} {t}"][what] > known[f"{second} {t}"][what]


def _speedup(known: Results) -> float | None:
    """How many times earlier variational inference is where Gibbs ends, held out; None if never."""
    times = _times(known)
    wanted = known[f"Gibbs {times[-1]}"]["held_out"] - 0.01
    gibbs = next(t for t in times if known[f"Gibbs {t}"]["held_out"] >= wanted)
    ours = [t for t in times if known[f"variational {t}"]["held_out"] >= wanted]
    return gibbs / ours[0] if ours else None


def _verdicts(results: Results) -> list[str]:
    others = [m for m in METHODS if not m.startswith("search")]

    def beaten(known: Results, t: int) -> bool:
        best = max(known[f"{m} {t}"]["log_joint"] for m in others)
        return bool(best > known[f"search {t}"]["log_joint"])

    speedups = [_speedup(known) for known in results.values()]
    said = ", ".join("never" if s is None else f"{s:g}×" for s in speedups)
    fast = sum(s is not None and s >= 100.0 for s in speedups) / max(len(speedups), 1)
    mixes, mixing = _share(results, _mixes_faster)
    particles, _ = _share(results, _above("particle filter", "search"))
    better, betters = _share(results, _above("search", "Gibbs"))
    others_win, _ = _share(results, beaten)
    efficient = _share(results, lambda known, t: not beaten(known, t))[1]
    rows = [
        ("Xing et al.'s Metropolis–Hastings sampler mixes faster than Gibbs sampling",
         f"more effective samples a second in {mixes} cases", mixing),
        ("Particle filters look somewhat like a stochastic beam search",
         f"the best particle is above the beam's best partition in {particles} cases of equal time",
         "a likeness"),
        ("Variational methods are 100 to 300 times faster than Gibbs sampling, with the same"
         " held-out likelihood",
         f"set by set, how much earlier they are where Gibbs sampling ends: {said}",
         _verdict(fast)),
        ("Search often achieves better results than Gibbs sampling",
         f"a higher log joint in {better} cases of equal time", betters),
        ("It is difficult to imagine an algorithm that is more efficient than search",
         f"one of the others has a higher log joint in the same time in {others_win} cases",
         efficient),
        ("One cannot easily re-estimate the concentration",
         "samplers draw it, variational inference has its posterior, search integrates it out",
         "does not hold"),
    ]  # fmt: skip
    head = "## What the paper says, and what was measured"
    lines = [head, "", "| sentence | measured | verdict |", "| --- | --- | --- |"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def _figure(results: Results, path: Path) -> None:
    """One row for each set: log joint, and held-out density, against time."""
    axes = new_axes(len(results), 2, (11.0, 3.2 * len(results) + 0.6))
    for row, (name, known) in enumerate(results.items()):
        for number, method in enumerate(METHODS):
            found = [known[f"{method} {t}"] for t in _times(known)]
            for column, what in enumerate(("log_joint", "held_out")):
                axes[row, column].plot(
                    [one["seconds"] for one in found], [one[what] for one in found], marker="o",
                    color=COLOURS[number % len(COLOURS)],
                    linestyle="-" if number < len(COLOURS) else "--", label=method,
                )  # fmt: skip
        for column, words in enumerate(("log joint", "held-out log density a row")):
            axes[row, column].set(xscale="log", xlabel="seconds", ylabel=words, title=name)
    figure = axes[0, 0].figure
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=4, frameon=False)
    save_figure(figure, path, dpi=100)


def write(results: Results, out: Path, note: str = "") -> None:
    """Write related.md and related.png, of what is complete."""
    results = {name: known for name, known in results.items() if _times(known)}
    lines = [
        "# The paper's other systems", "",
        "Written by `python -m studies related`. All methods have the same model, the same rows and"
        " the same time: 1, 10 and 100 times that of a beam of 10. Samplers begin with all rows in"
        " one cluster, and so does variational inference unless it says otherwise. The log joint is"
        " that of the best partition met; held out is the log predictive density of fresh rows, a"
        " row. A method that cannot stop within the time is late. Effective samples of a chain are"
        " those of the log joint in its second half; of particles those of the last weights, which"
        " do not show what early choices have cost.", "", *([note, ""] if note else []),
        *_verdicts(results),
        "![Log joint and held-out density against time](related.png)", "",
    ]  # fmt: skip
    for name, known in results.items():
        lines += _table(name, known)
    _figure(results, out / "related.png")
    (out / "related.md").write_text("\n".join(lines), encoding="utf-8")
