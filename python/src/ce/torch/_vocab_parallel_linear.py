"""Chunks of a linear layer whose classes are spread over ranks, and autograd for them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ce.torch import _arguments, _autograd, _linear
from ce.torch.vocab_parallel import VocabParallelOutput, vocab_parallel_cross_entropy


class Call(NamedTuple):
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


class _Gradients:
    """Gradients of hidden states, weight and bias; the latter two are summed over the chunks, in float32 if there are
    several."""

    def __init__(
        self,
        call: Call,
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
    call: Call,
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
            results = _loss(logits, target, row_weight=row_weight, upstream=upstream, inplace_backward=True, **options)
        loss, *others = results if isinstance(results, VocabParallelOutput) else (results,)
        if gradients is not None:
            (of_logits,) = torch.autograd.grad(loss, logits, None if of_loss is None else of_loss[rows])
            gradients.add(rows, of_logits)
        made.append((loss.detach(), *(one.detach() for one in others if one is not None)))
    return made


def _loss(logits: Tensor, target: Tensor, **named: Any) -> Any:
    """The loss of a chunk. Errors name the function that users call."""
    try:
        return vocab_parallel_cross_entropy(logits, target, **named)
    except (*_arguments.REFUSALS, LookupError) as error:
        of_chunk, text = "ce.torch.vocab_parallel_cross_entropy: ", str(error)
        if not text.startswith(of_chunk):
            raise
        raise type(error)(f"ce.torch.vocab_parallel_linear_cross_entropy: {text[len(of_chunk) :]}") from None


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


class VocabParallelLinear(torch.autograd.Function):
    """Saves the gradients for the reductions mean and sum, and the layer for the reduction none.

    Takes the factor of the results that leave out tokens (:mod:`ce.torch._valid_tokens`), by which they are multiplied.
    """

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
        factor: Tensor | None,
        call: Call,
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
        ctx.save_for_backward(input, weight, bias, factor, *of_rows)
        ctx.call, ctx.needs, ctx.valid = call, needs, valid
        return torch.cat(losses), *made

    @staticmethod
    def backward(ctx: Any, of_loss: Tensor | None, *_: None) -> Any:
        _autograd.refuse_second("vocab_parallel_linear_cross_entropy", "torch.nn.functional.linear")
        none = (None,) * 8
        if of_loss is None:
            return None, None, None, *none
        if ctx.one_pass:
            return *(_linear._scaled(one, of_loss) for one in ctx.saved_tensors), *none
        _autograd.refuse_batched("vocab_parallel_linear_cross_entropy", of_loss)
        input, weight, bias, factor, *of_rows = ctx.saved_tensors
        layer = _layer_of(input, weight, bias, ctx.call.dtype, ctx.valid)
        gradients = _Gradients(ctx.call, layer, ctx.needs, ctx.dtypes, weight.shape[0])
        _in_chunks(ctx.call, layer, tuple(of_rows), gradients, of_loss.detach().float())
        made = gradients.finished()
        if factor is not None and input.shape[0] == 0:  # of no token, so no upstream gradient carries it
            made = [one if one is None else one * factor.to(one.dtype) for one in made]
        return *made, *none
