"""The operators in torch's own operations: for tensors without a kernel (on the CPU, or float64), and for tests.

They can be differentiated as often as torch's operations.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy as _torch_cross_entropy  # the original, even while F is patched

REDUCTIONS = ("none", "mean", "sum")
NONE, MEAN, SUM = range(3)


class Options(NamedTuple):
    """The options of cross entropy, in the order of the operators' schemas."""

    ignore_index: int = -100
    reduction: int = MEAN
    """The index in REDUCTIONS."""
    label_smoothing: float = 0.0
    z_loss: float = 0.0
    softcap: float = 0.0
    logit_scale: float = 1.0
    token_scaling: float = 0.0


class Outputs(NamedTuple):
    """All outputs of cross entropy, in the operators' order."""

    loss: Tensor
    z_loss: Tensor
    lse: Tensor
    """z_loss and lse are differentiable, except in ignored rows."""
    argmax: Tensor
    hit: Tensor
    logprob: Tensor | None = None
    """Only for class indices."""
    entropy: Tensor | None = None
    lse_low: Tensor | None = None
    """entropy and lse_low are only computed if asked for."""


Z_LOSS, LSE, LOGPROB, ENTROPY, LSE_LOW = map(Outputs._fields.index, ("z_loss", "lse", "logprob", "entropy", "lse_low"))
_DTYPES = {"argmax": torch.int64, "hit": torch.bool}
_AS_LOSSES = ("loss", "z_loss", "z_loss_out")
FLAGS = ("f32_loss", *(name for name in Outputs._fields if name not in ("loss", "lse")))
"""The operators' flags, after their options: whether the loss is float32, and the requested outputs."""


def flags_of(*wanted: str) -> tuple[bool, ...]:
    """The flags with these set."""
    return tuple(name in wanted for name in FLAGS)


def saved(flags: tuple[bool, ...], of_classes: bool) -> tuple[bool, ...]:
    """The flags plus those of the backward's inputs besides the logsumexp: its rounding error and, for class indices,
    the log-probabilities."""
    return tuple(
        True if name == "lse_low" else of_classes if name == "logprob" else flag for name, flag in zip(FLAGS, flags)
    )


def dtype_of(output: str, loss_dtype: torch.dtype) -> torch.dtype:
    """The dtype of an output."""
    return loss_dtype if output in _AS_LOSSES else _DTYPES.get(output, torch.float32)


def sizes_of(output: str, losses: Sequence[int], rows: Sequence[int]) -> Sequence[int]:
    """The sizes of an output: those of the losses, or one element for each row."""
    return losses if output in _AS_LOSSES else rows


def transformed(logits: Tensor, options: Options, row_scale: Tensor | None = None) -> Tensor:
    """``softcap * tanh(scale * logits / softcap)``, or ``scale * logits`` without a cap, where scale is logit_scale
    times that of the row."""
    if row_scale is not None:
        logits = logits * scales_of(options, row_scale).to(logits.dtype).unsqueeze(class_dim(logits))
    elif options.logit_scale != 1.0:
        logits = logits * options.logit_scale
    if options.softcap != 0.0:
        logits = options.softcap * torch.tanh(logits / options.softcap)
    return logits


def scales_of(options: Options, row_scale: Tensor) -> Tensor:
    """The scale of the logits of each row; NaN if it is invalid."""
    scale = row_scale.detach() * options.logit_scale
    return torch.where((scale >= 2.0**-60) & (scale <= 2.0**60), scale, float("nan"))


def class_dim(logits: Tensor) -> int:
    return 0 if logits.dim() < 2 else 1


def row_sizes(logits: Tensor) -> list[int]:
    """The sizes of the logits without their classes."""
    dim = class_dim(logits)
    return [*logits.shape[:dim], *logits.shape[dim + 1 :]]


def is_ignored(logits: Tensor, target: Tensor, options: Options) -> Tensor:
    """Whether each row is ignored, with the sizes of the logits without their classes."""
    if target.is_floating_point():
        return torch.zeros_like(target.select(class_dim(logits), 0), dtype=torch.bool)
    return target == options.ignore_index


def log_probability(z: Tensor, target: Tensor, ignored: Tensor) -> Tensor:
    """Log-probabilities of the class indices, 0 in ignored rows."""
    dim = class_dim(z)
    known = target.long().masked_fill(ignored, 0).unsqueeze(dim)
    return torch.log_softmax(z, dim).gather(dim, known).squeeze(dim).masked_fill(ignored, 0.0)


def entropy_of(z: Tensor, ignored: Tensor) -> Tensor:
    """Entropies of the rows, 0 in ignored rows. A class of probability 0 adds nothing."""
    dim = class_dim(z)
    logarithms = torch.log_softmax(z, dim)
    finite = logarithms.masked_fill(logarithms == float("-inf"), 0.0)
    return -(torch.exp(logarithms) * finite).sum(dim).masked_fill(ignored, 0.0)


def check_dtype(logits: Tensor, name: str, argument: str) -> None:
    """Raises TypeError for logits that a float32 or float64 number would not hold."""
    if not logits.is_floating_point():
        raise TypeError(f"{name}: {argument}.dtype is {logits.dtype}; expected a floating-point dtype")


def _check_rows(rows: Tensor | None, name: str, logits: Tensor) -> None:
    """Raises ValueError unless there is one element for each row."""
    expected = row_sizes(logits)
    if rows is not None and list(rows.shape) != expected:
        raise ValueError(
            f"ce: cross_entropy: {name} has sizes {list(rows.shape)}; expected {expected}, one for each row"
        )


def _row_factor(
    z: Tensor, target: Tensor, ignored: Tensor, row_weight: Tensor | None, options: Options
) -> Tensor | None:
    """The factor of each row's loss, without a gradient. None: there is no factor."""
    factor = None
    if options.token_scaling != 0.0:
        if target.is_floating_point():
            raise ValueError(
                f"ce: cross_entropy: token_scaling is {options.token_scaling}; "
                "expected 0 where target holds probabilities"
            )
        factor = torch.exp(options.token_scaling * log_probability(z.detach(), target, ignored))
    if row_weight is not None:
        given = row_weight.detach().to(z.dtype)
        factor = given if factor is None else factor * given
    return factor


def cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    options: Options,
    loss_dtype: torch.dtype | None = None,
    upstream: Tensor | None = None,
    row_weight: Tensor | None = None,
    row_scale: Tensor | None = None,
    divisor: Tensor | None = None,
    wanted: Collection[str] = (),
) -> Outputs:
    """The loss of torch on transformed logits, plus ``z_loss * lse ** 2``. 16-bit logits are computed in float32.

    Args:
        wanted: names of outputs; those that need a pass of their own are only computed if listed.
    """
    check_dtype(logits, "ce: cross_entropy", "logits")
    _check_rows(row_weight, "row_weight", logits)
    _check_rows(row_scale, "row_scale", logits)
    result_dtype = loss_dtype or logits.dtype
    wide = logits.to(torch.float64 if torch.float64 in (result_dtype, logits.dtype) else torch.float32)
    wide_target = target.to(wide.dtype) if target.is_floating_point() else target
    z = transformed(wide, options, row_scale)
    class_weight = None if weight is None else weight.to(z.dtype)
    lse = torch.logsumexp(z, class_dim(logits))
    ignored = is_ignored(logits, target, options)
    factor = _row_factor(z, target, ignored, row_weight, options)
    of_row = upstream is not None and upstream.numel() != 1
    by_rows = factor is not None or divisor is not None or of_row
    loss = _torch_cross_entropy(
        z,
        wide_target,
        class_weight,
        ignore_index=options.ignore_index,
        reduction="none" if by_rows else REDUCTIONS[options.reduction],
        label_smoothing=options.label_smoothing,
    )
    of_rows = (options.z_loss * lse.square()).masked_fill(ignored, 0.0) if options.z_loss else torch.zeros_like(lse)
    if factor is not None:
        loss, of_rows = ((x * factor).masked_fill(ignored, 0.0) for x in (loss, of_rows))
    count: Tensor = (~ignored).sum()
    if divisor is not None:
        count = divisor.detach().reshape(()).to(z.dtype)

    def reduced(rows: Tensor, count: Tensor) -> Tensor:
        if options.reduction == NONE:
            return rows
        return rows.sum() / count if options.reduction == MEAN else rows.sum()

    z_loss = own_z_loss = reduced(of_rows, count)
    if of_row and upstream is not None:
        loss = scaled_gradient(loss, upstream)
        own_z_loss = reduced(scaled_gradient(of_rows, upstream), count)
    if by_rows:
        if divisor is None and class_weight is not None and not target.is_floating_point():
            count = class_weight[target.long().masked_fill(ignored, 0)].masked_fill(ignored, 0.0).sum()
        loss = reduced(loss, count)
    if options.z_loss:
        loss = loss + own_z_loss
    if upstream is not None and not of_row:
        loss = scaled_gradient(loss, upstream)
    argmax = torch.zeros_like(ignored, dtype=torch.int64)
    if logits.numel() != 0:
        argmax = logits.argmax(class_dim(logits))
    hit = torch.zeros_like(ignored) if target.is_floating_point() else (argmax == target) & ~ignored
    logprob = None if target.is_floating_point() else log_probability(z.detach(), target, ignored).float()
    entropy = entropy_of(z.detach(), ignored).float() if "entropy" in wanted else None
    lse_low = None
    if "lse_low" in wanted:
        lse_low = (torch.logsumexp(z.detach().double(), class_dim(logits)) - lse.detach().double()).float()
    return Outputs(
        loss.to(result_dtype),
        z_loss.to(result_dtype),
        torch.where(ignored, lse.detach(), lse),
        argmax,
        hit,
        logprob,
        entropy,
        lse_low,
    )


def gradient_of_lse(
    of_lse: Tensor | None,
    of_z_loss: Tensor,
    lse: Tensor,
    logprob: Tensor | None,
    target: Tensor,
    options: Options,
    row_weight: Tensor | None,
    divisor: Tensor | None,
) -> Tensor:
    """The gradients of the logsumexps, including those of the z-loss; undefined in ignored rows.

    Args:
        logprob: log-probabilities, for class indices.
    """
    own = 2 * options.z_loss * of_z_loss.float() * lse
    if row_weight is not None:
        own = own * row_weight
    if options.token_scaling != 0.0 and logprob is not None:
        own = own * torch.exp(options.token_scaling * logprob)
    if options.reduction == MEAN:
        count = lse.numel() if target.is_floating_point() else (target != options.ignore_index).sum()
        own = own / (count if divisor is None else divisor.reshape(()))
    return own if of_lse is None else of_lse + own


def gradient(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    options: Options,
    upstream: Tensor | None = None,
    row_weight: Tensor | None = None,
    row_scale: Tensor | None = None,
    divisor: Tensor | None = None,
    entropy_upstream: Tensor | None = None,
    lse_upstream: Tensor | None = None,
) -> Tensor:
    """The gradient of the loss with respect to the logits, times one upstream gradient or one for each row; plus the
    gradients of entropies and logsumexps, times their upstream gradients.

    With a_i the factor of lse - z_i in a row's loss, it is (sum_i a_i + 2 z_loss lse) p_j - a_j for z_j.
    """
    check_dtype(logits, "ce: cross_entropy", "logits")
    _check_rows(row_weight, "row_weight", logits)
    _check_rows(row_scale, "row_scale", logits)
    _check_rows(entropy_upstream, "entropy_upstream", logits)
    _check_rows(lse_upstream, "lse_upstream", logits)
    wide = logits if logits.dtype == torch.float64 else logits.float()
    dim = class_dim(logits)
    classes = logits.shape[dim] if logits.dim() else 1
    z = transformed(wide, options, row_scale)
    lse = torch.logsumexp(z, dim, keepdim=True)
    ignored = is_ignored(logits, target, options).unsqueeze(dim)
    if target.is_floating_point():
        share = target.to(z.dtype)
    else:
        known = target.unsqueeze(dim).masked_fill(ignored, 0)
        share = torch.zeros_like(z).scatter(dim, known, 1.0)
    factor = (1 - options.label_smoothing) * share + options.label_smoothing / classes
    of_loss = of_z_loss = torch.ones((), dtype=z.dtype, device=z.device)
    of_class = torch.ones((classes,), dtype=z.dtype, device=z.device) if weight is None else weight.to(z.dtype)
    of_class = of_class.reshape([classes if d == dim else 1 for d in range(z.dim())])
    factor = (factor * of_class).masked_fill(ignored, 0.0)
    if divisor is not None:
        of_loss = of_z_loss = divisor.reshape(()).to(z.dtype)
    elif options.reduction == MEAN:
        of_z_loss = (~ignored).sum().to(z.dtype)
        of_loss = of_z_loss if target.is_floating_point() else (share * of_class).masked_fill(ignored, 0.0).sum()
    z_factor = (2 * options.z_loss * lse / of_z_loss).masked_fill(ignored, 0.0)
    factor = factor / of_loss
    logarithms = torch.log_softmax(z, dim)
    p = torch.exp(logarithms)
    grad = (factor.sum(dim, keepdim=True) + z_factor) * p - factor
    of_rows = _row_factor(z, target, ignored.squeeze(dim), row_weight, options)
    if of_rows is not None:
        grad = grad * of_rows.unsqueeze(dim)
    if upstream is not None:
        grad = grad * (upstream.reshape(lse.shape) if upstream.numel() != 1 else upstream.reshape(()))
    if entropy_upstream is not None:
        finite = logarithms.masked_fill(logarithms == float("-inf"), 0.0)
        entropy = -(p * finite).sum(dim, keepdim=True)
        grad = grad - entropy_upstream.unsqueeze(dim) * p * (finite + entropy)
    if lse_upstream is not None:
        grad = grad + lse_upstream.unsqueeze(dim) * p
    if options.softcap != 0.0:
        grad = grad * (1 - (z / options.softcap).square())
    grad = grad * (options.logit_scale if row_scale is None else scales_of(options, row_scale).unsqueeze(dim))
    grad = grad.masked_fill(ignored, 0.0)
    return grad.to(logits.dtype)


class _ScaledGradient(torch.autograd.Function):
    """Only the gradient is multiplied: a sum of differences would lose the loss if the factor is large or infinite."""

    generate_vmap_rule = True

    @staticmethod
    def forward(loss: Tensor, factor: Tensor) -> Tensor:
        return loss.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.save_for_forward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (factor,) = ctx.saved_tensors
        return (grad * factor).to(grad.dtype), None


class _ScaledDerivative(_ScaledGradient):
    """The same with a rule for forward mode, which torch.compile does not take."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        (factor,) = ctx.saved_tensors
        return (tangent * factor).to(tangent.dtype)


def scaled_gradient(loss: Tensor, factor: Tensor) -> Tensor:
    """The loss; its derivatives are multiplied by a factor."""
    factor = factor.detach().reshape(loss.shape if factor.numel() != 1 else ())
    function = _ScaledGradient if torch.compiler.is_compiling() else _ScaledDerivative
    scaled: Tensor = function.apply(loss, factor)
    return scaled
