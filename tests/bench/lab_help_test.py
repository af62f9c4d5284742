#!/usr/bin/env python3
"""Programs of bench/lab say what they do on machines without PyTorch and Triton."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

LAB = Path(__file__).resolve().parents[2] / "bench" / "lab"


class LabHelp(unittest.TestCase):
    def test_help_needs_no_package(self):
        programs = sorted(LAB.glob("*.py"))
        self.assertGreaterEqual(len(programs), 2)
        with tempfile.TemporaryDirectory() as folder:
            for name in ("torch", "triton"):
                (Path(folder) / f"{name}.py").write_text("raise ImportError('not here')", encoding="utf-8")
            for program in programs:
                with self.subTest(program=program.name):
                    shown = subprocess.run([sys.executable, "-B", str(program), "--help"], capture_output=True,
                                           text=True, timeout=60, env={"PYTHONPATH": folder})
                    self.assertEqual(shown.returncode, 0, shown.stderr)
                    self.assertIn("usage:", shown.stdout)


if __name__ == "__main__":
    unittest.main()
