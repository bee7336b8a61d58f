"""Samplers: draws from the posterior, a reference for the variational methods."""

from sojourn.sampling.chains import Chains, SamplingProgress, run_chains
from sojourn.sampling.draws import Draw, Samples
from sojourn.sampling.finite import BlockedGibbs, CollapsedGibbs
from sojourn.sampling.infinite import Beam, DirectAssignment
from sojourn.sampling.state import ChainState, Sampler, SymbolData

__all__ = [
    "Beam",
    "BlockedGibbs",
    "ChainState",
    "Chains",
    "CollapsedGibbs",
    "DirectAssignment",
    "Draw",
    "Sampler",
    "Samples",
    "SamplingProgress",
    "SymbolData",
    "run_chains",
]
