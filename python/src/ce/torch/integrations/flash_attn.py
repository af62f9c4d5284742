"""The cross entropy of flash-attn with its own signatures. The losses are in float32, as there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ce.torch import _autograd, _kernels, _loss_arguments, _native, _reference, _transforms, functional
from ce.torch.integrations._shared import class_indices, f32_for, in_own_words
from ce.torch.vocab_parallel import vocab_parallel_cross_entropy

__all__ = ["CrossEntropyLoss", "cross_entropy_loss"]

_NAME = "ce.torch.cross_entropy_loss"


@in_own_words(
    input="logits", target="labels", z_loss="lse_square_scale", given_lse="precomputed_lse", group="process_group"
)
def cross_entropy_loss(
    logits: Tensor,
    labels: Tensor,
    precomputed_lse: Tensor | None = None,
    label_smoothing: float = 0.0,
    logit_scale: float = 1.0,
    lse_square_scale: float = 0.0,
    ignore_index: int = -100,
    inplace_backward: bool = False,
    process_group: object | None = None,
) -> tuple[Tensor, Tensor]:
    """``flash_attn.ops.triton.cross_entropy.cross_entropy_loss``.

    Args:
        logits: [rows, classes] of float32, float16 or bfloat16.
        labels: [rows] class indices.
        precomputed_lse: [rows] float32: logsumexp of the logits; the forward then only reads the logits of the labels.
            As in flash-attn it is computed again with label_smoothing and with a logit_scale other than 1.
        lse_square_scale: the factor of the z-loss.
        inplace_backward: the gradient overwrites the logits, in the backward, unless that keeps its graph
            (retain_graph). If another operation has saved the logits, its backward fails, as in torch.
        process_group: the ranks whose logits are equal shares of the classes; None: each has all classes. The logsumexp
            is computed then, whatever precomputed_lse is.

    Returns:
        Losses including their z-losses, and z-losses alone: float32 [rows] each, 0 in ignored rows. The second has no
        gradient.

    Raises:
        ValueError, TypeError: see :func:`ce.torch.cross_entropy`.
    """
    name = _NAME
    labels = class_indices(name, "labels", labels)
    if isinstance(logit_scale, Tensor):
        raise TypeError(f"{name}: logit_scale is a tensor; expected a number")
    options: dict[str, Any] = {
        "ignore_index": ignore_index,
        "label_smoothing": label_smoothing,
        "z_loss": lse_square_scale,
        "logit_scale": logit_scale,
    }
    if process_group is not None:
        shared = vocab_parallel_cross_entropy(
            logits,
            labels,
            group=process_group,
            reduction="none",
            loss_dtype=torch.float32,
            inplace_backward=inplace_backward,
            return_z_loss=True,
            **options,
        )
        return shared.loss, shared.z_loss.detach()
    lse = _lse_of_use(precomputed_lse, logits, label_smoothing, logit_scale)
    if inplace_backward and logits.requires_grad and _kernels.has_kernels_for(logits):
        _transforms.refuse_functorch("cross_entropy_loss", "cross_entropy")
        _transforms.refuse_tangents("cross_entropy_loss", logits, instead="cross_entropy")
        try:
            loss, z_loss = _OverLogits.apply(logits, labels, lse, options)
        except (RuntimeError, ValueError) as error:
            _native.raise_from(error)
        return loss, torch.zeros_like(loss) if z_loss is None else z_loss
    made = functional.cross_entropy(
        logits,
        labels,
        reduction="none",
        given_lse=lse,
        loss_dtype=f32_for(logits),
        return_z_loss=True,
        **options,
    )
    return made.loss, made.z_loss.detach()


def _lse_of_use(
    precomputed_lse: Tensor | None, logits: Tensor, label_smoothing: float, logit_scale: float
) -> Tensor | None:
    """precomputed_lse if the call can use it, else None. As in flash-attn it is that of logits without a scale, and a
    smoothed loss needs all logits."""
    if precomputed_lse is not None:
        if not isinstance(precomputed_lse, Tensor):
            raise TypeError(f"{_NAME}: precomputed_lse is {precomputed_lse!r}; expected a tensor or None")
        _loss_arguments.check_given_lse(precomputed_lse, logits, _NAME, "precomputed_lse")
    return precomputed_lse if label_smoothing == 0.0 and logit_scale == 1.0 else None


class _OverLogits(torch.autograd.Function):
    """Losses of the rows; the backward writes their gradient over the logits."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, lse: Tensor | None, options: dict[str, Any]
    ) -> tuple[Tensor, Tensor | None]:
        numbers = _reference.Options(reduction=_reference.NONE, **options)
        wants_z_loss = options["z_loss"] != 0.0
        z_loss: Tensor | None
        lse_low: Tensor | None
        if lse is None:
            wanted = ("f32_loss", "logprob", "lse_low", *["z_loss"] * wants_z_loss)
            made = _reference.Outputs(
                *torch.ops.ce._cross_entropy(
                    logits, labels, None, None, None, None, *numbers, *_reference.flags_of(*wanted)
                )
            )
            loss, z_loss, lse, logprob, lse_low = made.loss, made.z_loss, made.lse, made.logprob, made.lse_low
        else:
            loss, z_loss, logprob = torch.ops.ce._cross_entropy_from_lse(
                logits, labels, None, lse, None, None, None, *numbers, True, wants_z_loss
            )
            z_loss, lse_low = z_loss if wants_z_loss else None, None
        ctx.save_for_backward(logits, labels, lse, logprob, lse_low)
        ctx.numbers = numbers
        if z_loss is not None:
            ctx.mark_non_differentiable(z_loss)
        return loss, z_loss

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor | None) -> tuple[Tensor, None, None, None]:
        _autograd.refuse_second("cross_entropy")
        logits, labels, lse, logprob, lse_low = ctx.saved_tensors
        grad = logits.detach()
        rest = (labels, None, lse, grad_loss, logprob, lse_low, *(None,) * 6, *ctx.numbers)
        if _autograd.is_kept_graph() or _autograd.is_batched(grad_loss):  # what comes next needs the logits
            return torch.ops.ce._cross_entropy_backward(grad, *rest), None, None, None
        torch.ops.ce._cross_entropy_backward_(grad, *rest)
        _autograd.overwritten(grad)
        return grad, None, None, None


class CrossEntropyLoss(nn.Module):
    """``flash_attn.losses.cross_entropy.CrossEntropyLoss``."""

    def __init__(
        self,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        logit_scale: float = 1.0,
        lse_square_scale: float = 0.0,
        inplace_backward: bool = False,
        process_group: object | None = None,
        return_z_loss: bool = False,
    ) -> None:
        super().__init__()
        if reduction not in ("mean", "none", "sum"):
            raise NotImplementedError(f"CrossEntropyLoss: reduction is {reduction!r}; expected 'mean', 'none' or 'sum'")
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing
        self.logit_scale = logit_scale
        self.lse_square_scale = lse_square_scale
        self.inplace_backward = inplace_backward
        self.process_group = process_group
        self.return_z_loss = return_z_loss

    def forward(self, input: Tensor, target: Tensor, precomputed_lse: Tensor | None = None) -> Any:
        """The loss of logits [rows, classes] and class indices [rows] in float32, and with `return_z_loss` the z-loss.

        The gradient of a mean and a sum comes from the same pass as the loss, unless the backward writes it over the
        logits, and unless precomputed_lse is used.
        """
        if self.reduction == "none" or self.inplace_backward or self.process_group is not None:
            loss, z_loss = cross_entropy_loss(
                input,
                target,
                precomputed_lse,
                self.label_smoothing,
                self.logit_scale,
                self.lse_square_scale,
                self.ignore_index,
                self.inplace_backward,
                self.process_group,
            )
            if self.reduction == "mean":
                count = (target != self.ignore_index).sum()
                loss, z_loss = loss.sum() / count, z_loss.sum() / count
            elif self.reduction == "sum":
                loss, z_loss = loss.sum(), z_loss.sum()
            return (loss, z_loss) if self.return_z_loss else loss
        made = functional.cross_entropy(
            input,
            target,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            logit_scale=self.logit_scale,
            z_loss=self.lse_square_scale,
            given_lse=_lse_of_use(precomputed_lse, input, self.label_smoothing, self.logit_scale),
            loss_dtype=f32_for(input),
            return_z_loss=self.return_z_loss,
        )
        return (made.loss, made.z_loss.detach()) if self.return_z_loss else made
