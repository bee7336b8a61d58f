"""The declared signatures of kernels."""

import inspect

from sojourn.kernels.interface import Kernel

FUNCTIONS = [name for name in vars(Kernel) if not name.startswith("_")]


def parameters_of(function):
    """Names, kinds and defaults of the parameters, in order, without annotations."""
    parameters = inspect.signature(function).parameters.values()
    return [(p.name, p.kind, p.default) for p in parameters if p.name != "self"]


def assert_signatures_are_those_declared(kernel):
    declared = {name: parameters_of(getattr(Kernel, name)) for name in FUNCTIONS}
    assert {"forward_backward", "viterbi", "state_masses"} <= set(declared)  # they are found at all
    assert {name: parameters_of(getattr(kernel, name)) for name in declared} == declared
