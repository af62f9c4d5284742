"""Sends the functions of ``torch.nn.functional`` through ``ce``."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

import torch.nn.functional as F

from ce.torch import functional

__all__ = ["patch", "unpatch"]

_NAMES = ("cross_entropy", "softmax", "log_softmax")
_originals = {name: getattr(F, name) for name in _NAMES}
_lock = threading.Lock()


class Patch:
    """What :func:`patch` returns: ``with ce.torch.patch(): ...`` undoes it at the end of the block."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._before = {name: getattr(F, name) for name in names}

    def __enter__(self) -> Patch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _lock:
            for name, function in self._before.items():
                setattr(F, name, function)


def patch(*names: str) -> Patch:
    """Replaces ``torch.nn.functional.cross_entropy``, ``softmax`` and ``log_softmax``, and so what modules of
    ``torch.nn`` call, by those of ``ce``, for the whole process.

    They mean the same. What ``ce`` has no kernels or rules for still runs in torch: the CPU, float64, the transforms of
    ``torch.func``, derivatives in forward mode. Those of a second order are refused.

    Args:
        names: which of the three; none: all.

    Returns:
        A context manager that puts back what was there before; :func:`unpatch` puts back torch's own.

    Raises:
        ValueError: another name.
    """
    for name in names:
        if name not in _NAMES:
            raise ValueError(f"ce.torch.patch: name is {name!r}; expected one of {', '.join(_NAMES)}")
    chosen = names or _NAMES
    with _lock:
        undo = Patch(chosen)
        for name in chosen:
            setattr(F, name, getattr(functional, name))
    return undo


def unpatch() -> None:
    """Puts back torch's own functions. Does nothing where they are there."""
    with _lock:
        for name, function in _originals.items():
            setattr(F, name, function)


def original(name: str) -> Any:
    """torch's own function, also while it is patched."""
    return _originals[name]
