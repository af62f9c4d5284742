"""Figures in the documents that are constants of the sources are those of the sources."""

import re
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent.parent
NUMBER = r"([\d.]+)"

# A page and its words; a source and its words. A number in parentheses in one is that of the other, times the factor.
# A line break in a page counts as a space.
CONSTANTS = [
    ("README.md", r"2\^(\d+) columns and", "generator/problem.hpp", r"most_columns = std::int64_t\{1\} << (\d+);"),
    ("README.md", r"columns and 2\^(\d+) elements", "generator/problem.cpp",
     r"most_elements = std::int64_t\{1\} << (\d+);"),
    ("README.md", r"`CE_COMPILE_TIMEOUT` \| seconds for one kernel \| (\d+);", "runtime/workers/settings.hpp",
     r"kernel_limit\{(\d+)'000\}"),
    ("docs/cli.md", r"`halving` .* about (\d+) seconds a problem", "tuner/tuner.cpp", r"\.budget_s = (\d+)\}"),
    ("docs/cli.md", r"`random` tries (\d+)", "tuner/strategy.hpp", r"int drawn = (\d+);"),
    ("docs/cli.md", r"`random` tries \d+ \((\d+) on the host\)", "tuner/tuner.cpp", r"\.drawn = (\d+),"),
    ("docs/cli.md", r"tries at most N configs .*?; (\d+) on the host\)", "tuner/tuner.cpp", r"\.most_configs = (\d+),"),
    ("docs/cli.md", r"samples of each finalist \(default: (\d+);", "tuner/strategy.hpp",
     r"int finalists = \d+, final_samples = (\d+);"),
    ("docs/cli.md", r"a quarter of what is free, (\d+) GiB at most", "tuner/search.cpp",
     r"enough_scratch = std::int64_t\{(\d+)\} << 30;"),
    ("docs/cli.md", r"medians within ([\d.]+)% of the fastest", "tuner/decide.hpp", r"double tie = ([\d.]+);", 100),
    ("docs/cli.md", r"`slower`, `faster` \| by (\d+)% or more", "cli/analysis/verdict.hpp",
     r"double least_effect = ([\d.]+);", 100),
    ("docs/cli.md", r"the noise that the database knows, (\d+) to", "cli/analysis/verdict.hpp",
     r"fewest_runs_to_make = (\d+)"),
    ("docs/cli.md", r"the noise that the database knows, \d+ to (\d+);", "cli/analysis/verdict.hpp",
     r"most_runs_to_make = (\d+);"),
    ("docs/cli.md", r"do not fill the device up to (\d+),", "cli/analysis/verdict.hpp",
     r"most_processes_to_make = (\d+);"),
    ("docs/cli.md", r"\(`--keep N`, default (\d+)\)", "cli/db/prune.cpp", r"usual_keep = (\d+);"),
]


def found(path, words):
    text = (SOURCE / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        text = re.sub(r"\n *", " ", text)
    matches = re.findall(words, text)
    if len(matches) != 1:
        raise AssertionError(f"{path}: {len(matches)} places match {words!r}")
    return float(matches[0])


class Constants(unittest.TestCase):
    def test_pages_and_sources_agree(self):
        for page, words, source, code, *factor in CONSTANTS:
            with self.subTest(page=page, words=words):
                self.assertAlmostEqual(found(page, words), found(source, code) * (factor or [1])[0], places=9)


if __name__ == "__main__":
    unittest.main()
