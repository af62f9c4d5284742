"""Calls whose products leave out ignored tokens: as many tokens count as the caller says, or fewer."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ce.torch import _arguments

OF_ROWS = ("lse", "argmax", "hit", "logprob", "entropy")
"""Outputs with one element for each token, whatever the reduction is."""


def check(name: str, valid_tokens: int, tokens: int) -> None:
    if isinstance(valid_tokens, Tensor):  # reading it would wait for the GPU
        raise TypeError(f"ce.torch.{name}: valid_tokens is a tensor; expected an integer")
    valid_tokens = _arguments.integer(f"ce.torch.{name}", "valid_tokens", valid_tokens)
    if not 0 <= valid_tokens <= tokens:
        raise ValueError(
            f"ce.torch.{name}: valid_tokens is {valid_tokens}; expected 0 to {tokens}, the number of tokens"
        )


def factor(left_out: Tensor, valid_tokens: int) -> Tensor:
    """A factor [] of results, and so of their gradients: NaN if more tokens count than the caller says, else 1."""
    return torch.where((~left_out).sum() > valid_tokens, torch.nan, 1.0)


class Kept(NamedTuple):
    """The tokens in products, if others are left out. Nothing waits for the device."""

    order: Tensor
    """Indices of the tokens that count, in ascending order, as many as the caller says."""
    left_out: Tensor
    factor: Tensor
    """A factor []: NaN if more tokens count than the caller says, else 1."""

    @staticmethod
    def of(target: Tensor, ignore_index: int, valid_tokens: int) -> Kept:
        left_out = target == ignore_index
        order = torch.sort(left_out.to(torch.uint8), stable=True).indices[:valid_tokens]
        return Kept(order, left_out, factor(left_out, valid_tokens))

    def gather(self, of_rows: Any) -> Any:
        return None if of_rows is None else of_rows.index_select(0, self.order)

    def scattered(self, made: dict[str, Tensor], reduction: str) -> dict[str, Tensor]:
        """Scatters rows back to their tokens, with the results of ignored tokens."""
        of_left_out = {"lse": torch.nan, "argmax": -1}
        for name, one in made.items():
            if name in OF_ROWS or reduction == "none":
                all_rows = one.new_zeros(self.left_out.numel()).index_copy(0, self.order, one)
                one = all_rows.masked_fill(self.left_out, of_left_out.get(name, 0))
            if one.is_floating_point():
                made[name] = one * self.factor
            else:
                made[name] = one.masked_fill(self.factor.isnan(), of_left_out.get(name, 0))
        return made
