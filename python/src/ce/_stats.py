"""What the library has done in this process."""

from __future__ import annotations

from ctypes import byref
from typing import NamedTuple

from ce import _c


class Stats(NamedTuple):
    """Counts of the process, over all contexts, devices and threads, since it began."""

    calls: int
    """Calls of operations, those that failed included."""
    known: int
    """Of these, launched without asking which kernel."""
    tuned: int
    """Problems that were tuned."""
    fallback: int
    """Problems that got a kernel without a winner; one that got several counts each time."""
    compiled: int
    """Kernels that were compiled."""
    waited: int
    """Calls that waited for another thread or process that tuned their problem."""
    errors: int
    """Calls that failed."""


def stats() -> Stats:
    """What the library has done in this process so far.

    The environment variable CE_STATS names a file that gets the same numbers as Prometheus text every few seconds.

    Returns:
        The counts; those of an interval are the differences of two.

    Raises:
        ImportError: the package has no library.
    """
    counts = _c.Stats()
    _c.require(_c.library().ce_get_stats(byref(counts)))
    return Stats(*(getattr(counts, name) for name in Stats._fields))
