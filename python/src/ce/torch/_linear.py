"""The operator ``torch.ops.ce.linear_cross_entropy``, and the gradients of eager and compiled calls of it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ce import _c
from ce.torch import _autograd, _native, _reference

__all__ = ["Inputs", "LinearCrossEntropy", "Logprobs", "Memory", "run"]

_DTYPES = {
    torch.float32: _c.F32,
    torch.float16: _c.F16,
    torch.bfloat16: _c.BF16,
    torch.int32: _c.I32,
    torch.int64: _c.I64,
    torch.uint8: _c.U8,
    torch.bool: _c.U8,
}
_TORCH_DTYPES = {_c.F32: torch.float32, _c.F16: torch.float16, _c.BF16: torch.bfloat16}
_ALIGNMENT = 256  # of a workspace
_MEBIBYTE = 1 << 20
_keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph


class Inputs(NamedTuple):
    """What a call may be given beside its layer and its targets; one element a row, or one."""

    class_weight: Tensor | None = None
    upstream: Tensor | None = None
    row_weight: Tensor | None = None
    row_scale: Tensor | None = None
    divisor: Tensor | None = None
    entropy_upstream: Tensor | None = None
    lse_upstream: Tensor | None = None


class Memory(NamedTuple):
    """What a call may take, and what it computes in."""

    budget: int = 0
    chunk_tokens: int = 0
    logits_dtype: int = _c.DTYPE_UNSET
    accumulation: int = _c.DTYPE_UNSET


class Wanted(NamedTuple):
    """Which outputs are made."""

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
    """Empty tensors where they were not wanted."""

    loss: Tensor
    hidden_grad: Tensor
    weight_grad: Tensor
    bias_grad: Tensor
    z_loss_out: Tensor
    lse: Tensor
    argmax: Tensor
    hit: Tensor
    logprob: Tensor
    entropy: Tensor


def dtype_code(dtype: torch.dtype | None) -> int:
    return _c.DTYPE_UNSET if dtype is None else _DTYPES[dtype]


def _new_outputs(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    reduction: int,
    logits: torch.dtype,
    wanted: Wanted,
    absent: Tensor | None = None,
) -> Outputs:
    """
    Args:
        absent: stands for all that is not wanted; None: each has an empty tensor of its own.
    """
    tokens = (hidden.shape[0],)
    losses = tokens if reduction == 0 else ()
    loss_dtype = torch.float32 if wanted.f32_loss else logits

    def make(is_wanted: bool, sizes: Sequence[int], dtype: torch.dtype) -> Tensor:
        if not is_wanted and absent is not None:
            return absent
        return hidden.new_empty(sizes if is_wanted else (0,), dtype=dtype)

    return Outputs(
        make(True, losses, loss_dtype),
        make(wanted.hidden_grad, hidden.shape, hidden.dtype),
        make(wanted.weight_grad, weight.shape, torch.float32 if wanted.f32_weight_grad else weight.dtype),
        make(wanted.bias_grad, (weight.shape[0],), hidden.dtype if bias is None else bias.dtype),
        make(wanted.z_loss_out, losses, loss_dtype),
        make(wanted.lse, tokens, torch.float32),
        make(wanted.argmax, tokens, torch.int64),
        make(wanted.hit, tokens, torch.bool),
        make(wanted.logprob, tokens, torch.float32),
        make(wanted.entropy, tokens, torch.float32),
    )


_budgets: dict[tuple[Any, ...], int] = {}


def _budget(hidden: Tensor, weight: Tensor, memory: Memory, wanted: Wanted) -> int:
    """A tenth of what is free for torch when such a call is first met: it stays, so that calls are alike."""
    if memory.budget > 0 or not hidden.is_cuda:
        return memory.budget
    key = (hidden.device, hidden.shape, weight.shape, hidden.dtype, memory, wanted)
    known = _budgets.get(key)
    if known is None:
        free, _ = torch.cuda.mem_get_info(hidden.device)
        free += torch.cuda.memory_reserved(hidden.device) - torch.cuda.memory_allocated(hidden.device)
        known = _budgets[key] = max(free // 10 // _MEBIBYTE, 1) * _MEBIBYTE
    return known


def _view(tensor: Tensor) -> _c.Tensor:
    """Of a matrix, or of one element after the other."""
    rows, columns = tensor.shape if tensor.dim() == 2 else (tensor.numel(), 1)
    stride = tensor.stride(0) if tensor.dim() == 2 and rows > 1 else _c.CONTIGUOUS
    return _c.Tensor(tensor.data_ptr(), _DTYPES[tensor.dtype], rows, columns, stride, 1, 0, 0)


def _rows(tensor: Tensor) -> Tensor:
    """With rows of adjacent elements."""
    is_plain = tensor.stride(-1) == 1 and (tensor.shape[0] <= 1 or tensor.stride(0) >= tensor.shape[1])
    return tensor if is_plain else tensor.contiguous()


def _compute(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    inputs: Inputs,
    numbers: tuple[Any, ...],
    asked: Memory,
    wanted: Wanted,
    absent: Tensor | None = None,
) -> Outputs:
    hidden, weight = _rows(hidden), _rows(weight)
    logits = hidden.dtype if asked.logits_dtype == _c.DTYPE_UNSET else _TORCH_DTYPES[asked.logits_dtype]
    ignore_index, reduction, label_smoothing, z_loss, softcap, logit_scale, token_scaling = numbers
    outputs = _new_outputs(hidden, weight, bias, reduction, logits, wanted, absent)
    given: dict[str, Tensor | None] = {
        "hidden": hidden,
        "weight": weight,
        "bias": bias,
        "target": target,
        "loss": outputs.loss,
        **inputs._asdict(),
    }
    for name, output in outputs._asdict().items():
        if getattr(wanted, name, False):
            given[name] = output
    kept = {name: one if one.dim() == 2 else one.contiguous() for name, one in given.items() if one is not None}
    if kept["target"].dim() == 2:
        kept["target"] = _rows(kept["target"])
    views = {name: _view(one) for name, one in kept.items()}

    of_loss = _c.CrossEntropyOptions(
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
        z_loss=z_loss,
        softcap=softcap,
        logit_scale=logit_scale,
        token_scaling=token_scaling,
    )
    options = _c.LinearCrossEntropyOptions(
        cross_entropy=ctypes.pointer(of_loss),
        memory_budget=_budget(hidden, weight, asked, wanted),
        chunk_tokens=asked.chunk_tokens,
        logits_dtype=asked.logits_dtype,
        accumulation=asked.accumulation,
    )
    tensors = _c.LinearCrossEntropyTensors(**{name: ctypes.pointer(view) for name, view in views.items()})
    context = _native.context(_native.device_index(hidden.device))
    library, schedule = _c.library(), _c.LinearSchedule()
    try:
        _c.require(
            library.ce_linear_cross_entropy_schedule(
                context, ctypes.byref(options), ctypes.byref(tensors), ctypes.byref(schedule)
            )
        )
        # From torch's allocator, for this call alone: it is in no other call's way, also while a graph is captured.
        workspace = hidden.new_empty((schedule.workspace_bytes + _ALIGNMENT,), dtype=torch.uint8)
        start = workspace.data_ptr() + -workspace.data_ptr() % _ALIGNMENT
        tensors.workspace = ctypes.pointer(_c.Tensor(start, _c.U8, schedule.workspace_bytes, 1, _c.CONTIGUOUS, 1, 0, 0))
        stream = torch.cuda.current_stream(hidden.device).cuda_stream if hidden.is_cuda else 0
        _c.require(library.ce_linear_cross_entropy(context, ctypes.byref(options), ctypes.byref(tensors), stream, None))
    except MemoryError as error:
        raise torch.OutOfMemoryError(str(error)) from None
    return outputs


def _implementation(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    class_weight: Tensor | None,
    upstream: Tensor | None,
    row_weight: Tensor | None,
    row_scale: Tensor | None,
    divisor: Tensor | None,
    entropy_upstream: Tensor | None,
    lse_upstream: Tensor | None,
    ignore_index: int,
    reduction: int,
    label_smoothing: float,
    z_loss: float,
    softcap: float,
    logit_scale: float,
    token_scaling: float,
    memory: Sequence[int],
    flags: Sequence[bool],
) -> list[Tensor]:
    """The operator."""
    inputs = Inputs(class_weight, upstream, row_weight, row_scale, divisor, entropy_upstream, lse_upstream)
    numbers = (ignore_index, reduction, label_smoothing, z_loss, softcap, logit_scale, token_scaling)
    made = _compute(hidden, weight, bias, target, inputs, numbers, Memory(*memory), Wanted(*flags))
    return list(made)


_op = torch.library.custom_op(
    "ce::linear_cross_entropy",
    _implementation,
    mutates_args=(),
    schema="(Tensor hidden, Tensor weight, Tensor? bias, Tensor target, Tensor? class_weight, Tensor? upstream, "
    "Tensor? row_weight, Tensor? row_scale, Tensor? divisor, Tensor? entropy_upstream, Tensor? lse_upstream, "
    "int ignore_index, int reduction, float label_smoothing, float z_loss, float softcap, float logit_scale, "
    "float token_scaling, int[] memory, bool[] wanted) -> Tensor[]",
)


@_op.register_fake
def _fake(hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, *rest: Any) -> list[Tensor]:
    reduction, memory, wanted = rest[8], Memory(*rest[-2]), Wanted(*rest[-1])
    logits = hidden.dtype if memory.logits_dtype == _c.DTYPE_UNSET else _TORCH_DTYPES[memory.logits_dtype]
    return list(_new_outputs(hidden, weight, bias, reduction, logits, wanted))


def run(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    inputs: Inputs,
    numbers: tuple[Any, ...],
    memory: Memory,
    wanted: Wanted,
) -> Outputs:
    """The operator, whatever autograd and autocast are at; without the dispatcher's layers where nothing traces."""
    if not torch.compiler.is_compiling() and type(hidden) is Tensor and type(weight) in (Tensor, torch.nn.Parameter):
        return _compute(hidden, weight, bias, target, inputs, numbers, memory, wanted, hidden.new_empty(0))
    return Outputs(*_op(hidden, weight, bias, target, *inputs, *numbers, list(memory), list(wanted)))


class Layer(NamedTuple):
    """A layer in the dtype of its products, detached."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None

    @staticmethod
    def of(input: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Layer:
        return Layer(input.detach().to(dtype), weight.detach().to(dtype), None if bias is None else bias.detach())


def needs_of(input: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[bool, bool, bool]:
    """Which gradients a backward will be asked for, found before autograd hides it."""
    if not torch.is_grad_enabled():
        return False, False, False
    return input.requires_grad, weight.requires_grad, bias is not None and bias.requires_grad


def _wants(needs: Sequence[bool], weight: Tensor, dtype: torch.dtype) -> dict[str, bool]:
    """The gradients that are needed: that of a float32 weight without rounding, whatever its products are in."""
    is_wide = weight.dtype is torch.float32 or weight.dtype is not dtype
    return {
        "hidden_grad": needs[0],
        "weight_grad": needs[1],
        "f32_weight_grad": needs[1] and is_wide,
        "bias_grad": needs[2],
    }


def _gradients(
    made: Outputs, needs: Sequence[bool], dtypes: Sequence[torch.dtype]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """In the dtypes of what they are of; None where they are not needed."""
    all_made = (made.hidden_grad, made.weight_grad, made.bias_grad)
    hidden, weight, bias = (one.to(dtype) if need else None for one, need, dtype in zip(all_made, needs, dtypes))
    return hidden, weight, bias


def _scaled(gradient: Tensor | None, factor: Tensor, name: str) -> Tensor | None:
    """Times the gradient of the loss. What was saved stays as it is while the graph does."""
    if gradient is None:
        return None
    if torch.compiler.is_compiling():
        return (gradient * factor).to(gradient.dtype)
    of_dtype = factor if factor.dtype in (torch.float32, gradient.dtype) else factor.float()
    return _autograd.once(_autograd.scaled(gradient, of_dtype, _keeps_graph()), name, "torch.nn.functional.linear")


class LinearCrossEntropy(torch.autograd.Function):
    """Saves the gradients for the reductions mean and sum; for the reduction none, and where a logsumexp that is
    differentiable is wanted, the layer, and makes the logits anew. The z-loss is differentiable where the layer is
    saved."""

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        inputs: Inputs,
        numbers: tuple[Any, ...],
        memory: Memory,
        outputs: tuple[bool, ...],
        dtype: torch.dtype,
        needs: tuple[bool, ...],
    ) -> tuple[Tensor, ...]:
        f32_loss, wants_z_loss, wants_lse, wants_argmax, wants_hit = outputs
        ctx.set_materialize_grads(False)
        ctx.one_pass = numbers[1] in _autograd.MEAN_OR_SUM and not wants_lse
        gradients = _wants(needs if ctx.one_pass else (False,) * 3, weight, dtype)
        wants_gradient_of_z_loss = wants_z_loss and not ctx.one_pass
        wanted = Wanted(
            f32_loss,
            z_loss_out=wants_z_loss,
            lse=wants_lse or wants_gradient_of_z_loss,
            argmax=wants_argmax,
            hit=wants_hit,
            logprob=wants_gradient_of_z_loss and _autograd.has_classes(target),
            **gradients,
        )
        first = inputs if ctx.one_pass else inputs._replace(upstream=None)
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
        ctx.mark_non_differentiable(*constant)
        return made.loss, made.z_loss_out, made.lse, made.argmax, made.hit

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor | None, of_z_loss: Tensor | None, of_lse: Tensor | None, *_: None) -> Any:
        none = (None,) * 7
        name = "linear_cross_entropy"
        if grad_loss is None and of_z_loss is None and of_lse is None:
            return None, None, None, *none
        if ctx.one_pass:
            assert grad_loss is not None  # nothing else of it has a gradient
            return *(_scaled(one, grad_loss, name) for one in ctx.saved_tensors), *none
        input, weight, bias, target, lse, logprob, *rest = ctx.saved_tensors
        inputs = Inputs(*rest)
        if of_z_loss is not None:
            of_lse = _reference.gradient_of_lse(
                of_lse, of_z_loss, lse, logprob, target, ctx.numbers, inputs.row_weight, inputs.divisor
            )
        if grad_loss is None:
            grad_loss = input.new_zeros((), dtype=torch.float32)
        factor = grad_loss if inputs.upstream is None else grad_loss * inputs.upstream
        wanted = Wanted(True, **_wants(ctx.needs, weight, ctx.dtype))
        given = inputs._replace(upstream=factor.float(), lse_upstream=of_lse)
        made = run(*Layer.of(input, weight, bias, ctx.dtype), target, given, ctx.numbers, ctx.memory, wanted)
        return *_once(_gradients(made, ctx.needs, ctx.dtypes), name), *none


def _once(gradients: Sequence[Tensor | None], name: str) -> list[Tensor | None]:
    if torch.compiler.is_compiling():
        return list(gradients)
    return [None if one is None else _autograd.once(one, name, "torch.nn.functional.linear") for one in gradients]


class Logprobs(torch.autograd.Function):
    """Log-probabilities and entropies. Saves the layer, and makes the logits anew for the gradients of both."""

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        index: Tensor,
        numbers: tuple[Any, ...],
        memory: Memory,
        dtype: torch.dtype,
        needs: tuple[bool, ...],
        row_scale: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        wanted = Wanted(True, logprob=True, entropy=True)
        made = run(*Layer.of(input, weight, bias, dtype), index, Inputs(row_scale=row_scale), numbers, memory, wanted)
        ctx.needs, ctx.dtype, ctx.numbers, ctx.memory = needs, dtype, numbers, memory
        ctx.dtypes = (input.dtype, weight.dtype, input.dtype if bias is None else bias.dtype)
        ctx.save_for_backward(input, weight, bias, index, row_scale)
        return made.logprob, made.entropy

    @staticmethod
    def backward(ctx: Any, of_logprob: Tensor | None, of_entropy: Tensor | None) -> Any:
        none = (None,) * 6
        if of_logprob is None and of_entropy is None:
            return None, None, None, *none
        input, weight, bias, index, row_scale = ctx.saved_tensors
        # The loss is the negative log-probability.
        upstream = input.new_zeros((), dtype=torch.float32) if of_logprob is None else -of_logprob.float()
        given = Inputs(upstream=upstream, row_scale=row_scale, entropy_upstream=of_entropy)
        wanted = Wanted(True, **_wants(ctx.needs, weight, ctx.dtype))
        made = run(*Layer.of(input, weight, bias, ctx.dtype), index, given, ctx.numbers, ctx.memory, wanted)
        return *_once(_gradients(made, ctx.needs, ctx.dtypes), "linear_logprobs_and_entropy"), *none
