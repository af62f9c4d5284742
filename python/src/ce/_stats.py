"""Counters of the library in this process."""

from __future__ import annotations

from ctypes import byref
from typing import NamedTuple

from ce import _c


class Stats(NamedTuple):
    """Counters of the process, over all contexts, devices and threads, since it started."""

    calls: int
    """Calls of operations, including failed ones."""
    known: int
    """Those of them that launched without looking up a kernel."""
    tuned: int
    """Problems that were tuned."""
    fallback: int
    """Times that a problem got a kernel without a winner."""
    compiled: int
    """Kernels that were compiled."""
    waited: int
    """Calls that waited for another thread or process to tune their problem."""
    errors: int
    """Calls that failed."""


def stats() -> Stats:
    """Reads the counters of the library in this process.

    The environment variable CE_STATS names a file that gets the same numbers as Prometheus text every few seconds.

    Returns:
        The counters so far; subtract two results for those of an interval.

    Raises:
        ImportError: the package has no library.
    """
    counts = _c.Stats()
    _c.require(_c.library().ce_get_stats(byref(counts)))
    return Stats(*(getattr(counts, name) for name in Stats._fields))
