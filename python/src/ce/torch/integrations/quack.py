"""Softmax and cross entropy of quack with their own signatures. The losses are in float32, as there."""

from __future__ import annotations

import torch
from torch import Tensor

from ce.torch import functional

__all__ = ["cross_entropy", "softmax"]


def softmax(x: Tensor) -> Tensor:
    """``quack.softmax``: along the last dimension of x, [rows, columns] there and anything here.

    As :func:`ce.torch.softmax` of the last dimension, which says what the dtypes are and what is raised.
    """
    return functional.softmax(x, -1)


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
        x: logits, [rows, classes] of float32, float16 or bfloat16.
        target: [rows] class indices.
        lse_partial: None; a logsumexp that is known in part is not supported yet.
        weight: [classes].
        reduction: "mean", "sum" or "none".
        inplace_backward: for "mean" and "sum" the gradient takes the memory of x, in the forward already.

    Raises:
        NotImplementedError: `lse_partial`.
        ValueError, TypeError: see :func:`ce.torch.cross_entropy`.
    """
    if lse_partial is not None:
        raise NotImplementedError("quack.cross_entropy: lse_partial is given; expected None")
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    return functional.cross_entropy(
        x,
        target,
        weight,
        ignore_index=ignore_index,
        reduction=reduction,
        loss_dtype=wide,
        inplace_backward=inplace_backward and reduction != "none",
    )
