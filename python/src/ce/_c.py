"""``libce_c.so`` through ctypes, as far as the package needs it: see ``ce.h`` for what each function does."""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any

from ce import _files

SUCCESS = 0
INVALID_ARGUMENT, TARGET_OUT_OF_RANGE, OUT_OF_MEMORY, OUT_OF_HOST_MEMORY = 1, 7, 10, 11
NOT_FOUND, NOT_TUNED = 6, 12

POLICIES = {"default": 0, "tune": 1, "lookup": 2, "frozen": 3, "background": 4}
REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
F32, F16, BF16, I32, I64, U8 = range(6)
CONTIGUOUS = -(2**63)


class NotTuned(LookupError):
    """The policy is ``frozen`` and the database has no winner for the problem."""


class Tensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("dtype", c_int32),
        ("rows", c_int64),
        ("columns", c_int64),
        ("row_stride", c_int64),
        ("column_stride", c_int64),
        ("batch_rows", c_int64),
        ("batch_stride", c_int64),
    ]


class Sized(Structure):
    """A struct that begins with its own size."""

    def __init__(self, **values: Any) -> None:
        super().__init__(struct_size=ctypes.sizeof(type(self)), **values)


class ContextOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("device", c_char_p),
        ("database", c_char_p),
        ("tuning_seconds", c_double),
        ("scratch_bytes", c_int64),
        ("capture_bytes", c_int64),
        ("policy", c_int32),
        ("nondeterministic_products", c_int32),
        ("allocate", c_void_p),
        ("release", c_void_p),
        ("allocator_state", c_void_p),
    ]

    def __init__(self, **values: Any) -> None:
        super().__init__(**{"tuning_seconds": -1.0, "capture_bytes": 8 << 20, **values})


class PeerMemoryOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("rank", c_int32),
        ("ranks", c_int32),
        ("bytes", c_int64),
        ("patience", c_double),
    ]

    def __init__(self, **values: Any) -> None:
        super().__init__(**{"patience": 600.0, **values})


class Stats(Sized):
    _fields_ = [("struct_size", c_size_t)] + [
        (name, c_uint64) for name in ("calls", "known", "tuned", "fallback", "compiled", "waited", "errors")
    ]


class ErrorDetails(Sized):
    _fields_ = [("struct_size", c_size_t), ("status", c_int32), ("code", c_int32)] + [
        (name, c_char_p)
        for name in (
            "message",
            "place",
            "operation",
            "argument",
            "value",
            "expected",
            "call",
            "log",
            "source_path",
            "problems",
        )
    ]


class BadTargets(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("count", c_int64),
        ("first_row", c_int64),
        ("first_target", c_int64),
        ("has_first_target", c_int32),
        ("reserved", c_int32),
    ]


def tensors(*names: str) -> type[Sized]:
    """The type of a struct with these tensors."""
    fields = [("struct_size", c_size_t), *((name, POINTER(Tensor)) for name in names)]
    return type("Tensors", (Sized,), {"_fields_": fields})


def loss_options(*amounts: str) -> type[Sized]:
    """The type of a struct of cross entropy's options with these amounts."""
    fields = [("struct_size", c_size_t), ("ignore_index", c_int64), ("reduction", c_int32)]
    return type("LossOptions", (Sized,), {"_fields_": [*fields, *((name, c_float) for name in amounts)]})


@functools.cache
def library() -> ctypes.CDLL:
    """Loads the library and declares the functions that the package uses."""
    loaded = ctypes.CDLL(str(_files.library("libce_c.so")))
    loaded.ce_version.restype = c_char_p
    loaded.ce_last_error.restype = c_char_p
    loaded.ce_last_error_details.argtypes = [POINTER(ErrorDetails)]
    loaded.ce_last_error_details.restype = None
    loaded.ce_context_create.argtypes = [POINTER(ContextOptions), POINTER(c_void_p)]
    loaded.ce_context_destroy.argtypes = [c_void_p]
    loaded.ce_context_destroy.restype = None
    loaded.ce_get_stats.argtypes = [POINTER(Stats)]
    loaded.ce_check.argtypes = [c_void_p, c_void_p, POINTER(BadTargets)]
    loaded.ce_check_all.argtypes = [c_void_p, POINTER(BadTargets)]
    loaded.ce_compiled.argtypes = [c_void_p, POINTER(c_int32)]
    loaded.ce_synchronize.argtypes = [c_void_p, c_void_p]
    for name in (
        "softmax",
        "log_softmax",
        "softmax_backward",
        "log_softmax_backward",
        "cross_entropy",
        "cross_entropy_backward",
    ):
        # context, options, tensors, stream, choice
        getattr(loaded, f"ce_{name}").argtypes = [c_void_p, c_void_p, c_void_p, c_void_p, POINTER(c_void_p)]
    loaded.ce_peer_memory_bytes_for.argtypes = [c_int32, c_int64, c_int64, POINTER(c_int64)]
    loaded.ce_peer_memory_create.argtypes = [c_void_p, POINTER(PeerMemoryOptions), POINTER(c_void_p)]
    loaded.ce_peer_memory_destroy.argtypes = [c_void_p]
    loaded.ce_peer_memory_destroy.restype = None
    loaded.ce_peer_memory_give_up.argtypes = [c_void_p]
    loaded.ce_peer_memory_give_up.restype = None
    loaded.ce_peer_memory_describe.argtypes = [c_void_p, c_void_p]
    loaded.ce_peer_memory_connect.argtypes = [c_void_p, c_void_p, c_size_t]
    for name in ("config", "reason", "key"):
        text = getattr(loaded, f"ce_choice_{name}")
        text.argtypes, text.restype = [c_void_p], c_char_p
    loaded.ce_choice_origin.argtypes = [c_void_p]
    loaded.ce_use.argtypes = [c_void_p, c_char_p, c_char_p]
    return loaded


def last_error() -> Exception:
    """The calling thread's latest failure, as an exception of the usual Python type."""
    details = ErrorDetails()
    library().ce_last_error_details(ctypes.byref(details))
    message = "ce: " + (details.message or b"unknown failure").decode(errors="replace")
    status = details.status
    if status == INVALID_ARGUMENT:
        is_type = (details.argument or b"").endswith(b".dtype")
        return TypeError(message) if is_type else ValueError(message)
    if status == TARGET_OUT_OF_RANGE:
        return IndexError(message)
    if status == NOT_TUNED:
        return NotTuned(message)
    if status == NOT_FOUND:
        return LookupError(message)
    if status in (OUT_OF_MEMORY, OUT_OF_HOST_MEMORY):
        return MemoryError(message)
    return RuntimeError(message)


def require(status: int) -> None:
    """Raises the error of a status."""
    if status != SUCCESS:
        raise last_error()
