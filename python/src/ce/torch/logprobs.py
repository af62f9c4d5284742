"""Log-probabilities of chosen classes and entropies of rows, in one pass over the logits."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.overrides import has_torch_function_variadic

from ce.torch import _arguments, _autograd, _native, _reference, _transforms, functional
from ce.torch._kernels import INDEX_DTYPES, KERNEL_DTYPES, has_kernels_for

__all__ = ["logprobs_and_entropy", "selective_log_softmax"]

LEFT_OUT = -100
"""The index of ignored rows."""


@_arguments.explained()
def selective_log_softmax(
    logits: Tensor, index: Tensor, temperature: float | Tensor = 1.0, row_mask: Tensor | None = None
) -> Tensor:
    """``logits.log_softmax(-1)`` at the chosen classes, without the rest of it: ``trl.trainer.utils``' function.

    If the logits require a gradient they are kept, and two float32 a row; the backward is a second pass. Differentiable
    once.

    Args:
        logits: [..., classes] of float32, float16 or bfloat16; other dtypes, and the CPU, go to torch.
        index: class indices [...]; or [..., k], for which the whole log softmax is computed.
        temperature: the divisor of the logits, positive: a number, or one float32 a row [...], on the device; a row
            whose temperature is not 2^-60 to 2^60 is NaN. No gradient is taken of it.
        row_mask: of the sizes of the index: if it is 0 the log-probability is 0, without a gradient.

    Returns:
        Log-probabilities like the index, in the dtype of the logits; computed in float32. Rows whose index is -100 are
        ignored like masked rows. Any other index that is no class becomes NaN, and kernels report it to
        :func:`ce.torch.check`.

    Raises:
        ValueError: a temperature or sizes that do not fit.
        TypeError: an index that holds no integers.
        RuntimeError: under a transform of ``torch.func``.
    """
    if has_torch_function_variadic(logits, index):
        return _arguments.overridden(
            selective_log_softmax, (logits, index), logits, index, temperature=temperature, row_mask=row_mask
        )
    name = "selective_log_softmax"
    if row_mask is not None and row_mask.shape != index.shape:
        raise ValueError(
            f"ce.torch.{name}: row_mask has sizes {list(row_mask.shape)}; expected {list(index.shape)}, "
            "the sizes of index"
        )
    mask = None if row_mask is None else row_mask != 0
    if logits.dim() > 0 and index.dim() == logits.dim() and index.shape[:-1] == logits.shape[:-1]:
        return _of_several(name, logits, index, temperature, mask)
    logprob, _ = _of_rows(name, logits, index, temperature, mask, False)
    return logprob.to(logits.dtype)


def _of_several(name: str, logits: Tensor, index: Tensor, temperature: float | Tensor, mask: Tensor | None) -> Tensor:
    """Log-probabilities of the classes [..., k], from the whole log softmax."""
    require_indices(name, index)
    _check(name, logits, index.new_zeros(()).expand(index.shape[:-1]), temperature, None)
    index, classes = index.long(), logits.shape[-1]
    left_out = index == LEFT_OUT if mask is None else (index == LEFT_OUT) | ~mask
    is_class = (index >= 0) & (index < classes)
    if logits.numel() == 0:  # no index is a class
        nothing = logits.sum(-1, keepdim=True).expand(index.shape)  # of the graph
        return nothing.masked_fill(~left_out, torch.nan).masked_fill(left_out, 0.0)
    scaled = logits
    if torch.is_grad_enabled() and logits.requires_grad:  # a row that is left out has no gradient, whatever it holds
        scaled = logits.masked_fill(left_out.all(-1, keepdim=True), 0.0)
    if isinstance(temperature, Tensor):
        wide = torch.float64 if logits.dtype is torch.float64 else torch.float32
        of_row = _row_temperature(temperature).to(wide).masked_fill(left_out.all(-1), 1.0)
        scaled = scaled.to(wide) / of_row.unsqueeze(-1)
    elif temperature != 1.0:
        scaled = (scaled if logits.dtype is torch.float64 else scaled.float()) / temperature
    chosen = functional.log_softmax(scaled, -1).gather(-1, index.where(is_class, 0))
    chosen = chosen.where(is_class, _reported(logits.detach(), index, ~(is_class | left_out)))
    return chosen.masked_fill(left_out, 0.0).to(logits.dtype)


def _reported(logits: Tensor, index: Tensor, is_wrong: Tensor) -> Tensor:
    """NaN for rows with an index that is no class, [..., 1]; kernels report the first of each row."""
    if not has_kernels_for(logits) or index.numel() == 0:
        return logits.new_full((), torch.nan)
    first = index.where(is_wrong, LEFT_OUT).gather(-1, is_wrong.int().argmax(-1, keepdim=True)).squeeze(-1)
    rows = logits.movedim(-1, 1) if logits.dim() > 2 else logits
    numbers = _reference.Options(LEFT_OUT, _reference.NONE)
    try:
        loss = _native.operators.cross_entropy_loss(rows, first, None, None, None, None, *numbers, True)
    except (RuntimeError, ValueError) as error:
        _native.raise_from(error)
    return loss.unsqueeze(-1)


@_arguments.explained()
def logprobs_and_entropy(
    logits: Tensor, index: Tensor, *, temperature: float | Tensor = 1.0, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The log-probability of the chosen class of each row, and the entropy of the row, from one pass over the logits.

    If the logits require a gradient they are kept, and three float32 a row; the backward is one second pass for the
    gradients of both. Differentiable once.

    Args:
        logits: [..., classes] of float32, float16 or bfloat16; other dtypes, and the CPU, go to torch.
        index: class indices [...], int64 or int32.
        temperature: the divisor of the logits, positive: a number, or one float32 a row [...], on the device; a row
            whose temperature is not 2^-60 to 2^60 is NaN. No gradient is taken of it.
        mask: bool [...]: the rows that count. Others have 0 in both results, and no gradient.

    Returns:
        Log-probabilities and entropies in nats, [...] in float32; float64 for float64 logits. Rows whose index is -100
        are ignored like masked rows. Any other index that is no class becomes NaN, and kernels report it to
        :func:`ce.torch.check`.

    Raises:
        ValueError: a temperature or sizes that do not fit.
        TypeError: an index that holds no integers, or a mask that is not bool.
        RuntimeError: under a transform of ``torch.func``.
    """
    if has_torch_function_variadic(logits, index):
        return _arguments.overridden(
            logprobs_and_entropy, (logits, index), logits, index, temperature=temperature, mask=mask
        )
    if mask is not None and mask.dtype is not torch.bool:
        raise TypeError(f"ce.torch.logprobs_and_entropy: mask.dtype is {mask.dtype}; expected torch.bool")
    logprob, entropy = _of_rows("logprobs_and_entropy", logits, index, temperature, mask, True)
    assert entropy is not None
    return logprob, entropy


def check_temperature(name: str, temperature: float | Tensor) -> None:
    """
    Raises:
        ValueError: a number whose inverse is no valid scale of logits.
    """
    if not isinstance(temperature, Tensor) and not 2.0**-60 <= temperature <= 2.0**60:
        raise ValueError(f"ce.torch.{name}: temperature is {temperature}; expected more than 0, from 2^-60 to 2^60")


def options_of_logprobs(temperature: float | Tensor) -> _reference.Options:
    """Options with which the loss of each row is its negative log-probability, without a temperature of rows."""
    scale = 1.0 if isinstance(temperature, Tensor) else 1.0 / temperature
    return _reference.Options(LEFT_OUT, _reference.NONE, logit_scale=scale)


def require_indices(name: str, index: Tensor) -> None:
    """
    Raises:
        TypeError: a dtype that is not an integer type.
    """
    if index.is_floating_point() or index.is_complex() or index.dtype is torch.bool:
        raise TypeError(f"ce.torch.{name}: index.dtype is {index.dtype}; expected torch.int64 or torch.int32")


def _check(name: str, logits: Tensor, index: Tensor, temperature: float | Tensor, mask: Tensor | None) -> None:
    of_rows = temperature if isinstance(temperature, Tensor) else None
    check_temperature(name, temperature)
    if logits.dim() == 0:
        raise ValueError(f"ce.torch.{name}: logits have no dimension; expected a dimension of classes")
    _reference.check_dtype(logits, f"ce.torch.{name}", "logits")
    require_indices(name, index)
    if of_rows is not None:
        also = (torch.float64,) if logits.dtype is torch.float64 else ()
        _arguments.require_dtype(f"ce.torch.{name}", "temperature", of_rows, *KERNEL_DTYPES, *also)
    for argument, given in (("index", index), ("mask", mask), ("temperature", of_rows)):
        if given is not None and given.shape != logits.shape[:-1]:
            raise ValueError(
                f"ce.torch.{name}: {argument} has sizes {list(given.shape)}; expected {list(logits.shape[:-1])}, "
                "the sizes of the logits without their classes"
            )
    _arguments.refuse_gradients(f"ce.torch.{name}", temperature=temperature)


def _of_rows(
    name: str, logits: Tensor, index: Tensor, temperature: float | Tensor, mask: Tensor | None, wants_entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities, and entropies where they are wanted."""
    _check(name, logits, index, temperature, mask)
    if index.dtype not in INDEX_DTYPES:
        index = index.long()
    if mask is not None:
        index = index.masked_fill(~mask, LEFT_OUT)
    if not has_kernels_for(logits) or logits.numel() == 0:
        return _in_torch(logits, index, temperature, wants_entropy)
    if logits.dim() == 1:
        if isinstance(temperature, Tensor):
            temperature = temperature.unsqueeze(0)
        logprob, entropy = _in_kernels(name, logits.unsqueeze(0), index.unsqueeze(0), temperature, wants_entropy)
        return logprob.squeeze(0), None if entropy is None else entropy.squeeze(0)
    rows = logits.movedim(-1, 1) if logits.dim() > 2 else logits
    return _in_kernels(name, rows, index, temperature, wants_entropy)


def _in_kernels(
    name: str, rows: Tensor, index: Tensor, temperature: float | Tensor, wants_entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities and entropies of logits [rows, classes, ...], by kernels."""
    _transforms.refuse_tangents(name, rows, instead="log_softmax")
    row_scale = temperature.detach().float().reciprocal() if isinstance(temperature, Tensor) else None
    numbers = options_of_logprobs(temperature)
    wants_gradient = torch.is_grad_enabled() and rows.requires_grad
    if torch.compiler.is_compiling():
        return _autograd.compiled_logprobs(rows, index, row_scale, numbers, wants_gradient, wants_entropy)
    try:
        if wants_gradient:
            _transforms.refuse_functorch(name, "log_softmax")
            return _autograd.Logprobs.apply(rows, index, row_scale, numbers, wants_entropy, name)
        return _autograd.logprobs(rows, index, row_scale, numbers, wants_entropy)[:2]
    except (RuntimeError, ValueError) as error:
        _native.raise_from(error)


def _row_temperature(temperature: Tensor) -> Tensor:
    """NaN where its inverse is no valid scale of logits."""
    temperature = temperature.detach()
    is_valid = (temperature >= 2.0**-60) & (temperature <= 2.0**60)
    return torch.where(is_valid, temperature, torch.nan)


def _in_torch(
    logits: Tensor, index: Tensor, temperature: float | Tensor, wants_entropy: bool
) -> tuple[Tensor, Tensor | None]:
    ignored = index == LEFT_OUT
    wide = logits if logits.dtype == torch.float64 else logits.float()
    # Ignored rows have no gradient, whatever they contain.
    if isinstance(temperature, Tensor):
        temperature = _row_temperature(temperature).to(wide.dtype).unsqueeze(-1)
        temperature = temperature.masked_fill(ignored.unsqueeze(-1), 1.0)
    z = wide.masked_fill(ignored.unsqueeze(-1), 0.0) / temperature
    logarithms = torch.log_softmax(z, -1)
    is_class = (index >= 0) & (index < logits.shape[-1])
    known = index.long().where(is_class, 0).unsqueeze(-1)
    # Without classes there is nothing to gather.
    chosen = logarithms.gather(-1, known).squeeze(-1) if logits.shape[-1] else logarithms.sum(-1)
    factor = torch.where(is_class | ignored, 1.0, torch.nan).to(wide.dtype)  # also of gradients, as in kernels
    logprob = (chosen * factor).masked_fill(ignored, 0.0)
    if not wants_entropy:
        return logprob, None
    finite = logarithms.masked_fill(logarithms == float("-inf"), 0.0)  # a class of probability 0 adds nothing
    return logprob, -(factor * (torch.exp(logarithms) * finite).sum(-1)).masked_fill(ignored, 0.0)
