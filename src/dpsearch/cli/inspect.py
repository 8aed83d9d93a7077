"""`dpsearch inspect`."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from dpsearch.cli.console import plain, print_json
from dpsearch.cli.model import load_model
from dpsearch.cli.options import Json, Model

_SHOWN_CLUSTERS = 30
_SHOWN_COLUMNS = 6


def inspect(model: Model, as_json: Json = False) -> None:
    """Show what a model is: family, hyperparameters, and its clusters."""
    estimator = load_model(model)
    mixture = estimator._mixture
    names = [str(name) for name in getattr(estimator, "feature_names_in_", [])]
    about: dict[str, Any] = {
        "family": mixture.model.family.to_dict(),
        "prior": mixture.prior.to_dict(),
        "alpha": estimator.alpha_,
        "rows": int(mixture.sizes.sum()),
        "columns": names or estimator.n_features_in_,
        "log_joint": estimator.log_joint_,
        "upper_bound": estimator.clustering_.upper_bound,
        "optimal": estimator.clustering_.optimal,
        "clusters": [
            {"size": int(mixture.sizes[k]), **mixture.posterior(k)}
            for k in range(mixture.n_clusters)
        ],
    }
    if as_json:
        print_json(about)
        return
    _show(about, names or [f"column {j}" for j in range(estimator.n_features_in_)])


def _show(about: dict[str, Any], names: list[str]) -> None:
    console = Console()

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True, emoji=False)

    clusters = about["clusters"]
    proved = ", proved to be the best" if about["optimal"] else ""
    say(f"{about['rows']:,} rows, {len(names):,} columns, {len(clusters)} clusters{proved}")
    say(f"log joint {about['log_joint']:.6f}")
    say(f"family: {_described(about['family'])}")
    say(f"prior: {_described(about['prior'])}; alpha {about['alpha']:.4g}")
    shown = Table()
    for heading in ("cluster", "size"):
        shown.add_column(heading, justify="right")
    # What to expect of a column, whatever the family calls it.
    centre = next((key for key in ("mean", "probabilities") if key in clusters[0]), None)
    columns = names[:_SHOWN_COLUMNS] if centre and _is_vector(clusters[0][centre]) else []
    for name in columns:
        shown.add_column(_escaped(name), justify="right", overflow="fold")
    for k, cluster in enumerate(clusters[:_SHOWN_CLUSTERS]):
        values = [f"{cluster[centre][j]:.4g}" for j in range(len(columns))] if centre else []
        shown.add_row(str(k), f"{cluster['size']:,}", *values)
    console.print(shown)
    if columns:
        say(f"{centre} of {'each column' if len(columns) == len(names) else 'the first columns'}")
    if len(clusters) > _SHOWN_CLUSTERS:
        say(f"and {len(clusters) - _SHOWN_CLUSTERS} smaller clusters: see --json")


def _is_vector(value: Any) -> bool:
    return getattr(value, "ndim", 0) == 1


def _escaped(name: str) -> str:
    from rich.markup import escape

    return escape(name)


def _described(spec: dict[str, Any]) -> str:
    """A name and its hyperparameters; long vectors by their length."""
    parts = [str(spec.get("name", ""))]
    for key, value in plain(spec).items():
        if key == "name":
            continue
        long = isinstance(value, list) and len(value) > 6
        parts.append(f"{key} {f'({len(value)} numbers)' if long else value}")
    return ", ".join(parts)
