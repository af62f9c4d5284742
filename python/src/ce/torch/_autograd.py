"""Autograd functions for eager calls, and operators for compiled ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ce.torch import _native, _reference
from ce.torch._autocast import without_autocast

_operators = _native.operators
_softmax_forward = {False: _native.fast(_operators._softmax), True: _native.fast(_operators._log_softmax)}
_softmax_backward = {
    False: _native.fast(_operators._softmax_backward),
    True: _native.fast(_operators._log_softmax_backward),
}
_forward = _native.fast(_operators._cross_entropy)
_loss_and_grad = _native.fast(_operators._cross_entropy_loss_and_grad)
_of_classes_and_grad = _native.fast(_operators._cross_entropy_of_classes_and_grad)
_with_grad = _native.fast(_operators._cross_entropy_with_grad)
_with_grad_in_place = _native.fast(_operators._cross_entropy_with_grad_)
_backward = _native.fast(_operators._cross_entropy_backward)
_scale_gradient = _native.fast(_operators._scale_gradient_)
keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph
_increment_version = torch.autograd.graph.increment_version
unwrap_if_dead = torch._C._functorch.unwrap_if_dead  # of what a transform has left behind
_is_batched = torch._C._functorch.is_legacy_batchedtensor

MEAN_OR_SUM = (_reference.MEAN, _reference.SUM)
_LSE, _LOGPROB, _ENTROPY, _LSE_LOW = _reference.LSE, _reference.LOGPROB, _reference.ENTROPY, _reference.LSE_LOW
_OF_LOGPROBS = {
    (wants_entropy, saves): _reference.flags_of(
        "f32_loss", "logprob", *["entropy"] * wants_entropy, *["lse_low"] * saves
    )
    for wants_entropy in (False, True)
    for saves in (False, True)
}
"""Flags for log-probabilities, by whether entropies are wanted, too, and whether a backward will follow."""


class Softmax(torch.autograd.Function):
    """Saves the output."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, dim: int, logarithm: bool) -> Tensor:
        output = _softmax_forward[logarithm](input, dim)
        ctx.save_for_backward(output)
        ctx.dim, ctx.logarithm = dim, logarithm
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second("log_softmax" if ctx.logarithm else "softmax")
        (output,) = ctx.saved_tensors
        return _softmax_backward[ctx.logarithm](grad, output, ctx.dim), None, None


class LossAlone(torch.autograd.Function):
    """Mean or sum without other outputs. Saves the gradient."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, operator: Callable[..., tuple[Tensor, Tensor]], rest: Sequence[Any]
    ) -> Tensor:
        """
        Args:
            rest: the operator's arguments after the logits; tensors in it get no gradient.
        """
        loss, grad = operator(logits, *rest)
        ctx.save_for_backward(grad)
        return loss

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second("cross_entropy")
        (grad,) = ctx.saved_tensors
        return scaled(grad, grad_loss, keeps_graph()), None, None


def applied(function: Any) -> Callable[..., Any]:
    """Returns ``function.apply`` without its Python part, which handles the transforms of ``torch.func``: callers have
    checked that none is active."""
    apply: Callable[..., Any] = super(torch.autograd.Function, function).apply
    return apply


_apply_softmax, _apply_loss_alone = applied(Softmax), applied(LossAlone)


def softmax(input: Tensor, dim: int, logarithm: bool) -> Any:
    """Softmax with a gradient, outside of transforms."""
    return _apply_softmax(unwrap_if_dead(input), dim, logarithm)


def loss_alone(logits: Tensor, *rest: Any) -> Any:
    """A loss with a gradient, outside of transforms.

    Args:
        rest: targets, class weights, upstream gradient, row weights, row scales, divisor, options, and whether the loss
            is float32.
    """
    return _apply_loss_alone(unwrap_if_dead(logits), _loss_and_grad, rest)


def loss_of_classes(logits: Tensor, rest: Sequence[Any]) -> Any:
    """A loss of class indices with a gradient, outside of transforms.

    Args:
        rest: class indices, whether the loss is float32, and torch's options that are not at their defaults.
    """
    return _apply_loss_alone(unwrap_if_dead(logits), _of_classes_and_grad, rest)


def has_classes(target: Tensor) -> bool:
    """Whether the target contains class indices, not probabilities."""
    return not target.is_floating_point()


class CrossEntropy(torch.autograd.Function):
    """For the reductions mean and sum, saves the gradient. For the reduction none, and if a differentiable logsumexp is
    wanted, saves the logits, their logsumexp with its rounding error, and the log-probability of each target; the
    z-loss is then differentiable."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        upstream: Tensor | None,
        of_rows: tuple[Tensor | None, ...],
        numbers: _reference.Options,
        wanted: tuple[bool, ...],
        in_place: bool,
        wants_lse: bool,
    ) -> tuple[Tensor | None, ...]:
        inputs = (*of_rows, *numbers)
        ctx.set_materialize_grads(False)
        ctx.one_pass = numbers.reduction in MEAN_OR_SUM and (in_place or not wants_lse)
        if ctx.one_pass:
            if in_place:
                loss, *others = _with_grad_in_place(logits, target, weight, upstream, *inputs, *wanted)
                overwritten(logits)
                grad = logits.detach()
            else:
                loss, grad, *others = _with_grad(logits, target, weight, upstream, *inputs, *wanted)
            ctx.save_for_backward(grad)
            ctx.in_place = in_place
        else:
            flags = _reference.saved(wanted, has_classes(target))
            made = _forward(logits, target, weight, *inputs, *flags)
            loss, *others = made
            saved = (made[_LSE], made[_LOGPROB], made[_LSE_LOW])
            ctx.save_for_backward(logits, target, weight, *saved, upstream, *of_rows)
            ctx.numbers = numbers
        constant = others[2:]
        if ctx.one_pass:
            constant = others
        elif not wants_lse:
            constant = others[1:]
        ctx.mark_non_differentiable(*(one for one in constant if one is not None))
        return loss, *others

    @staticmethod
    def backward(
        ctx: Any, grad_loss: Tensor | None, of_z_loss: Tensor | None, of_lse: Tensor | None, *_: None
    ) -> tuple[Tensor | None, ...]:
        refuse_second("cross_entropy")
        none = (None,) * 8
        if grad_loss is None and of_z_loss is None and of_lse is None:
            return None, *none
        if ctx.one_pass:
            assert grad_loss is not None  # no other output has a gradient
            (grad,) = ctx.saved_tensors
            return scaled(grad, grad_loss, keeps_graph(), ctx.in_place), *none
        logits, target, weight, lse, logprob, lse_low, upstream, *of_rows = ctx.saved_tensors
        if grad_loss is None:
            grad_loss = lse.new_zeros(())
        if of_z_loss is not None:
            row_weight, _, divisor = of_rows
            of_lse = _reference.gradient_of_lse(
                of_lse, of_z_loss, lse, logprob, target, ctx.numbers, row_weight, divisor
            )
        factor = grad_loss if upstream is None else grad_loss * upstream
        saved = (lse, factor, logprob, lse_low, None, None, of_lse, *of_rows)
        return _backward(logits, target, weight, *saved, *ctx.numbers), *none


def logprobs(
    logits: Tensor,
    index: Tensor,
    row_scale: Tensor | None,
    numbers: _reference.Options,
    wants_entropy: bool,
    saves: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """Log-probabilities and entropies, without autograd, and the data to save for it: logsumexps and their rounding
    errors."""
    made = _forward(logits, index, None, None, row_scale, None, *numbers, *_OF_LOGPROBS[wants_entropy, saves])
    return made[_LOGPROB], made[_ENTROPY], made[_LSE], made[_LSE_LOW]


class Logprobs(torch.autograd.Function):
    """Log-probabilities and entropies. Saves the logits, their logsumexps and both results; the gradients of both take
    one pass."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        index: Tensor,
        row_scale: Tensor | None,
        numbers: _reference.Options,
        wants_entropy: bool,
        name: str,
    ) -> tuple[Tensor, Tensor | None]:
        logprob, entropy, *saved = logprobs(logits, index, row_scale, numbers, wants_entropy, True)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(logits, index, logprob, entropy, *saved, row_scale)
        ctx.numbers, ctx.name = numbers, name
        return logprob, entropy

    @staticmethod
    def backward(ctx: Any, of_logprob: Tensor | None, of_entropy: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second(ctx.name, "torch.nn.functional.log_softmax")
        none = (None,) * 5
        if of_logprob is None and of_entropy is None:
            return None, *none
        logits, index, logprob, entropy, lse, lse_low, row_scale = ctx.saved_tensors
        # The loss is the negative log-probability.
        upstream = lse.new_zeros(()) if of_logprob is None else -of_logprob
        saved = (
            lse,
            upstream,
            logprob,
            lse_low,
            None if of_entropy is None else entropy,
            of_entropy,
            None,
            None,
            row_scale,
            None,
        )
        return _backward(logits, index, None, *saved, *ctx.numbers), *none


def compiled_logprobs(
    logits: Tensor,
    index: Tensor,
    row_scale: Tensor | None,
    numbers: _reference.Options,
    wants_gradient: bool,
    wants_entropy: bool,
) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities and entropies through the operator that compilers see through."""
    flags = _OF_LOGPROBS[wants_entropy, wants_gradient]
    made = _operators.cross_entropy.default(logits, index, None, None, row_scale, None, *numbers, *flags)
    return -made[0], made[_ENTROPY] if wants_entropy else None


def refuse_second(name: str, instead: str | None = None) -> None:
    """Refuses a backward with create_graph: second derivatives would lack the part through the gradient."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError(
            f"ce.torch.{name} is differentiable once: create_graph is True; expected False, or "
            f"{instead or f'torch.nn.functional.{name}'}, unpatched, for a second derivative"
        )


def is_batched(grad: Tensor) -> bool:
    """Whether it stands for several (is_grads_batched), which operators that write in place do not take."""
    return not torch.compiler.is_compiling() and _is_batched(grad)


def refuse_batched(name: str, *grads: Tensor | None) -> None:
    """Refuses gradients that stand for several."""
    if any(one is not None and is_batched(one) for one in grads):
        raise RuntimeError(f"ce.torch.{name} does not support is_grads_batched=True; expected False")


def scaled(grad: Tensor, factor: Tensor, is_kept: bool, in_place: bool = False) -> Tensor:
    """The gradient times a number on the device, in its own memory unless it is needed again. If the number is 1 the
    gradient is not even read.

    Args:
        in_place: whether it has the memory of the logits.
    """
    if _is_batched(factor):
        return grad * factor
    if is_kept:
        grad = grad.clone()
    _scale_gradient(grad, factor)
    if in_place and not is_kept:
        overwritten(grad)
    return grad


def overwritten(logits: Tensor) -> None:
    """Called if a gradient overwrote the logits: a backward that has saved them then fails, as after every other
    in-place operation. Compiled code finds out by itself."""
    if not torch.compiler.is_compiling():
        _increment_version(logits)


def is_kept_graph() -> bool:
    """Whether the running backward keeps its graph for another one (retain_graph)."""
    return not torch.compiler.is_compiling() and keeps_graph()


def compiled_cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    upstream: Tensor | None,
    of_rows: tuple[Tensor | None, ...],
    numbers: _reference.Options,
    wanted: tuple[bool, ...],
) -> tuple[Tensor, ...]:
    """The operator with its own autograd, which compilers see through. Its backward is a second pass."""
    if upstream is not None and is_of_rows_of_one_loss(upstream, numbers):
        return UpstreamOfRows.apply(logits, target, weight, None, upstream, of_rows, numbers, wanted)
    if torch.is_grad_enabled() and logits.requires_grad:
        wanted = _reference.saved(wanted, has_classes(target))
    made = _operators.cross_entropy.default(logits, target, weight, *of_rows, *numbers, *wanted)
    loss, others = made[0], made[1:]
    dtype = torch.float32 if wanted[0] else logits.dtype
    if loss.dtype is not dtype:  # autocast, whose rule is for calls of the operator
        loss, others = loss.to(dtype), (others[0].to(dtype), *others[1:])
    if upstream is not None:
        loss = _reference.scaled_gradient(loss, upstream)
    return loss, *others[:_LSE], *(one.detach() for one in others[_LSE:])


def is_of_rows_of_one_loss(upstream: Tensor, numbers: _reference.Options) -> bool:
    """Whether a mean or a sum has an upstream gradient for each row."""
    return upstream.numel() != 1 and numbers.reduction in MEAN_OR_SUM


class UpstreamOfRows(torch.autograd.Function):
    """A mean or a sum with an upstream gradient for each row, which no factor of the loss can replace, through the
    operators that compilers see through. Saves the logits; the backward is a second pass."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        given_lse: Tensor | None,
        upstream: Tensor,
        of_rows: tuple[Tensor | None, ...],
        numbers: _reference.Options,
        wanted: tuple[bool, ...],
    ) -> tuple[Tensor, ...]:
        inputs = (*of_rows, *numbers)
        wants_logprob = has_classes(target)
        if given_lse is None:
            flags = _reference.saved(wanted, wants_logprob)
            with without_autocast(logits):
                made = _operators.cross_entropy.default(logits, target, weight, *inputs, *flags)
            z_loss, lse, logprob, lse_low = (made[index] for index in (_reference.Z_LOSS, _LSE, _LOGPROB, _LSE_LOW))
            constant = list(made[_LSE + 1 :])
        else:
            made = _operators.cross_entropy_from_lse.default(logits, target, weight, given_lse, *inputs, *wanted)
            (_, z_loss, logprob), lse, lse_low = made, given_lse, None
            constant = [logprob]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*constant, *(() if wanted[1] else (z_loss,)))
        saved = (lse, logprob if wants_logprob else None, lse_low)
        ctx.save_for_backward(logits, target, weight, *saved, upstream, *of_rows)
        ctx.numbers, ctx.wants_z_loss, ctx.has_lse = numbers, wanted[1], given_lse is None
        return made

    @staticmethod
    def backward(ctx: Any, of_loss: Tensor | None, of_z_loss: Tensor | None, *others: Tensor | None) -> Any:
        refuse_second("cross_entropy")
        none = (None,) * 7
        of_lse = others[0] if ctx.has_lse else None
        of_z_loss = of_z_loss if ctx.wants_z_loss else None
        if of_loss is None and of_z_loss is None and of_lse is None:
            return None, *none
        logits, target, weight, lse, logprob, lse_low, upstream, *of_rows = ctx.saved_tensors
        factor = lse.new_zeros(()) if of_loss is None else of_loss * upstream
        if of_z_loss is not None:
            row_weight, _, divisor = of_rows
            of_lse = _reference.gradient_of_lse(
                of_lse, of_z_loss, lse, logprob, target, ctx.numbers, row_weight, divisor
            )
        saved = (lse, factor, logprob, lse_low, None, None, of_lse, *of_rows)
        return _operators.cross_entropy_backward(logits, target, weight, *saved, *ctx.numbers), *none
