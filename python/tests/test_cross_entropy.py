"""Cross entropy beside torch's own in float64."""

from __future__ import annotations

import inspect
import itertools
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import ce.torch as ct
from ce import _c
from ce.torch import _reference

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
REDUCTIONS = ["mean", "sum", "none"]


def loss_and_grad(function, logits: Tensor, *args, upstream: Tensor | None = None, **options):
    leaf = logits.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    loss = function(leaf, *args, **options)
    loss.backward(torch.ones_like(loss) if upstream is None else upstream.to(loss.dtype))
    return loss.detach(), leaf.grad


def options_of(reduction: str = "mean", **options) -> _reference.Options:
    return _reference.Options(reduction=_c.REDUCTIONS[reduction], **options)


def reference(logits: Tensor, target: Tensor, weight: Tensor | None = None, **options) -> Tensor:
    wide_target = target.double() if target.is_floating_point() else target
    wide_weight = None if weight is None else weight.double()
    return _reference.cross_entropy(logits, wide_target, wide_weight, options_of(**options)).loss


def assert_as_reference(logits, target, weight=None, *, upstream=None, loss_dtype=None, **options):
    loss, grad = loss_and_grad(
        ct.cross_entropy, logits, target, weight, upstream=upstream, loss_dtype=loss_dtype, **options
    )
    wide_upstream = None if upstream is None else upstream.double()
    expected, expected_grad = loss_and_grad(
        reference, logits.double(), target, weight, upstream=wide_upstream, **options
    )
    assert loss.shape == expected.shape
    assert loss.dtype is (loss_dtype or logits.dtype)
    assert grad.dtype is logits.dtype
    eps = torch.finfo(loss.dtype).eps
    torch.testing.assert_close(loss.double(), expected, rtol=max(4e-6, eps), atol=max(4e-6, eps), equal_nan=True)
    grad_eps = torch.finfo(logits.dtype).eps
    biggest = expected_grad.abs().nan_to_num().max().item() if expected_grad.numel() else 0.0
    torch.testing.assert_close(
        grad.double(), expected_grad, rtol=2 * grad_eps, atol=max(2e-6, grad_eps) * max(biggest, 1e-30), equal_nan=True
    )


def some_targets(rows: int, classes: int, device: torch.device, ignored: bool = True) -> Tensor:
    target = torch.randint(0, classes, (rows,), device=device)
    if ignored and rows > 1:
        target[1] = -100
    return target


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_reduction(dtype, reduction, device, seed):
    logits = (3 * torch.randn(9, 130, device=device)).to(dtype)
    target = some_targets(9, 130, device)
    upstream = torch.randn((9,) if reduction == "none" else (), device=device)
    assert_as_reference(logits, target, reduction=reduction, upstream=upstream)
    assert_as_reference(logits, target, reduction=reduction, loss_dtype=torch.float32)


@pytest.mark.parametrize("how", ["none", "compiled", "operator"])
def test_a_second_pass_is_as_exact_for_a_confident_row(how, device):
    """Of a target whose probability is next to 1 the gradient is that of the sum of the others, which logsumexp beside
    a large logit has lost."""
    logits = torch.full((2, 40), -2.0, device=device)
    logits[0, 3], logits[1, 7] = 22.4, 60.0  # others of 1e-9 and of 5e-26
    logits[1] += 37.25
    target = torch.tensor([3, 7], device=device)

    def losses(x):
        return ct.cross_entropy(x, target, reduction="none")

    leaf = logits.clone().requires_grad_()
    if how == "operator":
        given = (None, None, None, *options_of("none"), *_reference.flags_of("logprob"))
        loss = torch.ops.ce.cross_entropy(leaf, target, None, *given)[0]
    else:
        torch.compiler.reset()
        function = torch.compile(losses, fullgraph=True, backend="aot_eager") if how == "compiled" else losses
        loss = function(leaf)
    loss.sum().backward()
    wide = logits.double().requires_grad_()
    z = wide - wide.detach().amax(1, keepdim=True)
    others = torch.exp(z).scatter(1, target[:, None], 0.0).sum(1)
    expected = torch.exp(z) / (1 + others[:, None])
    expected = expected.scatter(1, target[:, None], -(others / (1 + others))[:, None])
    torch.testing.assert_close(leaf.grad.double(), expected.detach(), rtol=1e-5, atol=1e-30)


OPTIONS = {
    "label_smoothing": 0.1,
    "z_loss": 1e-3,
    "softcap": 5.0,
    "logit_scale": 0.7,
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    "names", [*itertools.combinations(OPTIONS, 1), *itertools.combinations(OPTIONS, 3), tuple(OPTIONS)]
)
def test_every_option(names, reduction, device, seed):
    logits = 4 * torch.randn(5, 70, device=device)
    chosen = {name: OPTIONS[name] for name in names}
    assert_as_reference(logits, some_targets(5, 70, device), reduction=reduction, **chosen)
    probabilities = torch.softmax(torch.randn(5, 70, device=device), 1)
    assert_as_reference(logits, probabilities, reduction=reduction, **chosen)


def plain(
    logits,
    target,
    weight=None,
    *,
    reduction="mean",
    token_scaling=0.0,
    row_weight=None,
    divisor=None,
    label_smoothing=0.0,
    z_loss=0.0,
    logit_scale=1.0,
):
    """What the options are said to mean, in operations of torch and float64."""
    wide, own = logits.double(), None if weight is None else weight.double()
    if isinstance(logit_scale, torch.Tensor):
        wide = wide * logit_scale.double().unsqueeze(1)
    counts = target != -100
    known = target.masked_fill(~counts, 0)
    losses = F.cross_entropy(wide, target, own, reduction="none", label_smoothing=label_smoothing)
    z_losses = z_loss * torch.logsumexp(wide, 1).square().masked_fill(~counts, 0)
    factor = torch.softmax(wide, 1).gather(1, known[:, None])[:, 0].detach() ** token_scaling
    if row_weight is not None:
        factor = factor * row_weight.double()
    losses, z_losses = losses * factor, z_losses * factor
    if reduction == "none":
        return losses + z_losses
    if reduction == "sum":
        return (losses + z_losses).sum()
    if divisor is not None:
        return (losses + z_losses).sum() / divisor
    total = counts.sum() if own is None else own[known][counts].sum()
    return losses.sum() / total + z_losses.sum() / counts.sum()


SCALING = {
    "token scaling": {"token_scaling": 1.0},
    "a power": {"token_scaling": 0.5, "label_smoothing": 0.1, "z_loss": 1e-2},
    "row weights": {"row_weight": True},
    "row scales": {"logit_scale": True},
    "a divisor": {"divisor": 7.0, "z_loss": 1e-2},
    "all": {
        "token_scaling": 2.0,
        "row_weight": True,
        "divisor": 3.5,
        "label_smoothing": 0.1,
        "z_loss": 1e-2,
        "logit_scale": True,
    },
}


@pytest.mark.parametrize("cpu", ["host", "torch"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", SCALING)
def test_what_scales_a_row(name, reduction, cpu, device, seed):
    options = {**SCALING[name], "reduction": reduction}
    if "divisor" in options and reduction != "mean":
        options.pop("divisor")
    if options.get("row_weight"):
        options["row_weight"] = torch.rand(7, device=device) * 2
    if "logit_scale" in options:
        options["logit_scale"] = torch.rand(7, device=device) + 0.5
    logits, target = 2 * torch.randn(7, 40, device=device), some_targets(7, 40, device)
    before = ct.configure(cpu=cpu)
    try:
        for weight in (None, torch.rand(40, device=device)):
            upstream = torch.rand((7,) if reduction == "none" else (), device=device)
            loss, grad = loss_and_grad(ct.cross_entropy, logits, target, weight, upstream=upstream, **options)
            expected, expected_grad = loss_and_grad(plain, logits, target, weight, upstream=upstream, **options)
            torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(grad, expected_grad, rtol=1e-4, atol=1e-6)
            with torch.no_grad():
                torch.testing.assert_close(ct.cross_entropy(logits, target, weight, **options), loss)
    finally:
        ct.restore(before)


@pytest.mark.parametrize("cpu", ["host", "torch"])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_the_z_loss_by_itself_has_a_gradient(reduction, compiled, cpu, device, seed):
    if cpu == "torch" and device.type == "cuda":
        pytest.skip("of the CPU")
    options = {"reduction": reduction, "z_loss": 0.1, "token_scaling": 0.5, "row_weight": torch.rand(7, device=device)}
    logits, target = 2 * torch.randn(7, 40, device=device), some_targets(7, 40, device)
    torch.compiler.reset()
    function = torch.compile(ct.cross_entropy, fullgraph=True, backend="aot_eager") if compiled else ct.cross_entropy
    of_loss, of_z_loss, of_lse = torch.randn(3, 7, device=device)
    before = ct.configure(cpu=cpu)
    try:
        for divisor in (None, 5.0) if reduction == "mean" else (None,):
            leaf, wide = logits.clone().requires_grad_(), logits.double().requires_grad_()
            made = function(leaf, target, divisor=divisor, return_z_loss=True, return_lse=True, **options)
            loss = plain(wide, target, divisor=divisor, **options)
            without = plain(wide, target, divisor=divisor, **{**options, "z_loss": 0.0})
            lse = torch.logsumexp(wide, 1).masked_fill(target == -100, 0.0)
            if reduction != "none":
                of_loss, of_z_loss = of_loss.sum(), of_z_loss.sum()
            torch.testing.assert_close(made.z_loss.double(), loss - without, rtol=1e-5, atol=1e-6)
            total = (made.loss * of_loss).sum() + (made.z_loss * of_z_loss).sum() + (made.lse * of_lse).sum()
            expected = (loss * of_loss).sum() + ((loss - without) * of_z_loss).sum() + (lse * of_lse).sum()
            (grad,), (expected_grad,) = torch.autograd.grad(total, leaf), torch.autograd.grad(expected, wide)
            torch.testing.assert_close(grad.double(), expected_grad, rtol=1e-4, atol=1e-5)
        made = function(leaf, target, return_z_loss=True, **options)
        assert made.z_loss.requires_grad == (reduction == "none")
    finally:
        ct.restore(before)


@pytest.mark.parametrize("cpu", ["host", "torch"])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_given_logsumexp(reduction, compiled, cpu, device, seed):
    if cpu == "torch" and device.type == "cuda":
        pytest.skip("of the CPU")
    options = {"reduction": reduction, "z_loss": 0.1, "token_scaling": 0.5, "row_weight": torch.rand(7, device=device)}
    logits, target = 2 * torch.randn(7, 40, device=device), some_targets(7, 40, device)
    torch.compiler.reset()
    function = torch.compile(ct.cross_entropy, fullgraph=True, backend="aot_eager") if compiled else ct.cross_entropy
    lse = torch.logsumexp(logits, 1)
    of_loss, of_z_loss = torch.randn(2, 7, device=device)
    if reduction != "none":
        of_loss, of_z_loss = of_loss.sum(), of_z_loss.sum()
    before = ct.configure(cpu=cpu)
    try:
        for weight in (None, torch.rand(40, device=device)):
            leaf, wide = logits.clone().requires_grad_(), logits.double().requires_grad_()
            more = {"return_lse": True} if reduction != "none" and cpu == "torch" else {}
            made = function(leaf, target, weight, given_lse=lse, return_z_loss=True, **options)
            loss = plain(wide, target, weight, **options)
            z_loss = loss - plain(wide, target, weight, **{**options, "z_loss": 0.0})
            torch.testing.assert_close(made.loss.double(), loss, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(made.z_loss.double(), z_loss, rtol=1e-5, atol=1e-5)
            total, expected = (made.loss * of_loss).sum(), (loss * of_loss).sum()
            if not (more and made.z_loss.grad_fn is None):
                total, expected = total + (made.z_loss * of_z_loss).sum(), expected + (z_loss * of_z_loss).sum()
            (grad,), (expected_grad,) = torch.autograd.grad(total, leaf), torch.autograd.grad(expected, wide)
            torch.testing.assert_close(grad.double(), expected_grad, rtol=1e-4, atol=1e-5)
        assert function(leaf, target, given_lse=lse).shape == ()
    finally:
        ct.restore(before)


def test_what_scales_a_row_of_many_dimensions_and_by_numbers_on_the_device(device, seed):
    logits, target = torch.randn(3, 20, 4, device=device), torch.randint(0, 20, (3, 4), device=device)
    row_weight = torch.rand(4, 3, device=device).t()
    losses = F.cross_entropy(logits.double(), target, reduction="none") * row_weight.double()
    for divisor in (5, torch.tensor(5, device=device), torch.tensor([5.0], device=device)):
        loss = ct.cross_entropy(logits, target, row_weight=row_weight, divisor=divisor)
        torch.testing.assert_close(loss.double(), losses.sum() / 5, rtol=1e-5, atol=1e-6)
    module = ct.CrossEntropyLoss(token_scaling=1.0)
    loss = module(logits, target, row_weight=row_weight, divisor=5)
    p = torch.softmax(logits.double(), 1).gather(1, target[:, None])[:, 0]
    torch.testing.assert_close(loss.double(), (losses * p).sum() / 5, rtol=1e-5, atol=1e-6)


def test_what_scales_a_row_weights_probabilities_too(device, seed):
    logits, row_weight = torch.randn(4, 20, device=device), torch.rand(4, device=device)
    target = torch.softmax(torch.randn(4, 20, device=device), 1)
    expected = (F.cross_entropy(logits.double(), target.double(), reduction="none") * row_weight.double()).sum()
    loss = ct.cross_entropy(logits, target, row_weight=row_weight, divisor=3)
    torch.testing.assert_close(loss.double(), expected / 3, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"token_scaling is 1.* expected 0, because target holds probabilities"):
        ct.cross_entropy(logits, target, token_scaling=1.0)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_class_weights(reduction, device, seed):
    logits, weight = torch.randn(6, 40, device=device), torch.rand(40, device=device)
    target = some_targets(6, 40, device)
    assert_as_reference(logits, target, weight, reduction=reduction)
    assert_as_reference(logits, target, weight, reduction=reduction, label_smoothing=0.2)
    assert_as_reference(logits, torch.softmax(logits, 1), weight, reduction=reduction)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("sizes", [(7,), (3, 7), (3, 7, 2), (2, 7, 3, 4), (2, 7, 2, 1, 3)])
def test_every_number_of_dimensions(sizes, reduction, device, seed):
    logits = torch.randn(*sizes, device=device)
    rows = sizes[:1] + sizes[2:] if len(sizes) > 1 else ()
    target = torch.randint(0, 7, rows, device=device)
    assert_as_reference(logits, target, reduction=reduction)
    assert_as_reference(logits, torch.rand(*sizes, device=device), reduction=reduction)


def test_views_of_logits_and_targets(device, seed):
    whole = torch.randn(3, 6, 50, device=device)
    targets = torch.randint(0, 50, (3, 6), device=device)
    for reduction in REDUCTIONS:
        # Classes last in memory, second in shape; and the shift of a language model.
        assert_as_reference(whole[:, :-1].transpose(1, 2), targets[:, 1:], reduction=reduction)
        assert_as_reference(whole[:, ::2].transpose(1, 2), targets[:, ::2], reduction=reduction)
        assert_as_reference(whole[0, :1].expand(4, 50), targets[0, :4], reduction=reduction)
        assert_as_reference(torch.randn(50, 8, device=device).t(), targets.reshape(-1)[:8], reduction=reduction)


def test_int32_and_uint8_targets(device, seed):
    logits, target = torch.randn(4, 30, device=device), torch.randint(0, 30, (4,), device=device)
    expected = ct.cross_entropy(logits, target)
    for dtype in (torch.int32, torch.uint8):
        assert torch.equal(ct.cross_entropy(logits, target.to(dtype)), expected)


def test_probabilities_of_another_dtype_are_promoted_as_in_torch(device, seed):
    logits = torch.randn(4, 30, device=device).bfloat16()
    probabilities = torch.softmax(torch.randn(4, 30, device=device), 1)
    loss = ct.cross_entropy(logits, probabilities)
    assert loss.dtype is torch.float32
    torch.testing.assert_close(loss, F.cross_entropy(logits.float(), probabilities))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nothing_to_average(reduction, device):
    ignored = torch.full((3,), -100, device=device)
    assert_as_reference(torch.randn(3, 8, device=device), ignored, reduction=reduction)
    empty = torch.randn(0, 8, device=device)
    assert_as_reference(empty, ignored[:0], reduction=reduction)
    if reduction == "mean":
        for logits, target in ((torch.randn(3, 8, device=device), ignored), (empty, ignored[:0])):
            assert ct.cross_entropy(logits, target, divisor=4) == 0
            weight = torch.randn(5, 8, device=device)
            assert ct.linear_cross_entropy(logits, weight, target, divisor=4) == 0


def test_masked_classes_and_rows_without_a_softmax(device):
    inf, nan = float("inf"), float("nan")
    logits = torch.tensor([[1, -inf, 2], [-inf, 3, 1], [-inf, -inf, -inf], [1, inf, 2], [nan, 1, 2]], device=device)
    target = torch.tensor([0, 0, 1, 1, 2], device=device)
    ours, torchs = (f(logits, target, reduction="none") for f in (ct.cross_entropy, F.cross_entropy))
    torch.testing.assert_close(ours, torchs, equal_nan=True)


def test_outputs_beside_the_loss(device, seed):
    logits, target = torch.randn(6, 40, device=device), some_targets(6, 40, device)
    for requires_grad in (False, True):
        made = ct.cross_entropy(
            logits.clone().requires_grad_(requires_grad),
            target,
            z_loss=1e-2,
            return_z_loss=True,
            return_lse=True,
            return_argmax=True,
            return_hit=True,
        )
        valid = target != -100
        lse = torch.logsumexp(logits, 1)
        torch.testing.assert_close(made.lse, lse)
        torch.testing.assert_close(made.z_loss, 1e-2 * (lse[valid] ** 2).mean())
        torch.testing.assert_close(made.loss, F.cross_entropy(logits, target) + made.z_loss)
        assert torch.equal(made.argmax, logits.argmax(1))
        assert torch.equal(made.hit, (logits.argmax(1) == target) & valid)
        assert made.loss.requires_grad == requires_grad
        assert made.lse.requires_grad == requires_grad
    only = ct.cross_entropy(logits, target, return_argmax=True)
    assert only.lse is None
    assert only.hit is None
    assert ct.cross_entropy(logits, target, return_z_loss=True).z_loss.item() == 0


@pytest.mark.parametrize("how", ["host", "torch", "compiled"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_the_logsumexp_is_differentiable(reduction, how, device, seed):
    """Together with the loss, alone, and not in rows left out."""
    options = {"softcap": 5.0, "logit_scale": 0.7, "z_loss": 1e-3}
    logits, target = 3 * torch.randn(6, 40, device=device), some_targets(6, 40, device)
    of_loss = torch.randn((6,) if reduction == "none" else (), device=device)
    of_lse, counts = torch.randn(6, device=device), target != -100

    def function(x):
        made = ct.cross_entropy(x, target, reduction=reduction, return_lse=True, **options)
        return made.loss, made.lse

    wide = logits.double().requires_grad_()
    expected = reference(wide, target, reduction=reduction, **options)
    expected_lse = torch.logsumexp(5 * torch.tanh(0.7 * wide / 5), 1)
    before = ct.configure(cpu="torch" if how == "torch" else "host")
    try:
        torch.compiler.reset()
        called = torch.compile(function, fullgraph=True, backend="aot_eager") if how == "compiled" else function
        for with_loss in (True, False):
            leaf = logits.clone().requires_grad_()
            loss, lse = called(leaf)
            total, expected_total = (of_lse * lse).sum(), (of_lse * expected_lse)[counts].sum()
            if with_loss:
                total, expected_total = total + (of_loss * loss).sum(), expected_total + (of_loss * expected).sum()
            torch.testing.assert_close(lse.double(), expected_lse, rtol=1e-5, atol=1e-5)
            (grad,) = torch.autograd.grad(total, leaf)
            (expected_grad,) = torch.autograd.grad(expected_total, wide, retain_graph=True)
            torch.testing.assert_close(grad.double(), expected_grad, rtol=1e-4, atol=1e-6)
    finally:
        ct.restore(before)


def test_gradient_over_the_logits(device, seed):
    for reduction in ("mean", "sum"):
        leaf = torch.randn(5, 60, device=device, requires_grad=True)
        target = some_targets(5, 60, device)
        logits = leaf * 2
        address = logits.data_ptr()
        loss = ct.cross_entropy(logits, target, reduction=reduction, inplace_backward=True)
        assert logits.data_ptr() == address
        loss.backward(torch.tensor(3.0, device=device))
        _, expected = loss_and_grad(lambda x, t=target, r=reduction: 3 * F.cross_entropy(2 * x, t, reduction=r), leaf)
        torch.testing.assert_close(leaf.grad, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="inplace_backward is True; expected False with the reduction 'none'"):
        ct.cross_entropy(leaf * 2, target, reduction="none", inplace_backward=True)


def test_upstream_multiplies_the_gradient_not_the_loss(device, seed):
    logits, target = torch.randn(5, 60, device=device), some_targets(5, 60, device)
    for reduction, sizes in (("mean", ()), ("sum", ()), ("none", (5,))):
        factor = torch.rand(sizes, device=device)
        loss, grad = loss_and_grad(
            lambda x, f=factor, r=reduction: ct.cross_entropy(x, target, reduction=r, upstream=f), logits
        )
        expected, expected_grad = loss_and_grad(
            lambda x, r=reduction: F.cross_entropy(x, target, reduction=r), logits, upstream=factor
        )
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(grad, expected_grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("outputs", [{}, {"return_lse": True}])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_upstream_has_the_sizes_of_the_rows_apart_from_ones(reduction, outputs, device, seed):
    logits, target = torch.randn(6, 20, device=device), some_targets(6, 20, device)
    factor = torch.rand(6, device=device)

    def grad_of(upstream):
        leaf = logits.clone().requires_grad_()
        made = ct.cross_entropy(leaf, target, reduction=reduction, upstream=upstream, **outputs)
        (made.loss if outputs else made).sum().backward()
        return leaf.grad

    for sizes in ((6, 1), (1, 6)):
        assert torch.equal(grad_of(factor.reshape(sizes)), grad_of(factor))
    for sizes in ((2, 3), (3,), (12,)):
        with pytest.raises(ValueError, match=r"upstream has sizes \[.*\]; expected a number, or \[6\]"):
            grad_of(torch.ones(sizes, device=device))


def test_a_graph_that_is_kept_can_be_walked_again(device, seed):
    leaf, target = torch.randn(4, 20, device=device, requires_grad=True), some_targets(4, 20, device)
    loss = ct.cross_entropy(leaf, target)
    first, second = (
        torch.autograd.grad(loss, leaf, torch.tensor(f, device=device), retain_graph=True)[0] for f in (2.0, 5.0)
    )
    torch.testing.assert_close(second, 2.5 * first)
    torch.testing.assert_close(torch.autograd.grad(loss, leaf)[0], first / 2)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, leaf)


def test_saved_tensors_hooks_and_checkpoints(device, seed):
    leaf, target = torch.randn(4, 20, device=device, requires_grad=True), some_targets(4, 20, device)
    _, expected = loss_and_grad(F.cross_entropy, leaf, target)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.cpu(), lambda x: x.to(device)):
        loss = ct.cross_entropy(leaf, target)
    torch.testing.assert_close(torch.autograd.grad(loss, leaf)[0], expected)
    loss = torch.utils.checkpoint.checkpoint(ct.cross_entropy, leaf, target, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(loss, leaf)[0], expected)


def test_is_differentiable_once(device, seed):
    leaf, target = torch.randn(4, 20, device=device, requires_grad=True), some_targets(4, 20, device)
    for reduction in REDUCTIONS:
        loss = ct.cross_entropy(leaf, target, reduction=reduction).sum()
        with pytest.raises(RuntimeError, match=r"ce\.torch\.cross_entropy is differentiable once"):
            torch.autograd.grad(loss, leaf, create_graph=True)
    # Not even where what is missing would be taken for 0.
    with pytest.raises(RuntimeError, match=r"ce\.torch\.cross_entropy is differentiable once"):
        torch.autograd.functional.hvp(lambda x: ct.cross_entropy(x, target), leaf, torch.ones_like(leaf))


def test_under_autocast_the_loss_is_float32(device, seed):
    logits, target = torch.randn(4, 20, device=device).bfloat16().requires_grad_(), some_targets(4, 20, device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        loss = ct.cross_entropy(logits, target)
    assert loss.dtype is torch.float32
    loss.backward()
    expected, grad = loss_and_grad(lambda x: F.cross_entropy(x.float(), target), logits)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(logits.grad, grad, rtol=0.01, atol=1e-6)


def test_gradients_of_probabilities_are_for_torch(device, seed):
    logits = torch.randn(3, 6, device=device, requires_grad=True)
    probabilities = torch.rand(3, 6, device=device, requires_grad=True)
    ct.cross_entropy(logits, probabilities).backward()
    ours = probabilities.grad.clone()
    probabilities.grad = None
    F.cross_entropy(logits, probabilities).backward()
    torch.testing.assert_close(ours, probabilities.grad)


def test_targets_out_of_range_are_never_silent(device):
    logits, target = torch.zeros(3, 8, device=device), torch.tensor([1, 8, -3], device=device)
    losses = ct.cross_entropy(logits, target, reduction="none")
    assert losses.isnan().tolist() == [False, True, True]
    with pytest.raises(IndexError, match=r"2 rows had a target .* the first is row 1 with target 8"):
        ct.check(device)
    ct.check(device)
    with pytest.raises(IndexError):
        ct.cross_entropy(logits, target, check=True)


def test_other_settings_do_not_hide_what_was_met_before(device):
    logits, target = torch.zeros(2, 8, device=device), torch.tensor([1, 8], device=device)
    ct.cross_entropy(logits, target)
    before = ct.configure(tuning_seconds=1.5)
    try:
        with pytest.raises(IndexError, match="1 row had a target"):
            ct.check(device)
        ct.check(device)
    finally:
        ct.restore(before)


def test_the_module_has_the_options_of_the_function():
    def keywords(function):
        return {
            name: p.default for name, p in inspect.signature(function).parameters.items() if p.kind is p.KEYWORD_ONLY
        }

    function, module = keywords(ct.cross_entropy), keywords(ct.CrossEntropyLoss.__init__)
    given = {**module, **keywords(ct.CrossEntropyLoss.forward)}
    of_function_alone = {"given_lse", "upstream", "check", *(name for name in function if name.startswith("return_"))}
    assert given == {name: default for name, default in function.items() if name not in of_function_alone}


def test_module(device, seed):
    logits, target = torch.randn(4, 20, device=device), some_targets(4, 20, device)
    weight = torch.rand(20)
    own = ct.CrossEntropyLoss(weight, reduction="sum", label_smoothing=0.1).to(device)
    torchs = torch.nn.CrossEntropyLoss(weight, reduction="sum", label_smoothing=0.1).to(device)
    torch.testing.assert_close(own(logits, target), torchs(logits, target))
    assert torch.equal(own.state_dict()["weight"], torchs.state_dict()["weight"])
    with_z_loss = ct.CrossEntropyLoss(z_loss=0.1)(logits, target)
    assert with_z_loss > torch.nn.CrossEntropyLoss()(logits, target)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_the_gradient_in_operations_of_torch(reduction, seed):
    """What the operators compute on the CPU, beside what autograd makes of the loss."""
    logits, weight = torch.randn(4, 9, dtype=torch.float64), torch.rand(9, dtype=torch.float64)
    for options in ({}, OPTIONS):
        for target in (torch.tensor([1, -100, 8, 0]), torch.rand(4, 9, dtype=torch.float64)):
            upstream = torch.rand((4,) if reduction == "none" else (), dtype=torch.float64)
            chosen = options_of(reduction, **options)
            own = chosen._replace(token_scaling=0.0 if target.is_floating_point() else 1.5)
            row_weight, divisor = torch.rand(4, dtype=torch.float64), torch.tensor(3.0, dtype=torch.float64)
            for given, more in (
                (chosen, {}),
                (own, {"row_weight": row_weight}),
                (own, {"row_weight": row_weight, **({"divisor": divisor} if reduction == "mean" else {})}),
            ):
                _, expected = loss_and_grad(
                    lambda x, t=target, g=given, m=more: _reference.cross_entropy(x, t, weight, g, **m).loss,
                    logits,
                    upstream=upstream,
                )
                made = _reference.gradient(logits, target, weight, given, upstream, **more)
                torch.testing.assert_close(made, expected)


BAD = {
    "reduction": (ValueError, "reduction is 'avg'; expected", lambda x, t: ct.cross_entropy(x, t, reduction="avg")),
    "label_smoothing": (ValueError, "label_smoothing is 3", lambda x, t: ct.cross_entropy(x, t, label_smoothing=3.0)),
    "rows of target": (ValueError, r"target has sizes \[2\]; expected \[4\]", lambda x, t: ct.cross_entropy(x, t[:2])),
    "sizes of probabilities": (ValueError, "target has sizes", lambda x, t: ct.cross_entropy(x, x.detach()[:, :3])),
    "weight": (ValueError, "weight is 5 x 1", lambda x, t: ct.cross_entropy(x, t, x.new_ones(5))),
    "dtype of weight": (TypeError, "weight.dtype", lambda x, t: ct.cross_entropy(x, t, x.new_ones(8).half())),
    "loss_dtype": (ValueError, "loss_dtype", lambda x, t: ct.cross_entropy(x, t, loss_dtype=torch.float16)),
    "z_loss": (ValueError, "z_loss is -1", lambda x, t: ct.cross_entropy(x, t, z_loss=-1.0)),
    "softcap": (ValueError, "softcap is -1", lambda x, t: ct.cross_entropy(x, t, softcap=-1.0)),
    "token_scaling": (ValueError, "token_scaling is 17", lambda x, t: ct.cross_entropy(x, t, token_scaling=17.0)),
    "rows of row_weight": (
        ValueError,
        r"row_weight has sizes \[3\]; expected \[4\]",
        lambda x, t: ct.cross_entropy(x, t, row_weight=x.new_ones(3)),
    ),
    "dtype of row_weight": (
        TypeError,
        "row_weight.dtype",
        lambda x, t: ct.cross_entropy(x, t, row_weight=x.new_ones(4).half()),
    ),
    "gradient of row_weight": (
        RuntimeError,
        "row_weight",
        lambda x, t: ct.cross_entropy(x, t, row_weight=x.new_ones(4).requires_grad_()),
    ),
    "rows of given_lse": (
        ValueError,
        r"given_lse has sizes \[3\]; expected \[4\]",
        lambda x, t: ct.cross_entropy(x, t, given_lse=x.new_ones(3)),
    ),
    "given_lse and more": (
        ValueError,
        "given_lse is given; expected None with probabilities",
        lambda x, t: ct.cross_entropy(x, t, given_lse=x.new_ones(4), return_lse=True),
    ),
    "rows of logit_scale": (
        ValueError,
        r"logit_scale has sizes \[3\]; expected a number, or \[4\]",
        lambda x, t: ct.cross_entropy(x, t, logit_scale=x.new_ones(3)),
    ),
    "dtype of logit_scale": (
        TypeError,
        "logit_scale.dtype is torch.float16; expected torch.float32",
        lambda x, t: ct.cross_entropy(x, t, logit_scale=x.new_ones(4).half()),
    ),
    "gradient of logit_scale": (
        RuntimeError,
        "logit_scale",
        lambda x, t: ct.cross_entropy(x, t, logit_scale=x.new_ones(4).requires_grad_()),
    ),
    "divisor of a sum": (
        ValueError,
        "divisor is 3; expected None with reduction 'sum'",
        lambda x, t: ct.cross_entropy(x, t, reduction="sum", divisor=3),
    ),
    "sizes of divisor": (
        ValueError,
        r"divisor has sizes \[2\]; expected a number, or one element",
        lambda x, t: ct.cross_entropy(x, t, divisor=x.new_ones(2)),
    ),
    "gradient of divisor": (
        RuntimeError,
        "divisor",
        lambda x, t: ct.cross_entropy(x, t, divisor=x.new_ones(()).requires_grad_()),
    ),
    "gradient of weight": (
        RuntimeError,
        "weight",
        lambda x, t: ct.cross_entropy(x, t, x.new_ones(8).requires_grad_()),
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_refuses(case, device):
    kind, message, call = BAD[case]
    logits, target = torch.zeros(4, 8, device=device), torch.zeros(4, dtype=torch.int64, device=device)
    for requires_grad in (False, True):
        with pytest.raises(kind, match=message):
            call(logits.clone().requires_grad_(requires_grad), target)


def test_refuses_the_transforms_of_torch_func(device):
    target = torch.zeros(4, dtype=torch.int64, device=device)
    with pytest.raises(RuntimeError, match=r"torch\.func"):
        torch.func.grad(lambda x: ct.cross_entropy(x, target))(torch.zeros(4, 8, device=device))


def test_the_cpu_and_float64_are_for_torch(seed):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        logits, target = torch.randn(3, 5, dtype=dtype), torch.randint(0, 5, (3,))
        assert torch.equal(ct.cross_entropy(logits, target), F.cross_entropy(logits, target))
        with_options = ct.cross_entropy(logits, target, z_loss=1e-2, softcap=3.0, return_lse=True)
        assert with_options.loss.dtype is dtype
        expected = torch.logsumexp(3 * torch.tanh(logits.double() / 3), 1)
        torch.testing.assert_close(with_options.lse.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("how", ["no gradient", "gradient", "compiled", "float64"])
def test_log_probabilities_and_entropies_that_are_returned(device, seed, how, reduction):
    logits = torch.randn(5, 30, dtype=torch.float64 if how == "float64" else torch.float32, device=device)
    target = torch.tensor([3, 0, -100, 29, 7], device=device)
    function = torch.compile(ct.cross_entropy, backend="aot_eager") if how == "compiled" else ct.cross_entropy
    made = function(
        logits.requires_grad_(how != "no gradient"),
        target,
        reduction=reduction,
        logit_scale=0.5,
        return_logprob=True,
        return_entropy=True,
    )
    log_p = torch.log_softmax(0.5 * logits.detach().double(), 1)
    counts = target >= 0
    own = torch.where(counts, log_p.gather(1, target.clamp(min=0)[:, None])[:, 0], 0.0)
    entropy = torch.where(counts, -(log_p.exp() * log_p).sum(1), 0.0)
    assert made.lse is made.argmax is made.hit is None
    for one, expected in ((made.logprob, own), (made.entropy, entropy)):
        assert one.dtype is torch.float32 and not one.requires_grad
        torch.testing.assert_close(one.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(made.loss, F.cross_entropy(0.5 * logits, target, reduction=reduction))


def test_what_probabilities_or_a_given_logsumexp_leave_out_is_refused(device, seed):
    logits, p = torch.randn(3, 9, device=device), torch.softmax(torch.randn(3, 9, device=device), 1)
    with pytest.raises(ValueError, match="return_logprob is True; expected False where target holds probabilities"):
        ct.cross_entropy(logits, p, return_logprob=True)
    assert ct.cross_entropy(logits, p, return_entropy=True).entropy.shape == (3,)
    with pytest.raises(ValueError, match="given_lse is given"):
        ct.cross_entropy(logits, p.argmax(1), given_lse=torch.logsumexp(logits, 1), return_entropy=True)


def far_logits(device):
    """Near 10^4, whose logsumexps float32 rounds by up to 5e-4."""
    return (torch.randn(6, 1003, device=device) * 8 + 1e4).requires_grad_()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("scale", [1.0, 0.7])
def test_the_gradient_from_saved_rows_is_as_exact_as_that_of_one_pass(scale, compiled, device, seed):
    scale = torch.tensor(scale).item()  # as kernels have it
    logits, target = far_logits(device), torch.randint(0, 1003, (6,), device=device)
    target[:2] = logits[:2].argmax(1)
    exact = logits.detach().double().requires_grad_()
    F.cross_entropy(exact * scale, target, reduction="sum").backward()
    largest = {}
    for reduction in ("sum", "none"):
        logits.grad = None
        function = torch.compile(ct.cross_entropy, backend="aot_eager") if compiled else ct.cross_entropy
        loss = function(logits, target, reduction=reduction, logit_scale=scale)
        loss.backward(torch.ones_like(loss))
        largest[reduction] = (logits.grad - exact.grad).abs().max().item()
    assert largest["none"] <= 2 * largest["sum"] + 1e-6
    output = ct.cross_entropy(logits, target, return_lse=True, return_lse_low=True, logit_scale=scale)
    assert ((output.lse.double() + output.lse_low) - torch.logsumexp(exact * scale, 1)).abs().max() < 2e-6


def test_a_call_with_torchs_arguments_alone_converts_no_others(device, seed, monkeypatch):
    """Each argument of an operator costs a call some of its time."""
    given = []
    for module, name in ((ct.functional, "_loss_of_classes"), (ct._autograd, "_of_classes_and_grad")):
        operator = getattr(module, name)

        def spy(*arguments, operator=operator):
            given.append(arguments[2:])
            return operator(*arguments)

        monkeypatch.setattr(module, name, spy)
    logits = torch.randn(6, 40, device=device, requires_grad=True)
    target = torch.tensor([0, 39, -100, 5, 3, 3], device=device)
    for input in (logits, logits.detach(), logits.bfloat16(), logits.detach().bfloat16()):
        f32_loss = input.dtype is torch.float32
        for options, numbers in (
            ({}, ()),
            ({"ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0}, ()),
            ({"ignore_index": 3, "reduction": "sum"}, (3, 2, 0.0)),
            ({"label_smoothing": 0.1}, (-100, 1, 0.1)),
        ):
            ours = ct.cross_entropy(input, target.clamp(min=0) if "ignore_index" in options else target, **options)
            assert given.pop() == (f32_loss, *numbers)
            assert not given
            assert ours.requires_grad == input.requires_grad
    with torch.autocast(device.type, dtype=torch.bfloat16):
        assert ct.cross_entropy(logits.detach().bfloat16(), target).dtype is torch.float32
    assert given.pop() == (True,)
    ct.cross_entropy(logits, target, z_loss=0.1)
    ct.cross_entropy(logits.detach(), target, weight=torch.ones(40, device=device))
    ct.cross_entropy(logits.detach(), target.clamp(min=0).new_zeros(6, 40).float())
    assert not given


@pytest.mark.parametrize("wants_gradient", [False, True])
def test_direct_calls_take_and_refuse_what_all_others_do(wants_gradient, device, seed):
    """Numbers equal to the defaults, and those of other types."""
    logits = torch.randn(6, 40, device=device, requires_grad=wants_gradient)
    target = torch.tensor([0, 39, 7, 5, 3, 3], device=device)

    def made(function, options):
        try:
            loss = function(logits, target, **options)
        except (TypeError, ValueError) as error:
            return type(error), str(error)
        grad = torch.autograd.grad(loss.sum(), logits)[0].tolist() if wants_gradient else None
        return loss.dtype, loss.tolist(), grad

    def indirect(*args, **options):
        return ct.cross_entropy(*args, z_loss=0.0, **options)

    for options in (
        *(
            {"ignore_index": index}
            for index in (3, True, np.int64(3), np.int32(-100), torch.tensor(3), 2**63, None, "3")
        ),
        *({"ignore_index": index} for index in (-100.0, np.float64(-100), -100 + 0j, 3.0, torch.tensor([3, 4]))),
        *({"label_smoothing": amount} for amount in (0, 1, False, -0.0, np.float32(0.1), torch.tensor(0.0), 0j, "0")),
        *({"label_smoothing": amount} for amount in (-0.1, 1.5, float("nan"), None, torch.tensor([0.0, 0.1]))),
        *({"reduction": reduction} for reduction in ("none", np.str_("sum"), "MEAN", None, 1, [], b"mean")),
    ):
        assert made(ct.cross_entropy, options) == made(indirect, options), options
    for options, message in (
        ({"ignore_index": -100.0}, "ignore_index is -100.0; expected an integer"),
        ({"label_smoothing": 0j}, "label_smoothing is 0j; expected a number"),
    ):
        with pytest.raises(TypeError, match=re.escape(f"ce.torch.cross_entropy: {message}")):
            ct.cross_entropy(logits, target, **options)


def test_direct_calls_have_the_documented_arguments():
    direct = list(inspect.signature(ct.cross_entropy, follow_wrapped=False).parameters.values())[:-1]
    documented = list(inspect.signature(ct.cross_entropy).parameters.values())
    assert direct == documented[: len(direct)]
    assert all(one.kind is one.KEYWORD_ONLY for one in documented[len(direct) :])


def test_what_a_transform_has_left_behind_is_a_tensor(device, seed):
    logits = torch.randn(4, 9, device=device, requires_grad=True)
    target, left = torch.tensor([1, 8, -100, 0], device=device), []

    def keep(x):
        left.append(x)
        return x.sum()

    torch.func.grad(keep)(logits)
    for call in (ct.cross_entropy, lambda x, _: ct.softmax(x, 1)[:, 0].sum()):
        ours, expected = call(left[0], target), call(logits, target)
        assert torch.equal(ours, expected)
        assert torch.equal(*(torch.autograd.grad(one, logits)[0] for one in (ours, expected)))
