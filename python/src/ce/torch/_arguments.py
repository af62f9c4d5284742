"""Finds the wrong argument of a call.

It only runs after torch or ``ce`` has refused a call: correct calls pay nothing for it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_variadic

from ce.torch import _reference

__all__ = ["KERNEL_DTYPES", "REFUSALS", "explain", "explained", "overridable", "require_dtype", "require_integer"]

REFUSALS = (AttributeError, TypeError, RuntimeError, ValueError)
"""Exceptions of calls with arguments of wrong types."""

KERNEL_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class _Kind(NamedTuple):
    expected: str
    is_right: Callable[[Any], bool]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _is_either(value: Any) -> bool:
    return isinstance(value, (int, float, torch.SymInt, torch.SymFloat, Tensor))


def _is_one(value: Any) -> bool:
    return not isinstance(value, Tensor) or value.numel() == 1


def _is_number(value: Any) -> bool:
    return _is_either(value) and _is_one(value)


def _is_integer(value: Any) -> bool:
    if isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()):
        return False
    return hasattr(value, "__index__") and _is_one(value)


_TENSOR = _Kind("a tensor", _is_tensor)
_NUMBER = _Kind("a number", _is_number)
_INTEGER = _Kind("an integer", _is_integer)
_EITHER = _Kind("a number or a tensor", _is_either)
_FLAG = _Kind("True or False", _is_one)
_KINDS = {
    **dict.fromkeys(_reference.Options._fields[2:], _NUMBER),  # except for those that are listed below
    **dict.fromkeys((f"return_{name}" for name in _reference.Outputs._fields), _FLAG),
    **dict.fromkeys(("check", "inplace_backward", "exponentials", "sum_input_grad"), _FLAG),
    **dict.fromkeys(("input", "logits", "linear_weight", "target", "index"), _TENSOR),
    **dict.fromkeys(
        ("weight", "row_weight", "given_lse", "precomputed_lse", "labels", "linear_bias", "mask", "row_mask"), _TENSOR
    ),
    **dict.fromkeys(("logit_scale", "temperature", "divisor", "upstream"), _EITHER),
    **dict.fromkeys(
        ("ignore_index", "dim", "valid_tokens", "memory_budget", "chunk_tokens", "first_class", "classes"), _INTEGER
    ),
}


def _shown(value: Any) -> str:
    if isinstance(value, (str, int, float, complex)):
        return repr(value)
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype} with sizes {list(value.shape)}"
    return f"of type {type(value).__name__}"


def explain(
    function: Callable[..., Any], error: Exception, given: Mapping[str, Any], dtypes: Mapping[str, Any] | None = None
) -> None:
    """Raises a better error than that of a refused call, if an argument is of a wrong type; else returns.

    Args:
        function: the called function. Arguments whose default is None may be None.
        given: its arguments.
        dtypes: expected dtypes of tensors.
    """
    if torch.compiler.is_compiling():
        return
    name, parameters = f"ce.torch.{function.__name__}", inspect.signature(function).parameters
    for argument, value in given.items():
        kind = _KINDS.get(argument)
        if kind is None or (value is None and parameters[argument].default is None):
            continue
        if not kind.is_right(value):
            also = " or None" if parameters[argument].default is None else ""
            raise TypeError(f"{name}: {argument} is {_shown(value)}; expected {kind.expected}{also}") from None
        if kind is _INTEGER and not -(2**63) <= value.__index__() < 2**63:
            raise ValueError(f"{name}: {argument} is {value}; expected an integer of 64 bits") from None
    if isinstance(error, TypeError):
        for argument, expected in (dtypes or {}).items():
            value = given.get(argument)
            if isinstance(value, Tensor):
                require_dtype(name, argument, value, *expected)


def require_dtype(name: str, argument: str, given: Tensor, *expected: torch.dtype) -> None:
    """
    Raises:
        TypeError: an unexpected dtype.
    """
    if given.dtype not in expected:
        # Without repetitions, in order.
        text = " or ".join(str(dtype) for dtype in dict.fromkeys(expected))
        raise TypeError(f"{name}: {argument}.dtype is {given.dtype}; expected {text}")


def require_integer(name: str, argument: str, given: Any) -> None:
    """Checks an argument before a call uses it: ranks with different arguments would wait for each other.

    Raises:
        TypeError: neither an integer nor None; or a tensor, which the call would have to wait for.
    """
    if given is not None and (isinstance(given, Tensor) or not _is_integer(given)):
        raise TypeError(f"{name}: {argument} is {_shown(given)}; expected an integer or None")


_Function = TypeVar("_Function", bound=Callable[..., Any])


def overridable(*tensors: str) -> Callable[[_Function], _Function]:
    """Decorates a function so that ``__torch_function__`` of these arguments, and modes, are called first. They receive
    every option."""

    def decorate(function: _Function) -> _Function:
        signature = inspect.signature(function)
        positions = [(list(signature.parameters).index(name), name) for name in tensors]

        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            given = tuple([args[position] if position < len(args) else named.get(name) for position, name in positions])
            if has_torch_function_variadic(*given):
                bound = signature.bind(*args, **named)
                bound.apply_defaults()
                return handle_torch_function(call, given, *bound.args, **bound.kwargs)
            return function(*args, **named)

        return cast(_Function, call)

    return decorate


def explained(**dtypes: tuple[torch.dtype, ...]) -> Callable[[_Function], _Function]:
    """Decorates a function so that :func:`explain` checks the arguments of refused calls."""

    def decorate(function: _Function) -> _Function:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            try:
                return function(*args, **named)
            except REFUSALS as error:
                try:
                    given = signature.bind(*args, **named).arguments
                except TypeError:
                    raise error from None
                explain(function, error, given, dtypes)
                raise

        return cast(_Function, call)

    return decorate
