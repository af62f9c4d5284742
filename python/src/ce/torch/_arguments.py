"""Finds the wrong argument of a call.

It only runs after torch or ``ce`` has refused a call: correct calls pay nothing for it.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping
from types import GeneratorType
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_variadic

from ce import _c
from ce.torch import _reference

__all__ = [
    "REFUSALS",
    "explain",
    "explain_call",
    "explained",
    "integer",
    "keyword_defaults",
    "on_device",
    "overridable",
    "overridden",
    "reduction_code",
    "refuse_gradients",
    "require_dtype",
    "require_flags",
    "require_integer",
]

REFUSALS = (AttributeError, TypeError, RuntimeError, ValueError, OverflowError)
"""Exceptions of calls with arguments of wrong types."""


class _Kind(NamedTuple):
    expected: str
    is_right: Callable[[Any], bool]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _is_either(value: Any) -> bool:
    return isinstance(value, (int, float, torch.SymInt, torch.SymFloat)) or _is_dense(value)


def _is_dense(value: Any) -> bool:
    return _is_tensor(value) and value.layout is torch.strided and not (value.is_nested or value.is_quantized)


def _is_one(value: Any) -> bool:
    return not isinstance(value, Tensor) or (_is_dense(value) and value.numel() == 1)


def _is_number(value: Any) -> bool:
    return _is_either(value) and _is_one(value)


def _is_integer(value: Any) -> bool:
    if isinstance(value, torch.SymInt):
        return True
    if isinstance(value, bool) or not _is_one(value):
        return False
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def _is_flag(value: Any) -> bool:
    if isinstance(value, Tensor):
        return _is_one(value)
    return isinstance(value, (int, float, type(None))) or type(value).__name__ in ("bool", "bool_")  # NumPy's


_TENSOR = _Kind("a tensor", _is_tensor)
_DENSE = _Kind("a tensor", _is_dense)
_NUMBER = _Kind("a number", _is_number)
_INTEGER = _Kind("an integer", _is_integer)
_EITHER = _Kind("a number or a tensor", _is_either)
_DTYPE = _Kind("a torch.dtype", lambda value: isinstance(value, torch.dtype))
_FLAG = _Kind("True or False", _is_flag)
_KINDS = {
    **dict.fromkeys(_reference.Options._fields[2:], _NUMBER),  # except for those that are listed below
    **dict.fromkeys((f"return_{name}" for name in _reference.Outputs._fields), _FLAG),
    **dict.fromkeys(
        ("check", "inplace_backward", "exponentials", "sum_input_grad", "size_average", "reduce", "reduce_loss"), _FLAG
    ),
    # Tensors of these that kernels do not support go to torch.
    **dict.fromkeys(("input", "logits", "inp", "_input", "x", "pred", "vocab_parallel_logits"), _TENSOR),
    **dict.fromkeys(
        (
            "linear_weight", "target", "index", "weight", "row_weight", "given_lse", "precomputed_lse", "lse_partial",
            "labels", "shift_labels", "linear_bias", "bias", "ce_weight", "mask", "row_mask", "grad_input",
            "grad_output",
        ),
        _DENSE,
    ),
    **dict.fromkeys(("logit_scale", "temperature", "divisor", "upstream", "num_items_in_batch"), _EITHER),
    **dict.fromkeys(
        (
            "ignore_index", "ignore_idx", "dim", "valid_tokens", "memory_budget", "chunk_tokens", "first_class",
            "classes", "vocab_size",
        ),
        _INTEGER,
    ),
    **dict.fromkeys(("loss_dtype", "logits_dtype", "accumulate", "accum_dtype"), _DTYPE),
    "lse_square_scale": _NUMBER,
}  # fmt: skip


def _shown(value: Any) -> str:
    if isinstance(value, (str, int, float, complex)):
        return repr(value)
    if _is_dense(value):
        return f"a tensor of {value.dtype} with sizes {list(value.shape)}"
    if isinstance(value, Tensor):
        return f"a {'nested' if value.is_nested else 'quantized' if value.is_quantized else value.layout} tensor"
    return f"of type {type(value).__name__}"


def explain(
    function: Callable[..., Any],
    error: Exception,
    given: Mapping[str, Any],
    dtypes: Mapping[str, Iterable[torch.dtype]] | None = None,
) -> None:
    """Raises a better error than that of a refused call, if an argument is of a wrong type; else returns.

    Args:
        function: that was called. Arguments whose default or annotation is None may be None.
        given: its arguments.
        dtypes: expected dtypes of tensors.
    """
    if torch.compiler.is_compiling():
        return
    name, parameters = f"ce.torch.{function.__name__}", inspect.signature(function).parameters
    for argument, value in given.items():
        kind, parameter = _KINDS.get(argument), parameters.get(argument)
        if kind is None or parameter is None:
            continue
        may_be_none = parameter.default is None or "None" in str(parameter.annotation)
        if value is None and may_be_none:
            continue
        if not kind.is_right(value):
            expected = "a dense tensor" if kind is _DENSE and _is_tensor(value) else kind.expected
            if may_be_none:
                expected = expected.replace(" or ", ", ") + " or None"
            raise TypeError(f"{name}: {argument} is {_shown(value)}; expected {expected}") from None
        if kind is _INTEGER and not -(2**63) <= value.__index__() < 2**63:
            raise ValueError(f"{name}: {argument} is {value}; expected an integer of 64 bits") from None
    if "device" in str(error) or " is on " in str(error):
        _require_one_device(name, given)
    if isinstance(error, TypeError):
        for argument, right in (dtypes or {}).items():
            value = given.get(argument)
            if isinstance(value, Tensor):
                require_dtype(name, argument, value, *right)


def _require_one_device(name: str, given: Mapping[str, Any]) -> None:
    """Raises ValueError for a tensor on another device than the logits."""
    tensors = {argument: value for argument, value in given.items() if isinstance(value, Tensor)}
    first = next((argument for argument in ("input", "logits") if argument in tensors), next(iter(tensors), ""))
    for argument, tensor in tensors.items():
        if tensor.device != tensors[first].device:
            raise ValueError(
                f"{name}: {argument} is on {tensor.device}; expected {tensors[first].device}, the device of {first}"
            ) from None


def keyword_defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """The defaults of keyword-only parameters."""
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}


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


def require_flags(name: str, **given: Any) -> None:
    """
    Raises:
        TypeError: neither true nor false.
    """
    for argument, value in given.items():
        if type(value) is not bool and not _is_flag(value):
            raise TypeError(f"{name}: {argument} is {_shown(value)}; expected {_FLAG.expected}")


def integer(name: str, argument: str, given: Any) -> int:
    """The integer that an argument must be: operators would also accept a bool, or truncate a float.

    Raises:
        TypeError: it is not an integer.
    """
    if type(given) is int:
        return given
    if not _is_integer(given):
        raise TypeError(f"{name}: {argument} is {_shown(given)}; expected an integer")
    return cast(int, given if isinstance(given, torch.SymInt) else operator.index(given))


def reduction_code(name: str, reduction: Any) -> int:
    """The number of a reduction.

    Raises:
        ValueError: there is no such reduction.
    """
    code = _c.REDUCTIONS.get(reduction) if isinstance(reduction, str) else None
    if code is None:
        raise ValueError(f"{name}: reduction is {reduction!r}; expected 'none', 'mean' or 'sum'")
    return code


def refuse_gradients(name: str, **given: Any) -> None:
    """
    Raises:
        RuntimeError: a tensor that requires a gradient, which it would not get.
    """
    for argument, value in given.items():
        if isinstance(value, Tensor) and value.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(f"{name}: the derivative for '{argument}' is not implemented")


def on_device(name: str, argument: str, number: float, dtype: torch.dtype, input: Tensor) -> Tensor:
    """A number as a tensor on the input's device.

    Raises:
        ValueError: the number is out of the dtype's range.
    """
    try:
        return torch.full((), float(number) if type(number) is int else number, dtype=dtype, device=input.device)
    except (OverflowError, RuntimeError):
        raise ValueError(f"{name}: {argument} is {number}; expected a number of {dtype}") from None


_Function = TypeVar("_Function", bound=Callable[..., Any])


def overridden(function: Callable[..., Any], tensors: tuple[Any, ...], *args: Any, **named: Any) -> Any:
    """Lets ``__torch_function__`` of these tensors, and modes, handle a call."""
    made = handle_torch_function(function, tensors, *args, **named)
    # Subclasses rebuild each tuple from a generator, which a NamedTuple takes for its first field.
    if isinstance(made, tuple) and hasattr(made, "_fields") and isinstance(made[0], GeneratorType):
        return type(made)(*made[0])
    return made


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
                return overridden(call, given, *bound.args, **bound.kwargs)
            return function(*args, **named)

        return cast(_Function, call)

    return decorate


def explain_call(
    function: Callable[..., Any],
    error: Exception,
    args: tuple[Any, ...],
    named: dict[str, Any],
    dtypes: Mapping[str, Iterable[torch.dtype]] | None = None,
) -> None:
    """:func:`explain` for the arguments of a call. Returns, too, if they do not fit the function's signature."""
    try:
        given = inspect.signature(function).bind(*args, **named).arguments
    except TypeError:
        return
    explain(function, error, given, dtypes)


def explained(**dtypes: Iterable[torch.dtype]) -> Callable[[_Function], _Function]:
    """Decorates a function so that :func:`explain` checks the arguments of refused calls."""

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            try:
                return function(*args, **named)
            except REFUSALS as error:
                explain_call(function, error, args, named, dtypes)
                raise

        return cast(_Function, call)

    return decorate
