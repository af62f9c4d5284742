"""The loss of a linear layer, and log-probabilities and entropies of its rows, without its logits in memory."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._C import _are_functorch_transforms_active
from torch.overrides import has_torch_function_variadic
from typing_extensions import Unpack

from ce.torch import (
    _amounts,
    _arguments,
    _autocast,
    _autograd,
    _linear,
    _loss_arguments,
    _native,
    _reference,
    _settings,
    _target_check,
    _transforms,
    functional,
)
from ce.torch._kernels import INDEX_DTYPES, KERNEL_DTYPES, has_kernels_for
from ce.torch.logprobs import LEFT_OUT, check_temperature, logprobs_and_entropy, options_of_logprobs, require_indices

__all__ = ["LinearCrossEntropy", "linear_cross_entropy", "linear_logprobs_and_entropy"]

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
                return _linear.loss_of_classes(_flat_hidden(input), linear_weight, rows)
        except (AttributeError, TypeError):
            pass  # rejected below, by name
        except (RuntimeError, ValueError) as error:
            if _has_kernels(input, linear_weight) and target.device == input.device:
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
    _check_layer(name, input, linear_weight, linear_bias)
    dtype = _dtype_of(input, linear_weight)
    rows = input.shape[:-1]
    has_classes = not target.is_floating_point()
    dtypes = (*INDEX_DTYPES, torch.uint8) if has_classes else (*KERNEL_DTYPES, torch.float64)
    _arguments.require_dtype(f"ce.torch.{name}", "target", target, *dtypes)
    if not has_classes and return_hit:
        raise ValueError(f"ce.torch.{name}: return_hit is True; expected False where target holds probabilities")
    for argument, given in (("weight", weight), ("row_weight", row_weight), ("upstream", upstream)):
        if isinstance(given, Tensor):
            _require_dtype(name, argument, given, input.dtype)
    if upstream is not None and not isinstance(upstream, Tensor):
        upstream = _arguments.on_device(f"ce.torch.{name}", "upstream", upstream, torch.float32, input)
    if divisor is not None:
        divisor = _loss_arguments.divisor_of(divisor, reduction, input, f"ce.torch.{name}")
    expected = rows if has_classes else (*rows, linear_weight.shape[0])
    if target.shape != expected:
        raise ValueError(f"ce.torch.{name}: target has sizes {list(target.shape)}; expected {list(expected)}")
    _check_devices(
        name, input, linear_weight=linear_weight, target=target, linear_bias=linear_bias, weight=weight,
        row_weight=row_weight, upstream=upstream, logit_scale=row_scale,
    )  # fmt: skip
    if weight is not None and weight.shape != linear_weight.shape[:1]:
        raise ValueError(
            f"ce.torch.{name}: weight has sizes {list(weight.shape)}; expected [{linear_weight.shape[0]}], one a class"
        )
    _check_row_weight(name, row_weight, rows)
    if upstream is not None and upstream.numel() != 1 and upstream.shape != rows:
        raise ValueError(
            f"ce.torch.{name}: upstream has sizes {list(upstream.shape)}; expected one number, or {list(rows)}"
        )
    _check_memory(name, memory_budget, chunk_tokens)
    if exponentials not in (None, True, False):
        raise TypeError(f"ce.torch.{name}: exponentials is {exponentials!r}; expected True, False or None")
    if valid_tokens is not None:
        if not has_classes:
            raise ValueError(f"ce.torch.{name}: target is {target.dtype}; expected class indices beside valid_tokens")
        _check_valid_tokens(name, valid_tokens, target.numel())
    is_autocast = _autocast.is_under_autocast(input)
    logits = dtype if logits_dtype is None else logits_dtype
    if logits not in (dtype, torch.float32):
        raise ValueError(f"ce.torch.{name}: logits_dtype is {logits_dtype}; expected {_f32_or(dtype)}")
    if not has_classes and torch.promote_types(target.dtype, logits) is not logits:
        raise TypeError(
            f"ce.torch.{name}: target.dtype is {target.dtype}; expected {logits}, the dtype of the logits "
            "(logits_dtype)"
        )
    result = loss_dtype or (torch.float32 if is_autocast else dtype)
    if result not in (dtype, torch.float32):
        raise ValueError(f"ce.torch.{name}: loss_dtype is {loss_dtype}; expected {_f32_or(dtype)}")
    asked = return_z_loss or return_lse or return_argmax or return_hit
    wants_z_loss = return_z_loss and numbers.z_loss != 0.0
    flat_rows = None if row_weight is None else row_weight.reshape(-1)
    flat_upstream = None if upstream is None else upstream.reshape(-1 if upstream.numel() != 1 else ())

    if row_scale is not None:
        row_scale = _rows_of(name, "logit_scale", row_scale, rows, input.dtype)
        numbers = numbers._replace(logit_scale=1.0)

    if not _has_kernels(input, linear_weight) or target.requires_grad:
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
            factor = _factor(left_out, valid_tokens)
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
        _check_sums(name, of_sums, accumulate, input, linear_weight)
        if check:
            _target_check.check_targets(input, of_earlier_calls=True)
        made = _in_kernels(
            _flat_hidden(input),
            linear_weight,
            linear_bias,
            _flat_target(target, logits),
            _linear.Inputs(
                class_weight=weight if weight is None or weight.dtype is logits else weight.float(),
                upstream=None if flat_upstream is None else flat_upstream.to(torch.float32 if f32_loss else logits),
                row_weight=None if flat_rows is None else flat_rows.float(),
                row_scale=row_scale,
                divisor=divisor,
            ),
            numbers,
            _memory(name, memory_budget, chunk_tokens, logits_dtype, accumulate, valid_tokens, exponentials),
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


@_arguments.overridable("input", "linear_weight", "index")
@_arguments.explained(linear_bias=KERNEL_DTYPES)
def linear_logprobs_and_entropy(
    input: Tensor,
    linear_weight: Tensor,
    index: Tensor,
    *,
    linear_bias: Tensor | None = None,
    temperature: float | Tensor = 1.0,
    mask: Tensor | None = None,
    valid_tokens: int | None = None,
    memory_budget: int | None = None,
    chunk_tokens: int | None = None,
    logits_dtype: torch.dtype | None = None,
    accumulate: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """:func:`ce.torch.logprobs_and_entropy` of ``F.linear(input, linear_weight, linear_bias)``, with the logits of one
    chunk of tokens at a time in memory.

    If a gradient is required the layer is kept, and the backward computes the logits again: one more product. Arguments
    are those of :func:`linear_cross_entropy` and :func:`ce.torch.logprobs_and_entropy`; valid_tokens is the number of
    tokens whose index is not -100, and whose mask is true.

    Returns:
        Log-probabilities and entropies in nats, of the sizes of the index, in float32. Ignored and masked tokens have
        0. NaN if more tokens count than valid_tokens says.
    """
    name = "linear_logprobs_and_entropy"
    _check_layer(name, input, linear_weight, linear_bias)
    of_rows = temperature if isinstance(temperature, Tensor) else None
    check_temperature(name, temperature)
    if index.shape != input.shape[:-1]:
        raise ValueError(f"ce.torch.{name}: index has sizes {list(index.shape)}; expected {list(input.shape[:-1])}")
    require_indices(name, index)
    if mask is not None:
        _arguments.require_dtype(f"ce.torch.{name}", "mask", mask, torch.bool)
    _check_devices(
        name,
        input,
        linear_weight=linear_weight,
        index=index,
        linear_bias=linear_bias,
        temperature=temperature,
        mask=mask,
    )
    if index.dtype not in INDEX_DTYPES:
        index = index.long()  # the values are not those of ignored tokens
    if mask is not None and mask.shape != index.shape:
        raise ValueError(f"ce.torch.{name}: mask has sizes {list(mask.shape)}; expected {list(index.shape)}")
    if mask is not None:
        index = index.masked_fill(~mask, LEFT_OUT)
    _check_memory(name, memory_budget, chunk_tokens)
    if valid_tokens is not None:
        _check_valid_tokens(name, valid_tokens, index.numel())
    dtype = _dtype_of(input, linear_weight)
    if not _has_kernels(input, linear_weight):
        with _autocast.without_autocast(input):
            bias = None if linear_bias is None else linear_bias.to(dtype)
            logits = F.linear(input.to(dtype), linear_weight.to(dtype), bias)
        logprob, entropy = logprobs_and_entropy(logits, index, temperature=temperature)
        if valid_tokens is None:
            return logprob, entropy
        left_out = index == LEFT_OUT
        factor = _factor(left_out, valid_tokens)
        return logprob.masked_fill(left_out, 0.0) * factor, entropy.masked_fill(left_out, 0.0) * factor
    _transforms.refuse_functorch(name, "linear")
    _transforms.refuse_tangents(name, input, linear_weight, linear_bias, instead="linear")
    _check_sums(name, "accumulate", accumulate, input, linear_weight)
    scale = None if of_rows is None else 1.0 / _rows_of(name, "temperature", of_rows, index.shape, input.dtype)
    numbers = options_of_logprobs(temperature)
    memory = _memory(name, memory_budget, chunk_tokens, logits_dtype, accumulate, valid_tokens)
    needs = _linear.needs_of(input, linear_weight, linear_bias)
    layer = (_flat_hidden(input), linear_weight, linear_bias)
    logprob, entropy = _linear.Logprobs.apply(*layer, _flat_target(index, dtype), numbers, memory, dtype, needs, scale)
    return logprob.reshape(index.shape), entropy.reshape(index.shape)


_OPTIONS = tuple(
    name
    for name, parameter in inspect.signature(linear_cross_entropy).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY and name not in ("linear_bias", "weight")
)


class LinearCrossEntropy(nn.Linear):
    """A linear layer and its loss: a language model's head. See :func:`linear_cross_entropy`.

    Args:
        in_features: hidden size.
        num_classes: classes.
        bias: whether the layer has one.
        weight: [classes], a weight for each class.
        options: further arguments of :func:`linear_cross_entropy`, for every call.

    Raises:
        TypeError: an option that :func:`linear_cross_entropy` does not have.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        bias: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        weight: Tensor | None = None,
        **options: Any,
    ) -> None:
        for option in options:
            if option not in _OPTIONS:
                raise TypeError(
                    f"ce.torch.LinearCrossEntropy: got an unexpected option {option!r}; expected one of "
                    f"{', '.join(_OPTIONS)}"
                )
        super().__init__(in_features, num_classes, bias, device, dtype)
        self.class_weight: Tensor | None
        self.register_buffer("class_weight", weight)
        self.options = options

    def forward(self, input: Tensor, target: Tensor, **of_step: Any) -> Any:  # type: ignore[override]
        """The loss of hidden states and targets; options may change from step to step."""
        return linear_cross_entropy(
            input,
            self.weight,
            target,
            linear_bias=self.bias,
            weight=self.class_weight,
            **{**self.options, **of_step},
        )


def _check_layer(name: str, input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    for argument, tensor in (("input", input), ("linear_weight", weight), ("linear_bias", bias)):
        if type(tensor).__name__ == "DTensor":
            raise ValueError(
                f"ce.torch.{name}: {argument} is a DTensor; expected a plain tensor: if FSDP2 shards it, call this "
                "inside of the module's forward, or pass its full_tensor(); if ranks share the classes, pass this "
                "rank's part (to_local()) and its group to vocab_parallel_linear_cross_entropy"
            )
    if weight.numel() == 0:
        raise ValueError(
            f"ce.torch.{name}: linear_weight has no elements; if it is a shard of FSDP or ZeRO-3, call this while "
            "the weight is gathered (inside of the wrapped module's forward, FSDP.summon_full_params or "
            "deepspeed.zero.GatheredParameters)"
        )
    if weight.dim() != 2 or input.dim() == 0 or weight.shape[1] != input.shape[-1]:
        raise ValueError(
            f"ce.torch.{name}: linear_weight has sizes {list(weight.shape)}; expected [classes, hidden] with the last "
            f"size of input, whose sizes are {list(input.shape)}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"ce.torch.{name}: linear_bias has sizes {list(bias.shape)}; expected [{weight.shape[0]}]")
    for argument, tensor in (("input", input), ("linear_weight", weight)):
        if not tensor.is_floating_point():
            raise TypeError(f"ce.torch.{name}: {argument} is {tensor.dtype}; expected a floating point dtype")
    if input.dtype is torch.float64 or weight.dtype is torch.float64:
        _arguments.require_dtype(f"ce.torch.{name}", "linear_weight", weight, input.dtype)
    if bias is not None:
        _require_dtype(name, "linear_bias", bias, input.dtype)


def _require_dtype(name: str, argument: str, given: Tensor, of_input: torch.dtype) -> None:
    """Refuses a dtype that would lose digits: float64 only goes with a layer in float64."""
    also = (torch.float64,) if of_input is torch.float64 else ()
    _arguments.require_dtype(f"ce.torch.{name}", argument, given, *KERNEL_DTYPES, *also)


def _check_devices(name: str, input: Tensor, **others: Any) -> None:
    device = input.device
    for argument, tensor in others.items():
        if isinstance(tensor, Tensor) and tensor.device != device:
            raise ValueError(
                f"ce.torch.{name}: {argument} is on {tensor.device}; expected {device}, the device of input"
            )


def _check_row_weight(name: str, row_weight: Tensor | None, rows: torch.Size) -> None:
    if row_weight is not None and row_weight.shape != rows:
        raise ValueError(
            f"ce.torch.{name}: row_weight has sizes {list(row_weight.shape)}; expected {list(rows)}, one for each row"
        )


def _rows_of(name: str, argument: str, given: Tensor, rows: torch.Size, of_input: torch.dtype) -> Tensor:
    """A per-row tensor with one element a row, in float32."""
    _require_dtype(name, argument, given, of_input)
    if given.shape != rows:
        raise ValueError(
            f"ce.torch.{name}: {argument} has sizes {list(given.shape)}; expected a number, or {list(rows)}, one for "
            "each row"
        )
    _arguments.refuse_gradients(f"ce.torch.{name}", **{argument: given})
    return given.reshape(-1).float()


def _dtype_of(input: Tensor, weight: Tensor) -> torch.dtype:
    """The dtype of the products: autocast's, else the one that both promote to."""
    own, of_weight = input.dtype, weight.dtype
    if _autocast.is_under_autocast(input) and torch.float64 not in (own, of_weight):
        return torch.get_autocast_dtype(input.device.type)
    return own if own is of_weight else torch.promote_types(own, of_weight)


def _has_kernels(input: Tensor, weight: Tensor) -> bool:
    return has_kernels_for(input) and has_kernels_for(weight) and input.numel() > 0


def _flat_hidden(input: Tensor) -> Tensor:
    return input if input.dim() == 2 else input.reshape(-1, input.shape[-1])


def _flat_target(target: Tensor, logits: torch.dtype) -> Tensor:
    if target.is_floating_point():
        return target.reshape(-1, target.shape[-1]).to(logits)
    flat = target if target.dim() == 1 else target.reshape(-1)
    return flat if flat.dtype in INDEX_DTYPES else flat.long()


def _memory(
    name: str,
    budget: int | None,
    chunk_tokens: int | None,
    logits_dtype: torch.dtype | None,
    accumulate: torch.dtype | None,
    valid_tokens: int | None,
    exponentials: bool | None = None,
) -> _linear.Memory:
    return _linear.Memory(
        budget or 0,
        chunk_tokens or 0,
        _linear.dtype_code(logits_dtype, name, "logits_dtype"),
        _linear.dtype_code(accumulate, name, "accumulate"),
        -1 if valid_tokens is None else valid_tokens,
        -1 if exponentials is None else int(exponentials),
    )


def _f32_or(dtype: torch.dtype) -> str:
    return "torch.float32" if dtype is torch.float32 else f"torch.float32 or {dtype}"


def _check_sums(name: str, argument: str, dtype: torch.dtype | None, input: Tensor, weight: Tensor) -> None:
    """
    Raises:
        TypeError, ValueError: the gradient of the weight cannot be summed in that dtype; names the function and
            argument.
    """
    _linear.dtype_code(dtype, name, argument)
    of_products = _dtype_of(input, weight)
    own = of_products if weight.dtype is of_products else torch.float32  # dtype of the gradient before it is returned
    if dtype not in (None, own, torch.float32):
        raise ValueError(f"ce.torch.{name}: {argument} is {dtype}; expected {_f32_or(own)}")


def _check_memory(name: str, memory_budget: int | None, chunk_tokens: int | None) -> None:
    for argument, number in (("memory_budget", memory_budget), ("chunk_tokens", chunk_tokens)):
        if number is not None and _arguments.integer(f"ce.torch.{name}", argument, number) < 1:
            raise ValueError(f"ce.torch.{name}: {argument} is {number}; expected 1 or more, or None")


def _check_valid_tokens(name: str, valid_tokens: int, tokens: int) -> None:
    if isinstance(valid_tokens, Tensor):  # reading it would wait for the GPU
        raise TypeError(f"ce.torch.{name}: valid_tokens is a tensor; expected an integer")
    valid_tokens = _arguments.integer(f"ce.torch.{name}", "valid_tokens", valid_tokens)
    if not 0 <= valid_tokens <= tokens:
        raise ValueError(
            f"ce.torch.{name}: valid_tokens is {valid_tokens}; expected 0 to {tokens}, the number of tokens"
        )


def _factor(left_out: Tensor, valid_tokens: int) -> Tensor:
    """A factor [] of results, and so of their gradients: NaN if more tokens count than the caller says, else 1."""
    return torch.where((~left_out).sum() > valid_tokens, torch.nan, 1.0)


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
