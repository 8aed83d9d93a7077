"""`dpsearch inspect`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from dpsearch._numbers import count
from dpsearch.cli.console import Messages, plain, print_json
from dpsearch.cli.model import load_model
from dpsearch.cli.options import Json, Model

if TYPE_CHECKING:
    from dpsearch.explanation import Explanation, Indication

_SHOWN_CLUSTERS = 30
_SHOWN_COLUMNS = 6


def inspect(model: Model, as_json: Json = False) -> None:
    """Show a model: its family, hyperparameters and clusters."""
    estimator = load_model(model)
    mixture = estimator.mixture_
    components = np.bincount(mixture.groups)
    explanation = estimator.explain()
    about: dict[str, Any] = {
        "family": mixture.model.family.to_dict(),
        "prior": mixture.prior.to_dict(),
        "alpha": estimator.alpha_,
        "rows": int(mixture.sizes.sum()),
        "columns": list(explanation.names),
        "log_joint": estimator.log_joint_,
        "upper_bound": estimator.clustering_.upper_bound,
        "optimal": estimator.clustering_.optimal,
        "components": mixture.n_components,
        "level_reason": estimator.level_reason_,
        "clusters": [
            {
                "size": int(mixture.cluster_sizes[k]),
                "components": int(components[k]),
                "centre": [
                    explanation.value(name, x)
                    for name, x in zip(explanation.names, explanation.centres[k], strict=True)
                ],
                "indicative": [_described(explanation, one) for one in explanation.indicative(k)],
                "posterior": mixture.merged.posterior(k),
            }
            for k in range(mixture.n_clusters)
        ],
    }
    if as_json:
        print_json(about)
    else:
        _show(about)


def _described(explanation: Explanation, one: Indication) -> dict[str, Any]:
    """Return an indication with the levels of categories in place of codes."""
    content = one._asdict()
    if not math.isnan(one.elsewhere):
        content["elsewhere"] = explanation.value(one.column, one.elsewhere)
    return {**content, "centre": explanation.value(one.column, one.centre)}


def _show(about: dict[str, Any]) -> None:
    from dpsearch.families.description import described

    messages = Messages(stderr=False)
    names, clusters = about["columns"], about["clusters"]
    proved = ", proved to be the best" if about["optimal"] else ""
    messages.print(
        f"{count(about['rows'], 'row')}, {count(len(names), 'column')},"
        f" {count(len(clusters), 'cluster')}, {count(about['components'], 'component')}{proved}"
    )
    messages.print(f"level: {about['level_reason']}")
    messages.print(f"log joint of the components {about['log_joint']:.6f}")
    messages.print(f"family: {described(plain(about['family']))}")
    alpha = "" if about["alpha"] is None else f"; alpha {about['alpha']:.4g}"
    messages.print(f"prior: {described(plain(about['prior']))}{alpha}")
    # A few columns are all shown; of many, only those that distinguish clusters.
    few = len(names) <= _SHOWN_COLUMNS
    shown = Table()
    for heading in ("cluster", "size", *(escape(name) for name in names if few)):
        shown.add_column(heading, justify="right", overflow="fold")
    if not few:
        shown.add_column("set apart by", overflow="fold")
    for k, cluster in enumerate(clusters[:_SHOWN_CLUSTERS]):
        cells = [escape(x) if isinstance(x, str) else f"{x:.4g}" for x in cluster["centre"] if few]
        if not few:
            positive = [one for one in cluster["indicative"] if one["log_bayes_factor"] > 0.0]
            cells.append(escape(", ".join(one["column"] for one in positive)))
        shown.add_row(str(k), f"{cluster['size']:,}", *cells)
    messages.console.print(shown)
    if len(clusters) > _SHOWN_CLUSTERS:
        left = count(len(clusters) - _SHOWN_CLUSTERS, "smaller cluster")
        messages.print(f"and {left}: see --json")
