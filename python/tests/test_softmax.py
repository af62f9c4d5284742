"""Softmax and log softmax beside torch's own in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import ce.torch as ct

FUNCTIONS = [(ct.softmax, F.softmax), (ct.log_softmax, F.log_softmax)]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
LAYOUTS = {
    "rows": lambda: torch.randn(5, 33),
    "vector": lambda: torch.randn(19),
    "scalar": lambda: torch.randn(()),
    "four dimensions": lambda: torch.randn(2, 3, 4, 5),
    "permuted": lambda: torch.randn(4, 6, 5).permute(2, 0, 1),
    "every second row": lambda: torch.randn(10, 17)[::2],
    "every second column": lambda: torch.randn(3, 34)[:, ::2],
    "without the last step": lambda: torch.randn(3, 5, 16)[:, :-1, :],
    "expanded": lambda: torch.randn(1, 21).expand(4, 21),
    "expanded columns": lambda: torch.randn(4, 1).expand(4, 9),
    "beyond two strides": lambda: torch.randn(4, 6, 4, 8)[::2, ::3, ::2],
    "one column": lambda: torch.randn(7, 1),
    "no rows": lambda: torch.randn(0, 8),
    "no columns": lambda: torch.randn(3, 0),
}


def tolerance(dtype: torch.dtype) -> float:
    return 2e-6 if dtype is torch.float32 else 2.0 * torch.finfo(dtype).eps


def assert_close(actual: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    torch.testing.assert_close(
        actual.double(), expected.double(), rtol=tolerance(dtype), atol=tolerance(dtype), equal_nan=True
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("own", "torchs"), FUNCTIONS)
def test_every_dimension_of_every_layout(own, torchs, layout, device, seed):
    input = LAYOUTS[layout]().to(device)
    for dim in range(-max(1, input.dim()), max(1, input.dim())):
        ours = input.detach().clone(memory_format=torch.preserve_format).requires_grad_()
        wide = input.detach().double().requires_grad_()
        output, expected = own(ours, dim), torchs(wide, dim)
        assert output.shape == expected.shape
        assert output.dtype == input.dtype
        assert_close(output, expected, torch.float32)
        upstream = torch.randn_like(expected)
        output.backward(upstream.float())
        expected.backward(upstream)
        assert_close(ours.grad, wide.grad, torch.float32)
        # A view itself, without a gradient.
        assert_close(own(input, dim), expected, torch.float32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("own", "torchs"), FUNCTIONS)
def test_every_dtype(own, torchs, dtype, device, seed):
    input = torch.randn(6, 200, device=device).to(dtype).requires_grad_()
    wide = input.detach().double().requires_grad_()
    output, expected = own(input, -1), torchs(wide, -1)
    assert output.dtype is dtype
    assert_close(output, expected, dtype)
    upstream = torch.randn_like(input)
    output.backward(upstream)
    expected.backward(upstream.double())
    scale = expected.abs().max().item() + 1
    torch.testing.assert_close(
        input.grad.double(), wide.grad, rtol=8 * tolerance(dtype), atol=8 * tolerance(dtype) * scale
    )


@pytest.mark.parametrize(("own", "torchs"), FUNCTIONS)
def test_rows_without_a_softmax_are_nan(own, torchs, device):
    inf, nan = float("inf"), float("nan")
    input = torch.tensor([[1, -inf, 2], [-inf, -inf, -inf], [1, inf, 2], [nan, 1, 2]], device=device)
    assert_close(own(input, -1), torchs(input, -1), torch.float32)


@pytest.mark.parametrize(("own", "torchs"), FUNCTIONS)
def test_casts_first_as_torch_does(own, torchs, device, seed):
    input = torch.randn(3, 40, device=device).bfloat16()
    assert_close(own(input, -1, dtype=torch.float32), torchs(input, -1, dtype=torch.float32), torch.float32)
    assert own(input, -1, dtype=torch.float64).dtype is torch.float64


@pytest.mark.parametrize(("own", "torchs"), FUNCTIONS)
def test_under_autocast_the_result_is_float32(own, torchs, device, seed):
    input = torch.randn(3, 40, device=device).bfloat16().requires_grad_()
    with torch.autocast(device.type, dtype=torch.bfloat16):
        output = own(input, -1)
    assert output.dtype is torch.float32
    assert_close(output, torchs(input.double(), -1), torch.float32)
    output.backward(torch.ones_like(output))
    assert input.grad.dtype is torch.bfloat16


@pytest.mark.parametrize(("own", "torchs"), FUNCTIONS)
def test_float64_and_integers_are_for_torch(own, torchs, device, seed):
    input = torch.randn(3, 7, device=device, dtype=torch.float64)
    torch.testing.assert_close(own(input, 1), torchs(input, 1), rtol=0, atol=0)
    with pytest.raises(RuntimeError):
        own(torch.ones(3, 7, device=device, dtype=torch.int64), 1)


def test_what_only_torch_understands_is_for_torch(device, seed):
    """Nested and sparse tensors, and float64 under autocast."""
    nested = torch.nested.nested_tensor([torch.randn(2, 5, device=device), torch.randn(3, 5, device=device)])
    ours = ct.softmax(nested, -1)
    for part, expected in zip(ours.unbind(), F.softmax(nested, -1).unbind()):
        torch.testing.assert_close(part, expected)
    wide = torch.randn(3, 5, device=device, dtype=torch.float64)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        assert ct.softmax(wide, 1).dtype is torch.float64
        assert ct.cross_entropy(wide, torch.zeros(3, dtype=torch.int64, device=device)).dtype is torch.float64
    with pytest.raises((RuntimeError, NotImplementedError)):
        ct.softmax(torch.eye(3, device=device).to_sparse_csr(), 1)


def test_a_missing_dimension_warns_as_torch_does(device):
    with pytest.warns(UserWarning, match="Implicit dimension choice"):
        output = ct.softmax(torch.ones(2, 4, device=device))
    assert output.sum(1).tolist() == [1, 1]


@pytest.mark.parametrize("dim", [2, -3, 7])
def test_refuses_a_dimension_that_is_not_there(dim, device):
    with pytest.raises(IndexError, match=rf"dim is {dim}; expected -2 to 1"):
        ct.softmax(torch.ones(2, 3, device=device), dim)


def test_the_same_output_given_and_in_place(device, seed):
    input = torch.randn(6, 50, device=device)
    for name in ("softmax", "log_softmax"):
        expected = getattr(torch, name)(input, 1)
        out = torch.empty_like(input)
        getattr(torch.ops.ce, name + "_out")(input, 1, out)
        assert_close(out, expected, torch.float32)
        itself = input.clone()
        getattr(torch.ops.ce, name + "_")(itself, 1)
        assert_close(itself, expected, torch.float32)
        upstream, grad = torch.randn_like(input), torch.empty_like(input)
        getattr(torch.ops.ce, name + "_backward_out")(upstream, expected, 1, grad)
        assert_close(grad, getattr(torch.ops.ce, name + "_backward")(upstream, expected, 1), torch.float32)


def test_refuses_an_output_that_does_not_fit(device):
    with pytest.raises((ValueError, RuntimeError), match=r"out has sizes \[2, 4\]; expected \[2, 3\]"):
        torch.ops.ce._softmax_out(torch.ones(2, 3, device=device), 1, torch.ones(2, 4, device=device))


def test_modules(device, seed):
    input = torch.randn(4, 9, device=device)
    assert_close(ct.Softmax(dim=1)(input), torch.nn.Softmax(dim=1)(input), torch.float32)
    assert_close(ct.LogSoftmax(dim=0)(input), torch.nn.LogSoftmax(dim=0)(input), torch.float32)


def test_is_differentiable_once(device, seed):
    input = torch.randn(3, 5, device=device, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"ce\.torch\.softmax is differentiable once"):
        torch.autograd.grad(ct.softmax(input, 1).square().sum(), input, create_graph=True)
