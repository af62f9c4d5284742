"""The contexts and streams of :mod:`ce.array`."""

from __future__ import annotations

import ctypes
import operator
import os
import threading
import weakref
from ctypes import byref, c_int32, c_void_p
from types import TracebackType
from typing import Any

from ce import _c


def _shown(value: Any) -> str:
    is_array = hasattr(value, "__len__") and not isinstance(value, (str, bytes))
    return f"of type {type(value).__name__}" if is_array else repr(value)


def _index(value: Any) -> int | None:
    """The value, if it is an integer."""
    try:
        return operator.index(value)
    except (TypeError, ValueError):  # has several elements, or no memory
        return None


def require_integer(where: str, value: Any) -> int:
    """The value, which must be an integer of 64 bits."""
    found = _index(value)
    if found is None:
        raise TypeError(f"{where} is {_shown(value)}; expected an integer")
    if not -(2**63) <= found < 2**63:
        raise ValueError(f"{where} is {found}; expected an integer of 64 bits")
    return found


def require_number(where: str, value: Any) -> float:
    """The value, which must be a real number."""
    try:
        if hasattr(value, "__float__"):
            return float(value)
    except (TypeError, ValueError, RuntimeError):  # has several elements, or no memory
        pass
    except OverflowError:
        raise ValueError(f"{where} is {value}; expected a number of 64 bits") from None
    raise TypeError(f"{where} is {_shown(value)}; expected a number")


def stream_handle(where: str, stream: Any) -> int:
    """A CUDA stream as a number; 0 is the legacy default stream."""
    if stream is None:
        return 0
    found = stream
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        found = (protocol() if callable(protocol) else protocol)[1]
    else:
        for attribute in ("ptr", "cuda_stream", "handle"):
            if hasattr(stream, attribute):
                found = getattr(stream, attribute)
                break
    if isinstance(found, c_void_p):
        found = found.value or 0
    handle = None if isinstance(found, bool) else _index(found)
    if handle is None:
        raise TypeError(f"{where}: stream is {_shown(stream)}; expected a CUDA stream or its address")
    if not 0 <= handle < 2**64:
        raise ValueError(f"{where}: stream is {handle}; expected the address of a CUDA stream, 0 or more")
    return handle


class Context:
    """A device, a database and the kernels chosen so far. Threads may share one.

    Close it when no call uses it and its work is done; a ``with`` block and the end of the process close it, too. A
    child of ``fork()`` makes its own.

    Args:
        device: "cuda", "cuda:1" or "host"; None: as the environment variable CE_DEVICE says, else the current GPU.
        database: the file of the tuning database; None: CE_DB, else ``~/.local/share/ce/ce.db``.
        policy: "tune", "lookup", "frozen" or "background"; "default": CE_POLICY, else "tune".
        tuning_seconds: that tuning a problem may take; 0: no bound; None: 2 on a GPU.
        scratch_bytes: device memory that tuning may take for a while; 0: a quarter of what is free, 2 GiB at most.
        capture_bytes: device memory set aside for calls that are captured into CUDA graphs.
        nondeterministic_products: those of linear layers may also add up parts of their sums in the order in which
            these end: other bits each time. Also CE_NONDETERMINISTIC_PRODUCTS=1.

    Raises:
        ValueError, TypeError: an option that means nothing.
        RuntimeError: the device does not exist or is too old, or there is no GPU and the caller did not ask for the
            host device.
        MemoryError: memory of the device is short.
    """

    device: str
    """ "cuda:0" or "host"."""

    def __init__(
        self,
        device: str | None = None,
        *,
        database: str | os.PathLike[str] | None = None,
        policy: str = "default",
        tuning_seconds: float | None = None,
        scratch_bytes: int = 0,
        capture_bytes: int = 8 << 20,
        nondeterministic_products: bool = False,
    ) -> None:
        where = "ce.array.Context: "
        if device is not None and not isinstance(device, str):
            raise TypeError(f"{where}device is {device!r}; expected 'cuda', 'cuda:N' or 'host'")
        if policy not in tuple(_c.POLICIES):
            raise ValueError(f"{where}policy is {policy!r}; expected one of {', '.join(_c.POLICIES)}")
        if database is not None and not isinstance(database, (str, os.PathLike)):
            raise TypeError(f"{where}database is {database!r}; expected a path")
        if not isinstance(nondeterministic_products, bool):
            raise TypeError(
                f"{where}nondeterministic_products is {nondeterministic_products!r}; expected True or False"
            )
        options = _c.ContextOptions(
            device=None if device is None else device.encode(),
            database=None if database is None else os.fsencode(database),
            tuning_seconds=-1.0 if tuning_seconds is None else require_number(where + "tuning_seconds", tuning_seconds),
            scratch_bytes=require_integer(where + "scratch_bytes", scratch_bytes),
            capture_bytes=require_integer(where + "capture_bytes", capture_bytes),
            policy=_c.POLICIES[policy],
            nondeterministic_products=nondeterministic_products,
        )
        made = c_void_p()
        _c.require(_c.library().ce_context_create(byref(options), byref(made)))
        self._handle = made
        self._destroy = weakref.finalize(self, _destroy, made.value or 0, os.getpid())
        text = ctypes.create_string_buffer(32)
        _c.require(_c.library().ce_device_name(made, text, len(text)))
        self.device = text.value.decode()
        if self.device == "host" and not device and not host_is_asked_for():
            self.close()
            raise RuntimeError(f"{where}there is no GPU; for tests, the device 'host' runs kernels on the CPU")

    @property
    def handle(self) -> c_void_p:
        """The handle for the C interface. Raises ValueError if the Context was closed."""
        if not self._handle:
            raise ValueError("ce.array.Context: the Context was closed")
        return self._handle

    @property
    def compiled(self) -> int:
        """Number of kernels that it had to compile."""
        count = c_int32()
        _c.require(_c.library().ce_compiled(self.handle, byref(count)))
        return count.value

    def check(self) -> None:
        """Waits for the default stream, and raises IndexError if a target was out of range since the last check."""
        _c.require(_c.library().ce_check_all(self.handle, None))

    def synchronize(self, stream: Any = None) -> None:
        """Waits for a stream."""
        _c.require(_c.library().ce_synchronize(self.handle, stream_handle("ce.array.Context.synchronize", stream)))

    def close(self) -> None:
        """Frees the context. Enqueued work must have ended. Closing it again does nothing."""
        self._handle = c_void_p()
        self._destroy()

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _destroy(handle: int, process: int) -> None:
    if process == os.getpid():  # a child of fork() must not free it
        _c.library().ce_context_destroy(handle)


_contexts: dict[str, Context] = {}
_lock = threading.Lock()


def default_context(device: str) -> Context:
    """The Context of a device for calls without one; lives as long as the process."""
    known = _contexts.get(device)
    if known is not None:
        return known
    with _lock:
        if device not in _contexts:
            _contexts[device] = Context(device)
        return _contexts[device]


def host_is_asked_for() -> bool:
    """Whether the environment variable CE_DEVICE asks for the host device."""
    return os.environ.get("CE_DEVICE") == "host"


def check(device: str = "cuda:0") -> None:
    """Calls :meth:`Context.check` of the default Context of a device."""
    default_context(device).check()


def _forget() -> None:
    """Called in a child of fork(): another thread of the parent may have held the lock."""
    global _lock
    _lock = threading.Lock()
    _contexts.clear()


os.register_at_fork(after_in_child=_forget)
