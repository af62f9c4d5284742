"""The arrays of a call of :mod:`ce.array`, in the form of the C interface."""

from __future__ import annotations

import ctypes
import re
from contextlib import ExitStack
from ctypes import byref
from types import TracebackType
from typing import Any

from ce import _c
from ce._contexts import Context, default_context, host_is_asked_for, stream_handle
from ce._dlpack import Array

__all__ = ["Call"]

# Codes of DLPack: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool.
_DTYPES = {
    (2, 32, 1): _c.F32,
    (2, 16, 1): _c.F16,
    (4, 16, 1): _c.BF16,
    (0, 32, 1): _c.I32,
    (0, 64, 1): _c.I64,
    (1, 8, 1): _c.U8,
    (6, 8, 1): _c.U8,
}


def _dtype_text(code: int, bits: int, lanes: int) -> str:
    """The name of a DLPack dtype."""
    kinds = ("int", "uint", "float", "handle", "bfloat", "complex", "bool")
    text = f"{kinds[code]}{bits}" if code < len(kinds) else f"the DLPack dtype {code} of {bits} bits"
    return text if lanes == 1 else f"{text} in vectors of {lanes}"


class Call:
    """The arrays of one call: borrowed, on one device, in the form of the C interface."""

    def __init__(self, operation: str, context: Context | None, stream: Any) -> None:
        self._where = f"ce.array.{operation}"
        if context is not None and not isinstance(context, Context):
            raise TypeError(f"{self._where}: context is {context!r}; expected a ce.array.Context")
        self.operation, self.stream = operation, stream_handle(self._where, stream)
        self._context = context
        self._stack = ExitStack()
        self._borrowed: list[Array] = []
        self._shape: tuple[int, ...] | None = None

    def __enter__(self) -> Call:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the first array without its last axis."""
        assert self._shape is not None
        return self._shape[:-1]

    @property
    def columns(self) -> int:
        """The last size of the first array."""
        assert self._shape is not None
        return self._shape[-1]

    def borrow(self, name: str, array: Any, is_written: bool = False) -> Array:
        """Borrows an array until the end of the call."""
        borrowed = self._stack.enter_context(Array(f"{self._where}: {name}", array, self.stream))
        where = borrowed.name
        if is_written and borrowed.is_read_only:
            raise ValueError(f"{where} cannot be written; expected an array that is not read-only (JAX's always are)")
        if is_written and borrowed.is_copied:
            raise ValueError(f"{where} cannot be written; expected an array that does not export a copy of itself")
        if borrowed.dtype not in _DTYPES:
            raise TypeError(
                f"{where} is of {_dtype_text(*borrowed.dtype)}; expected float32, float16, bfloat16, or integers"
            )
        if self._borrowed and borrowed.device != self._borrowed[0].device:
            raise ValueError(f"{where} is on {borrowed.device}; expected {self._borrowed[0].device}, like the others")
        self._borrowed.append(borrowed)
        return borrowed

    def rows(self, name: str, array: Any, is_written: bool = False) -> Any:
        """[..., columns] as rows; the sizes must equal those of the first array."""
        if array is None and self._shape is not None:  # the first array is required
            return None
        return self._rows(self.borrow(name, array, is_written))

    def _rows(self, borrowed: Array) -> Any:
        where = borrowed.name
        if self._shape is None:
            self._shape = borrowed.shape
        if not borrowed.shape:
            raise ValueError(f"{where} has no axis; expected an axis of classes")
        _require_sizes(borrowed, self._shape)
        groups: list[tuple[int, int]] = []
        for size, stride in zip(borrowed.shape[:-1], borrowed.strides[:-1]):
            if size == 1:
                continue
            if groups and groups[-1][1] == stride * size:
                groups[-1] = (groups[-1][0] * size, stride)
            else:
                groups.append((size, stride))
        if len(groups) > 2:
            raise ValueError(f"{where} has rows with three strides or more; expected at most two: copy the array first")
        columns = borrowed.shape[-1]
        view = _c.Tensor(
            data=borrowed.data,
            dtype=_DTYPES[borrowed.dtype],
            rows=1,
            columns=columns,
            row_stride=_c.CONTIGUOUS,
            column_stride=borrowed.strides[-1] if columns > 1 else 1,
        )
        if 0 in borrowed.shape[:-1]:
            view.rows = 0
            return ctypes.pointer(view)
        if groups:
            view.rows, view.row_stride = groups[-1]
        if len(groups) == 2:
            view.batch_rows, view.batch_stride = view.rows, groups[0][1]
            view.rows *= groups[0][0]
        return ctypes.pointer(view)

    def vector(self, name: str, array: Any, sizes: tuple[int, ...], is_written: bool = False) -> Any:
        """An array of these sizes as a vector."""
        if array is None:
            return None
        borrowed = self.borrow(name, array, is_written)
        _require_sizes(borrowed, sizes)
        return self._vector(borrowed)

    def _vector(self, borrowed: Array) -> Any:
        count = 1
        for size, stride in zip(reversed(borrowed.shape), reversed(borrowed.strides)):
            if size != 1 and stride != count and 0 not in borrowed.shape:
                raise ValueError(f"{borrowed.name} has gaps; expected one element after the other")
            count *= size
        view = _c.Tensor(
            data=borrowed.data,
            dtype=_DTYPES[borrowed.dtype],
            rows=count,
            columns=1,
            row_stride=_c.CONTIGUOUS,
            column_stride=1,
        )
        return ctypes.pointer(view)

    def one(self, name: str, array: Any, is_written: bool = False) -> Any:
        """An array of one element as a vector."""
        if array is None:
            return None
        borrowed = self.borrow(name, array, is_written)
        if borrowed.count != 1:
            raise ValueError(f"{borrowed.name} has sizes {borrowed.shape}; expected one element")
        return self._vector(borrowed)

    def result(self, name: str, array: Any, reduction: str) -> Any:
        """The output of a loss as a vector: one element for each row, or one."""
        if reduction == "none":
            return self.vector(name, array, self.sizes, is_written=True)
        return self.one(name, array, is_written=True)

    def target(self, array: Any) -> Any:
        """Class indices as a vector, probabilities as rows."""
        borrowed = self.borrow("target", array)
        if borrowed.is_floating:
            return self._rows(borrowed)
        _require_sizes(borrowed, self.sizes)
        return self._vector(borrowed)

    def upstream(self, array: Any) -> Any:
        """An upstream gradient as a vector: one element for each row, or one."""
        if array is None:
            return None
        borrowed = self.borrow("upstream", array)
        if borrowed.count != 1:
            _require_sizes(borrowed, self.sizes)
        return self._vector(borrowed)

    def _chosen_context(self) -> Context:
        first = self._borrowed[0]
        if not first.is_on_cpu and not first.is_on_gpu:
            raise ValueError(f"{self._where}: the arrays are on {first.device}; expected CUDA")
        if self._context is not None:
            if self._context.device != first.device:
                raise ValueError(
                    f"{self._where}: the arrays are on {'the CPU' if first.is_on_cpu else first.device}; "
                    f"expected those of the Context's device, {self._context.device}"
                )
            return self._context
        if first.is_on_cpu and not host_is_asked_for():
            raise ValueError(
                f"{self._where}: the arrays are on the CPU; expected a GPU, or a Context of the device 'host'"
            )
        return default_context(first.device)

    def run(self, tensors: _c.Sized, options: _c.Sized | None = None, out: str | None = None) -> None:
        """Enqueues the operation.

        Args:
            out: the C interface's name of the tensor that callers give as `out`, for errors.
        """
        function = getattr(_c.library(), f"ce_{self.operation}")
        given = None if options is None else byref(options)
        context = self._chosen_context()
        if function(context.handle, given, byref(tensors), self.stream, None) != _c.SUCCESS:
            error = _c.last_error()
            is_of_out = out is not None and type(error) in (TypeError, ValueError)
            raise type(error)(re.sub(rf"\b{out}\b", "out", str(error))) if is_of_out else error
        if any(array.is_copied for array in self._borrowed):  # a copy only lives until the end of the call
            context.synchronize(self.stream)


def _require_sizes(array: Array, sizes: tuple[int, ...]) -> None:
    if array.shape != sizes:
        raise ValueError(f"{array.name} has sizes {array.shape}; expected {sizes}")
