"""Much data: the sums of a local step on all of them, and the merges that they judge."""

from functools import partial

import numpy as np
import pytest
from scipy.special import xlogy

import sojourn as sj
from sojourn.backends.cpu import CpuBackend
from sojourn.inference import COLLAPSED, Problem
from sojourn.inference.bound import COLLAPSED_BOUND
from sojourn.inference.survey import survey
from sojourn.kernels import cpu, reference
from sojourn.moves.judge import Judge
from sojourn.moves.merge import Merge, MergedStates, merge_weights, try_merge
from sojourn.moves.sample import Sample, SampleFitter
from sojourn.moves.settings import MoveSettings
from sojourn.moves.stream import merge_in_survey, on_all_the_data
from sojourn.moves.workbench import Workbench
from sojourn.sources import MemorySource
from tests.support.known_states import simulate
from tests.support.proposals import moves_of

SETTINGS = MoveSettings()
SMALL_SAMPLES = MoveSettings(sample_max_steps=2**11)


def posterior_of(family, data, n_states, seed=1):
    options = {"batch_size": None, "forgetting_rate": 0.0, "n_passes": 15, "moves": None}
    model = sj.HDPHMM(n_states, family, dtype="float64", random_state=seed, **options).fit(data)
    return model.emission_, model.fitted_.posterior


def surveyed_by(family, data, backend, batch_size=7, source=None):
    """Return what takes a local step on all the data, in minibatches."""
    source = MemorySource(family.validate(data), batch_size, 3) if source is None else source
    problem = Problem(family, COLLAPSED, lambda n: 1.0, len(data))
    return partial(survey, problem, source=source, backend=backend, n_pass=4)


def judge_of(family, data, posterior, of_all):
    bench = Workbench(family, CpuBackend(cpu, 1, "float64"))
    n_states, total = posterior.n_states, len(data)
    sample = Sample.draw(
        [family.validate(data)], 200, total, bench, n_states, SETTINGS, stands_for_all=False
    )
    judge = Judge.begin(SampleFitter(sample, bench, SETTINGS, 1e18, n_states), posterior)
    return judge, on_all_the_data(judge, of_all, total)


def long_way(family, posterior, data):
    """Responsibilities of all steps by the reference, and the whole local step at once."""
    whole = Workbench(family, CpuBackend(reference, 1, "float64"))
    chunks = whole.chunks(family.validate(data), posterior.n_states)
    sums = whole.statistics(posterior, chunks, entropy=True, shared=True)
    from sojourn.inference.local import chunk_potentials

    potentials = whole.backend.transition_potentials(posterior, COLLAPSED)
    parts = chunk_potentials(
        posterior, family, chunks, potentials, whole.backend, collapsed=True
    )
    r = np.concatenate([whole.backend.forward_backward(*p).responsibilities for p in parts])
    return sums, r
