"""Waits for the GPU, and raises what kernels have met there: the argument check of losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ce import _c
from ce.torch import _native


def _call_checked(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Runs a call with check=True from compiled code: between two graphs, as it waits.

    Raises:
        RuntimeError: there is nothing between graphs in torch.export.
    """
    if torch.compiler.is_compiling():
        raise RuntimeError(
            f"ce.torch.{function.__name__}: check is True; expected False in a graph, because it waits for the GPU"
        )
    return function(*args, **named)


call_checked = torch.compiler.disable(_call_checked, reason="check=True waits for the GPU")


def check_targets(input: Tensor, of_earlier_calls: bool = False) -> None:
    """Waits for the GPU and raises its errors.

    Args:
        of_earlier_calls: whether it is called before the call to be checked.

    Raises:
        IndexError: targets out of range.
    """
    try:
        _c.require(_c.library().ce_check(_native.context(_native.device_index(input.device)), _stream(input), None))
    except IndexError as error:
        if not of_earlier_calls:
            raise
        raise IndexError(
            f"{error}; this error is from an earlier call without check, and the call with check=True did not run"
        ) from None


def _stream(tensor: Tensor) -> int:
    return torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else 0
