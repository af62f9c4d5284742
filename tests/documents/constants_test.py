"""Figures in the documents, and in texts of --help, that are constants of the sources are those of the sources."""

import re
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent.parent
WORDS = {"half": 0.5, "three": 3, "four": 4, "six": 6, "seven": 7, "eight": 8, "eighth": 8, "ten": 10, "tenth": 10,
         "twelve": 12, "thirteen": 13, "twenty": 20}

# A page (or a source with the text of --help) and its words; a source and its words; a factor and a summand. The number
# in parentheses in the page is that in the source times the factor plus the summand. A line break in a page counts as a
# space.
CONSTANTS = [
    ("README.md", r"2\^(\d+) columns and", "generator/problem.hpp", r"most_columns = std::int64_t\{1\} << (\d+);"),
    ("README.md", r"columns and 2\^(\d+) elements", "generator/problem.cpp",
     r"most_elements = std::int64_t\{1\} << (\d+);"),
    ("README.md", r"`CE_COMPILE_TIMEOUT` \| seconds for one kernel \| (\d+);", "runtime/workers/settings.hpp",
     r"kernel_limit\{(\d+)'000\}"),
    ("README.md", r"wait for its winner, (\w+) seconds at most", "tuner/tuner.cpp", r"\.budget_s = (\d+)\}", 3),
    ("README.md", r"CMake ([\d.]+), Ninja", "CMakeLists.txt", r"cmake_minimum_required\(VERSION ([\d.]+)\)"),
    ("README.md", r"for every 4 processors, at most (\d+) \|", "runtime/workers/settings.cpp",
     r"most_by_default = (\d+);"),
    ("README.md", r"seconds for one kernel \| \d+; (\d+) on the host device", "runtime/host/compiler.cpp",
     r"compile_limit\((\d+)\)"),
    ("docs/python.md", r"every Python from 3\.(\d+),", "python/pyproject.toml", r'requires-python = ">=3\.(\d+)"'),
    ("docs/python.md", r"every PyTorch from ([\d.]+) and", "python/pyproject.toml", r'"torch>=([\d.]+)"'),
    ("docs/python.md", r"sets aside \(default: (\d+) MiB\)", "include/ce/context.hpp",
     r"capture_bytes = std::int64_t\{(\d+)\} << 20;"),
    ("docs/arithmetic.md", r"\|y\| < ([\d.]+) \(f32", "templates/operations/logits.cuh",
     r"near = is_narrow \? ([\d.]+)f"),
    ("docs/arithmetic.md", r"\(f32: ([\d.]+)\)", "templates/operations/logits.cuh",
     r"near = is_narrow \? [\d.]+f : ([\d.]+)f;"),
    ("docs/kernels.md", r"It is offered for up to (\d+) rows", "generator/constraints.hpp",
     r"most_split_rows = (\d+);"),
    ("docs/kernels.md", r"whole rows, up to (\d+) values", "generator/constraints.cpp", r"int most_values = (\d+);"),
    ("docs/kernels.md", r"rows of up to (\d+) bytes without gaps", "generator/problem.hpp",
     r"widest_dense_row = (\d+);"),
    ("docs/kernels.md", r"Up to (\d+) rows with a gradient", "templates/arguments.cuh", r"most_fused_rows = (\d+);"),
    ("docs/cli.md", r"with replacement, (\d+) times", "cli/analysis/explain.hpp", r"resamplings = (\d+)"),
    ("docs/cli.md", r"more than (\d+) problems, only", "cli/report/page.cpp", r"most_with_details = (\d+);"),
    ("docs/cli.md", r"A search takes about (\d+) seconds on a GPU", "tuner/tuner.cpp", r"\.budget_s = (\d+)\}"),
    ("cli/commands/tuning_run.cpp", r"for about (\d+) seconds on a", "tuner/tuner.cpp", r"\.budget_s = (\d+)\}"),
    ("cli/commands/tuning_run.cpp", r"random: (\d+) of them", "tuner/strategy.hpp", r"int drawn = (\d+);"),
    ("cli/commands/tuning_run.cpp", r"random: \d+ of them, (\d+) on the host", "tuner/tuner.cpp", r"\.drawn = (\d+),"),
    ("cli/commands/tuning_run.cpp", r"as many as the strategy tries; on the host (\d+),", "tuner/tuner.cpp",
     r"\.most_configs = (\d+),"),
    ("cli/commands/sweep.cpp", r"Samples of each finalist, .*\(default: (\d+);", "tuner/strategy.hpp",
     r"int finalists = \d+, final_samples = (\d+);"),
    ("cli/commands/tuning_run.cpp", r"of which a search takes (\d+)GiB", "tuner/search.cpp",
     r"enough_scratch = std::int64_t\{(\d+)\} << 30;"),
    ("docs/cli.md", r"medians within ([\d.]+)% of the fastest", "tuner/decide.hpp", r"double tie = ([\d.]+);", 100),
    ("cli/db/prune.cpp", r"to keep in any case \(default: (\d+)\)", "cli/db/prune.cpp", r"usual_keep = (\d+);"),
    ("docs/linear.md", r"Up to a hidden size of (\d+)", "ce/linear_shape.cpp",
     r"most_hidden_of_exponentials = (\d+);"),
    ("docs/linear.md", r"on every rank, (\d+) MiB by default", "ce/linear_plan.cpp",
     r"default_budget = std::int64_t\{(\d+)\} << 20;"),
    ("docs/linear.md", r"on every rank, (\d+) MiB by default", "python/src/ce/torch/vocab_parallel_linear.py",
     r"_BUDGET = (\d+) << 20"),
    ("docs/ranks.md", r"`Communicator::patience`, (\d+) s;", "include/ce/ranks.hpp", r"double patience = (\d+);\n\};"),
    ("docs/ranks.md", r"rank_patience=\)`, (\d+) s \|", "include/ce/ranks.hpp",
     r"double patience = (\d+); +///< seconds that a kernel"),
    ("docs/python.md", r"tunes for (\d+) seconds, once", "tuner/tuner.cpp", r"\.budget_s = (\d+)\}"),
    ("docs/fleet.md", r"holds up to (\d+) pairs", "base/tags.cpp", r"most_tags = (\d+),"),
    ("docs/fleet.md", r"slower than the others by (\d+)% or more", "cli/analysis/fleet.hpp",
     r"least_difference = ([\d.]+);", 100),
    ("docs/cli.md", r"`fast` are (\d+)% or more", "cli/analysis/fleet.hpp", r"least_difference = ([\d.]+);", 100),
    ("docs/database.md", r"unless another gains (\w+) a percent", "tuner/decide.hpp", r"least_gain = ([\d.]+);", 100),
    ("docs/linear.md", r"at most (\d+) MiB *scratch", "ce/linear_plan.cpp",
     r"product_bytes = std::int64_t\{(\d+)\} << 20;"),
    ("docs/linear.md", r"an (\w+) of the budget at most", "ce/linear_plan.cpp", r"budget / (\d+) / piece_alignment"),
    ("docs/linear.md", r"in multiples of (\d+)\.", "ce/linear_plan.cpp", r"tile_tokens = (\d+);"),
    ("docs/linear.md", r"a (\w+) of the memory that is free", "ce/linear_chunks.cpp", r"divisor = (\d+);"),
    ("docs/linear.md", r"rounded up to (\d+) bytes", "ce/linear_shape.cpp", r"line_bytes = (\d+);"),
    ("docs/linear.md", r"beside a chunk of (\d+) tokens", "ce/linear_plan.cpp", r"least_f32_chunk = (\d+);"),
    ("docs/linear.md", r"each tile of (\d+) tokens", "templates/product_layout.cuh",
     r"rows_at_once = (\d+), rows = multipliers", 2),
    ("docs/linear.md", r"a ring of (\w+) to", "generator/linear.cpp", r"\{256, (\d+), 2, false\}"),
    ("docs/linear.md", r"a ring of \w+ to (\w+) stages", "generator/linear.cpp", r"\{128, (\d+), 2, true\}"),
    ("docs/ranks.md", r"after it sent it: (\d+) us", "tuner/verify/timing_trial.cpp", r"\.least = (\d+)000,"),
    ("docs/tuning.md", r"the (\d+) most promising structures", "tuner/strategy.hpp", r"int structures = (\d+);"),
    ("docs/tuning.md", r"of the (\d+) fastest structures", "tuner/strategy.hpp", r"int refined = (\d+);"),
    ("docs/tuning.md", r"structures, the (\d+) most promising cache modifiers each", "tuner/strategy.hpp",
     r"int modifiers = (\d+);"),
    ("docs/tuning.md", r"modifiers \| (\d+) \| \| refining", "tuner/strategy.hpp", r"int screening_samples = (\d+);"),
    ("docs/tuning.md", r"the (\d+) fastest so far, in turns", "tuner/strategy.hpp", r"semifinalists = (\d+),"),
    ("docs/tuning.md", r"fastest so far, in turns \| (\d+) \|", "tuner/strategy.hpp", r"semifinal_samples = (\d+);"),
    ("docs/tuning.md", r"the (\d+) fastest of these, in turns", "tuner/strategy.hpp", r"int finalists = (\d+),"),
    ("docs/tuning.md", r"fastest of these, in turns \| (\d+) \|", "tuner/strategy.hpp",
     r"int finalists = \d+, final_samples = (\d+);"),
    ("docs/tuning.md", r"fewer than (\w+) configs were measured", "tuner/strategy.hpp", r"int least_configs = (\d+);"),
    ("docs/tuning.md", r"means (\w+) samples of one kernel", "tuner/strategy.hpp", r"samples_a_turn = (\d+);"),
    ("docs/architecture.md", r"turn \| (\w+) samples of one Kernel", "tuner/strategy.hpp", r"samples_a_turn = (\d+);"),
    ("docs/tuning.md", r"get up to (\w+) times as many launches", "tuner/strategy.cpp", r"most_launches = (\d+);"),
    ("docs/tuning.md", r"Medians within ([\d.]+)% are a tie", "tuner/decide.hpp", r"double tie = ([\d.]+);", 100),
    ("docs/tuning.md", r"The budget is (\d+) seconds", "tuner/tuner.cpp", r"\.budget_s = (\d+)\}"),
    ("docs/tuning.md", r"those of them within ([\d.]+)% of the fastest", "tuner/strategy.hpp",
     r"play_off\{\d+, ([\d.]+), \d+\}", 100),
    ("docs/tuning.md", r"of the fastest, in turns \| (\d+) \|", "tuner/strategy.hpp", r"play_off\{(\d+), "),
    ("docs/tuning.md", r"the (\d+) fastest of these within", "tuner/strategy.hpp",
     r"decider\{\d+, [\d.]+, (\d+), [\d.]+\}"),
    ("docs/tuning.md", r"fastest of these within ([\d.]+)%, in turns", "tuner/strategy.hpp",
     r"decider\{\d+, ([\d.]+),", 100),
    ("docs/tuning.md", r"is uncertain by ([\d.]+)% or more", "tuner/strategy.hpp",
     r"decider\{\d+, [\d.]+, \d+, ([\d.]+)\}", 100),
    ("docs/tuning.md", r"uncertain by [\d.]+% or more \| (\d+) \|", "tuner/strategy.hpp", r"decider\{(\d+), "),
    ("docs/tuning.md", r"that begins (\w+) minutes later", "ce/chooser.cpp", r"ranks_begin_within = (\d+)min;"),
    ("docs/tuning.md", r"They end at (\d+)%", "tuner/search.cpp", r"share_of_turns = ([\d.]+);", 100),
    ("docs/ranking.md", r"recorded on fewer than (\d+) problems", "tuner/ranking.cpp", r"enough_problems = (\d+);"),
    ("docs/ranking.md", r"the (\w+) nearest problems", "tuner/nearest.hpp", r"most_neighbours = (\d+);"),
    ("docs/measuring.md", r"Differences within (\d+)% count as none", "cli/analysis/fleet.hpp",
     r"least_difference = ([\d.]+);", 100),
    ("docs/measuring.md", r"takes over (\d+)% longer than usual", "tuner/statistics.hpp",
     r"most_drift = ([\d.]+);", 100),
    ("docs/measuring.md", r"nothing up to (\d+)%", "cli/analysis/verdict.cpp", r"reference_noise = ([\d.]+),", 100),
    ("docs/measuring.md", r"all of it from (\d+)% on", "cli/analysis/verdict.cpp", r"surely_drift = ([\d.]+);", 100),
    ("docs/measuring.md", r"Below (\d+) us a sample", "tuner/strategy.cpp", r"short_us = (\d+);"),
    ("docs/measuring.md", r"exist up to (\w+) times", "tuner/bench.cpp", r"most_copies = (\d+),"),
    ("docs/measuring.md", r"processes of their own, up to (\d+)\.", "cli/analysis/verdict.hpp",
     r"most_processes_to_make = (\d+);"),
    ("docs/measuring.md", r"taken to be ([\d.]+) us, corrected", "cli/analysis/verdict.hpp",
     r"usual_process_us = ([\d.]+);"),
    ("docs/measuring.md", r"standard deviation is ([\d.]+)%, 0", "cli/analysis/verdict.cpp",
     r"usual_relative = ([\d.]+),", 100),
    ("docs/measuring.md", r"deviation is [\d.]+%, ([\d.]+) us and", "cli/analysis/verdict.cpp",
     r" usual_us = ([\d.]+),"),
    ("docs/measuring.md", r"us and ([\d.]+) us\^2 over the time", "cli/analysis/verdict.cpp",
     r" usual_square_us = ([\d.]+);"),
    ("docs/measuring.md", r"are taken out, ([\d.]+) us and", "cli/analysis/verdict.cpp",
     r"usual_us_without_launch = ([\d.]+),"),
    ("docs/measuring.md", r"counts as (\d+) runs at most", "cli/analysis/verdict.hpp", r"most_prior_degrees = (\d+);"),
    ("docs/measuring.md", r"the ratio is 1\.(\d+) or more", "cli/analysis/verdict.hpp",
     r"least_effect = ([\d.]+);", 100),
    ("docs/measuring.md", r"its ([\d.]+)% interval lies above 1", "cli/analysis/verdict.hpp",
     r"false_alarms = ([\d.]+);", -100, 100),
    ("docs/measuring.md", r"in 95: (\d+) for long kernels", "cli/analysis/verdict.hpp", r"fewest_runs_to_make = (\d+)"),
    ("docs/measuring.md", r"up to (\d+) for short ones", "cli/analysis/verdict.hpp", r"most_runs_to_make = (\d+);"),
]


def found(path, words):
    text = (SOURCE / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        text = re.sub(r"\n *", " ", text)
    matches = re.findall(words, text)
    if len(matches) != 1:
        raise AssertionError(f"{path}: {len(matches)} places match {words!r}")
    return float(WORDS.get(matches[0], matches[0]))


class Constants(unittest.TestCase):
    def test_pages_and_sources_agree(self):
        for page, words, source, code, *conversion in CONSTANTS:
            factor, summand = [*conversion, *[1, 0][len(conversion):]]
            with self.subTest(page=page, words=words):
                self.assertAlmostEqual(found(page, words), found(source, code) * factor + summand, places=9)


if __name__ == "__main__":
    unittest.main()
