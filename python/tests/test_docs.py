"""What the documents say in Python runs, and what the package offers says what it does."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import ce.array
import ce.torch as ct
from ce.torch.integrations import flash_attn, liger, megatron, quack, transformer_engine, transformers, trl
from conftest import HAS_GPU

DOCUMENT = Path(__file__).parents[2] / "docs" / "python.md"
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
