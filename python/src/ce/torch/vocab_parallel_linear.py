"""The loss of a linear layer whose classes are spread over ranks, without the logits of all tokens in memory."""

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
    _linear,
    _linear_arguments,
    _loss_arguments,
    _rank_exchange,
    _transforms,
    _valid_tokens,
    _vocab_parallel,
    functional,
)
from ce.torch._kernels import KERNEL_DTYPES, has_kernels_for
from ce.torch.vocab_parallel import (
    VocabParallelOutput,
    _has_group,
    _require_group,
    _require_shard,
    vocab_parallel_cross_entropy,
)

__all__ = ["vocab_parallel_linear_cross_entropy"]

_NAME = "vocab_parallel_linear_cross_entropy"
_BUDGET = 512 << 20
_TILE = 128  # tokens; the products' tile height


class _Call(NamedTuple):
    """Arguments that are equal for all chunks."""

    group: Any
    chunk: int
    sums_input_grad: bool
    """Whether the gradient of the input is summed over the ranks, of which there are several."""
    options: dict[str, Any]
    """Arguments of vocab_parallel_cross_entropy; the reduction is "none", or "mean" with a divisor or "sum"."""
    dtype: torch.dtype
    """The dtype of the products."""
    logits_dtype: torch.dtype
    sums_in_f32: bool
    """Whether the weight's gradient is summed in float32 over chunks."""


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
        valid_tokens: equal on every rank; logits_dtype; accumulate: as in :func:`ce.torch.linear_cross_entropy`. If
            more tokens count than valid_tokens says, all gradients are NaN with the loss. None for accumulate: float32
            if there is more than one chunk.

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
    _require_group(f"ce.torch.{_NAME}", group)
    _require_shard(f"ce.torch.{_NAME}", first_class, classes)
    _linear_arguments.check_layer(_NAME, input, linear_weight, linear_bias)
    if target.is_floating_point():
        raise ValueError(f"ce.torch.{_NAME}: target is {target.dtype}; expected class indices")
    if target.shape != input.shape[:-1]:
        raise ValueError(f"ce.torch.{_NAME}: target has sizes {list(target.shape)}; expected {list(input.shape[:-1])}")
    _arguments.reduction_code(f"ce.torch.{_NAME}", reduction)
    _linear_arguments.check_memory(_NAME, memory_budget, chunk_tokens)
    for name, given in (("weight", weight), ("row_weight", row_weight)):
        if given is not None:
            _linear_arguments.require_dtype(_NAME, name, given, input.dtype)
    _arguments.refuse_gradients(f"ce.torch.{_NAME}", weight=weight, row_weight=row_weight)
    ignore_index = _arguments.integer(f"ce.torch.{_NAME}", "ignore_index", ignore_index)
    _transforms.refuse_functorch(_NAME, "linear")
    _transforms.refuse_tangents(_NAME, input, linear_weight, linear_bias, instead="linear")
    ranks, rank = (dist.get_world_size(group), dist.get_rank(group)) if _has_group(group) else (1, 0)
    columns, rows = linear_weight.shape[0], input.shape[:-1]
    all_amounts = _amounts.amounts_of(_NAME, amounts)
    for name, of_layer in (("input", input), ("linear_weight", linear_weight)):
        if not has_kernels_for(of_layer):
            raise ValueError(
                f"ce.torch.{_NAME}: {name} is {of_layer.dtype} on {of_layer.device}; expected float32, float16 or "
                "bfloat16 on a GPU (or on the CPU with ce.torch.configure(cpu='host'))"
            )
    _linear_arguments.check_row_weight(_NAME, row_weight, rows)
    first_class = rank * columns if first_class is None else first_class
    classes = ranks * columns if classes is None else classes
    if classes < 1:
        raise ValueError(f"ce.torch.{_NAME}: classes is {classes}; expected 1 or more")
    if weight is not None and weight.shape != (classes,):
        raise ValueError(f"ce.torch.{_NAME}: weight has sizes {list(weight.shape)}; expected [{classes}], one a class")
    dtype = _linear_arguments.dtype_of(input, linear_weight)
    logits = _one_of("logits_dtype", logits_dtype, dtype)
    of_weight = dtype if linear_weight.dtype is dtype else torch.float32  # its gradient, before it is returned
    sums_in_f32 = _one_of("accumulate", accumulate, of_weight, torch.float32) is torch.float32
    flat_target = _linear_arguments.flat_target(target, dtype)
    tokens = flat_target.numel()
    if divisor is not None:
        divisor = _loss_arguments.divisor_of(divisor, reduction, input, f"ce.torch.{_NAME}")
    elif reduction == "mean":
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
    element = logits.itemsize + (dtype.itemsize if logits is not dtype and any(needs) else 0)  # rounded for products
    row_bytes = -(-classes // ranks) * element  # equal on all ranks, even if their shards differ
    count = flat_target.numel()
    chunk = chunk_tokens or _chunk(count, row_bytes, memory_budget or _BUDGET)
    if chunk_tokens is None and needs[1] and linear_weight.dtype is not torch.float32 and sums_in_f32:
        in_f32 = 4 * input.shape[-1] // element  # tokens whose logits take as many bytes as the sums
        if count <= chunk + in_f32:
            chunk = max(count, 1)
    call = _Call(group, chunk, sum_input_grad and ranks > 1, options, dtype, logits, sums_in_f32)
    result = loss_dtype or (torch.float32 if torch.is_autocast_enabled(input.device.type) else dtype)
    if result not in (dtype, torch.float32):
        raise ValueError(f"ce.torch.{_NAME}: loss_dtype is {loss_dtype}; expected {_linear_arguments.f32_or(dtype)}")
    if ranks > 1:
        sums = call.sums_input_grad and needs[0]
        of_valid = -1 if valid_tokens is None else valid_tokens
        of_call = (tokens, of_valid, input.shape[-1], any(needs), needs[1], chunk, sums)
        _agree(group, ranks, tuple(float(one) for one in of_call))
    valid = max(0, min(columns, classes - first_class))
    loss, *others = _VocabParallelLinear.apply(
        hidden, linear_weight, linear_bias, flat_target, flat_rows, row_scale, upstream, call, needs, valid
    )
    wanted = [name for name in ("z_loss", *_valid_tokens.OF_ROWS) if options[f"return_{name}"]]
    made = {"loss": loss, **dict(zip(wanted, others))}
    if kept is not None:
        made = kept.scattered(made, reduction)
    for name, one in made.items():
        if name in _valid_tokens.OF_ROWS or reduction == "none":
            made[name] = one.reshape(rows)
        if name not in _valid_tokens.OF_ROWS:
            made[name] = made[name].to(result)
    return VocabParallelOutput(**made) if wanted else made["loss"]


def _one_of(
    argument: str, given: torch.dtype | None, own: torch.dtype, otherwise: torch.dtype | None = None
) -> torch.dtype:
    """The given dtype, which must be float32 or the call's own; by default `otherwise`, or the latter."""
    if given is None:
        return otherwise or own
    if given not in (own, torch.float32):
        raise ValueError(f"ce.torch.{_NAME}: {argument} is {given}; expected {_linear_arguments.f32_or(own)}")
    return given


def _flat_upstream(upstream: Tensor | float, input: Tensor) -> Tensor:
    """The upstream gradient: [], or one element a row; in float32."""
    given = _loss_arguments.upstream_of(upstream, torch.float32, input, f"ce.torch.{_NAME}").detach()
    rows = input.shape[:-1]
    if given.numel() != 1 and given.shape != rows:
        raise ValueError(
            f"ce.torch.{_NAME}: upstream has sizes {list(given.shape)}; expected one number, or {list(rows)}"
        )
    return given.reshape(()) if given.numel() == 1 else given.reshape(-1)


_agreed = _rank_exchange.PerGroup()


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
    _vocab_parallel.require_the_same(f"ce.torch.{_NAME}", names, calls)
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


def _chunk(tokens: int, row_bytes: int, budget: int) -> int:
    """Tokens of a chunk: chunks have about equal size, within the budget."""
    most = max(budget // row_bytes // _TILE * _TILE, _TILE)
    chunks = max(-(-tokens // most), 1)
    return min(-(-tokens // chunks // _TILE) * _TILE, most) if tokens > _TILE else max(tokens, 1)


class _Gradients:
    """Gradients of hidden states, weight and bias; the latter two are summed over the chunks, in float32 if there are
    several."""

    def __init__(
        self,
        call: _Call,
        layer: _linear.Layer,
        needs: tuple[bool, ...],
        dtypes: tuple[torch.dtype, ...],
        columns: int,
    ) -> None:
        """
        Args:
            layer: without padding, whose gradient is 0.
            dtypes: dtypes of the gradients.
            columns: number of columns including padding.
        """
        hidden, weight, _ = layer
        valid = weight.shape[0]
        self.call, self.layer, self.dtypes = call, layer, dtypes
        is_in_chunks = hidden.shape[0] > call.chunk
        self.in_f32 = (is_in_chunks and call.sums_in_f32) or dtypes[1] is torch.float32
        self.hidden = hidden.new_empty(hidden.shape) if needs[0] else None
        self.all_of_weight = self.all_of_bias = None
        if needs[1]:
            sums = torch.float32 if self.in_f32 else weight.dtype
            self.all_of_weight = weight.new_empty((columns, weight.shape[1]), dtype=sums)
            self.all_of_weight[valid:] = 0
        if needs[2]:
            self.all_of_bias = weight.new_zeros(columns, dtype=torch.float32)
        self.weight = None if self.all_of_weight is None else self.all_of_weight[:valid]
        self.bias = None if self.all_of_bias is None else self.all_of_bias[:valid]
        self.pending: list[Any] = []
        self.is_begun = False

    def add(self, rows: slice, of_logits: Tensor) -> None:
        hidden, weight, _ = self.layer
        if self.bias is not None:
            self.bias += of_logits.sum(0, dtype=torch.float32)
        of_logits = of_logits.to(hidden.dtype)
        if self.hidden is not None:
            own = self.hidden[rows]
            torch.mm(of_logits, weight, out=own)
            if self.call.sums_input_grad:
                self.pending.append(dist.all_reduce(own, group=self.call.group, async_op=True))
        if self.weight is not None:
            beta = float(self.is_begun)
            if not self.in_f32:
                self.weight.addmm_(of_logits.t(), hidden[rows], beta=beta)
            elif hidden.is_cuda and hidden.dtype is not torch.float32:
                sums, operands = self.weight, (of_logits.t(), hidden[rows])
                torch.addmm(sums, *operands, out_dtype=torch.float32, beta=beta, out=sums)
            else:
                self.weight.addmm_(of_logits.t().float(), hidden[rows].float(), beta=beta)
        self.is_begun = True

    def finished(self) -> list[Tensor | None]:
        for one in self.pending:
            one.wait()
        made = (self.hidden, self.all_of_weight, self.all_of_bias)
        return [None if one is None else one.to(dtype) for one, dtype in zip(made, self.dtypes)]


def _layer_of(input: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, valid: int) -> _linear.Layer:
    """The layer without padding, whose values must not reach the products."""
    hidden, weight, bias = _linear.Layer.of(input, weight, bias, dtype)
    return _linear.Layer(hidden.contiguous(), weight[:valid], None if bias is None else bias[:valid])


def _in_chunks(
    call: _Call,
    layer: _linear.Layer,
    of_rows: tuple[Tensor, Tensor | None, Tensor | None, Tensor | None],
    gradients: _Gradients | None,
    of_loss: Tensor | None = None,
) -> list[tuple[Tensor, ...]]:
    """Loss and other results of each chunk; adds to the gradients, given gradients of the losses.

    Args:
        of_rows: targets, weights of the rows, scales of their logits, and upstream gradients (or one for all).
    """
    hidden, weight, bias = layer
    tokens, made = hidden.shape[0], []
    buffer = hidden.new_empty((min(call.chunk, tokens), weight.shape[0]), dtype=call.logits_dtype)
    for start in range(0, max(tokens, 1), call.chunk):
        rows = slice(start, min(start + call.chunk, tokens))
        target = of_rows[0][rows]
        row_weight, row_scale, upstream = (one if one is None or one.dim() == 0 else one[rows] for one in of_rows[1:])
        logits = buffer.detach()[: rows.stop - start]
        _make_logits(hidden[rows], weight, bias, logits)
        logits.requires_grad_(gradients is not None)
        options = call.options if row_scale is None else {**call.options, "logit_scale": row_scale}
        with torch.set_grad_enabled(gradients is not None), torch.autocast(logits.device.type, enabled=False):
            results = vocab_parallel_cross_entropy(
                logits, target, row_weight=row_weight, upstream=upstream, inplace_backward=True, **options
            )
        loss, *others = results if isinstance(results, VocabParallelOutput) else (results,)
        if gradients is not None:
            (of_logits,) = torch.autograd.grad(loss, logits, None if of_loss is None else of_loss[rows])
            gradients.add(rows, of_logits)
        made.append((loss.detach(), *(one.detach() for one in others if one is not None)))
    return made


def _make_logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, logits: Tensor) -> None:
    if logits.dtype is hidden.dtype:
        if bias is None:
            torch.mm(hidden, weight.t(), out=logits)
        else:
            torch.addmm(bias.to(logits.dtype), hidden, weight.t(), out=logits)
        return
    if bias is not None:
        logits.copy_(bias.expand_as(logits))
    beta = float(bias is not None)
    if hidden.is_cuda:
        torch.addmm(logits, hidden, weight.t(), out_dtype=logits.dtype, beta=beta, out=logits)
    else:
        logits.addmm_(hidden.to(logits.dtype), weight.t().to(logits.dtype), beta=beta)


class _VocabParallelLinear(torch.autograd.Function):
    """Saves the gradients for the reductions mean and sum, and the layer for the reduction none."""

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        row_weight: Tensor | None,
        row_scale: Tensor | None,
        upstream: Tensor | None,
        call: _Call,
        needs: tuple[bool, ...],
        valid: int,
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.dtypes = (input.dtype, weight.dtype, input.dtype if bias is None else bias.dtype)
        ctx.one_pass = call.options["reduction"] != "none"
        layer = _layer_of(input, weight, bias, call.dtype, valid)
        gradients = None
        if ctx.one_pass and any(needs):
            gradients = _Gradients(call, layer, needs, ctx.dtypes, weight.shape[0])
        of_rows = (target, row_weight, row_scale, upstream)
        losses, *others = zip(*_in_chunks(call, layer, of_rows, gradients))
        made = [torch.cat(one) if one[0].dim() > 0 else torch.stack(one).sum(0) for one in others]
        ctx.mark_non_differentiable(*made)
        if ctx.one_pass:
            ctx.save_for_backward(*(gradients.finished() if gradients is not None else (None,) * 3))
            return torch.stack(losses).sum(0), *made
        ctx.save_for_backward(input, weight, bias, *of_rows)
        ctx.call, ctx.needs, ctx.valid = call, needs, valid
        return torch.cat(losses), *made

    @staticmethod
    def backward(ctx: Any, of_loss: Tensor | None, *_: None) -> Any:
        _autograd.refuse_second(_NAME, "torch.nn.functional.linear")
        none = (None,) * 7
        if of_loss is None:
            return None, None, None, *none
        if ctx.one_pass:
            return *(_linear._scaled(one, of_loss) for one in ctx.saved_tensors), *none
        _autograd.refuse_batched(_NAME, of_loss)
        input, weight, bias, *of_rows = ctx.saved_tensors
        layer = _layer_of(input, weight, bias, ctx.call.dtype, ctx.valid)
        gradients = _Gradients(ctx.call, layer, ctx.needs, ctx.dtypes, weight.shape[0])
        _in_chunks(ctx.call, layer, tuple(of_rows), gradients, of_loss.detach().float())
        return *gradients.finished(), *none
