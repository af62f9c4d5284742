"""Training with and without ce: loss curves, step time, peak memory. On one GPU.

    python bench/python_training.py [--steps 200] [--out FILE]      # ce is torch's loss under ``ce.torch.patch()``
    python bench/python_training.py --head [--out FILE]             # ce is ``ce.torch.LinearCrossEntropy``

A small GPT on bytes of the text of this repository's documents, float32 master weights under bfloat16 autocast. torch
trains twice with the same seed, to show how far two runs of torch differ by themselves, then ce.

Under autocast torch rounds log-probabilities to bfloat16, and makes the gradient of these; ce does not. So the losses
which they report differ before any training, and torch trains twice more where it rounds as little as ce: with its
logits copied to float32, and with its loss compiled. How far these two differ is what kernels of one precision may.

What is compared is the loss that one evaluator finds of each run's parameters at each step: torch's own functions in
float32, without autocast and without a patch, with the loss in float64. It runs in a second training of each kind, so
that it takes no part in times and memory. What the runs report stands beside it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import cross_entropy as torch_cross_entropy  # also while F is patched

import ce.torch as ct
from python_calls import machine

Loss = Callable[[Tensor, Tensor], Tensor]


def in_float32(logits: Tensor, target: Tensor) -> Tensor:
    return torch_cross_entropy(logits.float(), target)


class Block(nn.Module):
    """Causal attention and a feed-forward network, each after a norm and beside a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Gpt(nn.Module):
    """Predicts the next byte. The output layer has `classes` classes, of which a text uses 256.

    head: what the output layer is. Both kinds begin with the same weight.
    """

    def __init__(
        self,
        classes: int,
        width: int,
        layers: int,
        heads: int,
        length: int,
        head: type[nn.Linear] = nn.Linear,
        loss: Loss | None = None,
    ) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(classes, width), nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), head(width, classes, bias=False)
        self.loss = loss

    def hidden(self, tokens: Tensor) -> Tensor:
        return self.norm(self.blocks(self.embedding(tokens) + self.position))

    def forward(self, tokens: Tensor, target: Tensor) -> Tensor:
        hidden = self.hidden(tokens)
        if isinstance(self.head, ct.LinearCrossEntropy):
            return self.head(hidden, target)
        loss = self.loss or F.cross_entropy  # which may be patched by now
        return loss(self.head(hidden).flatten(0, 1), target.flatten())


def text() -> Tensor:
    """All documents, one after the other."""
    documents = sorted(Path(__file__).parents[1].glob("docs/*.md"))
    return torch.tensor(list(b"\n".join(file.read_bytes() for file in documents)), dtype=torch.int64)


def loss_of(model: Gpt, tokens: Tensor, target: Tensor) -> Tensor:
    """The evaluator: the loss of the parameters, whatever the model's own is computed with."""
    with torch.no_grad(), torch.autocast(tokens.device.type, enabled=False):
        logits = F.linear(model.hidden(tokens), model.head.weight).flatten(0, 1)
        return torch_cross_entropy(logits.double(), target.flatten())


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def train(
    device: torch.device,
    steps: int,
    classes: int,
    batch: int,
    length: int,
    head: type[nn.Linear] = nn.Linear,
    loss: Loss | None = None,
    evaluate: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """
    Args:
        loss: of logits and targets; torch.nn.functional.cross_entropy, unless the head is the loss as well.
        evaluate: the evaluator looks at the parameters before each step; times and memory are then left out.

    Returns:
        "reported": the loss of each step as the model computes it. With evaluate "evaluated": as the evaluator does;
        else "step ms" and, of a GPU, "peak GiB".
    """
    torch.manual_seed(seed)
    model = Gpt(classes, width=512, layers=4, heads=8, length=length, head=head, loss=loss).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    data = text().to(device)
    generator = torch.Generator(device=device).manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    reported, evaluated, times = [], [], []
    for _ in range(steps):
        start = torch.randint(0, len(data) - length - 1, (batch,), device=device, generator=generator)
        window = data[start[:, None] + torch.arange(length + 1, device=device)]
        if evaluate:
            evaluated.append(loss_of(model, window[:, :-1], window[:, 1:]))
        synchronize(device)
        begin = time.perf_counter()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            value = model(window[:, :-1], window[:, 1:])
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        synchronize(device)
        times.append((time.perf_counter() - begin) * 1e3)
        reported.append(value.detach())
    found: dict[str, Any] = {"reported": torch.stack(reported).tolist()}
    if evaluate:
        return {**found, "evaluated": torch.stack(evaluated).tolist()}
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None
    return {**found, "step ms": statistics.median(times[steps // 10 :]), "peak GiB": peak}


def first_loss(device: torch.device, classes: int, batch: int, length: int, seed: int = 0) -> dict[str, float]:
    """The loss of a new model's first step, by torch and ce from the same logits, and how far from float64 it is."""
    torch.manual_seed(seed)
    model = Gpt(classes, width=512, layers=4, heads=8, length=length).to(device)
    window = text()[: batch * (length + 1)].view(batch, length + 1).to(device)
    logits: list[Tensor] = []
    model.head.register_forward_hook(lambda _, __, made: logits.append(made))
    with torch.autocast(device.type, dtype=torch.bfloat16), torch.no_grad():
        losses = {"torch": model(window[:, :-1], window[:, 1:])}
        with ct.patch():
            losses["ce"] = model(window[:, :-1], window[:, 1:])
    exact = torch_cross_entropy(logits[0].flatten(0, 1).double(), window[:, 1:].flatten())
    return {"float64": exact.item(), **{f"{name} beyond it": (loss - exact).item() for name, loss in losses.items()}}


def compared(curves: dict[str, list[float]]) -> dict[str, list[float]]:
    """Of the losses of all kinds, what tells whether ce differs from torch by more than torch."""

    def difference(a: str, b: str) -> list[float]:
        apart = [abs(x - y) for x, y in zip(curves[a], curves[b])]
        return [statistics.mean(apart), max(apart)]

    some = (0, len(curves["torch"]) // 2, -1)
    return {
        "loss of torch at steps 1, half, last": [curves["torch"][i] for i in some],
        "loss of ce at steps 1, half, last": [curves["ce"][i] for i in some],
        "difference of two runs of torch, mean and largest": difference("torch", "torch again"),
        "difference of ce and torch, mean and largest": difference("torch", "ce"),
        "difference of ce and torch in float32, mean and largest": difference("torch in float32", "ce"),
        "difference of torch compiled and torch in float32, mean and largest": difference(
            "torch in float32", "torch compiled"
        ),
    }


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument(
        "--classes", type=int, default=50304, help="classes of the output layer; a text uses 256 of them"
    )
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--head", action="store_true", help="use the output layer and its loss of ce in one call")
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu: to try the script at small sizes"
    )
    parser.add_argument("--out", help="write the figures here as JSON, too")
    arguments = parser.parse_args(given)
    device = torch.device(arguments.device)
    if device.type == "cpu":
        ct.configure(cpu="host")
    shape = (arguments.steps, arguments.classes, arguments.batch, arguments.length)
    own_head = ct.LinearCrossEntropy if arguments.head else nn.Linear
    if not arguments.head:
        ct.tune([(arguments.batch * arguments.length, arguments.classes)], loss_dtype=torch.float32, device=device)
    for head in {nn.Linear, own_head}:
        train(device, 3, *shape[1:], head)  # libraries and clocks warm up, and the head is tuned
    first = first_loss(device, *shape[1:])

    compiled = torch.compile(torch_cross_entropy)
    train(device, 3, *shape[1:], loss=compiled)

    def every_run(evaluate: bool) -> dict[str, dict[str, Any]]:
        runs = {name: train(device, *shape, evaluate=evaluate) for name in ("torch", "torch again")}
        for name, loss in (("torch in float32", in_float32), ("torch compiled", compiled)):
            runs[name] = train(device, *shape, loss=loss, evaluate=evaluate)
        with nullcontext() if arguments.head else ct.patch():
            runs["ce"] = train(device, *shape, own_head, evaluate=evaluate)
        return runs

    timed, looked_at = every_run(evaluate=False), every_run(evaluate=True)
    evaluated = {name: run["evaluated"] for name, run in looked_at.items()}
    reported = {name: run["reported"] for name, run in timed.items()}
    report = {
        "machine": machine() if device.type == "cuda" else {"device": "cpu", "torch": torch.__version__},
        "shape": dict(zip(("steps", "classes", "batch", "length"), shape)),
        "ce": "LinearCrossEntropy" if arguments.head else "patch",
        "runs": {name: {key: run[key] for key in ("step ms", "peak GiB")} for name, run in timed.items()},
        "losses by the evaluator": compared(evaluated),
        "losses as reported": {"from the logits of a new model": first, **compared(reported)},
    }
    print(json.dumps(report, indent=2))
    if arguments.out:
        curves = {"curves by the evaluator": evaluated, "curves as reported": reported}
        Path(arguments.out).write_text(json.dumps({**report, **curves}))


if __name__ == "__main__":
    main()
