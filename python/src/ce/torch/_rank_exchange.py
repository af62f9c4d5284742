"""The memory through which kernels of ranks exchange rows, for each group of ranks."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int64, c_void_p
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ce import _c
from ce.torch import _native, _rank_groups, _settings

_DESCRIPTION_BYTES, _REFUSAL_BYTES = 128, 256


class Peers:
    """The memory of a group on a device, and the stream that used it last."""

    def __init__(self) -> None:
        self.handle, self.bytes = 0, 0
        self.why_not = ""
        self._stream: Any = None
        self._done: Any = None

    def begin(self, logits: Tensor) -> None:
        """Called before a call, which then runs after those of other streams. The caller orders replays of graphs."""
        if not logits.is_cuda or torch.cuda.is_current_stream_capturing():
            return
        stream = torch.cuda.current_stream(logits.device)
        if self._done is None:
            self._done = torch.cuda.Event()
        elif stream != self._stream:
            stream.wait_event(self._done)
        self._stream = stream

    def end(self, logits: Tensor) -> None:
        """Called after a call."""
        if logits.is_cuda and not torch.cuda.is_current_stream_capturing():
            self._done.record(self._stream)

    def give_up(self) -> None:
        """Tells the other ranks that this rank will not come."""
        _c.library().ce_peer_memory_give_up(self.handle)


_groups = _rank_groups.PerGroup()


def memory(logits: Tensor, ranks: int, rank: int, group: Any, words: int) -> tuple[Peers | None, str]:
    """A ``ce_peer_memory`` with room for the rows, or None and the reason; equal on every rank.

    All ranks call it at once. Older memory stays, since graphs may use it.
    """
    own: Peers = _groups.of(group, ranks).setdefault(logits.device, Peers())
    if own.why_not:
        return None, own.why_not
    rows = 1 << max(0, logits.shape[0] - 1).bit_length()
    needed = c_int64()
    _c.require(_c.library().ce_peer_memory_bytes_for(ranks, rows, words, byref(needed)))
    if own.bytes >= needed.value:
        return own, ""
    if logits.is_cuda and torch.cuda.is_current_stream_capturing():
        return None, "the call is being captured into a graph, and needs more memory than ce allocated before"

    # Each step continues only if all ranks can, so that none waits for one that gave up.
    handle, refusal, description = c_void_p(), "", bytes(_DESCRIPTION_BYTES)
    try:
        patience = _settings.current.rank_patience
        options = _c.PeerMemoryOptions(rank=rank, ranks=ranks, bytes=needed.value, patience=patience)
        context = _native.context(_native.device_index(logits.device))
        _c.require(_c.library().ce_peer_memory_create(context, byref(options), byref(handle)))
        buffer = ctypes.create_string_buffer(_DESCRIPTION_BYTES)
        _c.require(_c.library().ce_peer_memory_describe(handle, buffer))
        description = buffer.raw
    except Exception as error:
        refusal = str(error)
    everyones = gathered(description, logits.device, ranks, group)
    if not refusal:
        try:
            _c.require(_c.library().ce_peer_memory_connect(handle, everyones, len(everyones)))
        except Exception as error:
            refusal = str(error)
    # Once a rank has data from all ranks, it knows that the memory of all is ready.
    told = gathered(refusal.encode()[: _REFUSAL_BYTES - 1].ljust(_REFUSAL_BYTES, b"\0"), logits.device, ranks, group)
    for refusing in range(ranks):
        words_of_rank = told[refusing * _REFUSAL_BYTES :][:_REFUSAL_BYTES].rstrip(b"\0")
        if words_of_rank:
            _c.library().ce_peer_memory_destroy(handle)
            own.why_not = f"rank {refusing}: {words_of_rank.decode(errors='replace')}"
            return None, own.why_not
    own.handle, own.bytes = handle.value or 0, needed.value
    return own, ""


def gathered(own: bytes, device: torch.device, ranks: int, group: Any) -> bytes:
    """An all-gather of equally many bytes, in the order of the ranks; waits for the GPU."""
    if ranks == 1:
        return own
    mine = torch.frombuffer(bytearray(own), dtype=torch.uint8).to(device)
    everyones = mine.new_empty(ranks * len(own))
    dist.all_gather_into_tensor(everyones, mine, group=group)
    return bytes(everyones.cpu().tolist())
