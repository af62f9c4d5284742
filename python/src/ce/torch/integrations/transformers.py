"""The loss of Hugging Face Transformers' causal language models, without their float32 copy of the logits.

    Trainer(model=model, args=args, train_dataset=data, compute_loss_func=compute_loss)

or, for every model of the process that asks for it by name (``with install(): ...`` undoes it)::

    install()

or as a layer of the package kernels, in modules that ask for "ForCausalLMLoss"::

    with kernels.use_kernel_mapping(kernel_mapping()):
        kernels.kernelize(model, mode=kernels.Mode.TRAINING)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ce.torch import functional
from ce.torch.integrations._shared import f32_for, in_own_words, mean_over

__all__ = ["CeForCausalLMLoss", "CeForCausalLMLossLayer", "compute_loss", "install", "kernel_mapping"]


@in_own_words(input="logits")
def CeForCausalLMLoss(
    logits: Tensor,
    labels: Tensor | None,
    vocab_size: int,
    num_items_in_batch: Tensor | int | None = None,
    ignore_index: int = -100,
    shift_labels: Tensor | None = None,
    **kwargs: Any,
) -> Tensor:
    """``transformers.loss.loss_utils.ForCausalLMLoss``: each position predicts the label of the next.

    The loss is in float32, computed directly from logits of any dtype: it differs by at most 3e-4 from that of logits
    that are cast first.

    Args:
        logits: [..., positions, vocab_size] of float32, float16 or bfloat16.
        labels: [..., positions] class indices; `ignore_index` is ignored. Not needed with `shift_labels`.
        vocab_size: number of classes.
        num_items_in_batch: the divisor of the sum of the losses, also as a tensor on the device, which nothing waits
            for; None: the number of labels that count.
        ignore_index: see above.
        shift_labels: [..., positions]: labels that are shifted already.
        kwargs: further arguments of models; not used.

    Returns:
        A float32 number.

    Raises:
        ValueError: sizes that do not fit.
    """
    if shift_labels is None:
        if labels is None:
            raise ValueError("CeForCausalLMLoss: labels is None; expected labels or shift_labels")
        shift_labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    if vocab_size < 1 or (logits.shape[-1:] != (vocab_size,) and logits.numel() % vocab_size != 0):
        raise ValueError(
            f"CeForCausalLMLoss: vocab_size is {vocab_size}; expected the last size of logits, whose sizes are "
            f"{list(logits.shape)}"
        )
    if isinstance(num_items_in_batch, Tensor) and num_items_in_batch.numel() != 1:
        raise ValueError(
            f"CeForCausalLMLoss: num_items_in_batch has sizes {list(num_items_in_batch.shape)}; expected one element"
        )
    rows = logits.reshape(-1, vocab_size)
    target = shift_labels.reshape(-1).to(logits.device)
    if num_items_in_batch is not None:
        return mean_over(rows, target, num_items_in_batch, ignore_index=ignore_index)
    return functional.cross_entropy(rows, target, ignore_index=ignore_index, loss_dtype=f32_for(logits))


def compute_loss(outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
    """For ``Trainer(compute_loss_func=...)``: the loss of a causal language model's outputs.

    Args:
        outputs: of the model, with logits [batch, length, classes] as an item or an attribute.
        labels: [batch, length] class indices, not shifted yet.
        num_items_in_batch: divides the sum of the losses; None: the mean.

    Returns:
        One element; float32, or float64 of float64 logits. See :func:`CeForCausalLMLoss` for what is raised.
    """
    logits = outputs["logits"] if isinstance(outputs, dict) else outputs.logits
    return CeForCausalLMLoss(logits, labels, logits.shape[-1], num_items_in_batch)


@contextmanager
def _undo(mapping: dict[str, Any], before: Any) -> Iterator[None]:
    try:
        yield
    finally:
        mapping["ForCausalLM"] = before


def install() -> Any:
    """Replaces ``ForCausalLM`` by :func:`CeForCausalLMLoss` in the mapping of transformers.

    Models that have looked up their loss before keep it.

    Returns:
        A context manager that puts back what was there before.

    Raises:
        ImportError: there is no transformers.
    """
    from transformers.loss.loss_utils import LOSS_MAPPING  # type: ignore[import-not-found, unused-ignore]

    before = LOSS_MAPPING["ForCausalLM"]
    LOSS_MAPPING["ForCausalLM"] = CeForCausalLMLoss
    return _undo(LOSS_MAPPING, before)


class CeForCausalLMLossLayer(nn.Module):
    """:func:`CeForCausalLMLoss` as a layer without parameters. The package kernels compares the signature."""

    can_torch_compile = True
    has_backward = True

    def forward(
        self,
        logits: Tensor,
        labels: Tensor | None,
        vocab_size: int,
        num_items_in_batch: Tensor | int | None = None,
        ignore_index: int = -100,
        shift_labels: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """See :func:`CeForCausalLMLoss`."""
        return CeForCausalLMLoss(logits, labels, vocab_size, num_items_in_batch, ignore_index, shift_labels, **kwargs)


class _Repository:
    """Tells the package kernels that the layer is here, not in a repository."""

    layer_name = CeForCausalLMLossLayer.__name__

    def load(self) -> type[nn.Module]:
        return CeForCausalLMLossLayer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Repository)

    def __hash__(self) -> int:
        return hash(_Repository)

    def __str__(self) -> str:
        return f"ce.torch.integrations.transformers (layer `{self.layer_name}`)"


def kernel_mapping(*devices: str) -> dict[str, dict[str, Any]]:
    """For ``kernels.use_kernel_mapping`` and ``kernels.register_kernel_mapping``: the layer "ForCausalLMLoss".

    Args:
        devices: device types; none: "cuda". It raises nothing: the package kernels checks the types.
    """
    repository = _Repository()
    return {"ForCausalLMLoss": {device: repository for device in devices or ("cuda",)}}
