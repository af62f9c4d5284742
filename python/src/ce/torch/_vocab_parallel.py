"""The plan "gather" of ranks that share the classes: statistics of the rows, an all-gather and autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ce.torch import _autograd, _native, _reference
from ce.torch._rank_groups import Group

_operators = _native.operators


class Wanted(NamedTuple):
    """The requested outputs besides the loss."""

    z_loss: bool = False
    lse: bool = False
    argmax: bool = False
    hit: bool = False
    logprob: bool = False
    entropy: bool = False


def statistics_words(logits: Tensor, target: Tensor, numbers: _reference.Options, wanted: Wanted) -> int:
    """Number of 32-bit words for each row, like ``ce::CrossEntropyShard::words()``."""
    label_smoothing, softcap = numbers.label_smoothing, numbers.softcap
    probabilities = target.is_floating_point()
    sums = 2 if logits.dtype is torch.float32 else 1
    words = 2 + (2 * sums if probabilities or label_smoothing != 0.0 else 0)
    words += 0 if probabilities else 1 + int(softcap != 0.0)
    return words + 2 * int(wanted.argmax or wanted.hit) + int(wanted.entropy)


def _neutral(logits: Tensor, target: Tensor, numbers: _reference.Options, wanted: Wanted) -> Tensor:
    """The statistics of a rank without classes, which has only padding."""
    words = statistics_words(logits, target, numbers, wanted)
    one = torch.zeros(words, dtype=torch.float32, device=logits.device)
    at_maximum = 0
    if not target.is_floating_point():
        one[0] = -torch.inf
        if numbers.softcap != 0.0:
            one[1] = 1.0
        at_maximum = 1 + int(numbers.softcap != 0.0)
    one[at_maximum] = -torch.inf
    if wanted.argmax or wanted.hit:
        one[-2] = -torch.inf
        one[-1:].view(torch.int32)[:] = 2**31 - 1
    return one.expand(logits.shape[0], words).contiguous()


def _gathered(statistics: Tensor, group: Group) -> Tensor:
    """All ranks' statistics: [ranks x rows, words], rank by rank."""
    if group.ranks == 1:
        return statistics
    if torch.compiler.is_compiling():
        from torch.distributed import _functional_collectives as collectives

        return collectives.wait_tensor(collectives.all_gather_tensor(statistics, 0, group.group))
    rows, words = statistics.shape
    gathered = statistics.new_empty(group.ranks * rows, words)
    dist.all_gather_into_tensor(gathered, statistics, group=group.group)
    return gathered


def merged(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    row_weight: Tensor | None,
    row_scale: Tensor | None,
    divisor: Tensor | None,
    numbers: _reference.Options,
    f32_loss: bool,
    wanted: Wanted,
    group: Group,
    gathered: Callable[[Tensor, Group], Tensor] = _gathered,
) -> tuple[Tensor, ...]:
    """Loss, z-loss, lse, argmax, hit, log-probability and entropy, empty if not wanted; then merged statistics."""
    shard = (group.first_class, group.classes)
    if logits.shape[1] == 0:
        own = _neutral(logits, target, numbers, wanted)
    else:
        flags = (wanted.lse, wanted.argmax or wanted.hit, wanted.entropy)
        own = _operators.cross_entropy_shard(logits, target, weight, None, row_scale, None, *numbers, *shard, *flags)
    everything = gathered(own, group)
    # The logits provide the dtype and the number of rows.
    like = logits if logits.shape[1] > 0 else logits.new_empty(logits.shape[0], 1)
    if target.is_floating_point():
        target = target if target.shape[1] > 0 else torch.empty_like(like)
    return _operators.cross_entropy_merge(
        like,
        target,
        weight,
        everything,
        row_weight,
        row_scale,
        divisor,
        *numbers,
        f32_loss,
        group.classes,
        group.ranks,
        *wanted,
    )


def choose_for_gather(arguments: tuple[Any, ...]) -> None:
    """Calls the operators of the function below inside ``_native.choosing()``, with the most common form of the
    backward."""
    logits, target, weight, upstream, row_weight, row_scale, divisor, numbers, f32_loss, wanted, group, in_place = (
        arguments
    )
    needs_grad, logits = logits.requires_grad, logits.detach()
    rows, columns = logits.shape
    valid = logits[:, : group.valid(columns)]
    own_target = target[:, : valid.shape[1]] if target.is_floating_point() else target
    of_rows = (row_weight, row_scale, divisor)

    def nothing_gathered(own: Tensor, group: Group) -> Tensor:
        return own.new_empty(group.ranks * rows, own.shape[1])

    loss, *_, statistics = merged(
        valid, own_target, weight, *of_rows, numbers, f32_loss, wanted, group, nothing_gathered
    )
    if not needs_grad or valid.shape[1] == 0:
        return
    factor = loss if upstream is None else loss * upstream
    of_entropy = loss.new_empty(rows, dtype=torch.float32) if wanted.entropy else None
    of_lse = loss.new_empty(rows, dtype=torch.float32) if wanted.lse else None
    rest = (own_target, weight, statistics, factor, of_entropy, of_lse, *of_rows)
    in_place = in_place or valid.shape[1] < columns
    operator = _operators.cross_entropy_shard_backward_ if in_place else _operators.cross_entropy_shard_backward
    operator(valid, *rest, *numbers, group.first_class, group.classes)


class VocabParallelCrossEntropy(torch.autograd.Function):
    """Saves this rank's logits and a few words for each row. The backward needs no communication."""

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
    ) -> tuple[Tensor, ...]:
        valid = logits[:, : group.valid(logits.shape[1])]
        shard_target = target[:, : valid.shape[1]] if target.is_floating_point() else target
        loss, z_loss, lse, argmax, hit, logprob, entropy, statistics = merged(
            valid, shard_target, weight, row_weight, row_scale, divisor, numbers, f32_loss, wanted, group
        )
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(logits, target, weight, upstream, row_weight, row_scale, divisor, statistics)
        ctx.numbers, ctx.in_place, ctx.wanted = numbers, in_place, wanted
        ctx.group = group._replace(group=None)  # a loss that outlives its ranks keeps none of their threads
        constant = [z_loss, argmax, hit, logprob]
        if not wanted.lse:
            constant.append(lse)
        if not wanted.entropy:
            constant.append(entropy)
        ctx.mark_non_differentiable(*constant)
        return loss, z_loss, lse, argmax, hit, logprob, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        _autograd.refuse_second("vocab_parallel_cross_entropy", "torch.nn.functional.cross_entropy")
        _autograd.refuse_batched("vocab_parallel_cross_entropy", *grads)
        of_loss, _, of_lse, _, _, _, of_entropy = grads
        # Compiled code has zeros in place of None.
        of_lse = of_lse if ctx.wanted.lse else None
        of_entropy = of_entropy if ctx.wanted.entropy else None
        none = (None,) * 11
        if of_loss is None and of_lse is None and of_entropy is None:
            return None, *none
        logits, target, weight, upstream, row_weight, row_scale, divisor, statistics = ctx.saved_tensors
        factor = logits.new_zeros((), dtype=torch.float32) if of_loss is None else of_loss
        if upstream is not None:
            factor = factor * upstream
        group, columns = ctx.group, logits.shape[1]
        valid = group.valid(columns)
        own_target = target[:, :valid] if target.is_floating_point() else target
        rest = (weight, statistics, factor.contiguous(), of_entropy, of_lse, row_weight, row_scale, divisor)
        arguments = (own_target, *rest, *ctx.numbers, group.first_class, group.classes)
        in_place = ctx.in_place and not _autograd.is_kept_graph()  # the next backward needs the logits
        if in_place or valid < columns:
            grad = logits if in_place else logits.clone()
            grad[:, valid:].zero_()
            if valid > 0:
                _operators.cross_entropy_shard_backward_(grad[:, :valid], *arguments)
            if in_place:
                _autograd.overwritten(grad)
        else:
            grad = _operators.cross_entropy_shard_backward(logits, *arguments)
        return grad, *none
