"""What the documents say in Python runs, and what the package offers says what it does."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import ce.array
import ce.torch as ct
from ce.torch.integrations import flash_attn, liger, quack, transformer_engine, transformers, trl
from conftest import HAS_GPU

DOCUMENT = Path(__file__).parents[2] / "docs" / "python.md"
# What a block needs is said before it: <!-- needs a GPU and cupy -->.
BLOCKS = re.findall(r"(?:<!-- needs a GPU and (\w+) -->\n)?```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
INTEGRATIONS = (flash_attn, liger, quack, transformer_engine, transformers, trl)


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


def public() -> list[tuple[str, object]]:
    found = [(f"ce.torch.{name}", getattr(ct, name)) for name in ct.__all__]
    for module in INTEGRATIONS:
        found += [(f"{module.__name__}.{name}", getattr(module, name)) for name in module.__all__]
    found += [(f"ce.array.{name}", getattr(ce.array, name)) for name in ce.array.__all__]
    return found


@pytest.mark.parametrize(("name", "thing"), public(), ids=[name for name, _ in public()])
def test_what_is_public_has_a_docstring_and_types(name, thing):
    assert inspect.getdoc(thing), name
    if inspect.isfunction(thing):
        signature = inspect.signature(thing)
        untyped = [p.name for p in signature.parameters.values() if p.annotation is inspect.Parameter.empty]
        assert not untyped, (name, untyped)
        assert signature.return_annotation is not inspect.Signature.empty, name
