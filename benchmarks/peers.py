"""Time one E-step of a categorical HMM in hmmlearn, dynamax and pomegranate.

Every peer gets the same parameters and the same sequences. The results go to a JSON file.
The environment is described in ``peers-requirements.txt``. It is apart from that of the
library, so this script imports nothing from it.

Examples
--------
``python benchmarks/peers.py --states 45 --symbols 1000 --length 20 --sequences 2000
--repeats 3 --out peers.json``
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

# A peer slower than this gets fewer sequences.
LIMIT_SECONDS = 20.0
# The batch starts small and grows while the next size should stay within the limit.
FIRST_SEQUENCES = 50
GROWTH = 4
# Transposed transitions move the likelihood by about 2e-3, single precision by about 1e-7.
TOLERANCE = 1e-4
# Below one, so that states differ and a wrong parameter shows in the likelihood.
# Much smaller values would underflow in single precision.
CONCENTRATION = 0.3


@dataclass(frozen=True)
class Problem:
    """Parameters of a categorical HMM and data for it.

    Attributes
    ----------
    initial : numpy.ndarray, shape (states,)
        Initial distribution.
    transition : numpy.ndarray, shape (states, states)
        Transition matrix, rows sum to one.
    emission : numpy.ndarray, shape (states, symbols)
        Emission probabilities, rows sum to one.
    data : numpy.ndarray, shape (sequences, length)
        Symbols, as integers from zero.
    """

    initial: np.ndarray
    transition: np.ndarray
    emission: np.ndarray
    data: np.ndarray


@dataclass(frozen=True)
class Peer:
    """One peer, ready to be timed.

    Attributes
    ----------
    prepare : callable
        Takes a number of sequences. Returns a function without arguments that runs what is
        timed on the first so many sequences, and returns their total log likelihood.
    timed : str
        One sentence that says what is timed.
    device : str
        Where it runs: "cpu", or "gpu" where the peer can use one that is there.
    """

    prepare: Callable[[int], Callable[[], float]]
    timed: str
    device: str = "cpu"


def draw_from_rows(
    rng: np.random.Generator, probabilities: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """Draw one category for each entry of ``rows``.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    probabilities : numpy.ndarray, shape (n, categories)
        One distribution in each row.
    rows : numpy.ndarray of int
        Row to draw from, for each draw.

    Returns
    -------
    numpy.ndarray of int
        Categories, in the shape of ``rows``.
    """
    uniform = rng.random(rows.shape)
    drawn = np.empty_like(rows)
    for row, weights in enumerate(probabilities):
        chosen = rows == row
        drawn[chosen] = np.searchsorted(np.cumsum(weights), uniform[chosen], side="right")
    # The last cumulative sum may fall short of one by rounding.
    return np.minimum(drawn, probabilities.shape[1] - 1)


def draw_problem(states: int, symbols: int, length: int, sequences: int, seed: int) -> Problem:
    """Draw parameters, and sequences from the model that has them.

    With uniform symbols the total likelihood would hardly depend on the transitions, and the
    comparison with the reference would let a transposed matrix pass.

    Parameters
    ----------
    states, symbols, length, sequences : int
        Sizes of the problem.
    seed : int
        Seed of the generator.

    Returns
    -------
    Problem
        The same for the same arguments.
    """
    rng = np.random.default_rng(seed)
    initial = rng.dirichlet(np.full(states, CONCENTRATION))
    transition = rng.dirichlet(np.full(states, CONCENTRATION), size=states)
    emission = rng.dirichlet(np.full(symbols, CONCENTRATION), size=states)
    data = np.empty((sequences, length), dtype=np.int64)
    state = draw_from_rows(rng, initial[None, :], np.zeros(sequences, dtype=np.int64))
    for t in range(length):
        data[:, t] = draw_from_rows(rng, emission, state)
        state = draw_from_rows(rng, transition, state)
    return Problem(initial, transition, emission, data)


def reference_log_likelihood(problem: Problem, sequences: int) -> float:
    """Compute the total log likelihood with a scaled forward pass in double precision.

    Parameters
    ----------
    problem : Problem
        Parameters and data.
    sequences : int
        Number of sequences, from the first.

    Returns
    -------
    float
        Log likelihood summed over the sequences.
    """
    data = problem.data[:sequences]
    predicted = np.broadcast_to(problem.initial, (sequences, problem.initial.size))
    total = 0.0
    for t in range(data.shape[1]):
        joint = predicted * problem.emission[:, data[:, t]].T
        scale = joint.sum(axis=1)
        total += float(np.log(scale).sum())
        predicted = (joint / scale[:, None]) @ problem.transition
    return total


def count_cores() -> int:
    """Count the cores that this process may use.

    Returns
    -------
    int
        Number of cores.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def runs_on(backend: str, library: str) -> str:
    """Say in words where something runs.

    Parameters
    ----------
    backend : str
        "cpu" or "gpu".
    library : str
        Whose threads those of a CPU are.

    Returns
    -------
    str
        The end of a sentence.
    """
    return "the GPU" if backend == "gpu" else f"the threads of {library}"


def build_hmmlearn(problem: Problem) -> Peer:
    """Build the hmmlearn model.

    Parameters
    ----------
    problem : Problem
        Parameters and data.

    Returns
    -------
    Peer
        One EM iteration, which is the least that hmmlearn exposes.
    """
    from hmmlearn.hmm import CategoricalHMM

    # It warns that the data are few for the parameters, which does not matter here.
    logging.getLogger("hmmlearn").setLevel(logging.ERROR)
    states, symbols = problem.emission.shape

    def prepare(sequences: int) -> Callable[[], float]:
        data = problem.data[:sequences].reshape(-1, 1)
        lengths = np.full(sequences, problem.data.shape[1])
        model = CategoricalHMM(
            n_components=states,
            n_features=symbols,
            implementation="scaling",
            n_iter=1,
            init_params="",
        )

        def run() -> float:
            # The M-step of the last run replaced the parameters.
            model.startprob_ = problem.initial
            model.transmat_ = problem.transition
            model.emissionprob_ = problem.emission
            model.fit(data, lengths)
            return float(model.monitor_.history[0])

        return run

    return Peer(
        prepare,
        "One EM iteration, CategoricalHMM.fit with scaling in float64: an E-step that loops "
        "over the sequences on one core, and a cheap M-step.",
    )


def build_dynamax(problem: Problem) -> Peer:
    """Build the dynamax model, with its own E-step.

    Parameters
    ----------
    problem : Problem
        Parameters and data.

    Returns
    -------
    Peer
        The E-step that ``CategoricalHMM.fit_em`` runs.
    """
    import jax
    import jax.numpy as jnp
    from dynamax.hidden_markov_model import CategoricalHMM

    states, symbols = problem.emission.shape
    model = CategoricalHMM(states, 1, symbols)
    params, _ = model.initialize(
        initial_probs=jnp.asarray(problem.initial, dtype=jnp.float32),
        transition_matrix=jnp.asarray(problem.transition, dtype=jnp.float32),
        emission_probs=jnp.asarray(problem.emission[:, None, :], dtype=jnp.float32),
    )

    @jax.jit
    def e_step(params: Any, data: jax.Array) -> tuple[Any, jax.Array]:
        stats, log_likelihoods = jax.vmap(lambda row: model.e_step(params, row))(data)
        # The M-step only needs the sums, and returning them alone spares memory.
        return jax.tree.map(lambda leaf: leaf.sum(axis=0), stats), log_likelihoods.sum()

    def prepare(sequences: int) -> Callable[[], float]:
        data = jnp.asarray(problem.data[:sequences, :, None], dtype=jnp.int32)

        def run() -> float:
            _, log_likelihood = jax.block_until_ready(e_step(params, data))
            return float(log_likelihood)

        return run

    return Peer(
        prepare,
        "One E-step, CategoricalHMM.e_step vmapped over the sequences with its statistics "
        f"summed, jitted, in float32 on {runs_on(jax.default_backend(), 'XLA')}.",
        jax.default_backend(),
    )


def build_dynamax_smoother(problem: Problem) -> Peer:
    """Build an E-step on the two-filter smoother of dynamax.

    Parameters
    ----------
    problem : Problem
        Parameters and data.

    Returns
    -------
    Peer
        An E-step that looks emissions up in a table, unlike that of ``CategoricalHMM``.
    """
    import jax
    import jax.numpy as jnp
    from dynamax.hidden_markov_model import hmm_two_filter_smoother

    states, symbols = problem.emission.shape
    initial = jnp.asarray(problem.initial, dtype=jnp.float32)
    transition = jnp.asarray(problem.transition, dtype=jnp.float32)
    emission = jnp.asarray(problem.emission, dtype=jnp.float32)

    @jax.jit
    def e_step(
        initial: jax.Array, transition: jax.Array, emission: jax.Array, data: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        table = jnp.log(emission).T
        posterior = jax.vmap(lambda row: hmm_two_filter_smoother(initial, transition, table[row]))(
            data
        )
        counts = jax.ops.segment_sum(
            posterior.smoothed_probs.reshape(-1, states), data.reshape(-1), num_segments=symbols
        )
        return (
            posterior.initial_probs.sum(axis=0),
            posterior.trans_probs.sum(axis=0),
            counts,
            posterior.marginal_loglik.sum(),
        )

    def prepare(sequences: int) -> Callable[[], float]:
        data = jnp.asarray(problem.data[:sequences], dtype=jnp.int32)

        def run() -> float:
            *_, log_likelihood = jax.block_until_ready(e_step(initial, transition, emission, data))
            return float(log_likelihood)

        return run

    return Peer(
        prepare,
        "One E-step, hmm_two_filter_smoother vmapped over the sequences with emissions looked "
        "up in a table and counts from segment_sum, jitted, in float32 on "
        f"{runs_on(jax.default_backend(), 'XLA')}.",
        jax.default_backend(),
    )


def pomegranate_model(problem: Problem) -> tuple[Any, Any]:
    """Build the pomegranate model, on the GPU if there is one.

    Parameters
    ----------
    problem : Problem
        Parameters and data.

    Returns
    -------
    model : DenseHMM
    device : torch.device
    """
    import torch
    from pomegranate.distributions import Categorical
    from pomegranate.hmm import DenseHMM

    torch.set_num_threads(count_cores())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def single(values: np.ndarray) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32)

    model = DenseHMM(
        [Categorical(single(row[None, :])) for row in problem.emission],
        edges=single(problem.transition),
        starts=single(problem.initial),
        # An end probability of one everywhere leaves the likelihood as it is.
        ends=torch.ones(problem.initial.size),
    )
    return model.to(device), device


def build_pomegranate(problem: Problem) -> Peer:
    """Build the pomegranate model.

    Parameters
    ----------
    problem : Problem
        Parameters and data.

    Returns
    -------
    Peer
        The E-step that ``DenseHMM.fit`` runs.
    """
    import torch

    backend = "gpu" if torch.cuda.is_available() else "cpu"

    def prepare(sequences: int) -> Callable[[], float]:
        # Fresh for each size, as summarize adds to the statistics it holds.
        model, device = pomegranate_model(problem)
        data = torch.tensor(problem.data[:sequences, :, None], device=device)

        def run() -> float:
            return float(model.summarize(data).sum())

        return run

    return Peer(
        prepare,
        "One E-step, DenseHMM.summarize on the batch with Categorical distributions, "
        f"in float32 on {runs_on(backend, 'torch')}.",
        backend,
    )


def build_pomegranate_recursions(problem: Problem) -> Peer:
    """Build the pomegranate model, without the sums by symbol.

    Parameters
    ----------
    problem : Problem
        Parameters and data.

    Returns
    -------
    Peer
        A part of the E-step: the rest loops over the symbols for every state.
    """
    import torch

    backend = "gpu" if torch.cuda.is_available() else "cpu"

    def prepare(sequences: int) -> Callable[[], float]:
        model, device = pomegranate_model(problem)
        data = torch.tensor(problem.data[:sequences, :, None], device=device)

        def run() -> float:
            *_, log_likelihoods = model.forward_backward(data)
            return float(log_likelihoods.sum())

        return run

    return Peer(
        prepare,
        "DenseHMM.forward_backward on the batch with Categorical distributions, in float32 on "
        f"{runs_on(backend, 'torch')}: no expected counts of symbols.",
        backend,
    )


# Name of the result, the distribution it belongs to, and the function that builds it.
PEERS: dict[str, tuple[str, Callable[[Problem], Peer]]] = {
    "hmmlearn": ("hmmlearn", build_hmmlearn),
    "dynamax": ("dynamax", build_dynamax),
    "dynamax_smoother": ("dynamax", build_dynamax_smoother),
    "pomegranate": ("pomegranate", build_pomegranate),
    "pomegranate_recursions": ("pomegranate", build_pomegranate_recursions),
}
DEFAULT_PEERS = ["hmmlearn", "dynamax", "dynamax_smoother", "pomegranate"]


def time_peer(
    name: str, problem: Problem, repeats: int, first: int = FIRST_SEQUENCES
) -> dict[str, Any]:
    """Time one peer, on fewer sequences where it is slow.

    Parameters
    ----------
    name : str
        A key of ``PEERS``.
    problem : Problem
        Parameters and data.
    repeats : int
        Number of timed runs, of which the best counts.
    first : int
        Sequences to start with.

    Returns
    -------
    dict
        What goes to the JSON file for this peer.
    """
    distribution, build = PEERS[name]
    peer = build(problem)
    available, length = problem.data.shape
    sequences = min(first, available)
    smaller: dict[str, float] = {}
    while True:
        run = peer.prepare(sequences)
        # The first run at a size compiles, allocates and fills caches.
        run()
        start = time.perf_counter()
        log_likelihood = run()
        seconds = time.perf_counter() - start
        if sequences == available or GROWTH * seconds > LIMIT_SECONDS:
            break
        smaller[str(sequences)] = sequences * length / seconds
        sequences = min(GROWTH * sequences, available)
    for _ in range(repeats - 1):
        start = time.perf_counter()
        run()
        seconds = min(seconds, time.perf_counter() - start)
    expected = reference_log_likelihood(problem, sequences)
    difference = abs(log_likelihood - expected) / abs(expected)
    return {
        "version": version(distribution),
        "steps_per_second": sequences * length / seconds,
        "seconds": seconds,
        "sequences": sequences,
        "timed": peer.timed,
        "device": peer.device,
        # One run each: shows whether a peer does better on a smaller batch.
        "steps_per_second_of_smaller_batches": smaller,
        "log_likelihood": log_likelihood,
        "relative_difference": difference,
        # False for a difference that is not a number, too.
        "agrees": bool(difference <= TOLERANCE),
    }


def time_apart(
    name: str, problem: Problem, repeats: int, first: int = FIRST_SEQUENCES
) -> dict[str, Any]:
    """Time one peer in a process of its own.

    Parameters
    ----------
    name : str
        A key of ``PEERS``.
    problem : Problem
        Parameters and data.
    repeats : int
        Number of timed runs.
    first : int
        Sequences to start with.

    Returns
    -------
    dict
        The result, or ``{"error": ...}`` where the peer failed.
    """
    # Thread pools of torch and jax do not meet, and a peer that runs out of memory ends alone.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        future = pool.submit(time_peer, name, problem, repeats, first)
        # Waits for the end. Whatever went wrong, the other peers go on.
        error = future.exception()
    if error is not None:
        return {"error": f"{type(error).__name__}: {error}"}
    return future.result()


def parse_arguments() -> argparse.Namespace:
    """Read the command line.

    Returns
    -------
    argparse.Namespace
        The options.
    """
    parser = argparse.ArgumentParser(description="Time one E-step of a categorical HMM in peers.")
    parser.add_argument("--states", type=int, default=45)
    parser.add_argument("--symbols", type=int, default=1000)
    parser.add_argument("--length", type=int, default=20)
    parser.add_argument("--sequences", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=DEFAULT_PEERS)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    for name in ("states", "symbols", "length", "sequences", "repeats"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} must be at least 1")
    return arguments


def main() -> None:
    """Time the peers and write the JSON file."""
    arguments = parse_arguments()
    problem = draw_problem(
        arguments.states,
        arguments.symbols,
        arguments.length,
        arguments.sequences,
        arguments.seed,
    )
    results: dict[str, Any] = {
        "settings": {
            "states": arguments.states,
            "symbols": arguments.symbols,
            "length": arguments.length,
            "sequences": arguments.sequences,
            "repeats": arguments.repeats,
            "seed": arguments.seed,
            "cores": count_cores(),
            "python": platform.python_version(),
        },
        "peers": {},
    }
    for name in arguments.peers:
        result = time_apart(name, problem, arguments.repeats)
        results["peers"][name] = result
        if "error" in result:
            print(f"{name}: {result['error']}")
        else:
            print(
                f"{name} {result['version']}: {result['steps_per_second']:.3g} steps/s "
                f"({result['seconds']:.3g} s, {result['sequences']} sequences, "
                f"agrees: {result['agrees']})"
            )
    arguments.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
