"""Softmax and its logarithm with the signatures and the meaning of ``torch.nn.functional``."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C import _are_functorch_transforms_active
from torch.autograd import forward_ad
from torch.overrides import has_torch_function_unary

from ce.torch import _arguments, _autograd, _native, _settings, _transforms
from ce.torch._autocast import without_autocast
from ce.torch._kernels import KERNEL_DTYPES, has_kernels_for

__all__ = ["log_softmax", "softmax"]

_operators = _native.operators
_eager_softmax, _eager_log_softmax = (
    _native.fast(_operators._eager_softmax),
    _native.fast(_operators._eager_log_softmax),
)
_softmax_public = {False: _operators.softmax.default, True: _operators.log_softmax.default}
_is_compiling = torch.compiler.is_compiling
_is_grad_enabled, _is_autocast_enabled = torch.is_grad_enabled, torch.is_autocast_enabled


@_transforms.replacement
def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Tensor:
    """Softmax along a dimension, as :func:`torch.nn.functional.softmax`.

    Args:
        input: float32, float16 or bfloat16 of any sizes; other dtypes, and the CPU, go to torch.
        dim: dimension along which the results add up to 1; required, as torch's warning says.
        dtype: dtype to which the input is cast first, also under autocast.

    Returns:
        A tensor like the input, dense in the order of its dimensions in memory. Rows that hold NaN, +infinity or
        nothing but -infinity are NaN. Under autocast float32 without a dtype, as torch.

    Raises:
        IndexError: the input does not have the dimension.
        RuntimeError: a gradient is wanted under a transform of ``torch.func``.
    """
    if has_torch_function_unary(input):
        return _arguments.overridden(softmax, (input,), input, dim=dim, _stacklevel=_stacklevel, dtype=dtype)
    # Most calls only pass through torch's dispatcher before their kernel.
    try:
        if type(dim) is int and dtype is None and not _is_compiling() and forward_ad._current_level < 0:
            try:
                if not input.requires_grad:
                    return _eager_softmax(input, dim)
                if _is_for_gradient(input):
                    return _autograd.softmax(input, dim, False)
            except (RuntimeError, ValueError) as error:
                if has_kernels_for(input):
                    _native.raise_from(error)
        return _softmax_of(input, dim, dtype, False, _stacklevel)
    except _arguments.REFUSALS as error:
        _arguments.explain(softmax, error, {"input": input, "dim": dim})
        raise


@_transforms.replacement
def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None
) -> Tensor:
    """The logarithm of softmax along a dimension, as :func:`torch.nn.functional.log_softmax`. See :func:`softmax`."""
    if has_torch_function_unary(input):
        return _arguments.overridden(log_softmax, (input,), input, dim=dim, _stacklevel=_stacklevel, dtype=dtype)
    try:
        if type(dim) is int and dtype is None and not _is_compiling() and forward_ad._current_level < 0:
            try:
                if not input.requires_grad:
                    return _eager_log_softmax(input, dim)
                if _is_for_gradient(input):
                    return _autograd.softmax(input, dim, True)
            except (RuntimeError, ValueError) as error:
                if has_kernels_for(input):
                    _native.raise_from(error)
        return _softmax_of(input, dim, dtype, True, _stacklevel)
    except _arguments.REFUSALS as error:
        _arguments.explain(log_softmax, error, {"input": input, "dim": dim})
        raise


def _softmax_of(input: Tensor, dim: int | None, dtype: torch.dtype | None, logarithm: bool, stacklevel: int) -> Tensor:
    if dim is None:
        dim = F._get_softmax_dim(  # type: ignore[attr-defined]
            "log_softmax" if logarithm else "softmax", input.dim(), stacklevel + 1
        )
    name = "log_softmax" if logarithm else "softmax"
    dim = _arguments.integer(f"ce.torch.{name}", "dim", dim)
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"ce.torch.{name}: dtype is {dtype!r}; expected a torch.dtype or None")
    if dtype is None:
        return _softmax_along(input, dim, None, name)
    # A given dtype also counts under autocast.
    input = input.to(dtype)
    with without_autocast(input):
        return _softmax_along(input, dim, dtype, name)


def _softmax_along(input: Tensor, dim: int, dtype: torch.dtype | None, name: str) -> Tensor:
    logarithm = name == "log_softmax"
    if not has_kernels_for(input) or (not _is_compiling() and _transforms.is_patched_in_transform(name)):
        return (torch.log_softmax if logarithm else torch.softmax)(input, dim, dtype=dtype)
    if _is_compiling():
        return _softmax_public[logarithm](input, dim)
    _transforms.refuse_tangents(name, input)
    if torch.is_autocast_enabled(input.device.type) and input.dtype is not torch.float32:
        input = input.float()
    try:
        if torch.is_grad_enabled() and input.requires_grad:
            _transforms.refuse_functorch(name)
            return _autograd.softmax(input, dim, logarithm)
        return (_eager_log_softmax if logarithm else _eager_softmax)(input, dim)
    except (RuntimeError, ValueError) as error:
        _native.raise_from(error)


def _is_for_gradient(input: Tensor) -> bool:
    """Whether only autograd needs a gradient of softmax, for a tensor without autocast."""
    return (
        (input.is_cuda or (_settings.on_host and input.is_cpu))
        and input.dtype in KERNEL_DTYPES
        and _is_grad_enabled()
        and not _are_functorch_transforms_active()
        and (input.dtype is torch.float32 or not _is_autocast_enabled(input.device.type))
    )
