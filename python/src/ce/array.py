"""Softmax and cross entropy of arrays of any library that speaks DLPack: CuPy, JAX, Numba, PyTorch, NumPy.

    import ce.array

    ce.array.softmax(x, out=y)                          # along the last axis, on the legacy default stream
    ce.array.cross_entropy(logits, target, loss=l, grad=g, stream=stream)

Outputs are arrays of the caller, and are written in place. A call enqueues its work and returns; arrays must live until
the stream is done. JAX arrays are immutable: they can only be inputs. CPU arrays need the host device, which is exact
and slow, and is only used with a :class:`Context` of it or CE_DEVICE=host.
"""

from __future__ import annotations

from typing import Any

from ce import _c
from ce._array_call import Call
from ce._contexts import Context, check, require_integer, require_number
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

# Structs of ce.h, with the same fields in the same order.
_SoftmaxTensors = _c.tensors("input", "output")
_SoftmaxBackwardTensors = _c.tensors("output", "output_grad", "input_grad")
_INPUTS = ("row_weight", "row_scale", "divisor", "entropy_upstream", "lse_upstream")
_OUTPUTS = ("z_loss_out", "lse", "argmax", "hit", "logprob", "entropy", "lse_low")
_CrossEntropyTensors = _c.tensors(
    "logits", "target", "weight", "upstream", "loss", "grad", *_OUTPUTS, *_INPUTS, "given_lse"
)
_CrossEntropyBackwardTensors = _c.tensors(
    "logits", "target", "weight", "lse", "upstream", "grad", "logprob", "lse_low", "entropy", *_INPUTS
)
_AMOUNTS = ("label_smoothing", "z_loss", "softcap", "logit_scale", "token_scaling")
_CrossEntropyOptions = _c.loss_options(*_AMOUNTS)  # used forward and backward


def softmax(input: Any, *, out: Any, stream: Any = None, context: Context | None = None) -> Any:
    """Softmax along the last axis.

    Args:
        input: [..., columns] of float32, float16 or bfloat16.
        out: of the same sizes and dtype; may be the input.
        stream: a CUDA stream or its address; None: the legacy default stream.
        context: None: the default one of the arrays' device.

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
    with Call(operation, context, stream) as call:
        tensors = _SoftmaxTensors(input=call.rows("input", input), output=call.rows("out", out, True))
        call.run(tensors, out="output")
    return out


def softmax_backward(
    output_grad: Any, output: Any, *, out: Any, stream: Any = None, context: Context | None = None
) -> Any:
    """The gradient of softmax with respect to its input, from the output and its gradient.

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
    """The gradient of the logarithm of softmax. See :func:`softmax_backward`."""
    return _backward("log_softmax_backward", output_grad, output, out, stream, context)


def _backward(operation: str, grad: Any, output: Any, out: Any, stream: Any, context: Context | None) -> Any:
    with Call(operation, context, stream) as call:
        tensors = _SoftmaxBackwardTensors(
            output=call.rows("output", output),
            output_grad=call.rows("output_grad", grad),
            input_grad=call.rows("out", out, True),
        )
        call.run(tensors, out="input_grad")
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
    lse_low: Any = None,
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
        loss: receives the loss: [...] for the reduction "none", else one element; float32 or the logits' dtype.
        grad: receives the gradient: as the logits; may be the logits.
        weight: [classes], float32 or the logits' dtype.
        upstream: one element or [...] of the loss's dtype, which multiplies the gradient.
        z_loss_out: receives the z-loss alone: as the loss.
        lse: receives logsumexp: [...] float32.
        argmax, hit: receive the index of the largest logit (int64), and whether it is the target (uint8 or bool).
        logprob, entropy: receive the log-probability of the target, and the entropy: [...] float32.
        row_weight: [...] float32, which multiplies the loss and gradient of each row.
        row_scale: [...] float32, which multiplies the logits of each row in addition to logit_scale.
        divisor: one float32 element, by which the reduction "mean" divides.
        entropy_upstream, lse_upstream: [...] float32, gradients of entropies and logsumexps, which enter `grad`.
        given_lse: [...] float32: known logsumexps; only the logits of the targets are then read. Without `grad`,
            label_smoothing, `lse`, `entropy`, `argmax` and `hit`.
        lse_low: receives the rounding error of logsumexp: [...] float32.
        ignore_index: a target whose row has loss and gradient 0, and does not count in a mean.
        reduction: "mean", "sum" or "none".
        label_smoothing: 0 to 1.
        z_loss: adds this factor times logsumexp squared to the loss of each row.
        softcap: logits become ``softcap * tanh(logit_scale * x / softcap)``; 0: off.
        logit_scale: multiplies the logits; 1: off.
        token_scaling: loss and gradient of a row are multiplied by its target's probability to this power; 0: off.
        stream: a CUDA stream or its address; None: the legacy default stream.
        context: None: the default one of the arrays' device.

    Returns:
        `loss`.

    Raises:
        ValueError, TypeError: arrays or options that do not fit.
        NotTuned: the policy is "frozen", and there is no winner.
    """
    options = _options(
        "cross_entropy",
        ignore_index,
        reduction,
        label_smoothing,
        z_loss,
        softcap,
        logit_scale,
        token_scaling,
    )
    with Call("cross_entropy", context, stream) as call:
        tensors = _CrossEntropyTensors(
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
            lse_low=call.vector("lse_low", lse_low, call.sizes, True),
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
    lse_low: Any = None,
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
        logprob: [...] float32 from the loss. It makes the gradient of confident targets exact, and token_scaling needs
            it.
        entropy, entropy_upstream: [...] float32: the entropies from the loss, and their gradients.
        lse_upstream: [...] float32: the gradients of the logsumexps.
        lse_low: [...] float32 from the loss. It makes the whole gradient as exact as that of one pass.
        grad: receives the gradient: as the logits; may be the logits.
        upstream: one element or [...], float32 or the logits' dtype, which multiplies the gradient.

    Returns:
        `grad`. Raises what :func:`cross_entropy` does.
    """
    options = _options(
        "cross_entropy_backward",
        ignore_index,
        reduction,
        label_smoothing,
        z_loss,
        softcap,
        logit_scale,
        token_scaling,
    )
    with Call("cross_entropy_backward", context, stream) as call:
        tensors = _CrossEntropyBackwardTensors(
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
            lse_low=call.vector("lse_low", lse_low, call.sizes),
        )
        call.run(tensors, options)
    return grad


def _options(operation: str, ignore_index: int, reduction: str, *amounts: float) -> _c.Sized:
    where = f"ce.array.{operation}: "
    if not isinstance(reduction, str) or reduction not in _c.REDUCTIONS:
        raise ValueError(f"{where}reduction is {reduction!r}; expected 'mean', 'sum' or 'none'")
    return _CrossEntropyOptions(
        ignore_index=require_integer(where + "ignore_index", ignore_index),
        reduction=_c.REDUCTIONS[reduction],
        **{name: require_number(where + name, amount) for name, amount in zip(_AMOUNTS, amounts)},
    )
