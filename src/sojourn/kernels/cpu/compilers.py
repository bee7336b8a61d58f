"""numba's compiler, with less to do for the functions of the package: see `inner`.

Like `passes` this builds on what numba keeps to itself and may change in any version.
"""

from __future__ import annotations

from typing import Any, ClassVar

import llvmlite.binding as llvm
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering, NopythonRewrites

from sojourn.kernels.cpu.passes import LEAN, remembering

_LEVEL = 2  # of LLVM's optimisation; numba's own is 3
_INLINED = 50  # cost up to which LLVM inlines a call; its own is 225


class _Code(JITCodeLibrary):
    """Code that is optimised once, when all that it calls is linked in, and whose loops stay loops.

    numba would optimise every function by itself before that, and all of it at the highest level.
    Loops over vectors that are written out gain nothing by being unrolled, and lose where registers
    are full: those of `gemm` with 48 columns then took half as long again.  Nor do large functions
    gain by being inlined.  On an AMD EPYC, `strip_units` for symbols took 4.5 s to compile instead
    of 6.6 s; with few calls inlined LLVM has 1.2 s of it instead of 1.4 s.  Its bits are the same.
    """

    counts_references = True
    level, unrolls, inlined = _LEVEL, False, _INLINED

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        if self.counts_references:
            # First what numba does first: inline, and count references less often.
            passes, builder = self._codegen._module_pass_manager(
                opt=0, loop_vectorize=False, cost="cheap"
            )
            passes.run(self._final_module, builder)
        options = llvm.create_pipeline_tuning_options(self.level)
        options.loop_vectorization, options.loop_unrolling = True, self.unrolls
        options.slp_vectorization = False
        options.inlining_threshold = self.inlined
        builder = llvm.create_pass_builder(self._codegen._tm, options)
        builder.getModulePassManager().run(self._final_module, builder)


class _Loops(JITCodeLibrary):
    """Code of loops over single numbers: optimised as by numba, when all that it calls is there."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout


class _Part(_Code):
    """Code that is only ever linked into other code.

    numba would optimise it by itself and make machine code of it, which nobody runs, and do both
    again wherever it is linked in, at every level: a fifth of the time that the recursions take to
    compile.  What it is linked into is optimised as a whole.
    """

    @property
    def codegen(self) -> Any:
        """Who sets the environment of a function that has machine code: nobody here."""
        return self

    def set_env(self, env_name: str, env: Any) -> None:
        """Do nothing: only exceptions with arguments would use an environment."""

    def get_pointer_to_function(self, name: str) -> int:
        """Return null: there is no machine code."""
        self._ensure_finalized()
        return 0

    def _optimize_final_module(self) -> None:
        """Do nothing."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):
    """Lowering to code that Python calls."""

    _name = "outer_lowering"
    code: ClassVar[type[JITCodeLibrary]] = _Code

    def run_pass(self, state: Any) -> bool:
        state.library = self.code(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        state.library.counts_references = state.flags.nrt
        with remembering(state.typingctx):
            return bool(super().run_pass(state))


@register_pass(mutates_CFG=True, analysis_only=False)
class _LoopLowering(_Lowering):
    """The same for loops."""

    _name = "loop_lowering"
    code = _Loops


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(NativeLowering):
    """Lowering to code that only compiled code calls."""

    _name = "inner_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        with remembering(state.typingctx):
            return bool(super().run_pass(state))


class Compiler(CompilerBase):
    """numba's own passes, but for the lowering and what `passes` replaces."""

    replaced: ClassVar[dict[Any, Any]] = {**LEAN, NativeLowering: _Lowering}

    def define_pipelines(self) -> list[Any]:
        """Return the passes."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [
            (self.replaced.get(one, one), what)
            for one, what in passes.passes
            if self.replaced.get(one, one) is not None
        ]
        passes.finalize()
        return [passes]


class LoopCompiler(Compiler):
    """The same for loops, among which there may be expressions of arrays."""

    replaced: ClassVar[dict[Any, Any]] = {
        **LEAN,
        NopythonRewrites: NopythonRewrites,
        NativeLowering: _LoopLowering,
    }


class PartCompiler(Compiler):
    """The same for what only compiled code calls."""

    replaced: ClassVar[dict[Any, Any]] = {**LEAN, NativeLowering: _PartLowering}
