"""The loss of a linear layer with its gradients beside the three products alone, torch and other libraries.

    python bench/linear.py --out linear.json [--shapes 8192x4096x128256,...] [--only ce-4g,quack] [--turns 8]
    python bench/linear.py --only ce-4g --chunks 8192,4096,2048     # what the race of chunks chooses from
    python bench/linear.py --only ce-4g --forms             # gradients of logits and of exponentials, in turns
    python bench/linear.py --forward --out forward.json       # the loss without gradients alone
    python bench/linear.py --check [--shapes 64x32x500]       # times nothing; also without a GPU
    python bench/linear.py --accuracy 4096x2048x32000 --out accuracy.json

Shapes are TOKENSxHIDDENxCLASSES. Products of this size are limited by the GPU's power, so that only times of one run
compare: all that is timed takes turns. A time is the median over the turns, with the gradients and of the forward
alone, and the memory beside it what a step takes beyond its inputs and results. `products` is the best that cuBLASLt
can do (cublaslt.py), `products-torch` what torch.mm() does. Before anything is timed, each loss and gradient is
compared with that of ce; what differs by more than rounding is said, and timed all the same.

--limit S: a shape that is not expected to end within S seconds is left out, and named. --accuracy also says how far
gradients are from float64.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from gpu_timer import beyond_bytes
from linear_peers import (
    CHUNK,
    FIRST_S,
    LOADERS,
    ONCE_S,
    OVER_PRODUCTS,
    Peer,
    add_chunks,
    add_forms,
    by_autograd,
    in_chunks,
    load,
)
from own_version import own_version
from torch import Tensor

import ce.torch as ct
from python_calls import machine

SHAPES = "8192x4096x128256,16384x2048x151936,8192x2304x256000,16384x4096x32000,4096x8192x128256"
ACCURACY_SHAPE = "4096x2048x32000"
GIB = 1 << 30
STEPS = 3  # of a turn, of which the first warms up
REFERENCE = "ce-4g"
# Between gradients that were each rounded to bf16, from logits that were; sums over many chunks that are rounded each
# time are as far off as twice that. A loss that is itself bf16, the mean of such, has eight bits.
GRADIENT_TOLERANCE, LOSS_TOLERANCE, BF16_LOSS_TOLERANCE = 2.0**-6, 1e-4, 2.0**-7
FLOPS = 500e12  # of an H100 or H200 that has become warm


@dataclass(frozen=True)
class Shape:
    tokens: int
    hidden: int
    classes: int

    def __str__(self) -> str:
        return f"{self.tokens}x{self.hidden}x{self.classes}"

    def product_s(self) -> float:
        return 2.0 * self.tokens * self.hidden * self.classes / FLOPS


@dataclass
class Batch:
    """A layer whose logits are about a standard normal distribution's, and targets."""

    x: Tensor
    w: Tensor
    target: Tensor

    @classmethod
    def random(cls, shape: Shape, device: torch.device) -> Batch:
        torch.manual_seed(0)

        def leaf(rows: int, scale: float) -> Tensor:
            return (torch.randn(rows, shape.hidden, device=device) * scale).bfloat16().requires_grad_()

        x, w = leaf(shape.tokens, 1.0), leaf(shape.classes, shape.hidden**-0.5)
        return cls(x, w, torch.randint(0, shape.classes, (shape.tokens,), device=device))

    def frozen(self) -> Batch:
        return Batch(self.x.detach(), self.w.detach(), self.target)

    def gradient_bytes(self) -> int:
        return sum(one.numel() * one.element_size() for one in (self.x, self.w))


def distance(made: Tensor, wanted: Tensor) -> float:
    """Relative, in the Euclidean norm."""
    of_difference = of_wanted = 0.0
    for a, b in zip(made.split(8192), wanted.split(8192)):
        wide = b.double()
        of_difference += (a.double() - wide).square().sum().item()
        of_wanted += wide.square().sum().item()
    return math.sqrt(of_difference / of_wanted) if of_wanted > 0 else math.inf


def said(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def compared(run: Callable[[], Any], reference: tuple[Tensor, ...]) -> dict[str, Any]:
    """How far a loss, and its gradients where there are any, are from those of ce."""
    try:
        made = run()
        loss, *gradients = made if isinstance(made, tuple) else (made,)
    except Exception as error:  # a library may raise anything
        return {"failed": said(error)}
    of_loss = abs(loss.double() / reference[0].double() - 1).item()
    of_gradients = [distance(one, wanted) for one, wanted in zip(gradients, reference[1:])]
    tolerance = BF16_LOSS_TOLERANCE if loss.dtype is torch.bfloat16 else LOSS_TOLERANCE
    # NaN is no agreement.
    agrees = of_loss <= tolerance and all(one <= GRADIENT_TOLERANCE for one in of_gradients)
    return {"loss": of_loss, **dict(zip(("input_grad", "weight_grad"), of_gradients)), "agrees": agrees}


def run_of(peer: Peer, batch: Batch, with_gradients: bool) -> Callable[[], Any]:
    if with_gradients:
        return lambda: peer.step(batch.x, batch.w, batch.target)
    frozen = batch.frozen()

    def forward() -> Tensor:
        with torch.no_grad():
            return peer.loss(frozen.x, frozen.w, frozen.target)

    return forward


def gradient_of_logits(batch: Batch) -> Tensor:
    """What a step multiplies with: the power that a product takes depends on its numbers."""
    x, w = batch.x.detach(), batch.w.detach()
    gradient = x.new_empty(x.shape[0], w.shape[0])
    for start in range(0, x.shape[0], CHUNK):
        rows = slice(start, start + CHUNK)
        gradient[rows] = torch.softmax(torch.mm(x[rows], w.t()).float(), -1) / x.shape[0]
    gradient[torch.arange(x.shape[0], device=x.device), batch.target] -= 1 / x.shape[0]
    return gradient


class ProductsAlone:
    """The products of a step into memory of their own: by torch, and by the best of cuBLASLt's algorithms."""

    def __init__(self, batch: Batch) -> None:
        x, w = batch.x.detach(), batch.w.detach()
        gradient = gradient_of_logits(batch)
        logits, dx, dw = torch.empty_like(gradient), torch.empty_like(x), torch.empty_like(w)
        self.operands = [(x, w.t(), logits), (gradient, w, dx), (gradient.t(), x, dw)]
        self.best: list[Callable[[], None]] = []
        self.failed = ""
        try:
            from cublaslt import Products

            library = Products()
            self.best = [library.best(*operands) for operands in self.operands]
        except Exception as error:  # the bench goes on without
            self.failed = said(error)

    def runs(self, with_gradients: bool) -> dict[str, Callable[[], Any]]:
        count = 3 if with_gradients else 1

        def torchs() -> None:
            for a, b, out in self.operands[:count]:
                torch.mm(a, b, out=out)

        def best() -> None:
            for product in self.best[:count]:
                product()

        return {"products": best, "products-torch": torchs} if self.best else {"products-torch": torchs}


def in_turns(runs: dict[str, Callable[[], Any]], turns: int) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Milliseconds, and what failed on the way. Each turn begins with another, so that none always follows the same."""
    samples: dict[str, list[float]] = {name: [] for name in runs}
    failed: dict[str, str] = {}
    names = list(runs)
    for turn in range(turns):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            if name in failed:
                continue
            try:
                samples[name] += samples_ms(runs[name])
            except Exception as error:  # a library may raise anything
                failed[name] = said(error)
    return {name: samples[name] for name in names if name not in failed}, failed


def samples_ms(run: Callable[[], Any]) -> list[float]:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    samples = []
    for _ in range(STEPS):
        start.record()
        made = run()
        end.record()
        end.synchronize()
        del made
        samples.append(start.elapsed_time(end))
    return samples[1:]


def timed(
    batch: Batch, peers: list[Peer], products: ProductsAlone, with_gradients: bool, turns: int
) -> dict[str, dict[str, Any]]:
    """By name: what bench/linear_tables.py reads."""
    results: dict[str, dict[str, Any]] = {}
    runs = products.runs(with_gradients)
    if products.failed:
        results["products"] = {"error": products.failed}
    for peer in peers:
        run = run_of(peer, batch, with_gradients)
        try:
            run()  # tunes and compiles
            run()
            results[peer.name] = {"beyond_bytes": beyond_bytes(run, batch.gradient_bytes() if with_gradients else 0)}
            runs[peer.name] = run
        except Exception as error:  # what a library refuses is told
            results[peer.name] = {"error": said(error)}
        torch.cuda.empty_cache()
    samples, failed = in_turns(runs, turns)
    for name, times in samples.items():
        results.setdefault(name, {}).update(median_ms=statistics.median(times), samples_ms=times)
    results |= {name: {"error": error} for name, error in failed.items()}
    baseline = results["products" if "products" in samples else "products-torch"]["median_ms"]
    for one in results.values():
        if "median_ms" in one:
            one["over_products"] = round(one["median_ms"] / baseline, 4)
    return results


def show(shape: Shape, with_gradients: bool, results: dict[str, dict[str, Any]]) -> None:
    print(shape, "forward and gradients" if with_gradients else "forward alone")
    for name, one in results.items():
        if "error" in one:
            print(f"  {name:16} {one['error']}")
            continue
        memory = f"{one['beyond_bytes'] / GIB:6.2f} GiB" if "beyond_bytes" in one else ""
        print(f"  {name:16} {one['median_ms']:8.2f} ms  {one['over_products']:6.3f}  {memory}", flush=True)


def measure(shape: Shape, names: list[str], turns: int, device: torch.device, forward_alone: bool = False
            ) -> tuple[list[dict[str, Any]], bool]:  # fmt: skip
    """Entries of the document, and whether all agree with ce. turns: 0 only compares."""
    torch.compiler.reset()  # what compiles does so for this shape
    batch = Batch.random(shape, device)
    peers, _ = load(names)
    (own,), _ = load([REFERENCE])
    made = run_of(own, batch, not forward_alone)()
    reference = made if isinstance(made, tuple) else (made,)
    against: dict[str, dict[str, Any]] = {}
    for peer in peers:
        if peer.name == REFERENCE:
            continue
        against[peer.name] = compared(run_of(peer, batch, not forward_alone), reference)
        if not against[peer.name].get("agrees", False):
            print(f"{shape}: {peer.name} differs from ce by more than rounding: {against[peer.name]}", flush=True)
        if device.type == "cuda":
            torch.cuda.empty_cache()
    del made, reference
    agree = all(one.get("agrees", False) for one in against.values())
    entries = [{"shape": str(shape), "gradients": not forward_alone, "against_ce": against, "results": {}}]
    if turns:
        if not forward_alone:
            entries.append({"shape": str(shape), "gradients": False, "results": {}})
        products = ProductsAlone(batch)
        for entry in entries:
            entry["results"] = timed(batch, peers, products, entry["gradients"], turns)
            show(shape, entry["gradients"], entry["results"])
    return entries, agree


def estimate_s(shape: Shape, names: list[str], turns: int, is_first: bool, forward_alone: bool) -> float:
    """Seconds that a shape takes, on an H100 or H200."""
    first = sum(FIRST_S.get(name, 2) + is_first * ONCE_S.get(name, 0) for name in names)
    steps = sum(OVER_PRODUCTS.get(name, 1.15) for name in [*names, "products", "products-torch"])
    # Forward and gradients are three products, the forward alone is one, and both are timed unless one is asked for;
    # comparing and warming are some six steps.
    of_steps = (1 if forward_alone else 4) * shape.product_s() * steps * (turns * STEPS + 6)
    of_algorithms = (1 if forward_alone else 3) * 32 * 4 * shape.product_s()
    return 5 + first + of_steps + of_algorithms


def in_f64(batch: Batch, tokens: int = 1024) -> tuple[Tensor, Tensor, Tensor]:
    """Loss and gradients, chunk by chunk."""
    x, w = batch.x.detach(), batch.w.detach().double()
    total, dx, dw = x.new_zeros((), dtype=torch.float64), torch.empty_like(x, dtype=torch.float64), torch.zeros_like(w)
    for start in range(0, x.shape[0], tokens):
        rows = slice(start, start + tokens)
        own, target = x[rows].double(), batch.target[rows]
        gradient = torch.log_softmax(own @ w.t(), -1)
        total += F.nll_loss(gradient, target, reduction="sum") / x.shape[0]
        gradient.exp_()
        gradient[torch.arange(own.shape[0], device=x.device), target] -= 1
        gradient /= x.shape[0]
        dx[rows] = gradient @ w
        dw += gradient.t() @ own
    return total, dx, dw


def accuracy_paths(names: list[str], chunk: int) -> Iterator[tuple[str, Any]]:
    """Ways to make the gradients, by name. torch's with `f32-softmax` is what ce's are to be no further off than."""
    for tokens, logits in ((None, None), (chunk, None), (None, torch.float32), (chunk, torch.float32)):

        def loss(x: Tensor, w: Tensor, t: Tensor, tokens: Any = tokens, logits: Any = logits) -> Tensor:
            options = {"chunk_tokens": tokens, "logits_dtype": logits, "accumulate": torch.float32 if tokens else None}
            return ct.linear_cross_entropy(x, w, t, loss_dtype=torch.float32, exponentials=False, **options)

        name = "ce" + (f"-chunks-of-{tokens}" if tokens else "") + ("-f32-logits" if logits else "")
        yield name, by_autograd(loss)

    def of_exponentials(x: Tensor, w: Tensor, t: Tensor) -> Tensor:
        return ct.linear_cross_entropy(x, w, t, loss_dtype=torch.float32, exponentials=True)

    yield "ce-exponentials", by_autograd(of_exponentials)

    def upcast(x: Tensor, target: Tensor, w: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(x, w).float(), target)

    def all_f32(x: Tensor, target: Tensor, w: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(x.float(), w.float()), target)

    yield f"torch-chunks-of-{chunk}-f32-softmax", in_chunks(upcast, chunk)[1]
    yield f"torch-chunks-of-{chunk}-f32-products", in_chunks(all_f32, chunk)[1]
    for peer in load([name for name in names if not name.startswith(("ce-", "torch-chunked"))])[0]:
        yield peer.name, peer.step


def accuracy(shape: Shape, names: list[str], device: torch.device) -> dict[str, Any]:
    """How far losses and gradients are from float64, each of the same bf16 inputs."""
    torch.compiler.reset()
    batch = Batch.random(shape, device)
    loss, *gradients = in_f64(batch)
    paths: dict[str, Any] = {}
    for name, step in accuracy_paths(names, max(1, shape.tokens // 8)):
        try:
            made_loss, *made = step(batch.x, batch.w, batch.target)
        except Exception as error:  # a library may raise anything
            paths[name] = {"failed": said(error)}
        else:
            largest = [((a.double() - b).abs().max() / b.abs().max()).item() for a, b in zip(made, gradients)]
            paths[name] = {
                "loss": abs(made_loss.double() / loss - 1).item(),
                "input_grad": distance(made[0], gradients[0]),
                "weight_grad": distance(made[1], gradients[1]),
                "input_grad_max": largest[0],
                "weight_grad_max": largest[1],
            }
        print(f"{name:32} {json.dumps(paths[name])}", flush=True)
    return {"shape": str(shape), "distance_from_f64": paths}


def shapes_of(text: str) -> list[Shape]:
    shapes = [Shape(*map(int, one.split("x"))) for one in text.split(",")]
    return shapes


def about(device: torch.device, names: list[str]) -> dict[str, Any]:
    """What the document says of a run, whatever it measures."""
    peers, missing = load(names)
    for name, reason in missing.items():
        print(f"not measured: {name}: {reason}", flush=True)
    of_host = {"gpu": "none", "ce": own_version(), "torch": torch.__version__}
    return {
        "machine": machine() if device.type == "cuda" else of_host,
        "versions": {peer.name: peer.version for peer in peers},
        "missing": missing,
        "tolerance": {"loss": LOSS_TOLERANCE, "bf16_loss": BF16_LOSS_TOLERANCE, "gradients": GRADIENT_TOLERANCE},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=shapes_of, default=SHAPES, help=f"(default: {SHAPES})")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--only", default="", help=f"libraries of {', '.join(LOADERS)} (default: all)")
    parser.add_argument("--chunks", default="", metavar="TOKENS,...",
                        help="also time ce with chunks of N tokens, in 4 GiB as ce-4g does")  # fmt: skip
    parser.add_argument("--forms", action="store_true",
                        help="also time ce with gradients of logits and of exponentials, in 4 GiB and "
                        "512 MiB")  # fmt: skip
    parser.add_argument(
        "--limit", type=float, default=520.0, metavar="S", help="seconds that all shapes may take (default: 520)"
    )
    parser.add_argument("--forward", action="store_true", help="time only the loss without gradients")
    parser.add_argument(
        "--check",
        action="store_true",
        help="only compare results with those of ce; the exit status is 1 if one differs or fails",
    )
    parser.add_argument("--accuracy", nargs="?", type=shapes_of, const=ACCURACY_SHAPE, metavar="SHAPE",
                        help=f"only measure distances from float64 (default: {ACCURACY_SHAPE})")  # fmt: skip
    parser.add_argument("--out", type=Path, help="JSON file, rewritten after each shape")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(LOADERS)
    if unknown := sorted({*names} - {*LOADERS}):
        parser.error(f"--only: {', '.join(unknown)} is none of {', '.join(LOADERS)}")
    try:
        names += [add_chunks(int(tokens)) for tokens in options.chunks.split(",") if tokens]
    except ValueError:
        parser.error(f"--chunks: {options.chunks} is no list of numbers")
    if options.forms:
        names += add_forms()
    if options.turns < 1:
        parser.error("--turns: expected 1 or more")
    on_gpu = torch.cuda.is_available()
    if not on_gpu:
        if not (options.check or options.accuracy):
            parser.error("torch sees no GPU; without a GPU only --check and --accuracy work")
        ct.configure(policy="lookup", cpu="host")
    device = torch.device("cuda" if on_gpu else "cpu")
    document = about(device, names)
    names = list(document["versions"])

    def write() -> None:
        if options.out:
            options.out.write_text(json.dumps(document, indent=1) + "\n")

    if options.accuracy:
        accuracy_shapes = shapes_of(options.accuracy) if isinstance(options.accuracy, str) else options.accuracy
        document["accuracy"] = [accuracy(shape, names, device) for shape in accuracy_shapes]
        write()
        return 0
    document["measured"] = []
    begin, agree, left_out = time.monotonic(), True, []
    turns = 0 if options.check else options.turns
    for shape in options.shapes:
        estimate = estimate_s(shape, names, turns, not document["measured"], options.forward)
        spent = time.monotonic() - begin
        if turns and spent + estimate > options.limit:
            left_out.append(str(shape))
            continue
        print(f"{shape}: some {estimate:.0f} s, after {spent:.0f} s", flush=True)
        entries, all_agree = measure(shape, names, turns, device, options.forward)
        agree = agree and all_agree
        document["measured"] += entries
        write()
        if on_gpu:
            torch.cuda.empty_cache()
    if left_out:
        print(f"left out, for lack of time: --shapes {','.join(left_out)}", flush=True)
    any_compared = any(entry.get("against_ce") for entry in document["measured"])
    return int(options.check and not (agree and any_compared))


if __name__ == "__main__":
    raise SystemExit(main())
