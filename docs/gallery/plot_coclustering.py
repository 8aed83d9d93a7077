"""
Which points belong together, and how certainly
===============================================

Draws from the posterior give the probability that two points share a cluster, for each pair of
points. Here two clouds overlap: the yellow squares are clusters, and the grey lines are points
between two of them. The right panel shows the probability of each number of clusters.
"""

import matplotlib.pyplot as plt
import numpy as np

from dpsearch import families, plots, priors, split_merge

rng = np.random.default_rng(0)
X = np.vstack([rng.normal(centre, 1.0, (60, 2)) for centre in ([0, 0], [3.4, 0], [0, 9])])
family = families.Gaussian(prior_mean=0.0, prior_variance=16.0, noise_variance=1.0)
prior = priors.DirichletProcess(priors.Gamma(1.0, 1.0))
draws = split_merge(X, family, prior, draws=1000, burn_in=100, chains=2, rng=0)

figure, axes = plt.subplots(1, 2, figsize=(9.5, 4.2), layout="constrained")
plots.coclustering(draws, axes[0])
plots.k_posterior(draws, axes[1])
plt.show()
