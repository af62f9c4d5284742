"""Cross entropy with all its options: the calls that do not take the shortest way to their kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy as _torch_cross_entropy  # the original, even while F is patched

from ce.torch import _arguments, _autograd, _loss_arguments, _native, _reference, _target_check, _transforms
from ce.torch._autocast import is_under_autocast
from ce.torch._kernels import INDEX_DTYPES, KERNEL_DTYPES, has_kernels_for

__all__ = ["NUMBERS", "outputs"]

NUMBERS = frozenset((float, int))
"""Types of numbers that operators take as they are."""
_NAME = "ce.torch.cross_entropy"
_NONE = _reference.NONE
_operators = _native.operators
_loss = _native.fast(_operators._cross_entropy_loss)
_forward = _native.fast(_operators._cross_entropy)
_is_compiling, _is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled
_new_tuple = tuple.__new__


def outputs(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    given_numbers: tuple[Any, ...],
    row_weight: Tensor | None,
    divisor: Tensor | float | None,
    given_lse: Tensor | None,
    upstream: Tensor | float | None,
    f32_loss: bool,
    in_place: bool,
    check: bool,
    returned: tuple[bool, ...],
) -> Sequence[Any]:
    """The loss and the other outputs, in the operators' order; only the loss where no other is returned.
    An output that is not wanted is None, or an empty tensor.

    Args:
        given_numbers: the operators' numbers, where logit_scale may have one element for each row.
        returned: whether each output besides the loss is returned.
    """
    dtype, is_compiling = input.dtype, _is_compiling()
    # Eager calls avoid the Python function that creates a NamedTuple.
    numbers = _reference.Options(*given_numbers) if is_compiling else _new_tuple(_reference.Options, given_numbers)
    _arguments.refuse_gradients(_NAME, weight=weight, row_weight=row_weight)
    if is_compiling or not NUMBERS.issuperset(map(type, given_numbers)):
        _arguments.refuse_gradients(_NAME, **numbers._asdict())
    if divisor is not None:
        divisor = _loss_arguments.divisor_of(divisor, _reference.REDUCTIONS[numbers.reduction], input, _NAME)
    row_scale = None
    if isinstance(numbers.logit_scale, Tensor):
        row_scale = _loss_arguments.scale_of_rows(numbers.logit_scale, _reference.row_sizes(input), _NAME)
        numbers = numbers._replace(logit_scale=1.0)
    of_rows = (row_weight, row_scale, divisor)
    if given_lse is not None:
        _check_given_lse(given_lse, input, target, numbers, in_place or any(returned[1:]))
    of_torch = (
        not has_kernels_for(input)
        or input.numel() == 0
        or target.requires_grad
        or target.layout is not torch.strided
        or (not is_compiling and _transforms.is_patched_in_transform("cross_entropy"))
    )
    if input.dim() == 0:
        raise ValueError(f"{_NAME}: input has no dimension; expected a dimension of classes")
    if in_place:
        _check_in_place(input, numbers)
    if target.dtype not in INDEX_DTYPES:
        _loss_arguments.check_target(target, numbers.ignore_index, _NAME)
        if target.is_floating_point() and weight is not None and weight.dtype is not dtype:
            of_torch = of_torch or _transforms.is_patched("cross_entropy")  # torch promotes
        if not of_torch:
            target, input, of_torch = _loss_arguments.same_dtype(target, input)
            if weight is not None and weight.dtype is dtype:
                weight = weight.to(input.dtype)
    if upstream is not None or of_torch:
        result_dtype = _result_dtype(input, target, f32_loss)
        if upstream is not None:
            upstream = _loss_arguments.upstream_of(upstream, result_dtype, input, _NAME)
        if of_torch:
            _reference.check_dtype(input, _NAME, "input")
            target = target if target.is_floating_point() else target.long()
            return _in_torch(input, target, weight, upstream, of_rows, numbers, result_dtype, returned)
    if weight is not None and (weight.dim() != 1 or weight.numel() == 0):  # kernels check its length
        raise ValueError(
            f"{_NAME}: weight has sizes {list(weight.shape)}; expected [{input.shape[_reference.class_dim(input)]}], "
            "one for each class"
        )
    if check:
        _target_check.check_targets(input, of_earlier_calls=True)
    _transforms.refuse_tangents("cross_entropy", input, target)
    # Without a z-loss that part of the loss is 0, which needs no kernel.
    wants_z_loss = returned[0] and numbers.z_loss != 0.0
    wanted = (f32_loss, wants_z_loss, *returned[2:])
    made: Sequence[Any]
    if given_lse is not None:
        made = _from_lse(input, target, weight, given_lse.detach(), upstream, of_rows, numbers, wanted[:2])
    elif is_compiling:
        made = _compiled(input, target, weight, upstream, of_rows, numbers, wanted, returned[1])
    else:
        made = _eager(input, target, weight, upstream, of_rows, numbers, wanted, in_place, returned)
    if check:
        _target_check.check_targets(input)
    if returned[0] and not wants_z_loss:
        made = (made[0], torch.zeros_like(made[0]), *made[2:])
    return made


def _result_dtype(input: Tensor, target: Tensor, f32_loss: bool) -> torch.dtype:
    """The dtype of the loss, which is never narrower than probabilities, nor than float64 logits."""
    wide = torch.promote_types(input.dtype, target.dtype) if target.is_floating_point() else input.dtype
    return torch.float32 if f32_loss and wide in KERNEL_DTYPES else wide


def _check_given_lse(
    given_lse: Tensor, input: Tensor, target: Tensor, numbers: _reference.Options, wants_others: bool
) -> None:
    """
    Args:
        wants_others: whether the call wants something that needs more than the logits of the targets.
    """
    if wants_others or numbers.label_smoothing != 0.0 or target.is_floating_point():
        raise ValueError(
            f"{_NAME}: given_lse is given; expected None with probabilities, with label_smoothing, "
            "with inplace_backward, and with any output except z_loss"
        )
    _loss_arguments.check_given_lse(given_lse, input, _NAME)


def _check_in_place(input: Tensor, numbers: _reference.Options) -> None:
    if input.requires_grad and _is_grad_enabled():
        if numbers.reduction == _NONE:
            raise ValueError(f"{_NAME}: inplace_backward is True; expected False with the reduction 'none'")
        if not _is_compiling() and input.is_neg():
            raise ValueError(f"{_NAME}: inplace_backward is True; expected False for a negated view (Tensor.is_neg())")


def _in_torch(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    upstream: Tensor | None,
    of_rows: tuple[Tensor | None, ...],
    numbers: _reference.Options,
    result_dtype: torch.dtype,
    returned: tuple[bool, ...],
) -> Sequence[Any]:
    """The outputs by torch's own operations."""
    _loss_arguments.refuse_amounts(numbers, target)
    ignore_index, code, label_smoothing, *_ = numbers
    is_plain = not any(returned) and upstream is None and all(one is None for one in of_rows)
    if is_plain and numbers == _reference.Options(ignore_index, code, label_smoothing):
        if result_dtype is torch.float32 and input.dtype in KERNEL_DTYPES:
            weight = weight.float() if weight is not None and weight.dtype is input.dtype else weight
            input = input.float()  # else torch would round the losses
        loss = _torch_cross_entropy(
            input,
            target,
            weight,
            ignore_index=ignore_index,
            reduction=_reference.REDUCTIONS[code],
            label_smoothing=label_smoothing,
        )
        # autocast has cast the loss, too
        return (loss.to(result_dtype) if loss.dtype is torch.float32 and is_under_autocast(input) else loss,)
    names = [name for name, is_wanted in zip(_reference.Outputs._fields[1:], returned) if is_wanted]
    row_weight, row_scale, divisor = of_rows
    made = _reference.cross_entropy(
        input, target, weight, numbers, result_dtype, upstream, row_weight, row_scale, divisor, names
    )
    if code != _NONE and not returned[1]:
        made = made._replace(z_loss=made.z_loss.detach())
    return made


def _from_lse(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    lse: Tensor,
    upstream: Tensor | None,
    of_rows: tuple[Tensor | None, ...],
    numbers: _reference.Options,
    wanted: tuple[bool, ...],
) -> tuple[Tensor, Tensor]:
    """Loss and z-loss, through the operator that compilers see through."""
    try:
        if _is_grad_enabled() and input.requires_grad and not _is_compiling():
            _transforms.refuse_functorch("cross_entropy")
        if upstream is not None and _autograd.is_of_rows_of_one_loss(upstream, numbers):
            loss, z_loss, *_ = _autograd.UpstreamOfRows.apply(
                input, target, weight, lse, upstream, of_rows, numbers, wanted
            )
            return loss, z_loss
        loss, z_loss, _ = _operators.cross_entropy_from_lse(input, target, weight, lse, *of_rows, *numbers, *wanted)
    except (RuntimeError, ValueError) as error:
        _native.raise_from(error)
    return loss if upstream is None else _reference.scaled_gradient(loss, upstream), z_loss


def _compiled(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    upstream: Tensor | None,
    of_rows: tuple[Tensor | None, ...],
    numbers: _reference.Options,
    wanted: tuple[bool, ...],
    wants_lse: bool,
) -> tuple[Tensor, ...]:
    made = _autograd.compiled_cross_entropy(input, target, weight, upstream, of_rows, numbers, wanted)
    if numbers.reduction != _NONE and not wants_lse:
        made = (made[0], made[1].detach(), *made[2:])
    return made


def _eager(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    upstream: Tensor | None,
    of_rows: tuple[Tensor | None, ...],
    numbers: _reference.Options,
    wanted: tuple[bool, ...],
    in_place: bool,
    returned: tuple[bool, ...],
) -> Sequence[Any]:
    is_alone = not any(returned)
    try:
        if input.requires_grad and _is_grad_enabled():
            _transforms.refuse_functorch("cross_entropy")
            if is_alone and numbers.reduction != _NONE and not in_place:
                return (_autograd.loss_alone(input, target, weight, upstream, *of_rows, *numbers, wanted[0]),)
            return _autograd.CrossEntropy.apply(
                input, target, weight, upstream, of_rows, numbers, wanted, in_place, returned[1]
            )
        if is_alone:
            return (_loss(input, target, weight, *of_rows, *numbers, wanted[0]),)
        return _forward(input, target, weight, *of_rows, *numbers, *wanted)
    except (RuntimeError, ValueError) as error:
        _native.raise_from(error)
