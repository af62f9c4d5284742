"""Every option and output of cross entropy, wherever one may be forgotten.

The operators' schemas, which follow from the table of the C interface, say which there are.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import ce.array
import ce.torch as ct
from ce import _c
from ce.torch import _linear, _reference, _vocab_parallel, functional

HEADER = (Path(__file__).parents[2] / "include" / "ce" / "ce.h").read_text()
OPERATORS = ("cross_entropy", "cross_entropy_backward", "cross_entropy_merge", "linear_cross_entropy")
LOSSES = {
    "functional.cross_entropy": ct.cross_entropy,
    "modules.CrossEntropyLoss": ct.CrossEntropyLoss,
    "linear.linear_cross_entropy": ct.linear_cross_entropy,
    "vocab_parallel.vocab_parallel_cross_entropy": ct.vocab_parallel_cross_entropy,
    "vocab_parallel_linear.vocab_parallel_linear_cross_entropy": ct.vocab_parallel_linear_cross_entropy,
}
ARRAYS = {
    "array.cross_entropy": ce.array.cross_entropy,
    "array.cross_entropy_backward": ce.array.cross_entropy_backward,
}


def schema(operator: str) -> torch._C.FunctionSchema:
    return getattr(torch.ops.ce, operator).default._schema


def arguments(operator: str, kind: str) -> list[str]:
    return [one.name for one in schema(operator).arguments if str(one.type) == kind]


def returns(operator: str) -> list[str]:
    return [one.name for one in schema(operator).returns]


AMOUNTS = arguments("cross_entropy", "float")
OUTPUTS = returns("cross_entropy")[1:]


def defaults() -> dict[str, float]:
    """Of the C interface."""
    (body,) = re.findall(r"typedef struct ce_cross_entropy_options \{(.*?)\n\}", HEADER, re.DOTALL)
    (initial,) = re.findall(r"CE_CROSS_ENTROPY_OPTIONS_INIT \\\n\s*\{ sizeof\(\w+\), (.*?) \}", HEADER)
    names = re.findall(r"(\w+);", re.sub(r"//.*", "", body))[1:]
    values = initial.replace("CE_REDUCTION_MEAN", "1").split(", ")
    assert len(names) == len(values)
    return {name: float(value) for name, value in zip(names, values)}


def test_there_are_options_and_outputs():
    assert {"label_smoothing", "z_loss", "softcap"} <= set(AMOUNTS)
    assert {"z_loss", "lse", "entropy"} <= set(OUTPUTS)


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_formula_has_the_options_of_the_operators(operator):
    names = [one.name for one in schema(operator).arguments]
    first, own = names.index("ignore_index"), _reference.Options._fields
    assert tuple(names[first : first + len(own)]) == own, "_reference.Options"
    assert arguments(operator, "float") == AMOUNTS, "_reference.Options"
    assert _reference.Options._field_defaults == defaults(), "_reference.Options"


def test_the_formula_has_the_outputs_of_the_operators():
    assert _reference.Outputs._fields == ("loss", *OUTPUTS), "_reference.Outputs"
    assert ct.CrossEntropyOutput._fields == _reference.Outputs._fields, "functional.CrossEntropyOutput"
    flags = [name.removeprefix("return_") for name in arguments("cross_entropy", "bool")]
    assert tuple(flags) == _reference.FLAGS
    parameters = [name for name in inspect.signature(ct.cross_entropy).parameters if name.startswith("return_")]
    assert parameters == [f"return_{name}" for name in OUTPUTS], "functional.cross_entropy"
    for parameter in parameters:
        assert parameter in functional.cross_entropy.__doc__, f"functional.cross_entropy says nothing of {parameter}"


def test_ranks_and_linear_layers_have_the_outputs_of_their_operators():
    assert list(_vocab_parallel.Wanted._fields) == arguments("cross_entropy_merge", "bool")[1:]
    assert list(_vocab_parallel.Wanted._fields) == arguments("cross_entropy_exchange", "bool")[1:]
    assert list(ct.VocabParallelOutput._fields) == returns("cross_entropy_merge")[:-1]
    assert list(_linear.Wanted._fields) == arguments("linear_cross_entropy", "bool")
    assert list(_linear.Outputs._fields) == returns("linear_cross_entropy")


@pytest.mark.parametrize("amount", AMOUNTS)
def test_each_function_has_each_option(amount):
    default = inspect.signature(ct.cross_entropy).parameters[amount].default
    assert (default or 0.0) == defaults()[amount], f"functional.cross_entropy: {amount}"
    for name, function in (LOSSES | ARRAYS).items():
        parameters = inspect.signature(function).parameters
        assert amount in parameters, f"{name} has no keyword {amount}"
        expected = defaults()[amount] if name in ARRAYS else default
        assert parameters[amount].default == expected, f"{name}: {amount}"
    for name, function in (("functional", ct.cross_entropy), ("array", ce.array.cross_entropy)):
        assert re.search(rf"\n +{amount}: ", function.__doc__), f"{name}.cross_entropy says nothing of {amount}"


def test_options_by_keyword_have_the_types_of_cross_entropy():
    assert list(functional.Amounts.__annotations__) == [name for name in AMOUNTS if name != "label_smoothing"]
    parameters = inspect.signature(ct.cross_entropy).parameters
    for name, annotation in functional.Amounts.__annotations__.items():
        assert annotation.__forward_arg__ == parameters[name].annotation, f"functional.Amounts: {name}"


@pytest.mark.parametrize("name", LOSSES)
def test_a_keyword_that_is_none_is_refused(name):
    x, target = torch.randn(2, 3), torch.tensor([0, 1])
    tensors = {"functional": (x, target), "modules": ()}.get(name.split(".")[0], (x, x, target))
    tensors = (x, target) if name.startswith("vocab_parallel.") else tensors
    with pytest.raises(TypeError, match=rf"{name.split('.')[1]}.*unexpected keyword argument 'temperature'"):
        LOSSES[name](*tensors, temperature=2.0)


class Asks:
    """Takes what a function of torch is called with."""

    @classmethod
    def __torch_function__(cls, function, types, given=(), named=None):
        return given, named


OVERRIDABLE = [
    ct.cross_entropy,
    ct.linear_cross_entropy,
    ct.linear_logprobs_and_entropy,
    ct.logprobs_and_entropy,
    ct.vocab_parallel_cross_entropy,
    ct.vocab_parallel_linear_cross_entropy,
]


@pytest.mark.parametrize("function", OVERRIDABLE)
def test_torch_function_is_given_every_keyword(function):
    parameters = inspect.signature(function).parameters.values()
    keywords = {one.name: object() for one in parameters if one.kind is one.KEYWORD_ONLY}
    _, named = function(*(Asks() for one in parameters if one.default is one.empty), **keywords)
    assert {name: named.get(name) for name in keywords} == keywords


@pytest.mark.parametrize("function", OVERRIDABLE)
def test_torch_function_and_modes_are_given_the_function_that_was_called(function):
    called = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, given=(), named=None):
            called.append(function)
            return "seen"

    needed = [name for name, one in inspect.signature(function).parameters.items() if one.default is one.empty]
    for place in range(len(needed)):  # any of the tensors, by place or by name

        class Own(Asks):
            @classmethod
            def __torch_function__(cls, function, types, given=(), named=None):
                called.append(function)
                return "seen"

        given = {name: Own() if one == place else torch.zeros(1) for one, name in enumerate(needed)}
        assert function(*given.values()) == function(**given) == "seen"
        with pytest.raises(TypeError, match="unexpected keyword argument 'foo'"):
            function(**given, foo=1)
    tensors = [torch.zeros(1) for _ in needed]
    with Mode():
        assert function(*tensors) == "seen"
    assert called and all(one is function for one in called)


SHAPE = (6, 24)
HALF = 0.5  # an amount that each option can be, and shows with


def own_loss(name: str, logits: Tensor, target: Tensor, **options) -> Tensor:
    """Of a function, whose linear layers leave the logits as they are."""
    identity = torch.eye(SHAPE[1])
    if name == "modules.CrossEntropyLoss":
        return ct.CrossEntropyLoss(**options)(logits, target)
    inputs = (logits, identity, target) if "linear" in name else (logits, target)
    return LOSSES[name](*inputs, **options)


@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_each_function_does_what_the_formula_says_of_each_option(amount, reduction, seed):
    before = ct.configure(cpu="host")
    try:
        logits, target = torch.randn(SHAPE), torch.randint(0, SHAPE[1], SHAPE[:1])
        leaf = logits.double().requires_grad_()
        given = {"reduction": reduction, amount: HALF}
        options = _reference.Options(reduction=_c.REDUCTIONS[reduction])._replace(**{amount: HALF})
        expected = _reference.cross_entropy(leaf, target, None, options).loss
        plain = _reference.cross_entropy(leaf, target, None, options._replace(**{amount: defaults()[amount]})).loss
        assert not torch.allclose(expected, plain), f"the formula of _reference.cross_entropy lacks {amount}"
        (gradient,) = torch.autograd.grad(expected.sum(), leaf)
        own_gradient = _reference.gradient(logits.double(), target, None, options)
        torch.testing.assert_close(own_gradient, gradient, msg=lambda text: f"_reference.gradient: {text}")
        for name in LOSSES:
            own = logits.clone().requires_grad_()
            loss = own_loss(name, own, target, **given)
            (of_own,) = torch.autograd.grad(loss.sum(), own)
            for made, wanted in ((loss, expected), (of_own, gradient)):
                torch.testing.assert_close(
                    made.detach(),
                    wanted.detach().float(),
                    rtol=1e-4,
                    atol=1e-5,
                    msg=lambda text, n=name: f"{n}: {text}",
                )
        with ce.array.Context("host") as context:
            arrays = {
                "loss": np.empty(SHAPE[:1] if reduction == "none" else (), np.float32),
                **{name: np.empty(SHAPE[:1], np.float32) for name in ("lse", "logprob")},
            }
            grad = np.empty(SHAPE, np.float32)
            shared = {**given, "context": context}
            ce.array.cross_entropy(logits.numpy(), target.numpy(), **arrays, **shared)
            np.testing.assert_allclose(arrays.pop("loss"), expected.detach().numpy(), rtol=1e-4, atol=1e-5)
            lse = arrays.pop("lse")
            ce.array.cross_entropy_backward(logits.numpy(), target.numpy(), lse, grad=grad, **arrays, **shared)
            np.testing.assert_allclose(grad, gradient.numpy(), rtol=1e-4, atol=1e-5)
    finally:
        ct.restore(before)


@pytest.mark.parametrize("amount", AMOUNTS)
def test_the_gradient_of_a_z_loss_by_itself_has_each_option(amount, device, seed):
    logits, target = torch.randn(SHAPE, device=device), torch.randint(0, SHAPE[1], SHAPE[:1], device=device)
    options = _reference.Options(reduction=_reference.NONE, z_loss=HALF)._replace(**{amount: HALF})
    given = {"z_loss": HALF, amount: HALF}
    leaf, own = logits.double().requires_grad_(), logits.clone().requires_grad_()
    (expected,) = torch.autograd.grad(_reference.cross_entropy(leaf, target, None, options).z_loss.sum(), leaf)
    made = ct.cross_entropy(own, target, reduction="none", return_z_loss=True, **given).z_loss
    (gradient,) = torch.autograd.grad(made.sum(), own)
    torch.testing.assert_close(
        gradient, expected.float(), rtol=1e-4, atol=1e-5, msg=lambda text: f"_reference.gradient_of_lse: {text}"
    )


def test_arrays_have_every_output(seed):
    logits, target = torch.randn(SHAPE), torch.randint(0, SHAPE[1], SHAPE[:1])
    options = _reference.Options(reduction=_reference.NONE, z_loss=HALF, softcap=HALF)
    expected = _reference.cross_entropy(logits.double(), target, None, options, wanted=("entropy", "lse_low"))
    names = {name: name.removesuffix("_out") for name in ce.array._OUTPUTS}
    assert list(names.values()) == OUTPUTS, "array._OUTPUTS"
    dtypes = {"argmax": np.int64, "hit": np.bool_}
    with ce.array.Context("host") as context:
        for name, own in names.items():
            assert re.search(rf"\n +[\w, ]*\b{name}\b[\w, ]*: ", ce.array.cross_entropy.__doc__), f"array: {name}"
            made = {one: np.empty(SHAPE[:1], dtypes.get(one, np.float32)) for one in ("loss", name)}
            given = {"reduction": "none", "z_loss": HALF, "softcap": HALF, "context": context}
            ce.array.cross_entropy(logits.numpy(), target.numpy(), **made, **given)
            wanted = getattr(expected, own)
            np.testing.assert_allclose(made[name], wanted, rtol=1e-4, atol=1e-5, err_msg=f"array: {name}")


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_each_output_is_what_the_formula_says(output, dtype, seed):
    """In kernels, and in operations of torch, where float64 goes."""
    before = ct.configure(cpu="host")
    try:
        logits, target = torch.randn(SHAPE, dtype=dtype), torch.randint(0, SHAPE[1], SHAPE[:1])
        given = {"z_loss": HALF, "softcap": HALF, f"return_{output}": True}
        options = _reference.Options(z_loss=HALF, softcap=HALF)
        expected = getattr(
            _reference.cross_entropy(logits.double(), target, None, options, wanted=("entropy", "lse_low")), output
        )
        for made in (
            ct.cross_entropy(logits, target, **given),
            ct.cross_entropy(logits.requires_grad_(), target, **given),
        ):
            assert [one for one in made._fields[1:] if getattr(made, one) is not None] == [output]
            own = getattr(made, output).detach()
            torch.testing.assert_close(own, expected.to(own.dtype), rtol=1e-4, atol=1e-5)
    finally:
        ct.restore(before)
