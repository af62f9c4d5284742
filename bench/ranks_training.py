#!/usr/bin/env python3
"""Trains a small GPT of Megatron-Core with its own vocabulary-parallel losses and with ce's in their place.

    pip install megatron-core
    torchrun --nproc-per-node=2 bench/ranks_training.py

Each loss trains the same model on the same tokens from the same start, in f32, on one GPU a rank, or without a GPU on
the CPU (gloo, the host device). ce's are put in by one line, ``ct.megatron.patch()``. Prints the largest difference of
the losses, and fails where it is above what is allowed. Megatron-Core's fused loss rounds its gradient to bf16, also of
f32 logits, so training with it drifts away: it must agree with ce's where that gradient is rounded, too.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from typing import Any

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # Megatron-Core compiles its fused loss: for so few steps in vain

import torch
import torch.distributed as dist

import ce.torch as ct

warnings.simplefilter("ignore")
ALLOWED = 5e-4  # of losses from 5 to 9, that f32 rounds to 5e-7, after a hundred steps that each build on the last


class RoundedGradient(torch.autograd.Function):
    """Logits whose gradient is rounded to bf16."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor) -> torch.Tensor:
        return logits.view_as(logits)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad.bfloat16().to(grad.dtype)


def fused_and_rounded(logits: torch.Tensor, target: torch.Tensor, tp_group: Any) -> torch.Tensor:
    return ct.megatron.fused_vocab_parallel_cross_entropy(RoundedGradient.apply(logits), target, tp_group)


def batches(steps: int, batch: int, length: int, vocabulary: int) -> list[torch.Tensor]:
    """Tokens that follow each other by a rule, one in eight of them by chance: a model can learn them."""
    generator = torch.Generator().manual_seed(5)
    made = []
    for _ in range(steps):
        tokens = torch.empty(batch, length + 1, dtype=torch.long)
        tokens[:, 0] = torch.randint(0, vocabulary, (batch,), generator=generator)
        for place in range(length):
            by_chance = torch.randint(0, vocabulary, (batch,), generator=generator)
            is_by_chance = torch.rand(batch, generator=generator) < 0.125
            tokens[:, place + 1] = torch.where(is_by_chance, by_chance, (tokens[:, place] * 3 + 7) % vocabulary)
        made.append(tokens)
    return made


def train(options: argparse.Namespace, device: torch.device, is_fused: bool) -> list[float]:
    """The loss of each step, of a model that is made anew."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
    from megatron.core.transformer import TransformerConfig

    torch.manual_seed(3)
    if device.type == "cuda":
        model_parallel_cuda_manual_seed(3)
    fusion: dict[str, Any] = {"cross_entropy_loss_fusion": is_fused}
    if is_fused:
        fusion["cross_entropy_fusion_impl"] = "native"
    config = TransformerConfig(
        num_layers=2,
        hidden_size=options.hidden,
        num_attention_heads=4,
        tensor_model_parallel_size=parallel_state.get_tensor_model_parallel_world_size(),
        use_cpu_initialization=True,
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        **fusion,
    )
    model = GPTModel(config, get_gpt_layer_local_spec(), options.vocabulary, options.length).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    positions = torch.arange(options.length, device=device).expand(options.batch, -1)
    future = torch.ones(options.length, options.length, dtype=torch.bool, device=device).triu(1)[None, None]
    losses = []
    for tokens in batches(options.steps, options.batch, options.length, options.vocabulary):
        tokens = tokens.to(device)
        loss = model(tokens[:, :-1], positions, future, labels=tokens[:, 1:]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [loss.item() for loss in losses]


def main() -> int:
    is_on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100, help="of each of the five trainings (default 100)")
    parser.add_argument("--vocabulary", type=int, default=8192 if is_on_gpu else 256, help="classes of all ranks")
    parser.add_argument("--hidden", type=int, default=256 if is_on_gpu else 64)
    parser.add_argument("--length", type=int, default=128 if is_on_gpu else 8)
    parser.add_argument("--batch", type=int, default=8 if is_on_gpu else 2)
    options = parser.parse_args()

    dist.init_process_group("nccl" if is_on_gpu else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if is_on_gpu else torch.device("cpu")
    if is_on_gpu:
        torch.cuda.set_device(device)
        ct.configure(policy="lookup")
    else:
        ct.configure(policy="lookup", cpu="host")
    import megatron.core
    from megatron.core import parallel_state

    if not is_on_gpu:  # of which Megatron-Core's attention asks for a buffer, and the state of random numbers
        from contextlib import nullcontext

        from megatron.core.tensor_parallel.random import get_cuda_rng_tracker

        torch.cuda.current_device = lambda: "cpu"
        get_cuda_rng_tracker().fork = lambda *_: nullcontext()

    parallel_state.initialize_model_parallel(tensor_model_parallel_size=ranks)
    from megatron.core.models.common.language_module import language_module

    begin, is_right = time.monotonic(), True

    def compare(name: str, ours: list[float], theirs: list[float], allowed: float) -> None:
        nonlocal is_right
        largest, step = max((abs(a - b), step) for step, (a, b) in enumerate(zip(ours, theirs)))
        is_right = is_right and largest <= allowed and theirs[-1] < theirs[0]
        if rank == 0:
            print(
                f"{name}: loss {theirs[0]:.6f} to {theirs[-1]:.6f}, with ce {ours[0]:.6f} to {ours[-1]:.6f}; largest "
                f"difference {largest:.2e} at step {step}" + (f", allowed {allowed:g}" if allowed < 1 else ""),
                flush=True,
            )

    if rank == 0:
        print(f"Megatron-Core {megatron.core.__version__}, {ranks} ranks on {device.type}, {options.steps} steps")
    theirs, fused = train(options, device, False), train(options, device, True)
    with ct.megatron.patch():
        ours, ours_fused = train(options, device, False), train(options, device, True)
        language_module.fused_vocab_parallel_cross_entropy = fused_and_rounded
        ours_rounded = train(options, device, True)
    ct.check(device)
    compare("vocab_parallel_cross_entropy", ours, theirs, ALLOWED)
    compare("fused_vocab_parallel_cross_entropy", ours_fused, fused, 1.0)
    compare("the same, both gradients rounded to bf16", ours_rounded, fused, ALLOWED)
    if rank == 0:
        verdict = "the losses agree" if is_right else "the losses differ"
        print(f"{time.monotonic() - begin:.1f} s; {verdict}", flush=True)
    dist.destroy_process_group()
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
