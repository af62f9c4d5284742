"""What reinforcement learning asks of logits: log-probabilities of tokens and entropies, beside torch, TRL and Liger.

    python bench/python_rl.py [--shapes 4096x128256,8192x151936] [--dtypes bfloat16,float32] [--out FILE]

Times ct.selective_log_softmax and ct.logprobs_and_entropy, forward and forward with backward, against torch,
torch.compile, TRL's functions and Liger-Kernel's loss of rows (each where it can be imported), in turns in one process;
figures are medians. Needs the package (`pip install ./python`). Tunes first, for seconds, into the database that CE_DB
names. Without a GPU the kernels run on the host device: that shows that everything runs, and no speed.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import importlib
import json
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from own_version import own_version

import ce.torch as ct
from python_calls import gpu_us, machine

Call = Callable[[torch.Tensor, torch.Tensor], Any]


def torch_selective(logits: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return logits.log_softmax(-1).gather(-1, index.unsqueeze(-1)).squeeze(-1)


def torch_both(logits: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    logarithms = logits.log_softmax(-1)
    return logarithms.gather(-1, index.unsqueeze(-1)).squeeze(-1), -(logarithms.exp() * logarithms).sum(-1)


def fusible_selective(logits: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """So that a compiler needs no row of logarithms."""
    x = logits.float()
    return x.gather(-1, index.unsqueeze(-1)).squeeze(-1) - torch.logsumexp(x, -1)


def fusible_both(logits: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = logits.float()
    lse = torch.logsumexp(x, -1)
    entropy = lse - (torch.exp(x - lse.unsqueeze(-1)) * x).sum(-1)
    return x.gather(-1, index.unsqueeze(-1)).squeeze(-1) - lse, entropy


def module(name: str) -> Any:
    """None where it cannot be imported."""
    try:
        return importlib.import_module(name)
    except Exception as error:
        print(f"{name} is not measured: {error}")
        return None


def competitors(on_gpu: bool) -> dict[str, dict[str, Call]]:
    """By what they compute, then by whose they are. The first is what ratios are to."""
    selective: dict[str, Call] = {"ce": ct.selective_log_softmax, "torch": torch_selective}
    both: dict[str, Call] = {"ce": ct.logprobs_and_entropy, "torch": torch_both}
    if on_gpu:
        # The better of two ways to write it.
        for name, choices in (("torch.compile", (torch_selective, torch_both)), ("torch.compile, by logsumexp", None)):
            one, two = choices or (fusible_selective, fusible_both)
            selective[name] = torch.compile(one, dynamic=False)
            both[name] = torch.compile(two, dynamic=False)
    if not on_gpu:
        if (utils := module("trl.trainer.utils")) is not None:
            selective["trl"] = utils.selective_log_softmax
            both["trl"] = lambda x, index: (utils.selective_log_softmax(x, index), utils.entropy_from_logits(x))
    elif (kernels := module("trl.kernels")) is not None:
        # What TRL's functions call for tensors of a GPU.
        selective["trl"] = lambda x, index: kernels.selective_log_softmax_and_entropy(x, index)[0]
        both["trl"] = kernels.selective_log_softmax_and_entropy
    if on_gpu and (liger := module("liger_kernel.transformers.functional")) is not None:
        selective["liger"] = lambda x, index: liger.liger_cross_entropy(
            x.view(-1, x.shape[-1]), index.reshape(-1), reduction="none"
        )
    return {"selective_log_softmax": selective, "logprobs_and_entropy": both}


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


def warm_up(call: Callable[[], object], on_gpu: bool) -> float:
    """Until nothing is compiled or tuned any more. Returns the MiB of the peak beside what was there."""
    for _ in range(3):
        call()
    if not on_gpu:
        return 0.0
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def measure(calls: dict[str, Callable[[], object]], rounds: int, on_gpu: bool) -> dict[str, dict[str, float]]:
    """Median microseconds of each, one of each after the other, and the peak of memory."""
    timer = gpu_us if on_gpu else cpu_us
    peaks: dict[str, float] = {}
    for name, call in calls.items():
        try:
            peaks[name] = warm_up(call, on_gpu)
        except Exception as error:
            print(f"  {name} is not measured: {str(error).splitlines()[0]}")
    times: dict[str, list[float]] = {name: [] for name in peaks}
    for _ in range(rounds):
        for name in peaks:
            times[name].append(timer(calls[name]))
    return {
        name: {"us": statistics.median(taken), **({"peak MiB": peaks[name]} if on_gpu else {})}
        for name, taken in times.items()
    }


def compare(sizes: tuple[int, ...], dtype: str, rounds: int, on_gpu: bool) -> dict[str, Any]:
    device = "cuda" if on_gpu else "cpu"
    index = torch.randint(0, sizes[-1], sizes[:-1], device=device)
    figures: dict[str, Any] = {}
    for what, functions in competitors(on_gpu).items():
        torch.compiler.reset()
        # Liger-Kernel writes the gradient over the logits.
        logits = {
            name: torch.randn(sizes, device=device, dtype=getattr(torch, dtype))
            for name in ("liger", "all others")
            if name in (*functions, "all others")
        }
        made = {
            name: steps(function, logits.get(name, logits["all others"]), index) for name, function in functions.items()
        }
        for step in ("forward", "forward and backward"):
            found = measure({name: calls[step] for name, calls in made.items()}, rounds, on_gpu)
            figures[f"{what}, {step}"] = found
            print(f"{what}, {step}:")
            for name, one in found.items():
                ratio = one["us"] / found["ce"]["us"]
                peak = f", {one['peak MiB']:.0f} MiB more at the peak" if on_gpu else ""
                print(f"  {name:28} {one['us'] / 1e3:10.3f} ms, {ratio:6.2f} times ce{peak}", flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="4096x128256,8192x151936,4096x32000", help="ROWSxCOLUMNS, ...")
    parser.add_argument("--dtypes", default="bfloat16,float32")
    parser.add_argument("--batch", type=int, default=8, help="number of sequences that the rows belong to")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", help="write the figures here as JSON, too")
    arguments = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    if not on_gpu:
        ct.configure(cpu="host")
    own = {"gpu": "no GPU, " + platform.machine(), "driver": "none"}
    own |= {"ce": own_version(), "torch": torch.__version__}
    about = machine() if on_gpu else {**own, "date": datetime.date.today().isoformat()}
    print(f"{about['gpu']}, driver {about['driver']}, PyTorch {about['torch']}, {about['date']}")
    results: list[dict[str, Any]] = []
    for shape in arguments.shapes.split(","):
        rows, columns = (int(size) for size in shape.split("x"))
        if rows % arguments.batch:
            parser.error(f"--shapes has {rows} rows; expected a multiple of --batch, {arguments.batch}")
        sizes = (arguments.batch, rows // arguments.batch, columns)
        for dtype in arguments.dtypes.split(","):
            print(f"\n{list(sizes)} {dtype}, medians of {arguments.rounds} rounds in turns")
            figures = compare(sizes, dtype, arguments.rounds, on_gpu)
            results.append({"sizes": sizes, "dtype": dtype, "figures": figures})
            if on_gpu:
                gc.collect()
                torch.cuda.empty_cache()
            if arguments.out:
                with open(arguments.out, "w") as file:
                    json.dump({"machine": about, "results": results}, file, indent=2)


if __name__ == "__main__":
    main()
