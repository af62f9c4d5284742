"""Softmax and cross entropy with the signatures and the meaning of ``torch.nn.functional``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, TypedDict, TypeVar, cast

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active
from torch.autograd import forward_ad
from torch.nn import _reduction
from torch.overrides import has_torch_function_variadic

from ce import _c
from ce.torch import (
    _arguments,
    _autograd,
    _cross_entropy,
    _loss_arguments,
    _native,
    _reference,
    _settings,
    _target_check,
    _transforms,
)
from ce.torch._autocast import is_under_autocast
from ce.torch._kernels import INDEX_DTYPES, KERNEL_DTYPES, has_kernels_for
from ce.torch._softmax import log_softmax, softmax

__all__ = ["CrossEntropyOutput", "cross_entropy", "log_softmax", "softmax"]

_NUMBERS_OF_TORCH = _reference.Options()[: _reference.Options._fields.index("label_smoothing") + 1]
"""The operators' values for torch's options that are not given."""
_NUMBERS, _CODES, _NONE = _cross_entropy.NUMBERS, _c.REDUCTIONS, _reference.NONE
_BOOL = frozenset((bool,))
_operators = _native.operators
_loss = _native.fast(_operators._cross_entropy_loss)
_loss_of_classes = _native.fast(_operators._cross_entropy_of_classes)
_is_compiling = torch.compiler.is_compiling
_is_grad_enabled, _is_autocast_enabled = torch.is_grad_enabled, torch.is_autocast_enabled
_Function = TypeVar("_Function", bound=Callable[..., Any])


class CrossEntropyOutput(NamedTuple):
    """The result of :func:`cross_entropy` with further outputs; outputs that were not asked for are None.

    The loss is differentiable; so is lse, unless the gradient overwrites the logits. z_loss is differentiable if the
    logits are kept: for the reduction none, with return_lse, and with given_lse.
    """

    loss: Tensor
    z_loss: Tensor | None = None
    """Like the loss: its z-loss part."""
    lse: Tensor | None = None
    """One float32 a row (float64 for float64 logits): logsumexp of the transformed logits, without a gradient in
    ignored rows."""
    argmax: Tensor | None = None
    """One int64 a row: the index of the first largest logit."""
    hit: Tensor | None = None
    """One bool a row: whether argmax is the target; False in ignored rows."""
    logprob: Tensor | None = None
    """One float32 a row: the log-probability of the target, without a gradient; 0 in ignored rows."""
    entropy: Tensor | None = None
    """One float32 a row: the entropy, without a gradient; 0 in ignored rows."""
    lse_low: Tensor | None = None
    """One float32 a row: the rounding error of lse; lse.double() + lse_low is the exact value."""


def _refuse(error: Exception, **given: Any) -> NoReturn:
    """Raises an operator's error as torch's users expect it, or the error in the arguments."""
    try:
        _native.raise_from(error)
    except _arguments.REFUSALS as known:
        _arguments.explain(cross_entropy, known, given, _loss_arguments.dtypes_beside(given["input"]))
        raise


def _legacy_reduction(size_average: bool | None, reduce: bool | None) -> str:
    """The reduction of torch's deprecated options, with torch's warning unless a compiler traces the call."""
    if not _is_compiling():
        return _reduction.legacy_get_string(size_average, reduce)
    if reduce is not None and not reduce:
        return "none"
    return "mean" if size_average is None or size_average else "sum"


def _with_direct_calls(function: _Function) -> _Function:
    """Decorates :func:`cross_entropy`. As in softmax, a loss of class indices with only torch's options takes the
    shortest way to its kernel; every other call goes to the function, with all its options."""

    defaults = _arguments.keyword_defaults(function)

    @functools.wraps(function)
    def cross_entropy(
        input: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        **options: Any,
    ) -> Any:
        try:
            if (
                not options
                and weight is None
                and size_average is reduce is None
                and not has_torch_function_variadic(input, target)
                and not _is_compiling()
                and forward_ad._current_level < 0
                and (input.is_cuda or (_settings.on_host and input.is_cpu))
                and (dtype := input.dtype) in KERNEL_DTYPES
                and target.dtype in INDEX_DTYPES
                and (code := _CODES.get(reduction)) is not None
                and type(ignore_index) is int
                and type(label_smoothing) in _NUMBERS
                and not _are_functorch_transforms_active()
            ):
                f32_loss = dtype is torch.float32 or _is_autocast_enabled(input.device.type)
                # Options that are left out are not even converted.
                numbers = (ignore_index, code, label_smoothing)
                rest = (target, f32_loss) if numbers == _NUMBERS_OF_TORCH else (target, f32_loss, *numbers)
                if not (input.requires_grad and _is_grad_enabled()):
                    return _loss_of_classes(input, *rest)
                if code != _NONE:
                    return _autograd.loss_of_classes(input, rest)
        except (AttributeError, TypeError):
            pass  # rejected below, by name
        except (RuntimeError, ValueError) as error:
            if has_kernels_for(input) and input.numel() != 0:
                _refuse(error, input=input, target=target, ignore_index=ignore_index, label_smoothing=label_smoothing)
        if size_average is not None or reduce is not None:
            reduction = _legacy_reduction(size_average, reduce)
        if has_torch_function_variadic(input, target, weight) and options.keys() <= defaults.keys():
            own = {"ignore_index": ignore_index, "reduction": reduction, "label_smoothing": label_smoothing}
            named = {**own, **defaults, **options}
            return _arguments.overridden(cross_entropy, (input, target, weight), input, target, weight, **named)
        of_torch = (weight, None, ignore_index, None, reduction, label_smoothing)
        if options and _is_compiling() and options.get("check"):
            return _target_check.call_checked(cross_entropy, input, target, *of_torch, **options)
        try:
            return function(input, target, *of_torch, **options)
        except _arguments.REFUSALS as error:
            if options.keys() <= defaults.keys():
                given = {"ignore_index": ignore_index, "label_smoothing": label_smoothing, **options}
                given.update(input=input, target=target, weight=weight)
                _arguments.explain(cross_entropy, error, given, _loss_arguments.dtypes_beside(input))
            raise

    return cast(_Function, cross_entropy)


@_transforms.replacement
@_with_direct_calls
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    z_loss: float = 0.0,
    softcap: float | None = None,
    logit_scale: float | Tensor = 1.0,
    token_scaling: float = 0.0,
    row_weight: Tensor | None = None,
    divisor: Tensor | float | None = None,
    given_lse: Tensor | None = None,
    upstream: Tensor | float | None = None,
    loss_dtype: torch.dtype | None = None,
    inplace_backward: bool = False,
    check: bool = False,
    return_z_loss: bool = False,
    return_lse: bool = False,
    return_argmax: bool = False,
    return_hit: bool = False,
    return_logprob: bool = False,
    return_entropy: bool = False,
    return_lse_low: bool = False,
) -> Any:
    """Cross entropy of logits, as :func:`torch.nn.functional.cross_entropy`, with more options by keyword.

    With z = softcap tanh(logit_scale input / softcap), or logit_scale input without a cap, and lse = logsumexp(z), the
    loss of a row is torch's loss of z, plus z_loss lse^2 in rows that are not ignored; both times the row's weight, and
    times the probability of the target to the power token_scaling.

    Where the input requires a gradient, loss and gradient come from one pass over the logits for the reductions mean
    and sum, and the gradient is kept for the backward, which multiplies it by the upstream gradient. For the reduction
    none, and with return_lse, the logits and two float32 a row (of probabilities one) are kept, and the backward is a
    second pass: of the loss and of lse together.

    Args:
        input: logits: [classes], [rows, classes] or [rows, classes, d1, ...] of float32, float16 or bfloat16; other
            dtypes, and the CPU, go to torch.
        target: class indices of the input's sizes without the classes; or probabilities of the input's sizes.
        weight: [classes], a weight for each class.
        ignore_index: rows with this target are ignored.
        reduction: "mean", "sum" or "none".
        label_smoothing: 0 to 1.
        z_loss: the factor of lse^2; 0: off.
        softcap: the cap of the logits; None or 0: off.
        logit_scale: the factor of the logits; or one float32 a row, of the target's sizes, on the device: rows with a
            factor that is not positive are NaN.
        token_scaling: the power, 0 to 16, for class indices; the probability is treated as a constant; 0: off. Power 1
            is the token scaling of Liger-Kernel (dynamic fine-tuning).
        row_weight: one float32 a row, of the target's sizes: multiplies loss and gradient. It is not counted in a mean.
        divisor: replaces the number of rows that count as the divisor of a mean: a number, or one on the device, which
            nothing waits for.
        given_lse: one float32 a row: known logsumexps of the transformed logits, without a gradient of their own. The
            forward then only reads the logits of the targets; the backward computes the whole gradient. Only for class
            indices, and without outputs other than z_loss.
        upstream: a number, or a tensor with one element or one a row, on the device: multiplies the gradient in the
            backward, not the loss. It is rounded to the dtype of the loss.
        loss_dtype: float32, or the input's, which is the default. Under autocast float32 is the default, as in torch.
            The loss is never narrower than probabilities, nor than float64 logits.
        inplace_backward: the gradient overwrites the input, already in the forward: the logits are lost, and nothing
            else is allocated. For reductions mean and sum; lse then has no gradient. If another operation has saved the
            logits, its backward fails, as after any in-place operation. Compiled code leaves the logits as they are.
        check: wait for the GPU and raise IndexError for a target that is neither a class nor ignore_index. Without it
            the loss, and the gradient of such rows, are NaN, and :func:`ce.torch.check` says which. Errors of earlier
            calls on the stream are raised before this one runs, and the message says so. It breaks the graph of
            torch.compile.
        return_z_loss, return_lse, return_argmax, return_hit, return_logprob, return_entropy, return_lse_low: return a
            :class:`CrossEntropyOutput` with these too; return_hit and return_logprob only for class indices. See
            :func:`logprobs_and_entropy` for log-probabilities and entropies with gradients.

    Returns:
        The loss, or a :class:`CrossEntropyOutput`.

    Raises:
        ValueError: sizes or options that do not fit.
        TypeError: a dtype that does not.
        IndexError: a target out of range, with check.
        RuntimeError: a weight, row weight, scale or divisor that requires a gradient, a transform of ``torch.func``, or
            check in ``torch.export``.
    """
    code = _CODES.get(reduction) if isinstance(reduction, str) else None
    if code is None:
        code = _arguments.reduction_code("ce.torch.cross_entropy", reduction)  # raises
    dtype = input.dtype
    if loss_dtype is None:
        f32_loss = dtype is torch.float32 or is_under_autocast(input)
    elif loss_dtype is torch.float32 or loss_dtype is dtype:
        f32_loss = loss_dtype is torch.float32
    else:
        raise ValueError(
            f"ce.torch.cross_entropy: loss_dtype is {loss_dtype}; expected torch.float32 or the input's, {dtype}"
        )
    if (return_hit or return_logprob) and target.is_floating_point():
        wrong = "return_hit" if return_hit else "return_logprob"
        raise ValueError(f"ce.torch.cross_entropy: {wrong} is True; expected False where target holds probabilities")
    if type(ignore_index) is not int:
        ignore_index = _arguments.integer("ce.torch.cross_entropy", "ignore_index", ignore_index)
    cap = 0.0 if softcap is None else softcap
    numbers = (ignore_index, code, label_smoothing, z_loss, cap, logit_scale, token_scaling)
    returned = (
        return_z_loss,
        return_lse,
        return_argmax,
        return_hit,
        return_logprob,
        return_entropy,
        return_lse_low,
    )
    asked = any(returned)
    wants_gradient = input.requires_grad and torch.is_grad_enabled()
    # A loss of class indices alone, with amounts that torch does not have.
    if (
        not (asked or check)
        and weight is row_weight is divisor is given_lse is None
        and (input.is_cuda or (_settings.on_host and input.is_cpu))
        and dtype in KERNEL_DTYPES
        and target.dtype in INDEX_DTYPES
        and input.numel() != 0
        and not _is_compiling()
        and _NUMBERS.issuperset(map(type, numbers))
        and forward_ad._current_level < 0
        and not _are_functorch_transforms_active()
    ):
        if upstream is not None:
            of_loss = torch.float32 if f32_loss else dtype
            upstream = _loss_arguments.upstream_of(upstream, of_loss, input, "ce.torch.cross_entropy")
        try:
            if not wants_gradient:
                return _loss(input, target, None, None, None, None, *numbers, f32_loss)
            if code != _reference.NONE and not inplace_backward:
                return _autograd.loss_alone(input, target, None, upstream, None, None, None, *numbers, f32_loss)
        except (RuntimeError, ValueError) as error:
            if has_kernels_for(input):
                _native.raise_from(error)

    if asked and not _BOOL.issuperset(map(type, returned)):
        _arguments.require_flags(
            "ce.torch.cross_entropy",
            return_z_loss=return_z_loss,
            return_lse=return_lse,
            return_argmax=return_argmax,
            return_hit=return_hit,
            return_logprob=return_logprob,
            return_entropy=return_entropy,
            return_lse_low=return_lse_low,
        )
    made = _cross_entropy.outputs(
        input,
        target,
        weight,
        numbers,
        row_weight,
        divisor,
        given_lse,
        upstream,
        f32_loss,
        inplace_backward,
        check,
        returned,
    )
    return _chosen(made, returned) if asked else made[0]


class Amounts(TypedDict, total=False):
    """Options of :func:`cross_entropy` that each loss function takes by keyword, and passes on."""

    z_loss: float
    softcap: float | None
    logit_scale: float | Tensor
    token_scaling: float


def _chosen(outputs: Sequence[Any], returned: tuple[bool, ...]) -> CrossEntropyOutput:
    loss, *others = outputs
    return CrossEntropyOutput(loss, *(one if asked else None for one, asked in zip(others, returned)))
