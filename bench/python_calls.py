"""What ce.torch costs beside torch: host time of a warm call, GPU time of a step, peak memory. In turns, on one GPU.

    python bench/python_calls.py [--out FILE]

Needs the package (`pip install ./python`) and a GPU. Tunes first, for seconds, into the database that CE_DB names.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import statistics
import subprocess
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from own_version import own_version

import ce.array
import ce.torch as ct
from ce import _c
from ce.torch import _native, _reference


def host_us(call: Callable[[], object], calls: int = 300) -> float:
    """Microseconds of the CPU for one call; the GPU is done sooner than the CPU asks again."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls * 1e6


def gpu_us(call: Callable[[], object]) -> float:
    """Microseconds of the GPU for one call, which it begins when the CPU has long asked for all of it."""
    torch.cuda._sleep(2_000_000)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


def in_turns(measure: Callable[..., float], calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median of each, one of each after the other."""
    for call in calls.values():
        for _ in range(5):
            call()
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            found[name].append(measure(call))
    return {name: statistics.median(times) for name, times in found.items()}


def small_calls() -> dict[str, dict[str, float]]:
    """Host time of calls on 64 x 1024 float32; a linear layer has 64 hidden states before them."""
    x = torch.randn(64, 1024, device="cuda")
    leaf = x.clone().requires_grad_()
    target = torch.randint(0, 1024, (64,), device="cuda")

    def with_backward(function: Callable[..., torch.Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(function(leaf, target), leaf)

    hidden, head = (torch.randn(rows, 64, device="cuda") for rows in (64, 1024))
    hidden_leaf, head_leaf = leaves = [one.clone().requires_grad_() for one in (hidden, head)]

    def of_torch(input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(F.linear(input, weight), target)

    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "softmax": (lambda: ct.softmax(x, -1), lambda: F.softmax(x, -1)),
        "softmax, gradient wanted": (lambda: ct.softmax(leaf, -1), lambda: F.softmax(leaf, -1)),
        "cross entropy": (lambda: ct.cross_entropy(x, target), lambda: F.cross_entropy(x, target)),
        "cross entropy, gradient wanted": (
            lambda: ct.cross_entropy(leaf, target),
            lambda: F.cross_entropy(leaf, target),
        ),
        "cross entropy and backward": (with_backward(ct.cross_entropy), with_backward(F.cross_entropy)),
        "linear cross entropy": (
            lambda: ct.linear_cross_entropy(hidden, head, target),
            lambda: of_torch(hidden, head),
        ),
        "linear cross entropy, gradient wanted": (
            lambda: ct.linear_cross_entropy(hidden_leaf, head_leaf, target),
            lambda: of_torch(hidden_leaf, head_leaf),
        ),
        "linear cross entropy and backward": (
            lambda: torch.autograd.grad(ct.linear_cross_entropy(*leaves, target), leaves),
            lambda: torch.autograd.grad(of_torch(*leaves), leaves),
        ),
    }
    return {name: in_turns(host_us, {"ce": own, "torch": torchs}, rounds=21) for name, (own, torchs) in pairs.items()}


def c_call(logits: torch.Tensor, target: torch.Tensor) -> Callable[[], object]:
    """Loss and gradient through the C interface, into memory of their own."""
    rows, columns = logits.shape

    def tensor(of: torch.Tensor, dtype: int, columns: int) -> _c.Tensor:
        return _c.Tensor(
            data=of.data_ptr(),
            dtype=dtype,
            rows=of.numel() // columns,
            columns=columns,
            row_stride=_c.CONTIGUOUS,
            column_stride=1,
        )

    grad, loss = torch.empty_like(logits), torch.empty((), dtype=logits.dtype, device="cuda")
    lse = torch.empty(rows, device="cuda")
    views = {
        "logits": tensor(logits, _c.BF16, columns),
        "target": tensor(target, _c.I64, 1),
        "loss": tensor(loss, _c.BF16, 1),
        "lse": tensor(lse, _c.F32, 1),
        "grad": tensor(grad, _c.BF16, columns),
    }
    tensors = ce.array._CrossEntropyTensors(**{name: ctypes.pointer(view) for name, view in views.items()})
    context = _native.context(torch.cuda.current_device())
    keep = (grad, loss, lse, views)

    def call() -> object:
        stream = torch.cuda.current_stream().cuda_stream
        _c.require(_c.library().ce_cross_entropy(context, None, ctypes.byref(tensors), stream, None))
        return keep

    return call


def step(
    function: Callable[..., torch.Tensor], leaf: torch.Tensor, target: torch.Tensor, factor: float = 1.0
) -> Callable[[], object]:
    upstream = torch.full((), factor, device="cuda", dtype=leaf.dtype)
    return lambda: torch.autograd.grad(function(leaf, target), leaf, upstream)


def large_step(rows: int, columns: int) -> dict[str, dict[str, float]]:
    """GPU time and peak memory beside the logits of loss and gradient, bfloat16."""
    leaf = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16).requires_grad_()
    target = torch.randint(0, columns, (rows,), device="cuda")
    calls = {
        "ce, C call": c_call(leaf.detach(), target),
        "ce.torch": step(ct.cross_entropy, leaf, target),
        "ce.torch, upstream 0.5": step(ct.cross_entropy, leaf, target, 0.5),
        "ce.torch, from logsumexp": step(
            lambda x, t: torch.ops.ce.cross_entropy(
                x, t, None, None, None, None, *_reference.Options(), *_reference.flags_of("logprob")
            )[0],
            leaf,
            target,
        ),
        "torch": step(F.cross_entropy, leaf, target),
        "copy of the logits": lambda: leaf.detach().clone(),
    }
    times = in_turns(gpu_us, calls, rounds=15)
    memory = {}
    for name, call in calls.items():
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        memory[name] = (torch.cuda.max_memory_allocated() - before) / leaf.numel() / leaf.element_size()
    return {name: {"us": times[name], "peak over logits": memory[name]} for name in calls}


def machine() -> dict[str, str]:
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split("\n")[0]
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": driver,
        "ce": own_version(),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "date": datetime.date.today().isoformat(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="write the figures here as JSON, too")
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--columns", type=int, default=128256)
    arguments = parser.parse_args()
    found = {"machine": machine(), "host us of a warm call, 64 x 1024 f32": small_calls()}
    name = f"loss and gradient, {arguments.rows} x {arguments.columns} bf16"
    found[name] = large_step(arguments.rows, arguments.columns)
    print(json.dumps(found, indent=2))
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump(found, file, indent=2)


if __name__ == "__main__":
    main()
