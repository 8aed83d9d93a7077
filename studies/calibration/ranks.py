"""Ranks of what was drawn among draws from the posterior, and whether they are uniform."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binomtest, chisquare
from sklearn.metrics import adjusted_rand_score

from dpsearch import DPMixture, Problem, gibbs, split_merge
from dpsearch.explain import _DRAWS, _ENOUGH, explain_mixture
from dpsearch.mixture import Mixture
from dpsearch.samplers import Draws
from studies.calibration.worlds import KINDS, Rng, World, draw

N_DRAWS, THIN, BURN_IN = 99, 12, 120  # draws of a chain: with the truth, 100 ranks
N_BINS = 10
# Name → the sampler, its options, whether α is drawn too.
SAMPLERS: dict[str, tuple[Any, dict[str, Any], bool]] = {
    "gibbs, α fixed": (gibbs, {}, False),
    "gibbs, α integrated": (gibbs, {}, True),
    "gibbs, α sampled": (gibbs, {"alpha": "sample"}, True),
    "split_merge, α fixed": (split_merge, {}, False),
    "split_merge, α integrated": (split_merge, {}, True),
    "split_merge, α sampled": (split_merge, {"alpha": "sample"}, True),
    "sams, α integrated": (split_merge, {"variant": "sams"}, True),
}


class Ranks(NamedTuple):
    """One quantity of one procedure: shares in [0, 1) that should be uniform."""

    what: str
    procedure: str
    family: str
    shares: Any
    at_most: bool = False  # of discrete data: small ones no more often than they should be

    def p_value(self) -> float:
        """Return the p-value of the χ² test of ten bins; for discrete data, of the share ≤ 0.05."""
        if self.at_most:
            below = int((np.asarray(self.shares) <= 0.05).sum())
            return float(binomtest(below, len(self.shares), 0.05, "greater").pvalue)
        return float(chisquare(self.counts()).pvalue)

    def counts(self) -> Any:
        return np.bincount((np.asarray(self.shares) * N_BINS).astype(int), minlength=N_BINS)


def _rank(truth: float, values: Any, rng: Rng) -> float:
    """Return the rank of the truth among values as a share, with ties broken at random."""
    below = int((values < truth).sum())
    ties = int((values == truth).sum())
    return (below + int(rng.integers(ties + 1))) / (len(values) + 1.0)


def _draws(world: World, sampler: Any, options: dict[str, Any], rng: Rng) -> Draws:
    problem = Problem(world.X, world.kind.family, world.prior)
    sweeps = BURN_IN + N_DRAWS * THIN
    found: Draws = sampler(problem, draws=sweeps, burn_in=BURN_IN, thin=THIN, rng=rng, **options)
    return found


def of_samplers(family: str, sampler: str, count: int, seed: int) -> Iterator[Ranks]:
    """Rank the number of clusters, the log joint and α."""
    function, options, learned = SAMPLERS[sampler]
    shares: dict[str, list[float]] = {"number of clusters": [], "log joint": [], "α": []}
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        world = draw(KINDS[family], learned, rng)
        draws = _draws(world, function, options, rng)
        value = Problem(world.X, world.kind.family, world.prior).log_joint(world.labels)
        n_clusters = world.labels.max() + 1
        shares["number of clusters"].append(_rank(n_clusters, draws.n_clusters, rng))
        # Rounding, which would tell a partition from itself.
        shares["log joint"].append(_rank(round(value, 7), draws.log_joint.round(7), rng))
        if learned:
            shares["α"].append(_rank(world.alpha, draws.alpha, rng))
    for what, found in shares.items():
        if found:
            yield Ranks(what, sampler, family, found)


class Reliability(NamedTuple):
    """Probabilities that a new row shares a cluster with rows of the fit, and the truth."""

    family: str
    by: str
    probability: Any
    outcome: Any


def of_predictions(family: str, count: int, seed: int) -> tuple[list[Ranks], Reliability]:
    """Rank a new row: the size of the cluster that it joins, and its first column.

    For each draw of the posterior the cluster of the new row is drawn by its probabilities, and a
    row from the predictive distribution, so that both are draws from their posterior.
    """
    sizes, columns, probability, outcome = [], [], [], []
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        world = draw(KINDS[family], True, rng)
        draws = _draws(world, split_merge, {}, rng)
        problem = Problem(world.X, world.kind.family, world.prior)
        of_new, firsts, shared = np.empty(N_DRAWS), np.empty(N_DRAWS), np.zeros(len(world.X))
        for d, labels in enumerate(draws.labels.astype(np.int64)):
            mixture = Mixture.of(problem.model, problem.items, labels, world.prior)
            places = np.exp(np.append(*mixture.log_joint_probabilities(world.new)))
            places /= places.sum()
            of_new[d] = np.append(mixture.sizes, 0)[rng.choice(len(places), p=places)]
            firsts[d] = mixture.sample(1, rng)[0][0, 0]
            shared += places[labels] / N_DRAWS
        own = world.labels == world.new_labels[0]
        sizes.append(_rank(own.sum(), of_new, rng))
        columns.append(_rank(world.new[0, 0], firsts, rng))
        one = rng.integers(len(own))  # one pair of each world: they are independent
        probability.append(shared[one])
        outcome.append(own[one])
    about = ("split_merge, α integrated", family)
    return [
        Ranks("cluster of a new row", *about, sizes),
        Ranks("values of a new row", *about, columns),
    ], Reliability(family, "draws", probability, outcome)


def of_outliers(family: str, gaps: bool, count: int, seed: int) -> Ranks:
    """Return p-values of new rows that do come from the clusters, given the true partition."""
    shares = []
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        world = draw(KINDS[family], False, rng, inside=True)
        if gaps:
            world.new[0, rng.integers(world.new.shape[1])] = np.nan
        problem = Problem(world.X, world.kind.family, world.prior)
        mixture = Mixture.of(problem.model, problem.items, world.labels, world.prior)
        found = explain_mixture(
            mixture, (), world.new, outlier_rate=0.05, rng=rng, with_columns=False
        )
        shares.append(_without_steps(float(found.p_value[0]), gaps, rng))
    what = "p-value of a new row" + (" with a gap" if gaps else "")
    return Ranks(what, "true partition", family, shares, not KINDS[family].continuous)


def _without_steps(p_value: float, gaps: bool, rng: Rng) -> float:
    """Return a uniform draw between a p-value and the next smaller possible one.

    Those of rows with gaps are h/l, with l the number of draws until h are as low; the others have
    20,000 steps.
    """
    if gaps and p_value > _ENOUGH / _DRAWS:
        return float(rng.uniform(_ENOUGH / (round(_ENOUGH / p_value) + 1), p_value))
    return min(p_value, 1.0 - 1e-12)


class MapFigures(NamedTuple):
    """What the best partition found says about new rows of the model's clusters."""

    family: str
    n_rows: int
    memberships: Reliability
    outliers: tuple[float, float]  # shares with p ≤ .01 and p ≤ .05
    of_the_fit: tuple[float, float]  # the same of the rows that were fitted
    agreement: float  # adjusted Rand index with the true partition


def of_map(family: str, n_rows: int, count: int, seed: int) -> MapFigures:
    """Measure `predict_proba` and p-values of the best partition, which need not be calibrated."""
    probability: list[float] = []
    outcome: list[bool] = []
    of_new: list[float] = []
    of_fit: list[float] = []
    agreement = []
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        world = draw(KINDS[family], True, rng, n_rows=n_rows, n_new=20, inside=True)
        model = DPMixture(world.kind.family, world.prior, level="components").fit(world.X)
        shares = model.predict_proba(world.new)
        partners = rng.integers(n_rows, size=len(shares))
        probability.extend(shares[np.arange(len(shares)), model.labels_[partners]])
        outcome.extend(world.labels[partners] == world.new_labels)
        agreement.append(adjusted_rand_score(world.labels, model.labels_))
        for rows, values in ((world.new, of_new), (world.X, of_fit)):
            values.extend(model.explain(rows, outlier_rate=0.05).p_value)
    best = Reliability(family, f"the best partition of {n_rows} rows", probability, outcome)
    return MapFigures(family, n_rows, best, _low(of_new), _low(of_fit), float(np.mean(agreement)))


def _low(p_values: list[float]) -> tuple[float, float]:
    values = np.array(p_values)
    return float(np.mean(values <= 0.01)), float(np.mean(values <= 0.05))
