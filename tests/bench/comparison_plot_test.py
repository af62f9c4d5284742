"""bench/comparison_plot.py on documents that are made up."""

import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from tables_test import SOURCE, Folder, comparison, document, problem, timing  # noqa: E402

import comparison_plot  # noqa: E402
import documents  # noqa: E402

KINDS = ({"operation": "softmax"}, {"operation": "cross_entropy", "gradient": True})


class Plot(Folder):
    def setUp(self):
        super().setUp()
        for number, kind in enumerate(KINDS):
            widths = [problem(columns, gbs=4000.0, **kind) for columns in (512, 1024, 4096)]
            self.write(f"gpu-2030-01-01-widths-{number}", document("2030-01-01T00:00:00Z", widths))
        self.write("gpu-2030-01-01-compare-a", comparison("2030-01-01T00:00:00Z", {"torch": timing(20.0)}))

    def test_a_peer_has_the_speed_of_ce_over_the_ratio(self):
        results = documents.Results(self.folder)
        ceiling, lines = comparison_plot.speeds(results, "softmax")
        self.assertEqual(ceiling, [(1024, 4300.0), (4096, 4300.0)])
        self.assertEqual(lines["ce"], [(1024, 4000.0), (4096, 4000.0)])
        self.assertEqual(lines["PyTorch"], [(1024, 2000.0)])
        self.assertEqual(lines["Liger-Kernel"], [])

    def test_it_is_svg_with_a_line_for_each(self):
        text = comparison_plot.drawing(documents.Results(self.folder))
        xml.etree.ElementTree.fromstring(text)
        self.assertEqual(len(re.findall("<title>ce, ", text)), 4)
        self.assertEqual(len(re.findall("<title>PyTorch, 1024 columns: 2000 GB/s", text)), 1)

    def test_a_stale_file_is_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "plot.svg"
            script = str(SOURCE / "bench" / "comparison_plot.py")
            command = [sys.executable, "-B", script, "--results", str(self.folder), "--file", str(file)]
            self.assertEqual(subprocess.run([*command, "--update"]).returncode, 0)
            self.assertEqual(subprocess.run([*command, "--check"]).returncode, 0)
            file.write_text(file.read_text().replace("4000", "4001"))
            self.assertEqual(subprocess.run([*command, "--check"], stderr=subprocess.DEVNULL).returncode, 1)


if __name__ == "__main__":
    unittest.main()
