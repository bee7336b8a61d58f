"""An update of the HDP on a GPU against the same in memory; without a GPU by the interpreter."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import digamma, polygamma

torch = pytest.importorskip("torch", reason="PyTorch is the extra gpu: make test-gpu")
triton = pytest.importorskip("triton", reason="Triton is the extra gpu: make test-gpu")

import triton.language as tl  # noqa: E402

from sojourn.backends.cuda.backend import find_device  # noqa: E402
from sojourn.kernels import cuda  # noqa: E402
from sojourn.kernels.arrays import to_device, to_host  # noqa: E402
from sojourn.kernels.cuda import hdp as kernels  # noqa: E402
from sojourn.kernels.interface import Squares  # noqa: E402
from sojourn.transitions import HDP, Rows  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
DEVICE = find_device() if torch.cuda.is_available() or cuda.INTERPRETED else None


def placed(prior):
    return prior.converted(lambda part: to_device(np.asarray(part, dtype=np.float64), DEVICE))


def sums_of(n_states, *, squares, seed=0):
    """Sums as a large batch has them: of events that are certain, that are not, and none."""
    rng = np.random.default_rng(seed)
    q = rng.beta(0.2, 1.0, size=(9, n_states + 1, n_states)) * rng.integers(
        2, size=(n_states + 1, n_states)
    )
    q[0] = np.round(q[0])
    q[:, -1] = 0.0  # a state that nothing leaves
    q[1, 0] += 1e-9
    counts, both = q.sum(axis=0), (q**2).sum(axis=0)
    rows = np.minimum((q.sum(axis=2) ** 2).sum(axis=0), counts.sum(axis=1))[1:]
    found = Squares(both[0], both[1:], rows) if squares else None
    return Rows(counts[0], counts[1:]), found


@pytest.mark.parametrize("sort_states", [True, False])
@pytest.mark.parametrize("squares", [True, False])
@pytest.mark.parametrize("n_states", [1, 3, 20, 70])
def test_updates_are_those_in_memory(n_states, squares, sort_states):
    here = HDP.make(n_states, batch_size=10, sort_states=sort_states)
    there = placed(here)
    for n in range(3):
        counts, q2 = sums_of(n_states, squares=squares, seed=n)
        here = here.observe(counts, q2, 10, 70)
        on_device = [Rows(*map(torch.from_numpy, counts)), q2]
        on_device[0] = Rows(*(to_device(part, DEVICE) for part in counts))
        on_device[1] = None if q2 is None else Squares(*(to_device(part, DEVICE) for part in q2))
        there = there.observe(*on_device, 10, 70)
        assert there.n_updates == n + 1
        for name in ("tables", "stick_gamma", "alpha", "gamma", "update_prior"):
            ours, theirs = getattr(there, name), getattr(here, name)
            ours = [to_host(part) for part in ours] if isinstance(ours, tuple) else to_host(ours)
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, err_msg=name)
        # Also where it is computed from the posterior alone, as after a move or a resume.
        again = replace(there, n_states=n_states).update_prior
        np.testing.assert_allclose(to_host(again), here.update_prior, rtol=1e-9)


def test_sticks_of_equal_states_are_in_the_order_of_the_states():
    tables = np.array([2.0, 5.0, 2.0, 5.0, 2.0])
    here = replace(HDP.make(5), tables=tables, n_updates=1)
    np.testing.assert_allclose(to_host(placed(here).update_prior), here.update_prior, rtol=1e-12)
    assert here.update_prior[1] > here.update_prior[3] > here.update_prior[0]


@pytest.mark.parametrize("second_order", [True, False])
def test_the_second_order_term_is_there_where_it_is_wanted(second_order):
    here = HDP.make(4, batch_size=10, second_order=second_order)
    counts, _ = sums_of(4, squares=False)
    there = placed(here).observe(Rows(*(to_device(part, DEVICE) for part in counts)), None, 10, 70)
    expected = here.observe(counts, None, 10, 70)
    np.testing.assert_allclose(to_host(there.tables), expected.tables, rtol=1e-9)


@triton.jit
def _try_out(x, psi, second, log, power, n, LANES: tl.constexpr):
    at = tl.arange(0, LANES)
    value = tl.load(x + at, mask=at < n, other=1.0)
    tl.store(psi + at, kernels._digamma(value), mask=at < n)
    tl.store(second + at, kernels._tetragamma(value), mask=at < n)
    tl.store(log + at, kernels._log_one_plus(value), mask=at < n)
    tl.store(power + at, kernels._one_less_exponential(-value), mask=at < n)


def test_special_functions_are_scipy_s():
    x = np.concatenate([np.logspace(-12, 8, 200), np.linspace(0.5, 12.0, 40)])
    ours = [torch.zeros(len(x), dtype=torch.float64, device=DEVICE) for _ in range(4)]
    _try_out[(1,)](to_device(x, DEVICE), *ours, len(x), LANES=256)
    theirs = (digamma(x), polygamma(2, x), np.log1p(x), -np.expm1(-x))
    for found, expected, near in zip(ours, theirs, (1e-12, 0.0, 0.0, 0.0), strict=True):
        np.testing.assert_allclose(to_host(found), expected, rtol=2e-12, atol=near)
