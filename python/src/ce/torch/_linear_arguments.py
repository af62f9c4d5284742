"""Checks and conversions of the arguments that functions of linear layers share."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ce.torch import _arguments, _autocast, _linear
from ce.torch._kernels import INDEX_DTYPES, KERNEL_DTYPES, has_kernels_for


def check_layer(name: str, input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
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
        _arguments.require_dtype(f"ce.torch.{name}", argument, tensor, *KERNEL_DTYPES, torch.float64)
    if input.dtype is torch.float64 or weight.dtype is torch.float64:
        _arguments.require_dtype(f"ce.torch.{name}", "linear_weight", weight, input.dtype)
    if bias is not None:
        require_dtype(name, "linear_bias", bias, input.dtype)


def require_dtype(name: str, argument: str, given: Tensor, of_input: torch.dtype) -> None:
    """Refuses a dtype that would lose digits: float64 only goes with a layer in float64."""
    also = (torch.float64,) if of_input is torch.float64 else ()
    _arguments.require_dtype(f"ce.torch.{name}", argument, given, *KERNEL_DTYPES, *also)


def check_devices(name: str, input: Tensor, **others: Any) -> None:
    device = input.device
    for argument, tensor in others.items():
        if isinstance(tensor, Tensor) and tensor.device != device:
            raise ValueError(
                f"ce.torch.{name}: {argument} is on {tensor.device}; expected {device}, the device of input"
            )


def rows_of(name: str, argument: str, given: Tensor, rows: torch.Size, of_input: torch.dtype) -> Tensor:
    """A per-row tensor with one element a row, in float32."""
    require_dtype(name, argument, given, of_input)
    if given.shape != rows:
        raise ValueError(
            f"ce.torch.{name}: {argument} has sizes {list(given.shape)}; expected a number, or {list(rows)}, one for "
            "each row"
        )
    _arguments.refuse_gradients(f"ce.torch.{name}", **{argument: given})
    return given.reshape(-1).float()


def dtype_of(input: Tensor, weight: Tensor) -> torch.dtype:
    """The dtype of the products: autocast's, else the one that both promote to."""
    own, of_weight = input.dtype, weight.dtype
    if _autocast.is_under_autocast(input) and torch.float64 not in (own, of_weight):
        return torch.get_autocast_dtype(input.device.type)
    return own if own is of_weight else torch.promote_types(own, of_weight)


def has_kernels(input: Tensor, weight: Tensor) -> bool:
    return has_kernels_for(input) and has_kernels_for(weight) and input.numel() > 0


def logits_dtype_of(name: str, given: torch.dtype | None, own: torch.dtype) -> torch.dtype:
    """The dtype of the logits.

    Args:
        own: the dtype of the products.

    Raises:
        ValueError: neither float32 nor that of the products.
    """
    if given not in (None, own, torch.float32):
        raise ValueError(f"ce.torch.{name}: logits_dtype is {given}; expected {f32_or(own)}")
    return given or own


def logits_in_torch(
    input: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, logits: torch.dtype
) -> Tensor:
    """The logits of a layer by torch's own product. The caller has turned off autocast.

    Args:
        dtype: the dtype of the operands.
        logits: the dtype of the result, to which nothing is rounded before.
    """
    operands = (input.to(dtype).to(logits), weight.to(dtype).to(logits))
    return F.linear(*operands, None if bias is None else bias.to(logits))


def flat_hidden(input: Tensor) -> Tensor:
    return input if input.dim() == 2 else input.reshape(-1, input.shape[-1])


def flat_target(target: Tensor, logits: torch.dtype) -> Tensor:
    if target.is_floating_point():
        return target.reshape(-1, target.shape[-1]).to(logits)
    flat = target if target.dim() == 1 else target.reshape(-1)
    return flat if flat.dtype in INDEX_DTYPES else flat.long()


def memory_of(
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


def f32_or(dtype: torch.dtype) -> str:
    return "torch.float32" if dtype is torch.float32 else f"torch.float32 or {dtype}"


def check_sums(name: str, argument: str, dtype: torch.dtype | None, input: Tensor, weight: Tensor) -> None:
    """
    Raises:
        TypeError, ValueError: the gradient of the weight cannot be summed in that dtype; names the function and
            argument.
    """
    of_products = dtype_of(input, weight)
    own = of_products if weight.dtype is of_products else torch.float32  # dtype of the gradient before it is returned
    if dtype not in (None, own, torch.float32):
        _linear.dtype_code(dtype, name, argument)
        raise ValueError(f"ce.torch.{name}: {argument} is {dtype}; expected {f32_or(own)}")


def check_memory(name: str, memory_budget: int | None, chunk_tokens: int | None) -> None:
    for argument, number in (("memory_budget", memory_budget), ("chunk_tokens", chunk_tokens)):
        if number is None:
            continue
        if _arguments.integer(f"ce.torch.{name}", argument, number) < 1:
            raise ValueError(f"ce.torch.{name}: {argument} is {number}; expected 1 or more, or None")
        if number >= 2**63:
            raise ValueError(f"ce.torch.{name}: {argument} is {number}; expected an integer of 64 bits")
