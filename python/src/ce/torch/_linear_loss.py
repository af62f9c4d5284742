"""The loss of a linear layer by kernels, or by torch's own operations."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ce.torch import (
    _autocast,
    _autograd,
    _linear,
    _linear_arguments,
    _loss_arguments,
    _reference,
    _valid_tokens,
    functional,
)


class Dtypes(NamedTuple):
    """The dtypes of a call."""

    products: torch.dtype
    logits: torch.dtype
    loss: torch.dtype


def in_torch(
    input: Tensor,
    linear_weight: Tensor,
    linear_bias: Tensor | None,
    target: Tensor,
    inputs: _linear.Inputs,
    numbers: _reference.Options,
    dtypes: Dtypes,
    valid_tokens: int | None,
    return_hit: bool,
) -> tuple[Any, ...]:
    """As :func:`in_kernels`, by torch's own operations."""
    _loss_arguments.refuse_amounts(numbers, target, "LinearCrossEntropy")
    options = numbers._asdict()
    reduction = _reference.REDUCTIONS[options.pop("reduction")]
    if inputs.row_scale is not None:
        options["logit_scale"] = inputs.row_scale
    with _autocast.without_autocast(input):
        layer = (input, linear_weight, linear_bias)
        logits = _linear_arguments.logits_in_torch(*layer, dtypes.products, dtypes.logits)
        logits = logits.reshape(-1, linear_weight.shape[0])
        loss, of_z_loss, lse, argmax, hit, *_ = functional.cross_entropy(
            logits,
            target.reshape(logits.shape) if target.is_floating_point() else target.reshape(-1).long(),
            inputs.class_weight,
            reduction=reduction,
            row_weight=inputs.row_weight,
            divisor=inputs.divisor,
            upstream=inputs.upstream,
            loss_dtype=dtypes.loss if dtypes.loss in (torch.float32, dtypes.logits) else dtypes.logits,
            return_z_loss=True,
            return_lse=True,
            return_argmax=True,
            return_hit=return_hit,
            **options,
        )
    if valid_tokens is None:
        return loss, of_z_loss, lse, argmax, hit
    left_out = target.reshape(-1) == numbers.ignore_index
    factor = _valid_tokens.factor(left_out, valid_tokens)
    of_none = left_out | factor.isnan()
    return (
        loss * factor,
        of_z_loss * factor,
        lse.masked_fill(of_none, torch.nan),
        argmax.masked_fill(of_none, -1),
        None if hit is None else hit.masked_fill(of_none, False),
    )


def in_kernels(
    input: Tensor,
    linear_weight: Tensor,
    linear_bias: Tensor | None,
    target: Tensor,
    inputs: _linear.Inputs,
    numbers: _reference.Options,
    memory: _linear.Memory,
    dtypes: Dtypes,
    wanted: tuple[bool, ...],
) -> tuple[Any, ...]:
    """Loss, z-loss, logsumexp, argmax and hit; outputs that are not wanted are None, or an empty tensor.

    Args:
        wanted: whether each output besides the loss is wanted.
    """
    class_weight, upstream, row_weight, *_ = inputs
    f32_loss = dtypes.loss is torch.float32 or dtypes.logits is torch.float32
    inputs = inputs._replace(
        class_weight=class_weight
        if class_weight is None or class_weight.dtype is dtypes.logits
        else class_weight.float(),
        upstream=None if upstream is None else upstream.to(torch.float32 if f32_loss else dtypes.logits),
        row_weight=None if row_weight is None else row_weight.float(),
    )
    hidden, flat_target = _linear_arguments.flat_hidden(input), _linear_arguments.flat_target(target, dtypes.logits)
    needs = _linear.needs_of(hidden, linear_weight, linear_bias)
    if not any(needs):
        z_loss, lse, argmax, hit = wanted
        flags = _linear.Wanted(f32_loss, z_loss_out=z_loss, lse=lse, argmax=argmax, hit=hit)
        layer = _linear.Layer.of(hidden, linear_weight, linear_bias, dtypes.products)
        made = _linear.run(*layer, flat_target, _linear.without_upstream(inputs), numbers, memory, flags)
        return made.loss, made.z_loss_out, made.lse, made.argmax, made.hit
    given = (hidden, linear_weight, linear_bias, flat_target, inputs, numbers, memory)
    if numbers.reduction in _autograd.MEAN_OR_SUM and not any(wanted):
        loss = _linear.LossAlone.apply(*given, f32_loss, dtypes.products, needs)
        return loss, None, None, None, None
    return _linear.LinearCrossEntropy.apply(*given, (f32_loss, *wanted), dtypes.products, needs)


def result(
    made: tuple[Any, ...],
    losses: torch.Size | None,
    rows: torch.Size,
    dtype: torch.dtype,
    returned: tuple[bool, ...],
    has_z_loss: bool,
) -> Any:
    """The loss, or all outputs, in the sizes of the call.

    Args:
        losses: the sizes of the loss; None: it is one number.
    """
    loss, of_z_loss, lse, argmax, hit = made
    loss = loss if losses is None else loss.reshape(losses)
    if loss.dtype is not dtype:
        loss = loss.to(dtype)
    if not any(returned):
        return loss
    return_z_loss, return_lse, return_argmax, return_hit = returned
    if return_z_loss:
        of_z_loss = of_z_loss.reshape(loss.shape).to(dtype) if has_z_loss else torch.zeros_like(loss)
    return functional.CrossEntropyOutput(
        loss,
        of_z_loss if return_z_loss else None,
        lse.reshape(rows) if return_lse else None,
        argmax.reshape(rows) if return_argmax else None,
        hit.reshape(rows) if return_hit else None,
    )
