"""The operators of softmax and its logarithm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ce.torch import _native
from ce.torch._registrations._library import AUTOCAST, fake_nothing, library, operators, refuse_gradient, runs_on_host


def register() -> None:
    for name, function, backward_of in (
        ("softmax", torch.softmax, _softmax_gradient),
        ("log_softmax", torch.log_softmax, _log_softmax_gradient),
    ):
        _register_forward_on_cpu(name, function)
        _register_backward_on_cpu(name, backward_of)
        _register_fakes(name)
        _register_autograd(name)
        _register_autocast(name)
        _register_vmap(name)


def _register_forward_on_cpu(name: str, function: Callable[..., Tensor]) -> None:
    twin = {op: getattr(operators, "_" + op) for op in (name, name + "_out", name + "_")}

    def cpu(input: Tensor, dim: int) -> Tensor:
        if runs_on_host(input):
            return twin[name](input, dim)
        return function(input, dim, out=torch.empty_like(input))

    def cpu_out(input: Tensor, dim: int, out: Tensor) -> None:
        if runs_on_host(input):
            twin[name + "_out"](input, dim, out)
        else:
            function(input, dim, out=out)

    def cpu_in_place(self: Tensor, dim: int) -> None:
        if runs_on_host(self):
            twin[name + "_"](self, dim)
        else:
            self.copy_(function(self, dim))

    for op, kernel in ((name, cpu), (name + "_out", cpu_out), (name + "_", cpu_in_place), ("_eager_" + name, cpu)):
        library.impl(op, kernel, "CPU")


def _register_backward_on_cpu(name: str, backward_of: Callable[..., Tensor]) -> None:
    twin, out_twin = (getattr(operators, f"_{name}_backward{ending}") for ending in ("", "_out"))

    def cpu_backward(grad_output: Tensor, output: Tensor, dim: int) -> Tensor:
        if runs_on_host(output):
            return twin(grad_output, output, dim)
        return backward_of(grad_output, output, dim, output.dtype)

    def cpu_backward_out(grad_output: Tensor, output: Tensor, dim: int, grad_input: Tensor) -> None:
        if runs_on_host(output):
            out_twin(grad_output, output, dim, grad_input)
        else:
            grad_input.copy_(backward_of(grad_output, output, dim, output.dtype))

    library.impl(name + "_backward", cpu_backward, "CPU")
    library.impl(name + "_backward_out", cpu_backward_out, "CPU")


def _register_fakes(name: str) -> None:
    def fake(input: Tensor, dim: int) -> Tensor:
        return torch.empty_like(input)

    def fake_backward(grad_output: Tensor, output: Tensor, dim: int) -> Tensor:
        return torch.empty_like(output)

    for prefix in ("ce::", "ce::_", "ce::_eager_"):
        _native.register_fake(prefix + name, fake)
    for prefix in ("ce::", "ce::_"):
        _native.register_fake(f"{prefix}{name}_backward", fake_backward)
        for op in (name + "_out", name + "_", name + "_backward_out"):
            _native.register_fake(prefix + op, fake_nothing)


def _register_autograd(name: str) -> None:
    backward = getattr(operators, f"{name}_backward")

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.dim = inputs[1]

    def gradient(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (output,) = ctx.saved_tensors
        return backward(grad, output, ctx.dim), None

    torch.library.register_autograd("ce::" + name, gradient, setup_context=keep)
    refuse_gradient(f"{name}_backward", name)
    for op in ("_eager_" + name, "_" + name, f"_{name}_backward"):
        library.impl(op, torch.library.fallthrough_kernel, "AutogradCUDA")


def _register_autocast(name: str) -> None:
    def autocast(input: Tensor, dim: int) -> Tensor:
        with torch._C._ExcludeDispatchKeyGuard(AUTOCAST):
            # Like torch, which casts narrower dtypes.
            wide = input if input.dtype == torch.float64 else input.float()
            return getattr(operators, "_eager_" + name)(wide, dim)

    for key in ("AutocastCUDA", "AutocastCPU"):
        library.impl("_eager_" + name, autocast, key)
    for device in ("cuda", "cpu"):
        torch.library.register_autocast("ce::" + name, device, torch.float32)


def _register_vmap(name: str) -> None:
    """For eager calls without a gradient."""
    operator = getattr(operators, "_eager_" + name)

    def of_batch(info: Any, in_dims: tuple[int | None, ...], input: Tensor, dim: int) -> tuple[Tensor, int]:
        assert in_dims[0] is not None  # the only tensor
        batch = input.movedim(in_dims[0], 0)
        dimensions = batch.dim() - 1
        if not -max(dimensions, 1) <= dim < max(dimensions, 1):
            return operator(batch[0], dim), 0  # raises the error of one of the batch
        if dimensions == 0:
            return operator(batch.unsqueeze(1), 1).squeeze(1), 0
        return operator(batch, dim % dimensions + 1), 0

    torch.library.register_vmap("ce::_eager_" + name, of_batch)


def _softmax_gradient(grad: Tensor, output: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    return torch._softmax_backward_data(grad, output, dim, dtype)


def _log_softmax_gradient(grad: Tensor, output: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    return torch._log_softmax_backward_data(grad, output, dim, dtype)
