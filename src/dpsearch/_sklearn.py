"""scikit-learn's base classes, without what they import and do not use.

`sklearn.base` imports all of scipy.stats, and pandas where it is installed: two thirds of the time
that it takes.  Nothing in them is used until a function is called.  So modules that stand for
them are there while it is imported, and bring the real ones when anything of them is asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


@contextmanager
def _when_used(*names: str) -> Iterator[None]:
    """Let modules stand for these while the block imports others."""
    standing = {}
    for name in names:
        if name not in sys.modules and importlib.util.find_spec(name):
            standing[name] = sys.modules[name] = _stand_in(name)
    try:
        yield
    finally:
        for name, module in standing.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


def _stand_in(name: str) -> ModuleType:
    module = ModuleType(name)

    def __getattr__(attribute: str) -> Any:
        if sys.modules.get(name) is module:
            del sys.modules[name]
        return getattr(importlib.import_module(name), attribute)

    module.__dict__["__getattr__"] = __getattr__
    return module


with _when_used("scipy.stats", "pandas"):
    from sklearn.base import (
        BaseEstimator,
        ClassNamePrefixFeaturesOutMixin,
        ClusterMixin,
        TransformerMixin,
    )
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data

__all__ = [
    "BaseEstimator",
    "ClassNamePrefixFeaturesOutMixin",
    "ClusterMixin",
    "TransformerMixin",
    "check_is_fitted",
    "check_random_state",
    "validate_data",
]
