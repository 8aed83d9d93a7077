"""Numba pipelines for kernels, and for functions that exist only inside the kernels that call them.

Numba compiles every function to machine code of its own, with wrappers for Python and C, before it
links it into its callers.  `LinkedCompiler` stops at the intermediate code: it is linked into each
kernel, inlined, and optimised once, together with the kernel.  That takes half the time.

`KernelCompiler` keeps what a kernel contains to itself.  As Numba leaves it, a function that is not
inlined is a weak symbol in each kernel that calls it, and the process takes the first that it
loads.  As sums may be rearranged, copies may round in different ways, and results would depend on
which kernels are loaded, and on whether they were compiled or found on disk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import llvmlite.binding as ll
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import (
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
)

# Options of `numba.njit` that belong to this pipeline.
LINKED: dict[str, Any] = {"forceinline": True, "no_cpython_wrapper": True}


_FOR_C = "cfunc."  # how the names of wrappers for C begin
# Signatures of operators and other functions that Numba itself contains, by types of arguments.
_SIGNATURES: dict[Any, Any] = {}


@contextlib.contextmanager
def _remembered(context: Any) -> Iterator[None]:
    """Let Numba find the signature of each operator for given types once, not wherever it occurs.

    It tries dozens of templates each time, which is a third of the time that compilation takes.
    What is itself compiled for its callers is left alone: it depends on their options.
    """
    if "resolve_function_type" in vars(context):
        yield
        return
    resolve = context.resolve_function_type

    def remember(function: Any, arguments: Any, keywords: Any) -> Any:
        known = function if isinstance(function, types.Type) else context._lookup_global(function)
        if keywords or not isinstance(known, types.Function):
            return resolve(function, arguments, keywords)
        key = known, tuple(arguments)
        if key in _SIGNATURES:
            return _SIGNATURES[key]
        signature = resolve(function, arguments, keywords)
        if signature is not None and known.get_impl_key(signature) is known.typing_key:
            _SIGNATURES[key] = signature
        return signature

    context.resolve_function_type = remember
    try:
        yield
    finally:
        del context.resolve_function_type


@register_pass(mutates_CFG=True, analysis_only=False)
class _Inference(NopythonTypeInference):  # type: ignore[misc]
    """Numba's inference of types, with a memory."""

    _name = "remembering_type_inference"

    def run_pass(self, state: Any) -> bool:
        with _remembered(state.typingctx):
            return bool(super().run_pass(state))


class _IntermediateCode(JITCodeLibrary):  # type: ignore[misc]
    """A library that others link in; it is neither optimised as a whole nor compiled."""

    def finalize(self) -> None:
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):  # type: ignore[misc]
    """Lower to intermediate code, and make that known to callers."""

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
    """A library of which other kernels see the entry points alone."""

    def _optimize_final_module(self) -> None:
        functions = [f for f in self._final_module.functions if not f.is_declaration]
        # Of a pointer, the entry is the wrapper for C, which then contains the function itself.
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
    """Return Numba's default pipeline with another last step."""
    manager = PassManager(name)
    manager.passes.extend(DefaultPassBuilder.define_untyped_pipeline(state).passes)
    for step, description in DefaultPassBuilder.define_typed_pipeline(state).passes:
        manager.add_pass(_Inference if step is NopythonTypeInference else step, description)
    manager.add_pass(IRLegalization, "ensure IR is legal prior to lowering")
    manager.add_pass(lowering, "lower")
    manager.add_pass(NoPythonBackend, "nopython mode backend")
    manager.finalize()
    return manager
