"""`check_family` and `check_prior`: run all laws on a family or a prior."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsearch.checks import cluster_laws, family_laws, linear_laws, prior_laws, solver_laws
from dpsearch.checks.compiled import Compiled
from dpsearch.checks.law import LawError, Outcome, run_laws
from dpsearch.errors import ParameterError
from dpsearch.families import FAMILIES, Example, Family, Poisson
from dpsearch.priors import PRIORS, DirichletProcess, Prior
from dpsearch.registry import Registry

_REPEATS = 6
_N_POINTS = 6  # whose partitions are enumerated


def check_family(
    family: Family | type[Family], X: Any = None, *, raise_on_fail: bool = True
) -> list[Outcome]:
    """Check that a family obeys every law and runs in every solver.

    Parameters
    ----------
    family
        A class, whose `examples` are checked, or an object.
    X
        Data to check it on: by default those of the class's examples.
    raise_on_fail
        Whether to stop at the first law that is broken.

    Returns
    -------
    list of Outcome
        One for each law and example: "passed", "skipped" if the law is about something that the
        family does not declare, or "failed".  By default a failure raises `LawError` instead, which
        names the law, the family and the values that disagree.

    Examples
    --------
    >>> from dpsearch import check_family, families
    >>> outcomes = check_family(families.Bernoulli)
    >>> {outcome.status for outcome in outcomes} <= {"passed", "skipped"}
    True
    """
    _check_name(FAMILIES, family)
    out = []
    for example in _examples(family, X):
        subject = repr(example.family)
        kit = Compiled(example.family, example.X)
        out += run_laws(cluster_laws, subject, kit, raise_on_fail, _REPEATS)
        out += run_laws(linear_laws, subject, kit, raise_on_fail, _REPEATS)
        out += run_laws(family_laws, subject, kit, raise_on_fail)
        case = solver_laws.Case(example.X[:_N_POINTS], example.family, DirichletProcess(1.0))
        out += run_laws(solver_laws, subject, case, raise_on_fail)
    return out


def check_prior(prior: Prior | type[Prior], *, raise_on_fail: bool = True) -> list[Outcome]:
    """Check that a prior obeys every law and runs in every solver.

    A class is checked with its default hyperparameters.  The rest is as for `check_family`.

    Examples
    --------
    >>> from dpsearch import check_prior, priors
    >>> outcomes = check_prior(priors.PitmanYor(0.5, 0.25))
    >>> {outcome.status for outcome in outcomes}
    {'passed'}
    """
    _check_name(PRIORS, prior)
    prior = prior() if isinstance(prior, type) else prior
    X = np.array([[0.0], [1.0], [0.0], [6.0], [7.0], [5.0]])
    case = solver_laws.Case(X, Poisson(1.0, 0.5), prior)
    return [
        *run_laws(prior_laws, repr(prior), prior, raise_on_fail),
        *run_laws(solver_laws, repr(prior), case, raise_on_fail),
    ]


def _examples(family: Family | type[Family], X: Any) -> list[Example]:
    """Return the families and data to check."""
    if X is not None:
        return [Example(family.suggest(X) if isinstance(family, type) else family, X)]
    cls = family if isinstance(family, type) else type(family)
    examples = cls.examples()
    if not examples:
        raise LawError(
            "has_examples", repr(cls), "`examples` returns no data: pass X, or let it return some"
        )
    return examples if isinstance(family, type) else [Example(family, examples[0].X)]


def _check_name(registry: Registry[Any], given: Any) -> None:
    """Raise unless the registry can find the given class, or the object's class, by its name."""
    cls = given if isinstance(given, type) else type(given)
    try:
        with registry.knowing(cls):
            pass
    except ParameterError as error:
        raise LawError("has_a_name_of_its_own", repr(cls), str(error)) from error
