"""
Documents and their words
=========================

Each document is the documentation of a function of SciPy. scikit-learn counts the words, and the
documents are clustered under multinomial distributions. The figure shows the six largest
clusters, each by its most characteristic words and how many times as frequent they are in the
cluster as elsewhere.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy
from sklearn.feature_extraction.text import CountVectorizer

from dpsearch import DPMixture, plots

areas = ["linalg", "optimize", "signal", "special", "interpolate", "ndimage"]
texts = {}
for area in areas:
    module = getattr(scipy, area)
    for name in module.__all__:
        text = getattr(module, name).__doc__
        if text and len(text) > 400:
            texts[f"{area}.{name}"] = text

counter = CountVectorizer(token_pattern="[a-z]{3,}", stop_words="english", min_df=5, max_df=0.4)
X = counter.fit_transform(texts.values()).astype(float)
words = counter.get_feature_names_out()
model = DPMixture(family="multinomial", random_state=0).fit(X)
explanation = model.explain(X)

figure, axes = plt.subplots(2, 3, figsize=(9, 5), layout="constrained")
for k, axis in enumerate(axes.flat[: model.n_clusters_]):
    lift = explanation.centres[k] / explanation.elsewhere[k]
    telling = np.argsort(-explanation.columns[k] * (lift > 1.0))[:7][::-1]
    axis.barh(words[telling], lift[telling], color=plots.COLOURS[k])
    axis.set_xscale("log")
    axis.set_xlim(1.0, 2000.0)
    typical = list(texts)[explanation.typical[k][0]]
    axis.set_title(f"{explanation.sizes[k]} texts, e.g. {typical}", fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
figure.suptitle(f"{X.shape[0]} texts in {model.n_clusters_} clusters: words by relative frequency")
plt.show()
