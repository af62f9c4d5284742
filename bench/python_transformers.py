"""A training step of a causal language model of Transformers, with its own loss and with that of ce. On one GPU.

    python bench/python_transformers.py [--steps 40] [--out FILE]

A Llama with random weights: hidden size 1024, MLPs of 2816, 4 layers, 128256 classes, 8 x 1024 tokens, bfloat16, AdamW,
on the text of this repository's documents as bytes. Both losses are in float32; ce makes no float32 copy of the logits.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import time
from pathlib import Path

import torch
from python_training import text
from transformers import LlamaConfig, LlamaForCausalLM

import ce.torch as ct
from ce.torch.integrations import transformers as ce_transformers
from python_calls import machine


def train(steps: int, classes: int, batch: int, length: int, intermediate: int) -> dict[str, object]:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=classes,
        hidden_size=1024,
        intermediate_size=intermediate,
        num_hidden_layers=4,
        num_attention_heads=16,
        num_key_value_heads=16,
    )
    model = LlamaForCausalLM(config).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    data = text().cuda()
    generator = torch.Generator(device="cuda").manual_seed(0)
    losses, times = [], []
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(steps):
        start = torch.randint(0, len(data) - length, (batch,), device="cuda", generator=generator)
        tokens = data[start[:, None] + torch.arange(length, device="cuda")]
        torch.cuda.synchronize()
        begin = time.perf_counter()
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e3)
        losses.append(loss.detach())
    return {
        "step ms": statistics.median(times[5:]),
        "peak GiB": torch.cuda.max_memory_allocated() / 2**30,
        "losses at steps 1, 10, last": [losses[i].item() for i in (0, 9, -1)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--classes", type=int, default=128256)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--intermediate", type=int, default=2816, help="the width of the model's MLPs")
    parser.add_argument("--out", help="write the figures here as JSON, too")
    arguments = parser.parse_args()
    shape = (arguments.steps, arguments.classes, arguments.batch, arguments.length, arguments.intermediate)
    ct.tune([(arguments.batch * arguments.length, arguments.classes)], loss_dtype=torch.float32)
    report: dict[str, object] = {
        "machine": machine(),
        "shape": dict(zip(("steps", "classes", "batch", "length", "intermediate"), shape)),
    }
    for name, loss in (("transformers", contextlib.nullcontext), ("ce", ce_transformers.install)) * 2:
        with loss():
            report[name] = train(*shape)  # the second time counts: libraries and clocks are warm
    print(json.dumps(report, indent=2))
    if arguments.out:
        Path(arguments.out).write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
