"""The transforms of ``torch.func`` and forward mode, for which operators have no rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch.nn.functional as F
from torch import Tensor
from torch._C import _are_functorch_transforms_active
from torch.autograd import forward_ad

_Function = TypeVar("_Function", bound=Callable[..., Any])
_replacements: dict[str, Callable[..., Any]] = {}


def replacement(function: _Function) -> _Function:
    """Decorates a function that can replace torch's of the same name. torch.jit.script takes torch's."""
    original = getattr(F, function.__name__)
    _replacements[function.__name__] = function
    function.__prepare_scriptable__ = lambda: original  # type: ignore[attr-defined]
    return function


def is_patched(name: str) -> bool:
    """Whether the function of ``ce`` replaces torch's."""
    return getattr(F, name) is _replacements[name]


def is_patched_in_transform(name: str) -> bool:
    """Whether torch's own function must run, which has rules for transforms; the function of ``ce`` that replaces it
    has none."""
    return (forward_ad._current_level >= 0 or _are_functorch_transforms_active()) and is_patched(name)


def refuse_functorch(name: str, instead: str | None = None) -> None:
    if _are_functorch_transforms_active():
        raise RuntimeError(
            f"ce.torch.{name} does not support the transforms of torch.func (grad, vmap, jvp, ...); "
            f"call torch.nn.functional.{instead or name} inside of them instead"
        )


def has_tangents() -> bool:
    """Whether tensors may have tangents: inside of ``torch.autograd.forward_ad.dual_level`` and ``torch.func.jvp``."""
    return forward_ad._current_level >= 0


def refuse_tangents(name: str, *tensors: Tensor | None, instead: str | None = None) -> None:
    """Raises in forward mode, which has no rule: tangents would be lost."""
    if forward_ad._current_level < 0:
        return
    for tensor in tensors:
        if tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None:
            raise RuntimeError(
                f"ce.torch.{name} does not support derivatives in forward mode; "
                f"call torch.nn.functional.{instead or name} for them instead"
            )
