"""libce_c.so in a Python process, which has a SQLite of its own: ctypes_test.py LIBRARY."""

import ctypes
import math
import os
import sqlite3
import sys
import tempfile
import unittest

LIBRARY = sys.argv.pop(1)


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rows", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("row_stride", ctypes.c_int64),
        ("column_stride", ctypes.c_int64),
        ("batch_rows", ctypes.c_int64),
        ("batch_stride", ctypes.c_int64),
    ]


class SoftmaxTensors(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("input", ctypes.POINTER(Tensor)),
        ("output", ctypes.POINTER(Tensor)),
    ]


class InAPythonProcess(unittest.TestCase):
    def setUp(self):
        self.ce = ctypes.CDLL(LIBRARY)
        self.ce.ce_last_error.restype = ctypes.c_char_p

    def test_runs_beside_another_sqlite(self):
        with tempfile.TemporaryDirectory() as folder:
            os.environ.update(CE_DEVICE="host", CE_POLICY="lookup", CE_DB=f"{folder}/ce.db", CE_SYSTEM_DB="none")
            values = (ctypes.c_float * 3)(1, 2, 3)
            x = Tensor(ctypes.addressof(values), 0, 1, 3, -(2**63), 1, 0, 0)
            tensors = SoftmaxTensors(ctypes.sizeof(SoftmaxTensors), ctypes.pointer(x), ctypes.pointer(x))
            status = self.ce.ce_softmax(None, None, ctypes.byref(tensors), None, None)
            self.assertEqual(status, 0, self.ce.ce_last_error())
            total = sum(math.exp(i) for i in (1, 2, 3))
            for got, i in zip(values, (1, 2, 3)):
                self.assertAlmostEqual(got, math.exp(i) / total, 6)
            with sqlite3.connect(":memory:") as own:
                self.assertEqual(own.execute("select sqlite_version()").fetchone()[0], sqlite3.sqlite_version)

    def test_says_what_is_wrong(self):
        x = Tensor(None, 0, -1, 3, -(2**63), 1, 0, 0)
        tensors = SoftmaxTensors(ctypes.sizeof(SoftmaxTensors), ctypes.pointer(x), ctypes.pointer(x))
        self.assertEqual(self.ce.ce_softmax(None, None, ctypes.byref(tensors), None, None), 1)
        self.assertTrue(self.ce.ce_last_error().startswith(b"Softmax: input"), self.ce.ce_last_error())


if __name__ == "__main__":
    unittest.main()
