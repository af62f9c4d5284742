#!/usr/bin/env python3
"""Writes reference_values.inc: what PyTorch computes in f64 for the inputs that are in it too.

    python3 tests/verify/reference_values.py > tests/verify/reference_values.inc

z-loss, soft cap and scale are no options of torch.nn.functional.cross_entropy. They are written down here as
Liger-Kernel defines them, around a call of it, and differentiated by autograd.
"""

import datetime
import itertools
import math

import torch
import torch.nn.functional as F

REDUCTIONS = ("none", "mean", "sum")
LOGITS = [[0.3, -1.2, 2.0, 0.7], [1.5, 0.1, -0.4, 0.9], [0.2, 1.0, 1.0, -2.0]]
MASKED = [[0.3, -math.inf, 2.0, 0.7], [1.5, 0.1, -0.4, 0.9], [-math.inf, 1.0, 1.0, -2.0]]
GRADIENT = [[1.0, -2.0, 0.5, 3.0], [0.25, 0.0, -1.0, 2.0], [-0.5, 1.5, 1.0, 0.75]]
PROBABILITIES = [[0.2, 0.0, 0.1, 0.7], [0.0, 1.0, 0.0, 0.0], [0.0, 0.5, 0.25, 0.25]]
WEIGHTS = [0.5, 2.0, 0.0, 1.25]
UPSTREAM = [2.0, -0.5, 1.5]  # of rows; of a reduced loss the first
TARGETS = [2, -100, 1]


def number(x):
    if math.isnan(x):
        return "not_a_number"
    if math.isinf(x):
        return "infinity" if x > 0 else "-infinity"
    return repr(x).removesuffix(".0")


def values(tensor):
    return "{" + ", ".join(number(x) for x in tensor.detach().flatten().tolist()) + "}"


def f64(rows):
    return torch.tensor(rows, dtype=torch.float64)


def transformed(x, scale, cap):
    x = x * scale
    return cap * torch.tanh(x / cap) if cap else x


def z_loss(z, counted, z_scale, reduction):
    losses = torch.where(counted, z_scale * torch.logsumexp(z, -1) ** 2, 0.0)
    return {"none": losses, "mean": losses.sum() / counted.sum(), "sum": losses.sum()}[reduction]


def cross_entropy_case(reduction, targets=None, ignore_index=-100, weights=False, smoothing=0.0, z_scale=0.0,
                       cap=0.0, scale=1.0, masked=False):
    """One line of the table. Without targets: probabilities."""
    x = f64(MASKED if masked else LOGITS).requires_grad_()
    z = transformed(x, scale, cap)
    loss = F.cross_entropy(
        z,
        f64(PROBABILITIES) if targets is None else torch.tensor(targets),
        weight=f64(WEIGHTS) if weights else None,
        reduction=reduction,
        label_smoothing=smoothing,
        **({} if targets is None else {"ignore_index": ignore_index}),
    )
    if z_scale:
        counted = torch.tensor([targets is None or t != ignore_index for t in targets or TARGETS])
        loss = loss + z_loss(z, counted, z_scale, reduction)
    loss.backward(f64(UPSTREAM) if reduction == "none" else f64(UPSTREAM[0]))
    fields = [f".reduction = Reduction::{reduction}"]
    if targets is not None:
        fields.append(f".targets = {{{', '.join(map(str, targets))}}}")
    if ignore_index != -100:
        fields.append(f".ignore_index = {ignore_index}")
    if weights:
        fields.append(".weights = true")
    for name, amount, default in (("smoothing", smoothing, 0.0), ("z_scale", z_scale, 0.0), ("cap", cap, 0.0),
                                  ("scale", scale, 1.0)):
        if amount != default:
            fields.append(f".{name} = {number(amount)}")
    if masked:
        fields.append(".masked = true")
    fields += [f".loss = {values(loss)}", f".gradient = {values(x.grad)}"]
    return "    {" + ",\n     ".join(fields) + "},"


def cross_entropy_cases():
    for reduction, targets, weights, smoothing in itertools.product(
            REDUCTIONS, (TARGETS, None), (False, True), (0.0, 0.3)):
        yield cross_entropy_case(reduction, targets, weights=weights, smoothing=smoothing)
    for reduction, targets in itertools.product(REDUCTIONS, (TARGETS, None)):
        yield cross_entropy_case(reduction, targets, z_scale=0.1)
        yield cross_entropy_case(reduction, targets, cap=3.0, scale=0.6)
        yield cross_entropy_case(reduction, targets, weights=True, smoothing=0.3, z_scale=0.1, cap=3.0,
                                 scale=0.6)
    for reduction in REDUCTIONS:  # a class is ignored; all rows are
        yield cross_entropy_case(reduction, [0, 3, 1], ignore_index=3, weights=True, smoothing=0.3)
        yield cross_entropy_case(reduction, [-100] * 3, smoothing=0.3, z_scale=0.1)
    yield cross_entropy_case("mean", [2, 0, 1], masked=True)
    yield cross_entropy_case("none", [2, 0, 1], masked=True, smoothing=0.3)
    yield cross_entropy_case("none", None, masked=True)


def softmax_case(function):
    x = f64(LOGITS).requires_grad_()
    y = function(x, -1)
    y.backward(f64(GRADIENT))
    return f"{{.output = {values(y)},\n     .gradient = {values(x.grad)}}}"


def matrix(name, rows):
    return f"const Values {name}{values(f64(rows))};"


def main():
    print(f"// Written by reference_values.py on {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d} with "
          f"PyTorch {torch.__version__.split('+')[0]} on the CPU, in f64. Do not edit.")
    print(matrix("torch_logits", LOGITS))
    print(matrix("torch_masked_logits", MASKED))
    print(matrix("torch_output_gradient", GRADIENT))
    print(matrix("torch_probabilities", PROBABILITIES))
    print(matrix("torch_weights", WEIGHTS))
    print(matrix("torch_upstream", UPSTREAM))
    print(f"const TorchSoftmax torch_softmax{softmax_case(F.softmax)};")
    print(f"const TorchSoftmax torch_log_softmax{softmax_case(F.log_softmax)};")
    print("const std::vector<TorchCrossEntropy> torch_cross_entropy{")
    print("\n".join(cross_entropy_cases()))
    print("};")


if __name__ == "__main__":
    main()
