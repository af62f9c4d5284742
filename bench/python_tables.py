"""The tables of the Python package, from what the scripts python_*.py measured."""

from __future__ import annotations

import json
import math
from typing import Any, Callable

from pages import Page, span, table, wrapped


def python_figures(page: Page, script: str) -> dict[str, Any]:
    if page.results.python is None:
        raise ValueError("there are no figures of the Python package")
    found: dict[str, Any] = json.loads(page.results.python.read_text(encoding="utf-8"))[f"python bench/{script}"]
    return found


def python_source(page: Page, figures: dict[str, Any]) -> str:
    machine = figures["machine"]
    path = page.results.python
    assert path is not None
    return wrapped(f"{machine['gpu']}, driver {machine['driver']}, PyTorch {machine['torch']}, "
                   f"[{machine['date']}]({page.path(path)}).")


def python_calls(page: Page) -> str:
    figures = python_figures(page, "python_calls.py")
    rows = [["CPU time of a warm call, 64 x 1024 f32", "ce", "PyTorch", "ratio"]]
    for name, us in figures["host us of a warm call, 64 x 1024 f32"].items():
        rows.append([name, f"{us['ce']:.1f} us", f"{us['torch']:.1f} us", f"{us['ce'] / us['torch']:.2f}"])
    return f"{table(rows)}\n\n{python_source(page, figures)}"


def python_gradient(page: Page) -> str:
    figures = python_figures(page, "python_calls.py")
    found = figures["loss and gradient, 8192 x 128256 bf16"]
    names = {"copy of the logits": "a copy of the logits", "ce, C call": "`ce`, one call in C",
             "ce.torch": "`ct.cross_entropy` and backward", "ce.torch, upstream 0.5": "the same, upstream gradient 0.5",
             "ce.torch, from logsumexp": "the operator that torch.compile sees", "torch": "PyTorch"}
    rows = [["GPU time of loss and gradient, 8192 x 128256 bf16", "time", "over a copy of the logits",
             "peak memory over the logits"]]
    for name, title in names.items():
        us = found[name]["us"]
        rows.append([title, f"{us / 1e3:.2f} ms", f"{us / found['copy of the logits']['us']:.2f}",
                     f"{found[name]['peak over logits']:.1f}"])
    return f"{table(rows)}\n\n{python_source(page, figures)}"


def python_training(page: Page) -> str:
    figures = python_figures(page, "python_training.py")
    shape, runs = figures["shape"], figures["runs"]
    tokens = shape["batch"] * shape["length"]
    rows = [[f"{shape['steps']} steps of a small GPT, {tokens} tokens, {shape['classes']} classes, autocast", "step",
             "peak memory"]]
    for name, title in (("torch", "PyTorch"), ("ce", "under `ct.patch()`")):
        rows.append([title, f"{runs[name]['step ms']:.1f} ms", f"{runs[name]['peak GiB']:.1f} GiB"])
    # Older figures have but what the runs reported.
    losses = figures.get("losses by the evaluator", figures)
    what = "Losses" if losses is figures else "Losses of the trained parameters, computed by one evaluator,"
    own = losses["difference of two runs of torch, mean and largest"]
    other = losses["difference of ce and torch, mean and largest"]
    text = (f"{what} differ by {other[0]:.5f} in the mean and {other[1]:.4f} at most between `ce` and PyTorch, by "
            f"{own[0]:.5f} and {own[1]:.4f} between two runs of PyTorch.")
    if (exact := losses.get("difference of ce and torch in float32, mean and largest")) is not None:
        compiled = losses["difference of torch compiled and torch in float32, mean and largest"]
        text += (f" From a run of PyTorch that copies the logits to float32, and so rounds as little as `ce`, "
                 f"losses of `ce` differ by {exact[0]:.5f} and {exact[1]:.4f}, losses of torch.compile by "
                 f"{compiled[0]:.5f} and {compiled[1]:.4f}.")
    return f"{table(rows)}\n\n{wrapped(text)}\n\n{python_source(page, figures)}"


def head(name: str, unit: str) -> Callable[[Page], str]:
    """Of a step with the layer and its loss in one, from torch to ce."""

    def write(page: Page) -> str:
        path = page.results.linear_training
        if path is None:
            raise ValueError("there are no figures of python_training.py --head")
        runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
        return f"{runs['ce'][name]:.1f} instead of {runs['torch'][name]:.1f} {unit}"

    return write


def python_transformers(page: Page) -> str:
    figures = python_figures(page, "python_transformers.py")
    shape = figures["shape"]
    size = (f"{shape['batch']} x {shape['length']} tokens, {shape['classes']} classes, MLPs of "
            f"{shape.get('intermediate', 4096)}, bf16")
    rows = [[f"a step of a Llama of Transformers, {size}", "step", "peak memory",
             f"loss at steps 1, 10, {shape['steps']}"]]
    for name, title in (("transformers", "its own loss"), ("ce", "`CeForCausalLMLoss`")):
        found = figures[name]
        losses = " ".join(f"{loss:.4f}" for loss in found["losses at steps 1, 10, last"])
        rows.append([title, f"{found['step ms']:.1f} ms", f"{found['peak GiB']:.1f} GiB", losses])
    return f"{table(rows)}\n\n{python_source(page, figures)}"


def python_rl(page: Page) -> str:
    """Of each call its time at the largest shape, and ratios over all shapes."""
    path = page.results.python_rl
    if path is None:
        raise ValueError("there are no figures of python_rl.py")
    content = json.loads(path.read_text(encoding="utf-8"))
    results, machine = content["results"], content["machine"]
    largest = max(results, key=lambda result: math.prod(result["sizes"]))["sizes"]
    peers = {"PyTorch": ("torch",), "torch.compile": ("torch.compile", "torch.compile, by logsumexp"), "TRL": ("trl",),
             "Liger-Kernel": ("liger",)}
    rows = [["dtype, call", f"`ce`, {math.prod(largest[:-1])} x {largest[-1]}", *peers]]
    for dtype in dict.fromkeys(result["dtype"] for result in results):
        own = [result for result in results if result["dtype"] == dtype]
        for call in own[0]["figures"]:
            figures = [result["figures"][call] for result in own]
            times = {tuple(result["sizes"]): result["figures"][call]["ce"]["us"] for result in own}
            cells = []
            for names in peers.values():
                found = [min(one[name]["us"] for name in names if name in one) / one["ce"]["us"] for one in figures
                         if any(name in one for name in names)]
                cells.append(span(found, lambda ratio: f"{ratio:.1f}") if found else "")
            rows.append([f"{dtype}: {call}", f"{times[tuple(largest)] / 1e3:.2f} ms", *cells])
    shapes = ", ".join(dict.fromkeys(f"{math.prod(result['sizes'][:-1])} x {result['sizes'][-1]}" for result in results))
    return f"{table(rows)}\n\n" + wrapped(
        f"Times of others over the time of `ce`, for {shapes}; for torch.compile, of the faster of two ways to write "
        f"it. "
        f"{machine['gpu']}, driver {machine['driver']}, PyTorch {machine['torch']}, "
        f"[{machine['date']}]({page.path(path)}).")
