"""Softmax and cross entropy kernels that tune themselves to the GPU and the shape.

``ce.torch`` is for PyTorch; ``ce.array`` takes arrays of any library through DLPack; ``python -m ce`` is ``ce-tune``.
Importing ``ce`` alone loads no library and no framework.
"""

from importlib import import_module as _import_module
from types import ModuleType as _ModuleType

from ce._version import __version__

__all__ = ["__version__", "array", "torch"]


def __getattr__(name: str) -> _ModuleType:
    if name in ("array", "torch"):
        return _import_module(f"ce.{name}")
    raise AttributeError(f"module 'ce' has no attribute {name!r}")
