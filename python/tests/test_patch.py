"""Functions of torch through ce, and back."""

from __future__ import annotations

import contextlib
import threading

import pytest
import torch
import torch.nn.functional as F

import ce.torch as ct

NAMES = ("cross_entropy", "softmax", "log_softmax")
TORCHS = {name: getattr(F, name) for name in NAMES}


def is_patched(name: str) -> bool:
    return getattr(F, name) is not TORCHS[name]


@pytest.fixture(autouse=True)
def _unpatched():
    yield
    ct.unpatch()


def test_patches_all_or_some_and_undoes_it():
    ct.patch()
    assert all(map(is_patched, NAMES))
    ct.unpatch()
    assert not any(map(is_patched, NAMES))
    with ct.patch("softmax"):
        assert [is_patched(name) for name in NAMES] == [False, True, False]
        with ct.patch():
            assert all(map(is_patched, NAMES))
        assert [is_patched(name) for name in NAMES] == [False, True, False]
    assert not any(map(is_patched, NAMES))


def test_patches_that_overlap_last_as_long_as_the_last_of_them():
    first, second = ct.patch(), ct.patch("softmax", "softmax")
    first.__exit__(None, None, None)
    assert [is_patched(name) for name in NAMES] == [False, True, False]
    first.__exit__(None, None, None)  # a second time it does nothing
    assert is_patched("softmax")
    second.__exit__(None, None, None)
    assert not any(map(is_patched, NAMES))


def test_unpatch_undoes_all_of_them():
    ct.patch()
    with ct.patch():
        ct.unpatch()
        assert not any(map(is_patched, NAMES))
        inner = ct.patch("softmax")
    assert is_patched("softmax")  # which is wanted since
    inner.__exit__(None, None, None)
    assert not any(map(is_patched, NAMES))


def test_a_patch_that_stays_is_not_undone_by_a_block():
    ct.patch("cross_entropy")
    with ct.patch():
        assert all(map(is_patched, NAMES))
    assert [is_patched(name) for name in NAMES] == [True, False, False]


def test_another_patch_that_was_there_before_is_put_back(monkeypatch):
    def theirs(*arguments, **named):
        return TORCHS["softmax"](*arguments, **named)

    monkeypatch.setattr(F, "softmax", theirs)
    first, second = ct.patch(), ct.patch()
    assert F.softmax is ct.softmax
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert F.softmax is theirs


def test_blocks_of_several_threads():
    both_inside, first_is_out = threading.Barrier(2), threading.Event()
    seen = []

    def first():
        with ct.patch():
            both_inside.wait(10)
        first_is_out.set()

    def second():
        with ct.patch():
            both_inside.wait(10)
            first_is_out.wait(10)
            seen.append(all(map(is_patched, NAMES)))

    threads = [threading.Thread(target=one) for one in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True]
    assert not any(map(is_patched, NAMES))


def test_is_undone_where_the_block_fails():
    with pytest.raises(KeyError), ct.patch():
        raise KeyError
    assert not any(map(is_patched, NAMES))


def test_refuses_other_names():
    with pytest.raises(ValueError, match="name is 'relu'; expected one of cross_entropy, softmax, log_softmax"):
        ct.patch("softmax", "relu")
    assert not any(map(is_patched, NAMES))


def test_modules_of_torch_go_through_ce_and_mean_the_same(device, seed):
    logits, target = torch.randn(5, 12, device=device, requires_grad=True), torch.randint(0, 12, (5,), device=device)
    loss, softmax = torch.nn.CrossEntropyLoss(label_smoothing=0.1), torch.nn.Softmax(dim=1)
    expected = loss(logits, target)
    with ct.patch():
        ours = loss(logits, target)
        torch.testing.assert_close(softmax(logits), torch.softmax(logits, 1))
    assert type(ours.grad_fn).__name__ == "LossAloneBackward"
    torch.testing.assert_close(ours, expected)


def test_what_has_no_kernel_runs_in_torch(seed):
    with ct.patch():
        for dtype in (torch.float64, torch.float32):
            logits = torch.randn(3, 4, dtype=dtype, requires_grad=True)
            F.cross_entropy(logits, torch.tensor([0, 1, 2])).backward()
            torch.testing.assert_close(F.softmax(logits, 1), torch.softmax(logits, 1))


def test_transforms_of_patched_functions_are_torchs(device, seed):
    logits, target = torch.randn(5, 12, device=device), torch.randint(0, 12, (5,), device=device)
    ones = torch.ones_like(logits)
    calls = {
        "softmax": lambda x: F.softmax(x, 1).square().sum(),
        "log_softmax": lambda x: F.log_softmax(x, dim=1).square().sum(),
        "cross_entropy": lambda x: F.cross_entropy(x, target),
        "with weights": lambda x: F.cross_entropy(x, target, ones[0], label_smoothing=0.1),
        "module": lambda x: torch.nn.CrossEntropyLoss(reduction="sum")(x, target),
    }

    def results(call):
        made = [torch.func.grad(call)(logits), torch.func.jvp(call, (logits,), (ones,))[1]]
        made += [torch.func.vmap(call)(logits.expand(2, 5, 12)), torch.func.hessian(call)(logits)]
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(logits, ones)
            made.append(torch.autograd.forward_ad.unpack_dual(call(dual)).tangent.clone())
        return made

    for name, call in calls.items():
        expected = results(call)
        with ct.patch():
            ours = results(call)
        for one, other in zip(ours, expected):
            torch.testing.assert_close(one, other, msg=lambda text, name=name: f"{name}: {text}")


def test_a_second_derivative_of_a_patched_function_is_refused(device, seed):
    logits, target = torch.randn(5, 12, device=device), torch.randint(0, 12, (5,), device=device)
    with ct.patch(), pytest.raises(RuntimeError, match="create_graph is True"):
        torch.autograd.functional.hessian(lambda x: F.cross_entropy(x, target), logits)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("logits_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_class_weights_of_another_dtype_beside_probabilities(weight_dtype, logits_dtype, compiled, device, seed):
    logits = torch.randn(5, 12, device=device).to(logits_dtype).requires_grad_()
    weight = torch.rand(12, device=device).to(weight_dtype)
    for target in (torch.rand(5, 12, device=device).softmax(1), torch.rand(5, 12, device=device).to(logits_dtype)):
        expected = F.cross_entropy(logits, target, weight)
        with ct.patch():
            torch.compiler.reset()
            call = F.cross_entropy
            if compiled:
                call = torch.compile(lambda *given: F.cross_entropy(*given), backend="aot_eager", fullgraph=True)
            made = call(logits, target, weight)
        rounded = {"rtol": 2e-2, "atol": 1e-2} if logits_dtype is torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-6}
        torch.testing.assert_close(made, expected, **rounded)


@pytest.fixture
def _rules_alone():
    """vmap raises for operators without a rule, where it would call them once for each of the batch."""
    torch._C._functorch._set_vmap_fallback_enabled(False)
    yield
    torch._C._functorch._set_vmap_fallback_enabled(True)


@pytest.mark.usefixtures("_rules_alone")
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("patched", [False, True])
def test_softmax_has_a_rule_for_vmap(patched, name, device, seed):
    x = torch.randn(4, 5, 6, device=device)
    expected = getattr(torch, name)

    def both(of, x, **dims):
        function = getattr(F, name) if patched else getattr(ct, name)
        made = torch.func.vmap(lambda z: of(function, z), **dims)(x)
        torch.testing.assert_close(made, torch.func.vmap(lambda z: of(expected, z), **dims)(x))

    with ct.patch() if patched else contextlib.nullcontext():
        for dim in (0, 1, -1, -2):
            both(lambda f, z, dim=dim: f(z, dim), x)
            both(lambda f, z, dim=dim: f(z, dim), x, in_dims=2, out_dims=1)
        both(lambda f, z: torch.func.vmap(lambda y: f(y, 0))(z), x)
        both(lambda f, z: f(z, 0), x[0, 0])  # of numbers
        function = getattr(F, name) if patched else getattr(ct, name)
        with pytest.raises(IndexError, match="dim"):
            torch.func.vmap(lambda z: function(z, 2))(x)


def test_scripts_of_modules_take_torchs(device, seed):
    logits, target = torch.randn(5, 12, device=device), torch.randint(0, 12, (5,), device=device)
    with ct.patch():
        loss = torch.jit.script(torch.nn.CrossEntropyLoss())
        for module in (torch.nn.Softmax(1), torch.nn.LogSoftmax(1)):
            torch.testing.assert_close(torch.jit.script(module)(logits), module(logits))
    torch.testing.assert_close(loss(logits, target), F.cross_entropy(logits, target))
