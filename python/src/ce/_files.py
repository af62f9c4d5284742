"""Paths of the package's own files."""

from __future__ import annotations

import os
from pathlib import Path


def package() -> Path:
    """The folder of the package's binaries: ``ce/`` itself, or CE_PYTHON_BINARIES for work on ``ce``."""
    return Path(os.environ.get("CE_PYTHON_BINARIES") or Path(__file__).parent)


def library(name: str) -> Path:
    """A shared library of the package; its file name may end in its version.

    Raises:
        ImportError: it is not there: the package was not built.
    """
    folder = package() / "lib"
    found = sorted(folder.glob(name + "*"))
    if not found:
        raise ImportError(f"ce: {folder / name} does not exist; build the package with `pip install ./python`")
    return found[0]


def command() -> Path:
    """``ce-tune``.

    Raises:
        ImportError: it is not there.
    """
    path = package() / "bin" / "ce-tune"
    if not path.is_file():
        raise ImportError(f"ce: {path} does not exist; build the package with `pip install ./python`")
    return path
