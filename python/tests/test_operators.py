"""torch.ops.ce.*: schemas, fake tensors, autograd, compilers, graphs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

import ce.torch as ct
from ce.torch import _native
from ce.torch._reference import FLAGS, Options, flags_of
from ce.torch.integrations import flash_attn
from conftest import HAS_GPU, needs_gpu

SHOWN = Options(reduction=0, label_smoothing=0.1, z_loss=1e-3, softcap=5.0, logit_scale=0.5)
SCALED = SHOWN._replace(softcap=0.0, token_scaling=1.0)
# row_weight, row_scale, divisor; options
PLAIN, ALL_OPTIONS = (None, None, None, *Options()), (None, None, None, *SHOWN)
NOTHING, EVERYTHING = flags_of(), flags_of(*FLAGS)
OF_LOSS, OF_ROWS = flags_of("f32_loss", "z_loss", "argmax", "hit"), flags_of("f32_loss", "logprob", "entropy")
OF_GIVEN_LSE = SHOWN._replace(label_smoothing=0.0, token_scaling=1.0)
# logprob, entropy, entropy_upstream, lse_upstream
FROM_LSE = (None,) * 5


def samples(device: torch.device) -> list[tuple[str, tuple]]:
    def rows(requires_grad: bool = False, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(4, 24, device=device).to(dtype).requires_grad_(requires_grad)

    target = torch.tensor([3, -100, 0, 23], device=device)
    weight, lse = torch.rand(24, device=device), torch.randn(4, device=device) + 4
    one, each = torch.rand((), device=device), torch.rand(4, device=device)
    saved = (-each, 1e-7 * each, each + 2, each - 0.5, 1 - each)
    found: list[tuple[str, tuple]] = []
    for name in ("softmax", "log_softmax"):
        found += [
            (name, (rows(True), 1)),
            (name, (rows(True, torch.bfloat16), 0)),
            (name, (torch.randn(2, 5, 3, device=device).transpose(1, 2), 1)),
            (name + "_out", (rows(), 1, rows())),
            (name + "_", (rows(), 1)),
            (name + "_backward", (rows(), rows(), 1)),
            (name + "_backward_out", (rows(), rows(), 1, rows())),
        ]
    found += [
        ("cross_entropy", (rows(True), target, None, *PLAIN, *NOTHING)),
        ("cross_entropy", (rows(True), target, weight, *ALL_OPTIONS, *EVERYTHING)),
        ("cross_entropy", (rows(True), torch.rand(4, 24, device=device), None, *PLAIN, *NOTHING)),
        (
            "cross_entropy",
            (
                torch.randn(2, 7, 3, device=device, requires_grad=True),
                target[[0, 2]].new_zeros(2, 3),
                None,
                *PLAIN,
                *NOTHING,
            ),
        ),
        ("cross_entropy_loss", (rows(), target, None, *PLAIN, True)),
        ("cross_entropy_loss_and_grad", (rows(), target, weight, one, *PLAIN, False)),
        ("_cross_entropy_of_classes", (rows(), target, True)),
        ("_cross_entropy_of_classes", (rows(dtype=torch.bfloat16), target, False, -100, 0, 0.1)),
        ("_cross_entropy_of_classes_and_grad", (rows(dtype=torch.bfloat16), target, True, -100, 2, 0.1)),
        ("cross_entropy_with_grad", (rows(), target, None, one, *PLAIN, *NOTHING)),
        ("cross_entropy_with_grad", (rows(), target, weight, each, *ALL_OPTIONS, *OF_LOSS)),
        ("cross_entropy_with_grad_", (rows(), target, None, None, *PLAIN, *NOTHING)),
        ("cross_entropy_backward", (rows(), target, None, lse, one, *FROM_LSE, *PLAIN)),
        ("cross_entropy_backward_", (rows(), target, weight, lse, each, *FROM_LSE, *ALL_OPTIONS)),
        ("cross_entropy", (rows(True), target, None, each, each + 0.5, None, *SCALED, *EVERYTHING)),
        ("cross_entropy", (rows(True), target, weight, None, None, one, *PLAIN[3:], *NOTHING)),
        ("cross_entropy_loss", (rows(), target, None, each, None, one, *PLAIN[3:], False)),
        ("cross_entropy_with_grad", (rows(), target, None, each, each, each + 0.5, None, *SCALED, *OF_ROWS)),
        ("cross_entropy_backward", (rows(), target, None, lse, each, *saved, each, each + 0.5, None, *SCALED)),
        ("cross_entropy_from_lse", (rows(True), target, weight, lse, *PLAIN, False, False)),
        (
            "cross_entropy_from_lse",
            (rows(True), target, None, lse, each, None, None, *OF_GIVEN_LSE, True, True),
        ),
        ("scale_gradient_", (rows(), one)),
    ]
    permuted, shares = (torch.randn(2, 3, 4, 5, device=device).transpose(2, 3) for _ in range(2))
    classes = target.new_zeros(2, 5, 4)
    found += [
        ("softmax", (permuted.detach().requires_grad_(), 1)),
        ("softmax_out", (permuted, 1, torch.randn(2, 4, 3, 5, device=device).permute(0, 2, 3, 1))),
        ("log_softmax_backward", (shares, permuted, 2)),
        ("cross_entropy", (permuted.detach().requires_grad_(), classes, None, *PLAIN, *NOTHING)),
        ("cross_entropy_with_grad", (permuted, shares.softmax(1), None, one, *PLAIN, *NOTHING)),
        ("cross_entropy_with_grad_", (permuted.detach().clone(), classes, None, None, *PLAIN, *NOTHING)),
        ("scale_gradient_", (torch.randn(3, 4, 5, device=device)[:, :3, ::2], one)),
    ]
    return found


NAMES = [f"{index}-{name}" for index, (name, _) in enumerate(samples(torch.device("cpu")))]


@pytest.mark.parametrize("cpu", ["host", "torch"])
@pytest.mark.parametrize("index", range(len(NAMES)), ids=NAMES)
def test_opcheck(index, cpu, device, seed):
    if device.type == "cuda" and cpu == "torch":
        pytest.skip("of the CPU")
    before = ct.configure(cpu=cpu)
    try:
        name, arguments = samples(device)[index]
        torch.library.opcheck(getattr(torch.ops.ce, name).default, arguments)
    finally:
        ct.restore(before)


def test_the_cpu_computes_the_same_either_way(seed):
    """Every operator on the host device, and in operations of torch."""
    made = []
    for cpu in ("host", "torch"):
        before = ct.configure(cpu=cpu)
        torch.manual_seed(5)
        results = []
        for name, arguments in samples(torch.device("cpu")):
            arguments = tuple(a.detach().clone() if isinstance(a, torch.Tensor) else a for a in arguments)
            if "cross_entropy_backward" in name:  # whose logsumexp and the like are to be those of its logits
                options = Options(*arguments[13:])
                z = ct._reference.transformed(arguments[0], options, arguments[11])
                lse = torch.logsumexp(z, 1)
                ignored = arguments[1] == -100
                own = (
                    ct._reference.log_probability(z, arguments[1], ignored),
                    (torch.logsumexp(z.double(), 1) - lse.double()).float(),
                    ct._reference.entropy_of(z, ignored),
                )
                own = tuple(None if a is None else x for a, x in zip(arguments[5:8], own))
                arguments = (*arguments[:3], lse, arguments[4], *own, *arguments[8:])
            if name == "cross_entropy_from_lse":
                options = Options(*arguments[7:-2])
                own_lse = torch.logsumexp(ct._reference.transformed(arguments[0], options), 1)
                arguments = (*arguments[:3], own_lse, *arguments[4:])
            returned = getattr(torch.ops.ce, name)(*arguments)
            returned = returned if isinstance(returned, (tuple, list)) else (returned,)
            written = (
                [a for a in arguments if isinstance(a, torch.Tensor)] if name.endswith("_") or "out" in name else []
            )
            results.append((name, [*returned, *written]))
        made.append(results)
        ct.restore(before)
    for (name, ours), (_, torchs) in zip(*made):
        for a, b in zip(ours, torchs):
            assert (a is None) == (b is None), name
            if a is not None:
                torch.testing.assert_close(a, b, rtol=2e-2 if a.dtype is torch.bfloat16 else 1e-5, atol=1e-5, msg=name)


def language_model_loss(hidden, weight, target):
    logits = hidden @ weight.t()
    return (
        ct.cross_entropy(logits[:-1], target[1:], label_smoothing=0.1, z_loss=1e-4)
        + ct.softmax(logits, -1).square().sum()
    )


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiles_as_one_graph(backend, dynamic, device, seed):
    if backend == "inductor" and device.type == "cpu":
        pytest.skip("inductor is for the GPU: on the CPU it only shows the host compiler")
    torch.compiler.reset()
    compiled = torch.compile(language_model_loss, fullgraph=True, dynamic=dynamic, backend=backend)
    for rows in (6, 9, 13):
        hidden, weight = torch.randn(rows, 8, device=device), torch.randn(40, 8, device=device)
        target = torch.randint(0, 40, (rows,), device=device)
        results = []
        for function in (compiled, language_model_loss):
            leaves = [x.detach().clone().requires_grad_() for x in (hidden, weight)]
            loss = function(*leaves, target)
            loss.backward()
            results.append((loss.detach(), *(x.grad for x in leaves)))
        for ours, eager in zip(*results):
            torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_compiled_options_of_the_gradient(reduction, device, seed):
    """An upstream gradient multiplies the gradient alone, and a gradient in place of the logits is one of its own."""
    torch.compiler.reset()
    target = torch.randint(0, 30, (4,), device=device)
    factor = torch.rand(4 if reduction == "none" else (), device=device)

    def loss_of(logits, in_place):
        return ct.cross_entropy(logits * 2, target, reduction=reduction, upstream=factor, inplace_backward=in_place)

    results = []
    for function in (torch.compile(loss_of, fullgraph=True, backend="aot_eager"), loss_of):
        torch.manual_seed(seed)
        logits = torch.randn(4, 30, device=device, requires_grad=True)
        loss = function(logits, reduction == "mean")
        (grad,) = torch.autograd.grad(loss.sum(), logits)
        results.append((loss.detach(), grad))
    for compiled, eager in zip(*results):
        torch.testing.assert_close(compiled, eager, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", ["alone", "linear"])
def test_a_checked_call_breaks_the_graph(form, device, seed):
    torch.compiler.reset()
    weight = torch.randn(30, 30, device=device)
    leaf, target = torch.randn(4, 30, device=device, requires_grad=True), torch.randint(0, 30, (4,), device=device)
    wrong = target.clone()
    wrong[2] = 30

    def loss_of(leaf, target):
        if form == "linear":
            return ct.linear_cross_entropy(leaf * 2, weight, target, check=True) * 3
        return ct.cross_entropy(leaf * 2, target, check=True) * 3

    def of_one_graph(leaf, target):
        return loss_of(leaf, target)

    class Module(torch.nn.Module):
        def forward(self, leaf, target):
            return loss_of(leaf, target)

    compiled = torch.compile(loss_of, backend="aot_eager")
    loss, expected = compiled(leaf, target), loss_of(leaf, target)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, leaf), torch.autograd.grad(expected, leaf))
    with pytest.raises(IndexError, match="row 2 with target 30"):
        compiled(leaf, wrong)
    torch.compiler.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="check=True waits for the GPU"):
        torch.compile(of_one_graph, fullgraph=True, backend="aot_eager")(leaf, target)
    with pytest.raises(RuntimeError, match=r"cross_entropy: check is True; expected False in a graph"):
        torch.export.export(Module(), (leaf.detach(), target), strict=False)


def test_compiled_modules_under_patch(device, seed):
    torch.compiler.reset()
    logits, target = torch.randn(4, 30, device=device, requires_grad=True), torch.randint(0, 30, (4,), device=device)
    with ct.patch():
        compiled = torch.compile(torch.nn.CrossEntropyLoss(), fullgraph=True, backend="aot_eager")
        loss = compiled(logits, target)
    torch.testing.assert_close(loss, F.cross_entropy(logits, target))


def test_fake_tensors_run_no_kernel(seed):
    with FakeTensorMode():
        # torch's engine looks for the GPU of what requires a gradient.
        logits = torch.empty(8, 1000, device="cuda", dtype=torch.bfloat16, requires_grad=HAS_GPU)
        target = torch.zeros(8, dtype=torch.int64, device="cuda")
        loss = ct.cross_entropy(logits, target, loss_dtype=torch.float32)
        assert loss.shape == ()
        assert loss.dtype is torch.float32
        if HAS_GPU:
            loss.backward()
        assert ct.softmax(logits, 1).shape == (8, 1000)
    meta = torch.empty(3, 5, device="meta")
    assert ct.softmax(meta, 1).device.type == "meta"


@pytest.mark.parametrize("argument", ["target", "weight", "row_weight"])
def test_a_tensor_on_the_device_meta_among_real_ones_is_named(argument, device, seed):
    logits, target = torch.randn(3, 5, device=device), torch.randint(0, 5, (3,), device=device)
    tensors = {"target": target, "weight": torch.ones(5, device=device), "row_weight": torch.ones(3, device=device)}
    tensors[argument] = tensors[argument].to("meta")
    with pytest.raises(ValueError, match=f"cross_entropy_loss: {argument} is on meta; expected {logits.device}"):
        torch.ops.ce.cross_entropy_loss(
            logits, tensors["target"], tensors["weight"], tensors["row_weight"], None, None, *Options(), True
        )
    with pytest.raises(ValueError, match=f"{argument} is on meta"):
        ct.cross_entropy(logits, tensors.pop("target"), **tensors)


def test_a_gradient_of_a_gradient_is_refused(device, seed):
    logits = torch.randn(3, 8, device=device, requires_grad=True)
    target = torch.zeros(3, dtype=torch.int64, device=device)
    loss = torch.ops.ce.cross_entropy(logits, target, None, *PLAIN, *NOTHING)[0]
    (grad,) = torch.autograd.grad(loss, logits, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiable once"):
        grad.sum().backward()
    (grad,) = torch.autograd.grad(torch.ops.ce.softmax(logits, 1).square().sum(), logits, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiable once"):
        grad.sum().backward()


def test_derivatives_in_forward_mode_are_refused(device, seed):
    logits, target = torch.randn(3, 8, device=device), torch.zeros(3, dtype=torch.int64, device=device)
    weight = torch.randn(8, 8, device=device)
    calls = {
        "softmax": lambda x: ct.softmax(x, 1),
        "log_softmax": lambda x: ct.log_softmax(x, 0),
        "cross_entropy": lambda x: ct.cross_entropy(x, target),
        "logprobs_and_entropy": lambda x: ct.logprobs_and_entropy(x, target)[1],
        "linear_cross_entropy": lambda x: ct.linear_cross_entropy(x, weight, target),
        "linear_logprobs_and_entropy": lambda x: ct.linear_logprobs_and_entropy(x, weight, target)[0],
    }
    for name, call in calls.items():
        with torch.autograd.forward_ad.dual_level():
            call(logits)  # no tangent, nothing to refuse
            dual = torch.autograd.forward_ad.make_dual(logits, torch.ones_like(logits))
            with pytest.raises(RuntimeError, match=rf"ce\.torch\.{name} does not support derivatives in forward mode"):
                call(dual)
        with pytest.raises(RuntimeError, match=rf"ce\.torch\.{name} does not support"):
            torch.func.jvp(call, (logits,), (torch.ones_like(logits),))
    # What has no kernels is torch's, and so are its rules.
    _, tangent = torch.func.jvp(calls["softmax"], (logits.double(),), (torch.ones_like(logits).double(),))
    torch.testing.assert_close(tangent, torch.zeros_like(tangent))


def test_gradcheck_in_float32(device, seed):
    logits = torch.randn(3, 7, device=device, requires_grad=True)
    target = torch.tensor([1, 6, -100], device=device)
    options = {"eps": 1e-2, "atol": 2e-3, "rtol": 2e-2}
    for call in (
        lambda x: ct.softmax(x, 1),
        lambda x: ct.log_softmax(x, 0),
        lambda x: ct.cross_entropy(x, target, label_smoothing=0.2, softcap=4.0),
        lambda x: ct.cross_entropy(x, target, reduction="none", z_loss=0.1),
    ):
        with pytest.warns(UserWarning, match="double precision"):
            assert torch.autograd.gradcheck(call, (logits,), **options)


def test_autocast_of_the_operator(device, seed):
    logits, target = torch.randn(3, 8, device=device).bfloat16(), torch.zeros(3, dtype=torch.int64, device=device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        assert torch.ops.ce.cross_entropy(logits, target, None, *PLAIN, *NOTHING)[0].dtype is torch.float32
        assert torch.ops.ce.softmax(logits, 1).dtype is torch.float32


@needs_gpu
def test_a_graph_replays_a_step(seed):
    """Warmed up outside of the capture, as torch asks for."""
    logits = torch.randn(64, 3000, device="cuda", requires_grad=True)
    target = torch.randint(0, 3000, (64,), device="cuda")

    def step():
        loss = ct.cross_entropy(logits, target, label_smoothing=0.1)
        (grad,) = torch.autograd.grad(loss, logits)
        return loss, grad, ct.softmax(logits.detach(), 1)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss, grad, probabilities = step()
    for _ in range(3):
        with torch.no_grad():
            logits.normal_()
            target.random_(0, 3000)
        graph.replay()
        leaf = logits.detach().clone().requires_grad_()
        expected = F.cross_entropy(leaf, target, label_smoothing=0.1)
        expected.backward()
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(grad, leaf.grad, rtol=1e-4, atol=1e-7)
        torch.testing.assert_close(probabilities, torch.softmax(logits, 1))


@needs_gpu
def test_the_current_stream_is_used(seed):
    logits = torch.randn(2000, 5000, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(20):  # work that the softmax has to wait for
            logits = logits * 1.01
        ours = ct.softmax(logits, 1)
    stream.synchronize()
    torch.testing.assert_close(ours, torch.softmax(logits, 1))


@needs_gpu
def test_memory_is_of_torchs_allocator(seed):
    torch.cuda.synchronize()
    logits = torch.randn(512, 30000, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    target = torch.randint(0, 30000, (512,), device="cuda")
    ct.cross_entropy(logits, target).backward()
    kept = _native.allocated(torch.cuda.current_device())
    assert kept > 0
    logits.grad = None
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    assert before >= kept + logits.numel() * 2
    ct.cross_entropy(logits, target).backward()
    peak = torch.cuda.max_memory_allocated() - before
    assert peak <= logits.numel() * 2 + (1 << 20)  # the gradient
    logits.grad = None
    torch.cuda.reset_peak_memory_stats()
    doubled = logits * 2
    held = torch.cuda.memory_allocated()
    ct.cross_entropy(doubled, target, inplace_backward=True).backward()
    assert torch.cuda.max_memory_allocated() - held <= logits.numel() * 2 + (1 << 20)  # of the multiplication


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_scales_a_gradient_in_place(dtype, device, seed):
    """By a number of float32 or its own dtype, rounded once; by 1 not a bit of it changes."""
    whole = torch.randn(5000, device=device).to(dtype)
    for start, size in ((0, 5000), (1, 4096), (3, 7), (5, 1), (0, 0)):
        for factor in (0.37, -2.0, 0.0, float("nan"), 1.0):
            for own in (torch.float32, dtype):
                upstream = torch.tensor(factor, dtype=own, device=device)
                ours = whole.clone()
                torch.ops.ce._scale_gradient_(ours[start : start + size], upstream)
                expected = whole.clone()
                part = expected[start : start + size]
                part.copy_(part.float() * upstream.float())
                assert torch.equal(ours.nan_to_num(7), expected.nan_to_num(7)), (start, size, factor)
    odd = torch.full((40,), float("nan"), device=device).to(dtype)
    odd.view(torch.int16 if dtype.itemsize == 2 else torch.int32).add_(1)
    before = odd.clone()
    torch.ops.ce._scale_gradient_(odd, torch.ones((), device=device))
    bits = torch.int16 if dtype.itemsize == 2 else torch.int32
    assert torch.equal(odd.view(bits), before.view(bits))
    permuted = torch.randn(4, 6, 5, device=device).to(dtype).permute(2, 0, 1)
    expected = permuted * 2
    torch.ops.ce._scale_gradient_(permuted, torch.full((), 2.0, device=device))
    assert torch.equal(permuted, expected)
    with pytest.raises((ValueError, RuntimeError), match="upstream"):
        torch.ops.ce._scale_gradient_(whole, torch.ones(2, device=device))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="torch sees fewer than two GPUs")
def test_every_gpu_has_its_own_context(seed):
    """Whichever GPU is current, tensors of another go to its kernels, streams and memory."""
    for index in (1, 0):
        where = torch.device("cuda", index)
        with torch.cuda.device(1 - index):
            logits = torch.randn(40, 900, device=where, requires_grad=True)
            target = torch.randint(0, 900, (40,), device=where)
            loss = ct.cross_entropy(logits, target)
            (grad,) = torch.autograd.grad(loss, logits)
            assert torch.cuda.current_device() == 1 - index
        assert loss.device == grad.device == where
        expected = F.cross_entropy(logits, target)
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(grad, torch.autograd.grad(expected, logits)[0], rtol=1e-4, atol=1e-7)
        assert _native.allocated(index) > 0
    with pytest.raises(ValueError, match="another device"):
        ct.cross_entropy(logits, target.to("cuda:1"))


@pytest.mark.parametrize(
    "call",
    [
        lambda x, w, t: ct.softmax(x, 1),
        lambda x, w, t: ct.cross_entropy(x, t),
        lambda x, w, t: ct.cross_entropy(x, t, reduction="none", z_loss=0.1),
        lambda x, w, t: ct.cross_entropy(x * 1, t, inplace_backward=True),
        lambda x, w, t: flash_attn.cross_entropy_loss(x * 1, t, inplace_backward=True)[0],
        lambda x, w, t: ct.linear_cross_entropy(x, w, t),
        lambda x, w, t: ct.linear_cross_entropy(x, w, t, reduction="none"),
        lambda x, w, t: ct.vocab_parallel_linear_cross_entropy(x, w, t),
    ],
)
def test_several_gradients_at_once_are_those_one_after_the_other(call, device, seed):
    x, w = torch.randn(4, 6, device=device, requires_grad=True), torch.randn(6, 6, device=device)
    made = call(x, w, torch.arange(4, device=device))
    gradients = torch.randn(3, *made.shape, device=device)
    together = torch.autograd.grad(made, x, gradients, retain_graph=True, is_grads_batched=True)[0]
    each = [torch.autograd.grad(made, x, one, retain_graph=True)[0] for one in gradients]
    torch.testing.assert_close(together, torch.stack(each))


def test_ranks_refuse_several_gradients_at_once_and_transforms(device):
    x, w = torch.randn(4, 6, device=device, requires_grad=True), torch.randn(6, 6, device=device)
    target = torch.arange(4, device=device)
    for call, name in (
        (lambda x: ct.vocab_parallel_cross_entropy(x, target, reduction="none"), "vocab_parallel_cross_entropy"),
        (
            lambda x: ct.vocab_parallel_linear_cross_entropy(x, w, target, reduction="none"),
            "vocab_parallel_linear_cross_entropy",
        ),
    ):
        with pytest.raises(RuntimeError, match=rf"ce\.torch\.{name} does not support is_grads_batched=True"):
            torch.autograd.grad(call(x), x, torch.ones(2, 4, device=device), is_grads_batched=True)
        with pytest.raises(RuntimeError, match=rf"ce\.torch\.{name} does not support the transforms of torch.func"):
            torch.func.grad(lambda x, call=call: call(x).sum())(x.detach())
        with (
            torch.autograd.forward_ad.dual_level(),
            pytest.raises(RuntimeError, match=rf"ce\.torch\.{name} does not support derivatives in forward mode"),
        ):
            call(torch.autograd.forward_ad.make_dual(x.detach(), x.detach()))
