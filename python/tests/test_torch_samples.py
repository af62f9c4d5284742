"""The inputs of PyTorch's own tests: ce gives the results of PyTorch, and the gradients of the logits.

Targets lose their requires_grad: those that require a gradient are for PyTorch, which rounds each of its steps.
Without a GPU a part of them runs, another one for each seed; CE_FULL_TESTS=1 runs all.
"""

from __future__ import annotations

import os
import random

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import ce.torch as ct
from conftest import HAS_GPU

pytest.importorskip("expecttest")  # which torch.testing._internal imports
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db

ALL = HAS_GPU or os.environ.get("CE_FULL_TESTS") == "1"
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
FUNCTIONS = {
    "nn.functional.cross_entropy": (ct.cross_entropy, F.cross_entropy),
    "softmax": (ct.softmax, F.softmax),
    "log_softmax": (ct.log_softmax, F.log_softmax),
}


def drawn(samples: list, seed: int) -> list:
    return samples if ALL else random.Random(seed).sample(samples, min(4, len(samples)))


def assert_like_torch(ours: Tensor, theirs: Tensor, own: Tensor, wide: Tensor) -> None:
    """In value and in the gradient of the logits, where torch computes in float64."""
    unit = torch.finfo(ours.dtype).eps
    torch.testing.assert_close(
        ours.double(), theirs, rtol=max(1e-5, 2 * unit), atol=max(1e-5, 2 * unit), equal_nan=True
    )
    if not own.requires_grad or not theirs.requires_grad:
        return
    factor = torch.rand_like(theirs)
    (grad,) = torch.autograd.grad(ours, own, factor.to(ours.dtype))
    (expected,) = torch.autograd.grad(theirs, wide, factor)
    unit = torch.finfo(own.dtype).eps
    scale = expected.nan_to_num().abs().max().item() if expected.numel() else 0.0
    torch.testing.assert_close(grad.double(), expected, rtol=4 * unit, atol=4 * unit * scale + 1e-6, equal_nan=True)


def without_gradient(values: tuple) -> list:
    return [value.detach() if isinstance(value, Tensor) else value for value in values]


def widened(value: object) -> object:
    return value.detach().double() if isinstance(value, Tensor) and value.is_floating_point() else value


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", [op for op in op_db if op.name in FUNCTIONS], ids=lambda op: op.full_name)
def test_functions(op, dtype, device, seed):
    own, torchs = FUNCTIONS[op.name]
    for sample in drawn(list(op.sample_inputs(device, dtype, requires_grad=True)), seed):
        logits, given = sample.input, without_gradient(sample.args)
        wide = logits.detach().double().requires_grad_()
        options = {name: widened(value) for name, value in sample.kwargs.items()}
        if "dtype" in options:
            options["dtype"] = torch.float64
        ours = own(logits, *given, **sample.kwargs)
        expected = torchs(wide, *map(widened, given), **options)
        try:
            assert ours.dtype is torchs(logits.detach(), *given, **sample.kwargs).dtype
            assert_like_torch(ours, expected, logits, wide)
        except AssertionError as error:
            raise AssertionError(f"{sample}: {error}") from error


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_module(dtype, device, seed):
    (info,) = [one for one in module_db if one.module_cls is torch.nn.CrossEntropyLoss]
    inputs = info.module_inputs_func(info, device=device, dtype=dtype, requires_grad=True, training=True)
    for one in drawn(inputs, seed):
        made, given = one.constructor_input, one.forward_input
        logits, *rest = given.args[0], *without_gradient(given.args[1:])
        wide = logits.detach().double().requires_grad_()
        ours = ct.CrossEntropyLoss(*made.args, **made.kwargs)(logits, *rest, **given.kwargs)
        options = {name: widened(value) for name, value in made.kwargs.items()}
        expected = torch.nn.CrossEntropyLoss(*made.args, **options)(wide, *map(widened, rest), **given.kwargs)
        try:
            assert_like_torch(ours, expected, logits, wide)
        except AssertionError as error:
            raise AssertionError(f"{one}: {made.kwargs}: {error}") from error
