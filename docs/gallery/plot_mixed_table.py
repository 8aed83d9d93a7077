"""
A table of mixed columns
========================

A polars frame with real numbers, counts, booleans and categories, in which a tenth of the cells
are missing. The colours show how much each column distinguishes each cluster (log Bayes factor),
and the text shows the centre of the cluster: a mean, a proportion or the most probable category.
Income has the same distribution everywhere, so it distinguishes no cluster.
"""

import matplotlib.pyplot as plt
import numpy as np
import polars as pl

from dpsearch import DPMixture

rng = np.random.default_rng(0)
who = rng.integers(3, size=400)
cities = ["Bonn", "Oslo", "Rome"]
city = np.where(rng.random(400) < 0.8, who, rng.integers(3, size=400))
frame = pl.DataFrame(
    {
        "height": np.array([158.0, 171.0, 184.0])[who] + rng.normal(0, 5, 400),
        "income": np.exp(rng.normal(0, 0.4, 400)) * 30.0,
        "visits": rng.poisson(np.array([2, 5, 10])[who]),
        "smoker": rng.random(400) < np.array([0.1, 0.9, 0.5])[who],
        "city": [cities[k] for k in city],
    }
)
missing = rng.random(frame.shape) < 0.1
frame = frame.with_columns(
    pl.when(pl.Series(~missing[:, j])).then(pl.col(name)).alias(name)
    for j, name in enumerate(frame.columns)
)
model = DPMixture(random_state=0).fit(frame)
explanation = model.explain(frame)

figure, axis = plt.subplots(figsize=(8, 3.2), layout="constrained")
shown = axis.imshow(np.maximum(explanation.columns, 0.0), cmap="Blues", aspect="auto")
axis.set_xticks(range(frame.width), frame.columns)
axis.set_yticks(
    range(model.n_clusters_), [f"cluster {k}: {n}" for k, n in enumerate(explanation.sizes)]
)
for k, d in np.ndindex(explanation.columns.shape):
    centre = explanation.centres[k, d]
    text = cities[int(centre)] if frame.columns[d] == "city" else f"{centre:.3g}"
    dark = explanation.columns[k, d] > 0.6 * explanation.columns.max()
    axis.text(d, k, text, ha="center", va="center", color="white" if dark else "black")
figure.colorbar(shown, label="log Bayes factor, nats")
axis.spines[:].set_visible(False)
axis.tick_params(length=0)
plt.show()
