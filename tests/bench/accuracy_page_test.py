"""docs/accuracy.md and bench/results/accuracy.md are what bench/accuracy.py makes of the documents that they name."""

import re
import subprocess
import sys
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent.parent


class Pages(unittest.TestCase):
    def test_are_what_their_commands_print(self):
        for name in ("docs/accuracy.md", "bench/results/accuracy.md"):
            with self.subTest(page=name):
                page = (SOURCE / name).read_text(encoding="utf-8")
                command = re.search(rf"^    (bench/accuracy.py --(?:markdown|table) .*) > {name}$", page, re.MULTILINE)
                self.assertIsNotNone(command)
                script, *words = command[1].split()
                made = subprocess.run([sys.executable, "-B", script, *words], cwd=SOURCE, stdout=subprocess.PIPE,
                                      text=True, check=True).stdout
                self.assertEqual(made.splitlines(), page.splitlines())

    def test_are_of_the_same_documents(self):
        """A page that was written anew alone would tell of other figures than the other."""
        command = re.compile(r"^    bench/accuracy.py --(?:markdown|table) (.*) >", re.MULTILINE)
        named = [command.findall((SOURCE / name).read_text(encoding="utf-8"))
                 for name in ("docs/accuracy.md", "bench/results/accuracy.md")]
        self.assertEqual(named[0], named[1])
        self.assertEqual(len(named[0]), 1)


if __name__ == "__main__":
    unittest.main()
