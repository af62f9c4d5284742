"""``trl.trainer.utils.selective_log_softmax``: log-probabilities of chosen classes, in one pass over the logits."""

from __future__ import annotations

import torch
from torch import Tensor

from ce.torch import functional
from ce.torch.integrations._shared import classes_second

__all__ = ["selective_log_softmax"]

_LEFT_OUT = -100


def selective_log_softmax(
    logits: Tensor, index: Tensor, temperature: float = 1.0, row_mask: Tensor | None = None
) -> Tensor:
    """``logits.log_softmax(-1)`` at the chosen classes, without the rest of it. Differentiable once.

    Args:
        logits: [..., classes] of float32, float16 or bfloat16.
        index: class indices [...]; or [..., k], for which the whole log softmax is made.
        temperature: what the logits are divided by, more than 0.
        row_mask: [...]: rows where it is 0 have the log-probability 0, and no gradient.

    Returns:
        As the index, in the dtype of the logits; computed in float32.

    Raises:
        ValueError: a temperature or sizes that do not fit.
    """
    if not temperature > 0:
        raise ValueError(f"selective_log_softmax: temperature is {temperature}; expected more than 0")
    if index.dim() == logits.dim():
        scaled = logits if temperature == 1.0 else logits / temperature
        chosen = functional.log_softmax(scaled, -1).gather(-1, index)
        return chosen if row_mask is None else chosen.masked_fill(row_mask == 0, 0.0)
    target = index if row_mask is None else index.masked_fill(row_mask == 0, _LEFT_OUT)
    flat = logits.dim() == 1
    rows = logits.unsqueeze(0) if flat else classes_second(logits)
    losses = functional.cross_entropy(
        rows,
        target.unsqueeze(0) if flat else target,
        ignore_index=_LEFT_OUT,
        reduction="none",
        logit_scale=1.0 / temperature,
        loss_dtype=torch.float64 if logits.dtype == torch.float64 else torch.float32,
    )
    return -(losses.squeeze(0) if flat else losses).to(logits.dtype)
