"""The page of section 4.3: orders, words, refinement and samplers beside the paper's figures."""

from __future__ import annotations

import numpy as np

from dpsearch.experiments import nips, paper
from dpsearch.experiments.data import PAPER_DOCUMENTS, Documents, indicative_words
from dpsearch.experiments.mnist_page import PRIOR_WORDS, SAMPLER_WORDS, START_WORDS
from dpsearch.experiments.nips import Outcome, Searched, Settings
from dpsearch.experiments.report import Report, against, machine, rounded, short, times_faster
from dpsearch.plots import COLOURS, new_axes

_SHOWN = 10


def write(
    outcome: Outcome, documents: Documents, settings: Settings, report: Report, n_jobs: int
) -> None:
    n_documents, n_words = documents.counts.shape
    lines = [
        f"{n_documents:,} documents ({documents.source}); of the vocabulary the ten most frequent"
        f" words are dropped and the next {n_words:,} kept, which leaves"
        f" {int(documents.counts.sum()):,} tokens. Multinomial clusters with a Dirichlet prior of"
        f" {nips.CONCENTRATION:g} for each word; α = {nips.ALPHA:g}. Values are negative log joints"
        " with the multinomial coefficients, which the paper's figures include too: smaller is"
        " better.",
        "",
        f"{machine(n_jobs)}.",
        "",
    ]
    if n_documents != PAPER_DOCUMENTS:
        lines += [
            f"**Not the paper's collection**, which has {PAPER_DOCUMENTS:,} documents: values do"
            " not compare with the paper's, and what is said about them below does not hold.",
            "",
        ]
    if settings != Settings(seed=settings.seed):
        lines += [
            f"**A quick run:** {settings.n_random} random orders, beams of"
            f" {' and '.join(map(str, settings.beam_sizes))}.",
            "",
        ]
    lines += ["## Search, and the order of the documents", ""]
    lines += [*_orders(outcome, settings, n_documents, report), *_verdicts(outcome, settings)]
    lines += ["## Words", "", *_words(outcome, documents, settings, report)]
    lines += ["## Refinement", "", *_refinement(outcome, settings, report)]
    lines += ["## Samplers", "", *_samplers(outcome, report)]
    report.page("nips", "NIPS documents (section 4.3)", lines)


def _one(outcome: Outcome, prior: str, beam: int, order: str) -> Searched:
    return outcome.of(prior, beam, order)[0]


def _orders(outcome: Outcome, settings: Settings, n: int, report: Report) -> list[str]:
    headers = [
        "prior", "beam", "ascending", "clusters", "descending", "random: mean", "deviation",
        "best", "seconds", "documents/s",
    ]  # fmt: skip
    rows: list[list[object]] = []
    for prior in nips.PRIORS:
        for beam in settings.beam_sizes:
            up, down = (_one(outcome, prior, beam, order) for order in ("ascending", "descending"))
            random = np.array([f.value(prior) for f in outcome.of(prior, beam, "random")])
            rows.append([
                PRIOR_WORDS[prior], beam, f"{up.value(prior):,.0f}", up.clusters,
                f"{down.value(prior):,.0f}", f"{random.mean():,.0f}", f"{random.std(ddof=1):,.0f}",
                f"{random.min():,.0f}", short(up.seconds), f"{n / up.seconds:,.0f}",
            ])  # fmt: skip
    theirs = paper.NIPS
    rows.append([
        "the paper", "–", f"{theirs.value:,.0f}", theirs.clusters, f"{paper.NIPS_DESCENDING:,.0f}",
        f"{paper.NIPS_RANDOM:,.0f}", f"{paper.NIPS_RANDOM_SPREAD:,.0f}",
        f"{paper.NIPS_RANDOM_BEST:,.0f}", f"{theirs.seconds:g}", f"{theirs.rate:g}",
    ])  # fmt: skip
    axis = new_axes(1, 1, (8.0, 3.6))[0, 0]
    names = []
    for at, (prior, beam) in enumerate((p, b) for p in nips.PRIORS for b in settings.beam_sizes):
        names.append(f"{PRIOR_WORDS[prior]}, beam {beam}")
        others = [f.value(prior) for f in outcome.of(prior, beam, "random")]
        axis.plot(others, [at] * len(others), "o", color="0.6", markersize=5, zorder=1)
        for order, marker, colour in (("ascending", "^", 0), ("descending", "v", 5)):
            value = _one(outcome, prior, beam, order).value(prior)
            axis.plot(value, at, marker, color=COLOURS[colour], markersize=9)
    at = len(names)
    names.append("the paper")
    axis.errorbar(
        paper.NIPS_RANDOM, at, xerr=paper.NIPS_RANDOM_SPREAD, fmt="o", color="0.6", capsize=3
    )
    axis.plot(theirs.value, at, "^", color=COLOURS[0], markersize=9, label="ascending")
    axis.plot(paper.NIPS_DESCENDING, at, "v", color=COLOURS[5], markersize=9, label="descending")
    axis.plot([], [], "o", color="0.6", label="random orders (the paper: mean and deviation)")
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.set_xlabel("negative log joint (smaller is better)")
    axis.ticklabel_format(axis="x", style="plain")
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.xaxis.get_major_locator().set_params(nbins=6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.figure.legend(loc="outside upper center", ncols=3, frameon=False)
    words = "negative log joint by order of the documents"
    return [
        "Negative log joint by the prior that is searched with. The paper does not say how large"
        " its beam was. What it calls the variance of the random orders is in the unit of the"
        f" value, so it is taken for the standard deviation. {settings.n_random} random orders.",
        "",
        *report.table("nips_orders", headers, rows),
        *report.figure("nips_orders", axis.figure, words),
    ]


def _verdicts(outcome: Outcome, settings: Settings) -> list[str]:
    theirs = paper.NIPS
    lines = []
    for prior in nips.PRIORS:
        for beam in settings.beam_sizes:
            up, down = (_one(outcome, prior, beam, order) for order in ("ascending", "descending"))
            ours = up.value(prior)
            random = np.array([f.value(prior) for f in outcome.of(prior, beam, "random")])
            ahead = "beats" if ours < down.value(prior) else "**does not beat**"
            better = int((random < ours).sum())
            line = (
                f"- {PRIOR_WORDS[prior]}, beam {beam}: ascending is"
                f" {against(ours, theirs.value)} than the paper's,"
                f" {times_faster(up.seconds, theirs.seconds)}; it {ahead} descending by"
                f" {abs(down.value(prior) - ours):,.0f}; {better} of {len(random)} random orders"
                " are better than it."
            ).replace("the same than", "the same as")
            if ours > theirs.value * 1.0005:
                also = "worse too" if up.paper_value > theirs.value else "not worse"
                line += " **Worse.**"
                if prior == "true":
                    line += (
                        " The paper's value is presumably by P(m), under which a cluster costs"
                        f" less; by P(m) the same partition has {up.paper_value:,.0f}, which is"
                        f" {also}."
                    )
            if better > 1:
                line += " The paper found one better of ten: ascending is a rule of thumb."
            lines.append(line)
    return [*lines, ""]


def _words(outcome: Outcome, documents: Documents, settings: Settings, report: Report) -> list[str]:
    found = _one(outcome, "paper", settings.beam_sizes[-1], "ascending")
    sizes = np.bincount(found.labels)
    theirs = [line.split() for line in paper.NIPS_WORDS]
    rows = []
    for k in range(min(_SHOWN, len(sizes))):
        words = indicative_words(documents, found.labels, k)
        shared = [len(set(words) & set(line)) for line in theirs]
        best = int(np.argmax(shared))
        rows.append([sizes[k], " ".join(words), best + 1, f"{shared[best]} of 20"])
    headers = ["documents", "most indicative words", "nearest of the paper's", "words shared"]
    return [
        f"The twenty most indicative words of the {len(rows)} largest of {len(sizes)} clusters:"
        " those of highest tf-idf (occurrences in the cluster's documents, times the log of all"
        " documents over those with the word; the paper does not give its formula). Search with"
        f" P(m), ascending, beam {found.beam_size}. Beside each, which line of the paper's table"
        " shares most words with it.",
        "",
        *report.table("nips_words", headers, rows),
        "The paper's table:",
        "",
        *report.table(
            "nips_words_paper", ["line", "words"],
            [[i, line] for i, line in enumerate(paper.NIPS_WORDS, start=1)],
        ),
    ]  # fmt: skip


def _refinement(outcome: Outcome, settings: Settings, report: Report) -> list[str]:
    headers = [
        "search with", "P(m), before", "after", "p(c), before", "after", "clusters, before",
        "after", "seconds",
    ]  # fmt: skip
    rows = []
    for after in outcome.refined:
        before = _one(outcome, after.prior, after.beam_size, after.order)
        rows.append([
            PRIOR_WORDS[after.prior], f"{before.paper_value:,.0f}", f"{after.paper_value:,.0f}",
            f"{before.true_value:,.0f}", f"{after.true_value:,.0f}", before.clusters,
            after.clusters, short(after.seconds),
        ])  # fmt: skip
    best = min(outcome.refined, key=lambda r: r.true_value)
    return [
        f"Under the true p(c), from search with a beam of {settings.beam_sizes[-1]}; the value by"
        " P(m) is only read off. Negative log joints:",
        "",
        *report.table("nips_refinement", headers, rows),
        f"The best has {best.true_value:,.0f} by p(c) with {best.clusters} clusters,"
        f" {against(best.true_value, paper.NIPS.value)} than the paper's search.",
        "",
    ]


def _samplers(outcome: Outcome, report: Report) -> list[str]:
    headers = [
        "sampler", "from", "sweeps", "seconds", "best by p(c)", "the same by P(m)", "clusters",
        "paper", "in",
    ]  # fmt: skip
    rows = []
    for chain in outcome.chains:
        theirs = paper.NIPS_SAMPLERS[chain.sampler]
        rows.append([
            SAMPLER_WORDS[chain.sampler], START_WORDS[chain.start], f"{chain.sweeps:,}",
            short(chain.seconds), f"{chain.true_value:,.0f}", f"{chain.paper_value:,.0f}",
            chain.clusters, rounded(theirs.value, 2), theirs.about,
        ])  # fmt: skip
    best = min(outcome.chains, key=lambda c: c.true_value)
    ours = min(outcome.refined, key=lambda r: r.true_value)
    lead = best.true_value - ours.true_value
    return [
        "One chain from each start for a given time, drawing from the posterior under the true"
        " p(c); a sweep of split-merge is one proposal and a Gibbs sweep. The best state visited:",
        "",
        *report.table("nips_samplers", headers, rows),
        f"The best chain ({SAMPLER_WORDS[best.sampler]} from {START_WORDS[best.start]}) ends"
        f" {abs(lead):,.0f} nats {'above' if lead > 0 else '**below**'} search and refinement"
        f" ({short(ours.seconds)} s). The paper's samplers ended far above its search; it says"
        " neither from where they started nor by which prior they are judged.",
    ]
