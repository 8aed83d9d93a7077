"""The page of section 4.3: orders, words, refinement and samplers next to the paper's figures."""

from __future__ import annotations

import numpy as np

from dpsearch.plots import COLOURS, new_axes
from studies.reproduction import nips, paper
from studies.reproduction.data import PAPER_DOCUMENTS, Documents, indicative_words
from studies.reproduction.nips import Settings
from studies.reproduction.report import (
    DIGITS,
    NOT_TESTED,
    PRIOR_WORDS,
    Finding,
    Report,
    against,
    short,
    verdict,
    where,
    yes,
)
from studies.reproduction.shared_page import (
    CHAIN_HEADERS,
    CHAINS,
    REFINEMENT,
    REFINEMENT_HEADERS,
    chain_rows,
    chains_against_refinement,
    refinement_row,
    sampler_findings,
    speed_finding,
    value_finding,
)
from studies.reproduction.study import ALPHA, PRIORS, Part

_SHOWN = 10


def write(
    outcome: Part, documents: Documents, settings: Settings, report: Report, ran: list[str]
) -> None:
    n_documents, n_words = documents.counts.shape
    lines = [
        f"The data are {n_documents:,} documents ({documents.source}). The ten most frequent words"
        f" of the vocabulary are dropped and the next {n_words:,} are kept, which leaves"
        f" {int(documents.counts.sum()):,} tokens. Clusters are multinomial with a Dirichlet prior"
        f" of {nips.CONCENTRATION:g} for each word; α = {ALPHA:g}. Values are negative log joints"
        f" with the multinomial coefficients: smaller is better. {DIGITS}",
        "",
    ]
    if n_documents != PAPER_DOCUMENTS:
        lines += [
            f"**Not the paper's collection**, which has {PAPER_DOCUMENTS:,} documents: the values"
            " cannot be compared with the paper's, and the statements about them below do not"
            " hold.",
            "",
        ]
    if settings != Settings(seed=settings.seed):
        lines += [
            f"**A quick run:** {settings.n_random} random orders, beams of"
            f" {' and '.join(map(str, settings.beam_sizes))}.",
            "",
        ]
    same = n_documents == PAPER_DOCUMENTS
    lines += [*where(ran), *_claims(outcome, settings, same, report)]
    lines += ["## Search, and the order of the documents", ""]
    lines += _orders(outcome, settings, n_documents, report)
    lines += ["## Words", "", *_words(outcome, documents, settings, report)]
    lines += ["## Refinement", "", *_refinement(outcome, same, report)]
    lines += ["## Samplers", "", *_samplers(outcome, report)]
    report.page("nips", "NIPS documents (section 4.3)", lines)


def _claims(outcome: Part, settings: Settings, same: bool, report: Report) -> list[str]:
    """Every claim of the section, for each prior; values of other documents do not compare."""
    beam, theirs = settings.beam_sizes[-1], paper.NIPS
    ours = {prior: outcome.one(prior, beam) for prior in PRIORS}
    down = {prior: outcome.one(prior, beam, "descending").value(prior) for prior in PRIORS}
    random = {
        prior: np.array([f.value(prior) for f in outcome.of(prior, beam, "random")])
        for prior in PRIORS
    }

    def valued(value: float, printed: paper.Printed, why: str = "") -> Finding:
        """`why`: a reason to give where the value is worse."""
        if not same:
            return Finding(f"{value:,.0f}", NOT_TESTED)
        holds = verdict(value, printed)
        said = f"{value:,.0f}, {against(value, printed)}{why * (holds == 'worse')}"
        return Finding(said, holds.replace("same", "yes"))

    def mean(prior: str) -> Finding:
        """Return how much of the difference the uncertainty of a mean of few orders may explain."""
        values = random[prior]
        value, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
        off = (value - paper.NIPS_RANDOM) / error if error > 0.0 else np.inf
        why = f"; {off:.1f} standard errors of a mean of {len(values)}, so that chance"
        return valued(
            value,
            paper.NIPS_RANDOM,
            f"{why} {'may' if off < 2 else 'does not'} explain the difference",
        )

    def ahead(prior: str) -> Finding:
        lead = down[prior] - ours[prior].value(prior)
        return Finding(f"{abs(lead):,.0f} {'lower' if lead > 0 else 'higher'}", yes(lead > 0))

    def spread(prior: str) -> Finding:
        deviation = float(random[prior].std(ddof=1))
        off = abs(deviation - paper.NIPS_RANDOM_SPREAD)
        holds = yes(off <= paper.NIPS_RANDOM_SPREAD.half) if same else NOT_TESTED
        return Finding(f"{deviation:,.0f}", holds)

    def better(prior: str) -> Finding:
        count = int((random[prior] < ours[prior].value(prior)).sum())
        said = f"{count} of {len(random[prior])}"
        if count:
            gain = ours[prior].value(prior) - random[prior].min()
            said += f", the best by {gain:,.0f}"
        enough = len(random[prior]) >= paper.NIPS_N_RANDOM
        return Finding(said, yes(count <= 1) if enough else NOT_TESTED)

    def mean_behind(prior: str) -> Finding:
        lead = float(random[prior].mean()) - ours[prior].value(prior)
        said = f"{abs(lead):,.0f} {'lower' if lead > 0 else 'higher'} than their mean"
        return Finding(said, yes(lead > 0))

    def words(prior: str) -> Finding:
        return Finding("see the table of words", "to be judged by eye")

    rows = [
        (f"search finds {theirs.value.text}",
         [value_finding(f, theirs.value, None) if same else valued(f.value(p), theirs.value)
          for p, f in ours.items()]),
        (f"with {theirs.clusters} clusters",
         [Finding(str(f.clusters), yes(f.clusters == theirs.clusters) if same else NOT_TESTED)
          for f in ours.values()]),
        (f"in {theirs.seconds:g} s, {theirs.rate:g} documents per second",
         [speed_finding(f, theirs) for f in ours.values()]),
        ("ascending order beats descending order", [ahead(p) for p in PRIORS]),
        (f"descending order finds {paper.NIPS_DESCENDING.text}",
         [valued(down[p], paper.NIPS_DESCENDING, "; the paper's beam is not known")
          for p in PRIORS]),
        (f"random orders find {paper.NIPS_RANDOM.text} on average",
         [mean(p) for p in PRIORS]),
        (f"their deviation is {paper.NIPS_RANDOM_SPREAD.text}", [spread(p) for p in PRIORS]),
        ("one random order in ten beats ascending order, by a small margin",
         [better(p) for p in PRIORS]),
        ("ascending order is a reasonable heuristic: better than the mean of random orders",
         [mean_behind(p) for p in PRIORS]),
        ("the words of the clusters are indicative", [words(p) for p in PRIORS]),
        *sampler_findings(outcome, beam, paper.NIPS_SAMPLERS),
    ]  # fmt: skip
    lines = [
        "## The paper's claims",
        "",
        f"The beam is {beam}; the paper does not say how large its beam was. What the paper calls"
        " the variance of the random orders has the unit of the value, so it is taken to be the"
        " standard deviation.",
        "",
        *report.claims("nips_claims", rows, list(PRIOR_WORDS.values())),
    ]
    return [*lines, *_where_samplers_win(outcome, beam)]


def _where_samplers_win(outcome: Part, beam: int) -> list[str]:
    """Return a remark if our samplers end below our search, unlike the paper's."""
    chain, search = outcome.best_chain("true"), outcome.one("true", beam)
    if chain.true_value >= search.true_value:
        return []
    best = outcome.best_refined
    place = "below" if best.true_value < chain.true_value else "above"
    return [
        "In the paper search ends far below the samplers; here the best chain ends below search"
        f" ({chain.true_value:,.0f} against {search.true_value:,.0f} under p(c)), in more time"
        f" ({short(chain.best_seconds)} s against {short(search.seconds)} s). Refinement of the"
        f" partition that search found ends {place} it, at {best.true_value:,.0f}"
        f" ({short(best.seconds)} s)."
        if chain.best_seconds > search.seconds
        else "In the paper search ends far below the samplers; here the best chain ends below"
        f" search ({chain.true_value:,.0f} against {search.true_value:,.0f} under p(c)), and sooner"
        f" ({short(chain.best_seconds)} s against {short(search.seconds)} s).",
        "",
    ]


def _orders(outcome: Part, settings: Settings, n: int, report: Report) -> list[str]:
    headers = [
        "prior", "beam", "ascending", "clusters", "descending", "random: mean", "deviation",
        "best", "seconds", "documents/s",
    ]  # fmt: skip
    rows: list[list[object]] = []
    for prior in PRIORS:
        for beam in settings.beam_sizes:
            up, down = (outcome.one(prior, beam, order) for order in ("ascending", "descending"))
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
    for at, (prior, beam) in enumerate((p, b) for p in PRIORS for b in settings.beam_sizes):
        names.append(f"{PRIOR_WORDS[prior]}, beam {beam}")
        others = [f.value(prior) for f in outcome.of(prior, beam, "random")]
        axis.plot(others, [at] * len(others), "o", color="0.6", markersize=5, zorder=1)
        for order, marker, colour in (("ascending", "^", 0), ("descending", "v", 5)):
            value = outcome.one(prior, beam, order).value(prior)
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
        "The values are negative log joints under the prior used in the search, which in the paper"
        f" is presumably P(m). There are {settings.n_random} random orders.",
        "",
        *report.table("nips_orders", headers, rows),
        *report.figure("nips_orders", axis.figure, words),
    ]


def _words(outcome: Part, documents: Documents, settings: Settings, report: Report) -> list[str]:
    found = outcome.one("paper", settings.beam_sizes[-1], "ascending")
    sizes = np.bincount(found.labels)
    theirs = [line.split() for line in paper.NIPS_WORDS]
    rows = []
    for k in range(min(_SHOWN, len(sizes))):
        words = indicative_words(documents, found.labels, k)
        shared = [len(set(words) & set(line)) for line in theirs]
        best = int(np.argmax(shared))
        rows.append([sizes[k], " ".join(words), best + 1, f"{shared[best]} of 20"])
    headers = ["documents", "most indicative words", "nearest line of the paper", "words shared"]
    return [
        f"The table has the twenty most indicative words of the {len(rows)} largest of"
        f" {len(sizes)} clusters, which are those of highest tf-idf (occurrences in the cluster's"
        " documents, times the log of the number of all documents divided by the number with the"
        " word; the paper does not give its formula). The search used P(m), ascending order and a"
        f" beam of {found.beam_size}. Beside each cluster is the line of the paper's table that"
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


def _refinement(outcome: Part, same: bool, report: Report) -> list[str]:
    rows = [
        refinement_row(outcome.one(after.prior, after.beam_size), after)
        for after in outcome.refined
    ]
    best = outcome.best_refined
    said = f"The best has {best.true_value:,.0f} under p(c), with {best.clusters} clusters"
    if same:
        said += f", which is {against(best.true_value, paper.NIPS.value)}"
    table = report.table("nips_refinement", REFINEMENT_HEADERS, rows)
    return [REFINEMENT, "", *table, f"{said}.", ""]


def _samplers(outcome: Part, report: Report) -> list[str]:
    table = report.table("nips_samplers", CHAIN_HEADERS, chain_rows(outcome, paper.NIPS_SAMPLERS))
    said = chains_against_refinement(outcome)
    return [CHAINS, "", *table, f"{said[0].upper()}{said[1:]}."]
