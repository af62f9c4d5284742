"""Modules: those of ``torch.nn``, and a linear layer with its loss."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ce.torch import _amounts, functional, linear

__all__ = ["CrossEntropyLoss", "LinearCrossEntropy", "LogSoftmax", "Softmax"]

_OPTIONS = tuple(
    name
    for name, parameter in inspect.signature(linear.linear_cross_entropy).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY and name not in ("linear_bias", "weight")
)


def _require_options(given: Mapping[str, Any]) -> None:
    for option in given:
        if option not in _OPTIONS:
            raise TypeError(
                f"ce.torch.LinearCrossEntropy: got an unexpected option {option!r}; expected one of "
                f"{', '.join(_OPTIONS)}"
            )


class CrossEntropyLoss(nn.CrossEntropyLoss):
    """:class:`torch.nn.CrossEntropyLoss`, with amounts, dtype and memory of the loss as in :func:`cross_entropy`, by
    keyword. A call takes row_weight and divisor; other options and outputs are those of the function alone."""

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


class LinearCrossEntropy(nn.Linear):
    """A linear layer and its loss: a language model's head. See :func:`linear_cross_entropy`.

    Args:
        in_features: hidden size.
        num_classes: classes.
        bias: whether the layer has one.
        weight: [classes], a weight for each class.
        options: further arguments of :func:`linear_cross_entropy`, for every call.

    Raises:
        TypeError: an option that :func:`linear_cross_entropy` does not have.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        bias: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        weight: Tensor | None = None,
        **options: Any,
    ) -> None:
        _require_options(options)
        super().__init__(in_features, num_classes, bias, device, dtype)
        self.class_weight: Tensor | None
        self.register_buffer("class_weight", weight)
        self.options = options

    def forward(self, input: Tensor, target: Tensor, **of_step: Any) -> Any:  # type: ignore[override]
        """The loss of hidden states and targets; options may change from step to step.

        Raises:
            TypeError: as when the module is made; weight and bias are those of the module.
        """
        _require_options(of_step)
        return linear.linear_cross_entropy(
            input,
            self.weight,
            target,
            linear_bias=self.bias,
            weight=self.class_weight,
            **{**self.options, **of_step},
        )
