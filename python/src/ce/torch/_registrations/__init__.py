"""Implementations of the operators ``torch.ops.ce.*`` besides CUDA: fake tensors, autograd, autocast and the CPU.

On the CPU they run in torch's operations, or on the host device if :func:`ce.torch.configure` says so.
"""

from ce.torch._registrations import cross_entropy, in_place, linear, ranks, softmax


def register() -> None:
    """Called once, when ``ce.torch`` is imported."""
    for operators in (softmax, cross_entropy, linear, in_place, ranks):
        operators.register()
