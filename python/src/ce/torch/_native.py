"""Loads the package's libraries once: the operators ``torch.ops.ce.*`` and the contexts behind them."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import re
from collections.abc import Callable, Iterator
from ctypes import POINTER, c_int32, c_int64, c_void_p
from typing import Any, NamedTuple, NoReturn

import torch

from ce import _c, _files

# Libraries that libce_torch.so needs are found in any folder.
_c.library()
_path = str(_files.library("libce_torch.so"))
torch.ops.load_library(_path)
operators = torch.ops.ce

_library = ctypes.CDLL(_path)
_library.ce_torch_configure.argtypes = [POINTER(_c.ContextOptions)]
_library.ce_torch_context.argtypes = [c_int32]
_library.ce_torch_context.restype = c_void_p
_library.ce_torch_check.argtypes = [c_int32]
_library.ce_torch_allocated.argtypes = [c_int32]
_library.ce_torch_allocated.restype = c_int64
_library.ce_torch_begin_choosing.argtypes = []
_library.ce_torch_begin_choosing.restype = None
_library.ce_torch_end_choosing.argtypes = [POINTER(ctypes.c_char_p)]
_library.ce_torch_end_choosing.restype = None
_library.ce_torch_shutdown.argtypes = []
_library.ce_torch_shutdown.restype = None
_library.ce_torch_last_refusal.argtypes = [POINTER(ctypes.c_char_p)]
_library.ce_torch_last_refusal.restype = c_int32
_REFUSALS: dict[int, type[Exception]] = {1: ValueError, 2: IndexError, 3: TypeError, 4: torch.OutOfMemoryError}
# The parts of losses of ranks; Python calls them through one function.
_OF_RANKS = re.compile(r"^ce: CrossEntropy(Shard|ShardBackward|Merge|Exchange): ")
atexit.register(_library.ce_torch_shutdown)


def _free_memory(device: int, total: Any) -> int:
    """Free bytes on a GPU, including memory that torch has cached there. An exception is printed, and the caller gets
    0."""
    free, _ = torch.cuda.mem_get_info(device)
    total[0] = free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return 1


_AskFreeMemory = ctypes.CFUNCTYPE(c_int32, c_int32, POINTER(c_int64))
_ask_free_memory = _AskFreeMemory(_free_memory)  # the library holds a pointer to it
_library.ce_torch_ask_free_memory.argtypes = [_AskFreeMemory]
_library.ce_torch_ask_free_memory.restype = None
_library.ce_torch_ask_free_memory(_ask_free_memory)

HOST = -1


def fast(operator: Any) -> Callable[..., Any]:
    """An operator's only overload without the Python layer around it, if torch has that."""
    overload = operator.default
    return getattr(overload, "_op", overload)


def register_fake(op: str, function: Callable[..., Any]) -> None:
    """Registers the fake implementation of an operator.

    Its tensors must be on one device: torch also calls it with one tensor on the device meta and real others.
    """
    names = [argument.name for argument in getattr(operators, op.removeprefix("ce::")).default._schema.arguments]

    def fake(*arguments: Any, **named: Any) -> Any:
        tensors = [
            (name, value) for name, value in [*zip(names, arguments), *named.items()] if isinstance(value, torch.Tensor)
        ]
        first, device = tensors[0][0], tensors[0][1].device
        for name, tensor in tensors:
            if tensor.device != device:
                raise ValueError(f"{op}: {name} is on {tensor.device}; expected {device}, the device of {first}")
        return function(*arguments, **named)

    torch.library.register_fake(op, fake)


def configure(options: _c.ContextOptions) -> None:
    """Sets the options of later contexts."""
    _c.require(_library.ce_torch_configure(ctypes.byref(options)))


def context(device: int) -> int:
    """The handle of a device's context, created at first use."""
    handle = _library.ce_torch_context(device)
    if not handle:
        raise _c.last_error()
    return int(handle)


def check(device: int) -> None:
    """Waits for the device and raises errors that kernels have met there, including those of contexts with other
    options."""
    context(device)  # raises an error if the context cannot be made
    _c.require(_library.ce_torch_check(device))


class Choice(NamedTuple):
    """The kernel that an operator runs."""

    key: str
    config: str
    row_us: float
    """Microseconds a row; 0: not known."""
    provisional: bool


@contextlib.contextmanager
def choosing() -> Iterator[list[Choice]]:
    """Operators on ranks that this thread calls inside choose their kernels and launch nothing.

    At the end the list contains their choices.
    """
    chosen: list[Choice] = []
    text = ctypes.c_char_p()
    _library.ce_torch_begin_choosing()
    try:
        yield chosen
    finally:
        _library.ce_torch_end_choosing(ctypes.byref(text))
        for line in (text.value or b"").decode().splitlines():
            key, config, row_us, provisional = line.split(" ")
            chosen.append(Choice(key, config, float(row_us), provisional == "1"))


def use(device: int, key: str, config: str) -> None:
    """Makes problems of the key run the config from now on, if the device can."""
    _c.require(_c.library().ce_use(context(device), key.encode(), config.encode()))


def allocated(device: int) -> int:
    """Bytes that ``ce`` currently holds from torch's allocator."""
    return int(_library.ce_torch_allocated(device))


def device_index(device: torch.device) -> int:
    """The number by which operators identify a device."""
    if device.type == "cpu":
        return HOST
    return torch.cuda.current_device() if device.index is None else device.index


def raise_from(error: Exception) -> NoReturn:
    """Raises an operator's error as the exception type that torch's users expect."""
    message = str(error)
    if not message.startswith("ce: "):
        raise error
    own = ctypes.c_char_p()
    refusal = _REFUSALS.get(_library.ce_torch_last_refusal(ctypes.byref(own)))
    if refusal is not None and own.value is not None and own.value.decode() in message:
        raise refusal(own.value.decode()) from None
    known = _c.last_error()
    if str(known) not in message:
        raise error
    if isinstance(known, MemoryError):
        raise torch.OutOfMemoryError(str(known)) from None
    if (of_ranks := _OF_RANKS.sub("ce.torch.vocab_parallel_cross_entropy: ", str(known))) != str(known):
        raise type(known)(of_ranks) from None
    raise known from None
