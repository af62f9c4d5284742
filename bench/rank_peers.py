"""The libraries that bench/ranks.py times ce against: cross entropy of logits whose classes ranks share.

Everything that is imported here may be missing; load_peers() says why.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Peer:
    """Its functions take bf16 logits [rows, columns], this rank's equal share of the classes, and target [rows],
    indices among all classes."""

    name: str
    version: str
    losses: Loss  # -> [rows]
    mean: Loss  # -> their mean, in the way that is cheapest for this library
    eager: str = ""  # why it cannot be captured into a CUDA graph; empty: it can
    overwrites: bool = False  # writes the gradient over the logits
    context: Callable[[], AbstractContextManager[None]] = nullcontext  # forward and backward run in it


def _module(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


def _mean_of(losses: Loss) -> Loss:
    return lambda logits, target: losses(logits, target).mean()


def _loss_parallel(group: Any) -> Peer:
    """torch's own. F.cross_entropy does not upcast bf16: the logits are converted, as its users do."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.parallel import loss_parallel

    kind = "cuda" if torch.cuda.is_available() else "cpu"
    mesh = DeviceMesh.from_group(group, kind)

    def loss(reduction: str) -> Loss:
        def run(logits: Tensor, target: Tensor) -> Tensor:
            spread = DTensor.from_local(logits, mesh, [Shard(-1)]).float()
            whole = DTensor.from_local(target, mesh, [Replicate()])
            return F.cross_entropy(spread, whole, reduction=reduction).to_local()

        return run

    eager = "not tried: it dispatches DTensors"
    return Peer("torch-loss-parallel", torch.__version__, loss("none"), loss("mean"), eager, context=loss_parallel)


def _liger(group: Any) -> Peer:
    """[sequence, batch, columns]. It keeps the exponentials in f32."""
    home = _module("liger_kernel.transformers.vocab_parallel_cross_entropy")
    function = home.LigerVocabParallelCrossEntropy()

    def losses(logits: Tensor, target: Tensor) -> Tensor:
        return function(logits.unsqueeze(1), target.unsqueeze(1), group).squeeze(1)

    return Peer("liger", importlib.metadata.version("liger-kernel"), losses, _mean_of(losses))


def _megatron_version() -> str:
    return importlib.metadata.version("megatron-core")


def _megatron(group: Any) -> Peer:
    """[sequence, batch, columns]. It makes a copy in f32 (and would write over logits that are f32)."""
    function = _module("megatron.core.tensor_parallel.cross_entropy").vocab_parallel_cross_entropy

    def losses(logits: Tensor, target: Tensor) -> Tensor:
        return function(logits.unsqueeze(1), target.unsqueeze(1), 0.0, group).squeeze(1)

    return Peer("megatron", _megatron_version(), losses, _mean_of(losses))


def _megatron_fused(group: Any) -> Peer:
    """As _megatron(), with its steps compiled by torch.compile, and two collectives in place of three."""
    function = _module("megatron.core.fusions.fused_cross_entropy").fused_vocab_parallel_cross_entropy

    def losses(logits: Tensor, target: Tensor) -> Tensor:
        return function(logits.unsqueeze(1), target.unsqueeze(1), group).squeeze(1)

    return Peer("megatron-fused", _megatron_version(), losses, _mean_of(losses))


def _nemo(group: Any) -> Peer:
    """Transformer Engine's Triton kernels, which NeMo AutoModel has as a copy that needs no build.

    [batch, sequence, columns]. Its own mean spares it a pass that would multiply the gradient.
    """
    function = _module("nemo_automodel.components.loss.te_parallel_ce").parallel_cross_entropy

    def loss(mean: bool) -> Loss:
        def run(logits: Tensor, target: Tensor) -> Tensor:
            made = function(logits.unsqueeze(0), target.unsqueeze(0), 0.0, mean, group, -100)
            return made if mean else made.squeeze(0)

        return run

    eager = "it reads the number of rows back to the host"
    version = importlib.metadata.version("nemo-automodel")
    return Peer("nemo-te", version, loss(False), loss(True), eager, overwrites=True)


LOADERS: dict[str, Callable[[Any], Peer]] = {
    "liger": _liger,
    "megatron-fused": _megatron_fused,
    "megatron": _megatron,
    "nemo-te": _nemo,
    "torch-loss-parallel": _loss_parallel,
}


def load_peers(names: list[str]) -> tuple[list[Peer], dict[str, str]]:
    """The peers that can be imported on every rank, for the default group, and why the others cannot."""
    loaded: list[Peer] = []
    missing: dict[str, str] = {}
    for name in names:
        try:
            peer, reason = LOADERS[name](dist.group.WORLD), ""
        except Exception as error:  # an import may raise anything
            peer, reason = None, f"{type(error).__name__}: {error}".splitlines()[0]
        reasons = [""] * dist.get_world_size()
        dist.all_gather_object(reasons, reason)
        if any(reasons):
            missing[name] = next(filter(None, reasons))
        elif peer is not None:
            loaded.append(peer)
    return loaded, missing
