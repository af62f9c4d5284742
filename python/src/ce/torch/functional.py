"""Softmax and cross entropy with the signatures and the meaning of ``torch.nn.functional``."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypedDict, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C import _are_functorch_transforms_active
from torch.autograd import forward_ad
from torch.nn import _reduction
from torch.nn.functional import cross_entropy as _torch_cross_entropy  # the original, even while F is patched
from torch.overrides import has_torch_function_unary, has_torch_function_variadic

from ce import _c
from ce.torch import _arguments, _autograd, _native, _reference, _settings

__all__ = ["CrossEntropyOutput", "cross_entropy", "log_softmax", "softmax"]

KERNEL_DTYPES = frozenset((torch.float32, torch.float16, torch.bfloat16))
INDEX_DTYPES = frozenset((torch.int64, torch.int32))
_NUMBERS = frozenset((float, int))
_NUMBERS_OF_TORCH = _reference.Options()[: _reference.Options._fields.index("label_smoothing") + 1]
"""The operators' values for torch's options that are not given."""
_CODES, _NONE = _c.REDUCTIONS, _reference.NONE
_operators = _native.operators
_eager_softmax, _eager_log_softmax = (
    _native.fast(_operators._eager_softmax),
    _native.fast(_operators._eager_log_softmax),
)
_softmax_public = {False: _operators.softmax.default, True: _operators.log_softmax.default}
_loss = _native.fast(_operators._cross_entropy_loss)
_loss_of_classes = _native.fast(_operators._cross_entropy_of_classes)
_forward = _native.fast(_operators._cross_entropy)
_is_compiling = torch.compiler.is_compiling
_is_grad_enabled, _is_autocast_enabled = torch.is_grad_enabled, torch.is_autocast_enabled
_new_tuple = tuple.__new__
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


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Tensor:
    """Softmax along a dimension, as :func:`torch.nn.functional.softmax`.

    Args:
        input: float32, float16 or bfloat16 of any sizes; other dtypes, and the CPU, go to torch.
        dim: dimension along which the results add up to 1; required, as torch's warning says.
        dtype: dtype to which the input is cast first.

    Returns:
        A tensor like the input, dense in the order of its dimensions in memory. Rows that hold NaN, +infinity or
        nothing but -infinity are NaN. Under autocast float32, as torch.

    Raises:
        IndexError: the input does not have the dimension.
        RuntimeError: a gradient is wanted under a transform of ``torch.func``.
    """
    if has_torch_function_unary(input):
        return _arguments.overridden(softmax, (input,), input, dim=dim, _stacklevel=_stacklevel, dtype=dtype)
    # Most calls only pass through torch's dispatcher before their kernel.
    try:
        if type(dim) is int and dtype is None and not _is_compiling() and forward_ad._current_level < 0:
            try:
                if not input.requires_grad:
                    return _eager_softmax(input, dim)
                if _is_for_gradient(input):
                    return _autograd.softmax(input, dim, False)
            except (RuntimeError, ValueError) as error:
                if has_kernels_for(input):
                    _native.raise_from(error)
        return _softmax_of(input, dim, dtype, False, _stacklevel)
    except _arguments.REFUSALS as error:
        _arguments.explain(softmax, error, {"input": input, "dim": dim})
        raise


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None
) -> Tensor:
    """The logarithm of softmax along a dimension, as :func:`torch.nn.functional.log_softmax`. See :func:`softmax`."""
    if has_torch_function_unary(input):
        return _arguments.overridden(log_softmax, (input,), input, dim=dim, _stacklevel=_stacklevel, dtype=dtype)
    try:
        if type(dim) is int and dtype is None and not _is_compiling() and forward_ad._current_level < 0:
            try:
                if not input.requires_grad:
                    return _eager_log_softmax(input, dim)
                if _is_for_gradient(input):
                    return _autograd.softmax(input, dim, True)
            except (RuntimeError, ValueError) as error:
                if has_kernels_for(input):
                    _native.raise_from(error)
        return _softmax_of(input, dim, dtype, True, _stacklevel)
    except _arguments.REFUSALS as error:
        _arguments.explain(log_softmax, error, {"input": input, "dim": dim})
        raise


def _softmax_of(input: Tensor, dim: int | None, dtype: torch.dtype | None, logarithm: bool, stacklevel: int) -> Tensor:
    if dim is None:
        dim = F._get_softmax_dim(  # type: ignore[attr-defined]
            "log_softmax" if logarithm else "softmax", input.dim(), stacklevel + 1
        )
    name = "log_softmax" if logarithm else "softmax"
    dim = _arguments.integer(f"ce.torch.{name}", "dim", dim)
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"ce.torch.{name}: dtype is {dtype!r}; expected a torch.dtype or None")
    if dtype is not None and input.dtype is not dtype:
        input = input.to(dtype)
    if not has_kernels_for(input) or (not _is_compiling() and _is_patched_in_transform(name)):
        return torch.log_softmax(input, dim) if logarithm else torch.softmax(input, dim)
    if _is_compiling():
        return _softmax_public[logarithm](input, dim)
    refuse_tangents(name, input)
    if torch.is_autocast_enabled(input.device.type) and input.dtype is not torch.float32:
        input = input.float()
    try:
        if torch.is_grad_enabled() and input.requires_grad:
            refuse_functorch(name)
            return _autograd.softmax(input, dim, logarithm)
        return (_eager_log_softmax if logarithm else _eager_softmax)(input, dim)
    except (RuntimeError, ValueError) as error:
        _native.raise_from(error)


def has_kernels_for(tensor: Tensor) -> bool:
    """Whether a tensor is on a device with kernels, of a dtype that they support, and a plain one: neither nested, nor
    sparse, nor distributed (DTensor)."""
    return (
        (tensor.is_cuda or (_settings.on_host and tensor.is_cpu))
        and tensor.dtype in KERNEL_DTYPES
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and type(tensor).__name__ != "DTensor"
    )


def is_under_autocast(tensor: Tensor) -> bool:
    """Whether autocast is on for a tensor's device. The device meta has no autocast, and torch's query raises for
    it."""
    return not tensor.is_meta and torch.is_autocast_enabled("cuda" if tensor.is_cuda else tensor.device.type)


def without_autocast(tensor: Tensor) -> contextlib.AbstractContextManager[Any]:
    """A block in which autocast is off on the device of a tensor."""
    return contextlib.nullcontext() if tensor.is_meta else torch.autocast(tensor.device.type, enabled=False)


def _is_for_gradient(input: Tensor) -> bool:
    """Whether only autograd needs a gradient of softmax, for a tensor without autocast."""
    return (
        (input.is_cuda or (_settings.on_host and input.is_cpu))
        and input.dtype in KERNEL_DTYPES
        and _is_grad_enabled()
        and not _are_functorch_transforms_active()
        and (input.dtype is torch.float32 or not _is_autocast_enabled(input.device.type))
    )


def _is_patched_in_transform(name: str) -> bool:
    """Whether torch's own function must run, which has rules for transforms; this module's function, which replaces it,
    has none."""
    return (has_tangents() or _are_functorch_transforms_active()) and getattr(F, name) is globals()[name]


def refuse_functorch(name: str, instead: str | None = None) -> None:
    if _are_functorch_transforms_active():
        raise RuntimeError(
            f"ce.torch.{name} does not support the transforms of torch.func (grad, vmap, jvp, ...); "
            f"call torch.nn.functional.{instead or name} inside of them instead"
        )


def has_tangents() -> bool:
    """Whether tensors may have tangents: inside of ``torch.autograd.forward_ad.dual_level`` and ``torch.func.jvp``."""
    return forward_ad._current_level >= 0


def refuse_tangents(name: str, *tensors: Tensor | None, instead: str | None = None) -> None:
    """Raises in forward mode, which has no rule: tangents would be lost."""
    if not has_tangents():
        return
    for tensor in tensors:
        if tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None:
            raise RuntimeError(
                f"ce.torch.{name} does not support derivatives in forward mode; "
                f"call torch.nn.functional.{instead or name} for them instead"
            )


def _refuse(error: Exception, **given: Any) -> NoReturn:
    """Raises an operator's error as torch's users expect it, or the error in the arguments."""
    try:
        _native.raise_from(error)
    except _arguments.REFUSALS as known:
        _arguments.explain(cross_entropy, known, given, _dtypes_beside(given["input"]))
        raise


def keyword_defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """The defaults of keyword-only parameters."""
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}


def _with_direct_calls(function: _Function) -> _Function:
    """Decorates :func:`cross_entropy`. As in softmax, a loss of class indices with only torch's options takes the
    shortest way to its kernel; every other call goes to the function, with all its options."""

    defaults = keyword_defaults(function)

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
            reduction = _reduction.legacy_get_string(size_average, reduce)
        if has_torch_function_variadic(input, target, weight) and options.keys() <= defaults.keys():
            own = {"ignore_index": ignore_index, "reduction": reduction, "label_smoothing": label_smoothing}
            named = {**own, **defaults, **options}
            return _arguments.overridden(cross_entropy, (input, target, weight), input, target, weight, **named)
        of_torch = (weight, None, ignore_index, None, reduction, label_smoothing)
        if options and _is_compiling() and options.get("check"):
            return call_checked(cross_entropy, input, target, *of_torch, **options)
        try:
            return function(input, target, *of_torch, **options)
        except _arguments.REFUSALS as error:
            if options.keys() <= defaults.keys():
                given = {"ignore_index": ignore_index, "label_smoothing": label_smoothing, **options}
                given.update(input=input, target=target, weight=weight)
                _arguments.explain(cross_entropy, error, given, _dtypes_beside(input))
            raise

    return cast(_Function, cross_entropy)


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
        raise ValueError(f"ce.torch.cross_entropy: reduction is {reduction!r}; expected 'none', 'mean' or 'sum'")
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
            upstream = upstream_of(upstream, torch.float32 if f32_loss else dtype, input, "ce.torch.cross_entropy")
        try:
            if not wants_gradient:
                return _loss(input, target, None, None, None, None, *numbers, f32_loss)
            if code != _reference.NONE and not inplace_backward:
                return _autograd.loss_alone(input, target, None, upstream, None, None, None, *numbers, f32_loss)
        except (RuntimeError, ValueError) as error:
            if has_kernels_for(input):
                _native.raise_from(error)

    return _cross_entropy(
        input,
        target,
        weight,
        reduction,
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


class Amounts(TypedDict, total=False):
    """Options of :func:`cross_entropy` that each loss function takes by keyword, and passes on."""

    z_loss: float
    softcap: float | None
    logit_scale: float | Tensor
    token_scaling: float


_AMOUNTS = {name: inspect.signature(cross_entropy).parameters[name] for name in Amounts.__annotations__}


def with_amounts(function: _Function) -> _Function:
    """Decorates a function that takes ``**amounts``: help() and :mod:`inspect` then show each of them, with its
    default."""
    signature = inspect.signature(function)
    own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    function.__signature__ = signature.replace(parameters=[*own, *_AMOUNTS.values()])  # type: ignore[attr-defined]
    return function


def amounts_of(function: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All amounts: the given ones, and defaults for the others.

    Raises:
        TypeError: an unknown keyword.
    """
    for name in given:
        if name not in _AMOUNTS:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    return {name: given.get(name, parameter.default) for name, parameter in _AMOUNTS.items()}


def options_of(
    name: str, ignore_index: int, code: int, label_smoothing: float, amounts: Mapping[str, Any]
) -> _reference.Options:
    """The options in the operators' form, without a logit_scale of rows.

    Args:
        name: name of the function, for errors.
    """
    ignore_index = _arguments.integer(name, "ignore_index", ignore_index)
    _arguments.refuse_gradients(name, label_smoothing=label_smoothing, **amounts)
    options = _reference.Options(ignore_index, code, label_smoothing, **amounts)
    return options if options.softcap is not None else options._replace(softcap=0.0)


def _cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    given_numbers: tuple[Any, ...],
    row_weight: Tensor | None,
    divisor: Tensor | float | None,
    given_lse: Tensor | None,
    upstream: Tensor | float | None,
    f32_loss: bool,
    inplace_backward: bool,
    check: bool,
    returned: tuple[bool, ...],
) -> Any:
    """Handles every call except the simplest.

    Args:
        given_numbers: the operators' numbers, without a logit_scale of rows.
        returned: names of the outputs besides the loss, as in CrossEntropyOutput.
    """
    name = "ce.torch.cross_entropy"
    return_z_loss, return_lse, *others_of_rows = returned
    asked, dtype = any(returned), input.dtype
    wants_gradient = input.requires_grad and torch.is_grad_enabled()
    is_compiling = _is_compiling()
    # Eager calls avoid the Python function that creates a NamedTuple.
    numbers = _reference.Options(*given_numbers) if is_compiling else _new_tuple(_reference.Options, given_numbers)
    code, z_loss = numbers.reduction, numbers.z_loss
    _arguments.refuse_gradients(name, weight=weight, row_weight=row_weight)
    if is_compiling or not _NUMBERS.issuperset(map(type, given_numbers)):
        _arguments.refuse_gradients(name, **numbers._asdict())
    if divisor is not None:
        divisor = divisor_of(divisor, reduction, input, name)
    row_scale = None
    if isinstance(numbers.logit_scale, Tensor):
        row_scale = scale_of_rows(numbers.logit_scale, _row_sizes(input), name)
        numbers = numbers._replace(logit_scale=1.0)
    if given_lse is not None:
        wrong = any(returned[1:]) or inplace_backward or numbers.label_smoothing != 0.0
        if wrong or target.is_floating_point():
            raise ValueError(
                f"{name}: given_lse is given; expected None with probabilities, with label_smoothing, "
                "with inplace_backward, and with any output except z_loss"
            )
        check_given_lse(given_lse, input, name)
    of_torch = (
        not has_kernels_for(input)
        or input.numel() == 0
        or target.requires_grad
        or target.layout is not torch.strided
        or (not is_compiling and _is_patched_in_transform("cross_entropy"))
    )
    if not of_torch and target.dtype not in INDEX_DTYPES:
        target, input, of_torch = _same_dtype(target, input)
        if weight is not None and weight.dtype is dtype:
            weight = weight.to(input.dtype)
    if upstream is not None:
        wide = torch.float32 if f32_loss and input.dtype in KERNEL_DTYPES else input.dtype
        upstream = upstream_of(upstream, wide, input, name)
        if upstream.numel() != 1:
            upstream = _upstream_of_rows(upstream, input, name)
    if of_torch:
        ignore_index, code, label_smoothing, *_ = numbers
        others = (row_weight, row_scale, divisor)
        is_plain = not asked and upstream is None and all(one is None for one in others)
        if is_plain and numbers == _reference.Options(ignore_index, code, label_smoothing):
            loss = _torch_cross_entropy(
                input,
                target,
                weight,
                ignore_index=ignore_index,
                reduction=reduction,
                label_smoothing=label_smoothing,
            )
            return loss.float() if f32_loss and loss.dtype in KERNEL_DTYPES else loss
        result_dtype = torch.float32 if f32_loss and dtype in KERNEL_DTYPES else dtype
        names = [name for name, is_wanted in zip(CrossEntropyOutput._fields[1:], returned) if is_wanted]
        outputs = _reference.cross_entropy(input, target, weight, numbers, result_dtype, upstream, *others, names)
        if code != 0 and not return_lse:
            outputs = outputs._replace(z_loss=outputs.z_loss.detach())
        return _chosen(outputs, returned) if asked else outputs.loss

    if weight is not None and (weight.dim() != 1 or weight.numel() == 0):  # kernels check its length
        raise ValueError(
            f"{name}: weight has sizes {list(weight.shape)}; expected [{input.shape[_reference.class_dim(input)]}], "
            "one for each class"
        )
    if check:
        check_targets(input, of_earlier_calls=True)
    refuse_tangents("cross_entropy", input, target)
    others = (row_weight, row_scale, divisor)
    # Without a z-loss that part of the loss is 0, which needs no kernel.
    wants_z_loss = return_z_loss and z_loss != 0.0
    wanted = (f32_loss, wants_z_loss, *others_of_rows)
    if given_lse is not None:
        loss, of_z = _from_lse(
            input, target, weight, given_lse.detach(), upstream, others, numbers, f32_loss, wants_z_loss
        )
        if check:
            check_targets(input)
        if not return_z_loss:
            return loss
        return CrossEntropyOutput(loss, of_z if wants_z_loss else torch.zeros_like(loss))
    if is_compiling:
        made = _autograd.compiled_cross_entropy(input, target, weight, upstream, others, numbers, wanted)
        if code != 0 and not return_lse:
            made = (made[0], made[1].detach(), *made[2:])
    else:
        try:
            if wants_gradient:
                refuse_functorch("cross_entropy")
                if not asked and code != 0 and not inplace_backward:
                    made = (_autograd.loss_alone(input, target, weight, upstream, *others, *numbers, f32_loss),)
                else:
                    made = _autograd.CrossEntropy.apply(
                        input, target, weight, upstream, others, numbers, wanted, inplace_backward, return_lse
                    )
            elif asked:
                made = _forward(input, target, weight, *others, *numbers, *wanted)
            else:
                made = (_loss(input, target, weight, *others, *numbers, f32_loss),)
        except (RuntimeError, ValueError) as error:
            _native.raise_from(error)
        if check:
            check_targets(input)
    if not asked:
        return made[0]
    outputs = _reference.Outputs(*made)
    if return_z_loss and not wants_z_loss:
        outputs = outputs._replace(z_loss=torch.zeros_like(outputs.loss))
    return _chosen(outputs, returned)


def _dtypes_beside(input: Any) -> dict[str, tuple[torch.dtype, ...]]:
    """The dtypes that kernels expect of other tensors."""
    if not isinstance(input, Tensor) or not has_kernels_for(input):
        return {}
    of_rows = (torch.float32,)
    return {
        "weight": (torch.float32, input.dtype),
        "row_weight": of_rows,
        "logit_scale": of_rows,
        "given_lse": of_rows,
    }


def divisor_of(divisor: Tensor | float, reduction: str, input: Tensor, name: str) -> Tensor:
    """The divisor in the operators' form: one element, in float32 unless the logits are float64.

    Args:
        name: name of the function, for errors.
    """
    if reduction != "mean":
        raise ValueError(f"{name}: divisor is {divisor!r}; expected None with reduction {reduction!r}")
    dtype = torch.float64 if input.dtype is torch.float64 else torch.float32
    if not isinstance(divisor, Tensor):
        return _arguments.on_device(name, "divisor", divisor, dtype, input)
    if divisor.numel() != 1:
        raise ValueError(f"{name}: divisor has sizes {list(divisor.shape)}; expected a number, or one element")
    if divisor.is_complex() or divisor.dtype is torch.bool:
        raise TypeError(f"{name}: divisor.dtype is {divisor.dtype}; expected the dtype of a real number")
    _arguments.refuse_gradients(name, divisor=divisor)
    return divisor.to(dtype)


def upstream_of(upstream: Tensor | float, dtype: torch.dtype, input: Tensor, name: str) -> Tensor:
    """The upstream gradient in the operators' form: in the dtype of the loss.

    Args:
        name: name of the function, for errors.

    Raises:
        TypeError: a dtype that kernels do not support, and that is not the loss's.
    """
    if not isinstance(upstream, Tensor):
        return _arguments.on_device(name, "upstream", upstream, dtype, input)
    if upstream.device != input.device:
        raise ValueError(f"{name}: upstream is on {upstream.device}; expected {input.device}, where the logits are")
    if upstream.dtype is dtype:
        return upstream
    _arguments.require_dtype(name, "upstream", upstream, dtype, *_arguments.KERNEL_DTYPES)
    return upstream.to(dtype)


def _call_checked(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Runs a call with check=True from compiled code: between two graphs, as it waits.

    Raises:
        RuntimeError: there is nothing between graphs in torch.export.
    """
    if _is_compiling():
        raise RuntimeError(
            f"ce.torch.{function.__name__}: check is True; expected False in a graph, because it waits for the GPU"
        )
    return function(*args, **named)


call_checked = torch.compiler.disable(_call_checked, reason="check=True waits for the GPU")


def check_targets(input: Tensor, of_earlier_calls: bool = False) -> None:
    """Waits for the GPU and raises its errors.

    Args:
        of_earlier_calls: whether it is called before the call to be checked.

    Raises:
        IndexError: targets out of range.
    """
    try:
        _c.require(_c.library().ce_check(_native.context(_native.device_index(input.device)), _stream(input), None))
    except IndexError as error:
        if not of_earlier_calls:
            raise
        raise IndexError(
            f"{error}; this error is from an earlier call without check, and the call with check=True did not run"
        ) from None


def _from_lse(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    lse: Tensor,
    upstream: Tensor | None,
    others: tuple[Tensor | None, ...],
    numbers: _reference.Options,
    f32_loss: bool,
    wants_z_loss: bool,
) -> tuple[Tensor, Tensor]:
    """Loss and z-loss, through the operator that compilers see through."""
    try:
        if torch.is_grad_enabled() and input.requires_grad and not _is_compiling():
            refuse_functorch("cross_entropy")
        if upstream is not None and _autograd.is_of_rows_of_one_loss(upstream, numbers):
            loss, z_loss, *_ = _autograd.UpstreamOfRows.apply(
                input, target, weight, lse, upstream, others, numbers, (f32_loss, wants_z_loss)
            )
            return loss, z_loss
        loss, z_loss, _ = _operators.cross_entropy_from_lse(
            input, target, weight, lse, *others, *numbers, f32_loss, wants_z_loss
        )
    except (RuntimeError, ValueError) as error:
        _native.raise_from(error)
    return loss if upstream is None else _reference.scaled_gradient(loss, upstream), z_loss


def _row_sizes(input: Tensor) -> list[int]:
    dim = _reference.class_dim(input)
    return [*input.shape[:dim], *input.shape[dim + 1 :]]


def _upstream_of_rows(upstream: Tensor, input: Tensor, name: str) -> Tensor:
    """An upstream gradient in the sizes of the rows; dimensions of size 1 may differ."""
    expected = _row_sizes(input)
    if [size for size in upstream.shape if size != 1] != [size for size in expected if size != 1]:
        raise ValueError(
            f"{name}: upstream has sizes {list(upstream.shape)}; expected a number, or {expected}, one for each row"
        )
    return upstream.reshape(expected)


def check_given_lse(given: Tensor, input: Tensor, name: str, argument: str = "given_lse") -> None:
    """
    Args:
        name, argument: names of the function and its argument, for errors.

    Raises:
        ValueError: sizes that are not those of the rows.
        TypeError: a dtype that kernels do not support.
    """
    expected = _row_sizes(input)
    if list(given.shape) != expected:
        raise ValueError(f"{name}: {argument} has sizes {list(given.shape)}; expected {expected}, one for each row")
    if has_kernels_for(input):
        _arguments.require_dtype(name, argument, given, torch.float32)


def scale_of_rows(scale: Tensor, rows: Sequence[int], name: str) -> Tensor:
    """A logit_scale of rows in the operators' form.

    Args:
        scale: one for each row.
        rows: the required sizes.
        name: name of the function, for errors.

    Raises:
        ValueError: wrong sizes.
        RuntimeError: it requires a gradient.
    """
    if list(scale.shape) != list(rows):
        raise ValueError(
            f"{name}: logit_scale has sizes {list(scale.shape)}; expected a number, or {list(rows)}, one for each row"
        )
    _arguments.refuse_gradients(name, logit_scale=scale)
    return scale


def _same_dtype(target: Tensor, input: Tensor) -> tuple[Tensor, Tensor, bool]:
    """Converts index targets to int64, and probabilities and logits to the wider of their dtypes, as torch promotes
    them.

    Returns:
        Logits and target, and whether the call belongs to torch.
    """
    if not target.is_floating_point():
        return (target.long(), input, False) if target.dtype is torch.uint8 else (target, input, True)
    if target.dtype is input.dtype:
        return target, input, False
    _arguments.require_dtype("ce.torch.cross_entropy", "target", target, *_arguments.KERNEL_DTYPES, torch.float64)
    wider = torch.promote_types(target.dtype, input.dtype)
    return target.to(wider), input.to(wider), wider not in KERNEL_DTYPES


def _stream(tensor: Tensor) -> int:
    return torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else 0


def _chosen(outputs: _reference.Outputs, returned: tuple[bool, ...]) -> CrossEntropyOutput:
    loss, *others = outputs
    return CrossEntropyOutput(loss, *(one if asked else None for one, asked in zip(others, returned)))
