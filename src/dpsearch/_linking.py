"""Numba pipelines for kernels, and for functions that exist only inside the kernels that call them.

Numba compiles every function to machine code, with wrappers for Python and C, before it links it
into its callers.  `LinkedCompiler` stops at LLVM's intermediate code, which is linked into each
kernel, inlined, and optimised once, together with the kernel.  That takes half the time.

`KernelCompiler` makes the functions inside a kernel private.  By default, a function that is not
inlined is a weak symbol in each kernel that calls it, and the process uses the first that it loads.
As sums may be rearranged, copies may round differently, so results would depend on which kernels
are loaded, and on whether they were compiled or found on disk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import CodeType
from typing import Any

import llvmlite.binding as ll
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import IRLegalization, NativeLowering, NoPythonBackend
from numba.core.untyped_passes import InlineClosureLikes

# Options of `numba.njit` that belong to this pipeline.
LINKED: dict[str, Any] = {"forceinline": True, "no_cpython_wrapper": True}


_FOR_C = "cfunc."  # the beginning of the names of wrappers for C
# Signatures of Numba's own operators and functions, by types of arguments.
_SIGNATURES: dict[Any, Any] = {}


@contextlib.contextmanager
def _remembered() -> Iterator[None]:
    """Let Numba resolve the signature of each operator for given types only once.

    It tries dozens of templates at each use, when it infers types and again when it emits code.
    Functions that are compiled for their callers are not cached: they depend on the callers'
    options.
    """
    functions: Any = types.Function
    resolve = functions.get_call_type
    if "get_call_type" in vars(functions):
        yield  # within the compilation of a caller
        return

    def remember(function: Any, context: Any, arguments: Any, keywords: Any) -> Any:
        key = function, tuple(arguments)
        if key in _SIGNATURES and not keywords:
            return _SIGNATURES[key]
        signature = resolve(function, context, arguments, keywords)
        known = signature is not None and not keywords
        if known and function.get_impl_key(signature) is function.typing_key:
            _SIGNATURES[key] = signature
        return signature

    functions.get_call_type = remember
    try:
        yield
    finally:
        del functions.get_call_type


class _Passes(PassManager):  # type: ignore[misc]
    """Numba's passes, with cached signatures."""

    def run(self, state: Any) -> None:
        with _remembered():
            super().run(state)


class _IntermediateCode(JITCodeLibrary):  # type: ignore[misc]
    """A library for linking into others, which is neither optimised as a whole nor compiled."""

    def finalize(self) -> None:
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):  # type: ignore[misc]
    """Lower to intermediate code that callers can find."""

    _name = "linked_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _IntermediateCode(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        # Callers find the code by its entry point, for which Numba wants a built-in function: a
        # method of a new object is equal to no other.
        entry: Any = {}.__getitem__
        state.targetctx.insert_user_function(entry, state["cr"].fndesc, [state.library])
        state["cr"] = state["cr"]._replace(cfunc=entry)
        return True


class LinkedCompiler(CompilerBase):  # type: ignore[misc]
    """The pipeline, for `numba.njit(pipeline_class=…)`."""

    def define_pipelines(self) -> list[Any]:
        return [_pipeline(self.state, "linked", _Lowering)]


class _KernelCode(JITCodeLibrary):  # type: ignore[misc]
    """A library whose only visible symbols are its entry points."""

    def _optimize_final_module(self) -> None:
        functions = [f for f in self._final_module.functions if not f.is_declaration]
        # The entry point of a `Pointer` is the wrapper for C, which contains the function itself.
        wrapped = any(f.name.startswith(_FOR_C) for f in functions)
        for function in functions:
            inside = wrapped and not function.name.startswith(_FOR_C)
            if inside or function.linkage == ll.Linkage.linkonce_odr:
                function.linkage = ll.Linkage.internal
        super()._optimize_final_module()


@register_pass(mutates_CFG=True, analysis_only=False)
class _KernelLowering(NativeLowering):  # type: ignore[misc]
    """Lower to machine code that is stored on disk."""

    _name = "kernel_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _KernelCode(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return bool(super().run_pass(state))


class KernelCompiler(CompilerBase):  # type: ignore[misc]
    """The pipeline of kernels."""

    def define_pipelines(self) -> list[Any]:
        return [_pipeline(self.state, "kernel", _KernelLowering)]


def _pipeline(state: Any, name: str, lowering: Any) -> Any:
    """Return Numba's default pipeline with another lowering."""
    manager = _Passes(name)
    # Inlining of closures is skipped for functions without nested functions.
    nested = any(isinstance(constant, CodeType) for constant in state.func_id.code.co_consts)
    for step, description in DefaultPassBuilder.define_untyped_pipeline(state).passes:
        if nested or step is not InlineClosureLikes:
            manager.add_pass(step, description)
    manager.passes.extend(DefaultPassBuilder.define_typed_pipeline(state).passes)
    manager.add_pass(IRLegalization, "ensure IR is legal prior to lowering")
    manager.add_pass(lowering, "lower")
    manager.add_pass(NoPythonBackend, "nopython mode backend")
    manager.finalize()
    return manager
