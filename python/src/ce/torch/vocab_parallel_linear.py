"""The loss of a linear layer whose classes are spread over ranks, without the logits of all tokens in memory."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from typing_extensions import Unpack

from ce.torch import (
    _amounts,
    _arguments,
    _linear,
    _linear_arguments,
    _loss_arguments,
    _rank_groups,
    _transforms,
    _valid_tokens,
    _vocab_parallel_linear,
    functional,
)
from ce.torch._kernels import INDEX_DTYPES, KERNEL_DTYPES, has_kernels_for
from ce.torch.vocab_parallel import (
    VocabParallelOutput,
)

__all__ = ["vocab_parallel_linear_cross_entropy"]

_NAME = "vocab_parallel_linear_cross_entropy"
_BUDGET = 512 << 20
_TILE = 128  # tokens; the products' tile height


@_arguments.overridable("input", "linear_weight", "target")
@_arguments.explained(weight=KERNEL_DTYPES)
@_amounts.with_amounts
def vocab_parallel_linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    group: Any = None,
    first_class: int | None = None,
    classes: int | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    row_weight: Tensor | None = None,
    divisor: Tensor | float | None = None,
    upstream: Tensor | float | None = None,
    valid_tokens: int | None = None,
    loss_dtype: torch.dtype | None = None,
    plan: str = "automatic",
    sum_input_grad: bool = True,
    memory_budget: int | None = None,
    chunk_tokens: int | None = None,
    logits_dtype: torch.dtype | None = None,
    accumulate: torch.dtype | None = None,
    return_z_loss: bool = False,
    return_lse: bool = False,
    return_argmax: bool = False,
    return_hit: bool = False,
    return_logprob: bool = False,
    return_entropy: bool = False,
    **amounts: Unpack[functional.Amounts],
) -> Any:
    """:func:`ce.torch.vocab_parallel_cross_entropy` of ``F.linear(input, linear_weight, linear_bias)``, where each rank
    of a group has the weight of some neighbouring classes and the hidden states of all tokens.

    The tokens are divided into chunks; only the logits of this rank's classes for one chunk at a time are in memory.
    The products are PyTorch's. For the reductions mean and sum the gradients are computed in the forward, chunk by
    chunk, and kept; for the reduction none the backward computes the logits again. Each rank's gradient of the input is
    its contribution to a sum over the ranks, which runs for one chunk while the next one's products are computed.

    Args:
        input: [..., hidden] of float32, float16 or bfloat16, the same on every rank.
        linear_weight: [columns, hidden]: this rank's classes.
        target: [...] class indices among all classes, the same on every rank.
        linear_bias: [columns]: this rank's classes.
        weight: [classes]: the weights of all classes, on every rank.
        plan: the plan of the ranks in each chunk: see :func:`ce.torch.vocab_parallel_cross_entropy`.
        sum_input_grad: sums the input's gradient over the ranks. False: it is this rank's contribution, for a caller
            that sums it, for example by a reduce-scatter of sequence parallelism.
        memory_budget: bytes for the logits of a chunk, equal on every rank; None: 512 MiB. Several chunks sum the
            weight's gradient in float32; there is only one chunk if the logits of all tokens take no more memory than
            those of a chunk and such sums.
        chunk_tokens: tokens of a chunk, equal on every rank; None: as many as the budget holds.
        valid_tokens: equal on every rank; logits_dtype; accumulate: as in :func:`ce.torch.linear_cross_entropy`. None
            for accumulate: float32 if there is more than one chunk.

    All other arguments are as in :func:`ce.torch.vocab_parallel_cross_entropy`. Outputs other than the loss have no
    gradient.

    Returns:
        The loss, the same bits on every rank, of the sizes of target for the reduction "none"; or a
        :class:`VocabParallelOutput`.

    Raises:
        ValueError: sizes or options that do not fit, also those of another rank: it names the rank.
        TypeError: a dtype that does not.
        RuntimeError: a transform of ``torch.func``, or a derivative that is not implemented; or plan is "exchange", and
            a rank cannot: it says which, and why.
    """
    _rank_groups.require_group(f"ce.torch.{_NAME}", group)
    _rank_groups.require_shard(f"ce.torch.{_NAME}", first_class, classes)
    _check_arguments(input, linear_weight, target, linear_bias, reduction, weight, row_weight)
    _linear_arguments.check_memory(_NAME, memory_budget, chunk_tokens)
    ignore_index = _arguments.integer(f"ce.torch.{_NAME}", "ignore_index", ignore_index)
    _transforms.refuse_functorch(_NAME, "linear")
    _transforms.refuse_tangents(_NAME, input, linear_weight, linear_bias, instead="linear")
    ranks, rank = (dist.get_world_size(group), dist.get_rank(group)) if _rank_groups.has_group(group) else (1, 0)
    columns, rows = linear_weight.shape[0], input.shape[:-1]
    all_amounts = _amounts.amounts_of(_NAME, amounts)
    _require_kernels(input=input, linear_weight=linear_weight)
    _loss_arguments.check_row_weight(row_weight, rows, f"ce.torch.{_NAME}")
    first_class = rank * columns if first_class is None else first_class
    classes = ranks * columns if classes is None else classes
    if classes < 1:
        raise ValueError(f"ce.torch.{_NAME}: classes is {classes}; expected 1 or more")
    if weight is not None and weight.shape != (classes,):
        raise ValueError(f"ce.torch.{_NAME}: weight has sizes {list(weight.shape)}; expected [{classes}], one a class")
    dtype = _linear_arguments.dtype_of(input, linear_weight)
    logits = _linear_arguments.logits_dtype_of(_NAME, logits_dtype, dtype)
    _linear_arguments.check_sums(_NAME, "accumulate", accumulate, input, linear_weight)
    sums_in_f32 = accumulate in (None, torch.float32)
    flat_target = _linear_arguments.flat_target(target, dtype)
    tokens = flat_target.numel()
    if divisor is not None:
        divisor = _loss_arguments.divisor_of(divisor, reduction, input, f"ce.torch.{_NAME}")
    elif reduction == "mean" and tokens > 0 and valid_tokens != 0:  # a mean of no rows is NaN by itself
        divisor, weight = _divisor_of_mean(flat_target, weight, classes, ignore_index, all_amounts["z_loss"] != 0.0)
    row_scale = None
    if isinstance(all_amounts["logit_scale"], Tensor):
        row_scale = _linear_arguments.rows_of(_NAME, "logit_scale", all_amounts["logit_scale"], rows, input.dtype)
        all_amounts["logit_scale"] = 1.0
    flat_rows = None if row_weight is None else row_weight.reshape(-1)
    if upstream is not None:
        upstream = _flat_upstream(upstream, input)
    hidden = input.reshape(-1, input.shape[-1])
    kept = None
    if valid_tokens is not None:
        _valid_tokens.check(_NAME, valid_tokens, tokens)
        kept = _valid_tokens.Kept.of(flat_target, ignore_index, valid_tokens)
        hidden, flat_target = kept.gather(hidden), kept.gather(flat_target)
        flat_rows, row_scale = kept.gather(flat_rows), kept.gather(row_scale)
        upstream = upstream if upstream is None or upstream.dim() == 0 else kept.gather(upstream)
    options = {
        "weight": weight,
        "group": group,
        "first_class": first_class,
        "classes": classes,
        "ignore_index": ignore_index,
        "reduction": reduction,
        "label_smoothing": label_smoothing,
        **all_amounts,
        "divisor": divisor,
        "loss_dtype": torch.float32,
        "plan": plan,
        "return_z_loss": return_z_loss,
        "return_lse": return_lse,
        "return_argmax": return_argmax,
        "return_hit": return_hit,
        "return_logprob": return_logprob,
        "return_entropy": return_entropy,
    }
    needs = _linear.needs_of(input, linear_weight, linear_bias)
    chunk = chunk_tokens
    if chunk is None:
        rounded = dtype.itemsize if logits is not dtype and any(needs) else 0  # gradients of logits, for the products
        element = logits.itemsize + rounded
        row_bytes = -(-classes // ranks) * element  # equal on all ranks, even if their shards differ
        has_sums = needs[1] and linear_weight.dtype is not torch.float32 and sums_in_f32
        sums = 4 * input.shape[-1] // element if has_sums else None
        chunk = _chunk(flat_target.numel(), row_bytes, memory_budget or _BUDGET, sums)
    call = _vocab_parallel_linear.Call(group, chunk, sum_input_grad and ranks > 1, options, dtype, logits, sums_in_f32)
    result = loss_dtype or (torch.float32 if torch.is_autocast_enabled(input.device.type) else dtype)
    if result not in (dtype, torch.float32):
        raise ValueError(f"ce.torch.{_NAME}: loss_dtype is {loss_dtype}; expected {_linear_arguments.f32_or(dtype)}")
    if ranks > 1:
        of_valid = -1 if valid_tokens is None else valid_tokens
        has_sum = call.sums_input_grad and needs[0]
        of_call = (tokens, of_valid, input.shape[-1], any(needs), needs[1], chunk, has_sum)
        _agree(group, ranks, tuple(float(one) for one in of_call))
    valid = _rank_groups.Group(group, ranks, first_class, classes).valid(columns)
    loss, *others = _vocab_parallel_linear.VocabParallelLinear.apply(
        hidden,
        linear_weight,
        linear_bias,
        flat_target,
        flat_rows,
        row_scale,
        upstream,
        None if kept is None else kept.factor,
        call,
        needs,
        valid,
    )
    wanted = [name for name in ("z_loss", *_valid_tokens.OF_ROWS) if options[f"return_{name}"]]
    made = {"loss": loss, **dict(zip(wanted, others))}
    if kept is not None:
        made = kept.scattered(made, reduction)
    made = _shaped(made, rows, reduction, result)
    return VocabParallelOutput(**made) if wanted else made["loss"]


def _check_arguments(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    reduction: str,
    weight: Tensor | None,
    row_weight: Tensor | None,
) -> None:
    _linear_arguments.check_layer(_NAME, input, linear_weight, linear_bias)
    if target.is_floating_point():
        raise ValueError(f"ce.torch.{_NAME}: target is {target.dtype}; expected class indices")
    _arguments.require_dtype(f"ce.torch.{_NAME}", "target", target, *INDEX_DTYPES, torch.uint8)
    if target.shape != input.shape[:-1]:
        raise ValueError(f"ce.torch.{_NAME}: target has sizes {list(target.shape)}; expected {list(input.shape[:-1])}")
    _arguments.reduction_code(f"ce.torch.{_NAME}", reduction)
    for name, given in (("weight", weight), ("row_weight", row_weight)):
        if given is not None:
            _linear_arguments.require_dtype(_NAME, name, given, input.dtype)
    _arguments.refuse_gradients(f"ce.torch.{_NAME}", weight=weight, row_weight=row_weight)


def _require_kernels(**layer: Tensor) -> None:
    for name, given in layer.items():
        if not has_kernels_for(given):
            raise ValueError(
                f"ce.torch.{_NAME}: {name} is {given.dtype} on {given.device}; expected float32, float16 or "
                "bfloat16 on a GPU (or on the CPU with ce.torch.configure(cpu='host'))"
            )


def _shaped(made: dict[str, Tensor], rows: torch.Size, reduction: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """The outputs in the sizes of the call, and losses in their dtype."""
    for name, one in made.items():
        if name in _valid_tokens.OF_ROWS or reduction == "none":
            made[name] = one.reshape(rows)
        if name not in _valid_tokens.OF_ROWS:
            made[name] = made[name].to(dtype)
    return made


def _flat_upstream(upstream: Tensor | float, input: Tensor) -> Tensor:
    """The upstream gradient: [], or one element a row; in float32."""
    name = f"ce.torch.{_NAME}"
    given = _loss_arguments.upstream_of(upstream, torch.float32, input, name, input.shape[:-1]).detach()
    return given.reshape(()) if given.numel() == 1 else given.reshape(-1)


_agreed = _rank_groups.PerGroup()


def _agree(group: Any, ranks: int, own: tuple[float, ...]) -> None:
    """Once for each kind of call, before the ranks wait for each other's chunks: whether theirs are the same."""
    agreed_on = _agreed.of(group, ranks)
    if own in agreed_on:
        return
    calls: list[Any] = [None] * ranks
    dist.all_gather_object(calls, own, group=group)
    names = (
        "tokens",
        "valid_tokens",
        "hidden",
        "gradients",
        "gradient of linear_weight",
        "chunk_tokens",
        "sum_input_grad with a gradient of input",
    )
    _rank_groups.require_the_same(f"ce.torch.{_NAME}", names, calls)
    agreed_on[own] = True


def _divisor_of_mean(
    target: Tensor, weight: Tensor | None, classes: int, ignore_index: int, has_z_loss: bool
) -> tuple[Tensor, Tensor | None]:
    """The divisor of a mean over all chunks, and the weights of the classes to use with it.

    A z-loss is always divided by the number of rows; with one, all weights are scaled so that this number is the
    divisor.
    """
    counts = target != ignore_index
    count = counts.sum().float()
    if weight is None:
        return count.reshape(1), None
    is_class = counts & (target >= 0) & (target < classes)
    of_targets = weight.detach().float()[torch.where(is_class, target, 0)]
    total = torch.where(is_class, of_targets, 0.0).sum()
    if has_z_loss:
        return count.reshape(1), weight.detach().float() * (count / total)
    return total.reshape(1), weight


def _chunk(tokens: int, row_bytes: int, budget: int, sums: int | None = None) -> int:
    """Tokens of a chunk: chunks have about equal size, within the budget.

    Args:
        sums: the tokens whose logits take as many bytes as the sums that several chunks need, and one does not. There
            is one chunk if its logits take no more memory than those of a chunk and the sums. None: no such sums.
    """
    most = max(budget // row_bytes // _TILE * _TILE, _TILE)
    chunks = max(-(-tokens // most), 1)
    chunk = min(-(-tokens // chunks // _TILE) * _TILE, most) if tokens > _TILE else max(tokens, 1)
    return max(tokens, 1) if sums is not None and tokens <= chunk + sums else chunk
