"""
Clusters and their ellipses
===========================

Three kinds of iris, by the length and width of their petals. Nobody said three: the ellipses are
the clusters of highest posterior probability, each drawn at two standard deviations.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_iris

from dpsearch import DPMixture, plots

iris = load_iris()
X = iris.data[:, 2:]
model = DPMixture(random_state=0).fit(X)

figure, axis = plt.subplots(figsize=(7, 4.2), layout="constrained")
plots.scatter(X, model.labels_, axis, names=iris.feature_names[2:])
plt.show()
