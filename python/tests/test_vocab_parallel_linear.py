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


@pytest.mark.parametrize("kind, ranks, cases", [("host", 2, 18), ("host", 3, 1), ("cuda", 2, 18)])
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


@pytest.mark.parametrize("sums, chunk", [(None, 256), (743, 256), (744, 1000)])
def test_one_chunk_replaces_several_and_their_sums_if_it_takes_no_more_memory(sums, chunk):
    from ce.torch.vocab_parallel_linear import _chunk

    assert _chunk(1000, 1000, 300_000, sums) == chunk


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


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_tokens_that_are_left_out_are_in_no_product_and_as_those_of_one_gpu(device, reduction):
    x, w = torch.randn(9, 8, device=device), torch.randn(11, 8, device=device)
    target = torch.tensor([3, -100, 0, 10, -100, -100, 7, 2, -100], device=device)
    x[target == -100] = torch.nan  # as any product with them would show
    options = {"reduction": reduction, "valid_tokens": 5, "z_loss": 1e-3, "upstream": 2.0, "chunk_tokens": 2}
    flags = {f"return_{name}": True for name in ("z_loss", "lse", "argmax", "hit")}
    layers = [(x.clone().requires_grad_(), w.clone().requires_grad_()) for _ in range(2)]
    made = ct.vocab_parallel_linear_cross_entropy(*layers[0], target, **options, **flags)
    want = ct.linear_cross_entropy(*layers[1], target, **options, **flags)
    for name in ("loss", "z_loss", "lse", "argmax", "hit"):
        torch.testing.assert_close(getattr(made, name), getattr(want, name), equal_nan=True)
    for (x_of, _), one in zip(layers, (made, want)):
        one.loss.sum().backward()
        assert not x_of.grad[target == -100].any()
    torch.testing.assert_close(layers[0][0].grad, layers[1][0].grad)
    torch.testing.assert_close(layers[0][1].grad, layers[1][1].grad)


def test_too_few_valid_tokens_are_not_a_loss(device):
    x, w = torch.randn(5, 8, device=device, requires_grad=True), torch.randn(11, 8, device=device, requires_grad=True)
    loss = ct.vocab_parallel_linear_cross_entropy(x, w, torch.arange(5, device=device), valid_tokens=4)
    loss.backward()
    assert loss.isnan() and w.grad.isnan().all()
    none = ct.vocab_parallel_linear_cross_entropy(
        x, w, torch.full((5,), -100, device=device), reduction="sum", valid_tokens=0
    )
    assert none.item() == 0


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("valid_tokens", [0, 3])
def test_with_too_few_valid_tokens_no_layer_says_anything_of_a_row(valid_tokens, reduction, device):
    x, w = torch.randn(6, 8, device=device), torch.randn(11, 8, device=device)
    target = torch.tensor([3, -100, 7, 10, 0, -100], device=device)  # 0: the largest of classes that are NaN
    target[[0, 2]] = (x @ w.t()).argmax(1)[[0, 2]]  # hits
    flags = {f"return_{name}": True for name in ("z_loss", "lse", "argmax", "hit")}
    options = {"valid_tokens": valid_tokens, "reduction": reduction, "z_loss": 0.1, **flags}
    for made in (
        ct.vocab_parallel_linear_cross_entropy(x, w, target, **options),
        ct.linear_cross_entropy(x, w, target, **options),
        ct.linear_cross_entropy(x.double(), w.double(), target, **options),
    ):
        assert made.loss.isnan().all() and made.z_loss.isnan().all() and made.lse.isnan().all()
        assert made.argmax.tolist() == [-1] * 6
        assert made.hit.tolist() == [False] * 6


def test_sums_in_the_weights_dtype_are_rounded_by_each_chunk(device):
    x, target = torch.randn(64, 8, device=device).bfloat16(), torch.randint(0, 11, (64,), device=device)

    def gradient(**options):
        w = torch.linspace(-1, 1, 88, device=device).reshape(11, 8).bfloat16().requires_grad_()
        ct.vocab_parallel_linear_cross_entropy(x, w, target, reduction="sum", **options).backward()
        return w.grad.float()

    want = gradient()
    exact = (gradient(chunk_tokens=2) - want).norm()
    rounded = (gradient(chunk_tokens=2, accumulate=torch.bfloat16) - want).norm()
    assert exact < rounded < 0.05 * want.norm()


def test_logits_in_float32_are_not_rounded(device):
    x, w = torch.randn(6, 64, device=device).bfloat16(), torch.randn(11, 64, device=device).bfloat16()
    target = torch.arange(6, device=device)
    want = torch.nn.functional.cross_entropy((x.float() @ w.float().t()).double(), target, reduction="none").float()
    options = {"reduction": "none", "loss_dtype": torch.float32}
    rounded = ct.vocab_parallel_linear_cross_entropy(x, w, target, **options)
    made = ct.vocab_parallel_linear_cross_entropy(x, w, target, logits_dtype=torch.float32, **options)
    torch.testing.assert_close(made, want, rtol=1e-5, atol=1e-5)
    assert (rounded - want).abs().max() > 1e-3


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


def test_targets_are_class_indices_of_the_dtypes_that_one_gpu_takes(device):
    x, w = torch.randn(4, 8, device=device), torch.randn(6, 8, device=device)
    target = torch.arange(4, device=device)
    want = ct.vocab_parallel_linear_cross_entropy(x, w, target)
    for dtype in (torch.int32, torch.uint8):
        assert torch.equal(ct.vocab_parallel_linear_cross_entropy(x, w, target.to(dtype)), want)
    for function in (ct.vocab_parallel_linear_cross_entropy, ct.linear_cross_entropy):
        with pytest.raises(
            TypeError, match=rf"^ce\.torch\.{function.__name__}: target\.dtype is torch\.int16; expected"
        ):
            function(x, w, target.to(torch.int16))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignored, valid_tokens", [(0, None), (0, 0), (3, 0), (3, None)])
def test_a_loss_of_no_tokens_is_that_of_torch(ignored, valid_tokens, reduction, device):
    target = torch.full((ignored,), -100, device=device)
    want = torch.nn.functional.cross_entropy(torch.zeros(ignored, 5, device=device), target, reduction=reduction)
    for function in (ct.vocab_parallel_linear_cross_entropy, ct.linear_cross_entropy):
        layer = (torch.randn(ignored, 4, device=device), torch.randn(5, 4, device=device, requires_grad=True))
        for options in ({}, {"z_loss": 0.1}, {"weight": torch.ones(5, device=device)}):
            loss = function(*layer, target, reduction=reduction, valid_tokens=valid_tokens, **options)
            torch.testing.assert_close(loss, want, equal_nan=True)


def test_a_sum_of_no_tokens_by_a_divisor_is_0(device):
    layer = torch.randn(0, 4, device=device), torch.randn(5, 4, device=device)
    target = torch.zeros(0, dtype=torch.int64, device=device)
    assert ct.vocab_parallel_linear_cross_entropy(*layer, target, divisor=2.0).item() == 0


@pytest.mark.parametrize("place", ["host", "torch"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("valid_tokens", [0, 1])
def test_too_few_valid_tokens_are_not_a_gradient_of_the_layer(valid_tokens, reduction, place, device):
    functions = [ct.linear_cross_entropy]
    if place == "torch":
        ct.configure(cpu="torch")
        device = torch.device("cpu")
    else:
        functions.append(ct.vocab_parallel_linear_cross_entropy)
    x, target = torch.randn(3, 4, device=device, requires_grad=True), torch.tensor([1, -100, 2], device=device)
    w = torch.randn(5, 4, device=device, requires_grad=True)
    bias = torch.randn(5, device=device, requires_grad=True)
    for function in functions:
        loss = function(x, w, target, linear_bias=bias, valid_tokens=valid_tokens, reduction=reduction)
        assert loss.isnan().all()
        of_weight, of_bias = torch.autograd.grad(loss.sum(), (w, bias))
        assert of_weight.isnan().all(), function.__name__
        assert of_bias.isnan().all(), function.__name__


def test_what_is_wrong_in_a_chunk_is_said_of_the_layer(device):
    x, w = torch.randn(4, 8, device=device), torch.randn(6, 8, device=device)
    for argument, given in {
        "label_smoothing": 2, "z_loss": -1.0, "softcap": -1.0, "logit_scale": 0.0, "token_scaling": 17, "plan": "x",
        "first_class": 1,
    }.items():  # fmt: skip
        with pytest.raises(ValueError, match=f"^ce\\.torch\\.vocab_parallel_linear_cross_entropy: {argument} is "):
            ct.vocab_parallel_linear_cross_entropy(x, w, torch.arange(4, device=device), **{argument: given})
