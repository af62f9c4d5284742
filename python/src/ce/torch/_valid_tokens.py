"""The tokens of a linear layer that count, put next to each other without asking the device how many there are."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["ValidTokens"]


class ValidTokens(NamedTuple):
    places: Tensor
    """[valid_tokens]: places among all tokens, ascending; where fewer count, the number of all tokens at the end."""
    excess: Tensor
    """[]: NaN where more tokens count than the caller said, else 0."""
    tokens: int
    """All of them."""

    @staticmethod
    def of(name: str, counts: Tensor, valid_tokens: int) -> ValidTokens:
        """
        Args:
            counts: [tokens] of bool.

        Raises:
            ValueError: a number that cannot be.
        """
        tokens = counts.numel()
        if not 0 <= valid_tokens <= tokens:
            raise ValueError(f"ce.torch.{name}: valid_tokens is {valid_tokens}; expected 0 to {tokens}, all tokens")
        places = torch.nonzero_static(counts, size=valid_tokens, fill_value=tokens).squeeze(-1)
        excess = torch.where(counts.sum() > valid_tokens, torch.nan, 0.0)
        return ValidTokens(places, excess, tokens)

    def take(self, of_all: Tensor, fill: float | None = None) -> Tensor:
        """Rows of the tokens that count.

        Args:
            of_all: [tokens, ...].
            fill: of the rows at the end; None: any.
        """
        taken = of_all.index_select(0, self.places.clamp(max=self.tokens - 1))
        return taken if fill is None else torch.where(self.places < self.tokens, taken, fill)

    def take_rows(self, given: Any, rows: torch.Size) -> Any:
        """Of what may have an element for each token, or else is for all of them."""
        return self.take(given.reshape(-1)) if isinstance(given, Tensor) and given.shape == rows else given

    def put(self, of_valid: Tensor, fill: float) -> Tensor:
        """[tokens]: each of [valid_tokens] in its token's place, and fill elsewhere."""
        all_of_them = of_valid.new_full((self.tokens + 1,), fill)
        return all_of_them.scatter(0, self.places, of_valid)[: self.tokens]
