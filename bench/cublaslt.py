"""Products of matrices by the fastest algorithm that cuBLASLt has: what a linear layer's loss can take at best.

torch.mm() runs the algorithm that cuBLASLt names first. Here up to 32 that it names are timed, and the fastest runs.
A product is never made in two, which helps where the classes are no multiple of 8.
"""

from __future__ import annotations

import ctypes
import statistics
from ctypes import Structure, byref, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p

import torch
from torch import Tensor

# Of cublasLt.h, cublas_api.h and library_types.h.
COMPUTE_32F, R_32F = 68, 0
TYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14}
DESC_TRANS_A, DESC_TRANS_B, OP_N, OP_T = 3, 4, 0, 1
PREFERENCE_WORKSPACE = 1
WORKSPACE = 32 << 20
MOST, FINALISTS, FINAL_TURNS = 32, 3, 4


class Algorithm(Structure):
    _fields_ = [("data", c_uint64 * 8)]


class Heuristic(Structure):
    _fields_ = [
        ("algorithm", Algorithm),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    ]


def _open() -> ctypes.CDLL:
    """The copy that torch has loaded."""
    for name in ("libcublasLt.so.13", "libcublasLt.so.12"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise OSError("no libcublasLt.so.13 or .12 is loaded or found")


def operand(matrix: Tensor) -> tuple[int, int, int, int]:
    """How cuBLASLt, whose matrices lie column by column, reads the transpose of a matrix: operation, rows, columns and
    the distance of columns."""
    rows, columns = matrix.shape
    if matrix.stride(1) == 1:
        return OP_N, columns, rows, matrix.stride(0)
    if matrix.stride(0) == 1:
        return OP_T, rows, columns, matrix.stride(1)
    raise ValueError(f"a matrix has the strides {matrix.stride()}; expected one of them to be 1")


class Products:
    """Owns a handle of cuBLASLt and its scratch memory, for the current GPU."""

    def __init__(self) -> None:
        self._library = _open()
        self._library.cublasLtGetStatusString.restype = ctypes.c_char_p
        self._library.cublasLtGetVersion.restype = c_size_t
        self._handle = c_void_p()
        self._call("cublasLtCreate", byref(self._handle))
        self._workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device="cuda")

    @property
    def version(self) -> int:
        return int(self._library.cublasLtGetVersion())

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise RuntimeError(f"{name}: {self._library.cublasLtGetStatusString(status).decode()}")

    def best(self, a: Tensor, b: Tensor, out: Tensor) -> Product:
        """The fastest for out = a b. Each result is compared with that of torch before it is timed."""
        product = Product(self, a, b, out)
        expected = torch.mm(a, b)
        scale = expected.float().norm()
        timed: list[tuple[float, Algorithm]] = []
        for algorithm in product.algorithms():
            product.algorithm = algorithm
            out.zero_()
            product()
            if (out - expected).float().norm() <= 2.0**-7 * scale:
                timed.append((min(product.time_ms() for _ in range(2)), algorithm))
        if not timed:
            raise RuntimeError("no algorithm of cuBLASLt gives the result of torch.mm")
        timed.sort(key=lambda one: one[0])
        finalists = [algorithm for _, algorithm in timed[:FINALISTS]]
        samples: list[list[float]] = [[] for _ in finalists]
        for _ in range(FINAL_TURNS):
            for algorithm, own in zip(finalists, samples):
                product.algorithm = algorithm
                own += [product.time_ms(), product.time_ms()]
        medians = [statistics.median(own) for own in samples]
        product.algorithm = finalists[medians.index(min(medians))]
        return product


class Product:
    """One product, which a call enqueues on torch's current stream."""

    def __init__(self, owner: Products, a: Tensor, b: Tensor, out: Tensor) -> None:
        if out.stride(1) != 1 or out.shape != (a.shape[0], b.shape[1]) or a.shape[1] != b.shape[0]:
            raise ValueError(f"sizes {list(a.shape)} x {list(b.shape)} -> {list(out.shape)} do not form a product")
        self.algorithm: Algorithm | None = None
        self._owner, self._tensors = owner, (a, b, out)
        self._description = c_void_p()
        owner._call("cublasLtMatmulDescCreate", byref(self._description), COMPUTE_32F, R_32F)
        # The transpose of the product: out' = b' a'.
        layouts = [operand(b), operand(a), operand(out)]
        for attribute, (operation, *_) in zip((DESC_TRANS_A, DESC_TRANS_B), layouts):
            value = c_int(operation)
            set_attribute = "cublasLtMatmulDescSetAttribute"
            owner._call(set_attribute, self._description, attribute, byref(value), c_size_t(ctypes.sizeof(value)))
        self._layouts = []
        for matrix, (_, rows, columns, distance) in zip((b, a, out), layouts):
            layout = c_void_p()
            sizes = (c_uint64(rows), c_uint64(columns), c_int64(distance))
            owner._call("cublasLtMatrixLayoutCreate", byref(layout), TYPES[matrix.dtype], *sizes)
            self._layouts.append(layout)

    def algorithms(self) -> list[Algorithm]:
        owner, preference, found = self._owner, c_void_p(), c_int()
        owner._call("cublasLtMatmulPreferenceCreate", byref(preference))
        most = c_uint64(WORKSPACE)
        set_attribute = "cublasLtMatmulPreferenceSetAttribute"
        owner._call(set_attribute, preference, PREFERENCE_WORKSPACE, byref(most), c_size_t(ctypes.sizeof(most)))
        results = (Heuristic * MOST)()
        left, right, out = self._layouts
        owner._call(
            "cublasLtMatmulAlgoGetHeuristic",
            *(owner._handle, self._description, left, right, out, out, preference, MOST, results, byref(found)),
        )
        owner._call("cublasLtMatmulPreferenceDestroy", preference)
        return [Algorithm.from_buffer_copy(one.algorithm) for one in results[: found.value] if one.state == 0]

    def __call__(self) -> None:
        a, b, out = (c_void_p(tensor.data_ptr()) for tensor in self._tensors)
        left, right, result = self._layouts
        one, zero = c_float(1), c_float(0)
        self._owner._call(
            "cublasLtMatmul",
            *(self._owner._handle, self._description, byref(one), b, left, a, right, byref(zero), out, result),
            *(out, result, byref(self.algorithm), c_void_p(self._owner._workspace.data_ptr()), c_size_t(WORKSPACE)),
            c_void_p(torch.cuda.current_stream().cuda_stream),
        )

    def time_ms(self) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        self()
        end.record()
        end.synchronize()
        return start.elapsed_time(end)
