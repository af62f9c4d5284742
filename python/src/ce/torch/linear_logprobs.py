"""Log-probabilities and entropies of the rows of a linear layer, without its logits in memory."""

from __future__ import annotations

import torch
from torch import Tensor

from ce.torch import _arguments, _autocast, _linear, _linear_arguments, _transforms, _valid_tokens
from ce.torch._kernels import INDEX_DTYPES, KERNEL_DTYPES
from ce.torch.logprobs import LEFT_OUT, check_temperature, logprobs_and_entropy, options_of_logprobs, require_indices

__all__ = ["linear_logprobs_and_entropy"]


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
    _linear_arguments.check_layer(name, input, linear_weight, linear_bias)
    of_rows = temperature if isinstance(temperature, Tensor) else None
    check_temperature(name, temperature)
    if index.shape != input.shape[:-1]:
        raise ValueError(f"ce.torch.{name}: index has sizes {list(index.shape)}; expected {list(input.shape[:-1])}")
    require_indices(name, index)
    if mask is not None:
        _arguments.require_dtype(f"ce.torch.{name}", "mask", mask, torch.bool)
    _linear_arguments.check_devices(
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
    _linear_arguments.check_memory(name, memory_budget, chunk_tokens)
    if valid_tokens is not None:
        _valid_tokens.check(name, valid_tokens, index.numel())
    _linear_arguments.check_sums(name, "accumulate", accumulate, input, linear_weight)
    dtype = _linear_arguments.dtype_of(input, linear_weight)
    of_logits = _linear_arguments.logits_dtype_of(name, logits_dtype, dtype)
    if not _linear_arguments.has_kernels(input, linear_weight):
        with _autocast.without_autocast(input):
            logits = _linear_arguments.logits_in_torch(input, linear_weight, linear_bias, dtype, of_logits)
        logprob, entropy = logprobs_and_entropy(logits, index, temperature=temperature)
        if valid_tokens is None:
            return logprob, entropy
        left_out = index == LEFT_OUT
        factor = _valid_tokens.factor(left_out, valid_tokens)
        return logprob.masked_fill(left_out, 0.0) * factor, entropy.masked_fill(left_out, 0.0) * factor
    _transforms.refuse_functorch(name, "linear")
    _transforms.refuse_tangents(name, input, linear_weight, linear_bias, instead="linear")
    scale = (
        None
        if of_rows is None
        else 1.0 / _linear_arguments.rows_of(name, "temperature", of_rows, index.shape, input.dtype)
    )
    numbers = options_of_logprobs(temperature)
    memory = _linear_arguments.memory_of(name, memory_budget, chunk_tokens, logits_dtype, accumulate, valid_tokens)
    needs = _linear.needs_of(input, linear_weight, linear_bias)
    layer = (_linear_arguments.flat_hidden(input), linear_weight, linear_bias)
    flat_index = _linear_arguments.flat_target(index, dtype)
    logprob, entropy = _linear.Logprobs.apply(*layer, flat_index, numbers, memory, dtype, needs, scale)
    return logprob.reshape(index.shape), entropy.reshape(index.shape)
