"""
A gap that closes
=================

Is this the best partition of all? `certify` bounds what any partition could have from above, and
works the bound down to the partition in hand. When they meet, it is proved. Kernels are compiled
when they are first used: a small proof before the one that is timed sees to that.
"""

import matplotlib.pyplot as plt

from dpsearch import certify, datasets, families, priors, search

X = datasets.dirichlet_process_draw(1000, 2, rng=7).X
family = families.Gaussian(prior_mean=0.0, prior_variance=10.0, noise_variance=1.0)
prior = priors.DirichletProcess(alpha=1.0)
certify(X[:50], search(X[:50], family, prior), family, prior)

steps = []
found = search(X, family, prior)
certificate = certify(X, found, family, prior, time_limit=20.0, callback=steps.append)
print(certificate)

# %%
# The gap is in nats: no partition is more than exp(gap) times as probable as the one in hand.

figure, axis = plt.subplots(figsize=(7.5, 4.0), layout="constrained")
gaps = [max(step.upper_bound - step.log_joint, 1e-7) for step in steps]
axis.plot([step.seconds for step in steps], gaps, drawstyle="steps-post", marker=".")
axis.set_yscale("log")
axis.set_xlabel("seconds")
axis.set_ylabel("gap between bound and partition, nats")
axis.spines[["top", "right"]].set_visible(False)
plt.show()
