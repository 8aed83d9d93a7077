"""The moves that make up a sweep.

Every move leaves the posterior invariant, so a sweep may combine any number of any of them.  A move
is either a part of the compiled sweep (`Move.planned`), which makes split-merge proposals, then a
sweep of proposals from the prior, then a Gibbs sweep, then an update of α, or it is made in Python
before that (`Move.begin`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

from dpsearch._types import Labels, Rng, Vector
from dpsearch._validate import whole
from dpsearch.errors import CapabilityError, ParameterError
from dpsearch.problem import Problem
from dpsearch.samplers.pair_moves import RANDOM, RESTRICTED_GIBBS, SEQUENTIAL

SYSTEMATIC, SHUFFLED, RANDOM_ITEMS = 0, 1, 2
SCANS = {"systematic": SYSTEMATIC, "shuffled": SHUFFLED, "random": RANDOM_ITEMS}
DIVISIONS = {"random": RANDOM, "restricted_gibbs": RESTRICTED_GIBBS, "sequential": SEQUENTIAL}


class Plan(NamedTuple):
    """The compiled part of a sweep."""

    moves: int = 0  # split-merge proposals
    rule: int = RANDOM  # how they divide a cluster
    scans: int = 0  # restricted Gibbs scans in each
    gibbs: bool = False  # whether there is a Gibbs sweep over all items
    scan: int = SYSTEMATIC  # the order of the items in it
    proposals: int = 0  # proposals from the prior for each item in a sweep
    partial: bool = False  # whether they follow Neal's algorithm 7
    proposal_scan: int = SYSTEMATIC
    sample_alpha: bool = False
    shape: float = 1.0  # of the Gamma prior on α, if it is sampled
    rate: float = 1.0


class Step(Protocol):
    """A move that one chain makes in Python, with its state from sweep to sweep."""

    names: tuple[str, ...]  # of the recorded values
    state: Vector  # saved in checkpoints

    @property
    def values(self) -> Vector:
        """The current values, recorded after each sweep."""

    def step(self, problem: Problem, labels: Labels, rng: Rng) -> tuple[Problem, Labels]:
        """Return the problem and the partition after the move."""


class Move:
    """One step of a chain; a subclass is a frozen dataclass of its parameters."""

    def check(self, problem: Problem) -> None:
        """Raise if the problem lacks what the move needs."""

    def planned(self, plan: Plan, problem: Problem) -> Plan:
        """Return the plan of a sweep with this move in it."""
        return plan

    def begin(self, problem: Problem) -> Step | None:
        """Return the step that a chain makes in Python, if it is not part of the plan."""
        return None

    def described(self) -> dict[str, Any]:
        """Return the kind of move and its parameters, in plain values."""
        return {"move": type(self).__name__, **asdict(self)}  # type: ignore[call-overload]


@dataclass(frozen=True)
class GibbsSweep(Move):
    """Each item in turn leaves its cluster and joins one, or a new one, by its conditional.

    Parameters
    ----------
    scan
        ``"systematic"``: items in order of rows; ``"shuffled"``: in a new random order each
        sweep; ``"random"``: N items, drawn with replacement.
    """

    scan: str = "systematic"

    def __post_init__(self) -> None:
        _check_scan(self.scan)

    def planned(self, plan: Plan, problem: Problem) -> Plan:
        return plan._replace(gibbs=True, scan=SCANS[self.scan])


def _check_scan(scan: str) -> None:
    if not isinstance(scan, str) or scan not in SCANS:
        raise ParameterError.unknown("scan", "scan", scan, SCANS)


@dataclass(frozen=True)
class MetropolisSweep(Move):
    """Each item in turn gets proposals from the prior; see `dpsearch.samplers.prior_proposals`.

    Parameters
    ----------
    proposals
        For each item.
    scan
        The order of the items, as for `GibbsSweep`.
    algorithm
        Neal's number: 5, any cluster is proposed; 7, only new clusters and the end of clusters of
        one item are, and Gibbs steps between the clusters that there are follow.
    """

    proposals: int = 1
    scan: str = "systematic"
    algorithm: int = 5

    def __post_init__(self) -> None:
        _check_scan(self.scan)
        object.__setattr__(self, "proposals", whole(self.proposals, "proposals", 1))
        if self.algorithm not in (5, 7):
            raise ParameterError.must("algorithm", "be 5 or 7", self.algorithm)

    def planned(self, plan: Plan, problem: Problem) -> Plan:
        return plan._replace(
            proposals=self.proposals, partial=self.algorithm == 7, proposal_scan=SCANS[self.scan]
        )


@dataclass(frozen=True)
class SplitMerge(Move):
    """Proposals to divide a cluster or to join two; see `dpsearch.samplers.pair_moves`.

    Parameters
    ----------
    division
        How a cluster is divided: at ``"random"``, by ``"restricted_gibbs"`` scans, or
        ``"sequential"``: one member after another.
    moves
        Proposals in each sweep.  One places the members of a cluster or two between two clusters,
        scans + 2 times: with K clusters of equal size, about (scans + 2)/K points in N and more
        for merges, which pays when K is large.
    scans
        Restricted Gibbs scans before the last one.
    """

    division: str = "restricted_gibbs"
    moves: int = 1
    scans: int = 5

    def __post_init__(self) -> None:
        if self.division not in DIVISIONS:
            raise ParameterError.unknown("division", "division", self.division, DIVISIONS)
        object.__setattr__(self, "moves", whole(self.moves, "moves", 1))
        object.__setattr__(self, "scans", whole(self.scans, "scans", 0))

    def planned(self, plan: Plan, problem: Problem) -> Plan:
        return plan._replace(moves=self.moves, rule=DIVISIONS[self.division], scans=self.scans)


@dataclass(frozen=True)
class AlphaUpdate(Move):
    """A step of Escobar & West (1995) for the concentration α of a Dirichlet process."""

    def planned(self, plan: Plan, problem: Problem) -> Plan:
        concentration = problem.prior.concentration()
        if concentration is None or concentration.gamma is None:
            raise CapabilityError(
                "alpha='sample' needs a prior on α, a Gamma distribution:"
                f" DirichletProcess(Gamma(shape, rate)); got {problem.prior!r}"
            )
        shape, rate = float(concentration.gamma.shape), float(concentration.gamma.rate)
        return plan._replace(sample_alpha=True, shape=shape, rate=rate)


def plan_of(moves: Sequence[Move], problem: Problem) -> Plan:
    """Return the compiled part of a sweep that makes these moves."""
    plan = Plan()
    for move in moves:
        plan = move.planned(plan, problem)
    return plan
