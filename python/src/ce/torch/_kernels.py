"""Which tensors kernels serve."""

from __future__ import annotations

import torch
from torch import Tensor

from ce import _c
from ce.torch import _settings

KERNEL_DTYPES = {torch.float32: _c.F32, torch.float16: _c.F16, torch.bfloat16: _c.BF16}
"""Dtypes of logits, with their numbers in the library."""
INDEX_DTYPES = (torch.int64, torch.int32)
"""Dtypes of class indices."""


def has_kernels_for(tensor: Tensor) -> bool:
    """Whether a tensor is on a device with kernels, of a dtype that they support, and a plain one: neither nested, nor
    sparse, nor distributed (DTensor)."""
    return (
        (tensor.is_cuda or (_settings.on_host and tensor.is_cpu))
        and tensor.dtype in KERNEL_DTYPES
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and type(tensor).__name__ != "DTensor"
    )
