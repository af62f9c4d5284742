"""Arguments that are nearly right: those that work, and what is said of those that do not."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import ce.torch as ct

ROWS, CLASSES, HIDDEN = 4, 8, 16


@pytest.fixture(params=["host", "torch", "float64"])
def dtype_and_place(request, device):
    """Where calls run: in kernels, in torch, and in torch whatever the device."""
    if device.type == "cpu":
        ct.configure(cpu="torch" if request.param == "torch" else "host")
    elif request.param == "torch":
        pytest.skip("a GPU has kernels")
    return torch.float64 if request.param == "float64" else torch.float32


# ---- upstream ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"z_loss": 1e-2, "label_smoothing": 0.1, "softcap": 5.0, "return_lse": True},
        {"z_loss": 1e-2, "given_lse": True, "return_z_loss": True},
        {"token_scaling": 1.0, "row_weight": True},
        {"z_loss": 1e-2, "weight": True, "return_z_loss": True, "return_argmax": True},
        {"probabilities": True, "z_loss": 1e-2, "return_lse": True},
    ],
    ids=str,
)
def test_an_upstream_of_each_row_is_that_everywhere(options, compiled, reduction, dtype_and_place, device, seed):
    dtype, options = dtype_and_place, dict(options)
    logits = torch.randn(ROWS, CLASSES, device=device, dtype=dtype, requires_grad=True)
    target = torch.randint(0, CLASSES, (ROWS,), device=device)
    target[1] = -100
    if options.pop("probabilities", False):
        target = torch.rand(ROWS, CLASSES, device=device, dtype=dtype).softmax(1)
    if options.get("weight"):
        options["weight"] = torch.rand(CLASSES, device=device, dtype=dtype)
    if options.get("row_weight"):
        options["row_weight"] = torch.rand(ROWS, device=device, dtype=dtype)
    if options.get("given_lse"):
        options["given_lse"] = torch.logsumexp(logits.detach(), 1)
    upstream = torch.rand(ROWS, device=device, dtype=dtype)

    def call(x, **more):
        return ct.cross_entropy(x, target, reduction=reduction, **options, **more)

    def loss_of(made):
        return made if isinstance(made, torch.Tensor) else made.loss

    if compiled:
        torch.compiler.reset()
    function = torch.compile(call, backend="aot_eager", fullgraph=True) if compiled else call
    made = loss_of(function(logits, upstream=upstream))
    torch.testing.assert_close(made, loss_of(call(logits)))
    (grad,) = torch.autograd.grad(made.sum(), logits)
    (plain,) = torch.autograd.grad(loss_of(call(logits)).sum(), logits)
    torch.testing.assert_close(grad, plain * upstream[:, None], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_an_upstream_of_each_row_leaves_the_gradients_of_what_is_beside_the_loss(compiled, dtype_and_place, device):
    logits = torch.randn(ROWS, CLASSES, device=device, dtype=dtype_and_place, requires_grad=True)
    target, upstream = torch.tensor([0, 1, -100, 3], device=device), torch.rand(ROWS, device=device).to(logits.dtype)

    def call(x, upstream=None):
        made = ct.cross_entropy(x, target, upstream=upstream, z_loss=0.1, return_lse=True, return_z_loss=True)
        return made.loss, 3 * made.z_loss + made.lse.square().sum()

    if compiled:
        torch.compiler.reset()
    function = torch.compile(call, backend="aot_eager", fullgraph=True) if compiled else call
    (grad,) = torch.autograd.grad(sum(function(logits, upstream)), logits)
    (of_loss,) = torch.autograd.grad(call(logits)[0], logits)
    (beside,) = torch.autograd.grad(call(logits)[1], logits)
    torch.testing.assert_close(grad, of_loss * upstream[:, None] + beside, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("compiled", [False, True])
def test_an_upstream_of_each_row_of_a_linear_layer(compiled, reduction, dtype_and_place, device, seed):
    dtype = dtype_and_place
    leaves = [
        torch.randn(*sizes, device=device, dtype=dtype, requires_grad=True)
        for sizes in ((2, 2, HIDDEN), (CLASSES, HIDDEN))
    ]
    target = torch.randint(0, CLASSES, (2, 2), device=device)
    upstream = torch.rand(2, 2, device=device, dtype=dtype)

    def call(input, weight):
        return ct.linear_cross_entropy(input, weight, target, reduction=reduction, upstream=upstream)

    if compiled:
        torch.compiler.reset()
    made = (torch.compile(call, backend="aot_eager") if compiled else call)(*leaves)
    losses = F.cross_entropy(F.linear(*leaves).flatten(0, 1), target.flatten(), reduction="none")
    expected = losses.mean() if reduction == "mean" else losses
    torch.testing.assert_close(made.flatten(), expected.flatten(), rtol=1e-5, atol=1e-5)
    scaled = (losses * upstream.flatten()).sum() / (4 if reduction == "mean" else 1)
    for ours, theirs in zip(torch.autograd.grad(made.sum(), leaves), torch.autograd.grad(scaled, leaves)):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["cross_entropy", "linear", "ranks"])
def test_an_upstream_that_is_a_number_or_of_another_dtype(form, device, seed):
    input = torch.randn(ROWS, HIDDEN, device=device, requires_grad=True)
    weight = torch.randn(CLASSES, HIDDEN, device=device)
    target = torch.randint(0, CLASSES, (ROWS,), device=device)

    def gradient(**options):
        if form == "linear":
            loss = ct.linear_cross_entropy(input.bfloat16(), weight.bfloat16(), target, **options)
        else:
            function = ct.cross_entropy if form == "cross_entropy" else ct.vocab_parallel_cross_entropy
            loss = function(F.linear(input, weight).bfloat16(), target, **options)
        return torch.autograd.grad(loss, input)[0]

    expected = gradient(upstream=torch.tensor(0.5, device=device, dtype=torch.bfloat16))
    torch.testing.assert_close(expected, gradient() / 2, rtol=2e-2, atol=1e-4)
    for upstream in (0.5, torch.tensor(0.5, device=device), torch.tensor(0.5, device=device, dtype=torch.float16)):
        torch.testing.assert_close(gradient(upstream=upstream), expected)
    assert not gradient(upstream=0).any()


def test_an_upstream_in_a_column(device, seed):
    logits = torch.randn(ROWS, CLASSES, device=device, requires_grad=True)
    target, upstream = torch.arange(ROWS, device=device), torch.rand(ROWS, 1, device=device)
    loss = ct.cross_entropy(logits, target, reduction="none", upstream=upstream).sum()
    (plain,) = torch.autograd.grad(F.cross_entropy(logits, target, reduction="sum"), logits)
    torch.testing.assert_close(torch.autograd.grad(loss, logits)[0], plain * upstream, rtol=1e-5, atol=1e-6)


# ---- dtypes, divisors, outputs -----------------------------------------------------------------------------


@pytest.mark.parametrize("weight_dtype", [torch.bfloat16, torch.float32])
def test_a_class_weight_beside_probabilities_of_another_dtype(weight_dtype, device, seed):
    logits = torch.randn(ROWS, CLASSES, device=device).bfloat16()
    target, weight = torch.rand(ROWS, CLASSES, device=device).softmax(1), torch.rand(CLASSES, device=device)
    made = ct.cross_entropy(logits, target, weight.to(weight_dtype))
    expected = F.cross_entropy(logits.double(), target.double(), weight.to(weight_dtype).double())
    torch.testing.assert_close(made.double(), expected, rtol=1e-2, atol=1e-2)


def test_a_divisor_of_0_makes_a_mean_infinite_and_one_of_nothing_no_number(dtype_and_place, device, seed):
    logits = torch.randn(ROWS, CLASSES, device=device, dtype=dtype_and_place, requires_grad=True)
    target = torch.arange(ROWS, device=device)
    for divisor in (0, torch.tensor(0.0, device=device)):
        loss = ct.cross_entropy(logits, target, divisor=divisor)
        assert loss == torch.inf
        assert not torch.autograd.grad(loss, logits)[0].isfinite().any()
        assert ct.cross_entropy(logits.detach(), target, divisor=divisor) == torch.inf
        assert ct.cross_entropy(logits, torch.full_like(target, -100), divisor=divisor).isnan()


@pytest.mark.parametrize("form", ["cross_entropy", "linear"])
def test_probabilities_have_no_hit(form, dtype_and_place, device):
    input = torch.zeros(ROWS, CLASSES, device=device, dtype=dtype_and_place)
    target = torch.full((ROWS, CLASSES), 1 / CLASSES, device=device, dtype=dtype_and_place)

    def call(**options):
        if form == "linear":
            return ct.linear_cross_entropy(input, torch.ones_like(input[:1]).expand(CLASSES, -1), target, **options)
        return ct.cross_entropy(input, target, **options)

    with pytest.raises(ValueError, match="return_hit is True; expected False where target holds probabilities"):
        call(return_hit=True)
    made = call(return_argmax=True)
    assert made.hit is None and made.argmax.shape == (ROWS,)


# ---- targets out of range ----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["cross_entropy", "given_lse", "linear"])
def test_check_tells_an_earlier_call_from_its_own(form, device):
    logits, bad = torch.zeros(3, CLASSES, device=device), torch.tensor([1, -7, 3], device=device)

    def call(target, check):
        if form == "linear":
            return ct.linear_cross_entropy(logits, torch.zeros(CLASSES, CLASSES, device=device), target, check=check)
        options = {"given_lse": torch.logsumexp(logits, 1)} if form == "given_lse" else {}
        return ct.cross_entropy(logits, target, check=check, **options)

    good = bad.abs()
    call(bad, False)
    with pytest.raises(IndexError, match=r"row 1 with target -7; this error is from an earlier call without check"):
        call(good, True)
    assert not call(good, True).isnan()
    with pytest.raises(IndexError, match=r"row 1 with target -7$"):
        call(bad, True)
    assert not call(good, True).isnan()


def test_check_needs_no_gpu(device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    before = ct.configure(cpu="host")
    try:
        ct.cross_entropy(torch.zeros(2, 3), torch.tensor([0, 5]))
        with pytest.raises(IndexError, match="row 1 with target 5"):
            ct.check()
        for nothing in (None, "cpu", torch.device("cpu"), "cpu:0"):
            ct.check(nothing)
        for gpu in ("cuda", 0, torch.device("cuda", 1)):
            with pytest.raises(RuntimeError, match=r"ce\.torch\.check: device is .*; torch sees no GPU"):
                ct.check(gpu)
    finally:
        ct.restore(before)


def test_check_refuses_other_devices():
    with pytest.raises(ValueError, match="device is 'meta'; expected a GPU or the CPU"):
        ct.check("meta")
    with pytest.raises(RuntimeError, match=r"ce\.torch\.check: device is 'gpu'; expected a GPU or the CPU"):
        ct.check("gpu")
    with pytest.raises(TypeError, match=r"ce\.torch\.check: device is 1.5; expected a GPU or the CPU"):
        ct.check(1.5)


# ---- refusals ----------------------------------------------------------------------------------------------


def float64(*sizes):
    return torch.ones(sizes, dtype=torch.float64)


TWO = torch.tensor([0.1, 0.2])
CROSS_ENTROPY = {
    "text as z_loss": (TypeError, "z_loss is 'a'; expected a number", {"z_loss": "a"}),
    "None as z_loss": (TypeError, "z_loss is of type NoneType; expected a number", {"z_loss": None}),
    "text as softcap": (TypeError, "softcap is 'x'; expected a number or None", {"softcap": "x"}),
    "text as label_smoothing": (TypeError, "label_smoothing is 'a'; expected a number", {"label_smoothing": "a"}),
    "list as token_scaling": (TypeError, "token_scaling is of type list; expected a number", {"token_scaling": [1]}),
    "None as logit_scale": (TypeError, "logit_scale is of type NoneType; expected a number", {"logit_scale": None}),
    "half an index": (TypeError, "ignore_index is 1.5; expected an integer", {"ignore_index": 1.5}),
    "text as ignore_index": (TypeError, "ignore_index is 'a'; expected an integer", {"ignore_index": "a"}),
    "True as ignore_index": (TypeError, "ignore_index is True; expected an integer", {"ignore_index": True}),
    "a number on the device": (TypeError, "ignore_index is a tensor of", {"ignore_index": torch.tensor(0.5)}),
    "a dtype as ignore_index": (TypeError, "ignore_index is of type dtype", {"ignore_index": torch.float32}),
    "a z_loss to learn": (
        RuntimeError,
        "the derivative for 'z_loss' is not",
        {"z_loss": TWO[0].clone().requires_grad_()},
    ),
    "a smoothing to learn": (
        RuntimeError,
        "the derivative for 'label_smoothing' is not",
        {"label_smoothing": TWO[0].clone().requires_grad_()},
    ),
    "huge divisor": (ValueError, "divisor is 1e\\+300; expected a number of torch.float32", {"divisor": 1e300}),
    "empty weight": (ValueError, r"weight has sizes \[0\]; expected \[8\]", {"weight": torch.ones(0)}),
    "sparse weight": (
        TypeError,
        "weight is a torch.sparse_coo tensor; expected",
        {"weight": torch.ones(8).to_sparse()},
    ),
    "several checks": (TypeError, "check is of type ndarray; expected True or False", {"check": np.ones(2)}),
    "text as loss_dtype": (TypeError, "loss_dtype is 'f4'; expected a torch.dtype or None", {"loss_dtype": "f4"}),
    "too large an index": (ValueError, "ignore_index is 9223372036854775808; expected", {"ignore_index": 2**63}),
    "text as divisor": (TypeError, "divisor is 'a'; expected a number, a tensor or None", {"divisor": "a"}),
    "text as upstream": (TypeError, "upstream is 'a'; expected a number, a tensor or None", {"upstream": "a"}),
    "list as input": (TypeError, "input is of type list; expected a tensor", {"input": [1.0, 2.0]}),
    "None as input": (TypeError, "input is of type NoneType; expected a tensor", {"input": None}),
    "list as target": (TypeError, "target is of type list; expected a tensor", {"target": [1, 2, 3, 4]}),
    "None as target": (TypeError, "target is of type NoneType; expected a tensor", {"target": None}),
    "list as weight": (TypeError, "weight is of type list; expected a tensor or None", {"weight": [1.0] * CLASSES}),
    "number as row_weight": (TypeError, "row_weight is 2.0; expected a tensor or None", {"row_weight": 2.0}),
    "number as given_lse": (TypeError, "given_lse is 2.0; expected a tensor or None", {"given_lse": 2.0}),
    "wide weight": (TypeError, r"weight\.dtype is torch\.float64; expected", {"weight": float64(CLASSES)}),
    "wide row_weight": (TypeError, r"row_weight\.dtype is torch\.float64; expected", {"row_weight": float64(ROWS)}),
    "wide logit_scale": (TypeError, r"logit_scale\.dtype is torch\.float64; exp", {"logit_scale": float64(ROWS)}),
    "wide given_lse": (TypeError, r"given_lse\.dtype is torch\.float64; expected", {"given_lse": float64(ROWS)}),
    "wide upstream": (TypeError, r"upstream\.dtype is torch\.float64; expected", {"upstream": float64(ROWS)}),
    "whole upstream": (TypeError, r"upstream\.dtype is torch\.int64; expected", {"upstream": torch.tensor(2)}),
    "rows of upstream": (ValueError, r"upstream (has sizes \[3\]|is 3 x 1)", {"upstream": torch.ones(3)}),
    "a row of weights": (ValueError, r"weight has sizes \[1, 8\]; expected \[8\]", {"weight": torch.ones(1, CLASSES)}),
    "complex divisor": (TypeError, r"divisor\.dtype is torch\.complex64; expected", {"divisor": torch.tensor(1j)}),
    "bool divisor": (TypeError, r"divisor\.dtype is torch\.bool; expected", {"divisor": torch.tensor(True)}),
    "a column of weights": (
        ValueError,
        r"weight has sizes \[8, 1\]; expected \[8\]",
        {"weight": torch.ones(CLASSES, 1)},
    ),
}


CROSS_ENTROPY |= {
    f"several of {name}": (
        TypeError,
        rf"{name} is a tensor of torch\.\w+ with sizes \[2\]; expected {kind}",
        {name: given},
    )
    for name, kind, given in (
        ("label_smoothing", "a number", TWO),
        ("z_loss", "a number", TWO),
        ("softcap", "a number or None", TWO),
        ("token_scaling", "a number", TWO),
        ("ignore_index", "an integer", torch.tensor([1, 2])),
        ("check", "True or False", torch.tensor([True, False])),
        ("inplace_backward", "True or False", torch.tensor([True, False])),
        ("return_argmax", "True or False", torch.tensor([True, False])),
    )
}


def on(device, given):
    return {name: one.to(device) if isinstance(one, torch.Tensor) else one for name, one in given.items()}


@pytest.mark.parametrize("case", CROSS_ENTROPY)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_cross_entropy_names_what_is_wrong(requires_grad, case, device):
    kind, message, given = CROSS_ENTROPY[case]
    logits = torch.zeros(ROWS, CLASSES, device=device, requires_grad=requires_grad)
    arguments = {"input": logits, "target": torch.arange(ROWS, device=device), **on(device, given)}
    if (("upstream" in given and kind is ValueError) or "inplace_backward" in given) and not requires_grad:
        return  # nothing reads it
    for more in ({}, {"return_lse": True}) if "given_lse" not in given else ({},):
        with pytest.raises(kind, match=r"ce(\.torch\.cross_entropy)?: .*" + message):
            ct.cross_entropy(**arguments, **more)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_names_what_is_wrong(name, device):
    function = getattr(ct, name)
    with pytest.raises(TypeError, match=f"^ce.torch.{name}: input is of type list; expected a tensor"):
        function([1.0], 0)
    for requires_grad in (False, True):
        x = torch.zeros(2, 3, device=device, requires_grad=requires_grad)
        for dim in ("a", 1.0, True):
            with pytest.raises(TypeError, match=f"^ce.torch.{name}: dim is {dim!r}; expected an integer"):
                function(x, dim)
        with pytest.raises(TypeError, match=f"^ce.torch.{name}: dtype is 'float32'; expected a torch.dtype or None"):
            function(x, 0, dtype="float32")


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_a_dimension_is_what_torch_takes_for_one(name, device):
    own, torchs = getattr(ct, name), getattr(F, name)
    x = torch.randn(3, 4, device=device)
    for dim in (np.int64(1), torch.tensor(1, device=device)):
        torch.testing.assert_close(own(x, dim), torchs(x, dim))
    for dim in (
        torch.tensor(0.5, device=device),
        np.float32(0.5),
        torch.float32,
    ):  # operators would make 0 of the first
        with pytest.raises(TypeError, match=f"^ce.torch.{name}: dim is .*; expected an integer"):
            own(x, dim)


class Subclass(torch.Tensor):
    """As most are: without a rule of its own."""


@pytest.mark.parametrize("form", ["cross_entropy", "linear", "ranks", "ranks_linear"])
def test_outputs_of_subclasses_have_their_fields(form, device, seed):
    x, target = torch.randn(ROWS, CLASSES, device=device), torch.arange(ROWS, device=device)
    weight = torch.randn(CLASSES, CLASSES, device=device)

    def call(input):
        if form == "cross_entropy":
            return ct.cross_entropy(input, target, return_lse=True, return_argmax=True)
        if form == "linear":
            return ct.linear_cross_entropy(input, weight, target, return_lse=True, return_argmax=True)
        if form == "ranks":
            return ct.vocab_parallel_cross_entropy(input, target, return_lse=True, return_argmax=True)
        return ct.vocab_parallel_linear_cross_entropy(input, weight, target, return_lse=True, return_argmax=True)

    made, want = call(x.as_subclass(Subclass)), call(x)
    assert type(made) is type(want) and isinstance(made.loss, Subclass) and made.z_loss is None
    for ours, plain in ((made.loss, want.loss), (made.lse, want.lse), (made.argmax, want.argmax)):
        torch.testing.assert_close(ours.as_subclass(torch.Tensor), plain)


def test_sparse_probabilities_are_for_torch(device, seed):
    logits = torch.randn(ROWS, CLASSES, device=device)
    target = torch.eye(ROWS, CLASSES, device=device)
    torch.testing.assert_close(ct.cross_entropy(logits, target.to_sparse()), F.cross_entropy(logits, target))


LINEAR = {
    "text as return_lse": (TypeError, "return_lse is 'a'; expected True or False", {"return_lse": "a"}),
    "True as chunk_tokens": (TypeError, "chunk_tokens is True; expected an integer", {"chunk_tokens": True}),
    "an array of tokens": (TypeError, "valid_tokens is of type ndarray; expected", {"valid_tokens": np.ones(2)}),
    "list as accumulate": (TypeError, "accumulate is of type list; expected a torch.dtype", {"accumulate": [1]}),
    "sparse target": (
        TypeError,
        "target is a torch.sparse_coo tensor",
        {"target": torch.eye(ROWS, CLASSES).to_sparse()},
    ),
    "huge upstream": (ValueError, "upstream is 1e\\+300; expected a number of torch.float32", {"upstream": 1e300}),
    "half a chunk": (TypeError, "chunk_tokens is 1.5; expected an integer or None", {"chunk_tokens": 1.5}),
    "half a byte": (TypeError, "memory_budget is 2.5; expected an integer or None", {"memory_budget": 2.5}),
    "half a token": (TypeError, "valid_tokens is 1.5; expected an integer or None", {"valid_tokens": 1.5}),
    "no chunk": (ValueError, "chunk_tokens is 0; expected 1 or more", {"chunk_tokens": 0}),
    "no memory": (ValueError, "memory_budget is 0; expected 1 or more", {"memory_budget": 0}),
    "tokens on the device": (TypeError, "valid_tokens is a tensor; expected", {"valid_tokens": torch.tensor(4)}),
    "text as exponentials": (TypeError, "exponentials is 'a'; expected True, False", {"exponentials": "a"}),
    "text as z_loss": (TypeError, "z_loss is 'a'; expected a number", {"z_loss": "a"}),
    "list as input": (TypeError, "input is of type list; expected a tensor", {"input": [[1.0] * HIDDEN]}),
    "None as target": (TypeError, "target is of type NoneType; expected a tensor", {"target": None}),
    "number as row_weight": (TypeError, "row_weight is 2.0; expected a tensor or None", {"row_weight": 2.0}),
    "wide linear_bias": (TypeError, r"linear_bias\.dtype is torch\.float64", {"linear_bias": float64(CLASSES)}),
    "divisor of a sum": (ValueError, "divisor is 3; expected None", {"divisor": 3, "reduction": "sum"}),
    "complex target": (TypeError, r"target\.dtype is torch\.complex64", {"target": torch.zeros(4).to(torch.complex64)}),
    "bool target": (TypeError, r"target\.dtype is torch\.bool; expected", {"target": torch.zeros(4).bool()}),
    "short target": (TypeError, r"target\.dtype is torch\.int16; expected", {"target": torch.zeros(4).short()}),
    "whole weight": (TypeError, r"weight\.dtype is torch\.int64; expected", {"weight": torch.ones(CLASSES).long()}),
    "several smoothings": (TypeError, r"label_smoothing is a tensor of torch\.float32 with", {"label_smoothing": TWO}),
    "several tokens": (TypeError, "valid_tokens is a tensor of", {"valid_tokens": torch.tensor([1, 2])}),
    "several flags": (TypeError, "exponentials is a tensor of", {"exponentials": torch.tensor([True, False])}),
    "several of return_lse": (TypeError, "return_lse is a tensor of", {"return_lse": torch.tensor([True, False])}),
    "a number as options": (TypeError, "options is of type int; expected torch's Linear", {"options": 3}),
}


@pytest.mark.parametrize("case", LINEAR)
def test_the_linear_layer_names_what_is_wrong(case, device):
    kind, message, given = LINEAR[case]
    for requires_grad in (False, True):
        input = torch.zeros(ROWS, HIDDEN, device=device, requires_grad=requires_grad)
        weight = torch.zeros(CLASSES, HIDDEN, device=device)
        arguments = {"input": input, "linear_weight": weight, "target": torch.arange(ROWS, device=device)}
        with pytest.raises(kind, match=r"^ce\.torch\.linear_cross_entropy: " + message):
            ct.linear_cross_entropy(**{**arguments, **on(device, given)})


WRONG_AMOUNTS = [
    {"z_loss": -1.0},
    {"z_loss": None},
    {"z_loss": 1e39},
    {"softcap": -1.0},
    {"softcap": 1e-30},
    {"logit_scale": -1.0},
    {"logit_scale": 0},
    {"token_scaling": -1},
    {"token_scaling": 17},
    {"label_smoothing": -0.1},
    {"label_smoothing": float("nan")},
    {"label_smoothing": 2},
    {"return_lse": "x"},
    {"return_hit": "x"},
]
WRONG_OF_LAYERS = [
    {"accumulate": "x"},
    {"accumulate": torch.int64},
    {"accumulate": torch.bfloat16},
    {"memory_budget": 2**70},
    {"chunk_tokens": 2**63},
    {"logits_dtype": torch.float64},
    {"logits_dtype": torch.bfloat16},
    {"input": torch.zeros(ROWS, HIDDEN).to(torch.float8_e4m3fn)},
    {"linear_weight": torch.zeros(CLASSES, HIDDEN).to(torch.float8_e4m3fn)},
    {"input": torch.zeros(ROWS, HIDDEN).long()},
]
ALIKE = [
    *((name, given) for name in ("cross_entropy", "linear_cross_entropy") for given in WRONG_AMOUNTS),
    *(
        (name, given)
        for name in ("linear_cross_entropy", "linear_logprobs_and_entropy", "vocab_parallel_linear_cross_entropy")
        for given in WRONG_OF_LAYERS
    ),
    ("linear_cross_entropy", {"target": torch.arange(ROWS).to_sparse()}),
    ("linear_cross_entropy", {"target": torch.arange(ROWS).to_sparse(), "z_loss": 0.1}),
    ("linear_cross_entropy", {"target": torch.arange(ROWS).short()}),
]


@pytest.mark.parametrize("case", range(len(ALIKE)))
def test_torch_serves_no_call_that_kernels_refuse(case, device):
    name, given = ALIKE[case]

    def refused(device):
        arguments = {"input": torch.zeros(ROWS, HIDDEN), "linear_weight": torch.zeros(CLASSES, HIDDEN)}
        if name == "cross_entropy":
            del arguments["linear_weight"]
        arguments["index" if "logprobs" in name else "target"] = torch.zeros(ROWS, dtype=torch.int64)
        with pytest.raises((TypeError, ValueError)) as caught:
            getattr(ct, name)(**on(device, {**arguments, **given}))
        return caught

    by_kernels = refused(device)
    argument = next(iter(given))
    assert re.match(rf"ce(\.torch\.|: )\w+: .*{argument}(\.dtype)? is .*; expected ", str(by_kernels.value))
    if name.startswith("vocab_parallel"):  # torch serves none of its calls
        return
    ct.configure(cpu="torch")
    by_torch = refused("cpu")
    assert by_torch.type is by_kernels.type
    assert str(by_torch.value) == str(by_kernels.value)


def test_torch_serves_probabilities_with_amounts_that_kernels_take(device):
    logits, target = torch.randn(ROWS, CLASSES, device=device), torch.full((ROWS, CLASSES), 1 / CLASSES, device=device)
    amounts = {"z_loss": 0.1, "softcap": 5.0, "logit_scale": 2, "label_smoothing": torch.tensor(0.1)}
    want = ct.cross_entropy(logits, target, **amounts)
    ct.configure(cpu="torch")
    torch.testing.assert_close(ct.cross_entropy(logits.cpu(), target.cpu(), **amounts), want.cpu())
    with pytest.raises(ValueError, match="token_scaling is 1; expected 0, because target holds probabilities"):
        ct.cross_entropy(logits.cpu(), target.cpu(), token_scaling=1.0)


RANKS = {
    "text as z_loss": (TypeError, "z_loss is 'a'; expected a number", {"z_loss": "a"}),
    "half an index": (TypeError, "ignore_index is 1.5; expected an integer", {"ignore_index": 1.5}),
    "list as target": (TypeError, "target is of type list; expected a tensor", {"target": [0] * ROWS}),
    "wide weight": (TypeError, r"weight\.dtype is torch\.float64; expected", {"weight": float64(CLASSES)}),
    "a row of weights": (ValueError, r"weight has sizes \[1, 8\]; expected \[8\]", {"weight": torch.ones(1, CLASSES)}),
    "divisor of a sum": (ValueError, "divisor is 3; expected None", {"divisor": 3, "reduction": "sum"}),
    "several z-losses": (
        TypeError,
        r"z_loss is a tensor of torch\.float32 with sizes \[2\]; expected",
        {"z_loss": TWO},
    ),
    "text as first_class": (TypeError, "first_class is '0'; expected an integer or None", {"first_class": "0"}),
    "a real first_class": (TypeError, r"first_class is 0\.0; expected an integer or None", {"first_class": 0.0}),
    "real classes": (TypeError, r"classes is 8\.0; expected an integer or None", {"classes": float(CLASSES)}),
    "list as classes": (TypeError, "classes is of type list; expected an integer or None", {"classes": [CLASSES]}),
    "classes on the device": (TypeError, r"classes is a tensor of torch\.int64", {"classes": torch.tensor(CLASSES)}),
    "too many classes": (ValueError, "classes is 9223372036854775808; expected", {"classes": 2**63}),
    "number as group": (TypeError, "group is of type int; expected a ProcessGroup or None", {"group": 3}),
    "a column of row weights": (
        ValueError,
        rf"row_weight has sizes \[{ROWS}, 1\]; expected \[{ROWS}\], one for each row",
        {"row_weight": torch.ones(ROWS, 1)},
    ),
    "an upstream of other sizes": (
        ValueError,
        rf"upstream has sizes \[2\]; expected .*\[{ROWS}\]",
        {"upstream": TWO},
    ),
    "the gradient of a weight": (
        RuntimeError,
        "the derivative for 'weight' is not implemented",
        {"weight": torch.ones(CLASSES, requires_grad=True)},
    ),
    "the gradient of a row weight": (
        RuntimeError,
        "the derivative for 'row_weight' is not implemented",
        {"row_weight": torch.ones(ROWS, requires_grad=True)},
    ),
}


@pytest.mark.parametrize("case", RANKS)
def test_calls_of_ranks_name_what_is_wrong(case, device):
    kind, message, given = RANKS[case]
    target = torch.arange(ROWS, device=device)
    logits = torch.zeros(ROWS, CLASSES, device=device, requires_grad=True)
    with pytest.raises(kind, match=r"^ce\.torch\.vocab_parallel_cross_entropy: " + message):
        ct.vocab_parallel_cross_entropy(**{"logits": logits, "target": target, **on(device, given)})
    layer = {"input": logits, "linear_weight": torch.zeros(CLASSES, CLASSES, device=device)}
    with pytest.raises(kind, match=r"^ce\.torch\.vocab_parallel_linear_cross_entropy: " + message):
        ct.vocab_parallel_linear_cross_entropy(**{**layer, "target": target, **on(device, given)})


def test_rows_of_a_rank_are_not_as_many_in_other_sizes(device):
    """Weights and upstream gradients [3, 2] of a target [2, 3] belong to other rows. Dimensions of size 1 of upstream
    gradients may differ.
    """
    logits = torch.zeros(2, 3, CLASSES, device=device, requires_grad=True)
    target, other = torch.zeros(2, 3, dtype=torch.int64, device=device), torch.rand(3, 2, device=device)
    for argument in ("row_weight", "upstream"):
        with pytest.raises(ValueError, match=rf"{argument} has sizes \[3, 2\]; expected .*\[2, 3\]"):
            ct.vocab_parallel_cross_entropy(logits, target, **{argument: other})
    upstream = torch.rand(2, 3, device=device)
    grads = [
        torch.autograd.grad(ct.vocab_parallel_cross_entropy(logits, target, upstream=one), logits)[0]
        for one in (upstream, upstream.reshape(2, 1, 3))
    ]
    assert torch.equal(*grads)
    assert not torch.equal(grads[0][0, 0], grads[0][0, 1])


def test_a_ranks_layer_has_classes_and_an_index_of_64_bits(device):
    layer = torch.zeros(ROWS, 3, device=device), torch.zeros(CLASSES, 3, device=device)
    for given, kind, message in (
        ({"classes": 0}, ValueError, "classes is 0; expected 1 or more"),
        ({"ignore_index": 2**63}, ValueError, "ignore_index is 9223372036854775808; expected an integer of 64 bits"),
        ({"ignore_index": 1.5}, TypeError, "ignore_index is 1.5; expected an integer"),
    ):
        with pytest.raises(kind, match=r"^ce\.torch\.vocab_parallel_linear_cross_entropy: " + message):
            ct.vocab_parallel_linear_cross_entropy(*layer, torch.arange(ROWS, device=device), **given)


def test_a_single_rank_has_all_classes(device):
    logits, target = torch.zeros(ROWS, CLASSES, device=device), torch.arange(ROWS, device=device)
    for given, kind, message in (
        ({"classes": CLASSES + 1}, ValueError, "classes is 9; expected at most 8"),
        ({"first_class": 1}, ValueError, "first_class is 1; expected 0 on a single rank"),
        ({"target": target.short()}, TypeError, r"target\.dtype is torch\.int16; expected torch\.int64"),
        ({"target": logits.double()}, TypeError, r"target\.dtype is torch\.float64; expected torch\.float32"),
    ):
        with pytest.raises(kind, match=r"^ce\.torch\.vocab_parallel_cross_entropy: " + message):
            ct.vocab_parallel_cross_entropy(**{"logits": logits, "target": target, **given})
    made = ct.vocab_parallel_cross_entropy(logits, target.to(torch.uint8), classes=CLASSES - 1)
    torch.testing.assert_close(made, torch.log(torch.tensor(CLASSES - 1.0, device=device)))


@pytest.mark.parametrize("place", ["host", "torch"])
def test_a_ranks_layer_without_kernels_is_named_itself(place, device):
    if device.type == "cuda" and place == "torch":
        pytest.skip("a GPU has kernels")
    ct.configure(cpu=place)
    dtype = torch.float64 if place == "host" else torch.float32
    hidden, weight = torch.ones(ROWS, 3, device=device, dtype=dtype), torch.ones(CLASSES, 3, device=device, dtype=dtype)
    with pytest.raises(
        ValueError,
        match=rf"^ce\.torch\.vocab_parallel_linear_cross_entropy: input is {dtype} on {device.type}.*; expected",
    ):
        ct.vocab_parallel_linear_cross_entropy(hidden, weight, torch.arange(ROWS, device=device))


def test_what_wraps_a_function_is_not_seen(device):
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'target'"):
        ct.linear_cross_entropy(torch.zeros(1, 2), torch.zeros(3, 2))
    with pytest.raises(TypeError, match="unexpected keyword argument 'foo'"):
        ct.linear_cross_entropy(torch.zeros(1, 2), torch.zeros(3, 2), torch.zeros(1).long(), foo=1)


LOGPROBS = {
    "bool index": (TypeError, r"index\.dtype is torch\.bool; expected", {"index": torch.zeros(ROWS).bool()}),
    "complex index": (TypeError, r"index\.dtype is torch\.complex64", {"index": torch.zeros(ROWS).to(torch.complex64)}),
    "whole mask": (TypeError, r"mask\.dtype is torch\.int64; expected torch\.bool", {"mask": torch.ones(ROWS).long()}),
    "real mask": (TypeError, r"mask\.dtype is torch\.float32; expected torch\.bool", {"mask": torch.ones(ROWS)}),
    "infinite temperature": (ValueError, "temperature is inf; expected", {"temperature": float("inf")}),
    "tiny temperature": (ValueError, "temperature is 1e-30; expected", {"temperature": 1e-30}),
    "text as temperature": (TypeError, "temperature is 'a'; expected a number", {"temperature": "a"}),
    "half a chunk": (TypeError, "chunk_tokens is 1.5; expected an integer or None", {"chunk_tokens": 1.5}),
}


@pytest.mark.parametrize("case", LOGPROBS)
def test_the_linear_logprobs_name_what_is_wrong(case, device):
    kind, message, given = LOGPROBS[case]
    layer = torch.zeros(ROWS, HIDDEN, device=device), torch.zeros(CLASSES, HIDDEN, device=device)
    arguments = {"index": torch.arange(ROWS, device=device), **on(device, given)}
    with pytest.raises(kind, match=r"^ce\.torch\.linear_logprobs_and_entropy: " + message):
        ct.linear_logprobs_and_entropy(*layer, **arguments)


def test_options_of_the_module_are_looked_at_when_it_is_made():
    with pytest.raises(
        TypeError, match="LinearCrossEntropy: got an unexpected option 'foo'; expected one of reduction"
    ):
        ct.LinearCrossEntropy(24, 101, foo=1)
    head = ct.LinearCrossEntropy(3, 4)
    for option in ("weight", "linear_bias", "foo"):
        with pytest.raises(
            TypeError, match=f"^ce.torch.LinearCrossEntropy: got an unexpected option '{option}'; expected"
        ):
            head(torch.zeros(2, 3), torch.zeros(2).long(), **{option: torch.ones(4)})
    assert ct.LinearCrossEntropy(24, 101, z_loss=0.1, chunk_tokens=8).options == {"z_loss": 0.1, "chunk_tokens": 8}


def test_a_sharded_weight_is_refused(device, tmp_path):
    dist = pytest.importorskip("torch.distributed")
    from torch.distributed.tensor import DTensor, Shard, init_device_mesh

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        mesh = init_device_mesh(device.type, (1,))
        weight = DTensor.from_local(torch.zeros(CLASSES, HIDDEN, device=device), mesh, [Shard(0)])
        input, target = torch.zeros(ROWS, HIDDEN, device=device), torch.zeros(ROWS, dtype=torch.int64, device=device)
        for function in (
            ct.linear_cross_entropy,
            ct.linear_logprobs_and_entropy,
            ct.vocab_parallel_linear_cross_entropy,
        ):
            with pytest.raises(ValueError, match=r"linear_weight is a DTensor; expected .*FSDP2.*full_tensor"):
                function(input, weight, target)
        made = ct.linear_cross_entropy(input, weight.full_tensor(), target)
        torch.testing.assert_close(made, torch.log(torch.tensor(float(CLASSES), device=device)))
    finally:
        dist.destroy_process_group()


def test_upstream_gradients_of_no_rows(device):
    x, target = torch.randn(0, 6, device=device, requires_grad=True), torch.zeros(0, dtype=torch.int64, device=device)
    assert ct.cross_entropy(x, target, reduction="sum", upstream=torch.ones(0, device=device)).item() == 0
    layer = torch.randn(0, 3, device=device), torch.randn(6, 3, device=device)
    assert ct.linear_cross_entropy(*layer, target, reduction="sum", upstream=torch.ones(0, device=device)).item() == 0


def test_outputs_of_rows_without_classes(device):
    output = ct.cross_entropy(
        torch.randn(0, 0, device=device),
        torch.zeros(0, dtype=torch.int64, device=device),
        reduction="none",
        return_lse_low=True,
    )
    assert output.loss.shape == output.lse_low.shape == (0,)


def test_a_reduction_that_is_no_text(device):
    x, target = torch.randn(4, 6, device=device), torch.tensor([0, 1, 2, 3], device=device)
    hidden, weight = torch.randn(4, 3, device=device), torch.randn(6, 3, device=device)
    for call in (
        lambda: ct.cross_entropy(x, target, reduction=["mean"]),
        lambda: ct.linear_cross_entropy(hidden, weight, target, reduction=["mean"]),
        lambda: ct.vocab_parallel_cross_entropy(x, target, reduction=["mean"]),
    ):
        with pytest.raises(ValueError, match=r"reduction is \['mean'\]; expected"):
            call()


def test_upstream_gradients_of_a_ranks_layer_keep_their_digits(device):
    hidden, weight = torch.randn(4, 3, device=device), torch.randn(6, 3, device=device)
    target = torch.tensor([0, 1, 2, 3], device=device)
    for dtype in (torch.float64, torch.bool, torch.complex64):
        with pytest.raises(TypeError, match=r"upstream\.dtype is"):
            ct.vocab_parallel_linear_cross_entropy(
                hidden, weight, target, upstream=torch.ones(4, dtype=dtype, device=device)
            )


def test_subclasses_see_every_option_of_a_layer(device):
    seen = {}

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            if function is ct.linear_cross_entropy:
                seen.update(kwargs)
                return "seen"
            return super().__torch_function__(function, types, args, kwargs or {})

    hidden = torch.randn(4, 3, device=device).as_subclass(Own)
    weight, target = torch.randn(6, 3, device=device), torch.tensor([0, 1, 2, 3], device=device)
    assert ct.linear_cross_entropy(hidden, weight, target, z_loss=0.1) == "seen"
    assert {"z_loss", "softcap", "logit_scale", "token_scaling"} <= set(seen) and seen["z_loss"] == 0.1
    with pytest.raises(TypeError, match="zloss"):
        ct.linear_cross_entropy(hidden, weight, target, zloss=1)


def test_ranks_without_rows_have_outputs_of_none(device):
    x, target = torch.randn(0, 9, device=device), torch.zeros(0, dtype=torch.int64, device=device)
    made = ct.vocab_parallel_cross_entropy(
        x, target, reduction="none", return_argmax=True, return_hit=True, return_entropy=True
    )
    assert all(one.shape == (0,) for one in made if one is not None)
    left_out = torch.full((5,), -100, device=device)
    layer = torch.randn(5, 3, device=device), torch.randn(9, 3, device=device)
    made = ct.vocab_parallel_linear_cross_entropy(
        *layer, left_out, reduction="none", valid_tokens=0, return_argmax=True, return_lse=True
    )
    assert made.loss.tolist() == [0] * 5 and made.argmax.tolist() == [-1] * 5 and made.lse.isnan().all()
