"""Training with and without ce: loss curves, step time, peak memory. On one GPU.

    python bench/python_training.py [--steps 200] [--out FILE]      # ce is torch's loss under ``ce.torch.patch()``
    python bench/python_training.py --head [--out FILE]             # ce is ``ce.torch.LinearCrossEntropy``

A small GPT on bytes of the text of this repository's documents, float32 master weights under bfloat16 autocast. torch
runs twice with the same seed, to show how far two runs of torch differ by themselves, then ce. Under autocast torch
rounds each row's loss to bfloat16, and ce does not: by how much either differs from float64 is said first.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ce.torch as ct
from python_calls import machine

BYTES = 256


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
        self, classes: int, width: int, layers: int, heads: int, length: int, head: type[nn.Linear] = nn.Linear
    ) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(classes, width), nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), head(width, classes, bias=False)

    def forward(self, tokens: Tensor, target: Tensor) -> Tensor:
        hidden = self.norm(self.blocks(self.embedding(tokens) + self.position))
        if isinstance(self.head, ct.LinearCrossEntropy):
            return self.head(hidden, target)
        return F.cross_entropy(self.head(hidden).flatten(0, 1), target.flatten())


def text() -> Tensor:
    """All documents, one after the other."""
    documents = sorted(Path(__file__).parents[1].glob("docs/*.md"))
    return torch.tensor(list(b"\n".join(file.read_bytes() for file in documents)), dtype=torch.int64)


def train(
    steps: int, classes: int, batch: int, length: int, head: type[nn.Linear] = nn.Linear, seed: int = 0
) -> dict[str, object]:
    torch.manual_seed(seed)
    model = Gpt(classes, width=512, layers=4, heads=8, length=length, head=head).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    data = text().cuda()
    generator = torch.Generator(device="cuda").manual_seed(seed)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    losses, times = [], []
    for _ in range(steps):
        start = torch.randint(0, len(data) - length - 1, (batch,), device="cuda", generator=generator)
        window = data[start[:, None] + torch.arange(length + 1, device="cuda")]
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(window[:, :-1], window[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e3)
        losses.append(loss.detach())
    return {
        "losses": torch.stack(losses).tolist(),
        "step ms": statistics.median(times[steps // 10 :]),
        "peak GiB": torch.cuda.max_memory_allocated() / 2**30,
    }


def first_loss(classes: int, batch: int, length: int, seed: int = 0) -> dict[str, float]:
    """The loss of a new model's first step, by torch and ce from the same logits, and how far from float64 it is."""
    torch.manual_seed(seed)
    model = Gpt(classes, width=512, layers=4, heads=8, length=length).cuda()
    window = text()[: batch * (length + 1)].view(batch, length + 1).cuda()
    logits: list[Tensor] = []
    model.head.register_forward_hook(lambda _, __, made: logits.append(made))
    with torch.autocast("cuda", dtype=torch.bfloat16), torch.no_grad():
        losses = {"torch": model(window[:, :-1], window[:, 1:])}
        with ct.patch():
            losses["ce"] = model(window[:, :-1], window[:, 1:])
    exact = F.cross_entropy(logits[0].flatten(0, 1).double(), window[:, 1:].flatten())
    return {"float64": exact.item(), **{f"{name} beyond it": (loss - exact).item() for name, loss in losses.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--classes", type=int, default=50304, help="of the output layer; a text uses 256 of them")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--head", action="store_true", help="ce is the output layer and its loss in one")
    parser.add_argument("--out", help="write the figures here as JSON, too")
    arguments = parser.parse_args()
    shape = (arguments.steps, arguments.classes, arguments.batch, arguments.length)
    own_head = ct.LinearCrossEntropy if arguments.head else nn.Linear
    if not arguments.head:
        ct.tune([(arguments.batch * arguments.length, arguments.classes)], loss_dtype=torch.float32)
    for head in {nn.Linear, own_head}:
        train(3, *shape[1:], head)  # libraries and clocks warm up, and the head is tuned
    first = first_loss(*shape[1:])
    runs = {"torch": train(*shape), "torch again": train(*shape)}
    with nullcontext() if arguments.head else ct.patch():
        runs["ce"] = train(*shape, own_head)

    def difference(a: str, b: str) -> list[float]:
        return [abs(x - y) for x, y in zip(runs[a]["losses"], runs[b]["losses"])]

    noise, own = difference("torch", "torch again"), difference("torch", "ce")
    report = {
        "machine": machine(),
        "shape": dict(zip(("steps", "classes", "batch", "length"), shape)),
        "ce": "LinearCrossEntropy" if arguments.head else "patch",
        "runs": {name: {key: run[key] for key in ("step ms", "peak GiB")} for name, run in runs.items()},
        "loss of the first step": first,
        "loss of torch at steps 1, half, last": [runs["torch"]["losses"][i] for i in (0, arguments.steps // 2, -1)],
        "loss of ce": [runs["ce"]["losses"][i] for i in (0, arguments.steps // 2, -1)],
        "difference of two runs of torch, mean and largest": [statistics.mean(noise), max(noise)],
        "difference of ce and torch, mean and largest": [statistics.mean(own), max(own)],
    }
    print(json.dumps(report, indent=2))
    if arguments.out:
        Path(arguments.out).write_text(json.dumps({**report, "curves": {n: r["losses"] for n, r in runs.items()}}))


if __name__ == "__main__":
    main()
