"""The base of models and families: scikit-learn's, from the moment that scikit-learn is imported.

Importing `sklearn.base` takes longer than everything else that a first fit imports, since it
imports SciPy's distributions and pandas.  A program that does not use scikit-learn needs nothing of
it but parameters and their names; one that does imports it itself, before or after this package.
So `Estimator` begins with a base of its own, and gets `sklearn.base.BaseEstimator` in its place as
soon as that exists: nobody can tell by ``isinstance``, as without scikit-learn there is
nobody to ask.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["Estimator", "clone"]

_SKLEARN = "sklearn.base"
_Kind = TypeVar("_Kind")


class _Later:
    """A method of scikit-learn's estimators, for which scikit-learn is imported."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, own: Any, kind: type | None = None) -> Any:
        import sklearn.base  # noqa: F401  changes the class

        return getattr(kind if own is None else own, self._name)


class _Plain:
    """The base of estimators before scikit-learn is imported."""

    __repr__: Any = _Later()
    __sklearn_tags__: Any = _Later()
    set_params: Any = _Later()
    get_metadata_routing: Any = _Later()
    set_fit_request: Any = _Later()
    set_partial_fit_request: Any = _Later()
    set_predict_request: Any = _Later()
    set_predict_proba_request: Any = _Later()
    set_score_request: Any = _Later()
    set_transform_request: Any = _Later()

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted(set(inspect.signature(cls.__init__).parameters) - {"self"})

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the constructor, and with `deep` those of estimators in them."""
        found: dict[str, Any] = {}
        for name in self._get_param_names():
            value = getattr(self, name)
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                found |= {f"{name}__{own}": one for own, one in value.get_params().items()}
            found[name] = value
        return found


if TYPE_CHECKING:
    from sklearn.base import BaseEstimator as Estimator
else:

    class Estimator(_Plain):
        """What models and families inherit from.

        Examples
        --------
        >>> import sojourn
        >>> family = sojourn.Poisson()
        >>> from sklearn.base import BaseEstimator
        >>> isinstance(family, BaseEstimator)
        True
        """


def clone(estimator: _Kind) -> _Kind:
    """Return an estimator with the same parameters that is not fitted, as `sklearn.base.clone`."""
    if _SKLEARN in sys.modules:
        return sys.modules[_SKLEARN].clone(estimator)
    return _cloned(estimator)


def _cloned(value: Any) -> Any:
    if hasattr(value, "__sklearn_clone__"):
        return value.__sklearn_clone__()
    if type(value) in (list, tuple):
        return type(value)(_cloned(one) for one in value)
    if not hasattr(value, "get_params") or isinstance(value, type):
        return copy.deepcopy(value)
    return type(value)(**{name: _cloned(own) for name, own in value.get_params(deep=False).items()})


def _become_estimators(module: ModuleType) -> None:
    """Give estimators the base that scikit-learn has for them."""
    base = module.BaseEstimator
    Estimator.__bases__ = (base,)
    for kind in _below(Estimator):
        base.__init_subclass__.__func__(kind)  # methods such as set_fit_request


def _below(kind: type) -> Iterator[type]:
    own: type
    for own in kind.__subclasses__():
        yield own
        yield from _below(own)


class _Watch(MetaPathFinder):
    """Finds `sklearn.base` as others do, and lets estimators know when it has been imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how others would import the module, with that added."""
        if name != _SKLEARN:
            return None
        others = (one for one in sys.meta_path if one is not self and hasattr(one, "find_spec"))
        spec = next(filter(None, (one.find_spec(name, path, target) for one in others)), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                sys.meta_path.remove(self)
                _become_estimators(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if hasattr(sys.modules.get(_SKLEARN), "BaseEstimator"):
    _become_estimators(sys.modules[_SKLEARN])
else:
    sys.meta_path.insert(0, _Watch())
