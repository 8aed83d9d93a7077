"""
Handwritten digits
==================

3,000 digits of MNIST, reduced to 50 whitened principal components, in the clusters found by
search and two seconds of refinement. The number above each mean image is the size of the cluster.
The clusters are different ways of writing the digits: upright or slanted, sevens with or without
a bar.
"""

import matplotlib.pyplot as plt

from dpsearch import datasets, families, plots, priors, refine, search

digits = datasets.mnist_digits()
X = datasets.whitened(digits.images)
family = families.Gaussian(prior_mean=0.0, prior_variance=0.1, noise_variance=1.0)
prior = priors.DirichletProcess(alpha=1.0)
found = refine(X, search(X, family, prior), family, prior, seconds=2.0, rng=0)

figure, axis = plt.subplots(figsize=(9, 3.2), layout="constrained")
plots.mean_images(digits.images, found.labels, axis, shown=36)
axis.set_title(f"The largest 36 of {found.n_clusters} clusters")
plt.show()
