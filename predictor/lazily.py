"""A cached property for objects that are made by the million."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")


class lazily(Generic[Value]):
    """A property that is computed once per object.

    `functools.cached_property` takes a lock until Python 3.12, which takes longer than most values.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> "lazily[Value]": ...

    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...

    def __get__(self, instance: object, owner: type) -> "Value | lazily[Value]":
        """Compute the value and keep it in the object, which is asked first from then on."""
        if instance is None:
            return self
        value = vars(instance)[self._name] = self._compute(instance)
        return value
