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


class _Wanted:
    """The patches of one function of torch. Guarded by the lock."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.patches = 0
        """Number of patches that are not undone yet."""
        self.before: Any = None
        """The function that the first of them replaced, which is restored after the last."""
        self.times_unpatched = 0

    def add(self) -> int:
        """Adds a patch. Returns the argument of :meth:`remove`."""
        if self.patches == 0:
            self.before = getattr(F, self.name)
        self.patches += 1
        setattr(F, self.name, getattr(functional, self.name))
        return self.times_unpatched

    def remove(self, added: int) -> None:
        """Undoes one patch, unless :func:`unpatch` has done so."""
        if added != self.times_unpatched:
            return
        self.patches -= 1
        if self.patches == 0:
            setattr(F, self.name, self.before)
            self.before = None

    def remove_all(self) -> None:
        self.patches, self.before = 0, None
        self.times_unpatched += 1
        setattr(F, self.name, _originals[self.name])


_wanted = {name: _Wanted(name) for name in _NAMES}


class Patch:
    """What :func:`patch` returns: ``with ce.torch.patch(): ...`` undoes it at the end of the block, once."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._added = {name: _wanted[name].add() for name in dict.fromkeys(names)}

    def __enter__(self) -> Patch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _lock:
            while self._added:
                name, added = self._added.popitem()
                _wanted[name].remove(added)


def patch(*names: str) -> Patch:
    """Replaces ``torch.nn.functional.cross_entropy``, ``softmax`` and ``log_softmax``, and so also modules of
    ``torch.nn``, by those of ``ce``, for the whole process.

    They have the same meaning. Calls for which ``ce`` has no kernels or rules still run in torch: on the CPU, in
    float64, of class weights of another dtype beside probabilities, in ``torch.jit.script``, in transforms of
    ``torch.func`` (but for ``vmap`` of softmax without a gradient), and derivatives in forward mode. Second derivatives
    are refused.

    Args:
        names: which of the three; none: all.

    Returns:
        A context manager that undoes this patch. If patches overlap, in one thread or in several, the original
        functions are restored after the last one. :func:`unpatch` undoes all.

    Raises:
        ValueError: another name.
    """
    for name in names:
        if name not in _NAMES:
            raise ValueError(f"ce.torch.patch: name is {name!r}; expected one of {', '.join(_NAMES)}")
    chosen = names or _NAMES
    with _lock:
        return Patch(chosen)


def unpatch() -> None:
    """Restores torch's own functions, whichever code has patched them. Does nothing if they are not patched."""
    with _lock:
        for wanted in _wanted.values():
            wanted.remove_all()


def original(name: str) -> Any:
    """torch's own function, also while it is patched."""
    return _originals[name]
