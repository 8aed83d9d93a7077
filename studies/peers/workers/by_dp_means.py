"""pdc-dp-means, with its default δ or with twice a quantile of χ² with a degree per column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def prepare(data: dict[str, Any], settings: dict[str, Any], seed: int) -> Callable[[], Any]:
    from pdc_dp_means import DPMeans
    from scipy.stats import chi2

    X = data["X"]
    delta = {}
    if "quantile" in settings:
        delta["delta"] = 2.0 * float(chi2.ppf(settings["quantile"], X.shape[1]))
    model = DPMeans(n_clusters=1, n_init=1, random_state=seed, **delta)
    return lambda: model.fit(X).labels_
