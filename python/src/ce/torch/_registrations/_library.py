"""What the registrations of all operators need."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ce.torch import _native, _reference, _settings
from ce.torch._kernels import KERNEL_DTYPES

operators = _native.operators
library = torch.library.Library("ce", "IMPL")
AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastCPU
)


def runs_on_host(tensor: Tensor) -> bool:
    return _settings.on_host and tensor.dtype in KERNEL_DTYPES


def split(rest: tuple[Any, ...], tensors: int) -> tuple[Any, _reference.Options, tuple[Any, ...]]:
    """The rest of a schema, after the tensors that a function names: that many further tensors; options; flags and
    other numbers."""
    end = tensors + len(_reference.Options._fields)
    return rest[:tensors], _reference.Options(*rest[tensors:end]), rest[end:]


def fake_gradient(logits: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(logits)


def fake_nothing(*arguments: Any) -> None:
    return None


def refuse_gradient(op: str, name: str, instead: str | None = None) -> None:
    def refuse(ctx: Any, *grads: Any) -> None:
        raise RuntimeError(
            f"ce::{op} has no gradient, because ce.torch.{name} is differentiable once; "
            f"use torch.nn.functional.{instead or name} for a second derivative"
        )

    torch.library.register_autograd("ce::" + op, refuse)
