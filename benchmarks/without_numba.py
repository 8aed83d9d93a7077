"""Run a benchmark on a machine that has no Numba: kernels become plain Python.

    python -m benchmarks.without_numba benchmarks.gpu …

For benchmarks whose work is on a GPU, where no kernel runs but a few formulas of priors do.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import runpy
import sys
import types
from typing import Any


class _Anything(type):
    """Whatever is asked for: an attribute, a base class, a decorator, a call."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing

    def __call__(cls, *args: Any, **options: Any) -> Any:
        if len(args) == 1 and not options and isinstance(args[0], (types.FunctionType, type)):
            return args[0]  # as a decorator
        return super().__call__(*args, **options)


class Nothing(metaclass=_Anything):
    def __init__(self, *args: Any, **options: Any) -> None: ...

    def __call__(self, *args: Any, **options: Any) -> Any:
        decorates = len(args) == 1 and isinstance(args[0], (types.FunctionType, type))
        return args[0] if decorates and not options else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing


class _Module(types.ModuleType):
    __path__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "type_callable":  # takes a function, and yet is no decorator of it
            return lambda function: Nothing()
        return Nothing


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.split(".")[0] in ("numba", "llvmlite"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> Any:
        return _Module(spec.name)

    def exec_module(self, module: Any) -> None: ...


if __name__ == "__main__":
    sys.meta_path.insert(0, _Finder())
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
