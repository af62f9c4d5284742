"""A linear layer and its loss over ranks, as processes: gloo on the host device, NCCL on GPUs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_vocab_parallel import environment_of

import ce.torch as ct

SCRIPT = Path(__file__).with_name("vocab_parallel_linear_rank.py")


@pytest.mark.parametrize("kind, ranks, cases", [("host", 2, 9), ("host", 3, 1), ("cuda", 2, 9)])
def test_ranks_have_the_loss_and_gradients_of_one(kind, ranks, cases, tmp_path):
    launch = ("-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--rdzv-backend=c10d")
    done = subprocess.run(
        [sys.executable, *launch, "--rdzv-endpoint=localhost:0", str(SCRIPT), kind, str(cases)],
        capture_output=True,
        text=True,
        env=environment_of(kind, ranks, tmp_path),
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("tokens, row_bytes, budget, chunk", [
    (1000, 1000, 1 << 30, 1024),  # all fit
    (1000, 1000, 300_000, 256),  # 256 tokens at most: four chunks
    (1000, 1000, 1, 128),
    (50, 1000, 1, 50),
    (0, 1000, 1, 1),
])  # fmt: skip
def test_chunks_are_of_about_one_size(tokens, row_bytes, budget, chunk):
    from ce.torch.vocab_parallel_linear import _chunk

    assert _chunk(tokens, row_bytes, budget) == chunk


def test_without_a_group_it_is_the_loss_of_the_layer(device):
    x, w = torch.randn(5, 8, device=device, requires_grad=True), torch.randn(11, 8, device=device, requires_grad=True)
    target = torch.randint(0, 11, (5,), device=device)
    loss = ct.vocab_parallel_linear_cross_entropy(x, w, target, chunk_tokens=2)
    loss.backward()
    other_x, other_w = x.detach().clone().requires_grad_(), w.detach().clone().requires_grad_()
    want = torch.nn.functional.cross_entropy(other_x @ other_w.t(), target)
    want.backward()
    torch.testing.assert_close(loss, want)
    torch.testing.assert_close(x.grad, other_x.grad)
    torch.testing.assert_close(w.grad, other_w.grad)


def test_a_second_derivative_is_refused(device):
    x, w = torch.randn(4, 8, device=device, requires_grad=True), torch.randn(6, 8, device=device)
    target = torch.arange(4, device=device)
    for reduction in ("none", "mean"):
        loss = ct.vocab_parallel_linear_cross_entropy(x, w, target, reduction=reduction)
        with pytest.raises(RuntimeError, match="vocab_parallel_linear_cross_entropy is differentiable once"):
            torch.autograd.grad(loss.sum(), x, create_graph=True)


def test_the_gradient_of_a_float32_weight_is_not_rounded(device):
    x, w = torch.randn(4, 8, device=device), torch.randn(6, 8, device=device, requires_grad=True)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        ct.vocab_parallel_linear_cross_entropy(x, w, torch.arange(4, device=device)).backward()
    assert not torch.equal(w.grad, w.grad.bfloat16().float())


def test_targets_of_any_integers(device):
    x, w = torch.randn(4, 8, device=device), torch.randn(6, 8, device=device)
    target = torch.arange(4, device=device)
    want = ct.vocab_parallel_linear_cross_entropy(x, w, target)
    assert torch.equal(ct.vocab_parallel_linear_cross_entropy(x, w, target.to(torch.int16)), want)
