"""Obvious oracles: each fast routine's answer, computed slowly and in another way.

Nothing here may use the package's kernels.  Families are read through their public
hyperparameters alone.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import scipy.sparse as sp
from scipy import special, stats
from scipy.special import betaln, gammaln

from dpsearch import families

# -- families: log H of a block of data, with every constant ---------------------------------


def log_marginal(family, X):
    """Return log H(X) of all rows of X in one cluster."""
    X = dense(X)
    return 0.0 if len(X) == 0 else float(_MARGINALS[family.name](family, X))


def log_predictive(family, X, x):
    """Return log H(x | X) for one more row."""
    X = dense(X)
    return log_marginal(family, np.vstack([X, x])) - log_marginal(family, X)


def dense(X):
    return X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)


def _columns(value, X):
    return np.broadcast_to(np.asarray(value, dtype=np.float64), X.shape[1])


def _gaussian(family, X):
    """Each column is jointly normal, with the noise plus the shared mean's covariance."""
    n, out = len(X), 0.0
    for x, mean, prior, noise in zip(
        X.T,
        _columns(family.prior_mean, X),
        _columns(family.prior_variance, X),
        _columns(family.noise_variance, X),
        strict=True,
    ):
        covariance = noise * np.eye(n) + prior * np.ones((n, n))
        out += stats.multivariate_normal(np.full(n, mean), covariance).logpdf(x)
    return out


def _diagonal_gaussian(family, X):
    """Each column is jointly Student t: normal with an inverse-gamma prior on the variance."""
    n, out = len(X), 0.0
    for x, mean, strength, shape, scale in zip(
        X.T,
        _columns(family.prior_mean, X),
        _columns(family.prior_strength, X),
        _columns(family.shape, X),
        _columns(family.scale, X),
        strict=True,
    ):
        matrix = scale / shape * (np.eye(n) + np.ones((n, n)) / strength)
        out += stats.multivariate_t(np.full(n, mean), matrix, df=2.0 * shape).logpdf(x)
    return out


def full_gaussian_posterior(family, X):
    """Return (mean, strength, degrees, scale matrix) of the Normal–inverse-Wishart posterior."""
    n, n_features = X.shape
    mean = _columns(family.prior_mean, X)
    degrees = n_features + 2.0 if family.degrees is None else family.degrees
    scale = np.asarray(family.scale, dtype=np.float64)
    scale = scale if scale.ndim == 2 else np.diag(_columns(scale, X))
    if n == 0:
        return mean, family.prior_strength, degrees, scale
    strength = family.prior_strength + n
    centre = X.mean(axis=0)
    scatter = (X - centre).T @ (X - centre)
    off = np.outer(centre - mean, centre - mean) * family.prior_strength * n / strength
    return (
        (family.prior_strength * mean + n * centre) / strength,
        strength,
        degrees + n,
        scale + scatter + off,
    )


def _full_gaussian(family, X):
    """Apply the chain rule, with the posterior computed anew for every row."""
    out = 0.0
    for i, x in enumerate(X):
        mean, strength, degrees, scale = full_gaussian_posterior(family, X[:i])
        freedom = degrees - X.shape[1] + 1.0
        matrix = scale * (strength + 1.0) / (strength * freedom)
        out += stats.multivariate_t(mean, matrix, df=freedom).logpdf(x)
    return out


def of_projections(family, X):
    """Return the projections, each an inner product, and their family."""
    centre = _columns(family.centre, X)
    Z = np.array([[np.dot(a, x - centre) for a in family.components] for x in X])
    names = ("prior_mean", "prior_strength", "degrees", "scale")
    inner = families.FullGaussian(**{name: getattr(family, name) for name in names})
    return inner, Z.reshape(len(X), len(family.components))


def _projected_gaussian(family, X):
    return _full_gaussian(*of_projections(family, X))


def _multinomial(family, X):
    """Apply the chain rule over Dirichlet–multinomial documents."""
    out = 0.0
    concentration = _columns(family.concentration, X)
    for i, x in enumerate(X):
        if x.sum() > 0:
            out += stats.dirichlet_multinomial.logpmf(
                x.astype(int), concentration + X[:i].sum(axis=0), int(x.sum())
            )
    return out


def _bernoulli(family, X):
    successes, failures = _columns(family.successes, X), _columns(family.failures, X)
    ones = X.sum(axis=0)
    return (betaln(successes + ones, failures + len(X) - ones) - betaln(successes, failures)).sum()


def _poisson(family, X):
    """Apply the chain rule over negative binomial counts."""
    out = 0.0
    shape, rate = _columns(family.shape, X), _columns(family.rate, X)
    for i, x in enumerate(X):
        chance = (rate + i) / (rate + i + 1.0)
        out += stats.nbinom.logpmf(x, shape + X[:i].sum(axis=0), chance).sum()
    return out


def _categorical(family, X):
    out = 0.0
    concentration = _columns(family.concentration, X)
    levels = _columns(family.n_levels, X).astype(int)
    for x, a, n_levels in zip(X.T, concentration, levels, strict=True):
        counts = np.bincount(x.astype(int), minlength=n_levels)
        out += gammaln(a * n_levels) - gammaln(a * n_levels + len(x))
        out += (gammaln(a + counts) - gammaln(a)).sum()
    return out


def _of_column(family, d, n_features):
    """Return the family of column d alone: of all vectors of hyperparameters, entry d."""
    own = {}
    for field in dataclasses.fields(family):
        value = getattr(family, field.name)
        if np.ndim(value) == 1:
            own[field.name] = np.broadcast_to(value, n_features)[d]
    return dataclasses.replace(family, **own)


def _with_gaps(family, X):
    """Add up log H of each column's observed values."""
    return sum(
        log_marginal(_of_column(family.family, d, X.shape[1]), x[~np.isnan(x)][:, None])
        for d, x in enumerate(X.T)
    )


def _product(family, X):
    return sum(log_marginal(part, X[:, list(columns)]) for part, columns in family.parts)


def _directions(family, X):
    """Return log C of the nodes, their posterior log weights, A(κ), A(κR), R and the direction."""
    d = X.shape[1]
    nu, (low, high) = 0.5 * d - 1.0, family.concentration
    whole, least = math.log(high / low), 1.2 * math.sqrt(2.0 / d)  # known by one point
    count = 2 * math.ceil(0.5 * whole / min(least, 0.05))
    finer = (k * 2.0**j for j in range(20) for k in (1.0, 1.5))  # even numbers of nodes between
    count = next(int(count * k) for k in finer if whole <= count * k * least / len(X) ** 0.5)
    nodes = np.geomspace(low, high, 1 + count)
    shares = np.full(len(nodes), 1.0 / max(count, 1))
    shares[[0, -1]] *= 0.5 if count else 1.0  # the trapezoid rule

    def log_c(kappa):  # not for 0
        log_i = np.log(special.ive(nu, kappa)) + kappa
        return nu * np.log(kappa) - 0.5 * d * math.log(2.0 * math.pi) - log_i

    X = X / np.linalg.norm(X, axis=1)[:, None]
    prior = np.zeros(d)
    log_prior = math.lgamma(0.5 * d) - math.log(2.0) - 0.5 * d * math.log(math.pi)
    if family.mean_direction is not None:
        towards = np.asarray(family.mean_direction)
        prior = family.prior_strength * towards / np.linalg.norm(towards)
        log_prior = log_c(nodes * family.prior_strength)
    total = prior + X.sum(axis=0)
    length = np.linalg.norm(total)
    terms = len(X) * log_c(nodes) + log_prior - log_c(nodes * length) + np.log(shares)
    return nodes, terms, total, length


def _von_mises_fisher(family, X):
    """Average C(κ)ⁿ C(c₀κ)/C(κ|c₀m₀ + Σx|) over the nodes."""
    return special.logsumexp(_directions(family, X)[1])


def regression_terms(family, X):
    """Return y minus its centre, and covariates times prior deviations, the intercept first."""
    target = family.target % X.shape[1]
    others = [j for j in range(X.shape[1]) if j != target]
    centred = X - _columns(family.centre, X)
    roots = np.sqrt(_columns(family.slope_variance, X))
    ones = np.full((len(X), 1), math.sqrt(family.intercept_variance))
    return centred[:, target], np.hstack([ones, (centred * roots)[:, others]])


def _linear_regression(family, X):
    """The targets are jointly Student t."""
    y, u = regression_terms(family, X)
    matrix = family.scale / family.shape * (np.eye(len(X)) + u @ u.T)
    return stats.multivariate_t(np.zeros(len(X)), matrix, df=2.0 * family.shape).logpdf(y)


def log_density_at(family, x, theta):
    """Return SciPy's log density or probability of values at one node of a family by nodes."""
    if family == "student_t":
        return stats.t.logpdf(x, theta[2], theta[0], theta[1])
    if family == "gamma":
        shape = theta[1] ** -2
        return stats.gamma.logpdf(x, shape, scale=theta[0] / shape)
    if family == "beta":
        precision = theta[1] ** -2 - 1.0
        return stats.beta.logpdf(x, theta[0] * precision, (1.0 - theta[0]) * precision)
    if family == "von_mises":
        scale = theta[2] / (2.0 * np.pi)
        return stats.vonmises.logpdf(x / scale, theta[1] ** -2, loc=theta[0]) - np.log(scale)
    if family == "negative_binomial":
        mean, dispersion = theta
        return stats.nbinom.logpmf(x, 1.0 / dispersion, 1.0 / (1.0 + mean * dispersion))
    normal = stats.norm(theta[0], theta[1])
    low, high = x - 0.5, x + 0.5
    if family == "ordinal":
        low, high = np.where(x <= theta[2], -np.inf, low), np.where(x >= theta[3], np.inf, high)
    return np.log(np.maximum(normal.cdf(high) - normal.cdf(low), normal.sf(low) - normal.sf(high)))


def _terms(family, X):
    """Yield the nodes of each column and the logarithms of their weights times the likelihood."""
    for x, (theta, log_weights) in zip(X.T, family.of_columns(X.shape[1]), strict=True):
        seen = x[~np.isnan(x)]
        logs = [log_density_at(family.name, seen, node).sum() for node in theta]
        yield theta, log_weights + logs


def _by_nodes(family, X):
    return sum(special.logsumexp(terms) for _, terms in _terms(family, X))


def _log_normal(family, X):
    return _diagonal_gaussian(family, np.log(X)) - np.log(X).sum()


def _transformed(family, X):
    centre, bend = (np.broadcast_to(v, X.shape[1]) for v in (family.centre, family.bend))
    some = np.where(bend > 0.0, bend, 1.0)
    return np.where(bend > 0.0, np.arcsinh(bend * (X - centre)) / some, X)


def _johnson(family, X):
    slopes = np.hypot(1.0, np.asarray(family.bend) * (X - np.asarray(family.centre)))
    return log_marginal(family.family, _transformed(family, X)) - np.nansum(np.log(slopes))


def _not_derived(family, X):
    return np.delete(X, np.array(family.derived), axis=1)


NODES = (
    "student_t", "gamma", "beta", "von_mises", "negative_binomial", "rounded_gaussian", "ordinal",
)  # fmt: skip
_MARGINALS = {
    **dict.fromkeys(NODES, _by_nodes),
    "log_normal": _log_normal,
    "johnson": _johnson,
    "derived": lambda family, X: log_marginal(family.family, _not_derived(family, X)),
    "von_mises_fisher": _von_mises_fisher,
    "linear_regression": _linear_regression,
    "gaussian": _gaussian,
    "diagonal_gaussian": _diagonal_gaussian,
    "full_gaussian": _full_gaussian,
    "projected_gaussian": _projected_gaussian,
    "multinomial": _multinomial,
    "bernoulli": _bernoulli,
    "poisson": _poisson,
    "categorical": _categorical,
    "with_gaps": _with_gaps,
    "product": _product,
}


# -- priors: the paper's greedy completion of a vector of cluster sizes ------------------------


def greedy_completion(alpha, sizes, remaining):
    """Apply the paper's Eq. 3 step by step, without the early stop."""
    sizes = list(sizes)
    for _ in range(remaining):
        counts = {s: sizes.count(s) for s in sizes}
        best, best_size = alpha / (counts.get(1, 0) + 1), 0
        for s in sorted(counts):
            gain = s / (s + 1) * counts[s] / (counts.get(s + 1, 0) + 1)
            if gain > best * (1 + 1e-12):
                best, best_size = gain, s
        if best_size == 0:
            sizes.append(1)
        else:
            sizes[sizes.index(best_size)] += 1
    return sizes


def early_completion(alpha, sizes, remaining):
    """Apply Eq. 3 with the early stop: once the largest has grown and would grow again."""
    sizes = list(sizes)
    while remaining > 0:
        largest = max(sizes, default=0)
        after = greedy_completion(alpha, sizes, 1)
        remaining -= 1
        grown = max(after)
        sizes = after
        if len(after) > 1 or largest > 0:
            again = grown * after.count(grown) / (grown + 1)
            fresh = alpha / (after.count(1) + 1)
            if grown > largest > 0 and remaining > 0 and again >= fresh * (1 - 1e-12):
                sizes[sizes.index(grown)] += remaining
                remaining = 0
    return sizes


# -- families: mean and variance of each column of a new row ---------------------------------


def predictive_moments(family, X):
    """Return (means, variances) of the columns of one more row, given the rows of X."""
    return _MOMENTS[family.name](family, dense(X))


def _gaussian_moments(family, X):
    noise, prior = _columns(family.noise_variance, X), _columns(family.prior_variance, X)
    precision = 1.0 / prior + len(X) / noise
    mean = (_columns(family.prior_mean, X) / prior + X.sum(axis=0) / noise) / precision
    return mean, noise + 1.0 / precision


def _diagonal_gaussian_moments(family, X):
    prior, strength = _columns(family.prior_mean, X), _columns(family.prior_strength, X)
    kappa = strength + len(X)
    centre = X.mean(axis=0)
    shape = _columns(family.shape, X) + 0.5 * len(X)
    scale = _columns(family.scale, X) + 0.5 * ((X - centre) ** 2).sum(axis=0)
    scale = scale + 0.5 * strength * len(X) / kappa * (centre - prior) ** 2
    mean = (strength * prior + X.sum(axis=0)) / kappa
    return mean, scale / (shape - 1.0) * (1.0 + 1.0 / kappa)


def _full_gaussian_moments(family, X):
    mean, strength, degrees, scale = full_gaussian_posterior(family, X)
    return mean, np.diag(scale) / (degrees - X.shape[1] - 1.0) * (1.0 + 1.0 / strength)


def _projected_gaussian_moments(family, X):
    """Return those of the centre plus the shortest vector with such projections, Aᵀ(AAᵀ)⁻¹z."""
    A = np.asarray(family.components, dtype=np.float64)
    back = A.T @ np.linalg.inv(A @ A.T)
    inner, Z = of_projections(family, X)
    mean, strength, degrees, scale = full_gaussian_posterior(inner, Z)
    covariance = scale / (degrees - len(A) - 1.0) * (1.0 + 1.0 / strength)
    return _columns(family.centre, X) + back @ mean, np.diag(back @ covariance @ back.T)


def _multinomial_moments(family, X):
    """Return the moments of documents of mean length."""
    concentration = _columns(family.concentration, X) + X.sum(axis=0)
    length = round(X.sum() / len(X))
    frozen = stats.dirichlet_multinomial(concentration, length)
    return frozen.mean(), frozen.var()


def _bernoulli_moments(family, X):
    successes = _columns(family.successes, X) + X.sum(axis=0)
    mean = successes / (_columns(family.successes, X) + _columns(family.failures, X) + len(X))
    return mean, mean * (1.0 - mean)


def _poisson_moments(family, X):
    rate = _columns(family.rate, X) + len(X)
    shape = _columns(family.shape, X) + X.sum(axis=0)
    return stats.nbinom.stats(shape, rate / (rate + 1.0))


def _categorical_moments(family, X):
    means, variances = [], []
    levels = _columns(family.n_levels, X).astype(int)
    for x, a, n_levels in zip(X.T, _columns(family.concentration, X), levels, strict=True):
        weights = a + np.bincount(x.astype(int), minlength=n_levels)
        weights = weights / weights.sum()
        codes = np.arange(n_levels)
        means.append(weights @ codes)
        variances.append(weights @ codes**2 - (weights @ codes) ** 2)
    return np.array(means), np.array(variances)


def _with_gaps_moments(family, X):
    columns = [
        predictive_moments(_of_column(family.family, d, X.shape[1]), x[~np.isnan(x)][:, None])
        for d, x in enumerate(X.T)
    ]
    return np.hstack([mean for mean, _ in columns]), np.hstack([var for _, var in columns])


def _product_moments(family, X):
    means, variances = np.empty(X.shape[1]), np.empty(X.shape[1])
    for part, columns in family.parts:
        at = list(columns)
        means[at], variances[at] = predictive_moments(part, X[:, at])
    return means, variances


def _von_mises_fisher_moments(family, X):
    """Use E[xxᵀ | m, κ] = A/κ I + (1 − DA/κ) mmᵀ, and the same for m given κR."""
    nodes, terms, total, length = _directions(family, X)
    weights = np.exp(terms - special.logsumexp(terms))
    d, direction = len(total), total / length
    nu = 0.5 * d - 1.0
    of_x, of_m = (special.ive(nu + 1, k) / special.ive(nu, k) for k in (nodes, nodes * length))
    mean = (weights @ (of_x * of_m)) * direction
    along = of_m / (nodes * length)
    squares = along[:, None] + (1.0 - d * along)[:, None] * direction**2
    own = of_x / nodes
    return mean, weights @ (own[:, None] + (1.0 - d * own)[:, None] * squares) - mean**2


def _linear_regression_moments(family, X):
    """Return the moments at the mean covariates."""
    target = family.target % X.shape[1]
    y, u = regression_terms(family, X)
    at = u.mean(axis=0)
    inverse = np.linalg.inv(np.eye(u.shape[1]) + u.T @ u)
    fitted = inverse @ (u.T @ y)
    shape = family.shape + 0.5 * len(X)
    scale = family.scale + 0.5 * (y @ y - fitted @ (u.T @ y))
    mean, variance = X.mean(axis=0), np.zeros(X.shape[1])
    mean[target] = _columns(family.centre, X)[target] + at @ fitted
    variance[target] = scale / (shape - 1.0) * (1.0 + at @ inverse @ at)
    return mean, variance


def _moments_at(family, theta):
    """Return the mean and the variance at one node: SciPy's, or sums over a grid."""
    if family == "student_t":
        return stats.t.stats(theta[2], theta[0], theta[1])
    if family == "gamma":
        return stats.gamma.stats(theta[1] ** -2, scale=theta[0] * theta[1] ** 2)
    if family == "beta":
        precision = theta[1] ** -2 - 1.0
        return stats.beta.stats(theta[0] * precision, (1.0 - theta[0]) * precision)
    if family == "negative_binomial":
        mean, dispersion = theta
        return stats.nbinom.stats(1.0 / dispersion, 1.0 / (1.0 + mean * dispersion))
    if family == "von_mises":  # as numbers of the turn that begins at theta[3]
        values = theta[3] + theta[2] * (np.arange(4000) + 0.5) / 4000
    elif family == "ordinal":
        values = np.arange(theta[2], theta[3] + 1.0)
    else:
        values = np.arange(np.floor(theta[0] - 9.0 * theta[1]), theta[0] + 9.0 * theta[1] + 1.0)
    shares = np.exp(log_density_at(family, values, theta))
    shares /= shares.sum()
    return shares @ values, shares @ values**2 - (shares @ values) ** 2


def _by_nodes_moments(family, X):
    out = []
    for theta, terms in _terms(family, X):
        weights = np.exp(terms - special.logsumexp(terms))
        means, variances = np.array([_moments_at(family.name, node) for node in theta]).T
        mean = weights @ means
        out.append((mean, weights @ (variances + means**2) - mean**2))
    return tuple(np.array(out).T)


def _log_normal_moments(family, X):
    """Return the moments of logarithms, as those of the values are infinite."""
    return _diagonal_gaussian_moments(family, np.log(X))


_MOMENTS = {
    **dict.fromkeys(NODES, _by_nodes_moments),
    "log_normal": _log_normal_moments,
    "johnson": lambda family, X: predictive_moments(family.family, _transformed(family, X)),
    "derived": lambda family, X: predictive_moments(family.family, _not_derived(family, X)),
    "von_mises_fisher": _von_mises_fisher_moments,
    "linear_regression": _linear_regression_moments,
    "gaussian": _gaussian_moments,
    "diagonal_gaussian": _diagonal_gaussian_moments,
    "full_gaussian": _full_gaussian_moments,
    "projected_gaussian": _projected_gaussian_moments,
    "multinomial": _multinomial_moments,
    "bernoulli": _bernoulli_moments,
    "poisson": _poisson_moments,
    "categorical": _categorical_moments,
    "with_gaps": _with_gaps_moments,
    "product": _product_moments,
}
