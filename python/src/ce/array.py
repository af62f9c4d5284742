"""Softmax and cross entropy of arrays of any library that speaks DLPack: CuPy, JAX, Numba, PyTorch, NumPy.

    import ce.array

    ce.array.softmax(x, out=y)                          # along the last axis, on the legacy default stream
    ce.array.cross_entropy(logits, target, loss=l, grad=g, stream=stream)

Outputs are the caller's arrays and are written where they are. A call enqueues and returns; arrays must live until the
stream is done. JAX arrays are immutable: they are read, not written. Arrays of the CPU are for the host device, which
is exact and slow, and only where a :class:`Context` of it or CE_DEVICE=host asks for it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from contextlib import ExitStack
from ctypes import byref, c_int32, c_void_p
from types import TracebackType
from typing import Any

from ce import _c
from ce._dlpack import CPU, CUDA, CUDA_HOST, CUDA_MANAGED, Array

__all__ = [
    "Context",
    "NotTuned",
    "check",
    "cross_entropy",
    "cross_entropy_backward",
    "log_softmax",
    "log_softmax_backward",
    "softmax",
    "softmax_backward",
]

NotTuned = _c.NotTuned

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


class Context:
    """A device, a database and the kernels chosen so far. Threads may share one.

    Args:
        device: "cuda", "cuda:1" or "host"; None: as the environment variable CE_DEVICE says, else the current GPU.
        database: the file of the tuning database; None: CE_DB, else ``~/.local/share/ce/ce.db``.
        policy: "tune", "lookup", "frozen" or "background"; "default": CE_POLICY, else "tune".
        tuning_seconds: that tuning a problem may take; 0: no bound; None: 2 on a GPU.
        scratch_bytes: device memory that tuning may take for a while; 0: a quarter of what is free, 2 GiB at most.
        capture_bytes: device memory set aside for calls that are captured into CUDA graphs.

    Raises:
        ValueError: an option that means nothing.
        RuntimeError: the device does not exist or is too old.
    """

    def __init__(
        self,
        device: str | None = None,
        *,
        database: str | os.PathLike[str] | None = None,
        policy: str = "default",
        tuning_seconds: float | None = None,
        scratch_bytes: int = 0,
        capture_bytes: int = 8 << 20,
    ) -> None:
        self._handle = c_void_p()
        if policy not in _c.POLICIES:
            raise ValueError(f"ce.array.Context: policy is {policy!r}; expected one of {', '.join(_c.POLICIES)}")
        options = _c.ContextOptions(
            device=None if device is None else device.encode(),
            database=None if database is None else os.fsencode(database),
            tuning_seconds=-1.0 if tuning_seconds is None else tuning_seconds,
            scratch_bytes=scratch_bytes,
            capture_bytes=capture_bytes,
            policy=_c.POLICIES[policy],
        )
        _c.require(_c.library().ce_context_create(byref(options), byref(self._handle)))

    @property
    def handle(self) -> c_void_p:
        """Of the C interface. Raises ValueError where the Context was closed."""
        if not self._handle:
            raise ValueError("ce.array.Context: it was closed")
        return self._handle

    @property
    def device(self) -> str:
        """ "cuda:0" or "host"."""
        text = ctypes.create_string_buffer(32)
        _c.require(_c.library().ce_device_name(self.handle, text, len(text)))
        return text.value.decode()

    @property
    def compiled(self) -> int:
        """How many kernels it had to compile."""
        count = c_int32()
        _c.require(_c.library().ce_compiled(self.handle, byref(count)))
        return count.value

    def check(self) -> None:
        """Waits for the default stream, and raises IndexError where a target was out of range since the last check."""
        _c.require(_c.library().ce_check_all(self.handle, None))

    def synchronize(self, stream: Any = None) -> None:
        """Waits for a stream."""
        _c.require(_c.library().ce_synchronize(self.handle, _stream(stream)))

    def close(self) -> None:
        """Frees it. The work that was enqueued with it must have ended. Does nothing the second time."""
        handle, self._handle = self._handle, c_void_p()
        if handle:
            _c.library().ce_context_destroy(handle)

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_contexts: dict[str, Context] = {}
_lock = threading.Lock()


def _default_context(device: str) -> Context:
    """Of a device, for calls that name no Context; lives as long as the process."""
    with _lock:
        if device not in _contexts:
            _contexts[device] = Context(device)
            atexit.register(_contexts[device].close)
        return _contexts[device]


def check(device: str = "cuda:0") -> None:
    """:meth:`Context.check` of calls on a device that named no Context."""
    _default_context(device).check()


def _stream(stream: Any) -> int:
    """A CUDA stream as a number; 0 is the legacy default stream."""
    if stream is None:
        return 0
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for attribute in ("ptr", "cuda_stream", "handle"):
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    try:
        return int(stream)
    except (TypeError, ValueError):
        raise TypeError(f"ce.array: stream is {stream!r}; expected a CUDA stream or its address") from None


class _Call:
    """The arrays of one call: borrowed, on one device, as the C interface takes them."""

    def __init__(self, operation: str, context: Context | None, stream: Any) -> None:
        self.operation, self.stream = operation, _stream(stream)
        self._context = context
        self._stack = ExitStack()
        self._first: Array | None = None

    def __enter__(self) -> _Call:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _borrow(self, name: str, array: Any, is_written: bool) -> Array:
        borrowed = self._stack.enter_context(Array(f"{self.operation}: {name}", array, self.stream))
        where = f"ce.array.{self.operation}: {name}"
        if is_written and borrowed.is_read_only:
            raise ValueError(f"{where} cannot be written; expected an array that is not read-only (JAX's always are)")
        if borrowed.dtype not in _DTYPES:
            raise TypeError(
                f"{where} has the DLPack dtype {borrowed.dtype}; expected float32, float16, bfloat16, or integers"
            )
        if self._first is None:
            self._first = borrowed
        elif (borrowed.device_type, borrowed.device_id) != (self._first.device_type, self._first.device_id):
            raise ValueError(f"{where} is on another device than the first array")
        return borrowed

    def rows(self, name: str, array: Any, is_written: bool = False) -> Any:
        """[..., columns] as rows."""
        if array is None:
            return None
        borrowed = self._borrow(name, array, is_written)
        where = f"ce.array.{self.operation}: {name}"
        if not borrowed.shape:
            raise ValueError(f"{where} has no axis; expected one of classes")
        groups: list[tuple[int, int]] = []
        for size, stride in zip(borrowed.shape[:-1], borrowed.strides[:-1]):
            if size == 1:
                continue
            if groups and groups[-1][1] == stride * size:
                groups[-1] = (groups[-1][0] * size, stride)
            else:
                groups.append((size, stride))
        if len(groups) > 2:
            raise ValueError(f"{where} has rows along three strides or more; expected two at most: copy it first")
        columns = borrowed.shape[-1]
        view = _c.Tensor(
            data=borrowed.data,
            dtype=_DTYPES[borrowed.dtype],
            rows=1,
            columns=columns,
            row_stride=_c.CONTIGUOUS,
            column_stride=borrowed.strides[-1] if columns > 1 else 1,
        )
        if groups:
            view.rows, view.row_stride = groups[-1]
        if len(groups) == 2:
            view.batch_rows, view.batch_stride = view.rows, groups[0][1]
            view.rows *= groups[0][0]
        return ctypes.pointer(view)

    def vector(self, name: str, array: Any, is_written: bool = False) -> Any:
        """One element after the other."""
        if array is None:
            return None
        borrowed = self._borrow(name, array, is_written)
        count = 1
        for size, stride in zip(reversed(borrowed.shape), reversed(borrowed.strides)):
            if size != 1 and stride != count:
                raise ValueError(f"ce.array.{self.operation}: {name} has gaps; expected one element after the other")
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

    def target(self, name: str, array: Any) -> Any:
        """Class indices as a vector, probabilities as rows."""
        with Array(f"{self.operation}: {name}", array, self.stream) as looked_at:
            is_floating = looked_at.dtype[0] in (2, 4)
        return self.rows(name, array) if is_floating else self.vector(name, array)

    def _chosen_context(self) -> Context:
        assert self._first is not None
        is_cpu = self._first.device_type in (CPU, CUDA_HOST)
        if self._context is not None:
            is_host = self._context.device == "host"
            if is_cpu != is_host:
                raise ValueError(
                    f"ce.array.{self.operation}: the arrays are on the {'CPU' if is_cpu else 'GPU'}; "
                    f"expected those of the Context's device, {self._context.device}"
                )
            return self._context
        if self._first.device_type in (CUDA, CUDA_MANAGED):
            return _default_context(f"cuda:{self._first.device_id}")
        if is_cpu and os.environ.get("CE_DEVICE") == "host":
            return _default_context("host")
        expected = "expected CUDA" if not is_cpu else "expected a GPU, or a Context of the device 'host'"
        where = "the CPU" if is_cpu else f"DLPack's device {self._first.device_type}"
        raise ValueError(f"ce.array.{self.operation}: the arrays are on {where}; {expected}")

    def run(self, tensors: _c.Sized, options: _c.Sized | None = None) -> None:
        function = getattr(_c.library(), f"ce_{self.operation}")
        given = None if options is None else byref(options)
        _c.require(function(self._chosen_context().handle, given, byref(tensors), self.stream, None))


def softmax(input: Any, *, out: Any, stream: Any = None, context: Context | None = None) -> Any:
    """Softmax along the last axis.

    Args:
        input: [..., columns] of float32, float16 or bfloat16.
        out: of the same sizes and dtype; may be the input.
        stream: a CUDA stream or its address; None: the legacy default stream.
        context: None: one of the arrays' device.

    Returns:
        `out`.

    Raises:
        ValueError, TypeError: arrays that do not fit.
        NotTuned: the policy is "frozen", and there is no winner.
    """
    return _forward("softmax", input, out, stream, context)


def log_softmax(input: Any, *, out: Any, stream: Any = None, context: Context | None = None) -> Any:
    """The logarithm of softmax along the last axis. See :func:`softmax`."""
    return _forward("log_softmax", input, out, stream, context)


def _forward(operation: str, input: Any, out: Any, stream: Any, context: Context | None) -> Any:
    with _Call(operation, context, stream) as call:
        call.run(_c.SoftmaxTensors(input=call.rows("input", input), output=call.rows("out", out, True)))
    return out


def softmax_backward(
    output_grad: Any, output: Any, *, out: Any, stream: Any = None, context: Context | None = None
) -> Any:
    """The gradient of softmax with respect to its input, from its output and the gradient of that.

    Args:
        output_grad, output: [..., columns].
        out: of the same sizes and dtype; may be `output_grad`.

    Returns:
        `out`. Raises what :func:`softmax` does.
    """
    return _backward("softmax_backward", output_grad, output, out, stream, context)


def log_softmax_backward(
    output_grad: Any, output: Any, *, out: Any, stream: Any = None, context: Context | None = None
) -> Any:
    """The same of the logarithm of softmax. See :func:`softmax_backward`."""
    return _backward("log_softmax_backward", output_grad, output, out, stream, context)


def _backward(operation: str, grad: Any, output: Any, out: Any, stream: Any, context: Context | None) -> Any:
    with _Call(operation, context, stream) as call:
        call.run(
            _c.SoftmaxBackwardTensors(
                output=call.rows("output", output),
                output_grad=call.rows("output_grad", grad),
                input_grad=call.rows("out", out, True),
            )
        )
    return out


def cross_entropy(
    logits: Any,
    target: Any,
    *,
    loss: Any,
    grad: Any = None,
    weight: Any = None,
    upstream: Any = None,
    z_loss_out: Any = None,
    lse: Any = None,
    argmax: Any = None,
    hit: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
    logit_scale: float = 1.0,
    stream: Any = None,
    context: Context | None = None,
) -> Any:
    """Cross entropy of rows of logits, and in the same pass its gradient. ``ce_cross_entropy()`` has the formula.

    Args:
        logits: [..., classes] of float32, float16 or bfloat16.
        target: [...] class indices, int32 or int64; or probabilities as the logits.
        loss: where the loss goes: [...] for the reduction "none", else one element; float32 or the logits' dtype.
        grad: where the gradient goes: as the logits; may be the logits.
        weight: [classes], float32 or the logits' dtype.
        upstream: one element or [...] of the loss's dtype, that multiplies the gradient.
        z_loss_out: where the z-loss alone goes: as the loss.
        lse: where logsumexp goes: [...] float32.
        argmax, hit: where the index of the largest logit (int64), and whether it is the target (uint8 or bool), go.
        reduction: "mean", "sum" or "none".

    Returns:
        `loss`.

    Raises:
        ValueError, TypeError: arrays or options that do not fit.
        NotTuned: the policy is "frozen", and there is no winner.
    """
    with _Call("cross_entropy", context, stream) as call:
        tensors = _c.CrossEntropyTensors(
            logits=call.rows("logits", logits),
            target=call.target("target", target),
            weight=call.vector("weight", weight),
            upstream=call.vector("upstream", upstream),
            loss=call.vector("loss", loss, True),
            grad=call.rows("grad", grad, True),
            z_loss=call.vector("z_loss_out", z_loss_out, True),
            lse=call.vector("lse", lse, True),
            argmax=call.vector("argmax", argmax, True),
            hit=call.vector("hit", hit, True),
        )
        call.run(tensors, _options(ignore_index, reduction, label_smoothing, z_loss, softcap, logit_scale))
    return loss


def cross_entropy_backward(
    logits: Any,
    target: Any,
    lse: Any,
    *,
    grad: Any,
    weight: Any = None,
    upstream: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
    logit_scale: float = 1.0,
    stream: Any = None,
    context: Context | None = None,
) -> Any:
    """The gradient of :func:`cross_entropy` with the same options, from the logsumexp that it wrote.

    Args:
        logits, target, weight: those of the loss.
        lse: [...] float32.
        grad: where the gradient goes: as the logits; may be the logits.
        upstream: one element or [...], float32 or the logits' dtype, that multiplies the gradient.

    Returns:
        `grad`. Raises what :func:`cross_entropy` does.
    """
    with _Call("cross_entropy_backward", context, stream) as call:
        tensors = _c.CrossEntropyBackwardTensors(
            logits=call.rows("logits", logits),
            target=call.target("target", target),
            weight=call.vector("weight", weight),
            lse=call.vector("lse", lse),
            upstream=call.vector("upstream", upstream),
            grad=call.rows("grad", grad, True),
        )
        call.run(tensors, _options(ignore_index, reduction, label_smoothing, z_loss, softcap, logit_scale))
    return grad


def _options(
    ignore_index: int, reduction: str, label_smoothing: float, z_loss: float, softcap: float, logit_scale: float
) -> _c.Sized:
    if reduction not in _c.REDUCTIONS:
        raise ValueError(f"ce.array: reduction is {reduction!r}; expected 'mean', 'sum' or 'none'")
    return _c.CrossEntropyOptions(
        ignore_index=ignore_index,
        reduction=_c.REDUCTIONS[reduction],
        label_smoothing=label_smoothing,
        z_loss=z_loss,
        softcap=softcap,
        logit_scale=logit_scale,
    )
