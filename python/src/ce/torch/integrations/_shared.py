"""Common code of the integrations."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active

from ce.torch import _arguments, _kernels, functional

_Function = TypeVar("_Function", bound=Callable[..., Any])
_ARGUMENT = re.compile(r"(?:ce\.torch\.\w+|ce(?:: \w+)+): (the derivative for ')?(\w+)(?=[ .'])")


def in_own_words(**own: str) -> Callable[[_Function], _Function]:
    """Decorates a function of another project: its errors name it and its own arguments.

    Args:
        own: what the function calls arguments of ``ce``. Others have the same names in both.
    """

    def decorate(function: _Function) -> _Function:
        words_of = {**{name: name for name in inspect.signature(function).parameters}, **own}

        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            try:
                return function(*args, **named)
            except (*_arguments.REFUSALS, IndexError) as error:
                _arguments.explain_call(function, error, args, named)
                found = _ARGUMENT.match(str(error))
                if found is None or found[2] not in words_of:
                    raise
                words = f"{found[1] or ''}{words_of[found[2]]}{str(error)[found.end() :]}"
                raise type(error)(f"ce.torch.{function.__name__}: {words}") from None

        return cast(_Function, call)

    return decorate


def classes_second(logits: Tensor) -> Tensor:
    """[..., classes] as the view [rows, classes, ...] that :func:`ce.torch.cross_entropy` takes."""
    return logits.movedim(-1, 1) if logits.dim() > 2 else logits


class _Divided(torch.autograd.Function):
    """A sum, scaled by a number; its gradient has been multiplied by that already."""

    @staticmethod
    def forward(ctx: Any, total: Tensor, factor: Tensor) -> Tensor:
        return total * factor

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


def mean_over(logits: Tensor, target: Tensor, divisor: Tensor | float, **options: Any) -> Tensor:
    """The sum of the losses divided by a given number, in float32, with its gradient in one pass.

    Args:
        logits: [rows, classes, ...].
        target: class indices.
        divisor: a number, or one on the device; nothing waits for it.
        options: of :func:`ce.torch.cross_entropy`.
    """
    if isinstance(divisor, Tensor):
        factor = divisor.to(device=logits.device, dtype=torch.float32).reciprocal()
    else:
        # As in torch, a loss divided by 0 is infinite, or NaN if nothing counts.
        inverse = 1.0 / divisor if divisor != 0 else math.inf
        factor = torch.full((), inverse, dtype=torch.float32, device=logits.device)
    plain = torch.compiler.is_compiling() or _are_functorch_transforms_active()
    if plain or not _kernels.has_kernels_for(logits):
        total = functional.cross_entropy(logits, target, reduction="sum", loss_dtype=f32_for(logits), **options)
        return total * factor.to(total.dtype)
    total = functional.cross_entropy(
        logits, target, reduction="sum", upstream=factor.reshape(()), loss_dtype=torch.float32, **options
    )
    return _Divided.apply(total, factor.reshape(()))


def require_tensors(name: str, **given: Any) -> None:
    """
    Raises:
        TypeError: names the function and the argument that is not a tensor.
    """
    for argument, value in given.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}: {argument} is of type {type(value).__name__}; expected a tensor")


def class_indices(name: str, argument: str, given: Tensor) -> Tensor:
    """Class indices in a form that kernels support.

    Raises:
        TypeError: names the function and the argument whose dtype does not hold class indices.
    """
    _arguments.require_dtype(name, argument, given, torch.int64, torch.int32, torch.uint8)
    return given.long() if given.dtype is torch.uint8 else given


def f32_for(logits: Tensor) -> torch.dtype:
    """The dtype of a loss in float32; losses of float64 logits are float64."""
    return logits.dtype if logits.dtype == torch.float64 else torch.float32
