"""Log-probabilities and entropies beside plain torch in float64, and beside TRL."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import Tensor

import ce.torch as ct

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def plain(logits: Tensor, index: Tensor, temperature: float | Tensor = 1.0, mask: Tensor | None = None):
    """In operations of torch."""
    of_row = temperature.unsqueeze(-1) if isinstance(temperature, Tensor) else temperature
    logarithms = torch.log_softmax(logits / of_row, -1)
    known = index if mask is None else index.masked_fill(~mask, 0)
    logprob = logarithms.gather(-1, known.unsqueeze(-1)).squeeze(-1)
    entropy = -(torch.exp(logarithms) * logarithms).sum(-1)
    return tuple(x if mask is None else x.masked_fill(~mask, 0.0) for x in (logprob, entropy))


@pytest.fixture(params=["host", "torch"])
def cpu(request, device):
    """Tensors of the CPU on the host device, and in operations of torch."""
    if device.type == "cuda" and request.param == "torch":
        pytest.skip("of the CPU")
    before = ct.configure(cpu=request.param)
    yield request.param
    ct.restore(before)


@pytest.mark.parametrize("sizes", [(40,), (6, 40), (2, 5, 40), (2, 3, 2, 40)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_both_and_their_gradients(dtype, sizes, cpu, device, seed):
    logits = (3 * torch.randn(*sizes, device=device)).to(dtype).requires_grad_()
    wide = logits.detach().double().requires_grad_()
    index = torch.randint(0, 40, sizes[:-1], device=device)
    mask = torch.rand(sizes[:-1], device=device) < 0.7
    eps = torch.finfo(dtype).eps
    of_logprob, of_entropy = (torch.randn(sizes[:-1], device=device) for _ in range(2))
    of_rows = torch.rand(sizes[:-1], device=device) + 0.5
    for temperature, chosen in ((1.0, None), (0.7, mask), (of_rows, mask)):
        made = ct.logprobs_and_entropy(logits, index, temperature=temperature, mask=chosen)
        expected = plain(wide, index, temperature, chosen)
        for ours, torchs in zip(made, expected):
            assert ours.dtype is torch.float32
            torch.testing.assert_close(ours.double(), torchs, rtol=1e-5, atol=1e-5)
        for upstreams in ((of_logprob, None), (None, of_entropy), (of_logprob, of_entropy)):
            loss, expected_loss = (
                sum((x * u).sum() for x, u in zip(results, upstreams) if u is not None) for results in (made, expected)
            )
            (grad,) = torch.autograd.grad(loss, logits, retain_graph=True)
            (expected_grad,) = torch.autograd.grad(expected_loss, wide, retain_graph=True)
            assert grad.dtype is dtype
            biggest = expected_grad.abs().max().item()
            # What float32 rounds off a logsumexp, which is no less where the gradient is small.
            rounded = (
                1e-7 * (wide.abs().max() / 0.5).item() * max(u.abs().max().item() for u in upstreams if u is not None)
            )
            torch.testing.assert_close(
                grad.double(), expected_grad, rtol=2 * eps, atol=max(2 * eps, 1e-5) * biggest + rounded + 1e-7
            )
            if chosen is not None:
                assert grad[~chosen].abs().sum() == 0
        with torch.no_grad():
            again = ct.logprobs_and_entropy(logits, index, temperature=temperature, mask=chosen)
        for ours, before in zip(again, made):
            assert not ours.requires_grad
            torch.testing.assert_close(ours, before)


def test_float64_is_for_torch_and_passes_gradcheck(device, seed):
    logits = torch.randn(3, 9, device=device, dtype=torch.float64, requires_grad=True)
    index, mask = torch.tensor([1, 8, 0], device=device), torch.tensor([True, False, True], device=device)
    assert torch.autograd.gradcheck(lambda x: ct.logprobs_and_entropy(x, index, temperature=0.7, mask=mask), (logits,))
    assert torch.autograd.gradcheck(lambda x: ct.selective_log_softmax(x, index), (logits,))


def test_gradcheck_of_the_kernels(device, seed):
    logits = torch.randn(3, 9, device=device, requires_grad=True)
    index, mask = torch.tensor([1, 8, 0], device=device), torch.tensor([True, False, True], device=device)
    with pytest.warns(UserWarning, match="double precision"):
        assert torch.autograd.gradcheck(
            lambda x: ct.logprobs_and_entropy(x, index, temperature=0.7, mask=mask),
            (logits,),
            eps=1e-2,
            atol=2e-3,
            rtol=2e-2,
        )


def test_views_and_what_is_in_rows_left_out(cpu, device, seed):
    """The shift of a language model, without a copy; and nothing of a row that is left out gets anywhere."""
    whole = torch.randn(3, 6, 50, device=device)
    whole[0, 1] = float("nan")
    whole[1, 2, 3:9] = float("-inf")
    leaf = whole.requires_grad_()
    tokens = torch.randint(10, 50, (3, 6), device=device)
    mask = torch.ones(3, 5, dtype=torch.bool, device=device)
    mask[0, 1] = False
    logprob, entropy = ct.logprobs_and_entropy(leaf[:, :-1], tokens[:, 1:], mask=mask)
    wide = leaf.detach().double().nan_to_num(0.0, neginf=-1e4).requires_grad_()
    expected, expected_entropy = plain(wide[:, :-1], tokens[:, 1:], mask=mask)
    torch.testing.assert_close(logprob.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(entropy.double(), expected_entropy, rtol=1e-5, atol=1e-5)
    (logprob.sum() + 0.5 * entropy.sum()).backward()
    (expected.sum() + 0.5 * expected_entropy.nan_to_num().sum()).backward()
    torch.testing.assert_close(leaf.grad.double(), wide.grad.nan_to_num(), rtol=1e-4, atol=1e-5)
    # A label of -100 is left out, too.
    labels = tokens[:, 1:].masked_fill(~mask, -100)
    for ours, masked in zip(ct.logprobs_and_entropy(leaf[:, :-1], labels), (logprob, entropy)):
        torch.testing.assert_close(ours, masked)


@pytest.mark.parametrize("sizes", [(6, 40), (2, 5, 40)])
def test_selective_log_softmax(sizes, cpu, device, seed):
    logits = torch.randn(*sizes, device=device, requires_grad=True)
    wide = logits.detach().double().requires_grad_()
    index = torch.randint(0, 40, sizes[:-1], device=device)
    ours, (expected, _) = ct.selective_log_softmax(logits, index), plain(wide, index)
    torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=1e-5)
    (grad,) = torch.autograd.grad(ours.sum(), logits)
    torch.testing.assert_close(grad.double(), torch.autograd.grad(expected.sum(), wide)[0], rtol=1e-5, atol=1e-6)
    several = torch.randint(0, 40, (*sizes[:-1], 3), device=device)
    mask = torch.rand(several.shape, device=device) < 0.5
    expected = (wide / 0.7).log_softmax(-1).gather(-1, several).masked_fill(~mask, 0)
    for given in (mask, mask.long()):
        ours = ct.selective_log_softmax(logits, several, 0.7, given)
        torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"row_mask has sizes .* the sizes of index"):
        ct.selective_log_softmax(logits, several, 0.7, mask[..., 0])
    assert ct.selective_log_softmax(logits.bfloat16(), index).dtype is torch.bfloat16


def test_beside_trl(cpu, device, seed):
    theirs = pytest.importorskip("trl.trainer.utils")
    names = list(inspect.signature(theirs.selective_log_softmax).parameters)
    assert list(inspect.signature(ct.selective_log_softmax).parameters)[: len(names)] == names
    logits, index = torch.randn(3, 7, 50, device=device), torch.randint(0, 50, (3, 7), device=device)
    expected = theirs.selective_log_softmax(logits, index)
    torch.testing.assert_close(ct.selective_log_softmax(logits, index), expected)
    for chosen in (index, torch.randint(0, 50, (3, 7, 4), device=device)):
        masked = (logits, chosen, 0.7, torch.rand(chosen.shape, device=device) < 0.5)
        torch.testing.assert_close(ct.selective_log_softmax(*masked), theirs.selective_log_softmax(*masked))
    logprob, entropy = ct.logprobs_and_entropy(logits, index)
    torch.testing.assert_close(logprob, expected)
    torch.testing.assert_close(entropy, theirs.entropy_from_logits(logits))


def test_nothing_is_saved_without_a_gradient(device, seed):
    saved: list[Tensor] = []
    logits, index = torch.randn(4, 30, device=device, requires_grad=True), torch.randint(0, 30, (4,), device=device)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        with torch.no_grad():
            ct.logprobs_and_entropy(logits, index)
            ct.selective_log_softmax(logits, index)
        assert not saved
        ct.logprobs_and_entropy(logits, index)
        assert sorted(x.numel() for x in saved) == [4, 4, 4, 4, 4, 120]


def test_a_temperature_that_is_none_makes_its_row_nan(cpu, device, seed):
    logits = torch.randn(5, 20, device=device, requires_grad=True)
    index = torch.tensor([1, 2, 3, 4, -100], device=device)
    temperature = torch.tensor([0.0, -1.0, float("nan"), 2.0, 0.0], device=device)
    made = ct.logprobs_and_entropy(logits, index, temperature=temperature)
    made += (ct.selective_log_softmax(logits, index, temperature),)
    made += (torch.autograd.grad(sum(x.sum() for x in made), logits)[0].sum(1),)
    for result in made:
        assert result.isnan().tolist() == [True, True, True, False, False]
    several = ct.selective_log_softmax(
        logits, torch.zeros(5, 2, dtype=torch.int64, device=device), temperature.abs() + 1
    )
    expected = (logits / (temperature.abs() + 1).unsqueeze(1)).log_softmax(-1)[:, :2].narrow(1, 0, 1).expand(5, 2)
    torch.testing.assert_close(several, expected, equal_nan=True)


@pytest.mark.parametrize("sizes", [(6, 40), (2, 5, 40)])
def test_compiles_as_one_graph(sizes, device, seed):
    torch.compiler.reset()
    index = torch.randint(0, 40, sizes[:-1], device=device)
    mask = torch.rand(sizes[:-1], device=device) < 0.7
    temperature = torch.rand(sizes[:-1], device=device) + 0.5

    def loss_of(logits):
        logprob, entropy = ct.logprobs_and_entropy(logits * 2, index, temperature=temperature, mask=mask)
        ratio = torch.exp(ct.selective_log_softmax(logits, index))
        return (ratio * logprob).sum() + 0.1 * entropy.sum()

    results = []
    for function in (torch.compile(loss_of, fullgraph=True, backend="aot_eager"), loss_of):
        torch.manual_seed(seed)
        logits = torch.randn(*sizes, device=device, requires_grad=True)
        loss = function(logits)
        results.append((loss.detach(), torch.autograd.grad(loss, logits)[0], function(logits.detach())))
    for compiled, eager in zip(*results):
        torch.testing.assert_close(compiled, eager, rtol=1e-5, atol=1e-5)


def test_is_differentiable_once(device, seed):
    logits, index = torch.randn(4, 20, device=device, requires_grad=True), torch.randint(0, 20, (4,), device=device)
    with pytest.raises(RuntimeError, match=r"ce\.torch\.logprobs_and_entropy is differentiable once"):
        torch.autograd.grad(ct.logprobs_and_entropy(logits, index)[1].sum(), logits, create_graph=True)
    with pytest.raises(RuntimeError, match=r"ce\.torch\.logprobs_and_entropy does not support .*log_softmax"):
        torch.func.grad(lambda x: ct.logprobs_and_entropy(x, index)[0].sum())(torch.zeros(4, 20, device=device))


def test_an_index_out_of_range_is_never_silent(device):
    logits, index = torch.zeros(3, 8, device=device), torch.tensor([1, 8, 0], device=device)
    logprob, entropy = ct.logprobs_and_entropy(logits, index)
    assert logprob.isnan().tolist() == entropy.isnan().tolist() == [False, True, False]
    with pytest.raises(IndexError, match="the first is row 1 with target 8"):
        ct.check(device)


BAD = {
    "temperature": (ValueError, "temperature is 0", {"temperature": 0.0}),
    "infinite temperature": (ValueError, "temperature is inf; expected", {"temperature": float("inf")}),
    "tiny temperature": (ValueError, "temperature is 1e-30; expected", {"temperature": 1e-30}),
    "text": (TypeError, "temperature is 'a'; expected a number or a tensor", {"temperature": "a"}),
    "list": (TypeError, "index is of type list; expected a tensor", {"index": [0, 1, 2, 3]}),
    "list as mask": (TypeError, "mask is of type list; expected a tensor or None", {"mask": [True] * 4}),
    "sizes of temperature": (
        ValueError,
        r"temperature has sizes \[3\]; expected \[4\]",
        {"temperature": torch.ones(3)},
    ),
    "gradient of temperature": (RuntimeError, "'temperature'", {"temperature": torch.ones(4).requires_grad_()}),
    "sizes of index": (ValueError, r"index has sizes \[3\]; expected \[4\]", {"index": torch.zeros(3).long()}),
    "k of each row": (ValueError, r"index has sizes \[4, 2\]; expected \[4\]", {"index": torch.zeros(4, 2).long()}),
    "sizes of mask": (ValueError, r"mask has sizes \[1\]; expected \[4\]", {"mask": torch.ones(1).bool()}),
    "dtype of mask": (TypeError, r"mask\.dtype is torch\.float32; expected torch\.bool", {"mask": torch.ones(4)}),
    "dtype of index": (TypeError, r"index\.dtype is torch\.float32", {"index": torch.zeros(4)}),
}


@pytest.mark.parametrize("case", BAD)
def test_refuses(case, cpu, device):
    kind, message, given = BAD[case]
    arguments = {"index": torch.zeros(4, dtype=torch.int64), **given}
    moved = {name: x.to(device) if isinstance(x, Tensor) else x for name, x in arguments.items()}
    with pytest.raises(kind, match=message):
        ct.logprobs_and_entropy(torch.zeros(4, 8, device=device), **moved)


def test_no_rows(cpu, device):
    logits = torch.zeros(0, 3, 8, device=device, requires_grad=True)
    logprob, entropy = ct.logprobs_and_entropy(logits, torch.zeros(0, 3, dtype=torch.int64, device=device))
    assert logprob.shape == entropy.shape == (0, 3)
    (logprob.sum() + entropy.sum()).backward()
    assert logits.grad.shape == logits.shape


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_of_logits_far_from_0(compiled, device, seed):
    """Near 10^4, whose logsumexps float32 rounds by up to 5e-4."""
    logits = (torch.randn(6, 1003, device=device) * 8 + 1e4).requires_grad_()
    exact, index = logits.detach().double().requires_grad_(), torch.randint(0, 1003, (6,), device=device)
    function = torch.compile(ct.logprobs_and_entropy, backend="aot_eager") if compiled else ct.logprobs_and_entropy
    for made, expected in ((function(logits, index), plain(exact, index)), (function(logits, index), None)):
        if expected is None:  # of the log-probabilities alone
            made, expected = made[:1], plain(exact, index)[:1]
        (grad,) = torch.autograd.grad(sum(each.sum() for each in made), logits)
        (wide,) = torch.autograd.grad(sum(each.sum() for each in expected), exact)
        torch.testing.assert_close(grad.double(), wide, rtol=2e-5, atol=5e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_of_several_indices_a_row_those_that_are_no_class_are_as_those_of_one(dtype, device, seed):
    logits = torch.randn(3, 5, device=device, dtype=dtype, requires_grad=True)
    index = torch.tensor([[0, -100, 4], [5, 1, -1], [2, 2, 3]], device=device)
    made = ct.selective_log_softmax(logits, index, row_mask=torch.ones_like(index).index_fill(1, index[2, 2:] - 1, 0))
    want = logits.detach().log_softmax(-1)
    assert made.isnan().tolist() == [[False] * 3, [True, False, False], [False] * 3]
    torch.testing.assert_close(made[0, :2], torch.stack([want[0, 0], want.new_zeros(())]))
    torch.testing.assert_close(made[2, :2], want[2, [2, 2]])
    assert not made[:, 2].any()
    made[2].sum().backward()
    assert logits.grad[2].any() and not logits.grad[:2].any()
    if dtype is torch.float32:
        with pytest.raises(IndexError, match=r"1 row had .* the first is row 1 with target 5"):
            ct.check(device)
    with pytest.raises(ValueError, match=r"row_mask has sizes \[2\]; expected \[3, 3\], the sizes of index"):
        ct.selective_log_softmax(logits, index, row_mask=torch.ones(2, device=device))


def rows_of(form: str, index: Tensor) -> Tensor:
    return index if form == "one" else index.unsqueeze(-1).expand(-1, 2)


@pytest.mark.parametrize("form", ["one", "several"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_temperatures_and_rows_of_one_index_and_of_several(dtype, form, cpu, device, seed):
    """Both forms make the same of temperatures of rows, of rows left out, and of what is in them."""
    logits = (3 * torch.randn(8, 300, device=device)).to(dtype)
    index = rows_of(form, torch.tensor([5, 6, -100, 7, 8, 9, 10, 11], device=device))
    mask = torch.ones_like(index)
    mask[3] = 0
    logits[2], logits[3] = torch.nan, float("-inf")
    logits.requires_grad_()
    temperature = torch.tensor([0.7, -1.0, 0.0, -1.0, float("inf"), 1e30, 1e-30, 1.3], device=device)
    made = ct.selective_log_softmax(logits, index, temperature, mask)
    assert made.dtype is dtype
    of_row = made if form == "one" else made[:, 0]
    assert of_row.isnan().tolist() == [False, True, False, False, True, True, True, False]
    assert of_row[2] == of_row[3] == 0
    (grad,) = torch.autograd.grad(of_row[[0, 2, 3, 7]].sum(), logits)
    assert not grad[2:4].any()
    exact = logits.detach()[[0, 7]].double().requires_grad_()
    wanted, _ = plain(exact, torch.tensor([5, 11], device=device), temperature[[0, 7]].double())
    torch.testing.assert_close(of_row[[0, 7]], wanted.to(dtype), rtol=torch.finfo(dtype).eps, atol=1e-6)
    torch.testing.assert_close(
        grad[[0, 7]], torch.autograd.grad(wanted.sum(), exact)[0].to(dtype), rtol=2e-2, atol=1e-6
    )


@pytest.mark.parametrize("form", ["one", "several"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_a_row_that_is_left_out_has_no_gradient_whatever_it_holds(temperature, form, cpu, device, seed):
    logits = torch.randn(4, 20, device=device)
    logits[1], logits[2] = torch.nan, float("-inf")
    logits.requires_grad_()
    index, mask = rows_of(form, torch.tensor([3, -100, 4, 5], device=device)), torch.ones(4, device=device)
    mask[2] = 0
    made = ct.selective_log_softmax(logits, index, temperature, rows_of(form, mask))
    made.sum().backward()
    assert made.isfinite().all() and logits.grad.isfinite().all()
    assert logits.grad[[0, 3]].any(1).all() and not logits.grad[1:3].any()


@pytest.mark.parametrize("form", ["one", "several"])
def test_16_bits_are_rounded_once(form, cpu, device, seed):
    logits, index = torch.randn(64, 1000, device=device).bfloat16(), torch.randint(0, 1000, (64,), device=device)
    made = ct.selective_log_softmax(logits, rows_of(form, index), 0.7)
    wanted = plain(logits.double(), index, 0.7)[0].bfloat16()
    torch.testing.assert_close(made if form == "one" else made[:, 0], wanted, rtol=2**-8, atol=0)


@pytest.mark.parametrize("form", ["one", "several"])
def test_the_dtype_of_the_logits_also_under_autocast(form, cpu, device, seed):
    logits, index = torch.randn(4, 20, device=device).bfloat16(), torch.arange(4, device=device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        assert ct.selective_log_softmax(logits, rows_of(form, index)).dtype is torch.bfloat16


@pytest.mark.parametrize("sizes", [(3,), (2, 3)])
@pytest.mark.parametrize("compiled", [False, True])
def test_of_several_indices_one_out_of_range_is_reported(compiled, sizes, device, seed):
    logits = torch.randn(*sizes, 8, device=device, requires_grad=True)
    index = torch.zeros(*sizes, 2, dtype=torch.int64, device=device)
    index[..., 1, 1] = 8
    function = ct.selective_log_softmax
    if compiled:
        torch.compiler.reset()
        function = torch.compile(function, backend="aot_eager", fullgraph=True)
    made = function(logits, index)
    assert made.isnan().sum() == made[..., 1, 1].numel() and made[..., 1, 1].isnan().all()
    with pytest.raises(IndexError, match=r"row 1 with target 8"):
        ct.check(device)
    function(logits, index.clamp(max=7)).sum().backward()
    assert logits.grad.any()
    ct.check(device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_where_torch_computes_an_index_out_of_range_is_nan(dtype, seed):
    before = ct.configure(cpu="torch")
    logits = torch.randn(3, 8, dtype=dtype, requires_grad=True)
    index = torch.tensor([1, 17, -100])
    logprob, entropy = ct.logprobs_and_entropy(logits, index)
    one, several = (ct.selective_log_softmax(logits, rows_of(form, index)) for form in ("one", "several"))
    for made in (logprob, entropy, one, several[:, 1]):
        assert made.isnan().tolist() == [False, True, False]
    (grad,) = torch.autograd.grad(logprob.sum() + entropy.sum(), logits)
    assert grad.isnan().any(1).tolist() == [False, True, False]
    ct.restore(before)


@pytest.mark.parametrize("form", ["one", "several"])
def test_rows_without_classes(form, cpu, device):
    logits = torch.zeros(3, 0, device=device, requires_grad=True)
    index = rows_of(form, torch.tensor([0, -100, 2], device=device))
    made = ct.selective_log_softmax(logits, index)
    assert made.shape == index.shape
    assert (made if form == "one" else made[:, 0]).isnan().tolist() == [True, False, True]
    made.sum().backward()
    assert logits.grad.shape == (3, 0)
