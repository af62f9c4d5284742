"""One of several ranks that share the classes: Megatron-Core's own loss on the CPU, beside the drop-in for it."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.fusions.fused_cross_entropy import fused_vocab_parallel_cross_entropy as fused

import ce.torch as ct

LENGTH, BATCH, CLASSES = 3, 2, 40


def both(ours, theirs, shard, target, *options, rtol=1e-4):
    """Asserts that losses and gradients are the same; the gradient of Megatron-Core takes the memory of its logits."""
    factor = torch.rand(LENGTH, BATCH)
    dist.broadcast(factor, 0)
    made = []
    for call in (ours, theirs):
        leaf = shard.clone().requires_grad_()
        loss = call(leaf * 2, target, *options)
        made.append((loss.detach(), *torch.autograd.grad(loss, leaf, factor)))
    for own, other in zip(*made):
        torch.testing.assert_close(own, other, rtol=rtol, atol=1e-5)


def main() -> None:
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=ranks)
    ct.configure(cpu="host", policy="lookup")
    torch.manual_seed(int(sys.argv[1]))
    target = torch.randint(0, ranks * CLASSES, (LENGTH, BATCH))
    shard = torch.randn(LENGTH, BATCH, ranks * CLASSES).chunk(ranks, -1)[dist.get_rank()].contiguous()
    theirs = tensor_parallel.vocab_parallel_cross_entropy
    both(ct.megatron.vocab_parallel_cross_entropy, theirs, shard, target)
    both(
        ct.megatron.fused_vocab_parallel_cross_entropy,
        fused,
        shard,
        target,
        parallel_state.get_tensor_model_parallel_group(),
        rtol=1e-2,  # theirs rounds every gradient to bfloat16
    )
    with ct.megatron.patch(smoothing_of_shards=True):
        assert tensor_parallel.vocab_parallel_cross_entropy is not theirs
        both(tensor_parallel.vocab_parallel_cross_entropy, theirs, shard, target, 0.1)
    assert tensor_parallel.vocab_parallel_cross_entropy is theirs
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
