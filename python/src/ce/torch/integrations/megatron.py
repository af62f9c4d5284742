"""The vocabulary-parallel cross entropy of Megatron-Core with its own signatures.

Losses are in float32, one for each token, and the gradient is in the dtype of the logits. Label smoothing is that of
one rank with all classes. Megatron-Core's own smoothing covers the classes of each shard separately, so its loss
differs between ranks and depends on their number; set ``smoothing_of_shards=True`` to reproduce such runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ce.torch.integrations._shared import in_own_words
from ce.torch.integrations.transformer_engine import parallel_cross_entropy
from ce.torch.vocab_parallel import vocab_parallel_cross_entropy as _cross_entropy

__all__ = ["fused_vocab_parallel_cross_entropy", "patch", "vocab_parallel_cross_entropy"]


_IGNORED = -100  # as everywhere in ce: loss and gradient are 0


def _group(tp_group: Any) -> Any:
    if tp_group is not None:
        return tp_group
    state = sys.modules.get("megatron.core.parallel_state")
    return None if state is None else state.get_tensor_model_parallel_group()


@in_own_words(logits="vocab_parallel_logits", group="tp_group")
def vocab_parallel_cross_entropy(
    vocab_parallel_logits: Tensor,
    target: Tensor,
    label_smoothing: float = 0.0,
    tp_group: Any = None,
    *,
    smoothing_of_shards: bool = False,
) -> Tensor:
    """``megatron.core.tensor_parallel.vocab_parallel_cross_entropy``.

    Args:
        vocab_parallel_logits: [length, batch, classes of this rank].
        target: [length, batch] class indices among all classes.
        label_smoothing: spread over all classes but the target's, as in Megatron-Core on one rank.
        tp_group: the ranks; None: Megatron-Core's tensor-parallel group, else the default group.
        smoothing_of_shards: smoothing like Megatron-Core's on several ranks: over this rank's classes alone, so each
            rank has another loss. It reads the logits once more, forward and backward.

    Returns:
        Float32 [length, batch].

    Raises:
        ValueError: label_smoothing is not in [0, 1); see also :func:`ce.torch.vocab_parallel_cross_entropy`.
    """
    group = _group(tp_group)
    if not 0.0 <= label_smoothing < 1.0:
        raise ValueError(f"vocab_parallel_cross_entropy: label_smoothing is {label_smoothing}; expected 0 to below 1")
    if label_smoothing > 0.0 and smoothing_of_shards:
        classes = _several_classes(vocab_parallel_logits.shape[-1], label_smoothing)
        share = label_smoothing * classes / (classes - 1)
        made = _cross_entropy(
            vocab_parallel_logits, target, group=group, reduction="none", loss_dtype=torch.float32, return_lse=True
        )
        of_all = made.lse - vocab_parallel_logits.mean(-1, dtype=torch.float32)
        return (1.0 - share) * made.loss + share * of_all.where(target != _IGNORED, 0.0)
    if label_smoothing > 0.0:
        ranks = dist.get_world_size(group) if dist.is_initialized() else 1
        classes = _several_classes(ranks * vocab_parallel_logits.shape[-1], label_smoothing)
        label_smoothing *= classes / (classes - 1)
    return _cross_entropy(
        vocab_parallel_logits,
        target,
        group=group,
        reduction="none",
        label_smoothing=label_smoothing,
        loss_dtype=torch.float32,
    )


def _several_classes(classes: int, label_smoothing: float) -> int:
    if classes == 1:
        raise ValueError(
            f"vocab_parallel_cross_entropy: label_smoothing is {label_smoothing}; expected 0 with a single class"
        )
    return classes


def fused_vocab_parallel_cross_entropy(vocab_parallel_logits: Tensor, target: Tensor, tp_group: Any = None) -> Tensor:
    """``megatron.core.fusions.fused_cross_entropy.fused_vocab_parallel_cross_entropy``: the same without smoothing.

    Args:
        vocab_parallel_logits: [length, batch, classes of this rank].
        target: [length, batch] class indices among all classes.
        tp_group: the ranks, as in :func:`vocab_parallel_cross_entropy`.

    Returns:
        Float32 [length, batch].

    Raises:
        ValueError: see :func:`ce.torch.vocab_parallel_cross_entropy`.
    """
    return vocab_parallel_cross_entropy(vocab_parallel_logits, target, 0.0, tp_group)


_REPLACED: dict[str, tuple[str, Callable[..., Tensor]]] = {
    "vocab_parallel_cross_entropy": ("megatron.core.tensor_parallel.cross_entropy", vocab_parallel_cross_entropy),
    "fused_vocab_parallel_cross_entropy": (
        "megatron.core.fusions.fused_cross_entropy",
        fused_vocab_parallel_cross_entropy,
    ),
    # Megatron-Core calls these if its loss is TransformerEngine's.
    "parallel_cross_entropy": ("transformer_engine.pytorch.cross_entropy", parallel_cross_entropy),
}
_PACKAGES = ("megatron", "transformer_engine")


class Patch:
    """The result of :func:`patch`: ``with megatron.patch(): ...`` undoes it at the end of the block."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def undo(self) -> None:
        while self._before:
            setattr(*self._before.pop())

    def __enter__(self) -> Patch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


def patch(*, smoothing_of_shards: bool = False) -> Patch:
    """Replaces both functions of Megatron-Core, and TransformerEngine's ``parallel_cross_entropy``, in each of their
    imported modules, for the whole process. Also ``ce.torch.megatron.patch()``.

    Args:
        smoothing_of_shards: as :func:`vocab_parallel_cross_entropy`.

    Returns:
        An object that undoes it: ``patch().undo()``, or a ``with`` block.

    Raises:
        RuntimeError: Megatron-Core is not imported.
    """
    made = Patch()
    for name, (home, function) in _REPLACED.items():
        if home not in sys.modules:  # for example, if there is no TransformerEngine
            continue
        original = getattr(sys.modules[home], name)
        if smoothing_of_shards and function is vocab_parallel_cross_entropy:
            function = partial(function, smoothing_of_shards=True)
        for module_name, module in list(sys.modules.items()):
            if module_name.split(".")[0] in _PACKAGES and getattr(module, name, None) is original:
                made._before.append((module, name, original))
                setattr(module, name, function)
    if not made._before:
        raise RuntimeError("ce.torch.integrations.megatron.patch: megatron.core is not imported; import it before")
    return made
