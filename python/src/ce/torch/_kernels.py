"""Which tensors kernels serve."""

from __future__ import annotations

import torch
from torch import Tensor

from ce.torch import _settings

KERNEL_DTYPES = frozenset((torch.float32, torch.float16, torch.bfloat16))
INDEX_DTYPES = frozenset((torch.int64, torch.int32))


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
