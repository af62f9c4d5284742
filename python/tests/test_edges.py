"""Calls at the edges of what torch takes: they mean the same as torch's, or are refused by name."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.nn.functional as F

import ce.torch as ct
from ce.torch.integrations import flash_attn, transformer_engine

ROWS, CLASSES = 6, 9


@pytest.fixture(params=["host", "torch", "float64"])
def place(request, device):
    """Where calls run, and the dtype of the logits: in kernels, in torch, and in torch whatever the device."""
    if device.type == "cuda" and request.param == "torch":
        pytest.skip("a GPU has kernels")
    before = ct.configure(cpu="torch" if request.param == "torch" else "host")
    yield torch.float64 if request.param == "float64" else torch.float32
    ct.restore(before)


def logits_and_target(device, dtype=torch.float32):
    logits = torch.randn(ROWS, CLASSES, device=device, dtype=dtype)
    return logits, torch.randint(0, CLASSES, (ROWS,), device=device)


# ---- upstream multiplies the gradient, not the loss ---------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("options", [{}, {"given_lse": True}, {"z_loss": 0.1}], ids=str)
@pytest.mark.parametrize("upstream", [1e8, float("inf"), "rows"])
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_an_upstream_leaves_the_loss_exact(upstream, options, reduction, compiled, place, device, seed):
    logits, target = logits_and_target(device, place)
    logits[0, target[0]] = float("-inf")  # an infinite loss, whose gradient is finite
    logits.requires_grad_()
    options = dict(options)
    if options.pop("given_lse", None):
        options["given_lse"] = torch.logsumexp(logits.detach(), 1)
    factor = 1e8 * torch.rand(ROWS, device=device, dtype=place) if upstream == "rows" else upstream

    def call(x, **more):
        return ct.cross_entropy(x, target, reduction=reduction, **options, **more)

    torch.compiler.reset()
    function = torch.compile(call, backend="aot_eager", fullgraph=True) if compiled else call
    made = function(logits, upstream=factor)
    torch.testing.assert_close(made, call(logits), rtol=1e-6, atol=0)
    if upstream == float("inf"):
        return
    (grad,) = torch.autograd.grad(made.sum(), logits)
    (plain,) = torch.autograd.grad(call(logits).sum(), logits)
    of_row = factor[:, None] if upstream == "rows" else factor
    torch.testing.assert_close(grad, plain * of_row, rtol=1e-5, atol=1e2)


def test_an_upstream_where_torch_computes_has_every_derivative(seed):
    logits, target = logits_and_target("cpu", torch.float64)

    def ours(x):
        return ct.cross_entropy(x, target, upstream=3.0)

    def torchs(x):
        return F.cross_entropy(x, target)

    def second(function):
        x = logits.clone().requires_grad_()
        (grad,) = torch.autograd.grad(function(x), x, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), x)[0]

    torch.testing.assert_close(second(ours), 9 * second(torchs))
    torch.testing.assert_close(torch.func.hessian(ours)(logits), 3 * torch.func.hessian(torchs)(logits))
    loss, tangent = torch.func.jvp(ours, (logits,), (logits,))
    torch.testing.assert_close(loss, torchs(logits))
    torch.testing.assert_close(tangent, 3 * torch.func.jvp(torchs, (logits,), (logits,))[1])
    of_each = torch.func.vmap(torch.func.grad(lambda x, t: ct.cross_entropy(x, t, upstream=3.0)))
    expected = torch.func.vmap(torch.func.grad(lambda x, t: 3 * F.cross_entropy(x, t)))
    torch.testing.assert_close(of_each(logits, target), expected(logits, target))


# ---- a loss in float32 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["classes", "weighted", "probabilities", "probabilities with a gradient"])
def test_a_float32_loss_of_16_bit_logits_is_not_rounded(kind, dtype, place, device, seed):
    if place is torch.float64:
        return
    scale = 1e4 if dtype is torch.float16 else 1.0
    logits = (scale * torch.randn(64, 100, device=device)).to(dtype).requires_grad_()
    target, weight = torch.randint(0, 100, (64,), device=device), None
    if "probabilities" in kind:
        target = torch.rand(64, 100, device=device).softmax(1).to(dtype)
        target.requires_grad_("gradient" in kind)
    elif kind == "weighted":
        weight = torch.rand(100, device=device).to(dtype)
    wide_target = target.double() if target.is_floating_point() else target
    wide = logits.detach().double().requires_grad_()
    for reduction in ("mean", "sum"):
        loss = ct.cross_entropy(logits, target, weight, reduction=reduction, loss_dtype=torch.float32)
        wide_weight = None if weight is None else weight.double()
        expected = F.cross_entropy(wide, wide_target, wide_weight, reduction=reduction)
        assert loss.dtype is torch.float32
        torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-6)
        (grad,) = torch.autograd.grad(loss, logits)
        assert grad.dtype is dtype
        torch.testing.assert_close(grad, torch.autograd.grad(expected, wide)[0].to(dtype))


@pytest.mark.parametrize("loss_dtype", [None, torch.float32])
@pytest.mark.parametrize("options", [{}, {"z_loss": 0.1}, {"upstream": 2.0}], ids=str)
def test_a_loss_is_never_narrower_than_probabilities_nor_than_float64(options, loss_dtype, place, device, seed):
    logits, target = logits_and_target(device)
    probabilities = logits.softmax(1)
    cases = (
        (logits.double(), target, torch.float64),
        (logits, probabilities.double(), torch.float64),
        (logits.bfloat16(), probabilities, torch.float32),
        (logits.bfloat16(), probabilities.double(), torch.float64),
        (logits.bfloat16(), target, torch.float32 if loss_dtype else torch.bfloat16),
    )
    for x, t, expected in cases:
        assert ct.cross_entropy(x, t, loss_dtype=loss_dtype, **options).dtype is expected


# ---- logits and targets of other kinds -----------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"z_loss": 0.1}, {"return_lse": True}, {"return_entropy": True}], ids=str)
def test_logits_are_real_and_have_fractions(options, place, device):
    logits, target = logits_and_target(device)
    for wrong in (logits.long(), logits.bool(), logits + 0j):
        with pytest.raises(TypeError, match=rf"^ce\.torch\.cross_entropy: input\.dtype is {wrong.dtype}; expected a f"):
            ct.cross_entropy(wrong, target, **options)
        for name in ("selective_log_softmax", "logprobs_and_entropy"):
            with pytest.raises(TypeError, match=rf"^ce\.torch\.{name}: logits\.dtype is {wrong.dtype}; expected a flo"):
                getattr(ct, name)(wrong, target)
        calls = {
            r"cross_entropy_loss: logits": lambda x: flash_attn.cross_entropy_loss(x, target),
            r"parallel_cross_entropy: inp": lambda x: transformer_engine.parallel_cross_entropy(x, target),
            r"cross_entropy_forward: _input": lambda x: transformer_engine.cross_entropy_forward(x, target, 0.0, False),
        }
        for name, call in calls.items():
            with pytest.raises(TypeError, match=rf"^ce\.torch\.{name}\.dtype is {wrong.dtype}; expected"):
                call(wrong)


def test_targets_are_integers_of_some_dtypes_or_probabilities(place, device, seed):
    logits, target = logits_and_target(device, place)
    for options in ({}, {"z_loss": 0.1}):
        for wrong in (target.short(), target.to(torch.int8), target.bool(), target + 0j):
            with pytest.raises(TypeError, match=rf"^ce\.torch\.cross_entropy: target\.dtype is {wrong.dtype}; exp"):
                ct.cross_entropy(logits, wrong, **options)
        for right in (target.int(), target.byte()):
            made = ct.cross_entropy(logits, right, **options)
            torch.testing.assert_close(made, ct.cross_entropy(logits, target, **options))


@pytest.mark.parametrize("patched", [False, True])
def test_no_index_is_ignored_beside_probabilities(patched, place, device, seed):
    logits, _ = logits_and_target(device, place)
    probabilities = logits.softmax(1)
    function = ct.cross_entropy
    with ct.patch() if patched else contextlib.nullcontext():
        function = F.cross_entropy if patched else function
        torch.testing.assert_close(function(logits, probabilities, ignore_index=-1), function(logits, probabilities))
        for options in ({}, {"weight": logits[0]}):
            with pytest.raises(RuntimeError, match=r"ignore_index is 0; expected a negative number where target"):
                function(logits, probabilities, ignore_index=0, **options)


def test_logits_without_a_dimension_are_refused(place, device):
    one, zero = torch.ones((), device=device, dtype=place), torch.zeros((), dtype=torch.int64, device=device)
    with pytest.raises(ValueError, match=r"^ce\.torch\.cross_entropy: input has no dimension; expected"):
        ct.cross_entropy(one, zero, return_lse=True)
    for name in ("selective_log_softmax", "logprobs_and_entropy"):
        for index in (zero, zero.unsqueeze(0)):
            with pytest.raises(ValueError, match=rf"^ce\.torch\.{name}: logits have no dimension; expected"):
                getattr(ct, name)(one, index)


# ---- dtypes under autocast -----------------------------------------------------------------------------------


def compiled_if(wanted, function):
    if not wanted:
        return function
    torch.compiler.reset()
    return torch.compile(function, backend="aot_eager", fullgraph=True)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_a_dtype_of_softmax_also_counts_under_autocast(name, requires_grad, compiled, place, device, seed):
    x = torch.randn(3, 5, device=device, requires_grad=requires_grad)
    for dtype in (torch.float16, torch.float64):
        function = compiled_if(compiled, lambda x, dtype=dtype: getattr(ct, name)(x, 1, dtype=dtype))
        with torch.autocast(device.type, dtype=torch.bfloat16):
            made = function(x)
            assert made.dtype is dtype
            expected = getattr(F, name)(x, 1, dtype=dtype)
        torch.testing.assert_close(made, expected)
        if requires_grad:
            assert torch.autograd.grad(made.sum(), x)[0].dtype is torch.float32


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("options", [{}, {"z_loss": 0.1, "return_z_loss": True}, {"upstream": True}], ids=str)
def test_a_dtype_of_the_loss_also_counts_under_autocast(options, requires_grad, compiled, place, device, seed):
    logits, target = logits_and_target(device)
    logits = logits.bfloat16().requires_grad_(requires_grad)
    if "upstream" in options:
        options = {"upstream": torch.rand(ROWS, device=device)}

    def call(x, loss_dtype):
        made = ct.cross_entropy(x, target, loss_dtype=loss_dtype, **options)
        return (made.loss, made.z_loss) if isinstance(made, tuple) else (made,)

    for given, expected in ((None, torch.float32), (torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16)):
        function = compiled_if(compiled, call)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            made = function(logits, given)
        assert {one.dtype for one in made} == {expected}
        if requires_grad:
            assert torch.autograd.grad(sum(made), logits)[0].isfinite().all()


# ---- refusals by name ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_tensor_on_another_device_is_named_as_the_caller_names_it(requires_grad, device, seed):
    logits, target = logits_and_target(device)
    logits.requires_grad_(requires_grad)
    rows = torch.rand(ROWS, device="meta")
    elsewhere = {
        "target": target.to("meta"),
        "weight": torch.rand(CLASSES, device="meta"),
        "row_weight": rows,
        "logit_scale": rows,
        "given_lse": rows,
        "divisor": rows[0],
        "upstream": rows,
    }
    for name, given in elsewhere.items():
        with pytest.raises(ValueError, match=rf"^ce\.torch\.cross_entropy: {name} is on meta; expected {device.type}"):
            ct.cross_entropy(**{"input": logits, "target": target, name: given})
    for function, mask in ((ct.selective_log_softmax, "row_mask"), (ct.logprobs_and_entropy, "mask")):
        for name, given in {"index": target.to("meta"), "temperature": rows, mask: rows > 0.5}.items():
            expected = rf"^ce\.torch\.{function.__name__}: {name} is on meta; expected {device.type}"
            with pytest.raises(ValueError, match=expected):
                function(**{"logits": logits, "index": target, name: given})


@pytest.mark.parametrize("compiled", [False, True])
def test_an_overwriting_gradient_belongs_to_one_loss(compiled, place, device, seed):
    logits, target = logits_and_target(device, place)

    def call(x):
        return ct.cross_entropy(x, target, reduction="none", inplace_backward=True)

    assert call(logits).shape == (ROWS,)  # nothing is overwritten
    leaf = logits.requires_grad_()
    kind = torch._dynamo.exc.Unsupported if compiled else ValueError
    with pytest.raises(kind, match="inplace_backward is True; expected False with the reduction 'none'"):
        compiled_if(compiled, call)(leaf * 1)


def test_a_gradient_does_not_overwrite_a_negated_view(place, device, seed):
    of_parts = torch.randn(ROWS, CLASSES, 2, device=device, dtype=place, requires_grad=True)
    logits, target = torch.view_as_complex(of_parts).conj().imag, torch.zeros(ROWS, dtype=torch.int64, device=device)
    assert logits.is_neg()
    with pytest.raises(ValueError, match="inplace_backward is True; expected False for a negated view"):
        ct.cross_entropy(logits, target, inplace_backward=True)
    torch.testing.assert_close(ct.cross_entropy(logits, target), F.cross_entropy(logits, target))


@pytest.mark.parametrize("options", [{}, {"given_lse": True}, {"return_lse": True}], ids=str)
def test_a_backward_with_create_graph_raises_at_once(options, device, seed):
    logits, target = logits_and_target(device)
    logits.requires_grad_()
    if "given_lse" in options:
        options = {"given_lse": torch.logsumexp(logits.detach(), 1)}
    made = ct.cross_entropy(logits, target, **options)
    with pytest.raises(RuntimeError, match="differentiable once: create_graph is True"):
        torch.autograd.grad(made if isinstance(made, torch.Tensor) else made.loss, logits, create_graph=True)


@pytest.mark.parametrize("legacy", [{"reduce": False}, {"size_average": False}, {"size_average": True}], ids=str)
def test_deprecated_options_compile(legacy, place, device, seed):
    logits, target = logits_and_target(device, place)
    with pytest.warns(UserWarning, match="size_average and reduce args will be deprecated"):
        expected = F.cross_entropy(logits, target, **legacy)
    function = compiled_if(True, lambda x: ct.cross_entropy(x, target, **legacy))
    torch.testing.assert_close(function(logits), expected)
