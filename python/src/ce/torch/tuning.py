"""Tuning ahead of the first step, and errors of earlier calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ce.torch import _native, _settings, functional, linear, logprobs
from ce.torch._kernels import KERNEL_DTYPES
from ce.torch.integrations.transformers import CeForCausalLMLoss

__all__ = ["check", "tune"]

_LINEAR = ("linear_cross_entropy", "linear_loss")
_LOGPROBS = ("selective_log_softmax", "logprobs_and_entropy")
_OPERATIONS = ("cross_entropy", "loss", "causal_lm_loss", "softmax", "log_softmax", *_LOGPROBS, *_LINEAR)
_OF_SHAPES, _OF_MODELS = ("cross_entropy",), ("cross_entropy", "loss", "causal_lm_loss")


def check(device: torch.device | str | int | None = None) -> None:
    """Waits for a GPU and raises errors that kernels on it have met since the last check: targets out of range, missing
    ranks.

    Args:
        device: the GPU; "cpu" for the host device. Default: the current GPU, or the host device if torch sees no GPU.

    Raises:
        IndexError: targets out of range; names how many, the first row and its target. Each row is reported once.
        RuntimeError: a rank that exchanges (:func:`vocab_parallel_cross_entropy`) did not come; names it, once. Or the
            device is a GPU, and torch sees none.
        ValueError: a device of another type.
    """
    _native.check(_device_to_check(device))


def _device_to_check(given: torch.device | str | int | None) -> int:
    has_gpu = torch.cuda.is_available()
    if given is None and not has_gpu:
        return _native.HOST
    device = _device_of("check", given)
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"ce.torch.check: device is {str(device)!r}; expected a GPU or the CPU")
    if device.type == "cuda" and not has_gpu:
        raise RuntimeError(f"ce.torch.check: device is {given!r}; torch sees no GPU")
    return _native.device_index(device)


def _device_of(name: str, given: torch.device | str | int | None) -> torch.device:
    try:
        return torch.device("cuda" if given is None else given)
    except (RuntimeError, TypeError, ValueError) as error:
        raise type(error)(
            f"ce.torch.{name}: device is {given!r}; expected a GPU or the CPU, as torch names it"
        ) from error


def tune(
    what: nn.Module | Iterable[Sequence[Any]],
    *,
    rows: int | None = None,
    dtype: torch.dtype | None = None,
    operations: Sequence[str] | None = None,
    hidden: int | None = None,
    device: torch.device | str | int | None = None,
    tuning_seconds: float | None = None,
    group: dist.ProcessGroup | None = None,
    **options: Any,
) -> None:
    """Tunes unknown problems ahead of the first step, whatever the policy of :func:`configure` is.

    If torch.distributed is initialised, every rank must call it: the first rank of the group tunes, then the others use
    its results if they share its database, and otherwise tune for themselves.

    Args:
        what: shapes, each (rows, classes) or (rows, classes, dtype); or a model, whose output layer gives the classes
            and the dtype.
        rows: with a model: the rows of logits of a step, which are its tokens.
        dtype: dtype of shapes without one, by default bfloat16; for a model the dtype of its logits.
        operations: of "cross_entropy" (loss and gradient), "loss" (without gradient), "causal_lm_loss" (what
            ``integrations.transformers.CeForCausalLMLoss`` calls, with and without a gradient and
            `num_items_in_batch`), "softmax", "log_softmax", "selective_log_softmax" and "logprobs_and_entropy" (each
            with its gradient), "linear_cross_entropy" and "linear_loss" (of a linear layer, with and without
            gradients). Unless given "cross_entropy", and with a model "loss" and "causal_lm_loss", too.
        hidden: for shapes the hidden size, for operations of a linear layer.
        device: the GPU, the current one unless given; "cpu" for the host device.
        tuning_seconds: limit for each problem; 0: no bound; unset: that of :func:`configure`.
        group: the ranks; all of them unless given.
        options: options of :func:`cross_entropy`, or of the other functions for their operations: they are part of the
            problem.

    Raises:
        ValueError: a shape, operation or model without enough information, or a dtype without kernels.
        RuntimeError: the device is a GPU, and torch sees none.
        torch.OutOfMemoryError: a problem does not fit into the device's memory.
    """
    if isinstance(operations, str):
        operations = (operations,)
    if not isinstance(what, (nn.Module, Iterable)):
        raise TypeError(f"ce.torch.tune: what is {what!r}; expected shapes or a model")
    if operations is None:
        operations = _OF_MODELS if isinstance(what, nn.Module) else _OF_SHAPES
    for operation in operations:
        if operation not in _OPERATIONS:
            raise ValueError(f"ce.torch.tune: operation is {operation!r}; expected one of {', '.join(_OPERATIONS)}")
    if isinstance(what, nn.Module):
        head = _head_of(what, rows)
        shapes, hidden = [_shape((rows, head.shape[0], dtype or head.dtype), None)], head.shape[1]
    else:
        shapes = [_shape(one, dtype) for one in what]
    if {*operations} & {*_LINEAR} and (not isinstance(hidden, int) or hidden < 1):
        raise ValueError(
            f"ce.torch.tune: hidden is {hidden!r}; expected the hidden size, for operations of a linear layer"
        )
    where = _device_of("tune", device)
    if where.type == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(
            f"ce.torch.tune: device is {device!r}, but torch sees no GPU; expected 'cpu', which is the host device"
        )
    is_distributed = dist.is_available() and dist.is_initialized() and dist.get_world_size(group) > 1
    is_first = not is_distributed or dist.get_rank(group) == 0
    if is_first:
        _tune_all(shapes, operations, hidden, where, tuning_seconds, options)
    if is_distributed:
        dist.barrier(group)
        if not is_first:
            _tune_all(shapes, operations, hidden, where, tuning_seconds, options)


def _shape(given: Sequence[Any], dtype: torch.dtype | None) -> tuple[int, int, torch.dtype]:
    if len(given) not in (2, 3) or not all(isinstance(size, int) and size > 0 for size in given[:2]):
        raise ValueError(f"ce.torch.tune: shape is {given!r}; expected (rows, classes) or (rows, classes, dtype)")
    own = given[2] if len(given) == 3 else dtype or torch.bfloat16
    if own not in tuple(KERNEL_DTYPES):
        raise ValueError(f"ce.torch.tune: dtype is {own!r}; expected torch.float32, torch.float16 or torch.bfloat16")
    return given[0], given[1], own


def _head_of(model: nn.Module, rows: int | None) -> Tensor:
    """The weight of the output layer."""
    if rows is None:
        raise ValueError("ce.torch.tune: rows is None; expected the number of tokens of a step for a model")
    get_head: Any = getattr(model, "get_output_embeddings", None)
    head = get_head() if get_head is not None else None
    if head is None:
        linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
        head = max(linears, key=lambda linear: linear.out_features, default=None)
    if head is None:
        raise ValueError(
            f"ce.torch.tune: {type(model).__name__} has no linear layer; expected a linear layer that makes the logits"
        )
    return head.weight


def _tune_all(
    shapes: Sequence[tuple[int, int, torch.dtype]],
    operations: Sequence[str],
    hidden: int | None,
    device: torch.device,
    tuning_seconds: float | None,
    options: dict[str, Any],
) -> None:
    # Kernels are tuned even if calls on the CPU run in torch.
    cpu: _settings.Cpu | None = "host" if device.type == "cpu" else None
    before = _settings.configure(policy="tune", tuning_seconds=tuning_seconds, cpu=cpu)
    try:
        for rows, classes, dtype in shapes:
            target = torch.zeros(rows, dtype=torch.int64, device=device)
            for operation in operations:
                if operation in _LINEAR:
                    assert hidden is not None  # tune() has checked that
                    _run_linear(operation, _normal(rows, hidden, dtype, device), classes, target, options)
                else:
                    _run(operation, torch.zeros(rows, classes, dtype=dtype, device=device), target, options)
    finally:
        _settings.restore(before)


def _normal(rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Fills a tensor with numbers like a model's: products of zeros are faster, and would give wrong times."""
    return torch.randn(rows, columns, dtype=dtype, device=device)


def _run(operation: str, logits: Tensor, target: Tensor, options: dict[str, Any]) -> None:
    if operation == "loss":
        functional.cross_entropy(logits, target, **{**options, "inplace_backward": False})
    elif operation == "cross_entropy":
        leaf = logits.requires_grad_()
        functional.cross_entropy(leaf, target, **{**options, "inplace_backward": False}).sum().backward()
    elif operation == "causal_lm_loss":
        for items in (None, torch.tensor(len(target), device=target.device)):
            for one in (logits.detach(), logits.detach().requires_grad_()):
                loss = CeForCausalLMLoss(one, None, logits.shape[-1], items, shift_labels=target)
                if one.requires_grad:
                    loss.backward()
    elif operation in _LOGPROBS:
        for one in (logits.detach(), logits.detach().requires_grad_()):
            made = getattr(logprobs, operation)(one, target, **options)
            if one.requires_grad:
                sum(one.sum() for one in (made if isinstance(made, tuple) else (made,))).backward()
    else:
        output = getattr(functional, operation)(logits.requires_grad_(), -1)
        output.backward(logits.detach())


def _run_linear(operation: str, hidden: Tensor, classes: int, target: Tensor, options: dict[str, Any]) -> None:
    weight = _normal(classes, hidden.shape[1], hidden.dtype, hidden.device).mul_(hidden.shape[1] ** -0.5)
    is_wanted = operation == "linear_cross_entropy"
    loss = linear.linear_cross_entropy(
        hidden.requires_grad_(is_wanted), weight.requires_grad_(is_wanted), target, **options
    )
    if is_wanted:
        loss.sum().backward()
