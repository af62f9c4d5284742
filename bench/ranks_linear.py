"""A linear layer and its loss over ranks: time and memory beside the products alone and beside whole logits.

    torchrun --nproc-per-node=2 bench/ranks_linear.py --out ranks-linear.json

Each rank has equal parts of the classes, bf16 weights and all hidden states. `products` is the layer's three products
and the sum of the input's gradient over the ranks, with no loss between them: what any way must do. `whole` is
`F.linear` and `vocab_parallel_cross_entropy`: the logits of all tokens are in memory. `chunked` is
`vocab_parallel_linear_cross_entropy`, with 512 MiB for logits. Times are medians of the slowest rank's samples, taken
in turns; memory is the most that one call needs beyond its gradients. Before it is timed, chunked is compared with
whole.
"""

from __future__ import annotations

import argparse
import json
import os
from datetime import date
from pathlib import Path
from typing import Any, Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from gpu_timer import beyond_bytes
from own_version import own_version
from ranks import in_turns, slowest
from torch import Tensor

import ce.torch as ct

SHAPES = "8192x4096x128256,4096x8192x128256,8192x2048x262144"
TOLERANCE = 2.0**-6  # of gradients in bf16, as a part of the largest


def steps(hidden: Tensor, weight: Tensor, target: Tensor) -> dict[str, Callable[[], Any]]:
    of_logits = torch.randn(hidden.shape[0], weight.shape[0], device=hidden.device).to(hidden.dtype)

    def products() -> Any:
        with torch.no_grad():
            made = F.linear(hidden, weight)
            of_hidden = of_logits @ weight
            sums = dist.all_reduce(of_hidden, async_op=True)
            of_weight = of_logits.t() @ hidden
            sums.wait()
        return made, of_hidden, of_weight

    def whole() -> Any:
        logits = F.linear(hidden, weight)
        loss = ct.vocab_parallel_cross_entropy(logits, target, inplace_backward=True, loss_dtype=torch.float32)
        of_hidden, of_weight = torch.autograd.grad(loss, (hidden, weight))
        dist.all_reduce(of_hidden)
        return loss, of_hidden, of_weight

    def chunked() -> Any:
        loss = ct.vocab_parallel_linear_cross_entropy(hidden, weight, target, loss_dtype=torch.float32)
        return loss, *torch.autograd.grad(loss, (hidden, weight))

    return {"products": products, "whole": whole, "chunked": chunked}


def peak_bytes(step: Callable[[], Any], of_gradients: int) -> int:
    step()  # tunes and compiles
    return beyond_bytes(step, of_gradients)


def measure(tokens: int, width: int, classes: int, device: torch.device, turns: int) -> dict[str, Any]:
    columns = classes // dist.get_world_size()
    same = torch.Generator(device).manual_seed(1)
    hidden = torch.randn(tokens, width, device=device, generator=same).bfloat16().requires_grad_()
    target = torch.randint(0, columns * dist.get_world_size(), (tokens,), device=device, generator=same)
    torch.manual_seed(2 + dist.get_rank())  # not the numbers of hidden
    weight = (torch.randn(columns, width, device=device) * width**-0.5).bfloat16().requires_grad_()
    ways = steps(hidden, weight, target)
    of_gradients = 2 * (hidden.numel() + weight.numel())
    peaks = {name: slowest(peak_bytes(step, of_gradients), device) for name, step in ways.items()}
    differences = [
        slowest(((one.float() - other.float()).abs().max() / one.float().abs().max()).item(), device)
        for one, other in zip(ways["whole"](), ways["chunked"]())
    ]
    torch.cuda.empty_cache()
    times = in_turns(ways, {}, turns)
    return {
        "tokens": tokens,
        "hidden": width,
        "classes": columns * dist.get_world_size(),
        "ranks": dist.get_world_size(),
        "chunked_against_whole": dict(zip(("loss", "input", "weight"), differences)),
        "agrees": max(differences) <= TOLERANCE,
        "ms": {name: round(time, 3) for name, time in times.items()},
        "over_products": {name: round(time / times["products"], 3) for name, time in times.items()},
        "mib_beyond_gradients": {name: round(peak / 2**20) for name, peak in peaks.items() if name != "products"},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file, rewritten after each shape")
    parser.add_argument("--shapes", default=SHAPES, help=f"TOKENSxHIDDENxCLASSES,... (default: {SHAPES})")
    parser.add_argument("--turns", type=int, default=15)
    options = parser.parse_args()
    shapes = [tuple(int(size) for size in one.split("x")) for one in options.shapes.split(",")]
    if any(len(shape) != 3 or min(shape) < 1 for shape in shapes):
        parser.error(f"--shapes is {options.shapes!r}; expected TOKENSxHIDDENxCLASSES of positive numbers")
    if options.turns < 1:
        parser.error("--turns: expected 1 or more")
    if not torch.cuda.is_available():
        parser.error("torch sees no GPU")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    about: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        "ce": own_version(),
        "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "date": date.today().isoformat(),
        "results": [],
    }
    for shape in shapes:
        about["results"].append(measure(*shape, device, options.turns))
        if dist.get_rank() == 0:
            print(json.dumps(about["results"][-1]), flush=True)
            if options.out:
                options.out.write_text(json.dumps(about, indent=1) + "\n")
        torch.cuda.empty_cache()
    dist.destroy_process_group()
    return int(not all(result["agrees"] for result in about["results"]))


if __name__ == "__main__":
    raise SystemExit(main())
