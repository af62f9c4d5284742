"""What reinforcement learning asks of logits: log-probabilities of tokens and entropies, beside torch and TRL.

    python bench/python_rl.py [--rows 8192] [--columns 128256] [--dtype bfloat16] [--out FILE]

Times ct.selective_log_softmax and ct.logprobs_and_entropy, forward and forward with backward, against plain torch and
TRL's functions (where trl is installed), in turns in one process; figures are medians. Needs the package (`pip install
./python`). Tunes first, for seconds, into the database that CE_DB names. Without a GPU the kernels run on the host
device: that shows that everything runs, and no speed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import ce.torch as ct
from python_calls import gpu_us, machine

Call = Callable[[torch.Tensor, torch.Tensor], Any]


def torch_selective(logits: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return logits.log_softmax(-1).gather(-1, index.unsqueeze(-1)).squeeze(-1)


def torch_both(logits: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    logarithms = logits.log_softmax(-1)
    return logarithms.gather(-1, index.unsqueeze(-1)).squeeze(-1), -(logarithms.exp() * logarithms).sum(-1)


def competitors(on_gpu: bool) -> dict[str, dict[str, Call]]:
    """By what they compute, then by whose they are. The first is what ratios are to."""
    found: dict[str, dict[str, Call]] = {
        "selective_log_softmax": {"ce": ct.selective_log_softmax, "torch": torch_selective},
        "logprobs_and_entropy": {"ce": ct.logprobs_and_entropy, "torch": torch_both},
    }
    try:
        from trl.trainer import utils
    except ImportError:
        return found
    found["selective_log_softmax"]["trl"] = utils.selective_log_softmax
    found["logprobs_and_entropy"]["trl"] = lambda x, index: (
        utils.selective_log_softmax(x, index),
        utils.entropy_from_logits(x),
    )
    fused = getattr(utils, "_fused_logprob_entropy", None)
    if fused is not None and on_gpu:
        found["logprobs_and_entropy"]["trl, fused"] = fused
    return found


def cpu_us(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e6


def steps(function: Call, logits: torch.Tensor, index: torch.Tensor) -> dict[str, Callable[[], object]]:
    """The forward alone, and with the backward of all that it returns."""
    leaf = logits.detach().requires_grad_()
    upstreams: list[torch.Tensor] = []

    def forward() -> object:
        with torch.no_grad():
            return function(logits, index)

    def backward() -> object:
        made = function(leaf, index)
        results = made if isinstance(made, tuple) else (made,)
        if not upstreams:
            upstreams.extend(torch.rand_like(x) for x in results)
        return torch.autograd.grad(results, leaf, upstreams)

    return {"forward": forward, "forward and backward": backward}


def measure(calls: dict[str, Callable[[], object]], rounds: int, on_gpu: bool) -> dict[str, dict[str, float]]:
    """Median microseconds of each, one of each after the other, and the peak of memory beside what was there."""
    timer = gpu_us if on_gpu else cpu_us
    peaks: dict[str, float] = {}
    for name, call in calls.items():
        for _ in range(3):
            call()
        if on_gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            call()
            peaks[name] = (torch.cuda.max_memory_allocated() - before) / 2**20
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(timer(call))
    return {
        name: {"us": statistics.median(taken), **({"peak MiB": peaks[name]} if on_gpu else {})}
        for name, taken in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--columns", type=int, default=128256)
    parser.add_argument("--batch", type=int, default=8, help="sequences that the rows are of")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", help="write the figures here as JSON, too")
    arguments = parser.parse_args()
    if arguments.rows % arguments.batch:
        parser.error(f"--rows is {arguments.rows}; expected a multiple of --batch, {arguments.batch}")
    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    if not on_gpu:
        ct.configure(cpu="host")
    own = {"gpu": "no GPU, " + platform.machine(), "driver": "none", "torch": torch.__version__}
    about = machine() if on_gpu else {**own, "date": datetime.date.today().isoformat()}
    sizes = (arguments.batch, arguments.rows // arguments.batch, arguments.columns)
    logits = torch.randn(sizes, device=device, dtype=getattr(torch, arguments.dtype))
    index = torch.randint(0, arguments.columns, sizes[:-1], device=device)
    print(f"{about['gpu']}, driver {about['driver']}, PyTorch {about['torch']}, {about['date']}")
    print(f"{list(sizes)} {arguments.dtype}, medians of {arguments.rounds} rounds in turns")
    figures: dict[str, Any] = {}
    for what, functions in competitors(on_gpu).items():
        made = {name: steps(function, logits, index) for name, function in functions.items()}
        for step in ("forward", "forward and backward"):
            found = measure({name: calls[step] for name, calls in made.items()}, arguments.rounds, on_gpu)
            figures[f"{what}, {step}"] = found
            print(f"{what}, {step}:")
            for name, one in found.items():
                ratio = one["us"] / found["ce"]["us"]
                peak = f", {one['peak MiB']:.0f} MiB more at the peak" if on_gpu else ""
                print(f"  {name:10} {one['us'] / 1e3:10.3f} ms, {ratio:6.2f} times ce{peak}")
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump({"machine": about, "sizes": sizes, "dtype": arguments.dtype, "figures": figures}, file, indent=2)


if __name__ == "__main__":
    main()
