"""The operators of cross entropy with classes shared by ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ce.torch import _native, _reference, _settings
from ce.torch._registrations._library import fake_gradient, fake_nothing, library, operators, split
from ce.torch._vocab_parallel import Wanted, statistics_words

_OPERATORS = (
    "cross_entropy_shard",
    "cross_entropy_merge",
    "cross_entropy_shard_backward",
    "cross_entropy_shard_backward_",
    "cross_entropy_exchange",
    "cross_entropy_exchange_is_possible",
)


def _fake_shard(logits: Tensor, target: Tensor, weight: Tensor | None, *rest: Any) -> Tensor:
    _, numbers, (_, _, _, argmax, entropy) = split(rest, 3)
    wanted = Wanted(argmax=argmax, entropy=entropy)
    return logits.new_empty((logits.shape[0], statistics_words(logits, target, numbers, wanted)), dtype=torch.float32)


def _fake_merge(
    logits: Tensor, target: Tensor, weight: Tensor | None, statistics: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    _, numbers, (f32_loss, _, _, *flags) = split(rest, 3)
    rows = logits.shape[:1]
    losses = rows if numbers.reduction == _reference.NONE else ()
    loss_dtype = torch.float32 if f32_loss else logits.dtype
    others = (
        logits.new_empty(
            _reference.sizes_of(name, losses, rows) if flag else (0,), dtype=_reference.dtype_of(name, loss_dtype)
        )
        for name, flag in zip(Wanted._fields, flags)
    )
    merged = logits.new_empty((*rows, statistics.shape[1]), dtype=torch.float32)
    return logits.new_empty(losses, dtype=loss_dtype), *others, merged


def _fake_exchange(logits: Tensor, target: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    _, numbers, (f32_loss, _, _, _, *flags) = split(rest, 5)
    statistics = logits.new_empty((0, 0))
    shard = (0, 0)
    return _fake_merge(logits, target, None, statistics, None, None, None, *numbers, f32_loss, *shard, *flags)[:-1]


def _fake_possible(*arguments: Any) -> bool:
    raise NotImplementedError("ce::cross_entropy_exchange_is_possible: a traced tensor has no data; call it eagerly")


def _on_host(op: str) -> Any:
    twin = getattr(operators, "_" + op)

    def run(logits: Tensor, *rest: Any) -> Any:
        if not _settings.on_host:
            raise ValueError(
                f"ce::{op}: logits are on the CPU; expected a CUDA tensor, or ce.torch.configure(cpu='host')"
            )
        made = twin(logits, *rest)
        fake = {"cross_entropy_merge": _fake_merge, "cross_entropy_exchange": _fake_exchange}.get(op)
        if fake is None:
            return made
        empty = fake(logits, *rest)
        return tuple(nothing if one is None else one for one, nothing in zip(made, empty))

    return run


def register() -> None:
    fakes: tuple[Callable[..., Any], ...] = (
        _fake_shard,
        _fake_merge,
        fake_gradient,
        fake_nothing,
        _fake_exchange,
        _fake_possible,
    )
    for op, fake in zip(_OPERATORS, fakes):
        library.impl(op, _on_host(op), "CPU")
        _native.register_fake("ce::" + op, fake)
        _native.register_fake("ce::_" + op, fake)
