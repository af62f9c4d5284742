"""Operators that overwrite a tensor, for autograd."""

from __future__ import annotations

from typing import Any

import torch

from ce.torch._registrations._library import library, operators

_IN_PLACE = (
    "softmax_",
    "softmax_out",
    "softmax_backward_out",
    "log_softmax_",
    "log_softmax_out",
    "log_softmax_backward_out",
    "cross_entropy_with_grad_",
    "cross_entropy_backward_",
    "scale_gradient_",
)


def _register_version(op: str) -> None:
    """Marks a tensor that an operator overwrites as changed, so that backwards that need its old contents fail."""
    overload = getattr(operators, op).default
    arguments = overload._schema.arguments
    written = [i for i, argument in enumerate(arguments) if argument.alias_info is not None]
    below = torch._C._after_ADInplaceOrView_keyset

    def count(keyset: Any, *given: Any, **named: Any) -> Any:
        for i in written:
            torch.autograd.graph.increment_version(given[i] if i < len(given) else named[arguments[i].name])
        with torch._C._AutoDispatchBelowADInplaceOrView():
            return overload.redispatch(keyset & below, *given, **named)

    library.impl(op, count, "ADInplaceOrView", with_keyset=True)


def register() -> None:
    for op in _IN_PLACE:
        _register_version(op)
