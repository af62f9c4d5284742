"""The loss of a linear layer, without its logits in memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C import _are_functorch_transforms_active
from torch.overrides import has_torch_function_variadic
from typing_extensions import Unpack

from ce.torch import (
    _amounts,
    _arguments,
    _autocast,
    _autograd,
    _linear,
    _linear_arguments,
    _loss_arguments,
    _native,
    _reference,
    _settings,
    _target_check,
    _transforms,
    _valid_tokens,
    functional,
)
from ce.torch._kernels import INDEX_DTYPES, KERNEL_DTYPES

__all__ = ["linear_cross_entropy"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _with_direct_calls(function: _Function) -> _Function:
    """Decorates :func:`linear_cross_entropy`. Calls with hidden states and a weight of the same dtype, class indices
    and no options take the shortest way to their kernels, as in :func:`ce.torch.cross_entropy`."""
    defaults = _arguments.keyword_defaults(function)

    @functools.wraps(function)
    def linear_cross_entropy(input: Tensor, linear_weight: Tensor, target: Tensor, **options: Any) -> Any:
        try:
            if (
                not options
                and not has_torch_function_variadic(input, linear_weight, target)
                and not torch.compiler.is_compiling()
                and not _transforms.has_tangents()
                and not _are_functorch_transforms_active()
                and (input.is_cuda or (_settings.on_host and input.is_cpu))
                and input.dtype is linear_weight.dtype
                and input.dtype in KERNEL_DTYPES
                and target.dtype in INDEX_DTYPES
                and input.get_device() == linear_weight.get_device() == target.get_device()
                and not _autocast.is_under_autocast(input)
                and (sizes := input.shape)[:-1] == target.shape
                and len(sizes) > 1
                and (weight_sizes := linear_weight.shape)[1:] == sizes[-1:]
                and 0 not in sizes
                and weight_sizes[0] != 0
            ):
                rows = target if target.dim() == 1 else target.reshape(-1)
                return _linear.loss_of_classes(_linear_arguments.flat_hidden(input), linear_weight, rows)
        except (AttributeError, TypeError):
            pass  # rejected below, by name
        except (RuntimeError, ValueError) as error:
            if _linear_arguments.has_kernels(input, linear_weight) and target.device == input.device:
                _native.raise_from(error)
        layer = (input, linear_weight, target)
        if has_torch_function_variadic(*layer) and options.keys() <= defaults.keys():
            return _arguments.overridden(linear_cross_entropy, layer, *layer, **{**defaults, **options})
        if options and options.get("check") and torch.compiler.is_compiling():
            return _target_check.call_checked(linear_cross_entropy, *layer, **options)
        return function(*layer, **options)

    return cast(_Function, linear_cross_entropy)


@_with_direct_calls
@_arguments.explained(linear_bias=KERNEL_DTYPES)
@_amounts.with_amounts
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
    row_weight: Tensor | None = None,
    divisor: Tensor | float | None = None,
    upstream: Tensor | float | None = None,
    valid_tokens: int | None = None,
    loss_dtype: torch.dtype | None = None,
    check: bool = False,
    return_z_loss: bool = False,
    return_lse: bool = False,
    return_argmax: bool = False,
    return_hit: bool = False,
    memory_budget: int | None = None,
    chunk_tokens: int | None = None,
    logits_dtype: torch.dtype | None = None,
    accumulate: torch.dtype | None = None,
    exponentials: bool | None = None,
    **amounts: Unpack[functional.Amounts],
) -> Any:
    """Cross entropy of ``F.linear(input, linear_weight, linear_bias)``, as torch 2.13's function of that name, with the
    options of :func:`ce.torch.cross_entropy`.

    The tokens are divided into chunks, and only the logits of one chunk at a time are in memory. Calls without
    gradients, with 16-bit rows aligned to 16 bytes and class indices, store no logits on Hopper, unless chunk_tokens is
    given: their statistics are computed from float32 sums, which no logits_dtype has rounded. For the reductions mean
    and sum the required gradients of input, weight and bias are computed in the forward, and kept for the backward,
    which multiplies them by the upstream gradient. For the reduction none, and with return_lse, the layer is kept and
    the backward computes the logits again.

    Under autocast the products use its dtype; the gradient of a float32 weight is summed and returned in float32.

    Args:
        input: [..., hidden] of float32, float16 or bfloat16; other dtypes, and the CPU, go to torch.
        linear_weight: [classes, hidden].
        target: class indices [...]; or probabilities [..., classes].
        linear_bias: [classes].
        weight: [classes], a weight for each class.
        ignore_index: tokens with this target are ignored; None: -100.
        options: torch's ``LinearCrossEntropyOptions``, of which ``batch_chunk_size`` and ``acc_dtype`` are used.
        valid_tokens: an upper bound for the number of tokens whose target is not ignore_index, such as
            ``int((labels != -100).sum())`` of labels that are still on the CPU: the products then leave out the ignored
            tokens, and masked prompts cost next to nothing. If more tokens count, the loss is NaN, and no row has an
            argmax or a hit. For an ignored token the losses and z-losses are 0, the logsumexp is NaN, the argmax -1,
            and there is no hit; :func:`check` numbers only the rows that count.
        memory_budget: bytes that a call may take beyond its results. None: a tenth of the free memory when the first
            call of such sizes runs.
        chunk_tokens: tokens of a chunk; None: as many as the budget holds, or a half, a quarter or an eighth of them if
            the first call of such sizes finds that faster.
        logits_dtype: float32, or the dtype of the products, which is the default.
        accumulate: dtype in which the gradient of the weight is summed over chunks: float32, or the weight's own. None:
            float32 if there is more than one chunk and the budget holds it.
        exponentials: whether the product of the logits writes their exponentials, from which the gradients are computed
            without another pass over the logits; hidden states are rounded once more for the weight's gradient. It
            supports bfloat16 with class indices on Hopper, without linear_bias, weight, label_smoothing, token_scaling
            and a logit_scale of rows. None: if the first call of such sizes finds that faster.

    All other arguments, and the result, are as in :func:`ce.torch.cross_entropy`.

    Raises:
        ValueError: sizes or options that do not fit, exponentials for a call that does not support them, and a weight
            without elements.
        TypeError: a dtype that does not.
        RuntimeError: no cuBLASLt, or a transform of ``torch.func``.
    """
    name = "linear_cross_entropy"
    of_sums = "accumulate"  # the argument's name
    if options is not None:
        if not hasattr(options, "batch_chunk_size") and not hasattr(options, "acc_dtype"):
            raise TypeError(
                f"ce.torch.{name}: options is of type {type(options).__name__}; expected torch's "
                "LinearCrossEntropyOptions, with batch_chunk_size and acc_dtype"
            )
        chunk_tokens = chunk_tokens or getattr(options, "batch_chunk_size", None)
        if accumulate is None:
            accumulate, of_sums = getattr(options, "acc_dtype", None), "options.acc_dtype"
    ignore = -100 if ignore_index is None else ignore_index
    code = _arguments.reduction_code(f"ce.torch.{name}", reduction)
    all_amounts = _amounts.amounts_of(name, amounts)
    numbers = _amounts.options_of(f"ce.torch.{name}", ignore, code, label_smoothing, all_amounts)
    row_scale = numbers.logit_scale if isinstance(numbers.logit_scale, Tensor) else None
    _linear_arguments.check_layer(name, input, linear_weight, linear_bias)
    dtype = _linear_arguments.dtype_of(input, linear_weight)
    rows = input.shape[:-1]
    has_classes = not target.is_floating_point()
    dtypes = (*INDEX_DTYPES, torch.uint8) if has_classes else (*KERNEL_DTYPES, torch.float64)
    _arguments.require_dtype(f"ce.torch.{name}", "target", target, *dtypes)
    if not has_classes and return_hit:
        raise ValueError(f"ce.torch.{name}: return_hit is True; expected False where target holds probabilities")
    for argument, given in (("weight", weight), ("row_weight", row_weight), ("upstream", upstream)):
        if isinstance(given, Tensor):
            _linear_arguments.require_dtype(name, argument, given, input.dtype)
    if upstream is not None and not isinstance(upstream, Tensor):
        upstream = _arguments.on_device(f"ce.torch.{name}", "upstream", upstream, torch.float32, input)
    if divisor is not None:
        divisor = _loss_arguments.divisor_of(divisor, reduction, input, f"ce.torch.{name}")
    expected = rows if has_classes else (*rows, linear_weight.shape[0])
    if target.shape != expected:
        raise ValueError(f"ce.torch.{name}: target has sizes {list(target.shape)}; expected {list(expected)}")
    _linear_arguments.check_devices(
        name, input, linear_weight=linear_weight, target=target, linear_bias=linear_bias, weight=weight,
        row_weight=row_weight, upstream=upstream, logit_scale=row_scale,
    )  # fmt: skip
    if weight is not None and weight.shape != linear_weight.shape[:1]:
        raise ValueError(
            f"ce.torch.{name}: weight has sizes {list(weight.shape)}; expected [{linear_weight.shape[0]}], one a class"
        )
    _linear_arguments.check_row_weight(name, row_weight, rows)
    if upstream is not None and upstream.numel() != 1 and upstream.shape != rows:
        raise ValueError(
            f"ce.torch.{name}: upstream has sizes {list(upstream.shape)}; expected one number, or {list(rows)}"
        )
    _linear_arguments.check_memory(name, memory_budget, chunk_tokens)
    if exponentials not in (None, True, False):
        raise TypeError(f"ce.torch.{name}: exponentials is {exponentials!r}; expected True, False or None")
    if valid_tokens is not None:
        if not has_classes:
            raise ValueError(f"ce.torch.{name}: target is {target.dtype}; expected class indices beside valid_tokens")
        _valid_tokens.check(name, valid_tokens, target.numel())
    is_autocast = _autocast.is_under_autocast(input)
    logits = dtype if logits_dtype is None else logits_dtype
    if logits not in (dtype, torch.float32):
        raise ValueError(f"ce.torch.{name}: logits_dtype is {logits_dtype}; expected {_linear_arguments.f32_or(dtype)}")
    if not has_classes and torch.promote_types(target.dtype, logits) is not logits:
        raise TypeError(
            f"ce.torch.{name}: target.dtype is {target.dtype}; expected {logits}, the dtype of the logits "
            "(logits_dtype)"
        )
    result = loss_dtype or (torch.float32 if is_autocast else dtype)
    if result not in (dtype, torch.float32):
        raise ValueError(f"ce.torch.{name}: loss_dtype is {loss_dtype}; expected {_linear_arguments.f32_or(dtype)}")
    asked = return_z_loss or return_lse or return_argmax or return_hit
    wants_z_loss = return_z_loss and numbers.z_loss != 0.0
    flat_rows = None if row_weight is None else row_weight.reshape(-1)
    flat_upstream = None if upstream is None else upstream.reshape(-1 if upstream.numel() != 1 else ())

    if row_scale is not None:
        row_scale = _linear_arguments.rows_of(name, "logit_scale", row_scale, rows, input.dtype)
        numbers = numbers._replace(logit_scale=1.0)

    if not _linear_arguments.has_kernels(input, linear_weight) or target.requires_grad:
        with _autocast.without_autocast(input):
            bias = None if linear_bias is None else linear_bias.to(dtype)
            made_logits = F.linear(input.to(dtype), linear_weight.to(dtype), bias).to(logits)
            made_logits = made_logits.reshape(-1, linear_weight.shape[0])
            of_torch = functional.cross_entropy(
                made_logits,
                target.reshape(-1).long() if has_classes else target.reshape(made_logits.shape),
                weight,
                row_weight=flat_rows,
                divisor=divisor,
                upstream=flat_upstream,
                loss_dtype=result if result in (torch.float32, logits) else logits,
                return_z_loss=True,
                return_lse=True,
                return_argmax=True,
                return_hit=return_hit,
                ignore_index=ignore,
                reduction=reduction,
                label_smoothing=label_smoothing,
                **(amounts if row_scale is None else {**amounts, "logit_scale": row_scale}),
            )
        made = tuple(of_torch)
        if valid_tokens is not None:
            left_out = target.reshape(-1) == ignore
            factor = _valid_tokens.factor(left_out, valid_tokens)
            of_none = left_out | factor.isnan()
            loss, of_z_loss, lse, argmax, hit = made[:5]
            made = (
                loss * factor,
                of_z_loss * factor,
                lse.masked_fill(of_none, torch.nan),
                argmax.masked_fill(of_none, -1),
                None if hit is None else hit.masked_fill(of_none, False),
            )
    else:
        _transforms.refuse_functorch(name, "linear")
        _transforms.refuse_tangents(name, input, linear_weight, linear_bias, instead="linear")
        _arguments.refuse_gradients(f"ce.torch.{name}", weight=weight, row_weight=row_weight)
        f32_loss = result is torch.float32 or logits is torch.float32
        _linear_arguments.check_sums(name, of_sums, accumulate, input, linear_weight)
        if check:
            _target_check.check_targets(input, of_earlier_calls=True)
        made = _in_kernels(
            _linear_arguments.flat_hidden(input),
            linear_weight,
            linear_bias,
            _linear_arguments.flat_target(target, logits),
            _linear.Inputs(
                class_weight=weight if weight is None or weight.dtype is logits else weight.float(),
                upstream=None if flat_upstream is None else flat_upstream.to(torch.float32 if f32_loss else logits),
                row_weight=None if flat_rows is None else flat_rows.float(),
                row_scale=row_scale,
                divisor=divisor,
            ),
            numbers,
            _linear_arguments.memory_of(
                name, memory_budget, chunk_tokens, logits_dtype, accumulate, valid_tokens, exponentials
            ),
            (f32_loss, wants_z_loss, return_lse, return_argmax, return_hit),
            dtype,
        )
        if check:
            _target_check.check_targets(input)
    loss, of_z_loss, lse, argmax, hit = made[:5]
    if wants_z_loss and code != 0 and not return_lse:
        of_z_loss = of_z_loss.detach()
    loss = _unflat(loss, rows, reduction)
    if loss.dtype is not result:
        loss = loss.to(result)
    if not asked:
        return loss
    if return_z_loss and not wants_z_loss:
        of_z_loss = torch.zeros_like(loss)
    return functional.CrossEntropyOutput(
        loss,
        _unflat(of_z_loss, rows, reduction).to(result) if return_z_loss else None,
        lse.reshape(rows) if return_lse else None,
        argmax.reshape(rows) if return_argmax else None,
        hit.reshape(rows) if return_hit else None,
    )


def _in_kernels(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    inputs: _linear.Inputs,
    numbers: _reference.Options,
    memory: _linear.Memory,
    outputs: tuple[bool, ...],
    dtype: torch.dtype,
) -> tuple[Any, ...]:
    """Loss, z-loss, logsumexp, argmax and hit; outputs that are not wanted are None, or an empty tensor."""
    needs = _linear.needs_of(input, weight, bias)
    if not any(needs):
        f32_loss, wants_z_loss, wants_lse, wants_argmax, wants_hit = outputs
        wanted = _linear.Wanted(f32_loss, z_loss_out=wants_z_loss, lse=wants_lse, argmax=wants_argmax, hit=wants_hit)
        layer = _linear.Layer.of(input, weight, bias, dtype)
        made = _linear.run(*layer, target, _linear.without_upstream(inputs), numbers, memory, wanted)
        return made.loss, made.z_loss_out, made.lse, made.argmax, made.hit
    given = (input, weight, bias, target)
    if numbers.reduction in _autograd.MEAN_OR_SUM and not any(outputs[1:]):
        loss = _linear.LossAlone.apply(*given, inputs, numbers, memory, outputs[0], dtype, needs)
        return loss, None, None, None, None
    return _linear.LinearCrossEntropy.apply(*given, inputs, numbers, memory, outputs, dtype, needs)


def _unflat(loss: Tensor, rows: torch.Size, reduction: str) -> Tensor:
    return loss.reshape(rows) if reduction == "none" else loss
