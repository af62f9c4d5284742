"""Softmax and cross entropy of quack with their own signatures. The losses are in float32, as in quack."""

from __future__ import annotations

import torch
from torch import Tensor

from ce.torch import functional
from ce.torch.integrations._shared import f32_for, in_own_words, require_tensors

__all__ = ["cross_entropy", "softmax"]


@in_own_words(input="x")
def softmax(x: Tensor) -> Tensor:
    """``quack.softmax``: along the last dimension of x, which is [rows, columns] in quack and may have any sizes here.

    It equals :func:`ce.torch.softmax` of the last dimension, which documents dtypes and exceptions.
    """
    return functional.softmax(x, -1)


@in_own_words(input="x")
def cross_entropy(
    x: Tensor,
    target: Tensor,
    lse_partial: Tensor | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    inplace_backward: bool = False,
) -> Tensor:
    """``quack.cross_entropy``.

    Args:
        x: logits, [rows, classes] of float32, float16 or bfloat16; float64 runs in torch.
        target: [rows] class indices.
        lse_partial: [rows, parts]: logsumexps of slices of each row, for example of a product's tiles. The forward then
            only reads the target's logit of each row. They have no gradient of their own: that of x is complete.
        weight: [classes].
        reduction: "mean", "sum" or "none".
        inplace_backward: for "mean" and "sum" the gradient overwrites x, already in the forward; not used with
            `lse_partial`.

    Raises:
        ValueError, TypeError: see :func:`ce.torch.cross_entropy`.
    """
    given_lse = None
    if lse_partial is not None:
        require_tensors("quack.cross_entropy", x=x, lse_partial=lse_partial)
        if lse_partial.dim() != 2 or lse_partial.shape[0] != x.shape[0]:
            raise ValueError(
                f"quack.cross_entropy: lse_partial is {list(lse_partial.shape)}; expected [{x.shape[0]}, parts]"
            )
        given_lse = torch.logsumexp(lse_partial.detach().float(), -1)
    return functional.cross_entropy(
        x,
        target,
        weight,
        ignore_index=ignore_index,
        reduction=reduction,
        loss_dtype=f32_for(x),
        inplace_backward=inplace_backward and reduction != "none" and given_lse is None,
        given_lse=given_lse,
    )
