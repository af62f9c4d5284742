"""Softmax and cross entropy of arrays of any library that speaks DLPack: CuPy, JAX, Numba, PyTorch, NumPy.

    import ce.array

    ce.array.softmax(x, out=y)                          # along the last axis, on the legacy default stream
    ce.array.cross_entropy(logits, target, loss=l, grad=g, stream=stream)

Outputs are the caller's arrays and are written where they are. A call enqueues and returns; arrays must live until the
stream is done. JAX arrays are immutable: they are read, not written. Arrays of the CPU are for the host device, which
is exact and slow, and only where a :class:`Context` of it or CE_DEVICE=host asks for it.
"""

from __future__ import annotations

import ctypes
from contextlib import ExitStack
from ctypes import byref
from types import TracebackType
from typing import Any

from ce import _c
from ce._contexts import (
    Context,
    check,
    default_context,
    host_is_asked_for,
    require_integer,
    require_number,
    stream_handle,
)
from ce._dlpack import Array
from ce._stats import Stats, stats

__all__ = [
    "Context",
    "NotTuned",
    "Stats",
    "check",
    "cross_entropy",
    "cross_entropy_backward",
    "log_softmax",
    "log_softmax_backward",
    "softmax",
    "softmax_backward",
    "stats",
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


def _dtype_text(code: int, bits: int, lanes: int) -> str:
    """A dtype of DLPack in words."""
    kinds = ("int", "uint", "float", "handle", "bfloat", "complex", "bool")
    text = f"{kinds[code]}{bits}" if code < len(kinds) else f"the DLPack dtype {code} of {bits} bits"
    return text if lanes == 1 else f"{text} in vectors of {lanes}"


class _Call:
    """The arrays of one call: borrowed, on one device, as the C interface takes them."""

    def __init__(self, operation: str, context: Context | None, stream: Any) -> None:
        self._where = f"ce.array.{operation}"
        if context is not None and not isinstance(context, Context):
            raise TypeError(f"{self._where}: context is {context!r}; expected a ce.array.Context")
        self.operation, self.stream = operation, stream_handle(self._where, stream)
        self._context = context
        self._stack = ExitStack()
        self._borrowed: list[Array] = []
        self._shape: tuple[int, ...] | None = None

    def __enter__(self) -> _Call:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the axes before the last, of the first array."""
        assert self._shape is not None
        return self._shape[:-1]

    @property
    def columns(self) -> int:
        """Of the first array."""
        assert self._shape is not None
        return self._shape[-1]

    def borrow(self, name: str, array: Any, is_written: bool = False) -> Array:
        """An array until the end of the call."""
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
            raise ValueError(f"{where} is on {borrowed.device}; expected {self._borrowed[0].device}, as the others")
        self._borrowed.append(borrowed)
        return borrowed

    def rows(self, name: str, array: Any, is_written: bool = False) -> Any:
        """[..., columns] as rows, of the same sizes as the first ones."""
        return None if array is None else self._rows(self.borrow(name, array, is_written))

    def _rows(self, borrowed: Array) -> Any:
        where = borrowed.name
        if self._shape is None:
            self._shape = borrowed.shape
        if not borrowed.shape:
            raise ValueError(f"{where} has no axis; expected one of classes")
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
        """One element after the other, of such sizes."""
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
        """A single element."""
        if array is None:
            return None
        borrowed = self.borrow(name, array, is_written)
        if borrowed.count != 1:
            raise ValueError(f"{borrowed.name} has sizes {borrowed.shape}; expected one element")
        return self._vector(borrowed)

    def result(self, name: str, array: Any, reduction: str) -> Any:
        """A loss that is written: one of each row, or one."""
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
        """One of each row, or one."""
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

    def run(self, tensors: _c.Sized, options: _c.Sized | None = None) -> None:
        """Enqueues the operation."""
        function = getattr(_c.library(), f"ce_{self.operation}")
        given = None if options is None else byref(options)
        context = self._chosen_context()
        _c.require(function(context.handle, given, byref(tensors), self.stream, None))
        if any(array.is_copied for array in self._borrowed):  # a copy lives no longer than the call
            context.synchronize(self.stream)


def _require_sizes(array: Array, sizes: tuple[int, ...]) -> None:
    if array.shape != sizes:
        raise ValueError(f"{array.name} has sizes {array.shape}; expected {sizes}")


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
    logprob: Any = None,
    entropy: Any = None,
    row_weight: Any = None,
    row_scale: Any = None,
    divisor: Any = None,
    entropy_upstream: Any = None,
    lse_upstream: Any = None,
    given_lse: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
    logit_scale: float = 1.0,
    token_scaling: float = 0.0,
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
        logprob, entropy: where the log-probability of the target, and the entropy, go: [...] float32.
        row_weight: [...] float32, that multiplies the loss and gradient of each row.
        row_scale: [...] float32, that multiplies the logits of each row beside logit_scale.
        divisor: one float32 element, by which the reduction "mean" divides.
        entropy_upstream, lse_upstream: [...] float32, gradients of entropies and logsumexps, which enter `grad`.
        given_lse: [...] float32: logsumexps that are known; of the logits only those of the targets are read. Without
            `grad`, label_smoothing, `lse`, `entropy`, `argmax` and `hit`.
        ignore_index: a target whose row has loss and gradient 0, and does not count in a mean.
        reduction: "mean", "sum" or "none".
        label_smoothing: 0 to 1.
        z_loss: adds this factor times logsumexp squared to the loss of each row.
        softcap: logits become ``softcap * tanh(logit_scale * x / softcap)``; 0: off.
        logit_scale: multiplies the logits; 1: off.
        token_scaling: loss and gradient of a row are multiplied by its target's probability to this power; 0: off.
        stream: a CUDA stream or its address; None: the legacy default stream.
        context: None: one of the arrays' device.

    Returns:
        `loss`.

    Raises:
        ValueError, TypeError: arrays or options that do not fit.
        NotTuned: the policy is "frozen", and there is no winner.
    """
    options = _options(
        "cross_entropy", ignore_index, reduction, label_smoothing, z_loss, softcap, logit_scale, token_scaling
    )
    with _Call("cross_entropy", context, stream) as call:
        tensors = _c.CrossEntropyTensors(
            logits=call.rows("logits", logits),
            target=call.target(target),
            weight=call.vector("weight", weight, (call.columns,)),
            upstream=call.upstream(upstream),
            loss=call.result("loss", loss, reduction),
            grad=call.rows("grad", grad, True),
            z_loss_out=call.result("z_loss_out", z_loss_out, reduction),
            lse=call.vector("lse", lse, call.sizes, True),
            argmax=call.vector("argmax", argmax, call.sizes, True),
            hit=call.vector("hit", hit, call.sizes, True),
            logprob=call.vector("logprob", logprob, call.sizes, True),
            entropy=call.vector("entropy", entropy, call.sizes, True),
            row_weight=call.vector("row_weight", row_weight, call.sizes),
            row_scale=call.vector("row_scale", row_scale, call.sizes),
            divisor=call.one("divisor", divisor),
            entropy_upstream=call.vector("entropy_upstream", entropy_upstream, call.sizes),
            lse_upstream=call.vector("lse_upstream", lse_upstream, call.sizes),
            given_lse=call.vector("given_lse", given_lse, call.sizes),
        )
        call.run(tensors, options)
    return loss


def cross_entropy_backward(
    logits: Any,
    target: Any,
    lse: Any,
    *,
    grad: Any,
    weight: Any = None,
    upstream: Any = None,
    logprob: Any = None,
    entropy: Any = None,
    row_weight: Any = None,
    row_scale: Any = None,
    divisor: Any = None,
    entropy_upstream: Any = None,
    lse_upstream: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
    logit_scale: float = 1.0,
    token_scaling: float = 0.0,
    stream: Any = None,
    context: Context | None = None,
) -> Any:
    """The gradient of :func:`cross_entropy` with the same options, from the logsumexp that it wrote.

    Args:
        logits, target, weight, row_weight, row_scale, divisor: those of the loss.
        lse: [...] float32.
        logprob: [...] float32: what the loss wrote. It makes the gradient of confident targets exact, and token_scaling
            needs it.
        entropy, entropy_upstream: [...] float32: the entropies that the loss wrote, and their gradients.
        lse_upstream: [...] float32: the gradients of the logsumexps.
        grad: where the gradient goes: as the logits; may be the logits.
        upstream: one element or [...], float32 or the logits' dtype, that multiplies the gradient.

    Returns:
        `grad`. Raises what :func:`cross_entropy` does.
    """
    options = _options(
        "cross_entropy_backward", ignore_index, reduction, label_smoothing, z_loss, softcap, logit_scale, token_scaling
    )
    with _Call("cross_entropy_backward", context, stream) as call:
        tensors = _c.CrossEntropyBackwardTensors(
            logits=call.rows("logits", logits),
            target=call.target(target),
            weight=call.vector("weight", weight, (call.columns,)),
            lse=call.vector("lse", lse, call.sizes),
            upstream=call.upstream(upstream),
            grad=call.rows("grad", grad, True),
            logprob=call.vector("logprob", logprob, call.sizes),
            entropy=call.vector("entropy", entropy, call.sizes),
            row_weight=call.vector("row_weight", row_weight, call.sizes),
            row_scale=call.vector("row_scale", row_scale, call.sizes),
            divisor=call.one("divisor", divisor),
            entropy_upstream=call.vector("entropy_upstream", entropy_upstream, call.sizes),
            lse_upstream=call.vector("lse_upstream", lse_upstream, call.sizes),
        )
        call.run(tensors, options)
    return grad


def _options(
    operation: str,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    z_loss: float,
    softcap: float,
    logit_scale: float,
    token_scaling: float,
) -> _c.Sized:
    where = f"ce.array.{operation}: "
    if reduction not in _c.REDUCTIONS:
        raise ValueError(f"{where}reduction is {reduction!r}; expected 'mean', 'sum' or 'none'")
    numbers = {
        "label_smoothing": label_smoothing,
        "z_loss": z_loss,
        "softcap": softcap,
        "logit_scale": logit_scale,
        "token_scaling": token_scaling,
    }
    return _c.CrossEntropyOptions(
        ignore_index=require_integer(where + "ignore_index", ignore_index),
        reduction=_c.REDUCTIONS[reduction],
        **{name: require_number(where + name, value) for name, value in numbers.items()},
    )
