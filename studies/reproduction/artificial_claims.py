"""The claims of section 4.1, each with the finding of a run under one prior.

A *cell* is a size and a dimension; figures of a cell are means over its sets, as in the paper.
Methods that were stopped in all sets of a cell have no figure in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
from scipy.stats import spearmanr

from studies.reproduction.artificial import LEFT_OUT, METHODS, SEARCHES, Record
from studies.reproduction.report import NOT_TESTED, Finding, joined, short, times_faster, yes

Rows = list[Record]
Value = Callable[[Record], float]
Cells = dict[tuple[int, int], dict[str, float]]  # (dimension, size) → method → mean

ALMOST_ALWAYS = 0.9  # share of cells
ON_PAR = 3.0  # times faster or slower, at most
VARIES = 0.05  # range of f-scores in a cell
ROUGHLY = 0.5  # rank correlation
BOTH = ("inadmissible", "inadmissible, queue 10")
BOUNDARY = 15  # trivial search is said to be intractable beyond 10–15 points

MEANINGS = (
    f'"Almost always" means in {ALMOST_ALWAYS:.0%} of the cells (a cell is a size in a dimension,'
    f' with means over its sets), "on par" within a factor of {ON_PAR:g}, "vary significantly" by'
    f' {VARIES:g} or more, "roughly" with a rank correlation of at least {ROUGHLY:g}, and "most" in'
    " more than half."
)


def of(rows: Rows, method: str) -> Rows:
    return [r for r in rows if r.method == method]


def share(rows: Rows, condition: Callable[[Record], bool]) -> str:
    return f"{sum(map(condition, rows))} of {len(rows)}"


def cells(rows: Rows, value: Value, methods: tuple[str, ...] = METHODS) -> Cells:
    out: Cells = {}
    for at in sorted({(r.dimension, r.size) for r in rows}):
        out[at] = {}
        for method in methods:
            own = [r for r in of(rows, method) if (r.dimension, r.size) == at]
            if own and not all(r.stopped for r in own):
                out[at][method] = float(np.mean([value(r) for r in own]))
    return out


def claims(rows: Rows) -> list[tuple[str, Finding]]:
    """Return all claims with the findings for the records of one prior."""
    return [
        ("both inadmissible searches are optimal", _both_optimal(rows)),
        ("full admissible searches find the optimum", _full_optimal(rows)),
        ("admissible searches with a queue of 10 do worse than inadmissible", _capped(rows)),
        ("Gibbs never reaches the optimum, except on the smallest sets", _gibbs(rows)),
        ("split-merge is sometimes better and sometimes worse than Gibbs", _variable(rows)),
        ("the other split-merge variants do poorly, often worse than Gibbs", _variants(rows)),
        ("split-merge is almost always slightly slower than Gibbs", _slower(rows)),
        ("the time of both admissible searches grows fast", _growth(rows)),
        ("trivial search is intractable beyond 10–15 points", _intractable(rows)),
        ("trivial search with a queue of 10 is on par with Gibbs in time", _on_par(rows)),
        ("it has the worst negative log joint", _worst(rows)),
        ("tighter search with a queue of 10 is slow, because its score costs time", _costly(rows)),
        ("inadmissible search is always the fastest", _first(cells(rows, _seconds))),
        ("inadmissible search always has the best f-score", _first(cells(rows, _missed))),
        ("the f-scores of the others vary significantly", _f_varies(rows)),
        ("the f-score of Gibbs is poor at first and improves with N", _f_of_gibbs(rows)),
        ("inadmissible search enqueues by far the fewest states", _first(_states(rows))),
        ("the number of states enqueued varies roughly with time", _correlated(rows)),
        ("for most sets, inadmissible search dequeues N to N + 5 states", _dequeued(rows)),
    ]  # fmt: skip


def _seconds(record: Record) -> float:
    return record.seconds


def _missed(record: Record) -> float:
    return 1.0 - record.f_score


def _states(rows: Rows) -> Cells:
    return cells(rows, lambda r: r.enqueued, tuple(SEARCHES))


def _ratio(rows: Rows) -> float:
    return float(np.mean([r.ratio for r in rows]))


def optimal(rows: Rows) -> str:
    said = f"optimal in {share(rows, lambda r: r.is_optimal)} sets"
    return f"{said}, mean ratio {_ratio(rows):.4f}"


def _both_optimal(rows: Rows) -> Finding:
    said = [f"{name}: {optimal(of(rows, name))}" for name in BOTH]
    return Finding("; ".join(said), yes(all(r.is_optimal for m in BOTH for r in of(rows, m))))


def _full_optimal(rows: Rows) -> Finding:
    said, good = [], True
    for method in ("trivial", "tighter", "admissible"):
        finished = [r for r in of(rows, method) if not r.stopped]
        if finished:
            good &= all(r.is_optimal for r in finished)
            said.append(
                f"{method}: in {share(finished, lambda r: r.is_optimal)} that were finished"
            )
    return Finding("; ".join(said), yes(good))


def _capped(rows: Rows) -> Finding:
    methods = [f"{m}, queue 10" for m in ("trivial", "tighter", "admissible")]
    methods = [m for m in methods if of(rows, m)]
    best = _ratio(of(rows, BOTH[1]))
    said = [f"{m}: {optimal(of(rows, m))}" for m in methods]
    worse = all(_ratio(of(rows, m)) > best for m in methods)
    return Finding(f"{'; '.join(said)}; inadmissible: mean ratio {best:.4f}", yes(worse))


def _gibbs(rows: Rows) -> Finding:
    own = of(rows, "Gibbs")
    always = sorted({r.size for r in own} - {r.size for r in own if not r.is_optimal})
    said = optimal(own)
    if always:
        said += f"; in all sets of N = {joined([str(n) for n in always])}"
    return Finding(said, yes(set(always) <= {min(r.size for r in own)}))


def _compared(rows: Rows, value: Value, first: str, second: str) -> tuple[int, int, int]:
    """Return the number of cells where the first has less, where the second has less, and all."""
    table = cells(rows, value, (first, second))
    less = sum(c[first] < c[second] - 1e-9 for c in table.values())
    more = sum(c[first] > c[second] + 1e-9 for c in table.values())
    return less, more, len(table)


def _variable(rows: Rows) -> Finding:
    better, worse, n = _compared(rows, lambda r: r.value, "split-merge", "Gibbs")
    said = f"better in {better} of {n} cells, worse in {worse}; {optimal(of(rows, 'split-merge'))}"
    return Finding(said, yes(better > 0 and worse > 0))


def _variants(rows: Rows) -> Finding:
    said, often = [], True
    for method in LEFT_OUT:
        _, worse, n = _compared(rows, lambda r: r.value, method, "Gibbs")
        often &= worse > 0.5 * n
        said.append(
            f"{method}: worse than Gibbs in {worse} of {n} cells; {optimal(of(rows, method))}"
        )
    return Finding("; ".join(said), yes(often))


def _slower(rows: Rows) -> Finding:
    _, slower, n = _compared(rows, _seconds, "split-merge", "Gibbs")
    mean = {m: float(np.mean([r.seconds for r in of(rows, m)])) for m in ("split-merge", "Gibbs")}
    said = f"slower in {slower} of {n} cells; mean {short(mean['split-merge'])} s"
    said += f" against {short(mean['Gibbs'])} s to the best state"
    return Finding(said, yes(slower >= ALMOST_ALWAYS * n))


def _growth(rows: Rows) -> Finding:
    """Describe the growth from the smallest size to the largest at which no set was stopped."""
    said, fast = [], True
    for method in ("trivial", "tighter"):
        own = of(rows, method)
        sizes = sorted({r.size for r in own} - {r.size for r in own if r.stopped})
        if len(sizes) < 2:
            return Finding(f"{method} search was stopped at all sizes but one", NOT_TESTED)
        grows = []
        for name in (method, "inadmissible"):
            low, high = (
                np.mean([r.seconds for r in of(rows, name) if r.size == n])
                for n in (sizes[0], sizes[-1])
            )
            grows.append(float(high / low))
        fast &= grows[0] > grows[1]
        said.append(
            f"{method}: {short(grows[0])}-fold from N = {sizes[0]} to {sizes[-1]}, inadmissible"
            f" {short(grows[1])}-fold"
        )
    return Finding("; ".join(said), yes(fast))


def limits(rows: Rows, method: str) -> str:
    """Return where a search was stopped, by which limit and when; its time if it was not."""
    own = of(rows, method)
    stopped = [r for r in own if r.stopped]
    if not stopped:
        largest = [r for r in own if r.size == max(r.size for r in own)]
        seconds = short(float(np.mean([r.seconds for r in largest])))
        return f"never stopped; N = {largest[0].size} takes {seconds} s"
    said = []
    for size in sorted({r.size for r in stopped}):
        at = [r for r in own if r.size == size]
        why = Counter(r.stopped for r in at if r.stopped)
        mean = short(float(np.mean([r.seconds for r in at if r.stopped])))
        reasons = joined([f"{n} by {limit}" for limit, n in sorted(why.items())])
        count = share(at, lambda r: bool(r.stopped))
        said.append(f"N = {size}: {count} stopped ({reasons}) after {mean} s")
    return "; ".join(said)


def _intractable(rows: Rows) -> Finding:
    """Return whether most searches are stopped at the next size."""
    beyond = sorted({r.size for r in rows if r.size > BOUNDARY})
    if not beyond:
        return Finding(limits(rows, "trivial"), NOT_TESTED)
    first = [r for r in of(rows, "trivial") if r.size == beyond[0]]
    many = sum(bool(r.stopped) for r in first) > 0.5 * len(first)
    return Finding(limits(rows, "trivial"), yes(many))


def _on_par(rows: Rows) -> Finding:
    ours, gibbs = (
        float(np.mean([r.seconds for r in of(rows, m)])) for m in ("trivial, queue 10", "Gibbs")
    )
    said = f"{times_faster(ours, gibbs)} on average ({short(ours)} s, {short(gibbs)} s)"
    if ours * ON_PAR < gibbs:
        return Finding(said, "no: faster")
    return Finding(said, "yes" if ours <= gibbs * ON_PAR else "no: slower")


def _worst(rows: Rows) -> Finding:
    """Return the worst of the methods in the paper's figure that were never stopped."""
    methods = [m for m in METHODS if of(rows, m) and not any(r.stopped for r in of(rows, m))]
    means = {m: _ratio(of(rows, m)) for m in methods}
    worst = max(means, key=lambda m: means[m])
    said = f"the worst mean ratio is that of {worst} ({means[worst]:.4f})"
    if worst != "trivial, queue 10":
        said += f"; its own is {means['trivial, queue 10']:.4f}"
    return Finding(said, yes(worst == "trivial, queue 10"))


def _costly(rows: Rows) -> Finding:
    said, slow = [], True
    for other in ("trivial, queue 10", BOTH[1]):
        faster, slower, n = _compared(rows, _seconds, "tighter, queue 10", other)
        slow &= slower > faster
        said.append(f"slower than {other} in {slower} of {n} cells")
    seconds = short(float(np.mean([r.seconds for r in of(rows, "tighter, queue 10")])))
    return Finding(f"{'; '.join(said)}; {seconds} s on average", yes(slow))


def _first(table: Cells) -> Finding:
    """Return whether an inadmissible search has the least value, or shares it, in every cell."""
    others: Counter[str] = Counter()
    for cell in table.values():
        least = min(cell.values())
        if min(cell[m] for m in BOTH) > least + 1e-12:
            others[min(cell, key=lambda m: cell[m])] += 1
    n = len(table)
    said = f"one of the two in {n - others.total()} of {n} cells"
    if others:
        said += "; elsewhere " + joined([f"{name} ({k})" for name, k in others.most_common()])
    return Finding(said, yes(not others))


def _f_varies(rows: Rows) -> Finding:
    table = cells(rows, lambda r: r.f_score)
    others = [[v for m, v in cell.items() if m not in BOTH] for cell in table.values()]
    ranges = [max(values) - min(values) for values in others]
    said = f"they differ by {np.mean(ranges):.3f} on average, at most by {max(ranges):.3f}"
    return Finding(said, yes(bool(np.mean(ranges) >= VARIES)))


def _f_of_gibbs(rows: Rows) -> Finding:
    """Compare the smaller half of the sizes with the larger, and with inadmissible search."""
    sizes = sorted({r.size for r in rows})
    small = set(sizes[: len(sizes) // 2])

    def mean(method: str, early: bool) -> float:
        return float(np.mean([r.f_score for r in of(rows, method) if (r.size in small) == early]))

    early, late, search = mean("Gibbs", True), mean("Gibbs", False), mean("inadmissible", True)
    said = (
        f"{early:.3f} for N ≤ {max(small)}, where inadmissible search has {search:.3f};"
        f" {late:.3f} beyond"
    )
    return Finding(said, yes(early < late and early < search))


def _correlated(rows: Rows) -> Finding:
    states, seconds = _states(rows), cells(rows, _seconds, tuple(SEARCHES))
    pairs = [(states[at][m], seconds[at][m]) for at in states for m in states[at]]
    if np.ptp(pairs, axis=0).min() == 0.0:
        return Finding("no differences to compare", NOT_TESTED)
    rank = float(spearmanr(*zip(*pairs, strict=True)).statistic)
    said = f"rank correlation {rank:.2f} over searches and cells"
    return Finding(said, yes(rank >= ROUGHLY))


def _dequeued(rows: Rows) -> Finding:
    def few(record: Record) -> bool:
        return record.size <= record.dequeued <= record.size + 5

    said = "; ".join(f"{m}: in {share(of(rows, m), few)} sets" for m in BOTH)
    most = all(sum(map(few, of(rows, m))) > 0.5 * len(of(rows, m)) for m in BOTH)
    return Finding(said, yes(most))
