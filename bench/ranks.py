"""Cross entropy of classes that ranks share: forward and backward beside a copy of the shard and other libraries.

    torchrun --nproc-per-node=4 bench/ranks.py --out ranks.json
    torchrun --nproc-per-node=2 bench/ranks.py --check --shapes 64x1000       # times nothing; also without a GPU

Times are medians of the slowest rank's samples, taken in turns with those of the copy. What can be captured into a CUDA
graph is timed as one, else launch by launch, which `method` says. Memory is the most that one call needs beyond the
gradient, where that is not written over the logits. `ce` takes the plan that it finds best, `ce-gather` that with an
all-gather between two kernels. Before it is timed, each peer's losses and gradient are compared with those of ce.

Ranks have equal shards, since that is all the peers take. So where the classes do not divide by the number of ranks,
all have the next lower number that does: `classes`; what was asked for is `asked_classes`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Callable

import torch
import torch.distributed as dist
from gpu_timer import beyond_bytes
from own_version import own_version
from rank_peers import LOADERS, Peer, load_peers
from torch import Tensor

import ce.torch as ct

SHAPES = "8192x128256,8192x262144,16384x32000,4096x151936"
OWN = ("ce", "ce-gather", "ce-eager", "ce-smoothing", "ce-smoothing-gather")
# Losses of some 13 in f32, of sums in another order; gradients beside one another are each rounded to bf16.
LOSS_TOLERANCE, GRADIENT_TOLERANCE = 2e-5, 2.0**-7


@dataclass
class Run:
    """One way to compute a loss and its gradient."""

    step: Callable[[], Any]
    eager: str = ""  # why there is no CUDA graph
    overwrites: bool = False


@dataclass
class Data:
    logits: Tensor  # [rows, columns]: this rank's shard
    target: Tensor
    pristine: Tensor | None  # a copy of the logits, where a peer writes over them

    def restore(self) -> None:
        assert self.pristine is not None
        self.logits.detach().copy_(self.pristine)

    def step(self, loss: Callable[..., Tensor], context: Any = nullcontext, **options: object) -> Callable[[], Any]:
        """The gradient by autograd. Logits of a model are no leaf, so nothing is added to `.grad`."""

        def run() -> Tensor:
            with context():
                return torch.autograd.grad(loss(self.logits, self.target, **options), self.logits)[0]

        return run


def slowest(value: float, device: torch.device) -> float:
    """The largest of all ranks."""
    everyones = torch.tensor([value], device=device, dtype=torch.float64)
    dist.all_reduce(everyones, dist.ReduceOp.MAX)
    return everyones.item()


def compared(peer: Peer, data: Data, losses: Tensor, gradient: Tensor) -> dict[str, Any]:
    """How far a peer is from ce, on the rank where it is farthest."""
    rows, device = losses.numel(), losses.device
    try:
        with torch.no_grad(), peer.context():
            of_losses = (peer.losses(data.logits, data.target).float() - losses).abs().mean().item()
        if peer.overwrites:
            data.restore()
        made = data.step(peer.mean, peer.context)()
        of_gradient = rows * (made.float() - gradient.float()).abs().max().item()
        failed = ""
    except Exception as error:  # a library may raise anything
        of_losses = of_gradient = 0.0
        failed = f"{type(error).__name__}: {error}".splitlines()[0]
    if peer.overwrites:
        data.restore()
    if slowest(float(bool(failed)), device):
        return {"failed": failed or "on another rank"}
    of_losses, of_gradient = slowest(of_losses, device), slowest(of_gradient, device)
    return {
        "loss_mean_abs": of_losses,
        "gradient_max_abs_of_sum": of_gradient,
        "agrees": of_losses <= LOSS_TOLERANCE and of_gradient <= GRADIENT_TOLERANCE,
    }


def peak_bytes(run: Run, data: Data) -> int:
    """The most memory that one call needs beyond the gradient."""
    run.step()  # tunes and compiles
    return beyond_bytes(run.step, 0 if run.overwrites else data.logits.numel() * data.logits.element_size())


def captured(run: Run, pool: Any) -> tuple[Callable[[], Any], str]:
    """What to time, and as what."""
    if run.eager:
        return run.step, f"eager: {run.eager}"
    graph, reason = torch.cuda.CUDAGraph(), ""
    try:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                run.step()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, pool=pool):
            run.step()
    except Exception as error:  # what does not like to be captured is launched each time
        torch.cuda.synchronize()
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
    if slowest(float(bool(reason)), torch.device("cuda")):
        return run.step, f"eager: {reason or 'another rank could not capture it'}"
    return graph.replay, "graph"


def in_turns(
    runs: dict[str, Callable[[], Any]], restores: dict[str, Callable[[], None]], turns: int
) -> dict[str, float]:
    """Milliseconds of the slowest rank: medians."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    together = torch.zeros(1, device="cuda")
    for turn in range(turns + 2):
        for name, run in runs.items():
            dist.barrier()
            torch.cuda.synchronize()
            torch.cuda._sleep(3_000_000)  # longer than the host takes for what follows
            dist.all_reduce(together)  # the GPUs begin together, whatever their processes do
            start.record()
            run()
            end.record()
            end.synchronize()
            time = slowest(start.elapsed_time(end), torch.device("cuda"))
            if name in restores:
                restores[name]()
            if turn >= 2:
                times[name].append(time)
    return {name: statistics.median(samples) for name, samples in times.items()}


def make_data(rows: int, columns: int, classes: int, device: torch.device, copies: bool) -> Data:
    """Logits of this rank's own; the same target on every rank."""
    torch.manual_seed(2 + dist.get_rank())
    logits = (2 * torch.randn(rows, columns, device=device)).bfloat16()
    same = torch.Generator(device).manual_seed(1)
    target = torch.randint(0, classes, (rows,), device=device, generator=same)
    return Data(logits.requires_grad_(), target, logits.detach().clone() if copies else None)


def measure(
    rows: int, asked: int, peers: list[Peer], own: list[str], device: torch.device, turns: int
) -> dict[str, Any]:
    """turns: 0 only compares."""
    torch.compiler.reset()  # a peer that compiles does so for this shape
    ranks = dist.get_world_size()
    columns = asked // ranks
    data = make_data(rows, columns, columns * ranks, device, any(peer.overwrites for peer in peers))
    result: dict[str, Any] = {"rows": rows, "classes": columns * ranks, "ranks": ranks}
    if columns * ranks != asked:
        result["asked_classes"] = asked

    plain = data.step(ct.vocab_parallel_cross_entropy)
    with torch.no_grad():
        options = {"reduction": "none", "loss_dtype": torch.float32}
        losses = ct.vocab_parallel_cross_entropy(data.logits, data.target, **options)
    gradient = plain()
    against = {peer.name: compared(peer, data, losses, gradient) for peer in peers}
    result["against_ce"] = against
    del gradient
    if not turns:
        return result

    own_step, smoothing = ct.vocab_parallel_cross_entropy, {"label_smoothing": 0.1}
    steps = {
        "ce": Run(plain),
        "ce-gather": Run(data.step(own_step, plan="gather")),
        "ce-eager": Run(plain, "to compare"),
        "ce-smoothing": Run(data.step(own_step, **smoothing)),
        "ce-smoothing-gather": Run(data.step(own_step, **smoothing, plan="gather")),
    }
    runs = {name: steps[name] for name in own}
    for peer in peers:
        if "failed" not in against[peer.name]:
            runs[peer.name] = Run(data.step(peer.mean, peer.context), peer.eager, peer.overwrites)
    peaks, methods, timed = {}, {"copy": "eager"}, {}
    out, shard, pool = torch.empty_like(data.logits), data.logits.detach(), torch.cuda.graph_pool_handle()
    timed["copy"] = lambda: out.copy_(shard)
    for name, run in runs.items():
        peaks[name] = round(slowest(peak_bytes(run, data), device) / rows, 1)
        timed[name], methods[name] = captured(run, pool)
        if run.overwrites:
            data.restore()
    restores = {name: data.restore for name, run in runs.items() if run.overwrites}
    times = in_turns(timed, restores, turns)
    result["ms"] = {name: round(time, 4) for name, time in times.items()}
    result["over_copy"] = {name: round(time / times["copy"], 3) for name, time in times.items()}
    result["method"], result["bytes_beyond_gradient_a_row"] = methods, peaks
    return result


def shapes_of(text: str) -> list[tuple[int, int]]:
    return [(int(rows), int(classes)) for rows, classes in (one.split("x") for one in text.split(","))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file, rewritten after each shape")
    parser.add_argument("--shapes", type=shapes_of, default=SHAPES, help=f"ROWSxCLASSES,... (default: {SHAPES})")
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--only", default="", help=f"libraries of {', '.join((*OWN, *LOADERS))} (default: all)")
    parser.add_argument(
        "--check",
        action="store_true",
        help="only compare results with those of ce; the exit status is 1 if one differs or fails",
    )
    options = parser.parse_args()
    names = options.only.split(",") if options.only else [*OWN, *LOADERS]
    unknown = sorted({*names} - {*OWN, *LOADERS})
    if unknown:
        parser.error(f"--only: {', '.join(unknown)} is none of {', '.join((*OWN, *LOADERS))}")
    if options.turns < 1:
        parser.error("--turns: expected 1 or more")
    on_gpu = torch.cuda.is_available()
    if not on_gpu and not options.check:
        parser.error("torch sees no GPU; without a GPU only --check works")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    else:
        ct.configure(policy="lookup", cpu="host")
    dist.init_process_group("nccl" if on_gpu else "gloo")

    peers, missing = load_peers([name for name in names if name in LOADERS])
    own = [name for name in names if name in OWN]
    about: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name() if on_gpu else "none",
        "ce": own_version(),
        "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if on_gpu else "none",
        "date": date.today().isoformat(),
        "peers": {peer.name: peer.version for peer in peers},
        "missing": missing,
        "tolerance": {"loss_mean_abs": LOSS_TOLERANCE, "gradient_max_abs_of_sum": GRADIENT_TOLERANCE},
        "results": [],
    }
    is_first = dist.get_rank() == 0
    for name, reason in missing.items():
        if is_first:
            print(f"not measured: {name}: {reason}", flush=True)
    differ = False
    for rows, classes in options.shapes:
        result = measure(rows, classes, peers, own, device, 0 if options.check else options.turns)
        about["results"].append(result)
        for name, difference in result["against_ce"].items():
            agrees = difference.get("agrees", False)
            differ = differ or not agrees
            if is_first and not agrees:
                print(f"{rows} x {classes}: {name} differs from ce beyond its rounding: {difference}", flush=True)
        if is_first:
            print(json.dumps(result), flush=True)
            if options.out:
                options.out.write_text(json.dumps(about, indent=1) + "\n")
        if on_gpu:
            torch.cuda.empty_cache()
    compared_any = any(result["against_ce"] for result in about["results"])
    dist.destroy_process_group()
    return int(options.check and (differ or not compared_any))


if __name__ == "__main__":
    raise SystemExit(main())
