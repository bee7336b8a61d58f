"""Fitted attributes of estimators, in scikit-learn's manner: names that end in an underscore."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Generic, TypeVar, cast

from sojourn.prediction import FittedModel

T = TypeVar("T")
_FIELDS = frozenset(field.name for field in fields(FittedModel))


_CHAIN = ("startprob_", "transmat_")


def refuse_assignment(model: Any, name: str) -> None:
    """Raise an AttributeError that says what to do, if an attribute is a parameter of the model."""
    family = vars(model).get("emission")
    names = tuple(getattr(family, "parameter_names", ()))
    if name not in (*_CHAIN, *names):
        return
    given = "".join(f", {own.removesuffix('_')}=..." for own in names)
    raise AttributeError(
        f"{name} is computed from what was learned, and cannot be set: "
        f"HMM.from_parameters(startprob, transmat, {type(family).__name__}(...){given}) makes a "
        "model with given parameters"
    )


class Learned(Generic[T]):
    """An attribute of an estimator that is read from its `FittedModel`.

    Before `fit` it raises `NotFittedError`, and so does not exist for `hasattr`.  What is None in
    the fitted model does not exist either.  Fields of the fitted model can be assigned as well.

    Parameters
    ----------
    name : str
        Attribute of `FittedModel`.
    or_none : bool
        Whether None is a value like any other.

    Examples
    --------
    >>> import sojourn as sj
    >>> model = sj.HMM(2, sj.Categorical(2), random_state=0)
    >>> hasattr(model, "transmat_")
    False
    >>> model.fit([[0, 1], [1, 0]]).transmat_.shape
    (2, 2)
    """

    def __init__(self, name: str, *, or_none: bool = False) -> None:
        self.name, self.or_none = name, or_none
        self.__doc__ = getattr(getattr(FittedModel, name, None), "__doc__", None)

    def __get__(self, model: Any, owner: type | None = None) -> T:
        if model is None:
            return cast(T, self)
        value = getattr(model.fitted_, self.name)
        if value is None and not self.or_none:
            raise AttributeError(f"this {type(model).__name__} has no {self.name}")
        return cast(T, value)

    def __set__(self, model: Any, value: T) -> None:
        if self.name not in _FIELDS:
            raise AttributeError(f"{self.name} of {type(model).__name__} cannot be set")
        setattr(model.fitted_, self.name, value)
