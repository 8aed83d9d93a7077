"""
A gap that closes
=================

Is this the best of all partitions? `certify` bounds the log joint of every partition from above,
and lowers the bound towards the log joint of the given partition. When the two meet, the
partition is proved to be a best one. Kernels are compiled when they are first used, so a small
proof comes before the one that is timed.
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
# The gap is in nats: no partition is more than exp(gap) times as probable as the one found.

figure, axis = plt.subplots(figsize=(7.5, 4.0), layout="constrained")
gaps = [max(step.upper_bound - step.log_joint, 1e-7) for step in steps]
axis.plot([step.seconds for step in steps], gaps, drawstyle="steps-post", marker=".")
axis.set_yscale("log")
axis.set_xlabel("seconds")
axis.set_ylabel("gap between bound and partition, nats")
axis.spines[["top", "right"]].set_visible(False)
plt.show()
