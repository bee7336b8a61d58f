"""Compiling beside this process: what is chosen, who takes it, and that it arrives."""

import json

import numpy as np
import pytest
from numba import njit, types
from numba.core.sigutils import normalize_signature

from sojourn.kernels.cpu import aside, notice
from sojourn.kernels.cpu.aside import Companions, Function, text_of
from tools.companions import FITS, needed_apart

STRIPS = "sojourn.kernels.cpu.strip_edges"
FIRST, SHORT, LONG, OTHER = (
    Function(f"{STRIPS}.{name}", "(int64,)")
    for name in ("prepare", "is_consecutive", "add_log_scales", "finish")
)
SECONDS = {FIRST: 0.4, SHORT: 0.5, LONG: 3.0, OTHER: 2.0}


def test_types_are_read_from_their_text_as_they_were():
    array = types.Array
    kinds = (
        types.int64,
        types.boolean,
        types.float32[:, ::1],
        array(types.float32, 1, "C", readonly=True),
        array(types.float64, 2, "F"),
        array(types.float64, 3, "A"),
        types.UniTuple(types.float32[::1], 4),
        types.Tuple((types.int32[::1], types.UniTuple(types.float32[::1], 2), types.int64)),
        types.none,
    )
    assert normalize_signature(text_of(kinds))[0] == kinds
    assert normalize_signature(text_of(kinds[:1]))[0] == kinds[:1]


@pytest.fixture
def companions():
    # Without other processes.
    fits = [
        ("a fit", {FIRST, SHORT, LONG}),
        ("a fit", {FIRST, SHORT, LONG, OTHER}),
        ("a fit", {FIRST, SHORT}),
        ("another", {FIRST, OTHER}),
    ]
    companions = Companions(fits, SECONDS, 0)
    companions.expect("a fit")
    return companions


def taken(companions):
    return list(iter(lambda: companions.take(elsewhere=False), None))


def test_what_most_fits_of_the_kind_needed_is_taken_the_longest_first(companions):
    companions.need(FIRST)
    assert taken(companions) == [LONG, SHORT]


def test_what_half_of_the_fits_needed_waits_until_one_of_them_is_like_this():
    fits = [("a fit", {FIRST, SHORT}), ("a fit", {FIRST, SHORT, LONG, OTHER})]
    companions = Companions(fits, SECONDS, 0)
    companions.expect("a fit")
    companions.need(FIRST)
    assert taken(companions) == [SHORT]
    companions.need(OTHER)
    assert taken(companions) == [LONG]


def test_what_is_needed_tells_which_fits_are_alike(companions):
    companions.need(FIRST)
    companions.need(OTHER)
    assert taken(companions) == [LONG, SHORT]
    companions.expect("another")
    companions.need(FIRST)
    assert taken(companions) == []  # the other one has been compiled


def test_what_no_fit_needed_tells_nothing(companions):
    companions.need(FIRST)
    companions.need(Function("unknown", "()"))
    assert taken(companions) == [LONG, SHORT]


def test_what_this_process_comes_to_nobody_else_takes(companions):
    companions.need(FIRST)
    companions.came_to(LONG)
    assert taken(companions) == [SHORT]


def test_while_others_start_this_process_compiles_what_takes_longest(monkeypatch):
    compiled = []
    monkeypatch.setattr(aside, "compile_one", compiled.append)
    monkeypatch.setattr(Companions, "_work", lambda _: None)
    companions = Companions([("a fit", {FIRST, SHORT, LONG})], SECONDS, 1)
    companions.expect("a fit")
    companions.need(FIRST)
    assert compiled == [LONG]
    assert taken(companions) == [SHORT]


def test_where_others_need_no_longer_than_the_longest_this_process_takes_nothing(monkeypatch):
    # Numba and the GPU's compiler would wait here for the interpreter's lock.
    monkeypatch.setattr(aside, "compile_one", lambda _: pytest.fail("something is compiled here"))
    monkeypatch.setattr(Companions, "_work", lambda _: None)
    fit, seconds = {FIRST, SHORT, LONG, OTHER}, SECONDS | {FIRST: 0.0}
    companions = Companions([("a fit", fit)], seconds, 2)  # three functions for two
    companions.expect("a fit")
    companions.need(FIRST)
    assert taken(companions) == [LONG, OTHER, SHORT]


def test_what_takes_longer_than_others_to_start_is_not_put_off(monkeypatch):
    monkeypatch.setattr(aside, "compile_one", lambda _: pytest.fail("nothing is compiled ahead"))
    monkeypatch.setattr(Companions, "_work", lambda _: None)
    companions = Companions([("a fit", {FIRST, SHORT, LONG})], SECONDS | {FIRST: 1.0}, 1)
    companions.expect("a fit")
    companions.need(FIRST)
    assert taken(companions) == [LONG, SHORT]


def test_another_process_compiles_and_what_it_compiles_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))  # of the other process
    real = Function(f"{STRIPS}.is_consecutive", "(int32[::1],)")
    companions = Companions([("a fit", {FIRST, real})], SECONDS | {real: 1.0}, 1)
    companions.expect("a fit")
    companions.need(FIRST)
    while real not in companions._taken:
        pass
    companions.came_to(real)
    assert [path.name for path in tmp_path.glob("*/strip_edges.is_consecutive-*.nbc")]


@pytest.mark.parametrize("arguments", ["(int32[::1], int64)", "(unicode_type,)"])
def test_a_record_that_is_out_of_date_is_no_reason_to_fail(arguments):
    aside.compile_one(Function(f"{STRIPS}.is_consecutive", arguments))


def test_the_record_names_functions_that_are_there():
    record = json.loads(aside.RECORD.read_text())
    for name, arguments, _ in record["functions"]:
        dispatcher = aside._dispatcher(name)
        n_arguments = dispatcher.py_func.__code__.co_argcount
        assert len(normalize_signature(arguments)[0]) == n_arguments, name
    assert len(record["fits"]) == len(FITS)


def test_the_record_is_what_a_fit_needs():
    # If not: python -m tools.companions --write
    record = json.loads(aside.RECORD.read_text())
    fit = "HDPHMM(20, Poisson()) several"
    own = record["fits"][FITS.index(fit)]
    kind, needed = needed_apart(fit)
    assert own["kind"] == kind
    assert {tuple(record["functions"][i][:2]) for i in own["functions"]} == set(needed)


def test_no_garbage_is_collected_while_a_function_is_compiled(monkeypatch):
    import gc

    seen = []
    monkeypatch.setattr(notice.notice, "said", True)
    monkeypatch.setattr(aside, "need", lambda *_: seen.append(gc.isenabled()))

    def function(x):
        return x + 1

    function.__module__ = "sojourn.kernels.cpu.none"
    assert njit(function)(np.int64(1)) == 2
    assert seen == [False]
    assert gc.isenabled()
