"""Families on PyTorch tensors: the same numbers as NumPy's, and no value read by the host."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sojourn as sj
from sojourn.families import DecayedTable, blocks, dense
from sojourn.families.categorical import SymbolsPresent
from sojourn.families.matrix_factors import stable_cholesky
from sojourn.kernels.arrays import maybe_any, namespace, to_device
from tests.support.drawn import TOLERANCE, Table, drawn
from tests.support.families import EXAMPLES, LATENT, N_STATES

torch = pytest.importorskip("torch", reason="PyTorch is the extra gpu")

any_seed = given(seed=st.integers(0, 2**20))
every_family = pytest.mark.parametrize("name", EXAMPLES)
# What a kernel gets of symbols alone is not a row a step.
ROWS = [name for name in EXAMPLES if not name.startswith("categorical")]
every_row_a_step = pytest.mark.parametrize("name", ROWS)


def in_every_shape(names):
    """Parametrize by family, states and steps; a concentration of three states stays with them."""
    shapes = [(N_STATES, 40), (N_STATES, 1), (1, 40), (1, 1)]
    cases = [(name, *shape) for name in names for shape in shapes]
    fixed = "categorical, a concentration a state and symbol"
    kept = [case for case in cases if case[0] != fixed or case[1] == N_STATES]
    return pytest.mark.parametrize(("name", "n_states", "n_steps"), kept)


def maths(family, x, natural):
    """Every function of the maths, by name."""
    results = {
        "statistics": family.statistics(x),
        "log_base_measure": family.log_base_measure(x),
        "log_normalizer": family.log_normalizer(natural),
        "log_predictive": family.log_predictive(x, natural),
        "expected_log_likelihood": family.expected_log_likelihood(x, natural),
        "divergence": sj.families.Family.divergence(family, natural),
    }
    if isinstance(family, dense.DenseFamily):
        for collapsed in (True, False):
            function = family.potentials(natural, collapsed=collapsed)
            results[f"potentials, collapsed={collapsed}"] = function(x)
    return results


def check(got, expected, device="cpu", **tolerance):
    """Compare tensors with NumPy arrays."""
    assert got.device.type == device
    assert got.dtype == torch.float64
    np.testing.assert_allclose(got.cpu().numpy(), expected, **(tolerance or TOLERANCE))


@in_every_shape(EXAMPLES)
@any_seed
@settings(deadline=None, max_examples=5)
def test_the_maths_is_that_of_numpy(name, n_states, n_steps, seed):
    d = drawn(name, seed, n_states, n_steps)
    expected = maths(d.family, d.x, d.natural)
    for key, got in maths(d.family, to_device(d.x, "cpu"), torch.tensor(d.natural)).items():
        # The divergence is a difference quotient, which magnifies rounding.
        loose = {"rtol": 1e-7, "atol": 1e-7} if key == "divergence" else d.tolerance
        check(got, expected[key], **loose)


@every_family
def test_the_maths_is_that_of_numpy_for_large_counts(name):
    d = drawn(name, 0, holes=False)
    natural = 1e7 * d.natural
    results = maths(d.family, to_device(d.x, "cpu"), torch.tensor(natural))
    for key in ("log_predictive", "expected_log_likelihood"):
        tolerance = {"rtol": 1e-9, "atol": 1e-9} if d.tolerance is TOLERANCE else d.tolerance
        check(results[key], getattr(d.family, key)(d.x, natural), **tolerance)


def for_the_kernel(d, device, dtype, collapsed):
    """Rows and sums of a batch, from tensors on a device."""
    encoded = to_device(d.family.encode(d.data), device)
    table = Table(to_device(d.natural - d.family.prior(), device))
    rows = d.family.emission_rows(encoded, table, collapsed=collapsed, dtype=dtype, n_threads=2)
    weights = np.random.default_rng(0).random((d.data.n_steps, len(d.natural)))
    weights = to_device(weights.astype(dtype), device)
    return rows, d.family.sum_statistics(encoded, weights, n_threads=2), weights


def check_for_the_kernel(d, device, dtype, collapsed):
    rows, sums, weights = for_the_kernel(d, device, np.dtype(dtype), collapsed)
    closed_form = d.family.log_predictive if collapsed else d.family.expected_log_likelihood
    expected = closed_form(d.x, d.natural)
    largest = expected.max(axis=1)
    check(rows.log_scale, largest, device, **d.tolerance)
    assert rows.table.dtype == getattr(torch, dtype)
    assert rows.table.device.type == rows.index.device.type == device
    exact = np.exp(expected - largest[:, None])
    tolerance = d.tolerance if dtype == "float64" else {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(rows.table.cpu().numpy(), exact, **tolerance)
    assert (rows.table.amax(dim=1) == 1.0).all()
    assert rows.index.dtype == torch.int32
    np.testing.assert_array_equal(rows.index.cpu().numpy(), np.arange(len(exact)))
    assert (sums.rows, sums.n_rows) == (None, d.family.n_statistics)
    statistics = d.family.statistics(d.x)
    check(sums.dense(), statistics.T @ weights.cpu().numpy().astype(np.float64), device)


@in_every_shape(ROWS)
@pytest.mark.parametrize("collapsed", [True, False])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_kernel_gets_rows_and_the_model_sums(name, n_states, n_steps, collapsed, dtype):
    check_for_the_kernel(drawn(name, 1, n_states, n_steps), "cpu", dtype, collapsed)


@every_row_a_step
@pytest.mark.parametrize("numbers", [10, 2**20])
def test_gaps_of_potentials_are_those_of_numpy(name, numbers, monkeypatch):
    monkeypatch.setattr("sojourn.families.base._GAP_NUMBERS", numbers)
    d, rng = drawn(name, 5), np.random.default_rng(0)
    r, masses = rng.dirichlet(np.ones(N_STATES), 40), np.arange(1.0, 1.0 + N_STATES)
    gaps = d.family.log_predictive(d.x, d.natural) - d.family.expected_log_likelihood(
        d.x, d.natural
    )
    statistics, encoded = d.natural - d.family.prior(), to_device(d.family.encode(d.data), "cpu")
    table = Table(torch.tensor(statistics))
    rows = d.family.emission_rows(
        encoded, table, collapsed=True, dtype=np.dtype("float64"), n_threads=1
    )
    found = d.family.uncertainty(
        encoded, torch.tensor(r), rows, table, torch.tensor(masses), n_threads=1
    )
    tolerance = {"rtol": 1e-8, "atol": 1e-8} if d.tolerance is TOLERANCE else {"rtol": 1e-3}
    check(found.values[0], masses * (r * (1.0 - r) * gaps).sum(axis=0), **tolerance)
    value = d.family.expected_log_normalizer(table.dense(), found.values, torch.tensor(masses))
    exact = d.family.expected_log_normalizer(statistics, found.values.numpy(), masses)
    check(value, exact, **d.tolerance)


@every_row_a_step
@pytest.mark.parametrize("numbers", [1, 100])
def test_many_blocks_of_steps_give_the_same(name, numbers, monkeypatch):
    monkeypatch.setattr(blocks, "TENSOR_NUMBERS", numbers)
    check_for_the_kernel(drawn(name, 2), "cpu", "float64", True)


@every_row_a_step
def test_blocks_bound_the_memory_of_sums(name, monkeypatch):
    d, seen = drawn(name, 2), []
    monkeypatch.setattr(blocks, "TENSOR_NUMBERS", 7 * d.family.n_statistics + 1)
    statistics = d.family.statistics

    def watched(x):
        seen.append(len(statistics(x)))
        return statistics(x)

    monkeypatch.setattr(d.family, "statistics", watched)
    encoded = to_device(d.family.encode(d.data), "cpu")
    d.family.sum_statistics(encoded, torch.ones(40, N_STATES), n_threads=1)
    assert seen == [7, 7, 7, 7, 7, 5]


@pytest.mark.parametrize("name", ["Poisson", "multinomial", "Gaussian", "autoregressive Gaussian"])
def test_blocks_bound_the_memory_of_rows(name, monkeypatch):
    d, seen = drawn(name, 2), []
    monkeypatch.setattr(blocks, "TENSOR_NUMBERS", 7 * N_STATES * d.x.shape[1] + 1)
    potentials = d.family.potentials

    def watched(natural, *, collapsed):
        function = potentials(natural, collapsed=collapsed)
        return lambda x: seen.append(len(x)) or function(x)

    monkeypatch.setattr(d.family, "potentials", watched)
    for_the_kernel(d, "cpu", np.dtype("float64"), True)
    assert seen == [7, 7, 7, 7, 7, 5]


@in_every_shape(EXAMPLES)
def test_no_value_is_read(name, n_states, n_steps):
    # Tensors on the device "meta" have shapes and no values: reading one is an error.
    d = drawn(name, 3, n_states, n_steps)
    expected = maths(d.family, d.x, d.natural)
    x, natural = to_device(d.x, "meta"), to_device(d.natural, "meta")
    for key, got in maths(d.family, x, natural).items():
        assert got.device.type == "meta"
        assert got.shape == expected[key].shape


@every_row_a_step
@pytest.mark.parametrize("collapsed", [True, False])
def test_no_value_is_read_for_the_kernel(name, collapsed):
    d = drawn(name, 3)
    rows, sums, _ = for_the_kernel(d, "meta", np.dtype("float32"), collapsed)
    assert rows.table.shape == (d.data.n_steps, N_STATES)
    assert sums.values.shape == (d.family.n_statistics, N_STATES)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_row_a_step
@pytest.mark.parametrize("collapsed", [True, False])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_gpu_computes_the_same_and_nothing_waits_for_it(name, collapsed, dtype):
    d = drawn(name, 4)
    check_for_the_kernel(d, "cuda", dtype, collapsed)
    x, natural = to_device(d.x, "cuda"), to_device(d.natural, "cuda")
    encoded, table = to_device(d.family.encode(d.data), "cuda"), Table(natural)
    weights = torch.rand(d.data.n_steps, N_STATES, device="cuda")
    mode = torch.cuda.get_sync_debug_mode()
    try:
        torch.cuda.set_sync_debug_mode("error")
        maths(d.family, x, natural)
        d.family.emission_rows(
            encoded, table, collapsed=collapsed, dtype=np.dtype(dtype), n_threads=1
        )
        d.family.sum_statistics(encoded, weights, n_threads=1)
    finally:
        torch.cuda.set_sync_debug_mode(mode)


def given_the_statistics(family, natural, encoded, weights, collapsed):
    """Rows and sums of a family whose steps have unknowns, from arrays of any kind."""
    table = Table(natural)
    rows = family.emission_rows(
        encoded, table, collapsed=collapsed, dtype=np.dtype("float64"), n_threads=1
    )
    sums, local = family.sum_given(
        encoded, weights, table, collapsed=collapsed, n_threads=1, bound=True
    )
    return rows, sums.dense(), local


@pytest.mark.parametrize("name", LATENT)
@pytest.mark.parametrize("collapsed", [True, False])
def test_steps_with_unknowns_are_those_of_numpy(name, collapsed):
    example, rng = LATENT[name], np.random.default_rng(0)
    family = example.resolve()
    statistics = example.draw_natural(family, rng, N_STATES) - family.prior()
    values = 1.0 * example.draw_data(rng, 40)
    values[3] = np.nan
    data = family.validate(sj.Sequences.from_lengths(values, None))
    x, weights = family.encode(data), rng.random((40, N_STATES))
    table = DecayedTable(statistics, "float64")
    expected, local = family.sum_given(
        x, weights, table, collapsed=collapsed, n_threads=1, bound=True
    )
    log = (family.log_predictive if collapsed else family.expected_log_likelihood)(
        family.observations(data), family.prior() + statistics
    )
    tensors = [to_device(part, "cpu") for part in (statistics, x, weights)]
    rows, sums, found = given_the_statistics(family, *tensors, collapsed)
    check(rows.log_scale, log.max(axis=1), rtol=1e-8, atol=1e-8)
    check(sums, expected.dense(), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(float(found), local, rtol=1e-8)
    unread = [to_device(part, "meta") for part in (statistics, x, weights)]
    assert given_the_statistics(family, *unread, collapsed)[1].device.type == "meta"


# ---- arrays -------------------------------------------------------------------------------------


def test_both_namespaces_have_the_same_names():
    assert vars(namespace(torch.ones(1))).keys() == vars(namespace(np.ones(1))).keys()


def test_a_changed_parameter_is_seen():
    x, natural = torch.ones(1, 1, dtype=torch.float64), torch.tensor([[2.0, 3.0]]).double()
    family = sj.Gamma(n_features=1, shape=1.0, prior_shape=1.0, prior_rate=1.0)
    first = family.log_predictive(x, natural)
    family.set_params(shape=2.0)
    assert not torch.equal(family.log_predictive(x, natural), first)
    np.testing.assert_allclose(
        family.log_predictive(x, natural), family.log_predictive(x.numpy(), natural.numpy())
    )


def test_a_parameter_is_moved_once():
    like, xp = torch.ones(1), namespace(torch.ones(1))
    assert xp.asarray([0.25, 4.0], like=like) is xp.asarray(np.array([0.25, 4.0]), like=like)


def test_a_tensor_is_not_asked():
    assert maybe_any(torch.zeros(3, dtype=torch.bool))


def test_encoded_batches_keep_their_form():
    fixed = np.ones(3, np.float32)
    fixed.flags.writeable = False
    arrays = {
        "reversed": np.arange(4.0)[::-1],
        "read-only": fixed,
        "counts": np.array([[1], [2]], dtype=np.int64),
    }
    encoded = [SymbolsPresent(None, np.array([0, 2], np.int32), True), (arrays, None, 3)]
    symbols, (moved, nothing, number) = to_device(encoded, "cpu")
    assert isinstance(symbols, SymbolsPresent)
    assert (symbols.rows, symbols.has_missing, nothing, number) == (None, True, None, 3)
    assert symbols.places.dtype == torch.int32
    for key, array in arrays.items():
        assert isinstance(moved[key], torch.Tensor)
        assert str(moved[key].dtype) == f"torch.{array.dtype}"
        np.testing.assert_array_equal(moved[key].numpy(), array)
    moved["read-only"][0] = 5.0
    assert fixed[0] == 1.0


def test_matrices_that_rounding_made_indefinite_are_factorised():
    rng = np.random.default_rng(0)
    good = np.cov(rng.normal(size=(3, 50)))
    flat = np.outer([1.0, 2.0, 3e6], [1.0, 2.0, 3e6])
    flat[0, 1] = flat[1, 0] = 2.0 + 1e-13
    worse = flat + np.diag([0.0, -1e-6, 0.0])
    matrices = np.stack([good, flat, worse])
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(worse)
    for factor in (stable_cholesky(matrices), stable_cholesky(torch.tensor(matrices)).numpy()):
        np.testing.assert_allclose(factor[0], np.linalg.cholesky(good), rtol=1e-12, atol=1e-14)
        size = np.sqrt(np.diagonal(matrices, axis1=1, axis2=2))
        scale = size[:, :, None] * size[:, None, :]
        relative = (factor @ factor.transpose(0, 2, 1) - matrices) / scale
        assert np.abs(relative[1]).max() < 1e-11
        assert np.abs(relative[2]).max() < 1e-3


def test_a_matrix_that_is_not_finite_spoils_no_other():
    matrices = torch.eye(2, dtype=torch.float64).repeat(3, 1, 1)
    matrices[1, 0, 0] = np.nan
    factor = stable_cholesky(matrices)
    assert torch.isnan(factor[1]).all()
    assert torch.equal(factor[[0, 2]], matrices[[0, 2]])
