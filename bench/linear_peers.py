"""What bench/linear.py times: ce, torch and other libraries that make the loss of a linear layer.

Everything that is imported here may be missing; load() says why.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from own_version import own_version
from peers import load_each
from torch import Tensor

import ce.torch as ct

GIB = 1 << 30
CHUNK = 4096  # tokens of a chunk of torch's

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
Step = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class Peer:
    """Its functions take input [tokens, hidden], weight [classes, hidden] and target [tokens], class indices."""

    name: str
    version: str
    loss: Loss  # -> the mean
    step: Step  # -> the mean and the gradients of input and weight, which require one


def _module(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


def by_autograd(loss: Loss) -> Step:
    def step(x: Tensor, w: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        made = loss(x, w, target)
        return (made.detach(), *torch.autograd.grad(made, (x, w)))

    return step


def in_chunks(loss: Loss, tokens: int = CHUNK) -> tuple[Loss, Step]:
    """A loss, chunk by chunk, so that the logits of one are in memory. The weight's gradient is summed in float32."""

    def share(chunk: Tensor, target: Tensor) -> float:
        return chunk.shape[0] / target.shape[0]

    def mean(x: Tensor, w: Tensor, target: Tensor) -> Tensor:
        losses = [loss(*one, w) * share(one[0], target) for one in _split(x, target, tokens)]
        return torch.stack(losses).sum()

    def step(x: Tensor, w: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        total, dx, dw = torch.zeros((), device=x.device), torch.empty_like(x), None
        for i, (chunk, own_target) in enumerate(_split(x, target, tokens)):
            made = loss(chunk, own_target, w) * share(chunk, target)
            own_dx, own_dw = torch.autograd.grad(made, (chunk, w))
            dx[i * tokens : i * tokens + chunk.shape[0]] = own_dx
            total += made.detach()
            dw = own_dw.float() if dw is None else dw.add_(own_dw)
        return total, dx, dw.to(w.dtype)

    return mean, step


def _split(x: Tensor, target: Tensor, tokens: int) -> list[tuple[Tensor, Tensor]]:
    """Chunks of the input, each a leaf."""
    pieces = zip(x.detach().split(tokens), target.split(tokens))
    return [(chunk.requires_grad_(x.requires_grad), own) for chunk, own in pieces]


def _upcast(x: Tensor, w: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(x, w).float(), target)


def _chunk_upcast(x: Tensor, target: Tensor, w: Tensor) -> Tensor:
    return _upcast(x, w, target)


def _ce(name: str, budget: int, **options: Any) -> Peer:
    def loss(x: Tensor, w: Tensor, target: Tensor) -> Tensor:
        return ct.linear_cross_entropy(x, w, target, loss_dtype=torch.float32, memory_budget=budget, **options)

    return Peer(name, own_version(), loss, by_autograd(loss))


def _torch() -> Peer:
    """As most write it: loss and logits in the layer's dtype."""

    def loss(x: Tensor, w: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(x, w), target)

    return Peer("torch", torch.__version__, loss, by_autograd(loss))


def _torch_chunked() -> Peer:
    return Peer("torch-chunked", torch.__version__, *in_chunks(_chunk_upcast))


def _compile() -> Peer:
    loss = torch.compile(_upcast, dynamic=False)
    return Peer("compile", torch.__version__, loss, by_autograd(loss))


def _compile_chunked() -> Peer:
    compiled = torch.compile(_chunk_upcast, dynamic=False)
    return Peer("compile-chunked", torch.__version__, *in_chunks(compiled))


def _liger() -> Peer:
    """Chunks of its own choice; the weight's gradient is summed in the weight's dtype."""
    loss = _module("liger_kernel.transformers.functional").liger_fused_linear_cross_entropy
    return Peer("liger", importlib.metadata.version("liger-kernel"), loss, by_autograd(loss))


def _liger_cute() -> Peer:
    """Whole logits, and products of its own, on Hopper. It makes the input's gradient in its forward, wanted or not."""
    home = _module("liger_kernel.ops.cutedsl.ops.fused_linear_cross_entropy_sm90")
    loss = home.liger_fused_linear_cross_entropy_sm90
    return Peer("liger-cute", importlib.metadata.version("liger-kernel"), loss, by_autograd(loss))


def _quack(name: str, **options: Any) -> Peer:
    function = _module("quack.linear_cross_entropy").chunked_linear_cross_entropy

    def loss(x: Tensor, w: Tensor, target: Tensor) -> Tensor:
        return function(x, w, target, **options)

    return Peer(name, importlib.metadata.version("quack-kernels"), loss, by_autograd(loss))


def _cce(name: str, **options: Any) -> Peer:
    function = _module("cut_cross_entropy").linear_cross_entropy

    def loss(x: Tensor, w: Tensor, target: Tensor) -> Tensor:
        return function(x, w, target, **options)

    return Peer(name, importlib.metadata.version("cut-cross-entropy"), loss, by_autograd(loss))


LOADERS: dict[str, Callable[[], Peer]] = {
    "ce-4g": lambda: _ce("ce-4g", 4 * GIB),
    "ce-512m": lambda: _ce("ce-512m", GIB // 2),
    "torch": _torch,
    "torch-chunked": _torch_chunked,
    "compile": _compile,
    "compile-chunked": _compile_chunked,
    "liger": _liger,
    "liger-cute": _liger_cute,
    # What it chooses by itself: on Hopper its form with scaled exponentials, in chunks of 4096 tokens.
    "quack": lambda: _quack("quack"),
    # Its other form, whose own products it tunes at the first call of a shape, for a minute or more.
    "quack-chunked": lambda: _quack("quack-chunked", use_scaled_exp=False),
    # Its default leaves out gradients below a threshold.
    "cce": lambda: _cce("cce"),
    "cce-exact": lambda: _cce("cce-exact", filter_eps=None),
}
# For estimates: seconds that compilation takes once, those of a shape's first calls, and a step's time over that of the
# three products.
ONCE_S = {"compile": 15, "liger-cute": 40, "quack": 40, "quack-chunked": 120, "cce": 10}
FIRST_S = {
    **{"ce-4g": 25, "ce-512m": 8, "compile": 10, "compile-chunked": 10},
    **{"liger-cute": 10, "quack": 4, "quack-chunked": 40, "cce": 3, "cce-exact": 3},
}
OVER_PRODUCTS = {"liger": 2.0, "cce": 3.5, "cce-exact": 5.0, "torch": 1.3, "torch-chunked": 1.6}


def add_chunks(tokens: int) -> str:
    """A peer that is ce with chunks of so many tokens, beside those that its race chooses.

    Returns:
        Its name, in LOADERS from here on.
    """
    name = f"ce-chunks-of-{tokens}"
    LOADERS[name] = lambda: _ce(name, 4 * GIB, chunk_tokens=tokens)
    return name


def add_forms() -> list[str]:
    """Peers that are ce with gradients of logits and of exponentials, which its race chooses from: their names."""
    names = {"ce-4g-logits": (4 * GIB, False), "ce-4g-exponentials": (4 * GIB, True),
             "ce-512m-logits": (GIB // 2, False), "ce-512m-exponentials": (GIB // 2, True)}  # fmt: skip
    for name, (budget, exponentials) in names.items():
        LOADERS[name] = lambda name=name, budget=budget, exponentials=exponentials: _ce(  # type: ignore[misc]
            name, budget, exponentials=exponentials
        )
    return list(names)


def load(names: list[str]) -> tuple[list[Peer], dict[str, str]]:
    """Those that can be imported, and why the others cannot."""
    return load_each(LOADERS, names)
