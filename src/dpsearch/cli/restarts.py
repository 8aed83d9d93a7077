"""`dpsearch fit --restarts`: from other orders, to keep the best and to see where they agree."""

from __future__ import annotations

from typing import Any

from dpsearch.refinement.consensus import Consensus


def restart(
    model: Any, rows: Any, n_restarts: int, seed: int, stage: Any, interrupts: list[int]
) -> Consensus:
    """Fit the rows again from random orders, under the model's family and prior.

    The model takes over what is better than its own.  Ctrl-C ends it with what was found so far.
    """
    from sklearn.base import clone

    found = [model.clustering_]
    for i in range(1, n_restarts + 1):
        if interrupts:
            break
        stage.begin(f"restart {i} of {n_restarts}")
        other = clone(model).set_params(
            family=model.family_, alpha=model.mixture_.prior, order="random", certify=False,
            kinds=None,  # the rows are a matrix already
            random_state=(seed + i) % 2**32,
        )  # fmt: skip
        try:
            other.fit(rows, callback=stage.callback)
        except KeyboardInterrupt:
            break
        found.append(other.clustering_)
        if other.log_joint_ > model.log_joint_:
            model.adopt(other)
    return Consensus.of(found)
