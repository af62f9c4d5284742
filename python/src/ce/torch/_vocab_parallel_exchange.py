"""The plan "exchange" of ranks that share the classes: one kernel for loss and gradient, and autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ce.torch import _autograd, _native, _rank_exchange, _reference
from ce.torch._rank_groups import Group
from ce.torch._vocab_parallel import Wanted

_operators = _native.operators


def _exchange_arguments(
    logits: Tensor,
    grad: Tensor,
    peers: int,
    target: Tensor,
    weight: Tensor | None,
    upstream: Tensor | None,
    row_weight: Tensor | None,
    row_scale: Tensor | None,
    divisor: Tensor | None,
    numbers: _reference.Options,
    f32_loss: bool,
    wanted: Wanted,
    group: Group,
) -> tuple[Any, ...]:
    valid = group.valid(logits.shape[1])
    own_target = target[:, :valid] if target.is_floating_point() else target
    of_rows = (row_weight, row_scale, divisor)
    matrices = (logits[:, :valid], own_target, weight, upstream, grad[:, :valid])
    return *matrices, *of_rows, *numbers, f32_loss, group.first_class, group.classes, peers, *wanted


def _aligned(matrix: Tensor) -> Tensor:
    """The matrix with contiguous rows, aligned to 16 bytes like a gradient: the ranks agreed on a kernel for that."""
    return matrix if matrix.is_contiguous() and matrix.data_ptr() % 16 == 0 else matrix.contiguous().clone()


def can_exchange(logits: Tensor, *rest: Any) -> bool:
    """Whether this rank has a kernel that exchanges; takes the arguments of the function below."""
    group: Group = rest[9]
    if group.valid(logits.shape[1]) == 0:
        return False
    logits = _aligned(logits.detach())
    arguments = _exchange_arguments(logits, logits, 0, *rest[:10])
    return bool(_operators.cross_entropy_exchange_is_possible(*arguments))


def choose_for_exchange(arguments: tuple[Any, ...], peers: int) -> None:
    """Calls the operator of the function below inside ``_native.choosing()``."""
    logits, target, weight, upstream, *rest, in_place = arguments
    logits = _aligned(logits.detach())
    target = _aligned(target) if target.is_floating_point() else target
    grad = logits if in_place else torch.empty_like(logits)
    if upstream is not None:
        upstream = upstream.to(torch.float32 if rest[4] else logits.dtype)
    _operators.cross_entropy_exchange(*_exchange_arguments(logits, grad, peers, target, weight, upstream, *rest))


class ExchangedCrossEntropy(torch.autograd.Function):
    """Loss and gradient in one step, by kernels of the ranks that exchange statistics. Saves the gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        upstream: Tensor | None,
        row_weight: Tensor | None,
        row_scale: Tensor | None,
        divisor: Tensor | None,
        numbers: _reference.Options,
        f32_loss: bool,
        wanted: Wanted,
        group: Group,
        in_place: bool,
        peers: _rank_exchange.Peers,
    ) -> tuple[Tensor, ...]:
        try:
            given, logits = logits, _aligned(logits.detach())
            target = _aligned(target) if target.is_floating_point() else target
            grad = logits if in_place else torch.empty_like(logits)
            if upstream is not None:
                upstream = upstream.to(torch.float32 if f32_loss else logits.dtype)
            rest = (target, weight, upstream, row_weight, row_scale, divisor, numbers, f32_loss, wanted, group)
            peers.begin(logits)
            loss, *others = _operators.cross_entropy_exchange(*_exchange_arguments(logits, grad, peers.handle, *rest))
            peers.end(logits)
        except Exception as error:
            try:
                _native.raise_from(error)
            except (ValueError, TypeError, IndexError, LookupError):  # as a rule on all ranks: then none waits
                raise
            except Exception:
                peers.give_up()
                raise
        grad[:, group.valid(logits.shape[1]) :].zero_()
        if in_place and grad.data_ptr() == given.data_ptr():
            _autograd.overwritten(given)
        ctx.in_place = in_place
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(grad)
        ctx.mark_non_differentiable(*others)
        return loss, *others

    @staticmethod
    def backward(ctx: Any, of_loss: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        _autograd.refuse_second("vocab_parallel_cross_entropy", "torch.nn.functional.cross_entropy")
        none = (None,) * 12
        if of_loss is None:
            return None, *none
        (grad,) = ctx.saved_tensors
        return _autograd.scaled(grad, of_loss, _autograd.keeps_graph(), ctx.in_place), *none
