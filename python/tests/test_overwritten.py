"""Logits that a gradient overwrites, and other code that needs them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import ce.torch as ct
from ce.torch import _reference
from ce.torch.integrations import flash_attn, quack, torchtitan

LOSSES = {
    "ce": lambda y, target: ct.cross_entropy(y, target, reduction="sum", inplace_backward=True),
    "ce and argmax": lambda y, target: (
        ct.cross_entropy(y, target, reduction="sum", inplace_backward=True, return_argmax=True).loss
    ),
    "quack": lambda y, target: quack.cross_entropy(y, target, reduction="sum", inplace_backward=True),
    "torchtitan": torchtitan.triton_cross_entropy_loss,
    "flash_attn": lambda y, target: flash_attn.cross_entropy_loss(y, target, inplace_backward=True)[0].sum(),
    "flash_attn's class": flash_attn.CrossEntropyLoss(reduction="sum", inplace_backward=True),
    "ranks": lambda y, target: ct.vocab_parallel_cross_entropy(y, target, reduction="sum", inplace_backward=True),
}
loss_of = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


@pytest.fixture
def batch(device, seed) -> tuple[Tensor, Tensor]:
    return torch.randn(4, 7, device=device, requires_grad=True), torch.tensor([0, 1, 2, -100], device=device)


def expected_gradient(leaf: Tensor, target: Tensor, of: object = None) -> Tensor:
    wide = leaf.detach().double().requires_grad_()
    loss = F.cross_entropy(wide if of is None else of(wide), target, reduction="sum")
    return torch.autograd.grad(loss, wide)[0]


@loss_of
def test_another_loss_of_the_same_logits_fails_in_place_of_being_wrong(loss, batch):
    leaf, target = batch
    y = leaf * 1
    both = torch.logsumexp(y, 1).square().mean() + loss(y, target)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        both.backward()


@loss_of
def test_so_does_what_made_them_and_saved_them(loss, batch):
    leaf, target = batch
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss(torch.tanh(leaf), target).backward()


@loss_of
@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_alone_they_are_right_and_a_kept_graph_can_be_walked_again(factor, loss, batch):
    leaf, target = batch
    expected = factor * expected_gradient(leaf, target, lambda x: x * 2)
    made = loss(leaf * 2, target) * factor
    for _ in range(2):
        made.backward(retain_graph=True)
        torch.testing.assert_close(leaf.grad.double(), expected, rtol=1e-5, atol=1e-6)
        leaf.grad = None
    made.backward()
    torch.testing.assert_close(leaf.grad.double(), expected, rtol=1e-5, atol=1e-6)


def test_what_is_saved_between_forward_and_backward_fails_too(batch):
    leaf, target = batch
    y = leaf * 1
    loss = ct.cross_entropy(y, target, inplace_backward=True)
    other = y.square().sum()
    (0.5 * loss).backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        other.backward()


def test_losses_that_leave_the_logits_count_no_version(batch):
    leaf, target = batch
    y = leaf * 1
    before = y._version
    for options in ({}, {"reduction": "none"}, {"return_lse": True}, {"return_argmax": True}):
        made = ct.cross_entropy(y, target, **options)
        (made if isinstance(made, Tensor) else made.loss).sum().backward(retain_graph=True)
    assert y._version == before


def test_operators_in_place_count_a_version(device):
    x, out = torch.randn(3, 4, device=device), torch.empty(3, 4, device=device)
    operators = torch.ops.ce
    operators.softmax_(x, 1)
    assert x._version == 1
    operators.log_softmax_out(x, 1, out=out)
    assert (x._version, out._version) == (1, 1)
    operators.scale_gradient_(out, torch.tensor(2.0, device=device))
    assert out._version == 2
    options = (*_reference.Options(), *_reference.flags_of("f32_loss"))
    target = torch.zeros(3, dtype=torch.int64, device=device)
    operators.cross_entropy_with_grad_(x, target, None, None, None, None, None, *options)
    assert x._version == 2
    with torch.inference_mode():
        inferred = torch.randn(3, 4, device=device)
    operators.softmax_(inferred, 1)  # has no version
