"""Calls at the edges of what torch takes: they mean the same as torch's, or are refused by name."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import ce.torch as ct

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
