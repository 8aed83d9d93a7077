"""
The tree over components
========================

Wines by thirteen measurements. The blocks of the best partition are the components, which are the
leaves of the tree; those that share rows are joined first. The tree is cut at the dashed line:
components that join below it form one cluster and have the same colour. Any other cut is
available by `model.cut(3)` or `model.at_level(3)`.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine

from dpsearch import DPMixture, plots

X = load_wine().data
model = DPMixture(random_state=0).fit(X)

figure, axis = plt.subplots(figsize=(8, 4.4), layout="constrained")
plots.dendrogram(model, axis)
plt.show()
