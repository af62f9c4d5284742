"""What bench/accuracy.py computes: inputs, PyTorch's results, and the same in f64.

A Case is an operation with its options. Its rows are of several kinds, one block of rows for each. Tensors are made on
PyTorch's default device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Callable

import torch

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

# Kinds of rows of logits, each from normal deviates with standard deviation 1.
LOGITS = {
    "normal": "as they are",
    "spread": "times 30",
    "dominant": "one logit, not the target's, 50 higher",
    "offset": "plus 1000",
    "masked": "every other logit -infinity",
    "confident": "the target's logit higher by log(columns) + 12, so that its probability is next to 1",
}
ROWS = tuple(kind for kind in LOGITS if kind != "confident")


@dataclass
class Case:
    name: str
    operation: str
    kinds: tuple[str, ...]
    flags: tuple[str, ...] = ()  # of ce-tune
    amounts: dict[str, float] = field(default_factory=dict)  # options of ce-tune that take a number
    reduction: str = "none"
    weights: bool = False
    probabilities: bool = False


def _losses() -> list[Case]:
    every = tuple(LOGITS)
    finite = tuple(kind for kind in LOGITS if kind != "masked")  # an infinite logit makes these losses infinite
    soft = tuple(kind for kind in finite if kind != "confident")
    uncapped = tuple(kind for kind in LOGITS if kind != "offset")  # a logit of 1000 is the cap, its gradient nothing
    name = "cross_entropy"
    return [
        Case(name, name, every),
        Case(f"{name} mean", name, ("normal",), reduction="mean"),
        Case(f"{name} smoothing", name, finite, amounts={"--smoothing": 0.1}),
        Case(f"{name} weights", name, every, weights=True),
        Case(f"{name} weights smoothing", name, finite, amounts={"--smoothing": 0.1}, weights=True),
        Case(f"{name} z-loss", name, every, amounts={"--z-loss": 1e-4}),
        Case(f"{name} softcap", name, uncapped, amounts={"--softcap": 30.0}),
        Case(f"{name} scale", name, every, amounts={"--scale": 0.5}),
        Case(f"{name} probabilities", name, soft, flags=("--probabilities",), probabilities=True),
        Case(f"{name}_backward", f"{name}_backward", every),
    ]


def _rows() -> list[Case]:
    """What reinforcement learning asks of a row."""
    every = tuple(LOGITS)
    finite = tuple(kind for kind in LOGITS if kind != "masked")  # PyTorch's entropy of p = 0 is NaN
    likely = tuple(kind for kind in LOGITS if kind not in ("spread", "dominant"))  # ce counts less than e^-32 as 0
    name = "cross_entropy"
    return [
        Case(f"{name} entropy", name, finite, flags=("--entropy", "--logprob", "--lse")),
        Case(f"{name} entropy and lse gradients", name, finite, flags=("--entropy-upstream", "--lse-upstream")),
        Case(f"{name} rows", name, every, flags=("--row-weights", "--row-scales")),
        Case(f"{name} divisor", name, ("normal",), flags=("--divisor",), reduction="mean"),
        Case(f"{name} token scaling", name, likely, amounts={"--token-scaling": 1.0}),
        Case(f"{name}_backward saved", f"{name}_backward", every, flags=("--saved-logprob", "--saved-lse-low")),
    ]


CASES = [
    Case("softmax", "softmax", ROWS),
    Case("log_softmax", "log_softmax", ROWS),
    Case("softmax_backward", "softmax_backward", ROWS),
    Case("log_softmax_backward", "log_softmax_backward", ROWS),
    *_losses(),
    *_rows(),
]


@dataclass
class Problem:
    """One call. Tensors by their names in include/ce/operations.hpp."""

    case: Case
    dtype: str
    columns: int
    rows_of_kind: int
    inputs: dict[str, torch.Tensor] = field(default_factory=dict)
    peer: dict[str, torch.Tensor] = field(default_factory=dict)  # PyTorch's
    exact: dict[str, torch.Tensor] = field(default_factory=dict)  # f64 of PyTorch's inputs
    exact_of_ce: dict[str, torch.Tensor] = field(default_factory=dict)  # f64 of ce's, where these differ
    terms: torch.Tensor | None = None  # [rows, columns]: the largest that a result is the difference of

    @property
    def rows(self) -> int:
        return self.rows_of_kind * len(self.case.kinds)

    def sizes(self, quantity: str) -> torch.Tensor:
        """[rows, 1]: what errors are relative to."""
        exact = self.exact[quantity]
        if exact.dim() < 2:
            sizes = exact.abs().reshape(-1, 1)
            return sizes.clamp_min(1.0) if quantity == "entropy" else sizes
        terms = exact if self.terms is None else self.terms
        return torch.where(torch.isfinite(terms), terms.abs(), 0.0).amax(-1, keepdim=True)


# ---- inputs --------------------------------------------------------------------------------------------------------


def _logits(problem: Problem, target: torch.Tensor) -> torch.Tensor:
    count, columns = problem.rows_of_kind, problem.columns
    parts = []
    for block, kind in enumerate(problem.case.kinds):
        x = torch.randn(count, columns)
        own = target[block * count : (block + 1) * count, None]
        if kind == "spread":
            x *= 30
        elif kind == "dominant":
            x.scatter_add_(1, (own.clamp_min(0) + columns // 2) % columns, torch.full_like(x[:, :1], 50))
        elif kind == "offset":
            x += 1000
        elif kind == "masked":
            hidden = torch.arange(columns) % 2 == 1
            x = x.masked_fill(hidden & (torch.arange(columns) != own), -math.inf)
        elif kind == "confident":
            x.scatter_add_(1, own, torch.full_like(x[:, :1], math.log(columns) + 12))
        parts.append(x)
    return torch.cat(parts).to(DTYPES[problem.dtype])


def _targets(problem: Problem) -> torch.Tensor:
    target = torch.randint(problem.columns, (problem.rows,))
    if problem.case.reduction == "mean":
        target[::8] = -100  # ignored
    return target


# ---- the operations in PyTorch -------------------------------------------------------------------------------------


def _loss(case: Case, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    """In the dtype of x: torch.nn.functional.cross_entropy, and what it lacks as one would write it."""
    amounts = case.amounts
    if "--scale" in amounts:
        x = x * amounts["--scale"]
    if "--softcap" in amounts:
        x = amounts["--softcap"] * torch.tanh(x / amounts["--softcap"])
    loss = torch.nn.functional.cross_entropy(
        x, target, weight, reduction=case.reduction, label_smoothing=amounts.get("--smoothing", 0.0)
    )
    if "--z-loss" in amounts:
        loss = loss + amounts["--z-loss"] * torch.logsumexp(x, -1) ** 2
    return loss


def _loss_and_gradient(
    case: Case, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None
) -> dict[str, torch.Tensor]:
    x = x.detach().requires_grad_()
    loss = _loss(case, x, target, weight)
    (gradient,) = torch.autograd.grad(loss, x, torch.ones_like(loss))
    return {"loss": loss.detach(), "grad": gradient}


def _fill_rows(problem: Problem, function: Callable[..., torch.Tensor]) -> None:
    x = _logits(problem, _targets(problem))
    problem.inputs = {"input": x}
    problem.peer = {"output": function(x, -1)}
    problem.exact = {"output": function(x.double(), -1)}


def _fill_backward(problem: Problem, forward: Callable[..., torch.Tensor], backward: Callable[..., Any]) -> None:
    """dx = y (dy - sum y dy), or dx = dy - exp(y) sum dy."""
    dtype = DTYPES[problem.dtype]
    x = _logits(problem, _targets(problem))
    y, dy = forward(x.double(), -1).to(dtype), torch.randn_like(x)
    problem.inputs = {"output": y, "output_grad": dy}
    problem.peer = {"input_grad": backward(dy, y, -1, dtype)}
    y, dy = y.double(), dy.double()
    problem.exact = {"input_grad": backward(dy, y, -1, torch.float64)}
    factor, own, summed = (y, y * dy, y * dy) if forward is torch.softmax else (y.exp(), dy, dy)
    problem.terms = torch.maximum(own.abs(), factor * summed.abs().sum(-1, keepdim=True))


def _fill_loss(problem: Problem) -> None:
    case, dtype = problem.case, DTYPES[problem.dtype]
    target = _targets(problem)
    x = _logits(problem, target)
    problem.inputs = {"logits": x, "target": target}
    if case.probabilities:
        target = torch.softmax(torch.randn(x.shape), -1).to(dtype)
        problem.inputs["target"] = target
    weight = None
    if case.weights:
        weight = problem.inputs["weight"] = (0.5 + torch.rand(problem.columns)).to(dtype)
    problem.peer = _loss_and_gradient(case, x, target, weight)
    exact_target = target.double() if case.probabilities else target
    exact_weight = None if weight is None else weight.double()
    problem.exact = _loss_and_gradient(case, x.double(), exact_target, exact_weight)


def _fill_loss_backward(problem: Problem) -> None:
    """The logsumexp is an input of ce's operation, in f32, and so of its reference."""
    _fill_loss(problem)
    for results in (problem.peer, problem.exact):
        del results["loss"]
    x, target = problem.inputs["logits"].double(), problem.inputs["target"]
    lse = problem.inputs["lse"] = torch.logsumexp(x, -1).float()
    one_hot = torch.zeros_like(x).scatter_(1, target[:, None], 1.0)
    problem.exact_of_ce = {"grad": torch.exp(x - lse.double()[:, None]) - one_hot}


def _results_of_rows(
    case: Case, x: torch.Tensor, target: torch.Tensor, given: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """In the dtype of x, as one would write it. \p given is what ce is given by the name of its tensor."""
    x = x.detach().requires_grad_()
    own = {name: tensor.to(x.dtype) for name, tensor in given.items()}
    z = x * own["row_scale"][:, None] if "row_scale" in own else x
    log_p = torch.log_softmax(z, -1)
    lse, entropy = torch.logsumexp(z, -1), -(log_p.exp() * log_p).sum(-1)
    counts = target >= 0
    logprob = torch.where(counts, log_p.gather(1, target.clamp_min(0)[:, None])[:, 0], 0.0)
    loss = -logprob * own.get("row_weight", 1.0)
    if "--token-scaling" in case.amounts:
        loss = loss * logprob.detach().exp() ** case.amounts["--token-scaling"]
    if case.reduction == "mean":
        loss = loss.sum() / own["divisor"][0]
    objective = loss.sum()
    for name, of_row in (("entropy_upstream", entropy), ("lse_upstream", lse)):
        if name in own:
            objective = objective + (own[name] * of_row).sum()
    (gradient,) = torch.autograd.grad(objective, x)
    return {"loss": loss.detach(), "grad": gradient, "entropy": entropy.detach(), "logprob": logprob.detach(),
            "lse": lse.detach()}


def _fill_rows_of_loss(problem: Problem) -> None:
    """What each row is given is exact in every dtype."""
    case = problem.case
    target = _targets(problem)
    x = _logits(problem, target)
    given: dict[str, torch.Tensor] = {}
    for flag, name in (("--row-weights", "row_weight"), ("--row-scales", "row_scale")):
        if flag in case.flags:
            given[name] = (8 + torch.randint(17, (problem.rows,))).float() / 16
    for flag, name in (("--entropy-upstream", "entropy_upstream"), ("--lse-upstream", "lse_upstream")):
        if flag in case.flags:
            given[name] = (torch.randint(33, (problem.rows,)) - 16).float() / 16
    if "--divisor" in case.flags:
        given["divisor"] = torch.tensor([float(problem.rows + 1)])
    problem.inputs = {"logits": x, "target": target, **given}
    wanted = {"loss", "grad", *(name.removeprefix("--") for name in case.flags)}
    results, exact = (_results_of_rows(case, each, target, given) for each in (x, x.double()))
    # The outputs of rows are f32 whatever the logits are.
    problem.peer = {name: value if name in ("loss", "grad") else value.float()
                    for name, value in results.items() if name in wanted}
    problem.exact = {name: exact[name] for name in problem.peer}


def _fill_saved(problem: Problem) -> None:
    """What a forward in f64 saves: the reference is the gradient of one pass."""
    _fill_loss(problem)
    for results in (problem.peer, problem.exact):
        del results["loss"]
    x, target = problem.inputs["logits"].double(), problem.inputs["target"]
    exact = torch.logsumexp(x, -1)
    lse = exact.float()
    logprob = torch.log_softmax(x, -1).gather(1, target[:, None])[:, 0]
    problem.inputs |= {"lse": lse, "lse_low": (exact - lse.double()).float(), "logprob": logprob.float()}


def make_problem(case: Case, dtype: str, columns: int, rows_of_kind: int) -> Problem:
    problem = Problem(case, dtype, columns, rows_of_kind)
    aten = torch.ops.aten
    fill: dict[str, Callable[[], None]] = {
        "softmax": lambda: _fill_rows(problem, torch.softmax),
        "log_softmax": lambda: _fill_rows(problem, torch.log_softmax),
        "softmax_backward": lambda: _fill_backward(problem, torch.softmax, aten._softmax_backward_data),
        "log_softmax_backward": lambda: _fill_backward(problem, torch.log_softmax, aten._log_softmax_backward_data),
        "cross_entropy": lambda: _fill_loss(problem),
        "cross_entropy_backward": lambda: _fill_loss_backward(problem),
    }
    if "saved" in case.name:
        _fill_saved(problem)
    elif case in _rows():
        _fill_rows_of_loss(problem)
    else:
        fill[case.operation]()
    return problem
