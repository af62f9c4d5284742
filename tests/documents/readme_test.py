"""The README shows the example that is compiled, and it and the pages of docs/ stay short."""

import re
import sys
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(SOURCE / "bench"))

import documents  # noqa: E402
import figures  # noqa: E402

README = (SOURCE / "README.md").read_text(encoding="utf-8")


class Readme(unittest.TestCase):
    def test_its_program_is_the_example(self):
        shown = re.search(r"<!-- (examples/\S+) -->\n```cpp\n(.*?)```\n", README, re.DOTALL)
        self.assertIsNotNone(shown)
        path, program = shown.groups()
        self.assertEqual(program, (SOURCE / path).read_text(encoding="utf-8"))
        self.assertIn(f" {Path(path).name})", (SOURCE / "examples" / "CMakeLists.txt").read_text(encoding="utf-8"))

    def test_two_commands_set_up(self):
        found = re.findall(r"^    (scripts/\S+)", README, re.MULTILINE)
        self.assertEqual(found, ["scripts/quickstart", "scripts/test"])

    def test_it_and_the_figures_are_short(self):
        self.assertLessEqual(len(README.splitlines()), 220)
        performance = (SOURCE / "docs" / "performance.md").read_text(encoding="utf-8")
        self.assertLessEqual(len(performance.splitlines()), 250)

    def test_all_pages_together_can_be_read(self):
        """What is new is worth more than something that is there, or is said in fewer words."""
        pages = sorted((SOURCE / "docs").glob("*.md"))
        self.assertTrue(pages)
        self.assertLessEqual(sum(len(page.read_text(encoding="utf-8").split()) for page in pages), 23_350)

    def test_it_names_what_stays_below_the_aim(self):
        """By the results: rows of up to 1024 columns, and losses without gradient; costly options are slower."""
        results = documents.Results(SOURCE / "bench" / "results")
        below = {key for key, cell in results.widths.items() if cell.value["share_of_ceiling"] < figures.AIM - 5e-4}
        self.assertIn("rows up to 1,024 columns, some wide losses without gradient, and most", " ".join(README.split()))
        others = {key for key in below if key[2] > 1024 and key[0] != "cross_entropy loss"}
        self.assertEqual(others, set())
        self.assertTrue({key for key in below if key[2] > 1024})
        self.assertTrue({key for key in below if key[2] <= 1024})

    def test_its_environment_is_that_of_the_sources(self):
        """Every variable of the table is read somewhere, and every CE_ variable that the product reads is in it."""
        table = README.partition("### Environment")[2].partition("\n## ")[0]
        first_cells = " ".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))
        named = set(re.findall(r"`(\w+)`", first_cells))
        sources = [path for room in ("base", "cache", "ce", "c", "cli", "generator", "runtime", "tuner")
                   for path in (SOURCE / room).rglob("*.[ch]pp")]
        sources += (SOURCE / "python" / "src").rglob("*.py")
        read = set()
        for path in sources:
            read.update(re.findall(r'"(CE_[A-Z_]+|TMPDIR)"', path.read_text(encoding="utf-8")))
        self.assertEqual(named - read, {"CE_CUDA_INCLUDE_DIR"})  # of builds
        self.assertEqual({name for name in read if name.startswith("CE_")} - named,
                         {"CE_PYTHON_BINARIES"})  # of work on ce


if __name__ == "__main__":
    unittest.main()
