"""Arrays of other libraries by the DLPack protocol: https://dmlc.github.io/dlpack/latest/python_spec.html"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from math import prod
from types import TracebackType
from typing import Any

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
READ_ONLY, IS_COPIED = 1, 2  # bits of the DLPack flags


class _Device(Structure):
    _fields_ = [("type", c_int32), ("id", c_int32)]


class _DType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class _Tensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", _Device),
        ("ndim", c_int32),
        ("dtype", _DType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, c_void_p)


class _Managed(Structure):
    _fields_ = [("tensor", _Tensor), ("context", c_void_p), ("deleter", c_void_p)]


class _ManagedVersioned(Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    ]


def _capsule_function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_is_valid = _capsule_function("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_pointer = _capsule_function("PyCapsule_GetPointer", c_void_p, ctypes.py_object, ctypes.c_char_p)
_rename = _capsule_function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)

# A capsule stores a pointer to its name, not a copy
_KINDS = (
    (b"dltensor_versioned", b"used_dltensor_versioned", _ManagedVersioned),
    (b"dltensor", b"used_dltensor", _Managed),
)


class Array:
    """An array of another library, borrowed until :meth:`release`: its memory and its type.

    Args:
        name: name of the function and the argument, for messages: "ce.array.softmax: input".
        array: an object with ``__dlpack__`` and ``__dlpack_device__``.
        stream: the CUDA stream, as an integer, on which the contents must be ready; unused on the CPU.

    Raises:
        TypeError: the object does not have these methods.
        ValueError: its library does not export it, or exports it with an unknown version of the protocol.
    """

    def __init__(self, name: str, array: Any, stream: int) -> None:
        self._deleter: Callable[[int], None] | None = None
        if not hasattr(array, "__dlpack__") or not hasattr(array, "__dlpack_device__"):
            raise TypeError(f"{name} is a {type(array).__name__}; expected an array with __dlpack__")
        self.name = name
        try:
            self.device_type, self.device_id = (int(part) for part in array.__dlpack_device__())
            # DLPack does not allow 0; 1 is the legacy default stream.
            options: dict[str, Any] = {} if self.is_on_cpu else {"stream": stream or 1}
            try:
                capsule = array.__dlpack__(max_version=(1, 0), **options)
            except TypeError:  # a version before 1
                capsule = array.__dlpack__(**options)
        except (BufferError, RuntimeError, ValueError) as error:
            raise ValueError(f"{name} cannot be exported through DLPack by its library: {error}") from error
        for kind, used, struct in _KINDS:
            if _is_valid(capsule, kind):
                self._take(capsule, kind, used, struct)
                break
        else:
            raise TypeError(f"{name}: its __dlpack__ returned no DLPack capsule")
        # JAX arrays are immutable, but do not set the flag.
        self.is_read_only = bool(self._flags & READ_ONLY) or type(array).__module__.split(".")[0] in ("jax", "jaxlib")

    @property
    def is_on_cpu(self) -> bool:
        """Whether the array is in CPU memory, pinned or not."""
        return self.device_type in (CPU, CUDA_HOST)

    @property
    def is_on_gpu(self) -> bool:
        """Whether the array is on a CUDA GPU."""
        return self.device_type in (CUDA, CUDA_MANAGED)

    @property
    def device(self) -> str:
        """The device's name: "host", "cuda:0", or another name for messages."""
        if self.is_on_cpu:
            return "host"
        return f"cuda:{self.device_id}" if self.is_on_gpu else f"DLPack's device {self.device_type}"

    @property
    def is_floating(self) -> bool:
        """Whether the elements are float or bfloat."""
        return self.dtype[0] in (2, 4)

    @property
    def count(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    def _take(self, capsule: Any, kind: bytes, used: bytes, struct: type[Structure]) -> None:
        address = _pointer(capsule, kind)
        managed = struct.from_address(address)
        _rename(capsule, used)  # this object owns it from here on
        self._address = address
        if managed.deleter:
            self._deleter = _Deleter(managed.deleter)
        self._flags = int(getattr(managed, "flags", 0))
        self.is_copied = bool(self._flags & IS_COPIED)
        if struct is _ManagedVersioned and managed.major != 1:
            self.release()
            raise ValueError(f"{self.name} is of version {managed.major} of DLPack; expected 1")
        tensor = managed.tensor
        self.data = (tensor.data or 0) + tensor.byte_offset
        self.shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
        self.dtype = (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes)
        if tensor.strides and 0 not in self.shape:  # strides of an empty array have no meaning
            self.strides = tuple(tensor.strides[i] for i in range(tensor.ndim))
        else:
            strides, next_stride = [], 1
            for size in reversed(self.shape):
                strides.append(next_stride)
                next_stride *= size
            self.strides = tuple(reversed(strides))

    def release(self) -> None:
        """Releases the array; only the first call has an effect."""
        deleter, self._deleter = self._deleter, None
        if deleter is not None:
            deleter(self._address)

    def __enter__(self) -> Array:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()
