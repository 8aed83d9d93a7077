"""Parts that the pages of MNIST and NIPS share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from studies.reproduction import paper
from studies.reproduction.report import (
    NOT_TESTED,
    PRIOR_WORDS,
    SAMPLER_WORDS,
    START_WORDS,
    Finding,
    against,
    joined,
    short,
    verdict,
    yes,
)
from studies.reproduction.study import SAMPLERS, Found, Part

PAPER_BEAM = 100  # on MNIST
REFINEMENT = (
    "Refinement maximises the joint probability under the true p(c) for a given time, also from"
    " the partition that search found with P(m); the value under P(m) is only reported. Seconds"
    " are those of search and refinement together, in one thread. The table has negative log"
    " joints:"
)
CHAINS = (
    "One chain runs from each start for a given time, in one thread, and draws from the posterior"
    " under the true p(c); a sweep of split-merge is one proposal and a Gibbs sweep. The table has"
    " the best state visited under p(c), and the time at which it was reached. The paper says"
    " neither where its chains started nor under which prior they are evaluated."
)


def value_finding(found: Found, theirs: paper.Printed, beam: int | None) -> Finding:
    """Return our value under the prior searched with and, if it is worse, known reasons.

    `beam` is the paper's, if it names it.
    """
    ours = found.value(found.prior)
    said = f"{ours:,.0f}, {against(ours, theirs)}"
    holds = {"same": "yes", "better": "better", "worse": "worse"}[verdict(ours, theirs)]
    if holds == "worse":
        said += "".join(f"; {reason}" for reason in reasons(found, theirs, beam))
    return Finding(said, holds)


def reasons(found: Found, theirs: paper.Printed, beam: int | None) -> list[str]:
    """Return reasons why a value is above the paper's, each taken from the run."""
    out = []
    if beam is not None and found.beam_size < beam:
        out.append(f"the beam is {found.beam_size} here, not {beam}")
    if found.prior == "true":
        by_counts = verdict(found.paper_value, theirs)
        out.append(
            "the paper's value is presumably that of P(m), which penalises clusters less: under"
            f" P(m) this partition has {found.paper_value:,.0f} ({by_counts})"
        )
    if found.together < found.value(found.prior):
        out.append(
            f"all points in one cluster have {found.together:,.0f}, so that search opens too many"
            " clusters"
        )
    return out


def speed_finding(found: Found, theirs: paper.Search) -> Finding:
    rate = found.n_points / found.seconds
    said = f"{short(found.seconds)} s, {short(rate)} per second, {short(rate / theirs.rate)} times"
    said += " the paper's speed"
    return Finding(said, "better" if rate > theirs.rate else "worse")


def sampler_findings(
    part: Part, beam_size: int, theirs: Mapping[str, paper.Sampler]
) -> list[tuple[str, list[Finding]]]:
    """Compare search with samplers, and samplers with each other, under each prior."""
    rows: list[tuple[str, list[Finding]]] = []
    for sampler in SAMPLERS:
        findings = []
        for prior in PRIOR_WORDS:
            search, chain = part.one(prior, beam_size), part.best_chain(prior, sampler)
            gap = chain.value(prior) - search.value(prior)
            findings.append(
                Finding(
                    f"{chain.value(prior):,.0f} from {START_WORDS[chain.start]} in"
                    f" {short(chain.seconds)} s, {abs(gap):,.0f}"
                    f" {'above' if gap > 0 else 'below'} search ({short(search.seconds)} s)",
                    yes(gap > 0),
                )
            )  # fmt: skip
        name, figure = SAMPLER_WORDS[sampler], theirs[sampler]
        rows.append(
            (f"{name} does worse than search ({figure.value.text}, {figure.about})", findings)
        )
    order = []
    for prior in PRIOR_WORDS:
        gibbs, other = (part.best_chain(prior, s).value(prior) for s in SAMPLERS)
        order.append(Finding(f"{other:,.0f} against {gibbs:,.0f}", yes(other < gibbs)))
    return [*rows, ("split-merge does better than Gibbs", order)]


def refinement_row(before: Found, after: Found) -> list[object]:
    return [
        PRIOR_WORDS[before.prior], f"{before.paper_value:,.0f}", f"{after.paper_value:,.0f}",
        f"{before.true_value:,.0f}", f"{after.true_value:,.0f}", before.clusters, after.clusters,
        short(before.seconds), short(after.seconds),
    ]  # fmt: skip


REFINEMENT_HEADERS = (
    "search with", "P(m), before", "after", "p(c), before", "after", "clusters, before", "after",
    "seconds, before", "after",
)  # fmt: skip
CHAIN_HEADERS = (
    "sampler", "from", "sweeps", "seconds", "seconds/sweep", "best under p(c)", "after seconds",
    "the same under P(m)", "clusters", "paper", "in",
)  # fmt: skip


def chain_rows(part: Part, theirs: Mapping[str, paper.Sampler]) -> list[list[object]]:
    return [
        [
            SAMPLER_WORDS[c.sampler], START_WORDS[c.start], f"{c.sweeps:,}", short(c.seconds),
            short(c.seconds / c.sweeps), f"{c.true_value:,.0f}", short(c.best_seconds),
            f"{c.paper_value:,.0f}", c.clusters, theirs[c.sampler].value.text,
            theirs[c.sampler].about,
        ]
        for c in part.chains
    ]  # fmt: skip


def chains_against_refinement(part: Part) -> str:
    """Compare the best chain with search and refinement, in figures."""
    best, ours = part.best_chain("true"), part.best_refined
    gap = best.true_value - ours.true_value
    return (
        f"the best chain ({SAMPLER_WORDS[best.sampler]} from {START_WORDS[best.start]},"
        f" {short(best.seconds)} s) ends {abs(gap):,.0f} nats {'above' if gap > 0 else '**below**'}"
        f" search and refinement ({short(ours.seconds)} s together)"
    )


def beams_finding(part: Part, beam_sizes: Sequence[int], prior: str) -> Finding:
    """Return whether the largest beam finds no better value than a smaller one, to 0.1 %."""
    values = {b: part.one(prior, b).value(prior) for b in beam_sizes}
    said = joined([f"{value:,.0f} with a beam of {b}" for b, value in values.items()])
    if beam_sizes[-1] != PAPER_BEAM:
        return Finding(said, NOT_TESTED)
    largest = values[beam_sizes[-1]]
    return Finding(said, yes(min(values[b] for b in beam_sizes[:-1]) <= 1.001 * largest))
