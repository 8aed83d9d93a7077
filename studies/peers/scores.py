"""Scores of labels: against the true classes, and by the log joint of one model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import (
    adjusted_mutual_info_score,
    adjusted_rand_score,
    homogeneity_completeness_v_measure,
)

from dpsearch._types import Labels
from dpsearch.automatic import resolve_prior
from dpsearch.errors import DPSearchError
from dpsearch.families import from_dict
from dpsearch.problem import Problem
from studies.peers.tables import sparse
from studies.peers.units import Outcome, Unit


@dataclass(frozen=True)
class Score:
    """The scores of a unit.  Points that HDBSCAN calls noise (−1) count as one label in ARI, AMI
    and log joint, and are left out of the number of clusters."""

    unit: Unit
    outcome: Outcome
    ari: float = math.nan
    ami: float = math.nan
    homogeneity: float = math.nan  # 1: each cluster has points of one class only
    completeness: float = math.nan  # 1: each class is in one cluster
    n_clusters: int = 0
    n_classes: int = 0
    noise: float = 0.0  # share of points called noise
    log_joint: float | None = None

    @property
    def done(self) -> bool:
        return self.outcome.status == "done"


def scored(results: Sequence[tuple[Unit, Outcome]]) -> list[Score]:
    """Score all units."""
    values = log_joints(results)
    return [
        judge(unit, outcome, value) for (unit, outcome), value in zip(results, values, strict=True)
    ]


def judge(unit: Unit, outcome: Outcome, log_joint: float | None = None) -> Score:
    truth = unit.table.truth(unit.seed)
    n_classes = len(np.unique(truth))
    if outcome.status != "done":
        return Score(unit, outcome, n_classes=n_classes)
    labels = np.asarray(outcome.labels)
    homogeneity, completeness, _ = homogeneity_completeness_v_measure(truth, labels)
    return Score(
        unit,
        outcome,
        ari=float(adjusted_rand_score(truth, labels)),
        ami=float(adjusted_mutual_info_score(truth, labels)),
        homogeneity=float(homogeneity),
        completeness=float(completeness),
        n_clusters=len(np.unique(labels[labels >= 0])),
        n_classes=n_classes,
        noise=float((labels < 0).mean()),
        log_joint=log_joint,
    )


def log_joints(results: Sequence[tuple[Unit, Outcome]]) -> list[float | None]:
    """Return the log joint of each unit's labels under the family that dpsearch chose.

    The family is the one of dpsearch's first seed on the same form of the same table, the prior
    its default.  None where dpsearch did not run, or has no family for the table as it is.
    """
    problems: dict[tuple[str, str], Problem | None] = {}
    for unit, outcome in results:
        place = (unit.table.name, unit.data_form)
        fresh = place not in problems and unit.data_form in ("raw", "common")
        if fresh and unit.tool.group == "dpsearch" and outcome.status == "done":
            problems[place] = _problem(unit, outcome)
    out: list[float | None] = []
    for unit, outcome in results:
        problem = problems.get((unit.table.name, unit.data_form))
        if problem is None or outcome.status != "done" or unit.table.drawn:
            out.append(None)
        else:
            out.append(problem.log_joint(_from_zero(outcome.labels)))
    return out


def _problem(unit: Unit, outcome: Outcome) -> Problem | None:
    """Build the model that dpsearch used; None if it does not reproduce the reported value."""
    arrays = unit.table.form(unit.data_form, unit.seed)
    X = sparse(arrays) if "indptr" in arrays else arrays["X"]
    try:
        family = from_dict(outcome.about["family_fields"])
        problem = Problem(
            np.asarray(X, float) if "X" in arrays else X, family, resolve_prior("auto")
        )
    except (DPSearchError, KeyError):
        return None
    again = problem.log_joint(_from_zero(outcome.labels))
    return problem if math.isclose(again, outcome.about["log_joint"], rel_tol=1e-6) else None


def _from_zero(labels: Sequence[int]) -> Labels:
    return np.asarray(np.unique(labels, return_inverse=True)[1], np.int64)
