"""torchtitan's loss, without its float32 copy of the logits, and its Triton loss.

The class takes torchtitan's own configuration, and is called like torchtitan's::

    loss_fn = TritonCrossEntropyLoss(config)
    loss, _ = loss_fn(logits, labels, global_valid_tokens)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ce.torch import functional, vocab_parallel
from ce.torch.integrations._shared import f32_for, in_own_words

__all__ = ["TritonCrossEntropyLoss", "cross_entropy_loss", "triton_cross_entropy_loss"]

IGNORE_INDEX = -100


@in_own_words(input="pred", logits="pred", target="labels", classes="global_vocab_size")
def cross_entropy_loss(pred: Tensor, labels: Tensor, *, global_vocab_size: int | None = None) -> Tensor:
    """``torchtitan.components.loss.cross_entropy_loss``: the sum of the losses.

    Args:
        pred: logits [..., classes] of float32, float16, bfloat16 or float64; or a DTensor whose classes are spread over
            ranks, Shard(-1).
        labels: [...] class indices; -100 is ignored.
        global_vocab_size: the classes of all ranks, for a DTensor: columns beyond them are padding.

    Returns:
        A float32 number; float64 of float64 logits.

    Raises:
        ValueError: sizes or placements that do not fit.
    """
    if type(pred).__name__ == "DTensor":
        return vocab_parallel.vocab_parallel_cross_entropy(
            pred,
            labels,
            classes=global_vocab_size,
            ignore_index=IGNORE_INDEX,
            reduction="sum",
            loss_dtype=torch.float32,
        )
    return _sum(pred, labels)


@in_own_words(input="pred", target="labels")
def triton_cross_entropy_loss(
    pred: Tensor, labels: Tensor, *, global_vocab_size: int | None = None, reduction: str = "sum"
) -> Tensor:
    """torchtitan's ``triton_cross_entropy_loss``: the sum of the losses. It overwrites the logits, as in torchtitan.

    Args:
        pred: logits [tokens, classes] of float32, float16, bfloat16 or float64. If they require a gradient, the forward
            overwrites them with it.
        labels: [tokens] class indices; -100 is ignored.
        global_vocab_size: not used.
        reduction: "sum".

    Returns:
        A float32 number; float64 of float64 logits.

    Raises:
        ValueError: other sizes, or another reduction.
    """
    del global_vocab_size
    if reduction != "sum":
        raise ValueError(f"triton_cross_entropy_loss: reduction is {reduction!r}; expected 'sum'")
    if pred.dim() != 2 or labels.shape != pred.shape[:1]:
        raise ValueError(
            f"triton_cross_entropy_loss: pred is {list(pred.shape)} and labels {list(labels.shape)}; expected "
            "[tokens, classes] and [tokens]"
        )
    return _sum(pred, labels, inplace_backward=True)


class TritonCrossEntropyLoss:
    """torchtitan's class of that name: a sum of losses, divided by the tokens of all ranks where they are given.

    The forward overwrites logits that require a gradient with it, as in torchtitan.

    Args:
        config: torchtitan's ``CrossEntropyLoss.Config``, of which only global_vocab_size is read. None: its defaults.
    """

    def __init__(self, config: Any = None) -> None:
        self.global_vocab_size: int | None = getattr(config, "global_vocab_size", None)

    def __call__(
        self, pred: Tensor, labels: Tensor, global_valid_tokens: Tensor | None = None, **kwargs: Any
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the loss, and an empty dictionary of further numbers.

        Args:
            pred: logits [..., classes].
            labels: [...] class indices; -100 is ignored.
            global_valid_tokens: the divisor of the sum: a number on the device.
            kwargs: not used.

        Raises:
            ValueError: sizes that do not fit.
        """
        del kwargs
        loss = triton_cross_entropy_loss(
            pred.flatten(0, -2), labels.flatten(), global_vocab_size=self.global_vocab_size
        )
        return (loss if global_valid_tokens is None else loss / global_valid_tokens), {}


def _sum(pred: Tensor, labels: Tensor, **options: Any) -> Tensor:
    return functional.cross_entropy(
        pred.flatten(0, -2),
        labels.flatten(),
        ignore_index=IGNORE_INDEX,
        reduction="sum",
        loss_dtype=f32_for(pred),
        **options,
    )
