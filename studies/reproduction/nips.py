"""Section 4.3: documents of the NIPS proceedings, as counts of words."""

from __future__ import annotations

from dataclasses import dataclass

from dpsearch import families
from studies.reproduction.cache import Cache
from studies.reproduction.data import Documents, fingerprint
from studies.reproduction.study import PRIORS, Part, Study
from studies.reproduction.work import Tell

CONCENTRATION = 10.0
FAMILY = families.Multinomial(CONCENTRATION)


@dataclass(frozen=True)
class Settings:
    beam_sizes: tuple[int, ...] = (1, 10, 100)
    n_random: int = 10
    refine_seconds: float = 30.0
    chain_seconds: float = 30.0
    starts: tuple[str, ...] = ("one", "all", "log", "search")
    seed: int = 0


QUICK = Settings(
    beam_sizes=(1, 10), n_random=2, refine_seconds=1.0, chain_seconds=1.0,
    starts=("one", "search"),
)  # fmt: skip


def run(documents: Documents, settings: Settings, cache: Cache, n_jobs: int, tell: Tell) -> Part:
    """Run everything on documents whose vocabulary is reduced already."""
    counts = documents.counts
    key = {"data": fingerprint(counts.data, counts.indices, counts.indptr)}
    study = Study("nips", lambda: counts, FAMILY, key, cache, settings.seed, n_jobs)
    tell("NIPS: searches")
    orders = ["ascending", "descending", *(f"random {i}" for i in range(settings.n_random))]
    searched = [
        study.search(prior, beam, order)
        for prior in PRIORS
        for beam in settings.beam_sizes
        for order in orders
    ]
    tell(f"NIPS: refinement, {settings.refine_seconds:g} s from each")
    best = settings.beam_sizes[-1]
    last = [f for f in searched if f.beam_size == best and f.order == "ascending"]
    refined = study.refine(last, settings.refine_seconds)
    tell(f"NIPS: samplers, {settings.chain_seconds:g} s for each chain")
    return Part(searched, refined, study.chains(settings.starts, settings.chain_seconds))
