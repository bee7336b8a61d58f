from types import SimpleNamespace

from sojourn.kernels.cpu.notice import _Notice


def compiled(module):
    """Return what numba tells when it compiles a function of a module."""
    function = SimpleNamespace(__module__=module)
    return SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=function)})


def test_what_is_compiled_is_said_in_one_line_once(capsys):
    notice = _Notice()
    for module in ("somebody.else", None):  # code made at run time has no module
        notice.on_start(compiled(module))
    assert capsys.readouterr() == ("", "")
    for _ in range(2):
        notice.on_start(compiled("sojourn.kernels.cpu.strips"))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "once" in err
