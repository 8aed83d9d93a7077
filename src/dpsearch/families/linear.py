"""The linear form of a family: features and log H of their totals, for passes over many rows.

An exponential family has log p(x | θ) = ⟨η(θ), T(x)⟩ − A(θ) + log h(x).  With its conjugate prior
the marginal of a block depends only on its size n and the totals T = Σ T(x).  log H(n, T) is a
difference of log-normalisers, and **convex** in (n, T).  Its gradient is the posterior expectation
of the natural parameters, so that

    ⟨∂ log H/∂T, T(x)⟩ + ∂ log H/∂n  =  E[log p(x | θ)] − log h(x)

scores all rows under all clusters by one matrix product.  Because log H is above its tangent
planes, moving every row of a data set to the cluster of its best such score (plus the gradient of
log W) never lowers the log joint unless a cluster becomes empty.

A family that `resolve` has completed has this form if its method `linear` returns a `LinearForm`.
Features are computed by operations of the array API, so on arrays of NumPy and on those of a GPU.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special

from dpsearch._types import Ints, Matrix, Vector
from dpsearch.families.terms import Term, counted_term, of_counted


@dataclass(frozen=True)
class LinearForm:
    """Features of rows, and log H as a function of a block's size and its totals of features.

    Sizes need not be integers: variational methods have shares of rows.

    n_totals
        The number P of features.
    features
        `features(X)` returns T(x) for data rows X as they come, [rows, P]: an array of the same
        kind, or CSR for sparse rows.
    log_marginals
        `log_marginals(sizes, totals)` returns log H of blocks with these sizes [K] and totals
        [K, P], without `log_base`; 0 for a block of size 0.
    weights
        `weights(sizes, totals)` returns the gradient of `log_marginals`: by the totals [K, P], and
        by the size [K].
    rows
        `rows(sizes, totals)` returns rows of statistics [K, width], for `merge` to complete.
    terms
        Convex functions of few totals each that add up to log H, for proofs; empty if there are
        none that are known.
    anywhere
        Whether `log_marginals` and `weights` take arrays of the array API, and so work on a GPU.
    quick
        Whether NumPy's features take no longer to compute than to read: they need not be kept.
    """

    n_totals: int
    features: Callable[[Any], Any]
    log_marginals: Callable[[Vector, Matrix], Vector]
    weights: Callable[[Vector, Matrix], tuple[Matrix, Vector]]
    rows: Callable[[Vector, Matrix], Matrix]
    terms: tuple[Term, ...] = ()
    anywhere: bool = False
    quick: bool = False

    @classmethod
    def of(
        cls, closed: Any, n_totals: int, features: Any, rows: Any, terms: Any, quick: bool = False
    ) -> LinearForm:
        """Return the form of a closed form of log H that takes arrays of the array API."""
        functions = closed.log_marginals, closed.weights
        return cls(n_totals, features, *functions, rows, terms, anywhere=True, quick=quick)


def counted(form: LinearForm) -> LinearForm:
    """Return the form of a column with missing values, which are NaN.

    The totals begin with the number of rows that have a value, which replaces the size.
    """
    return LinearForm(
        1 + form.n_totals,
        lambda X: masked(X, [form.features(X)]),
        *of_counted(form.log_marginals, form.weights),
        lambda sizes, totals: form.rows(totals[:, 0], totals[:, 1:]),
        tuple(map(counted_term, form.terms)),
    )


def masked(X: Any, features: list[Any]) -> Any:
    """Return masks, 1 where X has a value, followed by its features, 0 where it has none."""
    xp, seen, zero = namespace(X), ~namespace(X).isnan(X), like(X, 0.0)
    return xp.concat([xp.where(seen, one, zero) for one in (like(X, 1.0), *features)], axis=1)


_MOST_KEPT = 1 << 12  # the most numbers of an array that is cached on a device


def namespace(X: Any) -> Any:
    """Return the module whose functions work on an array: NumPy, or another of the array API."""
    if isinstance(X, np.ndarray):
        return np
    from array_api_compat import array_namespace

    return array_namespace(X)


def like(X: Any, values: Any) -> Any:
    """Return numbers as an array with the library, device and precision of X."""
    if isinstance(X, np.ndarray):
        return np.asarray(values, dtype=X.dtype)
    from array_api_compat import device

    here = np.asarray(values)
    if here.size > _MOST_KEPT or here.dtype.hasobject:
        return namespace(X).asarray(values, dtype=X.dtype, device=device(X))
    return _kept(here.tobytes(), here.dtype.str, here.shape, namespace(X), X.dtype, device(X))


@functools.lru_cache(maxsize=256)
def _kept(data: bytes, kind: str, shape: tuple[int, ...], xp: Any, dtype: Any, device: Any) -> Any:
    """Return a few numbers on a device, cached there, since a transfer has to be waited for."""
    values = np.frombuffer(data, kind).reshape(shape).copy()
    return xp.asarray(values, dtype=dtype, device=device)


_SPECIAL = {"numpy": "scipy.special", "torch": "torch.special", "cupy": "cupyx.scipy.special"}


def special(X: Any) -> Any:
    """Return the module whose `gammaln` and `digamma` work on an array."""
    library = type(X).__module__.split(".")[0]
    if library in _SPECIAL:
        return importlib.import_module(_SPECIAL[library])
    return _SpecialHere


class _SpecialHere:
    """Special functions for arrays of other libraries, computed by NumPy and SciPy."""

    @staticmethod
    def gammaln(X: Any) -> Any:
        return like(X, scipy.special.gammaln(np.asarray(X)))

    @staticmethod
    def digamma(X: Any) -> Any:
        return like(X, scipy.special.digamma(np.asarray(X)))


def inverses(X: Any) -> tuple[Any, Any]:
    """Return the inverses of regular matrices [K, D, D] and the logarithms of determinants."""
    xp = namespace(X)
    if type(X).__module__.split(".")[0] != "torch":
        return xp.linalg.inv(X), xp.linalg.slogdet(X)[1]
    # One factorisation serves both, and its result is not checked, which would wait for the GPU.
    factors, pivots, _ = xp.linalg.lu_factor_ex(X)
    one = xp.eye(X.shape[-1], dtype=X.dtype, device=X.device).expand(X.shape)
    inverse = xp.linalg.lu_solve(factors, pivots, one)
    diagonal = xp.linalg.diagonal(factors)
    return inverse, xp.sum(xp.log(xp.abs(diagonal)), axis=-1)


def indices(X: Any, which: Ints) -> Any:
    """Return integers as an array with the library and device of X."""
    if isinstance(X, np.ndarray):
        return which
    from array_api_compat import device

    return namespace(X).asarray(which, device=device(X))


def columns_of(X: Any, which: Ints) -> Any:
    """Return columns of an array, by index."""
    return namespace(X).take(X, indices(X, which), axis=1)
