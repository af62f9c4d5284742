"""The drop-ins beside the packages that they stand for, on the CPU: requirements-test-peers.txt names these.

What is not installed is skipped, or fails with CE_REQUIRE_PEERS=1. Their kernels of Triton run in its interpreter.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import ce.torch as ct
from ce import _files
from ce.torch.integrations import flash_attn, liger, megatron, quack, torchtitan, transformers, trl

IGNORED = -100
LAUNCH = ("-m", "torch.distributed.run", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--nproc-per-node=2")


def missing(what: str) -> None:
    if os.environ.get("CE_REQUIRE_PEERS") == "1":
        pytest.fail(what)
    pytest.skip(f"{what}: scripts/python-environment --peers installs it")


def peer(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing(f"{name}: {error}")
        raise


def flash_attn_folder() -> Path:
    """That of the package, which imports its extension: two files of it need none."""
    beside = Path(sys.prefix) / "flash-attn" / "flash_attn"
    if beside.is_dir():
        return beside
    found = importlib.util.find_spec("flash_attn")
    if found is None or not found.submodule_search_locations:
        missing("flash_attn is not installed")
    return Path(found.submodule_search_locations[0])


def run(*words: object, database: Path) -> None:
    environment = {**os.environ, "CE_DB": str(database), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    peers = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(_files.__file__).parents[1]), *peers]))
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr[-6000:]


def assert_signature(ours, theirs, also: tuple[str, ...] = ()) -> None:
    """Whatever theirs is called with means the same to ours: parameters, their order, kinds and defaults. Ours may have
    more, at the end, and defaults where theirs has none.

    Args:
        also: what ours has beyond theirs.
    """
    own, other = (list(inspect.signature(one).parameters.values()) for one in (ours, theirs))
    assert [p.name for p in own] == [*(p.name for p in other), *also]
    for ours_has, theirs_has in zip(own, other):
        assert ours_has.kind is theirs_has.kind, ours_has
        if theirs_has.default is not inspect.Parameter.empty:
            assert ours_has.default == theirs_has.default, ours_has
            assert type(ours_has.default) is type(theirs_has.default), ours_has
    for more in own[len(other) :]:
        assert more.default is not inspect.Parameter.empty, more


def test_signatures_of_liger():
    functions, modules = peer("liger_kernel.transformers.functional"), peer("liger_kernel.transformers")
    assert_signature(liger.liger_cross_entropy, functions.liger_cross_entropy, ("use_token_scaling",))
    assert_signature(liger.liger_fused_linear_cross_entropy, functions.liger_fused_linear_cross_entropy)
    for name in ("LigerCrossEntropyLoss", "LigerFusedLinearCrossEntropyLoss"):
        own, theirs = getattr(liger, name), getattr(modules, name)
        assert_signature(own, theirs)
        assert_signature(own.forward, theirs.forward)


def test_signatures_of_quack():
    peer("quack.cross_entropy"), peer("quack.softmax")
    # The package has functions by the names of its modules.
    assert_signature(quack.cross_entropy, sys.modules["quack.cross_entropy"].cross_entropy)
    assert_signature(quack.softmax, sys.modules["quack.softmax"].softmax)


def test_signature_of_trl():
    assert_signature(trl.selective_log_softmax, peer("trl.trainer.utils").selective_log_softmax)


def test_signature_of_transformers():
    assert_signature(transformers.CeForCausalLMLoss, peer("transformers.loss.loss_utils").ForCausalLMLoss)


def test_signatures_of_megatron():
    theirs = peer("megatron.core.tensor_parallel").vocab_parallel_cross_entropy
    assert_signature(megatron.vocab_parallel_cross_entropy, theirs, ("tp_group", "smoothing_of_shards"))
    theirs = peer("megatron.core.fusions.fused_cross_entropy").fused_vocab_parallel_cross_entropy
    assert_signature(megatron.fused_vocab_parallel_cross_entropy, theirs)


of_python_3_11 = pytest.mark.skipif(sys.version_info < (3, 11), reason="torchtitan asks for Python 3.11")


@of_python_3_11
def test_signatures_of_torchtitan():
    theirs = peer("torchtitan.components.loss")
    assert_signature(torchtitan.cross_entropy_loss, theirs.cross_entropy_loss)
    assert_signature(torchtitan.TritonCrossEntropyLoss.__call__, theirs.CrossEntropyLoss.__call__)


def test_signatures_of_flash_attn(monkeypatch):
    peer("triton")
    package = ModuleType("flash_attn")
    package.__path__ = [str(flash_attn_folder())]
    monkeypatch.setitem(sys.modules, "flash_attn", package)
    theirs = importlib.import_module("flash_attn.losses.cross_entropy")
    assert_signature(flash_attn.cross_entropy_loss, theirs.cross_entropy_loss)
    assert_signature(flash_attn.CrossEntropyLoss, theirs.CrossEntropyLoss)
    assert_signature(flash_attn.CrossEntropyLoss.forward, theirs.CrossEntropyLoss.forward)
    for name in [name for name in sys.modules if name.startswith("flash_attn.")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("name", ["liger", "flash_attn"])
def test_kernels_of_triton_in_its_interpreter(name, seed, tmp_path):
    peer("triton")
    if np.lib.NumpyVersion(np.__version__) >= "2.4.0":
        missing("Triton's interpreter needs numpy before 2.4")
    folder = [flash_attn_folder()] if name == "flash_attn" else []
    if name == "liger":
        peer("liger_kernel")
    run(Path(__file__).with_name("peers_interpreted.py"), name, seed, *folder, database=tmp_path / "ce.db")


def test_megatron_on_two_ranks(seed, tmp_path):
    peer("megatron.core")
    run(*LAUNCH, Path(__file__).with_name("peers_megatron_rank.py"), seed, database=tmp_path / "ce.db")


def assert_same(ours, theirs, leaf: torch.Tensor, rtol: float = 1e-4) -> None:
    factor = torch.rand_like(theirs)
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=1e-5)
    grads = [torch.autograd.grad(made, leaf, factor)[0] for made in (ours, theirs)]
    torch.testing.assert_close(*grads, rtol=rtol, atol=1e-6)


@pytest.fixture
def batch(seed):
    """Logits [2, 7, 50] and class indices [2, 7], of which one is left out."""
    before = ct.configure(cpu="host")
    target = torch.randint(0, 50, (2, 7))
    target[1, 2] = IGNORED
    yield torch.randn(2, 7, 50, requires_grad=True), target
    ct.restore(before)


def test_trl(batch):
    theirs = peer("trl.trainer.utils").selective_log_softmax
    logits, index = batch[0], batch[1].clamp(min=0)
    mask = torch.rand(2, 7) < 0.5
    several = torch.randint(0, 50, (2, 7, 3))
    for given, options in (
        (index, {}),
        (index, {"temperature": 0.7}),
        (index, {"row_mask": mask}),
        (several, {}),
        (several, {"temperature": 0.7}),
    ):
        made = [call(logits * 2, given, **options) for call in (trl.selective_log_softmax, theirs)]
        assert_same(*made, logits)


@pytest.mark.parametrize("count", [None, 11, "tensor"])
def test_transformers(count, batch):
    theirs = peer("transformers.loss.loss_utils").ForCausalLMLoss
    logits, labels = batch
    count = torch.tensor(11) if count == "tensor" else count
    made = [call(logits * 2, labels, 50, count) for call in (transformers.CeForCausalLMLoss, theirs)]
    assert_same(*made, logits)
    shifted = F.pad(labels, (0, 1), value=IGNORED)[:, 1:].contiguous()
    made = [
        call(logits * 2, None, vocab_size=50, num_items_in_batch=count, shift_labels=shifted)
        for call in (transformers.CeForCausalLMLoss, theirs)
    ]
    assert_same(*made, logits)


@of_python_3_11
def test_torchtitan(batch):
    theirs = peer("torchtitan.components.loss")
    logits, labels = batch
    made = [one.cross_entropy_loss(logits * 2, labels) for one in (torchtitan, theirs)]
    assert_same(*made, logits)
    config = theirs.CrossEntropyLoss.Config(global_vocab_size=50)
    tokens = torch.tensor(13)
    losses = [kind(config) for kind in (torchtitan.TritonCrossEntropyLoss, theirs.CrossEntropyLoss)]
    made = [loss(logits * 2, labels, tokens) for loss in losses]
    assert made[0][1] == made[1][1] == {}
    assert_same(made[0][0], made[1][0], logits)
