"""What the registrations of all operators need."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ce.torch import _native, _settings
from ce.torch._kernels import KERNEL_DTYPES

operators = _native.operators
library = torch.library.Library("ce", "IMPL")
AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastCPU
)


def runs_on_host(tensor: Tensor) -> bool:
    return _settings.on_host and tensor.dtype in KERNEL_DTYPES


def fake_nothing(*arguments: Any) -> None:
    return None


def refuse_gradient(op: str, name: str, instead: str | None = None) -> None:
    def refuse(ctx: Any, *grads: Any) -> None:
        raise RuntimeError(
            f"ce::{op} has no gradient, because ce.torch.{name} is differentiable once; "
            f"use torch.nn.functional.{instead or name} for a second derivative"
        )

    torch.library.register_autograd("ce::" + op, refuse)
