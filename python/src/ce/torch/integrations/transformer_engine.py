"""The cross entropy of TransformerEngine with its own signatures, also for logits whose classes ranks share.

The losses are in float32, as in TransformerEngine; the gradient is in the dtype of the logits, where newer versions
have float32.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from ce.torch import _arguments, _reference, functional
from ce.torch._kernels import KERNEL_DTYPES
from ce.torch.integrations._shared import (
    class_indices,
    classes_second,
    f32_for,
    in_own_words,
    mean_over,
    require_tensors,
)
from ce.torch.vocab_parallel import vocab_parallel_cross_entropy

__all__ = ["cross_entropy_backward", "cross_entropy_forward", "parallel_cross_entropy"]


@in_own_words(input="inp", logits="inp", ignore_index="ignore_idx", group="dist_process_group")
def parallel_cross_entropy(
    inp: Tensor,
    target: Tensor,
    label_smoothing: float = 0.0,
    reduce_loss: bool = False,
    dist_process_group: object | None = None,
    ignore_idx: int = -100,
    is_cg_capturable: bool = False,
    *,
    _input: Tensor | None = None,
) -> Tensor:
    """``transformer_engine.pytorch.cross_entropy.parallel_cross_entropy``.

    Args:
        inp: logits, [batch, length, classes] or [length, batch, classes].
        target: class indices, of the sizes of `inp` without the classes.
        reduce_loss: the mean over the rows that are not ignored (0 if there are none), instead of one loss a row.
        dist_process_group: the ranks whose logits are equal shares of the classes; None: each has all classes.
        is_cg_capturable: not used: every call can be captured.

    Returns:
        Float32: a number, or the sizes of the target.

    Raises:
        ValueError, TypeError: see :func:`ce.torch.cross_entropy`.
    """
    if _input is not None:
        warnings.warn("parallel_cross_entropy: _input is deprecated; name it inp", FutureWarning, stacklevel=2)
        inp = _input
    require_tensors("parallel_cross_entropy", inp=inp, target=target)
    if dist_process_group is not None:
        return vocab_parallel_cross_entropy(
            inp,
            target,
            group=dist_process_group,
            ignore_index=ignore_idx,
            label_smoothing=label_smoothing,
            reduction="mean" if reduce_loss else "none",
            divisor=(target != ignore_idx).sum().clamp(min=1) if reduce_loss else None,
            loss_dtype=torch.float32,
        )
    rows = classes_second(inp)
    if reduce_loss:
        count = (target != ignore_idx).sum().clamp(min=1)
        return mean_over(rows, target, count, ignore_index=ignore_idx, label_smoothing=label_smoothing)
    return functional.cross_entropy(
        rows,
        target,
        ignore_index=ignore_idx,
        label_smoothing=label_smoothing,
        reduction="none",
        loss_dtype=f32_for(inp),
    )


@in_own_words(input="_input", logits="_input", ignore_index="ignore_idx", group="dist_process_group")
def cross_entropy_forward(
    _input: Tensor,
    target: Tensor,
    label_smoothing: float,
    reduce_loss: bool,
    dist_process_group: object | None = None,
    ignore_idx: int = -100,
) -> tuple[Tensor, Tensor]:
    """``transformer_engine.pytorch.triton.cross_entropy.cross_entropy_forward``: loss and gradient in one pass.

    Args:
        _input: logits, [batch, length, classes]; they are not changed.
        target: class indices, [batch, length].
        dist_process_group: the ranks whose logits are equal shares of the classes; None: each has all classes.

    Returns:
        The loss as :func:`parallel_cross_entropy`, and the gradient of their sum, or of their mean with `reduce_loss`.

    Raises:
        ValueError, TypeError: see :func:`ce.torch.cross_entropy` and :func:`ce.torch.vocab_parallel_cross_entropy`.
    """
    require_tensors("cross_entropy_forward", _input=_input, target=target)
    target = class_indices("cross_entropy_forward", "target", target)
    if dist_process_group is not None:
        with torch.enable_grad():
            logits = _input.detach().requires_grad_()
            loss = parallel_cross_entropy(logits, target, label_smoothing, reduce_loss, dist_process_group, ignore_idx)
            (grad,) = torch.autograd.grad(loss, logits, torch.ones_like(loss))
        return loss.detach(), grad
    rows = classes_second(_input.detach())
    ignore_idx = _arguments.integer("ce.torch.cross_entropy_forward", "ignore_idx", ignore_idx)
    numbers = _reference.Options(ignore_idx, _reference.NONE, label_smoothing)
    f32_loss = _input.dtype != torch.float64
    if not reduce_loss:
        loss, grad, *_ = torch.ops.ce.cross_entropy_with_grad(
            rows, target, None, None, None, None, None, *numbers, *_reference.flags_of(*["f32_loss"] * f32_loss)
        )
        return loss, _classes_last(grad)
    count = (target != ignore_idx).sum().clamp(min=1)
    factor = count.to(torch.float32 if f32_loss else torch.float64).reciprocal()
    sum_numbers = numbers._replace(reduction=_reference.SUM)
    loss, grad = torch.ops.ce.cross_entropy_loss_and_grad(
        rows, target, None, factor, None, None, None, *sum_numbers, f32_loss
    )
    return loss * factor, _classes_last(grad)


def _classes_last(grad: Tensor) -> Tensor:
    return grad.movedim(1, -1) if grad.dim() > 2 else grad


@in_own_words()
def cross_entropy_backward(grad_input: Tensor, grad_output: Tensor, is_cg_capturable: bool = False) -> Tensor:
    """``transformer_engine.pytorch.triton.cross_entropy.cross_entropy_backward``: the gradient of
    :func:`cross_entropy_forward` times one number, or one for each row, in its own memory.

    If the number is 1 the gradient is not even read. Nothing waits for the GPU.

    Raises:
        ValueError, TypeError: sizes or a dtype of `grad_output` that do not fit.
    """
    name = "ce.torch.cross_entropy_backward"
    require_tensors("cross_entropy_backward", grad_input=grad_input, grad_output=grad_output)
    _arguments.require_dtype(name, "grad_output", grad_output, grad_input.dtype, *KERNEL_DTYPES)
    if grad_output.numel() == 1:
        if grad_input.dtype not in KERNEL_DTYPES:
            return grad_input.mul_(grad_output.reshape(()))
        torch.ops.ce.scale_gradient_(grad_input, grad_output.reshape(()))
        return grad_input
    if grad_output.shape != grad_input.shape[:-1]:
        raise ValueError(
            f"{name}: grad_output has sizes {list(grad_output.shape)}; expected one element, or "
            f"{list(grad_input.shape[:-1])}, one for each row"
        )
    return grad_input.mul_(grad_output.unsqueeze(-1))
