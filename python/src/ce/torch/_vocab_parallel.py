"""The operators of cross entropy with classes shared by ranks, besides their kernels: fake tensors and autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ce.torch import _autograd, _native, _rank_exchange, _reference, _settings

_operators = _native.operators
_library = torch.library.Library("ce", "IMPL")
_OPERATORS = (
    "cross_entropy_shard",
    "cross_entropy_merge",
    "cross_entropy_shard_backward",
    "cross_entropy_shard_backward_",
    "cross_entropy_exchange",
    "cross_entropy_exchange_is_possible",
)


class Wanted(NamedTuple):
    """The requested outputs besides the loss."""

    z_loss: bool = False
    lse: bool = False
    argmax: bool = False
    hit: bool = False
    logprob: bool = False
    entropy: bool = False


class Group(NamedTuple):
    """The ranks, and the classes of this one."""

    group: Any
    ranks: int
    first_class: int
    classes: int

    def valid(self, columns: int) -> int:
        """Number of this rank's columns that are classes; later columns are padding."""
        return max(0, min(columns, self.classes - self.first_class))


def require_the_same(
    operation: str, names: Sequence[str], calls: Sequence[Sequence[float]], but: Sequence[str] = ()
) -> None:
    """
    Args:
        names: names of a call's numbers.
        calls: the numbers of every rank.
        but: numbers that may differ between ranks.

    Raises:
        ValueError: names the first rank and number that differ from rank 0.
    """
    for rank, own in enumerate(calls):
        for name, value, first in zip(names, own, calls[0]):
            if name not in but and value != first:
                raise ValueError(f"{operation}: {name} is {value:g} on rank {rank}; expected {first:g}, as on rank 0")


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


# ---- fake tensors ----------------------------------------------------------------------------------------


def _split(rest: tuple[Any, ...], tensors: int) -> tuple[_reference.Options, tuple[Any, ...]]:
    """The options behind that many tensors, and the remaining arguments."""
    end = tensors + len(_reference.Options._fields)
    return _reference.Options(*rest[tensors:end]), rest[end:]


def _fake_shard(logits: Tensor, target: Tensor, weight: Tensor | None, *rest: Any) -> Tensor:
    numbers, (_, _, _, argmax, entropy) = _split(rest, 3)
    wanted = Wanted(argmax=argmax, entropy=entropy)
    return logits.new_empty((logits.shape[0], statistics_words(logits, target, numbers, wanted)), dtype=torch.float32)


def _fake_merge(
    logits: Tensor, target: Tensor, weight: Tensor | None, statistics: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    numbers, (f32_loss, _, _, *flags) = _split(rest, 3)
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


def _fake_backward(logits: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(logits)


def _fake_nothing(*arguments: Any) -> None:
    return None


def _fake_exchange(logits: Tensor, target: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    numbers, (f32_loss, _, _, _, *flags) = _split(rest, 5)
    statistics = logits.new_empty((0, 0))
    shard = (0, 0)
    return _fake_merge(logits, target, None, statistics, None, None, None, *numbers, f32_loss, *shard, *flags)[:-1]


def _fake_possible(*arguments: Any) -> bool:
    raise NotImplementedError("ce::cross_entropy_exchange_is_possible: a traced tensor has no data; call it eagerly")


def _on_host(op: str) -> Any:
    twin = getattr(_operators, "_" + op)

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
    """Called once, when ``ce.torch`` is imported."""
    fakes: tuple[Callable[..., Any], ...] = (
        _fake_shard,
        _fake_merge,
        _fake_backward,
        _fake_nothing,
        _fake_exchange,
        _fake_possible,
    )
    for op, fake in zip(_OPERATORS, fakes):
        _library.impl(op, _on_host(op), "CPU")
        _native.register_fake("ce::" + op, fake)
        _native.register_fake("ce::_" + op, fake)
