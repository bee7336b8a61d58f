"""numba's passes, without what compiled functions of the package have no use for.

Two thirds of the time that a function takes to compile numba spends in Python, before LLVM begins.
A third of that goes into types of calls that have been found before, and into where variables live,
which numba computes after each of seven passes, and which is read once, if at all.  There are no
functions within functions either, and expressions of arrays in loops alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from numba.core import ir_utils, types
from numba.core.compiler_machinery import register_pass
from numba.core.postproc import VariableLifetime
from numba.core.rewrites.registry import rewrite_registry
from numba.core.ssa import reconstruct_ssa
from numba.core.targetconfig import ConfigStack
from numba.core.transforms import canonicalize_cfg
from numba.core.typed_passes import (
    IRLegalization,
    NopythonRewrites,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.untyped_passes import (
    GenericRewrites,
    InlineClosureLikes,
    IRProcessing,
    ReconstructSSA,
)


def _tidy(function: Any) -> None:
    """Do what numba does after every pass, but for what generators and object mode need.

    Which variables live where is found when somebody asks.
    """
    function.blocks = canonicalize_cfg(function.blocks)
    function.variable_lifetime = VariableLifetime(function.blocks)
    function.generator_info = None


@register_pass(mutates_CFG=True, analysis_only=False)
class _Processing(IRProcessing):
    """What follows the translation of bytecode."""

    _name = "lean_processing"

    def run_pass(self, state: Any) -> bool:
        _tidy(state.func_ir)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _Rewriting(GenericRewrites):
    """Constant places in tuples, and whatever else numba rewrites before it knows types."""

    _name = "lean_rewriting"

    def run_pass(self, state: Any) -> bool:
        blocks = state.func_ir.blocks
        for kind in rewrite_registry.rewrites["before-inference"]:
            rewrite = kind(state)
            waiting = list(blocks.items())
            while waiting:
                key, block = waiting.pop()
                if rewrite.match(state.func_ir, block, state.typemap, state.calltypes):
                    blocks[key] = rewrite.apply()
                    waiting.append((key, blocks[key]))
        _tidy(state.func_ir)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _SingleAssignment(ReconstructSSA):
    """A variable of its own for every assignment."""

    _name = "lean_ssa"

    def run_pass(self, state: Any) -> bool:
        state.func_ir = reconstruct_ssa(state.func_ir)
        self._patch_locals(state)
        state.func_ir._definitions = ir_utils.build_definitions(state.func_ir.blocks)
        _tidy(state.func_ir)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _Stripping(PreLowerStripPhis):
    """Assignments in the place of choices by where a block was entered from."""

    _name = "lean_stripping"

    def run_pass(self, state: Any) -> bool:
        state.func_ir = self._strip_phi_nodes(state.func_ir)
        state.func_ir._definitions = ir_utils.build_definitions(state.func_ir.blocks)
        _tidy(state.func_ir)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _Legalization(IRLegalization):
    """Nothing has to be freed where references are not counted."""

    _name = "lean_legalization"

    def run_pass(self, state: Any) -> bool:
        if state.flags.nrt:
            return bool(super().run_pass(state))
        ir_utils.enforce_no_phis(state.func_ir)
        _tidy(state.func_ir)
        return True


_found: dict[Any, dict[Any, Any]] = {}  # by flags, and by function and types of arguments


class _Resolver:
    """Finds the type of a call among those found before: numba would try all it knows in turn.

    For functions with other flags, which numba compiles meanwhile, it leaves that to numba.
    """

    def __init__(self, context: Any) -> None:
        self._resolve = type(context).resolve_function_type.__get__(context)
        self._flags = ConfigStack.top_or_none()
        self._found = _found.setdefault(self._flags.copy(), {})

    def __call__(self, function: Any, args: Any, kws: Any) -> Any:
        is_other = type(function) is not types.Function or bool(kws)
        if is_other or ConfigStack.top_or_none() is not self._flags:
            return self._resolve(function, args, kws)
        found = self._found.get((function, args))
        if found is None:
            signature = self._resolve(function, args, kws)
            if signature is not None:
                own = function._impl_keys.get(signature.args)
                self._found[function, args] = signature, own
            return signature
        signature, own = found
        function._impl_keys[signature.args] = own
        return signature


@contextlib.contextmanager
def remembering(context: Any) -> Iterator[None]:
    """Remember the types of calls: most are the same few functions of the same few types."""
    before = vars(context).get("resolve_function_type")
    context.resolve_function_type = _Resolver(context)
    try:
        yield
    finally:
        del context.resolve_function_type
        if before is not None:
            context.resolve_function_type = before


@register_pass(mutates_CFG=True, analysis_only=False)
class _TypeInference(NopythonTypeInference):
    """Types of all variables and calls."""

    _name = "lean_type_inference"

    def run_pass(self, state: Any) -> bool:
        with remembering(state.typingctx):
            return bool(super().run_pass(state))


LEAN: dict[Any, Any] = {
    IRProcessing: _Processing,
    InlineClosureLikes: None,
    GenericRewrites: _Rewriting,
    ReconstructSSA: _SingleAssignment,
    NopythonTypeInference: _TypeInference,
    PreLowerStripPhis: _Stripping,
    NopythonRewrites: None,
    IRLegalization: _Legalization,
}
"""What takes the place of passes; None where nothing does."""
