"""docs/accuracy.md is what bench/accuracy.py makes of the documents that the page names."""

import re
import subprocess
import sys
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent.parent


class Page(unittest.TestCase):
    def test_is_what_its_command_prints(self):
        page = (SOURCE / "docs" / "accuracy.md").read_text(encoding="utf-8")
        command = re.search(r"^    (bench/accuracy.py --markdown .*) > docs/accuracy.md$", page, re.MULTILINE)
        self.assertIsNotNone(command)
        script, *words = command[1].split()
        made = subprocess.run([sys.executable, "-B", script, *words], cwd=SOURCE, stdout=subprocess.PIPE, text=True,
                              check=True).stdout
        self.assertEqual(made.splitlines(), page.splitlines())


if __name__ == "__main__":
    unittest.main()
