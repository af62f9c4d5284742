"""Tensors that lie in memory in any way: permuted, with gaps, every second element, expanded. And the strides of
results, which fake tensors promise."""

from __future__ import annotations

import math
import random

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import ce.torch as ct
from ce.torch import _native, _reference

FUNCTIONS = [("softmax", ct.softmax, F.softmax), ("log_softmax", ct.log_softmax, F.log_softmax)]
ROUNDS = 24
CLASSES = 5


class Laid:
    """A view that lies in a random way, and the memory that it is cut from."""

    def __init__(self, values: Tensor, rng: random.Random) -> None:
        order = rng.sample(range(values.dim()), values.dim())
        gaps = rng.choice((0.0, 0.3, 1.0))
        before, behind, step = ([rng.random() < gaps for _ in order] for _ in range(3))
        sizes, cuts = [], []
        for d, a, b, c in zip(order, before, behind, step):
            size, stride = values.shape[d], 1 + c
            sizes.append(a + (size - 1) * stride + 1 + b)
            cuts.append(slice(a, a + (size - 1) * stride + 1, stride))
        self.memory = torch.full(sizes, math.nan, device=values.device).to(values.dtype)
        cut = self.memory[tuple(cuts)]
        cut.copy_(values.permute(order))
        self.view = cut.permute([order.index(d) for d in range(values.dim())])

    def gaps_are_intact(self) -> bool:
        return int(self.memory.isnan().sum()) == self.memory.numel() - self.view.numel()


def laid(values: Tensor, rng: random.Random) -> Tensor:
    return Laid(values, rng).view


def sizes_of(rng: random.Random, dim: int) -> list[int]:
    """Two to five dimensions, with the classes along one of them."""
    sizes = [rng.choice((1, 2, 3, 4)) for _ in range(max(2, rng.choice((2, 3, 4, 5)), dim + 1))]
    sizes[dim] = CLASSES
    return sizes


def assert_close(actual: Tensor, expected: Tensor, what: object) -> None:
    torch.testing.assert_close(
        actual.double(), expected.double(), rtol=2e-5, atol=2e-6, msg=lambda text: f"{what}: {text}"
    )


@pytest.mark.parametrize(("name", "own", "torchs"), FUNCTIONS)
def test_softmax_of_any_layout(name, own, torchs, device, seed):
    rng = random.Random(seed)
    for _ in range(ROUNDS):
        dim = rng.randrange(5)
        sizes = sizes_of(rng, dim)
        x, upstream = (torch.randn(sizes, device=device) for _ in range(2))
        wide = x.double().requires_grad_()
        expected = torchs(wide, dim)
        expected.backward(upstream.double())
        input = laid(x, rng)
        what = (sizes, dim, input.stride())

        output = own(input, dim)
        assert output.stride() == torch.empty_like(input).stride(), what
        assert_close(output, expected.detach(), what)
        leaf = input.detach().requires_grad_()
        own(leaf, dim).backward(laid(upstream, rng))
        assert_close(leaf.grad, wide.grad, what)

        out, grad, over = Laid(x, rng), Laid(x, rng), Laid(x, rng)
        getattr(torch.ops.ce, name + "_out")(input, dim, out.view)
        given = laid(upstream, rng), laid(output, rng)
        made = getattr(torch.ops.ce, name + "_backward")(*given, dim)
        getattr(torch.ops.ce, name + "_backward_out")(*given, dim, grad.view)
        getattr(torch.ops.ce, name + "_")(over.view, dim)
        assert made.stride() == torch.empty_like(given[1]).stride(), what
        for ours in (out.view, over.view):
            assert_close(ours, expected.detach(), (what, ours.stride()))
        for ours in (made, grad.view):
            assert_close(ours, wide.grad, (what, ours.stride()))
        assert all(each.gaps_are_intact() for each in (out, grad, over)), what


def cross_entropy_case(rng: random.Random, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, indices or probabilities, and an upstream gradient for each row."""
    sizes = sizes_of(rng, 1)
    rows = sizes[:1] + sizes[2:]
    logits = torch.randn(sizes, device=device)
    if rng.random() < 0.5:
        target = torch.randint(0, CLASSES, rows, device=device)
    else:
        target = torch.softmax(torch.randn(sizes, device=device), 1)
    return logits, target, torch.rand(rows, device=device) + 0.5


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_of_any_layout(reduction, device, seed):
    rng = random.Random(seed)
    for _ in range(ROUNDS):
        logits, target, upstream = cross_entropy_case(rng, device)
        input, labels = laid(logits, rng), target
        if target.is_floating_point():
            labels = laid(target, rng)
            target = target.double()
        elif target.dim() > 1:
            labels = target.transpose(0, -1).contiguous().transpose(0, -1)
        what = (list(logits.shape), input.stride(), labels.stride())
        wide = logits.double().requires_grad_()
        expected = F.cross_entropy(wide, target, reduction=reduction)
        factor = laid(upstream, rng) if reduction == "none" else upstream.flatten()[0]
        (expected * factor).sum().backward()

        assert_close(ct.cross_entropy(input, labels, reduction=reduction), expected.detach(), what)
        leaf = input.detach().requires_grad_()
        loss = ct.cross_entropy(leaf, labels, reduction=reduction)
        (loss * factor).sum().backward()
        assert_close(loss.detach(), expected.detach(), what)
        assert_close(leaf.grad, wide.grad, what)

        wide.grad = None
        lse = torch.logsumexp(wide, 1)
        (expected_with := F.cross_entropy(wide, target, reduction=reduction) * factor).sum().backward(retain_graph=True)
        (lse * upstream).sum().backward()
        leaf = input.detach().requires_grad_()
        output = ct.cross_entropy(leaf, labels, reduction=reduction, return_lse=True)
        ((output.loss * factor).sum() + (output.lse * upstream).sum()).backward()
        assert_close((output.loss * factor).detach(), expected_with.detach(), what)
        assert_close(output.lse.detach(), lse.detach(), what)
        assert_close(leaf.grad, wide.grad, what)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_gradient_over_logits_of_any_layout(reduction, device, seed):
    """Whether the loss is multiplied by 1 or not; what lies between the logits is left alone."""
    rng = random.Random(seed)
    for _ in range(ROUNDS):
        logits, target, _ = cross_entropy_case(rng, device)
        factor = rng.choice((1.0, 1.0, -0.37))
        wide = logits.double().requires_grad_()
        F.cross_entropy(wide, target.double() if target.is_floating_point() else target, reduction=reduction).mul(
            factor
        ).backward()
        own = Laid(logits, rng)
        labels = laid(target, rng) if target.is_floating_point() else target
        leaf = own.view.detach().requires_grad_()
        what = (list(logits.shape), leaf.stride(), labels.stride(), factor)
        ct.cross_entropy(leaf, labels, reduction=reduction, inplace_backward=True).mul(factor).backward()
        assert_close(leaf.grad, wide.grad, what)
        assert_close(own.view, wide.grad, what)
        assert own.gaps_are_intact(), what


def test_operators_over_logits_of_any_layout(device, seed):
    """Both that write a gradient over them, with one upstream gradient a row."""
    rng = random.Random(seed)
    numbers = _reference.Options(reduction=_reference.SUM)
    for _ in range(ROUNDS):
        logits, target, upstream = cross_entropy_case(rng, device)
        labels = laid(target, rng) if target.is_floating_point() else target
        wide = logits.double().requires_grad_()
        own_target = target.double() if target.is_floating_point() else target
        (F.cross_entropy(wide, own_target, reduction="none") * upstream).sum().backward()
        forward, backward = Laid(logits, rng), Laid(logits, rng)
        nothing = (None, None, None)
        torch.ops.ce.cross_entropy_with_grad_(
            forward.view, labels, None, laid(upstream, rng), *nothing, *numbers, *_reference.flags_of("f32_loss")
        )
        lse = laid(torch.logsumexp(logits, 1), rng)
        saved = (lse, laid(upstream, rng), *(None,) * 5)
        torch.ops.ce.cross_entropy_backward_(backward.view, labels, None, *saved, *nothing, *numbers)
        for one in (forward, backward):
            assert_close(one.view, wide.grad, (list(logits.shape), one.view.stride(), labels.stride()))
            assert one.gaps_are_intact()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gradient_of_any_layout_is_scaled(dtype, device, seed):
    rng = random.Random(seed)
    for _ in range(2 * ROUNDS):
        values = torch.randn(sizes_of(rng, rng.randrange(5)), device=device).to(dtype)
        grad = Laid(values, rng)
        factor = rng.choice((1.0, 0.3))
        torch.ops.ce._scale_gradient_(grad.view, torch.tensor(factor, device=device))
        assert torch.equal(grad.view, (values.float() * torch.tensor(factor, device=device)).to(dtype))
        assert grad.gaps_are_intact()


def test_padded_and_shifted_logits_in_place(device, seed):
    padded = torch.randn(4, 12, device=device)
    shifted = torch.randn(2, 6, 10, device=device)
    cases = [
        (padded[:, :10], torch.tensor([1, 2, 3, 4], device=device)),
        (shifted[:, :-1].transpose(1, 2), torch.randint(0, 10, (2, 5), device=device)),
    ]
    for view, target in cases:
        wide = view.detach().double().requires_grad_()
        (F.cross_entropy(wide, target) * 3).backward()
        leaf = view.detach().requires_grad_()
        (ct.cross_entropy(leaf, target, inplace_backward=True) * 3).backward()
        assert_close(leaf.grad, wide.grad, view.stride())


def test_results_of_einsum(device, seed):
    a, b = torch.randn(2, 3, 4, 6, device=device), torch.randn(2, 3, 5, 6, device=device)
    scores = torch.einsum("bhqd,bhkd->bqhk", a, b)
    assert_close(ct.softmax(scores, -1), F.softmax(scores, -1), scores.stride())
    logits = torch.einsum("bhqd,bhkd->bkqh", a, b).requires_grad_()
    target = torch.randint(0, 5, (2, 4, 3), device=device)
    wide = logits.detach().double().requires_grad_()
    ct.cross_entropy(logits, target).backward()
    F.cross_entropy(wide, target).backward()
    assert_close(logits.grad, wide.grad, logits.stride())


def test_shared_memory_is_read_but_never_written(device, seed):
    windows = torch.randn(20, device=device).unfold(0, 6, 2)
    assert_close(ct.softmax(windows, 1), F.softmax(windows, 1), windows.stride())
    expanded = torch.randn(3, 1, 4, 1, 5, device=device).expand(3, 2, 4, 2, 5)
    assert_close(ct.softmax(expanded, 2), F.softmax(expanded, 2), expanded.stride())
    for shared in (windows, expanded, torch.randn(4, 1, device=device).expand(4, 5)):
        before = shared.clone()
        for refused in (
            lambda view: torch.ops.ce._softmax_(view, 1),
            lambda view: torch.ops.ce._softmax_out(view.clone(), 1, view),
            lambda view: torch.ops.ce._scale_gradient_(view, torch.full((), 2.0, device=device)),
        ):
            with pytest.raises(ValueError, match="share memory"):
                try:
                    refused(shared)
                except (RuntimeError, ValueError) as error:
                    _native.raise_from(error)
        assert torch.equal(shared, before)


def test_sizes_of_an_upstream_gradient(device, seed):
    """One number, or those of the rows; not as many in other sizes."""
    logits = torch.randn(2, 5, 4, device=device)
    target = torch.randint(0, 5, (2, 4), device=device)
    for good in (torch.rand((), device=device), torch.rand(1, device=device), torch.rand(2, 4, device=device)):
        leaf, wide = logits.clone().requires_grad_(), logits.double().requires_grad_()
        ct.cross_entropy(leaf, target, reduction="sum", upstream=good).backward()
        (F.cross_entropy(wide, target, reduction="none") * good).sum().backward()
        assert_close(leaf.grad, wide.grad, good.shape)
    for bad in (torch.rand(4, 2, device=device), torch.rand(8, device=device), torch.rand(2, device=device)):
        for in_place in (False, True):
            leaf = logits.clone().requires_grad_()
            with pytest.raises(ValueError, match="upstream has sizes"):
                ct.cross_entropy(leaf, target, reduction="sum", upstream=bad, inplace_backward=in_place)
            assert torch.equal(leaf, logits)
    with pytest.raises((ValueError, RuntimeError), match="upstream has sizes"):
        saved = (torch.zeros(2, 4, device=device), torch.rand(4, 2, device=device), *(None,) * 5)
        torch.ops.ce._cross_entropy_backward(
            logits, target, None, *saved, None, None, None, *_reference.Options(reduction=_reference.SUM)
        )


def test_compiled_code_of_any_layout(device, seed):
    """Fake tensors promise the strides that results have."""
    rng = random.Random(seed)
    for _ in range(4):
        torch._dynamo.reset()
        logits, target, _ = cross_entropy_case(rng, device)
        labels = laid(target, rng) if target.is_floating_point() else target
        input = laid(logits, rng)
        what = (list(logits.shape), input.stride(), labels.stride())

        def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return ct.softmax(x, -1), ct.log_softmax(x, 1).square(), ct.cross_entropy(x, y)

        def total(results: tuple[Tensor, Tensor, Tensor]) -> Tensor:
            return results[0].square().sum() + results[1].sum() + results[2]

        leaf, plain = input.detach().requires_grad_(), input.detach().requires_grad_()
        compiled = torch.compile(step, backend="aot_eager", fullgraph=True)(leaf, labels)
        eager = step(plain, labels)
        total(compiled).backward()
        total(eager).backward()
        for ours, theirs in zip(compiled, eager):
            assert ours.stride() == theirs.stride(), what
            assert_close(ours.detach(), theirs.detach(), what)
        assert_close(leaf.grad, plain.grad, what)
