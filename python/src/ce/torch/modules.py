"""Modules with the arguments of ``torch.nn``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ce.torch import _amounts, functional

__all__ = ["CrossEntropyLoss", "LogSoftmax", "Softmax"]


class CrossEntropyLoss(nn.CrossEntropyLoss):
    """:class:`torch.nn.CrossEntropyLoss`, with the further options of :func:`cross_entropy` by keyword."""

    @_amounts.with_amounts
    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        *,
        loss_dtype: torch.dtype | None = None,
        inplace_backward: bool = False,
        **amounts: Unpack[functional.Amounts],
    ) -> None:
        super().__init__(weight, size_average, ignore_index, reduce, reduction, label_smoothing)
        self.options: dict[str, Any] = {
            **_amounts.amounts_of("CrossEntropyLoss", amounts),
            "loss_dtype": loss_dtype,
            "inplace_backward": inplace_backward,
        }

    def forward(
        self,
        input: Tensor,
        target: Tensor,
        *,
        row_weight: Tensor | None = None,
        divisor: Tensor | float | None = None,
    ) -> Tensor:
        """The loss of logits and targets; arguments that change from step to step: see :func:`cross_entropy`."""
        return functional.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            row_weight=row_weight,
            divisor=divisor,
            **self.options,
        )


class Softmax(nn.Softmax):
    """:class:`torch.nn.Softmax`."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`softmax`."""
        return functional.softmax(input, self.dim, _stacklevel=5)


class LogSoftmax(nn.LogSoftmax):
    """:class:`torch.nn.LogSoftmax`."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`log_softmax`."""
        return functional.log_softmax(input, self.dim, _stacklevel=5)
