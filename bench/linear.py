"""The loss of a linear layer with its gradients beside the three products alone, torch.compile and Liger-Kernel.

    python bench/linear.py [--shapes 8192x4096x128256,...] [--turns 8] [--forward] [--out FILE]

Products of this size are limited by the GPU's power, so that only times of one run compare: every candidate takes turns
with the others. A candidate's time is the median over its turns, its memory what one step takes beyond what was there.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import ce.torch as ct
from python_calls import machine

SHAPES = "8192x4096x128256,16384x2048x151936,8192x2304x256000,16384x4096x32000,4096x8192x128256"
GIB = 1 << 30
BUDGETS = {"ce, whole logits": 16 * GIB, "ce, 4 GiB": 4 * GIB, "ce, 512 MiB": GIB // 2}
STEPS = 3  # of a turn, of which the first warms up


class Batch:
    def __init__(self, tokens: int, hidden: int, classes: int, dtype: torch.dtype) -> None:
        def leaf(*sizes: int) -> Tensor:
            return (torch.randn(*sizes, device="cuda") / hidden**0.5).to(dtype).requires_grad_()

        self.input, self.weight = leaf(tokens, hidden), leaf(classes, hidden)
        self.target = torch.randint(0, classes, (tokens,), device="cuda")


def products(batch: Batch, with_gradients: bool) -> Callable[[], None]:
    """The three of them into memory of their own, by torch's cuBLAS."""
    x, w = batch.input.detach(), batch.weight.detach()
    logits = x.new_empty(x.shape[0], w.shape[0])
    dx, dw = torch.empty_like(x), torch.empty_like(w)
    # What a step multiplies: power depends on the numbers.
    gradient = torch.softmax(torch.mm(x, w.t()), -1)
    gradient[torch.arange(x.shape[0], device=x.device), batch.target] -= 1
    gradient /= x.shape[0]

    def run() -> None:
        torch.mm(x, w.t(), out=logits)
        if with_gradients:
            torch.mm(gradient, w, out=dx)
            torch.mm(gradient.t(), x, out=dw)

    return run


def step(batch: Batch, loss_of: Callable[[Tensor, Tensor, Tensor], Tensor], with_gradients: bool) -> Callable[[], None]:
    def run() -> None:
        if not with_gradients:
            with torch.no_grad():
                loss_of(batch.input, batch.weight, batch.target)
            return
        batch.input.grad = batch.weight.grad = None
        loss_of(batch.input, batch.weight, batch.target).backward()

    return run


def candidates(batch: Batch, with_gradients: bool, peers: bool) -> dict[str, Callable[[], None]]:
    def with_budget(budget: int) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        return lambda x, w, t: ct.linear_cross_entropy(x, w, t, memory_budget=budget, loss_dtype=torch.float32)

    all_losses = {name: with_budget(budget) for name, budget in BUDGETS.items()}
    if peers:
        all_losses["torch"] = lambda x, w, t: F.cross_entropy(F.linear(x, w), t)
        all_losses["torch.compile"] = torch.compile(lambda x, w, t: F.cross_entropy(F.linear(x, w).float(), t))
        try:
            from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction as liger

            all_losses["Liger-Kernel"] = lambda x, w, t: liger.apply(x, w, t)[0]
        except ImportError:
            print("no liger_kernel")
    return {name: step(batch, loss, with_gradients) for name, loss in all_losses.items()}


def peak(run: Callable[[], None], batch: Batch) -> int:
    batch.input.grad = batch.weight.grad = None
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def measure(shape: str, turns: int, with_gradients: bool, peers: bool) -> dict[str, Any]:
    tokens, hidden, classes = map(int, shape.split("x"))
    batch = Batch(tokens, hidden, classes, torch.bfloat16)
    results: dict[str, dict[str, Any]] = {}
    running: dict[str, Callable[[], None]] = {}
    for name, run in candidates(batch, with_gradients, peers).items():
        try:
            run()
            results[name] = {"peak_bytes": peak(run, batch)}
            running[name] = run
        except Exception as error:  # what a peer refuses is told
            results[name] = {"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
            torch.cuda.empty_cache()
    running["products"] = products(batch, with_gradients)
    results["products"] = {}
    samples: dict[str, list[float]] = {name: [] for name in running}
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(turns):
        for name, run in running.items():
            for i in range(STEPS):
                start.record()
                run()
                end.record()
                end.synchronize()
                if i > 0:
                    samples[name].append(start.elapsed_time(end))
    for name, times in samples.items():
        results[name].update(median_ms=statistics.median(times), samples_ms=times)
    return {"shape": shape, "gradients": with_gradients, "results": results}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--forward", action="store_true", help="also the forward alone")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    document: dict[str, Any] = {"machine": machine(), "measured": []}
    for shape in arguments.shapes.split(","):
        for with_gradients in (True, False)[: 2 if arguments.forward else 1]:
            measured = measure(shape, arguments.turns, with_gradients, not arguments.no_peers)
            document["measured"].append(measured)
            print(shape, "forward and gradients" if with_gradients else "forward")
            alone = measured["results"]["products"]["median_ms"]
            for name, one in measured["results"].items():
                if "error" in one:
                    print(f"  {name:18} {one['error']}")
                    continue
                memory = f"{one['peak_bytes'] / GIB:6.2f} GiB" if "peak_bytes" in one else ""
                print(f"  {name:18} {one['median_ms']:8.2f} ms  {one['median_ms'] / alone:5.3f}  {memory}", flush=True)
            if arguments.out:
                arguments.out.write_text(json.dumps(document, indent=1) + "\n")
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
