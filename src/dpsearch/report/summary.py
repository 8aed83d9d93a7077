"""The first sentences of a report: the clusters found, and how certain they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpsearch._numbers import brief, count, share
from dpsearch._types import Ints
from dpsearch.explanation import Explanation
from dpsearch.problem import Clustering
from dpsearch.report.profiles import Profile
from dpsearch.report.table import Table

MOVED = 0.1  # disagreement above which restarts place a row notably differently
_SAME = 1e-6  # relative difference below which log joints count as those of one partition
_FEW = 3.0  # nats below the best log joint within which a partition counts as good


def found(table: Table, groups: list[Profile], apart: Ints, *, as_asked: bool = False) -> str:
    """Return a sentence about the numbers of rows and clusters, and their sizes.

    `as_asked` says whether the user chose how many there are.
    """
    what = "word" if table.is_counts else "column"
    sizes = [group.size for group in groups]
    fall = "falls" if sum(sizes) == 1 else "fall"
    text = f"{count(sum(sizes), 'row')} with {count(len(table.names), what)} {fall} into "
    if len(sizes) == 1:
        asked = ", as requested." if as_asked else ": nothing in the data calls for more than one."
        return f"{text}a single cluster{asked}"
    text += f"{len(sizes):,} clusters. "
    small = [size for size, near in zip(sizes, apart, strict=True) if near >= 0]
    large = [size for size, near in zip(sizes, apart, strict=True) if near < 0]
    if sizes[0] == sizes[-1]:
        text += f"Each has {count(sizes[0], 'row')}."
    elif len(large) == 1:
        be = "is" if len(small) == 1 else "are"
        text += (
            f"One has {count(sizes[0], 'row')} ({share(groups[0].share)}); {clusters_apart(small)}"
            f" {be} shown as rows apart."
        )
    else:
        text += f"The largest has {count(sizes[0], 'row')} ({share(groups[0].share)}), "
        text += f"the smallest {count(large[-1], 'row')}"
        besides = f", not counting {clusters_apart(small)}, shown as rows apart" if small else ""
        text += f"{besides}."
    return text


def clusters_apart(sizes: Sequence[int]) -> str:
    """Describe small clusters by their number and sizes.

    >>> clusters_apart([1]), clusters_apart([2, 2]), clusters_apart([3, 1])
    ('1 cluster of 1 row', '2 clusters of 2 rows each', '2 clusters with 4 rows in all')
    """
    text = count(len(sizes), "cluster")
    if min(sizes) < max(sizes):
        return f"{text} with {count(sum(sizes), 'row')} in all"
    return f"{text} of {count(sizes[0], 'row')}{' each' if len(sizes) > 1 else ''}"


def level(model: Any) -> list[str]:
    """Return sentences about how clusters follow from components, and how sure their number is."""
    return [f"{text[0].upper()}{text[1:]}." for text in model.level_reason_.split("; ")]


def how_sure(
    clustering: Clustering,
    explanation: Explanation,
    certificate: Any = None,
    consensus: Any = None,
    draws: Any = None,
    n_empty: int = 0,
    sample: bool = False,
) -> list[str]:
    """Return sentences about how good the partition is, and how certain the rows are.

    `sample` says whether the explained rows are a sample of all rows.
    """
    out = [_proof(clustering, certificate)]
    if consensus is not None:
        out.append(agreement(consensus))
    if draws is not None:
        out.append(_drawn(draws))
    n = len(explanation.labels)
    some = f"a sample of {count(n, 'row')}"
    of = f" of {some}" if sample else ""
    doubtful = len(explanation.borderline)
    if doubtful == 0:
        out.append(f"Every row{of} belongs to its cluster with a probability of 90 % or more.")
    else:
        less = f"{doubtful:,} of these" if sample else count(doubtful, "row")
        out.append(
            f"{share(1.0 - doubtful / n)} of {some if sample else 'the rows'} belong to their"
            f" cluster with a probability of 90 % or more; {less}"
            f" {'is' if doubtful == 1 else 'are'} less certain."
        )
    if n_empty:
        has, it = ("has", "it is") if n_empty == 1 else ("have", "they are")
        out.append(
            f"{count(n_empty, 'row')}{of} {has} no values: {it} assigned by the prior alone, and"
            " counted in the sizes."
        )
    odd = len(explanation.outliers)
    if explanation.n_draws == 0:
        out.append("There was no time to look for outliers.")
    elif not explanation.can_find_outliers:
        out.append("The table is too wide to look for outliers in reasonable time.")
    elif odd:
        are = "is an outlier" if odd == 1 else "are outliers"
        chance = by_chance(explanation.outlier_rate, n)
        out.append(f"{count(odd, 'row')}{of} {are}: improbable under every cluster ({chance}).")
    else:
        out.append(f"No row{of} is an outlier.")
    return out


def by_chance(rate: float, n: int) -> str:
    """Say how many of n rows that come from the clusters are expected to be called outliers."""
    about = "fewer than one" if rate * n < 1.0 else f"about {rate * n:,.0f}"
    return f"by chance alone, {about} of {n:,} would be"


def _proof(clustering: Clustering, certificate: Any) -> str:
    proof = clustering if certificate is None else certificate
    if proof.optimal:
        return "Proved best: no other partition has a higher log joint under this model."
    if math.isfinite(proof.upper_bound):
        gap = max(0.0, proof.upper_bound - clustering.log_joint)
        times = f", or {brief(math.exp(gap))} times as probable" if gap < 20.0 else ""
        return f"Proved: no partition is more than {brief(gap)} nats of log joint better{times}."
    if clustering.converged:
        return (
            "Not proved best, but the local search ended because no move improves the partition any"
            " further."
        )
    return "Not proved best; a longer search may find a better partition."


def agreement(consensus: Any) -> str:
    """Return a sentence about whether searches from several orders agree."""
    values = np.array([one.log_joint for one in consensus.clusterings])
    if len(values) < 2:
        return "Only one search was run, so there is nothing to compare it with."
    same = int((values >= values[0] - _SAME * max(1.0, abs(values[0]))).sum())
    moved = float(np.mean(consensus.disagreement > MOVED))
    reached = "all" if same == len(values) else f"{same}"
    near = [one.n_clusters for one in consensus.clusterings if one.log_joint >= values[0] - _FEW]
    numbers = f"{min(near)}" if min(near) == max(near) else f"{min(near)} to {max(near)}"
    return (
        f"Of {len(values)} searches from different orders, {reached} reached the best log joint."
        f" Those within {_FEW:g} nats of it have {numbers} components. The searches place"
        f" {share(moved)} of the rows in notably different clusters."
    )


def _drawn(draws: Any) -> str:
    shares = draws.k_posterior()
    low, high = np.quantile(draws.n_clusters, [0.025, 0.975], method="nearest")
    return (
        f"Of {len(draws):,} draws from the posterior, {share(shares.max())} have"
        f" {int(shares.argmax())} clusters; 95 % have {low} to {high}."
    )
