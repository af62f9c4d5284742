"""What the documents say in Python runs, and what the package offers says what it does."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import types
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import ce.array
import ce.torch as ct
from ce.torch.integrations import flash_attn, liger, megatron, quack, transformer_engine, transformers, trl
from conftest import HAS_GPU

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "python.md"
# What a block needs is said before it: <!-- needs a GPU and cupy -->.
BLOCKS = re.findall(r"(?:<!-- needs a GPU and (\w+) -->\n)?```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
INTEGRATIONS = (flash_attn, liger, megatron, quack, transformer_engine, transformers, trl)


def test_the_document_has_blocks():
    assert len(BLOCKS) >= 4


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_blocks_run(number):
    needed, code = BLOCKS[number]
    if needed:
        if not HAS_GPU:
            pytest.skip("torch sees no GPU")
        pytest.importorskip(needed)
    before = ct.configure()
    try:
        exec(compile(code, f"{DOCUMENT.name}, block {number + 1}", "exec"), {})
    finally:
        ct.unpatch()
        ct.restore(before)


FRAGMENTS = [
    (name, code)
    for name in ("README.md", "docs/linear.md", "docs/ranks.md")
    for code in re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)
]


@pytest.mark.parametrize("number", range(len(FRAGMENTS)))
def test_fragments_run_with_what_they_take_for_granted(number, device, tmp_path, monkeypatch):
    name, code = FRAGMENTS[number]
    home = types.ModuleType("megatron.core.tensor_parallel.cross_entropy")
    home.vocab_parallel_cross_entropy = None
    monkeypatch.setitem(sys.modules, home.__name__, home)
    dist.init_process_group("gloo", f"file://{tmp_path / 'store'}", world_size=1, rank=0)
    try:
        given = {
            "ct": ct, "torch": torch, "hidden": 8, "classes": 10, "tp_group": dist.group.WORLD,
            "x": torch.randn(4, 8, device=device), "w": torch.randn(10, 8, device=device),
            "w_shard": torch.randn(10, 8, device=device), "logits": torch.randn(4, 10, device=device),
            "logits_shard": torch.randn(4, 10, device=device), "target": torch.arange(4, device=device),
            "index": torch.arange(4, device=device),
        }  # fmt: skip
        exec(compile(code, f"{name}, fragment {number + 1}", "exec"), given)
    finally:
        ct.unpatch()
        dist.destroy_process_group()


def test_a_build_finds_the_headers_of_the_torch_that_an_environment_sees(tmp_path, monkeypatch):
    header = tmp_path / "torch" / "include" / "torch" / "csrc" / "stable" / "library.h"
    header.parent.mkdir(parents=True)
    header.touch()
    monkeypatch.syspath_prepend(ROOT / "python")
    found = importlib.import_module("torch_include").find
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path / "none"))
    monkeypatch.setattr("site.getsitepackages", lambda _: [])
    assert found() is None
    monkeypatch.setattr("site.getsitepackages", lambda prefixes: [str(tmp_path)] * (prefixes == [sys.base_prefix]))
    assert found() == tmp_path / "torch" / "include"


MODULES = (ct, ce.array, *INTEGRATIONS)


def public() -> list[tuple[str, object]]:
    """What the modules offer, with the methods and properties of classes."""
    found: list[tuple[str, object]] = []
    for module in MODULES:
        for name in module.__all__:
            thing = getattr(module, name)
            found.append((f"{module.__name__}.{name}", thing))
            if inspect.isclass(thing):
                for member, value in vars(thing).items():
                    if inspect.isfunction(value) and (member == "__init__" or not member.startswith("_")):
                        found.append((f"{module.__name__}.{name}.{member}", value))
                    if isinstance(value, property) and not member.startswith("_"):
                        found.append((f"{module.__name__}.{name}.{member}", value.fget))
    return found


PUBLIC = public()


def is_of_class(thing: object) -> bool:
    return "." in getattr(thing, "__qualname__", "")


@pytest.mark.parametrize(("name", "thing"), PUBLIC, ids=[name for name, _ in PUBLIC])
def test_what_is_public_has_a_docstring_and_types(name, thing):
    assert thing.__doc__ or name.endswith(".__init__"), name
    if inspect.isfunction(thing):
        signature = inspect.signature(thing)
        parameters = list(signature.parameters.values())[is_of_class(thing) :]
        untyped = [p.name for p in parameters if p.annotation is inspect.Parameter.empty]
        assert not untyped, (name, untyped)
        assert signature.return_annotation is not inspect.Signature.empty, name


FUNCTIONS = [(name, thing) for name, thing in PUBLIC if inspect.isfunction(thing) and not is_of_class(thing)]


@pytest.mark.parametrize(("name", "thing"), FUNCTIONS, ids=[name for name, _ in FUNCTIONS])
def test_docstrings_name_each_argument_and_what_is_raised(name, thing):
    """Unless they refer to another function's."""
    text = inspect.getdoc(thing)
    parameters = [p for p in inspect.signature(thing).parameters if not p.startswith("_")]
    if not parameters or re.search(r":(func|meth|class):", text):
        return
    missing = [p for p in parameters if not re.search(rf"\b{p}\b", text)]
    assert not missing, (name, missing)
    assert re.search("[Rr]aise", text), name


def test_type_checkers_find_the_types():
    assert (Path(ce.array.__file__).parent / "py.typed").is_file()
