"""The page of section 4.2: searches, refinement and samplers next to the paper's figures."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsearch.plots import mean_images, new_axes
from studies.reproduction import mnist, paper
from studies.reproduction.mnist import Outcome, Settings
from studies.reproduction.report import (
    DIGITS,
    PRIOR_WORDS,
    Finding,
    Report,
    against,
    joined,
    short,
    times_faster,
    where,
    yes,
)
from studies.reproduction.shared_page import (
    CHAIN_HEADERS,
    CHAINS,
    PAPER_BEAM,
    REFINEMENT,
    REFINEMENT_HEADERS,
    beams_finding,
    chain_rows,
    chains_against_refinement,
    refinement_row,
    sampler_findings,
    speed_finding,
    value_finding,
)
from studies.reproduction.study import ALPHA, Found

_SHOWN, _COLUMNS = 96, 12


def write(outcome: Outcome, settings: Settings, report: Report, ran: list[str]) -> None:
    largest = max(outcome.parts)
    lines = [
        f"The data are images of handwritten digits, centred and reduced to {mnist.COMPONENTS}"
        " principal components, each scaled to variance 1. Clusters are Gaussian with prior"
        f" variance {mnist.PRIOR_VARIANCE:g} and noise variance {mnist.NOISE_VARIANCE:g}; α ="
        f" {ALPHA:g}. Search uses the inadmissible score, in ascending order, with a beam of"
        f" {settings.beam_sizes[-1]}. All values are negative log joints with every constant:"
        " smaller is better. A partition has two values, under the paper's P(m), which is not a"
        " probability distribution over partitions, and under the true p(c); they differ only in"
        f" the prior. {DIGITS}",
        "",
    ]
    if settings != Settings(seed=settings.seed):
        shares = joined([f"{s:.0%}" for s in settings.shares])
        lines += [f"**A quick run:** {shares} only, smaller beams, shorter chains.", ""]
    if outcome.missing:
        lines += [
            f"**Left out: {joined([f'{share:.0%}' for share in outcome.missing])} of MNIST.** Only"
            f" {len(outcome.images[largest]):,} digits were available.",
            "",
        ]
    lines += [*where(ran), *_claims(outcome, settings, report)]
    lines += ["## Search", "", *_searches(outcome, report)]
    lines += ["## Refinement", "", *_refinement(outcome, report)]
    lines += ["## Samplers", "", *_samplers(outcome, report)]
    lines += ["## The clusters", "", *_figures(outcome, largest, settings, report)]
    lines += ["## What the paper does not say", "", *_variants(outcome, settings, report)]
    report.page("mnist", "MNIST (section 4.2)", lines)


def _claims(outcome: Outcome, settings: Settings, report: Report) -> list[str]:
    """Return every claim of the section, for each prior."""
    beam = settings.beam_sizes[-1]
    rows: list[tuple[str, list[Finding]]] = []
    for share, part in outcome.parts.items():
        theirs = paper.MNIST[share]
        ours = [part.one(prior, beam) for prior in PRIOR_WORDS]
        rows += [
            (
                f"{share:.0%}: search finds {theirs.value.text}",
                [value_finding(found, theirs.value, PAPER_BEAM) for found in ours],
            ),
            (
                f"{share:.0%}: with {theirs.clusters} clusters",
                [Finding(str(f.clusters), yes(f.clusters == theirs.clusters)) for f in ours],
            ),
            (
                f"{share:.0%}: in {theirs.seconds:g} s, {theirs.rate:g} points per second",
                [speed_finding(found, theirs) for found in ours],
            ),
        ]
        samplers = paper.MNIST_SAMPLERS[share]
        rows += [(f"{share:.0%}: {c}", f) for c, f in sampler_findings(part, beam, samplers)]
        sweep = [_sweep_finding(outcome, share)] * len(PRIOR_WORDS)
        rows.append((f"{share:.0%}: Gibbs takes {samplers['gibbs'].sweep:g} s per sweep", sweep))
        beams = [beams_finding(part, settings.beam_sizes, prior) for prior in PRIOR_WORDS]
        rows.append((f"{share:.0%}: a beam of {PAPER_BEAM} is needlessly large, to 0.1 %", beams))
    rows += [
        (claim, [_monotone(outcome, prior, beam, what) for prior in PRIOR_WORDS])
        for claim, what in (
            ("more digits, more clusters", "clusters"),
            ("more digits, fewer points per second", "rate"),
        )
    ]
    largest = max(outcome.parts)
    looks = []
    for prior in PRIOR_WORDS:
        purity = _purity(outcome.parts[largest].one(prior, beam), outcome.truth[largest])
        said = f"a cluster's most frequent digit makes up {purity:.0%} of it on average"
        looks.append(Finding(f"{said}; see the figures", "to be judged by eye"))
    rows.append(("the clusters look quite reasonable (no measure given)", looks))
    columns = list(PRIOR_WORDS.values())
    return ["## The paper's claims", "", *report.claims("mnist_claims", rows, columns)]


def _sweep_finding(outcome: Outcome, share: float) -> Finding:
    theirs = paper.MNIST_SAMPLERS[share]["gibbs"].sweep
    assert theirs is not None
    own = [c.seconds / c.sweeps for c in outcome.parts[share].chains if c.sampler == "gibbs"]
    said = f"{short(min(own))} to {short(max(own))} s, {times_faster(max(own), theirs)} at least"
    return Finding(said, "better" if max(own) < theirs else "worse")


def _monotone(outcome: Outcome, prior: str, beam: int, what: str) -> Finding:
    found = [part.one(prior, beam) for _, part in sorted(outcome.parts.items())]
    if len(found) < 2:
        return Finding("one share only", "not tested")
    if what == "clusters":
        numbers = [float(f.clusters) for f in found]
        return Finding(joined([f"{n:.0f}" for n in numbers]), yes(numbers == sorted(set(numbers))))
    numbers = [f.n_points / f.seconds for f in found]
    return Finding(joined([short(n) for n in numbers]), yes(numbers == sorted(numbers)[::-1]))


def _searches(outcome: Outcome, report: Report) -> list[str]:
    headers = [
        "share", "prior", "beam", "−log joint", "all in one cluster", "clusters", "seconds",
        "points/s", "paper: −log joint", "clusters", "seconds", "points/s",
    ]  # fmt: skip
    rows = []
    for share, part in outcome.parts.items():
        theirs = paper.MNIST[share]
        for found in part.searched:
            rows.append([
                f"{share:.0%}", PRIOR_WORDS[found.prior], found.beam_size,
                f"{found.value(found.prior):,.0f}", f"{found.together:,.0f}", found.clusters,
                short(found.seconds), f"{found.n_points / found.seconds:,.0f}",
                theirs.value.text, theirs.clusters, f"{theirs.seconds:g}", f"{theirs.rate:g}",
            ])  # fmt: skip
    return report.table("mnist_search", headers, rows)


def _refinement(outcome: Outcome, report: Report) -> list[str]:
    rows, lines = [], []
    for share, part in outcome.parts.items():
        for after in part.refined:
            before = part.one(after.prior, after.beam_size)
            rows.append([f"{share:.0%}", *refinement_row(before, after)])
        theirs, best = paper.MNIST[share], part.best_refined
        lines.append(
            f"- {share:.0%}: the best partition after refinement has {best.clusters} clusters."
            f" Under p(c) it is {against(best.true_value, theirs.value)}, and under P(m)"
            f" {against(best.paper_value, theirs.value)}."
        )
    table = report.table("mnist_refinement", ["share", *REFINEMENT_HEADERS], rows)
    return [REFINEMENT, "", *table, *lines, ""]


def _samplers(outcome: Outcome, report: Report) -> list[str]:
    rows, lines = [], []
    for share, part in outcome.parts.items():
        theirs = paper.MNIST_SAMPLERS[share]
        rows += [[f"{share:.0%}", *row] for row in chain_rows(part, theirs)]
        lines.append(f"- {share:.0%}: {chains_against_refinement(part)}.")
    table = report.table("mnist_samplers", ["share", *CHAIN_HEADERS], rows)
    return [CHAINS, "", *table, *lines, ""]


def _figures(outcome: Outcome, share: float, settings: Settings, report: Report) -> list[str]:
    """Draw mean images, the largest cluster first, for each prior before and after refinement."""
    part, lines = outcome.parts[share], []
    for refined in part.refined:
        search = part.one(refined.prior, refined.beam_size)
        for name, found in (("search", search), ("refined", refined)):
            how = f"search with {PRIOR_WORDS[found.prior]}"
            if name == "refined":
                how += ", refined with p(c)"
            shown = min(found.clusters, _SHOWN)
            which = "all" if shown == found.clusters else f"the largest {shown} of"
            words = f"Mean images of {which} {found.clusters} clusters: {share:.0%}, {how}"
            axis = new_axes(1, 1, (10.2, 1.05 * -(-shown // _COLUMNS) + 0.8))[0, 0]
            mean_images(outcome.images[share], found.labels, axis, columns=_COLUMNS, shown=shown)
            axis.set_title(words + "\nlargest first, with their sizes", fontsize=9)
            purity = _purity(found, outcome.truth[share])
            lines += [
                f"{words}. The most frequent digit of a cluster makes up {purity:.0%} of its images"
                " on average.",
                "",
                *report.figure(f"mnist_{found.prior}_{name}", axis.figure, words),
            ]
    return lines


def _purity(found: Found, truth: Any) -> float:
    shares = mnist.digit_shares(found.labels, truth)
    return float((shares.max(axis=1) * np.bincount(found.labels)).sum() / found.n_points)


def _variants(outcome: Outcome, settings: Settings, report: Report) -> list[str]:
    share = min(outcome.parts)
    theirs = paper.MNIST[share]
    headers = [
        "preprocessing", "all in one cluster", "P(m): −log joint", "clusters",
        "p(c): −log joint", "clusters",
    ]  # fmt: skip
    rows = [
        [
            v.words, f"{v.together:,.0f}", f"{v.paper_value:,.0f}", v.paper_clusters,
            f"{v.true_value:,.0f}", v.true_clusters,
        ]
        for v in outcome.variants
    ]  # fmt: skip
    results = [
        (words, variant.words, value, clusters)
        for variant in outcome.variants
        for words, value, clusters in (
            ("P(m)", variant.paper_value, variant.paper_clusters),
            ("p(c)", variant.true_value, variant.true_clusters),
        )
    ]
    near = min(results, key=lambda r: abs(r[2] - theirs.value))
    close = min(results, key=lambda r: abs(r[3] - theirs.clusters))
    return [
        "The paper's words are: \"centering and spherizing it, then running PCA to obtain a"
        " 50-dimensional representation\", and a prior variance of 0.1. It does not say whether"
        " the components keep their variance, how pixels are scaled, what the noise variance is, in"
        " which order the images come or how ties of the score are broken. The table has variants"
        f" on {share:.0%}, with a beam of {settings.variant_beam}:",
        "",
        *report.table("mnist_variants", headers, rows),
        f"The paper has {theirs.value.text} and {theirs.clusters} clusters. The nearest in value is"
        f" {_in_words(*near)}. The nearest in the number of clusters is {_in_words(*close)}.",
    ]  # fmt: skip


def _in_words(prior: str, words: str, value: float, clusters: int) -> str:
    return f'"{words}" with {prior} ({value:,.0f}, {clusters} clusters)'
