import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.kernels.cpu.sampling import draw_states


@settings(deadline=None, max_examples=50)
@given(
    seed=st.integers(0, 2**20),
    n_states=st.integers(1, 9),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=8),
)
def test_states_are_drawn_by_inversion_step_by_step(seed, n_states, lengths):
    rng = np.random.default_rng(seed)
    start, *rows = np.cumsum(rng.dirichlet(np.full(n_states, 0.3), n_states + 1), axis=1)
    lengths, rows = np.array(lengths), np.array(rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    u = rng.random(offsets[-1])
    u[0] = np.nextafter(1.0, 0.0)  # beyond sums that rounding has left below one
    states = np.empty(offsets[-1], np.int32)
    draw_states(lengths, offsets[:-1], start, rows, u, states)
    coming = iter(u)
    expected = [[] for _ in lengths]
    for t in range(lengths.max()):
        for own, length in zip(expected, lengths, strict=True):
            if t < length:
                sums = rows[own[-1]] if own else start
                own.append(min(int((sums <= next(coming)).sum()), n_states - 1))
    np.testing.assert_array_equal(states, np.concatenate(expected))
