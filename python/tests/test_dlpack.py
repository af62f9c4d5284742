"""The protocol of ce.array with a producer whose every field is the test's."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import ce.array
from ce import _dlpack


@pytest.fixture(scope="module")
def host():
    with ce.array.Context("host", policy="lookup") as context:
        yield context


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))


class Producer:
    """Exports a NumPy array as the test says, and counts how often it is given back."""

    def __init__(self, array, *, versioned=True, major=1, flags=0, strides=True, offset=0, device=(1, 0), **dtype):
        self.array, self.versioned, self.major, self.flags = array, versioned, major, flags
        self.has_strides, self.offset, self.device = strides, offset, device
        codes = {"f": 2, "i": 0, "u": 1, "b": 6}
        self.dtype = {"code": codes[array.dtype.kind], "bits": array.dtype.itemsize * 8, "lanes": 1, **dtype}
        self.exported = self.released = 0
        self.stream = None
        self.capsule = None
        self._kept = []  # what each export points to
        self._delete = _dlpack._Deleter(self._count)

    def _count(self, address):
        assert address in [ctypes.addressof(managed) for managed, *_ in self._kept]
        self.released += 1

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, **keywords):
        if not self.versioned and keywords:
            raise TypeError("unexpected keyword")
        self.exported += 1
        self.stream = stream
        array = self.array
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        strides = (ctypes.c_int64 * array.ndim)(*(stride // array.itemsize for stride in array.strides))
        tensor = _dlpack._Tensor(
            data=array.ctypes.data - self.offset,
            device=_dlpack._Device(*self.device),
            ndim=array.ndim,
            shape=shape,
            strides=strides if self.has_strides else None,
            byte_offset=self.offset,
            dtype=_dlpack._DType(**self.dtype),
        )
        deleter = ctypes.cast(self._delete, ctypes.c_void_p)
        if self.versioned:
            managed = _dlpack._ManagedVersioned(
                major=self.major, minor=9, deleter=deleter, flags=self.flags, tensor=tensor
            )
        else:
            managed = _dlpack._Managed(deleter=deleter, tensor=tensor)
        name = b"dltensor_versioned" if self.versioned else b"dltensor"
        self._kept.append((managed, shape, strides, name))
        self.capsule = _new(ctypes.addressof(managed), name, None)
        return self.capsule


@pytest.mark.parametrize("versioned", [False, True])
def test_a_capsule_is_used_once_and_given_back_once(versioned, host, seed):
    x, y = np.random.default_rng(seed).normal(size=(3, 20)).astype("f4"), np.empty((3, 20), "f4")
    reads, writes = (Producer(array, versioned=versioned, offset=16) for array in (x, y))
    ce.array.softmax(reads, out=writes, context=host)
    np.testing.assert_allclose(y, softmax(x), rtol=2e-6)
    for producer in (reads, writes):
        assert (producer.exported, producer.released) == (1, 1)
        assert _name(producer.capsule) == (b"used_dltensor_versioned" if versioned else b"used_dltensor")


def test_every_array_of_a_loss_is_exported_and_given_back_once(host):
    arrays = {
        "logits": np.ones((2, 8), "f4"), "target": np.array([1, 9]), "weight": np.ones(8, "f4"),
        "upstream": np.ones((), "f4"), "loss": np.empty((), "f4"), "grad": np.empty((2, 8), "f4"),
        "lse": np.empty(2, "f4"), "argmax": np.empty(2, "i8"), "hit": np.empty(2, "?"),
        "z_loss_out": np.empty((), "f4"),
    }  # fmt: skip
    producers = {name: Producer(array) for name, array in arrays.items()}
    ce.array.cross_entropy(**producers, z_loss=0.1, context=host)
    assert {(one.exported, one.released) for one in producers.values()} == {(1, 1)}
    probabilities = Producer(np.full((2, 8), 1 / 8, "f4"))
    ce.array.cross_entropy(producers["logits"], probabilities, loss=producers["loss"], context=host)
    assert (probabilities.exported, probabilities.released) == (1, 1)
    with pytest.raises(IndexError):
        host.check()


def test_no_strides_are_those_of_a_dense_array(host, seed):
    x, y = np.random.default_rng(seed).normal(size=(2, 3, 20)).astype("f4"), np.empty((2, 3, 20), "f4")
    ce.array.softmax(Producer(x, strides=False), out=Producer(y, strides=False), context=host)
    np.testing.assert_allclose(y, softmax(x), rtol=2e-6)


def test_bfloat16(host):
    ones = np.full((2, 4), 0x3F80, "u2")  # the upper half of a float32 of 1
    producer = Producer(ones, code=4)
    ce.array.softmax(producer, out=producer, context=host)
    np.testing.assert_array_equal(ones, 0x3E80)  # 0.25


def test_a_deleter_may_be_missing(host):
    x = np.ones((2, 4), "f4")
    producer = Producer(x)
    producer._delete = None
    ce.array.softmax(producer, out=producer, context=host)
    np.testing.assert_allclose(x, 0.25)


def refusals():
    matrix = np.ones((2, 8), "f4")

    def case(error, message, **given):
        return pytest.param(error, message, given, id=message)

    return [
        case(TypeError, "input is of float64; expected", input=Producer(np.ones((2, 8)))),
        case(TypeError, "input is of float32 in vectors of 2", input=Producer(matrix, lanes=2)),
        case(ValueError, "input is of version 2 of DLPack; expected 1", input=Producer(matrix, major=2)),
        case(ValueError, "out cannot be written; .* not read-only", out=Producer(matrix, flags=1)),
        case(ValueError, "out cannot be written; .* a copy of itself", out=Producer(matrix, flags=2)),
        case(ValueError, r"out has sizes \(2, 7\); expected \(2, 8\)", out=Producer(np.ones((2, 7), "f4"))),
        case(ValueError, r"out has sizes \(8, 2\); expected \(2, 8\)", out=Producer(np.ones((8, 2), "f4"))),
        case(TypeError, "out.dtype is f16; expected f32", out=Producer(np.ones((2, 8), "f2"))),
        case(ValueError, "the arrays are on cuda:5; expected those of the Context's device, host",
             input=Producer(matrix, device=(2, 5)), out=Producer(np.ones((2, 8), "f4"), device=(2, 5))),
        case(ValueError, "out is on cuda:1; expected host", out=Producer(matrix, device=(2, 1))),
        case(ValueError, "the arrays are on DLPack's device 10; expected CUDA",
             input=Producer(matrix, device=(10, 0)), out=Producer(np.ones((2, 8), "f4"), device=(10, 0))),
        case(ValueError, "input has no axis", input=Producer(np.ones((), "f4"))),
    ]  # fmt: skip


@pytest.mark.parametrize(("error", "message", "given"), refusals())
def test_what_is_refused_is_given_back_and_nothing_is_written(error, message, given, host):
    given = {"input": Producer(np.ones((2, 8), "f4")), "out": Producer(np.full((2, 8), 7, "f4")), **given}
    before = given["out"].array.copy()
    with pytest.raises(error, match=message):
        ce.array.softmax(given["input"], out=given["out"], context=host)
    np.testing.assert_array_equal(given["out"].array, before)
    for producer in given.values():
        assert producer.released == producer.exported
    assert given["input"].exported == 1


def test_a_capsule_that_was_used_is_refused(host):
    y = np.ones((2, 8), "f4")
    used = Producer(y)
    ce.array.softmax(used, out=used, context=host)
    used.__class__ = type("Stale", (Producer,), {"__dlpack__": lambda self, **_: self.capsule})
    with pytest.raises(TypeError, match="input: its __dlpack__ returned no DLPack capsule"):
        ce.array.softmax(used, out=y, context=host)
    assert used.released == used.exported == 2


def test_arrays_of_jax_are_read_and_not_written(host):
    producer = Producer(np.ones((2, 8), "f4"))
    producer.__class__ = type("ArrayImpl", (Producer,), {"__module__": "jaxlib._jax"})
    y = np.empty((2, 8), "f4")
    ce.array.softmax(producer, out=y, context=host)
    with pytest.raises(ValueError, match=r"out cannot be written; .*JAX's"):
        ce.array.softmax(y, out=producer, context=host)
    assert producer.released == producer.exported == 2


def test_a_copied_input_is_read_before_it_is_given_back(host):
    y = np.empty((2, 8), "f4")
    producer = Producer(np.ones((2, 8), "f4"), flags=2)
    ce.array.softmax(producer, out=y, context=host)
    np.testing.assert_allclose(y, 1 / 8)
    assert producer.released == 1


def test_streams_are_named_as_dlpack_names_them():
    for given, told in ((None, 1), (0, 1), (1, 1), (2, 2), (4096, 4096)):
        producer = Producer(np.ones((2, 8), "f4"), device=(2, 63))
        with pytest.raises((RuntimeError, ValueError)):  # there is no such GPU
            ce.array.softmax(producer, out=producer, stream=given)
        assert producer.stream == told
        assert producer.released == 2
