"""The libraries that bench/compare.py times ce against.

A Peer maps a kind of problem to a function that prepares it: prepare(inputs) returns a callable which does the work
once. Everything that is imported here may be missing; load_peers() says why.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, TypeVar

KINDS = (
    "softmax",
    "log_softmax",
    "softmax_backward",
    "log_softmax_backward",
    "cross_entropy loss",
    "cross_entropy loss+grad",
    "cross_entropy_backward",
)
Loaded = TypeVar("Loaded")
LOSSES = frozenset({"cross_entropy loss", "cross_entropy loss+grad"})


@dataclass
class Inputs:
    """Tensors of one problem; None where its kind does not need them."""

    x: Any  # [rows, columns]: logits; for backward of softmax the gradient of the output
    reduction: str
    target: Any = None  # [rows]: classes
    y: Any = None  # [rows, columns]: output of softmax or log_softmax
    pristine: Any = None  # a copy of x, for peers that write over it


@dataclass
class Peer:
    name: str
    version: str
    prepare: dict[str, Callable[[Inputs], Callable[[], Any]]] = field(default_factory=dict)
    overwrites: frozenset[str] = frozenset()  # kinds that write over the logits


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _losses(function: Callable[..., Any]) -> dict[str, Callable[[Inputs], Callable[[], Any]]]:
    """The kinds of cross entropy from function(x, target, reduction) -> loss with a gradient by autograd."""
    import torch

    def upstream_of(inputs: Inputs) -> Any:
        """What a loss for each row needs; of one loss, autograd starts with 1 by itself."""
        if inputs.reduction != "none":
            return None
        with torch.no_grad():
            return torch.ones_like(function(inputs.x, inputs.target, "none"))

    def loss(inputs: Inputs) -> Callable[[], Any]:
        def run() -> Any:
            with torch.no_grad():
                return function(inputs.x, inputs.target, inputs.reduction)

        return run

    def loss_and_gradient(inputs: Inputs) -> Callable[[], Any]:
        x = inputs.x.detach().requires_grad_()
        upstream = upstream_of(inputs)
        return lambda: torch.autograd.grad(function(x, inputs.target, inputs.reduction), x, upstream)

    def gradient(inputs: Inputs) -> Callable[[], Any]:
        x = inputs.x.detach().requires_grad_()
        value = function(x, inputs.target, inputs.reduction)
        upstream = upstream_of(inputs)
        return lambda: torch.autograd.grad(value, x, upstream, retain_graph=True)

    return {
        "cross_entropy loss": loss,
        "cross_entropy loss+grad": loss_and_gradient,
        "cross_entropy_backward": gradient,
    }


def _torch_functions() -> dict[str, Callable[..., Any]]:
    import torch

    return {
        "softmax": lambda x: torch.softmax(x, -1),
        "log_softmax": lambda x: torch.log_softmax(x, -1),
        "softmax_backward": lambda dy, y: torch.ops.aten._softmax_backward_data(dy, y, -1, y.dtype),
        "log_softmax_backward": lambda dy, y: torch.ops.aten._log_softmax_backward_data(dy, y, -1, y.dtype),
        "cross_entropy": lambda x, t, r: torch.nn.functional.cross_entropy(x, t, reduction=r),
    }


def _with_torch_functions(peer: Peer, functions: dict[str, Callable[..., Any]]) -> Peer:
    for kind in ("softmax", "log_softmax"):
        peer.prepare[kind] = lambda inputs, f=functions[kind]: lambda: f(inputs.x)
    for kind in ("softmax_backward", "log_softmax_backward"):
        peer.prepare[kind] = lambda inputs, f=functions[kind]: lambda: f(inputs.x, inputs.y)
    peer.prepare.update(_losses(functions["cross_entropy"]))
    return peer


def _torch() -> Peer:
    return _with_torch_functions(Peer("torch", _version("torch")), _torch_functions())


def _torch_compile() -> Peer:
    import torch

    # One graph for each shape: a dynamic one would not be what the compiler can do for the shape at hand.
    compiled = {kind: torch.compile(f, dynamic=False) for kind, f in _torch_functions().items()}
    peer = _with_torch_functions(Peer("torch.compile", _version("torch")), compiled)
    gradient = peer.prepare["cross_entropy_backward"]

    def prepare_gradient(inputs: Inputs) -> Callable[[], Any]:
        # A backward pass that is to run more than once must not reuse the memory of what was saved.
        with torch._functorch.config.patch(donated_buffer=False):
            run = gradient(inputs)
            run()
        return run

    peer.prepare["cross_entropy_backward"] = prepare_gradient
    return peer


def _triton() -> Peer:
    import triton_peer

    peer = Peer("triton (one block a row)", _version("triton"), overwrites=frozenset({"cross_entropy loss+grad"}))
    for kind, log in (("softmax", False), ("log_softmax", True)):
        peer.prepare[kind] = lambda inputs, log=log: lambda: triton_peer.softmax(inputs.x, log)
        peer.prepare[f"{kind}_backward"] = lambda inputs, log=log: lambda: triton_peer.softmax_backward(
            inputs.y, inputs.x, log
        )
    for kind, gradient in (("cross_entropy loss", False), ("cross_entropy loss+grad", True)):
        peer.prepare[kind] = lambda inputs, gradient=gradient: lambda: triton_peer.cross_entropy(
            inputs.x, inputs.target, inputs.reduction, gradient
        )
    return peer


def _liger() -> Peer:
    functional = importlib.import_module("liger_kernel.transformers.functional")
    # It writes the gradient over the logits in its forward pass, so there is no separate backward to time.
    peer = Peer("liger", _version("liger-kernel"), overwrites=LOSSES)
    peer.prepare = _losses(lambda x, t, r: functional.liger_cross_entropy(x, t, reduction=r))
    del peer.prepare["cross_entropy_backward"]
    if hasattr(functional, "liger_softmax"):
        peer.prepare["softmax"] = lambda inputs: lambda: functional.liger_softmax(inputs.x)
    return peer


def _quack() -> Peer:
    losses = importlib.import_module("quack.cross_entropy")
    softmaxes = importlib.import_module("quack.softmax")
    peer = Peer("quack", _version("quack-kernels"))
    peer.prepare = _losses(lambda x, t, r: losses.cross_entropy(x, t, reduction=r))
    peer.prepare["softmax"] = lambda inputs: lambda: softmaxes.softmax(inputs.x)
    if hasattr(softmaxes, "softmax_bwd"):
        peer.prepare["softmax_backward"] = lambda inputs: lambda: softmaxes.softmax_bwd(inputs.x, inputs.y)
    return peer


def _quack_one_pass() -> Peer:
    """Its forward kernel, which can write a gradient too: that of the summed losses, whatever the reduction."""
    losses = importlib.import_module("quack.cross_entropy")
    kind = "cross_entropy loss+grad"

    def prepare(inputs: Inputs) -> Callable[[], Any]:
        return lambda: losses.cross_entropy_fwd(inputs.x, inputs.target, return_dx=True, inplace_backward=True)

    return Peer("quack (one pass, not divided)", _version("quack-kernels"), {kind: prepare}, frozenset({kind}))


def _flash_attn() -> Peer:
    module = importlib.import_module("flash_attn.ops.triton.cross_entropy")

    def cross_entropy(x: Any, target: Any, reduction: str) -> Any:
        losses, _ = module.cross_entropy_loss(x, target)
        return losses.mean() if reduction == "mean" else losses.sum() if reduction == "sum" else losses

    return Peer("flash-attn", _version("flash-attn"), _losses(cross_entropy))


def _transformer_engine() -> Peer:
    module = importlib.import_module("transformer_engine.pytorch.cross_entropy")

    def cross_entropy(x: Any, target: Any, reduction: str) -> Any:
        if reduction == "sum":
            raise NotImplementedError("it has no reduction sum")
        # [batch, sequence, classes]; its arguments are positional: smoothing, whether to take the mean.
        return module.parallel_cross_entropy(x.unsqueeze(0), target.unsqueeze(0), 0.0, reduction == "mean", None)

    # As Liger, from which its kernel comes.
    peer = Peer("transformer-engine", _version("transformer-engine"), _losses(cross_entropy), LOSSES)
    del peer.prepare["cross_entropy_backward"]
    return peer


LOADERS: dict[str, Callable[[], Peer]] = {
    "torch": _torch,
    "torch.compile": _torch_compile,
    "triton": _triton,
    "liger": _liger,
    "quack": _quack,
    "quack-one-pass": _quack_one_pass,
    "flash-attn": _flash_attn,
    "transformer-engine": _transformer_engine,
}


def load_peers(names: list[str]) -> tuple[list[Peer], dict[str, str]]:
    """The peers that can be imported, and why the others cannot."""
    return load_each(LOADERS, names)


def load_each(loaders: Mapping[str, Callable[[], Loaded]], names: list[str]) -> tuple[list[Loaded], dict[str, str]]:
    """What the loaders of these names return, and why the others cannot."""
    loaded: list[Loaded] = []
    missing: dict[str, str] = {}
    for name in names:
        try:
            loaded.append(loaders[name]())
        except Exception as error:  # an import may raise anything
            missing[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return loaded, missing
