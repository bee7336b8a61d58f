"""The decorator of compiled functions that only compiled functions call."""

from __future__ import annotations

from typing import Any

from numba import njit
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


class _Part(JITCodeLibrary):
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

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(NativeLowering):
    """Lowering to such code."""

    _name = "part_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        return bool(super().run_pass(state))


class _PartCompiler(CompilerBase):
    """numba's own passes, but for the lowering."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [
            (_PartLowering if one is NativeLowering else one, what) for one, what in passes.passes
        ]
        passes.finalize()
        return [passes]


_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "_nrt": False,  # see below
    "pipeline_class": _PartCompiler,
}

inner = njit(**_OPTIONS)
"""Without the forms that Python and C would call, and optimised only with what calls it.

Python must not call such a function: it would crash.

Nor does such a function count references to arrays: an atomic addition at every call and every
branch that assigns an array took two fifths of the time of Gaussian densities with two states.  It
must therefore neither allocate an array nor return one; what is passed in is kept by its caller.
"""

inlined = njit(**_OPTIONS, forceinline=True)
"""The same for functions called for every few numbers: passing their arguments takes long."""
