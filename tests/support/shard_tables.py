"""Tables with planted clusters, one for each of some families."""

import numpy as np
import scipy.sparse as sp

from dpsearch import families, priors

PRIOR = priors.DirichletProcess(1.0)
GAUSSIAN = families.Gaussian(0.0, 30.0, 1.0)


def planted(n=900, k=6, d=3, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(k, size=n)
    return rng.normal(0, 8, (k, d))[labels] + rng.normal(size=(n, d)), labels


def counts(n=400, seed=0):
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(30, 0.1), size=4)
    return np.stack([rng.multinomial(40, topics[k]) for k in rng.integers(4, size=n)])


def gapped(n=500):
    X, _ = planted(n)
    return np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)


TABLES = {
    "gaussian": (GAUSSIAN, planted()[0]),
    "full": (families.FullGaussian(0.0, 0.1, 6.0, 1.0), planted()[0]),
    "diagonal with gaps": (families.DiagonalGaussian(0.0, 0.1, 3.0, 2.0), gapped()),
    "multinomial": (families.Multinomial(0.5), sp.csr_matrix(counts())),
    "poisson": (families.Poisson(1.0, 0.5), counts()),
    "bernoulli": (families.Bernoulli(1.0, 1.0), (counts() > 1).astype(float)),
}
