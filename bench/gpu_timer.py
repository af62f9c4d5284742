"""Times a callable on the GPU as ce-tune does: cold L2, the median of single launches, nothing enqueued behind them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any, Callable

import torch


@dataclass
class Timing:
    median_us: float
    spread: float  # interquartile range over median
    samples_us: list[float]
    method: str  # "graph", or "events" with the reason why there is no graph
    peak_bytes: int  # most that was allocated during one run, beyond what was there before it


def spread_of(samples: list[float]) -> float:
    if len(samples) < 2:
        return 0.0
    first, _, third = statistics.quantiles(samples, n=4, method="inclusive")
    return (third - first) / statistics.median(samples)


def beyond_bytes(run: Callable[[], Any], result_bytes: int) -> int:
    """The most memory that a call takes beyond its inputs and results."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    made = run()
    torch.cuda.synchronize()
    del made
    return torch.cuda.max_memory_allocated() - before - result_bytes


class Timer:
    """Before each sample, L2 is filled by reading a buffer of twice its size, so that inputs come from memory and
    no dirty line of earlier work is written back in the timed part."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        # Everything runs on this stream, because autograd goes back on the stream on which it went forward, and
        # only one stream is captured.
        self.stream = torch.cuda.Stream()
        l2_bytes = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self._flush = torch.zeros(max(2 * l2_bytes, 1 << 24) // 4, dtype=torch.float32, device="cuda")
        self._sum = torch.empty((), dtype=torch.float32, device="cuda")

    def time(self, run: Callable[[], Any], restore: Callable[[], None]) -> Timing:
        """To be called on self.stream. restore() sets back what run() writes over; it is not timed."""
        restore()
        run()  # compiles
        peak_bytes = self._peak_bytes(run, restore)
        graph, method = self._capture(run, restore)
        samples = self._take(graph.replay if graph is not None else run, restore)
        return Timing(statistics.median(samples), spread_of(samples), samples, method, peak_bytes)

    @staticmethod
    def _peak_bytes(run: Callable[[], Any], restore: Callable[[], None]) -> int:
        restore()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before

    def _capture(self, run: Callable[[], Any], restore: Callable[[], None]) -> tuple[Any, str]:
        try:
            for _ in range(3):
                restore()
                run()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self.stream):
                run()
            return graph, "graph"
        except Exception as error:  # what does not like to be captured is launched each time
            torch.cuda.synchronize()
            reason = (str(error).splitlines() or [""])[0]
            return None, f"events ({type(error).__name__}: {reason})"

    def _take(self, launch: Callable[[], Any], restore: Callable[[], None]) -> list[float]:
        times = []
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for i in range(self.samples + 1):
            torch.cuda._sleep(20_000_000 if i == 0 else 1_000_000)  # 0.5 ms: all is enqueued before it runs
            restore()
            torch.sum(self._flush, dim=0, out=self._sum)
            start.record()
            launch()
            end.record()
            end.synchronize()
            times.append(1e3 * start.elapsed_time(end))
        return times[1:]
