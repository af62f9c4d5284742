"""Arguments of losses in the form that operators take."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, pointer
from typing import Any

import torch
from torch import Tensor

from ce import _c, array
from ce.torch import _arguments, _native, _reference
from ce.torch._kernels import INDEX_DTYPES, KERNEL_DTYPES, has_kernels_for

_NEUTRAL = _reference.Options()[2:]
"""Amounts that are off."""


def _without_rows(dtype: int, columns: int) -> _c.Tensor:
    return _c.Tensor(dtype=dtype, columns=columns, row_stride=_c.CONTIGUOUS, column_stride=1)


def refuse_amounts(numbers: _reference.Options, target: Tensor, operation: str = "CrossEntropy") -> None:
    """Refuses the amounts that kernels refuse, for calls that torch serves: the host device checks a loss of no rows.

    Compiled calls are not checked: compilers do not see through it.

    Args:
        numbers: without a logit_scale of rows.
        operation: that kernels would name in errors.

    Raises:
        TypeError: an amount that is not a number.
        ValueError: an amount out of its bounds.
    """
    if numbers[2:] == _NEUTRAL or torch.compiler.is_compiling():
        return
    amounts = {name: float(amount) for name, amount in zip(array._AMOUNTS, numbers[2:])}
    options = array._CrossEntropyOptions(reduction=_reference.NONE, **amounts)
    tensors = array._CrossEntropyTensors(
        logits=pointer(_without_rows(_c.F32, 2)),
        target=pointer(_without_rows(_c.F32, 2) if target.is_floating_point() else _without_rows(_c.I64, 1)),
        loss=pointer(_without_rows(_c.F32, 1)),
    )
    if _c.library().ce_cross_entropy(_native.context(_native.HOST), byref(options), byref(tensors), None, None):
        error = _c.last_error()
        raise type(error)(str(error).replace("CrossEntropy", operation, 1)) from None


def dtypes_beside(input: Any) -> dict[str, tuple[torch.dtype, ...]]:
    """The dtypes that kernels expect of other tensors."""
    if not isinstance(input, Tensor) or not has_kernels_for(input):
        return {}
    of_rows = (torch.float32,)
    return {
        "weight": (torch.float32, input.dtype),
        "row_weight": of_rows,
        "logit_scale": of_rows,
        "given_lse": of_rows,
    }


def divisor_of(divisor: Tensor | float, reduction: str, input: Tensor, name: str) -> Tensor:
    """The divisor in the operators' form: one element, in float32 unless the logits are float64.

    Args:
        name: name of the function, for errors.
    """
    if reduction != "mean":
        raise ValueError(f"{name}: divisor is {divisor!r}; expected None with reduction {reduction!r}")
    dtype = torch.float64 if input.dtype is torch.float64 else torch.float32
    if not isinstance(divisor, Tensor):
        return _arguments.on_device(name, "divisor", divisor, dtype, input)
    if divisor.numel() != 1:
        raise ValueError(f"{name}: divisor has sizes {list(divisor.shape)}; expected a number, or one element")
    if divisor.is_complex() or divisor.dtype is torch.bool:
        raise TypeError(f"{name}: divisor.dtype is {divisor.dtype}; expected the dtype of a real number")
    _arguments.refuse_gradients(name, divisor=divisor)
    return divisor.to(dtype)


def upstream_of(
    upstream: Tensor | float, dtype: torch.dtype, input: Tensor, name: str, rows: Sequence[int] | None = None
) -> Tensor:
    """The upstream gradient in the operators' form: in the dtype of the loss, one number or in the sizes of the rows.

    Args:
        name: name of the function, for errors.
        rows: these sizes; dimensions of size 1 may differ from the given ones. None: those of the input, where torch
            has its classes.

    Raises:
        TypeError: a dtype that kernels do not support, and that is not the loss's.
        ValueError: wrong sizes, or another device.
    """
    if not isinstance(upstream, Tensor):
        return _arguments.on_device(name, "upstream", upstream, dtype, input)
    if upstream.device != input.device:
        raise ValueError(f"{name}: upstream is on {upstream.device}; expected {input.device}, where the logits are")
    if upstream.numel() != 1:
        expected = _reference.row_sizes(input) if rows is None else list(rows)
        if [size for size in upstream.shape if size != 1] != [size for size in expected if size != 1]:
            raise ValueError(
                f"{name}: upstream has sizes {list(upstream.shape)}; expected a number, or {expected}, one for each row"
            )
        upstream = upstream.reshape(expected)
    if upstream.dtype is dtype:
        return upstream
    _arguments.require_dtype(name, "upstream", upstream, dtype, *KERNEL_DTYPES)
    return upstream.to(dtype)


def check_row_weight(row_weight: Tensor | None, rows: torch.Size, name: str) -> None:
    """
    Raises:
        ValueError: sizes that are not those of the rows.
    """
    if row_weight is not None and row_weight.shape != rows:
        raise ValueError(
            f"{name}: row_weight has sizes {list(row_weight.shape)}; expected {list(rows)}, one for each row"
        )


def check_given_lse(given: Tensor, input: Tensor, name: str, argument: str = "given_lse") -> None:
    """
    Args:
        name, argument: names of the function and its argument, for errors.

    Raises:
        ValueError: sizes that are not those of the rows.
        TypeError: a dtype that kernels do not support.
    """
    expected = _reference.row_sizes(input)
    if list(given.shape) != expected:
        raise ValueError(f"{name}: {argument} has sizes {list(given.shape)}; expected {expected}, one for each row")
    if has_kernels_for(input):
        _arguments.require_dtype(name, argument, given, torch.float32)


def scale_of_rows(scale: Tensor, rows: Sequence[int], name: str) -> Tensor:
    """A logit_scale of rows in the operators' form.

    Args:
        scale: one for each row.
        rows: the required sizes.
        name: name of the function, for errors.

    Raises:
        ValueError: wrong sizes.
        RuntimeError: it requires a gradient.
    """
    if list(scale.shape) != list(rows):
        raise ValueError(
            f"{name}: logit_scale has sizes {list(scale.shape)}; expected a number, or {list(rows)}, one for each row"
        )
    _arguments.refuse_gradients(name, logit_scale=scale)
    return scale


def check_target(target: Tensor, ignore_index: int, name: str) -> None:
    """
    Args:
        name: name of the function, for errors.

    Raises:
        TypeError: a dtype that holds neither class indices nor probabilities.
        RuntimeError: an index to ignore beside probabilities, as torch.
    """
    if target.is_floating_point():
        if ignore_index >= 0:
            raise RuntimeError(
                f"{name}: ignore_index is {ignore_index}; expected a negative number where target holds probabilities"
            )
    elif target.dtype not in (*INDEX_DTYPES, torch.uint8):
        raise TypeError(
            f"{name}: target.dtype is {target.dtype}; expected torch.int64, torch.int32 or torch.uint8 for class "
            "indices, or a floating-point dtype for probabilities"
        )


def same_dtype(target: Tensor, input: Tensor) -> tuple[Tensor, Tensor, bool]:
    """Converts index targets to int64, and probabilities and logits to the wider of their dtypes, as torch promotes
    them.

    Returns:
        Logits and target, and whether the call belongs to torch.
    """
    if not target.is_floating_point():
        return target.long(), input, False
    if target.dtype is input.dtype:
        return target, input, False
    _arguments.require_dtype("ce.torch.cross_entropy", "target", target, *KERNEL_DTYPES, torch.float64)
    wider = torch.promote_types(target.dtype, input.dtype)
    return target.to(wider), input.to(wider), wider not in KERNEL_DTYPES
