"""Textbook Triton kernels, one block a row: what one writes in an afternoon, as a peer of bench/compare.py."""

import torch
import triton
import triton.language as tl

# A row beyond this many elements is taken in several steps by the kernels that loop.
MOST_ELEMENTS = 32768


@triton.jit
def _softmax(x, y, columns, LOG: tl.constexpr, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    inside = at < columns
    row = tl.load(x + start + at, mask=inside, other=-float("inf")).to(tl.float32)
    row -= tl.max(row, axis=0)
    exponentials = tl.exp(row)
    total = tl.sum(exponentials, axis=0)
    out = row - tl.log(total) if LOG else exponentials / total
    tl.store(y + start + at, out, mask=inside)


@triton.jit
def _softmax_backward(y, dy, dx, columns, LOG: tl.constexpr, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    inside = at < columns
    p = tl.load(y + start + at, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(dy + start + at, mask=inside, other=0.0).to(tl.float32)
    out = g - tl.exp(p) * tl.sum(g, axis=0) if LOG else p * (g - tl.sum(p * g, axis=0))
    tl.store(dx + start + at, out, mask=inside)


@triton.jit
def _cross_entropy(x, target, loss, columns, divisor, GRADIENT: tl.constexpr, BLOCK: tl.constexpr):
    """The loss of a row; with GRADIENT also the gradient, over the logits."""
    row = tl.program_id(0)
    x += row.to(tl.int64) * columns
    label = tl.load(target + row)
    target_logit = tl.load(x + label).to(tl.float32)
    largest = -float("inf")
    total = 0.0
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        logits = tl.load(x + at, mask=at < columns, other=-float("inf")).to(tl.float32)
        new_largest = tl.maximum(largest, tl.max(logits, axis=0))
        total = total * tl.exp(largest - new_largest) + tl.sum(tl.exp(logits - new_largest), axis=0)
        largest = new_largest
    lse = largest + tl.log(total)
    tl.store(loss + row, lse - target_logit)
    if GRADIENT:
        tl.debug_barrier()  # every warp has read the target's logit
        for first in range(0, columns, BLOCK):
            at = first + tl.arange(0, BLOCK)
            logits = tl.load(x + at, mask=at < columns, other=0.0).to(tl.float32)
            gradient = tl.exp(logits - lse) - tl.where(at == label, 1.0, 0.0)
            tl.store(x + at, gradient / divisor, mask=at < columns)


def _warps(block: int) -> int:
    return 4 if block < 2048 else 8 if block < 8192 else 16 if block < 65536 else 32


def softmax(x: torch.Tensor, log: bool) -> torch.Tensor:
    """[rows, columns] -> softmax or log_softmax of each row."""
    rows, columns = x.shape
    block = triton.next_power_of_2(columns)
    y = torch.empty_like(x)
    _softmax[(rows,)](x, y, columns, LOG=log, BLOCK=block, num_warps=_warps(block))
    return y


def softmax_backward(y: torch.Tensor, dy: torch.Tensor, log: bool) -> torch.Tensor:
    """Output and its gradient, [rows, columns] -> gradient of the input."""
    rows, columns = y.shape
    block = triton.next_power_of_2(columns)
    dx = torch.empty_like(y)
    _softmax_backward[(rows,)](y, dy, dx, columns, LOG=log, BLOCK=block, num_warps=_warps(block))
    return dx


def cross_entropy(x: torch.Tensor, target: torch.Tensor, reduction: str, gradient: bool) -> torch.Tensor:
    """Logits [rows, columns] and classes [rows] -> loss; with `gradient` the logits become their gradient."""
    rows, columns = x.shape
    loss = torch.empty(rows, dtype=torch.float32, device=x.device)
    block = min(triton.next_power_of_2(columns), MOST_ELEMENTS)
    divisor = float(rows) if reduction == "mean" else 1.0
    _cross_entropy[(rows,)](
        x, target, loss, columns, divisor, GRADIENT=gradient, BLOCK=block, num_warps=_warps(block)
    )
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss
