"""Calls reach other threads, awake or asleep; none is lost, made twice or waited for in vain."""

import threading
import time

import numpy as np
import pytest

from sojourn.kernels import spin
from sojourn.kernels.cpu import symbols
from sojourn.kernels.threads import Background, run_units

_taking = threading.Lock()


def take(counter):
    """Take a unit, as compiled functions do."""
    with _taking:
        unit = int(counter[0])
        counter[0] += 1
    return unit


def test_every_unit_is_computed_once_whether_threads_are_awake_or_asleep():
    rng = np.random.default_rng(0)
    table = rng.random((4000, 64), dtype=np.float32)
    prior, totals = np.full((1, 1), 0.5), np.ones(64)

    def rows(n_threads):
        return symbols.predictive_rows(
            table, 1.0, None, prior, totals, collapsed=True, n_threads=n_threads
        )

    expected = rows(1)
    for i in range(300):
        if i % 30 == 0:
            time.sleep(0.01)  # long enough to fall asleep
        elif i % 3 == 0:
            time.sleep(0.0004)  # about as long as that takes
        assert np.array_equal(rows(2), expected)


def test_threads_hand_calls_over_at_the_same_time():
    results = {}

    def work(name):
        found = []
        for i in range(200):
            done = []

            def units(counter, n_units, done=done):
                while (unit := take(counter)) < n_units:
                    done.append(unit)

            run_units(units, 5, 3)
            found.append(sorted(done) == list(range(5)))
            found.append(Background(lambda i=i: i * i).result() == i * i)
        results[name] = all(found)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == dict.fromkeys(range(4), True)


def test_an_error_of_a_helper_is_raised():
    begun, caller = threading.Event(), threading.current_thread()

    def units(counter, n_units):
        if threading.current_thread() is caller:
            take(counter)
            assert begun.wait(10)
        else:
            begun.set()
            raise ValueError("of a helper")

    for _ in range(3):
        begun.clear()
        with pytest.raises(ValueError, match="of a helper"):
            run_units(units, 2, 2)


def test_a_helper_that_has_not_begun_is_not_waited_for():
    status = np.full(8, spin.ASLEEP, np.int64)
    functions, address = spin.functions(), status.ctypes.data
    assert not functions.call(address)  # it sleeps: to be woken
    status[0] = spin.CALLED
    assert functions.withdraw(address)
    assert functions.call(address)  # it is about to look again
    assert functions.listen(address, 0, 10) == spin.BEGUN
    assert not functions.withdraw(address)
    assert not functions.wait(address, 10)
    assert functions.listen(address, 1, 10) == spin.AWAITED
    assert functions.listen(address, 0, 10) == spin.ASLEEP
    assert functions.wait(address, 10)


def test_a_withdrawn_call_is_not_begun():
    status = np.full(8, spin.ASLEEP, np.int64)
    functions, address = spin.functions(), status.ctypes.data
    status[0] = spin.CALLED
    assert functions.withdraw(address)
    assert functions.listen(address, 0, 10) == spin.ASLEEP
