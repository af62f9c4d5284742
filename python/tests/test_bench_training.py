"""bench/python_training.py on the CPU: what its curves are made of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import ce.torch as ct

BENCH = Path(__file__).parents[2] / "bench"
CPU = torch.device("cpu")
SHAPE = (2, 300, 2, 16)
"""Steps, classes, batch, length."""


@pytest.fixture
def training(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import python_training

    was = ct.configure(policy="lookup", cpu="host")
    yield python_training
    ct.restore(was)


@pytest.mark.parametrize("head", [False, True])
def test_curves_are_those_of_one_evaluator(training, head, tmp_path, capsys):
    file = tmp_path / "training.json"
    sizes = [f"--{name}={size}" for name, size in zip(("steps", "classes", "batch", "length"), SHAPE)]
    training.main([*sizes, "--device=cpu", f"--out={file}", *["--head"] * head])
    written, shown = json.loads(file.read_text()), json.loads(capsys.readouterr().out)
    evaluated, reported = written.pop("curves by the evaluator"), written.pop("curves as reported")
    assert written == shown
    assert written["ce"] == ("LinearCrossEntropy" if head else "patch")
    for curves, found in ((evaluated, "losses by the evaluator"), (reported, "losses as reported")):
        assert [len(curve) for curve in curves.values()] == [2, 2, 2, 2, 2]
        for names, one, other in (
            ("ce and torch", "torch", "ce"),
            ("two runs of torch", "torch", "torch again"),
            ("ce and torch in float32", "torch in float32", "ce"),
            ("torch compiled and torch in float32", "torch in float32", "torch compiled"),
        ):
            apart = [abs(a - b) for a, b in zip(curves[one], curves[other])]
            assert written[found][f"difference of {names}, mean and largest"] == [sum(apart) / 2, max(apart)]
    # Before the first step the parameters are the same, whatever the losses are that runs report.
    assert len({curve[0] for curve in evaluated.values()}) == 1
    assert evaluated["torch"][0] != evaluated["torch"][1] != evaluated["ce"][1]
    assert reported["ce"][0] == pytest.approx(evaluated["ce"][0], abs=1e-2)


def test_the_evaluator_heeds_neither_autocast_nor_a_patch_and_leaves_a_training_as_it_is(training, seed):
    _, classes, batch, length = SHAPE
    for head in (torch.nn.Linear, ct.LinearCrossEntropy):
        model = training.Gpt(classes, width=32, layers=1, heads=2, length=length, head=head)
        tokens, target = torch.randint(0, 256, (2, batch, length))
        expected = training.loss_of(model, tokens, target)
        with torch.autocast("cpu", dtype=torch.bfloat16), ct.patch():
            found = training.loss_of(model, tokens, target)
        assert found.dtype is torch.float64 and not found.requires_grad
        assert torch.equal(found, expected)
        exact = model.double()
        logits = exact.hidden(tokens) @ exact.head.weight.t()
        of_float64 = -logits.log_softmax(-1).gather(-1, target[..., None]).mean()
        torch.testing.assert_close(found, of_float64.detach(), rtol=1e-5, atol=0)
    plain, looked_at = (training.train(CPU, *SHAPE, evaluate=evaluate) for evaluate in (False, True))
    assert plain["reported"] == looked_at["reported"]
    assert plain["step ms"] > 0 and "step ms" not in looked_at
