"""Autocast on the device of a tensor."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor


def is_under_autocast(tensor: Tensor) -> bool:
    """Whether autocast is on for a tensor's device. The device meta has no autocast, and torch's query raises for
    it."""
    return not tensor.is_meta and torch.is_autocast_enabled("cuda" if tensor.is_cuda else tensor.device.type)


def without_autocast(tensor: Tensor) -> contextlib.AbstractContextManager[Any]:
    """A block in which autocast is off on the device of a tensor."""
    return contextlib.nullcontext() if tensor.is_meta else torch.autocast(tensor.device.type, enabled=False)
