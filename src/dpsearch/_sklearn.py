"""scikit-learn's base classes, without imports that they do not use.

`sklearn.base` imports all of scipy.stats, and pandas if it is installed, which takes two thirds of
its time.  Nothing in them is used before a function is called.  So stand-ins take their places
while it is imported, and load the real modules when an attribute is used.
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
    """Put stand-ins for modules into `sys.modules` while the block imports others."""
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
    "BaseEstimator", "ClassNamePrefixFeaturesOutMixin", "ClusterMixin", "TransformerMixin",
    "check_is_fitted", "check_random_state", "validate_data",
]  # fmt: skip
