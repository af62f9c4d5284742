"""The loss of a linear layer beside plain torch in float64."""

from __future__ import annotations

import ctypes
import inspect
import types

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import ce.torch as ct
from ce import _c
from ce.torch import _linear, _linear_arguments, _native, _reference
from conftest import needs_gpu

TOKENS, HIDDEN, CLASSES = 21, 16, 40
DTYPES = [torch.float32, torch.bfloat16]


class Head:
    """A layer with a batch, and both in float64."""

    def __init__(self, device, dtype=torch.float32, bias=False, sizes=(TOKENS,), ignored=True) -> None:
        def leaf(*shape):
            return (torch.randn(*shape, device=device) / 2).to(dtype).requires_grad_()

        self.input, self.weight = leaf(*sizes, HIDDEN), leaf(CLASSES, HIDDEN)
        self.bias = leaf(CLASSES) if bias else None
        self.target = torch.randint(0, CLASSES, sizes, device=device)
        if ignored:
            self.target.view(-1)[3] = -100
        self.leaves = [one for one in (self.input, self.weight, self.bias) if one is not None]
        self.wide = [one.detach().double().requires_grad_() for one in self.leaves]

    def logits(self) -> Tensor:
        """In float64, [tokens, classes]."""
        return F.linear(self.wide[0].reshape(-1, HIDDEN), *self.wide[1:])


def assert_close(ours: Tensor, expected: Tensor, dtype: torch.dtype, factor: float = 4) -> None:
    eps = max(torch.finfo(dtype).eps, 1e-6)
    scale = expected.abs().max().item()
    torch.testing.assert_close(ours.double(), expected.double(), rtol=factor * eps, atol=factor * eps * scale + 1e-7)


def assert_gradients(loss: Tensor, expected: Tensor, head: Head, dtype: torch.dtype, factor: float = 4) -> None:
    upstream = torch.rand_like(expected)
    grads = torch.autograd.grad(loss, head.leaves, upstream.to(loss.dtype), retain_graph=True)
    wides = torch.autograd.grad(expected, head.wide, upstream, retain_graph=True)
    for grad, wide, leaf in zip(grads, wides, head.leaves):
        assert grad.dtype is leaf.dtype
        assert_close(grad, wide, dtype, factor)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chunk_tokens", [None, 8])
def test_loss_and_gradients(dtype, reduction, chunk_tokens, device, seed):
    head = Head(device, dtype, bias=True)
    loss = ct.linear_cross_entropy(
        head.input, head.weight, head.target, linear_bias=head.bias, reduction=reduction, chunk_tokens=chunk_tokens
    )
    expected = F.cross_entropy(head.logits(), head.target, reduction=reduction)
    assert loss.dtype is dtype and loss.shape == expected.shape
    assert_close(loss, expected, dtype)
    assert_gradients(loss, expected, head, dtype)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("exponentials", [True, False])
def test_gradients_of_exponentials(exponentials, reduction, device, seed):
    head = Head(device, torch.bfloat16)
    options = {"reduction": reduction, "z_loss": 0.01, "softcap": 8.0, "loss_dtype": torch.float32}
    loss = ct.linear_cross_entropy(head.input, head.weight, head.target, exponentials=exponentials, **options)
    before = ct.configure(cpu="torch")
    options.pop("loss_dtype")
    expected = ct.cross_entropy(head.logits(), head.target, **options)
    ct.restore(before)
    assert_close(loss, expected, torch.bfloat16)
    assert_gradients(loss, expected, head, torch.bfloat16)


@pytest.mark.parametrize("reason", ["float32", "bias"])
def test_exponentials_where_they_do_not_serve(reason, device, seed):
    head = Head(device, torch.float32 if reason == "float32" else torch.bfloat16, bias=reason == "bias")
    with pytest.raises(ValueError, match=r"exponentials.*true.*unset or false"):
        ct.linear_cross_entropy(head.input, head.weight, head.target, linear_bias=head.bias, exponentials=True)


@pytest.mark.parametrize("place", ["host", "torch"])
@pytest.mark.parametrize("kind", ["bfloat16", "autocast", "bias"])
def test_logits_in_float32_are_not_rounded(kind, place, device, seed):
    """Neither by kernels, which may round others, nor by torch, which then does."""
    if place == "torch":
        ct.configure(cpu="torch")
        device = torch.device("cpu")
    dtype = torch.float32 if kind == "autocast" else torch.bfloat16
    x, w = torch.randn(6, 64, device=device).to(dtype), torch.randn(11, 64, device=device).to(dtype)
    bias = torch.randn(11, device=device) if kind == "bias" else None
    target = torch.arange(6, device=device)
    exact = F.linear(x.bfloat16().double(), w.bfloat16().double(), None if bias is None else bias.double())
    logprob = exact.log_softmax(1).gather(1, target.unsqueeze(1)).squeeze(1).float()
    entropy = -(exact.softmax(1) * exact.log_softmax(1)).sum(1).float()
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=kind == "autocast"):
        for logits_dtype in (torch.float32, None) if place == "torch" else (torch.float32,):
            options = {"linear_bias": bias, "logits_dtype": logits_dtype}
            loss = ct.linear_cross_entropy(x, w, target, reduction="none", loss_dtype=torch.float32, **options)
            made = (-loss, *ct.linear_logprobs_and_entropy(x, w, target, **options))
            errors = [(one - want).abs().max().item() for one, want in zip(made, (logprob, logprob, entropy))]
            assert max(errors) < 2e-5 if logits_dtype is torch.float32 else min(errors) > 1e-4, errors


@pytest.mark.parametrize("hidden, begin", [(12, 0), (16, 4), (16, 0)])
def test_exponentials_need_rows_that_begin_on_16_bytes(hidden, begin, device, seed):
    assert "aligned to 16 bytes" in inspect.getdoc(ct.linear_cross_entropy)
    given = torch.randn(TOKENS, hidden + begin, device=device).bfloat16()[:, begin:].requires_grad_()
    weight, target = torch.randn(CLASSES, hidden, device=device).bfloat16(), torch.arange(TOKENS, device=device)
    if hidden == 16 and begin == 0:
        assert ct.linear_cross_entropy(given, weight, target, exponentials=True).isfinite()
        return
    with pytest.raises(ValueError, match=r"exponentials.*true.*unset or false"):
        ct.linear_cross_entropy(given, weight, target, exponentials=True)


def test_every_option_at_once(device, seed):
    head = Head(device, sizes=(3, 7))
    weight = torch.rand(CLASSES, device=device) + 0.5
    row_weight = torch.rand(3, 7, device=device) + 0.5
    options = {
        "label_smoothing": 0.1,
        "z_loss": 0.01,
        "softcap": 8.0,
        "logit_scale": 0.7,
        "token_scaling": 0.5,
    }
    made = ct.linear_cross_entropy(
        head.input,
        head.weight,
        head.target,
        weight=weight,
        row_weight=row_weight,
        return_z_loss=True,
        return_lse=True,
        return_argmax=True,
        return_hit=True,
        chunk_tokens=8,
        **options,
    )
    before = ct.configure(cpu="torch")
    expected = ct.cross_entropy(
        head.logits(),
        head.target.reshape(-1),
        weight.double(),
        row_weight=row_weight.reshape(-1),
        return_z_loss=True,
        return_lse=True,
        return_argmax=True,
        return_hit=True,
        **options,
    )
    ct.restore(before)
    assert made.lse.shape == made.argmax.shape == made.hit.shape == (3, 7)
    for ours, torchs in zip(made[:3], expected[:3]):
        assert_close(ours.reshape(torchs.shape), torchs, torch.float32, 20)
    assert torch.equal(made.argmax.reshape(-1), expected.argmax)
    assert torch.equal(made.hit.reshape(-1), expected.hit)
    assert_gradients(made.loss, expected.loss, head, torch.float32, 20)
    assert_gradients(made.lse.sum() + made.loss, expected.lse.sum() + expected.loss, head, torch.float32, 20)
    assert_gradients(made.z_loss, expected.z_loss, head, torch.float32, 20)


def test_probabilities_divisor_and_upstream(device, seed):
    head = Head(device, ignored=False)
    target = torch.softmax(torch.randn(TOKENS, CLASSES, device=device), -1)
    loss = ct.linear_cross_entropy(head.input, head.weight, target, chunk_tokens=8)
    assert_gradients(loss, F.cross_entropy(head.logits(), target.double()), head, torch.float32)
    loss = ct.linear_cross_entropy(head.input, head.weight, head.target, divisor=7.0, chunk_tokens=8)
    expected = F.cross_entropy(head.logits(), head.target, reduction="sum") / 7
    assert_close(loss, expected, torch.float32)
    assert_gradients(loss, expected, head, torch.float32)
    of_rows = torch.rand(TOKENS, device=device)
    loss = ct.linear_cross_entropy(head.input, head.weight, head.target, upstream=of_rows, chunk_tokens=8)
    rows = F.cross_entropy(head.logits(), head.target, reduction="none")
    (grad,) = torch.autograd.grad(loss, head.input)
    (wide,) = torch.autograd.grad((rows * of_rows).mean(), head.wide[0])
    assert_close(grad, wide, torch.float32)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_two_backwards_give_the_same(reduction, device, seed):
    head = Head(device)
    loss = ct.linear_cross_entropy(head.input, head.weight, head.target, reduction=reduction).sum()
    first = torch.autograd.grad(3 * loss, head.leaves, retain_graph=True)
    kept = [one.clone() for one in first]
    second = torch.autograd.grad(3 * loss, head.leaves, retain_graph=True)
    third = torch.autograd.grad(loss, head.leaves)
    for one, copy, again, plain in zip(first, kept, second, third):
        assert torch.equal(one, copy), "a later backward wrote over it"
        assert torch.equal(one, again)
        assert_close(one, 3 * plain, torch.float32)


def test_what_is_frozen_costs_no_product(device, seed, monkeypatch):
    seen = []
    compute, flags = _linear._compute, len(_linear.Wanted._fields)

    def spy(*arguments):
        seen.append(_linear.Wanted(*arguments[-flags:]))
        return compute(*arguments)

    monkeypatch.setattr(_linear, "_compute", spy)
    head = Head(device, bias=True)
    for frozen, wanted in ((head.weight, "weight_grad"), (head.input, "hidden_grad"), (head.bias, "bias_grad")):
        for leaf in head.leaves:
            leaf.grad = None
        frozen.requires_grad_(False)
        loss = ct.linear_cross_entropy(head.input, head.weight, head.target, linear_bias=head.bias)
        loss.backward()
        assert frozen.grad is None and not getattr(seen[-1], wanted)
        frozen.requires_grad_()
        if frozen is not head.bias:  # the direct call
            loss = ct.linear_cross_entropy(head.input, head.weight.detach(), head.target)
            loss.backward()
            assert seen[-1].hidden_grad and not seen[-1].weight_grad
    with torch.no_grad():
        for bias in (None, head.bias):
            ct.linear_cross_entropy(head.input, head.weight, head.target, linear_bias=bias)
            assert not (seen[-1].hidden_grad or seen[-1].weight_grad or seen[-1].bias_grad)


@pytest.mark.parametrize("sizes", [(TOKENS,), (3, 7), (1, 3, 7)])
def test_a_call_without_options_is_that_with_those_that_are_none(sizes, device, seed, monkeypatch):
    """The direct call gives what the function with every option gives, to a bit, and refuses with its words."""
    looked_at = []
    check = _linear_arguments.check_layer
    monkeypatch.setattr(_linear_arguments, "check_layer", lambda *given: looked_at.append(given) or check(*given))
    head = Head(device, sizes=sizes)
    for leaves in (head.leaves[:2], [head.input.detach(), head.weight.detach()]):
        made = ct.linear_cross_entropy(*leaves, head.target)
        assert not looked_at
        expected = ct.linear_cross_entropy(*leaves, head.target, linear_bias=None)
        assert looked_at.pop()[0] == "linear_cross_entropy"
        assert torch.equal(made, expected)
        assert made.requires_grad == expected.requires_grad == leaves[0].requires_grad
    direct, other = (
        torch.autograd.grad(ct.linear_cross_entropy(*head.leaves, head.target, **options), head.leaves)
        for options in ({}, {"linear_bias": None})
    )
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(direct, other))
    with pytest.raises(ValueError, match=r"linear_weight has sizes .*; expected \[classes, hidden\]"):
        ct.linear_cross_entropy(head.input, head.weight[:, 1:], head.target)
    with pytest.raises(ValueError, match=r"target has sizes .*; expected"):
        ct.linear_cross_entropy(head.input, head.weight, head.target[1:])
    with pytest.raises(TypeError, match="input is 'hidden'; expected a tensor"):
        ct.linear_cross_entropy("hidden", head.weight, head.target)


def test_a_tied_weight_gets_the_sum_of_both_gradients(device, seed):
    weight = torch.randn(CLASSES, HIDDEN, device=device, requires_grad=True)
    wide = weight.detach().double().requires_grad_()
    tokens, target = (torch.randint(0, CLASSES, (TOKENS,), device=device) for _ in range(2))
    ct.linear_cross_entropy(F.embedding(tokens, weight), weight, target, chunk_tokens=8).backward()
    F.cross_entropy(F.linear(F.embedding(tokens, wide), wide), target).backward()
    assert_close(weight.grad, wide.grad, torch.float32)


def test_autocast_keeps_the_gradient_of_a_float32_weight_wide(device, seed):
    head = Head(device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        loss = ct.linear_cross_entropy(head.input, head.weight, head.target, chunk_tokens=8)
    assert loss.dtype is torch.float32
    expected = F.cross_entropy(head.logits(), head.target)
    assert_gradients(loss, expected, head, torch.bfloat16, 8)
    (grad,) = torch.autograd.grad(loss, head.weight)
    assert not torch.equal(grad, grad.bfloat16().float()), "it was rounded"


def test_gradients_are_as_near_as_those_of_float32_logits(device, seed):
    """Beside torch in chunks: logits upcast to float32, their gradient rounded for the products, sums in float32."""
    tokens, hidden, classes, chunk = 256, 64, 500, 64
    input = torch.randn(tokens, hidden, device=device).bfloat16().requires_grad_()
    weight = (torch.randn(classes, hidden, device=device) / 4).bfloat16().requires_grad_()
    target = torch.randint(0, classes, (tokens,), device=device)
    wide = [leaf.detach().double().requires_grad_() for leaf in (input, weight)]
    exact = torch.autograd.grad(F.cross_entropy(F.linear(*wide), target), wide)

    x, w = input.detach(), weight.detach()
    of_input, of_weight = torch.empty_like(x), torch.zeros(classes, hidden, device=device)
    for first in range(0, tokens, chunk):
        rows = slice(first, first + chunk)
        gradient = torch.softmax(F.linear(x[rows], w).float(), -1)
        gradient[torch.arange(chunk, device=device), target[rows]] -= 1
        rounded = (gradient / tokens).bfloat16()
        of_input[rows] = rounded @ w
        of_weight += rounded.float().t() @ x[rows].float()
    loss = ct.linear_cross_entropy(input, weight, target, chunk_tokens=chunk, loss_dtype=torch.float32)
    ours = torch.autograd.grad(loss, (input, weight))
    for grad, torchs, right in zip(ours, (of_input, of_weight.bfloat16()), exact):
        error, allowed = ((one.double() - right).norm() for one in (grad, torchs))
        assert error <= 1.02 * allowed


def test_logits_in_float32_are_nearer(device, seed):
    head = Head(device, torch.bfloat16)
    exact = F.cross_entropy(head.logits(), head.target)
    loss = ct.linear_cross_entropy(
        head.input, head.weight, head.target, logits_dtype=torch.float32, loss_dtype=torch.float32, chunk_tokens=8
    )
    assert_close(loss, exact, torch.float32, 4)
    assert_gradients(loss, exact, head, torch.bfloat16)


@pytest.mark.parametrize("of_rows", [False, True])
def test_logprobs_and_entropy(of_rows, device, seed):
    head = Head(device, bias=True, sizes=(3, 7), ignored=False)
    mask = torch.rand(3, 7, device=device) < 0.7
    temperature = torch.rand(3, 7, device=device) + 0.5 if of_rows else 0.7
    made = ct.linear_logprobs_and_entropy(
        head.input, head.weight, head.target, linear_bias=head.bias, temperature=temperature, mask=mask, chunk_tokens=8
    )
    divided = head.logits().reshape(3, 7, CLASSES) / (temperature.unsqueeze(-1) if of_rows else temperature)
    logarithms = torch.log_softmax(divided, -1)
    logprob = logarithms.gather(-1, head.target.unsqueeze(-1)).squeeze(-1).masked_fill(~mask, 0.0)
    entropy = -(logarithms.exp() * logarithms).sum(-1).masked_fill(~mask, 0.0)
    for ours, torchs in zip(made, (logprob, entropy)):
        assert ours.dtype is torch.float32
        assert_close(ours, torchs, torch.float32)
    for i in (0, 1):
        assert_gradients(made[i], (logprob, entropy)[i], head, torch.float32, 10)
    assert_gradients(made[0] + made[1], logprob + entropy, head, torch.float32, 10)


def test_the_module_is_a_layer_and_its_loss(device, seed):
    head = ct.LinearCrossEntropy(HIDDEN, CLASSES, bias=True, device=device, label_smoothing=0.1, chunk_tokens=8)
    input = torch.randn(TOKENS, HIDDEN, device=device)
    target = torch.randint(0, CLASSES, (TOKENS,), device=device)
    loss = head(input, target)
    loss.backward()
    expected = F.cross_entropy(F.linear(input, head.weight, head.bias), target, label_smoothing=0.1)
    assert_close(loss, expected, torch.float32)
    assert head.weight.grad is not None and head.bias.grad is not None
    assert head(input, target, reduction="none").shape == (TOKENS,)


def test_it_compiles(device, seed):
    head = Head(device)

    def step(input, weight):
        return 2 * ct.linear_cross_entropy(input, weight, head.target, chunk_tokens=8)

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    loss, expected = compiled(head.input, head.weight), step(head.input, head.weight)
    assert_close(loss, expected, torch.float32)
    for ours, eager in zip(torch.autograd.grad(loss, head.leaves), torch.autograd.grad(expected, head.leaves)):
        assert_close(ours, eager, torch.float32)


@pytest.mark.parametrize("wanted", ["nothing", "lse", "argmax", "all"])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_the_compiled_is_the_eager(reduction, wanted, device, seed):
    torch.compiler.reset()
    head = Head(device, bias=True)
    names = ("z_loss", "lse", "argmax", "hit")
    flags = {f"return_{name}": wanted in ("all", name) for name in names}
    options = {"reduction": reduction, "z_loss": 0.01, "chunk_tokens": 8, **flags}

    def step(input, weight, bias):
        return ct.linear_cross_entropy(input, weight, head.target, linear_bias=bias, **options)

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    made = []
    for function in (compiled, step):
        results = function(*head.leaves)
        results = (results,) if wanted == "nothing" else [one for one in results if one is not None]
        differentiable = [one.sum() for one in results if one.requires_grad]
        made.append((*results, *torch.autograd.grad(differentiable, head.leaves)))
    for ours, eager in zip(*made):
        torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-6)


NUMBERS = _reference.Options(z_loss=0.01)
OF_ROWS = NUMBERS._replace(reduction=_reference.NONE)


def operator_arguments(device, wanted, numbers=NUMBERS, memory=None, dtype=torch.float32, **inputs):
    """Of torch.ops.ce.linear_cross_entropy, for a layer with a bias."""
    head = Head(device, dtype, bias=True)
    leaves = [leaf.detach() for leaf in head.leaves]
    memory = _linear.Memory() if memory is None else memory
    return (*leaves, head.target, *_linear.Inputs(**inputs), *numbers, *memory, *wanted)


EVERYTHING = _linear.Wanted(*(True,) * len(_linear.Wanted._fields))
OPCHECKS = {
    "the loss": (_linear.Wanted(), NUMBERS, _linear.Memory()),
    "everything": (EVERYTHING._replace(f32_weight_grad=False), NUMBERS, _linear.Memory()),
    "of rows": (EVERYTHING._replace(f32_loss=False), OF_ROWS, _linear.Memory(chunk_tokens=8)),
    "in float32": (_linear.Wanted(False, True, True, True), NUMBERS, _linear.Memory(1 << 20, 0, _c.F32, _c.F32)),
}


@pytest.mark.parametrize("case", OPCHECKS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_operator_is_what_its_schema_says(dtype, case, device, seed):
    wanted, numbers, memory = OPCHECKS[case]
    arguments = operator_arguments(device, wanted, numbers, memory, dtype)
    torch.library.opcheck(torch.ops.ce.linear_cross_entropy.default, arguments)


@pytest.mark.parametrize("name", [name for name in _linear.Wanted._fields if not name.startswith("f32")])
def test_each_output_alone_is_as_beside_all_others(name, device, seed):
    every = EVERYTHING._replace(f32_weight_grad=False)
    arguments = operator_arguments(device, every)
    alone = _linear.Wanted(**{name: True})
    all_made = _linear.Outputs(*torch.ops.ce.linear_cross_entropy(*arguments))
    made = _linear.Outputs(*torch.ops.ce.linear_cross_entropy(*arguments[: -len(every)], *alone))
    of_twin = _linear.Outputs(*torch.ops.ce._linear_cross_entropy(*arguments[: -len(every)], *alone))
    for field, one, of_kernel, of_all in zip(_linear.Outputs._fields, made, of_twin, all_made):
        assert one.dtype is of_all.dtype
        if field in ("loss", name):
            torch.testing.assert_close(one, of_all)
            assert torch.equal(one, of_kernel)
        else:
            assert one.shape == (0,) and of_kernel is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", ["slices of rows", "transposed", "every other column", "expanded"])
def test_layouts_of_what_is_given(layout, dtype, device, seed):
    """Rows of adjacent elements are read where they are, others as a copy: both give what dense ones give."""

    def laid_out(dense: Tensor) -> Tensor:
        if layout == "slices of rows":
            return torch.cat([dense, dense], 1)[:, : dense.shape[1]]
        if layout == "transposed":
            return dense.t().contiguous().t()
        if layout == "every other column":
            return dense.repeat_interleave(2, 1)[:, ::2]
        return dense[:1].expand(dense.shape)

    def loss_of(*leaves: Tensor) -> tuple[Tensor, ...]:
        leaves = tuple(leaf.detach().requires_grad_() for leaf in leaves)
        loss = ct.linear_cross_entropy(*leaves, target, upstream=upstream, row_weight=row_weight, chunk_tokens=8)
        return loss, *torch.autograd.grad(loss, leaves)

    head = Head(device, dtype)
    target = head.target.repeat_interleave(2)[::2]
    upstream, row_weight = (torch.rand(2 * TOKENS, device=device)[::2] for _ in range(2))
    given = [laid_out(leaf.detach()) for leaf in head.leaves]
    assert not all(one.is_contiguous() for one in given)
    for ours, dense in zip(loss_of(*given), loss_of(*(one.contiguous() for one in given))):
        assert torch.equal(ours, dense)


def test_probabilities_with_gaps(device, seed):
    head = Head(device, ignored=False)
    target = torch.softmax(torch.randn(TOKENS, 2 * CLASSES, device=device), -1)[:, ::2]
    loss = ct.linear_cross_entropy(head.input, head.weight, target)
    assert torch.equal(loss, ct.linear_cross_entropy(head.input, head.weight, target.contiguous()))


def test_a_bias_of_another_dtype(device, seed):
    head = Head(device, torch.bfloat16)
    bias = torch.randn(CLASSES, device=device, requires_grad=True)
    loss = ct.linear_cross_entropy(head.input, head.weight, head.target, linear_bias=bias, chunk_tokens=8)
    expected = F.cross_entropy(head.logits() + bias.double(), head.target)
    assert_close(loss, expected, torch.bfloat16)
    (grad,) = torch.autograd.grad(loss, bias)
    assert grad.dtype is torch.float32
    assert_close(grad, torch.autograd.grad(expected, bias)[0], torch.bfloat16, 8)


def test_what_the_operator_refuses(device, seed):
    names = [one.name for one in torch.ops.ce.linear_cross_entropy.default._schema.arguments]

    def arguments(name: str, other: object) -> list:
        made = list(operator_arguments(device, _linear.Wanted()))
        made[names.index(name)] = other
        return made

    row = torch.zeros(HIDDEN, device=device)
    for name, other, message in (
        ("hidden", row, r"linear_cross_entropy: hidden has sizes \[16\]; expected \[tokens, hidden\]"),
        ("weight", row, r"linear_cross_entropy: weight has sizes \[16\]; expected \[classes, hidden\]"),
        ("reduction", 3, "reduction"),
        ("memory_budget", -1, "memory_budget"),
        ("logits_dtype", 7, r"logits_dtype is 7; expected 0 \(float32\)"),
        ("valid_tokens", TOKENS + 1, f"valid_tokens is {TOKENS + 1}; expected 0 to {TOKENS}, the number of tokens"),
        ("exponentials", 2, "exponentials is 2; expected -1, 0 or 1"),
    ):
        wrong = arguments(name, other)
        if name == "logits_dtype":
            wrong[names.index("f32_loss")] = False  # the loss in the dtype of the logits
        with pytest.raises((RuntimeError, ValueError), match=message):
            torch.ops.ce.linear_cross_entropy(*wrong)
    with pytest.raises((RuntimeError, ValueError), match="dtype without kernels of ce"):
        torch.ops.ce.linear_cross_entropy(*arguments("bias", torch.zeros(CLASSES, dtype=torch.float64, device=device)))


def test_types_of_errors(device):
    head = Head(device)
    call = (head.input, head.weight, head.target)
    with pytest.raises(ValueError, match=r"^ce: .*label_smoothing"):
        ct.linear_cross_entropy(*call, label_smoothing=2.0)
    with pytest.raises(TypeError, match=r"linear_bias\.dtype is torch\.float64; expected torch\.float32"):
        ct.linear_cross_entropy(*call, linear_bias=torch.zeros(CLASSES, device=device, dtype=torch.float64))
    with pytest.raises(TypeError, match=r"accumulate is torch\.float64; expected float32, float16 or bfloat16"):
        ct.linear_cross_entropy(*call, accumulate=torch.float64)
    bad = head.target.clone()
    bad[5] = CLASSES
    with pytest.raises(IndexError):
        ct.linear_cross_entropy(head.input, head.weight, bad, check=True)


def test_memory_that_is_not_there(device):
    """Logits of one chunk that no address space holds."""
    tokens, classes, dtype = 1 << 23, 1 << 24, torch.bfloat16
    hidden, weight = (
        torch.empty(tokens, 2, dtype=dtype, device=device),
        torch.empty(classes, 2, dtype=dtype, device=device),
    )
    target = torch.empty(tokens, dtype=torch.int64, device=device)
    with pytest.raises(torch.OutOfMemoryError, match="ce: "):
        ct.linear_cross_entropy(hidden, weight, target, chunk_tokens=tokens)


def test_what_torch_can_have_of_a_gpu(monkeypatch):
    """What is free there, and of what torch has reserved that which holds no tensor."""
    for name, value in (("mem_get_info", (5, 80)), ("memory_reserved", 32), ("memory_allocated", 30)):
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    total = ctypes.c_int64()
    assert _native._ask_free_memory(0, ctypes.byref(total)) == 1
    assert total.value == 7


@needs_gpu
def test_what_is_free_is_asked_once_for_each_kind_of_call(seed):
    asked = []

    def ask(device: int, total) -> int:
        asked.append(device)
        total[0] = 1 << 30
        return len(asked) % 2

    device = torch.device("cuda")
    call = (torch.randn(TOKENS, 24, device=device), torch.randn(CLASSES, 24, device=device))
    target = torch.randint(0, CLASSES, (TOKENS,), device=device)
    kept = _native._AskFreeMemory(ask)
    _native._library.ce_torch_ask_free_memory(kept)
    try:
        for _ in range(3):
            ct.linear_cross_entropy(*call, target)
        assert asked == [torch.cuda.current_device()]
        with pytest.raises(RuntimeError, match="ce: torch cannot tell how much memory of cuda:0 is free"):
            ct.linear_cross_entropy(*call, target, reduction="none", return_lse=True)
        ct.linear_cross_entropy(*call, target, memory_budget=1 << 24, return_hit=True)
        assert len(asked) == 2
    finally:
        _native._library.ce_torch_ask_free_memory(_native._ask_free_memory)


def test_fake_tensors_run_no_kernel(device):
    with FakeTensorMode():
        hidden, weight = (torch.empty(rows, HIDDEN, device=device, requires_grad=True) for rows in (TOKENS, CLASSES))
        target = torch.zeros(TOKENS, dtype=torch.int64, device=device)
        loss = ct.linear_cross_entropy(hidden, weight, target)
        assert loss.shape == () and loss.dtype is torch.float32
        grads = torch.autograd.grad(loss, (hidden, weight))
        assert [grad.shape for grad in grads] == [hidden.shape, weight.shape]
        with torch.no_grad():
            made = ct.linear_cross_entropy(hidden, weight, target, reduction="none", return_lse=True)
        assert made.loss.shape == made.lse.shape == (TOKENS,) and made.hit is None


def test_what_is_differentiable_once_says_so(device, seed):
    head = Head(device)
    for options in ({}, {"return_lse": True}):
        made = ct.linear_cross_entropy(head.input, head.weight, head.target, **options)
        loss = made.loss if options else made
        with pytest.raises(RuntimeError, match="differentiable once"):
            torch.autograd.grad(loss, head.input, create_graph=True)
    _, entropy = ct.linear_logprobs_and_entropy(head.input, head.weight, head.target.clamp(min=0))
    with pytest.raises(RuntimeError, match="differentiable once"):
        torch.autograd.grad(entropy.sum(), head.input, create_graph=True)
    with pytest.raises(RuntimeError, match=r"torch\.func"):
        torch.func.grad(lambda x: ct.linear_cross_entropy(x, head.weight.detach(), head.target))(head.input.detach())


def test_the_signature_begins_as_torchs():
    names = list(inspect.signature(ct.linear_cross_entropy).parameters)
    assert names[:9] == [
        "input",
        "linear_weight",
        "target",
        "linear_bias",
        "weight",
        "reduction",
        "ignore_index",
        "label_smoothing",
        "options",
    ]


def test_what_is_wrong_is_said(device):
    head = Head(device)
    for arguments, options, message in (
        ((head.input, head.weight[:, :3], head.target), {}, "linear_weight has sizes"),
        ((head.input, head.weight[:0], head.target), {}, "FSDP or ZeRO-3"),
        ((head.input, head.weight, head.target[:3]), {}, "target has sizes"),
        ((head.input, head.weight, head.target), {"reduction": "all"}, "reduction is 'all'"),
        ((head.input, head.weight, head.target), {"linear_bias": head.weight[0]}, "linear_bias has sizes"),
        ((head.input, head.weight, head.target), {"logits_dtype": torch.float16}, "logits_dtype"),
        ((head.input, head.weight, head.target), {"label_smoothing": 2.0}, "label_smoothing"),
        (
            (head.input, head.weight, head.target),
            {"accumulate": torch.float16},
            r"^ce\.torch\.linear_cross_entropy: accumulate is torch\.float16; expected torch\.float32$",
        ),
        ((head.input, head.weight, head.target), {"weight": head.weight[:3, 0]}, "weight has sizes"),
        ((head.input, head.weight, head.target), {"row_weight": head.input[:3, 0]}, "row_weight has sizes"),
        ((head.input, head.weight, head.target), {"upstream": head.input[:3, 0]}, "upstream has sizes"),
        ((head.input, head.weight, head.target.to("meta")), {}, r"^ce\.torch\.linear_cross_entropy: target is on meta"),
        ((head.input, head.weight, head.target), {"row_weight": head.input[:, 0].to("meta")}, "row_weight is on meta"),
        ((head.input.long(), head.weight.long(), head.target), {}, r"input\.dtype is torch\.int64; expected"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            ct.linear_cross_entropy(*arguments, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_has_no_memory_has_the_results_of_torch(dtype):
    """Sizes and dtypes alone, on a device that has no autocast."""
    made = {"device": "meta", "dtype": dtype}
    hidden, weight = torch.empty(2, 3, 8, **made, requires_grad=True), torch.empty(9, 8, **made)
    target = torch.empty(2, 3, device="meta", dtype=torch.int64)
    logits = F.linear(hidden, weight).flatten(0, 1)
    expected = F.cross_entropy(logits, target.flatten())
    for loss in (ct.linear_cross_entropy(hidden, weight, target), ct.cross_entropy(logits, target.flatten())):
        assert (loss.device, loss.dtype, loss.shape) == (expected.device, expected.dtype, expected.shape)
        assert torch.autograd.grad(loss, hidden, retain_graph=True)[0].shape == hidden.shape
    logprob, entropy = ct.linear_logprobs_and_entropy(hidden, weight, target)
    assert logprob.shape == entropy.shape == target.shape


def test_what_sums_are_made_in_is_said_by_the_callers_argument(device):
    head = Head(device)
    layer = [head.input.bfloat16(), head.weight.bfloat16()]
    options = types.SimpleNamespace(batch_chunk_size=None, acc_dtype=torch.float16)
    wrong = r"is torch\.float16; expected torch\.float32 or torch\.bfloat16$"
    for call, message in (
        (lambda: ct.linear_cross_entropy(*layer, head.target, accumulate=torch.float16), "accumulate"),
        (lambda: ct.linear_cross_entropy(*layer, head.target, options=options), r"options\.acc_dtype"),
        (lambda: ct.linear_logprobs_and_entropy(*layer, head.target, accumulate=torch.float16), "accumulate"),
        (lambda: ct.liger.fused_linear_cross_entropy(*layer, head.target, accum_dtype=torch.float16), "accum_dtype"),
    ):
        with pytest.raises(ValueError, match=rf"^ce\.torch\.\S+: {message} {wrong}"):
            call()
    for right in (torch.float32, torch.bfloat16):
        assert ct.linear_cross_entropy(*layer, head.target, accumulate=right).isfinite()


@pytest.mark.parametrize("cpu", ["host", "torch"])
def test_what_would_lose_digits_is_refused(cpu, device):
    """float64 goes with a layer in float64 alone, and probabilities with logits of their dtype or a wider one."""
    if device.type == "cpu":
        ct.configure(cpu=cpu)
    head = Head(device)
    layer, rows = (head.input, head.weight, head.target), torch.ones(TOKENS, device=device, dtype=torch.float64)
    wide = [one.double() for one in layer[:2]]
    probabilities = torch.rand(TOKENS, CLASSES, device=device)
    low = [one.bfloat16() for one in layer[:2]]
    for arguments, options, message in (
        ((layer[0], wide[1], layer[2]), {}, r"linear_weight\.dtype is torch\.float64; expected torch\.float32"),
        ((wide[0], layer[1], layer[2]), {}, r"linear_weight\.dtype is torch\.float32; expected torch\.float64"),
        (layer, {"linear_bias": wide[1][:, 0]}, r"linear_bias\.dtype is torch\.float64; expected torch\.float32"),
        (layer, {"weight": wide[1][:, 0]}, r"weight\.dtype is torch\.float64"),
        (layer, {"row_weight": rows}, r"row_weight\.dtype is torch\.float64"),
        (layer, {"row_weight": rows.long()}, r"row_weight\.dtype is torch\.int64"),
        (layer, {"logit_scale": rows}, r"logit_scale\.dtype is torch\.float64"),
        (layer, {"upstream": rows}, r"upstream\.dtype is torch\.float64"),
        ((*layer[:2], probabilities.double()), {}, r"target\.dtype is torch\.float64; expected torch\.float32"),
        ((*low, probabilities), {}, r"target\.dtype is torch\.float32; expected torch\.bfloat16"),
    ):
        with pytest.raises(TypeError, match=r"ce\.torch\.linear_cross_entropy: " + message):
            ct.linear_cross_entropy(*arguments, **options)
    ct.linear_cross_entropy(*low, probabilities, logits_dtype=torch.float32)
    for call, arguments in (
        (ct.linear_logprobs_and_entropy, layer),
        (ct.logprobs_and_entropy, (probabilities, layer[2])),
    ):
        with pytest.raises(TypeError, match=r"temperature\.dtype is torch\.float64; expected torch\.float32"):
            call(*arguments, temperature=rows)
    logprob, _ = ct.linear_logprobs_and_entropy(*wide, layer[2], temperature=rows)
    assert logprob.dtype is torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_cpu_goes_to_torch(dtype, seed):
    head = Head("cpu", dtype, bias=True)
    loss = ct.linear_cross_entropy(head.input, head.weight, head.target, linear_bias=head.bias)
    assert_gradients(loss, F.cross_entropy(head.logits(), head.target), head, dtype)


@needs_gpu
def test_it_is_captured_into_a_graph(seed):
    device = torch.device("cuda")
    head = Head(device, torch.bfloat16)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            eager = ct.linear_cross_entropy(head.input, head.weight, head.target, chunk_tokens=8)
            grads = torch.autograd.grad(eager, head.leaves)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = ct.linear_cross_entropy(head.input, head.weight, head.target, chunk_tokens=8)
        captured = torch.autograd.grad(loss, head.leaves)
    for _ in range(3):
        loss.detach().zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(loss, eager)
        for ours, expected in zip(captured, grads):
            assert torch.equal(ours, expected)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("spare", [0, 4])
def test_tokens_that_are_left_out_are_in_no_product(reduction, spare, device, seed):
    head = Head(device, sizes=(3, 7))
    head.target[1, 2:] = -100
    count = int((head.target != -100).sum())
    row_weight = torch.rand(3, 7, device=device) + 0.5
    options = {"reduction": reduction, "label_smoothing": 0.1, "z_loss": 0.01, "row_weight": row_weight}
    loss = ct.linear_cross_entropy(head.input, head.weight, head.target, valid_tokens=count + spare, **options)
    expected = ct.cross_entropy(
        head.logits(), head.target.reshape(-1), **{**options, "row_weight": row_weight.view(-1)}
    )
    assert_close(loss.reshape(expected.shape), expected, torch.float32)
    assert_gradients(loss.reshape(expected.shape), expected, head, torch.float32)


def test_outputs_of_tokens_that_are_left_out(device, seed):
    head = Head(device, sizes=(3, 7))
    head.target[0] = -100
    left_out = head.target == -100
    flags = {f"return_{name}": True for name in ("z_loss", "lse", "argmax", "hit")}
    call = (head.input, head.weight, head.target)
    scale = torch.rand(3, 7, device=device) + 0.5
    options = {"reduction": "none", "z_loss": 0.1, "logit_scale": scale, **flags}
    made = ct.linear_cross_entropy(*call, valid_tokens=int((~left_out).sum()), **options)
    want = ct.linear_cross_entropy(*call, **options)
    for name, fill in (("loss", 0.0), ("z_loss", 0.0), ("lse", torch.nan), ("argmax", -1), ("hit", False)):
        of_valid, of_all = getattr(made, name), getattr(want, name)
        torch.testing.assert_close(of_valid[~left_out], of_all[~left_out], msg=name)
        torch.testing.assert_close(of_valid[left_out], torch.full_like(of_valid[left_out], fill), equal_nan=True)


def test_fewer_valid_tokens_than_there_are(device):
    head = Head(device, ignored=False)
    loss = ct.linear_cross_entropy(head.input, head.weight, head.target, valid_tokens=TOKENS - 1)
    assert loss.isnan()
    logprob, entropy = ct.linear_logprobs_and_entropy(head.input, head.weight, head.target, valid_tokens=TOKENS - 1)
    assert logprob.isnan().all() and entropy.isnan().all()


def test_gradients_of_fewer_valid_tokens_are_no_numbers_either(device):
    head = Head(device, ignored=False)
    loss = ct.linear_cross_entropy(head.input, head.weight, head.target, valid_tokens=TOKENS - 1)
    assert torch.autograd.grad(loss, head.weight)[0].isnan().all()


def test_valid_tokens_of_a_dtype_without_kernels(device, seed):
    head = Head(device, torch.float64, sizes=(3, 7))
    head.target[0] = -100
    left_out = head.target == -100
    count = int((~left_out).sum())
    call = (head.input, head.weight, head.target)
    flags = {f"return_{name}": True for name in ("z_loss", "lse", "argmax", "hit")}
    for valid_tokens in (count, count + 1, count - 1):
        made = ct.linear_cross_entropy(*call, valid_tokens=valid_tokens, reduction="none", z_loss=0.1, **flags)
        want = ct.linear_cross_entropy(*call, reduction="none", z_loss=0.1, **flags)
        if valid_tokens < count:
            assert made.loss.isnan().all() and made.lse.isnan().all()
            assert (made.argmax == -1).all() and not made.hit.any()
            assert torch.autograd.grad(made.loss.sum(), head.weight)[0].isnan().all()
            continue
        for name, fill in (("loss", 0.0), ("z_loss", 0.0), ("lse", torch.nan), ("argmax", -1), ("hit", False)):
            expected = getattr(want, name).masked_fill(left_out, fill)
            torch.testing.assert_close(getattr(made, name), expected, equal_nan=True, msg=name)
    ours = ct.linear_logprobs_and_entropy(*call, valid_tokens=count)
    for one, other in zip(ours, ct.linear_logprobs_and_entropy(*call)):
        torch.testing.assert_close(one, other.masked_fill(left_out, 0.0))
    assert ct.linear_logprobs_and_entropy(*call, valid_tokens=count - 1)[0].isnan().all()


@pytest.mark.parametrize("valid_tokens", [-1, TOKENS + 1])
def test_valid_tokens_that_cannot_be(valid_tokens, device):
    head = Head(device)
    with pytest.raises(
        ValueError, match=f"valid_tokens is {valid_tokens}; expected 0 to {TOKENS}, the number of tokens"
    ):
        ct.linear_cross_entropy(head.input, head.weight, head.target, valid_tokens=valid_tokens)
    probabilities = torch.rand(TOKENS, CLASSES, device=device)
    with pytest.raises(ValueError, match="expected class indices beside valid_tokens"):
        ct.linear_cross_entropy(head.input, head.weight, probabilities, valid_tokens=TOKENS)


def test_log_probabilities_of_valid_tokens(device, seed):
    head = Head(device, sizes=(3, 7), ignored=False)
    mask = torch.rand(3, 7, device=device) < 0.6
    temperature = torch.rand(3, 7, device=device) + 0.5
    call = (head.input, head.weight, head.target)
    options = {"mask": mask, "temperature": temperature}
    made = ct.linear_logprobs_and_entropy(*call, valid_tokens=int(mask.sum()), **options)
    want = ct.linear_logprobs_and_entropy(*call, **options)
    for ours, expected in zip(made, want):
        torch.testing.assert_close(ours, expected.masked_fill(~mask, 0.0))
    factor = torch.rand(2, 3, 7, device=device) * mask
    ours = torch.autograd.grad((torch.stack(made) * factor).sum(), head.leaves)
    expected = torch.autograd.grad((torch.stack(want) * factor).sum(), head.leaves)
    for one, other in zip(ours, expected):
        torch.testing.assert_close(one, other)


def test_compiled_with_valid_tokens(device, seed):
    head = Head(device)

    def step(input, weight, target):
        return ct.linear_cross_entropy(input, weight, target, valid_tokens=TOKENS - 1)

    torch.testing.assert_close(
        torch.compile(step, fullgraph=True)(head.input, head.weight, head.target),
        step(head.input, head.weight, head.target),
    )


def test_no_tokens_with_targets_of_int32(device):
    head = Head(device)
    loss = ct.linear_cross_entropy(head.input[:0], head.weight, head.target[:0].int(), reduction="none")
    assert loss.shape == (0,)


def test_a_mask_beside_indices_of_a_byte(device, seed):
    head = Head(device)
    mask = torch.arange(len(head.target), device=head.target.device) % 2 == 0
    index = head.target.clamp(min=0).to(torch.uint8)
    ours = ct.linear_logprobs_and_entropy(head.input, head.weight, index, mask=mask)
    expected = ct.linear_logprobs_and_entropy(head.input, head.weight, index.long(), mask=mask)
    for one, other in zip(ours, expected):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert not ours[0][~mask].any()
