"""Cross entropy of logits whose classes are spread over ranks (vocabulary parallelism)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from typing_extensions import Unpack

from ce.torch import (
    _amounts,
    _arguments,
    _autograd,
    _loss_arguments,
    _native,
    _rank_decision,
    _rank_exchange,
    _rank_groups,
    _reference,
    _settings,
    _transforms,
    _vocab_parallel,
    _vocab_parallel_exchange,
    functional,
)
from ce.torch._kernels import INDEX_DTYPES, KERNEL_DTYPES, has_kernels_for

__all__ = ["VocabParallelOutput", "vocab_parallel_cross_entropy"]

_NAME = "ce.torch.vocab_parallel_cross_entropy"


class VocabParallelOutput(NamedTuple):
    """The result of :func:`vocab_parallel_cross_entropy` with further outputs; outputs that were not asked for are
    None.

    It is equal on every rank. Loss, lse and entropy are differentiable.
    """

    loss: Tensor
    z_loss: Tensor | None = None
    """Like the loss: its z-loss part."""
    lse: Tensor | None = None
    """One float32 a row: logsumexp over the classes of all ranks."""
    argmax: Tensor | None = None
    """One int64 a row: the first largest of the classes of all ranks."""
    hit: Tensor | None = None
    """One bool a row: whether argmax is the target."""
    logprob: Tensor | None = None
    """One float32 a row: the log-probability of the target."""
    entropy: Tensor | None = None
    """One float32 a row: the entropy."""


_agreed = _rank_groups.PerGroup()
"""Whether ranks exchange, for each kind of call."""
_PLANS = ("automatic", "gather", "exchange")


@_arguments.overridable("logits", "target", "weight")
@_arguments.explained(weight=KERNEL_DTYPES, row_weight=(torch.float32,), logit_scale=(torch.float32,))
@_amounts.with_amounts
def vocab_parallel_cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    group: Any = None,
    first_class: int | None = None,
    classes: int | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    row_weight: Tensor | None = None,
    divisor: Tensor | float | None = None,
    upstream: Tensor | float | None = None,
    loss_dtype: torch.dtype | None = None,
    inplace_backward: bool = False,
    plan: str = "automatic",
    return_z_loss: bool = False,
    return_lse: bool = False,
    return_argmax: bool = False,
    return_hit: bool = False,
    return_logprob: bool = False,
    return_entropy: bool = False,
    **amounts: Unpack[functional.Amounts],
) -> Any:
    """:func:`ce.torch.cross_entropy` where each rank of a group has the logits of some neighbouring classes.

    The results are those of one GPU with all classes, and bitwise equal on every rank. Ranks exchange 12 to 40 bytes a
    row in the forward, nothing in the backward, and nothing waits for the GPU. The first call with a group, columns,
    options and power-of-two range of rows compares the ranks' calls, and rank 0 chooses the kernels for all.

    Args:
        logits: [..., columns]: this rank's classes, of float32, float16 or bfloat16; or a DTensor with the placement
            Shard(-1) on one dimension of its mesh.
        target: [...] class indices among all classes, the same on every rank; or this rank's probabilities, as logits.
        weight: [classes]: the weights of all classes, on every rank.
        group: the ranks; None: the default group. Not with a DTensor, which has its own.
        first_class: first class of the logits; None: equal shards in the order of the ranks.
        classes: total over all ranks; None: the columns of all. Columns at or beyond it are padding: they are ignored,
            and their gradient is 0.
        inplace_backward: the gradient overwrites the logits: in the backward, or if the ranks exchange (see plan)
            already in the forward.
        plan: "gather": statistics of the rows, an all-gather, and in the backward the gradient; it reads the logits
            twice. "exchange": loss and gradient by one kernel, which reads them once. The kernels of the ranks, on GPUs
            that reach each other's memory, send each other statistics of each row while they run, and so wait for each
            other on the GPU. It is for the reductions "mean" and "sum" with a gradient, without return_lse and
            return_entropy, in eager code; other calls use "gather". "automatic": the plan that takes less time, as
            measured by rank 0, or "exchange" if every rank can and nothing was measured. It must be equal on every
            rank.
        return_logprob, return_entropy: return these, too.

    All other arguments are as in :func:`ce.torch.cross_entropy`.

    Returns:
        The loss, of the sizes of target for the reduction "none"; or a :class:`VocabParallelOutput`.

    Raises:
        ValueError: sizes, options or placements that do not fit, also those of another rank: it names the rank.
        TypeError: a dtype that does not fit, or a group that is none.
        RuntimeError: a weight, row weight, scale or divisor that requires a gradient; or plan is "exchange", and a rank
            cannot: it says which, and why; what rank 0 fails with.
        NotTuned: the policy of rank 0 is "frozen", and its database has no winner.
    """
    _rank_groups.require_group(_NAME, group)
    _rank_groups.require_shard(_NAME, first_class, classes)
    logits, target, group = _local(logits, target, group)
    ranks, rank = (dist.get_world_size(group), dist.get_rank(group)) if _rank_groups.has_group(group) else (1, 0)
    code = _arguments.reduction_code(_NAME, reduction)
    all_amounts = _amounts.amounts_of("vocab_parallel_cross_entropy", amounts)
    numbers = _amounts.options_of(_NAME, ignore_index, code, label_smoothing, all_amounts)
    if logits.dim() == 0:
        raise ValueError(f"{_NAME}: logits has no sizes; expected [..., classes]")
    if not has_kernels_for(logits):
        raise ValueError(
            f"{_NAME}: logits are {logits.dtype} on {logits.device}; expected float32, float16 or bfloat16 on a GPU "
            "(or on the CPU with ce.torch.configure(cpu='host'))"
        )
    _transforms.refuse_functorch("vocab_parallel_cross_entropy", "cross_entropy")
    _transforms.refuse_tangents("vocab_parallel_cross_entropy", logits, target, instead="cross_entropy")
    columns = logits.shape[-1]
    first_class = rank * columns if first_class is None else first_class
    classes = ranks * columns if classes is None else classes
    probabilities = target.is_floating_point()
    if ranks == 1 and not torch.compiler.is_compiling():
        if first_class != 0:
            raise ValueError(f"{_NAME}: first_class is {first_class}; expected 0 on a single rank")
        if classes > columns:
            raise ValueError(f"{_NAME}: classes is {classes}; expected at most {columns}, the classes of the only rank")
    if not probabilities:
        _arguments.require_dtype(_NAME, "target", target, *INDEX_DTYPES, torch.uint8)
        target = target.long() if target.dtype is torch.uint8 else target
    expected = logits.shape if probabilities else logits.shape[:-1]
    if target.shape != expected:
        raise ValueError(f"{_NAME}: target has sizes {list(target.shape)}; expected {list(expected)}")
    if probabilities and (
        target.dtype not in KERNEL_DTYPES or torch.promote_types(target.dtype, logits.dtype) is not logits.dtype
    ):
        raise TypeError(f"{_NAME}: target.dtype is {target.dtype}; expected {logits.dtype}, the dtype of logits")
    if loss_dtype not in (None, torch.float32, logits.dtype):
        raise ValueError(f"{_NAME}: loss_dtype is {loss_dtype}; expected torch.float32 or {logits.dtype}")
    if plan not in _PLANS:
        raise ValueError(f"{_NAME}: plan is {plan!r}; expected 'automatic', 'gather' or 'exchange'")
    autocast = torch.is_autocast_enabled(logits.device.type)
    f32_loss = loss_dtype is torch.float32 or (loss_dtype is None and (autocast or logits.dtype is torch.float32))
    if weight is not None and weight.shape != (classes,):
        raise ValueError(f"{_NAME}: weight has sizes {list(weight.shape)}; expected [{classes}], one for each class")
    if upstream is not None:
        of_loss = torch.float32 if f32_loss else logits.dtype
        upstream = _loss_arguments.upstream_of(upstream, of_loss, logits, _NAME, logits.shape[:-1])
    _loss_arguments.check_row_weight(row_weight, logits.shape[:-1], _NAME)
    _arguments.refuse_gradients(_NAME, weight=weight, row_weight=row_weight)
    if return_hit and probabilities:
        raise ValueError(f"{_NAME}: return_hit is True; expected False where target holds probabilities")
    if divisor is not None:
        divisor = _loss_arguments.divisor_of(divisor, reduction, logits, _NAME)
    row_scale = None
    if isinstance(numbers.logit_scale, Tensor):
        row_scale = _loss_arguments.scale_of_rows(numbers.logit_scale, logits.shape[:-1], _NAME)
        numbers = numbers._replace(logit_scale=1.0)
    wanted = _vocab_parallel.Wanted(
        return_z_loss and numbers.z_loss != 0.0, return_lse, return_argmax, return_hit, return_logprob, return_entropy
    )
    shard = _rank_groups.Group(group, ranks, first_class, classes)
    rows = logits.shape[:-1]
    flat = logits.reshape(rows.numel(), columns)
    flat_target = target.to(logits.dtype).reshape(flat.shape) if probabilities else target.reshape(-1)
    flat_target = flat_target.contiguous()
    flat_rows = [None if rows_of is None else rows_of.reshape(-1) for rows_of in (upstream, row_weight, row_scale)]
    if upstream is not None and upstream.numel() == 1:
        flat_rows[0] = upstream.reshape(())
    arguments = (flat, flat_target, weight, *flat_rows, divisor, numbers, f32_loss, wanted, shard, inplace_backward)
    peers = None
    try:
        if not torch.compiler.is_compiling():
            peers = _peers(arguments, rank, plan)
        if peers is not None:
            made = _vocab_parallel_exchange.ExchangedCrossEntropy.apply(*arguments, peers)
        else:
            made = _vocab_parallel.VocabParallelCrossEntropy.apply(*arguments)
    except (RuntimeError, ValueError) as error:
        _native.raise_from(error)
    losses, others = made[0], made[1:]
    shaped = [losses.reshape(rows) if reduction == "none" else losses]
    for index, (one, flag) in enumerate(zip(others, wanted)):
        of_losses = index == 0
        shaped.append(None if not flag else one.reshape(rows) if reduction == "none" or not of_losses else one)
    if not any((return_z_loss, return_lse, return_argmax, return_hit, return_logprob, return_entropy)):
        return shaped[0]
    if return_z_loss and not wanted.z_loss:
        shaped[1] = torch.zeros_like(shaped[0])
    return VocabParallelOutput(*shaped)


def _local(logits: Tensor, target: Tensor, group: Any) -> tuple[Tensor, Tensor, Any]:
    """This rank's part of a DTensor, and the ranks that share its classes."""
    if type(logits).__name__ != "DTensor":
        return logits, target, group
    from torch.distributed.tensor import DTensor, Replicate, Shard

    assert isinstance(logits, DTensor)
    if group is not None:
        raise ValueError(f"{_NAME}: group is set; expected None with a DTensor, which has its own group")
    last = logits.dim() - 1
    spread = [
        dimension
        for dimension, placement in enumerate(logits.placements)
        if isinstance(placement, Shard) and placement.dim in (last, -1)
    ]
    if len(spread) != 1 or any(
        not isinstance(placement, Replicate) for i, placement in enumerate(logits.placements) if i not in spread
    ):
        raise ValueError(
            f"{_NAME}: logits have the placements {logits.placements}; expected Shard(-1) on one dimension of the "
            "mesh, because ranks that each hold all classes would count every class several times"
        )
    if isinstance(target, DTensor):
        target = target.to_local() if target.is_floating_point() else target.full_tensor()
    return logits.to_local(), target, logits.device_mesh.get_group(spread[0])


def _peers(arguments: tuple[Any, ...], rank: int, plan: str) -> _rank_exchange.Peers | None:
    """The memory through which the ranks exchange, if they do; equal on every rank.

    Once for each kind of call all ranks compare theirs, and rank 0 decides (:mod:`ce.torch._rank_decision`).
    """
    flat, target, weight, _, row_weight, row_scale, divisor, numbers, _, wanted, shard, _ = arguments
    rows = flat.shape[0]
    needs_grad = flat.requires_grad and torch.is_grad_enabled()
    one_pass = needs_grad and numbers.reduction in _autograd.MEAN_OR_SUM
    one_pass = one_pass and not (wanted.lse or wanted.entropy) and rows > 0
    shall = one_pass and (plan == "exchange" or (plan == "automatic" and shard.ranks > 1))
    of_rows = (row_scale is not None, weight is not None, row_weight is not None, divisor is not None)
    code = (_PLANS.index(plan), int(one_pass), *map(int, of_rows))
    kind = (flat.shape[1], shard.first_class, shard.classes, flat.dtype, target.dtype, numbers, wanted, code)
    of_bucket = (*kind, max(0, rows - 1).bit_length())
    agreed_on: dict[tuple[Any, ...], bool] = _agreed.of(shard.group, shard.ranks)
    captured = flat.is_cuda and torch.cuda.is_current_stream_capturing()
    known = agreed_on.get(of_bucket)
    if known is None and captured:  # a decision on other rows is used
        known = agreed_on.get(kind)
    all_can, widest = bool(known), 0
    if not captured and (known is None or _settings.current.compare_ranks):
        own_can = shall and _vocab_parallel_exchange.can_exchange(*arguments)
        agreed = _agree(flat, target, numbers, wanted, shard, code, own_can)
        all_can, widest = (all_can, widest) if known is not None else agreed
    peers = None
    why_not = "the first call is being captured into a graph" if captured else "a rank has no kernel for an exchange"
    if shall and all_can:
        words = _vocab_parallel.statistics_words(flat, target, numbers, wanted)
        peers, why_not = _rank_exchange.memory(flat, shard.ranks, rank, shard.group, words)
    if shall and peers is None and plan == "exchange":
        raise RuntimeError(f"{_NAME}: plan is 'exchange', but the ranks cannot exchange: {why_not}")
    if known is None and not captured:
        exchange = peers is not None
        if shard.ranks > 1 and rows > 0:
            exchange = _rank_decision.decide(arguments, rank, plan, peers, widest)
        agreed_on[of_bucket] = agreed_on[kind] = exchange
        return peers if exchange else None
    return peers


def _agree(
    flat: Tensor,
    target: Tensor,
    numbers: _reference.Options,
    wanted: Any,
    shard: Any,
    code: tuple[int, ...],
    can_exchange: bool,
) -> tuple[bool, int]:
    """Compares the calls of all ranks: raises ValueError on every rank if they do not match.

    Returns whether all ranks can exchange, and the columns of the widest shard.
    """
    dtypes = (*KERNEL_DTYPES, torch.int32, torch.int64)
    if shard.ranks == 1:
        return can_exchange, shard.valid(flat.shape[1])
    words = _vocab_parallel.statistics_words(flat, target, numbers, wanted)
    names = (
        "rows", "columns", "first_class", "classes", "logits.dtype", "target.dtype", *_reference.Options._fields,
        "words of a row", "plan", "gradients of mean or sum", "logit_scale of each row", "weight", "row_weight",
        "divisor", "lse and argmax", "ability",
    )  # fmt: skip
    skipped = int(wanted.lse) + 2 * int(wanted.argmax)  # without both, kernels skip rows without a class
    own = (flat.shape[0], flat.shape[1], shard.first_class, shard.classes, dtypes.index(flat.dtype))
    call = torch.tensor(
        (*own, dtypes.index(target.dtype), *numbers, words, *code, skipped, can_exchange), dtype=torch.float64
    )
    mine = call.to(flat.device)
    gathered = mine.new_empty(shard.ranks * len(names))
    dist.all_gather_into_tensor(gathered, mine, group=shard.group)
    calls = gathered.cpu().reshape(shard.ranks, len(names)).tolist()
    _rank_groups.require_the_same(_NAME, names, calls, but=("columns", "first_class", "ability"))
    next_class = 0
    for rank, (_, columns, first, classes, *_rest) in sorted(enumerate(calls), key=lambda one: (one[1][2], one[1][1])):
        if min(first, classes) != next_class:
            raise ValueError(
                f"{_NAME}: first_class is {first:g} on rank {rank}; expected {next_class:g}, because each "
                "class must be on exactly one rank"
            )
        next_class = int(min(first + columns, classes))
    if next_class != shard.classes:
        raise ValueError(
            f"{_NAME}: classes is {shard.classes}; expected {next_class}, the number of columns in all ranks' logits"
        )
    widest = max(int(min(columns, classes - first)) for _, columns, first, classes, *_ in calls)
    return all(call[-1] != 0.0 for call in calls), widest
