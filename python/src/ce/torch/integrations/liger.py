"""The cross entropy of Liger-Kernel, and that of a linear layer, with its own signatures.

Unlike in Liger-Kernel, the logits are not changed, no call waits for the GPU, and a target out of range makes its row
NaN instead of raising: see :func:`ce.torch.check`. If all rows are ignored, loss, z-loss and gradients are 0, as in
Liger-Kernel.

``ce.torch.liger`` is this module. Its functions have shorter names, too: ``cross_entropy`` and
``fused_linear_cross_entropy``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ce.torch import functional, linear
from ce.torch.integrations._shared import in_own_words

__all__ = [
    "CrossEntropyOutput",
    "LigerCrossEntropyLoss",
    "LigerFusedLinearCrossEntropyLoss",
    "cross_entropy",
    "fused_linear_cross_entropy",
    "liger_cross_entropy",
    "liger_fused_linear_cross_entropy",
]


_OWN = {"z_loss": "lse_square_scale", "return_hit": "return_token_accuracy", "return_argmax": "return_predicted_tokens"}


@dataclass
class CrossEntropyOutput:
    """The result with further outputs; outputs that were not asked for are None."""

    loss: Tensor
    z_loss: Tensor | None = None
    token_accuracy: Tensor | None = None
    predicted_tokens: Tensor | None = None


@in_own_words(**_OWN)
def liger_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    lse_square_scale: float = 0.0,
    softcap: float | None = None,
    return_z_loss: bool = False,
    return_token_accuracy: bool = False,
    return_predicted_tokens: bool = False,
    use_token_scaling: bool = False,
) -> Tensor | CrossEntropyOutput:
    """``liger_kernel.transformers.functional.liger_cross_entropy``.

    Args:
        input: [rows, classes] of float32, float16 or bfloat16.
        target: [rows] class indices.
        weight: [classes].
        size_average, reduce: without meaning, as there.
        lse_square_scale: the factor of the z-loss.
        return_z_loss: also the z-loss, reduced as the loss.
        return_token_accuracy: also whether each row's largest logit is its target: float32 [rows] for the reduction
            "none", else the mean over the rows that are not ignored.
        return_predicted_tokens: also the index of each row's largest logit, int64 [rows], -1 in ignored rows.
        use_token_scaling: loss and gradient of each row times the probability of its target, which is treated as a
            constant.

    Returns:
        The loss in the dtype of the input, or a :class:`CrossEntropyOutput`.

    Raises:
        ValueError, TypeError: see :func:`ce.torch.cross_entropy`.
    """
    return _loss(
        functools.partial(functional.cross_entropy, input, target, weight),
        target,
        ignore_index,
        lse_square_scale,
        label_smoothing,
        reduction,
        softcap,
        return_z_loss,
        use_token_scaling,
        return_token_accuracy,
        return_predicted_tokens,
    )


def _loss(
    function: Callable[..., Tensor | functional.CrossEntropyOutput],
    target: Tensor,
    ignore_index: int,
    lse_square_scale: float,
    label_smoothing: float,
    reduction: str,
    softcap: float | None,
    return_z_loss: bool,
    use_token_scaling: bool,
    return_token_accuracy: bool,
    return_predicted_tokens: bool,
) -> Tensor | CrossEntropyOutput:
    """The result of a function with the options of cross entropy, which have other names here."""
    made = function(
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
        z_loss=lse_square_scale,
        softcap=softcap,
        token_scaling=1.0 if use_token_scaling else 0.0,
        return_z_loss=return_z_loss,
        return_argmax=return_predicted_tokens,
        return_hit=return_token_accuracy,
    )
    return _output(made, target, ignore_index, reduction)


def _output(
    made: Tensor | functional.CrossEntropyOutput, target: Tensor, ignore_index: int, reduction: str
) -> Tensor | CrossEntropyOutput:
    """Like Liger-Kernel: means over no rows are 0, except the accuracy. Nothing waits for the GPU."""
    counts = target != ignore_index
    any_counts = counts.any() if reduction == "mean" else None

    def of_some(mean: Tensor) -> Tensor:
        return mean if any_counts is None else mean.where(any_counts, 0.0)

    if isinstance(made, Tensor):
        return of_some(made)
    accuracy = None
    if made.hit is not None:
        accuracy = made.hit.float() if reduction == "none" else made.hit.sum() / counts.sum()
    predicted = None if made.argmax is None else made.argmax.masked_fill(~counts, -1)
    return CrossEntropyOutput(
        of_some(made.loss), None if made.z_loss is None else of_some(made.z_loss), accuracy, predicted
    )


cross_entropy = liger_cross_entropy


def _check_options(name: str, label_smoothing: float, reduction: str, softcap: float | None) -> None:
    """
    Raises:
        ValueError: what Liger-Kernel refuses, too, when a module is made.
    """
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"{name}: label_smoothing is {label_smoothing}; expected 0 to 1")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{name}: reduction is {reduction!r}; expected 'mean', 'sum' or 'none'")
    if softcap is not None and not softcap > 0:
        raise ValueError(f"{name}: softcap is {softcap}; expected None or more than 0")


class LigerCrossEntropyLoss(nn.Module):
    """``liger_kernel.transformers.LigerCrossEntropyLoss``: see :func:`liger_cross_entropy`."""

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        lse_square_scale: float = 0.0,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
        softcap: float | None = None,
        return_z_loss: bool = False,
        return_token_accuracy: bool = False,
        return_predicted_tokens: bool = False,
    ) -> None:
        super().__init__()
        _check_options("LigerCrossEntropyLoss", label_smoothing, reduction, softcap)
        self.weight = weight
        self.ignore_index = ignore_index
        self.lse_square_scale = lse_square_scale
        self.label_smoothing = label_smoothing
        self.reduction = reduction
        self.softcap = softcap
        self.return_z_loss = return_z_loss
        self.return_token_accuracy = return_token_accuracy
        self.return_predicted_tokens = return_predicted_tokens

    def forward(self, _input: torch.Tensor, target: torch.Tensor) -> Tensor | CrossEntropyOutput:
        """The loss of logits [rows, classes] and class indices [rows]."""
        return liger_cross_entropy(
            _input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            lse_square_scale=self.lse_square_scale,
            softcap=self.softcap,
            return_z_loss=self.return_z_loss,
            return_token_accuracy=self.return_token_accuracy,
            return_predicted_tokens=self.return_predicted_tokens,
        )


@in_own_words(**_OWN, linear_weight="weight", linear_bias="bias", weight="ce_weight", accumulate="accum_dtype")
def liger_fused_linear_cross_entropy(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    ce_weight: Tensor | None = None,
    ignore_index: int = -100,
    lse_square_scale: float = 0.0,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    softcap: float | None = None,
    return_z_loss: bool = False,
    accum_dtype: torch.dtype | None = None,
    use_token_scaling: bool = False,
    return_token_accuracy: bool = False,
    return_predicted_tokens: bool = False,
    chunk_mem_const: int = 1,
) -> Tensor | CrossEntropyOutput:
    """``liger_kernel.transformers.functional.liger_fused_linear_cross_entropy``.

    Args:
        input: [rows, hidden].
        weight: [classes, hidden] of the layer.
        target: [rows] class indices.
        bias: [classes] of the layer.
        ce_weight: [classes], a weight for each class.
        accum_dtype: dtype in which the gradient of the weight is summed over chunks.
        chunk_mem_const: not used: the budget is a tenth of the free memory.

    All other arguments as in :func:`liger_cross_entropy`.
    """
    return _loss(
        functools.partial(
            linear.linear_cross_entropy,
            input,
            weight,
            target,
            linear_bias=bias,
            weight=ce_weight,
            accumulate=accum_dtype,
        ),
        target,
        ignore_index,
        lse_square_scale,
        label_smoothing,
        reduction,
        softcap,
        return_z_loss,
        use_token_scaling,
        return_token_accuracy,
        return_predicted_tokens,
    )


fused_linear_cross_entropy = liger_fused_linear_cross_entropy


class LigerFusedLinearCrossEntropyLoss(nn.Module):
    """``liger_kernel.transformers.LigerFusedLinearCrossEntropyLoss``: see :func:`liger_fused_linear_cross_entropy`."""

    def __init__(
        self,
        ce_weight: Tensor | None = None,
        ignore_index: int = -100,
        lse_square_scale: float = 0.0,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
        softcap: float | None = None,
        return_z_loss: bool = False,
        accum_dtype: torch.dtype | None = None,
        use_token_scaling: bool = False,
        return_token_accuracy: bool = False,
        return_predicted_tokens: bool = False,
    ) -> None:
        super().__init__()
        _check_options("LigerFusedLinearCrossEntropyLoss", label_smoothing, reduction, softcap)
        self.ce_weight = ce_weight
        self.options = {
            "ignore_index": ignore_index,
            "lse_square_scale": lse_square_scale,
            "label_smoothing": label_smoothing,
            "reduction": reduction,
            "softcap": softcap,
            "return_z_loss": return_z_loss,
            "accum_dtype": accum_dtype,
            "use_token_scaling": use_token_scaling,
            "return_token_accuracy": return_token_accuracy,
            "return_predicted_tokens": return_predicted_tokens,
        }

    def forward(
        self, lin_weight: Tensor, _input: Tensor, target: Tensor, bias: Tensor | None = None
    ) -> Tensor | CrossEntropyOutput:
        """The loss of the layer's weight, hidden states [rows, hidden], class indices [rows] and the layer's bias."""
        return liger_fused_linear_cross_entropy(
            _input,
            lin_weight,
            target,
            bias,
            self.ce_weight,
            **self.options,  # type: ignore[arg-type]
        )
