"""bench/planted.py with two programs that are the same, on the host device: it asks to the end. And what it would plant."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import planted  # noqa: E402

CE_TUNE = pathlib.Path(sys.argv.pop(1))


class Planted(unittest.TestCase):
    def test_the_template_has_the_lines_that_are_edited(self):
        template = planted.TEMPLATE.read_text()
        self.assertEqual(planted.edited(template, planted.PLAIN), template)
        self.assertIn("block % 33 == 0", planted.edited(template, "1-in-66"))
        self.assertIn("clock64() + 200", planted.edited(template, "200-cycles"))

    def test_every_program_is_asked_about(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for program in (planted.PLAIN, "1-in-66"):
                (folder / "programs" / program).mkdir(parents=True)
                shutil.copy(CE_TUNE, folder / "programs" / program / "ce-tune")
            asked = subprocess.run(
                [sys.executable, "-B", BENCH / "planted.py", "--programs", folder / "programs", "--runs", folder / "runs",
                 "--device", "host", "--problem", "f32:8x4096", "--rounds", "2", "--runs-a-check", "2", "--draws", "1",
                 "--json", folder / "found.json"],
                capture_output=True, text=True, check=False)
            self.assertEqual(asked.returncode, 0, asked.stdout + asked.stderr)
            problem, = json.loads((folder / "found.json").read_text())["problems"]
            self.assertEqual(problem["title"], "softmax f32 8 x 4096")
            for program, draws in ((planted.PLAIN, 2), ("1-in-66", 1)):
                its = problem["programs"][program]
                self.assertEqual(its["draws"], draws)
                self.assertEqual(sum(its[verdict] for verdict in ("slower", "faster", "same", "unsure")), draws)
            self.assertIn("verdict", problem["programs"]["1-in-66"]["all_runs"])


if __name__ == "__main__":
    unittest.main()
