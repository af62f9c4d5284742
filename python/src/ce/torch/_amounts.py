"""The options that each loss function takes by keyword, and passes on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ce.torch import _arguments, _reference, functional

_Function = TypeVar("_Function", bound=Callable[..., Any])
_AMOUNTS = {
    name: inspect.signature(functional.cross_entropy).parameters[name] for name in functional.Amounts.__annotations__
}


def with_amounts(function: _Function) -> _Function:
    """Decorates a function that takes ``**amounts``: help() and :mod:`inspect` then show each of them, with its
    default."""
    signature = inspect.signature(function)
    own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    function.__signature__ = signature.replace(parameters=[*own, *_AMOUNTS.values()])  # type: ignore[attr-defined]
    return function


def amounts_of(function: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All amounts: the given ones, and defaults for the others.

    Raises:
        TypeError: an unknown keyword.
    """
    for name in given:
        if name not in _AMOUNTS:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    return {name: given.get(name, parameter.default) for name, parameter in _AMOUNTS.items()}


def options_of(
    name: str, ignore_index: int, code: int, label_smoothing: float, amounts: Mapping[str, Any]
) -> _reference.Options:
    """The options in the operators' form, without a logit_scale of rows.

    Args:
        name: name of the function, for errors.
    """
    ignore_index = _arguments.integer(name, "ignore_index", ignore_index)
    _arguments.refuse_gradients(name, label_smoothing=label_smoothing, **amounts)
    options = _reference.Options(ignore_index, code, label_smoothing, **amounts)
    return options if options.softcap is not None else options._replace(softcap=0.0)
