"""Policies, tuning ahead, and processes that share a database."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import ce.torch as ct
from ce import _files
from ce.torch.integrations.transformers import CeForCausalLMLoss


@pytest.fixture
def database(tmp_path):
    """A database of the test's own."""
    path = tmp_path / "own.db"
    before = ct.configure(database=path, cpu="host")
    yield path
    ct.restore(before)


def listed(database) -> str:
    done = subprocess.run(
        [_files.command(), "db", "list", "--db", database], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_frozen_raises_and_lookup_does_not_tune(database):
    logits = torch.randn(2, 50)
    before = ct.configure(policy="frozen")
    with pytest.raises(ct.NotTuned, match="softmax"):
        ct.softmax(logits, 1)
    with pytest.raises(LookupError):
        ct.cross_entropy(logits.requires_grad_(), torch.zeros(2, dtype=torch.int64))
    ct.restore(before)
    ct.configure(policy="lookup")
    ct.softmax(logits, 1)


def test_tune_ahead_then_frozen(database):
    ct.configure(policy="frozen", tuning_seconds=0.5)
    ct.tune([(2, 40, torch.float32)], operations=("cross_entropy", "softmax"), device="cpu", label_smoothing=0.1)
    logits = torch.randn(2, 40, requires_grad=True)
    ct.cross_entropy(logits, torch.zeros(2, dtype=torch.int64), label_smoothing=0.1).backward()
    ct.softmax(logits, 1).sum().backward()
    with pytest.raises(ct.NotTuned):
        ct.cross_entropy(logits, torch.zeros(2, dtype=torch.int64))


def test_tune_ahead_covers_what_a_trainer_calls(database):
    """The output layer of a model, with and without a gradient and the number of items, as Transformers calls it."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 33))
    ct.configure(policy="frozen", tuning_seconds=0.5)
    ct.tune(model, rows=3, device="cpu")
    labels = torch.zeros(3, dtype=torch.int64)
    for items in (None, torch.tensor(3), 3):
        for logits in (torch.randn(3, 33), torch.randn(3, 33, requires_grad=True)):
            loss = CeForCausalLMLoss(logits, None, 33, items, shift_labels=labels)
            if logits.requires_grad:
                loss.backward()
    ct.cross_entropy(torch.randn(3, 33), labels)
    ct.cross_entropy(torch.randn(3, 33, requires_grad=True), labels).backward()


def test_tune_ahead_of_log_probabilities(database):
    ct.configure(policy="frozen", tuning_seconds=0.5)
    ct.tune([(3, 33, torch.float32)], operations=["selective_log_softmax", "logprobs_and_entropy"], device="cpu")
    index = torch.zeros(3, dtype=torch.int64)
    for logits in (torch.randn(3, 33), torch.randn(3, 33, requires_grad=True)):
        made = (ct.selective_log_softmax(logits, index), *ct.logprobs_and_entropy(logits, index))
        if logits.requires_grad:
            sum(one.sum() for one in made).backward()


def test_tune_ahead_of_a_linear_layer(database):
    ct.configure(policy="frozen", tuning_seconds=0.5)
    ct.tune([(6, 40)], operations=["linear_cross_entropy", "linear_loss"], hidden=16, device="cpu")
    x, w = (torch.randn(size, 16).bfloat16() for size in (6, 40))
    ct.linear_cross_entropy(x, w, torch.zeros(6, dtype=torch.int64))
    ct.linear_cross_entropy(x.requires_grad_(), w.requires_grad_(), torch.zeros(6, dtype=torch.int64)).backward()


def test_stats_count_what_the_process_did(database):
    before = ct.stats()
    ct.configure(policy="lookup")
    logits = torch.randn(2, 77)
    for _ in range(3):
        ct.softmax(logits, 1)
    ct.configure(policy="frozen")
    with pytest.raises(ct.NotTuned):
        ct.softmax(torch.randn(2, 78), 1)
    after = ct.stats()
    assert after.calls - before.calls == 4
    assert after.known - before.known == 2
    assert after.fallback - before.fallback == 1
    assert after.compiled - before.compiled == 1
    assert after.errors - before.errors == 1
    assert after.tuned == before.tuned


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ct.configure(policy="now"), "policy is 'now'; expected one of default, tune"),
        (lambda: ct.configure(cpu="gpu"), "cpu is 'gpu'; expected 'torch' or 'host'"),
        (lambda: ct.configure(tuning_seconds=-1), "tuning_seconds is -1"),
        (lambda: ct.configure(scratch_bytes=-1), "scratch_bytes is -1"),
        (lambda: ct.configure(scratch_bytes=2**63), "scratch_bytes is 9223372036854775808; expected"),
        (lambda: ct.configure(capture_bytes=True), "capture_bytes is True; expected a number of bytes"),
        (lambda: ct.configure(policy=["tune"]), r"policy is \['tune'\]; expected one of"),
        (lambda: ct.tune([(3, 4, torch.float64)], device="cpu"), r"dtype is torch\.float64; expected torch\.float32"),
        (lambda: ct.configure(nondeterministic_products=2), "nondeterministic_products is 2; expected True or False"),
        (lambda: ct.tune([(3,)]), r"shape is \(3,\)"),
        (lambda: ct.tune([(3, 4)], operations=["linear_loss"]), "hidden is None; expected the hidden size"),
        (lambda: ct.tune([(3, 0)]), r"shape is \(3, 0\)"),
        (lambda: ct.tune([(3, 4)], operations=("gelu",)), "operation is 'gelu'"),
        (lambda: ct.tune(torch.nn.Linear(2, 3)), "rows is None"),
        (lambda: ct.tune(torch.nn.ReLU(), rows=3), "ReLU has no linear layer"),
    ],
)
def test_refuses(call, message):
    before = ct.configure()
    with pytest.raises(ValueError, match=message):
        call()
    assert ct.configure() == before


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ct.configure(tuning_seconds="2"), "tuning_seconds is '2'; expected a number of seconds"),
        (lambda: ct.configure(rank_patience=[1]), r"rank_patience is \[1\]; expected a number of seconds"),
        (lambda: ct.configure(compare_ranks="yes"), "compare_ranks is 'yes'; expected True or False"),
        (lambda: ct.configure(database=5), "database is 5; expected a path"),
        (lambda: ct.restore(None), "settings is None; expected what configure"),
        (lambda: ct.tune(3), "what is 3; expected shapes or a model"),
    ],
)
def test_refuses_types(call, message):
    before = ct.configure()
    with pytest.raises(TypeError, match=message):
        call()
    assert ct.configure() == before


def test_tuning_the_host_device_needs_no_setting(database):
    """Where calls on the CPU are for torch, too."""
    ct.configure(cpu="torch")
    before = ct.stats().tuned
    ct.tune([(3, 40, torch.float32)], operations="softmax", device="cpu", tuning_seconds=0.2)
    assert ct.stats().tuned > before
    assert ct.configure().cpu == "torch"


RANK = """
    import os, sys
    import torch, torch.distributed as dist
    import ce.torch as ct

    dist.init_process_group("gloo")
    ct.configure(database=sys.argv[1], cpu="host", tuning_seconds=2)
    if sys.argv[2] == "ahead":
        ct.tune([(2, 48, torch.float32)], device="cpu")
        ct.configure(policy="frozen")
    torch.manual_seed(0)
    logits, target = torch.randn(2, 48, requires_grad=True), torch.tensor([3, 40])
    loss = ct.cross_entropy(logits, target)
    loss.backward()
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, (loss.item(), logits.grad.tolist()))
    assert all(one == found[0] for one in found), found
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("when", ["ahead", "first call"])
def test_four_processes_agree(when, tmp_path):
    """One tunes, the others wait for it: they run the same kernels, and get the same bits."""
    script = tmp_path / "rank.py"
    script.write_text(textwrap.dedent(RANK))
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(_files.__file__).parents[1]),
        "CE_POLICY": "tune",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=4", "--rdzv-backend=c10d",
         "--rdzv-endpoint=localhost:0", script, tmp_path / "shared.db", when],
        capture_output=True, text=True, env=environment, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "cross_entropy f32" in listed(tmp_path / "shared.db")
