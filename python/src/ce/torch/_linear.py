"""The operator ``torch.ops.ce.linear_cross_entropy``, and autograd for its eager and compiled calls."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ce.torch import _autograd, _native, _reference
from ce.torch._kernels import KERNEL_DTYPES

__all__ = ["Inputs", "LinearCrossEntropy", "Logprobs", "LossAlone", "Memory", "run"]

_DTYPES = {code: dtype for dtype, code in KERNEL_DTYPES.items()}
_UNSET = -1
_operators = _native.operators
_unwrap_if_dead = _autograd.unwrap_if_dead
_compute = _native.fast(_operators._linear_cross_entropy)
_is_compiling = torch.compiler.is_compiling
_INSTEAD = "torch.nn.functional.linear"


class Inputs(NamedTuple):
    """The optional inputs of a call, with one element for each row, or one."""

    class_weight: Tensor | None = None
    upstream: Tensor | None = None
    row_weight: Tensor | None = None
    row_scale: Tensor | None = None
    divisor: Tensor | None = None
    entropy_upstream: Tensor | None = None
    lse_upstream: Tensor | None = None


def without_upstream(inputs: Inputs) -> Inputs:
    """The inputs of a call without gradients."""
    return inputs if inputs.upstream is None else inputs._replace(upstream=None)


class Memory(NamedTuple):
    """Memory and dtypes of a call: dtypes are numbers of ce, -1 if not chosen. The number of tokens that count if the
    products leave out the others, else -1. Whether gradients are made of exponentials: 1, 0, or -1 if not chosen."""

    budget: int = 0
    chunk_tokens: int = 0
    logits_dtype: int = _UNSET
    accumulation: int = _UNSET
    valid_tokens: int = _UNSET
    exponentials: int = _UNSET


class Wanted(NamedTuple):
    """The requested outputs."""

    f32_loss: bool = True
    hidden_grad: bool = False
    weight_grad: bool = False
    f32_weight_grad: bool = False
    bias_grad: bool = False
    z_loss_out: bool = False
    lse: bool = False
    argmax: bool = False
    hit: bool = False
    logprob: bool = False
    entropy: bool = False


class Outputs(NamedTuple):
    """The results. An output that was not requested is None, or an empty tensor in compiled code."""

    loss: Tensor
    hidden_grad: Tensor | None
    weight_grad: Tensor | None
    bias_grad: Tensor | None
    z_loss_out: Tensor | None
    lse: Tensor | None
    argmax: Tensor | None
    hit: Tensor | None
    logprob: Tensor | None
    entropy: Tensor | None


_OWN_OUTPUTS = Outputs._fields.index("bias_grad") + 1  # later ones are outputs of cross entropy


def dtype_code(dtype: torch.dtype | None, name: str, argument: str) -> int:
    """
    Raises:
        TypeError: a dtype that kernels do not have; names the function and its argument.
    """
    if dtype is None:
        return _UNSET
    code = KERNEL_DTYPES.get(dtype) if isinstance(dtype, torch.dtype) else None
    if code is None:
        raise TypeError(f"ce.torch.{name}: {argument} is {dtype}; expected float32, float16 or bfloat16")
    return code


def fake(hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    """The operator for fake tensors."""
    given = iter(rest[len(Inputs._fields) :])
    options = _reference.Options(*islice(given, len(_reference.Options._fields)))
    memory, wanted = Memory(*islice(given, len(Memory._fields))), Wanted(*given)
    logits = hidden.dtype if memory.logits_dtype == _UNSET else _DTYPES[memory.logits_dtype]
    tokens = (hidden.shape[0],)
    losses = tokens if options.reduction == _reference.NONE else ()
    loss_dtype = torch.float32 if wanted.f32_loss else logits

    def make(is_wanted: bool, sizes: Sequence[int], dtype: torch.dtype) -> Tensor:
        return hidden.new_empty(sizes if is_wanted else (0,), dtype=dtype)

    return (
        make(True, losses, loss_dtype),
        make(wanted.hidden_grad, hidden.shape, hidden.dtype),
        make(wanted.weight_grad, weight.shape, torch.float32 if wanted.f32_weight_grad else weight.dtype),
        make(wanted.bias_grad, (weight.shape[0],), hidden.dtype if bias is None else bias.dtype),
        *(
            make(
                getattr(wanted, name),
                _reference.sizes_of(name, losses, tokens),
                _reference.dtype_of(name, loss_dtype),
            )
            for name in Outputs._fields[_OWN_OUTPUTS:]
        ),
    )


def run(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    inputs: Inputs,
    numbers: _reference.Options,
    memory: Memory,
    wanted: Wanted,
) -> Outputs:
    """Calls the operator without autograd and autocast."""
    if _is_compiling():
        operator = _operators.linear_cross_entropy.default
        return Outputs(*operator(hidden, weight, bias, target, *inputs, *numbers, *memory, *wanted))
    try:
        return Outputs(*_compute(hidden, weight, bias, target, *inputs, *numbers, *memory, *wanted))
    except (RuntimeError, ValueError) as error:
        _native.raise_from(error)


class Layer(NamedTuple):
    """A layer in the dtype of its products, detached for autograd."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None

    @staticmethod
    def of(input: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Layer:
        if any(needs_of(input, weight, bias)):
            input, weight, bias = input.detach(), weight.detach(), None if bias is None else bias.detach()
        return Layer(
            input if input.dtype is dtype else input.to(dtype),
            weight if weight.dtype is dtype else weight.to(dtype),
            bias,
        )


def needs_of(input: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[bool, bool, bool]:
    """The gradients that a backward will need, determined before autograd hides it."""
    if not torch.is_grad_enabled():
        return False, False, False
    return input.requires_grad, weight.requires_grad, bias is not None and bias.requires_grad


def _wants(needs: Sequence[bool], weight: Tensor, dtype: torch.dtype) -> tuple[bool, bool, bool, bool]:
    """The required gradients; that of a float32 weight is not rounded, whatever dtype the products have.

    Returns:
        Flags for the hidden states, the weight, whether the latter is in float32, and the bias.
    """
    is_wide = weight.dtype is torch.float32 or weight.dtype is not dtype
    return needs[0], needs[1], needs[1] and is_wide, needs[2]


def _gradients(
    made: Outputs, needs: Sequence[bool], dtypes: Sequence[torch.dtype]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Converts gradients to the dtypes of their tensors; None if not needed."""

    def of_dtype(one: Tensor | None, need: bool, dtype: torch.dtype) -> Tensor | None:
        if not need or one is None:
            return None
        return one if one.dtype is dtype else one.to(dtype)

    return (
        of_dtype(made.hidden_grad, needs[0], dtypes[0]),
        of_dtype(made.weight_grad, needs[1], dtypes[1]),
        of_dtype(made.bias_grad, needs[2], dtypes[2]),
    )


def _scaled(gradient: Tensor | None, factor: Tensor) -> Tensor | None:
    """Multiplies by the gradient of the loss. Saved gradients stay unchanged if the graph is kept."""
    if gradient is None:
        return None
    if _is_compiling():
        return (gradient * factor).to(gradient.dtype)
    of_dtype = factor if factor.dtype in (torch.float32, gradient.dtype) else factor.float()
    return _autograd.scaled(gradient, of_dtype, _autograd.keeps_graph())


class LossAlone(torch.autograd.Function):
    """Mean or sum without other outputs. Saves the gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        inputs: Inputs,
        numbers: _reference.Options,
        memory: Memory,
        f32_loss: bool,
        dtype: torch.dtype,
        needs: tuple[bool, ...],
    ) -> Tensor:
        wanted = Wanted(f32_loss, *_wants(needs, weight, dtype))
        made = run(*Layer.of(input, weight, bias, dtype), target, inputs, numbers, memory, wanted)
        of_bias = input.dtype if bias is None else bias.dtype
        ctx.save_for_backward(*_gradients(made, needs, (input.dtype, weight.dtype, of_bias)))
        return made.loss

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> Any:
        _autograd.refuse_second("linear_cross_entropy", _INSTEAD)
        none = (None,) * 7
        return *(_scaled(one, grad_loss) for one in ctx.saved_tensors), *none


_NOTHING_ELSE = (Inputs(), _reference.Options(), Memory())
_LOSS_ALONE = {
    f32_loss: tuple(itertools.chain(*_NOTHING_ELSE, Wanted(f32_loss=f32_loss))) for f32_loss in (False, True)
}
_apply_loss_alone = _autograd.applied(LossAlone)


def loss_of_classes(hidden: Tensor, weight: Tensor, target: Tensor) -> Any:
    """The mean loss of class indices without options, outside of transforms and compilers."""
    dtype = hidden.dtype
    f32_loss = dtype is torch.float32
    needs = needs_of(hidden, weight, None)
    if not (needs[0] or needs[1]):
        return _compute(hidden, weight, None, target, *_LOSS_ALONE[f32_loss])[0]
    hidden, weight = _unwrap_if_dead(hidden), _unwrap_if_dead(weight)
    return _apply_loss_alone(hidden, weight, None, target, *_NOTHING_ELSE, f32_loss, dtype, needs)


class LinearCrossEntropy(torch.autograd.Function):
    """For the reductions mean and sum, saves the gradients. For the reduction none, and if a differentiable logsumexp
    is wanted, saves the layer, and computes the logits again; the z-loss is then differentiable."""

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        inputs: Inputs,
        numbers: _reference.Options,
        memory: Memory,
        outputs: tuple[bool, ...],
        dtype: torch.dtype,
        needs: tuple[bool, ...],
    ) -> tuple[Tensor | None, ...]:
        f32_loss, wants_z_loss, wants_lse, wants_argmax, wants_hit = outputs
        ctx.set_materialize_grads(False)
        ctx.one_pass = numbers.reduction in _autograd.MEAN_OR_SUM and not wants_lse
        ctx.wants = (wants_z_loss, wants_lse)
        gradients = _wants(needs, weight, dtype) if ctx.one_pass else (False,) * 4
        wants_gradient_of_z_loss = wants_z_loss and not ctx.one_pass
        wanted = Wanted(
            f32_loss,
            *gradients,
            z_loss_out=wants_z_loss,
            lse=wants_lse or wants_gradient_of_z_loss,
            argmax=wants_argmax,
            hit=wants_hit,
            logprob=wants_gradient_of_z_loss and _autograd.has_classes(target),
        )
        first = inputs if ctx.one_pass else without_upstream(inputs)
        made = run(*Layer.of(input, weight, bias, dtype), target, first, numbers, memory, wanted)
        ctx.needs, ctx.dtype, ctx.numbers, ctx.memory = needs, dtype, numbers, memory
        ctx.dtypes = (input.dtype, weight.dtype, input.dtype if bias is None else bias.dtype)
        if ctx.one_pass:
            ctx.save_for_backward(*_gradients(made, needs, ctx.dtypes))
        else:
            ctx.save_for_backward(input, weight, bias, target, made.lse, made.logprob, *inputs)
        constant = [made.argmax, made.hit]
        if not wants_lse:
            constant.append(made.lse)
        if not wants_gradient_of_z_loss:
            constant.append(made.z_loss_out)
        ctx.mark_non_differentiable(*(one for one in constant if one is not None))
        return made.loss, made.z_loss_out, made.lse, made.argmax, made.hit

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor | None, of_z_loss: Tensor | None, of_lse: Tensor | None, *_: None) -> Any:
        _autograd.refuse_second("linear_cross_entropy", _INSTEAD)
        none = (None,) * 7
        # Compiled code passes zeros for missing gradients.
        wants_z_loss, wants_lse = ctx.wants
        of_z_loss, of_lse = of_z_loss if wants_z_loss else None, of_lse if wants_lse else None
        if grad_loss is None and of_z_loss is None and of_lse is None:
            return None, None, None, *none
        if ctx.one_pass:
            assert grad_loss is not None  # no other output has a gradient
            return *(_scaled(one, grad_loss) for one in ctx.saved_tensors), *none
        input, weight, bias, target, lse, logprob, *rest = ctx.saved_tensors
        inputs = Inputs(*rest)
        if of_z_loss is not None:
            of_lse = _reference.gradient_of_lse(
                of_lse, of_z_loss, lse, logprob, target, ctx.numbers, inputs.row_weight, inputs.divisor
            )
        if grad_loss is None:
            grad_loss = input.new_zeros((), dtype=torch.float32)
        factor = grad_loss if inputs.upstream is None else grad_loss * inputs.upstream
        wanted = Wanted(True, *_wants(ctx.needs, weight, ctx.dtype))
        given = inputs._replace(upstream=factor.float(), lse_upstream=of_lse)
        made = run(*Layer.of(input, weight, bias, ctx.dtype), target, given, ctx.numbers, ctx.memory, wanted)
        return *_gradients(made, ctx.needs, ctx.dtypes), *none


class Logprobs(torch.autograd.Function):
    """Log-probabilities and entropies. Saves the layer, and computes the logits again for the gradients of both."""

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        index: Tensor,
        numbers: _reference.Options,
        memory: Memory,
        dtype: torch.dtype,
        needs: tuple[bool, ...],
        row_scale: Tensor | None,
    ) -> tuple[Tensor | None, Tensor | None]:
        ctx.set_materialize_grads(False)
        wanted = Wanted(True, logprob=True, entropy=True)
        made = run(*Layer.of(input, weight, bias, dtype), index, Inputs(row_scale=row_scale), numbers, memory, wanted)
        ctx.needs, ctx.dtype, ctx.numbers, ctx.memory = needs, dtype, numbers, memory
        ctx.dtypes = (input.dtype, weight.dtype, input.dtype if bias is None else bias.dtype)
        ctx.save_for_backward(input, weight, bias, index, row_scale)
        return made.logprob, made.entropy

    @staticmethod
    def backward(ctx: Any, of_logprob: Tensor | None, of_entropy: Tensor | None) -> Any:
        _autograd.refuse_second("linear_logprobs_and_entropy", _INSTEAD)
        none = (None,) * 6
        if of_logprob is None and of_entropy is None:
            return None, None, None, *none
        input, weight, bias, index, row_scale = ctx.saved_tensors
        # The loss is the negative log-probability.
        upstream = input.new_zeros((), dtype=torch.float32) if of_logprob is None else -of_logprob.float()
        given = Inputs(upstream=upstream, row_scale=row_scale, entropy_upstream=of_entropy)
        wanted = Wanted(True, *_wants(ctx.needs, weight, ctx.dtype))
        made = run(*Layer.of(input, weight, bias, ctx.dtype), index, given, ctx.numbers, ctx.memory, wanted)
        return *_gradients(made, ctx.needs, ctx.dtypes), *none
