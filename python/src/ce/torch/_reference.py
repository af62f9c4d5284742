"""What the operators compute, in operations of torch: for tensors without a kernel (the CPU, float64), and for tests.

Differentiable as often as torch is.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy as _torch_cross_entropy  # also while F is patched


class Options(NamedTuple):
    """The options of cross entropy, as the operators take them."""

    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0
    z_loss: float = 0.0
    softcap: float = 0.0
    logit_scale: float = 1.0


class Outputs(NamedTuple):
    """Everything that cross entropy can say of its logits."""

    loss: Tensor
    z_loss: Tensor
    lse: Tensor
    argmax: Tensor
    hit: Tensor


def transformed(logits: Tensor, options: Options) -> Tensor:
    """``softcap * tanh(logit_scale * logits / softcap)``, or ``logit_scale * logits`` without a cap."""
    if options.logit_scale != 1.0:
        logits = logits * options.logit_scale
    if options.softcap != 0.0:
        logits = options.softcap * torch.tanh(logits / options.softcap)
    return logits


def class_dim(logits: Tensor) -> int:
    return 0 if logits.dim() < 2 else 1


def is_ignored(logits: Tensor, target: Tensor, options: Options) -> Tensor:
    """Which rows are left out, of the sizes of the logits without their classes."""
    if target.is_floating_point():
        return torch.zeros_like(target.select(class_dim(logits), 0), dtype=torch.bool)
    return target == options.ignore_index


def cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    options: Options,
    loss_dtype: torch.dtype | None = None,
    upstream: Tensor | None = None,
) -> Outputs:
    """The loss of torch on transformed logits, plus ``z_loss * lse ** 2``. 16-bit logits are computed in float32."""
    result_dtype = loss_dtype or logits.dtype
    wide = logits if torch.float64 in (result_dtype, logits.dtype) else logits.float()
    wide_target = target.to(wide.dtype) if target.is_floating_point() else target
    z = transformed(wide, options)
    loss = _torch_cross_entropy(
        z,
        wide_target,
        None if weight is None else weight.to(z.dtype),
        ignore_index=options.ignore_index,
        reduction=options.reduction,
        label_smoothing=options.label_smoothing,
    )
    lse = torch.logsumexp(z, class_dim(logits))
    ignored = is_ignored(logits, target, options)
    of_rows = (options.z_loss * lse.square()).masked_fill(ignored, 0.0) if options.z_loss else torch.zeros_like(lse)
    if options.reduction == "sum":
        z_loss = of_rows.sum()
    elif options.reduction == "mean":
        z_loss = of_rows.sum() / (~ignored).sum()
    else:
        z_loss = of_rows
    if options.z_loss:
        loss = loss + z_loss
    if upstream is not None:
        loss = scaled_gradient(loss, upstream)
    argmax = logits.argmax(class_dim(logits))
    hit = torch.zeros_like(ignored) if target.is_floating_point() else (argmax == target) & ~ignored
    return Outputs(loss.to(result_dtype), z_loss.detach().to(result_dtype), lse.detach().float(), argmax, hit)


def gradient(
    logits: Tensor, target: Tensor, weight: Tensor | None, options: Options, upstream: Tensor | None = None
) -> Tensor:
    """The gradient of the loss with respect to the logits, times one upstream gradient or one for each row.

    With a_i what multiplies lse - z_i in the loss of a row, it is (sum_i a_i + 2 z_loss lse) p_j - a_j for z_j.
    """
    wide = logits if logits.dtype == torch.float64 else logits.float()
    dim = class_dim(logits)
    classes = logits.shape[dim] if logits.dim() else 1
    z = transformed(wide, options)
    lse = torch.logsumexp(z, dim, keepdim=True)
    ignored = is_ignored(logits, target, options).unsqueeze(dim)
    if target.is_floating_point():
        share = target.to(z.dtype)
    else:
        known = target.unsqueeze(dim).masked_fill(ignored, 0)
        share = torch.zeros_like(z).scatter(dim, known, 1.0)
    factor = (1 - options.label_smoothing) * share + options.label_smoothing / classes
    divisor = z_divisor = torch.ones((), dtype=z.dtype, device=z.device)
    of_class = torch.ones((classes,), dtype=z.dtype, device=z.device) if weight is None else weight.to(z.dtype)
    of_class = of_class.reshape([classes if d == dim else 1 for d in range(z.dim())])
    factor = (factor * of_class).masked_fill(ignored, 0.0)
    if options.reduction == "mean":
        z_divisor = (~ignored).sum().to(z.dtype)
        divisor = z_divisor if target.is_floating_point() else (share * of_class).masked_fill(ignored, 0.0).sum()
    z_factor = (2 * options.z_loss * lse / z_divisor).masked_fill(ignored, 0.0)
    factor = factor / divisor
    grad = (factor.sum(dim, keepdim=True) + z_factor) * torch.softmax(z, dim) - factor
    if options.softcap != 0.0:
        grad = grad * (1 - (z / options.softcap).square())
    grad = (grad * options.logit_scale).masked_fill(ignored, 0.0)
    if upstream is not None:
        grad = grad * (upstream.reshape(lse.shape) if upstream.numel() > 1 else upstream.reshape(()))
    return grad.to(logits.dtype)


def scaled_gradient(loss: Tensor, factor: Tensor) -> Tensor:
    """The loss, whose gradient is multiplied by a factor."""
    scaled = loss * factor.reshape(loss.shape if factor.numel() > 1 else ())
    return scaled + (loss - scaled).detach()
