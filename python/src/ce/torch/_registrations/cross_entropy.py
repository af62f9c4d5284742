"""The operators of cross entropy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor

from ce.torch import _autograd, _native, _reference
from ce.torch._registrations._library import (
    AUTOCAST,
    fake_gradient,
    fake_nothing,
    library,
    operators,
    refuse_gradient,
    runs_on_host,
    split,
)

_OfRows = tuple[Optional[Tensor], Optional[Tensor], Optional[Tensor]]


def _checked(options: _reference.Options) -> _reference.Options:
    if options.reduction not in range(len(_reference.REDUCTIONS)):
        raise ValueError(f"ce::cross_entropy: reduction is {options.reduction}; expected 0 (none), 1 (mean) or 2 (sum)")
    return options


_OF_ROWS = 3
_END_OF_OPTIONS = _OF_ROWS + len(_reference.Options._fields)


def _split(rest: tuple[Any, ...]) -> tuple[_OfRows, _reference.Options, tuple[bool, ...]]:
    """The rest of a schema, after its own tensors: row weights, row scales and divisor; options; flags."""
    (row_weight, row_scale, divisor), options, flags = split(rest, _OF_ROWS)
    return (row_weight, row_scale, divisor), options, flags


def _new_outputs(logits: Tensor, rest: tuple[Any, ...], make: Callable[..., Tensor]) -> tuple[Tensor, ...]:
    """Tensors for the loss and the other outputs; outputs that are not wanted are empty."""
    _, options, flags = _split(rest)
    loss_dtype = torch.float32 if flags[0] else logits.dtype
    rows = _reference.row_sizes(logits)
    losses = rows if options.reduction == _reference.NONE else ()
    return tuple(
        make(
            _reference.sizes_of(name, losses, rows) if is_wanted else (0,),
            dtype=_reference.dtype_of(name, loss_dtype),
        )
        for name, is_wanted in _wanted(flags).items()
    )


def _wanted(flags: tuple[bool, ...]) -> dict[str, bool]:
    """Which of all outputs are wanted, in order."""
    by_name = dict(zip(_reference.FLAGS, flags))
    return {name: by_name.get(name, True) for name in _reference.Outputs._fields}


def _reference_outputs(
    logits: Tensor, target: Tensor, weight: Tensor | None, rest: tuple[Any, ...], upstream: Tensor | None = None
) -> tuple[Tensor, ...]:
    inputs, options, flags = _split(rest)
    wanted = _wanted(flags)
    if wanted["logprob"] and target.is_floating_point():
        raise ValueError("ce::cross_entropy: return_logprob is True; expected False where target holds probabilities")
    dtype = torch.float32 if flags[0] and logits.dtype != torch.float64 else logits.dtype
    names = [name for name, is_wanted in wanted.items() if is_wanted]
    made = _reference.cross_entropy(logits, target, weight, _checked(options), dtype, upstream, *inputs, names)
    lse = made.lse.detach()
    made = made._replace(lse=lse.float())
    if made.lse_low is not None:
        made = made._replace(lse_low=made.lse_low + (lse - lse.float()).float())
    empty = _new_outputs(logits, rest, logits.new_empty)
    return tuple(
        one if given and one is not None else nothing for one, nothing, given in zip(made, empty, wanted.values())
    )


def _cpu_cross_entropy(logits: Tensor, target: Tensor, weight: Tensor | None, *rest: Any) -> tuple[Tensor, ...]:
    if runs_on_host(logits):
        return _filled(operators._cross_entropy(logits, target, weight, *rest), logits, rest)
    return _reference_outputs(logits, target, weight, rest)


def _filled(made: tuple[Tensor | None, ...], logits: Tensor, rest: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Adds empty tensors for outputs that the twin left out."""
    empty = _new_outputs(logits, rest, logits.new_empty)
    return tuple(nothing if one is None else one for one, nothing in zip(made, empty))


def _cpu_with_grad(
    logits: Tensor, target: Tensor, weight: Tensor | None, upstream: Tensor | None, *rest: Any
) -> tuple[Tensor, ...]:
    if runs_on_host(logits):
        loss, grad, *others = operators._cross_entropy_with_grad(logits, target, weight, upstream, *rest)
        loss, *others = _filled((loss, *others), logits, rest)
        return loss, grad, *others
    inputs, options, _ = _split(rest)
    grad = _reference.gradient(logits, target, weight, _checked(options), upstream, *inputs)
    loss, *others = _reference_outputs(logits, target, weight, rest)
    return loss, grad, *others


def _cpu_with_grad_in_place(
    logits: Tensor, target: Tensor, weight: Tensor | None, upstream: Tensor | None, *rest: Any
) -> tuple[Tensor, ...]:
    if runs_on_host(logits):
        made = operators._cross_entropy_with_grad_(logits, target, weight, upstream, *rest)
        return _filled(made, logits, rest)
    loss, grad, *others = _cpu_with_grad(logits, target, weight, upstream, *rest)
    logits.copy_(grad)
    return loss, *others


def _reference_backward(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    lse: Tensor,
    upstream: Tensor | None,
    logprob: Tensor | None,
    lse_low: Tensor | None,
    entropy: Tensor | None,
    entropy_upstream: Tensor | None,
    lse_upstream: Tensor | None,
    *rest: Any,
) -> Tensor:
    inputs, options, _ = _split(rest)
    upstreams = entropy_upstream, lse_upstream
    return _reference.gradient(logits, target, weight, _checked(options), upstream, *inputs, *upstreams)


def _cpu_backward(logits: Tensor, *rest: Any) -> Tensor:
    if runs_on_host(logits):
        return operators._cross_entropy_backward(logits, *rest)
    return _reference_backward(logits, *rest)


def _cpu_backward_in_place(logits: Tensor, *rest: Any) -> None:
    if runs_on_host(logits):
        operators._cross_entropy_backward_(logits, *rest)
    else:
        logits.copy_(_reference_backward(logits, *rest))


def _with_logprob(rest: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of cross_entropy for those of cross_entropy_from_lse, which only has flags for loss and z-loss."""
    wanted = dict(zip(_reference.FLAGS, rest[_END_OF_OPTIONS:]), logprob=True)
    return *rest[:_END_OF_OPTIONS], *(wanted.get(name, False) for name in _reference.FLAGS)


def _of_lse(made: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The outputs of cross_entropy_from_lse among those of cross_entropy."""
    return made[0], made[_reference.Z_LOSS], made[_reference.LOGPROB]


def _cpu_from_lse(logits: Tensor, target: Tensor, weight: Tensor | None, lse: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    """torch's operations compute the logsumexp again."""
    if runs_on_host(logits):
        return operators._cross_entropy_from_lse(logits, target, weight, lse, *rest)
    return _of_lse(_reference_outputs(logits, target, weight, _with_logprob(rest)))


def _fake_from_lse(
    logits: Tensor, target: Tensor, weight: Tensor | None, lse: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    return _of_lse(_new_outputs(logits, _with_logprob(rest), logits.new_empty))


def _keep_from_lse(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    logits, target, weight, lse, *rest = inputs
    of_rows, ctx.numbers, wanted = _split(tuple(rest))
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[2], *(() if wanted[1] else (output[1],)))
    ctx.save_for_backward(logits, target, weight, lse, output[2], *of_rows)
    ctx.inputs = len(inputs)


def _gradient_from_lse(
    ctx: Any, of_loss: Tensor | None, of_z_loss: Tensor | None, *others: None
) -> tuple[Tensor | None, ...]:
    _autograd.refuse_second("cross_entropy")
    none = (None,) * (ctx.inputs - 1)
    if of_loss is None and of_z_loss is None:
        return None, *none
    logits, target, weight, lse, logprob, *of_rows = ctx.saved_tensors
    of_lse = None
    if of_z_loss is not None:
        row_weight, _, divisor = of_rows
        of_lse = _reference.gradient_of_lse(None, of_z_loss, lse, logprob, target, ctx.numbers, row_weight, divisor)
    upstream = logits.new_zeros((), dtype=torch.float32) if of_loss is None else of_loss
    saved = (lse, upstream, logprob, None, None, None, of_lse, *of_rows)
    return operators.cross_entropy_backward(logits, target, weight, *saved, *ctx.numbers), *none


_LOSS_ALONE = (False,) * (len(_reference.FLAGS) - 1)


def _cpu_loss(logits: Tensor, target: Tensor, weight: Tensor | None, *rest: Any) -> Tensor:
    return _cpu_cross_entropy(logits, target, weight, *rest, *_LOSS_ALONE)[0]


def _cpu_loss_and_grad(
    logits: Tensor, target: Tensor, weight: Tensor | None, upstream: Tensor | None, *rest: Any
) -> tuple[Tensor, ...]:
    return _cpu_with_grad(logits, target, weight, upstream, *rest, *_LOSS_ALONE)[:2]


def _cpu_scale_gradient(grad: Tensor, upstream: Tensor) -> None:
    if runs_on_host(grad):
        operators._scale_gradient_(grad, upstream)
    else:
        grad.mul_(upstream)


def _fake_cross_entropy(logits: Tensor, target: Tensor, weight: Tensor | None, *rest: Any) -> tuple[Tensor, ...]:
    return _new_outputs(logits, rest, logits.new_empty)


def _fake_loss(logits: Tensor, target: Tensor, weight: Tensor | None, *rest: Any) -> Tensor:
    return _fake_cross_entropy(logits, target, weight, *rest, *_LOSS_ALONE)[0]


def _fake_loss_and_grad(
    logits: Tensor, target: Tensor, weight: Tensor | None, upstream: Tensor | None, *rest: Any
) -> tuple[Tensor, ...]:
    return _fake_loss(logits, target, weight, *rest), torch.empty_like(logits)


def _fake_of_classes(
    logits: Tensor, target: Tensor, f32_loss: bool, ignore_index: int = 0, reduction: int = _reference.MEAN, *_: float
) -> Tensor:
    sizes = _reference.row_sizes(logits) if reduction == _reference.NONE else ()
    return logits.new_empty(sizes, dtype=torch.float32 if f32_loss else logits.dtype)


def _fake_of_classes_and_grad(logits: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return _fake_of_classes(logits, *rest), torch.empty_like(logits)


def _fake_with_grad(
    logits: Tensor, target: Tensor, weight: Tensor | None, upstream: Tensor | None, *rest: Any
) -> tuple[Tensor, ...]:
    loss, *others = _fake_cross_entropy(logits, target, weight, *rest)
    return loss, torch.empty_like(logits), *others


def _fake_with_grad_in_place(
    logits: Tensor, target: Tensor, weight: Tensor | None, upstream: Tensor | None, *rest: Any
) -> tuple[Tensor, ...]:
    return _fake_cross_entropy(logits, target, weight, *rest)


def _keep_cross_entropy(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    logits, target, weight, *rest = inputs
    of_rows, ctx.numbers, flags = _split(tuple(rest))
    wanted, made = _wanted(flags), _reference.Outputs(*output)
    ctx.set_materialize_grads(False)
    differentiable = ("loss", "lse", *(name for name in ("z_loss", "entropy") if wanted[name]))
    ctx.mark_non_differentiable(*(one for name, one in zip(made._fields, made) if name not in differentiable))
    saved = (getattr(made, name) if wanted[name] else None for name in ("logprob", "lse_low", "entropy"))
    ctx.save_for_backward(logits, target, weight, made.lse, *saved, *of_rows)
    ctx.inputs = len(inputs)


def _gradient_of_cross_entropy(
    ctx: Any, of_loss: Tensor | None, of_z_loss: Tensor | None, of_lse: Tensor | None, *others: Tensor | None
) -> tuple[Tensor | None, ...]:
    rest = (None,) * (ctx.inputs - 1)
    of_entropy = others[_reference.ENTROPY - _reference.LSE - 1]
    if of_loss is None and of_z_loss is None and of_lse is None and of_entropy is None:
        return None, *rest
    logits, target, weight, lse, logprob, lse_low, entropy, *of_rows = ctx.saved_tensors
    upstream = logits.new_zeros((), dtype=torch.float32) if of_loss is None else of_loss
    if of_entropy is None:
        entropy = None
    if of_z_loss is not None:
        row_weight, _, divisor = of_rows
        of_lse = _reference.gradient_of_lse(of_lse, of_z_loss, lse, logprob, target, ctx.numbers, row_weight, divisor)
    saved = (lse, upstream, logprob, lse_low, entropy, of_entropy, of_lse, *of_rows)
    return operators.cross_entropy_backward(logits, target, weight, *saved, *ctx.numbers), *rest


def register() -> None:
    for op, kernel, fake in (
        ("cross_entropy", _cpu_cross_entropy, _fake_cross_entropy),
        ("cross_entropy_loss", _cpu_loss, _fake_loss),
        ("cross_entropy_loss_and_grad", _cpu_loss_and_grad, _fake_loss_and_grad),
        ("cross_entropy_with_grad", _cpu_with_grad, _fake_with_grad),
        ("cross_entropy_with_grad_", _cpu_with_grad_in_place, _fake_with_grad_in_place),
        ("cross_entropy_from_lse", _cpu_from_lse, _fake_from_lse),
        ("cross_entropy_backward", _cpu_backward, fake_gradient),
        ("cross_entropy_backward_", _cpu_backward_in_place, fake_nothing),
        ("scale_gradient_", _cpu_scale_gradient, fake_nothing),
    ):
        library.impl(op, kernel, "CPU")
        _native.register_fake("ce::" + op, fake)
        _native.register_fake("ce::_" + op, fake)
    _native.register_fake("ce::_cross_entropy_of_classes", _fake_of_classes)
    _native.register_fake("ce::_cross_entropy_of_classes_and_grad", _fake_of_classes_and_grad)
    torch.library.register_autograd("ce::cross_entropy", _gradient_of_cross_entropy, setup_context=_keep_cross_entropy)
    torch.library.register_autograd("ce::cross_entropy_from_lse", _gradient_from_lse, setup_context=_keep_from_lse)
    for op in (
        "cross_entropy_loss",
        "cross_entropy_loss_and_grad",
        "cross_entropy_with_grad",
        "cross_entropy_backward",
    ):
        refuse_gradient(op, "cross_entropy")
    for op in (
        "cross_entropy_loss",
        "cross_entropy_loss_and_grad",
        "cross_entropy_of_classes",
        "cross_entropy_of_classes_and_grad",
        "cross_entropy",
        "cross_entropy_backward",
        "scale_gradient_",
    ):
        # Their twins have no differentiable outputs.
        library.impl("_" + op, torch.library.fallthrough_kernel, "AutogradCUDA")
    for key in ("AutocastCUDA", "AutocastCPU"):
        library.impl("cross_entropy", _autocast_cross_entropy, key)


def _autocast_cross_entropy(*arguments: Any) -> Any:
    """torch casts logits to float32 under autocast; kernels compute in float32, so only the loss is cast."""
    tensors, rest = arguments[:3], arguments[3:]
    with torch._C._ExcludeDispatchKeyGuard(AUTOCAST):
        return operators.cross_entropy(*tensors, *rest[:_END_OF_OPTIONS], True, *rest[_END_OF_OPTIONS + 1 :])
