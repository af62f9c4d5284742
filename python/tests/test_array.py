"""ce.array: NumPy on the host device; CuPy, JAX, Numba and PyTorch on a GPU where they are installed."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import ce.array
from ce import _c
from ce._contexts import stream_handle
from conftest import HAS_GPU, needs_gpu


@pytest.fixture(scope="module")
def host():
    with ce.array.Context("host", policy="lookup") as context:
        yield context


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def test_softmax_of_many_layouts(host, seed):
    random = np.random.default_rng(seed)
    whole = random.standard_normal((4, 6, 40)).astype(np.float32)
    for x in (whole, whole[:, :-1], whole[::2], whole[0, 0], whole[:, :, ::2], whole[1:2], whole[:, 2]):
        for name, expected in (("softmax", softmax(x)), ("log_softmax", np.log(softmax(x)))):
            out = np.empty(x.shape, np.float32)
            assert getattr(ce.array, name)(x, out=out, context=host) is out
            np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    itself = whole.copy()
    ce.array.softmax(itself, out=itself, context=host)
    np.testing.assert_allclose(itself, softmax(whole), rtol=1e-5)


def test_half_precision(host, seed):
    x = np.random.default_rng(seed).standard_normal((5, 64)).astype(np.float16)
    out = ce.array.softmax(x, out=np.empty_like(x), context=host)
    np.testing.assert_allclose(out.astype(np.float64), softmax(x.astype(np.float64)), rtol=2e-3)


def test_gradients_of_softmax(host, seed):
    random = np.random.default_rng(seed)
    y, dy = softmax(random.standard_normal((3, 30))).astype(np.float32), random.standard_normal((3, 30), np.float32)
    out = ce.array.softmax_backward(dy, y, out=np.empty_like(y), context=host)
    np.testing.assert_allclose(out, y * (dy - (dy * y).sum(-1, keepdims=True)), atol=1e-6)
    out = ce.array.log_softmax_backward(dy, np.log(y), out=np.empty_like(y), context=host)
    np.testing.assert_allclose(out, dy - y * dy.sum(-1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy(host, reduction, seed):
    random = np.random.default_rng(seed)
    logits = random.standard_normal((2, 3, 50)).astype(np.float32)
    target = random.integers(0, 50, (2, 3))
    target[0, 1] = -100
    counts = target != -100
    sizes = (2, 3) if reduction == "none" else ()
    loss, lse = np.empty(sizes, np.float32), np.empty((2, 3), np.float32)
    grad, argmax, hit = np.empty_like(logits), np.empty((2, 3), np.int64), np.empty((2, 3), bool)
    made = ce.array.cross_entropy(
        logits, target, loss=loss, grad=grad, lse=lse, argmax=argmax, hit=hit, reduction=reduction, context=host
    )
    assert made is loss
    p = softmax(logits.astype(np.float64))
    losses = np.where(counts, -np.log(np.take_along_axis(p, np.abs(target)[..., None] % 50, -1)[..., 0]), 0)
    expected = {"mean": losses.sum() / counts.sum(), "sum": losses.sum(), "none": losses}[reduction]
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    one_hot = (np.arange(50) == target[..., None]).astype(np.float64)
    wanted = (p - one_hot) * counts[..., None] / (counts.sum() if reduction == "mean" else 1)
    np.testing.assert_allclose(grad, wanted, atol=1e-6)
    np.testing.assert_array_equal(argmax, logits.argmax(-1))
    np.testing.assert_array_equal(hit, (logits.argmax(-1) == target) & counts)
    later = ce.array.cross_entropy_backward(
        logits, target, lse, grad=np.empty_like(logits), reduction=reduction, context=host
    )
    np.testing.assert_allclose(later, wanted, atol=1e-6)
    soft = ce.array.cross_entropy(logits, softmax(logits), loss=loss, reduction=reduction, context=host)
    assert np.isfinite(soft).all()


def test_what_rows_have_of_their_own(host, seed):
    """Log-probabilities, entropies, weights, scales, a divisor, token scaling, other gradients; in one pass and two."""
    random = np.random.default_rng(seed)
    logits = random.standard_normal((2, 3, 50)).astype(np.float32)
    target = random.integers(0, 50, (2, 3))
    row_weight, row_scale, of_entropy, of_lse = (random.random((2, 3), np.float32) + 0.1 for _ in range(4))
    divisor = np.array(5, np.float32)
    rows = {name: np.empty((2, 3), np.float32) for name in ("lse", "logprob", "entropy")}
    loss, grad = np.empty((), np.float32), np.empty_like(logits)
    shared = {
        "row_weight": row_weight,
        "row_scale": row_scale,
        "divisor": divisor,
        "token_scaling": 0.5,
        "context": host,
    }
    upstreams = {"entropy_upstream": of_entropy, "lse_upstream": of_lse}
    with_grad = {"grad": grad, **shared, **upstreams}
    ce.array.cross_entropy(logits, target, loss=loss, **rows, **shared)
    p = softmax(logits.astype(np.float64) * row_scale[..., None])
    logprob = np.log(np.take_along_axis(p, target[..., None], -1)[..., 0])
    entropy = -(p * np.log(p)).sum(-1)
    np.testing.assert_allclose(rows["logprob"], logprob, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rows["entropy"], entropy, rtol=1e-5, atol=1e-6)
    factor = row_weight * np.exp(0.5 * logprob) / 5
    np.testing.assert_allclose(loss, -(factor * logprob).sum(), rtol=1e-5)
    one_hot = (np.arange(50) == target[..., None]).astype(np.float64)
    wanted = factor[..., None] * (p - one_hot) + of_lse[..., None] * p
    wanted -= of_entropy[..., None] * p * (np.log(p) + entropy[..., None])
    wanted *= row_scale[..., None]
    ce.array.cross_entropy(logits, target, loss=loss, **with_grad)
    np.testing.assert_allclose(grad, wanted, atol=1e-6)
    later = ce.array.cross_entropy_backward(
        logits,
        target,
        rows["lse"],
        grad=np.empty_like(logits),
        logprob=rows["logprob"],
        entropy=rows["entropy"],
        **upstreams,
        **shared,
    )
    np.testing.assert_allclose(later, wanted, atol=1e-6)


def test_a_backward_that_knows_what_the_logsumexp_lost_is_as_exact_as_one_pass(host, seed):
    logits = np.random.default_rng(seed).standard_normal((5, 40)).astype(np.float32) + np.float32(1e4)
    target = np.arange(5)
    rows = {name: np.empty(5, np.float32) for name in ("loss", "lse", "lse_low", "logprob")}
    ce.array.cross_entropy(logits, target, reduction="none", **rows, context=host)
    wide = logits.astype(np.float64)
    exact = wide.max(1) + np.log(np.exp(wide - wide.max(1, keepdims=True)).sum(1))
    np.testing.assert_allclose(rows["lse"].astype(np.float64) + rows["lse_low"], exact, rtol=0, atol=1e-5)
    expected = softmax(wide)
    expected[range(5), target] -= 1
    shared = {"reduction": "sum", "logprob": rows["logprob"], "context": host}
    errors = []
    for more in ({}, {"lse_low": rows["lse_low"]}):
        grad = np.empty_like(logits)
        ce.array.cross_entropy_backward(logits, target, rows["lse"], grad=grad, **shared, **more)
        errors.append(np.abs(grad - expected).max())
    assert errors[1] < 1e-6 < errors[0], errors


def test_structs_are_those_of_the_header():
    header = (Path(__file__).parents[2] / "include" / "ce" / "ce.h").read_text()
    for struct, own in {
        "ce_cross_entropy_options": ce.array._CrossEntropyOptions,
        "ce_cross_entropy_backward_options": ce.array._CrossEntropyOptions,
        "ce_cross_entropy_tensors": ce.array._CrossEntropyTensors,
        "ce_cross_entropy_backward_tensors": ce.array._CrossEntropyBackwardTensors,
        "ce_softmax_tensors": ce.array._SoftmaxTensors,
        "ce_softmax_backward_tensors": ce.array._SoftmaxBackwardTensors,
        "ce_tensor": _c.Tensor,
    }.items():
        (body,) = re.findall(r"typedef struct " + struct + r" \{(.*?)\n\}", header, re.DOTALL)
        fields = re.findall(r"(\w+);", re.sub(r"//.*", "", body))
        assert [name for name, *_ in own._fields_] == fields, struct


def test_targets_out_of_range(host):
    logits, target = np.zeros((2, 4), np.float32), np.array([1, 9])
    ce.array.cross_entropy(logits, target, loss=np.empty((), np.float32), context=host)
    with pytest.raises(IndexError, match="the first is row 1 with target 9"):
        host.check()


def test_the_cpu_is_for_who_asks_for_it(monkeypatch):
    x = np.zeros((2, 3), np.float32)
    monkeypatch.delenv("CE_DEVICE", raising=False)
    with pytest.raises(ValueError, match="the arrays are on the CPU; expected a GPU, or a Context"):
        ce.array.softmax(x, out=x)
    monkeypatch.setenv("CE_DEVICE", "host")
    ce.array.softmax(x, out=x)
    assert x.sum() == pytest.approx(2)


def test_a_context_is_closed_once():
    context = ce.array.Context("host", policy="frozen")
    assert context.device == "host"
    x = np.zeros((2, 77), np.float32)
    with pytest.raises(ce.array.NotTuned):
        ce.array.softmax(x, out=x, context=context)
    assert context.compiled == 0
    context.close()
    context.close()
    with pytest.raises(ValueError, match="closed"):
        ce.array.softmax(x, out=x, context=context)


BAD = {
    "no array": (TypeError, "input is a list", lambda x, c: ce.array.softmax([[1.0]], out=x, context=c)),
    "dtype": (
        TypeError,
        "input is of float64; expected float32",
        lambda x, c: ce.array.softmax(x.astype(np.float64), out=x, context=c),
    ),
    "two dtypes": (
        TypeError,
        r"out\.dtype is f32; expected f16",
        lambda x, c: ce.array.softmax(x.astype(np.float16), out=x, context=c),
    ),
    "sizes": (
        ValueError,
        r"out has sizes \(4, 8\); expected \(2, 8\)",
        lambda x, c: ce.array.softmax(x[:2], out=x, context=c),
    ),
    "three strides": (
        ValueError,
        "three strides",
        lambda x, c: ce.array.softmax(np.zeros((4, 6, 4, 8), np.float32)[::2, ::3, ::2], out=x, context=c),
    ),
    "gaps": (
        ValueError,
        "loss has gaps",
        lambda x, c: ce.array.cross_entropy(
            x, np.zeros(4, np.int64), loss=np.zeros(8, np.float32)[::2], reduction="none", context=c
        ),
    ),
    "reduction": (
        ValueError,
        "reduction is 'avg'",
        lambda x, c: ce.array.cross_entropy(x, np.zeros(4, np.int64), loss=x[0, :1], reduction="avg", context=c),
    ),
    "no input": (TypeError, "input is a NoneType; expected an array", lambda x, c: ce.array.softmax(None, out=x)),
    "byte order": (
        ValueError,
        r"^ce\.array\.softmax: input cannot be exported through DLPack by its library: .*native byte order",
        lambda x, c: ce.array.softmax(x.astype(">f4"), out=x, context=c),
    ),
    "tensor with a gradient": (
        ValueError,
        r"^ce\.array\.softmax: input cannot be exported through DLPack by its library: .*gradient",
        lambda x, c: ce.array.softmax(torch.from_numpy(x).requires_grad_(), out=x, context=c),
    ),
    "array of streams": (
        TypeError,
        "stream is of type ndarray; expected a CUDA stream",
        lambda x, c: ce.array.softmax(x, out=x, stream=np.zeros(2, np.int64), context=c),
    ),
    "array of reductions": (
        ValueError,
        "reduction is array",
        lambda x, c: ce.array.cross_entropy(x, np.zeros(4, np.int64), loss=x[0, :1], reduction=x, context=c),
    ),
    "stream": (TypeError, "stream is 'now'", lambda x, c: ce.array.softmax(x, out=x, stream="now", context=c)),
    "policy": (ValueError, "policy is 'now'", lambda x, c: ce.array.Context("host", policy="now")),
    "list of policies": (ValueError, r"policy is \['tune'\]", lambda x, c: ce.array.Context("host", policy=["tune"])),
    "number as database": (
        TypeError,
        "database is 5; expected a path",
        lambda x, c: ce.array.Context("host", database=5),
    ),
    "device": (ValueError, "device", lambda x, c: ce.array.Context("tpu")),
    "device's type": (TypeError, "device is 1; expected 'cuda'", lambda x, c: ce.array.Context(1)),
    "seconds": (TypeError, "tuning_seconds is '2'", lambda x, c: ce.array.Context("host", tuning_seconds="2")),
    "negative seconds": (ValueError, "tuning_seconds is -3", lambda x, c: ce.array.Context("host", tuning_seconds=-3)),
    "products": (
        TypeError,
        "nondeterministic_products is 2",
        lambda x, c: ce.array.Context("host", nondeterministic_products=2),
    ),
    "bytes": (TypeError, "capture_bytes is 2.5", lambda x, c: ce.array.Context("host", capture_bytes=2.5)),
    "context": (TypeError, "context is 'host'; expected", lambda x, c: ce.array.softmax(x, out=x, context="host")),
    "stream's sign": (ValueError, "stream is -1", lambda x, c: ce.array.softmax(x, out=x, stream=-1, context=c)),
    "stream's type": (TypeError, "stream is True", lambda x, c: ce.array.softmax(x, out=x, stream=True, context=c)),
    "no stream": (TypeError, "stream is '7'", lambda x, c: ce.array.softmax(x, out=x, stream="7", context=c)),
    "backward": (
        ValueError,
        r"softmax_backward: output_grad has sizes \(4, 8\)",
        lambda x, c: ce.array.softmax_backward(x, x[:2], out=x, context=c),
    ),
    "out of a backward": (
        ValueError,
        "out is not given; expected 4 x 8 elements, like output_grad",
        lambda x, c: ce.array.softmax_backward(x, x, out=None, context=c),
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_refuses(host, case):
    kind, message, call = BAD[case]
    with pytest.raises(kind, match=message):
        call(np.zeros((4, 8), np.float32), host)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"ignore_index": 2.0}, TypeError, "ignore_index is 2.0; expected an integer"),
        ({"ignore_index": 2**63}, ValueError, "expected an integer of 64 bits"),
        ({"label_smoothing": 2}, ValueError, "label_smoothing is 2; expected 0 to 1"),
        ({"label_smoothing": "much"}, TypeError, "label_smoothing is 'much'; expected a number"),
        ({"ignore_index": np.zeros(2, int)}, TypeError, "ignore_index is of type ndarray; expected an integer"),
        ({"z_loss": np.zeros(2)}, TypeError, "z_loss is of type ndarray; expected a number"),
        ({"z_loss": 10**400}, ValueError, "z_loss is 1000.*; expected a number of 64 bits"),
        ({"softcap": -1.0}, ValueError, "softcap is -1"),
        ({"loss": np.zeros(2, "f4")}, ValueError, r"loss has sizes \(2,\); expected one element"),
        ({"reduction": "none"}, ValueError, r"loss has sizes \(\); expected \(3, 2\)"),
        ({"loss": np.zeros((), "i8")}, TypeError, "loss.dtype is i64"),
        ({"grad": np.zeros((2, 3, 8), "f4")}, ValueError, r"grad has sizes \(2, 3, 8\); expected \(3, 2, 8\)"),
        ({"lse": np.zeros((2, 3), "f4")}, ValueError, r"lse has sizes \(2, 3\); expected \(3, 2\)"),
        ({"lse": np.zeros((3, 2), "f2")}, TypeError, "lse.dtype is f16; expected f32"),
        ({"argmax": np.zeros((3, 2), "i4")}, TypeError, "argmax.dtype is i32; expected i64"),
        ({"hit": np.zeros(6, "?")}, ValueError, r"hit has sizes \(6,\); expected \(3, 2\)"),
        ({"weight": np.ones(7, "f4")}, ValueError, r"weight has sizes \(7,\); expected \(8,\)"),
        ({"target": np.ones((3, 2), "u1")}, TypeError, "target.dtype is u8"),
        ({"target": np.ones((2, 3), "i8")}, ValueError, r"target has sizes \(2, 3\); expected \(3, 2\)"),
        ({"target": np.ones((3, 2, 7), "f4")}, ValueError, r"target has sizes \(3, 2, 7\); expected \(3, 2, 8\)"),
        ({"upstream": np.ones((2, 3), "f4")}, ValueError, r"upstream has sizes \(2, 3\); expected \(3, 2\)"),
        ({"z_loss_out": np.zeros((), "f4")}, ValueError, "z_loss"),
    ],
)
def test_cross_entropy_refuses_and_writes_nothing(host, given, error, message):
    arguments = {"target": np.ones((3, 2), "i8"), "loss": np.full((), 7, "f4"), **given}
    before = arguments["loss"].copy()
    with pytest.raises(error, match=message):
        ce.array.cross_entropy(np.ones((3, 2, 8), "f4"), context=host, **arguments)
    np.testing.assert_array_equal(arguments["loss"], before)


def test_nothing_and_little(host):
    loss = np.zeros(1, np.float32)
    for sizes in ((0, 5), (2, 0, 5), (2, 0), (0,)):
        nothing = np.empty(sizes, np.float32)
        assert ce.array.softmax(nothing, out=nothing, context=host) is nothing
    ce.array.cross_entropy(np.empty((0, 5), np.float32), np.empty(0, np.int64), loss=loss, context=host)
    assert np.isnan(loss[0])
    row = np.array([1, 2, 3], np.float32)
    ce.array.cross_entropy(row, np.array(2), loss=loss, context=host)
    np.testing.assert_allclose(loss[0], -np.log(softmax(row)[2]), rtol=1e-6)
    column = np.ones((4, 1), np.float32)
    ce.array.log_softmax(column, out=column, context=host)
    np.testing.assert_array_equal(column, 0)
    ce.array.cross_entropy(row, np.array(1), loss=loss, ignore_index=np.int64(1), context=host)


def test_views_are_written_where_they_are(host, seed):
    x = np.random.default_rng(seed).standard_normal((4, 6, 64), np.float32)
    for index in (np.s_[:, ::2], np.s_[1:, :-1, 3:], np.s_[:, 1, :], np.s_[:1, ::3], np.s_[:, :, ::2]):
        y = np.full((4, 6, 64), 7, np.float32)
        ce.array.softmax(x[index], out=y[index], context=host)
        np.testing.assert_allclose(y[index], softmax(x[index]), rtol=1e-5)
        y[index] = 7
        np.testing.assert_array_equal(y, 7)


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (None, 0),
        (7, 7),
        (np.int64(7), 7),
        (SimpleNamespace(ptr=7), 7),
        (SimpleNamespace(cuda_stream=8), 8),
        (SimpleNamespace(handle=ctypes.c_void_p(8)), 8),
        (SimpleNamespace(handle=ctypes.c_void_p(0)), 0),
        (SimpleNamespace(__cuda_stream__=lambda: (0, 9), ptr=1), 9),
        (SimpleNamespace(__cuda_stream__=(0, 9)), 9),
    ],
)
def test_streams(stream, handle):
    assert stream_handle("f", stream) == handle


def test_the_host_device_is_never_taken_unasked(monkeypatch):
    if HAS_GPU:
        pytest.skip("there is a GPU")
    monkeypatch.delenv("CE_DEVICE", raising=False)
    with pytest.raises(RuntimeError, match="there is no GPU; for tests, the device 'host' runs kernels on the CPU"):
        ce.array.Context()
    monkeypatch.setenv("CE_DEVICE", "host")
    ce.array.Context().close()


ALONE = """
    import os, sys

    sys.modules["numpy"] = sys.modules["torch"] = None
    import ce.array

    kept = ce.array.Context("host")
    ce.array.check("host")
    child = os.fork()
    if child == 0:
        kept.close()
        ce.array.check("host")
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_needs_no_other_package_and_children_make_contexts_of_their_own(tmp_path):
    script = tmp_path / "alone.py"
    script.write_text(textwrap.dedent(ALONE))
    paths = [str(Path(_c.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "CE_DEVICE": "host", "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def test_refuses_to_write_what_is_read_only(host):
    class ReadOnly:
        """An array whose export says that it is not to be written."""

        def __init__(self, array):
            self.array = array

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        def __dlpack__(self, **options):
            self.array.flags.writeable = False
            try:
                return self.array.__dlpack__(**options)
            finally:
                self.array.flags.writeable = True

    x = np.zeros((2, 3), np.float32)
    try:
        ReadOnly(x).__dlpack__(max_version=(1, 0))
    except (TypeError, BufferError):
        pytest.skip("this NumPy does not export what is read-only")
    with pytest.raises(ValueError, match="out cannot be written"):
        ce.array.softmax(x, out=ReadOnly(x), context=host)
    ce.array.softmax(ReadOnly(x), out=x, context=host)


def test_nothing_is_kept(host):
    """Each export is given back once, also where the call is refused."""
    x = np.zeros((2, 3), np.float32)
    before = sys.getrefcount(x)
    for _ in range(5):
        ce.array.softmax(x, out=x, context=host)
        with pytest.raises(ValueError):
            ce.array.softmax(x, out=np.zeros((1, 3), np.float32), context=host)
    gc.collect()
    assert sys.getrefcount(x) == before


@needs_gpu
def test_torch_on_a_stream(seed):
    import torch

    stream = torch.cuda.Stream()
    x = torch.randn(64, 3000, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)
    stream.wait_stream(torch.cuda.current_stream())
    ce.array.softmax(x, out=y, stream=stream)
    stream.synchronize()
    torch.testing.assert_close(y, torch.softmax(x, -1), rtol=0.02, atol=1e-4)


@needs_gpu
def test_cupy(seed):
    cupy = pytest.importorskip("cupy")
    x = cupy.random.default_rng(seed).standard_normal((32, 500), dtype=cupy.float32)
    y, stream = cupy.empty_like(x), cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    ce.array.softmax(x, out=y, stream=stream)
    stream.synchronize()
    np.testing.assert_allclose(cupy.asnumpy(y), softmax(cupy.asnumpy(x)), rtol=1e-5, atol=1e-7)


@needs_gpu
def test_jax_is_read_and_not_written(seed):
    jax = pytest.importorskip("jax")
    import torch

    if not any(device.platform == "gpu" for device in jax.devices()):
        pytest.skip("this JAX has no GPU")
    x = jax.random.normal(jax.random.PRNGKey(seed % 1000), (16, 300))
    y = torch.empty(16, 300, device="cuda")
    ce.array.softmax(x, out=y)
    torch.cuda.synchronize()
    np.testing.assert_allclose(y.cpu().numpy(), softmax(np.asarray(x)), rtol=1e-5, atol=1e-7)
    with pytest.raises(ValueError, match="cannot be written"):
        ce.array.softmax(x, out=x)


@needs_gpu
def test_numba(seed):
    cuda = pytest.importorskip("numba.cuda")
    x = np.random.default_rng(seed).standard_normal((8, 200)).astype(np.float32)
    array = cuda.to_device(x)
    if not hasattr(array, "__dlpack__"):
        pytest.skip("this Numba does not speak DLPack")
    ce.array.softmax(array, out=array)
    cuda.synchronize()
    np.testing.assert_allclose(array.copy_to_host(), softmax(x), rtol=1e-5, atol=1e-7)


def test_names_of_devices():
    if not HAS_GPU:
        with pytest.raises(RuntimeError):
            ce.array.Context("cuda:0")
    assert _c.CONTIGUOUS == -(2**63)
