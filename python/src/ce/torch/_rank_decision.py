"""Rank 0 decides for all ranks that share the classes: kernels, and the plan of a kind of call."""

from __future__ import annotations

import json
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ce._c import NotTuned
from ce.torch import _native, _rank_exchange, _vocab_parallel, _vocab_parallel_exchange

_MESSAGE_BYTES = 4096
_TIMED = 4


def decide(arguments: tuple[Any, ...], rank: int, plan: str, peers: _rank_exchange.Peers | None, widest: int) -> bool:
    """Whether the ranks exchange. All ranks call it at once, and run the kernels that rank 0 names.

    Rank 0 waits for no other rank; the others wait for its decision. `widest` is the columns of the widest shard.
    """
    flat, target, _, _, _, _, _, numbers, _, wanted, group, _ = arguments
    race = peers is not None and plan == "automatic"
    gather_us = 0.0
    if race:
        words = _vocab_parallel.statistics_words(flat, target, numbers, wanted)
        gather_us = _time_all_gather(flat.new_empty(flat.shape[0], words, dtype=torch.float32), group)
    told: dict[str, Any] = {"exchange": peers is not None, "choices": [], "failed": ""}
    failure: Exception | None = None
    if rank == 0:
        try:
            told["exchange"], told["choices"] = _decision(arguments, peers, race, gather_us, widest)
        except Exception as error:
            try:
                _native.raise_from(error)
            except (ValueError, TypeError, IndexError):  # raised on all ranks alike: each reports it
                pass
            except Exception as known:
                failure = known
                told["failed"], told["not_tuned"] = str(known), isinstance(known, NotTuned)
    words_of_rank = json.dumps(told).encode()
    if len(words_of_rank) > _MESSAGE_BYTES:
        told["choices"], told["failed"] = [], told["failed"][: _MESSAGE_BYTES // 8]
        words_of_rank = json.dumps(told).encode()
    everyones = _rank_exchange.gathered(words_of_rank.ljust(_MESSAGE_BYTES), flat.device, group.ranks, group.group)
    if failure is not None:
        raise failure
    told = json.loads(everyones[:_MESSAGE_BYTES])
    if told["failed"]:
        raise (NotTuned if told["not_tuned"] else RuntimeError)(f"rank 0: {told['failed']}")
    if rank != 0:
        for key, config in told["choices"]:
            _native.use(_native.device_index(flat.device), key, config)
    return bool(told["exchange"])


def exchange_is_faster(
    gather: list[_native.Choice], exchange: list[_native.Choice], gather_us: float, rows: int, width: float
) -> bool:
    """Like ``exchange_is_faster()`` of ce/rank_decision.cpp: compares one kernel with three and an all-gather.

    `gather` has the times of the statistics, the merge and the gradient; `width` is the widest shard's, as a multiple
    of this one's. True if a time is not known.
    """
    if not all(choice.row_us > 0 for choice in gather + exchange):
        return True
    shard, merge, backward = (choice.row_us for choice in gather)
    return rows * width * exchange[0].row_us <= rows * (width * (shard + backward) + merge) + gather_us


def _decision(
    arguments: tuple[Any, ...], peers: _rank_exchange.Peers | None, race: bool, gather_us: float, widest: int
) -> tuple[bool, list[tuple[str, str]]]:
    exchange: list[_native.Choice] = []
    gather: list[_native.Choice] = []
    if peers is not None:
        with torch.no_grad(), _native.choosing() as exchange:
            _vocab_parallel_exchange.choose_for_exchange(arguments, peers.handle)
    if peers is None or race:
        with torch.no_grad(), _native.choosing() as gather:
            _vocab_parallel.choose_for_gather(arguments)
    flat, group = arguments[0], arguments[10]
    width = widest / max(1, group.valid(flat.shape[1]))
    is_exchange = peers is not None and (
        not race or exchange_is_faster(gather, exchange, gather_us, flat.shape[0], width)
    )
    return is_exchange, [(one.key, one.config) for one in exchange + gather if not one.provisional]


def _time_all_gather(own: Tensor, group: Any) -> float:
    """Microseconds of an all-gather: the mean of several in a row, after a warm-up."""

    def wait() -> None:
        if own.is_cuda:
            torch.cuda.current_stream(own.device).synchronize()

    gathered = own.new_empty(group.ranks * own.shape[0], own.shape[1])
    dist.all_gather_into_tensor(gathered, own, group=group.group)
    wait()
    begin = time.perf_counter()
    for _ in range(_TIMED):
        dist.all_gather_into_tensor(gathered, own, group=group.group)
    wait()
    return 1e6 * (time.perf_counter() - begin) / _TIMED
