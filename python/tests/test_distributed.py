"""DistributedDataParallel and FSDP around a model whose loss is that of ce, with two processes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from ce import _files

RANK = """
    import sys

    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    import ce.torch as ct

    kind, wrapped = sys.argv[1:]
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", rank) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    ct.configure(policy="lookup", cpu="host")

    def train(loss_of):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 70)).to(device)
        if wrapped == "ddp":
            model = DistributedDataParallel(model)
        else:
            fully_shard(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        generator = torch.Generator().manual_seed(rank)
        losses = []
        for _ in range(3):
            x = torch.randn(5, 8, generator=generator).to(device)
            target = torch.randint(0, 70, (5,), generator=generator).to(device)
            loss = loss_of(model(x), target)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        return torch.stack(losses)

    torch.testing.assert_close(train(ct.cross_entropy), train(F.cross_entropy), rtol=1e-4, atol=1e-4)
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("wrapped", ["ddp", "fsdp"])
@pytest.mark.parametrize("kind", ["host", "cuda"])
def test_two_processes_train_as_with_torchs_loss(kind, wrapped, tmp_path):
    if kind == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("torch sees fewer than two GPUs")
    script = tmp_path / "rank.py"
    script.write_text(textwrap.dedent(RANK))
    environment = {**os.environ, "PYTHONPATH": str(Path(_files.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    if kind == "host":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    launch = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0")
    done = subprocess.run(
        [sys.executable, *launch, str(script), kind, wrapped],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_tensors_that_ranks_share_are_for_torch():
    """DTensor has rules of its own for torch's functions, so they are what it gets."""
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_tensor

    import ce.torch as ct

    before = ct.configure(cpu="host")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        logits, target = torch.randn(4, 9), torch.tensor([1, 2, 3, 8])
        shared, shared_target = (distribute_tensor(x, mesh, [Replicate()]) for x in (logits, target))
        torch.testing.assert_close(ct.softmax(shared, -1).full_tensor(), F.softmax(logits, -1))
        loss = ct.cross_entropy(shared.requires_grad_(), shared_target)
        torch.testing.assert_close(loss.full_tensor(), F.cross_entropy(logits, target))
    finally:
        dist.destroy_process_group()
        ct.restore(before)
