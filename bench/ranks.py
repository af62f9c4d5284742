"""Cross entropy of classes that ranks share: forward and backward in a CUDA graph, beside a copy of the shard.

    torchrun --nproc-per-node=2 bench/ranks.py --out ranks.json

Every figure is the median of the slowest rank's samples, taken in turns. torch's loss_parallel runs without a graph.
"""

from __future__ import annotations

import argparse
import json
import statistics
from datetime import date
from pathlib import Path
from typing import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import loss_parallel

import ce.torch as ct

SHAPES = [(8192, 128256), (8192, 262144), (16384, 32000), (4096, 151936)]


def captured(run: Callable[[], None]) -> Callable[[], None]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def in_turns(runs: dict[str, Callable[[], None]], turns: int) -> dict[str, list[float]]:
    """Milliseconds of the slowest rank."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for turn in range(turns + 2):
        for name, run in runs.items():
            dist.barrier()
            torch.cuda.synchronize()
            torch.cuda._sleep(400_000)
            start.record()
            run()
            end.record()
            end.synchronize()
            slowest = torch.tensor([start.elapsed_time(end)], device="cuda")
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            if turn >= 2:
                times[name].append(slowest.item())
    return times


def measure(rows: int, classes: int, turns: int) -> dict[str, object]:
    ranks, rank = dist.get_world_size(), dist.get_rank()
    columns = classes // ranks
    torch.manual_seed(rank)
    logits = (2 * torch.randn(rows, columns, device="cuda")).bfloat16().requires_grad_()
    target = torch.randint(
        0,
        classes,
        (rows,),
        device="cuda",
        generator=torch.Generator("cuda").manual_seed(1),
    )
    out = torch.empty_like(logits)

    def copy() -> None:
        out.copy_(logits.detach())

    def step(**options: object) -> Callable[[], None]:
        def run() -> None:
            logits.grad = None
            ct.vocab_parallel_cross_entropy(logits, target, **options).backward()

        return run

    mesh = init_device_mesh("cuda", (ranks,))

    def peer() -> None:
        logits.grad = None
        spread = DTensor.from_local(logits, mesh, [Shard(-1)])
        with loss_parallel():
            F.cross_entropy(
                spread.float(), DTensor.from_local(target, mesh, [Replicate()])
            ).backward()

    plain = step()
    plain()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    plain()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    runs = {
        "copy": copy,
        "ce": captured(plain),
        "ce, eager": plain,
        "ce, smoothing": captured(step(label_smoothing=0.1)),
        "loss_parallel, eager": peer,
    }
    for name in ("ce, eager", "loss_parallel, eager"):
        runs[name]()
    times = {
        name: statistics.median(samples)
        for name, samples in in_turns(runs, turns).items()
    }
    grad_bytes = logits.numel() * logits.element_size()
    return {
        "rows": rows,
        "classes": classes,
        "ranks": ranks,
        "ms": {name: round(time, 4) for name, time in times.items()},
        "over_copy": {
            name: round(time / times["copy"], 3) for name, time in times.items()
        },
        "bytes_beyond_gradient_a_row": round((peak - grad_bytes) / rows, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--turns", type=int, default=30)
    options = parser.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank())
    results = []
    for rows, classes in SHAPES:
        results.append(measure(rows, classes, options.turns))
        if dist.get_rank() == 0:
            print(json.dumps(results[-1]), flush=True)
        torch.cuda.empty_cache()
    if dist.get_rank() == 0 and options.out:
        about = {
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "date": date.today().isoformat(),
        }
        options.out.write_text(
            json.dumps({**about, "results": results}, indent=1) + "\n"
        )
    dist.destroy_process_group()


main()
