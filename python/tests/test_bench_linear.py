"""bench/linear.py as far as a machine without a GPU goes: what it compares, and that it notices what differs."""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

import pytest
import torch

import ce.torch as ct

BENCH = Path(__file__).parents[2] / "bench"
CPU = torch.device("cpu")


@pytest.fixture
def linear(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import linear

    was = ct.configure(policy="lookup", cpu="host")
    yield linear
    ct.configure(policy=was.policy, cpu=was.cpu)


@pytest.fixture
def shape(linear):
    return linear.Shape(tokens=24, hidden=16, classes=40)


def with_peer(linear, monkeypatch, name, change):
    """A peer that changes what torch makes of loss and gradients."""
    torchs = linear.LOADERS["torch-chunked"]()

    def step(x, w, target):
        return change(*torchs.step(x, w, target))

    peer = linear.Peer(name, "1", torchs.loss, step)
    monkeypatch.setitem(linear.LOADERS, name, lambda: peer)


@pytest.mark.parametrize(
    "what, change, agrees",
    [
        ("nothing", lambda loss, dx, dw: (loss, dx, dw), True),
        ("loss", lambda loss, dx, dw: (loss * 1.001, dx, dw), False),
        ("rounded loss", lambda loss, dx, dw: (loss.bfloat16(), dx, dw), True),
        ("input", lambda loss, dx, dw: (loss, dx * 1.05, dw), False),
        ("one row", lambda loss, dx, dw: (loss, dx, torch.cat([dw[:-1], -dw[-1:]])), False),
        ("nan", lambda loss, dx, dw: (loss, dx * float("nan"), dw), False),
    ],
)
def test_what_differs_is_noticed(linear, shape, monkeypatch, what, change, agrees):
    with_peer(linear, monkeypatch, "other", change)
    (entry,), all_agree = linear.measure(shape, ["ce-4g", "other"], 0, CPU)
    assert list(entry["against_ce"]) == ["other"]
    assert entry["against_ce"]["other"]["agrees"] is agrees
    assert all_agree is agrees


def test_a_peer_that_fails_is_told(linear, shape, monkeypatch):
    def fail(*_):
        raise RuntimeError("no such\nkernel")

    with_peer(linear, monkeypatch, "other", fail)
    (entry,), all_agree = linear.measure(shape, ["other"], 0, CPU)
    assert entry["against_ce"] == {"other": {"failed": "RuntimeError: no such"}}
    assert not all_agree


def test_chunks_make_the_mean_of_all(linear, shape):
    def loss_of(x, target, w):
        return torch.nn.functional.cross_entropy((x @ w.t()).float(), target)

    batch = linear.Batch.random(shape, CPU)
    mean, step = linear.in_chunks(loss_of, 10)  # the last chunk is shorter
    loss, dx, dw = step(batch.x, batch.w, batch.target)
    wanted, *gradients = linear.in_f64(batch, tokens=7)
    assert abs(loss.double() / wanted - 1) < 1e-3
    assert linear.distance(dx, gradients[0]) < 2**-7
    assert linear.distance(dw, gradients[1]) < 2**-7
    frozen = batch.frozen()
    torch.testing.assert_close(mean(frozen.x, frozen.w, frozen.target), loss)


def test_the_reference_is_that_of_autograd_in_float64(linear, shape):
    batch = linear.Batch.random(shape, CPU)
    x, w = (one.detach().double().requires_grad_() for one in (batch.x, batch.w))
    wanted = torch.nn.functional.cross_entropy(x @ w.t(), batch.target)
    wanted.backward()
    loss, dx, dw = linear.in_f64(batch, tokens=7)
    torch.testing.assert_close(loss, wanted.detach())
    torch.testing.assert_close(dx, x.grad)
    torch.testing.assert_close(dw, w.grad)


def test_the_gradient_that_products_multiply_is_that_of_the_logits(linear, shape):
    batch = linear.Batch.random(shape, CPU)
    logits = (batch.x.detach() @ batch.w.detach().t()).float().requires_grad_()
    torch.nn.functional.cross_entropy(logits, batch.target).backward()
    assert linear.distance(linear.gradient_of_logits(batch), logits.grad) < 2**-7


def test_the_command_compares_and_writes(linear, monkeypatch, tmp_path):
    out = tmp_path / "linear.json"
    for name in ("ce-chunks-of-8", "ce-chunks-of-16"):  # which the command adds for the rest of the process
        monkeypatch.setitem(linear.LOADERS, name, linear.LOADERS["ce-4g"])
    with_peer(linear, monkeypatch, "other", lambda loss, dx, dw: (loss, dx, dw * 1.1))
    command = ["linear.py", "--check", "--shapes", "24x16x40,16x8x30", "--out", str(out), "--only"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", [*command, "ce-4g,ce-512m,torch"])
    assert linear.main() == 0
    document = json.loads(out.read_text())
    assert [entry["shape"] for entry in document["measured"]] == ["24x16x40", "16x8x30"]
    assert set(document["measured"][0]["against_ce"]) == {"ce-512m", "torch"}
    monkeypatch.setattr(sys, "argv", [*command, "ce-4g", "--chunks", "8,16"])
    assert linear.main() == 0
    document = json.loads(out.read_text())
    assert set(document["measured"][0]["against_ce"]) == {"ce-chunks-of-8", "ce-chunks-of-16"}
    monkeypatch.setattr(sys, "argv", [*command, "ce-4g,other"])
    assert linear.main() == 1
    monkeypatch.setattr(sys, "argv", [*command, "ce-4g"])
    assert linear.main() == 1, "a check that compared nothing does not pass"
    monkeypatch.setattr(sys, "argv", ["linear.py", "--accuracy", "24x16x40", "--only", "torch", "--out", str(out)])
    assert linear.main() == 0
    (made,) = json.loads(out.read_text())["accuracy"]
    paths = made["distance_from_f64"]
    assert {"ce", "ce-f32-logits", "torch", "torch-chunks-of-3-f32-softmax"} <= set(paths)
    assert all(0 < one["weight_grad"] < 2**-6 for one in paths.values())


class Event:
    """Of a GPU that takes a millisecond for everything."""

    def __init__(self, enable_timing):
        pass

    def record(self):
        pass

    def synchronize(self):
        pass

    def elapsed_time(self, _):
        return 1.0


def test_what_is_timed_and_what_fails_on_the_way(linear, shape, monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", Event)
    for name in ("synchronize", "reset_peak_memory_stats", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    gradients = 2 * (shape.tokens + shape.classes) * shape.hidden
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 1000)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 1000 + gradients + 64)
    calls = []

    def fails_late(*results):
        calls.append(results)
        if len(calls) > 5:
            raise RuntimeError("late")
        return results

    with_peer(linear, monkeypatch, "late", fails_late)
    entries, agree = linear.measure(shape, ["ce-4g", "torch", "late"], 2, CPU)
    assert agree
    assert [entry["gradients"] for entry in entries] == [True, False]
    results, alone = (entry["results"] for entry in entries)
    assert set(results) == {"products", "products-torch", "ce-4g", "torch", "late"}
    assert "error" in results["products"], "there is no cuBLASLt without a GPU"
    assert results["late"] == {"error": "RuntimeError: late"}
    assert results["torch"]["samples_ms"] == [1.0] * 4
    assert results["torch"]["over_products"] == 1
    assert results["torch"]["beyond_bytes"] == 64
    assert alone["torch"]["beyond_bytes"] == 64 + gradients
    assert "median_ms" in alone["late"], "its forward does not fail"


def test_a_shape_for_which_time_is_short_is_left_out(linear, monkeypatch, tmp_path, capsys):
    asked = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(linear, "machine", dict)
    monkeypatch.setattr(
        linear, "measure", lambda shape, *_: (asked.append(str(shape)) or [{"shape": str(shape)}], True)
    )
    out = ["--out", str(tmp_path / "out.json"), "--only", "ce-4g"]
    monkeypatch.setattr(sys, "argv", ["linear.py", "--limit", "60", "--shapes", "8x8x8,99999x9999x999999,16x8x8", *out])
    assert linear.main() == 0
    assert asked == ["8x8x8", "16x8x8"]
    assert "--shapes 99999x9999x999999" in capsys.readouterr().out


def test_cublaslt_reads_matrices_column_by_column(linear):
    import cublaslt

    matrix = torch.empty(3, 5)
    assert cublaslt.operand(matrix) == (cublaslt.OP_N, 5, 3, 5)
    assert cublaslt.operand(matrix.t()) == (cublaslt.OP_T, 5, 3, 5)
    assert cublaslt.operand(matrix[:, :2]) == (cublaslt.OP_N, 2, 3, 5)
    with pytest.raises(ValueError, match="expected one of them"):
        cublaslt.operand(torch.empty(4, 6)[::2, ::2])
    assert ctypes.sizeof(cublaslt.Heuristic) == 96  # cublasLtMatmulHeuristicResult_t
