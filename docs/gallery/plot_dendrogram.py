"""
The tree over components
========================

Wines by thirteen measurements. The blocks of the best partition are components, the leaves; those
that share rows are joined first. The dashed line is where the tree is cut: what joins below it is
one cluster, in one colour. Any other cut is at hand: `model.cut(3)`, or `model.at_level(3)`.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine

from dpsearch import DPMixture, plots

X = load_wine().data
model = DPMixture(random_state=0).fit(X)

figure, axis = plt.subplots(figsize=(8, 4.4), layout="constrained")
plots.dendrogram(model, axis)
plt.show()
