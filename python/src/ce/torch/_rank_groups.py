"""Groups of ranks that share the classes."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch.distributed as dist

from ce.torch import _arguments


class Group(NamedTuple):
    """The ranks, and the classes of this one."""

    group: Any
    ranks: int
    first_class: int
    classes: int

    def valid(self, columns: int) -> int:
        """Number of this rank's columns that are classes; later columns are padding."""
        return max(0, min(columns, self.classes - self.first_class))


class PerGroup:
    """What is known of each group of ranks, as long as the group lives. One that was kept here would still have its
    threads after ``destroy_process_group()``; where they release tensors while Python ends, the process aborts."""

    def __init__(self) -> None:
        self._of_one_rank: dict[Any, Any] = {}
        self._of_groups: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()

    def of(self, group: Any, ranks: int) -> dict[Any, Any]:
        return self._of_one_rank if ranks == 1 else self._of_groups.setdefault(group or dist.group.WORLD, {})


def require_group(name: str, group: Any) -> None:
    if group is not None and not isinstance(group, dist.ProcessGroup):
        raise TypeError(f"{name}: group is of type {type(group).__name__}; expected a ProcessGroup or None")


def require_shard(name: str, first_class: Any, classes: Any) -> None:
    for argument, given in (("first_class", first_class), ("classes", classes)):
        _arguments.require_integer(name, argument, given)


def has_group(group: Any) -> bool:
    return group is not None or (dist.is_available() and dist.is_initialized())


def require_the_same(
    operation: str, names: Sequence[str], calls: Sequence[Sequence[float]], but: Sequence[str] = ()
) -> None:
    """
    Args:
        names: names of a call's numbers.
        calls: the numbers of every rank.
        but: numbers that may differ between ranks.

    Raises:
        ValueError: names the first rank and number that differ from rank 0.
    """
    for rank, own in enumerate(calls):
        for name, value, first in zip(names, own, calls[0]):
            if name not in but and value != first:
                raise ValueError(f"{operation}: {name} is {value:g} on rank {rank}; expected {first:g}, as on rank 0")
