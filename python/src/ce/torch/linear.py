"""The loss of a linear layer, without its logits in memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active
from torch.overrides import has_torch_function_variadic
from typing_extensions import Unpack

from ce.torch import (
    _amounts,
    _arguments,
    _autocast,
    _linear,
    _linear_arguments,
    _linear_loss,
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

_NAME = "linear_cross_entropy"
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
                try:
                    _native.raise_from(error)
                except _arguments.REFUSALS as known:
                    given = {"input": input, "linear_weight": linear_weight, "target": target}
                    _arguments.explain(linear_cross_entropy, known, given)
                    raise
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
            tokens, and masked prompts cost next to nothing. If more tokens count, the loss is NaN, so are the gradients
            of linear_weight and linear_bias (that of the input need not be), and no row has an argmax or a hit. For an
            ignored token the losses and z-losses are 0, the logsumexp is NaN, the argmax -1, and there is no hit;
            :func:`check` numbers only the rows that count.
        memory_budget: bytes that a call may take beyond its results. None: a tenth of the free memory when the first
            call of such sizes runs.
        chunk_tokens: tokens of a chunk; None: as many as the budget holds, or a half, a quarter or an eighth of them if
            the first call of such sizes finds that faster.
        logits_dtype: float32, or the dtype of the products, which is the default.
        accumulate: dtype in which the gradient of the weight is summed over chunks: float32, or the weight's own. None:
            float32 if there is more than one chunk and the budget holds it.
        exponentials: whether the product of the logits writes their exponentials, from which the gradients are computed
            without another pass over the logits; hidden states are rounded once more for the weight's gradient. It
            supports bfloat16 with class indices on Hopper, with rows of input and linear_weight aligned to 16 bytes (a
            hidden size divisible by 8), without linear_bias, weight, label_smoothing, token_scaling and a logit_scale
            of rows. None: if the first call of such sizes finds that faster.

    All other arguments, and the result, are as in :func:`ce.torch.cross_entropy`.

    Raises:
        ValueError: sizes or options that do not fit, exponentials for a call that does not support them, and a weight
            without elements.
        TypeError: a dtype that does not.
        RuntimeError: no cuBLASLt, or a transform of ``torch.func``.
    """
    chunk_tokens, accumulate, of_sums = _with_options_of_torch(options, chunk_tokens, accumulate)
    ignore = -100 if ignore_index is None else ignore_index
    code = _arguments.reduction_code(f"ce.torch.{_NAME}", reduction)
    all_amounts = _amounts.amounts_of(_NAME, amounts)
    numbers = _amounts.options_of(f"ce.torch.{_NAME}", ignore, code, label_smoothing, all_amounts)
    row_scale = numbers.logit_scale if isinstance(numbers.logit_scale, Tensor) else None
    _linear_arguments.check_layer(_NAME, input, linear_weight, linear_bias)
    _check_dtypes(input, target, weight, row_weight, upstream, return_hit)
    if upstream is not None and not isinstance(upstream, Tensor):
        upstream = _arguments.on_device(f"ce.torch.{_NAME}", "upstream", upstream, torch.float32, input)
    if divisor is not None:
        divisor = _loss_arguments.divisor_of(divisor, reduction, input, f"ce.torch.{_NAME}")
    _check_sizes(input, linear_weight, target, linear_bias, weight, row_weight, upstream, row_scale)
    _linear_arguments.check_memory(_NAME, memory_budget, chunk_tokens)
    _linear_arguments.check_sums(_NAME, of_sums, accumulate, input, linear_weight)
    _arguments.require_flags(
        f"ce.torch.{_NAME}",
        return_z_loss=return_z_loss,
        return_lse=return_lse,
        return_argmax=return_argmax,
        return_hit=return_hit,
    )
    if exponentials not in (None, True, False):
        raise TypeError(f"ce.torch.{_NAME}: exponentials is {exponentials!r}; expected True, False or None")
    if valid_tokens is not None:
        if target.is_floating_point():
            raise ValueError(f"ce.torch.{_NAME}: target is {target.dtype}; expected class indices beside valid_tokens")
        _valid_tokens.check(_NAME, valid_tokens, target.numel())
    dtypes = _dtypes_of(input, linear_weight, target, logits_dtype, loss_dtype)
    rows = input.shape[:-1]
    if row_scale is not None:
        row_scale = _linear_arguments.rows_of(_NAME, "logit_scale", row_scale, rows, input.dtype)
        numbers = numbers._replace(logit_scale=1.0)
    flat_upstream = None if upstream is None else upstream.reshape(-1 if upstream.numel() != 1 else ())
    flat_rows = None if row_weight is None else row_weight.reshape(-1)
    inputs = _linear.Inputs(weight, flat_upstream, flat_rows, row_scale, divisor)
    layer = (input, linear_weight, linear_bias)
    wants_z_loss = return_z_loss and numbers.z_loss != 0.0
    if not _linear_arguments.has_kernels(input, linear_weight) or target.requires_grad:
        made = _linear_loss.in_torch(*layer, target, inputs, numbers, dtypes, valid_tokens, return_hit)
    else:
        _transforms.refuse_functorch(_NAME, "linear")
        _transforms.refuse_tangents(_NAME, *layer, instead="linear")
        _arguments.refuse_gradients(f"ce.torch.{_NAME}", weight=weight, row_weight=row_weight)
        if check:
            _target_check.check_targets(input, of_earlier_calls=True)
        memory = _linear_arguments.memory_of(
            _NAME, memory_budget, chunk_tokens, logits_dtype, accumulate, valid_tokens, exponentials
        )
        wanted = (wants_z_loss, return_lse, return_argmax, return_hit)
        made = _linear_loss.in_kernels(*layer, target, inputs, numbers, memory, dtypes, wanted)
        if check:
            _target_check.check_targets(input)
    if wants_z_loss and code != _reference.NONE and not return_lse:
        made = (made[0], made[1].detach(), *made[2:])
    returned = (return_z_loss, return_lse, return_argmax, return_hit)
    return _linear_loss.result(made, rows if reduction == "none" else None, rows, dtypes.loss, returned, wants_z_loss)


def _with_options_of_torch(
    options: Any, chunk_tokens: int | None, accumulate: torch.dtype | None
) -> tuple[int | None, torch.dtype | None, str]:
    """The tokens of a chunk and the dtype of sums, from torch's options where they are not given; and the name of the
    argument that the latter comes from."""
    if options is None:
        return chunk_tokens, accumulate, "accumulate"
    if not hasattr(options, "batch_chunk_size") and not hasattr(options, "acc_dtype"):
        raise TypeError(
            f"ce.torch.{_NAME}: options is of type {type(options).__name__}; expected torch's "
            "LinearCrossEntropyOptions, with batch_chunk_size and acc_dtype"
        )
    chunk_tokens = chunk_tokens or getattr(options, "batch_chunk_size", None)
    if accumulate is None:
        return chunk_tokens, getattr(options, "acc_dtype", None), "options.acc_dtype"
    return chunk_tokens, accumulate, "accumulate"


def _check_dtypes(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    row_weight: Tensor | None,
    upstream: Tensor | float | None,
    return_hit: bool,
) -> None:
    has_classes = not target.is_floating_point()
    of_target = (*INDEX_DTYPES, torch.uint8) if has_classes else (*KERNEL_DTYPES, torch.float64)
    _arguments.require_dtype(f"ce.torch.{_NAME}", "target", target, *of_target)
    if not has_classes and return_hit:
        raise ValueError(f"ce.torch.{_NAME}: return_hit is True; expected False where target holds probabilities")
    for argument, given in (("weight", weight), ("row_weight", row_weight), ("upstream", upstream)):
        if isinstance(given, Tensor):
            _linear_arguments.require_dtype(_NAME, argument, given, input.dtype)


def _check_sizes(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    row_weight: Tensor | None,
    upstream: Tensor | None,
    row_scale: Tensor | None,
) -> None:
    """Checks sizes, and that all tensors are on one device."""
    rows, classes = input.shape[:-1], linear_weight.shape[0]
    expected = (*rows, classes) if target.is_floating_point() else rows
    if target.shape != expected:
        raise ValueError(f"ce.torch.{_NAME}: target has sizes {list(target.shape)}; expected {list(expected)}")
    _linear_arguments.check_devices(
        _NAME, input, linear_weight=linear_weight, target=target, linear_bias=linear_bias, weight=weight,
        row_weight=row_weight, upstream=upstream, logit_scale=row_scale,
    )  # fmt: skip
    if weight is not None and weight.shape != linear_weight.shape[:1]:
        raise ValueError(f"ce.torch.{_NAME}: weight has sizes {list(weight.shape)}; expected [{classes}], one a class")
    _loss_arguments.check_row_weight(row_weight, rows, f"ce.torch.{_NAME}")
    if upstream is not None and upstream.numel() != 1 and upstream.shape != rows:
        raise ValueError(
            f"ce.torch.{_NAME}: upstream has sizes {list(upstream.shape)}; expected a number, or {list(rows)}, one for "
            "each row"
        )


def _dtypes_of(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    logits_dtype: torch.dtype | None,
    loss_dtype: torch.dtype | None,
) -> _linear_loss.Dtypes:
    """The dtypes of the call, which the given ones must fit."""
    dtype = _linear_arguments.dtype_of(input, linear_weight)
    logits = _linear_arguments.logits_dtype_of(_NAME, logits_dtype, dtype)
    if target.is_floating_point() and torch.promote_types(target.dtype, logits) is not logits:
        raise TypeError(
            f"ce.torch.{_NAME}: target.dtype is {target.dtype}; expected {logits}, the dtype of the logits "
            "(logits_dtype)"
        )
    result = loss_dtype or (torch.float32 if _autocast.is_under_autocast(input) else dtype)
    if result not in (dtype, torch.float32):
        raise ValueError(f"ce.torch.{_NAME}: loss_dtype is {loss_dtype}; expected {_linear_arguments.f32_or(dtype)}")
    return _linear_loss.Dtypes(dtype, logits, result)
