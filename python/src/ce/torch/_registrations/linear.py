"""The operator of a linear layer and cross entropy."""

from __future__ import annotations

import torch

from ce.torch import _linear, _native
from ce.torch._registrations._library import library, refuse_gradient


def register() -> None:
    """On the CPU these operators run on the host device: calls that belong to torch do not reach them."""
    for op in ("linear_cross_entropy", "_linear_cross_entropy"):
        _native.register_fake("ce::" + op, _linear.fake)
    refuse_gradient("linear_cross_entropy", "linear_cross_entropy", "linear")
    for key in ("AutogradCUDA", "AutogradCPU"):
        library.impl("_linear_cross_entropy", torch.library.fallthrough_kernel, key)
