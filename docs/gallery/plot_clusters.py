"""
Clusters and their ellipses
===========================

Three species of iris, by the length and width of their petals. The number of clusters was not
given: the ellipses show the clusters of the most probable partition that was found, each at two
standard deviations.
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
