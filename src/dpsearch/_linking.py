"""A Numba pipeline for functions that exist only inside the kernels that call them.

Numba compiles every function to machine code of its own, with wrappers for Python and C, before it
links it into its callers.  This pipeline stops at the intermediate code: it is linked into each
kernel, inlined, and optimised once, together with the kernel.  That takes half the time, and a
kernel cannot end up with another kernel's copy of a helper, compiled with other rounding.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import IRLegalization, NativeLowering, NoPythonBackend

# Options of `numba.njit` that belong to this pipeline.
LINKED: dict[str, Any] = {"forceinline": True, "no_cpython_wrapper": True}


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
        manager = PassManager("linked")
        manager.passes.extend(DefaultPassBuilder.define_untyped_pipeline(self.state).passes)
        manager.passes.extend(DefaultPassBuilder.define_typed_pipeline(self.state).passes)
        manager.add_pass(IRLegalization, "ensure IR is legal prior to lowering")
        manager.add_pass(_Lowering, "lower to intermediate code")
        manager.add_pass(NoPythonBackend, "nopython mode backend")
        manager.finalize()
        return [manager]
